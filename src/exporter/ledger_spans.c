// SPDX-License-Identifier: Apache-2.0
// Spans and shares that wait. Time is summed in ns * ppm, which is exact; whole microseconds are
// taken out of the sums when they are booked and what is less stays, so that cutting a span at the
// end of an interval loses nothing.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exporter/ledger_internal.h"

#define FIRST_ROOM 16

static int grow(void *array, size_t *room, size_t count, size_t item_bytes)
{
    if (count < *room)
        return 0;
    size_t more = *room ? *room * 2 : FIRST_ROOM;
    void *grown = reallocarray(*(void **)array, more, item_bytes);
    if (!grown)
        return -ENOMEM;
    *(void **)array = grown;
    *room = more;
    return 0;
}

static bool makes_sense(uint64_t from_ns, uint64_t to_ns, uint32_t ppm)
{
    return from_ns < to_ns && to_ns - from_ns <= LEDGER_INTERVAL_NS && ppm <= 1000000;
}

// Whether all of it lies before booking began: nothing is lost with it.
static bool is_before_all(const struct ledger_unit *d, uint64_t to_ns)
{
    return d->board->has_base && to_ns <= d->board->begun_ns;
}

// Whether all of it lies in what is booked already.
static bool is_late(const struct ledger_unit *d, uint64_t to_ns)
{
    return d->board->has_base && to_ns <= d->board->base.at_ns;
}

int ledger_push_span(struct ledger_unit *d, struct ledger_span s)
{
    if (!makes_sense(s.from_ns, s.to_ns, s.ppm) || s.from_ns < d->span_end_ns ||
        d->span_count == LIMIT_LEDGER_SPANS)
        return 1;
    if (is_late(d, s.to_ns))
        return !is_before_all(d, s.to_ns);
    if (grow(&d->spans, &d->span_room, d->span_count, sizeof(*d->spans)) < 0)
        return -ENOMEM;
    d->spans[d->span_count++] = s;
    d->span_end_ns = s.to_ns;
    return 0;
}

int ledger_push_share(struct ledger_unit *d, struct ledger_share s)
{
    if (!makes_sense(s.from_ns, s.to_ns, s.ppm) || d->share_count == LIMIT_LEDGER_SHARES)
        return 1;
    if (is_late(d, s.to_ns))
        return !is_before_all(d, s.to_ns);
    if (grow(&d->shares, &d->share_room, d->share_count, sizeof(*d->shares)) < 0)
        return -ENOMEM;
    d->shares[d->share_count++] = s;
    if (s.container)
        s.container->uses++;
    return 0;
}

// How much of the two spans of time is the same, in ns * ppm.
static ledger_wide common_part(uint64_t from_ns, uint64_t to_ns, const uint64_t span[2],
                               uint32_t ppm)
{
    uint64_t first = span[0] > from_ns ? span[0] : from_ns;
    uint64_t last = span[1] < to_ns ? span[1] : to_ns;
    return first < last ? (ledger_wide)(last - first) * ppm : 0;
}

void ledger_cut_spans(struct ledger_unit *d, uint64_t from_ns, uint64_t to_ns, bool count)
{
    size_t done = 0;
    for (size_t i = 0; i < d->span_count && d->spans[i].from_ns < to_ns; i++) {
        const struct ledger_span *s = &d->spans[i];
        if (count)
            d->busy += common_part(from_ns, to_ns, (uint64_t[]){s->from_ns, s->to_ns}, s->ppm);
        done += s->to_ns <= to_ns;
    }
    d->span_count -= done;
    if (done > 0)
        memmove(d->spans, d->spans + done, d->span_count * sizeof(*d->spans));
}

static void add_share(struct ledger_unit *d, const struct ledger_share *s, ledger_wide part)
{
    struct ledger_entry *a = s->container ? ledger_find_account(d, s->container) : NULL;
    if (a)
        a->share += part;
    else if (s->container)
        d->folded_share += part;
    else
        d->nobody_share += part;
}

void ledger_cut_shares(struct ledger_unit *d, uint64_t from_ns, uint64_t to_ns, bool count)
{
    size_t kept = 0;
    for (size_t i = 0; i < d->share_count; i++) {
        struct ledger_share *s = &d->shares[i];
        if (count)
            add_share(d, s,
                      common_part(from_ns, to_ns, (uint64_t[]){s->from_ns, s->to_ns}, s->ppm));
        if (s->to_ns > to_ns)
            d->shares[kept++] = *s;
        else if (s->container)
            s->container->uses--;
    }
    d->share_count = kept;
}

void ledger_drop_facts(struct ledger_unit *d)
{
    ledger_cut_spans(d, 0, UINT64_MAX, false);
    ledger_cut_shares(d, 0, UINT64_MAX, false);
    d->span_end_ns = 0;
    d->busy = 0;
}
