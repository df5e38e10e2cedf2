// SPDX-License-Identifier: Apache-2.0
// Labels of device samples, in dcgm-exporter's order: the built-in ones of the group, then
// configured labels and those of the owner's pod by name, then attributes (owner, job) by name. A
// configured or pod label that would repeat a built-in name or an attribute is exposed as
// label_<name>, as the Prometheus relabelling of Kubernetes metadata names such things.
#include <errno.h>
#include <stdlib.h>

#include "base/num.h"
#include "exporter/render_internal.h"

#define HOSTNAME_LOWER "hostname"
#define HOSTNAME_UPPER "Hostname"
#define RENAME_PREFIX "label_"

static const char *const reserved_names[] = {
    "gpu",           "UUID",      "uuid",         "pci_bus_id",   "device",        "modelName",
    "GPU_I_PROFILE", "GPU_I_ID",  HOSTNAME_LOWER, HOSTNAME_UPPER, "err_code",      "err_msg",
    "pod",           "namespace", "container",    "pod_name",     "pod_namespace", "container_name",
    "pod_uid",       "vgpu",      "hpc_job",
};

// Attributes of --kubernetes-enable-dra, free without it.
static const char *const claim_names[] = {
    "dra_claim_name",      "dra_claim_namespace", "dra_device_name", "dra_driver_name",
    "dra_mig_device_uuid", "dra_mig_profile",     "dra_pool_name",
};

static bool is_claim_name(struct sv name)
{
    for (size_t i = 0; i < ARRAY_SIZE(claim_names); i++)
        if (sv_equals(name, sv_from(claim_names[i])))
            return true;
    return false;
}

static bool is_reserved(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(reserved_names); i++)
        if (strcmp(name, reserved_names[i]) == 0)
            return true;
    return false;
}

// Names that only one spelling has: those of the other one are free.
static bool is_free(const struct exporter_options *o, struct sv name)
{
    static const char *const old_names[] = {"uuid", "pod_name", "pod_namespace", "container_name"};
    static const char *const new_names[] = {"UUID", "pod", "namespace", "container"};
    const char *const *others = o->flags.use_old_namespace ? new_names : old_names;
    for (size_t i = 0; i < ARRAY_SIZE(old_names); i++)
        if (sv_equals(name, sv_from(others[i])))
            return true;
    return false;
}

bool render_label_is_built_in(const struct exporter_options *o, struct sv name)
{
    for (size_t i = 0; i < ARRAY_SIZE(reserved_names); i++)
        if (sv_equals(name, sv_from(reserved_names[i])))
            return !is_free(o, name);
    return o->flags.enable_dra && is_claim_name(name);
}

static int compare_rows(const void *va, const void *vb)
{
    const struct render_label_row *a = va, *b = vb;
    return strcmp(a->name, b->name);
}

int render_labels_init(struct render_labels *l, const struct render_input *in)
{
    const struct counter_list *counters = &in->config->counters;
    *l = (struct render_labels){.in = in};
    l->rows = calloc(counters->count + 1, sizeof(*l->rows));
    if (!l->rows)
        return -ENOMEM;
    for (size_t i = 0; i < counters->count; i++) {
        const struct counter *c = &counters->rows[i];
        size_t length = strlen(c->name);
        if (c->type != COUNTER_LABEL || !text_is_label_name((struct sv){c->name, length}))
            continue;
        struct render_label_row *row = &l->rows[l->row_count];
        bool taken = is_reserved(c->name) || (in->config->options->flags.enable_dra &&
                                              is_claim_name((struct sv){c->name, length}));
        size_t prefix = taken ? sizeof(RENAME_PREFIX) - 1 : 0;
        if (prefix + length >= sizeof(row->name))
            continue;
        memcpy(row->name, RENAME_PREFIX, prefix);
        memcpy(row->name + prefix, c->name, length + 1);
        row->field = c->field;
        l->row_count++;
    }
    if (l->row_count > 1)
        qsort(l->rows, l->row_count, sizeof(*l->rows), compare_rows);
    return 0;
}

void render_labels_deinit(struct render_labels *l)
{
    free(l->rows);
    *l = (struct render_labels){0};
}

static void add_number_label(struct buf *out, const char *name, uint64_t number)
{
    char text[NUM_U64_BYTES];
    text_add_label(out, name, (struct sv){text, num_print_u64(text, number)});
}

void render_labels_add_model(const struct render_input *in, const struct inventory_entity *gpu,
                             struct buf *out)
{
    struct sv model = sv_from(gpu->info.name);
    if (!in->config->options->flags.replace_blanks) {
        text_add_label(out, "modelName", model);
        return;
    }
    char joined[sizeof(gpu->info.name)];
    size_t length = 0;
    bool gap = false;
    for (size_t i = 0; i < model.len && length + 2 <= sizeof(joined); i++) {
        char c = model.ptr[i];
        bool blank = c == ' ' || (c >= '\t' && c <= '\r');
        if (!blank && gap && length > 0)
            joined[length++] = '-';
        if (!blank)
            joined[length++] = c;
        gap = blank;
    }
    text_add_label(out, "modelName", (struct sv){joined, length});
}

void render_labels_add_hostname(const struct render_input *in, struct buf *out)
{
    const struct exporter_options *o = in->config->options;
    if (o->hostname[0] == '\0')
        return;
    struct sv value = sv_from(o->hostname);
    switch (o->hostname_label) {
    case HOSTNAME_LABEL_LOWER:
        text_add_label(out, HOSTNAME_LOWER, value);
        return;
    case HOSTNAME_LABEL_UPPER:
        text_add_label(out, HOSTNAME_UPPER, value);
        return;
    case HOSTNAME_LABEL_BOTH:
        text_add_label(out, HOSTNAME_UPPER, value);
        text_add_label(out, HOSTNAME_LOWER, value);
        return;
    case HOSTNAME_LABEL_NONE:
        return;
    }
}

static void add_device_label(uint32_t index, struct buf *out)
{
    char device[sizeof("nvidia") + NUM_U64_BYTES] = "nvidia";
    size_t length = sizeof("nvidia") - 1;
    length += num_print_u64(device + length, index);
    text_add_label(out, "device", (struct sv){device, length});
}

// The instance's labels stand even with an unknown profile: without them all instances would be one
// series.
static void add_gpu(const struct render_input *in, const struct render_subject *s, struct buf *out)
{
    const struct frame_entity *gpu = &s->whole->info, *e = &s->entity->info;
    add_number_label(out, "gpu", gpu->index);
    text_add_label(out, in->config->options->flags.use_old_namespace ? "uuid" : "UUID",
                   sv_from(gpu->uuid));
    text_add_label(out, "pci_bus_id", sv_from(gpu->bus_id));
    add_device_label(gpu->index, out);
    render_labels_add_model(in, s->whole, out);
    if (e->kind == FRAME_ENTITY_GPU_I) {
        text_add_label(out, "GPU_I_PROFILE", sv_from(e->profile));
        add_number_label(out, "GPU_I_ID", e->gpu_instance_id);
    }
}

static void add_switch_label(uint32_t id, struct buf *out)
{
    char name[sizeof("nvswitch") + NUM_U64_BYTES] = "nvswitch";
    size_t length = sizeof("nvswitch") - 1;
    length += num_print_u64(name + length, id);
    text_add_label(out, "nvswitch", (struct sv){name, length});
}

static void add_known(const char *name, const char *value, struct buf *out)
{
    if (value[0] != '\0')
        text_add_label(out, name, sv_from(value));
}

// Links of GPUs are numbered from 1, links of switches from 0. What is not known is left out, the
// model's name stays as it is, and the UUID's label has this name in either spelling of the others.
static void add_link(const struct render_subject *s, struct buf *out)
{
    const struct frame_entity *whole = &s->whole->info;
    if (whole->kind != FRAME_ENTITY_GPU) {
        add_number_label(out, "nvlink", s->entity->info.id);
        add_switch_label(whole->id, out);
        return;
    }
    add_number_label(out, "nvlink", (uint64_t)s->entity->info.id + 1);
    add_number_label(out, "gpu", whole->index);
    add_known("gpu_uuid", whole->uuid, out);
    add_known("pci_bus_id", whole->bus_id, out);
    add_device_label(whole->index, out);
    add_known("model_name", whole->name, out);
}

static void add_built_in(const struct render_input *in, const struct render_subject *s,
                         struct buf *out)
{
    buf_add_char(out, '{');
    switch (s->group) {
    case RENDER_GROUP_GPU:
        add_gpu(in, s, out);
        break;
    case RENDER_GROUP_SWITCH:
        add_switch_label(in->config->options->flags.switch_id_quirk ? 0 : s->entity->info.id, out);
        break;
    case RENDER_GROUP_LINK:
        add_link(s, out);
        break;
    case RENDER_GROUP_CPU:
        add_number_label(out, "cpu", s->entity->info.id);
        break;
    case RENDER_GROUP_CORE:
        add_number_label(out, "cpucore", s->entity->info.id);
        add_number_label(out, "cpu", s->whole->info.id);
        break;
    case RENDER_GROUP_COUNT:
        break;
    }
    render_labels_add_hostname(in, out);
}

// Labels of a pod that are still to come.
struct pod_labels {
    const char *at; // name, then value
    uint32_t left;
};

static struct pod_labels pod_labels_of(const struct render_owner *owner)
{
    const struct pod_metadata_entry *e = owner->metadata;
    return e ? (struct pod_labels){e->text + strlen(e->text) + 1, e->label_count}
             : (struct pod_labels){0};
}

// Those whose names come before that one; all when NULL. One of that name is passed over.
static void add_pod_labels(struct pod_labels *labels, const char *before, struct buf *out)
{
    for (; labels->left > 0; labels->left--) {
        int order = before ? strcmp(labels->at, before) : -1;
        if (order > 0)
            return;
        const char *value = labels->at + strlen(labels->at) + 1;
        if (order < 0)
            text_add_label(out, labels->at, sv_from(value));
        labels->at = value + strlen(value) + 1;
    }
}

static void add_value_label(const char *name, const struct inventory_value *v, struct buf *out)
{
    struct buf text = BUF_INIT(512);
    switch ((enum frame_value_type)v->type) {
    case FRAME_VALUE_STRING:
        text_add_label(out, name, sv_from(v->value.string));
        break;
    case FRAME_VALUE_I64:
        buf_add_i64(&text, v->value.i64);
        text_add_label(out, name, buf_sv(&text));
        break;
    case FRAME_VALUE_DOUBLE:
        text_add_f6(&text, v->value.f64);
        text_add_label(out, name, buf_sv(&text));
        break;
    case FRAME_VALUE_NONE:
    case FRAME_VALUE_TYPE_END:
        break;
    }
    if (text.error && !out->error)
        out->error = text.error;
    buf_deinit(&text);
}

// The labels between the built-in ones and the attributes: configured ones, the pod's, and room for
// those that come later, all by name.
struct middle {
    struct pod_labels pod;
    const char *const *extras;
    size_t extra_count;
    struct render_places *places;
    size_t start;
};

// Notes the places of extras up to that name; all when NULL.
static void leave_room(struct middle *m, const char *before, struct buf *out)
{
    for (; m->extras && *m->extras && (!before || strcmp(*m->extras, before) < 0); m->extras++) {
        add_pod_labels(&m->pod, *m->extras, out);
        if (m->extra_count < RENDER_EXP_LABELS)
            m->places->extras[m->extra_count++] = (uint32_t)(out->len - m->start);
    }
}

// A group has the labels of its own level and the global ones.
static const struct inventory_value *label_of(const struct render_input *in,
                                              const struct render_subject *s,
                                              const struct field_info *field)
{
    enum field_level level = (enum field_level)field->level;
    bool fits = level == FIELD_LEVEL_NONE;
    switch (s->group) {
    case RENDER_GROUP_GPU:
        return device_view_label(in->view, s->at, field);
    case RENDER_GROUP_SWITCH:
        fits = fits || level == FIELD_LEVEL_SWITCH || level == FIELD_LEVEL_LINK;
        break;
    case RENDER_GROUP_LINK:
        fits = fits || level == FIELD_LEVEL_LINK;
        break;
    case RENDER_GROUP_CPU:
        fits = fits || level == FIELD_LEVEL_CPU || level == FIELD_LEVEL_CPU_CORE;
        break;
    case RENDER_GROUP_CORE:
        fits = fits || level == FIELD_LEVEL_CPU_CORE;
        break;
    case RENDER_GROUP_COUNT:
        break;
    }
    return fits ? device_view_part_label(in->view, s->at, field) : NULL;
}

static void add_middle(const struct render_labels *l, const struct render_subject *subject,
                       struct middle *m, struct buf *out)
{
    for (size_t i = 0; i < l->row_count; i++) {
        const struct render_label_row *row = &l->rows[i];
        if (i > 0 && strcmp(row->name, l->rows[i - 1].name) == 0)
            continue;
        leave_room(m, row->name, out);
        add_pod_labels(&m->pod, row->name, out);
        const struct inventory_value *v = label_of(l->in, subject, row->field);
        if (v && render_value_code(v) != RENDER_CODE_BLANK)
            add_value_label(row->name, v, out);
    }
    leave_room(m, NULL, out);
    add_pod_labels(&m->pod, NULL, out);
}

const char *const *render_exp_labels(uint16_t field)
{
    static const char *const names[RENDER_EXP_COUNT][RENDER_EXP_LABELS + 1] = {
        {"window_size_in_ms", "xid", NULL},
        {"clock_event", "window_size_in_ms", NULL},
        {"health_error_code", "health_watch", NULL},
        {"link_status", "peer_gpu", NULL},
        {"clock_event", NULL},
        {"xid", NULL},
    };
    return names[field - FIELD_EXP_FIRST];
}

struct attribute_label {
    const char *name;
    struct sv value; // .ptr NULL: not there
};

static void add_attributes(const struct attribute_label *labels, size_t count, struct buf *out)
{
    for (size_t i = 0; i < count; i++)
        if (labels[i].value.ptr)
            text_add_label(out, labels[i].name, labels[i].value);
}

static struct sv known(const char *text)
{
    return text && text[0] != '\0' ? sv_from(text) : (struct sv){0};
}

static void add_claim(const struct render_owner *owner, struct buf *out)
{
    const struct pod_device *row = owner->claimed;
    if (!row)
        return;
    const struct attribute_label labels[] = {
        {"dra_claim_name", sv_from(row->claim->name)},
        {"dra_claim_namespace", sv_from(row->claim->namespace_name)},
        {"dra_device_name", sv_from(row->device_id)},
        {"dra_driver_name", sv_from(row->claim->driver)},
        {"dra_mig_device_uuid", known(owner->mig_uuid)},
        {"dra_mig_profile", known(owner->mig_profile)},
        {"dra_pool_name", sv_from(row->claim->pool)},
    };
    add_attributes(labels, ARRAY_SIZE(labels), out);
}

static struct sv shown_uid(const struct render_owner *owner)
{
    if (owner->uid)
        return sv_from(owner->uid);
    return owner->metadata ? known(owner->metadata->text) : (struct sv){0};
}

// The names ascend in either spelling; err_code and err_msg stand between container and hpc_job:
// where, in out, is returned.
static size_t add_owner(const struct render_input *in, const struct render_owner *owner,
                        const char *job, struct buf *out)
{
    const struct exporter_flags *flags = &in->config->options->flags;
    bool old = flags->use_old_namespace;
    struct sv none = flags->empty_owner_labels ? SV("") : (struct sv){0};
    bool owned = owner->pod != NULL;
    const struct attribute_label before[] = {
        {old ? "container_name" : "container", owned ? sv_from(owner->container) : none},
    };
    const struct attribute_label names[] = {
        {"hpc_job", sv_from(job)},
        {"namespace", old     ? (struct sv){0}
                      : owned ? sv_from(owner->namespace_name)
                              : none},
        {old ? "pod_name" : "pod", owned ? sv_from(owner->pod) : none},
        {"pod_namespace", !old    ? (struct sv){0}
                          : owned ? sv_from(owner->namespace_name)
                                  : none},
        {"pod_uid", shown_uid(owner)},
        {"vgpu", owner->vgpu.len > 0 ? owner->vgpu : (struct sv){0}},
    };
    add_attributes(before, ARRAY_SIZE(before), out);
    add_claim(owner, out);
    size_t split = out->len;
    add_attributes(names, ARRAY_SIZE(names), out);
    return split;
}

void render_labels_add(const struct render_labels *l, const struct render_subject *subject,
                       struct buf *out, struct render_places *out_places)
{
    // Built-in names that links alone have: a pod's label of such a name has no room there.
    static const char *const of_links[] = {"gpu_uuid", "model_name", "nvlink", NULL};
    struct middle m = {
        .pod = pod_labels_of(subject->owner),
        .extras = subject->group == RENDER_GROUP_LINK ? of_links : subject->extras,
        .places = out_places,
        .start = out->len,
    };
    add_built_in(l->in, subject, out);
    add_middle(l, subject, &m, out);
    out_places->split = (uint32_t)(add_owner(l->in, subject->owner, subject->job, out) - m.start);
    buf_add_str(out, "} ");
}

void render_labels_add_device(const struct render_input *in, const struct inventory_entity *entity,
                              const struct inventory_entity *gpu, struct buf *out)
{
    buf_add_char(out, '{');
    add_number_label(out, "gpu", gpu->info.index);
    text_add_label(out, "UUID", sv_from(gpu->info.uuid));
    render_labels_add_hostname(in, out);
    if (entity->info.kind == FRAME_ENTITY_GPU_I)
        add_number_label(out, "GPU_I_ID", entity->info.gpu_instance_id);
}
