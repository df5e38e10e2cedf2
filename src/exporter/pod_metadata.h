// SPDX-License-Identifier: Apache-2.0
// What is shown of a pod beside its name: UID and labels, from the API server's pod objects. An
// engine: no I/O, no clock, no log. Names are dcgm-exporter's: each byte outside [a-zA-Z0-9_] of a
// key becomes '_'. Its mistakes are mended: a name that the series has already becomes
// label_<name>, a leading digit gets '_' before it, of keys that become one name the first in byte
// order counts, and there is a budget.
#pragma once

#include "codec/json.h"
#include "exporter/options.h"
#include "kube/pod_resources.h"

// One pod. The text is the UID (empty: not asked for or not known), then name and value of each
// label, names ascending; each part ends in a NUL.
struct pod_metadata_entry {
    uint32_t label_count;
    uint32_t text_bytes;
    uint32_t same_name;   // labels left out: an earlier key had their name
    uint32_t over_budget; // labels left out: LIMIT_POD_LABELS, LIMIT_POD_LABELS_BYTES
    bool deleted;         // the API server has it no more, the kubelet may still
    bool held;            // has rows of the kubelet's list
    char text[];
};

struct pod_metadata_stats {
    size_t pods;
    uint64_t same_name, over_budget; // labels left out now
    uint64_t refused;                // pods not kept, in all: LIMIT_POD_METADATA_*
};

struct pod_metadata;
// options is borrowed. 0, -ENOMEM.
int must_use pod_metadata_new(const struct exporter_options *options, struct pod_metadata **out);
void pod_metadata_free(struct pod_metadata *m);

// A pod that is new or changed; key is "namespace/name". 0, also when it is refused; -ENOMEM, and
// what was known of it stays.
int must_use pod_metadata_put(struct pod_metadata *m, struct sv key, const struct json_node *pod);
// The API server has no such pod any more. What is known of it stays until a prune finds that the
// kubelet does not list it either: its series shall not change names in their last seconds.
void pod_metadata_delete(struct pod_metadata *m, struct sv key);
// Drops the deleted pods that hold nothing. rows NULL: nobody holds anything.
void pod_metadata_prune(struct pod_metadata *m, const struct pod_devices *rows);

// NULL: nothing is known. Borrowed until the next put, delete or prune.
const struct pod_metadata_entry *pod_metadata_find(const struct pod_metadata *m,
                                                   const char *namespace_name, const char *pod);
// The pod with this UID (also by the config hash of a static pod), and which of its containers has
// this id. False: not known. Strings are borrowed until the next put, delete or prune; container is
// "" when the id is not known, the pod's UID as the kubelet has it (a static pod's hash).
struct pod_metadata_identity {
    const char *namespace_name, *pod, *uid, *container;
    bool init; // an init container
};
bool pod_metadata_by_uid(const struct pod_metadata *m, const char *uid, const char *container_id,
                         struct pod_metadata_identity *out);
// UID of a pod by name, "" unknown; owner and phase, each "" unknown. Borrowed likewise.
const char *pod_metadata_uid(const struct pod_metadata *m, const char *namespace_name,
                             const char *pod);
const char *pod_metadata_phase(const struct pod_metadata *m, const char *namespace_name,
                               const char *pod);
bool pod_metadata_owner(const struct pod_metadata *m, const char *namespace_name, const char *pod,
                        const char **kind, const char **name);
// Another number whenever something that is shown has changed.
uint64_t pod_metadata_version(const struct pod_metadata *m);
void pod_metadata_get_stats(const struct pod_metadata *m, struct pod_metadata_stats *out);
