// SPDX-License-Identifier: Apache-2.0
// A protobuf message that is only a list, {1: repeated bytes}, taken apart as it arrives: one item
// at a time is in memory. A parser: no I/O.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct message_list {
    int (*item)(void *user, struct sv bytes); // borrowed for the call; non-zero ends it with that
    void *user;
    // Private.
    int error; // sticky
    enum message_list_state {
        MESSAGE_LIST_TAG, // a field begins, or the message ends here
        MESSAGE_LIST_NUMBER,
        MESSAGE_LIST_LENGTH,
        MESSAGE_LIST_SKIP, // `left` bytes of an unknown field
        MESSAGE_LIST_ITEM, // `left` bytes of an item
    } state;
    bool is_item;
    uint64_t varint, left;
    unsigned varint_bytes;
    struct buf gathered;
};

void message_list_init(struct message_list *l, size_t item_bytes_most,
                       int (*item)(void *user, struct sv bytes), void *user);
void message_list_deinit(struct message_list *l);
// Any split. 0; -EBADMSG; -EFBIG (an item over its ceiling); -ENOMEM; what item returned.
int must_use message_list_feed(struct message_list *l, struct sv piece);
// The message ends here: 0; -EBADMSG when it was cut short; the error before.
int must_use message_list_finish(const struct message_list *l);
