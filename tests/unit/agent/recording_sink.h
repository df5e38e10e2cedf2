// SPDX-License-Identifier: Apache-2.0
// A sink that writes down what it is told, a line each:
//   T1 job{a=b} 15000ms     a target      -T1     freed
//   s1 m{a=b} gauge ...     a series; then "internal", "new", "replaces s0"      -s1     freed
//   begin T1 1000 | s1=5@1000 | s1 stale | end
// It asserts the order that sink.h promises.
#pragma once

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/sink.h"
#include "base/buf.h"
#include "base/clock.h"

struct recorder {
    struct buf log;
    const char *tag;            // stands before each line; NULL: none
    const char *unwanted;       // name of series that it has no use for; NULL: none
    bool unwanted_untyped;      // series without a type, too
    bool wants_internal;        // up and its like
    unsigned targets, serieses; // ids given
    unsigned live_targets, live_series;
    bool is_open; // between begin and end
    bool refuses; // all that is new gets -ENOMEM
};

struct recorded_target {
    struct recorder *r;
    unsigned id;
    unsigned series;
};

struct recorded_series {
    struct recorded_target *target;
    unsigned id;
};

static inline void recorder_labels(struct recorder *r, const struct labels *l)
{
    buf_add_char(&r->log, '{');
    for (size_t i = 0; i < l->count; i++)
        buf_add_fmt(&r->log, "%s%.*s=%.*s", i ? "," : "", SV_FMT(l->items[i].name),
                    SV_FMT(l->items[i].value));
    buf_add_char(&r->log, '}');
}

static inline void recorder_tag(struct recorder *r)
{
    if (r->tag)
        buf_add_str(&r->log, r->tag);
}

static inline int recorder_target_new(void *sink, const struct sink_target *target,
                                      void **out_target)
{
    struct recorder *r = sink;
    struct recorded_target *t = r->refuses ? NULL : malloc(sizeof(*t));
    if (!t)
        return -ENOMEM;
    *t = (struct recorded_target){.r = r, .id = ++r->targets};
    r->live_targets++;
    recorder_tag(r);
    buf_add_fmt(&r->log, "T%u %.*s", t->id, SV_FMT(target->job));
    recorder_labels(r, target->labels);
    buf_add_fmt(&r->log, " %llums\n", (unsigned long long)(target->interval_ns / NS_PER_MS));
    *out_target = t;
    return 0;
}

static inline void recorder_target_free(void *target)
{
    struct recorded_target *t = target;
    assert(t->series == 0);
    recorder_tag(t->r);
    buf_add_fmt(&t->r->log, "-T%u\n", t->id);
    t->r->live_targets--;
    free(t);
}

static inline bool recorder_wants(const struct recorder *r, const struct sink_series *s)
{
    if (s->is_internal)
        return r->wants_internal;
    if (r->unwanted_untyped && s->type == PARSE_TYPE_NONE)
        return false;
    return !r->unwanted || !sv_equals(s->name, sv_from(r->unwanted));
}

static inline int recorder_series_new(void *target, const struct sink_series *s, void **out_series)
{
    struct recorded_target *t = target;
    struct recorder *r = t->r;
    assert(!r->is_open && s->name.len);
    *out_series = NULL;
    if (!recorder_wants(r, s))
        return r->refuses ? -ENOMEM : 0;
    struct recorded_series *series = r->refuses ? NULL : malloc(sizeof(*series));
    if (!series)
        return -ENOMEM;
    *series = (struct recorded_series){.target = t, .id = ++r->serieses};
    t->series++;
    r->live_series++;
    recorder_tag(r);
    buf_add_fmt(&r->log, "s%u %.*s", series->id, SV_FMT(s->name));
    recorder_labels(r, s->labels);
    buf_add_fmt(&r->log, " %s", s->type == PARSE_TYPE_NONE ? "none" : parse_type_text(s->type));
    if (s->is_internal)
        buf_add_str(&r->log, " internal");
    if (s->is_new)
        buf_add_str(&r->log, " new");
    if (s->replaces)
        buf_add_fmt(&r->log, " replaces s%u", ((struct recorded_series *)s->replaces)->id);
    buf_add_char(&r->log, '\n');
    *out_series = series;
    return 0;
}

static inline void recorder_series_free(void *target, void *series)
{
    struct recorded_target *t = target;
    struct recorded_series *s = series;
    assert(s->target == t && t->series > 0);
    recorder_tag(t->r);
    buf_add_fmt(&t->r->log, "-s%u\n", s->id);
    t->series--;
    t->r->live_series--;
    free(s);
}

static inline void recorder_begin(void *target, int64_t scrape_ms)
{
    struct recorded_target *t = target;
    assert(!t->r->is_open);
    t->r->is_open = true;
    recorder_tag(t->r);
    buf_add_fmt(&t->r->log, "begin T%u %lld\n", t->id, (long long)scrape_ms);
}

static inline void recorder_sample(void *target, void *series, double value, int64_t timestamp_ms)
{
    struct recorded_target *t = target;
    struct recorded_series *s = series;
    assert(t->r->is_open && s->target == t);
    recorder_tag(t->r);
    buf_add_fmt(&t->r->log, "s%u=%g@%lld\n", s->id, value, (long long)timestamp_ms);
}

static inline void recorder_stale(void *target, void *series)
{
    struct recorded_target *t = target;
    struct recorded_series *s = series;
    assert(t->r->is_open && s->target == t);
    recorder_tag(t->r);
    buf_add_fmt(&t->r->log, "s%u stale\n", s->id);
}

static inline int recorder_end(void *target)
{
    struct recorded_target *t = target;
    assert(t->r->is_open);
    t->r->is_open = false;
    recorder_tag(t->r);
    buf_add_str(&t->r->log, "end\n");
    return 0;
}

static const struct sink_ops recorder_ops = {
    .target_new = recorder_target_new,
    .target_free = recorder_target_free,
    .series_new = recorder_series_new,
    .series_free = recorder_series_free,
    .begin = recorder_begin,
    .sample = recorder_sample,
    .stale = recorder_stale,
    .end = recorder_end,
};
