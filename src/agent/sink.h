// SPDX-License-Identifier: Apache-2.0
// What the series of a target flow into: EMF today. A sink is told of a target once, of a series
// once when it appears, and of each later sample by the pointer that it gave. An engine: it does no
// I/O, reads no clock.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/labels.h"
#include "metrics/parse.h"

struct sink_target {
    struct sv job;               // job_name of the configuration, before relabelling
    uint64_t interval_ns;        // between its scrapes
    const struct labels *labels; // final labels of the target, none beginning with "__"
};

struct sink_series {
    struct sv name; // after metric_relabel_configs
    enum parse_type type;
    const struct labels *labels; // of the series, the target's among them, without __name__;
                                 // borrowed for the call
    bool is_internal;            // up and scrape_*: made by us, not by the target
    // The target's scrape before this one succeeded and did not have the series, so it began in
    // between. False at the first scrape and after a failed one.
    bool is_new;
    // The state that this series of the same target had before the configuration changed, to take
    // what should be kept from it; freed by the caller afterwards. NULL: none.
    void *replaces;
};

struct sink_ops {
    // 0, -ENOMEM.
    int (*target_new)(void *sink, const struct sink_target *target, void **out_target);
    void (*target_free)(void *target); // after all its series
    // *out_series NULL: the sink has no use for it, and samples of it are not given. 0, -ENOMEM.
    int (*series_new)(void *target, const struct sink_series *s, void **out_series);
    void (*series_free)(void *target, void *series);
    // The samples of one scrape stand between begin and end; only one scrape is open in a sink.
    void (*begin)(void *target, int64_t scrape_ms);
    // NaN and infinities too; the stale marker never (see stale). A series is given once a scrape.
    void (*sample)(void *target, void *series, double value, int64_t timestamp_ms);
    // The series was in the scrape before and is not in this one, or the scrape failed.
    void (*stale)(void *target, void *series);
    // 0; the first -ENOMEM or -EFBIG since begin: what did not fit was counted by the sink.
    int (*end)(void *target);
};

struct sink {
    const struct sink_ops *ops;
    void *user; // the sink
};
