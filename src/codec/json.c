// SPDX-License-Identifier: Apache-2.0
// jansson decides what is JSON; it gives no position of a value. So the text is walked three times,
// each time linear: before jansson, to hold it to the caps on depth and values (jansson recurses);
// through jansson; and once more beside jansson's tree, which keeps members in the order of the
// text, to give each of our nodes the place it came from. The first walk trusts nothing; the last
// knows its text to be valid.
#include "codec/json.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

// jansson's type tags have the names of our kinds; they are not used here.
#define JSON_OBJECT JANSSON_OBJECT
#define JSON_ARRAY JANSSON_ARRAY
#define JSON_STRING JANSSON_STRING
#define JSON_INTEGER JANSSON_INTEGER
#define JSON_REAL JANSSON_REAL
#define JSON_NULL JANSSON_NULL
#include <jansson.h>
#undef JSON_OBJECT
#undef JSON_ARRAY
#undef JSON_STRING
#undef JSON_INTEGER
#undef JSON_REAL
#undef JSON_NULL

#include "base/arena.h"
#include "base/limits.h"
#include "base/num.h"

#define SPACE " \t\r\n"

struct json_document {
    struct arena arena;
    struct json_node *root;
};

// --- A walk over the text that knows where it is ---

struct cursor {
    const char *at, *end;
    const char *mark;      // line and column are those of this byte
    unsigned line, column; // 1-based; the column in characters
};

static struct cursor cursor_start(struct sv text)
{
    return (struct cursor){
        .at = text.ptr, .end = text.ptr + text.len, .mark = text.ptr, .line = 1, .column = 1};
}

// Brings line and column up to where the cursor stands.
static void locate(struct cursor *c)
{
    for (; c->mark < c->at; c->mark++) {
        if (*c->mark == '\n') {
            c->line++;
            c->column = 1;
        } else {
            c->column += (*c->mark & 0xc0) != 0x80;
        }
    }
}

static bool is_one_of(char byte, const char *set)
{
    return byte && strchr(set, byte);
}

static void skip_all_of(struct cursor *c, const char *set)
{
    while (c->at < c->end && is_one_of(*c->at, set))
        c->at++;
}

// To behind the closing quote, or to the end of what cannot be a string.
static void skip_string(struct cursor *c)
{
    c->at++;
    while (c->at < c->end && *c->at != '"' && *c->at != '\n') {
        bool escape = *c->at == '\\';
        c->at++;
        if (escape && c->at < c->end && *c->at != '\n')
            c->at++;
    }
    if (c->at < c->end && *c->at == '"')
        c->at++;
}

// Over one token: a string, a number or word, or a single byte.
static void skip_token(struct cursor *c)
{
    if (*c->at == '"') {
        skip_string(c);
    } else if (is_one_of(*c->at, "{}[]:,")) {
        c->at++;
    } else {
        c->at++;
        while (c->at < c->end && !is_one_of(*c->at, "{}[]:,\"" SPACE))
            c->at++;
    }
}

// --- Before jansson: the caps ---

static int check_caps(struct sv text, const char *file, struct error *err)
{
    struct cursor c = cursor_start(text);
    size_t depth = 0, values = 1;
    for (skip_all_of(&c, SPACE); c.at < c.end; skip_all_of(&c, SPACE)) {
        depth += *c.at == '{' || *c.at == '[';
        depth -= depth > 0 && (*c.at == '}' || *c.at == ']');
        values += *c.at == ',' || *c.at == '{' || *c.at == '[';
        if (depth > LIMIT_CONFIG_DEPTH || values > LIMIT_JSON_VALUES) {
            locate(&c);
            return error_set_at(err, -EFBIG, file, c.line, c.column, "%s",
                                depth > LIMIT_CONFIG_DEPTH ? "nested too deeply"
                                                           : "too many values");
        }
        skip_token(&c);
    }
    return 0;
}

// --- jansson ---

// jansson counts the bytes it has read; the token it stumbled over began before them.
static void locate_error(struct cursor *c, const json_error_t *e)
{
    bool at_end = json_error_code(e) == json_error_premature_end_of_input;
    size_t read = e->position < 0 ? 0 : (size_t)e->position;
    const char *reached = c->at + read;
    struct cursor token = *c;
    for (skip_all_of(c, SPACE); c->at < c->end && (at_end || c->at < reached);
         skip_all_of(c, SPACE)) {
        token = *c;
        skip_token(c);
    }
    if (!at_end)
        *c = token;
    locate(c);
}

// jansson takes some failed allocations for bad syntax, so they are noted here.
static _Thread_local bool out_of_memory;
static pthread_once_t allocator_once = PTHREAD_ONCE_INIT;

static void *allocate(size_t bytes)
{
    void *p = malloc(bytes);
    out_of_memory |= !p;
    return p;
}

static void set_allocator(void)
{
    json_set_alloc_funcs(allocate, free);
}

static int decode(struct sv text, const char *file, json_t **out, struct error *err)
{
    (void)pthread_once(&allocator_once, set_allocator);
    out_of_memory = false;
    json_error_t e = {.text = ""};
    json_t *tree =
        json_loadb(text.ptr, text.len, JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &e);
    // Its buffer of a string loses bytes without a word when it cannot grow.
    if (out_of_memory) {
        json_decref(tree);
        return error_set_at(err, -ENOMEM, file, 0, 0, "out of memory");
    }
    if (tree) {
        *out = tree;
        return 0;
    }
    struct cursor c = cursor_start(text);
    locate_error(&c, &e);
    return error_set_at(err, -EINVAL, file, c.line, c.column, "%s", e.text);
}

// --- Beside jansson's tree ---

// An object or array whose end has not come yet.
struct frame {
    json_t *container;
    void *member; // of an object: the next one
    size_t index; // of an array: the next one
    struct json_node *node;
    struct json_node *last; // child so far
};

struct builder {
    struct arena *arena;
    struct cursor cursor;
    struct frame frames[LIMIT_CONFIG_DEPTH];
    size_t depth; // frames in use
};

static struct sv copy(struct arena *a, const char *text, size_t len)
{
    const char *p = arena_dup(a, (struct sv){text, len});
    return (struct sv){p, p ? len : 0};
}

static void open_frame(struct builder *b, struct json_node *n, json_t *value)
{
    b->frames[b->depth++] = (struct frame){
        .container = value,
        .member = n->kind == JSON_OBJECT ? json_object_iter(value) : NULL,
        .node = n,
    };
}

// The value the cursor stands at, which begins as only values of its kind do. NULL: no memory.
static struct json_node *read_value(struct builder *b, json_t *value)
{
    struct json_node *n = arena_alloc(b->arena, sizeof(*n));
    if (!n)
        return NULL;
    struct cursor *c = &b->cursor;
    locate(c);
    *n = (struct json_node){.line = c->line, .column = c->column, .key = SV(""), .string = SV("")};
    char first = *c->at;
    const char *start = c->at;
    skip_token(c);
    if (first == '{' || first == '[') {
        n->kind = first == '{' ? JSON_OBJECT : JSON_ARRAY;
        open_frame(b, n, value);
    } else if (first == '"') {
        n->kind = JSON_STRING;
        n->string = copy(b->arena, json_string_value(value), json_string_length(value));
    } else if (first == 't' || first == 'f') {
        n->kind = JSON_BOOL;
        n->boolean = first == 't';
    } else if (first != 'n') {
        struct sv text = {start, (size_t)(c->at - start)};
        bool integer = num_parse_i64(text, INT64_MIN, INT64_MAX, &n->integer) == 0;
        n->kind = integer ? JSON_INTEGER : JSON_REAL;
        n->real = json_real_value(value);
    }
    return n;
}

// The next child of the innermost open container, or its end.
static int read_child(struct builder *b)
{
    struct frame *f = &b->frames[b->depth - 1];
    bool object = f->node->kind == JSON_OBJECT;
    json_t *value =
        object ? json_object_iter_value(f->member) : json_array_get(f->container, f->index);
    skip_all_of(&b->cursor, SPACE ",");
    if (!value) {
        b->cursor.at++; // the closing bracket
        b->depth--;
        return 0;
    }
    struct sv key = SV("");
    if (object) {
        key = copy(b->arena, json_object_iter_key(f->member), json_object_iter_key_len(f->member));
        skip_string(&b->cursor);
        skip_all_of(&b->cursor, SPACE ":");
        f->member = json_object_iter_next(f->container, f->member);
    }
    f->index++;
    struct json_node *n = read_value(b, value); // may open a frame; f stays
    if (!n || b->arena->error)
        return b->arena->error;
    n->key = key;
    if (f->last)
        f->last->next = n;
    else
        f->node->first = n;
    f->last = n;
    f->node->count++;
    return 0;
}

static int build(struct json_document *d, struct sv text, json_t *tree)
{
    struct builder *b = calloc(1, sizeof(*b)); // the frames are too much for a small thread's stack
    if (!b)
        return -ENOMEM;
    b->arena = &d->arena;
    b->cursor = cursor_start(text);
    skip_all_of(&b->cursor, SPACE);
    d->root = read_value(b, tree);
    int r = d->arena.error;
    while (r == 0 && b->depth)
        r = read_child(b);
    free(b);
    return r;
}

static int parse_into(struct json_document *d, struct sv text, const char *file, struct error *err)
{
    if (sv_starts_with(text, SV("\xef\xbb\xbf")))
        return error_set_at(err, -EINVAL, file, 1, 1, "a byte order mark cannot stand here");
    int r = check_caps(text, file, err);
    if (r < 0)
        return r;
    json_t *tree = NULL;
    r = decode(text, file, &tree, err);
    if (r < 0)
        return r;
    r = build(d, text, tree);
    json_decref(tree);
    if (r == -EFBIG)
        return error_set_at(err, r, file, 0, 0, "too large");
    return r < 0 ? error_set_at(err, r, file, 0, 0, "out of memory") : 0;
}

int json_parse(struct sv text, const char *file, struct json_document **out, struct error *err)
{
    if (text.len > LIMIT_JSON_BYTES)
        return error_set_at(err, -EFBIG, file, 0, 0, "larger than %u bytes", LIMIT_JSON_BYTES);
    struct json_document *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set_at(err, -ENOMEM, file, 0, 0, "out of memory");
    d->arena = ARENA_INIT(LIMIT_JSON_TREE_BYTES);
    int r = parse_into(d, text.ptr ? text : SV(""), file, err);
    if (r == 0)
        *out = d;
    else
        json_document_free(d);
    return r;
}

const struct json_node *json_root(const struct json_document *d)
{
    return d->root;
}

void json_document_free(struct json_document *d)
{
    if (!d)
        return;
    arena_erase(&d->arena); // answers with credentials are JSON
    arena_deinit(&d->arena);
    free(d);
}

const struct json_node *json_find(const struct json_node *object, const char *key)
{
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (const struct json_node *n = object->first; n; n = n->next) {
        if (sv_equals(n->key, sv_from(key)))
            return n;
    }
    return NULL;
}

const char *json_kind_text(enum json_kind kind)
{
    switch (kind) {
    case JSON_NULL:
        return "null";
    case JSON_BOOL:
        return "a boolean";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a number";
    case JSON_STRING:
        return "a string";
    case JSON_ARRAY:
        return "an array";
    case JSON_OBJECT:
        return "an object";
    }
    return "nothing";
}
