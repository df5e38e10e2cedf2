// SPDX-License-Identifier: Apache-2.0
// The GPUs and MIG GPU instances of the node as the exporter will see them: a GPU, then its
// instances, then the next GPU. One list is alive at a time; a walk makes the next one, and what is
// still there keeps its running state (GPM samples, rate bases).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "gpu/frame.h"
#include "source/nvml_gpm.h"
#include "source/nvml_library.h"
#include "source/nvml_nvlink.h"

struct nvml_entity {
    struct frame_entity record; // as it is sent
    nvmlDevice_t device; // GPU: its handle, NULL when there is none; instance: handle of its first
                         // compute instance
    bool mig_capable;    // GPU: nvmlDeviceGetMigMode answers
    bool xid_armed;      // GPU: its XID events are registered
    bool reset_seen;     // GPU: a call has said RESET_REQUIRED since the last walk
    struct nvml_gpm gpm;
    struct nvml_rates rates; // GPU only
};

struct nvml_devices {
    struct nvml_entity *list;           // owned
    uint32_t count;                     // <= LIMIT_ENTITIES
    uint32_t gpus;                      // of them
    uint32_t generation;                // of the list as last announced
    uint64_t skipped;                   // bit per NVML index: never called
    const char *const *skipped_bus_ids; // of those by NVML index, NULL: not known; or NULL
};

// All GPUs anew, after nvml_init. What cannot be asked keeps its place and, when it was known at
// that index before, its identity. *out_changed: the records differ from those before.
// NVML_SUCCESS, or why the count cannot be had (the list is then as before). -ENOMEM is told as
// NVML_ERROR_MEMORY.
nvmlReturn_t nvml_devices_enumerate(struct nvml *n, struct nvml_devices *d, bool *out_changed);
// The MIG layout of each GPU again, and whether each is still itself. GPUs that are not UP are
// asked once whether they are back. As above.
nvmlReturn_t nvml_devices_walk(struct nvml *n, struct nvml_devices *d, bool *out_changed);
// A call told that the GPU of this entity is lost (LOST) or needs a reset (RESET_REQUIRED), all of
// them fail (FAILED), or one answers (UP, which ends FAILED alone): it and its instances change
// state. True when this is news.
bool nvml_devices_mark(struct nvml_devices *d, uint32_t entity, enum frame_entity_state state);
// Forgets handles and frees samples, keeps the records (state LOST): for nvmlShutdown, before it.
void nvml_devices_release(struct nvml *n, struct nvml_devices *d);
void nvml_devices_deinit(struct nvml *n, struct nvml_devices *d);

// The GPU with this handle, or this NVML index: its place in the list, or UINT32_MAX.
uint32_t nvml_devices_find(const struct nvml_devices *d, nvmlDevice_t device);
uint32_t nvml_devices_find_index(const struct nvml_devices *d, uint32_t index);
// Or fail; false when there is none.
bool nvml_devices_all_lost(const struct nvml_devices *d);
bool nvml_devices_any_lost(const struct nvml_devices *d);
static inline bool nvml_entity_is_gpu(const struct nvml_entity *e)
{
    return e->record.kind == FRAME_ENTITY_GPU;
}

// Whether a result speaks of the library or the driver as a whole, so that other calls will fail so
// as well: shut down, unloaded, replaced.
bool nvml_result_is_of_library(nvmlReturn_t result);
// What a call's result says of the whole GPU: LOST, RESET_REQUIRED, or UP when it says nothing.
enum frame_entity_state nvml_state_of(nvmlReturn_t result);
