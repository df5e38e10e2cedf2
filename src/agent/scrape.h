// SPDX-License-Identifier: Apache-2.0
// Targets and their scrapes: groups of labels become targets (relabelling, defaults, one target a
// final label set), each is asked at its own stable offset in its interval, and the answer goes to
// its series table.
#pragma once

#include "agent/prometheus_config.h"
#include "agent/series.h"
#include "agent/target_group.h"
#include "io/http_client.h"
#include "io/loop.h"

struct scraper_options {
    struct loop *loop;
    struct http_client *client;
    const struct sink *sinks; // copied
    size_t sink_count;
    // Every target that is known and every job that is ready has been asked once (--once).
    void (*all_done)(void *user);
    void *user;
};

struct scraper;
int must_use scraper_new(const struct scraper_options *o, struct scraper **out); // 0, -ENOMEM
// A new configuration, whose reference is taken. Targets whose final labels and URL stay keep their
// series and their turn; those whose groups are not given again before the job is ready go. 0,
// -ENOMEM (as it was).
int must_use scraper_set_config(struct scraper *s, struct prom_config *config);
// The sinks look at series differently from now on: all are told to them anew.
void scraper_renew_series(struct scraper *s);
// From discovery; the reference passes. group NULL: gone.
void scraper_set_group(struct scraper *s, const struct prom_job *job, const char *source,
                       struct target_group *group);
void scraper_set_ready(struct scraper *s, const struct prom_job *job);
// Asks each target now, once, instead of in turns; all_done follows.
void scraper_run_once(struct scraper *s);
// No new scrapes; those under way end without effect.
void scraper_stop(struct scraper *s);
void scraper_free(struct scraper *s);

enum target_health {
    TARGET_UNKNOWN, // not asked yet
    TARGET_UP,
    TARGET_DOWN,
};

struct target_view { // borrowed for the callback
    const char *job;
    const char *url;                 // credentials and secret parameters redacted
    const struct labels *labels;     // final, without "__" ones
    const struct labels *discovered; // before relabelling, secret parameters redacted
    enum target_health health;
    const char *error;      // of the last scrape; "" when it succeeded
    int64_t last_scrape_ms; // wall time; 0: none yet
    uint64_t last_duration_ns;
    struct series_result last;
    uint64_t interval_ns, timeout_ns;
    // By relabelling (error ""), or because no target can be made of it or there is no room for one
    // (error says which): only discovered, job, health and error are set.
    bool is_dropped;
};
void scraper_each_target(const struct scraper *s,
                         void (*each)(void *user, const struct target_view *t), void *user);

struct scraper_stats {
    uint64_t targets, up, down, dropped; // now
    uint64_t scrapes, failures;          // since start
    uint64_t skipped; // turns that came while the scrape before was still under way
    uint64_t limited; // targets over target_limit, or over our own cap, now
    uint64_t invalid; // targets that relabelling left without a usable address, now
    uint64_t samples, duplicates, unusable, bytes; // since start
    uint64_t series;                               // now
};
void scraper_get_stats(const struct scraper *s, struct scraper_stats *out);
