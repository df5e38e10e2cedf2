// SPDX-License-Identifier: Apache-2.0
// A growable byte buffer with a ceiling fixed at init and a sticky error: ten appends, one check.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/sv.h"

// Invariant: len <= cap <= max; data is NULL only while cap is 0. After the first failure `error`
// holds -ENOMEM (no memory) or -EFBIG (ceiling reached), and appends do nothing.
struct buf {
    char *data;
    size_t len;
    size_t cap;
    size_t max;
    int error;
};

#define BUF_INIT(max_bytes) ((struct buf){.max = (max_bytes)})

void buf_deinit(struct buf *b);
void buf_reset(struct buf *b);                        // length 0 and no error; keeps the memory
int must_use buf_reserve(struct buf *b, size_t more); // 0, -ENOMEM, -EFBIG
void buf_add(struct buf *b, const void *bytes, size_t len);
void buf_add_sv(struct buf *b, struct sv s);
void buf_add_str(struct buf *b, const char *cstr);
void buf_add_char(struct buf *b, char c);
void buf_add_u64(struct buf *b, uint64_t v);
void buf_add_i64(struct buf *b, int64_t v);
void buf_add_fmt(struct buf *b, const char *fmt, ...) format_printf(2, 3);
void buf_consume(struct buf *b, size_t len); // drops bytes at the front
// Hands the memory over (may be NULL when empty); the buffer is empty afterwards.
char *buf_take(struct buf *b, size_t *out_len);
// NUL-terminates without counting the NUL; returns "" on an empty or failed buffer.
const char *buf_cstr(struct buf *b);

static inline struct sv buf_sv(const struct buf *b)
{
    return (struct sv){b->data, b->len};
}
