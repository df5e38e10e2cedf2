// SPDX-License-Identifier: Apache-2.0
// The series of one target: from the text of a scrape to what became of each line. A line is
// relabelled and told to the sinks once, when it first appears; later it is a lookup by a seeded
// 128-bit hash of its raw text, which is not kept, and a number. A scrape is taken whole or not at
// all: a malformed page, a limit exceeded or a failed request gives no sample, and the series of
// the scrape before become stale. An engine: bytes and time come in.
#pragma once

#include "agent/prometheus_config.h"
#include "agent/sink.h"
#include "base/error.h"

#define SERIES_SINKS_MAX 4

struct series_options {
    const struct prom_job *job;  // limits, honor_labels, honor_timestamps,
                                 // track_timestamps_staleness, metric_relabel; borrowed until the
                                 // table is renewed or freed
    const struct labels *labels; // of the target, final, without "__" ones; copied
    uint64_t interval_ns;
    const struct sink *sinks; // copied; they outlive the table
    size_t sink_count;
};

// Of one scrape.
struct series_result {
    uint64_t scraped;    // samples in the page: scrape_samples_scraped
    uint64_t relabelled; // left after metric relabelling: scrape_samples_post_metric_relabeling
    uint64_t added;      // scrape_series_added
    uint64_t duplicates; // samples of a series that the page had already given: the first counts
    uint64_t unusable;   // samples that metric relabelling made unusable (no name, bad name)
};

struct series_table;
// 0, -ENOMEM.
int must_use series_table_new(const struct series_options *o, struct series_table **out);
// The configuration changed: each series is relabelled and told to the sinks anew when its next
// sample comes, with its state before as `replaces`. Where labels, job or interval are others, the
// sinks get a new target; the old one is freed with the last of its series. The sinks themselves
// are those of series_table_new. 0, -ENOMEM (the table is as it was).
int must_use series_table_renew(struct series_table *t, const struct series_options *o);
void series_table_free(struct series_table *t); // series and targets of the sinks, too

// One answer of the target. duration_ns: of the request, for scrape_duration_seconds. *out is
// written also on failure (as far as it came). 0; -EINVAL with *err (position in the page, or the
// limit and by how much it was exceeded), -E2BIG with *err (our own caps), -ENOMEM: then nothing of
// the page was given to the sinks, as after series_table_fail. A series that the table
// knew and that had to be told anew (after a renewal, or because its type changed) stays told.
int must_use series_table_take(struct series_table *t, struct sv page, enum parse_format format,
                               int64_t scrape_ms, uint64_t duration_ns, struct series_result *out,
                               struct error *err);
// The request failed: up 0, the series of the scrape before are stale.
void series_table_fail(struct series_table *t, int64_t scrape_ms, uint64_t duration_ns);
// Series not seen for max(5 min, 3 intervals) are forgotten at the end of a scrape.
size_t series_table_count(const struct series_table *t);
