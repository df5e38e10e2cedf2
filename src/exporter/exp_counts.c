// SPDX-License-Identifier: Apache-2.0
// GPUs, what frames tell of them, and rows; what is kept of one GPU is in exp_counts_clocks.c and
// exp_counts_xids.c.
#include "exporter/exp_counts_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/map.h"

// DCGM's sentinels for "no value" (dcgm_structs.h).
#define BLANK_I32 INT64_C(0x7ffffff0)
#define BLANK_I64 INT64_C(0x7ffffffffffffff0)
#define BLANKS 4

static const char *const clock_event_names[EXP_CLOCK_EVENTS] = {
    "gpu_idle",   "clocks_setting", "power_cap",      "hw_slowdown",    "sync_boost",
    "sw_thermal", "hw_thermal",     "hw_power_brake", "display_clocks",
};

struct device {
    const struct inventory *inv; // whose GPU it is; never followed
    uint64_t id;                 // hash of what it is known by
    struct exp_clocks clocks;
    struct exp_xids xids;
};

struct exp_counts {
    uint64_t xid_ns, clock_ns; // windows
    bool no_clocks;
    struct device *devices; // owned
    uint32_t device_count, device_capacity;
    uint64_t dropped;
};

const char *exp_clock_event_name(unsigned number)
{
    return number < EXP_CLOCK_EVENTS ? clock_event_names[number] : NULL;
}

int exp_counts_new(struct exp_counts **out)
{
    struct exp_counts *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    *out = c;
    return 0;
}

void exp_counts_set_clocks(struct exp_counts *c, bool wanted)
{
    c->no_clocks = !wanted;
}

static void device_deinit(struct device *d)
{
    free(d->clocks.buckets);
    free(d->xids.list);
    free(d->xids.totals);
}

void exp_counts_free(struct exp_counts *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->device_count; i++)
        device_deinit(&c->devices[i]);
    free(c->devices);
    free(c);
}

void exp_counts_set_windows(struct exp_counts *c, uint64_t xid_ns, uint64_t clock_ns)
{
    c->xid_ns = xid_ns;
    c->clock_ns = clock_ns;
}

uint64_t exp_counts_dropped(const struct exp_counts *c)
{
    return c->dropped;
}

// --- Devices ---

static const struct inventory_entity *gpu_of(const struct inventory *inv,
                                             const struct inventory_entity *e)
{
    while (e->info.kind == FRAME_ENTITY_GPU_I || e->info.kind == FRAME_ENTITY_GPU_CI)
        e = &inv->entities[e->info.parent];
    return e;
}

static uint64_t id_of(const struct inventory_entity *gpu)
{
    const struct frame_entity *e = &gpu->info;
    if (e->uuid[0] != '\0')
        return map_hash(sv_from(e->uuid));
    if (e->bus_id[0] != '\0')
        return map_hash(sv_from(e->bus_id));
    return map_hash((struct sv){(const char *)&e->index, sizeof(e->index)});
}

// The instance that an XID of the entity belongs to.
static uint64_t owner_of(const struct inventory *inv, const struct inventory_entity *e)
{
    if (e->info.kind == FRAME_ENTITY_GPU_CI)
        e = &inv->entities[e->info.parent];
    if (e->info.kind != FRAME_ENTITY_GPU_I)
        return EXP_OWNER_NONE;
    uint32_t id = e->info.gpu_instance_id;
    uint64_t hash = e->info.uuid[0] != '\0' ? map_hash(sv_from(e->info.uuid))
                                            : map_hash((struct sv){(const char *)&id, sizeof(id)});
    return hash > EXP_OWNER_GONE ? hash : hash + EXP_OWNER_GONE + 1;
}

static struct device *device_find(const struct exp_counts *c, const struct inventory *inv,
                                  const struct inventory_entity *e)
{
    uint64_t id = id_of(gpu_of(inv, e));
    for (uint32_t i = 0; i < c->device_count; i++)
        if (c->devices[i].id == id && c->devices[i].inv == inv)
            return &c->devices[i];
    return NULL;
}

static bool is_listed(const struct inventory *inv, uint64_t id)
{
    for (size_t i = 0; i < inv->entity_count; i++)
        if (inv->entities[i].info.kind == FRAME_ENTITY_GPU && id_of(&inv->entities[i]) == id)
            return true;
    return false;
}

// Forgets one GPU that is no longer listed. False: all are.
static bool forget_device(struct exp_counts *c, const struct inventory *inv)
{
    for (uint32_t i = 0; i < c->device_count; i++) {
        struct device *d = &c->devices[i];
        if (d->inv != inv || is_listed(inv, d->id))
            continue;
        device_deinit(d);
        *d = c->devices[--c->device_count];
        return true;
    }
    return false;
}

// The device of an entity, made if need be. NULL with *err -ENOMEM, or 0 at the ceiling.
static struct device *device_get(struct exp_counts *c, const struct inventory *inv,
                                 const struct inventory_entity *e, int *err)
{
    struct device *d = device_find(c, inv, e);
    if (d)
        return d;
    if (c->device_count == LIMIT_EXP_DEVICES && !forget_device(c, inv)) {
        c->dropped++;
        return NULL;
    }
    if (c->device_count == c->device_capacity) {
        uint32_t capacity = c->device_capacity ? 2 * c->device_capacity : 8;
        struct device *grown = realloc(c->devices, capacity * sizeof(*grown));
        if (!grown) {
            *err = -ENOMEM;
            return NULL;
        }
        c->devices = grown;
        c->device_capacity = capacity;
    }
    d = &c->devices[c->device_count++];
    *d = (struct device){.inv = inv, .id = id_of(gpu_of(inv, e))};
    return d;
}

// --- Clock events ---

static bool is_mask(const struct inventory_value *v)
{
    if (v->status != FRAME_OK || v->type != FRAME_VALUE_I64 || v->taken_ns == 0)
        return false;
    int64_t i = v->value.i64;
    return !(i >= BLANK_I32 && i < BLANK_I32 + BLANKS) &&
           !(i >= BLANK_I64 && i < BLANK_I64 + BLANKS);
}

static int take_clocks(struct exp_counts *c, const struct inventory *inv)
{
    size_t slot = c->no_clocks ? SIZE_MAX : inventory_field_index(inv, FIELD_CLOCKS_EVENT_REASONS);
    int result = 0;
    for (size_t i = 0; i < inv->entity_count && slot != SIZE_MAX; i++) {
        const struct inventory_entity *e = &inv->entities[i];
        if (e->info.kind != FRAME_ENTITY_GPU || !is_mask(&e->values[slot]))
            continue;
        const struct inventory_value *v = &e->values[slot];
        struct device *d = device_get(c, inv, e, &result);
        if (!d || d->clocks.taken_ns == v->taken_ns)
            continue;
        unsigned mask = (unsigned)((uint64_t)v->value.i64 & ((1u << EXP_CLOCK_EVENTS) - 1));
        int r = exp_clocks_add(&d->clocks, mask, v->taken_ns, c->clock_ns, &c->dropped);
        if (r < 0)
            result = r;
    }
    return result;
}

static size_t copy_clocks(const uint64_t *counts, struct exp_count *out)
{
    size_t rows = 0;
    for (unsigned i = 0; i < EXP_CLOCK_EVENTS; i++)
        if (counts[i])
            out[rows++] = (struct exp_count){i, counts[i]};
    return rows;
}

size_t exp_counts_clocks(struct exp_counts *c, const struct inventory *inv, size_t entity,
                         uint64_t now_ns, struct exp_count *out, bool *known)
{
    struct device *d = device_find(c, inv, &inv->entities[entity]);
    *known = false;
    if (!d)
        return 0;
    exp_clocks_expire(&d->clocks, now_ns, c->clock_ns);
    *known = d->clocks.samples > 0;
    return copy_clocks(d->clocks.sums, out);
}

size_t exp_counts_clock_totals(const struct exp_counts *c, const struct inventory *inv,
                               size_t entity, struct exp_count *out, bool *known)
{
    const struct device *d = device_find(c, inv, &inv->entities[entity]);
    *known = d && d->clocks.taken_ns;
    return d ? copy_clocks(d->clocks.totals, out) : 0;
}

// --- XIDs ---

struct gpu_place {
    const struct inventory *inv;
    const struct inventory_entity *gpu;
};

static bool is_present(void *user, uint64_t owner)
{
    const struct gpu_place *p = user;
    const struct inventory_entity *end = p->inv->entities + p->inv->entity_count;
    for (const struct inventory_entity *e = p->gpu + 1; e < end && gpu_of(p->inv, e) == p->gpu; e++)
        if (owner_of(p->inv, e) == owner)
            return true;
    return false;
}

static int add_total(struct exp_counts *c, struct exp_xids *x, struct gpu_place place,
                     const struct exp_xid *event)
{
    int r = exp_xids_add_total(x, event);
    if (r == -ENOSPC) {
        exp_xids_fold(x, is_present, &place);
        r = exp_xids_add_total(x, event);
    }
    if (r != -ENOSPC)
        return r;
    c->dropped += event->count;
    return 0;
}

static int take_events(struct exp_counts *c, const struct inventory *inv, const struct frame *frame)
{
    int result = 0;
    for (uint32_t i = 0; i < frame->as.events.head->count; i++) {
        const struct frame_event *event = &frame->as.events.list[i];
        const struct inventory_entity *e = inventory_event_entity(inv, frame, i);
        if (!e || event->xid == 0)
            continue;
        struct device *d = device_get(c, inv, e, &result);
        if (!d)
            continue;
        const struct exp_xid xid = {
            .newest_ns = event->taken_ns,
            .owner = owner_of(inv, e),
            .count = (uint64_t)event->repeats + 1,
            .code = event->xid,
        };
        int r = exp_xids_add(&d->xids, xid, c->xid_ns, &c->dropped);
        int t = add_total(c, &d->xids, (struct gpu_place){inv, gpu_of(inv, e)}, &xid);
        result = r < 0 ? r : t < 0 ? t : result;
    }
    return result;
}

// Adds a count to the rows, which stay in order of their keys.
static void add_row(struct exp_count *rows, size_t *count, const struct exp_xid *x)
{
    size_t at = *count;
    while (at > 0 && rows[at - 1].key >= x->code)
        at--;
    if (at < *count && rows[at].key == x->code) {
        rows[at].count += x->count;
        return;
    }
    if (*count == LIMIT_XID_CODES)
        return;
    memmove(&rows[at + 1], &rows[at], (*count - at) * sizeof(rows[0]));
    rows[at] = (struct exp_count){x->code, x->count};
    ++*count;
}

static bool concerns(const struct exp_xid *x, const struct inventory_entity *e, uint64_t owner)
{
    return e->info.kind == FRAME_ENTITY_GPU || x->owner == EXP_OWNER_NONE || x->owner == owner;
}

size_t exp_counts_xids(struct exp_counts *c, const struct inventory *inv, size_t entity,
                       uint64_t now_ns, struct exp_count *out, bool *known)
{
    const struct inventory_entity *e = &inv->entities[entity];
    struct device *d = device_find(c, inv, e);
    size_t rows = 0;
    if (d)
        exp_xids_expire(&d->xids, now_ns, c->xid_ns);
    uint64_t owner = d && d->xids.ring.count > 0 ? owner_of(inv, e) : EXP_OWNER_NONE;
    for (uint32_t i = 0; d && i < d->xids.ring.count; i++) {
        const struct exp_xid *x = &d->xids.list[exp_ring_at(&d->xids.ring, i)];
        if (concerns(x, e, owner))
            add_row(out, &rows, x);
    }
    *known = rows > 0;
    return rows;
}

size_t exp_counts_xid_totals(const struct exp_counts *c, const struct inventory *inv, size_t entity,
                             struct exp_count *out, bool *known)
{
    const struct inventory_entity *e = &inv->entities[entity];
    const struct device *d = device_find(c, inv, e);
    uint64_t owner = owner_of(inv, e);
    size_t rows = 0;
    for (uint32_t i = 0; d && i < d->xids.total_count; i++)
        if (concerns(&d->xids.totals[i], e, owner))
            add_row(out, &rows, &d->xids.totals[i]);
    *known = rows > 0;
    return rows;
}

// --- Frames ---

int exp_counts_take(struct exp_counts *c, const struct inventory *inv, const struct frame *frame)
{
    if (frame->type == FRAME_EVENTS)
        return take_events(c, inv, frame);
    return frame->type == FRAME_SAMPLE ? take_clocks(c, inv) : 0;
}
