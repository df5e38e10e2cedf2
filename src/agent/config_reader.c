// SPDX-License-Identifier: Apache-2.0
#include "agent/config_reader.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "agent/prometheus_config.h"
#include "base/limits.h"
#include "base/num.h"

#define SHOWN_BYTES 64 // of foreign text in a message
#define MERGE_DEPTH 8  // of "<<" inside what "<<" names

// --- Problems ---

static void add_problem(struct config_reader *r, const struct error *err)
{
    char text[sizeof(err->file) + sizeof(err->text) + 32];
    if (r->problems++ == 0 && r->first)
        *r->first = *err;
    if (!r->errors)
        return;
    buf_add_str(r->errors, error_text(err, text, sizeof(text)));
    buf_add_char(r->errors, '\n');
}

void config_problem(struct config_reader *r, const struct yaml_node *n, const char *fmt, ...)
{
    struct error err = ERROR_INIT;
    char text[sizeof(err.text)];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    (void)error_set_at(&err, -EINVAL, r->file, n->line, n->column, "%s", text);
    add_problem(r, &err);
}

void config_unexpected(struct config_reader *r, const struct yaml_node *n, const char *expected)
{
    char key[SHOWN_BYTES + 3] = "";
    if (n->key.len)
        (void)snprintf(key, sizeof(key),
                       "%.*s: ", n->key.len < SHOWN_BYTES ? (int)n->key.len : SHOWN_BYTES,
                       n->key.ptr);
    int shown = n->scalar.len < SHOWN_BYTES ? (int)n->scalar.len : SHOWN_BYTES;
    if (yaml_is_null(n))
        config_problem(r, n, "%sexpected %s, found nothing", key, expected);
    else if (n->kind != YAML_SCALAR || r->hide)
        config_problem(r, n, "%sexpected %s, found a %s", key, expected,
                       n->kind == YAML_SCALAR    ? "text"
                       : n->kind == YAML_MAPPING ? "mapping"
                                                 : "list");
    else
        config_problem(r, n, "%sexpected %s, found %s'%.*s'", key, expected,
                       n->quoted ? "the text " : "", shown, n->scalar.ptr);
}

bool config_expect(struct config_reader *r, const struct yaml_node *n, enum yaml_kind kind,
                   const char *expected)
{
    if (n->kind == kind || yaml_is_null(n))
        return true;
    config_unexpected(r, n, expected);
    return false;
}

// --- Memory ---

void *config_alloc(struct config_reader *r, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total))
        return NULL;
    void *p = arena_alloc(r->arena, total ? total : 1);
    if (p)
        memset(p, 0, total);
    else
        r->failure = r->arena->error;
    return p;
}

char *config_text(struct config_reader *r, struct sv s)
{
    char *copy = (char *)(uintptr_t)arena_dup(r->arena, s);
    if (!copy)
        r->failure = r->arena->error;
    return copy;
}

char *config_path(struct config_reader *r, struct sv path)
{
    const char *slash = strrchr(r->file, '/');
    if (!path.len || path.ptr[0] == '/' || !slash)
        return config_text(r, path);
    size_t directory = (size_t)(slash - r->file) + 1;
    char *joined = config_alloc(r, directory + path.len + 1, 1);
    if (joined) {
        memcpy(joined, r->file, directory);
        memcpy(joined + directory, path.ptr, path.len);
    }
    return joined;
}

// --- Mappings ---

struct members {
    const struct yaml_node **items;
    size_t count, capacity;
};

static bool has_member(const struct members *m, size_t own, struct sv key)
{
    for (size_t i = 0; i < own; i++) {
        if (sv_equals(m->items[i]->key, key))
            return true;
    }
    return false;
}

static void add_member(struct config_reader *r, struct members *m, const struct yaml_node *n)
{
    if (m->count == m->capacity) {
        size_t capacity = m->capacity ? m->capacity * 2 : 16;
        const struct yaml_node **items = config_alloc(r, capacity, sizeof(*items));
        if (!items)
            return;
        if (m->count)
            memcpy(items, m->items, m->count * sizeof(*items));
        m->items = items;
        m->capacity = capacity;
    }
    m->items[m->count++] = n;
}

static bool is_merge(const struct yaml_node *n)
{
    return sv_equals(n->key, SV("<<"));
}

// The keys of a mapping that m has not yet. Its own "<<" come into next, to be looked at after it.
static void add_mapping(struct config_reader *r, struct members *m, const struct yaml_node *mapping,
                        struct members *next)
{
    size_t own = m->count; // a mapping has each key once, so only those before it can meet
    for (const struct yaml_node *n = mapping->first; n; n = n->next) {
        if (is_merge(n))
            add_member(r, next, n);
        else if (!has_member(m, own, n->key))
            add_member(r, m, n);
    }
}

// What a "<<" names: a mapping, or a list of them, of which the first wins.
static void add_merge(struct config_reader *r, struct members *m, const struct yaml_node *merge,
                      struct members *next)
{
    const struct yaml_node *first = merge->kind == YAML_SEQUENCE ? merge->first : merge;
    for (const struct yaml_node *n = first; n; n = merge->kind == YAML_SEQUENCE ? n->next : NULL) {
        if (n->kind == YAML_MAPPING)
            add_mapping(r, m, n, next);
        else
            config_unexpected(r, n, "a mapping to merge");
    }
}

const struct yaml_node **config_members(struct config_reader *r, const struct yaml_node *mapping,
                                        size_t *out_count)
{
    struct members m = {0}, merges = {0};
    if (mapping && mapping->kind == YAML_MAPPING)
        add_mapping(r, &m, mapping, &merges);
    for (unsigned depth = 0; merges.count && !r->failure; depth++) {
        if (depth == MERGE_DEPTH) {
            config_problem(r, merges.items[0], "merged too deeply");
            break;
        }
        struct members next = {0};
        for (size_t i = 0; i < merges.count; i++)
            add_merge(r, &m, merges.items[i], &next);
        merges = next;
    }
    *out_count = r->failure ? 0 : m.count;
    return m.items;
}

static void read_value(struct config_reader *r, const struct yaml_node *n,
                       const struct config_key *key, void *section)
{
    void *value = (char *)section + key->offset;
    switch (key->type) {
    case CONFIG_TEXT:
        (void)config_read_text(r, n, value);
        return;
    case CONFIG_PATH:
        (void)config_read_path(r, n, value);
        return;
    case CONFIG_BOOL:
        (void)config_read_bool(r, n, value);
        return;
    case CONFIG_COUNT:
        (void)config_read_count(r, n, value);
        return;
    case CONFIG_DURATION:
        (void)config_read_duration(r, n, value);
        return;
    case CONFIG_SIZE:
        (void)config_read_size(r, n, value);
        return;
    case CONFIG_LIST:
        (void)config_read_list(r, n, value);
        return;
    case CONFIG_CUSTOM:
        key->custom(r, n, section);
        return;
    case CONFIG_UNUSED:
        if (!yaml_is_null(n))
            config_ignore(r, n->key);
        return;
    case CONFIG_INLINE:
    case CONFIG_IGNORED:
        return;
    }
}

// The key's row, and in *section the section it is of: that given, or one inlined in it.
static const struct config_key *find_key(const struct config_key *keys, struct sv name,
                                         void **section)
{
    for (const struct config_key *k = keys; k->name; k++) {
        if (k->type != CONFIG_INLINE && sv_equals(name, sv_from(k->name)))
            return k;
        const struct config_key *inlined = k->type == CONFIG_INLINE ? k->keys : NULL;
        for (; inlined && inlined->name; inlined++) {
            if (sv_equals(name, sv_from(inlined->name))) {
                *section = (char *)*section + k->offset;
                return inlined;
            }
        }
    }
    return NULL;
}

static void unknown_key(struct config_reader *r, const struct yaml_node *n,
                        const struct config_key *keys)
{
    struct sv_guess guess = sv_guess_start(n->key);
    for (const struct config_key *k = keys; k->name; k++) {
        if (k->type != CONFIG_INLINE)
            sv_guess_offer(&guess, sv_from(k->name));
        for (const struct config_key *i = k->type == CONFIG_INLINE ? k->keys : NULL; i && i->name;
             i++)
            sv_guess_offer(&guess, sv_from(i->name));
    }
    struct yaml_node at = {.line = n->key_line, .column = n->key_column};
    config_problem(r, &at, "unknown key '%.*s'%s%.*s%s",
                   n->key.len < SHOWN_BYTES ? (int)n->key.len : SHOWN_BYTES, n->key.ptr,
                   guess.best.len ? " (did you mean '" : "", SV_FMT(guess.best),
                   guess.best.len ? "'?)" : "");
}

void config_read_section(struct config_reader *r, const struct yaml_node *n,
                         const struct config_key *keys, void *section)
{
    if (!config_expect(r, n, YAML_MAPPING, "a mapping"))
        return;
    size_t count;
    const struct yaml_node **members = config_members(r, n, &count);
    for (size_t i = 0; i < count && !r->failure; i++) {
        void *target = section;
        const struct config_key *key = find_key(keys, members[i]->key, &target);
        if (key)
            read_value(r, members[i], key, target);
        else
            unknown_key(r, members[i], keys);
    }
}

// --- Single values ---

bool config_read_text(struct config_reader *r, const struct yaml_node *n, char **out)
{
    if (n->kind != YAML_SCALAR) {
        config_unexpected(r, n, "a text");
        return false;
    }
    char *text = yaml_is_null(n) ? NULL : config_text(r, n->scalar);
    if (text)
        *out = text;
    return text;
}

bool config_read_bool(struct config_reader *r, const struct yaml_node *n, bool *out)
{
    if (yaml_is_null(n))
        return false;
    // Go's YAML takes these for booleans, too.
    bool plain = n->kind == YAML_SCALAR && !n->quoted;
    bool yes = plain && sv_equals_nocase(n->scalar, SV("y")),
         no = plain && sv_equals_nocase(n->scalar, SV("n"));
    if (yes || no)
        *out = yes;
    bool good = yes || no || yaml_read_bool(n, r->file, out, NULL) == 0;
    if (!good)
        config_unexpected(r, n, "a boolean");
    return good;
}

// As Go's YAML reads a whole number: also 0x10, 010, 1_000 and 1e3.
static bool parse_count(struct sv s, uint64_t *out)
{
    int64_t whole;
    double number;
    if (num_parse_i64_go(s, 0, INT64_MAX, &whole) == 0)
        *out = (uint64_t)whole;
    else if (num_parse_double(s, &number) == 0 && number >= 0 && number <= 1e15 &&
             number == (double)(uint64_t)number)
        *out = (uint64_t)number;
    else
        return false;
    return true;
}

bool config_read_count(struct config_reader *r, const struct yaml_node *n, uint64_t *out)
{
    if (yaml_is_null(n))
        return false;
    bool good = n->kind == YAML_SCALAR && !n->quoted && parse_count(n->scalar, out);
    if (!good)
        config_unexpected(r, n, "a whole number, 0 or more");
    return good;
}

bool config_read_duration(struct config_reader *r, const struct yaml_node *n, uint64_t *out_ns)
{
    if (yaml_is_null(n))
        return false;
    bool good = n->kind == YAML_SCALAR && prom_parse_duration(n->scalar, out_ns) == 0;
    if (!good)
        config_unexpected(r, n, "a duration as in 15s, 1m30s or 500ms");
    return good;
}

static bool take_unit(struct sv *s, unsigned *out_shift)
{
    static const char letters[] = "BKMGTPE";
    const char *found = s->len && s->ptr[0] ? strchr(letters, s->ptr[0]) : NULL;
    if (!found)
        return false;
    *out_shift = (unsigned)(found - letters) * 10;
    *s = sv_sub(*s, 1, s->len);
    if (!*out_shift)
        return true;
    // KB and KiB are both 1024 bytes.
    struct sv long_unit = SV("iB");
    size_t rest = sv_starts_with(*s, long_unit) ? 2 : sv_starts_with(*s, SV("B")) ? 1 : 0;
    *s = sv_sub(*s, rest, s->len);
    return rest > 0;
}

bool config_parse_size(struct sv s, uint64_t *out)
{
    uint64_t total = 0;
    if (sv_equals(s, SV("0"))) {
        *out = 0;
        return true;
    }
    if (!s.len)
        return false;
    while (s.len) {
        size_t digits = 0;
        while (digits < s.len &&
               ((s.ptr[digits] >= '0' && s.ptr[digits] <= '9') || s.ptr[digits] == '.'))
            digits++;
        double number;
        unsigned shift;
        struct sv text = sv_sub(s, 0, digits);
        s = sv_sub(s, digits, s.len);
        if (num_parse_double(text, &number) < 0 || !take_unit(&s, &shift))
            return false;
        number *= (double)(UINT64_C(1) << shift);
        if (number > (double)(INT64_MAX / 2) || total > INT64_MAX / 2)
            return false;
        total += (uint64_t)number;
    }
    *out = total;
    return true;
}

bool config_read_size(struct config_reader *r, const struct yaml_node *n, uint64_t *out_bytes)
{
    if (yaml_is_null(n))
        return false;
    bool good = n->kind == YAML_SCALAR && config_parse_size(n->scalar, out_bytes);
    if (!good)
        config_unexpected(r, n, "a size as in 512KB or 10MB");
    return good;
}

bool config_read_list(struct config_reader *r, const struct yaml_node *n, struct config_list *out)
{
    if (!config_expect(r, n, YAML_SEQUENCE, "a list") || yaml_is_null(n))
        return false;
    out->items = config_alloc(r, n->count, sizeof(*out->items));
    out->node = n;
    if (!out->items)
        return false;
    for (const struct yaml_node *item = n->first; item; item = item->next) {
        char *text = NULL;
        if (item->kind != YAML_SCALAR)
            config_unexpected(r, item, "a text");
        else
            text = config_text(r, yaml_is_null(item) ? SV("") : item->scalar);
        if (text)
            out->items[out->count++] = text;
    }
    return true;
}

bool config_read_path(struct config_reader *r, const struct yaml_node *n, char **out)
{
    char *text = NULL;
    if (config_read_text(r, n, &text))
        text = config_path(r, n->scalar);
    if (text)
        *out = text;
    return text;
}

void *config_read_items(struct config_reader *r, const struct yaml_node *n, size_t bytes,
                        void (*take)(struct config_reader *r, const struct yaml_node *n,
                                     void *item),
                        size_t *out_count)
{
    *out_count = 0;
    if (!config_expect(r, n, YAML_SEQUENCE, "a list") || yaml_is_null(n))
        return NULL;
    char *items = config_alloc(r, n->count, bytes);
    for (const struct yaml_node *item = n->first; item && items && !r->failure; item = item->next) {
        if (yaml_is_null(item))
            config_problem(r, item, "an empty section");
        else
            take(r, item, items + bytes * (*out_count)++);
    }
    return items;
}

const struct yaml_node *config_place(const struct yaml_node *mapping, const char *key)
{
    const struct yaml_node *n = yaml_find(mapping, key);
    return n ? n : mapping;
}

void config_ignore(struct config_reader *r, struct sv what)
{
    if (!r->ignored)
        return;
    struct sv rest = buf_sv(r->ignored), known;
    while (sv_next(&rest, ',', &known)) {
        if (sv_equals(sv_trim(known, " "), what))
            return;
    }
    if (r->ignored->len)
        buf_add_str(r->ignored, ", ");
    buf_add_sv(r->ignored, what);
}
