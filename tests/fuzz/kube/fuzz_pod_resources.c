// SPDX-License-Identifier: Apache-2.0
// Any bytes as the kubelet's answer to either question. Split or whole, they must give the same
// outcome and the same rows, and no row twice.
#include <stdint.h>
#include <stdlib.h>

#include "kube/pod_devices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int decode(bool allocatable, struct sv message, size_t piece, struct pod_devices **out)
{
    struct pod_resources_decoder *d;
    if ((allocatable ? pod_resources_decoder_new_allocatable(NULL, NULL, &d)
                     : pod_resources_decoder_new(NULL, NULL, &d)) < 0)
        abort();
    for (size_t at = 0; at < message.len; at += piece) {
        if (pod_resources_decoder_feed(d, sv_sub(message, at, piece)) < 0)
            break;
    }
    int r = pod_resources_decoder_finish(d, out);
    pod_resources_decoder_free(d);
    return r;
}

static void check_rows(const struct pod_devices *a, const struct pod_devices *b)
{
    struct row_index seen = {.columns = ROW_HELD};
    if (a->count != b->count || a->pods != b->pods || a->skipped != b->skipped)
        abort();
    for (size_t i = 0; i < a->count; i++) {
        if (!row_equals(&a->rows[i], &b->rows[i], ROW_ALL) ||
            row_index_find(&seen, a->rows, &a->rows[i]))
            abort();
        if (row_index_add(&seen, a->rows, i) < 0)
            abort();
    }
    row_index_deinit(&seen);
}

static void check(bool allocatable, const uint8_t *data, size_t size)
{
    const struct sv message = {(const char *)data, size};
    struct pod_devices *whole = NULL, *pieces = NULL;
    size_t piece = size ? data[size - 1] % 16 + 1 : 1;
    int r = decode(allocatable, message, size ? size : 1, &whole);
    if (decode(allocatable, message, piece, &pieces) != r)
        abort();
    if (r == 0)
        check_rows(whole, pieces);
    if (r == 0) {
        size_t kept;
        if (pod_devices_follow(pieces, whole, true, &kept) < 0 || kept != 0 ||
            !pod_devices_same_set(pieces, whole))
            abort();
    }
    pod_devices_unref(whole);
    pod_devices_unref(pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check(false, data, size);
    check(true, data, size);
    return 0;
}
