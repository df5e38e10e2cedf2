// SPDX-License-Identifier: Apache-2.0
// One allocation, the first as large as asked for, then doubled as needed up to the ceiling. It is
// always one byte larger than cap says, so that buf_cstr and buf_take can put a NUL behind the
// content without growing.
#include "base/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/num.h"

#define FIRST_CAP 256

void buf_deinit(struct buf *b)
{
    free(b->data);
    *b = BUF_INIT(b->max);
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    b->error = 0;
}

static int grow_to(struct buf *b, size_t need)
{
    size_t cap = b->cap ? b->cap : need > FIRST_CAP ? need : FIRST_CAP;
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    if (cap > b->max)
        cap = b->max;
    char *data = realloc(b->data, cap + 1);
    if (!data)
        return -ENOMEM;
    b->data = data;
    b->cap = cap;
    return 0;
}

int buf_reserve(struct buf *b, size_t more)
{
    if (b->error)
        return b->error;
    if (more > b->max - b->len || b->max == SIZE_MAX) {
        b->error = -EFBIG;
        return b->error;
    }
    // The first reservation allocates even when it asks for nothing: data is then fit for writing.
    if (b->len + more > b->cap || !b->data)
        b->error = grow_to(b, b->len + more);
    return b->error;
}

void buf_add(struct buf *b, const void *bytes, size_t len)
{
    if (!len || buf_reserve(b, len) < 0)
        return;
    memcpy(b->data + b->len, bytes, len);
    b->len += len;
}

void buf_add_sv(struct buf *b, struct sv s)
{
    buf_add(b, s.ptr, s.len);
}

void buf_add_str(struct buf *b, const char *cstr)
{
    buf_add(b, cstr, strlen(cstr));
}

void buf_add_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_add_u64(struct buf *b, uint64_t v)
{
    char text[NUM_U64_BYTES];
    buf_add(b, text, num_print_u64(text, v));
}

void buf_add_i64(struct buf *b, int64_t v)
{
    char text[NUM_I64_BYTES];
    buf_add(b, text, num_print_i64(text, v));
}

void buf_add_fmt(struct buf *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (len < 0) {
        if (!b->error)
            b->error = -EINVAL;
        return;
    }
    if (buf_reserve(b, (size_t)len) < 0)
        return;
    va_start(args, fmt);
    (void)vsnprintf(b->data + b->len, (size_t)len + 1, fmt, args);
    va_end(args);
    b->len += (size_t)len;
}

void buf_consume(struct buf *b, size_t len)
{
    if (len >= b->len) {
        b->len = 0;
        return;
    }
    memmove(b->data, b->data + len, b->len - len);
    b->len -= len;
}

char *buf_take(struct buf *b, size_t *out_len)
{
    char *data = b->data;
    if (data)
        data[b->len] = '\0';
    if (out_len)
        *out_len = b->len;
    *b = BUF_INIT(b->max);
    return data;
}

const char *buf_cstr(struct buf *b)
{
    if (!b->data || b->error)
        return "";
    b->data[b->len] = '\0';
    return b->data;
}
