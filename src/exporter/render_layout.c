// SPDX-License-Identifier: Apache-2.0
// Which families and samples a page has, worked out when devices, holders or the configuration
// change.
//
// A line is the family's name, a sample's labels and a number. Names are kept once a family and
// labels once a sample, not once a line: that is all the constant text there is, small enough to
// stay in the processor's cache, where a text of its own for each line would be as large as the
// page.
#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "exporter/render_internal.h"

void render_layout_deinit(struct render_layout *l)
{
    buf_deinit(&l->text);
    buf_deinit(&l->gpu_text);
    buf_deinit(&l->health_text);
    buf_deinit(&l->pods_text);
    buf_deinit(&l->about_text);
    buf_deinit(&l->field_text);
    for (size_t i = 0; i < RENDER_EXP_COUNT; i++)
        free(l->exp[i].items);
    for (size_t i = 0; i < RENDER_GROUP_COUNT; i++)
        free(l->groups[i].items);
    free(l->board.items);
    free(l->process.items);
    free(l->families);
    free(l->codes);
    free(l->shown);
    render_ledger_deinit(&l->ledger);
    render_node_deinit(&l->node);
}

int render_make_room(void *items, size_t *capacity, size_t count, size_t size)
{
    void **at = items;
    if (count <= *capacity && *at)
        return 0;
    void *fresh = calloc(count + 1, size);
    if (!fresh)
        return -ENOMEM;
    free(*at);
    *at = fresh;
    *capacity = count;
    return 0;
}

// --- Families ---

// The words of the counters file where the format has them; a family of plain samples under a
// foreign word has no type.
static enum text_type type_of(const struct counter *c, enum text_format format)
{
    bool open = format == TEXT_FORMAT_OPENMETRICS; // there these need samples of their own shape
    switch (c->type) {
    case COUNTER_GAUGE:
        return TEXT_TYPE_GAUGE;
    case COUNTER_COUNTER:
        return TEXT_TYPE_COUNTER;
    case COUNTER_HISTOGRAM:
        return open ? TEXT_TYPE_UNTYPED : TEXT_TYPE_HISTOGRAM;
    case COUNTER_SUMMARY:
        return open ? TEXT_TYPE_UNTYPED : TEXT_TYPE_SUMMARY;
    case COUNTER_LABEL:
    case COUNTER_OTHER:
        break;
    }
    return TEXT_TYPE_UNTYPED;
}

bool render_is_exp(const struct counter *c)
{
    return c->field->id >= FIELD_EXP_FIRST && c->field->id < FIELD_EXP_FIRST + RENDER_EXP_COUNT &&
           c->type != COUNTER_LABEL;
}

bool render_is_of_board(const struct field_info *field)
{
    if (field->id >= FIELD_EXP_FIRST) // an instance has XIDs and clock events of its own
        return field->id == FIELD_EXP_HEALTH || field->id == FIELD_EXP_P2P;
    return field->level != FIELD_LEVEL_GPU_I && field->level != FIELD_LEVEL_GPU_CI;
}

// dcgm-exporter knows these two by their names alone; a board that is shown once has no pods.
bool render_is_per_process(const struct render_input *in, const struct counter *c)
{
    const struct exporter_options *o = in->config->options;
    return in->usage && in->pod_value && o->flags.virtual_gpus && !o->mig_board_once &&
           c->type != COUNTER_LABEL &&
           (c->field->id == FIELD_GPU_UTIL || c->field->id == FIELD_FB_USED);
}

#define BIT(group) (uint8_t)(1u << RENDER_GROUP_##group)
#define PARTS (uint8_t)(BIT(SWITCH) | BIT(LINK) | BIT(CPU) | BIT(CORE))

// dcgm-exporter's rule: a group has the fields of its level and the global ones, switches have
// those of links and CPUs those of cores as well.
static void set_groups(struct render_device_family *f)
{
    switch ((enum field_level)f->field->level) {
    case FIELD_LEVEL_NONE:
        f->groups = BIT(GPU);
        f->shared = PARTS;
        break;
    case FIELD_LEVEL_GPU:
    case FIELD_LEVEL_VGPU:
    case FIELD_LEVEL_GPU_I:
    case FIELD_LEVEL_GPU_CI:
        f->groups = BIT(GPU);
        break;
    case FIELD_LEVEL_SWITCH:
        f->groups = BIT(SWITCH);
        break;
    case FIELD_LEVEL_LINK:
        f->groups = BIT(LINK);
        f->shared = BIT(SWITCH);
        break;
    case FIELD_LEVEL_CPU:
        f->groups = BIT(CPU);
        break;
    case FIELD_LEVEL_CPU_CORE:
        f->groups = BIT(CORE);
        f->shared = BIT(CPU);
        break;
    case FIELD_LEVEL_CONNECTX: // no group has them
        break;
    }
}

static struct render_span span_since(const struct render_layout *l, size_t start)
{
    return (struct render_span){(uint32_t)start, (uint32_t)(l->text.len - start)};
}

static void add_family(struct render_layout *l, const struct render_input *in,
                       const struct counter *c)
{
    const struct field_info *field = c->field;
    struct render_device_family *f = &l->families[l->family_count++];
    *f = (struct render_device_family){
        .field = field,
        .slots = device_view_slots(in->view, field->id),
        .horizon_ns = inventory_horizon_ns(in->config->period_ns[field->cost]),
        .board = render_is_of_board(field),
        .label = c->type == COUNTER_LABEL,
        .exp = render_is_exp(c),
        .process = render_is_per_process(in, c),
    };
    set_groups(f);
    size_t start = l->text.len;
    if (!f->label)
        text_add_family(&l->text, l->format, sv_from(c->name), type_of(c, l->format),
                        sv_from(c->help));
    f->header = span_since(l, start);
    start = l->text.len;
    buf_add_str(&l->text, c->name);
    f->name = span_since(l, start);
    for (int group = 0; group < RENDER_GROUP_COUNT; group++) {
        f->first_code[group] = (uint32_t)l->code_count;
        if (render_has_group(f->groups | f->shared, group))
            l->code_count +=
                group == RENDER_GROUP_GPU ? render_samples_of(l, f)->count : l->groups[group].count;
    }
}

static int add_families(struct render_layout *l, const struct render_input *in)
{
    const struct counter_list *counters = &in->config->counters;
    int r =
        render_make_room(&l->families, &l->family_capacity, counters->count, sizeof(*l->families));
    if (r < 0)
        return r;
    for (size_t i = 0; i < counters->count; i++)
        add_family(l, in, &counters->rows[i]);
    if (l->text.error)
        return l->text.error;
    if (l->code_count > LIMIT_PAGE_SAMPLES)
        return -EFBIG;
    r = render_make_room(&l->codes, &l->code_capacity, l->code_count, sizeof(*l->codes));
    if (r < 0)
        return r;
    memset(l->codes, RENDER_CODE_UNSEEN, l->code_count);
    return 0;
}

// --- All ---

static void reset(struct render_layout *l)
{
    struct buf *texts[] = {&l->text,      &l->gpu_text,   &l->health_text,
                           &l->pods_text, &l->about_text, &l->field_text};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        texts[i]->max = LIMIT_PAGE_BYTES;
        buf_reset(texts[i]);
    }
    l->valid = false;
    l->ledger.valid = l->node.valid = false;
    for (size_t i = 0; i < RENDER_GROUP_COUNT; i++) {
        l->groups[i].count = 0;
        l->listed[i] = false;
        l->selection_errors[i][0] = '\0';
    }
    l->board.count = l->process.count = 0;
    for (size_t i = 0; i < RENDER_EXP_COUNT; i++)
        l->exp[i].count = 0;
    l->family_count = l->code_count = l->gpu_lines = l->health_lines = l->pods_lines = 0;
    l->duplicates = l->copies_dropped = 0;
    l->gpu_signature = l->health_signature = l->pods_signature = 0;
    l->field_stale = true;
}

int render_layout_build(struct render_layout *l, const struct render_input *in,
                        const struct render_key *key)
{
    reset(l);
    int r = render_samples_build(l, in);
    if (r == 0)
        r = add_families(l, in);
    if (r == 0)
        r = render_about_build(l, in);
    if (r < 0)
        return r;
    render_self_build(l);
    if (l->text.error)
        return l->text.error;
    l->key = *key;
    l->valid = true;
    return 0;
}
