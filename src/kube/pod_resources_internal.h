// SPDX-License-Identifier: Apache-2.0
// Inside the poller only: what the plugins offer, GetAllocatableResources of the same socket.
#pragma once

#include "kube/pod_resources.h"

struct pod_allocatable;
// The strings and functions of config are borrowed. 0, -ENOMEM.
int must_use pod_allocatable_new(struct loop *l, const struct pod_resources_config *config,
                                 struct pod_allocatable **out);
void pod_allocatable_free(struct pod_allocatable *a);
// The kubelet has just answered: asks it too when it is time.
void pod_allocatable_kubelet_answers(struct pod_allocatable *a, uint64_t now_ns);
// Another kubelet listens there: asked at its first answer, even if the one before knew no such
// call.
void pod_allocatable_kubelet_restarted(struct pod_allocatable *a);
// What was told is too old.
void pod_allocatable_forget(struct pod_allocatable *a);
// NULL: not known. Borrowed until the loop goes on; the version is another whenever it changes.
const struct pod_devices *pod_allocatable_list(const struct pod_allocatable *a);
uint64_t pod_allocatable_version(const struct pod_allocatable *a);
