// SPDX-License-Identifier: Apache-2.0
// How it works. Rows of both lists are sorted by (resource, id); one walk over them counts ids once
// and makes a resource whenever the name changes.
#include "exporter/attribute_counts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int attribute_offered(const struct attribute_options *o, const struct attribute_device *devices,
                      size_t device_count, const struct pod_devices *allocatable, uint32_t *out)
{
    struct attribute_result r;
    for (size_t i = 0; i < device_count; i++)
        out[i] = 0;
    if (!allocatable)
        return 0;
    int error = attribute(o, devices, device_count, allocatable, &r);
    if (error < 0)
        return error;
    for (size_t i = 0; i < device_count; i++)
        out[i] = (uint32_t)r.devices[i].count;
    attribute_result_deinit(&r);
    return 0;
}

struct entry {
    const struct pod_device *row;
    size_t number; // in rows; SIZE_MAX: it is an offer
};

static const char *resource_of(const struct pod_device *row)
{
    return row->claim ? row->claim->driver : row->resource;
}

static int compare_ids(const struct pod_device *a, const struct pod_device *b)
{
    int r = strcmp(a->device_id, b->device_id);
    if (r != 0 || !a->claim || !b->claim)
        return r;
    r = strcmp(a->claim->pool, b->claim->pool);
    return r != 0 ? r : strcmp(a->claim->share_id, b->claim->share_id);
}

// Holders before offers of one id, each in their order.
static int compare_entries(const void *x, const void *y)
{
    const struct entry *a = x, *b = y;
    int r = strcmp(resource_of(a->row), resource_of(b->row));
    if (r == 0)
        r = compare_ids(a->row, b->row);
    return r != 0 ? r : (a->number > b->number) - (a->number < b->number);
}

static bool is_ours(const struct attribute_options *o, const struct pod_device *row)
{
    return o->own_pod.len > 0 && sv_equals(o->own_pod, sv_from(row->pod)) &&
           sv_equals(o->own_namespace, sv_from(row->namespace_name));
}

static size_t gather(const struct attribute_options *o, const struct pod_devices *allocatable,
                     const struct pod_devices *rows, struct entry *entries)
{
    size_t n = 0;
    for (size_t i = 0; rows && i < rows->count; i++)
        if (!is_ours(o, &rows->rows[i]))
            entries[n++] = (struct entry){&rows->rows[i], i};
    for (size_t i = 0; allocatable && i < allocatable->count; i++)
        entries[n++] = (struct entry){&allocatable->rows[i], SIZE_MAX};
    return n;
}

static bool same_id(const struct entry *a, const struct entry *b)
{
    return strcmp(resource_of(a->row), resource_of(b->row)) == 0 &&
           compare_ids(a->row, b->row) == 0;
}

static void add_holder(struct attribute_resources *r, struct attribute_resource *of,
                       const struct entry *e, bool again)
{
    if (again)
        r->holders[r->holder_count - 1].more = true;
    r->holders[r->holder_count++] = (struct attribute_resource_holder){.row = e->number};
    of->count++;
    of->allocated += !again;
}

static void count(struct attribute_resources *r, const struct entry *entries, size_t entry_count)
{
    struct attribute_resource *of = NULL;
    for (size_t i = 0; i < entry_count; i++) {
        const struct entry *e = &entries[i], *last = i > 0 ? e - 1 : NULL;
        bool again = last && same_id(last, e);
        if (!of || strcmp(of->name, resource_of(e->row)) != 0) {
            of = &r->list[r->count++];
            *of =
                (struct attribute_resource){.name = resource_of(e->row), .first = r->holder_count};
        }
        if (e->number != SIZE_MAX) {
            add_holder(r, of, e, again);
            continue;
        }
        of->allocatable += !(again && last->number == SIZE_MAX);
    }
}

int attribute_resources(const struct attribute_options *o, const struct pod_devices *allocatable,
                        const struct pod_devices *rows, struct attribute_resources *out)
{
    size_t most = (rows ? rows->count : 0) + (allocatable ? allocatable->count : 0) + 1;
    cleanup(mem_freep) struct entry *entries = calloc(most, sizeof(*entries));
    struct attribute_resources r = {
        .list = calloc(most, sizeof(*r.list)),
        .holders = calloc(most, sizeof(*r.holders)),
    };
    if (!entries || !r.list || !r.holders) {
        attribute_resources_deinit(&r);
        return -ENOMEM;
    }
    size_t n = gather(o, allocatable, rows, entries);
    qsort(entries, n, sizeof(*entries), compare_entries);
    count(&r, entries, n);
    // A plugin that offers nothing now is known to; no plugin offers devices of claims.
    for (size_t i = 0; i < r.count; i++)
        r.list[i].offer_known = allocatable && strchr(r.list[i].name, '/') != NULL;
    *out = r;
    return 0;
}

void attribute_resources_deinit(struct attribute_resources *r)
{
    free(r->list);
    free(r->holders);
    *r = (struct attribute_resources){0};
}
