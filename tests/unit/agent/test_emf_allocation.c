// SPDX-License-Identifier: Apache-2.0
// RE2 ends the program when it is out of memory, so matching is left alone.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "codec/regex.h"
#include "emf_fixture.h"

#define T0 INT64_C(1767323040000)

bool __real_regex_matches(const struct regex *r, struct sv text);
bool __wrap_regex_matches(const struct regex *r, struct sv text);

bool __wrap_regex_matches(const struct regex *r, struct sv text)
{
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    bool matched = __real_regex_matches(r, text);
    allocation_until_failure = left;
    return matched;
}

static struct cw_config *config;
static struct labels labels;
static uint64_t events;
static char long_value[6000]; // so that each buffer grows for it

static void count_event(void *user, const struct emf_event *event)
{
    events++;
}

static struct sink sink;
static void *target;

// 0 or -ENOMEM.
static int add(struct sv name, enum parse_type type, void **out)
{
    struct sink_series s = {.name = name, .type = type, .labels = &labels};
    int r = sink.ops->series_new(target, &s, out);
    assert_true(r == 0 || (r == -ENOMEM && allocation_failed));
    return r;
}

static void check_stats(const struct emf *e)
{
    struct emf_stats s;
    emf_get_stats(e, &s);
    assert_int_equal(s.samples, s.event_samples + s.waiting + s.dropped_first + s.dropped_memory);
    assert_true(s.dropped_memory == 0 || allocation_failed);
    assert_int_equal(s.events, events);
}

static int add_bucket(const char *le, void **out)
{
    struct arena arena = ARENA_INIT(1u << 20);
    struct labels own;
    struct sink_series s = {.name = SV("b_bucket"), .type = PARSE_TYPE_HISTOGRAM, .labels = &own};
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    labels_init(&own, &arena);
    for (size_t i = 0; i < labels.count; i++)
        assert_int_equal(labels_set(&own, labels.items[i].name, labels.items[i].value), 0);
    assert_int_equal(labels_set(&own, SV("le"), sv_from(le)), 0);
    allocation_until_failure = left;
    int r = sink.ops->series_new(target, &s, out);
    assert_true(r == 0 || (r == -ENOMEM && allocation_failed));
    arena_deinit(&arena);
    return r;
}

static void scrape_all(void **series, size_t count)
{
    for (int i = 0; i < 2; i++) {
        sink.ops->begin(target, T0 + i * 60000);
        for (size_t k = 0; k < count; k++)
            sink.ops->sample(target, series[k], i, T0 + i * 60000 + (int64_t)(k % 2));
        int r = sink.ops->end(target);
        assert_true(r == 0 || (r == -ENOMEM && allocation_failed));
    }
}

static void use_sink(struct emf *e)
{
    static const char *const names[] = {"a", "b", "c", "d", "Version", "pod"};
    struct sink_target given = {SV("j"), UINT64_C(60000000000), &labels};
    void *series[ARRAY_SIZE(names) + 4] = {0};
    size_t count = 0;
    sink = emf_sink(e);
    if (sink.ops->target_new(sink.user, &given, &target) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        count += add(sv_from(names[i]), i % 3 ? PARSE_TYPE_GAUGE : PARSE_TYPE_COUNTER,
                     &series[count]) == 0;
    if (config->histograms) {
        count += add_bucket("1", &series[count]) == 0;
        count += add_bucket("+Inf", &series[count]) == 0;
        count += add(SV("b_sum"), PARSE_TYPE_HISTOGRAM, &series[count]) == 0;
        count += add(SV("b_count"), PARSE_TYPE_HISTOGRAM, &series[count]) == 0;
    }
    scrape_all(series, count);
    emf_flush(e, 0, true);
    if (emf_set_config(e, config, "another") == 0) {
        void *again = NULL;
        if (add(SV("a"), PARSE_TYPE_COUNTER, &again) == 0)
            sink.ops->series_free(target, again);
    }
    check_stats(e);
    for (size_t i = 0; i < count; i++)
        sink.ops->series_free(target, series[i]);
    struct emf_stats s;
    emf_get_stats(e, &s);
    assert_int_equal(s.custom_metrics, 0);
    sink.ops->target_free(target);
}

static void make_and_use(void)
{
    struct emf_options o = {.cluster = "c", .hostname = "h", .event = count_event};
    struct emf *e = NULL;
    events = 0;
    int r = emf_new(config, &o, &e);
    if (r < 0) {
        assert_true(r == -ENOMEM && allocation_failed && !e);
        return;
    }
    use_sink(e);
    if (!allocation_failed)
        assert_true(events > 0);
    emf_free(e);
}

static void sweep(const char *podgpu, const char *log_group)
{
    struct arena arena = ARENA_INIT(1u << 20);
    char text[1024];
    (void)snprintf(text, sizeof(text),
                   "\"log_group_name\": \"%s\", \"emf_processor\": {\"metric_declaration\": ["
                   "{\"source_labels\": [\"job\"], \"label_matcher\": \".\", \"metric_selectors\": "
                   "[\"^[a-cVp]\"], \"dimensions\": [[\"job\"], [\"pod\"]]}, {\"source_labels\": "
                   "[\"job\"], \"metric_selectors\": [\"^a\"], \"dimensions\": [[]]}]}",
                   log_group);
    config = emf_fixture_config(
        &(struct emf_fixture_options){.config = text, .podgpu = podgpu, .add_host = true});
    memset(long_value, '<', sizeof(long_value));
    labels_init(&labels, &arena);
    assert_int_equal(labels_set(&labels, SV("job"), SV("j")), 0);
    assert_int_equal(labels_set(&labels, SV("pod"), SV("p")), 0);
    assert_int_equal(labels_set(&labels, SV("long"), (struct sv){long_value, sizeof(long_value)}),
                     0);
    assert_true(allocation_sweep(make_and_use) >= 40);
    cw_config_unref(config);
    arena_deinit(&arena);
}

static void the_sink_survives_each_failed_allocation(void **state)
{
    sweep("\"unmatched\": \"log\"", "/g");
    sweep("\"unmatched\": \"log\", \"aggregate\": \"1m\"", "/g-{PodName}");
    sweep("\"unmatched\": \"log\", \"aggregate\": \"1m\", \"histograms\": \"values\"", "/g");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sink_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
