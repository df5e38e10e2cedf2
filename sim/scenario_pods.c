// SPDX-License-Identifier: Apache-2.0
// Pods, their devices and processes.
#include "scenario_internal.h"

#include <errno.h>

// What was always there is looked up in what the scenario begins with.
static int64_t begin(int64_t start)
{
    return start < 0 ? 0 : start;
}

static int compile_device_id(struct compile *c, const struct yaml_node *y, uint32_t resource,
                             uint32_t numa_mask, int64_t at)
{
    struct sim_node *n = c->n;
    uint32_t slot = n->device_count;
    if (slot == SIM_MAX_DEVICES)
        return compile_refuse(c, y, "too many devices");
    n->devices[slot] = (struct sim_device){.resource = resource, .numa_mask = numa_mask};
    n->device_count = slot + 1;
    return compile_at(c, y, sim_resolve_device(n, y->scalar, at, &n->devices[slot].id, c->err));
}

static int compile_device(struct compile *c, const struct yaml_node *y, int64_t at, uint32_t *count)
{
    static const char *const known[] = {"resource", "ids", "numa", NULL};
    const struct yaml_node *resource = yaml_find(y, "resource"), *ids = yaml_find(y, "ids");
    const struct yaml_node *numa = yaml_find(y, "numa");
    uint32_t name, mask = 1;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0 && (!ids || ids->kind != YAML_SEQUENCE))
        rc = compile_refuse(c, y, "expected ids: [...]");
    if (rc == 0)
        rc = resource ? compile_text(c, resource, &name)
                      : sim_add_string(c->n, SV("nvidia.com/gpu"), &name, c->err);
    if (rc == 0 && numa)
        mask = 0;
    for (const struct yaml_node *x = numa ? numa->first : NULL; rc == 0 && x; x = x->next) {
        int64_t bit;
        rc = yaml_read_i64(x, c->file, 0, 31, &bit, c->err);
        mask |= rc == 0 ? 1u << bit : 0;
    }
    for (const struct yaml_node *id = ids ? ids->first : NULL; rc == 0 && id;
         id = id->next, (*count)++)
        rc = compile_device_id(c, id, name, mask, at);
    return rc;
}

static int process_type(struct compile *c, const struct yaml_node *y, uint32_t *out)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {{"compute", SIM_COMPUTE},
                 {"graphics", SIM_GRAPHICS},
                 {"mps", SIM_MPS},
                 {"compute+graphics", SIM_COMPUTE | SIM_GRAPHICS}};
    *out = SIM_COMPUTE;
    if (!y)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        if (sv_equals(y->scalar, sv_from(types[i].name))) {
            *out = types[i].type;
            return 0;
        }
    }
    return compile_refuse(c, y, "expected compute, graphics, compute+graphics or mps");
}

static int process_memory(struct compile *c, const struct yaml_node *y, _Atomic int64_t *out)
{
    struct sim_segment s = {0};
    if (y && sv_equals(y->scalar, SV("unknown"))) {
        atomic_store(out, -1);
        return 0;
    }
    int rc = y ? compile_at(c, y, sim_parse_signal(y->scalar, SIM_GAUGE, &s, c->err)) : 0;
    atomic_store(out, s.base / 1000000);
    return rc;
}

static int compile_process(struct compile *c, const struct yaml_node *y, uint32_t pod,
                           struct compile_span span)
{
    static const char *const known[] = {"device", "pid",   "name", "memory", "type",
                                        "load",   "start", "end",  NULL};
    struct sim_process p = {.pod = pod, .load = SIM_NONE};
    const struct yaml_node *device = yaml_find(y, "device"), *pid = yaml_find(y, "pid");
    const struct yaml_node *name = yaml_find(y, "name"), *load = yaml_find(y, "load");
    int64_t end;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0 && (!device || !pid))
        rc = compile_refuse(c, y, "a process has a device and a pid");
    if (rc == 0)
        rc = compile_u32(c, pid, &p.pid);
    if (rc == 0)
        rc = compile_time(c, yaml_find(y, "start"), span.start, &p.start_ns);
    if (rc == 0)
        rc = compile_time(c, yaml_find(y, "end"), span.end, &end);
    if (rc == 0)
        rc = compile_at(c, device,
                        sim_find_instance(c->n, device->scalar, begin(p.start_ns), &p.gpu,
                                          &p.instance, c->err));
    if (rc == 0)
        rc = process_type(c, yaml_find(y, "type"), &p.type);
    if (rc == 0)
        rc = process_memory(c, yaml_find(y, "memory"), &p.memory_bytes);
    if (rc == 0)
        rc = name ? compile_text(c, name, &p.name)
                  : sim_add_string(c->n, SV("python3"), &p.name, c->err);
    if (rc == 0 && load)
        rc = compile_load(c, &p.load, load);
    if (rc < 0)
        return rc;
    atomic_store(&p.end_ns, end);
    uint32_t slot;
    return compile_at(c, y, sim_add_process(c->n, &p, &slot, c->err));
}

int compile_processes(struct compile *c, const struct yaml_node *list, uint32_t pod,
                      struct compile_span span)
{
    int rc = list ? compile_expect(c, list, YAML_SEQUENCE) : 0;
    for (const struct yaml_node *y = list ? list->first : NULL; rc == 0 && y; y = y->next)
        rc = compile_process(c, y, pod, span);
    return rc;
}

static int compile_container(struct compile *c, const struct yaml_node *y, uint32_t slot,
                             uint32_t pod, struct compile_span span)
{
    static const char *const known[] = {"name", "devices", "processes", NULL};
    const struct yaml_node *name = yaml_find(y, "name"), *devices = yaml_find(y, "devices");
    struct sim_container *out = &c->n->containers[slot];
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0)
        rc = name ? compile_text(c, name, &out->name)
                  : compile_refuse(c, y, "a container has a name");
    out->first_device = c->n->device_count;
    for (const struct yaml_node *d = devices ? devices->first : NULL; rc == 0 && d; d = d->next)
        rc = compile_device(c, d, begin(span.start), &out->devices);
    if (rc == 0)
        rc = compile_processes(c, yaml_find(y, "processes"), pod, span);
    return rc;
}

int compile_pod(struct compile *c, const struct yaml_node *y)
{
    static const char *const known[] = {"name", "namespace",  "uid", "start",
                                        "end",  "containers", NULL};
    struct sim_node *n = c->n;
    const struct yaml_node *name = yaml_find(y, "name"), *ns = yaml_find(y, "namespace"),
                           *uid = yaml_find(y, "uid");
    const struct yaml_node *containers = yaml_find(y, "containers");
    uint32_t slot = n->pod_count, count = containers ? (uint32_t)containers->count : 0;
    struct compile_span span;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0 && (slot == SIM_MAX_PODS || n->container_count + count > SIM_MAX_CONTAINERS))
        rc = compile_refuse(c, y, "too many pods or containers");
    if (rc < 0)
        return rc;
    struct sim_pod *p = &n->pods[slot];
    *p = (struct sim_pod){.first_container = n->container_count, .containers = count};
    n->container_count += count;
    rc = name ? compile_text(c, name, &p->name) : compile_refuse(c, y, "a pod has a name");
    if (rc == 0)
        rc = ns ? compile_text(c, ns, &p->namespace_name)
                : sim_add_string(n, SV("default"), &p->namespace_name, c->err);
    if (rc == 0 && uid)
        rc = compile_text(c, uid, &p->uid);
    if (rc == 0)
        rc = compile_time(c, yaml_find(y, "start"), SIM_ALWAYS, &span.start);
    if (rc == 0)
        rc = compile_time(c, yaml_find(y, "end"), SIM_FOREVER, &span.end);
    uint32_t at = p->first_container;
    for (const struct yaml_node *k = containers ? containers->first : NULL; rc == 0 && k;
         k = k->next)
        rc = compile_container(c, k, at++, slot, span);
    p->start_ns = rc == 0 ? span.start : 0;
    atomic_store(&p->end_ns, rc == 0 ? span.end : 0);
    n->pod_count = slot + 1;
    return rc;
}
