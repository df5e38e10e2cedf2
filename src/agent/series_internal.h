// SPDX-License-Identifier: Apache-2.0
// What the series of a target are between their files: the store (series_store.c), labels of a line
// (series_labels.c), what the sinks were told (series_tell.c), and scrapes (series.c).
#pragma once

#include "agent/series.h"
#include "codec/hash.h"

enum series_fate {
    SERIES_GIVEN,    // to one sink at least
    SERIES_UNWANTED, // no sink has a use for it
    SERIES_DROPPED,  // by metric relabelling
    SERIES_UNUSABLE, // metric relabelling left it without a name, or with a bad one
};

enum {
    SERIES_RETELL = 1,  // the configuration changed since it was told
    SERIES_OPEN = 2,    // what the sinks got last is a sample, not its end
    SERIES_TRACKED = 4, // gets stale when it vanishes: its sample had no timestamp that counts
    SERIES_GONE = 8,    // not in the last page that was good
    SERIES_DEAD = 16,   // to be removed by series_store_compact
};

// One line of the target's pages. 48 bytes: there are some millions of them.
struct series {
    struct hash128 key;   // of its text
    double value;         // in the scrape under way
    int64_t timestamp_ms; // of value
    int64_t seen_ms;      // the last good scrape that had it
    uint32_t attempt;     // the last scrape that had it, good or not
    uint16_t text_bytes;  // of its text; 0: longer, or one that the parser has to read each time
    uint8_t flags;
    uint8_t type : 4; // enum parse_type
    uint8_t fate : 2; // enum series_fate
    uint8_t era : 2;  // index of the series_era that its states belong to
};

// Series in the order of their first appearance, which is that of the page, and a hash table of
// their places. Each has sink_count states beside it.
struct series_store {
    struct series *series;
    void **states;   // of series i: sink_count from i * sink_count
    uint32_t *slots; // place + 1, 0 is free; a power of two of them, 3/4 full at most
    size_t count, capacity, slot_count, sink_count;
    size_t max; // most series
};

#define SERIES_NONE SIZE_MAX
void series_store_deinit(struct series_store *s); // not what the states point to
// The place of key, or SERIES_NONE. likely: looked at first; any number.
size_t series_store_find(const struct series_store *s, struct hash128 key, size_t likely);
bool series_store_is_at(const struct series_store *s, struct hash128 key, size_t place);
// A series that is not there yet: at place count, its states NULL. 0, -ENOMEM, -E2BIG.
int must_use series_store_add(struct series_store *s, struct hash128 key);
void series_store_truncate(struct series_store *s, size_t count); // the newest go
size_t series_store_compact(struct series_store *s);              // the dead go; returns how many
void series_store_trim(struct series_store *s); // gives back memory that is mostly unused

static inline void **series_states(const struct series_store *s, size_t place)
{
    return &s->states[place * s->sink_count];
}

// The target as the sinks were told of it, once for each set of labels that it had. Labels and text
// stand behind it.
struct series_era {
    struct labels labels;
    struct sv job;
    uint64_t interval_ns;
    size_t given; // series with states of it
    void *targets[SERIES_SINKS_MAX];
};

// Old eras live on while a series was not seen since. When all are taken by them, the series of one
// are forgotten.
#define SERIES_ERAS 4

enum series_report {
    REPORT_UP,
    REPORT_DURATION,
    REPORT_SCRAPED,
    REPORT_RELABELLED,
    REPORT_ADDED,
    REPORT_COUNT,
};

struct series_table {
    struct series_store store;
    const struct prom_job *job;
    struct series_era *eras[SERIES_ERAS];
    void *reports[REPORT_COUNT][SERIES_SINKS_MAX]; // states of the present era
    struct sink sinks[SERIES_SINKS_MAX];
    uint64_t seed;
    uint32_t attempt; // scrapes so far
    uint8_t era;      // the present one
    bool last_good;   // the scrape before succeeded
};

// What metric relabelling makes of a line.
struct series_identity {
    struct labels labels; // without __name__
    struct sv name;
    enum series_fate fate; // SERIES_GIVEN stands for: the sinks decide
};

// Memory for the labels of one line, used again for the next.
struct series_scratch {
    struct arena arena;
    struct buf text;
};

#define SERIES_NUMBER_BYTES 48
// The text of a le or quantile label as Prometheus 3 has it: "1" is "1.0". Its length; 0: no
// number.
unsigned series_normalise_number(struct sv s, char out[SERIES_NUMBER_BYTES]);

// *out lives until the scratch is used again. 0; -EINVAL with *err at the line (a label twice,
// label limits of the job), -E2BIG with *err (our own caps), -ENOMEM.
int must_use series_identify(const struct series_table *t, const struct parse_sample *s,
                             struct series_scratch *scratch, struct series_identity *out,
                             struct error *err);

// The target's present era and the report series of it: at first, and when labels, job or interval
// changed. 0, -ENOMEM (as it was).
int must_use series_set_era(struct series_table *t, const struct series_options *o);
void series_forget_all(struct series_table *t); // frees what the sinks have of it
// Tells the sinks of the series at place; what they had before of it is replaced. 0, -ENOMEM (they
// have what they had).
int must_use series_tell(struct series_table *t, size_t place, const struct series_identity *what,
                         bool is_new);
void series_forget(struct series_table *t, size_t place); // frees its states
