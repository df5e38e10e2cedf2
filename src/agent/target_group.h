// SPDX-License-Identifier: Apache-2.0
// What discovery finds: groups of label sets, each with an __address__, immutable once given. A
// discoverer names its groups by source; a group given again under the same source replaces the one
// before.
#pragma once

#include "agent/labels.h"

struct target_group {
    unsigned refs; // owned by the loop
    struct arena arena;
    struct labels *targets; // before relabelling: __address__, __meta_*, labels of the group
    size_t count;
    size_t capacity; // of targets
};

// Empty, one reference; capacity targets, each with room in the arena. NULL: no memory.
struct target_group *target_group_new(size_t capacity, size_t max_bytes);
// The next target, empty, with room for that many labels (more make it grow). NULL: no memory, or
// capacity reached.
struct labels *target_group_add(struct target_group *g, size_t label_count);
struct target_group *target_group_ref(struct target_group *g);
void target_group_unref(struct target_group *g);

// What a discoverer tells; never from inside its _new.
struct discover_events {
    // group NULL: that source is gone. The reference passes to the callee. source is borrowed.
    void (*group)(void *user, const char *source, struct target_group *group);
    // First complete picture: the discoverer has told all that there is now (or has failed once).
    void (*ready)(void *user);
    // A problem (one line) or, with NULL, its end. Targets found before stay.
    void (*problem)(void *user, const char *text);
    void *user;
};
