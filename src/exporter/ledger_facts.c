// SPDX-License-Identifier: Apache-2.0
// What is told of devices. A fact that is out of order or makes no sense is refused and counted.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exporter/ledger_internal.h"

// --- Spans and shares ---

static void count_sample(struct ledger_device *d, uint32_t ppm)
{
    size_t bucket = 0;
    while (bucket < LEDGER_BUCKETS - 1 && ppm > ledger_bucket_ppm[bucket])
        bucket++;
    d->samples[bucket]++;
    d->samples_ppm += ppm;
}

int ledger_add_busy(struct ledger *l, uint32_t device, uint64_t from_ns, uint64_t to_ns,
                    uint32_t ppm, bool sample)
{
    struct ledger_unit *d = ledger_find_device(l, device);
    if (!d)
        return 0;
    int r = ledger_push_span(d, (struct ledger_span){from_ns, to_ns, ppm});
    if (r == 0 && sample)
        count_sample(&d->pub, ppm);
    l->stats.refused += r > 0;
    return r < 0 ? r : 0;
}

int ledger_add_share(struct ledger *l, uint32_t device, uint32_t container, uint64_t from_ns,
                     uint64_t to_ns, uint32_t ppm)
{
    struct ledger_unit *d = ledger_find_device(l, device);
    if (!d)
        return 0;
    struct ledger_owner *c = ledger_find_owner(l, container);
    struct ledger_entry *a = NULL;
    int r = c ? ledger_make_account(l, d, c, to_ns, &a) : 0;
    if (r < 0)
        return r;
    if (c && !a && !c->superseded)
        c = NULL; // over the ceiling
    r = ledger_push_share(d, (struct ledger_share){from_ns, to_ns, ppm, c});
    if (r == 0 && a)
        ledger_touch_ended(l, a, to_ns);
    l->stats.refused += r > 0;
    return r < 0 ? r : 0;
}

// --- Looks and energy: the marks of a board ---

// The mark of that time; NULL: it is before one that stands (counted).
static struct ledger_mark *find_mark(struct ledger *l, struct ledger_unit *board, uint64_t at_ns)
{
    struct ledger_mark *last = board->mark_count ? &board->marks[board->mark_count - 1] : NULL;
    if (last && last->at_ns == at_ns)
        return last;
    if (at_ns < (last ? last->at_ns : 0) || (board->has_base && at_ns <= board->base.at_ns)) {
        l->stats.refused++;
        return NULL;
    }
    if (board->mark_count == LEDGER_MARKS) {
        // The last interval becomes a longer one: counters and spans go on, nothing is lost.
        *last = (struct ledger_mark){.at_ns = at_ns, .is_gap = last->is_gap};
        return last;
    }
    last = &board->marks[board->mark_count++];
    *last = (struct ledger_mark){.at_ns = at_ns};
    return last;
}

void ledger_reach(struct ledger *l, uint32_t device, const struct ledger_reach *reach)
{
    struct ledger_unit *d = ledger_find_device(l, device);
    if (!d)
        return;
    d->has_busy = reach->has_busy && !d->has_instances;
    d->has_shares = reach->has_shares && !d->has_instances;
    d->answers = true;
    d->busy_to_ns = reach->busy_to_ns;
    d->shares_to_ns = reach->shares_to_ns;
    struct ledger_mark *mark = d->board == d ? find_mark(l, d, reach->at_ns) : NULL;
    if (mark)
        mark->is_look = true;
}

int ledger_add_energy(struct ledger *l, uint32_t board, uint64_t at_ns, uint64_t mj)
{
    struct ledger_unit *d = ledger_find_device(l, board);
    struct ledger_mark *mark = d && d->board == d ? find_mark(l, d, at_ns) : NULL;
    if (!mark)
        return 0;
    mark->is_look = mark->has_mj = true;
    mark->mj = mj;
    return 0;
}

void ledger_void(struct ledger_unit *d, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t base_ns = d->board->has_base ? d->board->base.at_ns : 0;
    bool is_over = d->void_to_ns <= base_ns;
    d->void_from_ns = is_over || from_ns < d->void_from_ns ? from_ns : d->void_from_ns;
    d->void_to_ns = is_over || to_ns > d->void_to_ns ? to_ns : d->void_to_ns;
}

static uint64_t mark_before(const struct ledger_unit *board, uint64_t at_ns)
{
    for (size_t i = board->mark_count; i > 0; i--)
        if (board->marks[i - 1].at_ns < at_ns)
            return board->marks[i - 1].at_ns;
    return board->has_base ? board->base.at_ns : 0;
}

void ledger_gap(struct ledger *l, uint32_t device, uint64_t at_ns)
{
    struct ledger_unit *d = ledger_find_device(l, device);
    if (!d)
        return;
    d->knows_processes = d->has_memory = d->answers = false;
    if (d->board == d) {
        struct ledger_mark *mark = find_mark(l, d, at_ns);
        if (mark)
            mark->is_gap = true;
        return;
    }
    ledger_void(d, mark_before(d->board, at_ns), at_ns);
    l->stats.gaps++;
}

// --- Holders ---

void ledger_set_free(struct ledger_set *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->count; i++)
        if (s->holders[i].container)
            s->holders[i].container->uses--;
    free(s);
}
DEFINE_CLEANUP(struct ledger_set *, ledger_set_free);

static int compare_holders(const void *a, const void *b)
{
    uint32_t x = ((const struct ledger_holder *)a)->container;
    uint32_t y = ((const struct ledger_holder *)b)->container;
    return (x > y) - (x < y);
}

// The container of a holder, with an account where it may have one.
static int find_holder(struct ledger *l, struct ledger_unit *d, uint32_t number, uint64_t at_ns,
                       struct ledger_owner **out)
{
    *out = ledger_find_owner(l, number);
    struct ledger_entry *a = NULL;
    int r = *out ? ledger_make_account(l, d, *out, at_ns, &a) : 0;
    if (*out && !a && !(*out)->superseded)
        *out = NULL; // over the ceiling
    return r;
}

// Each container once. Nobody's stay apart: each is one that shares.
static int fill_set(struct ledger *l, struct ledger_unit *d, struct ledger_set *s,
                    const struct ledger_holder *sorted, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t replicas = sorted[i].replicas ? sorted[i].replicas : 1;
        replicas = replicas < LEDGER_REPLICAS / LEDGER_HOLDERS ? replicas
                                                               : LEDGER_REPLICAS / LEDGER_HOLDERS;
        s->held += replicas;
        struct ledger_owner *c;
        int r = find_holder(l, d, sorted[i].container, s->at_ns, &c);
        if (r < 0)
            return r;
        if (c && s->count > 0 && s->holders[s->count - 1].container == c) {
            s->holders[s->count - 1].replicas += replicas;
            continue;
        }
        s->holders[s->count++] = (struct ledger_set_holder){c, replicas};
        if (c)
            c->uses++;
    }
    return 0;
}

static int make_set(struct ledger *l, struct ledger_unit *d, struct ledger_set_wanted wanted,
                    struct ledger_set **out)
{
    size_t count = wanted.count < LEDGER_HOLDERS ? wanted.count : LEDGER_HOLDERS;
    l->stats.refused += count < wanted.count;
    cleanup(mem_freep) struct ledger_holder *sorted = calloc(count + 1, sizeof(*sorted));
    cleanup(ledger_set_freep) struct ledger_set *s =
        calloc(1, sizeof(*s) + count * sizeof(struct ledger_set_holder));
    if (!sorted || !s)
        return -ENOMEM;
    if (count)
        memcpy(sorted, wanted.holders, count * sizeof(*sorted));
    qsort(sorted, count, sizeof(*sorted), compare_holders);
    s->at_ns = wanted.at_ns;
    int r = fill_set(l, d, s, sorted, count);
    if (r < 0)
        return r;
    uint32_t offered = wanted.offered < LEDGER_REPLICAS ? wanted.offered : LEDGER_REPLICAS;
    s->offered = offered > s->held ? offered : s->held;
    s->offered = s->offered ? s->offered : 1;
    *out = TAKE_PTR(s);
    return 0;
}

static bool has_same_containers(const struct ledger_set *a, const struct ledger_set *b)
{
    size_t others = b ? b->count : 0;
    if (a->count != others)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (a->holders[i].container != b->holders[i].container)
            return false;
    return true;
}

static bool is_same_set(const struct ledger_set *a, const struct ledger_set *b)
{
    if (!has_same_containers(a, b) || (b ? b->offered : 1) != a->offered)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (a->holders[i].replicas != b->holders[i].replicas)
            return false;
    return true;
}

static void settle_accounts(struct ledger *l, struct ledger_unit *d, uint64_t at_ns)
{
    for (size_t i = 0; i < d->account_count; i++)
        ledger_settle_account(l, d->accounts[i], at_ns);
}

// The newest set is who holds now.
static void apply_newest_set(struct ledger *l, struct ledger_unit *d)
{
    const struct ledger_set *s = d->sets[d->set_count - 1];
    for (size_t i = 0; i < d->account_count; i++)
        d->accounts[i]->holds = false;
    for (size_t i = 0; i < s->count; i++) {
        struct ledger_owner *c = s->holders[i].container;
        struct ledger_entry *a = c ? ledger_find_account(d, c) : NULL;
        if (!a)
            continue;
        a->holds = true;
        a->replicas = s->holders[i].replicas;
    }
    settle_accounts(l, d, s->at_ns);
}

// So many changes in so short a time: what lies between is not booked.
static void drop_sets(struct ledger_unit *d, uint64_t at_ns)
{
    ledger_void(d, d->sets[0]->at_ns, at_ns);
    for (size_t i = 0; i < d->set_count; i++)
        ledger_set_free(TAKE_PTR(d->sets[i]));
    d->set_count = 0;
}

int ledger_set_holders(struct ledger *l, uint32_t device, uint64_t at_ns,
                       const struct ledger_holder *holders, size_t count, uint32_t offered)
{
    struct ledger_unit *d = ledger_find_device(l, device);
    if (!d || (d->has_instances && count > 0)) {
        l->stats.refused += d != NULL;
        return 0;
    }
    const struct ledger_set *last = d->set_count ? d->sets[d->set_count - 1] : NULL;
    if (last && at_ns < last->at_ns) {
        l->stats.refused++;
        return 0;
    }
    cleanup(ledger_set_freep) struct ledger_set *s = NULL;
    int r = make_set(l, d, (struct ledger_set_wanted){at_ns, holders, count, offered}, &s);
    if (r < 0 || is_same_set(s, last))
        return r;
    s->other = !has_same_containers(s, last);
    if (d->set_count == LEDGER_SETS)
        drop_sets(d, at_ns);
    d->sets[d->set_count++] = TAKE_PTR(s);
    apply_newest_set(l, d);
    return 0;
}

// --- Processes and memory ---

void ledger_add_memory(struct ledger *l, uint32_t device, uint64_t at_ns, uint64_t used,
                       uint64_t total)
{
    struct ledger_unit *d = ledger_find_device(l, device);
    if (!d)
        return;
    if (used > LEDGER_BYTES_MOST || total > LEDGER_BYTES_MOST || d->has_instances) {
        l->stats.refused++;
        return;
    }
    d->has_memory = true;
    d->driver_memory = used;
    d->pub.memory_total = total;
}

static void add_look(struct ledger_unit *d, struct ledger_look look)
{
    struct ledger_look *last = d->look_count ? &d->looks[d->look_count - 1] : NULL;
    if (last && last->foreign == look.foreign && last->evidence == look.evidence)
        return;
    if (last && (look.at_ns <= last->at_ns || d->look_count == LEDGER_LOOKS)) {
        last->foreign = last->foreign || look.foreign; // what proves less
        last->evidence = last->evidence && look.evidence;
        return;
    }
    d->looks[d->look_count++] = look;
}

static void forget_processes(struct ledger_unit *d)
{
    d->nobody_memory = 0;
    d->foreign = false;
    for (size_t i = 0; i < d->account_count; i++) {
        struct ledger_entry *a = d->accounts[i];
        a->runs = a->memory_unknown = false;
        a->processes = 0;
        a->memory = 0;
    }
}

static void count_process(struct ledger *l, struct ledger_unit *d, const struct ledger_process *p)
{
    struct ledger_owner *c = ledger_find_owner(l, p->container);
    struct ledger_entry *a = c ? ledger_find_account(d, c) : NULL;
    bool is_known = p->memory_bytes <= LEDGER_BYTES_MOST;
    d->foreign = d->foreign || p->foreign;
    if (!a) {
        d->nobody_memory += is_known ? p->memory_bytes : 0;
        return;
    }
    a->runs = true;
    a->processes++;
    a->memory_unknown = a->memory_unknown || !is_known;
    a->memory += is_known ? p->memory_bytes : 0;
}

int ledger_set_processes(struct ledger *l, uint32_t device, uint64_t at_ns,
                         const struct ledger_process *list, size_t count, bool busy_evidence,
                         bool memory_evidence)
{
    struct ledger_unit *d = ledger_find_device(l, device);
    if (!d || d->has_instances || count > LIMIT_USAGE_DEVICE_PROCESSES) {
        l->stats.refused += d != NULL;
        return 0;
    }
    for (size_t i = 0; i < count; i++) {
        struct ledger_owner *c = ledger_find_owner(l, list[i].container);
        struct ledger_entry *a;
        int r = c ? ledger_make_account(l, d, c, at_ns, &a) : 0;
        if (r < 0)
            return r;
    }
    forget_processes(d);
    for (size_t i = 0; i < count; i++)
        count_process(l, d, &list[i]);
    d->knows_processes = true;
    d->busy_evidence = busy_evidence;
    d->memory_evidence = memory_evidence;
    add_look(d, (struct ledger_look){at_ns, d->foreign, busy_evidence});
    settle_accounts(l, d, at_ns);
    return 0;
}

void ledger_clear_processes(struct ledger *l, uint32_t device, uint64_t at_ns)
{
    struct ledger_unit *d = ledger_find_device(l, device);
    if (!d)
        return;
    forget_processes(d);
    d->knows_processes = d->busy_evidence = d->memory_evidence = false;
    add_look(d, (struct ledger_look){.at_ns = at_ns});
    settle_accounts(l, d, at_ns);
}

void ledger_leave_device(struct ledger *l, struct ledger_unit *d, uint64_t at_ns)
{
    forget_processes(d);
    d->knows_processes = d->has_memory = d->answers = false;
    for (size_t i = 0; i < d->account_count; i++)
        d->accounts[i]->holds = false;
    settle_accounts(l, d, at_ns);
}
