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

static int compile_process(struct compile *c, const struct yaml_node *y, struct compile_place place)
{
    static const char *const known[] = {"device", "pid",   "name", "memory", "type",
                                        "load",   "start", "end",  NULL};
    struct sim_process p = {.pod = place.pod, .container = place.container, .load = SIM_NONE};
    struct compile_span span = place.span;
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

int compile_processes(struct compile *c, const struct yaml_node *list, struct compile_place place)
{
    int rc = list ? compile_expect(c, list, YAML_SEQUENCE) : 0;
    for (const struct yaml_node *y = list ? list->first : NULL; rc == 0 && y; y = y->next)
        rc = compile_process(c, y, place);
    return rc;
}

static int container_id(struct compile *c, const struct yaml_node *y, uint32_t pod, uint32_t slot)
{
    struct sim_container *out = &c->n->containers[slot];
    if (!y)
        return sim_default_container_id(c->n, pod, slot, &out->id, c->err);
    if (y->scalar.len != 64)
        return compile_refuse(c, y, "expected 64 hex digits");
    return compile_text(c, y, &out->id);
}

static int compile_container(struct compile *c, const struct yaml_node *y,
                             enum sim_container_kind kind, struct compile_place place)
{
    static const char *const known[] = {"name",      "id",          "devices", "claims",
                                        "processes", "restartable", NULL};
    static const char *const kept[] = {"claims", NULL};
    const struct yaml_node *name = yaml_find(y, "name"), *devices = yaml_find(y, "devices");
    const struct yaml_node *restartable = yaml_find(y, "restartable");
    struct sim_container *out = &c->n->containers[place.container];
    bool restarts = false;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0)
        rc = name ? compile_text(c, name, &out->name)
                  : compile_refuse(c, y, "a container has a name");
    if (rc == 0 && restartable)
        rc = yaml_read_bool(restartable, c->file, &restarts, c->err);
    if (rc == 0 && restarts && kind == SIM_CONTAINER_APP)
        rc = compile_refuse(c, restartable, "only init containers are restartable");
    out->init = restarts ? SIM_CONTAINER_SIDECAR : kind;
    if (rc == 0)
        rc = container_id(c, yaml_find(y, "id"), place.pod, place.container);
    if (rc == 0)
        rc = compile_extra(c, y, kept, &out->extra);
    out->first_device = c->n->device_count;
    for (const struct yaml_node *d = devices ? devices->first : NULL; rc == 0 && d; d = d->next)
        rc = compile_device(c, d, begin(place.span.start), &out->devices);
    if (rc == 0)
        rc = compile_processes(c, yaml_find(y, "processes"), place);
    return rc;
}

static int compile_containers(struct compile *c, const struct yaml_node *list,
                              enum sim_container_kind kind, struct compile_place *place)
{
    int rc = list ? compile_expect(c, list, YAML_SEQUENCE) : 0;
    for (const struct yaml_node *y = list ? list->first : NULL; rc == 0 && y;
         y = y->next, place->container++)
        rc = compile_container(c, y, kind, *place);
    return rc;
}

static int compile_identity(struct compile *c, const struct yaml_node *y, uint32_t slot)
{
    const struct yaml_node *name = yaml_find(y, "name"), *ns = yaml_find(y, "namespace"),
                           *uid = yaml_find(y, "uid"), *is_static = yaml_find(y, "static"),
                           *hash = yaml_find(y, "config_hash");
    struct sim_node *n = c->n;
    struct sim_pod *p = &n->pods[slot];
    bool from_file = hash != NULL;
    int rc = name ? compile_text(c, name, &p->name) : compile_refuse(c, y, "a pod has a name");
    if (rc == 0)
        rc = ns ? compile_text(c, ns, &p->namespace_name)
                : sim_add_string(n, SV("default"), &p->namespace_name, c->err);
    if (rc == 0)
        rc = uid ? compile_text(c, uid, &p->uid) : sim_default_uid(n, slot, &p->uid, c->err);
    if (rc == 0 && is_static)
        rc = yaml_read_bool(is_static, c->file, &from_file, c->err);
    if (rc == 0 && from_file)
        rc = hash ? compile_text(c, hash, &p->config_hash)
                  : sim_default_config_hash(n, slot, &p->config_hash, c->err);
    return rc;
}

static int compile_phase(struct compile *c, const struct yaml_node *y, struct sim_pod *p,
                         struct compile_span *span)
{
    const struct yaml_node *phase = yaml_find(y, "phase");
    int64_t completes;
    int rc = compile_time(c, yaml_find(y, "start"), SIM_ALWAYS, &span->start);
    if (rc == 0)
        rc = compile_time(c, yaml_find(y, "end"), SIM_FOREVER, &span->end);
    if (rc == 0)
        rc = compile_time(c, yaml_find(y, "completes"), SIM_FOREVER, &completes);
    if (rc == 0)
        rc = phase ? compile_text(c, phase, &p->phase)
                   : sim_add_string(c->n, SV("Running"), &p->phase, c->err);
    if (rc < 0)
        return rc;
    p->start_ns = span->start;
    atomic_store(&p->end_ns, span->end);
    atomic_store(&p->completed_ns, completes);
    if (completes < span->end)
        span->end = completes; // of its processes
    return 0;
}

int compile_pod(struct compile *c, const struct yaml_node *y)
{
    static const char *const known[] = {
        "name",      "namespace", "uid",    "start",           "end",    "containers",
        "completes", "phase",     "static", "config_hash",     "labels", "annotations",
        "owner",     "claims",    "qos",    "init_containers", NULL};
    struct sim_node *n = c->n;
    const struct yaml_node *apps = yaml_find(y, "containers"),
                           *inits = yaml_find(y, "init_containers");
    size_t count = (apps ? apps->count : 0) + (inits ? inits->count : 0);
    struct compile_place place = {.pod = n->pod_count, .container = n->container_count};
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0 && (place.pod == SIM_MAX_PODS || place.container + count > SIM_MAX_CONTAINERS))
        rc = compile_refuse(c, y, "too many pods or containers");
    if (rc < 0)
        return rc;
    struct sim_pod *p = &n->pods[place.pod];
    *p = (struct sim_pod){.first_container = place.container, .containers = (uint32_t)count};
    n->container_count += (uint32_t)count;
    rc = compile_identity(c, y, place.pod);
    if (rc == 0)
        rc = compile_phase(c, y, p, &place.span);
    if (rc == 0)
        rc = compile_pod_extra(c, y, &p->extra);
    if (rc == 0)
        rc = compile_containers(c, apps, SIM_CONTAINER_APP, &place);
    if (rc == 0)
        rc = compile_containers(c, inits, SIM_CONTAINER_INIT, &place);
    n->pod_count = place.pod + 1;
    return rc;
}
