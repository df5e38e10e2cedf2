// SPDX-License-Identifier: Apache-2.0
// The list of rows while it is being made: inside this room only. Once it is handed out it is
// immutable.
#pragma once

#include <stdint.h>

#include "base/arena.h"
#include "kube/pod_resources.h"

// Which columns of a row are meant.
#define ROW_NAMESPACE 1u
#define ROW_POD 2u
#define ROW_CONTAINER 4u
#define ROW_RESOURCE 8u
#define ROW_ID 16u
// Of a claim's device; a row without a claim has none of them.
#define ROW_DRIVER 32u
#define ROW_POOL 64u
#define ROW_SHARE 128u
#define ROW_CLAIM_NAMESPACE 256u
#define ROW_CLAIM_NAME 512u
#define ROW_CLAIM_UID 1024u
#define ROW_ALL 2047u
#define ROW_CLAIM (ROW_CLAIM_NAMESPACE | ROW_CLAIM_NAME | ROW_CLAIM_UID)
// What is held: a container has it once, by whichever claim.
#define ROW_HELD (ROW_ALL & ~ROW_CLAIM)
#define ROW_DEVICE (ROW_RESOURCE | ROW_ID | ROW_DRIVER | ROW_POOL | ROW_SHARE)

// Seeded, the same all the process's life.
uint64_t row_hash(const struct pod_device *row, unsigned columns);
bool row_equals(const struct pod_device *a, const struct pod_device *b, unsigned columns);

// Finds rows of an array by some of their columns. Holds row numbers, so the array may move and
// grow.
struct row_index {
    unsigned columns;
    struct row_index_slot *slots;
    size_t capacity; // power of two, or 0
    size_t count;
};
void row_index_deinit(struct row_index *ix);
// The row equal to key, or NULL.
const struct pod_device *row_index_find(const struct row_index *ix, const struct pod_device *rows,
                                        const struct pod_device *key);
// Adds rows[number] unless an equal one is in. 0, -ENOMEM.
int must_use row_index_add(struct row_index *ix, const struct pod_device *rows, size_t number);

// What struct pod_devices stands at the start of.
struct pod_devices_owned {
    struct pod_devices list;
    size_t capacity; // of rows
    struct arena strings;
    uint64_t set_hash;   // equal for equal sets of rows in any order
    uint32_t generation; // how many lists it follows: .since of the pods that are new in it
};
static inline struct pod_devices_owned *pod_devices_owned(struct pod_devices *d)
{
    return (struct pod_devices_owned *)(void *)d;
}
struct pod_devices_owned *pod_devices_new(void); // empty, one reference; NULL: no memory
// A copy of the row whose strings and claim lie in d->strings; a text equal to the last row's
// shares its copy. 0, -ENOMEM, -EFBIG (LIMIT_POD_DEVICES_STRING_BYTES).
int must_use pod_devices_copy(struct pod_devices_owned *d, const struct pod_device *row,
                              struct pod_device *out);
// Appends a row whose strings already lie in d->strings. 0, -ENOMEM, -EFBIG (LIMIT_POD_DEVICES).
int must_use pod_devices_append(struct pod_devices_owned *d, const struct pod_device *row);
// Whether the rows are the same, in any order.
bool pod_devices_same_set(struct pod_devices *a, struct pod_devices *b);

// Makes fresh the successor of previous (NULL: none). Its pods are put in the order in which they
// were first seen: those whose rows were all in previous keep their place, the others follow by
// (namespace, pod); rows of a pod stay in wire order. So the last holder of a device is the one
// that came last, whatever order the kubelet lists in (it walks a hash table), and .since tells
// whether it came later than another. With keep_vanished, rows of previous that fresh lacks are
// kept, unless their container or their device id has rows in fresh: then the container was made
// again, or the device went on to another (not so where the other one has it by the same claim).
// *out_kept says how many. 0, -ENOMEM.
int must_use pod_devices_follow(struct pod_devices *fresh, struct pod_devices *previous,
                                bool keep_vanished, size_t *out_kept);
