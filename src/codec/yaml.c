// SPDX-License-Identifier: Apache-2.0
// libyaml's events become nodes as they arrive, so that a document too deep or too large is left at
// the first event past a cap (libyaml alone is quadratic in nesting depth). Open collections stand
// on a stack of frames. A node knows the size and height of its expanded tree, so that an alias
// costs one node of memory but is counted as all it stands for: no document grows beyond its cap
// when it is walked.
#include "codec/yaml.h"

#include <errno.h>
#include <stdlib.h>
#include <yaml.h>

#include "base/arena.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/num.h"

#define SHOWN_BYTES 64 // of foreign text in a message

// Public node first: the two are converted by cast.
struct node {
    struct yaml_node node;
    struct node *last; // child
    size_t weight;     // nodes of the expanded tree, itself included
    unsigned height;   // nested collections, itself included; 0 for a scalar
};

struct yaml_document {
    struct arena memory; // of all nodes and texts
    struct node *root;
};

// A collection whose end has not come yet.
struct frame {
    struct node *node;
    struct map keys; // of a mapping
    bool has_key;    // a key was read, its value comes next
    struct sv key;
    unsigned key_line, key_column;
    char *anchor; // owned, or NULL
};

struct builder {
    yaml_parser_t parser;
    struct yaml_document *document;
    const char *file;
    struct error *err;
    struct frame frames[LIMIT_CONFIG_DEPTH];
    unsigned depth;     // frames in use
    struct map anchors; // to struct node *
    size_t weight;      // nodes so far, expanded
    unsigned documents;
};

void yaml_document_free(struct yaml_document *d)
{
    if (!d)
        return;
    arena_deinit(&d->memory);
    free(d);
}

void yaml_document_erase(struct yaml_document *d)
{
    if (d)
        arena_erase(&d->memory);
    yaml_document_free(d);
}

const struct yaml_node *yaml_root(const struct yaml_document *d)
{
    return &d->root->node;
}

static int fail_at(struct builder *b, const yaml_mark_t *mark, int code, const char *text)
{
    return error_set_at(b->err, code, b->file, (unsigned)mark->line + 1, (unsigned)mark->column + 1,
                        "%s", text);
}

static int no_memory(struct builder *b)
{
    return error_set_at(b->err, -ENOMEM, b->file, 0, 0, "out of memory");
}

static int copy_text(struct builder *b, const yaml_event_t *event, struct sv *out)
{
    struct sv text = {(const char *)event->data.scalar.value, event->data.scalar.length};
    if (sv_find_char(text, '\0') != (size_t)-1)
        return fail_at(b, &event->start_mark, -EINVAL, "a NUL character is not accepted in text");
    const char *copy = arena_dup(&b->document->memory, text);
    if (!copy)
        return no_memory(b);
    *out = (struct sv){copy, text.len};
    return 0;
}

static int new_node(struct builder *b, const yaml_mark_t *mark, enum yaml_kind kind,
                    struct node **out)
{
    struct node *n = arena_alloc(&b->document->memory, sizeof(*n));
    if (!n)
        return no_memory(b);
    *n = (struct node){
        .node = {.kind = kind,
                 .line = (unsigned)mark->line + 1,
                 .column = (unsigned)mark->column + 1,
                 .scalar = SV("")},
        .weight = 1,
        .height = kind == YAML_SCALAR ? 0 : 1,
    };
    *out = n;
    return 0;
}

// The caps on the tree as a reader walks it: weight and height are what comes in at the present
// depth.
static int check_caps(struct builder *b, const yaml_mark_t *mark, size_t weight, unsigned height)
{
    if (b->depth + height > LIMIT_CONFIG_DEPTH)
        return fail_at(b, mark, -EFBIG, "nested too deeply");
    if (weight > LIMIT_CONFIG_NODES - b->weight)
        return fail_at(b, mark, -EFBIG, "too many values");
    b->weight += weight;
    return 0;
}

// Puts a finished or just opened node where it belongs: under the innermost open collection, or at
// the root.
static void attach(struct builder *b, struct node *n)
{
    if (!b->depth) {
        b->document->root = n;
        return;
    }
    struct frame *f = &b->frames[b->depth - 1];
    struct node *parent = f->node;
    if (parent->node.kind == YAML_MAPPING) {
        n->node.key = f->key;
        n->node.key_line = f->key_line;
        n->node.key_column = f->key_column;
        f->has_key = false;
    }
    if (parent->last)
        parent->last->node.next = &n->node;
    else
        parent->node.first = &n->node;
    parent->last = n;
    parent->node.count++;
}

// What a complete node adds to the collection around it.
static void account(struct builder *b, const struct node *n)
{
    if (!b->depth)
        return;
    struct node *parent = b->frames[b->depth - 1].node;
    parent->weight += n->weight;
    if (parent->height < n->height + 1)
        parent->height = n->height + 1;
}

static int set_anchor(struct builder *b, const yaml_mark_t *mark, const char *anchor,
                      struct node *n)
{
    if (!anchor)
        return 0;
    // A later anchor of the name replaces it (YAML 1.2, 7.1).
    int r = map_put(&b->anchors, sv_from(anchor), n, NULL);
    if (r == -E2BIG)
        return fail_at(b, mark, -EFBIG, "too many anchors");
    return r < 0 ? no_memory(b) : 0;
}

static bool wants_key(const struct builder *b)
{
    const struct frame *f = b->depth ? &b->frames[b->depth - 1] : NULL;
    return f && f->node->node.kind == YAML_MAPPING && !f->has_key;
}

static int take_key(struct builder *b, const yaml_event_t *event)
{
    struct frame *f = &b->frames[b->depth - 1];
    if (event->data.scalar.anchor)
        return fail_at(b, &event->start_mark, -EINVAL, "an anchor on a key is not accepted");
    int r = copy_text(b, event, &f->key);
    if (r < 0)
        return r;
    f->key_line = (unsigned)event->start_mark.line + 1;
    f->key_column = (unsigned)event->start_mark.column + 1;
    f->has_key = true;
    if (map_find(&f->keys, f->key))
        return error_set_at(b->err, -EINVAL, b->file, f->key_line, f->key_column,
                            "key '%.*s' stands here twice",
                            f->key.len < SHOWN_BYTES ? (int)f->key.len : SHOWN_BYTES, f->key.ptr);
    return map_put(&f->keys, f->key, f->node, NULL) < 0 ? no_memory(b) : 0;
}

static int take_scalar(struct builder *b, const yaml_event_t *event)
{
    if (wants_key(b))
        return take_key(b, event);
    struct node *n = NULL;
    int r = check_caps(b, &event->start_mark, 1, 0);
    if (r == 0)
        r = new_node(b, &event->start_mark, YAML_SCALAR, &n);
    if (r == 0)
        r = copy_text(b, event, &n->node.scalar);
    if (r < 0)
        return r;
    n->node.quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    attach(b, n);
    account(b, n);
    return set_anchor(b, &event->start_mark, (const char *)event->data.scalar.anchor, n);
}

static int open_collection(struct builder *b, const yaml_event_t *event, enum yaml_kind kind,
                           const char *anchor)
{
    if (wants_key(b))
        return fail_at(b, &event->start_mark, -EINVAL, "expected a key, found a collection");
    struct node *n = NULL;
    int r = check_caps(b, &event->start_mark, 1, 1);
    if (r == 0)
        r = new_node(b, &event->start_mark, kind, &n);
    if (r < 0)
        return r;
    char *copy = anchor ? sv_dup(sv_from(anchor)) : NULL;
    if (anchor && !copy)
        return no_memory(b);
    attach(b, n);
    b->frames[b->depth++] =
        (struct frame){.node = n, .keys = MAP_INIT(LIMIT_CONFIG_NODES), .anchor = copy};
    return 0;
}

static void pop_frame(struct builder *b)
{
    struct frame *f = &b->frames[--b->depth];
    map_deinit(&f->keys);
    free(f->anchor);
    f->anchor = NULL;
}

// An anchor can be used from here on: an alias inside its own collection finds none, so there are
// no cycles.
static int close_collection(struct builder *b, const yaml_event_t *event)
{
    struct frame *f = &b->frames[b->depth - 1];
    struct node *n = f->node;
    int r = set_anchor(b, &event->start_mark, f->anchor, n);
    pop_frame(b);
    account(b, n);
    return r;
}

static int take_alias(struct builder *b, const yaml_event_t *event)
{
    if (wants_key(b))
        return fail_at(b, &event->start_mark, -EINVAL, "an alias as a key is not accepted");
    const char *name = (const char *)event->data.alias.anchor;
    const struct node *target = map_find(&b->anchors, sv_from(name));
    if (!target)
        return error_set_at(b->err, -EINVAL, b->file, (unsigned)event->start_mark.line + 1,
                            (unsigned)event->start_mark.column + 1,
                            "no anchor '%.64s' before this alias", name);
    struct node *n = NULL;
    int r = check_caps(b, &event->start_mark, target->weight, target->height);
    if (r == 0)
        r = new_node(b, &event->start_mark, target->node.kind, &n);
    if (r < 0)
        return r;
    n->node.quoted = target->node.quoted;
    n->node.scalar = target->node.scalar;
    n->node.first = target->node.first;
    n->node.count = target->node.count;
    n->weight = target->weight;
    n->height = target->height;
    attach(b, n);
    account(b, n);
    return 0;
}

static int take_event(struct builder *b, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return take_scalar(b, event);
    case YAML_SEQUENCE_START_EVENT:
        return open_collection(b, event, YAML_SEQUENCE,
                               (const char *)event->data.sequence_start.anchor);
    case YAML_MAPPING_START_EVENT:
        return open_collection(b, event, YAML_MAPPING,
                               (const char *)event->data.mapping_start.anchor);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        return close_collection(b, event);
    case YAML_ALIAS_EVENT:
        return take_alias(b, event);
    case YAML_DOCUMENT_START_EVENT:
        if (b->documents++)
            return fail_at(b, &event->start_mark, -EINVAL, "a second document is not accepted");
        return 0;
    default:
        return 0;
    }
}

// libyaml's reader knows only a byte offset: the line is counted here.
static int reader_error(struct builder *b, struct sv text)
{
    const yaml_parser_t *p = &b->parser;
    unsigned line = 1, column = 1;
    for (size_t i = 0; i < text.len && i < p->problem_offset; i++) {
        column = text.ptr[i] == '\n' ? 1 : column + 1;
        line += text.ptr[i] == '\n';
    }
    return error_set_at(b->err, -EINVAL, b->file, line, column, "%s",
                        p->problem ? p->problem : "unreadable byte");
}

static int parser_error(struct builder *b, struct sv text)
{
    const yaml_parser_t *p = &b->parser;
    if (p->error == YAML_MEMORY_ERROR)
        return no_memory(b);
    if (p->error == YAML_READER_ERROR)
        return reader_error(b, text);
    return error_set_at(b->err, -EINVAL, b->file, (unsigned)p->problem_mark.line + 1,
                        (unsigned)p->problem_mark.column + 1, "%s%s%s",
                        p->problem ? p->problem : "not YAML", p->context ? " " : "",
                        p->context ? p->context : "");
}

static int read_events(struct builder *b, struct sv text)
{
    for (;;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&b->parser, &event))
            return parser_error(b, text);
        bool done = event.type == YAML_STREAM_END_EVENT;
        int r = take_event(b, &event);
        yaml_event_delete(&event);
        if (r < 0 || done)
            return r;
    }
}

// No document at all, or one that is empty, reads as a mapping without keys.
static int finish_root(struct builder *b)
{
    if (b->document->root && !yaml_is_null(&b->document->root->node))
        return 0;
    return new_node(b, &(yaml_mark_t){0}, YAML_MAPPING, &b->document->root);
}

static int build(struct builder *b, struct sv text)
{
    b->document = calloc(1, sizeof(*b->document));
    if (!b->document || !yaml_parser_initialize(&b->parser))
        return no_memory(b);
    b->document->memory = ARENA_INIT(LIMIT_CONFIG_TREE_BYTES);
    yaml_parser_set_input_string(&b->parser, (const unsigned char *)(text.len ? text.ptr : ""),
                                 text.len);
    int r = read_events(b, text);
    if (r == 0)
        r = finish_root(b);
    yaml_parser_delete(&b->parser);
    return r;
}

int yaml_parse(struct sv text, const char *file, struct yaml_document **out, struct error *err)
{
    if (text.len > LIMIT_CONFIG_FILE_BYTES)
        return error_set_at(err, -EFBIG, file, 0, 0, "larger than %u bytes",
                            LIMIT_CONFIG_FILE_BYTES);
    struct builder *b = calloc(1, sizeof(*b)); // the frames are too much for a small thread's stack
    if (!b)
        return error_set_at(err, -ENOMEM, file, 0, 0, "out of memory");
    b->file = file;
    b->err = err;
    b->anchors = MAP_INIT(LIMIT_CONFIG_ANCHORS);
    int r = build(b, text);
    while (b->depth)
        pop_frame(b);
    map_deinit(&b->anchors);
    if (r == 0)
        *out = b->document;
    else
        yaml_document_free(b->document);
    free(b);
    return r;
}

const struct yaml_node *yaml_find(const struct yaml_node *mapping, const char *key)
{
    if (!mapping || mapping->kind != YAML_MAPPING)
        return NULL;
    for (const struct yaml_node *n = mapping->first; n; n = n->next) {
        if (sv_equals(n->key, sv_from(key)))
            return n;
    }
    return NULL;
}

static bool is_one_of(struct sv s, const char *const *words)
{
    for (; *words; words++) {
        if (sv_equals(s, sv_from(*words)))
            return true;
    }
    return false;
}

bool yaml_is_null(const struct yaml_node *n)
{
    static const char *const words[] = {"", "~", "null", "Null", "NULL", NULL};
    return !n || (n->kind == YAML_SCALAR && !n->quoted && is_one_of(n->scalar, words));
}

static int unexpected(const struct yaml_node *n, const char *file, const char *expected,
                      struct error *err)
{
    int shown = n->scalar.len < SHOWN_BYTES ? (int)n->scalar.len : SHOWN_BYTES;
    if (yaml_is_null(n))
        return error_set_at(err, -EINVAL, file, n->line, n->column, "expected %s, found nothing",
                            expected);
    if (n->kind != YAML_SCALAR)
        return error_set_at(err, -EINVAL, file, n->line, n->column, "expected %s, found a %s",
                            expected, n->kind == YAML_MAPPING ? "mapping" : "list");
    return error_set_at(err, -EINVAL, file, n->line, n->column, "expected %s, found %s'%.*s'",
                        expected, n->quoted ? "the text " : "", shown, n->scalar.ptr);
}

int yaml_read_bool(const struct yaml_node *n, const char *file, bool *out, struct error *err)
{
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes",
                                      "YES",  "on",   "On",   "ON",  NULL};
    static const char *const no[] = {"false", "False", "FALSE", "no",  "No",
                                     "NO",    "off",   "Off",   "OFF", NULL};
    bool truth = is_one_of(n->scalar, yes);
    if (n->kind != YAML_SCALAR || n->quoted || (!truth && !is_one_of(n->scalar, no)))
        return unexpected(n, file, "a boolean", err);
    *out = truth;
    return 0;
}

int yaml_read_i64(const struct yaml_node *n, const char *file, int64_t min, int64_t max,
                  int64_t *out, struct error *err)
{
    int r = n->kind != YAML_SCALAR || n->quoted ? -EINVAL : num_parse_i64(n->scalar, min, max, out);
    if (r == -ERANGE)
        return error_set_at(err, -EINVAL, file, n->line, n->column,
                            "expected a number from %lld to %lld, found '%.*s'", (long long)min,
                            (long long)max, SV_FMT(n->scalar));
    return r < 0 ? unexpected(n, file, "a number", err) : 0;
}

int yaml_read_text(const struct yaml_node *n, const char *file, struct sv *out, struct error *err)
{
    if (n->kind != YAML_SCALAR || yaml_is_null(n))
        return unexpected(n, file, "text", err);
    *out = n->scalar;
    return 0;
}

int yaml_expect(const struct yaml_node *n, enum yaml_kind kind, const char *file, struct error *err)
{
    static const char *const expected[] = {"a single value", "a list", "a mapping"};
    if (n->kind == kind || (kind != YAML_SCALAR && yaml_is_null(n)))
        return 0;
    return unexpected(n, file, expected[kind], err);
}

int yaml_check_keys(const struct yaml_node *mapping, const char *file, const char *const *known,
                    struct error *err)
{
    if (yaml_is_null(mapping))
        return 0;
    int r = yaml_expect(mapping, YAML_MAPPING, file, err);
    if (r < 0)
        return r;
    for (const struct yaml_node *n = mapping->first; n; n = n->next) {
        if (is_one_of(n->key, known))
            continue;
        struct sv_guess guess = sv_guess_start(n->key);
        for (size_t i = 0; known[i]; i++)
            sv_guess_offer(&guess, sv_from(known[i]));
        int shown = n->key.len < SHOWN_BYTES ? (int)n->key.len : SHOWN_BYTES;
        return error_set_at(err, -EINVAL, file, n->key_line, n->key_column,
                            "unknown key '%.*s'%s%.*s%s", shown, n->key.ptr,
                            guess.best.len ? " (did you mean '" : "", SV_FMT(guess.best),
                            guess.best.len ? "'?)" : "");
    }
    return 0;
}
