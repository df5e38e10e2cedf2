// SPDX-License-Identifier: Apache-2.0
// Discovery and scraper without the agent around them, for tests/integration/test_scrape.py and
// test_discover.py.
//   scrape_probe FILE [--once] [--samples]
// Reads commands from standard input, a line each, and ends with it:
//   view      prints targets, problems and counts as one line of JSON
//   reload    reads FILE again; prints {"reload":0} or the errno
//   stop      the scraper asks nobody any more
//   once      asks each target now; {"done":true} follows
// --once: as if that were the first command. --samples: a line {"sample":...} for each sample.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/discover.h"
#include "agent/prometheus_config.h"
#include "agent/scrape.h"
#include "base/log.h"
#include "base/num_text.h"
#include "codec/json.h"

#define OUTPUT_BYTES (256u << 20)

struct counts {
    uint64_t targets_new, targets_freed, series_new, series_freed, renewed, samples, stale;
};

struct probe {
    struct loop *loop;
    struct http_client *client;
    struct prom_config *config;
    struct scraper *scraper;
    struct discovery *discovery;
    struct loop_fd *input;
    struct buf line;
    struct counts counts;
    const char *path;
    size_t ready_jobs;
    bool prints_samples, is_once;
};

// --- A sink that prints ---

static int sink_target_new(void *sink, const struct sink_target *target, void **out_target)
{
    struct probe *p = sink;
    (void)target;
    p->counts.targets_new++;
    *out_target = p;
    return 0;
}

static void sink_target_free(void *target)
{
    ((struct probe *)target)->counts.targets_freed++;
}

static void add_labels(struct buf *out, const struct labels *l)
{
    buf_add_char(out, '{');
    for (size_t i = 0; i < l->count; i++) {
        if (i)
            buf_add_char(out, ',');
        json_add_string(out, l->items[i].name);
        buf_add_char(out, ':');
        json_add_string(out, l->items[i].value);
    }
    buf_add_char(out, '}');
}

// The series is its own text.
static int sink_series_new(void *target, const struct sink_series *s, void **out_series)
{
    struct probe *p = target;
    struct buf text = BUF_INIT(OUTPUT_BYTES);
    p->counts.series_new++;
    p->counts.renewed += s->replaces != NULL;
    buf_add_str(&text, "\"name\":");
    json_add_string(&text, s->name);
    buf_add_fmt(&text, ",\"internal\":%s,\"labels\":", s->is_internal ? "true" : "false");
    add_labels(&text, s->labels);
    *out_series = sv_dup(buf_sv(&text));
    buf_deinit(&text);
    return *out_series ? 0 : -ENOMEM;
}

static void sink_series_free(void *target, void *series)
{
    ((struct probe *)target)->counts.series_freed++;
    free(series);
}

static void sink_begin(void *target, int64_t scrape_ms)
{
    (void)target;
    (void)scrape_ms;
}

static void sink_sample(void *target, void *series, double value, int64_t timestamp_ms)
{
    struct probe *p = target;
    char number[NUM_DOUBLE_BYTES + 1];
    p->counts.samples++;
    if (!p->prints_samples)
        return;
    number[num_print_double(number, value)] = '\0';
    printf("{\"sample\":{%s,\"value\":\"%s\",\"ms\":%lld}}\n", (const char *)series, number,
           (long long)timestamp_ms);
}

static void sink_stale(void *target, void *series)
{
    (void)series;
    ((struct probe *)target)->counts.stale++;
}

static int sink_end(void *target)
{
    (void)target;
    return 0;
}

static const struct sink_ops sink_ops = {
    .target_new = sink_target_new,
    .target_free = sink_target_free,
    .series_new = sink_series_new,
    .series_free = sink_series_free,
    .begin = sink_begin,
    .sample = sink_sample,
    .stale = sink_stale,
    .end = sink_end,
};

// --- Views ---

struct view {
    struct buf *out;
    bool has_any;
};

static void add_text(struct buf *out, const char *key, const char *text)
{
    buf_add_fmt(out, ",\"%s\":", key);
    json_add_string(out, sv_from(text));
}

static void add_target(void *user, const struct target_view *t)
{
    static const char *const health[] = {"unknown", "up", "down"};
    struct view *v = user;
    struct buf *out = v->out;
    buf_add_str(out, v->has_any ? ",{\"labels\":" : "{\"labels\":");
    v->has_any = true;
    add_labels(out, t->labels);
    buf_add_str(out, ",\"discovered\":");
    add_labels(out, t->discovered);
    add_text(out, "job", t->job);
    add_text(out, "url", t->url);
    add_text(out, "error", t->error);
    add_text(out, "health", health[t->health]);
    buf_add_fmt(out, ",\"dropped\":%s,\"last_ms\":%lld,\"interval_ns\":%llu,\"timeout_ns\":%llu",
                t->is_dropped ? "true" : "false", (long long)t->last_scrape_ms,
                (unsigned long long)t->interval_ns, (unsigned long long)t->timeout_ns);
    buf_add_fmt(out, ",\"duration_ns\":%llu,\"scraped\":%llu,\"duplicates\":%llu}",
                (unsigned long long)t->last_duration_ns, (unsigned long long)t->last.scraped,
                (unsigned long long)t->last.duplicates);
}

static void add_number(struct buf *out, const char *key, uint64_t n)
{
    buf_add_fmt(out, ",\"%s\":%llu", key, (unsigned long long)n);
}

static void add_stats(struct buf *out, const struct probe *p)
{
    struct scraper_stats s;
    scraper_get_stats(p->scraper, &s);
    buf_add_fmt(out, "{\"targets\":%llu", (unsigned long long)s.targets);
    add_number(out, "up", s.up);
    add_number(out, "down", s.down);
    add_number(out, "dropped", s.dropped);
    add_number(out, "scrapes", s.scrapes);
    add_number(out, "failures", s.failures);
    add_number(out, "skipped", s.skipped);
    add_number(out, "limited", s.limited);
    add_number(out, "invalid", s.invalid);
    add_number(out, "samples", s.samples);
    add_number(out, "bytes", s.bytes);
    add_number(out, "series", s.series);
    add_number(out, "sink_targets", p->counts.targets_new - p->counts.targets_freed);
    add_number(out, "sink_targets_new", p->counts.targets_new);
    add_number(out, "sink_series", p->counts.series_new - p->counts.series_freed);
    add_number(out, "sink_series_new", p->counts.series_new);
    add_number(out, "sink_renewed", p->counts.renewed);
    add_number(out, "sink_samples", p->counts.samples);
    add_number(out, "sink_stale", p->counts.stale);
    buf_add_char(out, '}');
}

static void print_view(struct probe *p)
{
    struct buf out = BUF_INIT(OUTPUT_BYTES);
    struct view v = {.out = &out};
    size_t count;
    const struct discovery_problem *problems = discovery_problems(p->discovery, &count);
    buf_add_str(&out, "{\"targets\":[");
    scraper_each_target(p->scraper, add_target, &v);
    buf_add_str(&out, "],\"problems\":[");
    for (size_t i = 0; i < count; i++) {
        buf_add_str(&out, i ? ",[" : "[");
        json_add_string(&out, sv_from(problems[i].job));
        buf_add_char(&out, ',');
        json_add_string(&out, sv_from(problems[i].kind));
        buf_add_char(&out, ',');
        json_add_string(&out, sv_from(problems[i].text));
        buf_add_char(&out, ']');
    }
    buf_add_fmt(&out, "],\"ready_jobs\":%zu,\"stats\":", p->ready_jobs);
    add_stats(&out, p);
    buf_add_char(&out, '}');
    puts(buf_cstr(&out));
    (void)fflush(stdout);
    buf_deinit(&out);
}

// --- Wiring ---

static void on_group(void *user, const struct prom_job *job, const char *source,
                     struct target_group *group)
{
    struct probe *p = user;
    scraper_set_group(p->scraper, job, source, group);
}

static void on_ready(void *user, const struct prom_job *job)
{
    struct probe *p = user;
    p->ready_jobs++;
    scraper_set_ready(p->scraper, job);
}

static void on_all_done(void *user)
{
    (void)user;
    puts("{\"done\":true}");
    (void)fflush(stdout);
}

static int load(struct probe *p)
{
    struct prom_config *next = NULL;
    struct buf errors = BUF_INIT(1u << 20);
    int r = prom_config_load(p->path, &next, &errors);
    if (r < 0)
        fputs(buf_cstr(&errors), stderr);
    buf_deinit(&errors);
    if (r == 0)
        r = scraper_set_config(p->scraper, prom_config_ref(next));
    if (r < 0) {
        prom_config_unref(next);
        return r;
    }
    const struct discovery_options o = {
        .loop = p->loop, .client = p->client, .group = on_group, .ready = on_ready, .user = p};
    p->ready_jobs = 0;
    discovery_free(TAKE_PTR(p->discovery));
    r = discovery_new(&o, next, &p->discovery);
    prom_config_unref(p->config);
    p->config = next;
    return r;
}

static void command(struct probe *p, struct sv line)
{
    if (sv_equals(line, SV("view"))) {
        print_view(p);
    } else if (sv_equals(line, SV("reload"))) {
        printf("{\"reload\":%d}\n", load(p));
        (void)fflush(stdout);
    } else if (sv_equals(line, SV("stop"))) {
        scraper_stop(p->scraper);
    } else if (sv_equals(line, SV("once"))) {
        scraper_run_once(p->scraper);
    } else {
        loop_stop(p->loop, 2);
    }
}

static void on_input(void *user, unsigned events)
{
    struct probe *p = user;
    char bytes[4096];
    ssize_t n = read(STDIN_FILENO, bytes, sizeof(bytes));
    (void)events;
    if (n <= 0) {
        loop_stop(p->loop, 0);
        return;
    }
    buf_add(&p->line, bytes, (size_t)n);
    for (size_t end; (end = sv_find_char(buf_sv(&p->line), '\n')) != (size_t)-1;) {
        command(p, sv_sub(buf_sv(&p->line), 0, end));
        buf_consume(&p->line, end + 1);
    }
}

static int run(struct probe *p)
{
    struct error err = ERROR_INIT;
    const struct sink sink = {&sink_ops, p};
    if (loop_new(&p->loop) < 0 || http_client_new(p->loop, &p->client, &err) < 0)
        return 3;
    const struct scraper_options o = {.loop = p->loop,
                                      .client = p->client,
                                      .sinks = &sink,
                                      .sink_count = 1,
                                      .all_done = on_all_done,
                                      .user = p};
    if (scraper_new(&o, &p->scraper) < 0 || load(p) < 0 ||
        loop_fd_new(p->loop, STDIN_FILENO, LOOP_READABLE, on_input, p, &p->input) < 0)
        return 4;
    if (p->is_once)
        scraper_run_once(p->scraper);
    return loop_run(p->loop);
}

int main(int argc, char **argv)
{
    struct probe p = {.line = BUF_INIT(1u << 16)};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--once") == 0)
            p.is_once = true;
        else if (strcmp(argv[i], "--samples") == 0)
            p.prints_samples = true;
        else
            p.path = argv[i];
    }
    if (!p.path)
        return 2;
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    int status = run(&p);
    loop_fd_free(p.input);
    discovery_free(p.discovery);
    scraper_free(p.scraper);
    http_client_free(p.client);
    prom_config_unref(p.config);
    loop_free(p.loop);
    buf_deinit(&p.line);
    if (p.counts.targets_new != p.counts.targets_freed ||
        p.counts.series_new != p.counts.series_freed)
        return 5; // the sink was not told of an end
    return status;
}
