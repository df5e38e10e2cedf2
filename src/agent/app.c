// SPDX-License-Identifier: Apache-2.0
// Wiring and life. A start goes through three steps: the place (region, credentials, cluster; some
// of it asked over the network), then the sink, scraper and discovery, then an orderly end: no new
// scrapes, what was gathered is flushed, sent, or left in the spool.
#include "agent/app.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/app_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"

#define END_DEADLINE_NS (10 * NS_PER_S) // Kubernetes kills after 30 s
#define ONCE_DEADLINE_NS (60 * NS_PER_S)
#define ESTIMATE_ROUNDS 2 // counters show themselves in the second
#define ESTIMATE_PAUSE_NS (1 * NS_PER_S)
#define SUMMARY_LEAST_NS (10 * NS_PER_S)

static int64_t wall_ms(void)
{
    return (int64_t)(clock_wall_ns() / NS_PER_MS);
}

// --- The end ---

static void stop_loop(void *user)
{
    struct agent *a = user;
    loop_stop(a->loop, a->status);
}

static void stop_late(void *user)
{
    struct agent *a = user;
    log_warn("end is overdue, what is not shipped yet is left");
    if (a->options->flags.once)
        a->status = 1;
    stop_loop(a);
}

static void on_shipped(void *user)
{
    struct agent *a = user;
    if (a->options->flags.once && !agent_all_shipped(a)) {
        log_error("not every event could be shipped");
        a->status = 1;
    }
    stop_loop(a);
}

// In order: what is there is shipped or spooled.
static void agent_end(struct agent *a, int status)
{
    uint64_t deadline_ns = a->options->flags.once ? ONCE_DEADLINE_NS : END_DEADLINE_NS;
    if (a->is_ending)
        return;
    a->is_ending = true;
    a->status = status;
    if (a->scraper)
        scraper_stop(a->scraper);
    if (a->emf)
        emf_flush(a->emf, wall_ms(), true);
    loop_timer_set(a->deadline, deadline_ns, 0);
    agent_drain(a, on_shipped, deadline_ns - NS_PER_S / 2);
}

void agent_fail(struct agent *a, const char *phrase, const char *text)
{
    log_error(phrase, LOG_STR("error", text));
    a->status = 1;
    a->is_ending = true;
    stop_loop(a);
}

// --- One round ---

static void count_down(void *user, const struct target_view *t)
{
    unsigned *down = user;
    *down += !t->is_dropped && t->health != TARGET_UP;
}

static void tell_estimate(const struct agent *a)
{
    struct emf_stats s;
    struct scraper_stats t;
    emf_get_stats(a->emf, &s);
    scraper_get_stats(a->scraper, &t);
    printf("targets up:              %llu of %llu\n", (unsigned long long)t.up,
           (unsigned long long)t.targets);
    printf("custom metrics:          %llu\n", (unsigned long long)s.custom_metrics);
    printf("log in 30 days:          %.3f GB\n", a->month_bytes / 1e9);
    printf("samples without a rule:  %llu of %llu\n", (unsigned long long)s.dropped_unmatched,
           (unsigned long long)s.samples);
    (void)fflush(stdout);
}

static void on_next_round(void *user)
{
    struct agent *a = user;
    emf_flush(a->emf, wall_ms(), true); // windows of the first round
    a->counts_month = true;
    scraper_run_once(a->scraper);
}

static void on_round(void *user)
{
    struct agent *a = user;
    bool estimates = a->options->flags.estimate;
    a->rounds++;
    if (estimates && a->rounds < ESTIMATE_ROUNDS) {
        loop_timer_set(a->deadline, ESTIMATE_PAUSE_NS, 0);
        return;
    }
    if (estimates) {
        emf_flush(a->emf, wall_ms(), true);
        tell_estimate(a);
    }
    unsigned down = 0;
    scraper_each_target(a->scraper, count_down, &down);
    if (down > 0)
        log_warn("targets are down", LOG_U64("targets", down));
    agent_end(a, down > 0 ? 1 : 0);
}

static void on_deadline(void *user)
{
    struct agent *a = user;
    if (!a->is_ending)
        on_next_round(a);
    else
        stop_late(a);
}

static bool runs_once(const struct agent *a)
{
    return a->options->flags.once || a->options->flags.estimate;
}

// --- Discovery ---

static void on_group(void *user, const struct prom_job *job, const char *source,
                     struct target_group *group)
{
    struct agent *a = user;
    scraper_set_group(a->scraper, job, source, group);
}

static void on_ready(void *user, const struct prom_job *job)
{
    struct agent *a = user;
    scraper_set_ready(a->scraper, job);
    a->ready_jobs++;
}

int agent_discover(struct agent *a)
{
    const struct discovery_options o = {
        .loop = a->loop,
        .client = a->client,
        .node_name = a->config.cw->scope_node ? a->options->node_name : NULL,
        .group = on_group,
        .ready = on_ready,
        .user = a,
    };
    struct discovery *next = NULL;
    a->ready_jobs = 0;
    int r = discovery_new(&o, a->config.prom, &next);
    discovery_free(a->discovery); // also without a next one: it reads the configuration before
    a->discovery = next;
    return r;
}

// --- Begin ---

// For the label host: the machine's own where the configuration has none. NULL: no name.
static const char *find_hostname(const struct agent *a, char *machine, size_t bytes)
{
    if (a->config.cw->hostname)
        return a->config.cw->hostname;
    if (gethostname(machine, bytes) == 0)
        return machine;
    log_warn("the machine has no name, events are without host", LOG_STR("error", strerror(errno)));
    return NULL;
}

static int begin(struct agent *a)
{
    char machine[HOST_NAME_MAX + 1] = "";
    const struct emf_options emf = {
        .cluster = agent_cluster(a),
        .hostname = find_hostname(a, machine, sizeof(machine)),
        .event = agent_on_event,
        .user = a,
    };
    int r = emf_new(a->config.cw, &emf, &a->emf);
    if (r < 0)
        return r;
    const struct sink sink = emf_sink(a->emf);
    const struct scraper_options scraper = {
        .loop = a->loop,
        .client = a->client,
        .sinks = &sink,
        .sink_count = 1,
        .all_done = on_round,
        .user = a,
    };
    r = scraper_new(&scraper, &a->scraper);
    if (r == 0)
        r = scraper_set_config(a->scraper, prom_config_ref(a->config.prom));
    if (r == 0)
        r = agent_discover(a);
    if (r == 0 && runs_once(a))
        scraper_run_once(a->scraper); // as soon as every job is ready
    return r;
}

void agent_begin(struct agent *a)
{
    struct error err = ERROR_INIT;
    int r = a->options->flags.estimate ? 0 : agent_open_outputs(a, &err);
    if (r == 0)
        r = begin(a);
    if (r < 0) {
        agent_fail(a, "start failed", err.text[0] ? err.text : strerror(-r));
        return;
    }
    a->began_ns = loop_now_ns(a->loop);
    log_info("scraping", LOG_U64("jobs", a->config.prom->job_count),
             LOG_U64("declarations", a->config.cw->declaration_count),
             LOG_STR("cluster", a->cluster), LOG_STR("region", a->region));
}

// What it costs is told once, when there was time for every target's second scrape.
static void tell_summary(struct agent *a)
{
    uint64_t longest_ns = a->config.cw->aggregate_ns;
    if (a->summary_told || !a->emf || runs_once(a))
        return;
    for (size_t i = 0; i < a->config.prom->job_count; i++) {
        uint64_t interval_ns = a->config.prom->jobs[i].interval_ns;
        longest_ns = interval_ns > longest_ns ? interval_ns : longest_ns;
    }
    uint64_t since_ns = loop_now_ns(a->loop) - a->began_ns;
    if (since_ns < SUMMARY_LEAST_NS || since_ns < 3 * longest_ns)
        return;
    a->summary_told = true;
    struct emf_stats s;
    emf_get_stats(a->emf, &s);
    double month = (double)a->event_bytes * (30.0 * 86400) / ((double)since_ns / (double)NS_PER_S);
    char gigabytes[32];
    (void)snprintf(gigabytes, sizeof(gigabytes), "%.3f", month / 1e9);
    log_info("what this configuration makes", LOG_U64("custom_metrics", s.custom_metrics),
             LOG_STR("log_gb_in_30_days", gigabytes));
}

// What the post's own files do.
static void tell_emptiness(struct agent *a)
{
    struct scraper_stats s;
    if (a->emptiness_told || !a->scraper || a->ready_jobs < a->config.prom->job_count)
        return;
    scraper_get_stats(a->scraper, &s);
    if (s.targets > 0)
        return;
    a->emptiness_told = true;
    log_warn("no job has a target, nothing is scraped; --lint may tell why",
             LOG_U64("dropped_by_relabelling", s.dropped), LOG_U64("invalid", s.invalid));
}

static void on_tick(void *user)
{
    struct agent *a = user;
    if (a->is_ending)
        return;
    if (a->emf)
        emf_flush(a->emf, wall_ms(), false);
    tell_summary(a);
    tell_emptiness(a);
    agent_retire_pages(a);
    for (size_t i = 0; i < a->output_count; i++) {
        struct event_output_stats s;
        event_output_get_stats(a->outputs[i], &s);
        if (s.is_gone)
            agent_fail(a, "nobody reads the events any more", "standard output is closed");
    }
}

static void on_signal(void *user, int signo)
{
    struct agent *a = user;
    if (signo == SIGHUP) {
        for (size_t i = 0; i < a->output_count; i++)
            event_output_reopen(a->outputs[i]);
        (void)agent_reload(a, "SIGHUP");
        return;
    }
    log_info("received signal", LOG_STR("signal", strsignal(signo)));
    if (a->is_ending)
        stop_loop(a); // asked twice: at once
    else
        agent_end(a, 0);
}

// --- Construction ---

static int start_signals(struct agent *a, struct error *err)
{
    static const int signos[APP_SIGNALS] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
    for (size_t i = 0; i < APP_SIGNALS; i++) {
        int r = loop_signal_new(a->loop, signos[i], on_signal, a, &a->signals[i]);
        if (r < 0)
            return error_set(err, r, "signal %d cannot be watched: %s", signos[i], strerror(-r));
    }
    return 0;
}

static int start_server(struct agent *a, struct error *err)
{
    if (a->options->flags.listen[0] == '\0' || runs_once(a))
        return 0;
    const struct http_server_config http = {
        .address = a->options->flags.listen,
        .web_config_file = a->options->flags.web_config_file,
        .handle = agent_handle,
        .user = a,
    };
    int r = http_server_new(a->loop, &http, &a->server, err);
    if (r == 0)
        log_info("listening", LOG_STR("address", http.address),
                 LOG_U64("port", http_server_port(a->server)),
                 LOG_BOOL("web_config", http.web_config_file[0] != '\0'));
    return r;
}

static int start(struct agent *a, struct error *err)
{
    int r = loop_new(&a->loop);
    if (r == 0)
        r = loop_timer_new(a->loop, on_tick, a, &a->tick);
    if (r == 0)
        r = loop_timer_new(a->loop, on_deadline, a, &a->deadline);
    if (r < 0)
        return error_set(err, r, "start failed: %s", strerror(-r));
    loop_timer_every(a->tick, NS_PER_S);
    r = start_signals(a, err);
    if (r == 0)
        r = http_client_new(a->loop, &a->client, err);
    if (r == 0)
        r = start_server(a, err);
    return r;
}

int agent_new(const struct agent_options *options, char *const *environment,
              struct agent_config *config, struct agent **out, struct error *err)
{
    struct agent *a = calloc(1, sizeof(*a));
    if (!a)
        return error_set(err, -ENOMEM, "out of memory");
    a->options = options;
    a->config = *config;
    *config = (struct agent_config){0};
    a->started_wall_ns = a->config_ok_wall_ns = clock_wall_ns();
    a->config_ok = true;
    int r = start(a, err);
    if (r < 0) {
        agent_free(a);
        return r;
    }
    a->env = (struct aws_env){a->loop, a->client, environment};
    *out = a;
    return 0;
}

int agent_run(struct agent *a)
{
    agent_find_place(a);
    int status = loop_run(a->loop);
    process_hold_signals();
    log_info("shutdown complete");
    return status;
}

void agent_free(struct agent *a)
{
    if (!a)
        return;
    agent_drop_pages(a);
    http_server_free(a->server);
    aws_lookup_free(a->lookup);
    discovery_free(a->discovery);
    scraper_free(a->scraper);
    emf_free(a->emf);
    delivery_free(a->delivery);
    for (size_t i = 0; i < a->output_count; i++)
        event_output_free(a->outputs[i]);
    aws_logs_free(a->logs);
    aws_credentials_free(a->credentials);
    file_watch_free(a->watch);
    http_client_free(a->client);
    loop_timer_free(a->tick);
    loop_timer_free(a->deadline);
    for (size_t i = 0; i < APP_SIGNALS; i++)
        loop_signal_free(a->signals[i]);
    loop_free(a->loop);
    agent_config_deinit(&a->config);
    free(a);
}
