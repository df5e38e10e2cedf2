// SPDX-License-Identifier: Apache-2.0
// The list of devices, and what stands in the ledger. Devices that have left the list stay behind
// those in it: their totals go on when they come back.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exporter/ledger_internal.h"

#define UUID_BYTES_MOST 96

const uint32_t ledger_bucket_ppm[LEDGER_BUCKETS - 1] = {
    0, 100000, 200000, 300000, 400000, 500000, 600000, 700000, 800000, 900000, 990000, 1000000,
};

int ledger_new(const struct ledger_options *o, struct ledger **out)
{
    cleanup(mem_freep) struct ledger *l = calloc(1, sizeof(*l));
    if (!l || ledger_reserve_parties(l, 0) < 0)
        return -ENOMEM;
    l->options = *o;
    l->by_uuid = MAP_INIT(LIMIT_LEDGER_DEVICES);
    l->by_names = MAP_INIT(LIMIT_LEDGER_CONTAINERS);
    *out = TAKE_PTR(l);
    return 0;
}

static void free_device(struct ledger_unit *d)
{
    if (!d)
        return;
    ledger_drop_facts(d);
    for (size_t i = 0; i < d->set_count; i++)
        ledger_set_free(d->sets[i]);
    free(d->spans);
    free(d->shares);
    free(d->accounts);
    free(d->uuid);
    free(d);
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < l->device_count; i++)
        ledger_fold_device(l, l->devices[i]); // while all boards are there
    for (size_t i = 0; i < l->device_count; i++)
        free_device(l->devices[i]);
    ledger_containers_deinit(l);
    map_deinit(&l->by_uuid);
    free(l->devices);
    free(l->members);
    free(l->accounts);
    free(l->parties);
    free(l);
}

struct ledger_unit *ledger_find_device(struct ledger *l, uint32_t place)
{
    struct ledger_unit *d = place < l->listed ? l->devices[place] : NULL;
    if (d && !d->is_ignored)
        return d;
    l->stats.refused++;
    return NULL;
}

// --- A new list ---

static struct ledger_unit *make_device(const char *uuid)
{
    struct ledger_unit *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    d->uuid = strdup(uuid);
    if (!d->uuid) {
        free(d);
        return NULL;
    }
    d->pub.uuid = d->uuid;
    d->board = d;
    d->slices = d->total_slices = 1;
    d->is_new = true;
    return d;
}

// A list while it is checked: nothing of the ledger has changed yet but for new devices in the map.
struct new_list {
    struct ledger_unit **devices, **members;
    size_t count, room;
};

static void drop_list(struct ledger *l, struct new_list *n)
{
    for (size_t i = 0; n->devices && i < n->count; i++) {
        struct ledger_unit *d = n->devices[i];
        if (!d || !d->is_new)
            continue;
        if (!d->is_ignored)
            map_remove(&l->by_uuid, sv_from(d->uuid));
        free_device(d);
    }
    free(n->devices);
    free(n->members);
}

static int find_or_make(struct ledger *l, const struct ledger_device_info *info,
                        struct ledger_unit **out)
{
    size_t bytes = strlen(info->uuid);
    bool is_name = bytes > 0 && bytes <= UUID_BYTES_MOST;
    struct ledger_unit *d = is_name ? map_find(&l->by_uuid, sv_from(info->uuid)) : NULL;
    if (d && d->stamp != l->stamp) {
        d->stamp = l->stamp;
        *out = d;
        return 0;
    }
    bool is_ignored = d || !is_name || l->by_uuid.count == LIMIT_LEDGER_DEVICES;
    d = make_device(is_ignored ? "" : info->uuid);
    if (!d)
        return -ENOMEM;
    d->is_ignored = is_ignored;
    d->stamp = l->stamp;
    int r = is_ignored ? 0 : map_put(&l->by_uuid, sv_from(d->uuid), d, NULL);
    if (r < 0) {
        free_device(d);
        return r;
    }
    *out = d;
    return 0;
}

static int prepare_list(struct ledger *l, const struct ledger_device_info *list, size_t count,
                        struct new_list *n)
{
    l->stamp++;
    n->room = count + l->device_count + 1;
    n->devices = calloc(n->room, sizeof(struct ledger_unit *));
    n->members = calloc(n->room, sizeof(struct ledger_unit *));
    if (!n->devices || !n->members)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        int r = find_or_make(l, &list[i], &n->devices[n->count]);
        if (r < 0)
            return r;
        l->stats.refused += n->devices[n->count]->is_ignored;
        n->count++;
    }
    return 0;
}

static void forget_past(struct ledger_unit *d)
{
    ledger_drop_facts(d);
    for (size_t i = 0; i < d->set_count; i++)
        ledger_set_free(TAKE_PTR(d->sets[i]));
    d->set_count = d->look_count = 0;
    d->mark_count = 0;
    d->has_base = d->has_busy = d->has_shares = false;
    d->busy_to_ns = d->shares_to_ns = 0;
}

// A device that was not in the list, or stood elsewhere in it, begins anew.
static void place_device(struct ledger *l, struct ledger_unit *d, struct ledger_unit *board,
                         const struct ledger_device_info *info, uint64_t now_ns)
{
    bool has_moved = d->board != board || d->has_instances != info->has_instances;
    if (has_moved)
        ledger_leave_device(l, d, now_ns);
    if (d->board != board)
        ledger_fold_device(l, d); // its energy stands in the books of the board that it leaves
    if (has_moved || d->is_new || d->away_ns != UINT64_MAX) {
        forget_past(d);
        d->void_from_ns = 0;
        d->void_to_ns = board == d ? 0 : now_ns;
        l->stats.gaps += !d->is_new;
    }
    d->board = board;
    d->has_instances = info->has_instances;
    d->slices = info->slices && info->slices <= LEDGER_SLICES ? info->slices : 1;
    d->total_slices = info->total_slices && info->total_slices <= LEDGER_SLICES && info->slices
                          ? info->total_slices
                          : 1;
    d->is_new = false;
    d->away_ns = UINT64_MAX;
    d->pub.present = !d->is_ignored;
}

// Slices of a board's instances are no more than it has; a board has itself.
static void fit_slices(struct ledger *l, struct ledger_unit *board)
{
    uint32_t sum = 0, total = 1;
    for (size_t i = 0; i < board->member_count; i++) {
        struct ledger_unit *d = l->members[board->member_first + i];
        if (d == board || d->away_ns != UINT64_MAX)
            continue;
        sum += d->slices;
        total = d->total_slices > total ? d->total_slices : total;
    }
    total = sum > total ? sum : total;
    for (size_t i = 0; i < board->member_count; i++) {
        struct ledger_unit *d = l->members[board->member_first + i];
        if (d == board)
            d->slices = d->total_slices = 1;
        else if (d->away_ns == UINT64_MAX)
            d->total_slices = total;
    }
}

// Members of a board stand together in members, those that are away too: what they did before may
// still have to be booked.
static void gather_members(struct ledger *l)
{
    for (size_t i = 0; i < l->device_count; i++)
        l->devices[i]->member_count = 0;
    for (size_t i = 0; i < l->device_count; i++)
        l->devices[i]->board->member_count++;
    size_t first = 0;
    for (size_t i = 0; i < l->device_count; i++) {
        l->devices[i]->member_first = first;
        first += l->devices[i]->member_count;
        l->devices[i]->member_count = 0;
    }
    for (size_t i = 0; i < l->device_count; i++) {
        struct ledger_unit *board = l->devices[i]->board;
        l->members[board->member_first + board->member_count++] = l->devices[i];
    }
    for (size_t i = 0; i < l->device_count; i++)
        if (l->devices[i]->board == l->devices[i])
            fit_slices(l, l->devices[i]);
}

// Behind the list: those that are not in it any more.
static void keep_away(struct ledger *l, struct new_list *n, uint64_t now_ns)
{
    for (size_t i = 0; i < l->device_count; i++) {
        struct ledger_unit *d = l->devices[i];
        if (d->stamp == l->stamp)
            continue;
        if (d->is_ignored) {
            free_device(d);
            continue;
        }
        if (d->away_ns == UINT64_MAX) {
            d->away_ns = now_ns;
            d->pub.present = false;
            ledger_leave_device(l, d, now_ns);
        }
        n->devices[n->count++] = d;
    }
}

int ledger_set_devices(struct ledger *l, const struct ledger_device_info *list, size_t count,
                       uint64_t now_ns)
{
    struct new_list n = {0};
    count = count < LIMIT_ENTITIES ? count : LIMIT_ENTITIES;
    int r = prepare_list(l, list, count, &n);
    if (r < 0) {
        drop_list(l, &n);
        return r;
    }
    for (size_t i = 0; i < count; i++) {
        struct ledger_unit *board = list[i].board < i ? n.devices[list[i].board] : n.devices[i];
        if (board->board != board || board->is_ignored)
            board = n.devices[i];
        place_device(l, n.devices[i], board, &list[i], now_ns);
    }
    keep_away(l, &n, now_ns);
    free(l->devices);
    free(l->members);
    l->devices = n.devices;
    l->members = n.members;
    l->device_count = n.count;
    l->listed = count;
    gather_members(l);
    l->layout++;
    ledger_refresh(l);
    return 0;
}

// --- What stands ---

static size_t count_holders(const struct ledger_unit *d)
{
    return d->set_count && d->away_ns == UINT64_MAX ? d->sets[d->set_count - 1]->count : 0;
}

static enum ledger_method method_of(const struct ledger_unit *d)
{
    size_t holders = count_holders(d);
    bool runs = false;
    for (size_t i = 0; i < d->account_count; i++)
        runs = runs || d->accounts[i]->runs;
    if (holders == 0 && !runs)
        return LEDGER_METHOD_NONE;
    if (holders == 1 && !d->foreign)
        return LEDGER_METHOD_EXCLUSIVE;
    bool proves = d->has_busy && d->has_shares && d->knows_processes && d->busy_evidence;
    return proves ? LEDGER_METHOD_PROCESS : LEDGER_METHOD_HELD;
}

static void show_memory(struct ledger_unit *d)
{
    bool proves = d->knows_processes && d->memory_evidence;
    bool is_alone = count_holders(d) == 1 && !d->foreign;
    uint64_t sum = d->nobody_memory;
    for (size_t i = 0; i < d->account_count; i++)
        sum += d->accounts[i]->memory;
    d->pub.has_memory = d->has_memory;
    d->pub.memory_used = d->driver_memory > sum ? d->driver_memory : sum;
    d->pub.unattributed_memory = d->pub.memory_used;
    for (size_t i = 0; i < d->account_count; i++) {
        struct ledger_entry *a = d->accounts[i];
        bool has_all = is_alone && a->holds && !proves;
        a->pub.has_memory =
            d->has_memory && a->is_live && (has_all || (proves && !a->memory_unknown));
        a->pub.memory_bytes = has_all ? d->pub.memory_used : a->memory;
        if (a->pub.has_memory)
            d->pub.unattributed_memory -= a->pub.memory_bytes;
    }
}

static uint64_t share_ppm(const struct ledger_entry *a)
{
    const struct ledger_unit *d = a->device;
    if (!a->holds || d->set_count == 0)
        return 0;
    return (uint64_t)1000000 * d->slices * a->replicas /
           ((uint64_t)d->total_slices * d->sets[d->set_count - 1]->offered);
}

static void show_account(struct ledger *l, struct ledger_entry *a)
{
    const struct ledger_unit *d = a->device;
    struct ledger_account *p = &a->pub;
    // Evidence that is there before an interval has ended shows a counter at 0.
    bool has_begun = d->has_busy && d->board->has_base && d->pub.method != LEDGER_METHOD_HELD;
    a->had_busy = a->had_busy || (has_begun && a->is_live);
    p->container = a->container->number;
    p->live = a->is_live;
    p->holds = a->holds;
    p->has_busy = a->had_busy && d->has_busy;
    p->has_processes = a->is_live && d->knows_processes && (d->busy_evidence || d->memory_evidence);
    p->processes = a->processes;
    p->allocated_us = a->allocated_ns / NS_PER_US;
    p->has_idle = a->is_live && a->holds && p->has_busy && d->answers;
    p->idle_since_ns = a->idle_since_ns;
    p->share_ppm = share_ppm(a);
    uint8_t shown = (uint8_t)(p->live | p->holds << 1 | p->has_busy << 2 | p->has_processes << 3 |
                              p->has_memory << 4 | p->has_idle << 5);
    l->is_stale = l->is_stale || shown != a->shown;
    a->shown = shown;
}

static void show_device(struct ledger *l, struct ledger_unit *d)
{
    struct ledger_device *p = &d->pub;
    p->has_busy = d->has_busy;
    p->method = method_of(d);
    p->board = d->board->place;
    show_memory(d);
    uint8_t shown =
        (uint8_t)(p->has_busy | p->has_energy << 1 | p->has_memory << 2 | p->method << 3);
    l->is_stale = l->is_stale || shown != d->shown;
    d->shown = shown;
}

void ledger_refresh(struct ledger *l)
{
    for (size_t i = 0; i < l->device_count; i++)
        l->devices[i]->place = (uint32_t)i;
    size_t count = 0;
    for (size_t i = 0; i < l->device_count; i++) {
        struct ledger_unit *d = l->devices[i];
        show_device(l, d);
        for (size_t n = 0; n < d->account_count; n++) {
            show_account(l, d->accounts[n]);
            d->accounts[n]->pub.device = (uint32_t)i;
            l->accounts[count++] = d->accounts[n];
        }
    }
    l->account_count = count;
    l->layout += l->is_stale;
    l->is_stale = false;
}

int ledger_book(struct ledger *l, uint64_t now_ns)
{
    l->books++;
    for (size_t i = 0; i < l->device_count; i++)
        if (l->devices[i]->board == l->devices[i])
            ledger_book_board(l, l->devices[i], now_ns);
    ledger_fold_ended(l, now_ns);
    ledger_forget_containers(l);
    ledger_refresh(l);
    return 0;
}

const char *ledger_method_text(enum ledger_method m)
{
    switch (m) {
    case LEDGER_METHOD_NONE:
        return "none";
    case LEDGER_METHOD_EXCLUSIVE:
        return "exclusive";
    case LEDGER_METHOD_PROCESS:
        return "process";
    case LEDGER_METHOD_HELD:
        return "held";
    }
    return "none";
}

size_t ledger_device_count(const struct ledger *l)
{
    return l->device_count;
}

const struct ledger_device *ledger_device_at(const struct ledger *l, size_t place)
{
    return &l->devices[place]->pub;
}

size_t ledger_account_count(const struct ledger *l)
{
    return l->account_count;
}

const struct ledger_account *ledger_account_at(const struct ledger *l, size_t n)
{
    return &l->accounts[n]->pub;
}

uint64_t ledger_layout(const struct ledger *l)
{
    return l->layout;
}

void ledger_get_stats(const struct ledger *l, struct ledger_stats *out)
{
    *out = l->stats;
}

static bool device_adds_up(const struct ledger *l, const struct ledger_unit *d)
{
    uint64_t busy = d->pub.ended_busy_us + d->pub.unattributed_busy_us;
    for (size_t i = 0; i < d->account_count; i++)
        busy += d->accounts[i]->pub.busy_us;
    if (busy != d->pub.busy_us || d->pub.unattributed_busy_us > d->pub.busy_us)
        return false;
    uint64_t energy = d->pub.ended_energy_uj + d->pub.unattributed_energy_uj;
    for (size_t i = 0; d->board == d && i < d->member_count; i++) {
        const struct ledger_unit *m = l->members[d->member_first + i];
        for (size_t n = 0; n < m->account_count; n++)
            energy += m->accounts[n]->pub.energy_uj;
    }
    return energy == d->pub.energy_uj && d->pub.unattributed_energy_uj <= d->pub.energy_uj;
}

bool ledger_adds_up(const struct ledger *l)
{
    for (size_t i = 0; i < l->device_count; i++)
        if (!device_adds_up(l, l->devices[i]))
            return false;
    return true;
}
