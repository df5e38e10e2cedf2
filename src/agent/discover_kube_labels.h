// SPDX-License-Identifier: Apache-2.0
// Meta labels from the parts of records. Errors stick to the writer.
#pragma once

#include "agent/discover_kube_record.h"
#include "agent/target_group.h"

#define META "__meta_kubernetes_"

// Where labels go. Their texts live in the arena, copied once and borrowed by each target.
struct kube_labels {
    struct labels *labels;
    int error; // the first: -ENOMEM, -E2BIG
};

// name is a constant; value is copied.
void kube_label(struct kube_labels *l, const char *name, struct sv value);
// name is a constant; value lives in the arena.
void kube_label_borrowed(struct kube_labels *l, const char *name, struct sv value);
// All of from, whose texts live in the same arena; they replace.
void kube_labels_merge(struct kube_labels *l, const struct labels *from);
// host:port, an IPv6 address in brackets.
void kube_label_address(struct kube_labels *l, struct sv host, struct sv port);
// A list of pairs from a record: prefix + name, and present + name = "true"; NULL: without. Names
// have each character that a label cannot have replaced by '_'; of two that become one, the first
// stays.
void kube_label_pairs(struct kube_labels *l, struct record *r, const char *prefix,
                      const char *present);
// Labels and annotations of an object of this kind.
void kube_label_meta(struct kube_labels *l, struct record *r, enum kube_kind kind);

// "namespace/name" taken apart; of a name alone the namespace is empty.
struct kube_name {
    struct sv namespace_name, name;
};
struct kube_name kube_name_of(struct sv key);

// A pod's record as far as its containers, which r is left at.
struct kube_pod {
    struct sv ip, node;
};
// All labels of a pod but its namespace.
void kube_label_pod(struct kube_labels *l, struct sv key, struct record *r, struct kube_pod *out);
// Name and labels of a node from its record.
void kube_label_node(struct kube_labels *l, struct sv key, struct sv record);
// All labels of a service (its namespace, too) that are of the whole of it.
void kube_label_service(struct kube_labels *l, struct sv key, struct sv record);

struct kube_container {
    struct sv name, id, image, init;
    uint32_t ports;
};
struct kube_port {
    struct sv name, number, protocol;
};
void kube_read_container(struct record *r, struct kube_container *out); // r is left at its ports
void kube_read_port(struct record *r, struct kube_port *out);
void kube_label_container_port(struct kube_labels *l, const struct kube_container *c,
                               const struct kube_port *port);
