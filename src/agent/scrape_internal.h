// SPDX-License-Identifier: Apache-2.0
// What the parts of the scraper share. A scraper has jobs; a job has the groups that discovery told
// and the targets that they make, each of which lives as long as one group gives it.
#pragma once

#include "agent/scrape.h"
#include "agent/target.h"
#include "base/map.h"

#define SCRAPE_BODY_SPARES 16
#define SCRAPE_SPARE_BYTES (256u << 10) // larger bodies are rare: their memory is given back

struct scrape_target {
    struct scraper *scraper;
    struct scrape_job *job;
    struct scrape_target *previous, *next; // in the job
    struct hash128 id;
    unsigned providers; // places in groups that make it
    char *text;         // owns what url, shown_url and labels point to
    const char *url, *shown_url;
    struct labels labels; // final, without "__" ones
    uint64_t interval_ns, timeout_ns;
    uint64_t due_ns; // its next turn

    struct loop_timer *timer;
    struct http_handle *handle;  // NULL until it is first asked
    struct http_call *call;      // NULL: no scrape under way
    struct series_table *series; // NULL until its first scrape ends
    struct buf body;             // of the scrape under way
    uint64_t start_ns;
    int64_t start_ms;
    bool is_asked; // with --once: no turn is waited for any more

    enum target_health health;
    char *error; // NULL: none
    int64_t last_scrape_ms;
    uint64_t last_duration_ns;
    struct series_result last;
    bool is_shown; // in the view that is being made
};

enum outcome_kind {
    OUTCOME_TARGET,
    OUTCOME_DROPPED, // by relabelling
    OUTCOME_INVALID, // reason says why
    OUTCOME_LIMITED, // over our cap, or no memory
};

struct outcome { // of one label set of a group
    enum outcome_kind kind;
    struct scrape_target *target;
    char *reason; // NULL: none, or no memory
};

struct scrape_group {
    struct scrape_group *previous, *next; // in the job
    struct target_group *group;
    struct outcome *outcomes; // one for each of its targets; NULL: no memory
    bool is_old;              // of the configuration before, and not given again
    char source[];
};

struct scrape_job {
    const struct prom_job *config;
    struct map groups;  // by source: struct scrape_group
    struct map targets; // by identity: struct scrape_target
    struct scrape_group *first_group;
    struct scrape_target *first;
    char *accept; // header line
    bool is_ready;
};

struct scraper {
    struct scraper_options options; // sinks: ours
    struct sink *sinks;
    struct prom_config *config; // NULL: none yet
    struct scrape_job *jobs;    // one for each of config
    uint64_t identity_seed, offset_seed;
    struct arena build; // scratch of target_build
    struct buf spares[SCRAPE_BODY_SPARES];
    size_t spare_count;
    size_t body_bytes; // of all scrapes under way
    size_t under_way;
    size_t target_count;
    size_t unasked; // targets that --once waits for
    bool is_once, is_stopped;
    struct loop_timer *done_timer; // tells all_done from the loop
    uint64_t scrapes, failures, skipped, samples, duplicates, unusable, bytes; // since start
};

// --- scrape_target.c: one target ---

// 0, -ENOMEM.
int must_use scrape_target_new(struct scrape_job *job, struct scraper *s,
                               const struct target_spec *spec, struct hash128 id);
struct scrape_target *scrape_target_find(const struct scrape_job *job, struct hash128 id);
// Other times of its turns, where they differ.
void scrape_target_set_times(struct scrape_target *t, const struct target_spec *spec);
// Its job's configuration is another one, or the sinks are.
void scrape_target_renew(struct scrape_target *t);
void scrape_target_stop(struct scrape_target *t);
// Out of its job, too.
void scrape_target_free(struct scrape_target *t);
// With --once: now.
void scrape_target_ask(struct scrape_target *t);

// --- scrape_group.c: from groups to targets ---

// Makes the targets of a group anew (group: the reference is taken) or takes it away (NULL). 0,
// -ENOMEM (as it was).
int must_use scrape_group_set(struct scraper *s, struct scrape_job *job, struct sv source,
                              struct target_group *group);
// All groups of a job whose configuration is another one.
void scrape_group_remake(struct scraper *s, struct scrape_job *job);
// All of them, or those that the configuration before had and this one has not.
void scrape_group_drop(struct scrape_job *job, bool only_old);

// --- scrape.c ---

bool scrape_is_over_limit(const struct scrape_job *job);
// A target or job changed that --once may have waited for.
void scrape_check_once(struct scraper *s);
