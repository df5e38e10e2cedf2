// SPDX-License-Identifier: Apache-2.0
// What one source says of a pod, in one block (pod_metadata.h has its public part).
#pragma once

#include "exporter/pod_metadata.h"

enum pod_metadata_text { // behind the labels, in this order
    POD_METADATA_UID,
    POD_METADATA_KUBELET_UID, // the same, but a static pod's is its hash
    POD_METADATA_OWNER_KIND,
    POD_METADATA_OWNER_NAME,
    POD_METADATA_PHASE, // no news to a page, as is what follows: containers
};
#define POD_METADATA_TEXTS (POD_METADATA_PHASE + 1)

// NULL: out of memory.
struct pod_metadata_entry *pod_metadata_entry_new(const struct exporter_options *options,
                                                  const struct pod_record *pod);
const char *pod_metadata_entry_text(const struct pod_metadata_entry *e,
                                    enum pod_metadata_text which);
// False: none of its containers has this id.
bool pod_metadata_entry_find_container(const struct pod_metadata_entry *e, const char *id,
                                       const char **name, bool *init);
