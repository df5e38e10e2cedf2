// SPDX-License-Identifier: Apache-2.0
// Input: a line of letters that choose the job's options, then pages, with form feeds between them.
// Each page is taken (an empty one stands for a failed request), the configuration changes behind
// the second, and a failed request is the last. The sink checks that samples stand between begin
// and end, belong to live series and come once a scrape, and that what is stale was not; the test,
// that the counts add up and nothing is left behind.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/series.h"
#include "base/clock.h"
#include "base/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct checker {
    size_t targets, series; // live
    uint64_t scrape;        // begins so far
    uint64_t samples;       // of this scrape
    bool is_open, wants_untyped;
};

struct checked_target {
    struct checker *c;
    size_t series;
};

struct checked_series {
    struct checked_target *target;
    uint64_t scrape;
    bool is_internal;
};

static int target_new(void *sink, const struct sink_target *target, void **out)
{
    struct checked_target *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->c = sink;
    t->c->targets++;
    assert(target->labels && target->job.len);
    *out = t;
    return 0;
}

static void target_free(void *target)
{
    struct checked_target *t = target;
    assert(!t->series);
    t->c->targets--;
    free(t);
}

static int series_new(void *target, const struct sink_series *s, void **out)
{
    struct checked_target *t = target;
    assert(!t->c->is_open && s->name.len);
    for (size_t i = 0; i < s->labels->count; i++) {
        const struct label *l = &s->labels->items[i];
        assert(l->name.len && l->value.len && !sv_equals(l->name, SV("__name__")));
        assert(i == 0 || sv_compare(s->labels->items[i - 1].name, l->name) < 0);
    }
    *out = NULL;
    if (s->type == PARSE_TYPE_NONE && !t->c->wants_untyped)
        return 0;
    struct checked_series *series = calloc(1, sizeof(*series));
    if (!series)
        return -ENOMEM;
    *series = (struct checked_series){.target = t, .is_internal = s->is_internal};
    t->series++;
    t->c->series++;
    *out = series;
    return 0;
}

static void series_free(void *target, void *series)
{
    struct checked_target *t = target;
    assert(((struct checked_series *)series)->target == t && !t->c->is_open);
    t->series--;
    t->c->series--;
    free(series);
}

static void begin(void *target, int64_t scrape_ms)
{
    struct checker *c = ((struct checked_target *)target)->c;
    assert(!c->is_open);
    c->is_open = true;
    c->scrape++;
    c->samples = 0;
}

static void once(void *target, struct checked_series *s)
{
    struct checker *c = ((struct checked_target *)target)->c;
    assert(c->is_open && s->target == target && s->scrape != c->scrape);
    s->scrape = c->scrape;
}

static void sample(void *target, void *series, double value, int64_t timestamp_ms)
{
    struct checked_series *s = series;
    once(target, s);
    s->target->c->samples += !s->is_internal;
}

static void stale(void *target, void *series)
{
    assert(!((struct checked_series *)series)->is_internal);
    once(target, series);
}

static int end(void *target)
{
    struct checker *c = ((struct checked_target *)target)->c;
    assert(c->is_open);
    c->is_open = false;
    return 0;
}

static const struct sink_ops ops = {
    .target_new = target_new,
    .target_free = target_free,
    .series_new = series_new,
    .series_free = series_free,
    .begin = begin,
    .sample = sample,
    .stale = stale,
    .end = end,
};

static bool has(struct sv letters, char c)
{
    return sv_find_char(letters, c) != (size_t)-1;
}

static struct prom_job job_of(struct sv letters)
{
    static char name[] = "j";
    return (struct prom_job){
        .name = name,
        .honor_labels = has(letters, 'h'),
        .honor_timestamps = !has(letters, 't'),
        .track_timestamps_staleness = has(letters, 'k'),
        .legacy_names = has(letters, 'l'),
        .sample_limit = has(letters, 's') ? 3 : 0,
        .label_limit = has(letters, 'n') ? 4 : 0,
        .label_value_length_limit = has(letters, 'v') ? 4 : 0,
    };
}

static void take(struct series_table *t, struct checker *c, struct sv page, struct sv letters,
                 int64_t now_ms)
{
    struct series_result result;
    struct error err = ERROR_INIT;
    size_t before = series_table_count(t);
    enum parse_format format = has(letters, 'o') ? PARSE_OPENMETRICS : PARSE_PROMETHEUS;
    if (!page.len) {
        series_table_fail(t, now_ms, 0);
        assert(c->samples == 0);
        return;
    }
    int r = series_table_take(t, page, format, now_ms, 0, &result, &err);
    assert(r == 0 || r == -EINVAL || r == -E2BIG || r == -ENOMEM);
    assert(result.relabelled + result.unusable <= result.scraped);
    assert(result.duplicates + result.added <= result.scraped);
    if (r < 0) {
        assert(err.code == r && err.text[0]);
        assert(c->samples == 0 && series_table_count(t) <= before);
        return;
    }
    // Without rules nothing is dropped.
    assert(result.relabelled + result.unusable == result.scraped);
    assert(c->samples <= result.relabelled);
    assert(!c->wants_untyped || result.duplicates > result.relabelled ||
           c->samples >= result.relabelled - result.duplicates);
    assert(!has(letters, 's') || c->samples <= 3);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv rest = {(const char *)data, size}, letters, page;
    struct arena arena = ARENA_INIT(1u << 16);
    struct labels labels;
    if (!sv_next(&rest, '\n', &letters))
        return 0;
    struct checker c = {.wants_untyped = !has(letters, 'u')};
    const struct sink sinks[] = {{&ops, &c}};
    const struct prom_job job = job_of(letters);
    struct series_options o = {.job = &job,
                               .labels = &labels,
                               .interval_ns = NS_PER_S,
                               .sinks = sinks,
                               .sink_count = ARRAY_SIZE(sinks)};
    struct series_table *t = NULL;
    labels_init(&labels, &arena);
    assert(labels_set(&labels, SV("a"), SV("1")) == 0 &&
           labels_set(&labels, SV("exported_a"), SV("2")) == 0);
    assert(series_table_new(&o, &t) == 0);
    int64_t now_ms = 0;
    for (unsigned i = 0; i < 6 && sv_next(&rest, '\f', &page); i++) {
        take(t, &c, page, letters, now_ms += 120000);
        if (i == 1)
            assert(labels_set(&labels, SV("b"), SV("3")) == 0 && series_table_renew(t, &o) == 0);
    }
    take(t, &c, SV(""), letters, now_ms);
    assert(c.targets > 0 && c.targets <= 2);
    series_table_free(t);
    assert(!c.series && !c.targets);
    arena_deinit(&arena);
    return 0;
}
