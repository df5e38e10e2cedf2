// SPDX-License-Identifier: Apache-2.0
// How it works: the list of devices here is the ledger's, in the same order. Holders are kept as
// names and turned into the ledger's numbers with each frame, because what is known of a name (its
// UID, that its pod has ended) comes and goes apart from the kubelet's list. usage_take.c has the
// frames, usage_names.c whose process is whose.
#include "exporter/usage.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "exporter/usage_internal.h"

int usage_new(const struct usage_config *config, struct usage **out)
{
    struct usage *u = calloc(1, sizeof(*u));
    if (!u)
        return -ENOMEM;
    u->config = *config;
    u->names = ARENA_INIT(LIMIT_POD_DEVICES_STRING_BYTES);
    *out = u;
    return 0;
}

static void devices_free(struct usage_device *devices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(devices[i].told);
        free(devices[i].runners);
    }
    free(devices);
}

void usage_free(struct usage *u)
{
    if (!u)
        return;
    devices_free(u->devices, u->device_count);
    usage_forget_names(u);
    arena_deinit(&u->names);
    free(u);
}

// --- Devices ---

static const char *uuid_of(const struct frame_entity *e)
{
    return e->uuid[0] ? e->uuid : e->legacy_uuid;
}

// Boards that can be cut into instances and whose activity DCGM tells as a share of the whole:
// A100, A800 and A30 (GA100), by NVIDIA's names.
static bool is_ampere(const char *name)
{
    static const char *const boards[] = {"A100", "A800", "A30", "PG199", "PG506"};
    for (size_t i = 0; i < ARRAY_SIZE(boards); i++) {
        const char *at = strstr(name, boards[i]);
        char after = at ? at[strlen(boards[i])] : '0';
        if (at && (at == name || at[-1] == ' ' || at[-1] == '-') && (after < '0' || after > '9'))
            return true;
    }
    return false;
}

// One without a UUID can't be recognised in the next list; one that is not enumerated is away.
static bool is_device(const struct inventory_entity *e)
{
    bool kind = e->info.kind == FRAME_ENTITY_GPU || e->info.kind == FRAME_ENTITY_GPU_I;
    return kind && e->present && uuid_of(&e->info)[0];
}

static size_t place_of_entity(const struct usage_device *devices, size_t count, size_t entity)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (devices[middle].entity < entity)
            low = middle + 1;
        else
            high = middle;
    }
    return low < count && devices[low].entity == entity ? low : USAGE_NONE;
}

// A GPU stands before its instances.
static void fill_device(struct usage_device *devices, size_t at, const struct inventory *inv,
                        size_t entity)
{
    struct usage_device *d = &devices[at];
    const struct frame_entity *e = &inv->entities[entity].info;
    *d = (struct usage_device){.entity = entity, .board = (uint32_t)at};
    sv_copy(d->uuid, sizeof(d->uuid), sv_from(uuid_of(e)));
    if (e->kind == FRAME_ENTITY_GPU) {
        d->has_instances = e->mig_enabled;
        return;
    }
    const struct frame_entity *gpu = &inv->entities[e->parent].info;
    size_t board = place_of_entity(devices, at, e->parent);
    if (board == USAGE_NONE) // a GPU without UUID: its instance stands alone
        return;
    d->board = (uint32_t)board;
    devices[board].has_instances = true;
    d->slices = e->slices;
    d->total_slices = gpu->total_slices;
    d->of_share = !gpu->gpm && is_ampere(gpu->name);
}

static int tell_devices(struct usage *u, const struct usage_device *devices, size_t count,
                        uint64_t now_ns)
{
    cleanup(mem_freep) struct ledger_device_info *infos = calloc(count + 1, sizeof(*infos));
    if (!infos)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        const struct usage_device *d = &devices[i];
        infos[i] = (struct ledger_device_info){
            .uuid = d->uuid,
            .board = d->board,
            .has_instances = d->has_instances,
            .slices = d->slices,
            .total_slices = d->total_slices,
        };
    }
    return ledger_set_devices(u->config.ledger, infos, count, now_ns);
}

// What was known of a device goes on with it. The ledger forgets the holders of one that was away.
static void take_over(struct usage_device *d, struct usage_device *old)
{
    d->holders = old->holders;
    d->holder_count = old->holder_count;
    d->offered = old->offered;
    d->told = TAKE_PTR(old->told);
    d->told_count = old->told_count;
    d->told_offered = old->told_offered;
    d->told_any = old->told_any;
    d->runners = TAKE_PTR(old->runners);
    d->runner_count = old->runner_count;
    d->flags = old->flags;
    d->seen = old->seen;
    d->by_client = old->by_client;
    d->has_server = old->has_server;
    d->hidden = old->hidden;
    d->dcgm_ns = old->dcgm_ns;
    d->dcgm_step = old->dcgm_step;
}

int usage_set_devices(struct usage *u, const struct device_view *view, uint64_t now_ns)
{
    const struct inventory *inv = view->primary;
    size_t count = 0;
    struct usage_device *devices = calloc(inv->entity_count + 1, sizeof(*devices));
    if (!devices)
        return -ENOMEM;
    for (size_t i = 0; i < inv->entity_count; i++)
        if (is_device(&inv->entities[i]))
            fill_device(devices, count++, inv, i);
    int r = tell_devices(u, devices, count, now_ns);
    if (r < 0) {
        free(devices);
        return r;
    }
    for (size_t i = 0; i < count; i++)
        for (size_t old = 0; old < u->device_count; old++)
            if (strcmp(devices[i].uuid, u->devices[old].uuid) == 0 &&
                devices[i].has_instances == u->devices[old].has_instances)
                take_over(&devices[i], &u->devices[old]);
    devices_free(u->devices, u->device_count);
    u->devices = devices;
    u->device_count = count;
    usage_count(u);
    return 0;
}

struct usage_device *usage_device_of(const struct usage *u, const struct device_view *view,
                                     enum device_source source, uint32_t listed)
{
    const struct inventory *inv = view->sources[source];
    size_t entity = inv ? inventory_listed_place(inv, listed) : SIZE_MAX;
    size_t place = entity == SIZE_MAX ? SIZE_MAX : device_view_place(view, source, entity);
    size_t at =
        place == SIZE_MAX ? USAGE_NONE : place_of_entity(u->devices, u->device_count, place);
    return at == USAGE_NONE ? NULL : &u->devices[at];
}

struct usage_runner *usage_find_runner(const struct usage_device *d, uint32_t pid)
{
    size_t low = 0, high = d->runner_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->runners[middle].pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < d->runner_count && d->runners[low].pid == pid ? &d->runners[low] : NULL;
}

struct usage_runner *usage_next_runner(const struct usage_device *d, uint32_t pid, size_t *place)
{
    for (size_t i = *place; i < d->runner_count && i < *place + 2; i++) {
        if (d->runners[i].pid != pid)
            continue;
        *place = i;
        return &d->runners[i];
    }
    struct usage_runner *r = usage_find_runner(d, pid);
    *place = r ? (size_t)(r - d->runners) : 0;
    return r;
}

// --- Holders ---

static bool same_container(const struct usage_holder *h, const struct pod_device *row)
{
    return strcmp(h->pod, row->pod) == 0 && strcmp(h->namespace_name, row->namespace_name) == 0 &&
           strcmp(h->container, row->container) == 0;
}

static int add_holder(struct usage *u, struct usage_device *d, const struct pod_device *row)
{
    for (size_t i = 0; i < d->holder_count; i++) {
        if (same_container(&d->holders[i], row)) {
            d->holders[i].replicas++;
            return 0;
        }
    }
    d->holders[d->holder_count] = (struct usage_holder){
        .namespace_name = arena_dup(&u->names, sv_from(row->namespace_name)),
        .pod = arena_dup(&u->names, sv_from(row->pod)),
        .container = arena_dup(&u->names, sv_from(row->container)),
        .since = row->since,
        .replicas = 1,
    };
    if (u->names.error)
        return -ENOMEM;
    d->holder_count++;
    return 0;
}

static int take_holders(struct usage *u, struct usage_device *d, const struct pod_devices *rows,
                        const struct attribute_result *result)
{
    d->holder_count = 0;
    d->holders = NULL;
    if (!rows || d->entity >= result->device_count)
        return 0;
    const struct attribute_device_holders *held = &result->devices[d->entity];
    if (held->count == 0)
        return 0;
    d->holders = arena_alloc(&u->names, held->count * sizeof(*d->holders));
    if (!d->holders)
        return -ENOMEM;
    for (size_t i = 0; i < held->count; i++) {
        const struct pod_device *row = &rows->rows[result->holders[held->first + i].row];
        if (add_holder(u, d, row) < 0)
            return -ENOMEM;
    }
    return 0;
}

int usage_set_owners(struct usage *u, const struct device_view *view,
                     const struct pod_devices *rows, const struct attribute_result *holders,
                     const uint32_t *offered, uint64_t now_ns)
{
    int result = 0;
    (void)view;
    arena_reset(&u->names);
    for (size_t i = 0; i < u->device_count; i++) {
        u->devices[i].offered = offered ? offered[u->devices[i].entity] : 0;
        if (take_holders(u, &u->devices[i], rows, holders) < 0)
            result = -ENOMEM;
    }
    for (size_t i = 0; i < u->device_count && result == 0; i++)
        result = usage_tell_holders(u, i, now_ns);
    return result;
}

// A pod that has ended may still be listed; its devices are free.
static bool has_ended(const struct usage *u, const struct usage_holder *h)
{
    const char *phase =
        u->config.metadata ? pod_metadata_phase(u->config.metadata, h->namespace_name, h->pod) : "";
    return strcmp(phase, "Succeeded") == 0 || strcmp(phase, "Failed") == 0;
}

static bool counts(const struct usage *u, const struct usage_holder *h)
{
    return !usage_is_own(u, h->namespace_name, h->pod) && !has_ended(u, h);
}

static bool is_one_pods(const struct usage *u, const struct usage_device *d)
{
    const struct usage_holder *first = NULL;
    for (size_t i = 0; i < d->holder_count; i++) {
        const struct usage_holder *h = &d->holders[i];
        if (!counts(u, h))
            continue;
        if (first && (strcmp(first->pod, h->pod) != 0 ||
                      strcmp(first->namespace_name, h->namespace_name) != 0))
            return false;
        first = first ? first : h;
    }
    return true;
}

// Where pids mean nothing, several containers of one pod on a device can't be told apart, but the
// pod is its sole holder.
static uint32_t number_of(struct usage *u, const struct usage_holder *h, bool pod_alone)
{
    const struct ledger_container c = {
        .namespace_name = h->namespace_name,
        .pod = h->pod,
        .container = pod_alone ? "" : h->container,
        .pod_uid = usage_uid_of(u, h->namespace_name, h->pod),
    };
    return ledger_container_number(u->config.ledger, &c);
}

// One that the ledger has no room for holds like any other, and has no name: nobody's stay apart.
static void add_number(struct ledger_holder *list, size_t *count, uint32_t number,
                       uint32_t replicas)
{
    size_t at = number == LEDGER_NONE ? *count : 0;
    while (at < *count && list[at].container != number)
        at++;
    if (at == *count)
        list[(*count)++] = (struct ledger_holder){.container = number};
    list[at].replicas += replicas;
}

static bool is_told(const struct usage_device *d, const struct ledger_holder *list, size_t count)
{
    return d->told_any && d->told_offered == d->offered && d->told_count == count &&
           (count == 0 || memcmp(d->told, list, count * sizeof(*list)) == 0);
}

int usage_tell_holders(struct usage *u, size_t device, uint64_t at_ns)
{
    struct usage_device *d = &u->devices[device];
    size_t count = 0, containers = 0;
    if (d->has_instances)
        return 0;
    cleanup(mem_freep) struct ledger_holder *list = calloc(d->holder_count + 1, sizeof(*list));
    if (!list)
        return -ENOMEM;
    for (size_t i = 0; i < d->holder_count; i++)
        containers += counts(u, &d->holders[i]);
    bool pod_alone = !u->config.find && containers > 1 && is_one_pods(u, d);
    for (size_t i = 0; i < d->holder_count; i++) {
        if (!counts(u, &d->holders[i]))
            continue;
        add_number(list, &count, number_of(u, &d->holders[i], pod_alone), d->holders[i].replicas);
    }
    if (is_told(d, list, count))
        return 0;
    u->owners_ns = at_ns > u->owners_ns ? at_ns : u->owners_ns;
    int r = ledger_set_holders(u->config.ledger, (uint32_t)device, u->owners_ns, list, count,
                               d->offered);
    if (r < 0)
        return r;
    free(d->told);
    d->told = TAKE_PTR(list);
    d->told_count = count;
    d->told_offered = d->offered;
    d->told_any = true;
    return 0;
}
