// SPDX-License-Identifier: Apache-2.0
// Sections are read by recursion over our own tables; foreign nesting is never followed that way.
#include "agent/cwagent_config_reader.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/config_reader.h"
#include "agent/prometheus_config.h"
#include "base/clock.h"
#include "base/limits.h"

#define SHOWN_BYTES 64                // of foreign text in a message
#define WHOLE_REALS 9007199254740992. // beyond 2^53 a double does not tell whole numbers apart

// --- Problems ---

static void tell(struct cw_reader *r, struct buf *out, const struct json_node *n, const char *text)
{
    struct error err = ERROR_INIT;
    char line[sizeof(err.file) + sizeof(err.text) + 32];
    if (!out)
        return;
    (void)error_set_at(&err, -EINVAL, r->file, n ? n->line : 0, n ? n->column : 0, "%s: %s",
                       r->path_len ? r->path : "/", text);
    buf_add_str(out, error_text(&err, line, sizeof(line)));
    buf_add_char(out, '\n');
}

void cw_problem(struct cw_reader *r, const struct json_node *n, const char *fmt, ...)
{
    char text[sizeof(((struct error *)0)->text)];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    r->problems++;
    tell(r, r->errors, n, text);
}

void cw_warning(struct cw_reader *r, const struct json_node *n, const char *fmt, ...)
{
    char text[sizeof(((struct error *)0)->text)];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    tell(r, r->warnings, n, text);
}

void cw_unexpected(struct cw_reader *r, const struct json_node *n, const char *expected)
{
    struct sv shown = sv_cut(n->string, SHOWN_BYTES);
    if (n->kind == JSON_STRING)
        cw_problem(r, n, "expected %s, found the string '%.*s'", expected, SV_FMT(shown));
    else if (n->kind == JSON_INTEGER)
        cw_problem(r, n, "expected %s, found %" PRId64, expected, n->integer);
    else if (n->kind == JSON_REAL)
        cw_problem(r, n, "expected %s, found %g", expected, n->real);
    else
        cw_problem(r, n, "expected %s, found %s", expected,
                   n->kind != JSON_BOOL ? json_kind_text(n->kind)
                   : n->boolean         ? "true"
                                        : "false");
}

bool cw_expect(struct cw_reader *r, const struct json_node *n, enum json_kind kind)
{
    if (n->kind != kind)
        cw_unexpected(r, n, json_kind_text(kind));
    return n->kind == kind;
}

// --- Paths ---

size_t cw_path_enter(struct cw_reader *r, struct sv name)
{
    size_t before = r->path_len, room = CW_PATH_BYTES - before;
    struct sv shown = sv_cut(name, room > SHOWN_BYTES ? SHOWN_BYTES : room);
    if (room > shown.len) {
        r->path[before] = '/';
        if (shown.len)
            memcpy(r->path + before + 1, shown.ptr, shown.len);
        r->path_len = before + 1 + shown.len;
        r->path[r->path_len] = '\0';
    }
    return before;
}

size_t cw_path_enter_index(struct cw_reader *r, size_t index)
{
    char text[24];
    (void)snprintf(text, sizeof(text), "%zu", index);
    return cw_path_enter(r, sv_from(text));
}

void cw_path_leave(struct cw_reader *r, size_t before)
{
    r->path_len = before;
    r->path[before] = '\0';
}

// The path as ignored, each once.
static void cw_ignore(struct cw_reader *r)
{
    char name[CW_PATH_BYTES + 1] = "";
    for (size_t i = 1; i < r->path_len; i++)
        name[i - 1] = (char)(r->path[i] == '/' ? '.' : r->path[i]);
    if (!r->ignored)
        return;
    struct sv rest = buf_sv(r->ignored), known;
    while (sv_next(&rest, ',', &known)) {
        if (sv_equals(sv_trim(known, " "), sv_from(name)))
            return;
    }
    if (r->ignored->len + strlen(name) + 2 > r->ignored->max)
        return;
    if (r->ignored->len)
        buf_add_str(r->ignored, ", ");
    buf_add_str(r->ignored, name);
}

// --- Memory ---

static void *note_failure(struct cw_reader *r, struct arena *a, void *p)
{
    if (!p)
        r->failure = a->error ? a->error : -ENOMEM;
    return p;
}

static void *alloc_in(struct cw_reader *r, struct arena *a, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total))
        return note_failure(r, a, NULL);
    void *p = note_failure(r, a, arena_alloc(a, total ? total : 1));
    if (p)
        memset(p, 0, total);
    return p;
}

void *cw_alloc(struct cw_reader *r, size_t count, size_t bytes)
{
    return alloc_in(r, r->arena, count, bytes);
}

char *cw_copy(struct cw_reader *r, struct sv s)
{
    return note_failure(r, r->arena, (char *)(uintptr_t)arena_dup(r->arena, s));
}

// --- Single values ---

size_t cw_characters(struct sv s)
{
    size_t count = 0;
    for (size_t i = 0; i < s.len; i++)
        count += (s.ptr[i] & 0xc0) != 0x80;
    return count;
}

bool cw_text_read(struct cw_reader *r, const struct json_node *n, int64_t min, int64_t max,
                  char **out)
{
    if (!cw_expect(r, n, JSON_STRING))
        return false;
    size_t characters = cw_characters(n->string);
    if (characters < (uint64_t)min || characters > (uint64_t)max) {
        cw_problem(r, n, "expected %" PRId64 " to %" PRId64 " characters, found %zu", min, max,
                   characters);
        return false;
    }
    char *copy = cw_copy(r, n->string);
    if (copy)
        *out = copy;
    return copy;
}

// The agent's schema takes 5.0 and 5e0 for whole numbers, too.
bool cw_whole_read(struct cw_reader *r, const struct json_node *n, int64_t min, int64_t max,
                   uint64_t *out)
{
    int64_t whole = n->integer;
    bool good = n->kind == JSON_INTEGER;
    if (n->kind == JSON_REAL && n->real >= -WHOLE_REALS && n->real <= WHOLE_REALS) {
        whole = (int64_t)n->real;
        good = (double)whole == n->real;
    }
    if (good && whole >= min && whole <= max) {
        *out = (uint64_t)whole;
        return true;
    }
    char expected[96];
    (void)snprintf(expected, sizeof(expected),
                   max == INT64_MAX ? "a whole number of at least %" PRId64
                                    : "a whole number from %" PRId64 " to %" PRId64,
                   min, max);
    cw_unexpected(r, n, expected);
    return false;
}

bool cw_duration_read(struct cw_reader *r, const struct json_node *n, int64_t min, int64_t max,
                      uint64_t *out_ns)
{
    uint64_t ns = 0;
    if (n->kind != JSON_STRING || prom_parse_duration(n->string, &ns) < 0) {
        cw_unexpected(r, n, "a duration as in \"60s\" or \"5m\"");
        return false;
    }
    if (ns < (uint64_t)min || ns > (uint64_t)max) {
        char expected[96];
        (void)snprintf(expected, sizeof(expected), "a duration from %" PRId64 " s to %" PRId64 " s",
                       min / (int64_t)NS_PER_S, max / (int64_t)NS_PER_S);
        cw_unexpected(r, n, expected);
        return false;
    }
    *out_ns = ns;
    return true;
}

static bool cw_size_read(struct cw_reader *r, const struct json_node *n, int64_t min, int64_t max,
                         uint64_t *out_bytes)
{
    uint64_t bytes = 0;
    if (n->kind != JSON_STRING || !config_parse_size(n->string, &bytes)) {
        cw_unexpected(r, n, "a size as in \"256MiB\"");
        return false;
    }
    if (bytes < (uint64_t)min || bytes > (uint64_t)max) {
        char expected[96];
        (void)snprintf(expected, sizeof(expected), "a size from %" PRId64 " MiB to %" PRId64 " MiB",
                       min >> 20, max >> 20);
        cw_unexpected(r, n, expected);
        return false;
    }
    *out_bytes = bytes;
    return true;
}

bool cw_choice_read(struct cw_reader *r, const struct json_node *n, const char *const *words,
                    size_t *out)
{
    char expected[96] = "";
    size_t used = 0;
    for (size_t i = 0; words[i]; i++) {
        if (n->kind == JSON_STRING && sv_equals(n->string, sv_from(words[i]))) {
            *out = i;
            return true;
        }
        int wrote = snprintf(expected + used, sizeof(expected) - used, "%s\"%s\"", i ? " or " : "",
                             words[i]);
        used += wrote > 0 && (size_t)wrote < sizeof(expected) - used ? (size_t)wrote : 0;
    }
    cw_unexpected(r, n, expected);
    return false;
}

// --- Whether two values are equal ---

static int compare_keys(const void *a, const void *b)
{
    const struct json_node *const *x = a, *const *y = b;
    return sv_compare((*x)->key, (*y)->key);
}

// Members by name, or elements in order.
static const struct json_node **children(struct cw_reader *r, const struct json_node *n)
{
    const struct json_node **items = alloc_in(r, &r->scratch, n->count, sizeof(*items));
    size_t count = 0;
    for (const struct json_node *child = n->first; child && items; child = child->next)
        items[count++] = child;
    if (n->kind == JSON_OBJECT && count)
        qsort(items, count, sizeof(const struct json_node *), compare_keys);
    return items;
}

static bool is_number(const struct json_node *n)
{
    return n->kind == JSON_INTEGER || n->kind == JSON_REAL;
}

// But for their children.
static bool looks_equal(const struct json_node *a, const struct json_node *b)
{
    if (is_number(a) && is_number(b))
        return a->kind == JSON_INTEGER && b->kind == JSON_INTEGER ? a->integer == b->integer
                                                                  : a->real == b->real;
    return a->kind == b->kind && a->count == b->count && sv_equals(a->string, b->string) &&
           (a->kind != JSON_BOOL || a->boolean == b->boolean);
}

struct pair {
    const struct json_node **a, **b;
    size_t at, count;
};

static bool push_pair(struct cw_reader *r, struct pair *p, const struct json_node *a,
                      const struct json_node *b)
{
    *p = (struct pair){children(r, a), children(r, b), 0, a->count};
    return p->a && p->b;
}

static bool values_equal(struct cw_reader *r, const struct json_node *a, const struct json_node *b)
{
    struct pair pairs[LIMIT_CONFIG_DEPTH + 1];
    size_t depth = 0;
    if (!looks_equal(a, b))
        return false;
    bool equal = !a->count || push_pair(r, &pairs[depth++], a, b);
    while (equal && depth) {
        struct pair *p = &pairs[depth - 1];
        if (p->at == p->count) {
            depth--;
            continue;
        }
        a = p->a[p->at];
        b = p->b[p->at++];
        equal = sv_equals(a->key, b->key) && looks_equal(a, b);
        if (equal && a->count)
            equal = push_pair(r, &pairs[depth++], a, b);
    }
    return equal;
}

// --- Sections ---

static const struct cw_key *find_key(const struct cw_section *s, struct sv name)
{
    for (const struct cw_key *k = s->keys; k->name; k++) {
        if (sv_equals(name, sv_from(k->name)))
            return k;
    }
    return NULL;
}

static void unknown_key(struct cw_reader *r, const struct json_node *n, const struct cw_section *s)
{
    struct sv_guess guess = sv_guess_start(n->key);
    for (const struct cw_key *k = s->keys; k->name; k++)
        sv_guess_offer(&guess, sv_from(k->name));
    if (s->open && guess.best.len)
        cw_warning(r, n, "unknown key, without effect (did you mean '%.*s'?)", SV_FMT(guess.best));
    else if (s->open)
        cw_ignore(r);
    else
        cw_problem(r, n, "unknown key%s%.*s%s", guess.best.len ? " (did you mean '" : "",
                   SV_FMT(guess.best), guess.best.len ? "'?)" : "");
}

static void read_bool(struct cw_reader *r, const struct json_node *n, bool *out)
{
    if (cw_expect(r, n, JSON_BOOL))
        *out = n->boolean;
}

// Where a value goes that is checked only.
union unused {
    char *text;
    bool yes;
    uint64_t number;
};

static void read_value(struct cw_reader *r, const struct json_node *n, const struct cw_key *k,
                       void *values)
{
    union unused unused;
    void *at = k->offset == CW_NOWHERE ? (void *)&unused : (char *)values + k->offset;
    switch (k->type) {
    case CW_TEXT:
        if (k->min > 0 || n->kind != JSON_STRING || n->string.len)
            (void)cw_text_read(r, n, k->min, k->max, at);
        return;
    case CW_BOOL:
        return read_bool(r, n, at);
    case CW_WHOLE:
        (void)cw_whole_read(r, n, k->min, k->max, at);
        return;
    case CW_DURATION:
        (void)cw_duration_read(r, n, k->min, k->max, at);
        return;
    case CW_SIZE:
        (void)cw_size_read(r, n, k->min, k->max, at);
        return;
    case CW_NODE:
        *(const struct json_node **)at = n;
        return;
    case CW_CUSTOM:
        return k->custom(r, n, values);
    case CW_IGNORED:
        if (k->custom)
            k->custom(r, n, values);
        return cw_ignore(r);
    case CW_SECTION: // read_sections
    case CW_ANY:
        return;
    }
}

// What the parts before this one say of the key.
static struct cw_part find_earlier(const struct cw_part *parts, size_t before, const char *key)
{
    for (size_t i = 0; i < before; i++) {
        const struct json_node *n = json_find(parts[i].node, key);
        if (n)
            return (struct cw_part){n, parts[i].file};
    }
    return (struct cw_part){0};
}

static void check_same(struct cw_reader *r, const struct json_node *n, struct cw_part earlier)
{
    if (!values_equal(r, earlier.node, n) && !r->failure)
        cw_problem(r, n, "differs from the value at %s:%u:%u", earlier.file, earlier.node->line,
                   earlier.node->column);
}

static void read_subsection(struct cw_reader *r, const struct cw_part *parts, size_t count,
                            const struct cw_key *k, void *values)
{
    struct cw_part *below = alloc_in(r, &r->scratch, count, sizeof(*below));
    size_t found = 0;
    for (size_t i = 0; i < count && below; i++) {
        const struct json_node *n = json_find(parts[i].node, k->name);
        if (n)
            below[found++] = (struct cw_part){n, parts[i].file};
    }
    if (below)
        cw_section_read(r, below, found, k->section, values);
}

static void read_member(struct cw_reader *r, const struct cw_part *parts, size_t count, size_t at,
                        const struct json_node *n, const struct cw_section *s, void *values)
{
    const struct cw_key *k = find_key(s, n->key);
    struct cw_part earlier = k ? find_earlier(parts, at, k->name) : (struct cw_part){0};
    if (!k)
        unknown_key(r, n, s);
    else if (k->type == CW_SECTION && !earlier.node)
        read_subsection(r, parts + at, count - at, k, values);
    else if (!earlier.node)
        read_value(r, n, k, values);
    else if (k->type != CW_SECTION && k->type != CW_ANY && k->type != CW_IGNORED)
        check_same(r, n, earlier);
}

void cw_section_read(struct cw_reader *r, const struct cw_part *parts, size_t count,
                     const struct cw_section *s, void *values)
{
    const char *outer = r->file;
    if (s->ignored)
        cw_ignore(r);
    for (size_t i = 0; i < count; i++) {
        r->file = parts[i].file;
        if (!cw_expect(r, parts[i].node, JSON_OBJECT))
            continue;
        for (const struct json_node *n = parts[i].node->first; n && !r->failure; n = n->next) {
            size_t before = cw_path_enter(r, n->key);
            read_member(r, parts, count, i, n, s, values);
            cw_path_leave(r, before);
            r->file = parts[i].file;
        }
    }
    r->file = count ? parts[0].file : outer;
    if (s->check && count && !r->failure)
        s->check(r, parts[0].node, values);
    r->file = outer;
}

void cw_object_read(struct cw_reader *r, const struct json_node *n, const struct cw_section *s,
                    void *values)
{
    struct cw_part part = {n, r->file};
    cw_section_read(r, &part, 1, s, values);
}
