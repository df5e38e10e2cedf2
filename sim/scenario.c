// SPDX-License-Identifier: Apache-2.0
// A scenario file into a node. The format is described in README.md.
#include "node_edit.h"

#include <errno.h>
#include <stdio.h>

#include "base/file.h"
#include "base/limits.h"
#include "base/num.h"
#include "codec/yaml.h"
#include "symbol_table.h"

struct compile {
    struct sim_node *n;
    const char *file; // of the text under the hand, for messages
    struct error *err;
    const struct yaml_node *models;
    const char *models_file;
};

// Gives an error from a value's parser the position of the value.
static int at_node(struct compile *c, const struct yaml_node *y, int rc)
{
    if (rc >= 0 || !c->err || c->err->line != 0)
        return rc;
    struct error inner = *c->err;
    return error_set_at(c->err, rc, c->file, y ? y->line : 0, y ? y->column : 0, "%s", inner.text);
}

static int refuse(struct compile *c, const struct yaml_node *y, const char *what)
{
    return error_set_at(c->err, -EINVAL, c->file, y->line, y->column, "%s", what);
}

static int expect(struct compile *c, const struct yaml_node *y, enum yaml_kind kind)
{
    static const char *const names[] = {"expected a value", "expected a list",
                                        "expected a mapping"};
    return y->kind == kind ? 0 : refuse(c, y, names[kind]);
}

// --- Texts: bytes, so that a driver's broken text can be written down ---

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Takes one byte of a text: `\xHH` is that byte, and so is what YAML's own "\xHH" gives, a
// character from U+0080 to U+00FF.
static char take_byte(const struct sv *s, size_t *at)
{
    const char *p = s->ptr + *at;
    size_t left = s->len - *at;
    *at += 1;
    if (left >= 4 && p[0] == '\\' && p[1] == 'x' && hex_value(p[2]) >= 0 && hex_value(p[3]) >= 0) {
        *at += 3;
        return (char)(hex_value(p[2]) << 4 | hex_value(p[3]));
    }
    unsigned char lead = (unsigned char)p[0];
    if (left >= 2 && (lead == 0xc2 || lead == 0xc3)) {
        *at += 1;
        return (char)((lead & 3) << 6 | (p[1] & 0x3f));
    }
    return p[0];
}

static int add_text(struct compile *c, const struct yaml_node *y, uint32_t *out)
{
    char text[512];
    size_t len = 0;
    for (size_t at = 0; at < y->scalar.len;) {
        if (len == sizeof(text))
            return refuse(c, y, "text is too long");
        text[len++] = take_byte(&y->scalar, &at);
    }
    return at_node(c, y, sim_add_string(c->n, (struct sv){text, len}, out, c->err));
}

static int read_u32(struct compile *c, const struct yaml_node *y, uint32_t *out)
{
    int64_t value;
    int rc = yaml_read_i64(y, c->file, 0, UINT32_MAX, &value, c->err);
    if (rc == 0)
        *out = (uint32_t)value;
    return rc;
}

static int read_time(struct compile *c, const struct yaml_node *y, int64_t fallback, int64_t *out)
{
    *out = fallback;
    return y ? at_node(c, y, sim_parse_time(y->scalar, out, c->err)) : 0;
}

// --- Signals and loads ---

static int add_signal(struct compile *c, uint32_t gpu, enum sim_field field,
                      const struct yaml_node *y, int64_t at)
{
    struct sim_segment s;
    int rc = sim_parse_signal(y->scalar, sim_field_table[field].kind, &s, c->err);
    s.from_ns = at;
    if (rc == 0)
        rc = sim_add_segment(c->n, gpu, field, &s, c->err);
    return at_node(c, y, rc);
}

// prefix: "kubelet." for the node's own.
static int compile_signal(struct compile *c, uint32_t gpu, const char *prefix,
                          const struct yaml_node *y)
{
    char name[96];
    int wrote = snprintf(name, sizeof(name), "%s%.*s", prefix, SV_FMT(y->key));
    enum sim_field field = wrote > 0 ? sim_parse_field(sv_from(name)) : SIM_FIELD_COUNT;
    if (field == SIM_FIELD_COUNT)
        return refuse(c, y, "no such signal");
    // A GPU's own line replaces its model's.
    atomic_store(&c->n->gpus[gpu].fields[field], SIM_NONE);
    if (y->kind == YAML_SCALAR)
        return add_signal(c, gpu, field, y, 0);
    int rc = expect(c, y, YAML_SEQUENCE);
    for (const struct yaml_node *step = y->first; rc == 0 && step; step = step->next) {
        static const char *const known[] = {"at", "is", NULL};
        const struct yaml_node *is = yaml_find(step, "is");
        int64_t at;
        rc = yaml_check_keys(step, c->file, known, c->err);
        if (rc == 0 && !is)
            rc = refuse(c, step, "expected {at: TIME, is: VALUE}");
        if (rc == 0)
            rc = read_time(c, yaml_find(step, "at"), 0, &at);
        if (rc == 0)
            rc = add_signal(c, gpu, field, is, at);
    }
    return rc;
}

static int compile_signals(struct compile *c, uint32_t gpu, const char *prefix,
                           const struct yaml_node *y)
{
    int rc = y ? expect(c, y, YAML_MAPPING) : 0;
    for (const struct yaml_node *s = y ? y->first : NULL; rc == 0 && s; s = s->next)
        rc = compile_signal(c, gpu, prefix, s);
    return rc;
}

static int add_load(struct compile *c, _Atomic uint32_t *list, const struct yaml_node *y,
                    int64_t at)
{
    struct sim_load l;
    int rc = sim_parse_load(y->scalar, &l, c->err);
    l.from_ns = at;
    if (rc == 0)
        rc = sim_add_load(c->n, list, &l, c->err);
    return at_node(c, y, rc);
}

static int compile_load(struct compile *c, _Atomic uint32_t *list, const struct yaml_node *y)
{
    atomic_store(list, SIM_NONE);
    if (y->kind == YAML_SCALAR)
        return add_load(c, list, y, 0);
    int rc = expect(c, y, YAML_SEQUENCE);
    for (const struct yaml_node *step = y->first; rc == 0 && step; step = step->next) {
        const struct yaml_node *is = yaml_find(step, "is");
        int64_t at;
        if (!is)
            return refuse(c, step, "expected {at: TIME, is: LOAD}");
        rc = read_time(c, yaml_find(step, "at"), 0, &at);
        if (rc == 0)
            rc = add_load(c, list, is, at);
    }
    return rc;
}

// --- GPUs ---

enum gpu_key_type {
    GPU_TEXT,
    GPU_NUMBER,
};

static const struct {
    const char *key;
    enum gpu_key_type type;
    size_t offset;
} gpu_keys[] = {
#define GPU_KEY(name, type)                                                                        \
    {                                                                                              \
#name, type, offsetof(struct sim_gpu, name)                                                \
    }
    GPU_KEY(uuid, GPU_TEXT),
    GPU_KEY(name, GPU_TEXT),
    GPU_KEY(serial, GPU_TEXT),
    GPU_KEY(part_number, GPU_TEXT),
    GPU_KEY(vbios, GPU_TEXT),
    GPU_KEY(bus_id, GPU_TEXT),
    GPU_KEY(inforom_image, GPU_TEXT),
    GPU_KEY(inforom_oem, GPU_TEXT),
    GPU_KEY(inforom_ecc, GPU_TEXT),
    GPU_KEY(inforom_power, GPU_TEXT),
    GPU_KEY(pci_device_id, GPU_NUMBER),
    GPU_KEY(pci_subsystem_id, GPU_NUMBER),
    GPU_KEY(minor, GPU_NUMBER),
    GPU_KEY(architecture, GPU_NUMBER),
    GPU_KEY(cc_major, GPU_NUMBER),
    GPU_KEY(cc_minor, GPU_NUMBER),
    GPU_KEY(brand, GPU_NUMBER),
    GPU_KEY(numa_node, GPU_NUMBER),
    GPU_KEY(gpm, GPU_NUMBER),
    GPU_KEY(mig_capable, GPU_NUMBER),
    GPU_KEY(mig_slots, GPU_NUMBER),
    GPU_KEY(total_slices, GPU_NUMBER),
    GPU_KEY(links, GPU_NUMBER),
    GPU_KEY(fans, GPU_NUMBER),
    GPU_KEY(multiprocessors, GPU_NUMBER),
#undef GPU_KEY
};

static int compile_gpu_key(struct compile *c, struct sim_gpu *g, const struct yaml_node *y)
{
    for (size_t i = 0; i < ARRAY_SIZE(gpu_keys); i++) {
        if (!sv_equals(y->key, sv_from(gpu_keys[i].key)))
            continue;
        uint32_t *at = (uint32_t *)(void *)((char *)g + gpu_keys[i].offset);
        return gpu_keys[i].type == GPU_TEXT ? add_text(c, y, at) : read_u32(c, y, at);
    }
    return refuse(c, y, "no such key of a GPU");
}

static int compile_window(struct compile *c, const struct yaml_node *y, int64_t min, int64_t *out)
{
    int64_t ns;
    int rc = read_time(c, y, 0, &ns);
    if (rc == 0 && ns < min)
        return refuse(c, y, "the window is too short");
    if (rc == 0)
        *out = ns;
    return rc;
}

static int compile_gpu_body(struct compile *c, uint32_t gpu, const struct yaml_node *y)
{
    struct sim_gpu *g = &c->n->gpus[gpu];
    int rc = expect(c, y, YAML_MAPPING);
    for (const struct yaml_node *k = y->first; rc == 0 && k; k = k->next) {
        if (sv_equals(k->key, SV("model")) || sv_equals(k->key, SV("mig")))
            continue;
        if (sv_equals(k->key, SV("signals")))
            rc = compile_signals(c, gpu, "", k);
        else if (sv_equals(k->key, SV("load")))
            rc = compile_load(c, &g->load, k);
        else if (sv_equals(k->key, SV("utilization_window")))
            rc = compile_window(c, k, 1000000, &g->window_ns);
        else if (sv_equals(k->key, SV("power_window")))
            rc = compile_window(c, k, 0, &g->power_window_ns);
        else
            rc = compile_gpu_key(c, g, k);
    }
    return rc;
}

static int parse_hex(struct sv text, uint32_t *out)
{
    uint32_t value = 0;
    if (text.len == 0 || text.len > 8)
        return -EINVAL;
    for (size_t i = 0; i < text.len; i++) {
        int digit = hex_value(text.ptr[i]);
        if (digit < 0)
            return -EINVAL;
        value = value << 4 | (uint32_t)digit;
    }
    *out = value;
    return 0;
}

// "00000000:1B:00.0"
static int split_bus_id(struct compile *c, struct sim_gpu *g, const struct yaml_node *y)
{
    struct sv rest = sv_from(sim_string(c->n, g->bus_id)), domain, bus, device;
    bool ok = sv_next(&rest, ':', &domain) && sv_next(&rest, ':', &bus) &&
              sv_next(&rest, '.', &device) && parse_hex(domain, &g->domain) == 0 &&
              parse_hex(bus, &g->bus) == 0 && parse_hex(device, &g->device) == 0;
    return ok ? 0 : refuse(c, y, "bus_id: expected the form 00000000:1B:00.0");
}

static void clear_gpu(struct sim_gpu *g)
{
    *g = (struct sim_gpu){.numa_node = UINT32_MAX, .window_ns = 1000000000 / 6};
    for (unsigned i = 0; i < SIM_FIELD_COUNT; i++)
        atomic_store(&g->fields[i], SIM_NONE);
    atomic_store(&g->load, SIM_NONE);
    atomic_store(&g->processes, SIM_NONE);
}

// Signals every GPU has unless it says otherwise.
static int default_signals(struct compile *c, uint32_t gpu)
{
    static const enum sim_field zero[] = {SIM_LOST, SIM_RESET_REQUIRED, SIM_NO_PERMISSION};
    struct sim_segment s = {0};
    int rc = 0;
    for (size_t i = 0; i < ARRAY_SIZE(zero) && rc == 0; i++)
        rc = sim_add_segment(c->n, gpu, zero[i], &s, c->err);
    return rc;
}

static int compile_model(struct compile *c, uint32_t gpu, const struct yaml_node *model)
{
    const struct yaml_node *body = c->models ? yaml_find(c->models, model->scalar.ptr) : NULL;
    if (!body)
        return refuse(c, model, "no such model");
    const char *file = c->file;
    c->file = c->models_file;
    int rc = compile_gpu_body(c, gpu, body);
    c->file = file;
    return rc;
}

static int compile_gpu(struct compile *c, const struct yaml_node *y)
{
    uint32_t gpu = c->n->gpu_count;
    if (gpu == SIM_MAX_GPUS)
        return refuse(c, y, "too many GPUs");
    struct sim_gpu *g = &c->n->gpus[gpu];
    g->minor = gpu;
    int rc = default_signals(c, gpu);
    const struct yaml_node *model = yaml_find(y, "model");
    if (rc == 0 && model)
        rc = compile_model(c, gpu, model);
    if (rc == 0)
        rc = compile_gpu_body(c, gpu, y);
    if (rc == 0)
        rc = split_bus_id(c, g, y);
    if (rc < 0)
        return rc;
    c->n->gpu_count = gpu + 1;
    const struct yaml_node *mig = yaml_find(y, "mig");
    return mig ? at_node(c, mig, sim_add_layout(c->n, gpu, mig->scalar, 0, c->err)) : 0;
}

// --- Pods ---

static int compile_device_id(struct compile *c, const struct yaml_node *y, uint32_t resource,
                             uint32_t numa_mask, int64_t at)
{
    struct sim_node *n = c->n;
    uint32_t slot = n->device_count;
    if (slot == SIM_MAX_DEVICES)
        return refuse(c, y, "too many devices");
    n->devices[slot] = (struct sim_device){.resource = resource, .numa_mask = numa_mask};
    n->device_count = slot + 1;
    return at_node(c, y, sim_resolve_device(n, y->scalar, at, &n->devices[slot].id, c->err));
}

static int compile_device(struct compile *c, const struct yaml_node *y, int64_t at, uint32_t *count)
{
    static const char *const known[] = {"resource", "ids", "numa", NULL};
    const struct yaml_node *resource = yaml_find(y, "resource"), *ids = yaml_find(y, "ids");
    const struct yaml_node *numa = yaml_find(y, "numa");
    uint32_t name, mask = 1;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0 && (!ids || ids->kind != YAML_SEQUENCE))
        rc = refuse(c, y, "expected ids: [...]");
    if (rc == 0)
        rc = resource ? add_text(c, resource, &name)
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
    return refuse(c, y, "expected compute, graphics, compute+graphics or mps");
}

static int process_memory(struct compile *c, const struct yaml_node *y, int64_t *out)
{
    struct sim_segment s = {0};
    if (y && sv_equals(y->scalar, SV("unknown"))) {
        *out = -1;
        return 0;
    }
    int rc = y ? at_node(c, y, sim_parse_signal(y->scalar, SIM_GAUGE, &s, c->err)) : 0;
    *out = s.base / 1000000;
    return rc;
}

struct span {
    int64_t start, end;
};

static int compile_process(struct compile *c, const struct yaml_node *y, uint32_t pod,
                           struct span span)
{
    static const char *const known[] = {"device", "pid",   "name", "memory", "type",
                                        "load",   "start", "end",  NULL};
    struct sim_process p = {.pod = pod, .load = SIM_NONE};
    const struct yaml_node *device = yaml_find(y, "device"), *pid = yaml_find(y, "pid");
    const struct yaml_node *name = yaml_find(y, "name"), *load = yaml_find(y, "load");
    int64_t end;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0 && (!device || !pid))
        rc = refuse(c, y, "a process has a device and a pid");
    if (rc == 0)
        rc = read_u32(c, pid, &p.pid);
    if (rc == 0)
        rc = read_time(c, yaml_find(y, "start"), span.start, &p.start_ns);
    if (rc == 0)
        rc = read_time(c, yaml_find(y, "end"), span.end, &end);
    if (rc == 0)
        rc = at_node(
            c, device,
            sim_find_instance(c->n, device->scalar, p.start_ns, &p.gpu, &p.instance, c->err));
    if (rc == 0)
        rc = process_type(c, yaml_find(y, "type"), &p.type);
    if (rc == 0)
        rc = process_memory(c, yaml_find(y, "memory"), &p.memory_bytes);
    if (rc == 0)
        rc = name ? add_text(c, name, &p.name)
                  : sim_add_string(c->n, SV("python3"), &p.name, c->err);
    if (rc == 0 && load)
        rc = compile_load(c, &p.load, load);
    if (rc < 0)
        return rc;
    atomic_store(&p.end_ns, end);
    uint32_t slot;
    return at_node(c, y, sim_add_process(c->n, &p, &slot, c->err));
}

static int compile_processes(struct compile *c, const struct yaml_node *list, uint32_t pod,
                             struct span span)
{
    int rc = list ? expect(c, list, YAML_SEQUENCE) : 0;
    for (const struct yaml_node *y = list ? list->first : NULL; rc == 0 && y; y = y->next)
        rc = compile_process(c, y, pod, span);
    return rc;
}

static int compile_container(struct compile *c, const struct yaml_node *y, uint32_t slot,
                             uint32_t pod, struct span span)
{
    static const char *const known[] = {"name", "devices", "processes", NULL};
    const struct yaml_node *name = yaml_find(y, "name"), *devices = yaml_find(y, "devices");
    struct sim_container *out = &c->n->containers[slot];
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0)
        rc = name ? add_text(c, name, &out->name) : refuse(c, y, "a container has a name");
    out->first_device = c->n->device_count;
    for (const struct yaml_node *d = devices ? devices->first : NULL; rc == 0 && d; d = d->next)
        rc = compile_device(c, d, span.start, &out->devices);
    if (rc == 0)
        rc = compile_processes(c, yaml_find(y, "processes"), pod, span);
    return rc;
}

static int compile_pod(struct compile *c, const struct yaml_node *y)
{
    static const char *const known[] = {"name", "namespace",  "uid", "start",
                                        "end",  "containers", NULL};
    struct sim_node *n = c->n;
    const struct yaml_node *name = yaml_find(y, "name"), *ns = yaml_find(y, "namespace"),
                           *uid = yaml_find(y, "uid");
    const struct yaml_node *containers = yaml_find(y, "containers");
    uint32_t slot = n->pod_count, count = containers ? (uint32_t)containers->count : 0;
    struct span span;
    int rc = yaml_check_keys(y, c->file, known, c->err);
    if (rc == 0 && (slot == SIM_MAX_PODS || n->container_count + count > SIM_MAX_CONTAINERS))
        rc = refuse(c, y, "too many pods or containers");
    if (rc < 0)
        return rc;
    struct sim_pod *p = &n->pods[slot];
    *p = (struct sim_pod){.first_container = n->container_count, .containers = count};
    n->container_count += count;
    rc = name ? add_text(c, name, &p->name) : refuse(c, y, "a pod has a name");
    if (rc == 0)
        rc = ns ? add_text(c, ns, &p->namespace_name)
                : sim_add_string(n, SV("default"), &p->namespace_name, c->err);
    if (rc == 0 && uid)
        rc = add_text(c, uid, &p->uid);
    if (rc == 0)
        rc = read_time(c, yaml_find(y, "start"), 0, &span.start);
    if (rc == 0)
        rc = read_time(c, yaml_find(y, "end"), SIM_FOREVER, &span.end);
    uint32_t at = p->first_container;
    for (const struct yaml_node *k = containers ? containers->first : NULL; rc == 0 && k;
         k = k->next)
        rc = compile_container(c, k, at++, slot, span);
    p->start_ns = rc == 0 ? span.start : 0;
    atomic_store(&p->end_ns, rc == 0 ? span.end : 0);
    n->pod_count = slot + 1;
    return rc;
}

// --- Script, driver, the whole ---

static int compile_script(struct compile *c, const struct yaml_node *list)
{
    static const char *const known[] = {"at", "do", NULL};
    int rc = list ? expect(c, list, YAML_SEQUENCE) : 0;
    for (const struct yaml_node *y = list ? list->first : NULL; rc == 0 && y; y = y->next) {
        const struct yaml_node *action = yaml_find(y, "do");
        struct buf out = BUF_INIT(1 << 20);
        int64_t at;
        rc = yaml_check_keys(y, c->file, known, c->err);
        if (rc == 0 && !action)
            rc = refuse(c, y, "expected {at: TIME, do: VERB ...}");
        if (rc == 0)
            rc = read_time(c, yaml_find(y, "at"), 0, &at);
        if (rc == 0)
            rc = at_node(c, action, sim_command_line(c->n, at, action->scalar, &out, c->err));
        buf_deinit(&out);
    }
    return rc;
}

static void add_symbols(struct sim_node *n)
{
    static const char *const kubelet[] = {"kubelet.v1.List", "kubelet.v1.GetAllocatableResources",
                                          "kubelet.v1.Get", "kubelet.v1alpha1.List",
                                          "kubelet.rejected"};
    uint32_t at = 0;
    for (size_t i = 0; i < sim_driver_symbol_count && at < SIM_MAX_SYMBOLS; i++, at++) {
        sv_copy(n->symbols[at].name, sizeof(n->symbols[at].name),
                sv_from(sim_driver_symbols[i].name));
        n->symbols[at].branch = sim_driver_symbols[i].branch;
    }
    for (size_t i = 0; i < ARRAY_SIZE(kubelet) && at < SIM_MAX_SYMBOLS; i++, at++)
        sv_copy(n->symbols[at].name, sizeof(n->symbols[at].name), sv_from(kubelet[i]));
    n->symbol_count = at;
}

static int node_signal(struct compile *c, enum sim_field field, int64_t value)
{
    struct sim_segment s = {.base = value * 1000000};
    return sim_add_segment(c->n, SIM_NODE, field, &s, c->err);
}

static int prepare(struct compile *c)
{
    static const struct {
        enum sim_field field;
        int64_t value;
    } defaults[] = {
        {SIM_DRIVER_INIT, 0},    {SIM_DRIVER_UNKNOWN_FIELDS, 0}, {SIM_KUBELET_DOWN, 0},
        {SIM_KUBELET_SHORT, 0},  {SIM_KUBELET_LIMITED, 0},       {SIM_KUBELET_BURST, 10},
        {SIM_KUBELET_RATE, 100}, {SIM_KUBELET_DELAY, 0},         {SIM_KUBELET_SILENT, 0},
        {SIM_KUBELET_V1, 1},     {SIM_KUBELET_V1ALPHA1, 1},      {SIM_KUBELET_PAD, 0},
    };
    struct sim_node *n = c->n;
    for (uint32_t i = 0; i <= SIM_MAX_GPUS; i++)
        clear_gpu(&n->gpus[i]);
    n->string_bytes = 1;
    n->rate_ppm = SIM_PPM;
    atomic_store(&n->frozen_ns, INT64_MIN);
    add_symbols(n);
    int rc = 0;
    for (size_t i = 0; i < ARRAY_SIZE(defaults) && rc == 0; i++)
        rc = node_signal(c, defaults[i].field, defaults[i].value);
    return rc;
}

static int compile_driver(struct compile *c, const struct yaml_node *y)
{
    static const char *const known[] = {"version",           "nvml",    "cuda", "library",
                                        "reinit_after_loss", "signals", NULL};
    struct sim_node *n = c->n;
    const struct yaml_node *version = y ? yaml_find(y, "version") : NULL,
                           *nvml = y ? yaml_find(y, "nvml") : NULL;
    if (!version)
        return error_set_at(c->err, -EINVAL, c->file, 1, 1, "expected driver: {version: ...}");
    int rc = yaml_check_keys(y, c->file, known, c->err);
    struct sv rest = version->scalar, major;
    uint64_t branch;
    if (rc == 0 && (!sv_next(&rest, '.', &major) || num_parse_u64(major, 300, 9999, &branch) != 0))
        rc = refuse(c, version, "expected a driver version such as 550.90.07");
    if (rc < 0)
        return rc;
    n->driver_branch = (uint32_t)branch;
    sv_copy(n->driver_version, sizeof(n->driver_version), version->scalar);
    if (nvml)
        sv_copy(n->nvml_version, sizeof(n->nvml_version), nvml->scalar);
    else
        (void)snprintf(n->nvml_version, sizeof(n->nvml_version), "12.%s", n->driver_version);
    const struct yaml_node *cuda = yaml_find(y, "cuda"), *library = yaml_find(y, "library");
    const struct yaml_node *reinit = yaml_find(y, "reinit_after_loss");
    n->cuda_version = 12040;
    if (cuda)
        rc = read_u32(c, cuda, &n->cuda_version);
    if (rc == 0 && reinit)
        rc = read_u32(c, reinit, &n->reinit_after_loss);
    n->old_library = library && sv_equals(library->scalar, SV("old"));
    return rc == 0 ? compile_signals(c, SIM_NODE, "driver.", yaml_find(y, "signals")) : rc;
}

// Sharers of a GPU take turns: their loads may not add up to more than the whole.
static int check_loads(struct compile *c)
{
    const struct sim_node *n = c->n;
    for (uint32_t gpu = 0; gpu < n->gpu_count; gpu++) {
        for (int64_t step = 0; step < 4000 && n->gpus[gpu].load == SIM_NONE; step++) {
            int64_t t = step * 97000000, sum = 0;
            for (uint32_t i = n->gpus[gpu].processes; i != SIM_NONE;
                 i = n->processes[i].next_on_gpu)
                sum += n->processes[i].instance == SIM_NONE ? sim_process_load_ppm(n, i, t) : 0;
            if (sum > SIM_PPM)
                return error_set(c->err, -EINVAL,
                                 "%s: the loads on GPU %u add up to %.3f at %.3f s", c->file, gpu,
                                 (double)sum / 1e6, (double)t / 1e9);
        }
    }
    return 0;
}

static int compile_root(struct compile *c, const struct yaml_node *root)
{
    static const char *const known[] = {"node",      "driver",  "models", "gpus", "pods",
                                        "processes", "kubelet", "script", NULL};
    const struct yaml_node *gpus = yaml_find(root, "gpus"), *pods = yaml_find(root, "pods");
    int rc = yaml_check_keys(root, c->file, known, c->err);
    if (rc == 0)
        rc = prepare(c);
    const struct yaml_node *name = yaml_find(root, "node");
    sv_copy(c->n->name, sizeof(c->n->name), name ? name->scalar : SV("sim-node-0"));
    if (rc == 0)
        rc = compile_driver(c, yaml_find(root, "driver"));
    for (const struct yaml_node *y = gpus ? gpus->first : NULL; rc == 0 && y; y = y->next)
        rc = compile_gpu(c, y);
    if (rc == 0)
        rc = compile_signals(c, SIM_NODE, "kubelet.", yaml_find(root, "kubelet"));
    for (const struct yaml_node *y = pods ? pods->first : NULL; rc == 0 && y; y = y->next)
        rc = compile_pod(c, y);
    if (rc == 0)
        rc = compile_processes(c, yaml_find(root, "processes"), SIM_NONE,
                               (struct span){0, SIM_FOREVER});
    if (rc == 0)
        rc = compile_script(c, yaml_find(root, "script"));
    return rc == 0 ? check_loads(c) : rc;
}

// Models stand in the scenario, or in a file beside it that several share.
struct models {
    char path[512];
    struct buf text;
    struct yaml_document *d;
};

static int load_models(struct compile *c, const struct yaml_node *root, struct models *m)
{
    const struct yaml_node *y = yaml_find(root, "models");
    c->models = y;
    c->models_file = c->file;
    if (!y || y->kind == YAML_MAPPING)
        return 0;
    const char *slash = strrchr(c->file, '/');
    int dir = slash ? (int)(slash - c->file) + 1 : 0;
    int wrote = snprintf(m->path, sizeof(m->path), "%.*s%.*s", dir, c->file, SV_FMT(y->scalar));
    if (wrote < 0 || (size_t)wrote >= sizeof(m->path))
        return refuse(c, y, "the path is too long");
    int rc = at_node(c, y, file_read(m->path, &m->text, c->err));
    if (rc == 0)
        rc = yaml_parse(buf_sv(&m->text), m->path, &m->d, c->err);
    if (rc < 0)
        return rc;
    c->models = yaml_root(m->d);
    c->models_file = m->path;
    return 0;
}

int sim_compile(struct sim_node *n, struct sv text, const char *file, struct error *err)
{
    struct error local = ERROR_INIT;
    struct compile c = {.n = n, .file = file, .err = err ? err : &local};
    struct models models = {.text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES)};
    struct yaml_document *d = NULL;
    int rc = yaml_parse(text, file, &d, c.err);
    if (rc == 0)
        rc = load_models(&c, yaml_root(d), &models);
    if (rc == 0)
        rc = compile_root(&c, yaml_root(d));
    yaml_document_free(models.d);
    buf_deinit(&models.text);
    yaml_document_free(d);
    if (rc == 0) {
        n->magic = SIM_MAGIC;
        n->layout = SIM_LAYOUT;
        n->bytes = sizeof(*n);
    }
    return rc;
}
