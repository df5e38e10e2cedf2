// SPDX-License-Identifier: Apache-2.0
#include "codec/protobuf_wire.h"

#define VARINT_BYTES 10

static bool fail(struct protobuf_message *m)
{
    m->malformed = true;
    m->left = (struct sv){0};
    return false;
}

static void skip(struct protobuf_message *m, size_t bytes)
{
    m->left.ptr += bytes;
    m->left.len -= bytes;
}

static bool take_varint(struct protobuf_message *m, uint64_t *out)
{
    uint64_t value = 0;
    for (size_t i = 0; i < m->left.len && i < VARINT_BYTES; i++) {
        unsigned char byte = (unsigned char)m->left.ptr[i];
        if (i == VARINT_BYTES - 1 && byte > 1)
            break; // beyond 64 bits, or longer than any varint
        value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte & 0x80)
            continue;
        skip(m, i + 1);
        *out = value;
        return true;
    }
    return fail(m);
}

static bool take_fixed(struct protobuf_message *m, size_t bytes, uint64_t *out)
{
    if (m->left.len < bytes)
        return fail(m);
    *out = 0;
    for (size_t i = 0; i < bytes; i++)
        *out |= (uint64_t)(unsigned char)m->left.ptr[i] << (8 * i);
    skip(m, bytes);
    return true;
}

static bool take_bytes(struct protobuf_message *m, struct sv *out)
{
    uint64_t len;
    if (!take_varint(m, &len))
        return false;
    if (len > m->left.len)
        return fail(m);
    *out = (struct sv){m->left.ptr, (size_t)len};
    skip(m, (size_t)len);
    return true;
}

bool protobuf_next(struct protobuf_message *m, struct protobuf_field *out)
{
    uint64_t tag;
    if (m->left.len == 0 || !take_varint(m, &tag))
        return false;
    if (tag >> 3 == 0 || tag > UINT32_MAX)
        return fail(m);
    *out = (struct protobuf_field){.number = (uint32_t)(tag >> 3)};
    switch (tag & 7) {
    case PROTOBUF_VARINT:
        out->type = PROTOBUF_VARINT;
        return take_varint(m, &out->value);
    case PROTOBUF_FIXED64:
        out->type = PROTOBUF_FIXED64;
        return take_fixed(m, 8, &out->value);
    case PROTOBUF_FIXED32:
        out->type = PROTOBUF_FIXED32;
        return take_fixed(m, 4, &out->value);
    case PROTOBUF_BYTES:
        out->type = PROTOBUF_BYTES;
        return take_bytes(m, &out->bytes);
    default:
        return fail(m);
    }
}
