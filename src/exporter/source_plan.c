// SPDX-License-Identifier: Apache-2.0
#include "exporter/source_plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// Where nv-hostengine listens when it isn't told otherwise: its --domain-socket, and TCP.
#define ENGINE_SOCKET "unix:///tmp/nv-hostengine"
#define ENGINE_ADDRESS "localhost:5555"

struct work {
    const struct exporter_options *options;
    const struct device_view *view;
    const struct inventory *nvml; // NULL while it has listed no GPU
    const struct source_plan *before;
    struct source_plan *plan;
    uint16_t *wanted; // of the configuration; ascending, each once
    size_t wanted_count;
    size_t *chosen; // entities of view->primary that --devices chose
    size_t chosen_count;
};

// --- What is wanted ---

static int compare_ids(const void *a, const void *b)
{
    uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
    return (x > y) - (x < y);
}

// The field that a row of the counters file is made from.
static uint16_t field_of(const struct counter *c)
{
    switch (c->field->id) {
    case FIELD_EXP_XID_COUNT:
    case FIELD_EXP_XID_TOTAL:
        return FIELD_XID_ERRORS;
    case FIELD_EXP_CLOCK_COUNT:
    case FIELD_EXP_CLOCK_TOTAL:
        return FIELD_CLOCKS_EVENT_REASONS;
    default:
        return c->field->id;
    }
}

// What podgpu's own families are made from (render_health.c).
static const uint16_t own_fields[] = {FIELD_CLOCKS_EVENT_REASONS, FIELD_RECOVERY_ACTION};

// The driver's utilisation samples are of whole GPUs, so the ledger knows of an instance's busy
// time by GPM, or where the GPU has none by DCGM's field.
static bool ledger_wants_field(const struct work *w)
{
    const struct inventory *inv = w->view->primary;
    if (w->options->podgpu_families == PODGPU_FAMILIES_NONE)
        return false;
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct frame_entity *e = &inv->entities[i].info;
        if (e->kind == FRAME_ENTITY_GPU_I && !inv->entities[e->parent].info.gpm && !e->gpm)
            return true;
    }
    return false;
}

static int collect(struct work *w, const struct counter_list *counters)
{
    size_t count = counters->count;
    w->wanted = calloc(count + ARRAY_SIZE(own_fields) + 1, sizeof(*w->wanted));
    if (!w->wanted)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        w->wanted[i] = field_of(&counters->rows[i]);
    if (w->options->podgpu_families != PODGPU_FAMILIES_NONE)
        for (size_t i = 0; i < ARRAY_SIZE(own_fields); i++)
            w->wanted[count++] = own_fields[i];
    if (ledger_wants_field(w))
        w->wanted[count++] = FIELD_PROF_GR_ENGINE_ACTIVE;
    qsort(w->wanted, count, sizeof(*w->wanted), compare_ids);
    for (size_t i = 0; i < count; i++)
        if (w->wanted_count == 0 || w->wanted[w->wanted_count - 1] != w->wanted[i])
            w->wanted[w->wanted_count++] = w->wanted[i];
    return 0;
}

// --- Which devices ---

static int choose(struct work *w)
{
    const struct inventory *inv = w->view->primary;
    w->chosen = calloc(inv->entity_count + 1, sizeof(*w->chosen));
    if (!w->chosen)
        return -ENOMEM;
    struct error err = ERROR_INIT;
    int r = inventory_select_gpus(inv, &w->options->gpus, w->chosen, &w->chosen_count, &err);
    // A GPU that was asked for is not there: no GPU is shown.
    return r == -ENOMEM ? r : 0;
}

// --- What DCGM is needed for ---

static bool is_beside_gpus(const struct field_info *f)
{
    return f->level == FIELD_LEVEL_SWITCH || f->level == FIELD_LEVEL_LINK ||
           f->level == FIELD_LEVEL_CPU || f->level == FIELD_LEVEL_CPU_CORE;
}

static bool fields_have(const uint16_t *fields, size_t count, uint16_t id)
{
    return count > 0 && bsearch(&id, fields, count, sizeof(*fields), compare_ids) != NULL;
}

static bool was_asked(const struct work *w, uint16_t id)
{
    const struct source_plan *b = w->before;
    return b && fields_have(b->fields[DEVICE_SOURCE_DCGM], b->field_count[DEVICE_SOURCE_DCGM], id);
}

static bool is_need(enum frame_status s)
{
    return s == FRAME_NEEDS_DCGM || s == FRAME_NEEDS_GPM;
}

static enum frame_status nvml_status(const struct work *w, size_t entity, uint16_t id)
{
    return inventory_field_status(w->nvml, &w->nvml->entities[entity], id);
}

// What some GPU needs; or needed before, and none says anything else.
static bool gpus_need(const struct work *w, uint16_t id)
{
    bool contradicted = false;
    for (size_t i = 0; w->nvml && i < w->chosen_count; i++) {
        enum frame_status s = nvml_status(w, w->chosen[i], id);
        if (is_need(s))
            return true;
        contradicted = contradicted || (s != FRAME_NO_DATA && s != FRAME_LOST);
    }
    return !contradicted && was_asked(w, id);
}

// Nothing of ConnectX is on a page, and bytes are no number.
static bool dcgm_is_needed(const struct work *w, uint16_t id)
{
    if (id >= FIELD_EXP_FIRST)
        return id == FIELD_EXP_HEALTH;
    const struct field_info *f = field_find(id);
    if (!f || f->level == FIELD_LEVEL_CONNECTX || f->type == FIELD_BINARY)
        return false;
    return is_beside_gpus(f) || gpus_need(w, id);
}

// Whether NVML has said that it is not to be had here, so that -r is the way there is.
static bool nvml_is_missing(const struct work *w)
{
    const struct inventory *nvml = w->view->sources[DEVICE_SOURCE_NVML];
    return nvml && nvml->state_known && nvml->state.code != FRAME_STATE_READY && !w->nvml;
}

static bool wants_all_of_dcgm(const struct work *w)
{
    return w->options->source == SOURCE_CHOICE_DCGM ||
           (w->options->flags.remote_hostengine_given && nvml_is_missing(w));
}

// --- Lists ---

static int give_all(struct work *w, enum device_source source, uint16_t but)
{
    struct source_plan *p = w->plan;
    uint16_t *fields = calloc(w->wanted_count + 1, sizeof(*fields));
    if (!fields)
        return -ENOMEM;
    for (size_t i = 0; i < w->wanted_count; i++)
        if (w->wanted[i] != but)
            fields[p->field_count[source]++] = w->wanted[i];
    p->fields[source] = fields;
    return 0;
}

// Labels of the node as a whole (the driver's version) stand on switches and CPUs too.
static bool goes_along(uint16_t id, bool beside_gpus)
{
    const struct field_info *f = field_find(id);
    return beside_gpus && f && f->level == FIELD_LEVEL_NONE;
}

static int give_needed(struct work *w)
{
    struct source_plan *p = w->plan;
    uint16_t *fields = calloc(w->wanted_count + 1, sizeof(*fields));
    cleanup(mem_freep) bool *needed = calloc(w->wanted_count + 1, sizeof(*needed));
    if (!fields || !needed) {
        free(fields);
        return -ENOMEM;
    }
    bool beside_gpus = false, any = false;
    for (size_t i = 0; i < w->wanted_count; i++) {
        const struct field_info *f = field_find(w->wanted[i]);
        needed[i] = dcgm_is_needed(w, w->wanted[i]);
        any = any || needed[i];
        beside_gpus = beside_gpus || (needed[i] && f && is_beside_gpus(f));
    }
    size_t count = 0;
    for (size_t i = 0; any && i < w->wanted_count; i++)
        if (needed[i] || goes_along(w->wanted[i], beside_gpus))
            fields[count++] = w->wanted[i];
    p->fields[DEVICE_SOURCE_DCGM] = fields;
    p->field_count[DEVICE_SOURCE_DCGM] = count;
    p->dcgm = any;
    return 0;
}

// --- Which GPUs ---

static bool asks_every_gpu(const struct work *w)
{
    const struct source_plan *p = w->plan;
    for (size_t i = 0; i < p->field_count[DEVICE_SOURCE_DCGM]; i++) {
        const struct field_info *f = field_find(p->fields[DEVICE_SOURCE_DCGM][i]);
        if (f && (f->id == FIELD_EXP_HEALTH || f->level == FIELD_LEVEL_LINK))
            return true; // links of a GPU come with it
    }
    return false;
}

static bool entity_needs(const struct work *w, size_t entity)
{
    const struct source_plan *p = w->plan;
    for (size_t i = 0; w->nvml && i < p->field_count[DEVICE_SOURCE_DCGM]; i++) {
        uint16_t id = p->fields[DEVICE_SOURCE_DCGM][i];
        const struct field_info *f = field_find(id);
        if (f && !is_beside_gpus(f) && is_need(nvml_status(w, entity, id)))
            return true;
    }
    return false;
}

static uint64_t mask_of(const struct work *w, bool every_gpu)
{
    const struct inventory *inv = w->view->primary;
    uint64_t mask = 0;
    for (size_t i = 0; i < w->chosen_count; i++) {
        const struct inventory_entity *e = &inv->entities[w->chosen[i]];
        const struct inventory_entity *twin =
            device_view_entity(w->view, e->info.parent, DEVICE_SOURCE_DCGM);
        if (!twin || !twin->present || twin->info.index >= 64)
            continue;
        uint64_t bit = UINT64_C(1) << twin->info.index;
        bool stays = !e->up && w->before && (w->before->gpus & bit);
        if (every_gpu || stays || entity_needs(w, w->chosen[i]))
            mask |= bit;
    }
    return mask;
}

static bool selects_every_gpu(const struct selection *s)
{
    return s->flexible || s->all_gpus || s->all_instances;
}

// --- The plan ---

static void add_addresses(struct source_plan *p, const struct exporter_options *o)
{
    const struct exporter_flags *f = &o->flags;
    if (f->remote_hostengine_given) {
        p->addresses[p->address_count++] =
            f->remote_hostengine[0] ? f->remote_hostengine : ENGINE_ADDRESS;
        return;
    }
    p->addresses[p->address_count++] = ENGINE_SOCKET;
    p->addresses[p->address_count++] = ENGINE_ADDRESS;
    p->embed = true;
}

static int plan_dcgm(struct work *w)
{
    struct source_plan *p = w->plan;
    if (w->options->source == SOURCE_CHOICE_NVML)
        return 0;
    bool all = wants_all_of_dcgm(w);
    int r = all ? give_all(w, DEVICE_SOURCE_DCGM, 0) : give_needed(w);
    if (r < 0)
        return r;
    p->dcgm = p->dcgm || all;
    if (!p->dcgm)
        return 0;
    add_addresses(p, w->options);
    if (all && selects_every_gpu(&w->options->gpus))
        p->gpus = UINT64_MAX;
    else
        p->gpus = mask_of(w, all || asks_every_gpu(w));
    return 0;
}

static int make(struct work *w, const struct exporter_config *config)
{
    int r = collect(w, &config->counters);
    if (r == 0)
        r = choose(w);
    w->plan->nvml = w->options->source != SOURCE_CHOICE_DCGM;
    if (r == 0 && w->plan->nvml)
        r = give_all(w, DEVICE_SOURCE_NVML, FIELD_EXP_HEALTH);
    return r < 0 ? r : plan_dcgm(w);
}

int source_plan_make(const struct exporter_config *config, const struct device_view *view,
                     const struct source_plan *before, struct source_plan *out)
{
    struct source_plan plan = {0};
    struct work w = {.options = config->options, .view = view, .before = before, .plan = &plan};
    const struct inventory *nvml = view->sources[DEVICE_SOURCE_NVML];
    w.nvml = nvml == view->primary && nvml && nvml->entity_count > 0 ? nvml : NULL;
    int r = make(&w, config);
    free(w.wanted);
    free(w.chosen);
    if (r < 0) {
        source_plan_deinit(&plan);
        return r;
    }
    *out = plan;
    return 0;
}

void source_plan_engine_words(const struct source_plan *p, const struct exporter_flags *f,
                              const char **words)
{
    size_t n = 0;
    for (size_t i = 0; i < p->address_count; i++) {
        words[n++] = "--connect";
        words[n++] = p->addresses[i];
    }
    if (p->embed) {
        words[n++] = "--embed";
        words[n++] = "yes";
    }
    if (f->enable_dcgm_log && strcmp(f->dcgm_log_level, "NONE") != 0) {
        words[n++] = "--dcgm-log";
        words[n++] = f->dcgm_log_level;
    }
    words[n] = NULL;
}

void source_plan_deinit(struct source_plan *p)
{
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        free(p->fields[i]);
    *p = (struct source_plan){0};
}

bool source_plan_asks_same(const struct source_plan *a, const struct source_plan *b,
                           enum device_source source)
{
    size_t count = a->field_count[source];
    bool same_gpus = source != DEVICE_SOURCE_DCGM || a->gpus == b->gpus;
    return same_gpus && count == b->field_count[source] &&
           (count == 0 ||
            memcmp(a->fields[source], b->fields[source], count * sizeof(uint16_t)) == 0);
}

static bool same_engine(const struct source_plan *a, const struct source_plan *b)
{
    bool same = a->embed == b->embed && a->address_count == b->address_count;
    for (size_t i = 0; same && i < a->address_count; i++)
        same = strcmp(a->addresses[i], b->addresses[i]) == 0;
    return same;
}

bool source_plan_equals(const struct source_plan *a, const struct source_plan *b)
{
    return a->nvml == b->nvml && a->dcgm == b->dcgm && same_engine(a, b) &&
           source_plan_asks_same(a, b, DEVICE_SOURCE_NVML) &&
           source_plan_asks_same(a, b, DEVICE_SOURCE_DCGM);
}
