// SPDX-License-Identifier: Apache-2.0
// Booking a board's intervals, oldest first. What each of those who share an interval gets is
// rounded down and the remainder is unattributed, so the identity holds by construction. Products
// fit: an interval is 2^32 us and 2^49 uJ at most, replicas are 2^20, slices 2^10.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "exporter/ledger_internal.h"

#define WIDE_PER_US (NS_PER_US * 1000000) // ns * ppm

struct interval {
    uint64_t from_ns, to_ns;
    uint64_t length_us, energy_uj;
    uint64_t energy_left_uj; // that no device has given to anyone
};

static uint64_t length_us(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns / NS_PER_US - from_ns / NS_PER_US; // sums up over intervals
}

// Whole microseconds out of a sum, the most that there is room for.
static uint64_t take_us(ledger_wide *sum, uint64_t most)
{
    ledger_wide us = *sum / WIDE_PER_US;
    uint64_t taken = us < most ? (uint64_t)us : most;
    *sum -= (ledger_wide)taken * WIDE_PER_US;
    return taken;
}

// --- Who shares the interval ---

static const struct ledger_set *set_at(struct ledger_unit *d, uint64_t at_ns)
{
    size_t before = 0;
    while (before + 1 < d->set_count && d->sets[before + 1]->at_ns <= at_ns)
        before++;
    for (size_t i = 0; i < before; i++)
        ledger_set_free(TAKE_PTR(d->sets[i]));
    d->set_count -= before;
    memmove(d->sets, d->sets + before, d->set_count * sizeof(struct ledger_set *));
    return d->set_count > 0 && d->sets[0]->at_ns <= at_ns ? d->sets[0] : NULL;
}

static bool holders_change(const struct ledger_unit *d, const struct interval *v)
{
    for (size_t i = 0; i < d->set_count; i++) {
        const struct ledger_set *s = d->sets[i];
        if (s->other && s->at_ns > v->from_ns && s->at_ns < v->to_ns)
            return true;
    }
    return false;
}

// What its looks prove through the whole interval.
static struct ledger_look look_through(struct ledger_unit *d, const struct interval *v)
{
    size_t before = 0;
    while (before + 1 < d->look_count && d->looks[before + 1].at_ns <= v->from_ns)
        before++;
    d->look_count -= before;
    memmove(d->looks, d->looks + before, d->look_count * sizeof(*d->looks));
    struct ledger_look all = {.foreign = false, .evidence = d->look_count > 0 && d->has_shares};
    for (size_t i = 0; i < d->look_count && d->looks[i].at_ns <= v->to_ns; i++) {
        all.foreign = all.foreign || d->looks[i].foreign;
        all.evidence = all.evidence && d->looks[i].evidence;
    }
    return all;
}

static void add_party(struct ledger *l, size_t *count, struct ledger_party p)
{
    assert(*count < l->party_room);
    if (p.account)
        p.account->is_party = true;
    l->parties[(*count)++] = p;
}

// Holders first, then who else had a share.
static size_t gather_parties(struct ledger *l, struct ledger_unit *d, const struct ledger_set *s)
{
    size_t count = 0;
    for (size_t i = 0; s && i < s->count; i++) {
        struct ledger_owner *c = s->holders[i].container;
        struct ledger_entry *a = c ? ledger_find_account(d, c) : NULL;
        enum ledger_party_kind kind = a   ? LEDGER_PARTY_ACCOUNT
                                      : c ? LEDGER_PARTY_FOLDED
                                          : LEDGER_PARTY_NOBODY;
        add_party(
            l, &count,
            (struct ledger_party){.account = a, .kind = kind, .replicas = s->holders[i].replicas});
    }
    for (size_t i = 0; i < d->account_count; i++) {
        struct ledger_entry *a = d->accounts[i];
        if (a->share >= WIDE_PER_US && !a->is_party)
            add_party(l, &count, (struct ledger_party){.account = a});
    }
    for (size_t i = 0; i < count; i++)
        if (l->parties[i].account)
            l->parties[i].account->is_party = false;
    add_party(l, &count, (struct ledger_party){.kind = LEDGER_PARTY_FOLDED, .is_rest = true});
    add_party(l, &count, (struct ledger_party){.kind = LEDGER_PARTY_NOBODY, .is_rest = true});
    return count;
}

// --- Busy time ---

static int by_largest_left(const void *a, const void *b)
{
    const struct ledger_party *x = a;
    const struct ledger_party *y = b;
    if (x->left != y->left)
        return x->left < y->left ? 1 : -1;
    return (x->place > y->place) - (x->place < y->place);
}

// To B in all, by largest remainder.
static void scale(struct ledger *l, size_t count, uint64_t sum, uint64_t busy_us)
{
    uint64_t rest = busy_us;
    for (size_t i = 0; i < count; i++) {
        struct ledger_party *p = &l->parties[i];
        ledger_wide product = (ledger_wide)p->busy_us * busy_us;
        p->busy_us = (uint64_t)(product / sum);
        p->left = (uint64_t)(product % sum);
        p->place = i;
        rest -= p->busy_us;
    }
    qsort(l->parties, count, sizeof(*l->parties), by_largest_left);
    for (size_t i = 0; i < count && rest > 0; i++, rest--)
        l->parties[i].busy_us++;
    l->stats.scaled++;
}

static ledger_wide *share_of(struct ledger_unit *d, const struct ledger_party *p)
{
    if (p->account)
        return &p->account->share;
    return p->kind == LEDGER_PARTY_FOLDED ? &d->folded_share : &d->nobody_share;
}

static void share_busy(struct ledger *l, struct ledger_unit *d, size_t count, uint64_t busy_us)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count; i++) {
        struct ledger_party *p = &l->parties[i];
        bool has_share = p->account || p->is_rest;
        p->busy_us =
            has_share ? take_us(share_of(d, p), UINT64_MAX / LIMIT_LEDGER_ACCOUNTS / 4) : 0;
        sum += p->busy_us;
    }
    if (sum > busy_us)
        scale(l, count, sum, busy_us);
}

static void forget_shares(struct ledger_unit *d)
{
    d->folded_share = d->nobody_share = 0;
    for (size_t i = 0; i < d->account_count; i++)
        d->accounts[i]->share = 0;
}

// --- An interval ---

struct rule {
    uint64_t busy_us;
    uint32_t offered;
    bool has_evidence; // of who was busy
};

static bool is_sole(const struct ledger_unit *d, const struct ledger_set *s,
                    const struct ledger_look *look)
{
    if (!s || s->count != 1 || look->foreign)
        return false;
    for (size_t i = 0; i < d->account_count; i++)
        if (d->accounts[i]->share >= WIDE_PER_US &&
            d->accounts[i]->container != s->holders[0].container)
            return false; // another one's, too short for a look at who runs
    return true;
}

// E*s*((T-B)*h + b)/T, all in one fraction.
static uint64_t energy_of(const struct ledger_unit *d, const struct interval *v,
                          const struct ledger_party *p, const struct rule *rule)
{
    ledger_wide time = (ledger_wide)(v->length_us - rule->busy_us) * p->replicas +
                       (ledger_wide)p->busy_us * rule->offered;
    ledger_wide whole = (ledger_wide)v->length_us * rule->offered * d->total_slices;
    return (uint64_t)((ledger_wide)v->energy_uj * d->slices * time / whole);
}

static void give(struct ledger_unit *d, struct interval *v, const struct ledger_party *p,
                 const struct rule *rule)
{
    uint64_t energy = energy_of(d, v, p, rule);
    energy = energy < v->energy_left_uj ? energy : v->energy_left_uj;
    if (p->kind == LEDGER_PARTY_NOBODY)
        return;
    v->energy_left_uj -= energy;
    d->pub.unattributed_busy_us -= p->busy_us;
    if (p->kind == LEDGER_PARTY_FOLDED) {
        d->pub.ended_busy_us += p->busy_us;
        d->board->pub.ended_energy_uj += energy;
        return;
    }
    struct ledger_entry *a = p->account;
    a->pub.busy_us += p->busy_us;
    a->pub.energy_uj += energy;
    a->had_busy = a->had_busy || rule->has_evidence;
}

static void note_idle(const struct ledger *l, struct ledger_entry *a, const struct interval *v,
                      uint64_t busy_us)
{
    bool is_busy = busy_us > 0 && (ledger_wide)busy_us * 1000000 >=
                                      (ledger_wide)l->options.idle_ppm * v->length_us;
    if (is_busy && v->to_ns > a->idle_since_ns)
        a->idle_since_ns = v->to_ns;
}

// s NULL: of an interval in which the holders changed nobody holds anything; what processes are
// known to have done in it is theirs all the same.
static void share_interval(struct ledger *l, struct ledger_unit *d, const struct ledger_set *s,
                           struct interval *v, uint64_t busy_us)
{
    struct ledger_look look = look_through(d, v);
    bool is_alone = is_sole(d, s, &look);
    struct rule rule = {
        .busy_us = busy_us,
        .offered = s ? s->offered : 1,
        .has_evidence = d->has_busy && (is_alone || look.evidence),
    };
    size_t count = gather_parties(l, d, s);
    if (is_alone)
        l->parties[0].busy_us = busy_us;
    else if (rule.has_evidence)
        share_busy(l, d, count, busy_us);
    if (is_alone || !rule.has_evidence)
        forget_shares(d);
    for (size_t i = 0; i < count; i++) {
        give(d, v, &l->parties[i], &rule);
        if (l->parties[i].account && rule.has_evidence)
            note_idle(l, l->parties[i].account, v, l->parties[i].busy_us);
    }
}

// The time for which each holds its replicas, cut where holders change.
static void book_allocated(struct ledger_unit *d, const struct interval *v)
{
    for (size_t i = 0; i < d->set_count; i++) {
        const struct ledger_set *s = d->sets[i];
        uint64_t from = s->at_ns > v->from_ns ? s->at_ns : v->from_ns;
        uint64_t to = i + 1 < d->set_count && d->sets[i + 1]->at_ns < v->to_ns
                          ? d->sets[i + 1]->at_ns
                          : v->to_ns;
        for (size_t h = 0; h < s->count && from < to; h++) {
            struct ledger_owner *c = s->holders[h].container;
            struct ledger_entry *a = c ? ledger_find_account(d, c) : NULL;
            if (a)
                a->allocated_ns +=
                    (uint64_t)((ledger_wide)(to - from) * d->slices * s->holders[h].replicas /
                               ((ledger_wide)d->total_slices * s->offered));
        }
    }
}

static bool is_void(const struct ledger_unit *d, const struct interval *v)
{
    return v->to_ns > d->away_ns || (v->from_ns < d->void_to_ns && v->to_ns > d->void_from_ns);
}

static void book_device(struct ledger *l, struct ledger_unit *d, struct interval *v)
{
    bool counts = !is_void(d, v);
    ledger_cut_spans(d, v->from_ns, v->to_ns, counts && d->has_busy);
    ledger_cut_shares(d, v->from_ns, v->to_ns, counts);
    if (!counts) {
        forget_shares(d);
        return;
    }
    uint64_t busy_us = take_us(&d->busy, v->length_us);
    d->pub.busy_us += busy_us;
    d->pub.unattributed_busy_us += busy_us;
    const struct ledger_set *s = set_at(d, v->from_ns);
    book_allocated(d, v);
    l->stats.intervals++;
    if (holders_change(d, v)) {
        l->stats.holder_changes++;
        s = NULL;
    }
    share_interval(l, d, s, v, busy_us);
}

// --- A board ---

static bool is_energy_sane(const struct ledger_mark *from, const struct ledger_mark *to)
{
    if (!from->has_mj || !to->has_mj)
        return true;
    uint64_t most_mj = LEDGER_POWER_W * ((to->at_ns - from->at_ns) / NS_PER_MS + 1000);
    return to->mj >= from->mj && to->mj - from->mj <= most_mj;
}

static bool is_complete(const struct ledger *l, const struct ledger_unit *board, uint64_t to_ns)
{
    for (size_t i = 0; i < board->member_count; i++) {
        const struct ledger_unit *d = l->members[board->member_first + i];
        if (d->away_ns == UINT64_MAX &&
            ((d->has_busy && d->busy_to_ns < to_ns) || (d->has_shares && d->shares_to_ns < to_ns)))
            return false;
    }
    return true;
}

// Later than that nobody waits for the rest. Who looks seldom has its next look to come.
static uint64_t lag_ns(uint64_t interval_ns)
{
    return interval_ns + NS_PER_S > LEDGER_LAG_NS ? interval_ns + NS_PER_S : LEDGER_LAG_NS;
}

static void begin_anew(struct ledger *l, struct ledger_unit *board, const struct ledger_mark *mark)
{
    for (size_t i = 0; i < board->member_count; i++) {
        struct ledger_unit *d = l->members[board->member_first + i];
        ledger_cut_spans(d, 0, mark->at_ns, false);
        ledger_cut_shares(d, 0, mark->at_ns, false);
        d->busy = 0;
        forget_shares(d);
    }
    board->base = *mark;
    board->base.is_gap = false;
    board->has_base = mark->is_look;
    board->begun_ns = mark->at_ns;
}

static void book_interval(struct ledger *l, struct ledger_unit *board,
                          const struct ledger_mark *mark)
{
    struct interval v = {
        .from_ns = board->base.at_ns,
        .to_ns = mark->at_ns,
        .length_us = length_us(board->base.at_ns, mark->at_ns),
    };
    if (board->base.has_mj && mark->has_mj)
        v.energy_uj = (mark->mj - board->base.mj) * 1000;
    v.energy_left_uj = v.energy_uj;
    for (size_t i = 0; i < board->member_count; i++)
        book_device(l, l->members[board->member_first + i], &v);
    board->pub.energy_uj += v.energy_uj;
    board->pub.unattributed_energy_uj += v.energy_left_uj;
    board->base = *mark;
}

// False: it has to wait.
static bool book_mark(struct ledger *l, struct ledger_unit *board, uint64_t now_ns)
{
    const struct ledger_mark *mark = &board->marks[0];
    board->pub.has_energy = board->pub.has_energy || mark->has_mj;
    if (!board->has_base && !mark->is_gap) {
        begin_anew(l, board, mark);
        return true;
    }
    uint64_t interval_ns = board->has_base ? mark->at_ns - board->base.at_ns : 0;
    if (mark->is_gap || interval_ns > LEDGER_INTERVAL_NS || !is_energy_sane(&board->base, mark)) {
        l->stats.gaps += board->has_base;
        begin_anew(l, board, mark);
        return true;
    }
    // The counter could not be read this time: it goes on at the next one.
    bool waits_for_energy = board->base.has_mj && !mark->has_mj && interval_ns < LEDGER_LAG_NS;
    if (waits_for_energy || length_us(board->base.at_ns, mark->at_ns) == 0)
        return true;
    bool is_late = now_ns > mark->at_ns && now_ns - mark->at_ns >= lag_ns(interval_ns);
    if (!is_late && !is_complete(l, board, mark->at_ns))
        return false;
    book_interval(l, board, mark);
    return true;
}

// Facts of the future hold from now on.
static void pull_back(struct ledger *l, struct ledger_unit *d, uint64_t now_ns)
{
    uint64_t most_ns = now_ns + LEDGER_LAG_NS;
    for (size_t i = 0; i < d->set_count; i++) {
        l->stats.refused += d->sets[i]->at_ns > most_ns;
        d->sets[i]->at_ns = d->sets[i]->at_ns > most_ns ? now_ns : d->sets[i]->at_ns;
    }
    for (size_t i = 0; i < d->look_count; i++)
        d->looks[i].at_ns = d->looks[i].at_ns > most_ns ? now_ns : d->looks[i].at_ns;
    d->void_to_ns = d->void_to_ns > most_ns ? now_ns : d->void_to_ns;
    for (size_t i = 0; i < d->account_count; i++) {
        struct ledger_entry *a = d->accounts[i];
        a->ended_ns = a->ended_ns > most_ns ? now_ns : a->ended_ns;
        a->idle_since_ns = a->idle_since_ns > most_ns ? now_ns : a->idle_since_ns;
    }
}

// A clock of the source that runs ahead of ours: all that waits is void.
static void refuse_future(struct ledger *l, struct ledger_unit *board, uint64_t now_ns)
{
    uint64_t most_ns = now_ns + LEDGER_LAG_NS;
    bool is_ahead = board->mark_count > 0 && board->marks[board->mark_count - 1].at_ns > most_ns;
    for (size_t i = 0; i < board->member_count; i++) {
        struct ledger_unit *d = l->members[board->member_first + i];
        pull_back(l, d, now_ns);
        is_ahead = is_ahead || d->span_end_ns > most_ns;
    }
    if (!is_ahead)
        return;
    board->mark_count = 0;
    board->has_base = false;
    l->stats.refused++;
    for (size_t i = 0; i < board->member_count; i++)
        ledger_drop_facts(l->members[board->member_first + i]);
}

void ledger_book_board(struct ledger *l, struct ledger_unit *board, uint64_t now_ns)
{
    refuse_future(l, board, now_ns);
    while (board->mark_count > 0 && book_mark(l, board, now_ns)) {
        board->mark_count--;
        memmove(board->marks, board->marks + 1, board->mark_count * sizeof(*board->marks));
    }
}
