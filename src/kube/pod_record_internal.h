// SPDX-License-Identifier: Apache-2.0
// What both readers of a pod object share (pod_record.c): they offer what they find, in any order,
// and finish.
#pragma once

#include "kube/pod_record.h"

struct pod_record_reader {
    struct arena *arena;
    struct pod_record record;
    size_t label_room, container_room, claim_room; // of the arrays
    struct sv mirror, source, hash; // annotations kubernetes.io/config.{mirror,source,hash}
};

// A text as it may stand in a record: empty when it has a NUL.
struct sv pod_record_text(struct sv s);
void pod_record_add_label(struct pod_record_reader *r, struct sv key, struct sv value);
void pod_record_add_annotation(struct pod_record_reader *r, struct sv key, struct sv value);
void pod_record_add_container(struct pod_record_reader *r, struct sv name, struct sv id, bool init);
void pod_record_add_claim(struct pod_record_reader *r, struct sv name, struct sv claim);
void pod_record_add_controller(struct pod_record_reader *r, struct sv kind, struct sv name);
int must_use pod_record_finish(struct pod_record_reader *r, struct pod_record *out);
