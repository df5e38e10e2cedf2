// SPDX-License-Identifier: Apache-2.0
// Verbs about pods and processes.
#include "command_internal.h"

#include <errno.h>

// --- pods list | pods add NAME [namespace=] [container=] [resource=] [device=A,B] [uid=] | pods
// end NAME | clear ---

static int add_pod_devices(struct sim_node *n, int64_t at, const struct command *w,
                           struct sim_container *c, struct error *err)
{
    struct sv ids = command_word(w, "device"), id;
    struct sv resource = command_word(w, "resource");
    uint32_t resource_at;
    int rc = sim_add_string(n, resource.ptr ? resource : SV("nvidia.com/gpu"), &resource_at, err);
    c->first_device = atomic_load(&n->device_count);
    while (rc == 0 && ids.ptr && sv_next(&ids, ',', &id)) {
        uint32_t slot = atomic_load(&n->device_count);
        if (slot == SIM_MAX_DEVICES)
            return error_set(err, -ENOSPC, "no room for another device (%u)", SIM_MAX_DEVICES);
        n->devices[slot] = (struct sim_device){.resource = resource_at, .numa_mask = 1};
        rc = sim_resolve_device(n, id, at, &n->devices[slot].id, err);
        atomic_store(&n->device_count, slot + 1);
        c->devices++;
    }
    return rc;
}

static int add_pod(struct sim_node *n, int64_t at, const struct command *w, struct error *err)
{
    uint32_t slot = atomic_load(&n->pod_count), container = atomic_load(&n->container_count);
    if (slot == SIM_MAX_PODS || container == SIM_MAX_CONTAINERS)
        return error_set(err, -ENOSPC, "no room for another pod (%u)", SIM_MAX_PODS);
    struct sim_pod p = {
        .first_container = container, .containers = 1, .start_ns = at, .end_ns = SIM_FOREVER};
    struct sim_container c = {0};
    struct sv ns = command_word(w, "namespace"), name = command_word(w, "container"),
              uid = command_word(w, "uid");
    int rc = sim_add_string(n, w->list[1], &p.name, err);
    if (rc == 0)
        rc = sim_add_string(n, ns.ptr ? ns : SV("default"), &p.namespace_name, err);
    if (rc == 0)
        rc = sim_add_string(n, uid.ptr ? uid : SV(""), &p.uid, err);
    if (rc == 0)
        rc = sim_add_string(n, name.ptr ? name : SV("main"), &c.name, err);
    if (rc == 0)
        rc = add_pod_devices(n, at, w, &c, err);
    if (rc < 0)
        return rc;
    n->containers[container] = c;
    atomic_store(&n->container_count, container + 1);
    n->pods[slot] = p;
    atomic_store(&n->pod_count, slot + 1);
    return 0;
}

// Ends living pods of the name (NULL: all) and their processes; how many.
static unsigned end_pods(struct sim_node *n, int64_t at, const struct sv *name)
{
    unsigned ended = 0;
    for (uint32_t i = 0; i < n->pod_count; i++) {
        struct sim_pod *p = &n->pods[i];
        if (atomic_load(&p->end_ns) <= at ||
            (name && !sv_equals(*name, sv_from(sim_string(n, p->name)))))
            continue;
        atomic_store(&p->end_ns, at);
        ended++;
        for (uint32_t k = 0; k < n->process_count; k++) {
            if (n->processes[k].pod == i && atomic_load(&n->processes[k].end_ns) > at)
                atomic_store(&n->processes[k].end_ns, at);
        }
    }
    return ended;
}

int command_pods_verb(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                      struct error *err)
{
    if (w->count == 0 || sv_equals(w->list[0], SV("list"))) {
        sim_pods_json(n, at, out);
        return 0;
    }
    if (sv_equals(w->list[0], SV("clear"))) {
        (void)end_pods(n, at, NULL);
        return 0;
    }
    if (w->count >= 2 && sv_equals(w->list[0], SV("add")))
        return add_pod(n, at, w, err);
    if (w->count == 2 && sv_equals(w->list[0], SV("end"))) {
        if (end_pods(n, at, &w->list[1]) == 0)
            return error_set(err, -EINVAL, "no pod '%.*s'", SV_FMT(w->list[1]));
        return 0;
    }
    return error_set(err, -EINVAL, "pods list | add NAME ... | end NAME | clear");
}

// --- process add device=gpu0[/gi1] pid=N [memory=] [load=] [name=] [pod=] | process end pid=N ---
static int add_process(struct sim_node *n, int64_t at, const struct command *w, struct error *err)
{
    struct sim_process p = {.type = SIM_COMPUTE,
                            .start_ns = at,
                            .end_ns = SIM_FOREVER,
                            .load = SIM_NONE,
                            .pod = SIM_NONE};
    struct sv memory = command_word(w, "memory"), load = command_word(w, "load"),
              name = command_word(w, "name"), pod = command_word(w, "pod");
    struct sim_segment bytes = {0};
    int64_t pid;
    int rc = sim_find_instance(n, command_word(w, "device"), at, &p.gpu, &p.instance, err);
    if (rc == 0)
        rc = command_number(w, "pid", 0, &pid, err);
    if (rc == 0 && memory.ptr)
        rc = sim_parse_signal(memory, SIM_GAUGE, &bytes, err);
    if (rc == 0)
        rc = sim_add_string(n, name.ptr ? name : SV("python3"), &p.name, err);
    if (rc == 0 && load.ptr)
        rc = command_set_load(n, &p.load, load, at, err);
    for (uint32_t i = 0; rc == 0 && pod.ptr && i < n->pod_count; i++) {
        if (sv_equals(pod, sv_from(sim_string(n, n->pods[i].name))))
            p.pod = i;
    }
    if (rc < 0)
        return rc;
    p.pid = (uint32_t)pid;
    p.memory_bytes = bytes.base / 1000000;
    uint32_t slot;
    return sim_add_process(n, &p, &slot, err);
}

int command_process_verb(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                         struct error *err)
{
    if (w->count > 0 && sv_equals(w->list[0], SV("add")))
        return add_process(n, at, w, err);
    if (w->count > 0 && sv_equals(w->list[0], SV("end"))) {
        uint32_t process = command_process(n, command_word(w, "pid"), at);
        if (process == SIM_NONE)
            return error_set(err, -EINVAL, "no such process");
        atomic_store(&n->processes[process].end_ns, at);
        return 0;
    }
    return error_set(err, -EINVAL, "process add device=gpu0[/gi1] pid=N ... | process end pid=N");
}
