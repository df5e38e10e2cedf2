// SPDX-License-Identifier: Apache-2.0
// Private to dcgm_health.c, dcgm_verdicts.c, dcgm_peers.c and dcgm_xids.c.
#pragma once

#include "source/dcgm_group.h"
#include "source/dcgm_health.h"

// DCGM 3 takes 64 entities in a group, DCGM 4 more.
#define DCGM_GROUP_ENTITIES 64
#define XID_GROUPS                                                                                 \
    (LIMIT_GPUS * 17 / DCGM_GROUP_ENTITIES) // GPUs, 8 instances and 8 compute
                                            // instances each
#define XID_PENDING 64                      // kinds of events in one frame

// An entity whose XIDs are looked at, by what it is rather than by the engine's id.
struct xid_mark {
    char uuid[96]; // of the GPU
    uint32_t gpu;  // its id, which counts where it has no UUID
    uint32_t gpu_instance_id, compute_instance_id;
    uint8_t group;
    bool begun;       // up to here is what the engine had before us
    int64_t last_us;  // newest sample, told
    uint32_t at_last; // samples of that time, told
    uint32_t seen;    // of them, in this look
};

struct xid_pending {
    uint32_t gpu; // DCGM id: lists change while events wait
    struct frame_event event;
};

struct xid_told {
    int64_t ts_us;
    uint32_t gpu, gpu_instance_id, xid, place;
};

struct dcgm_xids {
    dcgmGpuGrp_t groups[XID_GROUPS];
    uint32_t group_count;
    dcgmFieldGrp_t fields;
    bool watched;
    uint64_t members;       // what the groups hold, as a hash
    char address[128];      // of the engine that the marks are of
    struct xid_mark *marks; // owned
    uint32_t mark_count;
    uint32_t *by_place;  // mark of each entity of the list, UINT32_MAX: none; owned
    uint32_t generation; // of that list
    int64_t newest_us;   // sample of all, by the engine's clock
    struct xid_pending pending[XID_PENDING];
    uint32_t pending_count;
    bool more;                         // there was no room for all
    struct xid_told told[XID_PENDING]; // of instances, the newest, round and round
    unsigned told_count;
};

struct dcgm_health {
    struct dcgm *d;
    struct dcgm_devices *v;
    // The wish, and what was made of it
    bool wants_verdicts, wants_peers, applied, broken;
    uint64_t gpus, medium_ns, slow_ns;
    uint32_t generation;
    dcgmGpuGrp_t group; // of the verdicts, 0: none
    uint64_t members;   // of it, as a hash, and the period
    struct dcgm_xids xids;
    uint64_t verdicts_ns, peers_ns, xids_ns; // due
    uint64_t again_ns; // what the engine did not have is asked for again; UINT64_MAX: nothing
    uint64_t wait_ns;  // until then, which doubles
};

// A group of these entities, which are places in the list; 0 with *out.
dcgmReturn_t dcgm_health_make_group(struct dcgm_health *h, const uint32_t *places, uint32_t count,
                                    dcgmGpuGrp_t *out);

// Places of entities that are asked for health: GPUs alone, or with their instances. Returns how
// many; out has room for the whole list.
uint32_t dcgm_health_members(const struct dcgm_health *h, bool instances, uint64_t gpus,
                             uint32_t *out);
// Equal for lists of the same entities.
uint64_t dcgm_health_hash(const struct dcgm_health *h, const uint32_t *places, uint32_t count);

// What stands in the engine already and is the same is left alone; else the new is made before the
// old is taken away, so that the engine keeps what it knows of those in both. NO_DATA: there are no
// GPUs.
dcgmReturn_t dcgm_verdicts_set(struct dcgm_health *h);
void dcgm_verdicts_unset(struct dcgm_health *h);
dcgmReturn_t dcgm_verdicts_read(struct dcgm_health *h, struct buf *out);
// For tests: the table that incidents make. Returns how many rows; out has room for count.
uint32_t dcgm_verdicts_of(const struct dcgm_devices *v, const dcgmIncidentInfo_t *incidents,
                          uint32_t count, struct frame_verdict *out);

dcgmReturn_t dcgm_peers_read(struct dcgm_health *h, struct buf *out);

dcgmReturn_t dcgm_xids_set(struct dcgm_health *h);
void dcgm_xids_unset(struct dcgm_health *h);
void dcgm_xids_forget(struct dcgm_xids *x);
void dcgm_xids_deinit(struct dcgm_xids *x);
dcgmReturn_t dcgm_xids_read(struct dcgm_health *h, struct buf *out);
