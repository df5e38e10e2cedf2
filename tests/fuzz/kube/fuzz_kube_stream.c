// SPDX-License-Identifier: Apache-2.0
// Any bytes as a list and as a watch. Whole or split, the same objects are found with the same
// outcome, and each of them begins and ends with brackets.
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "kube/api_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int on_found(void *user, struct sv object)
{
    assert(object.len >= 2);
    assert(object.ptr[0] == '{' || object.ptr[0] == '[');
    assert(object.ptr[object.len - 1] == '}' || object.ptr[object.len - 1] == ']');
    buf_add_sv(user, object);
    buf_add_char(user, '\n');
    return 0;
}

static int feed(enum kube_stream_kind kind, struct sv text, size_t piece, struct buf *found)
{
    struct kube_stream s;
    int r = 0;
    kube_stream_init(&s, on_found, found);
    kube_stream_start(&s, kind);
    for (size_t at = 0; at < text.len && r == 0; at += piece)
        r = kube_stream_feed(&s, sv_sub(text, at, piece));
    if (r == 0) {
        buf_add_sv(found, buf_sv(&s.rest));
        buf_add_char(found, kube_stream_is_complete(&s) ? '+' : '-');
    }
    kube_stream_deinit(&s);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct sv text = {(const char *)data, size};
    for (unsigned kind = 0; kind < 2; kind++) {
        struct buf whole = BUF_INIT(1u << 24), pieces = BUF_INIT(1u << 24);
        int r = feed(kind, text, size ? size : 1, &whole);
        assert(feed(kind, text, size ? data[size - 1] % 9 + 1 : 1, &pieces) == r);
        assert(sv_equals(buf_sv(&whole), buf_sv(&pieces)));
        buf_deinit(&whole);
        buf_deinit(&pieces);
    }
    return 0;
}
