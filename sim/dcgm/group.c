// SPDX-License-Identifier: Apache-2.0
// Groups of entities and of fields. Names are unique in the engine, and there is room for 64 of
// each.
#include "double.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct group *group_find(struct connection *at, dcgmGpuGrp_t id)
{
    for (unsigned i = 0; i < MAX_GROUPS; i++) {
        if (at->groups[i].used && at->groups[i].id == id)
            return &at->groups[i];
    }
    return NULL;
}

struct field_group *field_group_find(struct connection *at, dcgmFieldGrp_t id)
{
    for (unsigned i = 0; i < MAX_GROUPS; i++) {
        if (at->field_groups[i].used && at->field_groups[i].id == id)
            return &at->field_groups[i];
    }
    return NULL;
}

void groups_free(struct connection *at)
{
    for (unsigned i = 0; i < MAX_GROUPS; i++)
        free(at->groups[i].list);
}

static int group_add(struct group *g, int entity, unsigned int id)
{
    for (uint32_t i = 0; i < g->count; i++) {
        if (g->list[i].entityGroupId == entity && g->list[i].entityId == id)
            return ST_BADPARAM; // already there
    }
    if (g->count == (DCGM_MAJOR == 4 ? 1024u : 64u))
        return ST_MAX_LIMIT;
    dcgmGroupEntityPair_t *list = realloc(g->list, (g->count + 1) * sizeof(*list));
    if (!list)
        return ST_MEMORY;
    g->list = list;
    list[g->count++] = (dcgmGroupEntityPair_t){entity, id};
    return ST_OK;
}

static dcgmReturn_t check_name(const char *name)
{
    return name && name[0] && strlen(name) < 256 ? ST_OK : ST_BADPARAM;
}

API(dcgmGroupCreate, dcgmHandle_t handle, int type, const char *name, dcgmGpuGrp_t *out)
{
    CALL_AT(handle);
    NEED(out && type >= 0 && type <= 5 && check_name(name) == ST_OK);
    struct group *slot = NULL;
    for (unsigned i = 0; i < MAX_GROUPS; i++) {
        struct group *g = &c.at->groups[i];
        if (g->used && strcmp(g->name, name) == 0)
            return ST_DUPLICATE_KEY;
        if (!g->used && !slot)
            slot = g;
    }
    if (!slot)
        return ST_MAX_LIMIT;
    *slot = (struct group){.used = true, .id = c.at->next_id++};
    (void)snprintf(slot->name, sizeof(slot->name), "%s", name);
    unsigned int ids[SIM_MAX_GPUS];
    uint32_t count =
        type == GROUP_DEFAULT ? entity_list(c.node, SIM_ENTITY_GPU, c.t, ids, SIM_MAX_GPUS) : 0;
    for (uint32_t i = 0; i < count; i++)
        (void)group_add(slot, SIM_ENTITY_GPU, ids[i]);
    *out = slot->id;
    return ST_OK;
}

API(dcgmGroupDestroy, dcgmHandle_t handle, dcgmGpuGrp_t id)
{
    CALL_AT(handle);
    struct group *g = group_find(c.at, id);
    if (!g)
        return ST_NOT_CONFIGURED;
    watches_drop(c.at, id, 0);
    free(g->list);
    *g = (struct group){0};
    return ST_OK;
}

API(dcgmGroupAddEntity, dcgmHandle_t handle, dcgmGpuGrp_t id, int entity, unsigned int entity_id)
{
    CALL_AT(handle);
    struct group *g = group_find(c.at, id);
    if (!g)
        return ST_NOT_CONFIGURED;
    struct target target;
    if (entity != FE_NONE && target_find(c.node, entity, entity_id, c.t, &target) != 0)
        return ST_BADPARAM;
    return group_add(g, entity, entity_id);
}

API(dcgmFieldGroupCreate, dcgmHandle_t handle, int count, const unsigned short *fields,
    const char *name, dcgmFieldGrp_t *out)
{
    CALL_AT(handle);
    NEED(out && fields && count >= 1 && count <= MAX_FIELDS_OF_GROUP && check_name(name) == ST_OK);
    for (int i = 0; i < count; i++) {
        if (!field_find(fields[i]))
            return ST_UNKNOWN_FIELD;
    }
    struct field_group *slot = NULL;
    for (unsigned i = 0; i < MAX_GROUPS; i++) {
        struct field_group *g = &c.at->field_groups[i];
        if (g->used && strcmp(g->name, name) == 0)
            return ST_DUPLICATE_KEY;
        if (!g->used && !slot)
            slot = g;
    }
    if (!slot)
        return ST_MAX_LIMIT;
    *slot = (struct field_group){.used = true, .id = c.at->next_id++, .count = (uint32_t)count};
    memcpy(slot->fields, fields, (size_t)count * sizeof(fields[0]));
    (void)snprintf(slot->name, sizeof(slot->name), "%s", name);
    *out = slot->id;
    return ST_OK;
}

API(dcgmFieldGroupDestroy, dcgmHandle_t handle, dcgmFieldGrp_t id)
{
    CALL_AT(handle);
    struct field_group *g = field_group_find(c.at, id);
    if (!g)
        return ST_NO_DATA;
    watches_drop(c.at, 0, id);
    *g = (struct field_group){0};
    return ST_OK;
}
