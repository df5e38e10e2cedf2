// SPDX-License-Identifier: Apache-2.0
// MIG layouts: the instances that a GPU is cut into, with the ids, places and sizes that drivers
// give them.
#include "node_edit.h"

#include <errno.h>
#include <stdio.h>

#include "base/num.h"

// What is known of a profile from its name: "3g.40gb" -> 3 slices, 40 GiB; the rest is the GPU's.
struct profile {
    struct sv name;
    uint32_t slices;
    int64_t gib;
    uint32_t id;     // as NVML numbers profiles
    uint32_t places; // memory slices it takes
    uint32_t step;   // between the places where it may begin
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
    *out = (struct profile){.name = text, .slices = (uint32_t)slices, .gib = (int64_t)gib};
    return 0;
}

// GPUs of seven slices have eight of memory; one of four (A30) has four, and numbers of its own.
static void place_profile(const struct sim_node *n, uint32_t gpu, struct profile *p)
{
    int64_t total = sim_truth_or_zero(n, gpu, SIM_FB_TOTAL, 0) >> 30;
    bool small = n->gpus[gpu].total_slices == 4;
    bool wide =
        p->slices == 1 && p->gib * (small ? 4 : 8) > total + total / 2; // 1g with twice the memory
    p->places = p->slices;
    p->step = p->slices >= 3 ? 4 : p->slices;
    switch (p->slices) {
    case 1:
        p->id = small ? 14 : wide ? 15 : sv_ends_with(p->name, SV("+me")) ? 20 : 19;
        p->places = p->step = wide ? 2 : 1;
        break;
    case 2:
        p->id = small ? 5 : 14;
        break;
    case 3:
        p->id = 9;
        p->places = 4;
        break;
    case 4:
        p->id = small ? 0 : 5;
        break;
    default:
        p->id = 0;
        p->places = p->step = 8;
        break;
    }
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
    uint32_t slot, slices;
    uint32_t places;  // bit per memory slice that is taken
    uint32_t used[9]; // GPU instances so far, by the base of their ids
};

// Words behind a profile: "3g.40gb@4" begins at memory slice 4, "3g.40gb#9" has that profile id.
static int take_number(struct sv *name, char mark, uint32_t max, uint32_t *out, struct error *err)
{
    size_t at = sv_find_char(*name, mark);
    uint64_t value;
    if (at == (size_t)-1)
        return 0;
    if (num_parse_u64(sv_sub(*name, at + 1, name->len), 0, max, &value) != 0)
        return error_set(err, -EINVAL, "expected PROFILE[@PLACE][#ID], found '%.*s'",
                         SV_FMT(*name));
    *out = (uint32_t)value;
    name->len = at;
    return 0;
}

// The first place where it may begin that is free. Layouts that no driver would make are taken,
// too: an instance that fits nowhere begins behind the others.
static uint32_t find_place(const struct layout *l, const struct profile *p)
{
    uint32_t mask = (1u << p->places) - 1;
    for (uint32_t at = 0; at + p->places <= 8; at += p->step) {
        if ((l->places & mask << at) == 0 && (p->places > 1 || at < 7))
            return at;
    }
    return l->slices;
}

static int add_compute_instance(struct layout *l, struct sim_instance x, struct error *err)
{
    struct sim_node *n = l->n;
    uint32_t at = atomic_load(&n->instance_count);
    if (at == SIM_MAX_INSTANCES)
        return error_set(err, -ENOSPC, "the node's table of MIG instances is full (%u)",
                         SIM_MAX_INSTANCES);
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
    bool whole = name.len == text.len; // one compute instance as large as the GPU instance
    uint32_t id = SIM_NONE, place = SIM_NONE;
    int rc = take_number(&name, '#', 255, &id, err);
    if (rc == 0)
        rc = take_number(&name, '@', 7, &place, err);
    if (rc == 0)
        rc = parse_profile(name, &p, err);
    if (rc < 0)
        return rc;
    place_profile(l->n, l->gpu, &p);
    if (l->slices + p.slices > 8 || p.slices > g->total_slices)
        return error_set(err, -EINVAL, "'%.*s' doesn't fit the GPU's %u slices", SV_FMT(text),
                         g->total_slices);
    struct sim_instance x = {
        .gpu = l->gpu,
        .gi = first_gi(p.slices) + l->used[first_gi(p.slices)]++,
        .gi_slices = p.slices,
        .ci_slices = p.slices,
        .profile_id = id == SIM_NONE ? p.id : id,
        .placement = place == SIM_NONE ? find_place(l, &p) : place,
        .placement_size = p.places,
        .multiprocessors = g->multiprocessors / (g->total_slices ? g->total_slices : 1) * p.slices,
        .engines = p.slices,
        .memory_bytes = p.gib << 30,
        .from_ns = l->at,
        .until_ns = SIM_FOREVER,
    };
    l->slices += p.slices;
    l->places |= ((1u << p.places) - 1) << x.placement;
    rc = sim_add_string(l->n, p.name, &x.profile, err);
    if (rc < 0)
        return rc;
    if (whole)
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
