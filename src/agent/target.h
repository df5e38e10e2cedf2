// SPDX-License-Identifier: Apache-2.0
// From what discovery found and the job's configuration to a target: labels, URL, interval; or the
// reason why there is none. An engine. Source: Prometheus 3.0's scrape package (PopulateLabels,
// Target.URL), prometheus.io/docs/prometheus/latest/configuration/configuration/#scrape_config.
#pragma once

#include "agent/prometheus_config.h"
#include "base/error.h"
#include "codec/hash.h"

struct target_spec {
    struct labels labels; // final; those beginning with "__" are for us alone
    const char *url;
    const char *shown_url; // url without what looks like a secret; url itself when nothing does
    uint64_t interval_ns, timeout_ns;
};

// What relabelling starts with: the labels found, and those that the job gives where they are
// absent. 0, -ENOMEM, -E2BIG.
int must_use target_discovered(const struct prom_job *job, const struct labels *found,
                               struct labels *out);

#define TARGET_DROPPED 1
// Everything of *out is in arena. 0; TARGET_DROPPED by relabelling; -EINVAL with *err: no target
// can be made of it (address, interval, timeout, text that is not UTF-8); -ENOMEM, -E2BIG.
int must_use target_build(const struct prom_job *job, const struct labels *found,
                          struct arena *arena, struct target_spec *out, struct error *err);

// Equal for targets of one job that are one and the same: all final labels and the URL, but for
// the interval and the timeout. A target whose interval is configured anew is still that target.
struct hash128 target_identity(const struct target_spec *s, uint64_t seed);
// When in its interval the target has its turn: spread over targets and over seeds, and the same in
// every process.
uint64_t target_offset_ns(const struct target_spec *s, uint64_t seed);

// "1m30s", as Prometheus writes durations. out holds TARGET_DURATION_BYTES.
#define TARGET_DURATION_BYTES 64
struct sv target_print_duration(uint64_t ns, char *out);
// Whether a parameter of that name holds what nobody should see.
bool target_looks_secret(struct sv name);
#define TARGET_HIDDEN "xxxxx" // in its place, as in Go's URL.Redacted
// The values of query parameters that look like secrets, and a password before the host, hidden.
// text itself when there is none; else in arena. NULL: no memory.
const char *target_redact_url(const char *text, struct arena *arena);
