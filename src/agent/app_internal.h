// SPDX-License-Identifier: Apache-2.0
// The agent's own state, shared by its files: app.c (wiring and life), app_place.c (region,
// credentials, cluster), app_ship.c (events to their output), app_reload.c (a new configuration),
// app_page.c (what it shows of itself).
#pragma once

#include "agent/app.h"
#include "agent/aws/credentials.h"
#include "agent/aws/logs.h"
#include "agent/delivery.h"
#include "agent/discover.h"
#include "agent/event_output.h"
#include "agent/scrape.h"
#include "agent/sinks/emf.h"
#include "base/limits.h"
#include "io/file_watch.h"
#include "io/http_server.h"

#define APP_SIGNALS 4

struct app_page { // a large one, kept for those who ask next
    struct http_body *body;
    bool is_html;
    uint64_t made_ns;
};

struct agent {
    const struct agent_options *options;
    struct agent_config config; // in force
    struct loop *loop;
    struct http_client *client;
    struct aws_env env;

    // app_place.c
    struct aws_lookup *lookup; // under way
    struct aws_credentials *credentials;
    char region[64];   // "" not known
    char cluster[256]; // "" none
    bool place_failed; // what a reload said of it could not be taken in

    // app_ship.c
    struct aws_logs *logs;     // NULL: nothing goes to CloudWatch
    struct delivery *delivery; // the same
    struct event_output *outputs[CW_OUTPUTS_MAX];
    size_t output_count;
    unsigned draining;           // outputs that are not empty yet
    void (*drained)(void *user); // who waits for the end of a drain
    uint64_t event_bytes;        // with CloudWatch's overhead, since start
    double month_bytes;          // what the events of the round that is counted make in 30 days
    bool counts_month;

    struct emf *emf; // NULL until the place is known
    struct scraper *scraper;
    struct discovery *discovery;
    size_t ready_jobs;
    unsigned rounds; // of --once and --estimate that are done

    struct http_server *server;
    struct app_page pages[LIMIT_AGENT_PAGES_LIVE]; // of /targets; newest last
    size_t page_count;
    uint64_t shut_readers;
    struct file_watch *watch;
    struct loop_timer *tick;
    struct loop_timer *deadline; // of an orderly end
    struct loop_signal *signals[APP_SIGNALS];
    bool is_ending;
    int status;
    uint64_t started_wall_ns, began_ns;
    bool summary_told;   // the line about custom metrics and log
    bool emptiness_told; // since the configuration was taken
    uint64_t reloads, reload_failures, config_ok_wall_ns;
    bool config_ok;
};

// app.c
void agent_begin(struct agent *a);                                      // the place is known
void agent_fail(struct agent *a, const char *phrase, const char *text); // ends with status 1
int must_use agent_discover(struct agent *a); // from the configuration in force

// app_place.c
void agent_find_place(struct agent *a); // then agent_begin or agent_fail
// After a reload: what the new configuration says, where it differs from the one before.
int must_use agent_set_place(struct agent *a, const struct cw_config *before_cw, struct error *err);
const char *agent_cluster(const struct agent *a); // NULL: none

// app_ship.c
int must_use agent_open_outputs(struct agent *a, struct error *err);
int must_use agent_open_logs(struct agent *a, struct error *err); // or anew
void agent_on_event(void *user, const struct emf_event *event);   // user: the agent
// done is told once when all that was given is shipped, or at the deadline; perhaps from inside.
void agent_drain(struct agent *a, void (*done)(void *user), uint64_t deadline_ns);
bool agent_all_shipped(const struct agent *a);
bool agent_sends_to_cloudwatch(const struct agent *a);

// app_reload.c
int agent_reload(struct agent *a, const char *why);
int must_use agent_watch_files(struct agent *a, const struct buf *paths); // one a line
void agent_log_lines(bool is_error, const struct buf *lines);
bool agent_texts_differ(const char *a, const char *b); // NULL is as good as ""

// app_page.c, app_metrics.c
void agent_handle(void *user, struct http_request *request);
void agent_retire_pages(struct agent *a); // each second
void agent_drop_pages(struct agent *a);
struct http_body *agent_metrics_page(const struct agent *a); // NULL: no memory
