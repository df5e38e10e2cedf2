// SPDX-License-Identifier: Apache-2.0
// What podgpu says of itself that is text rather than numbers: build, flags without effect, where
// each field's values come from and, field by field and GPU by GPU, why there are none; of
// switches, links, CPUs and cores once a field. The last is made anew when render_devices.c saw a
// value come or go.
#include <errno.h>
#include <stdlib.h>

#include "base/num.h"
#include "exporter/render_internal.h"

#define SOURCE_NVML "nvml"

// --- Build and flags ---

static void add_info_line(struct buf *out, enum render_family_id family)
{
    buf_add_str(out, render_families[family].name);
    buf_add_char(out, '{');
}

int render_about_build(struct render_layout *l, const struct render_input *in)
{
    struct buf *out = &l->about_text;
    const struct exporter_options *o = in->config->options;
    render_add_header(out, l->format, RENDER_BUILD_INFO);
    add_info_line(out, RENDER_BUILD_INFO);
    text_add_label(out, "version", sv_from(in->self->version ? in->self->version : ""));
    text_add_label(out, "revision", sv_from(in->self->revision ? in->self->revision : ""));
    buf_add_str(out, "} 1\n");
    l->about_lines = 1;
    for (size_t i = 0; i < o->unavailable_count; i++) {
        if (i == 0)
            render_add_header(out, l->format, RENDER_FEATURE_UNAVAILABLE_INFO);
        add_info_line(out, RENDER_FEATURE_UNAVAILABLE_INFO);
        text_add_label(out, "flag", sv_from(o->unavailable[i]));
        buf_add_str(out, "} 1\n");
        l->about_lines++;
    }
    return out->error;
}

// --- Fields ---

// Where NVML has it from.
static const char *nvml_source_of(const struct field_info *field)
{
    switch ((enum field_origin)field->origin) {
    case FIELD_ORIGIN_CALL:
    case FIELD_ORIGIN_FIELD_VALUE:
        return SOURCE_NVML;
    case FIELD_ORIGIN_GPM:
        return "nvml_gpm";
    case FIELD_ORIGIN_EVENT:
        return "nvml_events";
    case FIELD_ORIGIN_NONE:
        break;
    }
    if (field->id == FIELD_EXP_XID_COUNT || field->id == FIELD_EXP_XID_TOTAL)
        return "nvml_events";
    return field->id >= FIELD_EXP_FIRST ? SOURCE_NVML : NULL;
}

static struct sv name_of(const struct render_layout *l, const struct render_device_family *f)
{
    return (struct sv){l->text.data + f->name.at, f->name.bytes};
}

static size_t samples_in(const struct render_layout *l, const struct render_device_family *f,
                         int group)
{
    if (!render_has_group(f->groups | f->shared, group))
        return 0;
    return group == RENDER_GROUP_GPU ? render_samples_of(l, f)->count : l->groups[group].count;
}

static bool is_shown_by(const struct render_layout *l, const struct render_device_family *f,
                        enum render_code shown)
{
    for (int group = 0; group < RENDER_GROUP_COUNT; group++) {
        size_t count = samples_in(l, f, group);
        for (size_t i = 0; i < count; i++)
            if (l->codes[f->first_code[group] + i] == shown)
                return true;
    }
    return false;
}

static void add_source(struct render_layout *l, const struct render_device_family *f,
                       const char *source, bool *begun)
{
    struct buf *out = &l->field_text;
    if (!*begun)
        render_add_header(out, l->format, RENDER_FIELD_SOURCE_INFO);
    *begun = true;
    add_info_line(out, RENDER_FIELD_SOURCE_INFO);
    text_add_label(out, "field", name_of(l, f));
    text_add_label(out, "source", sv_from(source));
    buf_add_str(out, "} 1\n");
    l->field_lines++;
}

static void add_sources(struct render_layout *l)
{
    bool begun = false;
    for (size_t i = 0; i < l->family_count; i++) {
        const struct render_device_family *f = &l->families[i];
        const char *nvml = nvml_source_of(f->field);
        if (nvml && is_shown_by(l, f, RENDER_CODE_SHOWN))
            add_source(l, f, nvml, &begun);
        if (is_shown_by(l, f, RENDER_CODE_SHOWN_DCGM))
            add_source(l, f, "dcgm", &begun);
    }
}

static const char *reason_of(const struct render_device_family *f,
                             const struct inventory_entity *entity, enum render_code code)
{
    if (f->field->type == FIELD_BINARY && code != RENDER_CODE_DOWN)
        return "not_numeric"; // whoever has it: bytes are no number
    switch (code) {
    case RENDER_CODE_DOWN:
        return entity->down_reason[0] ? entity->down_reason : "down";
    case RENDER_CODE_STALE:
        return "stale";
    case RENDER_CODE_NOT_NUMERIC:
        return "not_numeric";
    case RENDER_CODE_BLANK:
        return "blank";
    case RENDER_CODE_UNSEEN:
        return "not_watched";
    case RENDER_CODE_SHOWN:
    case RENDER_CODE_SHOWN_DCGM:
    case RENDER_CODE_END:
        break;
    }
    return frame_status_text((enum frame_status)code);
}

static void add_unavailable(struct render_layout *l, const struct render_device_family *f,
                            const char *reason, const struct inventory_entity *gpu, bool *begun)
{
    struct buf *out = &l->field_text;
    if (!*begun)
        render_add_header(out, l->format, RENDER_FIELD_UNAVAILABLE_INFO);
    *begun = true;
    add_info_line(out, RENDER_FIELD_UNAVAILABLE_INFO);
    text_add_label(out, "field", name_of(l, f));
    text_add_label(out, "reason", sv_from(reason));
    char number[NUM_U64_BYTES];
    struct sv index = {number, gpu ? num_print_u64(number, gpu->info.index) : 0};
    text_add_label(out, "gpu", index);
    text_add_label(out, "UUID", gpu ? sv_from(gpu->info.uuid) : SV(""));
    buf_add_str(out, "} 1\n");
    l->field_lines++;
}

// Whether a sample before this one told the same of the same GPU.
static bool is_told(const struct render_layout *l, const struct render_device_family *f,
                    const struct inventory *inv, size_t sample, const char *reason)
{
    const struct render_samples *list = render_samples_of(l, f);
    for (size_t i = 0; i < sample; i++) {
        const struct render_sample *s = &list->items[i];
        enum render_code code = l->codes[f->first_code[RENDER_GROUP_GPU] + i];
        if (s->gpu == list->items[sample].gpu && !render_is_shown(code) &&
            strcmp(reason_of(f, &inv->entities[s->entity], code), reason) == 0)
            return true;
    }
    return false;
}

// One line a field, GPU and reason. `told` has a bit a code for each entity: most repetitions end
// there.
static void add_family_reasons(struct render_layout *l, const struct render_device_family *f,
                               const struct inventory *inv, uint32_t *told, bool *begun)
{
    const struct render_samples *list = render_samples_of(l, f);
    memset(told, 0, inv->entity_count * sizeof(*told));
    for (size_t i = 0; i < list->count; i++) {
        const struct render_sample *s = &list->items[i];
        enum render_code code = l->codes[f->first_code[RENDER_GROUP_GPU] + i];
        if (render_is_shown(code) || (told[s->gpu] & (1u << code)))
            continue;
        bool first = told[s->gpu] == 0;
        told[s->gpu] |= 1u << code;
        const char *reason = reason_of(f, &inv->entities[s->entity], code);
        if (first || !is_told(l, f, inv, i, reason))
            add_unavailable(l, f, reason, &inv->entities[s->gpu], begun);
    }
}

// Why there is no device at all that could have the field.
static const char *absence_of(const struct render_layout *l, const struct render_device_family *f)
{
    if (f->field->type == FIELD_BINARY)
        return "not_numeric";
    switch (l->dcgm) {
    case RENDER_DCGM_UNKNOWN:
    case RENDER_DCGM_NONE:
        return frame_status_text(FRAME_NEEDS_DCGM);
    case RENDER_DCGM_AWAY:
        return frame_status_text(FRAME_NOT_CONNECTED);
    case RENDER_DCGM_THERE:
        break;
    }
    for (int group = 0; group < RENDER_GROUP_COUNT; group++)
        if (render_has_group(f->groups, group) && l->listed[group])
            return "not_selected";
    return "no_such_entity";
}

// Links are of GPUs [0] or of switches [1], and a field of links is of one of the two.
struct link_kinds {
    bool listed[2], chosen[2], shown[2];
};

static size_t link_kind(const struct inventory *dcgm, const struct inventory_entity *link)
{
    return dcgm->entities[link->info.parent].info.kind == FRAME_ENTITY_SWITCH;
}

static struct link_kinds link_kinds_of(const struct render_layout *l,
                                       const struct render_device_family *f,
                                       const struct inventory *dcgm)
{
    struct link_kinds kinds = {0};
    if (!dcgm || !render_has_group(f->groups, RENDER_GROUP_LINK))
        return kinds;
    for (size_t i = 0; i < dcgm->entity_count; i++)
        if (dcgm->entities[i].info.kind == FRAME_ENTITY_LINK)
            kinds.listed[link_kind(dcgm, &dcgm->entities[i])] = true;
    size_t count = samples_in(l, f, RENDER_GROUP_LINK);
    for (size_t i = 0; i < count; i++) {
        const struct render_sample *s = &l->groups[RENDER_GROUP_LINK].items[i];
        size_t kind = link_kind(dcgm, &dcgm->entities[s->entity]);
        enum render_code code = l->codes[f->first_code[RENDER_GROUP_LINK] + i];
        kinds.chosen[kind] = true;
        kinds.shown[kind] = kinds.shown[kind] || render_is_shown(code);
    }
    return kinds;
}

// Whether the field is one of the other kind, which shows it or is not chosen.
static bool is_of_other_kind(const struct link_kinds *kinds, size_t kind)
{
    size_t other = !kind;
    return !kinds->shown[kind] &&
           (kinds->shown[other] || (kinds->listed[other] && !kinds->chosen[other]));
}

// Of switches, links, CPUs and cores a field's reason is told once, whatever their number.
static void add_part_reasons(struct render_layout *l, const struct render_device_family *f,
                             const struct inventory *dcgm, bool *begun)
{
    const struct link_kinds kinds = link_kinds_of(l, f, dcgm);
    uint32_t told = 0;
    bool any = kinds.shown[0] || kinds.shown[1];
    for (int group = RENDER_GROUP_SWITCH; group < RENDER_GROUP_COUNT; group++) {
        size_t count = render_has_group(f->groups, group) ? samples_in(l, f, group) : 0;
        for (size_t i = 0; i < count; i++) {
            enum render_code code = l->codes[f->first_code[group] + i];
            const struct inventory_entity *e = &dcgm->entities[l->groups[group].items[i].entity];
            if (code == (enum render_code)FRAME_NOT_SUPPORTED && group == RENDER_GROUP_LINK &&
                is_of_other_kind(&kinds, link_kind(dcgm, e)))
                continue;
            any = true;
            if (render_is_shown(code) || (told & (1u << code)))
                continue;
            told |= 1u << code;
            add_unavailable(l, f, reason_of(f, e, code), NULL, begun);
        }
    }
    if (!any)
        add_unavailable(l, f, absence_of(l, f), NULL, begun);
}

int render_fields_refresh(struct render_layout *l, const struct render_input *in)
{
    if (!l->field_stale)
        return 0;
    const struct inventory *inv = in->view->primary;
    cleanup(mem_freep) uint32_t *told = calloc(inv->entity_count + 1, sizeof(*told));
    if (!told)
        return -ENOMEM;
    l->field_lines = 0;
    buf_reset(&l->field_text);
    add_sources(l);
    bool begun = false;
    for (size_t i = 0; i < l->family_count; i++) {
        const struct render_device_family *f = &l->families[i];
        if (render_has_group(f->groups, RENDER_GROUP_GPU))
            add_family_reasons(l, f, inv, told, &begun);
        else
            add_part_reasons(l, f, in->view->sources[DEVICE_SOURCE_DCGM], &begun);
    }
    if (l->field_text.error)
        return l->field_text.error;
    l->field_stale = false;
    return 0;
}
