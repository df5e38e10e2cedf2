// SPDX-License-Identifier: Apache-2.0
// A table with a recording sink, and a job to change. Target labels and rules are text.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "recording_sink.h"

#include "agent/series_internal.h"
#include "base/buf.h"

struct fixture {
    struct recorder sink;
    struct prom_job job;
    struct arena arena;
    struct labels labels;
    uint64_t interval_ns;
    struct series_table *table;
    struct series_result result;
    struct error err;
    int64_t now_ms;
    uint64_t duration_ns;
    bool openmetrics;
};

// "name=value name=value"
static inline void fixture_set_labels(struct fixture *f, const char *text)
{
    struct sv rest = sv_from(text), pair;
    labels_init(&f->labels, &f->arena);
    while (sv_next(&rest, ' ', &pair)) {
        size_t equals = sv_find_char(pair, '=');
        assert_int_equal(
            labels_set(&f->labels, sv_sub(pair, 0, equals), sv_sub(pair, equals + 1, pair.len)), 0);
    }
}

static inline struct relabel_rules *fixture_rules(const char *yaml)
{
    struct yaml_document *d = NULL;
    struct relabel_rules *rules = NULL;
    struct error err = ERROR_INIT;
    int r = yaml_parse(sv_from(yaml), "f", &d, &err);
    if (r == 0)
        r = relabel_parse(yaml_root(d), "f", &rules, &err);
    if (r < 0)
        fail_msg("%s: %s", yaml, err.text);
    yaml_document_free(d);
    return rules;
}

static inline void fixture_set_rules(struct fixture *f, const char *yaml)
{
    relabel_free(f->job.metric_relabel);
    f->job.metric_relabel = fixture_rules(yaml);
}

static inline void fixture_init(struct fixture *f, const char *labels)
{
    *f = (struct fixture){
        .sink = {.log = BUF_INIT(1u << 20)},
        .job = {.name = (char *)(uintptr_t) "j", .honor_timestamps = true},
        .arena = ARENA_INIT(1u << 22),
        .interval_ns = 15 * NS_PER_S,
        .now_ms = 1000,
    };
    fixture_set_labels(f, labels);
}

static inline struct series_options fixture_options(struct fixture *f, struct sink *sink)
{
    *sink = (struct sink){&recorder_ops, &f->sink};
    return (struct series_options){.job = &f->job,
                                   .labels = &f->labels,
                                   .interval_ns = f->interval_ns,
                                   .sinks = sink,
                                   .sink_count = 1};
}

static inline void fixture_start(struct fixture *f)
{
    struct sink sink;
    struct series_options o = fixture_options(f, &sink);
    assert_int_equal(series_table_new(&o, &f->table), 0);
}

static inline void fixture_renew(struct fixture *f)
{
    struct sink sink;
    struct series_options o = fixture_options(f, &sink);
    assert_int_equal(series_table_renew(f->table, &o), 0);
}

static inline int fixture_take_sv(struct fixture *f, struct sv page)
{
    f->err = ERROR_INIT;
    return series_table_take(f->table, page, f->openmetrics ? PARSE_OPENMETRICS : PARSE_PROMETHEUS,
                             f->now_ms, f->duration_ns, &f->result, &f->err);
}

static inline void fixture_take(struct fixture *f, const char *page)
{
    int r = fixture_take_sv(f, sv_from(page));
    if (r < 0)
        fail_msg("%s: line %u: %s", page, f->err.line, f->err.text);
}

// What was told since the last look.
static inline void fixture_expect_at(struct fixture *f, const char *expected, int line)
{
    const char *log = buf_cstr(&f->sink.log);
    if (strcmp(log, expected) != 0)
        fail_msg("line %d:\n%s--- expected:\n%s", line, log, expected);
    buf_reset(&f->sink.log);
}
#define fixture_expect(f, expected) fixture_expect_at(f, expected, __LINE__)

static inline void fixture_deinit(struct fixture *f)
{
    series_table_free(f->table);
    relabel_free(f->job.metric_relabel);
    assert_int_equal(f->sink.live_series, 0);
    assert_int_equal(f->sink.live_targets, 0);
    buf_deinit(&f->sink.log);
    arena_deinit(&f->arena);
}
