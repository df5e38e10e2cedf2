// SPDX-License-Identifier: Apache-2.0
// Shared by the parts that build groups.
#pragma once

#include "agent/discover_kube_labels.h"
#include "agent/discover_kube_targets.h"

struct kube_build {
    struct sv key, record;
    const struct kube_join *join;
    struct target_group *group;
    struct labels base; // of all targets of the group
    struct kube_labels base_labels;
    int error;
};

int must_use kube_build_start(struct kube_build *b, size_t capacity);
// One more target, which begins with the base's labels; its writer goes back when it is done.
struct kube_labels kube_build_target(struct kube_build *b);
void kube_build_end_target(struct kube_build *b, const struct kube_labels *l);
// Adds the labels of a node when that is asked for and the node is known.
void kube_build_attach_node(const struct kube_build *b, struct kube_labels *l, struct sv name);

void kube_skip_to_containers(struct record *r);
// Ports of all containers; least_one: a container without counts as one.
uint32_t kube_count_ports(struct record *r, bool least_one);

int must_use kube_build_endpoints(struct kube_build *b);
int must_use kube_build_slice(struct kube_build *b);

struct kube_needs {
    const struct kube_join *join;
    int (*need)(void *user, enum kube_kind kind, struct sv key);
    void *user;
};
int must_use kube_endpoints_needs(struct sv key, struct sv record, const struct kube_needs *needs);
int must_use kube_slice_needs(struct sv key, struct sv record, const struct kube_needs *needs);
