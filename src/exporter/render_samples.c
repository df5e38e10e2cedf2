// SPDX-License-Identifier: Apache-2.0
// Which samples each family of a group has: the chosen devices, with copies for their holders and
// jobs.
#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/map.h"
#include "exporter/render_internal.h"

struct work {
    struct render_layout *layout;
    const struct render_input *in;
    struct render_labels labels;
    struct render_choice choice;
    bool exp[RENDER_EXP_COUNT]; // counters of dcgm-exporter's own that are asked for
    bool *board_done;           // per entity: the GPU stands in the board list
    uint32_t *seen;             // open-addressed: sample position + 1, by its labels
    size_t seen_slots;          // power of two
};

static void work_deinit(struct work *w)
{
    render_labels_deinit(&w->labels);
    render_choice_deinit(&w->choice);
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

// Room for one more item of size bytes in *items.
static int reserve(void *items, size_t *capacity, size_t count, size_t size)
{
    void **at = items;
    if (count < *capacity)
        return 0;
    size_t more = *capacity ? *capacity * 2 : 16;
    void *fresh = realloc(*at, more * size);
    if (!fresh)
        return -ENOMEM;
    *at = fresh;
    *capacity = more;
    return 0;
}

static int samples_push(struct render_samples *list, const struct render_sample *sample)
{
    int r = reserve(&list->items, &list->capacity, list->count, sizeof(*sample));
    if (r == 0)
        list->items[list->count++] = *sample;
    return r;
}

static int exp_push(struct render_exp_samples *list, const struct render_exp_sample *sample)
{
    int r = reserve(&list->items, &list->capacity, list->count, sizeof(*sample));
    if (r == 0)
        list->items[list->count++] = *sample;
    return r;
}

// The same subject once more for each of dcgm-exporter's own counters that are asked for and whose
// list this is.
static int add_exp_samples(struct work *w, const struct render_samples *list,
                           struct render_subject subject)
{
    struct render_layout *l = w->layout;
    for (size_t i = 0; i < RENDER_EXP_COUNT; i++) {
        uint16_t field = (uint16_t)(FIELD_EXP_FIRST + i);
        bool board =
            w->in->config->options->mig_board_once && render_is_of_board(field_find(field));
        if (!w->exp[i] || list != (board ? &l->board : &l->groups[RENDER_GROUP_GPU]))
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

// A device to be put into a list.
struct target {
    enum render_group group;
    uint32_t entity;  // as in struct render_sample
    uint32_t gpu;     // likewise
    uint32_t holders; // whose count, in view.primary; UINT32_MAX: nobody holds it
};

static struct render_subject subject_of(const struct render_input *in, const struct target *t)
{
    const struct device_view *v = in->view;
    const struct inventory *inv =
        t->group == RENDER_GROUP_GPU ? v->primary : v->sources[DEVICE_SOURCE_DCGM];
    const struct inventory_entity *e = &inv->entities[t->entity];
    bool gpu_link = t->group == RENDER_GROUP_LINK && t->gpu != UINT32_MAX;
    return (struct render_subject){
        .group = t->group,
        .at = t->entity,
        .entity = e,
        .whole = gpu_link ? &v->primary->entities[t->gpu] : &inv->entities[e->info.parent],
    };
}

static int add_sample(struct work *w, struct render_samples *list, const struct target *t,
                      const struct render_owner *owner, const char *job)
{
    struct render_layout *l = w->layout;
    struct render_sample s = {
        .entity = t->entity,
        .gpu = t->gpu,
        .labels.at = (uint32_t)l->text.len,
        .of_pod = owner->uid != NULL,
    };
    struct render_subject subject = subject_of(w->in, t);
    subject.owner = owner;
    subject.job = job;
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
    if (s.of_pod) {
        s.uid = (struct render_span){(uint32_t)l->text.len, (uint32_t)strlen(owner->uid) + 1};
        buf_add(&l->text, owner->uid, s.uid.bytes);
    }
    r = l->text.error ? l->text.error : samples_push(list, &s);
    return r == 0 ? add_exp_samples(w, list, subject) : r;
}

// One copy a job, or one without; *copies bounds them all together.
static int add_jobs(struct work *w, struct render_samples *list, const struct target *t,
                    const struct render_owner *owner, size_t *copies)
{
    const struct render_owners *owners = w->in->owners;
    const struct render_jobs none = {0};
    const struct render_jobs *jobs =
        owners && owners->jobs && t->holders != UINT32_MAX ? &owners->jobs[t->holders] : &none;
    size_t count = jobs->count > 0 ? jobs->count : 1;
    for (size_t i = 0; i < count; i++) {
        if (*copies >= LIMIT_ENTITY_COPIES) {
            w->layout->copies_dropped += count - i;
            return 0;
        }
        ++*copies;
        int r = add_sample(w, list, t, owner, jobs->count > 0 ? jobs->names[i] : NULL);
        if (r < 0)
            return r;
    }
    return 0;
}

static struct render_owner owner_of(const struct render_owners *owners,
                                    const struct attribute_holder *h, bool replica)
{
    const struct pod_device *row = &owners->rows->rows[h->row];
    struct render_owner o = {
        .namespace_name = row->namespace_name, .pod = row->pod, .container = row->container};
    if (owners->metadata)
        o.metadata = pod_metadata_find(owners->metadata, row->namespace_name, row->pod);
    if (replica)
        o.vgpu = h->vgpu;
    return o;
}

// Who holds the device of a target.
struct held {
    const struct render_owners *owners;
    const struct attribute_holder *holders;
    size_t count, pods, containers;
};

static struct held held_by(const struct work *w, const struct target *t)
{
    const struct render_owners *owners = w->in->owners;
    if (!owners || !owners->rows || !owners->holders || t->holders >= owners->holders->device_count)
        return (struct held){.owners = owners};
    const struct attribute_device_holders *d = &owners->holders->devices[t->holders];
    return (struct held){
        .owners = owners,
        .holders = d->count > 0 ? &owners->holders->holders[d->first] : NULL,
        .count = d->count,
        .pods = d->pods,
        .containers = d->containers,
    };
}

// Copies of --kubernetes-virtual-gpus, one for each id held.
static int add_copies(struct work *w, struct render_samples *list, const struct target *t,
                      const struct held *held, size_t *copies)
{
    int r = 0;
    for (size_t i = 0; i < held->count && r == 0; i++) {
        struct render_owner owner = owner_of(held->owners, &held->holders[i], true);
        r = add_jobs(w, list, t, &owner, copies);
    }
    return r;
}

static bool same_container(const struct pod_device *a, const struct pod_device *b)
{
    return strcmp(a->container, b->container) == 0 && strcmp(a->pod, b->pod) == 0 &&
           strcmp(a->namespace_name, b->namespace_name) == 0;
}

// Copies of --kubernetes-enable-dra: one for each container that has the device by a claim. Rows of
// a container stand together.
static int add_claims(struct work *w, struct render_samples *list, const struct target *t,
                      const struct held *held, size_t *copies)
{
    const struct pod_device *before = NULL;
    for (size_t i = 0; i < held->count; i++) {
        const struct attribute_holder *h = &held->holders[i];
        const struct pod_device *row = &held->owners->rows->rows[h->row];
        if (!row->claim || (before && same_container(before, row)))
            continue;
        struct render_owner owner = owner_of(held->owners, h, false);
        owner.claimed = before = row;
        owner.mig_profile = h->mig_profile;
        owner.mig_uuid = h->mig_uuid;
        int r = add_jobs(w, list, t, &owner, copies);
        if (r < 0)
            return r;
    }
    return 0;
}

// The same for claims of a GPU's instances that are not known: they stand on the GPU's own samples,
// as all claims of instances do in dcgm-exporter.
static int add_parts(struct work *w, struct render_samples *list, const struct target *t,
                     const struct held *held, size_t *copies)
{
    const struct attribute_result *r = held->owners ? held->owners->holders : NULL;
    for (size_t i = 0; r && i < r->part_count; i++) {
        const struct attribute_part *p = &r->parts[i];
        if (p->device != t->holders)
            continue;
        struct render_owner owner =
            owner_of(held->owners, &(struct attribute_holder){.row = p->row}, false);
        owner.claimed = &held->owners->rows->rows[p->row];
        owner.mig_profile = p->mig_profile;
        owner.mig_uuid = p->mig_uuid;
        int error = add_jobs(w, list, t, &owner, copies);
        if (error < 0)
            return error;
    }
    return 0;
}

// An entity and its copies, in whose place the entity itself goes. dcgm-exporter excepts GPU_UTIL
// and FB_USED from --kubernetes-virtual-gpus: add_process. Without numbers per process these two
// are copied like all others.
static int add_entity(struct work *w, struct render_samples *list, const struct target *t)
{
    const struct exporter_options *o = w->in->config->options;
    const struct held found = held_by(w, t), *held = &found;
    const struct render_owners *owners = held->owners;
    const struct attribute_holder *holders = held->holders;
    struct render_owner owner = {0};
    size_t copies = 0;
    if (o->flags.virtual_gpus && held->count > 0)
        return add_copies(w, list, t, held, &copies);
    if (o->flags.enable_dra && !o->flags.virtual_gpus) {
        int r = add_claims(w, list, t, held, &copies);
        if (r == 0)
            r = add_parts(w, list, t, held, &copies);
        if (r < 0 || copies > 0)
            return r;
    }
    bool last = o->shared_owner == SHARED_OWNER_LAST;
    if (held->pods == 1 || (held->count > 0 && last))
        owner = owner_of(owners, &holders[held->count - 1], false);
    if (held->pods == 1 && held->containers > 1 && !last)
        owner.container = ""; // the pod's, and no single container's
    return add_jobs(w, list, t, &owner, &copies);
}

// GPU_UTIL and FB_USED of --kubernetes-virtual-gpus: the device itself, then one for each id held,
// whose value is that of the pod's processes, and which has the pod's UID though it be unknown.
static int add_process(struct work *w, const struct target *t)
{
    struct render_samples *list = &w->layout->process;
    const struct held held = held_by(w, t);
    struct render_owner owner = {0};
    size_t copies = 0;
    int r = add_jobs(w, list, t, &owner, &copies);
    for (size_t i = 0; i < held.count && r == 0; i++) {
        owner = owner_of(held.owners, &held.holders[i], true);
        owner.uid = held.owners->metadata
                        ? pod_metadata_uid(held.owners->metadata, owner.namespace_name, owner.pod)
                        : "";
        r = add_jobs(w, list, t, &owner, &copies);
    }
    return r;
}

// --mig-board-fields=once: the GPU of each chosen entity, once; unowned if it was not chosen
// itself.
static int add_board(struct work *w, size_t entity)
{
    struct render_samples *list = &w->layout->board;
    const struct render_choice *c = &w->choice;
    uint32_t gpu = w->in->view->primary->entities[entity].info.parent;
    const struct target t = {RENDER_GROUP_GPU, gpu, gpu, gpu};
    if (w->board_done[gpu])
        return 0;
    w->board_done[gpu] = true;
    for (size_t i = 0; i < c->count[RENDER_GROUP_GPU]; i++)
        if (c->at[RENDER_GROUP_GPU][i] == gpu)
            return add_entity(w, list, &t);
    size_t copies = 0;
    return add_jobs(w, list, &t, &(struct render_owner){0}, &copies);
}

static void begin_list(struct work *w)
{
    w->seen_slots = 0;
    free(TAKE_PTR(w->seen));
}

static int add_boards(struct work *w)
{
    const struct render_choice *c = &w->choice;
    int r = 0;
    if (!w->in->config->options->mig_board_once)
        return 0;
    w->board_done = calloc(w->in->view->primary->entity_count + 1, sizeof(*w->board_done));
    if (!w->board_done)
        return -ENOMEM;
    begin_list(w);
    for (size_t i = 0; r == 0 && i < c->count[RENDER_GROUP_GPU]; i++)
        r = add_board(w, c->at[RENDER_GROUP_GPU][i]);
    return r;
}

// A link of a GPU is held by who holds the GPU; nobody holds a part of anything else.
static struct target target_of(const struct work *w, enum render_group group, size_t i)
{
    const struct render_choice *c = &w->choice;
    struct target t = {group, c->at[group][i], UINT32_MAX, UINT32_MAX};
    if (group == RENDER_GROUP_GPU) {
        t.gpu = w->in->view->primary->entities[t.entity].info.parent;
        t.holders = t.entity;
    } else if (group == RENDER_GROUP_LINK) {
        t.gpu = t.holders = c->link_gpus[i];
    }
    return t;
}

static int add_group(struct work *w, enum render_group group)
{
    int r = 0;
    begin_list(w);
    for (size_t i = 0; r == 0 && i < w->choice.count[group]; i++) {
        const struct target t = target_of(w, group, i);
        r = add_entity(w, &w->layout->groups[group], &t);
    }
    return r;
}

static int add_processes(struct work *w)
{
    const struct counter_list *counters = &w->in->config->counters;
    bool any = false;
    int r = 0;
    for (size_t i = 0; i < counters->count; i++)
        any = any || render_is_per_process(w->in, &counters->rows[i]);
    begin_list(w);
    size_t others = w->layout->copies_dropped;
    w->layout->copies_dropped = 0;
    for (size_t i = 0; any && r == 0 && i < w->choice.count[RENDER_GROUP_GPU]; i++) {
        const struct target t = target_of(w, RENDER_GROUP_GPU, i);
        r = add_process(w, &t);
    }
    // Counted for a family, not for all: these have a place less, for the device itself.
    if (w->layout->copies_dropped < others)
        w->layout->copies_dropped = others;
    return r;
}

static void note_exp(struct work *w)
{
    const struct counter_list *counters = &w->in->config->counters;
    for (size_t i = 0; i < counters->count; i++)
        if (render_is_exp(&counters->rows[i]))
            w->exp[counters->rows[i].field->id - FIELD_EXP_FIRST] = true;
}

int render_samples_build(struct render_layout *l, const struct render_input *in)
{
    cleanup(work_deinit) struct work w = {.layout = l, .in = in};
    int r = render_labels_init(&w.labels, in);
    note_exp(&w);
    if (r == 0)
        r = render_choose(l, in, &w.choice);
    for (int group = 0; r == 0 && group < RENDER_GROUP_COUNT; group++)
        r = add_group(&w, (enum render_group)group);
    if (r == 0)
        r = add_processes(&w);
    return r == 0 ? add_boards(&w) : r;
}
