// SPDX-License-Identifier: Apache-2.0
// Between exp_counts.c (devices, frames, rows) and what a device has: exp_counts_clocks.c and
// exp_counts_xids.c.
#pragma once

#include "exporter/exp_counts.h"

// Owners of XIDs besides instances, which are numbered by a hash of what they are.
#define EXP_OWNER_NONE 0
#define EXP_OWNER_GONE 1 // an instance that is no more

struct exp_ring {
    uint32_t first, count, capacity;
};

// Samples of one part of a window.
struct exp_bucket {
    uint64_t newest_ns;
    uint16_t samples;
    uint16_t counts[EXP_CLOCK_EVENTS];
};

struct exp_clocks {
    struct exp_ring ring;
    struct exp_bucket *buckets;               // owned
    uint64_t samples, sums[EXP_CLOCK_EVENTS]; // of all buckets
    uint64_t totals[EXP_CLOCK_EVENTS];
    uint64_t taken_ns; // of the last sample, as it was told; 0: none yet
    unsigned mask;     // of it
};

struct exp_xid {
    uint64_t newest_ns;
    uint64_t owner;
    uint64_t count;
    uint32_t code;
};

struct exp_xids {
    struct exp_ring ring;
    struct exp_xid *list;   // owned
    struct exp_xid *totals; // owned; newest_ns is not used
    uint32_t total_count, total_capacity;
};

static inline uint32_t exp_ring_at(const struct exp_ring *r, uint32_t i)
{
    uint32_t at = r->first + i;
    return at < r->capacity ? at : at - r->capacity;
}

static inline void exp_ring_pop(struct exp_ring *r)
{
    r->first = exp_ring_at(r, 1);
    r->count--;
}

// Room for one more item, most at most: the caller pops one first when there are so many. items
// points to the pointer to them. 0, -ENOMEM.
int must_use exp_ring_reserve(struct exp_ring *r, void *items, size_t size, uint32_t most);

// The part of a window that a time falls into.
static inline uint64_t exp_part_of(uint64_t time_ns, uint64_t window_ns)
{
    uint64_t width_ns = window_ns / LIMIT_EXP_BUCKETS;
    return width_ns ? time_ns / width_ns : time_ns;
}

static inline bool exp_is_over(uint64_t newest_ns, uint64_t now_ns, uint64_t window_ns)
{
    return now_ns > newest_ns && now_ns - newest_ns > window_ns;
}

// --- exp_counts_clocks.c ---
// A sample of another time than the last one. What had to leave the window early is added to
// *dropped. 0, -ENOMEM (the totals have it).
int must_use exp_clocks_add(struct exp_clocks *k, unsigned mask, uint64_t taken_ns,
                            uint64_t window_ns, uint64_t *dropped);
void exp_clocks_expire(struct exp_clocks *k, uint64_t now_ns, uint64_t window_ns);

// --- exp_counts_xids.c ---
// 0, -ENOMEM.
int must_use exp_xids_add(struct exp_xids *x, struct exp_xid event, uint64_t window_ns,
                          uint64_t *dropped);
void exp_xids_expire(struct exp_xids *x, uint64_t now_ns, uint64_t window_ns);
// Adds to the totals. 0; -ENOMEM; -ENOSPC: there are too many.
int must_use exp_xids_add_total(struct exp_xids *x, const struct exp_xid *event);
// The totals of owners that are not present become one: the GPU's, whose instances they were.
void exp_xids_fold(struct exp_xids *x, bool (*is_present)(void *user, uint64_t owner), void *user);
