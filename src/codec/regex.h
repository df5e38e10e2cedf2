// SPDX-License-Identifier: Apache-2.0
// Regular expressions in RE2's syntax, the one Prometheus and the CloudWatch agent use (RE2 behind
// a C++ shim): linear time, memory capped by pattern. Compiled objects are immutable and may be
// used from several threads. Where RE2's syntax and that of Go's regexp differ, Go's is taken:
// (?<name>...) names a group, \C is refused.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/sv.h"

#ifdef __cplusplus
extern "C" {
#endif

struct error;

enum regex_anchor {
    REGEX_FULL,   // ^(?s:pattern)$, as relabel rules are
    REGEX_SEARCH, // matches anywhere, as metric selectors and label matchers do
};

struct regex;
// 0; -EINVAL with *err saying what is wrong with the pattern; -ENOMEM; -E2BIG: the program would be
// too large.
__attribute__((warn_unused_result)) int regex_new(struct sv pattern, enum regex_anchor anchor,
                                                  struct regex **out, struct error *err);
void regex_free(struct regex *r);

// What the patterns of one configuration take together, so that many dear ones cannot take all
// memory and time: a pattern that is refused as too large counts for what trying it cost.
struct regex_budget {
    size_t used_bytes; // at most LIMIT_REGEXES_BYTES
};
// As regex_new; -E2BIG also when the budget is at its end: nothing is compiled any more.
__attribute__((warn_unused_result)) int regex_new_within(struct regex_budget *budget,
                                                         struct sv pattern,
                                                         enum regex_anchor anchor,
                                                         struct regex **out, struct error *err);
bool regex_matches(const struct regex *r, struct sv text);
#define REGEX_GROUPS_MAX 32
// As regex_matches, with the groups: spans[0] the whole match, spans[i].ptr NULL for a group that
// took no part, or that the pattern has not. span_count: 1 to REGEX_GROUPS_MAX; the fewer, the
// faster.
bool regex_match(const struct regex *r, struct sv text, struct sv *spans, size_t span_count);
unsigned regex_group_count(const struct regex *r); // not counting group 0
// The first group of that name; several may have it. -1: none.
int regex_group_index(const struct regex *r, struct sv name);
// The first one behind the group before. -1: no more.
int regex_next_group(const struct regex *r, struct sv name, int before);

#ifdef __cplusplus
}
#endif
