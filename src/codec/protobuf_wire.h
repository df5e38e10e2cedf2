// SPDX-License-Identifier: Apache-2.0
// The fields of a protobuf message one after the other, for messages of which only a little is
// wanted: nothing is copied, nothing allocated. Wire format:
// protobuf.dev/programming-guides/encoding.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/sv.h"

enum protobuf_type {
    PROTOBUF_VARINT = 0,
    PROTOBUF_FIXED64 = 1,
    PROTOBUF_BYTES = 2,
    PROTOBUF_FIXED32 = 5, // 3 and 4, groups, are in no message that is read here
};

// What is left of a message. A failure sticks.
struct protobuf_message {
    struct sv left;
    bool malformed;
};

struct protobuf_field {
    uint32_t number;
    enum protobuf_type type;
    uint64_t value;  // of numbers
    struct sv bytes; // PROTOBUF_BYTES; borrowed from the message
};

static inline struct protobuf_message protobuf_message_from(struct sv bytes)
{
    return (struct protobuf_message){.left = bytes};
}

// False: the message ended, or is malformed.
bool protobuf_next(struct protobuf_message *m, struct protobuf_field *out);
