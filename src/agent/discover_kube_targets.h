// SPDX-License-Identifier: Apache-2.0
// The targets of one Kubernetes object from its record and those of the objects it names, with the
// labels of Prometheus 3.0.1. No I/O.
#pragma once

#include "agent/discover_kube_record.h"
#include "agent/target_group.h"

struct kube_join {
    bool attach_node;      // attach_metadata: the labels of a pod's or an endpoint's node
    const char *node_name; // NULL, or of endpoints only those on this node
    // The record of another object; .ptr NULL when it is not known. Keys are "namespace/name", of
    // nodes "name".
    struct sv (*find)(void *user, enum kube_kind kind, struct sv key);
    void *user;
};

// key is that of the object. 0 and a group, perhaps an empty one; 1: no address, what was told
// before stays; -ENOMEM; -E2BIG (too many labels, or over LIMIT_KUBE_GROUP_BYTES).
int must_use kube_targets_build(enum kube_kind kind, struct sv key, struct sv record,
                                const struct kube_join *join, struct target_group **out);

// The objects that the targets of this one depend on, each perhaps more than once.
int must_use kube_targets_needs(enum kube_kind kind, struct sv key, struct sv record,
                                const struct kube_join *join,
                                int (*need)(void *user, enum kube_kind kind, struct sv key),
                                void *user);
