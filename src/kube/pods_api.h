// SPDX-License-Identifier: Apache-2.0
// The kubelet's own Pods API (v1alpha1.Pods/ListPods over a Unix socket; KEP-4188, on by default
// from Kubernetes 1.37): pods of this node with UID, labels, owners and container ids, without the
// API server. Polled: its watch loses events silently.
// Wire: k8s.io/kubelet/pkg/apis/pods/v1alpha1: ListPods {} -> {1: repeated bytes pods}, each a
// core/v1 Pod.
#pragma once

#include "io/loop.h"
#include "kube/pod_record.h"

struct pods_api;
struct pods_api_config {
    const char *socket_path; // "/var/lib/kubelet/pods-api/pods-api.sock"; copied
    uint64_t interval_ns, deadline_ns;
    uint64_t max_age_ns; // how long a list is trusted over failures
    // A list: begin, each pod (borrowed for the call) as it arrives, then either end, and pods that
    // were not told since begin are gone, or nothing: the answer broke off, what was told holds and
    // nothing is gone. pod: 0, or -ENOMEM, which breaks it off.
    void (*begin)(void *user);
    int (*pod)(void *user, const struct pod_record *pod);
    void (*end)(void *user);
    // There was no answer for max_age, or no socket: what was told may be too old. Told once, after
    // a list.
    void (*lost)(void *user);
    void *user;
};
struct pods_api_stats {
    bool socket_seen; // the socket file was there at the last look
    bool up;          // the last poll was answered
    uint64_t polls, failures;
    uint64_t skipped; // pods that could not be read
    char last_error[160];
};
// Begins with the next turn of the loop. A missing socket is no failure. 0, -ENOMEM.
int must_use pods_api_new(struct loop *l, const struct pods_api_config *config,
                          struct pods_api **out);
void pods_api_get_stats(const struct pods_api *p, struct pods_api_stats *out);
// A pod that is not known was seen: asks now, unless a poll is under way, the last began under 200
// ms ago, or there is no socket.
void pods_api_kick(struct pods_api *p);
void pods_api_free(struct pods_api *p);
