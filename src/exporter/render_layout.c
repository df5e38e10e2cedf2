// SPDX-License-Identifier: Apache-2.0
// Which samples a page has, worked out when devices, holders or the configuration change.
//
// A line is the family's name, a sample's labels and a number. Names are kept once a family and
// labels once a sample, not once a line: that is all the constant text there is, small enough to
// stay in the processor's cache, where a text of its own for each line would be as large as the
// page.
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/map.h"
#include "exporter/render_internal.h"

#define NO_SLOT UINT32_MAX

void render_layout_deinit(struct render_layout *l)
{
    buf_deinit(&l->text);
    buf_deinit(&l->gpu_text);
    buf_deinit(&l->about_text);
    buf_deinit(&l->field_text);
    for (size_t i = 0; i < RENDER_EXP_COUNT; i++)
        free(l->exp[i].items);
    free(l->own.items);
    free(l->board.items);
    free(l->families);
    free(l->codes);
    free(l->shown);
}

// Room for count items of size bytes in *items; what was in it is lost. 0, -ENOMEM.
static int make_room(void *items, size_t *capacity, size_t count, size_t size)
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

// --- Samples ---

struct work {
    struct render_layout *layout;
    const struct render_input *in;
    struct render_labels labels;
    size_t *chosen; // positions in inventory.entities, in output order
    size_t chosen_count;
    bool exp[RENDER_EXP_COUNT]; // counters of dcgm-exporter's own that are asked for
    bool *board_done;           // per entity: the GPU stands in the board list
    uint32_t *seen;             // open-addressed: sample position + 1, by its labels
    size_t seen_slots;          // power of two
};

static void work_deinit(struct work *w)
{
    render_labels_deinit(&w->labels);
    free(w->chosen);
    free(w->board_done);
    free(w->seen);
}

static struct sv span_text(const struct render_layout *l, struct render_span s)
{
    return (struct sv){l->text.data + s.at, s.bytes};
}

static int seen_grow(struct work *w, const struct render_samples *list)
{
    size_t slots = w->seen_slots ? w->seen_slots * 2 : 64;
    uint32_t *seen = calloc(slots, sizeof(*seen));
    if (!seen)
        return -ENOMEM;
    for (size_t i = 0; i < list->count; i++) {
        size_t at = map_hash(span_text(w->layout, list->items[i].labels)) & (slots - 1);
        while (seen[at])
            at = (at + 1) & (slots - 1);
        seen[at] = (uint32_t)i + 1;
    }
    free(w->seen);
    w->seen = seen;
    w->seen_slots = slots;
    return 0;
}

// 1: another sample of the list has these labels; 0; -ENOMEM.
static int seen_before(struct work *w, const struct render_samples *list, struct render_span labels)
{
    if (list->count * 2 >= w->seen_slots) {
        int r = seen_grow(w, list);
        if (r < 0)
            return r;
    }
    struct sv text = span_text(w->layout, labels);
    size_t at = map_hash(text) & (w->seen_slots - 1);
    for (; w->seen[at]; at = (at + 1) & (w->seen_slots - 1))
        if (sv_equals(text, span_text(w->layout, list->items[w->seen[at] - 1].labels)))
            return 1;
    w->seen[at] = (uint32_t)list->count + 1; // where the caller puts it
    return 0;
}

static int samples_push(struct render_samples *list, const struct render_sample *sample)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 16;
        struct render_sample *items = realloc(list->items, capacity * sizeof(*items));
        if (!items)
            return -ENOMEM;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *sample;
    return 0;
}

static int exp_push(struct render_exp_samples *list, const struct render_exp_sample *sample)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 16;
        struct render_exp_sample *items = realloc(list->items, capacity * sizeof(*items));
        if (!items)
            return -ENOMEM;
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = *sample;
    return 0;
}

// The same subject once more for each of dcgm-exporter's own counters that are asked for and whose
// list this is.
static int add_exp_samples(struct work *w, const struct render_samples *list,
                           struct render_subject subject)
{
    struct render_layout *l = w->layout;
    for (size_t i = 0; i < RENDER_EXP_COUNT; i++) {
        uint16_t field = (uint16_t)(FIELD_EXP_FIRST + i);
        bool board = w->in->config->options->mig_board_once &&
                     (field == FIELD_EXP_HEALTH || field == FIELD_EXP_P2P);
        if (!w->exp[i] || list != (board ? &l->board : &l->own))
            continue;
        struct render_places places = {0};
        struct render_exp_sample s = {.labels.at = (uint32_t)l->text.len};
        subject.extras = render_exp_labels(field);
        render_labels_add(&w->labels, &subject, &l->text, &places);
        if (l->text.error)
            return l->text.error;
        s.labels.bytes = (uint32_t)l->text.len - s.labels.at;
        memcpy(s.at, places.extras, sizeof(s.at));
        int r = exp_push(&l->exp[i], &s);
        if (r < 0)
            return r;
    }
    return 0;
}

static int add_sample(struct work *w, struct render_samples *list, size_t entity,
                      const struct render_owner *owner, const char *job)
{
    struct render_layout *l = w->layout;
    const struct inventory_entity *e = &w->in->view->primary->entities[entity];
    struct render_sample s = {
        .entity = (uint32_t)entity,
        .gpu = e->info.parent,
        .labels.at = (uint32_t)l->text.len,
    };
    const struct render_subject subject = {
        .entity = e,
        .gpu = render_gpu_of(w->in->view->primary, e),
        .owner = owner,
        .job = job,
    };
    struct render_places places;
    render_labels_add(&w->labels, &subject, &l->text, &places);
    s.split = places.split;
    if (l->text.error)
        return l->text.error;
    s.labels.bytes = (uint32_t)l->text.len - s.labels.at;
    int r = seen_before(w, list, s.labels);
    if (r < 0)
        return r;
    if (r > 0) {
        l->text.len = s.labels.at;
        l->duplicates++;
        return 0;
    }
    r = samples_push(list, &s);
    return r == 0 ? add_exp_samples(w, list, subject) : r;
}

// One copy a job, or one without; *copies bounds them all together.
static int add_jobs(struct work *w, struct render_samples *list, size_t entity,
                    const struct render_owner *owner, size_t *copies)
{
    const struct render_owners *owners = w->in->owners;
    const struct render_jobs none = {0};
    const struct render_jobs *jobs = owners && owners->jobs ? &owners->jobs[entity] : &none;
    size_t count = jobs->count > 0 ? jobs->count : 1;
    for (size_t i = 0; i < count; i++) {
        if (*copies >= LIMIT_ENTITY_COPIES) {
            w->layout->copies_dropped += count - i;
            return 0;
        }
        ++*copies;
        int r = add_sample(w, list, entity, owner, jobs->count > 0 ? jobs->names[i] : NULL);
        if (r < 0)
            return r;
    }
    return 0;
}

static struct render_owner owner_of(const struct render_owners *owners,
                                    const struct attribute_holder *h, bool replica)
{
    const struct pod_device *row = &owners->rows->rows[h->row];
    struct render_owner o = {row->namespace_name, row->pod, row->container, {0}, NULL};
    if (owners->metadata)
        o.metadata = pod_metadata_find(owners->metadata, row->namespace_name, row->pod);
    if (replica)
        o.vgpu = h->vgpu;
    return o;
}

// An entity and its copies. With --kubernetes-virtual-gpus each holder has a copy and the entity
// itself goes; dcgm-exporter excepts GPU_UTIL and FB_USED, where a holder's copy shows what its
// processes use. Without numbers per process there is nothing else to show, so these two are copied
// like all others.
static int add_entity(struct work *w, struct render_samples *list, size_t entity)
{
    const struct exporter_options *o = w->in->config->options;
    const struct render_owners *owners = w->in->owners;
    const struct attribute_device_holders nobody = {0};
    const struct attribute_device_holders *held = &nobody;
    if (owners && owners->rows && owners->holders && entity < owners->holders->device_count)
        held = &owners->holders->devices[entity];
    const struct attribute_holder *holders =
        held->count > 0 ? &owners->holders->holders[held->first] : NULL;
    struct render_owner owner = {0};
    size_t copies = 0;
    if (o->flags.virtual_gpus && held->count > 0) {
        for (size_t i = 0; i < held->count; i++) {
            owner = owner_of(owners, &holders[i], true);
            int r = add_jobs(w, list, entity, &owner, &copies);
            if (r < 0)
                return r;
        }
        return 0;
    }
    bool last = o->shared_owner == SHARED_OWNER_LAST;
    if (held->pods == 1 || (held->count > 0 && last))
        owner = owner_of(owners, &holders[held->count - 1], false);
    if (held->pods == 1 && held->containers > 1 && !last)
        owner.container = ""; // the pod's, and no single container's
    return add_jobs(w, list, entity, &owner, &copies);
}

// --mig-board-fields=once: the GPU of each chosen entity, once; unowned if it was not chosen
// itself.
static int add_board(struct work *w, size_t entity)
{
    struct render_samples *list = &w->layout->board;
    uint32_t gpu = w->in->view->primary->entities[entity].info.parent;
    if (w->board_done[gpu])
        return 0;
    w->board_done[gpu] = true;
    for (size_t i = 0; i < w->chosen_count; i++)
        if (w->chosen[i] == gpu)
            return add_entity(w, list, gpu);
    size_t copies = 0;
    return add_jobs(w, list, gpu, &(struct render_owner){0}, &copies);
}

// --- Selection ---

// Whether an entity before this one would have the same labels: such a list is nonsense, and a page
// with it would be refused whole. The first one counts.
static bool is_twin(const struct inventory *inv, size_t entity)
{
    const struct frame_entity *e = &inv->entities[entity].info;
    const struct frame_entity *gpu = &inv->entities[e->parent].info;
    for (size_t i = 0; i < entity; i++) {
        const struct frame_entity *other = &inv->entities[i].info;
        const struct frame_entity *other_gpu = &inv->entities[other->parent].info;
        bool same = e->kind == FRAME_ENTITY_GPU || other->gpu_instance_id == e->gpu_instance_id;
        if (same && other->kind == e->kind && other_gpu->index == gpu->index &&
            strcmp(other_gpu->uuid, gpu->uuid) == 0)
            return true;
    }
    return false;
}

// Which entities podgpu_gpu_* shows: the chosen ones and their GPUs; all when something that was
// asked for is missing.
static void fill_shown(const struct work *w, bool all)
{
    const struct inventory *inv = w->in->view->primary;
    bool *shown = w->layout->shown;
    for (size_t i = 0; i < inv->entity_count; i++)
        shown[i] = all && !is_twin(inv, i);
    for (size_t i = 0; i < w->chosen_count; i++) {
        shown[w->chosen[i]] = true;
        shown[inv->entities[w->chosen[i]].info.parent] = true;
    }
}

static void drop_twins(struct work *w)
{
    const struct inventory *inv = w->in->view->primary;
    size_t kept = 0;
    for (size_t i = 0; i < w->chosen_count; i++) {
        size_t entity = w->chosen[i];
        if (is_twin(inv, entity) || is_twin(inv, inv->entities[entity].info.parent))
            w->layout->duplicates++;
        else
            w->chosen[kept++] = entity;
    }
    w->chosen_count = kept;
}

// Chooses entities by -d. An id that was asked for and is not there leaves none, and the reason.
static int choose(struct work *w)
{
    const struct inventory *inv = w->in->view->primary;
    cleanup(mem_freep) struct selection_device *devices =
        calloc(inv->entity_count + 1, sizeof(*devices));
    w->chosen = calloc(inv->entity_count + 1, sizeof(*w->chosen));
    w->board_done = calloc(inv->entity_count + 1, sizeof(*w->board_done));
    if (!devices || !w->chosen || !w->board_done)
        return -ENOMEM;
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct frame_entity *e = &inv->entities[i].info;
        bool instance = e->kind == FRAME_ENTITY_GPU_I;
        devices[i] = (struct selection_device){
            instance, instance ? e->instance_entity_id : e->index, e->parent};
    }
    struct error err = ERROR_INIT;
    int r = selection_apply(&w->in->config->options->gpus, devices, inv->entity_count, w->chosen,
                            &w->chosen_count, &err);
    if (r == -ENOMEM)
        return r;
    if (r < 0) {
        w->chosen_count = 0;
        sv_copy(w->layout->selection_error, sizeof(w->layout->selection_error), sv_from(err.text));
    }
    drop_twins(w);
    fill_shown(w, r < 0);
    return 0;
}

static bool is_exp(const struct counter *c)
{
    return c->field->id >= FIELD_EXP_FIRST && c->field->id < FIELD_EXP_FIRST + RENDER_EXP_COUNT &&
           c->type != COUNTER_LABEL;
}

// Whether samples are the GPU's: --mig-board-fields=once shows them once.
static bool is_of_board(const struct counter *c)
{
    if (is_exp(c)) // an instance has XIDs and clock events of its own
        return c->field->id == FIELD_EXP_HEALTH || c->field->id == FIELD_EXP_P2P;
    return c->field->level != FIELD_LEVEL_GPU_I && c->field->level != FIELD_LEVEL_GPU_CI;
}

static void note_exp(struct work *w)
{
    const struct counter_list *counters = &w->in->config->counters;
    for (size_t i = 0; i < counters->count; i++)
        if (is_exp(&counters->rows[i]))
            w->exp[counters->rows[i].field->id - FIELD_EXP_FIRST] = true;
}

static int add_samples(struct work *w)
{
    note_exp(w);
    int r = choose(w);
    for (size_t i = 0; r == 0 && i < w->chosen_count; i++)
        r = add_entity(w, &w->layout->own, w->chosen[i]);
    if (!w->in->config->options->mig_board_once)
        return r;
    w->seen_slots = 0;
    free(TAKE_PTR(w->seen));
    for (size_t i = 0; r == 0 && i < w->chosen_count; i++)
        r = add_board(w, w->chosen[i]);
    return r;
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

static bool is_elsewhere(const struct field_info *field)
{
    switch ((enum field_level)field->level) {
    case FIELD_LEVEL_SWITCH:
    case FIELD_LEVEL_LINK:
    case FIELD_LEVEL_CPU:
    case FIELD_LEVEL_CPU_CORE:
    case FIELD_LEVEL_CONNECTX:
        return true;
    case FIELD_LEVEL_NONE:
    case FIELD_LEVEL_GPU:
    case FIELD_LEVEL_VGPU:
    case FIELD_LEVEL_GPU_I:
    case FIELD_LEVEL_GPU_CI:
        break;
    }
    return false;
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
    size_t slot = inventory_field_index(in->view->primary, field->id);
    *f = (struct render_device_family){
        .field = field,
        .slot = slot == SIZE_MAX ? NO_SLOT : (uint32_t)slot,
        .horizon_ns = inventory_horizon_ns(in->config->period_ns[field->cost]),
        .board = is_of_board(c),
        .label = c->type == COUNTER_LABEL,
        .exp = is_exp(c),
        .elsewhere = is_elsewhere(field),
    };
    size_t start = l->text.len;
    if (!f->label)
        text_add_family(&l->text, l->format, sv_from(c->name), type_of(c, l->format),
                        sv_from(c->help));
    f->header = span_since(l, start);
    start = l->text.len;
    buf_add_str(&l->text, c->name);
    f->name = span_since(l, start);
    f->first_code = (uint32_t)l->code_count;
    l->code_count += render_samples_of(l, f)->count;
}

static int add_families(struct render_layout *l, const struct render_input *in)
{
    const struct counter_list *counters = &in->config->counters;
    int r = make_room(&l->families, &l->family_capacity, counters->count, sizeof(*l->families));
    if (r < 0)
        return r;
    for (size_t i = 0; i < counters->count; i++)
        add_family(l, in, &counters->rows[i]);
    if (l->text.error)
        return l->text.error;
    if (l->code_count > LIMIT_PAGE_SAMPLES)
        return -EFBIG;
    r = make_room(&l->codes, &l->code_capacity, l->code_count, sizeof(*l->codes));
    if (r < 0)
        return r;
    memset(l->codes, RENDER_CODE_UNSEEN, l->code_count);
    return 0;
}

// --- All ---

static void reset(struct render_layout *l)
{
    struct buf *texts[] = {&l->text, &l->gpu_text, &l->about_text, &l->field_text};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        texts[i]->max = LIMIT_PAGE_BYTES;
        buf_reset(texts[i]);
    }
    l->valid = false;
    l->own.count = l->board.count = 0;
    for (size_t i = 0; i < RENDER_EXP_COUNT; i++)
        l->exp[i].count = 0;
    l->family_count = l->code_count = l->gpu_lines = 0;
    l->duplicates = l->copies_dropped = 0;
    l->selection_error[0] = '\0';
    l->gpu_signature = 0;
    l->field_stale = true;
}

int render_layout_build(struct render_layout *l, const struct render_input *in,
                        const struct render_key *key)
{
    reset(l);
    struct work w = {.layout = l, .in = in};
    int r = make_room(&l->shown, &l->shown_capacity, in->view->primary->entity_count,
                      sizeof(*l->shown));
    if (r == 0)
        r = render_labels_init(&w.labels, in);
    if (r == 0)
        r = add_samples(&w);
    work_deinit(&w);
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
