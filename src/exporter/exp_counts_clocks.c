// SPDX-License-Identifier: Apache-2.0
// Clock samples of one GPU: a ring of buckets in order of time, whose sums are kept as buckets come
// and go. Only a reader's now makes a bucket leave, so no time that a source tells, however wrong,
// empties a window.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exporter/exp_counts_internal.h"

#define RING_FIRST 16
// Parts that are over in part at either end, and one more before a reader comes.
#define BUCKETS_MOST (LIMIT_EXP_BUCKETS + 4)

int exp_ring_reserve(struct exp_ring *r, void *items, size_t size, uint32_t most)
{
    void **at = items;
    if (r->count < r->capacity)
        return 0;
    uint32_t capacity = r->capacity ? 2 * r->capacity : RING_FIRST;
    if (capacity > most)
        capacity = most;
    char *grown = malloc(capacity * size);
    if (!grown)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->count; i++)
        memcpy(grown + i * size, (char *)*at + exp_ring_at(r, i) * size, size);
    free(*at);
    *at = grown;
    r->first = 0;
    r->capacity = capacity;
    return 0;
}

static struct exp_bucket *newest_bucket(struct exp_clocks *k)
{
    return k->ring.count ? &k->buckets[exp_ring_at(&k->ring, k->ring.count - 1)] : NULL;
}

static void pop_bucket(struct exp_clocks *k)
{
    const struct exp_bucket *b = &k->buckets[k->ring.first];
    k->samples -= b->samples;
    for (unsigned i = 0; i < EXP_CLOCK_EVENTS; i++)
        k->sums[i] -= b->counts[i];
    exp_ring_pop(&k->ring);
}

// NULL: no memory.
static struct exp_bucket *push_bucket(struct exp_clocks *k, uint64_t time_ns, uint64_t *dropped)
{
    if (k->ring.count == BUCKETS_MOST) {
        *dropped += k->buckets[k->ring.first].samples;
        pop_bucket(k);
    }
    if (exp_ring_reserve(&k->ring, &k->buckets, sizeof(*k->buckets), BUCKETS_MOST) < 0)
        return NULL;
    struct exp_bucket *b = &k->buckets[exp_ring_at(&k->ring, k->ring.count++)];
    *b = (struct exp_bucket){.newest_ns = time_ns};
    return b;
}

// What is later than now is of now.
void exp_clocks_expire(struct exp_clocks *k, uint64_t now_ns, uint64_t window_ns)
{
    for (uint32_t i = k->ring.count; i-- > 0;) {
        struct exp_bucket *b = &k->buckets[exp_ring_at(&k->ring, i)];
        if (b->newest_ns <= now_ns)
            break;
        b->newest_ns = now_ns;
    }
    while (k->ring.count > 0 && exp_is_over(k->buckets[k->ring.first].newest_ns, now_ns, window_ns))
        pop_bucket(k);
}

static void add_to_totals(struct exp_clocks *k, unsigned mask, uint64_t taken_ns)
{
    unsigned came = k->taken_ns ? mask & ~k->mask : 0;
    for (unsigned i = 0; i < EXP_CLOCK_EVENTS; i++)
        k->totals[i] += came >> i & 1;
    k->taken_ns = taken_ns;
    k->mask = mask;
}

int exp_clocks_add(struct exp_clocks *k, unsigned mask, uint64_t taken_ns, uint64_t window_ns,
                   uint64_t *dropped)
{
    add_to_totals(k, mask, taken_ns);
    uint64_t time_ns = taken_ns;
    struct exp_bucket *b = newest_bucket(k);
    if (b && b->newest_ns > time_ns)
        time_ns = b->newest_ns;
    bool fits = b && b->samples < UINT16_MAX &&
                exp_part_of(b->newest_ns, window_ns) == exp_part_of(time_ns, window_ns);
    if (!fits)
        b = push_bucket(k, time_ns, dropped);
    if (!b)
        return -ENOMEM;
    b->newest_ns = time_ns;
    b->samples++;
    k->samples++;
    for (unsigned i = 0; i < EXP_CLOCK_EVENTS; i++) {
        b->counts[i] = (uint16_t)(b->counts[i] + (mask >> i & 1));
        k->sums[i] += mask >> i & 1;
    }
    return 0;
}
