// SPDX-License-Identifier: Apache-2.0
// One pass over the bytes that knows strings and depth and nothing else of JSON: whether an object
// is well-formed is for the reader of it. Bytes go to `object` while one is collected, to `rest`
// otherwise.
#include "kube/api_stream.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"

#define KEPT_BYTES (64u << 10) // of the buffer of an object, between objects

void kube_stream_init(struct kube_stream *s, int (*found)(void *user, struct sv object), void *user)
{
    *s = (struct kube_stream){
        .found = found,
        .user = user,
        .object = BUF_INIT(LIMIT_KUBE_OBJECT_BYTES),
        .rest = BUF_INIT(LIMIT_KUBE_LIST_REST_BYTES),
    };
}

void kube_stream_deinit(struct kube_stream *s)
{
    buf_deinit(&s->object);
    buf_deinit(&s->rest);
}

static void buf_shrink(struct buf *b)
{
    if (b->cap > KEPT_BYTES) {
        size_t max = b->max;
        buf_deinit(b);
        *b = BUF_INIT(max);
    }
    buf_reset(b);
}

void kube_stream_start(struct kube_stream *s, enum kube_stream_kind kind)
{
    s->kind = kind;
    s->depth = 0;
    s->level = kind == KUBE_STREAM_WATCH ? 0 : 2;
    s->key_len = 0;
    s->in_string = s->escaped = s->collecting = s->in_items = s->broken = false;
    buf_shrink(&s->object);
    buf_shrink(&s->rest);
}

bool kube_stream_is_complete(const struct kube_stream *s)
{
    return s->depth == 0 && !s->in_string && !s->broken;
}

static int object_end(struct kube_stream *s)
{
    int r = 0;
    s->collecting = false;
    if (s->object.error == -ENOMEM)
        return -ENOMEM;
    if (s->object.error == 0)
        r = s->found(s->user, buf_sv(&s->object));
    else
        s->skipped++;
    buf_shrink(&s->object);
    return r;
}

// A byte inside a string, its quotes included.
static void string_byte(struct kube_stream *s, char c)
{
    if (s->escaped) {
        s->escaped = false;
    } else if (c == '\\') {
        s->escaped = true;
    } else if (c == '"') {
        s->in_string = false;
        return;
    }
    if (s->depth == 1 && !s->collecting && s->key_len < sizeof(s->key))
        s->key[s->key_len++] = c;
}

static bool is_items(const struct kube_stream *s)
{
    return sv_equals((struct sv){s->key, s->key_len}, SV("items"));
}

static int open_bracket(struct kube_stream *s, char c)
{
    bool at_level = s->depth == s->level && (s->kind == KUBE_STREAM_WATCH || s->in_items);
    if (s->depth == 0 && c != '{')
        return -EBADMSG;
    if (at_level && !s->collecting)
        s->collecting = true;
    s->depth++;
    return 0;
}

// 1: an object has ended with this byte.
static int close_bracket(struct kube_stream *s)
{
    if (s->depth == 0)
        return -EBADMSG;
    s->depth--;
    if (s->collecting && s->depth == s->level)
        return 1;
    if (s->in_items && s->depth == 1)
        s->in_items = false;
    return 0;
}

// A byte outside strings. 0; 1 when an object ends with it; -EBADMSG.
static int plain_byte(struct kube_stream *s, char c)
{
    if (c == '"' && s->depth == 0)
        return -EBADMSG;
    if (c == '"') {
        s->in_string = true;
        if (s->depth == 1)
            s->key_len = 0;
        return 0;
    }
    if (c == '{' || c == '[')
        return open_bracket(s, c);
    if (c == '}' || c == ']')
        return close_bracket(s);
    bool is_space = c == ' ' || c == '\n' || c == '\r' || c == '\t';
    return s->depth > 0 || is_space ? 0 : -EBADMSG;
}

// Where the bytes from the last mark to here belong.
static int flush_run(struct kube_stream *s, const char *from, const char *to)
{
    bool between_items = s->in_items && !s->collecting;
    struct buf *b = s->collecting ? &s->object : &s->rest;
    if (from == to || between_items || (s->kind == KUBE_STREAM_WATCH && !s->collecting))
        return 0;
    buf_add(b, from, (size_t)(to - from));
    return b == &s->rest ? b->error : 0; // an object too large is left out at its end
}

static int feed(struct kube_stream *s, struct sv piece)
{
    const char *mark = piece.ptr, *end = piece.ptr + piece.len;
    for (const char *at = piece.ptr; at < end; at++) {
        if (s->in_string) {
            string_byte(s, *at);
            continue;
        }
        bool was_collecting = s->collecting, was_in_items = s->in_items;
        bool opens_items = *at == '[' && s->kind == KUBE_STREAM_LIST && s->depth == 1 &&
                           is_items(s) && !s->in_items;
        int r = plain_byte(s, *at);
        if (r < 0)
            return r;
        if (r == 1) {
            r = flush_run(s, mark, at + 1);
            mark = at + 1;
            r = r < 0 ? r : object_end(s);
        } else if (opens_items) {
            r = flush_run(s, mark, at + 1);
            mark = at + 1;
            s->in_items = true;
            s->key_len = 0;
        } else if (was_in_items != s->in_items || was_collecting != s->collecting) {
            mark = at; // what was between elements is dropped
        }
        if (r < 0)
            return r;
    }
    return flush_run(s, mark, end);
}

int kube_stream_feed(struct kube_stream *s, struct sv piece)
{
    if (s->broken)
        return -EBADMSG;
    int r = feed(s, piece);
    if (r == -EFBIG)
        r = -EBADMSG; // no list has that much beside its items
    s->broken |= r == -EBADMSG;
    return r;
}
