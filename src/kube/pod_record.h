// SPDX-License-Identifier: Apache-2.0
// A pod object of Kubernetes, as far as podgpu wants it: read from the API server's JSON or from
// the protobuf (core/v1 Pod) that the kubelet's Pods API hands out. A parser: no I/O.
// Field numbers: k8s.io/api/core/v1/generated.proto, k8s.io/apimachinery/pkg/apis/meta/v1.
#pragma once

#include "base/arena.h"
#include "codec/json.h"

struct pod_record_label {
    struct sv key, value; // ascending by key
};

struct pod_record_container {
    struct sv name;
    struct sv id; // 64 hex digits, without "containerd://"; empty: not started
    bool init;    // an init container (restartable ones, too)
};

struct pod_record {
    struct sv namespace_name, name, uid;
    struct sv config_hash; // of a mirror or static pod: the UID its cgroup has; else empty
    struct sv phase;       // "Running"
    struct sv owner_kind, owner_name; // the controller; a ReplicaSet of a Deployment is the
                                      // Deployment (label pod-template-hash), empty: none
    struct pod_record_label *labels;
    size_t label_count;                      // <= LIMIT_POD_RECORD_LABELS
    struct pod_record_container *containers; // app, init and ephemeral ones with a status
    size_t container_count;                  // <= LIMIT_POD_RECORD_CONTAINERS
    struct pod_record_claim {                // resourceClaimStatuses
        struct sv name, claim;
    } * claims;
    size_t claim_count;
};
// Texts and arrays lie in the arena (or, JSON: are borrowed from the tree). 0; -EBADMSG (no pod, or
// malformed); -ENOMEM.
int must_use pod_record_from_json(const struct json_node *pod, struct arena *a,
                                  struct pod_record *out);
int must_use pod_record_from_protobuf(struct sv bytes, struct arena *a, struct pod_record *out);
