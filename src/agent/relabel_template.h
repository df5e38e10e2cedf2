// SPDX-License-Identifier: Apache-2.0
// The templates of relabelling ("$1", "${name}-x"), read once and filled in for each match. Go's
// Regexp.Expand defines them: https://pkg.go.dev/regexp#Regexp.Expand.
#pragma once

#include "base/arena.h"
#include "codec/regex.h"

struct relabel_piece {
    int group;     // -1: text
    bool fallback; // stands in for the group piece before it, when that took no part
    struct sv text;
};

struct relabel_template {
    struct relabel_piece *pieces;
    size_t count;
    unsigned groups; // spans it reads: 1 + its highest group, 0 without any
};

// Groups are those of the regex; NULL: of "(.*)". Pieces borrow text and lie in the arena. 0;
// -ENOMEM; -EFBIG (arena); -E2BIG: a group beyond REGEX_GROUPS_MAX.
int must_use relabel_template_read(struct sv text, const struct regex *regex, struct arena *arena,
                                   struct relabel_template *out);
// Into the arena; .ptr NULL when that fails. An unused group is empty.
struct sv relabel_template_fill(const struct relabel_template *t, const struct sv *spans,
                                struct arena *arena);
