// SPDX-License-Identifier: Apache-2.0
// Two tables with linear probing, at most 3/4 full, and backward-shift removal. base/map.h copies
// keys; here they stay in the items, of which there may be one for each series.
#include "agent/sinks/emf_intern.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/map.h"

#define FIRST_CAPACITY 8

static size_t item_slot(const struct intern *t, struct sv key, uint64_t hash)
{
    size_t mask = t->capacity - 1;
    size_t i = hash & mask;
    while (t->slots[i] && !(t->slots[i]->hash == hash && sv_equals(t->slots[i]->key, key)))
        i = (i + 1) & mask;
    return i;
}

struct intern_item *intern_ref(struct intern *t, struct sv key)
{
    if (!t->count)
        return NULL;
    struct intern_item *item = t->slots[item_slot(t, key, map_hash(key))];
    if (item)
        item->refs++;
    return item;
}

static int grow(struct intern *t)
{
    size_t capacity = t->capacity ? t->capacity * 2 : FIRST_CAPACITY;
    struct intern bigger = {.slots = calloc(capacity, sizeof(*bigger.slots)), .capacity = capacity};
    if (!bigger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->slots[i])
            bigger.slots[item_slot(&bigger, t->slots[i]->key, t->slots[i]->hash)] = t->slots[i];
    }
    free(t->slots);
    t->slots = bigger.slots;
    t->capacity = capacity;
    return 0;
}

int intern_add(struct intern *t, struct intern_item *item)
{
    if (t->count >= LIMIT_EMF_ITEMS)
        return -E2BIG;
    if (t->count + 1 > t->capacity - t->capacity / 4 && grow(t) < 0)
        return -ENOMEM;
    item->hash = map_hash(item->key);
    item->refs = 1;
    t->slots[item_slot(t, item->key, item->hash)] = item;
    t->count++;
    return 0;
}

bool intern_unref(struct intern *t, struct intern_item *item)
{
    if (--item->refs)
        return false;
    size_t mask = t->capacity - 1;
    size_t hole = item->hash & mask;
    while (t->slots[hole] != item)
        hole = (hole + 1) & mask;
    for (size_t i = (hole + 1) & mask; t->slots[i]; i = (i + 1) & mask) {
        size_t from_home = (i - (t->slots[i]->hash & mask)) & mask;
        if (from_home < ((i - hole) & mask))
            continue; // its home is behind the hole
        t->slots[hole] = t->slots[i];
        hole = i;
    }
    t->slots[hole] = NULL;
    t->count--;
    return true;
}

void intern_deinit(struct intern *t)
{
    free(t->slots);
    *t = (struct intern){0};
}

struct tally_slot {
    uint64_t hash;
    uint32_t users; // 0: free
};

static size_t tally_slot(const struct tally *t, uint64_t hash)
{
    size_t mask = t->capacity - 1;
    size_t i = hash & mask;
    while (t->slots[i].users && t->slots[i].hash != hash)
        i = (i + 1) & mask;
    return i;
}

static int tally_grow(struct tally *t)
{
    size_t capacity = t->capacity ? t->capacity * 2 : FIRST_CAPACITY;
    struct tally bigger = {.slots = calloc(capacity, sizeof(*bigger.slots)), .capacity = capacity};
    if (!bigger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < t->capacity; i++) {
        if (t->slots[i].users)
            bigger.slots[tally_slot(&bigger, t->slots[i].hash)] = t->slots[i];
    }
    free(t->slots);
    t->slots = bigger.slots;
    t->capacity = capacity;
    return 0;
}

void tally_add(struct tally *t, uint64_t hash)
{
    if (t->count + 1 > t->capacity - t->capacity / 4 &&
        (t->count >= LIMIT_EMF_ITEMS || tally_grow(t) < 0))
        return;
    struct tally_slot *slot = &t->slots[tally_slot(t, hash)];
    if (!slot->users)
        t->count++;
    slot->hash = hash;
    slot->users++;
}

void tally_remove(struct tally *t, uint64_t hash)
{
    if (!t->count)
        return;
    size_t mask = t->capacity - 1;
    size_t hole = tally_slot(t, hash);
    if (!t->slots[hole].users || --t->slots[hole].users)
        return;
    for (size_t i = (hole + 1) & mask; t->slots[i].users; i = (i + 1) & mask) {
        size_t from_home = (i - (t->slots[i].hash & mask)) & mask;
        if (from_home < ((i - hole) & mask))
            continue;
        t->slots[hole] = t->slots[i];
        hole = i;
    }
    t->slots[hole].users = 0;
    t->count--;
}

void tally_deinit(struct tally *t)
{
    free(t->slots);
    *t = (struct tally){0};
}
