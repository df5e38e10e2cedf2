// SPDX-License-Identifier: Apache-2.0
// How it works. Every name by which a device can be called becomes a key of one map
// (attribute_id.h). Each row's id, without its replica part, is turned into the keys it may mean
// and looked up; a hit becomes a match. Matches are then laid out by device with a counting sort,
// which keeps row order within a device. Containers and pods get small numbers on the way, so that
// "how many different ones hold this device" is one stamp array and no comparison of strings. Rows
// of one container usually stand together: only the first of a run is hashed. Before they are laid
// out, matches give way that a newer pod's row of the same id supersedes.
#include "exporter/attribute.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/map.h"
#include "exporter/attribute_id.h"
#include "exporter/dra.h"

#define NO_DEVICE SIZE_MAX
// Profile and UUID of a row each, of LIMIT_POD_DEVICES: 60 B in practice.
#define RESULT_STRING_BYTES ((size_t)LIMIT_POD_DEVICES * 2 * LIMIT_DRA_NAME_BYTES)
#define KEYS_PER_DEVICE 6 // at most: UUID, number, parent + instance twice, parent + place twice

struct match {
    size_t row;
    size_t device;
    uint32_t container, pod; // numbers
    bool is_replica;         // or of a claim: several may have it
    struct sv vgpu;
    const char *mig_profile, *mig_uuid;
    bool guessed;
};

struct work {
    const struct attribute_options *options;
    struct map names;  // key of a device -> index + 1
    struct map owners; // "namespace\0pod\0[container]" -> number + 1
    struct map newest; // "resource\0id", ids without a replica part -> since + 1 of the newest row
    struct buf owner_key;
    struct sv *sticky; // per container: the last replica text
    uint32_t container_count, pod_count;
    struct match *matches;
    size_t match_count;
    const struct attribute_device *devices;
    struct attribute_result *result;
};

static void *number_to_value(size_t number)
{
    return (void *)(uintptr_t)(number + 1);
}

static size_t value_to_number(const void *value)
{
    return (size_t)(uintptr_t)value - 1;
}

static void work_deinit(struct work *w)
{
    map_deinit(&w->names);
    map_deinit(&w->owners);
    map_deinit(&w->newest);
    buf_deinit(&w->owner_key);
    free(w->sticky);
    free(w->matches);
}

// The first device called by a name keeps it.
static int add_name(struct work *w, const struct attribute_key *key, size_t device)
{
    if (map_find(&w->names, attribute_key_sv(key)))
        return 0;
    return map_put(&w->names, attribute_key_sv(key), number_to_value(device), NULL);
}

static int add_instance_names(struct work *w, const struct attribute_device *d, size_t index)
{
    struct attribute_key key;
    int r = 0;
    attribute_key_minor_instance(d->minor_known ? d->minor : d->index, d->gpu_instance_id, &key);
    r = add_name(w, &key, index);
    if (r >= 0 && attribute_key_parent_instance(d->parent_uuid, d->gpu_instance_id, &key))
        r = add_name(w, &key, index);
    if (r >= 0 && attribute_key_legacy(d->legacy_uuid, &key))
        r = add_name(w, &key, index);
    if (r < 0 || d->profile_id == UINT32_MAX || d->placement == UINT32_MAX)
        return r;
    attribute_key_minor_place(d->minor_known ? d->minor : d->index, d->profile_id, d->placement,
                              &key);
    r = add_name(w, &key, index);
    if (r >= 0 && attribute_key_parent_place(d->parent_uuid, d->profile_id, d->placement, &key))
        r = add_name(w, &key, index);
    return r;
}

static int add_device_names(struct work *w, const struct attribute_device *d, size_t index)
{
    struct attribute_key key;
    if (attribute_key_uuid(d->uuid, &key)) {
        int r = add_name(w, &key, index);
        if (r < 0)
            return r;
    }
    if (d->is_instance)
        return add_instance_names(w, d, index);
    attribute_key_minor(d->minor_known ? d->minor : d->index, &key);
    return add_name(w, &key, index);
}

static size_t find_name(const struct work *w, const struct attribute_key *key)
{
    const void *value = map_find(&w->names, attribute_key_sv(key));
    return value ? value_to_number(value) : NO_DEVICE;
}

// A MIG id may also be the UUID itself with "MIG-" before it (never a GPU's: that would give a
// board to the holder of a slice of it).
static size_t find_by_uuid(const struct work *w, struct sv id)
{
    struct attribute_key key;
    size_t device = NO_DEVICE;
    if (attribute_key_uuid(id, &key))
        device = find_name(w, &key);
    if (device == NO_DEVICE && attribute_key_legacy(id, &key))
        device = find_name(w, &key);
    if (device != NO_DEVICE || !sv_starts_with(id, SV("MIG-")) ||
        sv_starts_with(id, SV("MIG-GPU-")))
        return device;
    if (attribute_key_uuid(sv_sub(id, 4, id.len - 4), &key))
        device = find_name(w, &key);
    return device;
}

static size_t find_device(const struct work *w, struct sv device_id, bool gpu_resource)
{
    struct attribute_key key;
    struct sv id = attribute_strip_replica(device_id);
    size_t device = find_by_uuid(w, id);
    if (device == NO_DEVICE && gpu_resource &&
        attribute_key_device_name(id, w->options->by_device_name, &key))
        device = find_name(w, &key);
    return device;
}

// --- Devices of claims ---

static size_t find_minor(const struct work *w, uint32_t minor)
{
    struct attribute_key key;
    if (minor == UINT32_MAX)
        return NO_DEVICE;
    attribute_key_minor(minor, &key);
    return find_name(w, &key);
}

static size_t find_board(const struct work *w, const char *uuid, uint32_t minor)
{
    return uuid[0] != '\0' ? find_by_uuid(w, sv_from(uuid)) : find_minor(w, minor);
}

static size_t find_place(const struct work *w, const struct dra_device *d)
{
    struct attribute_key key;
    if (d->profile_id == UINT32_MAX)
        return NO_DEVICE;
    if (d->parent_uuid[0] != '\0')
        return attribute_key_parent_place(sv_from(d->parent_uuid), d->profile_id, d->placement,
                                          &key)
                   ? find_name(w, &key)
                   : NO_DEVICE;
    attribute_key_minor_place(d->minor, d->profile_id, d->placement, &key);
    return find_name(w, &key);
}

// What is shown of a MIG device of a claim; device NO_DEVICE: which one is not known.
static int note_mig(struct work *w, const struct dra_device *d, size_t device, const char **profile,
                    const char **uuid)
{
    struct arena *a = &w->result->strings;
    struct sv known = device == NO_DEVICE ? SV("") : w->devices[device].uuid;
    *profile = arena_dup(a, sv_from(d->profile));
    *uuid = arena_dup(a, d->uuid[0] != '\0' ? sv_from(d->uuid) : known);
    return a->error;
}

static int add_part(struct work *w, const struct dra_device *d, size_t row)
{
    struct attribute_part part = {.row = row, .device = find_board(w, d->parent_uuid, d->minor)};
    if (part.device == NO_DEVICE || w->devices[part.device].is_instance) {
        w->result->unknown_ids++;
        return 0;
    }
    int r = note_mig(w, d, NO_DEVICE, &part.mig_profile, &part.mig_uuid);
    if (r == 0) {
        w->result->parts[w->result->part_count++] = part;
        w->result->guessed += d->guessed;
    }
    return r;
}

// The device of a row of a claim, in m; m->device NO_DEVICE: it is a part or unknown, which is
// noted.
static int resolve_claim(struct work *w, const struct pod_device *row, struct match *m)
{
    const struct pod_device_claim *c = row->claim;
    struct dra_device d;
    m->device = NO_DEVICE;
    if (!dra_find(w->options->dra, sv_from(c->driver), sv_from(c->pool), sv_from(row->device_id),
                  &d)) {
        w->result->unknown_ids++;
        return 0;
    }
    if (d.kind == DRA_GPU)
        m->device = find_board(w, d.uuid, d.minor);
    else
        m->device = d.uuid[0] != '\0' ? find_by_uuid(w, sv_from(d.uuid)) : find_place(w, &d);
    if (m->device == NO_DEVICE && d.kind == DRA_MIG)
        return add_part(w, &d, m->row);
    if (m->device == NO_DEVICE) {
        w->result->unknown_ids++;
        return 0;
    }
    m->guessed = d.guessed;
    w->result->guessed += d.guessed;
    return d.kind == DRA_MIG ? note_mig(w, &d, m->device, &m->mig_profile, &m->mig_uuid) : 0;
}

// --- Owners ---

// The number of an owner key; a new one gets *count and *count grows. 0, -ENOMEM.
static int number_owner(struct work *w, struct sv key, uint32_t *count, uint32_t *out)
{
    const void *value = map_find(&w->owners, key);
    if (value) {
        *out = (uint32_t)value_to_number(value);
        return 0;
    }
    int r = map_put(&w->owners, key, number_to_value(*count), NULL);
    if (r < 0)
        return r;
    *out = (*count)++;
    return 0;
}

static int number_row(struct work *w, const struct pod_device *row, struct match *m)
{
    buf_reset(&w->owner_key);
    buf_add_str(&w->owner_key, row->namespace_name);
    buf_add_char(&w->owner_key, '\0');
    buf_add_str(&w->owner_key, row->pod);
    buf_add_char(&w->owner_key, '\0');
    size_t pod_key_len = w->owner_key.len;
    // Something after the last NUL keeps a nameless container's key apart from its pod's.
    buf_add_char(&w->owner_key, 'c');
    buf_add_str(&w->owner_key, row->container);
    if (w->owner_key.error)
        return w->owner_key.error;
    struct sv key = buf_sv(&w->owner_key);
    int r = number_owner(w, sv_sub(key, 0, pod_key_len), &w->pod_count, &m->pod);
    if (r < 0)
        return r;
    return number_owner(w, key, &w->container_count, &m->container);
}

static bool same_container(const struct pod_device *a, const struct pod_device *b)
{
    return strcmp(a->container, b->container) == 0 && strcmp(a->pod, b->pod) == 0 &&
           strcmp(a->namespace_name, b->namespace_name) == 0;
}

// Numbers the owner of rows[i], taking over what the row before had when it is the same container.
static int note_owner(struct work *w, const struct pod_device *rows, size_t i, struct match *m,
                      const struct match *before)
{
    if (before && same_container(&rows[i], &rows[before->row])) {
        m->container = before->container;
        m->pod = before->pod;
        return 0;
    }
    return number_row(w, &rows[i], m);
}

static struct sv id_key(struct work *w, const struct pod_device *row)
{
    buf_reset(&w->owner_key);
    buf_add_str(&w->owner_key, row->resource);
    buf_add_char(&w->owner_key, '\0');
    buf_add_str(&w->owner_key, row->device_id);
    return buf_sv(&w->owner_key);
}

static int note_newest(struct work *w, const struct pod_device *row)
{
    struct sv key = id_key(w, row);
    if (w->owner_key.error)
        return w->owner_key.error;
    const void *value = map_find(&w->newest, key);
    if (value && value_to_number(value) >= row->since)
        return 0;
    return map_put(&w->newest, key, number_to_value(row->since), NULL);
}

static int drop_superseded(struct work *w, const struct pod_devices *rows,
                           struct attribute_result *result)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->match_count; i++) {
        const struct match *m = &w->matches[i];
        const struct pod_device *row = &rows->rows[m->row];
        if (!m->is_replica) {
            const void *newest = map_find(&w->newest, id_key(w, row));
            if (w->owner_key.error)
                return w->owner_key.error;
            if (value_to_number(newest) > row->since)
                continue;
        }
        w->matches[kept++] = *m;
    }
    result->superseded = w->match_count - kept;
    w->match_count = kept;
    return 0;
}

static bool is_ours(const struct attribute_options *o, const struct pod_device *row)
{
    return o->own_pod.len > 0 && sv_equals(o->own_pod, sv_from(row->pod)) &&
           sv_equals(o->own_namespace, sv_from(row->namespace_name));
}

// A row of a claim; before is the match of the row before it, or NULL.
static int match_claim(struct work *w, const struct pod_devices *rows, struct match *m,
                       const struct match *before)
{
    const struct pod_device *row = &rows->rows[m->row];
    if (!w->options->dra)
        return 0;
    int r = resolve_claim(w, row, m);
    if (r < 0 || m->device == NO_DEVICE)
        return r;
    r = note_owner(w, rows->rows, m->row, m, before);
    m->is_replica = true;
    if (r == 0)
        w->matches[w->match_count++] = *m;
    return r;
}

// A row of a device plugin. 1: it counts, whether or not its device is known; 0; -ENOMEM.
static int match_id(struct work *w, const struct pod_devices *rows, struct match *m,
                    const struct match *before)
{
    const struct pod_device *row = &rows->rows[m->row];
    struct sv id = sv_from(row->device_id);
    bool gpu_resource = attribute_resource_is_gpu(w->options, sv_from(row->resource));
    m->device = find_device(w, id, gpu_resource);
    if (!gpu_resource && m->device == NO_DEVICE)
        return 0;
    int r = note_owner(w, rows->rows, m->row, m, before);
    if (r < 0)
        return r;
    struct sv replica = attribute_replica(id);
    if (replica.ptr)
        w->sticky[m->container] = replica;
    m->vgpu = w->sticky[m->container];
    m->is_replica = replica.ptr != NULL;
    if (m->device == NO_DEVICE) {
        w->result->unknown_ids++;
        return 1;
    }
    w->matches[w->match_count++] = *m;
    r = m->is_replica ? 0 : note_newest(w, row);
    return r < 0 ? r : 1;
}

static int match_rows(struct work *w, const struct pod_devices *rows)
{
    struct match before = {.row = SIZE_MAX};
    for (size_t i = 0; i < rows->count; i++) {
        const struct match *last = before.row == SIZE_MAX ? NULL : &before;
        struct match m = {.row = i};
        if (is_ours(w->options, &rows->rows[i]))
            continue;
        int r = rows->rows[i].claim ? match_claim(w, rows, &m, last) : match_id(w, rows, &m, last);
        if (r < 0)
            return r;
        if (r > 0)
            before = m;
    }
    return 0;
}

// Counting sort by device: order[] gets the matches, holders[] what the caller sees.
static void lay_out(const struct work *w, struct attribute_result *result,
                    const struct match **order)
{
    size_t first = 0;
    for (size_t i = 0; i < w->match_count; i++)
        result->devices[w->matches[i].device].count++;
    for (size_t i = 0; i < result->device_count; i++) {
        result->devices[i].first = first;
        first += result->devices[i].count;
        result->devices[i].count = 0;
    }
    for (size_t i = 0; i < w->match_count; i++) {
        const struct match *m = &w->matches[i];
        struct attribute_device_holders *d = &result->devices[m->device];
        size_t place = d->first + d->count++;
        order[place] = m;
        result->holders[place] = (struct attribute_holder){
            .row = m->row,
            .vgpu = m->vgpu,
            .mig_profile = m->mig_profile,
            .mig_uuid = m->mig_uuid,
            .guessed = m->guessed,
        };
    }
}

// An owner's stamp is the number of the device on which it was met last.
static void count_owners(const struct work *w, struct attribute_result *result,
                         const struct match *const *order, size_t *stamps)
{
    for (size_t i = 0; i < result->device_count; i++) {
        struct attribute_device_holders *d = &result->devices[i];
        for (size_t h = d->first; h < d->first + d->count; h++) {
            size_t *container = &stamps[order[h]->container];
            size_t *pod = &stamps[w->container_count + order[h]->pod];
            d->containers += *container != i + 1;
            d->pods += *pod != i + 1;
            *container = *pod = i + 1;
        }
        result->shared_seen = result->shared_seen || d->containers > 1;
    }
}

static int gather(const struct work *w, struct attribute_result *result)
{
    size_t count = w->match_count ? w->match_count : 1;
    size_t owners = (size_t)w->container_count + w->pod_count + 1;
    cleanup(mem_freep) const struct match **order = calloc(count, sizeof(*order));
    cleanup(mem_freep) size_t *stamps = calloc(owners, sizeof(*stamps));
    result->holders = calloc(count, sizeof(*result->holders));
    if (!order || !stamps || !result->holders)
        return -ENOMEM;
    result->holder_count = w->match_count;
    lay_out(w, result, order);
    count_owners(w, result, order, stamps);
    return 0;
}

static int run(struct work *w, const struct attribute_device *devices, size_t device_count,
               const struct pod_devices *rows, struct attribute_result *result)
{
    size_t most = rows->count ? rows->count : 1;
    w->matches = calloc(most, sizeof(*w->matches));
    w->sticky = calloc(most, sizeof(*w->sticky));
    result->devices = calloc(device_count ? device_count : 1, sizeof(*result->devices));
    result->device_count = device_count;
    result->parts = calloc(most, sizeof(*result->parts));
    if (!w->matches || !w->sticky || !result->devices || !result->parts)
        return -ENOMEM;
    for (size_t i = 0; i < device_count; i++) {
        int r = add_device_names(w, &devices[i], i);
        if (r < 0)
            return r;
    }
    int r = match_rows(w, rows);
    if (r == 0)
        r = drop_superseded(w, rows, result);
    return r < 0 ? r : gather(w, result);
}

int attribute(const struct attribute_options *o, const struct attribute_device *devices,
              size_t device_count, const struct pod_devices *rows, struct attribute_result *out)
{
    struct work w = {
        .options = o,
        .names = MAP_INIT(device_count * KEYS_PER_DEVICE),
        .owners = MAP_INIT(rows->count * 2),
        .newest = MAP_INIT(rows->count),
        .owner_key = BUF_INIT(3 * (LIMIT_POD_RESOURCES_POD_BYTES + 2)),
    };
    struct attribute_result result = {.strings = ARENA_INIT(RESULT_STRING_BYTES)};
    w.devices = devices;
    w.result = &result;
    int r = run(&w, devices, device_count, rows, &result);
    work_deinit(&w);
    if (r < 0) {
        attribute_result_deinit(&result);
        return r;
    }
    *out = result;
    return 0;
}

void attribute_result_deinit(struct attribute_result *r)
{
    free(r->devices);
    free(r->holders);
    free(r->parts);
    arena_deinit(&r->strings);
    *r = (struct attribute_result){0};
}
