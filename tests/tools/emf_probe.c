// SPDX-License-Identifier: Apache-2.0
// From pages to events, for tests/integration/test_emf.py.
//   emf_probe [--compat] CWAGENT_JSON PROMETHEUS_YAML JOB CLUSTER {LABEL=VALUE...}
//     stdin: pages of one target with those labels, a NUL behind each, an interval apart from
//     1767323040000 on. Prints each event as a line of JSON, then a line with the count of samples,
//     of those in events and of different metrics.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/series.h"
#include "agent/sinks/emf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "codec/json.h"

#define START_MS INT64_C(1767323040000)

static void print_event(void *user, const struct emf_event *event)
{
    struct buf line = BUF_INIT(LIMIT_EMF_TEXT_BYTES);
    buf_add_str(&line, "{\"group\":");
    json_add_string(&line, event->log_group);
    buf_add_str(&line, ",\"stream\":");
    json_add_string(&line, event->log_stream);
    buf_add_fmt(&line,
                ",\"timestamp\":%lld,\"samples\":%u,\"text\":", (long long)event->timestamp_ms,
                event->samples);
    json_add_string(&line, event->text);
    buf_add_char(&line, '}');
    puts(buf_cstr(&line));
    buf_deinit(&line);
}

static struct cw_config *read_cwagent(const char *path, bool compat)
{
    char *environment[] = {"RUN_IN_CONTAINER=True", NULL};
    struct cw_sources from = {.path = path, .environment = environment, .compat = compat};
    struct buf errors = BUF_INIT(1u << 20), warnings = BUF_INIT(1u << 20);
    struct cw_config *c = NULL;
    if (cw_config_load(&from, &c, &errors, &warnings) < 0) {
        fputs(buf_cstr(&errors), stderr);
        exit(1);
    }
    buf_deinit(&errors);
    buf_deinit(&warnings);
    return c;
}

static struct prom_config *read_prometheus(const char *path)
{
    struct buf errors = BUF_INIT(1u << 20);
    struct prom_config *c = NULL;
    if (prom_config_load(path, &c, &errors) < 0) {
        fputs(buf_cstr(&errors), stderr);
        exit(1);
    }
    buf_deinit(&errors);
    return c;
}

static const struct prom_job *find_job(const struct prom_config *c, const char *name)
{
    for (size_t i = 0; i < c->job_count; i++) {
        if (strcmp(c->jobs[i].name, name) == 0)
            return &c->jobs[i];
    }
    fprintf(stderr, "no job %s\n", name);
    exit(1);
}

static void read_labels(char **pairs, struct labels *l)
{
    for (; *pairs; pairs++) {
        struct sv pair = sv_from(*pairs);
        size_t equals = sv_find_char(pair, '=');
        if (equals == (size_t)-1 ||
            labels_set(l, sv_sub(pair, 0, equals), sv_sub(pair, equals + 1, pair.len)) < 0)
            exit(2);
    }
}

static void take_pages(struct series_table *t, uint64_t interval_ns)
{
    struct buf in = BUF_INIT(1u << 28);
    char piece[65536];
    for (size_t n; (n = fread(piece, 1, sizeof(piece), stdin)) > 0;)
        buf_add(&in, piece, n);
    struct sv rest = buf_sv(&in), page;
    for (int64_t now = START_MS; sv_next(&rest, '\0', &page);
         now += (int64_t)(interval_ns / NS_PER_MS)) {
        struct series_result result;
        struct error err = ERROR_INIT;
        char text[1024];
        if (series_table_take(t, page, PARSE_PROMETHEUS, now, 0, &result, &err) < 0) {
            fprintf(stderr, "%s\n", error_text(&err, text, sizeof(text)));
            exit(1);
        }
    }
    buf_deinit(&in);
}

static void run(struct emf *e, const struct prom_job *job, char **pairs)
{
    struct arena arena = ARENA_INIT(1u << 20);
    struct labels labels;
    struct sink sink = emf_sink(e);
    struct series_table *table = NULL;
    labels_init(&labels, &arena);
    read_labels(pairs, &labels);
    struct series_options o = {.job = job,
                               .labels = &labels,
                               .interval_ns = job->interval_ns,
                               .sinks = &sink,
                               .sink_count = 1};
    if (series_table_new(&o, &table) < 0)
        exit(2);
    take_pages(table, job->interval_ns);
    struct emf_stats s;
    emf_flush(e, START_MS, true);
    emf_get_stats(e, &s);
    printf("{\"samples\":%llu,\"event_samples\":%llu,\"custom_metrics\":%llu}\n",
           (unsigned long long)s.samples, (unsigned long long)s.event_samples,
           (unsigned long long)s.custom_metrics);
    series_table_free(table);
    arena_deinit(&arena);
}

int main(int argc, char **argv)
{
    bool compat = argc > 1 && strcmp(argv[1], "--compat") == 0;
    char **files = argv + 1 + compat;
    if (argc < 5 + compat) {
        fprintf(stderr,
                "usage: %s [--compat] CWAGENT_JSON PROMETHEUS_YAML JOB CLUSTER LABEL=VALUE...\n",
                argv[0]);
        return 2;
    }
    struct cw_config *cw = read_cwagent(files[0], compat);
    struct prom_config *prom = read_prometheus(files[1]);
    struct emf_options o = {.cluster = files[3], .event = print_event};
    struct emf *e = NULL;
    if (emf_new(cw, &o, &e) < 0)
        return 2;
    run(e, find_job(prom, files[2]), files + 4);
    emf_free(e);
    cw_config_unref(cw);
    prom_config_unref(prom);
    return 0;
}
