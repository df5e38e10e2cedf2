// SPDX-License-Identifier: Apache-2.0
// What an engine has: GPUs, MIG instances and compute instances, NVSwitches, links that are up,
// Grace CPUs and their cores, as records of an ENTITIES frame with the DCGM entity behind each.
#pragma once

#include "source/dcgm_library.h"

struct dcgm_entity {
    struct frame_entity record;
    uint8_t group;         // DCGM_FE_*
    uint32_t id;           // DCGM entity id; of a link dcgm_link_t.raw
    uint32_t gpu_mask_bit; // GPU id that frame_watch.gpus is asked for; UINT32_MAX: none (switches,
                           // their links, CPUs, cores)
};

struct dcgm_devices {
    struct dcgm_entity *list; // GPUs with their instances and compute instances, switches, links,
                              // CPUs, cores; owned
    uint32_t count, capacity; // <= LIMIT_ENTITIES; what is over is left out, and logged once
    uint32_t generation;
    uint64_t skipped; // bit per GPU id that is left alone (--skip)
};

void dcgm_devices_deinit(struct dcgm_devices *v);
// Asks for everything anew. 0 with *changed; a result when the engine as a whole did not answer
// (the list is then as before); DCGM_ST_MEMORY. What an engine or library lacks (no switches, no
// dcgmGetCpuHierarchy) is no failure.
dcgmReturn_t dcgm_devices_walk(struct dcgm *d, struct dcgm_devices *v, bool *changed);
// Place of a DCGM entity in the list, UINT32_MAX: none. By binary search or map: called per value.
uint32_t dcgm_devices_find(const struct dcgm_devices *v, int group, uint32_t id);
