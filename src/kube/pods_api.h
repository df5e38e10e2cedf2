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
    const char *socket_path; // "/var/lib/kubelet/pods-api/pods-api.sock"
    uint64_t interval_ns, deadline_ns;
    // A whole list: begin, each pod (borrowed for the call), end. Pods that are not told between
    // are gone.
    void (*begin)(void *user);
    void (*pod)(void *user, const struct pod_record *pod);
    void (*end)(void *user);
    // The socket is not there, or there was no answer for 60 s: what was told may be too old.
    void (*lost)(void *user);
    void *user;
};
struct pods_api_stats {
    bool socket_seen, up;
    uint64_t polls, failures, skipped; // skipped: pods that could not be read
    char last_error[160];
};
int must_use pods_api_new(struct loop *l, const struct pods_api_config *config,
                          struct pods_api **out);
void pods_api_get_stats(const struct pods_api *p, struct pods_api_stats *out);
void pods_api_kick(
    struct pods_api *p); // a pod that is not known was seen: ask now, 200 ms apart at least
void pods_api_free(struct pods_api *p);
