// SPDX-License-Identifier: Apache-2.0
// What only DCGM tells of a scenario: its library and engine, switches, links, CPUs, values.
#include "scenario_internal.h"

#include <errno.h>
#include <stdio.h>

#include "base/num.h"

static int add_value(struct compile *c, uint32_t entity, uint32_t key, const struct yaml_node *y)
{
    struct sim_dcgm_value v = {.from_ns = SIM_ALWAYS, .entity = entity, .key = key};
    uint64_t field;
    if (num_parse_u64(y->key, 1, UINT16_MAX, &field) != 0)
        return compile_refuse(c, y, "expected a field's number");
    int rc = compile_expect(c, y, YAML_SCALAR);
    if (rc < 0)
        return rc;
    v.field = (uint32_t)field;
    rc = sim_parse_dcgm_value(c->n, y->scalar, &v, c->err);
    if (rc == 0)
        rc = sim_add_dcgm_value(c->n, &v, c->err);
    return compile_at(c, y, rc);
}

static int add_values(struct compile *c, uint32_t entity, uint32_t key, const struct yaml_node *y)
{
    int rc = y ? compile_expect(c, y, YAML_MAPPING) : 0;
    for (const struct yaml_node *v = y ? y->first : NULL; rc == 0 && v; v = v->next)
        rc = add_value(c, entity, key, v);
    return rc;
}

// A list's index: `key` of a mapping.
static int read_index(struct compile *c, const struct yaml_node *y, const char *key, uint32_t max,
                      uint32_t *out)
{
    const struct yaml_node *found = yaml_find(y, key);
    int64_t value;
    if (!found)
        return compile_refuse(c, y, key);
    int rc = yaml_read_i64(found, c->file, 0, max, &value, c->err);
    if (rc == 0)
        *out = (uint32_t)value;
    return rc;
}

static int add_link(struct compile *c, uint32_t owner, uint32_t id, const struct yaml_node *y)
{
    static const char *const known[] = {"index", "state", "values", NULL};
    struct sim_dcgm *d = &c->n->dcgm;
    const struct yaml_node *state = yaml_find(y, "state");
    struct sim_link l = {.owner = owner, .id = id};
    uint32_t up = 3;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0)
        rc = read_index(c, y, "index", owner == SIM_ENTITY_GPU ? 35 : 255, &l.index);
    if (rc == 0 && state)
        rc = compile_at(c, state, sim_parse_link_state(state->scalar, &up, c->err));
    if (rc == 0 && d->link_count == SIM_MAX_LINKS)
        rc = compile_refuse(c, y, "too many links");
    if (rc < 0)
        return rc;
    atomic_store(&l.state, up);
    d->links[d->link_count++] = l;
    return add_values(c, SIM_ENTITY_LINK, sim_link_key(owner, id, l.index), yaml_find(y, "values"));
}

static int add_links(struct compile *c, uint32_t owner, uint32_t id, const struct yaml_node *list)
{
    int rc = list ? compile_expect(c, list, YAML_SEQUENCE) : 0;
    for (const struct yaml_node *y = list ? list->first : NULL; rc == 0 && y; y = y->next)
        rc = add_link(c, owner, id, y);
    return rc;
}

// --- A GPU's part ---

static int add_instance(struct compile *c, uint32_t gpu, const struct yaml_node *y)
{
    static const char *const known[] = {"gi", "ci", "values", NULL};
    uint32_t gi, ci = 0;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0)
        rc = read_index(c, y, "gi", 255, &gi);
    if (rc == 0 && yaml_find(y, "ci"))
        rc = read_index(c, y, "ci", 255, &ci);
    return rc < 0 ? rc
                  : add_values(c, yaml_find(y, "ci") ? SIM_ENTITY_GPU_CI : SIM_ENTITY_GPU_I,
                               sim_instance_key(gpu, gi, ci), yaml_find(y, "values"));
}

static int add_prof_group(struct compile *c, struct sim_gpu *g, const struct yaml_node *y)
{
    uint32_t major, minor;
    const struct yaml_node *fields = yaml_find(y, "fields");
    if (!fields || g->prof_group_count == SIM_MAX_PROF_GROUPS)
        return compile_refuse(c, y, "expected {major, minor, fields}, at most ten");
    struct sim_prof_group *p = &g->prof_groups[g->prof_group_count++];
    int rc = read_index(c, y, "major", UINT16_MAX, &major);
    if (rc == 0)
        rc = read_index(c, y, "minor", UINT16_MAX, &minor);
    if (rc == 0) {
        p->major = (uint16_t)major;
        p->minor = (uint16_t)minor;
    }
    for (const struct yaml_node *f = fields->first; rc == 0 && f; f = f->next) {
        int64_t id;
        rc = p->count == 64 ? compile_refuse(c, f, "at most 64 fields")
                            : yaml_read_i64(f, c->file, 1, UINT16_MAX, &id, c->err);
        if (rc == 0)
            p->fields[p->count++] = (uint16_t)id;
    }
    return rc;
}

int compile_dcgm_gpu(struct compile *c, uint32_t gpu, const struct yaml_node *y)
{
    static const char *const known[] = {"values", "links", "instances", "groups", NULL};
    struct sim_gpu *g = &c->n->gpus[gpu];
    const struct yaml_node *instances = yaml_find(y, "instances"), *groups = yaml_find(y, "groups");
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0)
        rc = add_values(c, SIM_ENTITY_GPU, gpu, yaml_find(y, "values"));
    if (rc == 0)
        rc = add_links(c, SIM_ENTITY_GPU, gpu, yaml_find(y, "links"));
    for (const struct yaml_node *i = instances ? instances->first : NULL; rc == 0 && i; i = i->next)
        rc = add_instance(c, gpu, i);
    if (groups)
        g->prof_group_count = 0;
    for (const struct yaml_node *i = groups ? groups->first : NULL; rc == 0 && i; i = i->next)
        rc = add_prof_group(c, g, i);
    return rc;
}

// --- The node's part ---

static int add_switch(struct compile *c, const struct yaml_node *y)
{
    static const char *const known[] = {"id", "values", "links", NULL};
    struct sim_dcgm *d = &c->n->dcgm;
    uint32_t id;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0)
        rc = read_index(c, y, "id", 255, &id);
    if (rc == 0 && d->switch_count == SIM_MAX_SWITCHES)
        rc = compile_refuse(c, y, "too many switches");
    if (rc < 0)
        return rc;
    d->switches[d->switch_count++] = id;
    rc = add_values(c, SIM_ENTITY_SWITCH, id, yaml_find(y, "values"));
    return rc == 0 ? add_links(c, SIM_ENTITY_SWITCH, id, yaml_find(y, "links")) : rc;
}

// "0-3" or "7": of one CPU.
static int read_cores(struct compile *c, struct sim_cpu *cpu, const struct yaml_node *y)
{
    struct sv last = y->scalar, first;
    uint64_t from, to;
    const uint64_t max = SIM_CORE_WORDS * 64 - 1;
    (void)sv_next(&last, '-', &first);
    if (num_parse_u64(first, 0, max, &from) != 0)
        return compile_refuse(c, y, "expected cores such as 0-3");
    to = from;
    if (last.len > 0 && num_parse_u64(last, from, max, &to) != 0)
        return compile_refuse(c, y, "expected cores such as 0-3");
    for (uint64_t i = from; i <= to; i++)
        cpu->cores[i / 64] |= UINT64_C(1) << (i % 64);
    return 0;
}

static int add_cpu(struct compile *c, const struct yaml_node *y)
{
    static const char *const known[] = {"id", "cores", "serial", "values", "core_values", NULL};
    struct sim_dcgm *d = &c->n->dcgm;
    const struct yaml_node *cores = yaml_find(y, "cores"), *serial = yaml_find(y, "serial");
    struct sim_cpu *cpu = &d->cpus[d->cpu_count];
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0 && (d->cpu_count == SIM_MAX_CPUS || !cores))
        rc = compile_refuse(c, y, "expected {id, cores}, at most eight");
    if (rc == 0)
        rc = read_index(c, y, "id", 255, &cpu->id);
    if (rc == 0)
        rc = read_cores(c, cpu, cores);
    if (rc == 0 && serial)
        rc = compile_text(c, serial, &cpu->serial);
    if (rc == 0)
        rc = add_values(c, SIM_ENTITY_CPU, cpu->id, yaml_find(y, "values"));
    for (uint32_t i = 0; rc == 0 && i < SIM_CORE_WORDS * 64; i++) {
        if (cpu->cores[i / 64] >> (i % 64) & 1)
            rc = add_values(c, SIM_ENTITY_CORE, i, yaml_find(y, "core_values"));
    }
    if (rc == 0)
        d->cpu_count++;
    return rc;
}

static int read_order(struct compile *c, const struct yaml_node *y)
{
    struct sim_dcgm *d = &c->n->dcgm;
    uint32_t seen = 0, at = 0;
    for (uint32_t i = 0; i < SIM_MAX_GPUS; i++)
        d->order[i] = i;
    for (const struct yaml_node *k = y ? y->first : NULL; k; k = k->next) {
        int64_t gpu;
        int rc = yaml_read_i64(k, c->file, 0, (int64_t)c->n->gpu_count - 1, &gpu, c->err);
        if (rc < 0)
            return rc;
        if (at == c->n->gpu_count || seen >> gpu & 1)
            return compile_refuse(c, k, "expected each GPU once");
        seen |= 1u << gpu;
        d->order[at++] = (uint32_t)gpu;
    }
    return y && at != c->n->gpu_count ? compile_refuse(c, y, "expected each GPU once") : 0;
}

// Links that a scenario doesn't describe are up, and GPUs with links reach each other.
static int default_links(struct compile *c)
{
    struct sim_node *n = c->n;
    for (uint32_t gpu = 0; gpu < n->gpu_count; gpu++) {
        bool described = false;
        for (uint32_t i = 0; i < n->dcgm.link_count; i++)
            described |= n->dcgm.links[i].owner == SIM_ENTITY_GPU && n->dcgm.links[i].id == gpu;
        for (uint32_t i = 0; !described && i < n->gpus[gpu].links; i++) {
            if (n->dcgm.link_count == SIM_MAX_LINKS)
                return error_set(c->err, -ENOSPC, "%s: too many links", c->file);
            struct sim_link *l = &n->dcgm.links[n->dcgm.link_count++];
            *l = (struct sim_link){.owner = SIM_ENTITY_GPU, .id = gpu, .index = i};
            atomic_store(&l->state, 3);
        }
        for (uint32_t peer = 0; peer < n->gpu_count; peer++)
            atomic_store(&n->dcgm.peers[gpu][peer],
                         gpu == peer                                         ? 6
                         : n->gpus[gpu].links > 0 && n->gpus[peer].links > 0 ? 0
                                                                             : 5);
    }
    return 0;
}

static int node_number(struct compile *c, const struct yaml_node *y, enum sim_field field)
{
    int64_t value;
    if (!y)
        return 0;
    int rc = yaml_read_i64(y, c->file, -999, 3600000, &value, c->err);
    struct sim_segment s = {.base = value * 1000000};
    atomic_store(&c->n->gpus[SIM_NODE].fields[field], SIM_NONE);
    return rc == 0 ? sim_add_segment(c->n, SIM_NODE, field, &s, c->err) : rc;
}

static int read_words(struct compile *c, const struct yaml_node *y)
{
    struct sim_dcgm *d = &c->n->dcgm;
    const struct yaml_node *library = yaml_find(y, "library"), *engine = yaml_find(y, "engine"),
                           *owner = yaml_find(y, "owner");
    int rc = library ? compile_u32(c, library, &d->library) : 0;
    if (rc == 0 && (d->library != 3 && d->library != 4))
        return compile_refuse(c, y, "library: 4 or 3");
    if (rc == 0 && engine && !sv_equals(engine->scalar, SV("none")) &&
        !sv_equals(engine->scalar, SV("running")))
        return compile_refuse(c, engine, "expected none or running");
    d->engine = engine && sv_equals(engine->scalar, SV("running"));
    if (rc == 0)
        rc = node_number(c, yaml_find(y, "embedded"), SIM_DCGM_EMBEDDED);
    if (rc == 0)
        rc = node_number(c, yaml_find(y, "slow_connect"), SIM_DCGM_SLOW_CONNECT);
    if (rc < 0 || !owner)
        return rc < 0 ? rc : node_number(c, yaml_find(y, "profiling"), SIM_DCGM_PROFILING);
    if (!sv_equals(owner->scalar, SV("in_use")))
        return compile_refuse(c, owner, "expected in_use");
    struct sim_segment in_use = {.base = INT64_C(-34) * 1000000};
    atomic_store(&c->n->gpus[SIM_NODE].fields[SIM_DCGM_PROFILING], SIM_NONE);
    return sim_add_segment(c->n, SIM_NODE, SIM_DCGM_PROFILING, &in_use, c->err);
}

int compile_dcgm(struct compile *c, const struct yaml_node *y)
{
    static const char *const known[] = {
        "library",      "engine",    "embedded", "profiling", "owner",
        "slow_connect", "gpu_order", "switches", "cpus",      NULL};
    int rc = read_order(c, y ? yaml_find(y, "gpu_order") : NULL);
    if (rc == 0)
        rc = default_links(c);
    if (rc < 0 || !y)
        return rc;
    const struct yaml_node *switches = yaml_find(y, "switches"), *cpus = yaml_find(y, "cpus");
    c->n->dcgm.library = 4;
    rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0)
        rc = read_words(c, y);
    for (const struct yaml_node *i = switches ? switches->first : NULL; rc == 0 && i; i = i->next)
        rc = add_switch(c, i);
    for (const struct yaml_node *i = cpus ? cpus->first : NULL; rc == 0 && i; i = i->next)
        rc = add_cpu(c, i);
    return rc;
}
