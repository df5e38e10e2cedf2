// SPDX-License-Identifier: Apache-2.0
// A hash map from byte strings to pointers, with seeded hashing (keys come from outside) and a cap.
#pragma once

#include <stdint.h>

#include "base/macros.h"
#include "base/sv.h"

// The map copies keys, borrows values. Zero-initialised with MAP_INIT it is empty and owns nothing.
struct map_slot;
struct map {
    struct map_slot *slots;
    size_t count;
    size_t capacity; // power of two, or 0
    size_t max;      // most entries
    uint64_t seed;
};

#define MAP_INIT(max_entries) ((struct map){.max = (max_entries)})

void map_deinit(struct map *m);                     // frees keys, not values
void *map_find(const struct map *m, struct sv key); // NULL when absent
// 0 and the old value (or NULL) in *out_old (may be NULL); -ENOMEM; -E2BIG at the cap.
int must_use map_put(struct map *m, struct sv key, void *value, void **out_old);
void *map_remove(struct map *m, struct sv key); // the value, or NULL
// Iteration in no order: start with *pos = 0; false at the end. No put/remove meanwhile. key, value
// may be NULL.
bool map_next(const struct map *m, size_t *pos, struct sv *key, void **value);
// The seeded hash itself (SipHash-1-3 of a per-process seed), for other tables.
uint64_t map_hash(struct sv key);
// SipHash-1-3 under a given key; the same on every machine. Not for keys from outside unless k0, k1
// are secret.
uint64_t map_siphash13(uint64_t k0, uint64_t k1, struct sv key);
