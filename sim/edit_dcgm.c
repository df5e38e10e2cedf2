// SPDX-License-Identifier: Apache-2.0
// Values and entities that only DCGM tells, as scenarios and verbs write them.
#include "node_edit.h"

#include <errno.h>
#include <math.h>

#include "base/num.h"

// "gi3" after a slash; -EINVAL when it has another head or isn't a number below max.
static int take_number(struct sv text, struct sv head, uint64_t max, uint32_t *out)
{
    uint64_t value;
    if (!sv_starts_with(text, head) ||
        num_parse_u64(sv_sub(text, head.len, text.len), 0, max, &value) != 0)
        return -EINVAL;
    *out = (uint32_t)value;
    return 0;
}

static int parse_below_gpu(struct sv rest, uint32_t gpu, uint32_t *out_entity, uint32_t *out_key)
{
    struct sv first, tail = rest;
    uint32_t index, ci;
    (void)sv_next(&tail, '/', &first);
    if (take_number(first, SV("link"), 255, &index) == 0 && tail.len == 0) {
        *out_entity = SIM_ENTITY_LINK;
        *out_key = sim_link_key(SIM_ENTITY_GPU, gpu, index);
        return 0;
    }
    if (take_number(first, SV("gi"), 255, &index) != 0)
        return -EINVAL;
    *out_entity = SIM_ENTITY_GPU_I;
    *out_key = sim_instance_key(gpu, index, 0);
    if (tail.len == 0)
        return 0;
    if (take_number(tail, SV("ci"), 255, &ci) != 0)
        return -EINVAL;
    *out_entity = SIM_ENTITY_GPU_CI;
    *out_key = sim_instance_key(gpu, index, ci);
    return 0;
}

static int parse_entity(struct sv text, uint32_t *out_entity, uint32_t *out_key)
{
    struct sv rest = text, head;
    uint32_t id, index;
    (void)sv_next(&rest, '/', &head);
    if (take_number(head, SV("gpu"), SIM_MAX_GPUS - 1, &id) == 0) {
        *out_entity = SIM_ENTITY_GPU;
        *out_key = id;
        return rest.len == 0 ? 0 : parse_below_gpu(rest, id, out_entity, out_key);
    }
    if (take_number(head, SV("switch"), 255, &id) == 0) {
        *out_entity = SIM_ENTITY_SWITCH;
        *out_key = id;
        if (rest.len == 0)
            return 0;
        *out_entity = SIM_ENTITY_LINK;
        if (take_number(rest, SV("link"), 255, &index) != 0)
            return -EINVAL;
        *out_key = sim_link_key(SIM_ENTITY_SWITCH, id, index);
        return 0;
    }
    if (take_number(head, SV("cpu"), 255, &id) != 0)
        return -EINVAL;
    *out_entity = rest.len == 0 ? SIM_ENTITY_CPU : SIM_ENTITY_CORE;
    *out_key = id;
    return rest.len == 0 ? 0 : take_number(rest, SV("core"), SIM_CORE_WORDS * 64 - 1, out_key);
}

int sim_parse_entity(struct sv text, uint32_t *out_entity, uint32_t *out_key, struct error *err)
{
    if (parse_entity(text, out_entity, out_key) == 0)
        return 0;
    return error_set(err, -EINVAL,
                     "expected gpuN, gpuN/giN[/ciN], gpuN/linkN, switchN, switchN/linkN, cpuN or "
                     "cpuN/coreN, found '%.*s'",
                     SV_FMT(text));
}

static bool parse_word(struct sv text, struct sim_dcgm_value *v)
{
    static const struct {
        const char *name;
        uint32_t shape;
        int64_t i64;
    } words[] = {{"auto", SIM_DCGM_AUTO, 0},           {"blank", SIM_DCGM_BLANK, 0},
                 {"not_found", SIM_DCGM_BLANK, 1},     {"not_supported", SIM_DCGM_BLANK, 2},
                 {"no_permission", SIM_DCGM_BLANK, 3}, {"nan", SIM_DCGM_NAN, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (!sv_equals(text, sv_from(words[i].name)))
            continue;
        v->shape = words[i].shape;
        v->i64 = words[i].i64;
        return true;
    }
    return false;
}

// A number as a whole one and as a double, whichever the field wants.
static bool parse_number(struct sv text, struct sim_dcgm_value *v)
{
    double value;
    v->shape = SIM_DCGM_NUMBER;
    if (num_parse_i64(text, INT64_MIN, INT64_MAX, &v->i64) == 0) {
        v->f64 = (double)v->i64;
        return true;
    }
    if (num_parse_double(text, &value) != 0)
        return false;
    v->f64 = value;
    v->i64 = fabs(value) < 9e18 ? (int64_t)value : 0;
    return true;
}

int sim_parse_dcgm_value(struct sim_node *n, struct sv text, struct sim_dcgm_value *out,
                         struct error *err)
{
    struct sv s = sv_trim(text, " \t");
    if (sv_starts_with(s, SV("status"))) {
        out->shape = SIM_DCGM_STATUS;
        if (num_parse_i64(sv_trim(sv_sub(s, 6, s.len), " :"), -999, 999, &out->i64) != 0)
            return error_set(err, -EINVAL, "expected 'status CODE', found '%.*s'", SV_FMT(text));
        return 0;
    }
    if (parse_word(s, out) || parse_number(s, out))
        return 0;
    out->shape = SIM_DCGM_TEXT;
    return sim_add_string(n, text, &out->text, err);
}

int sim_add_dcgm_value(struct sim_node *n, const struct sim_dcgm_value *v, struct error *err)
{
    uint32_t at = atomic_load(&n->dcgm.value_count);
    if (at == SIM_MAX_DCGM_VALUES)
        return error_set(err, -ENOSPC, "the node's table of DCGM values is full (%u)",
                         SIM_MAX_DCGM_VALUES);
    n->dcgm.values[at] = *v;
    atomic_store_explicit(&n->dcgm.value_count, at + 1, memory_order_release);
    atomic_fetch_add(&n->generation, 1);
    return 0;
}

int sim_parse_link_state(struct sv text, uint32_t *out, struct error *err)
{
    static const char *const names[] = {"not_supported", "disabled", "down", "up"};
    for (uint32_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (sv_equals(text, sv_from(names[i]))) {
            *out = i;
            return 0;
        }
    }
    return error_set(err, -EINVAL, "expected up, down, disabled or not_supported, found '%.*s'",
                     SV_FMT(text));
}

struct sim_link *sim_find_link(struct sim_node *n, uint32_t key)
{
    for (uint32_t i = 0; i < n->dcgm.link_count; i++) {
        struct sim_link *l = &n->dcgm.links[i];
        if (sim_link_key(l->owner, l->id, l->index) == key)
            return l;
    }
    return NULL;
}

int sim_parse_health_system(struct sv text, uint32_t *out, struct error *err)
{
    static const char *const names[] = {"PCIE",
                                        "NVLINK",
                                        "PMU",
                                        "MCU",
                                        "MEM",
                                        "SM",
                                        "INFOROM",
                                        "THERMAL",
                                        "POWER",
                                        "DRIVER",
                                        "NVSWITCH_NONFATAL",
                                        "NVSWITCH_FATAL",
                                        "CONNECTX",
                                        "IMEX"};
    for (uint32_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (sv_equals(text, sv_from(names[i]))) {
            *out = 1u << i;
            return 0;
        }
    }
    if (sv_equals(text, SV("ALL"))) { // the GPU as a whole
        *out = UINT32_MAX;
        return 0;
    }
    return error_set(err, -EINVAL, "no health system '%.*s'", SV_FMT(text));
}

int sim_add_incident(struct sim_node *n, const struct sim_incident *i, struct error *err)
{
    uint32_t at = atomic_load(&n->dcgm.incident_count);
    if (at == SIM_MAX_INCIDENTS)
        return error_set(err, -ENOSPC, "the node's table of incidents is full (%u)",
                         SIM_MAX_INCIDENTS);
    n->dcgm.incidents[at] = *i;
    atomic_store_explicit(&n->dcgm.incident_count, at + 1, memory_order_release);
    return 0;
}
