// SPDX-License-Identifier: Apache-2.0
// A reader of records in the grammar of Go's encoding/csv (strict quotes, '#' comments, every
// record as long as the first), which dcgm-exporter uses, and the rules for a row on top of it. A
// record is unquoted into one fixed array; rows copy what they keep.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "exporter/counters.h"

#define FIELDS 3 // name, type, help

struct csv {
    struct sv rest; // behind the current line
    struct sv line; // what is left of the current line
    const char *line_start;
    unsigned line_number;
    const char *file;
    struct error *err;
};

// Where a field stands: its text in bytes, and its place in the file for messages.
struct csv_field {
    size_t start, len;
    unsigned line, column;
};

struct csv_record {
    char bytes[LIMIT_COUNTER_LINE_BYTES];
    size_t used;
    struct csv_field fields[FIELDS];
    unsigned count; // may be past FIELDS
    unsigned line;
};

static unsigned column_of(const struct csv *c, const char *at)
{
    return (unsigned)(at - c->line_start) + 1;
}

// Moves to the next line, without its end ("\n", "\r\n", or "\r" at the end of the file). False at
// the end.
static bool next_line(struct csv *c)
{
    if (!c->rest.len)
        return false;
    c->line_start = c->rest.ptr;
    c->line_number++;
    (void)sv_next(&c->rest, '\n', &c->line);
    if (sv_ends_with(c->line, SV("\r")))
        c->line.len--;
    return true;
}

static int record_put(struct csv *c, struct csv_record *r, struct sv text)
{
    if (text.len > sizeof(r->bytes) - r->used)
        return error_set_at(c->err, -E2BIG, c->file, r->line, 1, "record of more than %u bytes",
                            LIMIT_COUNTER_LINE_BYTES);
    if (text.len)
        memcpy(r->bytes + r->used, text.ptr, text.len);
    r->used += text.len;
    return 0;
}

static int parse_plain(struct csv *c, struct csv_record *r)
{
    size_t comma = sv_find_char(c->line, ',');
    struct sv text = sv_sub(c->line, 0, comma == (size_t)-1 ? c->line.len : comma);
    size_t quote = sv_find_char(text, '"');
    if (quote != (size_t)-1)
        return error_set_at(
            c->err, -EINVAL, c->file, c->line_number, column_of(c, text.ptr + quote),
            "found '\"' inside a field: a quoted field must begin with it, right behind the comma");
    c->line = sv_sub(c->line, text.len, c->line.len);
    return record_put(c, r, text);
}

// Takes the text up to a closing quote of this line, or all of the line. *closed says which.
static int take_quoted_piece(struct csv *c, struct csv_record *r, bool *closed)
{
    size_t quote = sv_find_char(c->line, '"');
    *closed = quote != (size_t)-1;
    struct sv piece = sv_sub(c->line, 0, *closed ? quote : c->line.len);
    c->line = sv_sub(c->line, piece.len + *closed, c->line.len);
    return record_put(c, r, piece);
}

static int parse_quoted(struct csv *c, struct csv_record *r)
{
    unsigned line = c->line_number, column = column_of(c, c->line.ptr);
    c->line = sv_sub(c->line, 1, c->line.len);
    for (;;) {
        bool closed;
        int rc = take_quoted_piece(c, r, &closed);
        if (rc < 0)
            return rc;
        if (!closed) {
            rc = record_put(c, r, SV("\n"));
            if (rc < 0)
                return rc;
            if (!next_line(c))
                return error_set_at(c->err, -EINVAL, c->file, line, column,
                                    "the quoted field that begins here is never closed");
            continue;
        }
        if (!c->line.len || c->line.ptr[0] == ',')
            return 0;
        if (c->line.ptr[0] != '"')
            return error_set_at(
                c->err, -EINVAL, c->file, c->line_number, column_of(c, c->line.ptr),
                "expected a comma or the end of the line behind a closing '\"', but found '%c'",
                c->line.ptr[0]);
        rc = record_put(c, r, SV("\""));
        if (rc < 0)
            return rc;
        c->line = sv_sub(c->line, 1, c->line.len);
    }
}

static int parse_field(struct csv *c, struct csv_record *r)
{
    size_t start = r->used;
    struct csv_field field = {
        .start = start, .line = c->line_number, .column = column_of(c, c->line.ptr)};
    int rc = sv_starts_with(c->line, SV("\"")) ? parse_quoted(c, r) : parse_plain(c, r);
    if (rc < 0)
        return rc;
    field.len = r->used - start;
    if (r->count < FIELDS)
        r->fields[r->count] = field;
    r->count++;
    return 0;
}

// 1: a record in *r. 0: the text is used up. Negative errno with the error set.
static int next_record(struct csv *c, struct csv_record *r)
{
    do {
        if (!next_line(c))
            return 0;
    } while (!c->line.len || c->line.ptr[0] == '#');
    r->used = 0;
    r->count = 0;
    r->line = c->line_number;
    for (;;) {
        int rc = parse_field(c, r);
        if (rc < 0)
            return rc;
        if (!c->line.len)
            return 1;
        c->line = sv_sub(c->line, 1, c->line.len); // the comma
    }
}

static int check_field_count(const struct csv *c, const struct csv_record *r)
{
    if (r->count == FIELDS)
        return 0;
    const char *hint = r->count > FIELDS ? " (a help text with a comma in it must be quoted)" : "";
    return error_set_at(c->err, -EINVAL, c->file, r->line, 1,
                        "expected 3 fields (name, type, help), but found %u%s", r->count, hint);
}

// --- rows ---

// A row as it was found; columns are 0 when it did not come from a CSV file.
static const char *const type_texts[] = {
    [COUNTER_GAUGE] = "gauge",     [COUNTER_COUNTER] = "counter", [COUNTER_HISTOGRAM] = "histogram",
    [COUNTER_SUMMARY] = "summary", [COUNTER_LABEL] = "label",
};

// What of s goes into a message.
static struct sv excerpt(struct sv s)
{
    return sv_sub(s, 0, 80);
}

static bool has_form_of_name(struct sv name)
{
    return sv_starts_with(name, SV("DCGM_FI_")) || sv_starts_with(name, SV("DCGM_EXP_")) ||
           sv_starts_with(name, SV("dcgm_"));
}

static int unknown_name(const struct counter_row *row, struct error *err)
{
    const char *nearest = field_nearest_name(row->name);
    struct sv name = excerpt(row->name);
    if (!name.len)
        return error_set_at(err, -EINVAL, row->file, row->line, row->name_column,
                            "expected the name of a field, but found none");
    struct sv bare = sv_trim(row->name, " \t\r\n");
    if (field_find_by_name(bare))
        return error_set_at(err, -EINVAL, row->file, row->line, row->name_column,
                            "only spaces may stand beside '%.*s', but found a tab or a line break",
                            SV_FMT(bare));
    if (nearest)
        return error_set_at(err, -EINVAL, row->file, row->line, row->name_column,
                            "unknown field '%.*s'; the nearest known one is '%s'", SV_FMT(name),
                            nearest);
    if (has_form_of_name(bare))
        return error_set_at(err, -EINVAL, row->file, row->line, row->name_column,
                            "unknown field '%.*s': there is none of that name, nor one like it",
                            SV_FMT(name));
    return error_set_at(err, -EINVAL, row->file, row->line, row->name_column,
                        "unknown field '%.*s'; expected a DCGM_FI_*, DCGM_EXP_* or dcgm_* name",
                        SV_FMT(name));
}

// dcgm-exporter checks the type of DCGM's fields only: on its own counters (and the placeholder, id
// 0) it echoes any.
static int find_type(const struct counter_row *row, const struct field_info *field,
                     enum counter_type *out, struct error *err)
{
    bool own = field->id >= FIELD_EXP_FIRST || field->id == 0;
    for (size_t i = 0; i < ARRAY_SIZE(type_texts); i++) {
        if (sv_equals(row->type, sv_from(type_texts[i])) && !(own && i == COUNTER_LABEL)) {
            *out = (enum counter_type)i;
            return 0;
        }
    }
    if (own) {
        *out = COUNTER_OTHER;
        return 0;
    }
    struct sv type = excerpt(row->type);
    return error_set_at(err, -EINVAL, row->file, row->type_line, row->type_column,
                        "unknown type '%.*s'; expected gauge, counter, histogram, summary or label",
                        SV_FMT(type));
}

// Text goes onto the page: what no scraper could read is refused here. A type stands on one line
// unescaped.
static int check_text(const struct counter_row *row, struct error *err)
{
    for (size_t i = 0; i < row->type.len; i++)
        if ((unsigned char)row->type.ptr[i] < 0x20)
            return error_set_at(err, -EINVAL, row->file, row->type_line, row->type_column,
                                "control character in the type");
    if (!sv_is_utf8(row->type))
        return error_set_at(err, -EINVAL, row->file, row->type_line, row->type_column,
                            "the type is not UTF-8 text");
    if (!sv_is_utf8(row->help) || sv_find_char(row->help, '\0') != (size_t)-1)
        return error_set_at(err, -EINVAL, row->file, row->help_line, row->help_column,
                            "the help is not UTF-8 text");
    return 0;
}

static void counter_deinit(struct counter *c)
{
    free(c->name);
    free(c->help);
    free(c->type_text);
}

static int append(struct counter_list *l, const struct counter *c)
{
    // Room doubles at each power of two, so the count alone tells how much there is.
    if ((l->count & (l->count - 1)) == 0) {
        struct counter *grown = realloc(l->rows, (l->count ? l->count * 2 : 1) * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        l->rows = grown;
    }
    l->rows[l->count++] = *c;
    return 0;
}

int counters_add(struct counter_list *l, const struct counter_row *row, struct error *err)
{
    const struct field_info *field = field_find_by_name(row->name);
    if (!field)
        return unknown_name(row, err);
    struct counter c = {.field = field, .line = row->line};
    int rc = find_type(row, field, &c.type, err);
    if (rc == 0)
        rc = check_text(row, err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < l->count; i++) {
        if (l->rows[i].field == field) {
            l->duplicates++;
            return 0;
        }
    }
    if (l->count >= LIMIT_COUNTERS)
        return error_set_at(err, -E2BIG, row->file, row->line, 0, "more than %u counters",
                            LIMIT_COUNTERS);
    c.name = sv_dup(row->name);
    c.type_text = sv_dup(row->type);
    c.help = sv_dup(row->help);
    rc = c.name && c.type_text && c.help ? append(l, &c) : -ENOMEM;
    if (rc < 0) {
        counter_deinit(&c);
        return error_set(err, rc, "out of memory");
    }
    return 0;
}

static struct sv field_text(const struct csv_record *r, unsigned i)
{
    return sv_trim((struct sv){r->bytes + r->fields[i].start, r->fields[i].len}, " ");
}

static int add_record(struct counter_list *l, const struct csv *c, const struct csv_record *r)
{
    int rc = check_field_count(c, r);
    if (rc < 0)
        return rc;
    struct counter_row row = {
        .name = field_text(r, 0),
        .type = field_text(r, 1),
        .help = field_text(r, 2),
        .line = r->line,
        .name_column = r->fields[0].column,
        .type_line = r->fields[1].line,
        .type_column = r->fields[1].column,
        .help_line = r->fields[2].line,
        .help_column = r->fields[2].column,
        .file = c->file,
    };
    return counters_add(l, &row, c->err);
}

// --- the module ---

void counter_list_deinit(struct counter_list *l)
{
    for (size_t i = 0; i < l->count; i++)
        counter_deinit(&l->rows[i]);
    free(l->rows);
    *l = (struct counter_list){0};
}

int counters_parse(struct sv text, const char *file, struct counter_list *out, struct error *err)
{
    struct counter_list list = {0};
    struct csv csv = {.rest = text, .file = file, .err = err};
    if (sv_starts_with(text, SV("\xef\xbb\xbf"))) // what some editors put in front of UTF-8
        csv.rest = sv_sub(text, 3, text.len);
    struct csv_record record;
    int rc;
    while ((rc = next_record(&csv, &record)) > 0) {
        rc = add_record(&list, &csv, &record);
        if (rc < 0)
            break;
    }
    if (rc < 0) {
        counter_list_deinit(&list);
        return rc;
    }
    counters_sort(&list);
    *out = list;
    return 0;
}

static int compare_counters(const void *a, const void *b)
{
    const struct counter *x = a, *y = b;
    if (x->field->id != y->field->id)
        return x->field->id < y->field->id ? -1 : 1;
    int order = strcmp(x->name, y->name);
    if (!order)
        order = strcmp(x->type_text, y->type_text);
    return order ? order : strcmp(x->help, y->help);
}

void counters_sort(struct counter_list *l)
{
    if (l->count)
        qsort(l->rows, l->count, sizeof(*l->rows), compare_counters);
}
