// SPDX-License-Identifier: Apache-2.0
// Adding to a node's tables. A record is complete before its index is published, and lists run from
// the newest to the oldest, so that a reader in another process meets only whole records.
#include "node_edit.h"

#include <errno.h>

int sim_add_string(struct sim_node *n, struct sv text, uint32_t *out, struct error *err)
{
    uint32_t at = atomic_load(&n->string_bytes);
    if (text.len >= SIM_STRING_BYTES - at)
        return error_set(err, -ENOSPC, "the node's string table is full (%u bytes)",
                         SIM_STRING_BYTES);
    if (text.len > 0)
        memcpy(n->strings + at, text.ptr, text.len);
    n->strings[at + text.len] = '\0';
    atomic_store(&n->string_bytes, at + (uint32_t)text.len + 1);
    *out = at;
    return 0;
}

static int full(const char *what, uint32_t max, struct error *err)
{
    return error_set(err, -ENOSPC, "the node's table of %s is full (%u)", what, max);
}

// Where in a newest-first list a record of this time belongs: the link to write, so that equal
// times keep their order.
#define LIST_PLACE(list, table, time)                                                              \
    ({                                                                                             \
        _Atomic uint32_t *link_ = (list);                                                          \
        while (atomic_load(link_) != SIM_NONE && (table)[atomic_load(link_)].from_ns > (time))     \
            link_ = &(table)[atomic_load(link_)].older;                                            \
        link_;                                                                                     \
    })

int sim_add_segment(struct sim_node *n, uint32_t gpu, enum sim_field field,
                    const struct sim_segment *s, struct error *err)
{
    uint32_t at = atomic_load(&n->segment_count);
    if (at == SIM_MAX_SEGMENTS)
        return full("signal changes", SIM_MAX_SEGMENTS, err);
    _Atomic uint32_t *link = LIST_PLACE(&n->gpus[gpu].fields[field], n->segments, s->from_ns);
    n->segments[at] = *s;
    atomic_store(&n->segments[at].older, atomic_load(link));
    atomic_store(&n->segment_count, at + 1);
    atomic_store_explicit(link, at, memory_order_release);
    atomic_fetch_add(&n->generation, 1);
    return 0;
}

int sim_add_load(struct sim_node *n, _Atomic uint32_t *list, const struct sim_load *l,
                 struct error *err)
{
    uint32_t at = atomic_load(&n->load_count);
    if (at == SIM_MAX_LOADS)
        return full("loads", SIM_MAX_LOADS, err);
    _Atomic uint32_t *link = LIST_PLACE(list, n->loads, l->from_ns);
    n->loads[at] = *l;
    atomic_store(&n->loads[at].older, atomic_load(link));
    atomic_store(&n->load_count, at + 1);
    atomic_store_explicit(link, at, memory_order_release);
    atomic_fetch_add(&n->generation, 1);
    return 0;
}

int sim_add_process(struct sim_node *n, const struct sim_process *p, uint32_t *out,
                    struct error *err)
{
    uint32_t at = atomic_load(&n->process_count);
    if (at == SIM_MAX_PROCESSES)
        return full("processes", SIM_MAX_PROCESSES, err);
    struct sim_gpu *g = &n->gpus[p->gpu];
    n->processes[at] = *p;
    n->processes[at].next_on_gpu = atomic_load(&g->processes);
    atomic_store(&n->process_count, at + 1);
    atomic_store_explicit(&g->processes, at, memory_order_release);
    atomic_fetch_add(&n->generation, 1);
    *out = at;
    return 0;
}

int sim_add_event(struct sim_node *n, const struct sim_event *e, struct error *err)
{
    uint32_t at = atomic_load(&n->event_count);
    if (at == SIM_MAX_EVENTS)
        return full("events", SIM_MAX_EVENTS, err);
    n->events[at] = *e;
    atomic_store(&n->event_count, at + 1);
    return 0;
}
