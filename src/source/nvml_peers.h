// SPDX-License-Identifier: Apache-2.0
// Peer-to-peer over NVLink between GPUs, as nvmlDeviceGetP2PStatus tells it
// (NVML_P2P_CAPS_INDEX_NVLINK): asked of each ordered pair each slow period while
// DCGM_EXP_P2P_STATUS is watched. A round of calls is cut into slices, so that eight GPUs with
// their 56 pairs do not hold up samples.
#pragma once

#include "base/buf.h"
#include "gpu/catalogue.h"
#include "source/nvml_devices.h"

struct nvml_peers {
    uint64_t period_ns;        // 0: not wanted
    uint64_t due_ns;           // UINT64_MAX: nothing
    struct buf rows;           // struct frame_peer of the round under way
    uint32_t gpus[LIMIT_GPUS]; // of the round: places in the list
    uint32_t gpu_count;
    uint32_t at; // pair to ask next, first * gpu_count + second
    bool under_way;
};

void nvml_peers_init(struct nvml_peers *p);
void nvml_peers_deinit(struct nvml_peers *p);
// What is watched now; due at once.
void nvml_peers_watch(struct nvml_peers *p, const struct frame_watch *watch,
                      const uint16_t *field_ids, uint64_t now_ns);
// The list or its handles are new: a round under way is given up, one is due at once.
void nvml_peers_reset(struct nvml_peers *p, uint64_t now_ns);
static inline uint64_t nvml_peers_due_ns(const struct nvml_peers *p)
{
    return p->due_ns;
}
// One slice, when due. True: the round is done, and frame (reset before) holds the PEERS frame.
// GPUs that are not up, and pairs whose call fails, are left out. Without the function there is no
// frame until the next reset.
bool nvml_peers_read(struct nvml_peers *p, struct nvml *n, const struct nvml_devices *d,
                     struct buf *frame);
