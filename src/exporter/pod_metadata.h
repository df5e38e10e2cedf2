// SPDX-License-Identifier: Apache-2.0
// What is known of a pod beside its name: UID, labels, owner, containers. An engine: no I/O, no
// clock, no log. Three sources tell: the kubelet's Pods API, the API server, the names of log
// files.
//
// Labels. Names are dcgm-exporter's: each byte outside [a-zA-Z0-9_] of a key becomes '_'. Its
// mistakes are mended: a name that the series has already becomes label_<name>, a leading digit
// gets '_' before it, of keys that become one name the first in byte order counts, and there is a
// budget.
//
// A static pod has two UIDs: the API server's (of its mirror pod) and the kubelet's, which is a
// hash of its configuration and stands in its cgroup. The label pod_uid of device series is the
// first, as in dcgm-exporter, where the API server is asked; everything else here says the second.
#pragma once

#include "exporter/options.h"
#include "kube/pod_record.h"
#include "kube/pod_resources.h"

// What one source says of a pod. The text is the UID (empty: not asked for or not known), then name
// and value of each label, names ascending; each part ends in a NUL. Behind text_bytes it goes on,
// in private.
struct pod_metadata_entry {
    uint32_t label_count;
    uint32_t text_bytes;
    uint32_t same_name;   // labels left out: an earlier key had their name
    uint32_t over_budget; // labels left out: LIMIT_POD_LABELS, LIMIT_POD_LABELS_BYTES
    uint32_t news_bytes;  // of the text, what a page shows: a change of it is a new version
    uint32_t all_bytes;
    uint32_t container_count;
    uint32_t generation; // of the source's list that it was told in
    int64_t created_s;
    bool deleted; // the source has it no more, the kubelet may still list it
    char text[];
};

struct pod_metadata_stats {
    size_t pods;                     // known by the API server or the kubelet
    uint64_t same_name, over_budget; // labels left out now
    uint64_t refused;                // pods not kept, in all: LIMIT_POD_METADATA_*
};

struct pod_metadata;
// options is borrowed. 0, -ENOMEM.
int must_use pod_metadata_new(const struct exporter_options *options, struct pod_metadata **out);
void pod_metadata_free(struct pod_metadata *m);

// Where a pod's record comes from, worst first. What a better source says counts; of two UIDs of
// one name the later created one does. Names from the logs count only where nobody else knows.
enum pod_metadata_source {
    POD_METADATA_LOGS,
    POD_METADATA_API_SERVER,
    POD_METADATA_KUBELET, // its Pods API
};
#define POD_METADATA_SOURCES 3
// A pod that is new or changed. 0, also when it is refused; -ENOMEM, and what was known of it
// stays.
int must_use pod_metadata_put(struct pod_metadata *m, enum pod_metadata_source source,
                              const struct pod_record *pod);
// A source tells its whole list anew: what it has told before and does not tell until end is
// deleted.
void pod_metadata_begin(struct pod_metadata *m, enum pod_metadata_source source);
void pod_metadata_end(struct pod_metadata *m, enum pod_metadata_source source);
// The source can't be asked any more for good: its pods are deleted.
void pod_metadata_forget(struct pod_metadata *m, enum pod_metadata_source source);
// The source has no such pod any more; key is "namespace/name". What is known of it stays until a
// prune finds that the kubelet does not list it either: its series shall not change names in their
// last seconds.
void pod_metadata_delete(struct pod_metadata *m, enum pod_metadata_source source, struct sv key);
// Drops the deleted pods that hold nothing. rows NULL: nobody holds anything.
void pod_metadata_prune(struct pod_metadata *m, const struct pod_devices *rows);

// NULL: nothing is known. Borrowed until the next put, delete or prune.
const struct pod_metadata_entry *pod_metadata_find(const struct pod_metadata *m,
                                                   const char *namespace_name, const char *pod);
// The pod with this UID (also by the config hash of a static pod, letters of either case), and
// which of its containers has this id. False: not known. Strings are borrowed until the next put,
// delete or prune; container is "" when the id is not known, the UID as the kubelet has it (a
// static pod's hash).
struct pod_metadata_identity {
    const char *namespace_name, *pod, *uid, *container;
    bool init; // an init container
};
bool pod_metadata_by_uid(const struct pod_metadata *m, const char *uid, const char *container_id,
                         struct pod_metadata_identity *out);
// Of a pod by name, borrowed likewise, each "" unknown: the UID as the kubelet has it, the phase,
// and the owner (false: it has none, or it is not known).
const char *pod_metadata_uid(const struct pod_metadata *m, const char *namespace_name,
                             const char *pod);
const char *pod_metadata_phase(const struct pod_metadata *m, const char *namespace_name,
                               const char *pod);
bool pod_metadata_owner(const struct pod_metadata *m, const char *namespace_name, const char *pod,
                        const char **kind, const char **name);
// Another number whenever something that a page shows has changed: labels, UIDs, owners.
uint64_t pod_metadata_version(const struct pod_metadata *m);
void pod_metadata_get_stats(const struct pod_metadata *m, struct pod_metadata_stats *out);
