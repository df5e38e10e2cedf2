// SPDX-License-Identifier: Apache-2.0
// Lists of devices: how a new list becomes the inventory's, and which devices are up. Here a part
// is a switch, link, CPU or core.
//
// A new list is planned beside the old one: first each new device is matched with an old one, then
// the order is fixed and the memory is taken; only then, when nothing can fail any more, values and
// XID history move over and the lists are swapped. Matching goes by the surest mark that both sides
// know: UUIDs of all GPUs first, then bus ids, then indices, so that a GPU without a readable UUID
// (lost, skipped) never takes the place of one that has it. Parts go by their parent and id alone.
#include "exporter/inventory_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <strings.h>

// memcmp decides whether a device's identity changed: there must be no padding in it.
static_assert(sizeof(struct frame_entity) == 4 + 10 * 4 + 3 * 96 + 2 * 32,
              "frame_entity has padding");

// In the order of the list; each after what it hangs on.
static const enum frame_entity_kind part_kinds[] = {FRAME_ENTITY_SWITCH, FRAME_ENTITY_LINK,
                                                    FRAME_ENTITY_CPU, FRAME_ENTITY_CPU_CORE};

struct plan {
    const struct frame_entity *list; // the frame's
    size_t list_count;
    uint32_t *old_of; // per frame entity: index in inv->entities, or INVENTORY_NONE
    bool *taken;      // per old entity
    struct inventory_entity *entities; // the new list
    uint32_t *from;                    // per new entity: index in inv->entities, or INVENTORY_NONE
    size_t count;
    uint32_t *map; // per frame entity: index in the new list
    struct plan_gpu {
        uint32_t index;  // NVML's
        uint32_t order;  // gone ones after those listed
        uint32_t listed; // frame entity, or INVENTORY_NONE
        uint32_t old;    // inventory entity, or INVENTORY_NONE
    } * gpus;
    size_t gpu_count;
    struct plan_part {
        uint32_t parent; // place in the new list; 0 of what has none
        uint32_t id;
        uint32_t listed; // frame entity
    } * parts;           // of one kind at a time
};

static void plan_deinit(struct plan *p)
{
    if (p->entities) {
        for (size_t i = 0; i < p->count; i++)
            free(p->entities[i].values); // fresh ones only: they hold no text yet
    }
    free(p->entities);
    free(p->old_of);
    free(p->taken);
    free(p->from);
    free(p->map);
    free(p->gpus);
    free(p->parts);
}

static bool is_known(const char *s)
{
    return s[0] != '\0';
}

// --- Matching ---

enum match_by { MATCH_UUID, MATCH_BUS_ID, MATCH_INDEX, MATCH_END };

static bool gpu_matches(const struct frame_entity *a, const struct frame_entity *b,
                        enum match_by by)
{
    bool uuids = is_known(a->uuid) && is_known(b->uuid);
    bool bus_ids = is_known(a->bus_id) && is_known(b->bus_id);
    if (by == MATCH_UUID)
        return uuids && strcmp(a->uuid, b->uuid) == 0;
    if (uuids)
        return false; // both known and not equal, or matched already
    if (by == MATCH_BUS_ID)
        return bus_ids && strcasecmp(a->bus_id, b->bus_id) == 0;
    return !bus_ids && a->index == b->index;
}

// Instances and compute instances.
static bool instance_matches(const struct frame_entity *a, const struct frame_entity *b,
                             enum match_by by)
{
    if (is_known(a->profile) && is_known(b->profile) && strcmp(a->profile, b->profile) != 0)
        return false; // the same id cut anew
    bool uuids = is_known(a->uuid) && is_known(b->uuid);
    if (by == MATCH_UUID)
        return uuids && strcmp(a->uuid, b->uuid) == 0;
    return !uuids && a->gpu_instance_id == b->gpu_instance_id && a->id == b->id;
}

static bool stands_alone(uint32_t kind)
{
    return kind == FRAME_ENTITY_GPU || kind == FRAME_ENTITY_SWITCH || kind == FRAME_ENTITY_CPU;
}

// Whether the old entity o may be the new entity n at all: same kind, and of the same parent.
static bool may_match(const struct inventory *inv, const struct plan *p,
                      const struct frame_entity *n, size_t o)
{
    const struct frame_entity *old = &inv->entities[o].info;
    if (p->taken[o] || old->kind != n->kind)
        return false;
    return stands_alone(n->kind) || p->old_of[n->parent] == old->parent;
}

static void match_one(const struct inventory *inv, struct plan *p, size_t n, enum match_by by)
{
    const struct frame_entity *info = &p->list[n];
    for (size_t o = 0; o < inv->entity_count; o++) {
        const struct frame_entity *old = &inv->entities[o].info;
        if (!may_match(inv, p, info, o))
            continue;
        if (info->kind == FRAME_ENTITY_GPU ? gpu_matches(info, old, by)
                                           : instance_matches(info, old, by)) {
            p->old_of[n] = (uint32_t)o;
            p->taken[o] = true;
            return;
        }
    }
}

// What hangs on an entity that cannot be its parent is not taken.
static bool is_usable(const struct plan *p, const struct frame_entity *e)
{
    static const unsigned parents[FRAME_ENTITY_KIND_END] = {
        [FRAME_ENTITY_GPU_I] = 1u << FRAME_ENTITY_GPU,
        [FRAME_ENTITY_GPU_CI] = 1u << FRAME_ENTITY_GPU_I,
        [FRAME_ENTITY_LINK] = 1u << FRAME_ENTITY_GPU | 1u << FRAME_ENTITY_SWITCH,
        [FRAME_ENTITY_CPU_CORE] = 1u << FRAME_ENTITY_CPU,
    };
    if (stands_alone(e->kind))
        return true;
    return e->kind < FRAME_ENTITY_KIND_END && e->parent < p->list_count &&
           (parents[e->kind] >> p->list[e->parent].kind & 1);
}

static void match_kind(const struct inventory *inv, struct plan *p, enum frame_entity_kind kind)
{
    for (unsigned by = 0; by < MATCH_END; by++) {
        for (size_t n = 0; n < p->list_count; n++) {
            if (p->list[n].kind == kind && p->old_of[n] == INVENTORY_NONE &&
                is_usable(p, &p->list[n]))
                match_one(inv, p, n, (enum match_by)by);
        }
    }
}

// Lists mostly come in the same order: the one after the last match is looked at first.
static void match_parts(const struct inventory *inv, struct plan *p, enum frame_entity_kind kind)
{
    size_t next = 0;
    for (size_t n = 0; n < p->list_count; n++) {
        const struct frame_entity *info = &p->list[n];
        if (info->kind != kind || !is_usable(p, info))
            continue;
        for (size_t i = 0; i < inv->entity_count; i++) {
            size_t o = (next + i) % inv->entity_count;
            if (inv->entities[o].info.id != info->id || !may_match(inv, p, info, o))
                continue;
            p->old_of[n] = (uint32_t)o;
            p->taken[o] = true;
            next = o + 1;
            break;
        }
    }
}

// --- Order ---

static int compare_gpus(const void *va, const void *vb)
{
    const struct plan_gpu *a = va, *b = vb;
    if (a->index != b->index)
        return a->index < b->index ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static void plan_gpu_add(struct plan *p, uint32_t index, uint32_t listed, uint32_t old)
{
    p->gpus[p->gpu_count] = (struct plan_gpu){index, (uint32_t)p->gpu_count, listed, old};
    p->gpu_count++;
}

// Listed GPUs, then those to keep as lost: at most LIMIT_GPUS, the ones kept longest (present
// false) go first.
static void collect_gpus(const struct inventory *inv, struct plan *p)
{
    for (size_t n = 0; n < p->list_count; n++) {
        if (p->list[n].kind == FRAME_ENTITY_GPU)
            plan_gpu_add(p, p->list[n].index, (uint32_t)n, p->old_of[n]);
    }
    size_t room = inv->forget_absent ? 0 : LIMIT_GPUS;
    for (int present = 1; present >= 0; present--) {
        for (size_t o = 0; o < inv->entity_count && room > 0; o++) {
            const struct inventory_entity *e = &inv->entities[o];
            if (p->taken[o] || e->info.kind != FRAME_ENTITY_GPU || e->present != (bool)present)
                continue;
            plan_gpu_add(p, e->info.index, INVENTORY_NONE, (uint32_t)o);
            room--;
        }
    }
    if (p->gpu_count > 1)
        qsort(p->gpus, p->gpu_count, sizeof(p->gpus[0]), compare_gpus);
}

// --- Filling ---

static void copy_text(char *out, size_t bytes, const char *text, const char *before)
{
    const char *s = is_known(text) ? text : before;
    memcpy(out, s, strnlen(s, bytes - 1)); // out is zeroed
}

// What the new list says, with what was known before where it is silent.
static void merge_info(struct frame_entity *out, const struct frame_entity *now,
                       const struct frame_entity *before)
{
    static const struct frame_entity nothing = {
        .minor = UINT32_MAX, .profile_id = UINT32_MAX, .placement = UINT32_MAX};
    if (!before)
        before = &nothing;
    memset(out, 0, sizeof(*out));
    out->kind = now->kind;
    out->state = now->state;
    out->index = now->index;
    out->gpu_instance_id = now->gpu_instance_id;
    out->instance_entity_id = now->instance_entity_id;
    out->id = now->id;
    bool silent = now->state != FRAME_ENTITY_UP; // could not be asked: numbers may be missing too
    out->mig_enabled = silent && !now->mig_enabled ? before->mig_enabled : now->mig_enabled;
    out->gpm = silent && !now->gpm ? before->gpm : now->gpm;
    out->minor = now->minor == UINT32_MAX ? before->minor : now->minor;
    bool unplaced = silent && now->profile_id == UINT32_MAX;
    out->profile_id = unplaced ? before->profile_id : now->profile_id;
    out->placement = unplaced ? before->placement : now->placement;
    out->slices = silent && !now->slices ? before->slices : now->slices;
    out->total_slices = silent && !now->total_slices ? before->total_slices : now->total_slices;
    copy_text(out->uuid, sizeof(out->uuid), now->uuid, before->uuid);
    copy_text(out->legacy_uuid, sizeof(out->legacy_uuid), now->legacy_uuid, before->legacy_uuid);
    copy_text(out->name, sizeof(out->name), now->name, before->name);
    copy_text(out->bus_id, sizeof(out->bus_id), now->bus_id, before->bus_id);
    copy_text(out->profile, sizeof(out->profile), now->profile, before->profile);
}

static int plan_add(const struct inventory *inv, struct plan *p, const struct frame_entity *now,
                    uint32_t old, size_t parent)
{
    struct inventory_entity *e = &p->entities[p->count];
    const struct frame_entity *before = old == INVENTORY_NONE ? NULL : &inv->entities[old].info;
    *e = (struct inventory_entity){.present = now != NULL, .down_reason = "", .last_xid = -1};
    merge_info(&e->info, now ? now : before, before);
    if (!now)
        e->info.state = FRAME_ENTITY_LOST;
    e->info.parent = (uint32_t)parent;
    p->from[p->count] = old;
    p->count++;
    if (old != INVENTORY_NONE)
        return 0;
    e->values = inventory_values_new(inv->field_count);
    return e->values ? 0 : -ENOMEM;
}

static int plan_add_listed(const struct inventory *inv, struct plan *p, size_t listed,
                           size_t parent)
{
    p->map[listed] = (uint32_t)p->count;
    return plan_add(inv, p, &p->list[listed], p->old_of[listed], parent);
}

static int plan_add_compute_instances(const struct inventory *inv, struct plan *p,
                                      uint32_t instance, size_t parent)
{
    for (size_t n = 0; n < p->list_count; n++) {
        if (p->list[n].kind != FRAME_ENTITY_GPU_CI || p->list[n].parent != instance)
            continue;
        int r = plan_add_listed(inv, p, n, parent);
        if (r < 0)
            return r;
    }
    return 0;
}

static int plan_add_instances(const struct inventory *inv, struct plan *p, uint32_t gpu,
                              size_t parent)
{
    for (size_t n = 0; n < p->list_count; n++) {
        if (p->list[n].kind != FRAME_ENTITY_GPU_I || p->list[n].parent != gpu)
            continue;
        size_t place = p->count;
        int r = plan_add_listed(inv, p, n, parent);
        if (r == 0)
            r = plan_add_compute_instances(inv, p, (uint32_t)n, place);
        if (r < 0)
            return r;
    }
    return 0;
}

static int compare_parts(const void *va, const void *vb)
{
    const struct plan_part *a = va, *b = vb;
    if (a->parent != b->parent)
        return a->parent < b->parent ? -1 : 1;
    if (a->id != b->id)
        return a->id < b->id ? -1 : 1;
    return a->listed < b->listed ? -1 : a->listed > b->listed;
}

// All parts of a kind; what they hang on has its place already.
static int plan_add_parts(const struct inventory *inv, struct plan *p, enum frame_entity_kind kind)
{
    size_t count = 0;
    for (size_t n = 0; n < p->list_count; n++) {
        const struct frame_entity *e = &p->list[n];
        if (e->kind != kind || !is_usable(p, e))
            continue;
        uint32_t parent = stands_alone(kind) ? 0 : p->map[e->parent];
        if (parent != INVENTORY_NONE)
            p->parts[count++] = (struct plan_part){parent, e->id, (uint32_t)n};
    }
    if (count > 1)
        qsort(p->parts, count, sizeof(p->parts[0]), compare_parts);
    for (size_t i = 0; i < count; i++) {
        size_t parent = stands_alone(kind) ? p->count : p->parts[i].parent;
        int r = plan_add_listed(inv, p, p->parts[i].listed, parent);
        if (r < 0)
            return r;
    }
    return 0;
}

static int plan_fill(const struct inventory *inv, struct plan *p)
{
    for (size_t g = 0; g < p->gpu_count; g++) {
        const struct plan_gpu *gpu = &p->gpus[g];
        size_t position = p->count;
        bool listed = gpu->listed != INVENTORY_NONE;
        int r = plan_add(inv, p, listed ? &p->list[gpu->listed] : NULL, gpu->old, position);
        if (r < 0)
            return r;
        if (!listed)
            continue;
        p->map[gpu->listed] = (uint32_t)position;
        r = plan_add_instances(inv, p, gpu->listed, position);
        if (r < 0)
            return r;
    }
    for (size_t k = 0; k < ARRAY_SIZE(part_kinds); k++) {
        int r = plan_add_parts(inv, p, part_kinds[k]);
        if (r < 0)
            return r;
    }
    return 0;
}

static int plan_init(const struct inventory *inv, const struct frame *frame, struct plan *p)
{
    p->list = frame->as.entities.list;
    p->list_count = frame->as.entities.head->count;
    assert(p->list_count <= LIMIT_ENTITIES);
    size_t most = p->list_count + LIMIT_GPUS;
    p->old_of = malloc((p->list_count + 1) * sizeof(p->old_of[0]));
    p->map = malloc((p->list_count + 1) * sizeof(p->map[0]));
    p->taken = calloc(inv->entity_count + 1, sizeof(p->taken[0]));
    p->entities = calloc(most, sizeof(p->entities[0]));
    p->from = calloc(most, sizeof(p->from[0]));
    p->gpus = calloc(most, sizeof(p->gpus[0]));
    p->parts = calloc(most, sizeof(p->parts[0]));
    if (!p->old_of || !p->map || !p->taken || !p->entities || !p->from || !p->gpus || !p->parts)
        return -ENOMEM;
    for (size_t n = 0; n < p->list_count; n++)
        p->old_of[n] = p->map[n] = INVENTORY_NONE;
    return 0;
}

// --- Taking over ---

// Moves history from the old list and takes the new one. Cannot fail.
static void plan_commit(struct inventory *inv, struct plan *p)
{
    bool changed = p->count != inv->entity_count;
    for (size_t i = 0; i < p->count; i++) {
        struct inventory_entity *e = &p->entities[i];
        changed = changed || p->from[i] != i;
        if (p->from[i] == INVENTORY_NONE)
            continue;
        struct inventory_entity *old = &inv->entities[p->from[i]];
        changed = changed || memcmp(&e->info, &old->info, sizeof(e->info)) != 0;
        e->up = old->up;
        e->down_reason = old->down_reason;
        e->values = TAKE_PTR(old->values);
        e->xids = TAKE_PTR(old->xids);
        e->xid_count = old->xid_count;
        e->last_xid = old->last_xid;
        e->last_xid_value = old->last_xid_value;
    }
    for (size_t o = 0; o < inv->entity_count; o++)
        inventory_entity_deinit(inv, &inv->entities[o]);
    free(inv->entities);
    free(inv->map);
    inv->entities = TAKE_PTR(p->entities);
    inv->entity_count = p->count;
    inv->map = TAKE_PTR(p->map);
    inv->map_count = p->list_count;
    if (!changed)
        return;
    inv->layout++;
    inventory_tables_clear(inv); // they name places of the old list
}

int inventory_apply_entities(struct inventory *inv, const struct frame *frame)
{
    cleanup(plan_deinit) struct plan p = {0};
    int r = plan_init(inv, frame, &p);
    if (r < 0)
        return r;
    match_kind(inv, &p, FRAME_ENTITY_GPU);
    match_kind(inv, &p, FRAME_ENTITY_GPU_I);
    match_kind(inv, &p, FRAME_ENTITY_GPU_CI);
    for (size_t k = 0; k < ARRAY_SIZE(part_kinds); k++)
        match_parts(inv, &p, part_kinds[k]);
    collect_gpus(inv, &p);
    r = plan_fill(inv, &p);
    if (r < 0)
        return r;
    plan_commit(inv, &p);
    inv->generation = frame->as.entities.head->generation;
    inv->forget_absent = false;
    inv->stale = false;
    inv->news = true;
    inventory_refresh(inv);
    return 0;
}

// --- Up or down ---

static const char *state_reason(const struct frame_entity *info)
{
    // It is left alone because a call to it hung.
    if (info->state == FRAME_ENTITY_SKIPPED)
        return "hung";
    return frame_entity_state_text((enum frame_entity_state)info->state);
}

// The state of the entity, or of the nearest above it that is not up.
static const struct frame_entity *worst(const struct inventory *inv,
                                        const struct inventory_entity *e)
{
    while (e->info.state == FRAME_ENTITY_UP && &inv->entities[e->info.parent] != e)
        e = &inv->entities[e->info.parent];
    return &e->info;
}

// Why no device is up, or "".
static const char *source_reason(const struct inventory *inv)
{
    if (inv->state_known && inv->state.code != FRAME_STATE_READY)
        return frame_state_text((enum frame_state_code)inv->state.code);
    return inv->disconnected ? frame_status_text(FRAME_NOT_CONNECTED) : "";
}

// Why the device is down, or "".
static const char *down_reason(const struct inventory *inv, const struct inventory_entity *e)
{
    size_t place = (size_t)(e - inv->entities);
    const struct inventory_entity *top = &inv->entities[inventory_top(inv, place)];
    const char *source = source_reason(inv);
    if (source[0] && (!top->present || top->info.state == FRAME_ENTITY_LOST))
        return source; // without a driver all are missing, none is lost
    const struct frame_entity *info = worst(inv, e);
    if (info->state != FRAME_ENTITY_UP)
        return state_reason(info);
    if (top->mark)
        return top->mark;
    return source[0] ? source : inv->stale ? "stale" : "";
}

void inventory_refresh(struct inventory *inv)
{
    bool changed = false;
    for (size_t i = 0; i < inv->entity_count; i++) {
        struct inventory_entity *e = &inv->entities[i];
        if (worst(inv, e)->state != FRAME_ENTITY_UP)
            inventory_entity_clear_readings(inv, e);
        const char *reason = down_reason(inv, e);
        bool up = reason[0] == '\0';
        changed = changed || up != e->up || strcmp(reason, e->down_reason) != 0;
        e->up = up;
        e->down_reason = reason;
    }
    if (changed)
        inv->layout++;
}
