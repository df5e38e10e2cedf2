// SPDX-License-Identifier: Apache-2.0
// Dense arrays in page order: a scrape finds the next line's series right behind the one before, so
// the hash table is asked only where a page changed. Open addressing with linear probing; entries
// leave it from the newest on, which leaves the others where they are, or all are placed anew.
#include <errno.h>
#include <stdlib.h>

#include "agent/series_internal.h"

#define FIRST_CAPACITY 16
#define FIRST_SLOTS 32

_Static_assert(sizeof(struct series) == 48, "series are many");
_Static_assert(PARSE_TYPE_GAUGEHISTOGRAM < 16 && SERIES_ERAS <= 4, "their bits");

void series_store_deinit(struct series_store *s)
{
    free(s->series);
    free(s->states);
    free(s->slots);
    *s = (struct series_store){.sink_count = s->sink_count, .max = s->max};
}

static bool same_key(struct hash128 a, struct hash128 b)
{
    return a.low == b.low && a.high == b.high;
}

bool series_store_is_at(const struct series_store *s, struct hash128 key, size_t place)
{
    return place < s->count && same_key(s->series[place].key, key);
}

size_t series_store_find(const struct series_store *s, struct hash128 key, size_t likely)
{
    if (series_store_is_at(s, key, likely))
        return likely;
    if (!s->count)
        return SERIES_NONE;
    size_t mask = s->slot_count - 1;
    for (size_t at = key.low & mask; s->slots[at]; at = (at + 1) & mask) {
        size_t place = s->slots[at] - 1;
        if (same_key(s->series[place].key, key))
            return place;
    }
    return SERIES_NONE;
}

static void enter(struct series_store *s, size_t place)
{
    size_t mask = s->slot_count - 1;
    size_t at = s->series[place].key.low & mask;
    while (s->slots[at])
        at = (at + 1) & mask;
    s->slots[at] = (uint32_t)place + 1;
}

static int set_slot_count(struct series_store *s, size_t slot_count)
{
    uint32_t *slots = calloc(slot_count, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    free(s->slots);
    s->slots = slots;
    s->slot_count = slot_count;
    for (size_t i = 0; i < s->count; i++)
        enter(s, i);
    return 0;
}

static int set_capacity(struct series_store *s, size_t capacity)
{
    struct series *series = realloc(s->series, capacity * sizeof(*series));
    if (series)
        s->series = series;
    void **states =
        s->sink_count ? realloc(s->states, capacity * s->sink_count * sizeof(*states)) : NULL;
    if (states)
        s->states = states;
    if (!series || (!states && s->sink_count))
        return -ENOMEM;
    s->capacity = capacity;
    return 0;
}

int series_store_add(struct series_store *s, struct hash128 key)
{
    if (s->count >= s->max)
        return -E2BIG;
    if (s->count == s->capacity &&
        set_capacity(s, s->capacity ? s->capacity + s->capacity / 4 : FIRST_CAPACITY) < 0)
        return -ENOMEM;
    if (s->count + 1 > s->slot_count - s->slot_count / 4 &&
        set_slot_count(s, s->slot_count ? s->slot_count * 2 : FIRST_SLOTS) < 0)
        return -ENOMEM;
    s->series[s->count] = (struct series){.key = key};
    for (size_t k = 0; k < s->sink_count; k++)
        series_states(s, s->count)[k] = NULL;
    enter(s, s->count++);
    return 0;
}

void series_store_truncate(struct series_store *s, size_t count)
{
    size_t mask = s->slot_count - 1;
    while (s->count > count) {
        size_t at = s->series[s->count - 1].key.low & mask;
        while (s->slots[at] != s->count)
            at = (at + 1) & mask;
        s->slots[at] = 0;
        s->count--;
    }
}

size_t series_store_compact(struct series_store *s)
{
    size_t kept = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->series[i].flags & SERIES_DEAD)
            continue;
        if (kept < i) {
            s->series[kept] = s->series[i];
            for (size_t k = 0; k < s->sink_count; k++)
                series_states(s, kept)[k] = series_states(s, i)[k];
        }
        kept++;
    }
    size_t removed = s->count - kept;
    s->count = kept;
    if (removed) {
        memset(s->slots, 0, s->slot_count * sizeof(*s->slots));
        for (size_t i = 0; i < kept; i++)
            enter(s, i);
    }
    return removed;
}

void series_store_trim(struct series_store *s)
{
    if (!s->count) {
        series_store_deinit(s);
        return;
    }
    if (s->capacity < 4 * FIRST_CAPACITY || s->count >= s->capacity / 2)
        return;
    size_t slots = s->slot_count;
    while (slots > FIRST_SLOTS && s->count + s->count / 4 < slots / 2 - slots / 8)
        slots /= 2;
    // Without memory for smaller ones, those that are there do.
    (void)!set_capacity(s, s->count + s->count / 8 + 1);
    if (slots < s->slot_count)
        (void)!set_slot_count(s, slots);
}
