// SPDX-License-Identifier: Apache-2.0
// Verbs about pods and processes.
#include "command_internal.h"

#include <errno.h>

// --- pods list [all] | pods add NAME [namespace=] [container=] [id=] [resource=] [device=A,B]
// [uid=] [labels=K:V,...] [owner=KIND/NAME] [claims=NAME:CLAIM,...] [phase=] [static] | pods
// complete NAME [failed] | pods end NAME | clear ---

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

// "k:v,k:v" of a word as an object.
static void add_pairs(struct buf *out, const char *comma, const char *key, struct sv pairs)
{
    struct sv pair, name;
    const char *between = "";
    buf_add_fmt(out, "%s\"%s\":{", comma, key);
    while (sv_next(&pairs, ',', &pair)) {
        (void)sv_next(&pair, ':', &name);
        buf_add_fmt(out, "%s\"%.*s\":\"%.*s\"", between, SV_FMT(name), SV_FMT(pair));
        between = ",";
    }
    buf_add_char(out, '}');
}

// Words are parted by blanks, so they hold nothing that JSON would escape but quotes.
static int pod_extra(struct sim_node *n, const struct command *w, uint32_t *out, struct error *err)
{
    struct sv labels = command_word(w, "labels"), claims = command_word(w, "claims"),
              name = command_word(w, "owner"), kind;
    struct buf text = BUF_INIT(1 << 14);
    const char *comma = "";
    buf_add_char(&text, '{');
    if (labels.ptr) {
        add_pairs(&text, comma, "labels", labels);
        comma = ",";
    }
    if (claims.ptr) {
        add_pairs(&text, comma, "claims", claims);
        comma = ",";
    }
    if (name.ptr && sv_next(&name, '/', &kind))
        buf_add_fmt(&text, "%s\"owner\":{\"kind\":\"%.*s\",\"name\":\"%.*s\"}", comma, SV_FMT(kind),
                    SV_FMT(name));
    buf_add_char(&text, '}');
    int rc = text.error != 0 ? error_set(err, -EINVAL, "the words are too long")
                             : sim_add_string(n, buf_sv(&text), out, err);
    buf_deinit(&text);
    return rc;
}

// Its container refers to all of the pod's claims.
static int container_extra(struct sim_node *n, const struct command *w, uint32_t *out,
                           struct error *err)
{
    struct sv claims = command_word(w, "claims"), pair, name;
    struct buf text = BUF_INIT(1 << 14);
    const char *comma = "";
    buf_add_str(&text, "{\"claims\":[");
    while (claims.ptr && sv_next(&claims, ',', &pair)) {
        (void)sv_next(&pair, ':', &name);
        buf_add_fmt(&text, "%s\"%.*s\"", comma, SV_FMT(name));
        comma = ",";
    }
    buf_add_str(&text, "]}");
    int rc = text.error != 0 ? error_set(err, -EINVAL, "the words are too long")
                             : sim_add_string(n, buf_sv(&text), out, err);
    buf_deinit(&text);
    return rc;
}

static int word_or(struct sim_node *n, const struct command *w, const char *key, struct sv fallback,
                   uint32_t *out, struct error *err)
{
    struct sv word = command_word(w, key);
    return sim_add_string(n, word.ptr ? word : fallback, out, err);
}

static int name_pod(struct sim_node *n, const struct command *w, uint32_t slot, struct error *err)
{
    struct sim_pod *p = &n->pods[slot];
    int rc = sim_add_string(n, w->list[1], &p->name, err);
    if (rc == 0)
        rc = word_or(n, w, "namespace", SV("default"), &p->namespace_name, err);
    if (rc == 0)
        rc = command_word(w, "uid").ptr ? word_or(n, w, "uid", SV(""), &p->uid, err)
                                        : sim_default_uid(n, slot, &p->uid, err);
    if (rc == 0 && command_has(w, "static"))
        rc = sim_default_config_hash(n, slot, &p->config_hash, err);
    if (rc == 0)
        rc = word_or(n, w, "phase", SV("Running"), &p->phase, err);
    return rc == 0 ? pod_extra(n, w, &p->extra, err) : rc;
}

static int fill_container(struct sim_node *n, int64_t at, const struct command *w, uint32_t pod,
                          struct error *err)
{
    uint32_t slot = n->pods[pod].first_container;
    struct sim_container *c = &n->containers[slot];
    *c = (struct sim_container){0};
    int rc = word_or(n, w, "container", SV("main"), &c->name, err);
    if (rc == 0)
        rc = command_word(w, "id").ptr ? word_or(n, w, "id", SV(""), &c->id, err)
                                       : sim_default_container_id(n, pod, slot, &c->id, err);
    if (rc == 0)
        rc = container_extra(n, w, &c->extra, err);
    return rc == 0 ? add_pod_devices(n, at, w, c, err) : rc;
}

static int add_pod(struct sim_node *n, int64_t at, const struct command *w, struct error *err)
{
    uint32_t slot = atomic_load(&n->pod_count), container = atomic_load(&n->container_count);
    if (slot == SIM_MAX_PODS || container == SIM_MAX_CONTAINERS)
        return error_set(err, -ENOSPC, "no room for another pod (%u)", SIM_MAX_PODS);
    n->pods[slot] = (struct sim_pod){.first_container = container,
                                     .containers = 1,
                                     .start_ns = at,
                                     .completed_ns = SIM_FOREVER,
                                     .end_ns = SIM_FOREVER};
    int rc = name_pod(n, w, slot, err);
    if (rc == 0)
        rc = fill_container(n, at, w, slot, err);
    if (rc < 0)
        return rc;
    atomic_store(&n->container_count, container + 1);
    atomic_store(&n->pod_count, slot + 1);
    return 0;
}

static void end_processes(struct sim_node *n, uint32_t pod, int64_t at)
{
    for (uint32_t k = 0; k < n->process_count; k++) {
        if (n->processes[k].pod == pod && atomic_load(&n->processes[k].end_ns) > at)
            atomic_store(&n->processes[k].end_ns, at);
    }
}

// --- pods complete NAME [failed] ---
static int complete_pod(struct sim_node *n, int64_t at, const struct command *w, struct error *err)
{
    unsigned done = 0;
    for (uint32_t i = 0; i < n->pod_count; i++) {
        struct sim_pod *p = &n->pods[i];
        if (atomic_load(&p->end_ns) <= at || atomic_load(&p->completed_ns) <= at ||
            !sv_equals(w->list[1], sv_from(sim_string(n, p->name))))
            continue;
        atomic_store(&p->failed, command_has(w, "failed"));
        atomic_store(&p->completed_ns, at);
        end_processes(n, i, at);
        done++;
    }
    return done > 0 ? 0 : error_set(err, -EINVAL, "no pod '%.*s'", SV_FMT(w->list[1]));
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
        end_processes(n, i, at);
    }
    return ended;
}

int command_pods_verb(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,
                      struct error *err)
{
    if (w->count == 0 || sv_equals(w->list[0], SV("list"))) {
        sim_pods_json(n, at, w->count > 1 && sv_equals(w->list[1], SV("all")), out);
        return 0;
    }
    atomic_fetch_add(&n->generation, 1);
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
    if (w->count >= 2 && sv_equals(w->list[0], SV("complete")))
        return complete_pod(n, at, w, err);
    return error_set(err, -EINVAL, "pods list | add NAME ... | complete NAME | end NAME | clear");
}

// The first container of the pod, or the one of that name; the newest pod of the name.
static int find_container(const struct sim_node *n, const struct command *w, struct sim_process *p,
                          struct error *err)
{
    struct sv pod = command_word(w, "pod"), container = command_word(w, "container");
    for (uint32_t i = n->pod_count; pod.ptr && i-- > 0;) {
        if (sv_equals(pod, sv_from(sim_string(n, n->pods[i].name)))) {
            p->pod = i;
            break;
        }
    }
    if (p->pod == SIM_NONE)
        return pod.ptr ? error_set(err, -EINVAL, "no pod '%.*s'", SV_FMT(pod)) : 0;
    const struct sim_pod *of = &n->pods[p->pod];
    for (uint32_t i = 0; i < of->containers; i++) {
        const char *name = sim_string(n, n->containers[of->first_container + i].name);
        if (!container.ptr || sv_equals(container, sv_from(name))) {
            p->container = of->first_container + i;
            return 0;
        }
    }
    return error_set(err, -EINVAL, "no such container of pod '%.*s'", SV_FMT(pod));
}

static int process_kind(const struct command *w, struct sim_process *p, struct error *err)
{
    struct sv type = command_word(w, "type");
    if (!type.ptr)
        return 0;
    p->type = sv_equals(type, SV("graphics"))  ? SIM_GRAPHICS
              : sv_equals(type, SV("mps"))     ? SIM_MPS
              : sv_equals(type, SV("compute")) ? SIM_COMPUTE
                                               : 0;
    return p->type != 0 ? 0 : error_set(err, -EINVAL, "type: compute, graphics or mps");
}

// --- process add device=gpu0[/gi1] pid=N [memory=] [load=] [name=] [pod=] [container=] [type=] |
// process end pid=N ---
static int add_process(struct sim_node *n, int64_t at, const struct command *w, struct error *err)
{
    struct sim_process p = {.type = SIM_COMPUTE,
                            .start_ns = at,
                            .end_ns = SIM_FOREVER,
                            .load = SIM_NONE,
                            .pod = SIM_NONE,
                            .container = SIM_NONE};
    struct sv memory = command_word(w, "memory"), load = command_word(w, "load"),
              name = command_word(w, "name");
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
    if (rc == 0)
        rc = find_container(n, w, &p, err);
    if (rc == 0)
        rc = process_kind(w, &p, err);
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
        atomic_fetch_add(&n->generation, 1);
        return 0;
    }
    return error_set(err, -EINVAL, "process add device=gpu0[/gi1] pid=N ... | process end pid=N");
}
