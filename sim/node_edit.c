// SPDX-License-Identifier: Apache-2.0
// Adding to a node's tables. A record is complete before its index is published, and lists run from
// the newest to the oldest, so that a reader in another process meets only whole records.
#include "node_edit.h"

#include <errno.h>
#include <stdio.h>

#include "base/num.h"

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

// --- MIG layouts ---

// What is known of a profile from its name: "3g.40gb" -> 3 slices, 40 GiB.
struct profile {
    struct sv name;
    uint32_t slices;
    int64_t gib;
};

static int parse_profile(struct sv text, struct profile *out, struct error *err)
{
    struct sv rest = text, slices_text;
    uint64_t slices = 0, gib = 0;
    bool ok = sv_next(&rest, 'g', &slices_text) && sv_starts_with(rest, SV("."));
    size_t unit = sv_find(rest, SV("gb"));
    ok = ok && unit != (size_t)-1 && num_parse_u64(slices_text, 1, 8, &slices) == 0 &&
         num_parse_u64(sv_sub(rest, 1, unit - 1), 1, 1024, &gib) == 0;
    if (!ok)
        return error_set(err, -EINVAL, "expected a MIG profile such as 1g.10gb, found '%.*s'",
                         SV_FMT(text));
    *out = (struct profile){text, (uint32_t)slices, (int64_t)gib};
    return 0;
}

// Ids as drivers hand them out: each size counts up from its own base.
static uint32_t first_gi(uint32_t slices)
{
    switch (slices) {
    case 1:
        return 7;
    case 2:
        return 3;
    case 3:
    case 4:
        return 1;
    default:
        return 0;
    }
}

static uint64_t mix(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    return h;
}

// A UUID that depends on the GPU, the layout's time and the instance only.
static int instance_uuid(struct sim_node *n, const struct sim_instance *x, uint32_t *out,
                         struct error *err)
{
    char seed[160], text[64];
    (void)snprintf(seed, sizeof(seed), "%s/%u/%u/%lld", sim_string(n, n->gpus[x->gpu].uuid), x->gi,
                   x->ci, (long long)x->from_ns);
    uint64_t a = mix(UINT64_C(0xcbf29ce484222325), seed), b = mix(a * 31 + 7, seed);
    (void)snprintf(text, sizeof(text), "MIG-%08x-%04x-5%03x-8%03x-%012llx", (unsigned)(a >> 32),
                   (unsigned)(a >> 16) & 0xffff, (unsigned)a & 0xfff, (unsigned)(b >> 48) & 0xfff,
                   (unsigned long long)(b & 0xffffffffffff));
    return sim_add_string(n, sv_from(text), out, err);
}

struct layout {
    struct sim_node *n;
    uint32_t gpu;
    int64_t at;
    uint32_t slot, placement;
    uint32_t used[9]; // GPU instances so far, by the base of their ids
};

static int add_compute_instance(struct layout *l, struct sim_instance x, struct error *err)
{
    struct sim_node *n = l->n;
    uint32_t at = atomic_load(&n->instance_count);
    if (at == SIM_MAX_INSTANCES)
        return full("MIG instances", SIM_MAX_INSTANCES, err);
    x.slot = l->slot++;
    if (x.slot >= n->gpus[l->gpu].mig_slots)
        return error_set(err, -EINVAL, "more MIG devices than the GPU's %u",
                         n->gpus[l->gpu].mig_slots);
    int rc = instance_uuid(n, &x, &x.uuid, err);
    if (rc < 0)
        return rc;
    n->instances[at] = x;
    atomic_store(&n->instance_count, at + 1);
    return 0;
}

// "1c+2c": the compute instances of one GPU instance.
static int add_compute_instances(struct layout *l, struct sim_instance x, struct sv parts,
                                 struct error *err)
{
    struct sv part;
    uint32_t slices = 0;
    while (sv_next(&parts, '+', &part)) {
        uint64_t c;
        if (!sv_ends_with(part, SV("c")) ||
            num_parse_u64(sv_sub(part, 0, part.len - 1), 1, 8, &c) != 0)
            return error_set(err, -EINVAL, "expected compute instances such as 1c+2c, found '%.*s'",
                             SV_FMT(part));
        x.ci_slices = (uint32_t)c;
        int rc = add_compute_instance(l, x, err);
        if (rc < 0)
            return rc;
        x.ci++;
        slices += (uint32_t)c;
    }
    if (slices > x.gi_slices)
        return error_set(err, -EINVAL, "more compute slices than the GPU instance's %u",
                         x.gi_slices);
    return 0;
}

static int add_gpu_instance(struct layout *l, struct sv text, struct error *err)
{
    const struct sim_gpu *g = &l->n->gpus[l->gpu];
    struct sv parts = text, name;
    (void)sv_next(&parts, ':', &name);
    struct profile p = {0};
    int rc = parse_profile(name, &p, err);
    if (rc < 0)
        return rc;
    if (l->placement + p.slices > 8 || p.slices > g->total_slices)
        return error_set(err, -EINVAL, "'%.*s' doesn't fit the GPU's %u slices", SV_FMT(text),
                         g->total_slices);
    struct sim_instance x = {
        .gpu = l->gpu,
        .gi = first_gi(p.slices) + l->used[first_gi(p.slices)]++,
        .gi_slices = p.slices,
        .ci_slices = p.slices,
        .profile_id = p.slices == 7 ? 4 : p.slices - 1,
        .placement = l->placement,
        .multiprocessors = g->multiprocessors / (g->total_slices ? g->total_slices : 1) * p.slices,
        .engines = p.slices,
        .memory_bytes = p.gib << 30,
        .from_ns = l->at,
        .until_ns = SIM_FOREVER,
    };
    l->placement += p.slices;
    rc = sim_add_string(l->n, p.name, &x.profile, err);
    if (rc < 0)
        return rc;
    if (name.len == text.len)
        return add_compute_instance(l, x, err);
    return add_compute_instances(l, x, parts, err);
}

// Ends what is there at a time: instances, and the processes in them.
static void end_instances(struct sim_node *n, uint32_t gpu, int64_t at)
{
    for (uint32_t i = 0; i < n->instance_count; i++) {
        if (n->instances[i].gpu == gpu && atomic_load(&n->instances[i].until_ns) > at)
            atomic_store(&n->instances[i].until_ns, at);
    }
    for (uint32_t i = 0; i < n->process_count; i++) {
        struct sim_process *p = &n->processes[i];
        if (p->gpu == gpu && p->instance != SIM_NONE && atomic_load(&p->end_ns) > at)
            atomic_store(&p->end_ns, at);
    }
}

int sim_add_layout(struct sim_node *n, uint32_t gpu, struct sv layout, int64_t at,
                   struct error *err)
{
    struct layout l = {.n = n, .gpu = gpu, .at = at};
    bool off = sv_equals(layout, SV("off"));
    if (!n->gpus[gpu].mig_capable)
        return error_set(err, -EINVAL, "GPU %u has no MIG", gpu);
    end_instances(n, gpu, at);
    struct sim_segment mode = {.from_ns = at, .base = off ? 0 : 1000000};
    int rc = sim_add_segment(n, gpu, SIM_MIG_MODE, &mode, err);
    if (rc == 0)
        rc = sim_add_segment(n, gpu, SIM_MIG_PENDING, &mode, err);
    struct sv part;
    while (rc == 0 && !off && sv_next(&layout, ',', &part))
        rc = add_gpu_instance(&l, part, err);
    return rc;
}
