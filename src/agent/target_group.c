// SPDX-License-Identifier: Apache-2.0
#include "agent/target_group.h"

#include <stdlib.h>

struct target_group *target_group_new(size_t capacity, size_t max_bytes)
{
    struct target_group *g = calloc(1, sizeof(*g));
    if (!g)
        return NULL;
    g->refs = 1;
    g->arena = ARENA_INIT(max_bytes);
    g->capacity = capacity;
    size_t bytes;
    if (capacity == 0)
        return g;
    if (!__builtin_mul_overflow(capacity, sizeof(*g->targets), &bytes))
        g->targets = arena_alloc(&g->arena, bytes);
    for (size_t i = 0; g->targets && i < capacity; i++)
        labels_init(&g->targets[i], &g->arena);
    if (!g->targets) {
        target_group_unref(g);
        return NULL;
    }
    return g;
}

struct labels *target_group_add(struct target_group *g, size_t label_count)
{
    if (g->count == g->capacity)
        return NULL;
    struct labels *l = &g->targets[g->count];
    size_t bytes;
    if (label_count && !__builtin_mul_overflow(label_count, sizeof(*l->items), &bytes)) {
        l->items = arena_alloc(&g->arena, bytes);
        if (!l->items)
            return NULL;
        l->capacity = label_count;
    }
    g->count++;
    return l;
}

struct target_group *target_group_ref(struct target_group *g)
{
    g->refs++;
    return g;
}

void target_group_unref(struct target_group *g)
{
    if (!g || --g->refs > 0)
        return;
    arena_deinit(&g->arena);
    free(g);
}
