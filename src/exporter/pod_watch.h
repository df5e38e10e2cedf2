// SPDX-License-Identifier: Apache-2.0
// Follows this node's pods at the API server, in the background, for their UIDs and labels: one
// list and one watch with the field selector spec.nodeName=$NODE_NAME (without NODE_NAME all pods
// of the cluster, as dcgm-exporter). Without access the metrics go on without; what is known stays
// while the server cannot be asked.
#pragma once

#include "exporter/pod_metadata.h"
#include "io/loop.h"

struct pod_watch;

struct pod_watch_config {
    const struct exporter_options *options;
    struct pod_metadata *metadata; // filled
    void (*settled)(void *user);   // once: all pods are known, or it is known that they won't be
    void *user;
};

struct pod_watch_stats {
    bool settled;
    bool up; // listed, and watched without trouble
    uint64_t failures;
    uint64_t skipped;    // pods that could not be read
    const char *problem; // "" none; borrowed until the loop goes on
};

// Loads libcurl. Not being in a cluster is no error: it is logged, and the watch stays down. 0;
// -EINVAL with *err (the file that --kubeconfig names); -ENOMEM.
int must_use pod_watch_new(struct loop *l, const struct pod_watch_config *config,
                           struct pod_watch **out, struct error *err);
void pod_watch_free(struct pod_watch *w);
void pod_watch_get_stats(const struct pod_watch *w, struct pod_watch_stats *out);
