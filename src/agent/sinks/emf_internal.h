// SPDX-License-Identifier: Apache-2.0
// What the files of the EMF sink share. README.md tells how it works.
#pragma once

#include <errno.h>

#include "agent/sinks/emf.h"
#include "agent/sinks/emf_intern.h"
#include "base/arena.h"
#include "base/buf.h"

// Text that is copied into events as it stands.
struct emf_text {
    const char *ptr;
    uint32_t len;
};

// One label as events have it.
struct emf_pair {
    struct intern_item item;
    struct sv name;    // as the series has it; dimensions are found by it
    struct sv written; // the member of the event: name, or renamed
    struct sv value;
    struct emf_text json; // ,"written":"value"
};

// One metric name of a configuration, at one resolution.
struct emf_metric {
    struct intern_item item;
    struct sv name;             // the member of the event
    struct emf_text definition; // ,{"Name":...,"Unit":...,"StorageResolution":60}
    struct emf_text field;      // ,"name":
    bool renamed;
    bool selected;        // any bit of declarations is set
    uint64_t selectors[]; // by declaration: one of its selectors matches
};

// Metrics that the same declarations extract by the same dimension sets.
struct emf_rule {
    struct intern_item item; // key: declarations, then directive
    const uint64_t *declarations;
    const struct cw_dimension_set **sets;
    size_t set_count;          // 0: nothing is extracted
    struct emf_text directive; // ,{"Namespace":...,"Dimensions":[...],"Metrics":
    uint32_t bad_sets;
    uint64_t mark; // of the event that counts it already
};

// One generation of the configuration; lives while a group has it.
struct emf_plan {
    unsigned refs;
    struct cw_config *config;
    char *cluster;   // NULL: none
    char *log_group; // with its placeholders
    struct intern metrics, rules;
    size_t words; // of a set of declarations
    bool extracts, drops_unmatched;
};

struct emf_values { // of the window that is open
    uint32_t count, capacity;
    double items[];
};

enum emf_fate {
    EMF_SENT,
    EMF_PART, // of a histogram: struct emf_part
    EMF_WRONG_TYPE,
    EMF_UNMATCHED,
    EMF_NO_MEMORY,
};

// A metric of a group: what series_new gives out. Series that relabelling made equal share one.
// Those that are never sent share one of struct emf's, which has only fate and type.
struct emf_member {
    struct emf_group *group;
    struct emf_metric *metric;
    struct emf_rule *rule; // set_count 0: a plain field
    struct emf_values *values;
    struct emf_histogram *histogram; // it is one: its parts have the samples
    double previous;
    double value;    // of the scrape that is open
    int64_t time_ms; // of the last sample
    uint32_t refs;
    uint32_t scrape; // number of the target's scrape that gave value
    uint8_t fate, type;
    bool is_delta, has_previous, from_zero;
};

enum emf_part_kind {
    EMF_BUCKET,
    EMF_SUM,
    EMF_COUNT,
};

// A series of a histogram: what series_new gives out, as its member `as`, which has the state of
// the increase and the value of the open scrape. Each of its references is one of the histogram's.
struct emf_part {
    struct emf_member as;
    struct emf_member *of;
    enum emf_part_kind kind;
    double bound;    // le of a bucket
    double observed; // in the open window: in this bucket alone; increase of the sum, of the count
};

struct emf_bar {
    double value, count;
};

struct emf_histogram {
    struct emf_part **buckets; // by bound
    uint32_t bucket_count, bucket_capacity;
    struct emf_part *sum, *count; // NULL: no such series
    uint32_t waiting;             // samples in the open window
    bool has_sum;                 // the open window has an increase of it
    // Of a window that is being sent.
    struct emf_bar *bars; // room for one more than buckets
    uint32_t bar_count;
    double total_sum;
};

// Members with equal labels: one event a scrape.
struct emf_group {
    struct intern_item item; // key: the plan and the pairs' addresses
    struct emf_target *target;
    struct emf_plan *plan;
    struct emf_group *previous, *next; // of the target
    struct emf_group *next_touched;
    struct emf_member **members; // by name
    struct emf_rule **rules;     // of its members so far, in order, each once; given back with it
    struct sv log_group, log_stream;
    int64_t time_ms;   // of the first sample of the open scrape
    int64_t window_ms; // start of the open window
    uint64_t *matched; // declarations whose label matcher matches
    uint32_t member_count, member_capacity, rule_count, rule_capacity;
    uint32_t scrape;  // number of the last one that touched it
    uint32_t waiting; // values in the open window
    bool mixed;       // the open scrape has several timestamps
    bool shadows;     // a metric is named like a label (compat)
    uint32_t pair_count;
    struct emf_pair **pairs; // by written name
};

struct emf_target {
    struct emf *emf;
    struct emf_target *previous, *next;
    struct intern groups;
    struct emf_group *first, *last;
    struct emf_group *touched, **touched_end;
    int64_t scrape_ms;
    int64_t ttl_ms, ttl_compat_ms;
    uint64_t interval_ns;
    uint32_t scrape;
    bool is_fast; // scraped more than once a minute
    int error;
};

struct emf {
    struct emf_plan *plan;
    char *hostname;
    void (*event)(void *user, const struct emf_event *event);
    void *user;
    struct emf_target *targets;
    struct intern pairs;
    struct tally custom_metrics;
    struct emf_stats stats;
    struct emf_member by_type[PARSE_TYPE_GAUGEHISTOGRAM + 1], unmatched, no_memory;
    struct arena arena;       // while a series is added
    struct buf text, scratch; // of an event; of anything else
    struct emf_member **list; // of an event, by name
    size_t list_capacity;
    uint64_t mark;
};

static inline int emf_buf_failure(const struct buf *b)
{
    return b->error == -EFBIG ? -E2BIG : -ENOMEM;
}

// emf_plan.c
int must_use emf_plan_new(struct cw_config *config, const char *cluster, struct emf_plan **out);
void emf_plan_unref(struct emf_plan *p);
struct emf_metric_wanted {
    struct sv name;
    unsigned resolution;
};
// All below: 0, -ENOMEM, -E2BIG.
int must_use emf_metric_get(struct emf *e, const struct emf_metric_wanted *wanted,
                            struct emf_metric **out);
void emf_metric_unref(struct emf_plan *p, struct emf_metric *m);
int must_use emf_rule_get(struct emf *e, struct emf_group *g, const struct emf_metric *m,
                          struct emf_rule **out);
// Which comes first: the one with the first declaration that the other has not.
int emf_rule_order(const struct emf_rule *a, const struct emf_rule *b, size_t words);
void emf_rule_unref(struct emf_plan *p, struct emf_rule *r);
bool emf_is_reserved(struct sv name); // has a meaning of its own in an event

// emf_names.c: {Placeholders} of a log group or stream, out of labels. Appended to out.
void emf_expand_name(struct buf *out, struct sv pattern, const struct labels *l);
// Characters that the service refuses become '-', from byte `from` on; cut to its 512.
void emf_mend_name(struct buf *name, size_t from, bool is_stream);

// emf_group.c
// The group of a series, another metric of which is named like `metric`. A new one has no member.
int must_use emf_group_get(struct emf_target *t, const struct sink_series *s,
                           const struct emf_metric *metric, struct emf_group **out);
void emf_group_release(struct emf_group *g); // when it has no member
const struct emf_pair *emf_group_find(const struct emf_group *g, struct sv label); // NULL: none

// emf_member.c
int must_use emf_member_get(struct emf_target *t, const struct sink_series *s,
                            struct emf_member **out);
void emf_member_unref(struct emf_member *m);

// emf_histogram.c. As emf_member_get, for a series of a histogram.
int must_use emf_part_get(struct emf_target *t, const struct sink_series *s,
                          struct emf_member **out);
void emf_part_unref(struct emf_member *m);
// Takes a sample of the open scrape that is finite and in time. False: not, and that is counted.
bool emf_part_take(struct emf_target *t, struct emf_member *m, double value, int64_t time_ms);
// At the scrape's end: its increases into the open window. How many samples wait there for it.
uint32_t emf_histogram_add(struct emf_member *m);
void emf_histogram_close(struct emf_member *m); // makes the bars of the open window
void emf_histogram_open(struct emf_member *m);  // an empty one
void emf_histogram_free(struct emf_histogram *h);

// emf_value.c: what is sent for a sample, in *value. False: nothing, and that is counted.
bool emf_value_take(struct emf_target *t, struct emf_member *m, double *value, int64_t time_ms);

// emf_event.c
// The values of the open scrape. 0, -ENOMEM, -EFBIG.
int must_use emf_group_send(struct emf_group *g);
// emf_window.c: the same into the open window.
int must_use emf_window_add(struct emf_group *g);
void emf_window_send(struct emf_group *g);
// Members of one event. values: those of the window, else of the scrape.
struct emf_batch {
    struct emf_member **members; // by name
    size_t count;
    int64_t time_ms;
    bool values;
    uint32_t piece; // of the bars of its histograms: LIMIT_EMF_VALUES from there on
};
// As emf_group_send; what was not sent is counted either way.
int emf_batch_send(struct emf_group *g, const struct emf_batch *b);
// Room for all members of a group in e->list.
int must_use emf_list_reserve(struct emf *e, size_t count);
