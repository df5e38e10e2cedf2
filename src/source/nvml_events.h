// SPDX-License-Identifier: Apache-2.0
// XID and MIG events of the driver. It queues them for each registered client and forgets what came
// before.
#pragma once

#include "source/nvml_devices.h"
#include "source/xid_board.h"

// Zeroed: no set.
struct nvml_events {
    nvmlEventSet_t set;
    bool armed;             // XID events of at least one GPU are registered
    bool first_generation;  // nvmlEventSetWait_v2 is not to be had
    bool second_generation; // it has answered
    unsigned failures;      // in a row
};

// What a poll found beside XIDs, as bits.
enum nvml_events_found {
    NVML_EVENTS_MIG_CHANGED = 1,
    NVML_EVENTS_GPU_LOST = 2,      // some GPU: all need a look
    NVML_EVENTS_UNINITIALIZED = 4, // as if the library or the driver were gone
    NVML_EVENTS_MORE = 8,          // there may be more: poll again soon
};

// Registers what GPUs are not registered yet; each GPU's xid_armed says whether it is.
void nvml_events_arm(struct nvml *n, struct nvml_events *ev, struct nvml_devices *d);
// Takes what is queued, without waiting; XIDs go to the board. Bits of enum nvml_events_found.
unsigned nvml_events_poll(struct nvml *n, struct nvml_events *ev, struct nvml_devices *d,
                          struct xid_board *board);
// Before nvmlShutdown.
void nvml_events_disarm(struct nvml *n, struct nvml_events *ev, struct nvml_devices *d);
// A GPU whose events are registered is lost: a wait on such a set says nothing else any more, so it
// is to be made anew (disarm, arm) without that GPU.
bool nvml_events_is_spoilt(const struct nvml_devices *d);
