// SPDX-License-Identifier: Apache-2.0
// What to do about a GPU: what the driver asks for to recover it, and why its clocks are held down,
// a state each. (Advice on XIDs stands with their counters, in render_podgpu.c.) The fields are
// watched for this alone (source_plan.c). Text is kept and made anew when what it says differs: a
// page costs two look-ups a GPU. Values: nvml.h, NVML_FI_DEV_GET_GPU_RECOVERY_ACTION and
// nvmlClocksEventReason*.
#include "exporter/render_internal.h"

static const char *const reason_names[EXP_CLOCK_EVENTS] = {
    "gpu_idle",   "applications_clocks", "sw_power_cap",   "hw_slowdown", "sync_boost",
    "sw_thermal", "hw_thermal",          "hw_power_brake", "display",
};

static const char *action_name(int64_t action)
{
    static const char *const names[] = {"none",      "gpu_reset",       "node_reboot",
                                        "drain_p2p", "drain_and_reset", "recover_imex"};
    return action >= 0 && action < (int64_t)ARRAY_SIZE(names) ? names[action] : "other";
}

// The value of a GPU's field now; -1: there is none.
static int64_t value_of(const struct render_input *in, size_t gpu, uint16_t field)
{
    const struct inventory_value *v =
        device_view_find(in->view, gpu, field_find(field), in->config->period_ns, in->now_ns, NULL);
    if (!v || v->type != FRAME_VALUE_I64 || !render_is_shown(render_value_code(v)))
        return -1;
    return v->value.i64;
}

static bool is_shown_gpu(const struct render_layout *l, const struct render_input *in, size_t i)
{
    return l->shown[i] && in->view->primary->entities[i].info.kind == FRAME_ENTITY_GPU;
}

static uint64_t signature_of(const struct render_layout *l, const struct render_input *in)
{
    uint64_t hash = 1;
    for (size_t i = 0; i < in->view->primary->entity_count; i++) {
        if (!is_shown_gpu(l, in, i))
            continue;
        hash = render_mix(hash, (uint64_t)value_of(in, i, FIELD_RECOVERY_ACTION));
        hash = render_mix(hash, (uint64_t)value_of(in, i, FIELD_CLOCKS_EVENT_REASONS));
    }
    return hash ? hash : 1; // 0 says that there is no text
}

// `name{device labels,label="value"} number`
static void add_line(struct render_layout *l, const struct render_input *in, size_t gpu,
                     enum render_family_id family, const char *value, uint64_t number)
{
    const struct inventory_entity *e = &in->view->primary->entities[gpu];
    const char *label = family == RENDER_GPU_RECOVERY_ACTION_INFO ? "action" : "reason";
    struct buf *out = &l->health_text;
    buf_add_str(out, render_families[family].name);
    render_labels_add_device(in, e, e, out);
    text_add_label(out, label, sv_from(value));
    buf_add_str(out, "} ");
    buf_add_u64(out, number);
    buf_add_char(out, '\n');
    l->health_lines++;
}

static void add_family(struct render_layout *l, const struct render_input *in,
                       enum render_family_id family, uint16_t field)
{
    bool begun = false;
    for (size_t i = 0; i < in->view->primary->entity_count; i++) {
        int64_t value = is_shown_gpu(l, in, i) ? value_of(in, i, field) : -1;
        if (value < 0)
            continue;
        if (!begun)
            render_add_header(&l->health_text, l->format, family);
        begun = true;
        if (family == RENDER_GPU_RECOVERY_ACTION_INFO)
            add_line(l, in, i, family, action_name(value), 1);
        for (unsigned b = 0; family == RENDER_GPU_CLOCKS_EVENT_ACTIVE && b < EXP_CLOCK_EVENTS; b++)
            add_line(l, in, i, family, reason_names[b], ((uint64_t)value >> b) & 1);
    }
}

int render_health_refresh(struct render_layout *l, const struct render_input *in)
{
    if (in->config->options->podgpu_families == PODGPU_FAMILIES_NONE)
        return 0;
    uint64_t signature = signature_of(l, in);
    if (signature == l->health_signature)
        return 0;
    l->health_signature = 0;
    l->health_lines = 0;
    buf_reset(&l->health_text);
    add_family(l, in, RENDER_GPU_RECOVERY_ACTION_INFO, FIELD_RECOVERY_ACTION);
    add_family(l, in, RENDER_GPU_CLOCKS_EVENT_ACTIVE, FIELD_CLOCKS_EVENT_REASONS);
    if (l->health_text.error)
        return l->health_text.error;
    l->health_signature = signature;
    return 0;
}
