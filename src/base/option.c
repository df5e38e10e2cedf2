// SPDX-License-Identifier: Apache-2.0
// The command line is read first, the environment then for rows it did not give, defaults last.
// Each value goes through one setter per type, whatever its origin.
#include "base/option.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

#define HELP_COLUMNS 100
#define HELP_INDENT "        "

enum given {
    GIVEN_NOT,
    GIVEN_BY_NAME,
    GIVEN_BY_ALIAS,
    GIVEN_BY_ENVIRONMENT,
};

struct parser {
    const struct option_table *table;
    void *values;
    struct error *err;
    unsigned char given[OPTION_MAX_ROWS];
};

// A value's origin, for messages.
struct origin {
    struct sv flag;       // as typed, or empty
    const char *variable; // or NULL
};

static void *value_of(const struct option_row *row, void *values)
{
    return (char *)values + row->offset;
}

static const void *value_in(const struct option_row *row, const void *values)
{
    return (const char *)values + row->offset;
}

static int bad_value(const struct parser *p, const struct option_row *row,
                     const struct origin *origin, const char *expected, struct sv found)
{
    int shown = found.len < 128 ? (int)found.len : 128;
    if (origin->variable)
        return error_set(p->err, -EINVAL, "%s (for --%s): expected %s, found '%.*s'",
                         origin->variable, row->name, expected, shown, found.ptr);
    return error_set(p->err, -EINVAL, "%.*s: expected %s, found '%.*s'", SV_FMT(origin->flag),
                     expected, shown, found.ptr);
}

static void list_clear(struct option_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct option_list){0};
}

static int list_add(struct option_list *list, struct sv item)
{
    char **items = reallocarray(list->items, list->count + 1, sizeof(*items));
    if (!items)
        return -ENOMEM;
    list->items = items;
    items[list->count] = sv_dup(item);
    if (!items[list->count])
        return -ENOMEM;
    list->count++;
    return 0;
}

static int set_list(struct option_list *list, struct sv text)
{
    struct sv piece;
    while (sv_next(&text, ',', &piece)) {
        piece = sv_trim(piece, " \t\r\n");
        if (piece.len && list_add(list, piece) < 0)
            return -ENOMEM;
    }
    return 0;
}

static int set_string(char **value, struct sv text)
{
    char *copy = sv_dup(text);
    if (!copy)
        return -ENOMEM;
    free(*value);
    *value = copy;
    return 0;
}

static int set_int(const struct parser *p, const struct option_row *row,
                   const struct origin *origin, struct sv text)
{
    bool bounded = row->min || row->max;
    int64_t min = bounded ? row->min : INT64_MIN, max = bounded ? row->max : INT64_MAX;
    char expected[96];
    int64_t value;
    if (num_parse_i64_go(text, min, max, &value) < 0) {
        struct buf b = BUF_INIT(sizeof(expected) - 1);
        buf_add_str(&b, "a whole number");
        if (bounded) {
            buf_add_str(&b, " from ");
            buf_add_i64(&b, min);
            buf_add_str(&b, " to ");
            buf_add_i64(&b, max);
        }
        sv_copy(expected, sizeof(expected), buf_sv(&b));
        buf_deinit(&b);
        return bad_value(p, row, origin, expected, text);
    }
    memcpy(value_of(row, p->values), &value, sizeof(value));
    return 0;
}

static int set_value(const struct parser *p, const struct option_row *row,
                     const struct origin *origin, struct sv text)
{
    uint64_t ns;
    bool truth;
    switch (row->type) {
    case OPTION_STRING:
        return set_string(value_of(row, p->values), text);
    case OPTION_LIST:
        return set_list(value_of(row, p->values), text);
    case OPTION_INT:
        return set_int(p, row, origin, text);
    case OPTION_BOOL:
        if (num_parse_bool_go(text, &truth) < 0)
            return bad_value(p, row, origin, "true or false", text);
        memcpy(value_of(row, p->values), &truth, sizeof(truth));
        return 0;
    case OPTION_DURATION:
        if (num_parse_duration_go(text, &ns) < 0)
            return bad_value(p, row, origin, "a duration such as 10s or 1m30s", text);
        memcpy(value_of(row, p->values), &ns, sizeof(ns));
        return 0;
    }
    return -EINVAL;
}

static void mark_given(struct parser *p, const struct option_row *row, enum given how)
{
    p->given[row - p->table->rows] = (unsigned char)how;
    if (row->set_offset != (size_t)-1) {
        bool yes = true;
        memcpy((char *)p->values + row->set_offset, &yes, sizeof(yes));
    }
}

static const struct option_row *find_row(const struct option_table *table, struct sv name,
                                         enum given *out_how)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];
        if (sv_equals(name, sv_from(row->name))) {
            *out_how = GIVEN_BY_NAME;
            return row;
        }
        if (row->alias && sv_equals(name, sv_from(row->alias))) {
            *out_how = GIVEN_BY_ALIAS;
            return row;
        }
    }
    return NULL;
}

static int unknown_flag(const struct parser *p, struct sv typed, struct sv name)
{
    struct sv_guess guess = sv_guess_start(name);
    for (size_t i = 0; i < p->table->count; i++)
        sv_guess_offer(&guess, sv_from(p->table->rows[i].name));
    sv_guess_offer(&guess, SV("version"));
    int shown = typed.len < 128 ? (int)typed.len : 128;
    if (!guess.best.len)
        return error_set(p->err, -EINVAL, "unknown flag '%.*s'; --help lists all", shown,
                         typed.ptr);
    return error_set(p->err, -EINVAL, "unknown flag '%.*s' (did you mean '--%.*s'?)", shown,
                     typed.ptr, SV_FMT(guess.best));
}

// Takes one flag of the command line; *at is its index, and that of its last word afterwards.
static int take_flag(struct parser *p, int argc, char **argv, int *at)
{
    struct sv word = sv_from(argv[*at]);
    struct sv name = sv_sub(word, word.ptr[1] == '-' ? 2 : 1, word.len);
    if (!name.len || name.ptr[0] == '-' || name.ptr[0] == '=')
        return error_set(p->err, -EINVAL, "bad flag syntax '%.*s'",
                         word.len < 128 ? (int)word.len : 128, word.ptr);
    size_t equals = sv_find_char(name, '=');
    bool has_value = equals != (size_t)-1;
    struct sv value = has_value ? sv_sub(name, equals + 1, name.len) : SV("true");
    name = sv_sub(name, 0, equals);
    struct origin origin = {.flag = sv_sub(word, 0, (size_t)(name.ptr - word.ptr) + name.len)};
    if (sv_equals(name, SV("help")) || sv_equals(name, SV("h")))
        return OPTION_OUTCOME_HELP;
    if (sv_equals(name, SV("version")) || sv_equals(name, SV("v")))
        return OPTION_OUTCOME_VERSION;

    enum given how = GIVEN_NOT;
    const struct option_row *row = find_row(p->table, name, &how);
    if (!row)
        return unknown_flag(p, origin.flag, name);
    enum given before = p->given[row - p->table->rows];
    if (before != GIVEN_NOT && before != how)
        return error_set(p->err, -EINVAL, "--%s and -%s are the same flag: give one of them",
                         row->name, row->alias);
    if (!has_value && row->type != OPTION_BOOL) {
        if (*at + 1 >= argc)
            return error_set(p->err, -EINVAL, "%.*s needs a value", SV_FMT(origin.flag));
        value = sv_from(argv[++*at]);
    }
    mark_given(p, row, how);
    return set_value(p, row, &origin, value);
}

static int read_command_line(struct parser *p, int argc, char **argv, int *out_first)
{
    int i = 1;
    for (; i < argc; i++) {
        if (argv[i][0] != '-' || argv[i][1] == '\0')
            break;
        if (strcmp(argv[i], "--") == 0) {
            i++;
            break;
        }
        int r = take_flag(p, argc, argv, &i);
        if (r)
            return r;
    }
    *out_first = i;
    if (i < argc && (strcmp(argv[i], "help") == 0 || strcmp(argv[i], "h") == 0))
        return OPTION_OUTCOME_HELP;
    return 0;
}

static const char *variable_find(char **environment, const char *name)
{
    size_t len = strlen(name);
    for (; environment && *environment; environment++) {
        if (strncmp(*environment, name, len) == 0 && (*environment)[len] == '=')
            return *environment + len + 1;
    }
    return NULL;
}

static int read_environment(struct parser *p, char **environment)
{
    for (size_t i = 0; i < p->table->count; i++) {
        const struct option_row *row = &p->table->rows[i];
        const char *text =
            row->env && p->given[i] == GIVEN_NOT ? variable_find(environment, row->env) : NULL;
        bool numeric = row->type == OPTION_INT || row->type == OPTION_DURATION;
        if (!text || (numeric && !*text))
            continue;
        mark_given(p, row, GIVEN_BY_ENVIRONMENT);
        if (row->type == OPTION_BOOL && !*text)
            text = "false";
        struct origin origin = {.variable = row->env};
        int r = set_value(p, row, &origin, sv_from(text));
        if (r < 0)
            return r;
    }
    return 0;
}

static int read_defaults(struct parser *p)
{
    for (size_t i = 0; i < p->table->count; i++) {
        const struct option_row *row = &p->table->rows[i];
        if (p->given[i] != GIVEN_NOT || (!row->default_text && row->type != OPTION_STRING))
            continue;
        struct origin origin = {.flag = sv_from(row->name)};
        int r = set_value(p, row, &origin, sv_from(row->default_text ? row->default_text : ""));
        if (r < 0)
            return r;
    }
    return 0;
}

int option_parse(const struct option_table *table, int argc, char **argv, char **environment,
                 void *values, int *out_first_positional, struct error *err)
{
    struct parser p = {.table = table, .values = values, .err = err};
    int first = argc;
    assert(table->count <= OPTION_MAX_ROWS);
    int r = read_command_line(&p, argc, argv, &first);
    if (r == 0)
        r = read_environment(&p, environment);
    if (r == 0)
        r = read_defaults(&p);
    if (r == -ENOMEM)
        (void)error_set(err, r, "out of memory");
    if (r)
        option_deinit(table, values);
    else if (out_first_positional)
        *out_first_positional = first;
    return r;
}

void option_deinit(const struct option_table *table, void *values)
{
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];
        if (row->type == OPTION_LIST)
            list_clear(value_of(row, values));
        if (row->type != OPTION_STRING)
            continue;
        char **value = value_of(row, values);
        free(*value);
        *value = NULL;
    }
}

bool option_is_default(const struct option_row *row, const void *values)
{
    struct sv text = sv_from(row->default_text ? row->default_text : "");
    const void *value = value_in(row, values);
    int64_t number = 0;
    uint64_t ns = 0;
    bool truth = false;
    switch (row->type) {
    case OPTION_STRING:
        return sv_equals(sv_from(*(char *const *)value), text);
    case OPTION_LIST:
        return ((const struct option_list *)value)->count == 0;
    case OPTION_INT:
        return num_parse_i64_go(text, INT64_MIN, INT64_MAX, &number) < 0 ||
               *(const int64_t *)value == number;
    case OPTION_BOOL:
        return (num_parse_bool_go(text, &truth) == 0 && truth) == *(const bool *)value;
    case OPTION_DURATION:
        return num_parse_duration_go(text, &ns) < 0 || *(const uint64_t *)value == ns;
    }
    return true;
}

static void add_wrapped(struct buf *out, struct sv text)
{
    size_t column = 0;
    struct sv word;
    while (sv_next(&text, ' ', &word)) {
        if (column && column + 1 + word.len > HELP_COLUMNS) {
            buf_add_char(out, '\n');
            column = 0;
        }
        buf_add_str(out, column ? " " : HELP_INDENT);
        column += column ? 1 : sizeof(HELP_INDENT) - 1;
        buf_add_sv(out, word);
        column += word.len;
    }
    buf_add_char(out, '\n');
}

static const char *type_word(enum option_type type)
{
    static const char *const words[] = {" TEXT", " NUMBER", "", " LIST", " DURATION"};
    return words[type];
}

static void add_row_help(struct buf *out, const struct option_row *row)
{
    struct buf text = BUF_INIT(4096);
    buf_add_fmt(out, "  --%s%s", row->name, type_word(row->type));
    if (row->alias)
        buf_add_fmt(out, ", -%s", row->alias);
    buf_add_char(out, '\n');
    buf_add_str(&text, row->help);
    if (row->inert)
        buf_add_str(&text, " Accepted without effect.");
    if (row->default_text && *row->default_text)
        buf_add_fmt(&text, " Default: %s.", row->default_text);
    if (row->env)
        buf_add_fmt(&text, " Variable: %s.", row->env);
    add_wrapped(out, buf_sv(&text));
    buf_deinit(&text);
}

void option_print_help(const struct option_table *table, struct buf *out)
{
    buf_add_fmt(out, "Usage: %s [FLAGS]\n\n%s\n", table->program, table->summary);
    const char *group = NULL;
    for (size_t i = 0; i < table->count; i++) {
        const struct option_row *row = &table->rows[i];
        if (!group || strcmp(group, row->group) != 0)
            buf_add_fmt(out, "\n%s\n", row->group);
        group = row->group;
        add_row_help(out, row);
    }
    buf_add_str(out, "\nOther\n  --help, -h\n" HELP_INDENT "Print this text.\n"
                     "  --version, -v\n" HELP_INDENT "Print the version.\n");
}

void option_print(const struct option_table *table, int outcome)
{
    struct buf text = BUF_INIT(1u << 20);
    if (outcome == OPTION_OUTCOME_HELP)
        option_print_help(table, &text);
    else
        buf_add_fmt(&text, "%s version %s\n", table->program, PODGPU_VERSION);
    if (text.len > 0) // an empty one has no data
        fwrite(text.data, 1, text.len, stdout);
    buf_deinit(&text);
}
