// SPDX-License-Identifier: Apache-2.0
// What is kept of a Kubernetes object: the texts that its targets need, one behind the other, each
// with its length before it. Two equal records make equal targets, so a change that matters to no
// target (a heartbeat, a condition's time) is seen by comparing bytes. No I/O.
#pragma once

#include <stdint.h>

#include "base/buf.h"
#include "codec/json.h"

enum kube_kind {
    KUBE_KIND_POD,
    KUBE_KIND_SERVICE,
    KUBE_KIND_NODE,
    KUBE_KIND_ENDPOINTS,
    KUBE_KIND_ENDPOINTSLICE,
    KUBE_KIND_INGRESS,
};
#define KUBE_KINDS 6

// Appends the record of an object as the API gives it; its key is not part of it. Errors stick to
// the buffer: -ENOMEM, -EFBIG.
void kube_record_add(enum kube_kind kind, const struct json_node *object, struct buf *out);

// Reading, in the order in which the parts were written (discover_kube_record.c).
struct record {
    const char *at, *end;
};
struct sv record_text(struct record *r);
uint32_t record_count(struct record *r);
// Skips the rest of a list: count times this many texts.
void record_skip(struct record *r, uint32_t count, unsigned texts);
