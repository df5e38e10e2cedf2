// SPDX-License-Identifier: Apache-2.0
#include "kube/pod_devices.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/map.h"

#define PLAIN_COLUMNS 5
#define CLAIM_COLUMNS 6
#define ROW_OF_CLAIM (ROW_ALL & ~((1u << PLAIN_COLUMNS) - 1))

static const char *column(const struct pod_device *row, unsigned i)
{
    const char *const columns[PLAIN_COLUMNS] = {row->namespace_name, row->pod, row->container,
                                                row->resource, row->device_id};
    return columns[i];
}

static const char *claim_column(const struct pod_device_claim *c, unsigned i)
{
    const char *const columns[CLAIM_COLUMNS] = {c->driver,         c->pool, c->share_id,
                                                c->namespace_name, c->name, c->uid};
    return columns[i];
}

// Position matters: the sum so far is spread by an odd multiplier (2^64 / golden ratio) first.
static uint64_t hash_column(uint64_t h, const char *text)
{
    h = h * UINT64_C(0x9e3779b97f4a7c15) + map_hash(sv_from(text));
    return h ^ h >> 32;
}

uint64_t row_hash(const struct pod_device *row, unsigned columns)
{
    uint64_t h = columns;
    for (unsigned i = 0; i < PLAIN_COLUMNS; i++)
        if (columns & 1u << i)
            h = hash_column(h, column(row, i));
    for (unsigned i = 0; row->claim && i < CLAIM_COLUMNS; i++)
        if (columns & 1u << (PLAIN_COLUMNS + i))
            h = hash_column(h, claim_column(row->claim, i));
    return h;
}

static bool claims_equal(const struct pod_device_claim *a, const struct pod_device_claim *b,
                         unsigned columns)
{
    if (a == b || !(columns & ROW_OF_CLAIM))
        return true;
    if (!a || !b)
        return false;
    for (unsigned i = 0; i < CLAIM_COLUMNS; i++) {
        const char *x = claim_column(a, i);
        const char *y = claim_column(b, i);
        if ((columns & 1u << (PLAIN_COLUMNS + i)) && x != y && strcmp(x, y) != 0)
            return false;
    }
    return true;
}

bool row_equals(const struct pod_device *a, const struct pod_device *b, unsigned columns)
{
    // Backwards: ids differ soonest.
    for (unsigned i = PLAIN_COLUMNS; i-- > 0;) {
        const char *x = column(a, i);
        const char *y = column(b, i);
        if ((columns & 1u << i) && x != y && strcmp(x, y) != 0)
            return false;
    }
    return claims_equal(a->claim, b->claim, columns);
}

// --- Index ---

struct row_index_slot {
    uint32_t hash;
    uint32_t row; // number + 1; 0: free
};

#define FIRST_INDEX_CAPACITY 64

void row_index_deinit(struct row_index *ix)
{
    free(ix->slots);
    *ix = (struct row_index){.columns = ix->columns};
}

// The slot of the key, or the free one where it would go.
static struct row_index_slot *find_slot(const struct row_index *ix, const struct pod_device *rows,
                                        const struct pod_device *key, uint32_t hash)
{
    for (size_t i = hash & (ix->capacity - 1);; i = (i + 1) & (ix->capacity - 1)) {
        struct row_index_slot *slot = &ix->slots[i];
        if (!slot->row)
            return slot;
        if (slot->hash == hash && row_equals(&rows[slot->row - 1], key, ix->columns))
            return slot;
    }
}

const struct pod_device *row_index_find(const struct row_index *ix, const struct pod_device *rows,
                                        const struct pod_device *key)
{
    if (!ix->count)
        return NULL;
    const struct row_index_slot *slot =
        find_slot(ix, rows, key, (uint32_t)row_hash(key, ix->columns));
    return slot->row ? &rows[slot->row - 1] : NULL;
}

static int grow_index(struct row_index *ix)
{
    size_t capacity = ix->capacity ? ix->capacity * 2 : FIRST_INDEX_CAPACITY;
    struct row_index_slot *slots = calloc(capacity, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    for (size_t i = 0; i < ix->capacity; i++) {
        if (!ix->slots[i].row)
            continue;
        size_t at = ix->slots[i].hash & (capacity - 1);
        while (slots[at].row)
            at = (at + 1) & (capacity - 1);
        slots[at] = ix->slots[i];
    }
    free(ix->slots);
    ix->slots = slots;
    ix->capacity = capacity;
    return 0;
}

int row_index_add(struct row_index *ix, const struct pod_device *rows, size_t number)
{
    if (ix->count >= ix->capacity / 2) {
        int r = grow_index(ix);
        if (r < 0)
            return r;
    }
    uint32_t hash = (uint32_t)row_hash(&rows[number], ix->columns);
    struct row_index_slot *slot = find_slot(ix, rows, &rows[number], hash);
    if (slot->row)
        return 0;
    *slot = (struct row_index_slot){.hash = hash, .row = (uint32_t)number + 1};
    ix->count++;
    return 0;
}

// --- List ---

struct pod_devices_owned *pod_devices_new(void)
{
    struct pod_devices_owned *d = calloc(1, sizeof(*d));
    if (!d)
        return NULL;
    d->list.refs = 1;
    d->strings = ARENA_INIT(LIMIT_POD_DEVICES_STRING_BYTES);
    return d;
}

struct pod_devices *pod_devices_ref(struct pod_devices *d)
{
    assert(d->refs > 0);
    d->refs++;
    return d;
}

void pod_devices_unref(struct pod_devices *d)
{
    if (!d)
        return;
    assert(d->refs > 0);
    if (--d->refs > 0)
        return;
    arena_deinit(&pod_devices_owned(d)->strings);
    free(d->rows);
    free(d);
}

static const char *copy_text(struct arena *a, const char *text, const char *of_last)
{
    return of_last && strcmp(of_last, text) == 0 ? of_last : arena_dup(a, sv_from(text));
}

static const struct pod_device_claim *copy_claim(struct arena *a, const struct pod_device *row,
                                                 const struct pod_device *last)
{
    static const struct pod_device_claim nothing;
    if (!row->claim)
        return NULL;
    if (last->claim && claims_equal(row->claim, last->claim, ROW_ALL))
        return last->claim;
    struct pod_device_claim *copy = arena_alloc(a, sizeof(*copy));
    const struct pod_device_claim *c = row->claim, *before = last->claim ? last->claim : &nothing;
    if (copy)
        *copy = (struct pod_device_claim){
            .name = copy_text(a, c->name, before->name),
            .namespace_name = copy_text(a, c->namespace_name, before->namespace_name),
            .uid = copy_text(a, c->uid, before->uid),
            .driver = copy_text(a, c->driver, before->driver),
            .pool = copy_text(a, c->pool, before->pool),
            .share_id = copy_text(a, c->share_id, before->share_id),
        };
    return copy;
}

int pod_devices_copy(struct pod_devices_owned *d, const struct pod_device *row,
                     struct pod_device *out)
{
    static const struct pod_device nothing;
    struct arena *a = &d->strings;
    const struct pod_device *last = d->list.count ? &d->list.rows[d->list.count - 1] : &nothing;
    const struct pod_device copy = {
        .namespace_name = copy_text(a, row->namespace_name, last->namespace_name),
        .pod = copy_text(a, row->pod, last->pod),
        .container = copy_text(a, row->container, last->container),
        .resource = copy_text(a, row->resource, last->resource),
        .device_id = arena_dup(a, sv_from(row->device_id)),
        .since = row->since,
        .claim = copy_claim(a, row, last),
    };
    if (!a->error)
        *out = copy;
    return a->error;
}

int pod_devices_append(struct pod_devices_owned *d, const struct pod_device *row)
{
    struct pod_devices *list = &d->list;
    if (list->count >= LIMIT_POD_DEVICES)
        return -EFBIG;
    if (list->count == d->capacity) {
        size_t capacity = d->capacity ? d->capacity * 2 : 16;
        struct pod_device *rows = reallocarray(list->rows, capacity, sizeof(*rows));
        if (!rows)
            return -ENOMEM;
        list->rows = rows;
        d->capacity = capacity;
    }
    list->rows[list->count++] = *row;
    d->set_hash += row_hash(row, ROW_ALL);
    return 0;
}

bool pod_devices_same_set(struct pod_devices *a, struct pod_devices *b)
{
    return a->count == b->count && pod_devices_owned(a)->set_hash == pod_devices_owned(b)->set_hash;
}

// --- Succession ---

// Rows of one pod that stand together.
struct run {
    const struct pod_device *first;
    size_t count;
    size_t rank; // where its first row stood in the list before; NO_RANK: not all of its rows were
                 // there
};
#define NO_RANK SIZE_MAX

struct follow {
    struct pod_devices_owned *fresh;
    const struct pod_devices *previous;         // or NULL
    struct row_index rows, containers, devices; // of fresh
    size_t *rank;                               // per row of fresh
};

static void follow_deinit(struct follow *f)
{
    row_index_deinit(&f->rows);
    row_index_deinit(&f->containers);
    row_index_deinit(&f->devices);
    free(f->rank);
}

static int index_rows(struct row_index *ix, const struct pod_devices *list)
{
    for (size_t i = 0; i < list->count; i++) {
        int r = row_index_add(ix, list->rows, i);
        if (r < 0)
            return r;
    }
    return 0;
}

// A copy of a row of another list at the end of this one. Beyond the caps it is left out like any
// other row.
static int keep_row(struct pod_devices_owned *d, const struct pod_device *row)
{
    struct pod_device copy;
    int r = pod_devices_copy(d, row, &copy);
    if (r == 0) {
        copy.since = 0;
        r = pod_devices_append(d, &copy);
    }
    if (r != -EFBIG)
        return r;
    d->list.skipped++;
    return 0;
}

// Whether what an old row held is somebody else's now. Who has it by the same claim shares it.
static bool went_on(const struct follow *f, const struct pod_device *old)
{
    const struct pod_device *now = row_index_find(&f->devices, f->fresh->list.rows, old);
    return now && !(old->claim && now->claim && row_equals(now, old, ROW_CLAIM));
}

// Ranks fresh's rows by their place in previous; with keep, the vanished ones join at the end,
// ranked too.
static int rank_rows(struct follow *f, bool keep, size_t *out_kept)
{
    const size_t own = f->fresh->list.count;
    size_t kept = 0;
    for (size_t i = 0; i < f->previous->count; i++) {
        const struct pod_device *old = &f->previous->rows[i];
        const struct pod_device *rows = f->fresh->list.rows;
        const struct pod_device *now = row_index_find(&f->rows, rows, old);
        if (now) {
            f->rank[now - rows] = i;
            continue;
        }
        if (!keep || row_index_find(&f->containers, rows, old) || went_on(f, old))
            continue;
        int r = keep_row(f->fresh, old);
        if (r < 0)
            return r;
        if (f->fresh->list.count > own + kept)
            f->rank[own + kept++] = i;
    }
    *out_kept = kept;
    return 0;
}

static size_t find_runs(const struct follow *f, struct run *runs)
{
    const struct pod_devices *list = &f->fresh->list;
    size_t count = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct pod_device *row = &list->rows[i];
        struct run *last = count ? &runs[count - 1] : NULL;
        if (!last || !row_equals(last->first, row, ROW_NAMESPACE | ROW_POD)) {
            runs[count++] = (struct run){.first = row, .count = 1, .rank = f->rank[i]};
            continue;
        }
        last->count++;
        if (f->rank[i] == NO_RANK || last->rank == NO_RANK)
            last->rank = NO_RANK;
        else if (f->rank[i] < last->rank)
            last->rank = f->rank[i];
    }
    return count;
}

static int compare_runs(const void *x, const void *y)
{
    const struct run *a = x;
    const struct run *b = y;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    int r = strcmp(a->first->namespace_name, b->first->namespace_name);
    if (r == 0)
        r = strcmp(a->first->pod, b->first->pod);
    if (r == 0)
        r = a->first < b->first ? -1 : a->first > b->first;
    return r;
}

static int sort_rows(struct follow *f)
{
    struct pod_devices *list = &f->fresh->list;
    cleanup(mem_freep) struct run *runs = calloc(list->count + 1, sizeof(*runs));
    cleanup(mem_freep) struct pod_device *sorted = calloc(list->count + 1, sizeof(*sorted));
    if (!runs || !sorted)
        return -ENOMEM;
    size_t run_count = find_runs(f, runs);
    size_t place = 0;
    qsort(runs, run_count, sizeof(*runs), compare_runs);
    for (size_t i = 0; i < run_count; i++) {
        uint32_t since =
            runs[i].rank == NO_RANK ? f->fresh->generation : f->previous->rows[runs[i].rank].since;
        for (size_t k = 0; k < runs[i].count; k++) {
            sorted[place] = runs[i].first[k];
            sorted[place++].since = since;
        }
    }
    free(list->rows);
    list->rows = TAKE_PTR(sorted);
    f->fresh->capacity = list->count + 1;
    return 0;
}

static int follow(struct follow *f, bool keep, size_t *out_kept)
{
    const struct pod_devices *list = &f->fresh->list;
    const struct pod_devices *previous = f->previous;
    size_t most = list->count + (previous && keep ? previous->count : 0);
    f->rank = reallocarray(NULL, most + 1, sizeof(*f->rank));
    if (!f->rank)
        return -ENOMEM;
    memset(f->rank, 0xff, (most + 1) * sizeof(*f->rank)); // NO_RANK
    if (previous) {
        int r = index_rows(&f->rows, list);
        if (r >= 0 && keep)
            r = index_rows(&f->containers, list);
        if (r >= 0 && keep)
            r = index_rows(&f->devices, list);
        if (r >= 0)
            r = rank_rows(f, keep, out_kept);
        if (r < 0)
            return r;
    }
    return sort_rows(f);
}

int pod_devices_follow(struct pod_devices *fresh, struct pod_devices *previous, bool keep_vanished,
                       size_t *out_kept)
{
    struct follow f = {
        .fresh = pod_devices_owned(fresh),
        .previous = previous,
        .rows = {.columns = ROW_ALL},
        .containers = {.columns = ROW_NAMESPACE | ROW_POD | ROW_CONTAINER},
        .devices = {.columns = ROW_DEVICE},
    };
    *out_kept = 0;
    f.fresh->generation = previous ? pod_devices_owned(previous)->generation + 1 : 1;
    int r = follow(&f, keep_vanished, out_kept);
    follow_deinit(&f);
    return r;
}
