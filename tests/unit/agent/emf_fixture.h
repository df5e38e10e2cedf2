// SPDX-License-Identifier: Apache-2.0
// A sink under test: configuration as JSON, samples as exposition text, events as lines.
#pragma once

#include "agent/sinks/emf.h"
#include "base/arena.h"
#include "base/buf.h"

#define FIXTURE_SERIES 4096

struct fixture_series {
    char *text; // as in the page
    void *handle;
    bool seen;
};

// One target of one sink.
struct emf_fixture {
    struct emf *emf;
    struct sink sink;
    void *target;
    struct arena arena;
    struct labels labels; // of the target
    struct fixture_series series[FIXTURE_SERIES];
    size_t series_count;
    bool scraped;      // the scrape before succeeded
    struct buf events; // texts, each with a line end
    struct buf places; // "group stream timestamp samples\n" of each
    int error;         // of the last end
};

struct emf_fixture_options {
    const char *config; // what stands under logs.metrics_collected.prometheus
    const char *podgpu; // what stands under podgpu; NULL
    const char *cluster;
    const char *hostname;
    const char *labels; // of the target: a="b",c="d"
    uint64_t interval_s;
    bool compat;
    bool add_host;
};

struct cw_config *emf_fixture_config(const struct emf_fixture_options *o);
struct emf_fixture *emf_fixture_new(const struct emf_fixture_options *o);
// One scrape: its events are then in f->events, without those before.
void emf_fixture_scrape(struct emf_fixture *f, const char *page, int64_t time_ms);
void emf_fixture_fail(struct emf_fixture *f, int64_t time_ms);
// As series_table_renew with the next scrape.
void emf_fixture_renew(struct emf_fixture *f, const struct emf_fixture_options *o);
// Fails the test unless those are the texts, each with a line end; checks the stats, too.
void emf_fixture_expect(struct emf_fixture *f, const char *events);
void emf_fixture_expect_places(struct emf_fixture *f, const char *places);
struct emf_stats emf_fixture_stats(const struct emf_fixture *f);
// Fails the test unless each sample is in an event, waits or was counted as dropped.
void emf_fixture_check_stats(const struct emf_fixture *f);
void emf_fixture_free(struct emf_fixture *f);
