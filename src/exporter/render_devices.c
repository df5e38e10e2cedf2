// SPDX-License-Identifier: Apache-2.0
// DCGM families: for each row of the counters file and each sample of its lists, copy name and
// labels and print a number. This is the hot loop of a page. It looks values up by position where
// device_view_find searches, under the same rules; a family's header is written with its first
// sample, so families without one leave no trace.
#include <math.h>

#include "base/num.h"
#include "exporter/render_internal.h"
#include "gpu/xid.h"

// DCGM's sentinels for "no value" (dcgm_structs.h: DCGM_INT32_BLANK.., DCGM_INT64_BLANK..,
// DCGM_FP64_BLANK..), each with its not-found, not-supported and not-permissioned neighbour. A
// source of ours never sends them.
#define BLANKS 4
#define BLANK_I32 INT64_C(0x7ffffff0)
#define BLANK_I64 INT64_C(0x7ffffffffffffff0)
#define BLANK_F64 140737488355328.0

static inline bool is_blank_i64(int64_t v)
{
    return (v >= BLANK_I32 && v < BLANK_I32 + BLANKS) || (v >= BLANK_I64 && v < BLANK_I64 + BLANKS);
}

static inline bool is_blank_f64(double v)
{
    return !isfinite(v) || (v >= BLANK_F64 && v <= BLANK_F64 + (BLANKS - 1));
}

static bool is_blank_string(const char *s)
{
    static const char *const blanks[BLANKS] = {
        "<<<NULL>>>",
        "<<<NOT_FOUND>>>",
        "<<<NOT_SUPPORTED>>>",
        "<<<NOT_PERMISSIONED>>>",
    };
    for (size_t i = 0; i < BLANKS; i++)
        if (strcmp(s, blanks[i]) == 0)
            return true;
    return false;
}

static inline enum render_code value_code(const struct inventory_value *value)
{
    switch ((enum frame_value_type)value->type) {
    case FRAME_VALUE_I64:
        return is_blank_i64(value->value.i64) ? RENDER_CODE_BLANK : RENDER_CODE_SHOWN;
    case FRAME_VALUE_DOUBLE:
        return is_blank_f64(value->value.f64) ? RENDER_CODE_BLANK : RENDER_CODE_SHOWN;
    case FRAME_VALUE_STRING:
        return is_blank_string(value->value.string) ? RENDER_CODE_BLANK : RENDER_CODE_NOT_NUMERIC;
    case FRAME_VALUE_NONE:
    case FRAME_VALUE_TYPE_END:
        break;
    }
    return (enum render_code)FRAME_NO_DATA;
}

enum render_code render_value_code(const struct inventory_value *value)
{
    return value_code(value);
}

// The rules of inventory_find, by position; shown: what to say where there is a value.
static inline enum render_code judge(const struct inventory_entity *entity,
                                     const struct inventory_value *v, uint64_t horizon_ns,
                                     uint64_t now_ns, enum render_code shown)
{
    if (!entity->up)
        return RENDER_CODE_DOWN;
    if (v->status != FRAME_OK)
        return (enum render_code)v->status;
    if (!inventory_is_current(v->taken_ns, now_ns, horizon_ns))
        return RENDER_CODE_STALE;
    enum render_code code = value_code(v);
    return code == RENDER_CODE_SHOWN ? shown : code;
}

static inline enum render_code shown_by(enum device_source source)
{
    return source == DEVICE_SOURCE_DCGM ? RENDER_CODE_SHOWN_DCGM : RENDER_CODE_SHOWN;
}

static inline void note(struct render_layout *l, size_t at, enum render_code code)
{
    if (l->codes[at] == code)
        return;
    l->codes[at] = (uint8_t)code;
    l->field_stale = true;
}

// Name and labels, with room for a number and the line's end behind them. False: no room.
static inline bool begin_line(const struct render_layout *l, struct render_span name,
                              struct render_span labels, struct buf *out)
{
    size_t most = (size_t)name.bytes + labels.bytes + NUM_I64_BYTES + 1;
    if (out->error || (out->cap - out->len < most && buf_reserve(out, most) < 0))
        return false;
    char *at = out->data + out->len;
    memcpy(at, l->text.data + name.at, name.bytes);
    memcpy(at + name.bytes, l->text.data + labels.at, labels.bytes);
    out->len += (size_t)name.bytes + labels.bytes;
    return true;
}

static inline void add_sample(const struct render_layout *l, const struct render_device_family *f,
                              const struct render_sample *s, const struct inventory_value *v,
                              struct buf *out)
{
    if (!begin_line(l, f->name, s->labels, out))
        return;
    if (v->type == FRAME_VALUE_I64) {
        out->len += num_print_i64(out->data + out->len, v->value.i64);
        out->data[out->len++] = '\n';
        return;
    }
    text_add_f6(out, v->value.f64);
    buf_add_char(out, '\n');
}

// dcgm-exporter tells the code a second time, with its text, among the attributes. The texts are
// our own table's and need no escaping.
static void add_xid_sample(const struct render_layout *l, const struct render_device_family *f,
                           const struct render_sample *s, int64_t code, struct buf *out)
{
    char text[NUM_I64_BYTES];
    struct sv number = {text, num_print_i64(text, code)};
    render_add_span(l, f->name, out);
    render_add_span(l, (struct render_span){s->labels.at, s->split}, out);
    buf_add_sv(out, SV(",err_code=\""));
    buf_add_sv(out, number);
    buf_add_sv(out, SV("\",err_msg=\""));
    buf_add_str(out, xid_error_message((uint64_t)code));
    buf_add_char(out, '"');
    render_add_span(l, (struct render_span){s->labels.at + s->split, s->labels.bytes - s->split},
                    out);
    buf_add_sv(out, number);
    buf_add_char(out, '\n');
}

void render_note(struct render_layout *l, size_t at, enum render_code code)
{
    note(l, at, code);
}

void render_add_exp_line(const struct render_layout *l, const struct render_device_family *f,
                         size_t sample, const struct sv values[RENDER_EXP_LABELS], int64_t number,
                         struct buf *out)
{
    const char *const *names = render_exp_labels(f->field->id);
    const struct render_exp_sample *s = &l->exp[f->field->id - FIELD_EXP_FIRST].items[sample];
    uint32_t done = 0;
    render_add_span(l, f->name, out);
    for (size_t i = 0; i < RENDER_EXP_LABELS && names[i]; i++) {
        render_add_span(l, (struct render_span){s->labels.at + done, s->at[i] - done}, out);
        done = s->at[i];
        if (values[i].ptr)
            text_add_label(out, names[i], values[i]);
    }
    render_add_span(l, (struct render_span){s->labels.at + done, s->labels.bytes - done}, out);
    buf_add_i64(out, number);
    buf_add_char(out, '\n');
}

// Why a GPU's sample is not there, or whose value it is.
static enum render_code gpu_code(const struct render_device_family *f,
                                 const struct render_input *in, const struct render_sample *s)
{
    const struct device_view *view = in->view;
    enum device_source source = DEVICE_SOURCE_NVML;
    const struct inventory_value *v = device_view_value(
        view, f->board ? s->gpu : s->entity, f->slots, f->horizon_ns, in->now_ns, &source);
    if (!v)
        return RENDER_CODE_UNSEEN;
    return judge(&view->primary->entities[s->entity], v, f->horizon_ns, in->now_ns,
                 shown_by(source));
}

// The last XID is evidence and has rules of its own, so device_view_find decides.
static size_t add_xid_family(struct render_layout *l, const struct render_device_family *f,
                             const struct render_input *in, struct buf *out)
{
    const struct render_samples *list = render_samples_of(l, f);
    size_t added = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct render_sample *s = &list->items[i];
        enum device_source source = DEVICE_SOURCE_NVML;
        const struct inventory_value *v = device_view_find(
            in->view, s->entity, f->field, in->config->period_ns, in->now_ns, &source);
        bool number = v && v->type == FRAME_VALUE_I64;
        enum render_code code = number ? render_value_code(v) : gpu_code(f, in, s);
        if (number && code == RENDER_CODE_SHOWN)
            code = shown_by(source);
        note(l, f->first_code[RENDER_GROUP_GPU] + i, code);
        if (!number || !render_is_shown(code))
            continue;
        if (added++ == 0)
            render_add_span(l, f->header, out);
        add_xid_sample(l, f, s, v->value.i64, out);
    }
    return added;
}

// What the holder's processes use of the device; nothing known of them is nothing used, as
// dcgm-exporter has it.
static void add_pod_sample(const struct render_layout *l, const struct render_device_family *f,
                           const struct render_input *in, const struct render_sample *s,
                           struct buf *out)
{
    struct usage_pod_value v;
    uint64_t number = 0;
    if (!in->pod_value(in->usage, s->entity, l->text.data + s->uid.at, &v))
        v = (struct usage_pod_value){0};
    if (f->field->id == FIELD_GPU_UTIL)
        number = v.sm_known ? v.sm_percent : 0;
    else
        number = v.memory_known ? v.memory_mib : 0;
    if (!begin_line(l, f->name, s->labels, out))
        return;
    out->len += num_print_u64(out->data + out->len, number);
    out->data[out->len++] = '\n';
}

static size_t add_gpus(struct render_layout *l, const struct render_device_family *f,
                       const struct render_input *in, struct buf *out)
{
    const struct render_samples *list = render_samples_of(l, f);
    const struct device_view *view = in->view;
    const struct inventory_entity *entities = view->primary->entities;
    size_t added = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct render_sample *s = &list->items[i];
        enum device_source source = DEVICE_SOURCE_NVML;
        const struct inventory_value *v = device_view_value(
            view, f->board ? s->gpu : s->entity, f->slots, f->horizon_ns, in->now_ns, &source);
        if (!v)
            continue;
        enum render_code code =
            judge(&entities[s->entity], v, f->horizon_ns, in->now_ns, shown_by(source));
        note(l, f->first_code[RENDER_GROUP_GPU] + i, code);
        if (!render_is_shown(code))
            continue;
        if (added++ == 0)
            render_add_span(l, f->header, out);
        if (s->of_pod)
            add_pod_sample(l, f, in, s, out);
        else
            add_sample(l, f, s, v, out);
    }
    return added;
}

// Samples of a group of parts; begun: the family has its header.
static size_t add_parts(struct render_layout *l, const struct render_device_family *f,
                        const struct render_input *in, int group, bool begun, struct buf *out)
{
    const struct render_samples *list = &l->groups[group];
    const struct inventory_entity *entities = in->view->sources[DEVICE_SOURCE_DCGM]->entities;
    bool missed = render_has_group(f->groups, group);
    size_t added = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct render_sample *s = &list->items[i];
        const struct inventory_value *v = device_view_part_value(in->view, s->entity, f->slots);
        if (!v)
            break; // not watched
        enum render_code code =
            judge(&entities[s->entity], v, f->horizon_ns, in->now_ns, RENDER_CODE_SHOWN_DCGM);
        bool shown = render_is_shown(code);
        note(l, f->first_code[group] + i, shown || missed ? code : RENDER_CODE_UNSEEN);
        if (!shown)
            continue;
        if (added++ == 0 && !begun)
            render_add_span(l, f->header, out);
        add_sample(l, f, s, v, out);
    }
    return added;
}

// A label is kept whatever its age, and so counts as shown while it is known.
static enum render_code label_code(const struct inventory_value *v, enum device_source source)
{
    if (v->type == FRAME_VALUE_NONE)
        return (enum render_code)v->status;
    return render_value_code(v) == RENDER_CODE_BLANK ? RENDER_CODE_BLANK : shown_by(source);
}

static void judge_label(struct render_layout *l, const struct render_device_family *f,
                        const struct render_input *in)
{
    const struct render_samples *list = render_samples_of(l, f);
    for (size_t i = 0; i < list->count; i++) {
        const struct render_sample *s = &list->items[i];
        enum device_source source = DEVICE_SOURCE_NVML;
        const struct inventory_value *v = device_view_value(
            in->view, f->board ? s->gpu : s->entity, f->slots, UINT64_MAX, in->now_ns, &source);
        if (v)
            note(l, f->first_code[RENDER_GROUP_GPU] + i, label_code(v, source));
    }
}

static void judge_part_label(struct render_layout *l, const struct render_device_family *f,
                             const struct render_input *in, int group)
{
    const struct render_samples *list = &l->groups[group];
    for (size_t i = 0; i < list->count; i++) {
        const struct inventory_value *v =
            device_view_part_value(in->view, list->items[i].entity, f->slots);
        if (v)
            note(l, f->first_code[group] + i, label_code(v, DEVICE_SOURCE_DCGM));
    }
}

static size_t add_gpu_group(struct render_layout *l, const struct render_device_family *f,
                            const struct render_input *in, struct buf *out)
{
    if (f->exp)
        return render_exp_add(l, f, in, out);
    if (f->field->id == FIELD_XID_ERRORS && !f->label)
        return add_xid_family(l, f, in, out);
    if (!f->label)
        return add_gpus(l, f, in, out);
    judge_label(l, f, in);
    return 0;
}

static size_t add_part_groups(struct render_layout *l, const struct render_device_family *f,
                              const struct render_input *in, bool begun, struct buf *out)
{
    size_t added = 0;
    for (int group = RENDER_GROUP_SWITCH; group < RENDER_GROUP_COUNT; group++) {
        if (l->groups[group].count == 0 || !render_has_group(f->groups | f->shared, group))
            continue;
        if (!f->label)
            added += add_parts(l, f, in, group, begun || added > 0, out);
        else if (render_has_group(f->groups, group))
            judge_part_label(l, f, in, group);
    }
    return added;
}

static enum render_dcgm dcgm_of(const struct device_view *view)
{
    const struct inventory *dcgm = view->sources[DEVICE_SOURCE_DCGM];
    if (!dcgm)
        return RENDER_DCGM_NONE;
    return inventory_is_connected(dcgm) ? RENDER_DCGM_THERE : RENDER_DCGM_AWAY;
}

size_t render_devices_add(struct render_layout *l, const struct render_input *in, struct buf *out)
{
    enum render_dcgm dcgm = dcgm_of(in->view);
    l->field_stale = l->field_stale || dcgm != l->dcgm;
    l->dcgm = dcgm;
    size_t added = 0;
    for (size_t i = 0; i < l->family_count; i++) {
        const struct render_device_family *f = &l->families[i];
        size_t lines = 0;
        if (render_has_group(f->groups, RENDER_GROUP_GPU))
            lines = add_gpu_group(l, f, in, out);
        if (f->slots.at[DEVICE_SOURCE_DCGM] != UINT32_MAX)
            lines += add_part_groups(l, f, in, lines > 0, out);
        added += lines;
    }
    return added;
}
