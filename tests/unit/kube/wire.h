// SPDX-License-Identifier: Apache-2.0
// Protobuf written by hand for tests: protobuf.dev/programming-guides/encoding.
#pragma once

#include <stdint.h>

#include "base/buf.h"

static inline maybe_unused void wire_varint(struct buf *b, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        buf_add_char(b, (char)(v | 0x80));
    buf_add_char(b, (char)v);
}

static inline maybe_unused void wire_tag(struct buf *b, unsigned field, unsigned type)
{
    wire_varint(b, field << 3 | type);
}

static inline maybe_unused void wire_bytes(struct buf *b, unsigned field, struct sv bytes)
{
    wire_tag(b, field, 2);
    wire_varint(b, bytes.len);
    buf_add_sv(b, bytes);
}

static inline maybe_unused void wire_str(struct buf *b, unsigned field, const char *text)
{
    wire_bytes(b, field, sv_from(text));
}

// Appends inner as a submessage and empties it.
static inline maybe_unused void wire_message(struct buf *b, unsigned field, struct buf *inner)
{
    wire_bytes(b, field, buf_sv(inner));
    buf_reset(inner);
}
