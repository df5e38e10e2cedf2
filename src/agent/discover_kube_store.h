// SPDX-License-Identifier: Apache-2.0
// The objects that one section's targets come from, as records, and which of them have targets to
// be told anew. No I/O.
#pragma once

#include "agent/discover_kube_targets.h"
#include "base/map.h"

struct kube_entry;
struct kube_store {
    enum kube_kind primary; // whose objects are groups
    bool keep;              // records are needed again once they were told
    struct kube_join join;
    struct map entries[KUBE_KINDS];
    struct kube_entry *dirty, **dirty_end;
    uint32_t mark;
    uint64_t seed;
    struct buf record, source;
    size_t record_bytes; // kept now
};

// attach_node and node_name as in struct kube_join; borrowed.
void kube_store_init(struct kube_store *s, enum kube_kind primary, bool attach_node,
                     const char *node_name);
void kube_store_deinit(struct kube_store *s);
// An object is there or has changed. 0, -ENOMEM, -EFBIG (it is left out).
int must_use kube_store_put(struct kube_store *s, enum kube_kind kind, struct sv key,
                            const struct json_node *object);
void kube_store_remove(struct kube_store *s, enum kube_kind kind, struct sv key);
bool kube_store_has_news(const struct kube_store *s);
// The next source whose targets changed; source is borrowed until the next call. *out_group NULL:
// gone, else one reference. 1; 0: there is none, nothing is set; -ENOMEM: it stays for later;
// -E2BIG: as gone, it has too many labels.
int must_use kube_store_next(struct kube_store *s, const char **out_source,
                             struct target_group **out_group);
