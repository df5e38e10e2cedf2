// SPDX-License-Identifier: Apache-2.0
// --devices applied to an inventory.
#include <errno.h>
#include <stdlib.h>

#include "exporter/inventory.h"

int inventory_select_gpus(const struct inventory *inv, const struct selection *s, size_t *out,
                          size_t *out_count, struct error *err)
{
    size_t room = inv->entity_count + 1, count = 0;
    cleanup(mem_freep) struct selection_device *devices = calloc(room, sizeof(*devices));
    cleanup(mem_freep) size_t *places = calloc(room, sizeof(*places));   // of devices
    cleanup(mem_freep) size_t *numbers = calloc(room, sizeof(*numbers)); // the other way
    if (!devices || !places || !numbers)
        return -ENOMEM;
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct frame_entity *e = &inv->entities[i].info;
        bool instance = e->kind == FRAME_ENTITY_GPU_I;
        if (e->kind != FRAME_ENTITY_GPU && !instance)
            continue;
        numbers[i] = count;
        places[count] = i;
        devices[count++] = (struct selection_device){
            instance, instance ? e->instance_entity_id : e->index, numbers[e->parent]};
    }
    size_t chosen = 0;
    int r = selection_apply(s, devices, count, out, &chosen, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < chosen; i++)
        out[i] = places[out[i]];
    *out_count = chosen;
    return 0;
}
