// SPDX-License-Identifier: Apache-2.0
// From what the source tells of the GPUs' time (USAGE frames), who holds which device and whose
// process is whose, to the ledger. An engine: it asks for a pid's pod through a function.
//
//   process -> pod UID, container id (kube/process_map) -> names (pod_metadata) -> container
// A pod whose UID no source of metadata knows is named by elimination: if of the holders of a
// device exactly one pod has no UID yet and exactly one unknown UID runs there, they are the same;
// kept until either is gone. A process that stays unnamed is nobody's, so what it does is
// unattributed. The exporter's own pod and process are nobody.
#pragma once

#include "exporter/attribute.h"
#include "exporter/device_view.h"
#include "exporter/ledger.h"
#include "exporter/pod_metadata.h"
#include "kube/process_map.h"

struct usage;
struct usage_config {
    struct ledger *ledger;               // fed
    const struct pod_metadata *metadata; // NULL: none
    // What is known of a pid; NULL: pids mean nothing here (no hostPID, no -k).
    bool (*find)(void *user, uint32_t pid, struct process_identity *out);
    void *user;
    // For how long what find told of a process is taken as it was, while the driver lists the pid
    // without a break: another process that gets the number cannot be on the device in the next
    // frame already. 0: asked with each frame.
    uint64_t look_ns;
    const char *own_namespace, *own_pod; // "" unknown; left out of the holders
};
int must_use usage_new(const struct usage_config *config, struct usage **out);
void usage_free(struct usage *u);
// The devices as view.primary lists them; call after each change of its layout. 0, -ENOMEM.
int must_use usage_set_devices(struct usage *u, const struct device_view *view, uint64_t now_ns);
// Who holds what, index i is view.primary->entities[i]; offered: in how many replicas each is
// offered (0 unknown), or NULL. rows NULL: nobody is known to hold anything. 0, -ENOMEM.
int must_use usage_set_owners(struct usage *u, const struct device_view *view,
                              const struct pod_devices *rows,
                              const struct attribute_result *holders, const uint32_t *offered,
                              uint64_t now_ns);
// A USAGE frame of NVML's source, or (field DCGM_FI_PROF_GR_ENGINE_ACTIVE of instances without GPM)
// a SAMPLE frame of DCGM's. Anything else is left alone. 0, -ENOMEM.
int must_use usage_take(struct usage *u, const struct device_view *view, enum device_source source,
                        const struct frame *frame);

// Per-process numbers as dcgm-exporter's shared mode wants them (its families GPU_UTIL and
// FB_USED): of the last USAGE frame, by device and pod UID.
struct usage_pod_value {
    uint32_t sm_percent; // sum over its processes, last sample of each
    uint64_t memory_mib; // sum of each process's MiB, cut
    bool sm_known, memory_known;
};
bool usage_pod_value(const struct usage *u, size_t entity, const char *pod_uid,
                     struct usage_pod_value *out);

struct usage_stats {
    size_t processes;      // on all devices
    size_t unnamed_pods;   // UIDs that no name is known of
    size_t host_processes; // of no pod
    size_t undeclared;     // containers that run on a device they do not hold
    size_t disagreements;  // devices held by one and used by another
    bool mps_hidden;       // an MPS server runs and none of its clients is listed
    uint64_t frames;
};
void usage_get_stats(const struct usage *u, struct usage_stats *out);
