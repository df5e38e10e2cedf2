// SPDX-License-Identifier: Apache-2.0
// A GPU of a scenario: its model, then its own lines over it.
#include "scenario_internal.h"

#include <errno.h>

#include "base/num.h"

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
    GPU_KEY(replicas, GPU_NUMBER),
    GPU_KEY(resource, GPU_TEXT),
#undef GPU_KEY
};

static int compile_gpu_key(struct compile *c, struct sim_gpu *g, const struct yaml_node *y)
{
    for (size_t i = 0; i < ARRAY_SIZE(gpu_keys); i++) {
        if (!sv_equals(y->key, sv_from(gpu_keys[i].key)))
            continue;
        uint32_t *at = (uint32_t *)(void *)((char *)g + gpu_keys[i].offset);
        return gpu_keys[i].type == GPU_TEXT ? compile_text(c, y, at) : compile_u32(c, y, at);
    }
    return compile_refuse(c, y, "no such key of a GPU");
}

static int compile_window(struct compile *c, const struct yaml_node *y, int64_t min, int64_t *out)
{
    int64_t ns;
    int rc = compile_time(c, y, 0, &ns);
    if (rc == 0 && ns < min)
        return compile_refuse(c, y, "the window is too short");
    if (rc == 0)
        *out = ns;
    return rc;
}

static int compile_gpu_body(struct compile *c, uint32_t gpu, const struct yaml_node *y)
{
    struct sim_gpu *g = &c->n->gpus[gpu];
    int rc = compile_expect(c, y, YAML_MAPPING);
    for (const struct yaml_node *k = y->first; rc == 0 && k; k = k->next) {
        if (sv_equals(k->key, SV("model")) || sv_equals(k->key, SV("mig")))
            continue;
        if (sv_equals(k->key, SV("signals")))
            rc = compile_signals(c, gpu, "", k);
        else if (sv_equals(k->key, SV("dcgm")))
            rc = compile_dcgm_gpu(c, gpu, k);
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
        int digit = num_hex_digit(text.ptr[i]);
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
    return ok ? 0 : compile_refuse(c, y, "bus_id: expected the form 00000000:1B:00.0");
}

void compile_clear_gpu(struct sim_gpu *g)
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
    static const enum sim_field zero[] = {SIM_LOST,        SIM_RESET_REQUIRED, SIM_NO_PERMISSION,
                                          SIM_SAMPLES_LAG, SIM_SAMPLES_LOST,   SIM_UNHEALTHY};
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
        return compile_refuse(c, model, "no such model");
    const char *file = c->file;
    c->file = c->models_file;
    int rc = compile_gpu_body(c, gpu, body);
    c->file = file;
    return rc;
}

int compile_gpu(struct compile *c, const struct yaml_node *y)
{
    uint32_t gpu = c->n->gpu_count;
    if (gpu == SIM_MAX_GPUS)
        return compile_refuse(c, y, "too many GPUs");
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
    return mig ? compile_at(c, mig, sim_add_layout(c->n, gpu, mig->scalar, 0, c->err)) : 0;
}
