// SPDX-License-Identifier: Apache-2.0
// A pod object of Kubernetes, as far as podgpu wants it: read from the API server's JSON or from
// the protobuf (core/v1 Pod) that the kubelet's Pods API hands out. A parser: no I/O.
// Field numbers: k8s.io/api/core/v1/generated.proto, k8s.io/apimachinery/pkg/apis/meta/v1.
//
// Owner. The ownerReference with controller set. Of a ReplicaSet that carries the label
// pod-template-hash=H and whose name ends in "-H" it is the Deployment before that. A Job stays a
// Job. Node, which mirror pods have, is nobody.
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
    struct sv owner_kind, owner_name; // empty: none
    int64_t created_s;                // creationTimestamp, seconds since 1970; 0 unknown
    struct pod_record_label *labels;
    size_t label_count;                      // <= LIMIT_POD_RECORD_LABELS
    struct pod_record_container *containers; // app, init and ephemeral ones with a status
    size_t container_count;                  // <= LIMIT_POD_RECORD_CONTAINERS
    struct pod_record_claim {                // resourceClaimStatuses
        struct sv name, claim;
    } * claims;
    size_t claim_count; // <= LIMIT_POD_RECORD_CLAIMS
};
// Arrays lie in the arena, texts are borrowed from the tree or the bytes; none has a NUL inside.
// What is over a limit is left out: of labels those with the last keys. What is not as it should be
// is taken as absent, except that a pod has a name and a namespace. 0; -EBADMSG (no pod, or
// malformed); -ENOMEM; -EFBIG (the arena's ceiling).
int must_use pod_record_from_json(const struct json_node *pod, struct arena *a,
                                  struct pod_record *out);
int must_use pod_record_from_protobuf(struct sv bytes, struct arena *a, struct pod_record *out);

// The UID by which the kubelet, and so the pod's cgroup, knows it: a mirror pod's is not its own.
static inline struct sv pod_record_kubelet_uid(const struct pod_record *r)
{
    return r->config_hash.len ? r->config_hash : r->uid;
}
