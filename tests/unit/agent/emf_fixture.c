// SPDX-License-Identifier: Apache-2.0
#include "emf_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"

static void keep_event(void *user, const struct emf_event *event)
{
    struct emf_fixture *f = user;
    buf_add_sv(&f->events, event->text);
    buf_add_char(&f->events, '\n');
    buf_add_sv(&f->places, event->log_group);
    buf_add_char(&f->places, ' ');
    buf_add_sv(&f->places, event->log_stream);
    buf_add_fmt(&f->places, " %lld %u\n", (long long)event->timestamp_ms, event->samples);
}

struct cw_config *emf_fixture_config(const struct emf_fixture_options *o)
{
    char text[16384];
    char *environment[] = {"RUN_IN_CONTAINER=True", NULL};
    struct cw_sources from = {.environment = environment, .compat = o->compat};
    struct buf errors = BUF_INIT(1u << 16), warnings = BUF_INIT(1u << 16);
    struct cw_config *c = NULL;
    (void)snprintf(text, sizeof(text),
                   "{\"agent\": {\"omit_hostname\": %s}, \"logs\": {\"metrics_collected\": "
                   "{\"prometheus\": {%s}}}, \"podgpu\": {%s}}",
                   o->add_host ? "false" : "true", o->config ? o->config : "",
                   o->podgpu ? o->podgpu : "");
    struct cw_text one = {sv_from(text), "config"};
    if (cw_config_parse(&one, 1, &from, &c, &errors, &warnings) != 0)
        fail_msg("%s\n%s", text, buf_cstr(&errors));
    buf_deinit(&errors);
    buf_deinit(&warnings);
    return c;
}

static void read_labels(struct sv text, struct labels *l)
{
    struct buf scratch = BUF_INIT(1u << 20);
    struct sv name, value;
    int r;
    while ((r = parse_next_label(&text, &scratch, &name, &value)) > 0)
        assert_int_equal(labels_set(l, name, value), 0);
    assert_int_equal(r, 0);
    buf_deinit(&scratch);
}

struct emf_fixture *emf_fixture_new(const struct emf_fixture_options *o)
{
    struct emf_fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    struct emf_options options = {o->cluster, o->hostname, keep_event, f};
    f->events = f->places = BUF_INIT(64u << 20);
    f->arena = ARENA_INIT(1u << 20);
    labels_init(&f->labels, &f->arena);
    read_labels(sv_from(o->labels ? o->labels : ""), &f->labels);
    struct cw_config *config = emf_fixture_config(o);
    assert_int_equal(emf_new(config, &options, &f->emf), 0);
    cw_config_unref(config);
    f->sink = emf_sink(f->emf);
    struct sink_target target = {SV("job"), (o->interval_s ? o->interval_s : 60) * NS_PER_S,
                                 &f->labels};
    assert_int_equal(f->sink.ops->target_new(f->sink.user, &target, &f->target), 0);
    return f;
}

static struct fixture_series *find(struct emf_fixture *f, struct sv text)
{
    for (size_t i = 0; i < f->series_count; i++) {
        if (sv_equals(sv_from(f->series[i].text), text))
            return &f->series[i];
    }
    assert_true(f->series_count < FIXTURE_SERIES);
    struct fixture_series *s = &f->series[f->series_count++];
    *s = (struct fixture_series){.text = sv_dup(text)};
    return s;
}

// As agent/series.c with honor_labels true.
static void appear(struct emf_fixture *f, const struct parse_sample *s, bool is_new,
                   struct fixture_series *series)
{
    struct arena arena = ARENA_INIT(16u << 20);
    struct labels labels;
    labels_init(&labels, &arena);
    for (size_t i = 0; i < f->labels.count; i++)
        assert_int_equal(labels_set(&labels, f->labels.items[i].name, f->labels.items[i].value), 0);
    read_labels(s->labels, &labels);
    struct sink_series given = {.name = s->name,
                                .type = s->type,
                                .labels = &labels,
                                .is_internal = sv_equals(s->name, SV("up")),
                                .is_new = is_new,
                                .replaces = series->handle};
    void *old = series->handle;
    assert_int_equal(f->sink.ops->series_new(f->target, &given, &series->handle), 0);
    f->sink.ops->series_free(f->target, old);
    arena_deinit(&arena);
}

static void end_stale(struct emf_fixture *f, bool all)
{
    for (size_t i = 0; i < f->series_count; i++) {
        struct fixture_series *s = &f->series[i];
        if (s->handle && (all || !s->seen))
            f->sink.ops->stale(f->target, s->handle);
        s->seen = false;
    }
    f->error = f->sink.ops->end(f->target);
}

void emf_fixture_scrape(struct emf_fixture *f, const char *page, int64_t time_ms)
{
    struct parser p;
    struct parse_sample s;
    struct error err = ERROR_INIT;
    int r;
    buf_reset(&f->events);
    buf_reset(&f->places);
    parser_init(&p, sv_from(page), PARSE_PROMETHEUS);
    f->sink.ops->begin(f->target, time_ms);
    while ((r = parser_next(&p, &s, &err)) > 0) {
        size_t before = f->series_count;
        struct fixture_series *series = find(f, s.series);
        if (before < f->series_count)
            appear(f, &s, f->scraped, series);
        series->seen = true;
        if (series->handle)
            f->sink.ops->sample(f->target, series->handle, s.value,
                                s.has_timestamp ? s.timestamp_ms : time_ms);
    }
    if (r < 0)
        fail_msg("%s", err.text);
    parser_deinit(&p);
    end_stale(f, false);
    f->scraped = true;
}

void emf_fixture_fail(struct emf_fixture *f, int64_t time_ms)
{
    f->sink.ops->begin(f->target, time_ms);
    end_stale(f, true);
    f->scraped = false;
}

void emf_fixture_renew(struct emf_fixture *f, const struct emf_fixture_options *o)
{
    struct cw_config *config = emf_fixture_config(o);
    assert_int_equal(emf_set_config(f->emf, config, o->cluster), 0);
    cw_config_unref(config);
    for (size_t i = 0; i < f->series_count; i++) {
        struct parser p;
        struct parse_sample s;
        struct buf page = BUF_INIT(1u << 20);
        // The type is not in the series' text; tests renew counters.
        buf_add_fmt(&page, "# TYPE %.*s counter\n%s 1\n", (int)strcspn(f->series[i].text, "{ "),
                    f->series[i].text, f->series[i].text);
        parser_init(&p, buf_sv(&page), PARSE_PROMETHEUS);
        assert_int_equal(parser_next(&p, &s, NULL), 1);
        appear(f, &s, false, &f->series[i]);
        parser_deinit(&p);
        buf_deinit(&page);
    }
}

void emf_fixture_expect(struct emf_fixture *f, const char *events)
{
    if (!sv_equals(buf_sv(&f->events), sv_from(events)))
        fail_msg("events\n%sexpected\n%s", buf_cstr(&f->events), events);
    emf_fixture_check_stats(f);
}

void emf_fixture_expect_places(struct emf_fixture *f, const char *places)
{
    if (!sv_equals(buf_sv(&f->places), sv_from(places)))
        fail_msg("places\n%sexpected\n%s", buf_cstr(&f->places), places);
}

struct emf_stats emf_fixture_stats(const struct emf_fixture *f)
{
    struct emf_stats s;
    emf_get_stats(f->emf, &s);
    return s;
}

void emf_fixture_check_stats(const struct emf_fixture *f)
{
    struct emf_stats s = emf_fixture_stats(f);
    uint64_t sum = s.event_samples + s.waiting + s.dropped_not_finite + s.dropped_first +
                   s.dropped_repeated + s.dropped_duplicate + s.dropped_unmatched + s.dropped_old +
                   s.dropped_large + s.dropped_value + s.dropped_empty + s.dropped_memory;
    for (size_t i = 0; i < ARRAY_SIZE(s.dropped_type); i++)
        sum += s.dropped_type[i];
    assert_int_equal(s.samples, sum);
}

void emf_fixture_free(struct emf_fixture *f)
{
    for (size_t i = 0; i < f->series_count; i++) {
        f->sink.ops->series_free(f->target, f->series[i].handle);
        free(f->series[i].text);
    }
    f->sink.ops->target_free(f->target);
    struct emf_stats s = emf_fixture_stats(f);
    assert_int_equal(s.custom_metrics, 0);
    assert_int_equal(s.waiting, 0);
    emf_fixture_check_stats(f);
    emf_free(f->emf);
    buf_deinit(&f->events);
    buf_deinit(&f->places);
    arena_deinit(&f->arena);
    free(f);
}
