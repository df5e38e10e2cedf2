// SPDX-License-Identifier: Apache-2.0
// An item that lies in one piece is handed on where it lies; one that does not is gathered.
#include "kube/message_list.h"

#include <errno.h>

#include "codec/protobuf_wire.h"

#define FIELD_ITEM 1
#define VARINT_BYTES 10
#define LENGTH_MAX INT32_MAX // no protobuf message is longer

void message_list_init(struct message_list *l, size_t item_bytes_most,
                       int (*item)(void *user, struct sv bytes), void *user)
{
    *l = (struct message_list){.item = item, .user = user, .gathered = BUF_INIT(item_bytes_most)};
}

void message_list_deinit(struct message_list *l)
{
    buf_deinit(&l->gathered);
}

// One byte more. 1: complete in l->varint; 0: more to come; -EBADMSG.
static int take_varint(struct message_list *l, unsigned char byte)
{
    if (l->varint_bytes == 0)
        l->varint = 0;
    if (l->varint_bytes == VARINT_BYTES - 1 && byte > 1)
        return -EBADMSG; // beyond 64 bits, or longer than any varint
    l->varint |= (uint64_t)(byte & 0x7f) << (7 * l->varint_bytes);
    l->varint_bytes++;
    if (byte & 0x80)
        return 0;
    l->varint_bytes = 0;
    return 1;
}

static int begin_field(struct message_list *l)
{
    uint64_t type = l->varint & 7;
    if (l->varint >> 3 == 0 || l->varint > UINT32_MAX)
        return -EBADMSG;
    l->is_item = l->varint >> 3 == FIELD_ITEM;
    if (l->is_item && type != PROTOBUF_BYTES)
        return -EBADMSG;
    l->left = type == PROTOBUF_FIXED64 ? 8 : 4;
    switch (type) {
    case PROTOBUF_VARINT:
        l->state = MESSAGE_LIST_NUMBER;
        return 0;
    case PROTOBUF_FIXED64:
    case PROTOBUF_FIXED32:
        l->state = MESSAGE_LIST_SKIP;
        return 0;
    case PROTOBUF_BYTES:
        l->state = MESSAGE_LIST_LENGTH;
        return 0;
    default:
        return -EBADMSG;
    }
}

static int begin_bytes(struct message_list *l)
{
    if (l->varint > LENGTH_MAX)
        return -EBADMSG;
    if (l->is_item && l->varint > l->gathered.max)
        return -EFBIG;
    l->left = l->varint;
    buf_reset(&l->gathered);
    l->state = l->is_item ? MESSAGE_LIST_ITEM : MESSAGE_LIST_SKIP;
    if (l->left > 0)
        return 0;
    l->state = MESSAGE_LIST_TAG;
    return l->is_item ? l->item(l->user, SV("")) : 0;
}

static int walk_byte(struct message_list *l, unsigned char byte)
{
    int r = take_varint(l, byte);
    if (r <= 0)
        return r;
    if (l->state == MESSAGE_LIST_TAG)
        return begin_field(l);
    if (l->state == MESSAGE_LIST_LENGTH)
        return begin_bytes(l);
    l->state = MESSAGE_LIST_TAG; // the number itself is nobody's
    return 0;
}

// `head` belongs to the item and is no longer than what was left of it.
static int take_item_bytes(struct message_list *l, struct sv head)
{
    bool whole = l->left == 0;
    if (whole && l->gathered.len == 0)
        return l->item(l->user, head);
    if (l->gathered.len == 0 && buf_reserve(&l->gathered, head.len + (size_t)l->left) < 0)
        return -ENOMEM;
    buf_add_sv(&l->gathered, head);
    if (l->gathered.error)
        return l->gathered.error;
    return whole ? l->item(l->user, buf_sv(&l->gathered)) : 0;
}

static int walk_bytes(struct message_list *l, struct sv *piece)
{
    size_t len = l->left < piece->len ? (size_t)l->left : piece->len;
    struct sv head = {piece->ptr, len};
    *piece = (struct sv){piece->ptr + len, piece->len - len};
    l->left -= len;
    int r = l->state == MESSAGE_LIST_ITEM ? take_item_bytes(l, head) : 0;
    if (l->left == 0)
        l->state = MESSAGE_LIST_TAG;
    return r;
}

int message_list_feed(struct message_list *l, struct sv piece)
{
    while (piece.len > 0 && !l->error) {
        if (l->state == MESSAGE_LIST_SKIP || l->state == MESSAGE_LIST_ITEM) {
            l->error = walk_bytes(l, &piece);
            continue;
        }
        l->error = walk_byte(l, (unsigned char)*piece.ptr);
        piece = (struct sv){piece.ptr + 1, piece.len - 1};
    }
    return l->error;
}

int message_list_finish(const struct message_list *l)
{
    if (l->error)
        return l->error;
    return l->state == MESSAGE_LIST_TAG && l->varint_bytes == 0 ? 0 : -EBADMSG;
}
