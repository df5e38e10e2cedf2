// SPDX-License-Identifier: Apache-2.0
// What an engine has: GPUs, MIG instances and compute instances, NVSwitches, links that are up,
// Grace CPUs and their cores, as records of an ENTITIES frame with the DCGM entity behind each.
#pragma once

#include "base/buf.h"
#include "source/dcgm_library.h"

struct dcgm_entity {
    struct frame_entity record;
    uint8_t group;         // DCGM_FE_*
    uint32_t id;           // DCGM entity id; of a link dcgm_link_t.raw
    uint32_t gpu_mask_bit; // GPU id that frame_watch.gpus is asked for; UINT32_MAX: none (switches,
                           // their links, CPUs, cores)
    // Private
    uint8_t status; // GPU: DcgmEntityStatus* at the last look
};

struct dcgm_devices {
    // GPUs, each followed by its instances and those by their compute instances; switches; links,
    // of GPUs and then of switches; CPUs; cores. By id, instances as the engine lists them. Owned.
    struct dcgm_entity *list;
    uint32_t count, capacity; // <= LIMIT_ENTITIES; what is over is left out, and logged once
    uint32_t generation;      // 0: never walked
    uint64_t skipped;         // bit per GPU id that is left alone (--skip)
    char driver_version[80];  // as the engine tells it, "" unknown

    // Private
    struct dcgm_place *places; // of the list, by group and id; owned
    uint32_t walks;
    bool told_full, told_no_mig; // logged
};

void dcgm_devices_deinit(struct dcgm_devices *v);
// Asks for everything anew. 0 with *changed; a result when the engine as a whole did not answer
// (the list is then as before); DCGM_ST_MEMORY. What an engine or library lacks (no switches, no
// dcgmGetCpuHierarchy) is no failure. Names, profiles and MIG modes of what was there before are
// asked again with every twelfth walk alone.
dcgmReturn_t dcgm_devices_walk(struct dcgm *d, struct dcgm_devices *v, bool *changed);
// The engine is another one: the next walk asks for everything, since its ids may stand for others.
void dcgm_devices_forget(struct dcgm_devices *v);
// Place of a DCGM entity in the list, UINT32_MAX: none. A binary search: called per value.
uint32_t dcgm_devices_find(const struct dcgm_devices *v, int group, uint32_t id);
// The ENTITIES frame of the list, appended.
void dcgm_devices_write(const struct dcgm_devices *v, struct buf *out);
