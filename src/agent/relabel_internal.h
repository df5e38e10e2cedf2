// SPDX-License-Identifier: Apache-2.0
// What rules are between reading (relabel_read.c) and applying (relabel.c).
#pragma once

#include "agent/relabel.h"
#include "agent/relabel_template.h"

enum relabel_action {
    ACTION_REPLACE, // the default
    ACTION_KEEP,
    ACTION_DROP,
    ACTION_KEEPEQUAL,
    ACTION_DROPEQUAL,
    ACTION_HASHMOD,
    ACTION_LABELMAP,
    ACTION_LABELDROP,
    ACTION_LABELKEEP,
    ACTION_LOWERCASE,
    ACTION_UPPERCASE,
    ACTION_COUNT,
};

struct relabel_rule {
    enum relabel_action action;
    bool legacy_names;
    struct sv *sources;
    size_t source_count;
    struct sv separator;
    struct sv target_name; // of actions that take it as it is
    struct relabel_template target, replacement;
    unsigned groups; // spans the templates need
    uint64_t modulus;
    struct regex *regex; // owned; NULL: the default
};

struct relabel_rules {
    struct arena arena;
    struct relabel_rule *rules;
    size_t count;
};

// A legacy name is [a-zA-Z_][a-zA-Z0-9_]*; else any text but the empty one is one.
bool relabel_is_label_name(struct sv s, bool legacy);
