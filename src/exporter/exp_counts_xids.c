// SPDX-License-Identifier: Apache-2.0
// XIDs of one GPU and its instances: a ring in order of time, as that of the clocks, and totals.
// The same XID of the same owner in the same part of the window is one place in the ring.
#include <errno.h>
#include <stdlib.h>

#include "exporter/exp_counts_internal.h"

static struct exp_xid *find_xid(struct exp_xids *x, const struct exp_xid *like, uint64_t window_ns)
{
    uint64_t part = exp_part_of(like->newest_ns, window_ns);
    for (uint32_t i = x->ring.count; i-- > 0;) {
        struct exp_xid *known = &x->list[exp_ring_at(&x->ring, i)];
        if (exp_part_of(known->newest_ns, window_ns) != part)
            return NULL;
        if (known->code == like->code && known->owner == like->owner)
            return known;
    }
    return NULL;
}

int exp_xids_add(struct exp_xids *x, struct exp_xid event, uint64_t window_ns, uint64_t *dropped)
{
    const struct exp_xid *last =
        x->ring.count ? &x->list[exp_ring_at(&x->ring, x->ring.count - 1)] : NULL;
    if (last && last->newest_ns > event.newest_ns)
        event.newest_ns = last->newest_ns;
    struct exp_xid *known = find_xid(x, &event, window_ns);
    if (known) {
        known->newest_ns = event.newest_ns;
        known->count += event.count;
        return 0;
    }
    if (x->ring.count == LIMIT_EXP_XIDS) {
        *dropped += x->list[x->ring.first].count;
        exp_ring_pop(&x->ring);
    }
    int r = exp_ring_reserve(&x->ring, &x->list, sizeof(*x->list), LIMIT_EXP_XIDS);
    if (r < 0)
        return r;
    x->list[exp_ring_at(&x->ring, x->ring.count++)] = event;
    return 0;
}

void exp_xids_expire(struct exp_xids *x, uint64_t now_ns, uint64_t window_ns)
{
    for (uint32_t i = x->ring.count; i-- > 0;) {
        struct exp_xid *known = &x->list[exp_ring_at(&x->ring, i)];
        if (known->newest_ns <= now_ns)
            break;
        known->newest_ns = now_ns;
    }
    while (x->ring.count > 0 && exp_is_over(x->list[x->ring.first].newest_ns, now_ns, window_ns))
        exp_ring_pop(&x->ring);
}

static bool add_to_known_total(struct exp_xids *x, const struct exp_xid *event)
{
    for (uint32_t i = 0; i < x->total_count; i++) {
        struct exp_xid *t = &x->totals[i];
        if (t->code != event->code || t->owner != event->owner)
            continue;
        t->count += event->count;
        return true;
    }
    return false;
}

int exp_xids_add_total(struct exp_xids *x, const struct exp_xid *event)
{
    if (add_to_known_total(x, event))
        return 0;
    if (x->total_count == LIMIT_EXP_XIDS)
        return -ENOSPC;
    if (x->total_count == x->total_capacity) {
        uint32_t capacity = x->total_capacity ? 2 * x->total_capacity : 8;
        struct exp_xid *grown = realloc(x->totals, capacity * sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        x->totals = grown;
        x->total_capacity = capacity;
    }
    x->totals[x->total_count++] = *event;
    return 0;
}

void exp_xids_fold(struct exp_xids *x, bool (*is_present)(void *user, uint64_t owner), void *user)
{
    uint32_t count = x->total_count;
    x->total_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct exp_xid t = x->totals[i];
        if (t.owner > EXP_OWNER_GONE && !is_present(user, t.owner))
            t.owner = EXP_OWNER_GONE;
        if (!add_to_known_total(x, &t))
            x->totals[x->total_count++] = t;
    }
}
