// SPDX-License-Identifier: Apache-2.0
// dcgm-exporter's own counters, DCGM_EXP_*: rows with labels of their own, which come and go with
// what is counted. XIDs and clock events are of the source that watches them, NVML's where it does;
// health verdicts are DCGM's; peers are of either.
#include "base/num.h"
#include "exporter/render_internal.h"
#include "gpu/health.h"

// A family being written.
struct family {
    struct render_layout *layout;
    const struct render_device_family *family;
    const struct render_input *in;
    struct buf *out;
    bool begun;
    size_t lines;
};

static void begin(struct family *f)
{
    if (!f->begun)
        render_add_span(f->layout, f->family->header, f->out);
    f->begun = true;
}

static void add_line(struct family *f, size_t sample, const struct sv *values, uint64_t number)
{
    begin(f);
    f->lines++;
    render_add_exp_line(f->layout, f->family, sample, values, (int64_t)number, f->out);
}

static const struct render_samples *samples_of(const struct family *f)
{
    return render_samples_of(f->layout, f->family);
}

static void note(struct family *f, size_t sample, enum render_code code)
{
    render_note(f->layout, f->family->first_code[RENDER_GROUP_GPU] + sample, code);
}

static enum render_code shown_by(enum device_source source)
{
    return source == DEVICE_SOURCE_DCGM ? RENDER_CODE_SHOWN_DCGM : RENDER_CODE_SHOWN;
}

static struct sv number_text(char *text, uint64_t number)
{
    return (struct sv){text, num_print_u64(text, number)};
}

// --- XIDs and clock events ---

// What is counted of an entity in the inventory of one source. SIZE_MAX: the source does not have
// it.
struct place {
    const struct inventory *inv;
    enum device_source source;
    size_t entity;
};

static struct place place_of(const struct render_input *in, size_t entity,
                             enum device_source source)
{
    const struct inventory_entity *e = device_view_entity(in->view, entity, source);
    const struct inventory *inv = in->view->sources[source];
    return (struct place){inv, source, e ? (size_t)(e - inv->entities) : SIZE_MAX};
}

static bool is_listening(const struct inventory *inv)
{
    return inv->state.xid_events_armed || inv->state.kmsg_armed;
}

static size_t get_rows(const struct family *f, const struct place *p, struct exp_count *rows,
                       bool *known)
{
    struct exp_counts *c = f->in->exp;
    switch (f->family->field->id) {
    case FIELD_EXP_XID_COUNT:
        return exp_counts_xids(c, p->inv, p->entity, f->in->now_ns, rows, known);
    case FIELD_EXP_CLOCK_COUNT:
        return exp_counts_clocks(c, p->inv, p->entity, f->in->now_ns, rows, known);
    case FIELD_EXP_CLOCK_TOTAL:
        return exp_counts_clock_totals(c, p->inv, p->entity, rows, known);
    default:
        return exp_counts_xid_totals(c, p->inv, p->entity, rows, known);
    }
}

static bool is_of_xids(const struct family *f)
{
    return f->family->field->id == FIELD_EXP_XID_COUNT ||
           f->family->field->id == FIELD_EXP_XID_TOTAL;
}

// The rows of the first source that has counted something. *code: whose they are, or the first that
// is looking; else that there is nothing.
static size_t find_rows(const struct family *f, size_t entity, struct exp_count *rows, bool *known,
                        enum render_code *code)
{
    size_t count = 0;
    *known = false;
    *code = (enum render_code)FRAME_NO_DATA;
    for (unsigned s = 0; s < DEVICE_SOURCE_COUNT && !*known && f->in->exp; s++) {
        struct place p = place_of(f->in, entity, (enum device_source)s);
        if (p.entity == SIZE_MAX)
            continue;
        count = get_rows(f, &p, rows, known);
        bool watched = !is_of_xids(f) || is_listening(p.inv);
        if (*known || (watched && !render_is_shown(*code)))
            *code = shown_by(p.source);
    }
    return count;
}

// key without .ptr: nothing came within the window, which is told with the window alone.
static void add_count_row(struct family *f, size_t sample, struct sv key, uint64_t count)
{
    const struct exporter_flags *flags = &f->in->config->options->flags;
    char text[NUM_U64_BYTES];
    struct sv values[RENDER_EXP_LABELS] = {key};
    if (f->family->field->id == FIELD_EXP_XID_COUNT) {
        values[0] = number_text(text, (uint64_t)flags->xid_window_ms);
        values[1] = key;
    } else if (f->family->field->id == FIELD_EXP_CLOCK_COUNT) {
        values[1] = number_text(text, (uint64_t)flags->clock_window_ms);
    }
    add_line(f, sample, values, count);
}

static void add_count_rows(struct family *f, size_t sample, const struct exp_count *rows,
                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char text[NUM_U64_BYTES];
        struct sv key = is_of_xids(f) ? number_text(text, rows[i].key)
                                      : sv_from(exp_clock_event_name(rows[i].key));
        add_count_row(f, sample, key, rows[i].count);
    }
}

static bool is_of_window(const struct family *f)
{
    return f->family->field->id == FIELD_EXP_XID_COUNT ||
           f->family->field->id == FIELD_EXP_CLOCK_COUNT;
}

// XIDs are evidence and stay though the device is down; that it has none is only told while
// somebody listens. Clock events end with the device.
static void add_counts(struct family *f, size_t sample)
{
    size_t entity = samples_of(f)->items[sample].entity;
    bool xids = is_of_xids(f);
    if (!xids && !f->in->view->primary->entities[entity].up) {
        note(f, sample, RENDER_CODE_DOWN);
        return;
    }
    struct exp_count rows[LIMIT_XID_CODES];
    bool known;
    enum render_code code;
    size_t count = find_rows(f, entity, rows, &known, &code);
    note(f, sample, code);
    if (render_is_shown(code) && !known && is_of_window(f))
        add_count_row(f, sample, (struct sv){0}, 0);
    add_count_rows(f, sample, rows, count);
}

// --- Health ---

// DCGM's verdict on a system of a GPU: the last one that it told. NULL: it passes.
static const struct frame_verdict *find_verdict(const struct inventory *dcgm, size_t entity,
                                                uint32_t system)
{
    for (size_t i = dcgm->verdict_count; i-- > 0;) {
        const struct frame_verdict *v = &dcgm->verdicts[i];
        if (v->entity == entity && v->system == system)
            return v;
    }
    return NULL;
}

#define UNKNOWN_CODE "DCGM_FR_UNKNOWN("

// text: room for UNKNOWN_CODE, a number and a parenthesis.
static struct sv code_text(char *text, uint32_t code)
{
    const char *name = health_error_name(code);
    if (name)
        return sv_from(name);
    size_t length = sizeof(UNKNOWN_CODE) - 1;
    memcpy(text, UNKNOWN_CODE, length);
    length += num_print_u64(text + length, code);
    text[length++] = ')';
    return (struct sv){text, length};
}

static enum render_code judge_health(const struct family *f, const struct place *gpu)
{
    if (!gpu->inv || (gpu->inv->state_known && gpu->inv->state.code == FRAME_STATE_NO_LIBRARY))
        return (enum render_code)FRAME_NEEDS_DCGM;
    if (!inventory_is_connected(gpu->inv))
        return (enum render_code)FRAME_NOT_CONNECTED;
    if (gpu->entity == SIZE_MAX || gpu->inv->verdicts_ns == 0)
        return (enum render_code)FRAME_NO_DATA;
    return inventory_is_current(gpu->inv->verdicts_ns, f->in->now_ns, f->family->horizon_ns)
               ? RENDER_CODE_SHOWN_DCGM
               : RENDER_CODE_STALE;
}

static void add_health(struct family *f, size_t sample)
{
    struct place gpu = place_of(f->in, samples_of(f)->items[sample].gpu, DEVICE_SOURCE_DCGM);
    enum render_code code = judge_health(f, &gpu);
    note(f, sample, code);
    for (size_t i = 0; i < HEALTH_SYSTEMS && render_is_shown(code); i++) {
        const struct frame_verdict *v = find_verdict(gpu.inv, gpu.entity, health_systems[i].bit);
        char unknown[sizeof(UNKNOWN_CODE) + NUM_U64_BYTES];
        struct sv code_name = code_text(unknown, v ? v->code : 0);
        add_line(f, sample, (struct sv[]){code_name, sv_from(health_systems[i].name)},
                 v ? v->result : 0);
    }
}

// --- Peers ---

static const char *link_status(uint32_t status)
{
    static const char *const texts[] = {
        "OK",
        "ChipsetNotSupported",
        "GPUNotSupported",
        "TopologyNotSupported",
        "DisabledByRegKey",
        "NotSupported",
    };
    return status < ARRAY_SIZE(texts) ? texts[status] : "Unknown";
}

static bool has_peers(const struct family *f, const struct place *gpu)
{
    return gpu->entity != SIZE_MAX && gpu->inv->peers_ns != 0 &&
           inventory_is_current(gpu->inv->peers_ns, f->in->now_ns, f->family->horizon_ns);
}

// The source that knows of peers now, NVML first. False: none does.
static bool find_peers(const struct family *f, size_t gpu, struct place *out)
{
    for (unsigned s = 0; s < DEVICE_SOURCE_COUNT; s++) {
        *out = place_of(f->in, gpu, (enum device_source)s);
        if (has_peers(f, out))
            return true;
    }
    return false;
}

static uint32_t peer_index(const struct place *gpu, const struct frame_peer *p)
{
    return gpu->inv->entities[p->peer].info.index;
}

// A pair that stands twice would be the same series twice: the first counts.
static bool is_told(const struct place *gpu, size_t at)
{
    const struct frame_peer *peers = gpu->inv->peers;
    for (size_t i = 0; i < at; i++)
        if (peers[i].entity == peers[at].entity &&
            peer_index(gpu, &peers[i]) == peer_index(gpu, &peers[at]))
            return true;
    return false;
}

static void add_peer_rows(struct family *f, size_t sample, const struct place *gpu)
{
    const struct device_view *view = f->in->view;
    for (size_t i = 0; i < gpu->inv->peer_count; i++) {
        const struct frame_peer *p = &gpu->inv->peers[i];
        if (p->entity != gpu->entity || p->peer == p->entity || is_told(gpu, i))
            continue;
        size_t peer = device_view_place(view, gpu->source, p->peer);
        if (peer == SIZE_MAX)
            continue;
        char text[NUM_U64_BYTES];
        struct sv number = number_text(text, view->primary->entities[peer].info.index);
        add_line(f, sample, (struct sv[]){sv_from(link_status(p->status)), number}, p->status);
    }
}

static void add_peers(struct family *f, size_t sample)
{
    const struct render_sample *s = &samples_of(f)->items[sample];
    struct place gpu;
    if (find_peers(f, s->gpu, &gpu)) {
        note(f, sample, shown_by(gpu.source));
        begin(f); // dcgm-exporter has the family though a GPU has no peers
        add_peer_rows(f, sample, &gpu);
    } else {
        bool up = f->in->view->primary->entities[s->entity].up;
        note(f, sample, up ? (enum render_code)FRAME_NO_DATA : RENDER_CODE_DOWN);
    }
}

size_t render_exp_add(struct render_layout *l, const struct render_device_family *family,
                      const struct render_input *in, struct buf *out)
{
    struct family f = {.layout = l, .family = family, .in = in, .out = out};
    size_t count = samples_of(&f)->count;
    for (size_t i = 0; i < count; i++) {
        if (family->field->id == FIELD_EXP_HEALTH)
            add_health(&f, i);
        else if (family->field->id == FIELD_EXP_P2P)
            add_peers(&f, i);
        else
            add_counts(&f, i);
    }
    return f.lines;
}
