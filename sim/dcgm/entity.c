// SPDX-License-Identifier: Apache-2.0
// DCGM's entities and their ids: GPUs in the scenario's order, MIG instances counted per GPU from
// gpuId * 8 on, links packed as dcgm_link_t.
#include "double.h"

#include <string.h>

#define INSTANCES_PER_GPU 8u

uint32_t gpu_id_of(const struct sim_node *n, uint32_t gpu)
{
    uint32_t id = 0;
    while (id < n->gpu_count && n->dcgm.order[id] != gpu)
        id++;
    return id;
}

unsigned int link_id(const struct sim_node *n, const struct sim_link *l)
{
    uint32_t owner = l->owner == SIM_ENTITY_GPU ? gpu_id_of(n, l->id) : l->id;
    // type, index, owner: 8, 16 and 8 bits since DCGM 4, before 8, 8 and 16.
    return DCGM_MAJOR == 4 ? l->owner | l->index << 8 | owner << 24
                           : l->owner | (l->index & 0xff) << 8 | owner << 16;
}

// Whether an instance is the first of its GPU instance.
static bool is_first(const struct sim_node *n, uint32_t at, int64_t t)
{
    for (uint32_t i = 0; i < at; i++) {
        if (n->instances[i].gpu == n->instances[at].gpu &&
            n->instances[i].gi == n->instances[at].gi && sim_instance_alive(n, i, t))
            return false;
    }
    return true;
}

// The place-th GPU instance, or compute instance, of a GPU.
static uint32_t instance_at(const struct sim_node *n, int entity, uint32_t gpu, uint32_t place,
                            int64_t t)
{
    uint32_t count = atomic_load(&n->instance_count);
    for (uint32_t i = 0; i < count; i++) {
        if (n->instances[i].gpu != gpu || !sim_instance_alive(n, i, t) ||
            (entity == SIM_ENTITY_GPU_I && !is_first(n, i, t)))
            continue;
        if (place-- == 0)
            return i;
    }
    return SIM_NONE;
}

static int find_instance(const struct sim_node *n, unsigned int id, int64_t t, struct target *out)
{
    uint32_t gpu_id = id / INSTANCES_PER_GPU;
    if (gpu_id >= n->gpu_count)
        return -1;
    out->gpu = n->dcgm.order[gpu_id];
    out->instance = instance_at(n, out->entity, out->gpu, id % INSTANCES_PER_GPU, t);
    if (out->instance == SIM_NONE)
        return -1;
    const struct sim_instance *x = &n->instances[out->instance];
    out->gi = x->gi;
    out->ci = x->ci;
    out->key = sim_instance_key(out->gpu, x->gi, out->entity == SIM_ENTITY_GPU_CI ? x->ci : 0);
    return 0;
}

static int find_link(const struct sim_node *n, unsigned int id, struct target *out)
{
    for (uint32_t i = 0; i < n->dcgm.link_count; i++) {
        const struct sim_link *l = &n->dcgm.links[i];
        if (link_id(n, l) != id)
            continue;
        out->key = sim_link_key(l->owner, l->id, l->index);
        out->gpu = l->owner == SIM_ENTITY_GPU ? l->id : SIM_NONE;
        return 0;
    }
    return -1;
}

static int find_cpu(const struct sim_node *n, unsigned int id, const struct target *out)
{
    for (uint32_t i = 0; i < n->dcgm.cpu_count; i++) {
        const struct sim_cpu *cpu = &n->dcgm.cpus[i];
        if (out->entity == SIM_ENTITY_CPU
                ? cpu->id == id
                : id < SIM_CORE_WORDS * 64 && (cpu->cores[id / 64] >> (id % 64) & 1))
            return 0;
    }
    return -1;
}

int target_find(const struct sim_node *n, int entity, unsigned int id, int64_t t,
                struct target *out)
{
    *out = (struct target){.entity = entity, .gpu = SIM_NONE, .instance = SIM_NONE, .key = id};
    switch (entity) {
    case FE_NONE:
        return 0;
    case SIM_ENTITY_GPU:
        if (id >= n->gpu_count)
            return -1;
        out->gpu = out->key = n->dcgm.order[id];
        return 0;
    case SIM_ENTITY_GPU_I:
    case SIM_ENTITY_GPU_CI:
        return find_instance(n, id, t, out);
    case SIM_ENTITY_LINK:
        return find_link(n, id, out);
    case SIM_ENTITY_CPU:
    case SIM_ENTITY_CORE:
        return find_cpu(n, id, out);
    case SIM_ENTITY_SWITCH:
        for (uint32_t i = 0; i < n->dcgm.switch_count; i++) {
            if (n->dcgm.switches[i] == id)
                return 0;
        }
        return -1;
    default:
        return -1;
    }
}

struct list {
    unsigned int *ids;
    uint32_t max, count;
};

static void put(struct list *l, unsigned int id)
{
    if (l->count < l->max)
        l->ids[l->count] = id;
    l->count++;
}

static void put_instances(const struct sim_node *n, int entity, int64_t t, struct list *l)
{
    for (uint32_t id = 0; id < n->gpu_count * INSTANCES_PER_GPU; id++) {
        struct target at;
        if (target_find(n, entity, id, t, &at) == 0)
            put(l, id);
    }
}

static void put_cores(const struct sim_node *n, struct list *l)
{
    for (uint32_t id = 0; id < SIM_CORE_WORDS * 64; id++) {
        struct target at;
        if (target_find(n, SIM_ENTITY_CORE, id, 0, &at) == 0)
            put(l, id);
    }
}

uint32_t entity_list(const struct sim_node *n, int entity, int64_t t, unsigned int *out,
                     uint32_t max)
{
    struct list l = {out, max, 0};
    switch (entity) {
    case SIM_ENTITY_GPU:
        for (uint32_t i = 0; i < n->gpu_count; i++)
            put(&l, i);
        break;
    case SIM_ENTITY_GPU_I:
    case SIM_ENTITY_GPU_CI:
        put_instances(n, entity, t, &l);
        break;
    case SIM_ENTITY_SWITCH:
        for (uint32_t i = 0; i < n->dcgm.switch_count; i++)
            put(&l, n->dcgm.switches[i]);
        break;
    case SIM_ENTITY_LINK:
        for (uint32_t i = 0; i < n->dcgm.link_count; i++) {
            if (atomic_load(&n->dcgm.links[i].state) == 3)
                put(&l, link_id(n, &n->dcgm.links[i]));
        }
        break;
    case SIM_ENTITY_CPU:
        for (uint32_t i = 0; i < n->dcgm.cpu_count; i++)
            put(&l, n->dcgm.cpus[i].id);
        break;
    case SIM_ENTITY_CORE:
        put_cores(n, &l);
        break;
    default:
        break;
    }
    return l.count;
}
