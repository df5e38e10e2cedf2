// SPDX-License-Identifier: Apache-2.0
// The sink that makes Embedded Metric Format events: samples of one scrape with equal labels and
// timestamp become one event, the declarations of cwagentconfig.json decide which of its metrics
// CloudWatch extracts and by which dimensions. An engine; the text goes to a callback. Source: the
// CloudWatch user guide, "Specification: Embedded metric format". How: README.md beside this.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/cwagent_config.h"
#include "agent/sink.h"

struct emf_event { // borrowed for the call
    struct sv log_group, log_stream;
    struct sv text; // one JSON object, no line end
    int64_t timestamp_ms;
    uint64_t interval_ns; // of the target that it is from
    unsigned samples;     // that it carries, for counting what is lost with it
};

struct emf_options {
    const char *cluster;  // ClusterName; NULL: none is added
    const char *hostname; // for the host label when the configuration asks for it
    // In callbacks no function of the sink may be called.
    void (*event)(void *user, const struct emf_event *event);
    void *user;
};

// samples = event_samples + waiting + the sum of all dropped.
struct emf_stats {
    uint64_t samples;                                     // given
    uint64_t events;                                      // made
    uint64_t event_samples;                               // samples in them
    uint64_t waiting;                                     // now: for their minute to be over
    uint64_t dropped_type[PARSE_TYPE_GAUGEHISTOGRAM + 1]; // by type that is not sent
    uint64_t dropped_not_finite;                          // NaN and infinities
    uint64_t dropped_first;                               // of a counter: nothing to compare with
    uint64_t dropped_repeated;  // of a counter: not later than the one before
    uint64_t dropped_duplicate; // the event has that metric already (with compat: had)
    uint64_t dropped_unmatched; // no declaration extracts it
    uint64_t dropped_old;    // timestamps that CloudWatch refuses: over 14 days old, over 2 h ahead
    uint64_t dropped_large;  // events over the limit that could not be split
    uint64_t dropped_value;  // beyond +-2^360
    uint64_t dropped_empty;  // of a histogram that observed nothing in its window
    uint64_t dropped_memory; // no memory, or over a limit on what is kept
    uint64_t metrics_split;  // events made because one has room for 100 metrics, 100 values of a
                             // histogram and 256 KiB
    uint64_t renamed;        // labels and metrics whose name has another meaning in an event, once
                             // a series
    uint64_t bad_dimensions; // dimension sets left out for a value over 1024 characters, once a
                             // series
    uint64_t custom_metrics; // now: distinct (namespace, name, dimension values) that the known
                             // series make
};

struct emf;
// Takes a reference of its own to the configuration. 0, -ENOMEM.
int must_use emf_new(struct cw_config *config, const struct emf_options *o, struct emf **out);
// For series that appear from now on (series_table_renew makes all appear again). Takes a reference
// of its own. 0, -ENOMEM (as it was).
int must_use emf_set_config(struct emf *e, struct cw_config *config, const char *cluster);
struct sink emf_sink(struct emf *e);
// Minutes that are over are sent (only with podgpu.aggregate); final: also the one that is not.
void emf_flush(struct emf *e, int64_t now_ms, bool final);
void emf_get_stats(const struct emf *e, struct emf_stats *out);
void emf_free(struct emf *e); // after its targets
