// SPDX-License-Identifier: Apache-2.0
// Of which devices a page has samples: --devices, --switch-devices and --cpu-devices applied to the
// devices that there are.
#include <errno.h>
#include <stdlib.h>

#include "exporter/render_internal.h"

void render_choice_deinit(struct render_choice *c)
{
    for (size_t i = 0; i < RENDER_GROUP_COUNT; i++)
        free(c->at[i]);
    free(c->link_gpus);
    *c = (struct render_choice){0};
}

static void add(struct render_choice *out, enum render_group group, size_t at)
{
    out->at[group][out->count[group]++] = (uint32_t)at;
}

static bool is_gpu_or_instance(const struct frame_entity *e)
{
    return e->kind == FRAME_ENTITY_GPU || e->kind == FRAME_ENTITY_GPU_I;
}

// --- GPUs and instances ---

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
static int fill_shown(struct render_layout *l, const struct inventory *inv,
                      const struct render_choice *c)
{
    int r = render_make_room(&l->shown, &l->shown_capacity, inv->entity_count, sizeof(*l->shown));
    if (r < 0)
        return r;
    bool all = l->selection_errors[RENDER_GROUP_GPU][0] != '\0';
    for (size_t i = 0; i < inv->entity_count; i++)
        l->shown[i] = all && is_gpu_or_instance(&inv->entities[i].info) && !is_twin(inv, i);
    for (size_t i = 0; i < c->count[RENDER_GROUP_GPU]; i++) {
        uint32_t at = c->at[RENDER_GROUP_GPU][i];
        l->shown[at] = true;
        l->shown[inv->entities[at].info.parent] = true;
    }
    return 0;
}

// An id that was asked for and is not there leaves none, and the reason.
static int choose_gpus(struct render_layout *l, const struct render_input *in,
                       struct render_choice *out)
{
    const struct inventory *inv = in->view->primary;
    cleanup(mem_freep) size_t *chosen = calloc(inv->entity_count + 1, sizeof(*chosen));
    if (!chosen)
        return -ENOMEM;
    struct error err = ERROR_INIT;
    size_t count = 0;
    int r = inventory_select_gpus(inv, &in->config->options->gpus, chosen, &count, &err);
    if (r == -ENOMEM)
        return r;
    if (r < 0)
        sv_copy(l->selection_errors[RENDER_GROUP_GPU], sizeof(l->selection_errors[0]),
                sv_from(err.text));
    for (size_t i = 0; i < count; i++) {
        size_t at = chosen[i];
        if (is_twin(inv, at) || is_twin(inv, inv->entities[at].info.parent))
            l->duplicates++;
        else
            add(out, RENDER_GROUP_GPU, at);
    }
    l->listed[RENDER_GROUP_GPU] =
        inv->entity_count > 0 && inv->entities[0].info.kind == FRAME_ENTITY_GPU;
    return fill_shown(l, inv, out);
}

// --- Switches, links, CPUs and cores ---

static enum render_group group_of(enum frame_entity_kind kind)
{
    switch (kind) {
    case FRAME_ENTITY_SWITCH:
        return RENDER_GROUP_SWITCH;
    case FRAME_ENTITY_LINK:
        return RENDER_GROUP_LINK;
    case FRAME_ENTITY_CPU:
        return RENDER_GROUP_CPU;
    case FRAME_ENTITY_CPU_CORE:
        return RENDER_GROUP_CORE;
    case FRAME_ENTITY_GPU:
    case FRAME_ENTITY_GPU_I:
    case FRAME_ENTITY_GPU_CI:
    case FRAME_ENTITY_KIND_END:
        break;
    }
    return RENDER_GROUP_GPU;
}

static void add_links_of(const struct inventory *dcgm, const struct inventory_entity *owner,
                         uint32_t gpu, struct render_choice *out)
{
    for (size_t i = 0; i < dcgm->entity_count; i++) {
        const struct frame_entity *e = &dcgm->entities[i].info;
        if (e->kind != FRAME_ENTITY_LINK || &dcgm->entities[e->parent] != owner)
            continue;
        out->link_gpus[out->count[RENDER_GROUP_LINK]] = gpu;
        add(out, RENDER_GROUP_LINK, i);
    }
}

// Links of the GPUs that the page has, in their order. Not with an id of -d missing.
static void choose_gpu_links(const struct render_layout *l, const struct render_input *in,
                             struct render_choice *out)
{
    const struct inventory *primary = in->view->primary;
    if (l->selection_errors[RENDER_GROUP_GPU][0] != '\0')
        return;
    for (size_t i = 0; i < primary->entity_count; i++) {
        const struct frame_entity *e = &primary->entities[i].info;
        if (e->kind != FRAME_ENTITY_GPU || is_twin(primary, i) ||
            !selection_has_gpu_links(&in->config->options->gpus, e->index))
            continue;
        const struct inventory_entity *gpu = device_view_entity(in->view, i, DEVICE_SOURCE_DCGM);
        if (gpu)
            add_links_of(in->view->sources[DEVICE_SOURCE_DCGM], gpu, (uint32_t)i, out);
    }
}

// One flag's devices: wholes and parts of them.
struct part_kinds {
    enum selection_kind kind;
    enum frame_entity_kind whole, part;
};

static bool is_candidate(const struct inventory *dcgm, const struct part_kinds *k, size_t at)
{
    const struct frame_entity *e = &dcgm->entities[at].info;
    return e->kind == k->whole ||
           (e->kind == k->part && dcgm->entities[e->parent].info.kind == k->whole);
}

static void say_missing(struct render_layout *l, const struct part_kinds *k,
                        const struct selection_missing *missing)
{
    sv_copy(l->selection_errors[group_of(k->whole)], sizeof(l->selection_errors[0]),
            sv_from(missing->owner));
    sv_copy(l->selection_errors[group_of(k->part)], sizeof(l->selection_errors[0]),
            sv_from(missing->part));
}

// What selection sees of them.
struct part_list {
    struct selection_part *parts;
    uint32_t *places;  // in DCGM's inventory
    uint32_t *numbers; // the other way
    bool *chosen;
    size_t count;
};

static void part_list_deinit(struct part_list *p)
{
    free(p->parts);
    free(p->places);
    free(p->numbers);
    free(p->chosen);
}

static int part_list_init(struct part_list *p, const struct inventory *dcgm,
                          const struct part_kinds *k)
{
    size_t most = dcgm->entity_count + 1;
    p->parts = calloc(most, sizeof(*p->parts));
    p->places = calloc(most, sizeof(*p->places));
    p->numbers = calloc(most, sizeof(*p->numbers));
    p->chosen = calloc(most, sizeof(*p->chosen));
    if (!p->parts || !p->places || !p->numbers || !p->chosen)
        return -ENOMEM;
    for (size_t i = 0; i < dcgm->entity_count; i++) {
        const struct frame_entity *e = &dcgm->entities[i].info;
        if (!is_candidate(dcgm, k, i))
            continue;
        p->numbers[i] = (uint32_t)p->count;
        p->places[p->count] = (uint32_t)i;
        p->parts[p->count++] =
            (struct selection_part){e->kind == k->part, e->id, p->numbers[e->parent]};
    }
    return 0;
}

// Before DCGM has listed its devices nothing is missing yet.
static int choose_parts(struct render_layout *l, const struct render_input *in,
                        const struct part_kinds *k, struct render_choice *out)
{
    const struct inventory *dcgm = in->view->sources[DEVICE_SOURCE_DCGM];
    const struct exporter_options *o = in->config->options;
    cleanup(part_list_deinit) struct part_list p = {0};
    int r = part_list_init(&p, dcgm, k);
    if (r < 0)
        return r;
    struct selection_missing missing;
    selection_apply_parts(k->kind == SELECTION_SWITCHES ? &o->switches : &o->cpus, k->kind, p.parts,
                          p.count, p.chosen, &missing);
    if (inventory_is_connected(dcgm) && dcgm->generation > 0)
        say_missing(l, k, &missing);
    for (size_t i = 0; i < p.count; i++) {
        enum render_group group = group_of(p.parts[i].is_part ? k->part : k->whole);
        if (!p.chosen[i])
            continue;
        if (group == RENDER_GROUP_LINK)
            out->link_gpus[out->count[group]] = UINT32_MAX;
        add(out, group, p.places[i]);
    }
    return 0;
}

static int choose_all_parts(struct render_layout *l, const struct render_input *in,
                            struct render_choice *out)
{
    static const struct part_kinds kinds[] = {
        {SELECTION_SWITCHES, FRAME_ENTITY_SWITCH, FRAME_ENTITY_LINK},
        {SELECTION_CPUS, FRAME_ENTITY_CPU, FRAME_ENTITY_CPU_CORE},
    };
    const struct inventory *dcgm = in->view->sources[DEVICE_SOURCE_DCGM];
    size_t most = dcgm->entity_count + 1;
    out->link_gpus = calloc(most, sizeof(*out->link_gpus));
    if (!out->link_gpus)
        return -ENOMEM;
    for (int group = RENDER_GROUP_SWITCH; group < RENDER_GROUP_COUNT; group++) {
        out->at[group] = calloc(most, sizeof(*out->at[group]));
        if (!out->at[group])
            return -ENOMEM;
    }
    for (size_t i = 0; i < dcgm->entity_count; i++)
        l->listed[group_of((enum frame_entity_kind)dcgm->entities[i].info.kind)] = true;
    choose_gpu_links(l, in, out);
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        int r = choose_parts(l, in, &kinds[i], out);
        if (r < 0)
            return r;
    }
    return 0;
}

int render_choose(struct render_layout *l, const struct render_input *in, struct render_choice *out)
{
    *out = (struct render_choice){0};
    out->at[RENDER_GROUP_GPU] =
        calloc(in->view->primary->entity_count + 1, sizeof(*out->at[RENDER_GROUP_GPU]));
    if (!out->at[RENDER_GROUP_GPU])
        return -ENOMEM;
    int r = choose_gpus(l, in, out);
    return r == 0 && in->view->sources[DEVICE_SOURCE_DCGM] ? choose_all_parts(l, in, out) : r;
}
