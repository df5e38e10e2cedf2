// SPDX-License-Identifier: Apache-2.0
// Which container was given which device: the kubelet's pod-resources List, decoded and polled.
// Source of the wire facts: the public kubelet API k8s.io/kubelet/pkg/apis/podresources/v1 (and
// v1alpha1).
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/sv.h"
#include "io/loop.h"

// One row: a device id held by a container. Strings live in the list's arena.
struct pod_device {
    const char *namespace_name;
    const char *pod;
    const char *container;
    const char *resource;  // "nvidia.com/gpu"; of a claim ""
    const char *device_id; // as the plugin named it, may end in "::replica"; of a claim the
                           // device's name in its pool
    // When its pod came, in changes of the list: a larger number is a newer pod, pods that were
    // first seen together have the same. 0 until the poller sets it.
    uint32_t since;
    // A device of a resource claim (DRA), else NULL. All of a claim's devices are listed under each
    // container that refers to it.
    const struct pod_device_claim {
        const char *name, *namespace_name;
        const char *uid;    // from the CDI name, "" unknown
        const char *driver; // "gpu.nvidia.com"
        const char *pool;
        const char *share_id; // "" none
    } * claim;
};

// An immutable answer. (pod, container, resource, id) duplicates (one per NUMA node) are dropped,
// and so are those of (pod, container, driver, pool, device, share): a container has a device once.
// Rows of a pod stand together, in wire order. The decoder keeps the pods in wire order; the poller
// puts them in the order in which they were first seen. Strings are the kubelet's bytes up to the
// first NUL, not checked for UTF-8.
struct pod_devices {
    unsigned refs;
    size_t count;
    struct pod_device *rows;
    size_t pods;    // listed, with or without devices
    size_t skipped; // wanted rows beyond LIMIT_POD_DEVICES and the other caps
    // arena, private
};
struct pod_devices *pod_devices_ref(struct pod_devices *d);
void pod_devices_unref(struct pod_devices *d);

// --- Decoder: message bytes in, rows out; no I/O ---
struct pod_resources_decoder;
// wanted decides by resource name and device id whether a row is kept; NULL: all are. Of a claim's
// device the driver's name stands for the resource: it has no '/', so no resource has it.
int must_use pod_resources_decoder_new(bool (*wanted)(void *user, struct sv resource,
                                                      struct sv device_id),
                                       void *user, struct pod_resources_decoder **out);
// The same for GetAllocatableResources: rows of nobody, which pods is 0 of.
int must_use pod_resources_decoder_new_allocatable(bool (*wanted)(void *user, struct sv resource,
                                                                  struct sv device_id),
                                                   void *user, struct pod_resources_decoder **out);
// Any split of the message. 0; -EBADMSG (malformed protobuf); -EFBIG (one pod over its cap);
// -ENOMEM. Errors stick.
int must_use pod_resources_decoder_feed(struct pod_resources_decoder *d, struct sv piece);
// End of the message: 0 and the list (one reference), -EBADMSG when it was cut short.
int must_use pod_resources_decoder_finish(struct pod_resources_decoder *d,
                                          struct pod_devices **out);
void pod_resources_decoder_free(struct pod_resources_decoder *d);

// --- Poller ---
struct pod_resources_stats {
    uint64_t polls;
    uint64_t failures;
    uint64_t rate_limited;
    uint64_t reconnect_shorts; // answers after a kubelet restart in which rows were missing that
                               // were kept
    uint64_t last_ok_ns;       // CLOCK_MONOTONIC of the last good answer, 0: none yet
    uint64_t last_duration_ns;
    // GetAllocatableResources, asked every 10 s: device ids that the plugins offer and that are
    // wanted. A resource that goes as a whole (its plugin or the kubelet restarts) is kept for
    // restart_grace_ns. NULL: not answered yet, or too long ago.
    const struct pod_devices
        *allocatable; // pod, container and namespace ""; borrowed until the loop goes on
    uint64_t allocatable_version; // another whenever it has changed
    int last_result; // of the last poll: 0 or negative errno (-EREMOTEIO: the kubelet answered with
                     // an error)
    unsigned last_grpc_status;
    bool socket_seen; // the socket file was there at the last look
    char last_error[160];
};

struct pod_resources_config {
    const char *socket_path;   // "/var/lib/kubelet/pod-resources/kubelet.sock"
    uint64_t interval_ns;      // between polls, which come at its multiples on CLOCK_MONOTONIC
    uint64_t deadline_ns;      // of a call
    uint64_t max_age_ns;       // how long the last good list is kept over failures (60 s)
    uint64_t restart_grace_ns; // how long rows that vanish right after a reconnect are kept (30 s)
    bool (*wanted)(void *user, struct sv resource, struct sv device_id);
    // A new list that differs from the last one, or NULL when it became too old to be trusted.
    // The reference belongs to the poller; ref it to keep it. Must not free the poller.
    void (*changed)(void *user, struct pod_devices *devices);
    void *user;
};

struct pod_resources;
int must_use pod_resources_new(struct loop *l, const struct pod_resources_config *config,
                               struct pod_resources **out);
void pod_resources_get_stats(const struct pod_resources *p, struct pod_resources_stats *out);
// Asks now (an unknown device was seen), unless a poll is under way or the last began under 200 ms
// ago.
void pod_resources_kick(struct pod_resources *p);
void pod_resources_free(struct pod_resources *p);
