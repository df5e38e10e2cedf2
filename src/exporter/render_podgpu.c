// SPDX-License-Identifier: Apache-2.0
// podgpu_gpu_*: is a device there, what is it, which XID errors did it have. This changes rarely,
// so the text is kept and made anew only when a signature of all it says differs. Devices are those
// that --devices chose and their GPUs. XID counters of critical codes stand at 0 on each GPU while
// somebody listens, so that a rule on increase() sees the first one; a MIG instance has only the
// codes that it had.
#include "base/clock.h"
#include "exporter/render_internal.h"
#include "gpu/xid.h"

static bool is_listening(const struct inventory *inv)
{
    return inv->state.xid_events_armed || inv->state.kmsg_armed;
}

static uint64_t signature_of(const struct inventory *inv)
{
    uint64_t hash = render_mix(1, is_listening(inv));
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct inventory_entity *e = &inv->entities[i];
        hash = render_mix(hash, (uint64_t)e->up);
        hash = render_mix(hash, (uint64_t)(uintptr_t)e->down_reason);
        for (size_t x = 0; x < e->xid_count; x++) {
            hash = render_mix(hash, e->xids[x].code);
            hash = render_mix(hash, e->xids[x].count);
            hash = render_mix(hash, e->xids[x].last_wall_ns);
        }
    }
    return hash ? hash : 1; // 0 says that there is no text
}

// One family being written: its header comes with the first line.
struct writer {
    struct render_layout *layout;
    const struct render_input *in;
    enum render_family_id family;
    bool begun;
    struct buf *out;
};

// `name{device labels`, left open.
static void begin_line(struct writer *w, const struct inventory_entity *e)
{
    if (!w->begun)
        render_add_header(w->out, w->layout->format, w->family);
    w->begun = true;
    w->layout->gpu_lines++;
    buf_add_str(w->out, render_families[w->family].name);
    render_labels_add_device(w->in, e, render_gpu_of(w->in->view->primary, e), w->out);
}

static void end_line(struct writer *w, uint64_t value)
{
    buf_add_str(w->out, "} ");
    buf_add_u64(w->out, value);
    buf_add_char(w->out, '\n');
}

static void add_up(struct writer *w, const struct inventory_entity *e)
{
    begin_line(w, e);
    end_line(w, e->up);
}

static void add_state(struct writer *w, const struct inventory_entity *e)
{
    if (e->up)
        return;
    begin_line(w, e);
    text_add_label(w->out, "reason", sv_from(e->down_reason[0] ? e->down_reason : "unknown"));
    end_line(w, 1);
}

// GPUs only: with rows of instances, `* on (gpu, UUID) group_left (modelName) podgpu_gpu_info`
// would find two partners.
static void add_info(struct writer *w, const struct inventory_entity *e)
{
    if (e->info.kind != FRAME_ENTITY_GPU)
        return;
    begin_line(w, e);
    render_labels_add_model(w->in, e, w->out);
    text_add_label(w->out, "pci_bus_id", sv_from(e->info.bus_id));
    text_add_label(w->out, "driver_version", sv_from(w->in->view->primary->state.driver_version));
    end_line(w, 1);
}

static void add_xid_line(struct writer *w, const struct inventory_entity *e, uint64_t code,
                         uint64_t count)
{
    begin_line(w, e);
    buf_add_str(w->out, ",xid=\"");
    buf_add_u64(w->out, code);
    buf_add_char(w->out, '"');
    end_line(w, count);
}

// Codes ascend: those that came, and the critical ones that did not.
static void add_xid_errors(struct writer *w, const struct inventory_entity *e)
{
    bool zeros = e->info.kind == FRAME_ENTITY_GPU && is_listening(w->in->view->primary);
    size_t critical = 0, critical_count = zeros ? xid_critical_count : 0;
    for (size_t x = 0; x < e->xid_count; x++) {
        const struct inventory_xid *xid = &e->xids[x];
        for (; critical < critical_count && xid_critical_codes[critical] < xid->code; critical++)
            add_xid_line(w, e, xid_critical_codes[critical], 0);
        if (critical < critical_count && xid_critical_codes[critical] == xid->code)
            critical++;
        add_xid_line(w, e, xid->code, xid->count);
    }
    for (; critical < critical_count; critical++)
        add_xid_line(w, e, xid_critical_codes[critical], 0);
}

static void add_xid_times(struct writer *w, const struct inventory_entity *e)
{
    for (size_t x = 0; x < e->xid_count; x++) {
        const struct inventory_xid *xid = &e->xids[x];
        begin_line(w, e);
        buf_add_str(w->out, ",xid=\"");
        buf_add_u64(w->out, xid->code);
        buf_add_str(w->out, "\"} ");
        text_add_fixed(w->out, xid->last_wall_ns / NS_PER_MS, 3);
        buf_add_char(w->out, '\n');
    }
}

// Of the codes that came: a look at the page tells what to do.
static void add_xid_advice(struct writer *w, const struct inventory_entity *e)
{
    for (size_t x = 0; x < e->xid_count; x++) {
        const struct xid_advice advice = xid_advice_get(e->xids[x].code);
        begin_line(w, e);
        buf_add_str(w->out, ",xid=\"");
        buf_add_u64(w->out, e->xids[x].code);
        buf_add_char(w->out, '"');
        text_add_label(w->out, "severity", sv_from(advice.severity));
        text_add_label(w->out, "advice", sv_from(advice.text));
        end_line(w, 1);
    }
}

static void add_family(struct render_layout *l, const struct render_input *in,
                       enum render_family_id family,
                       void (*add)(struct writer *w, const struct inventory_entity *e))
{
    struct writer w = {.layout = l, .in = in, .family = family, .out = &l->gpu_text};
    for (size_t i = 0; i < in->view->primary->entity_count; i++)
        if (l->shown[i])
            add(&w, &in->view->primary->entities[i]);
}

int render_gpu_refresh(struct render_layout *l, const struct render_input *in)
{
    if (in->config->options->podgpu_families == PODGPU_FAMILIES_NONE)
        return 0;
    uint64_t signature = signature_of(in->view->primary);
    if (signature == l->gpu_signature)
        return 0;
    l->gpu_signature = 0;
    l->gpu_lines = 0;
    buf_reset(&l->gpu_text);
    add_family(l, in, RENDER_GPU_UP, add_up);
    add_family(l, in, RENDER_GPU_STATE_INFO, add_state);
    add_family(l, in, RENDER_GPU_INFO, add_info);
    add_family(l, in, RENDER_GPU_XID_ERRORS, add_xid_errors);
    add_family(l, in, RENDER_GPU_XID_LAST_TIMESTAMP, add_xid_times);
    add_family(l, in, RENDER_GPU_XID_ADVICE_INFO, add_xid_advice);
    if (l->gpu_text.error)
        return l->gpu_text.error;
    l->gpu_signature = signature;
    return 0;
}
