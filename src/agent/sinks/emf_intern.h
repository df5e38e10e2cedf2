// SPDX-License-Identifier: Apache-2.0
// Equal things kept once: a hash table of items that hold their own key and count their users. And
// a tally: how many users each of many hashes has.
#pragma once

#include <stdint.h>

#include "base/sv.h"
#include "base/macros.h"

struct intern_item { // first member of what is kept
    struct sv key;   // belongs to the item
    uint64_t hash;   // of the key
    uint32_t refs;
};

struct intern { // zero-initialised it is empty
    struct intern_item **slots;
    size_t count;
    size_t capacity; // power of two, or 0
};

// Another reference to the item of this key; NULL: there is none.
struct intern_item *intern_ref(struct intern *t, struct sv key);
// Adds an item that is not there, its key set, with one reference. 0, -ENOMEM, -E2BIG
// (LIMIT_EMF_ITEMS).
int must_use intern_add(struct intern *t, struct intern_item *item);
// Gives a reference back. The item is out of the table and the caller's to free when true.
bool must_use intern_unref(struct intern *t, struct intern_item *item);
void intern_deinit(struct intern *t); // all items are out

struct tally_slot;
struct tally { // zero-initialised it is empty
    struct tally_slot *slots;
    size_t count; // different hashes
    size_t capacity;
};

// Without memory, or at LIMIT_EMF_ITEMS, the hash is not counted.
void tally_add(struct tally *t, uint64_t hash);
void tally_remove(struct tally *t, uint64_t hash);
void tally_deinit(struct tally *t);
