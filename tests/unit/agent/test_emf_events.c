// SPDX-License-Identifier: Apache-2.0
// Events at their limits, names that clash, names of log groups and streams, windows.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/limits.h"
#include "emf_fixture.h"

#define T0 INT64_C(1767323040000) // a whole minute
#define EXTRACT(selector, dimensions)                                                              \
    "\"emf_processor\": {\"metric_namespace\": \"n\", \"metric_declaration\": [{"                  \
    "\"source_labels\": [\"job\"], \"label_matcher\": \".*\", \"metric_selectors\": [\"" selector  \
    "\"], \"dimensions\": [" dimensions "]}]}"

static unsigned count_of(const struct buf *text, const char *what)
{
    unsigned count = 0;
    struct sv rest = buf_sv(text);
    for (size_t at; (at = sv_find(rest, sv_from(what))) != (size_t)-1; count++)
        rest = sv_sub(rest, at + strlen(what), rest.len);
    return count;
}

static struct emf_stats stats_of(struct emf_fixture *f)
{
    emf_fixture_check_stats(f);
    return emf_fixture_stats(f);
}

// --- Limits ---

static void add_gauges(struct buf *page, unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++)
        buf_add_fmt(page, "# TYPE m%05u gauge\nm%05u %u\n", i, i, i);
}

static void events_have_at_most_100_metrics(void **state)
{
    static const struct {
        unsigned metrics;
        bool compat;
        unsigned events, split;
        const char *places;
    } cases[] = {
        {100, false, 1, 0, "/g j 1767323040000 100\n"},
        {101, false, 2, 1, "/g j 1767323040000 100\n/g j 1767323040000 1\n"},
        {250, false, 3, 2,
         "/g j 1767323040000 100\n/g j 1767323040000 100\n/g j 1767323040000 50\n"},
        {250, true, 1, 0, "/g j 1767323040000 250\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf page = BUF_INIT(1u << 20);
        add_gauges(&page, 0, cases[i].metrics);
        struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
            .config = "\"log_group_name\": \"/g\", " EXTRACT("^m", "[\"job\"]"),
            .labels = "job=\"j\"",
            .compat = cases[i].compat});
        emf_fixture_scrape(f, buf_cstr(&page), T0);
        struct emf_stats s = stats_of(f);
        assert_int_equal(s.events, cases[i].events);
        assert_int_equal(s.metrics_split, cases[i].split);
        assert_int_equal(count_of(&f->events, "{\"Name\":"), cases[i].metrics);
        assert_int_equal(count_of(&f->events, "m00099\":99"), 1);
        emf_fixture_expect_places(f, cases[i].places);
        emf_fixture_free(f);
        buf_deinit(&page);
    }
}

static void plain_members_do_not_count_among_the_100(void **state)
{
    struct buf page = BUF_INIT(1u << 20);
    add_gauges(&page, 0, 100);
    add_gauges(&page, 90000, 300);
    struct emf_fixture *f =
        emf_fixture_new(&(struct emf_fixture_options){.config = EXTRACT("^m0", "[\"job\"]"),
                                                      .podgpu = "\"unmatched\": \"log\"",
                                                      .labels = "job=\"j\""});
    emf_fixture_scrape(f, buf_cstr(&page), T0);
    assert_int_equal(stats_of(f).events, 1);
    assert_int_equal(count_of(&f->events, "{\"Name\":"), 100);
    assert_int_equal(stats_of(f).event_samples, 400);
    emf_fixture_free(f);
    buf_deinit(&page);
}

// A page of one gauge with a label of so many bytes.
static void add_long(struct buf *page, size_t bytes)
{
    buf_add_str(page, "# TYPE m gauge\nm{long=\"");
    for (size_t i = 0; i < bytes; i++)
        buf_add_char(page, 'x');
    buf_add_str(page, "\"} 1\n");
}

static void an_event_of_one_metric_is_262118_bytes_at_most(void **state)
{
    static const char empty[] =
        "{\"job\":\"j\",\"long\":\"\",\"m\":1,\"prom_metric_type\":\"gauge\"}";
    for (int over = -1; over <= 1; over++) {
        struct buf page = BUF_INIT(1u << 20);
        add_long(&page, LIMIT_EMF_EVENT_BYTES - (sizeof(empty) - 1) + (size_t)(over + 1) - 1);
        struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
            .podgpu = "\"unmatched\": \"log\"", .labels = "job=\"j\""});
        emf_fixture_scrape(f, buf_cstr(&page), T0);
        assert_int_equal(f->events.len, over > 0 ? 0 : LIMIT_EMF_EVENT_BYTES + (size_t)(over + 1));
        assert_int_equal(stats_of(f).dropped_large, over > 0);
        assert_int_equal(f->error, over > 0 ? -EFBIG : 0);
        emf_fixture_free(f);
        buf_deinit(&page);
    }
}

static void an_event_that_is_too_large_is_split_by_its_metrics(void **state)
{
    struct buf page = BUF_INIT(4u << 20);
    for (unsigned i = 0; i < 3000; i++) {
        buf_add_fmt(&page, "# TYPE m%04u", i);
        for (int k = 0; k < 20; k++)
            buf_add_str(&page, "long_name_");
        buf_add_fmt(&page, " gauge\nm%04u", i);
        for (int k = 0; k < 20; k++)
            buf_add_str(&page, "long_name_");
        buf_add_fmt(&page, " %u\n", i);
    }
    for (int compat = 0; compat <= 1; compat++) {
        struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
            .podgpu = "\"unmatched\": \"log\"", .labels = "job=\"j\"", .compat = compat});
        emf_fixture_scrape(f, buf_cstr(&page), T0);
        struct emf_stats s = stats_of(f);
        assert_int_equal(s.event_samples, 3000);
        // 3,000 members of 241 bytes as they are reckoned with.
        assert_int_equal(s.events, 3);
        struct sv rest = buf_sv(&f->events), line;
        while (sv_next(&rest, '\n', &line))
            assert_true(line.len <= LIMIT_EMF_EVENT_BYTES && line.len > 100000);
        emf_fixture_free(f);
    }
    buf_deinit(&page);
}

static void metrics_beyond_a_groups_room_are_counted(void **state)
{
    static void *series[LIMIT_EMF_GROUP_METRICS + 2];
    struct emf_fixture *f = emf_fixture_new(
        &(struct emf_fixture_options){.podgpu = "\"unmatched\": \"log\"", .labels = "job=\"j\""});
    f->sink.ops->begin(f->target, T0);
    for (unsigned i = 0; i < ARRAY_SIZE(series); i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "m%u", i);
        struct sink_series s = {
            .name = sv_from(name), .type = PARSE_TYPE_GAUGE, .labels = &f->labels};
        assert_int_equal(f->sink.ops->series_new(f->target, &s, &series[i]), 0);
        f->sink.ops->sample(f->target, series[i], 1, T0);
    }
    assert_int_equal(f->sink.ops->end(f->target), 0);
    assert_int_equal(stats_of(f).dropped_memory, 2);
    assert_int_equal(stats_of(f).event_samples, LIMIT_EMF_GROUP_METRICS);
    for (unsigned i = 0; i < ARRAY_SIZE(series); i++)
        f->sink.ops->series_free(f->target, series[i]);
    emf_fixture_free(f);
}

// --- Names that clash ---

static void names_that_an_event_uses_get_an_underscore(void **state)
{
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .config = EXTRACT(".", "[\"Version\"],[\"job\",\"_aws\"]"),
        .labels = "Timestamp=\"t\",Version=\"2\",Version_=\"3\",_aws=\"a\",job=\"j\""});
    emf_fixture_scrape(f, "# TYPE Version gauge\nVersion 5\n", T0);
    emf_fixture_expect(
        f, "{\"Timestamp_\":\"t\",\"Version\":\"1\",\"Version__\":\"2\",\"Version___\":\"3\","
           "\"_aws\":{\"CloudWatchMetrics\":[{\"Namespace\":\"n\",\"Dimensions\":[[\"Version__\"],"
           "[\"_aws_\",\"job\"]],\"Metrics\":[{\"Name\":\"Version_\",\"StorageResolution\":60}]}],"
           "\"Timestamp\":1767323040000},\"_aws_\":\"a\",\"job\":\"j\","
           "\"prom_metric_type\":\"gauge\",\"Version_\":5}\n");
    assert_int_equal(emf_fixture_stats(f).renamed, 5);
    emf_fixture_free(f);
}

static void a_label_named_like_a_metric_is_renamed_in_that_metrics_event(void **state)
{
    static const char page[] =
        "# TYPE a gauge\n# TYPE pod gauge\na{pod=\"p\"} 1\npod{pod=\"p\"} 2\n";
    struct emf_fixture_options o = {.config = EXTRACT(".", "[\"pod\"]"), .labels = "job=\"j\""};
    struct emf_fixture *f = emf_fixture_new(&o);
    emf_fixture_scrape(f, page, T0);
    emf_fixture_expect(
        f, "{\"Version\":\"1\",\"_aws\":{\"CloudWatchMetrics\":[{\"Namespace\":\"n\","
           "\"Dimensions\":[[\"pod\"]],\"Metrics\":[{\"Name\":\"a\",\"StorageResolution\":60}]}],"
           "\"Timestamp\":1767323040000},\"job\":\"j\",\"pod\":\"p\","
           "\"prom_metric_type\":\"gauge\",\"a\":1}\n"
           "{\"Version\":\"1\",\"_aws\":{\"CloudWatchMetrics\":[{\"Namespace\":\"n\","
           "\"Dimensions\":[[\"pod_\"]],\"Metrics\":[{\"Name\":\"pod\",\"StorageResolution\":60}]}"
           "],\"Timestamp\":1767323040000},\"job\":\"j\",\"pod_\":\"p\","
           "\"prom_metric_type\":\"gauge\",\"pod\":2}\n");
    assert_int_equal(stats_of(f).renamed, 1);
    assert_int_equal(stats_of(f).custom_metrics, 2);
    emf_fixture_free(f);
    o.compat = true; // the metric overwrites the label
    f = emf_fixture_new(&o);
    emf_fixture_scrape(f, page, T0);
    emf_fixture_expect(
        f, "{\"CloudWatchMetrics\":[{\"Namespace\":\"n\",\"Dimensions\":[[\"pod\"]],\"Metrics\":"
           "[{\"Name\":\"a\",\"Unit\":\"\",\"StorageResolution\":60},"
           "{\"Name\":\"pod\",\"Unit\":\"\",\"StorageResolution\":60}]}],"
           "\"Timestamp\":\"1767323040000\",\"Version\":\"0\",\"job\":\"j\","
           "\"prom_metric_type\":\"gauge\",\"a\":1,\"pod\":2}\n");
    emf_fixture_free(f);
}

static void with_compat_labels_that_clash_are_overwritten_and_value_is_prometheus(void **state)
{
    static const char page[] = "# TYPE value gauge\nvalue 1\n";
    struct emf_fixture_options o = {
        .podgpu = "\"unmatched\": \"log\"", .labels = "Version=\"2\",job=\"j\"", .compat = true};
    struct emf_fixture *f = emf_fixture_new(&o);
    emf_fixture_scrape(f, page, T0);
    emf_fixture_expect(f, "{\"Timestamp\":\"1767323040000\",\"Version\":\"0\",\"job\":\"j\","
                          "\"prom_metric_type\":\"gauge\",\"prometheus\":1}\n");
    emf_fixture_free(f);
    o.compat = false;
    f = emf_fixture_new(&o);
    emf_fixture_scrape(f, page, T0);
    emf_fixture_expect(f, "{\"Version_\":\"2\",\"job\":\"j\",\"prom_metric_type\":\"gauge\","
                          "\"value\":1}\n");
    emf_fixture_free(f);
}

static void text_is_escaped_and_numbers_are_shortest(void **state)
{
    struct emf_fixture *f = emf_fixture_new(
        &(struct emf_fixture_options){.podgpu = "\"unmatched\": \"log\"", .labels = "job=\"j\""});
    emf_fixture_scrape(f,
                       "# TYPE a gauge\n# TYPE b gauge\n"
                       "a{x=\"<a>&\xe2\x80\xa8\x01\\\"\\\\/\t\xc3\xa9\"} 9.99e-7\nb 1e21\n",
                       T0);
    emf_fixture_expect(f, "{\"a\":9.99e-7,\"job\":\"j\",\"prom_metric_type\":\"gauge\",\"x\":"
                          "\"\\u003ca\\u003e\\u0026\\u2028\\u0001\\\"\\\\/\\t\xc3\xa9\"}\n"
                          "{\"b\":1e+21,\"job\":\"j\",\"prom_metric_type\":\"gauge\"}\n");
    emf_fixture_free(f);
}

// --- Log groups and streams ---

static const struct place {
    const char *log_group; // NULL: the default
    const char *labels;
    const char *place, *compat; // "GROUP STREAM"
} places[] = {
    {"/g", "job=\"some-test-log\"", "/g some-test-log", "/g some-test-log"},
    {"/g", "JobName=\"takes-precedence\",job=\"x\"", "/g takes-precedence", "/g takes-precedence"},
    {"/g", "", "/g default", "/g default"},
    {"g-{ClusterName}", "ClusterName=\"test-cluster\",job=\"j\"", "g-test-cluster j",
     "g-test-cluster j"},
    {"g-{ClusterName}", "job=\"j\"", "g-undefined j", "g-undefined j"},
    {"g-{PodName}", "job=\"j\",pod=\"p\"", "g-p j", "g-p j"},
    {"g-{PodName}", "PodName=\"q\",job=\"j\",pod=\"p\"", "g-q j", "g-q j"},
    {"{NodeName}/{TaskId}", "NodeName=\"n\",TaskId=\"t\",job=\"j\"", "n/t j", "n/t j"},
    {"g-{PodName}", "job=\"a:b*c\",pod=\"a b:c\"", "g-a-b-c a-b-c", "g-a b:c a:b*c"},
    {NULL, "job=\"j\"", "/aws/containerinsights/undefined/prometheus j",
     "/aws/containerinsights/undefined/prometheus j"},
};

static void events_go_to_these_log_groups_and_streams(void **state)
{
    for (size_t i = 0; i < 2 * ARRAY_SIZE(places); i++) {
        const struct place *p = &places[i / 2];
        char config[256] = "", place[256];
        if (p->log_group)
            (void)snprintf(config, sizeof(config), "\"log_group_name\": \"%s\"", p->log_group);
        struct emf_fixture *f =
            emf_fixture_new(&(struct emf_fixture_options){.config = config,
                                                          .podgpu = "\"unmatched\": \"log\"",
                                                          .labels = p->labels,
                                                          .compat = i % 2});
        emf_fixture_scrape(f, "# TYPE g gauge\ng 1\n", T0);
        (void)snprintf(place, sizeof(place), "%s 1767323040000 1\n", i % 2 ? p->compat : p->place);
        emf_fixture_expect_places(f, place);
        emf_fixture_free(f);
    }
}

static void the_default_log_group_names_the_cluster(void **state)
{
    static const struct {
        const char *config, *cluster, *place;
    } cases[] = {
        {"", "found", "/aws/containerinsights/found/prometheus j 1767323040000 1\n"},
        {"\"cluster_name\": \"given\"", "found",
         "/aws/containerinsights/given/prometheus j 1767323040000 1\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct emf_fixture *f =
            emf_fixture_new(&(struct emf_fixture_options){.config = cases[i].config,
                                                          .podgpu = "\"unmatched\": \"log\"",
                                                          .cluster = cases[i].cluster,
                                                          .labels = "job=\"j\""});
        emf_fixture_scrape(f, "# TYPE g gauge\ng 1\n", T0);
        emf_fixture_expect_places(f, cases[i].place);
        emf_fixture_free(f);
    }
}

// --- Windows ---

static struct emf_fixture *window_fixture(const char *aggregate)
{
    char podgpu[64];
    (void)snprintf(podgpu, sizeof(podgpu), "\"aggregate\": \"%s\"", aggregate);
    return emf_fixture_new(&(struct emf_fixture_options){.config = EXTRACT(".", "[\"job\"]"),
                                                         .podgpu = podgpu,
                                                         .labels = "job=\"j\"",
                                                         .interval_s = 15});
}

#define WINDOW(names, time, type, values)                                                          \
    "{\"Version\":\"1\",\"_aws\":{\"CloudWatchMetrics\":[{\"Namespace\":\"n\",\"Dimensions\":"     \
    "[[\"job\"]],\"Metrics\":[" names "]}],\"Timestamp\":" time "},\"job\":\"j\","                 \
    "\"prom_metric_type\":\"" type "\"," values "}\n"
#define NAME(n) "{\"Name\":\"" n "\",\"StorageResolution\":60}"

static void a_minutes_samples_become_one_event_of_arrays(void **state)
{
    struct emf_fixture *f = window_fixture("1m");
    for (int i = 0; i < 4; i++) {
        char page[256];
        (void)snprintf(page, sizeof(page), "# TYPE g gauge\ng %d.5\n# TYPE c counter\nc %d\n%s", i,
                       i * i, i < 2 ? "# TYPE x gauge\nx 1\n" : "");
        emf_fixture_scrape(f, page, T0 + 100 + i * 15000);
        emf_fixture_expect(f, "");
    }
    assert_int_equal(stats_of(f).waiting, 9);
    emf_fixture_scrape(f, "# TYPE g gauge\ng 9\n", T0 + 60000);
    emf_fixture_expect(f, WINDOW(NAME("g") "," NAME("x"), "1767323040000", "gauge",
                                 "\"g\":[0.5,1.5,2.5,3.5],\"x\":[1,1]"));
    assert_string_equal(buf_cstr(&f->places),
                        "/aws/containerinsights/undefined/prometheus j 1767323040000 6\n");
    buf_reset(&f->events);
    emf_flush(f->emf, T0 + 59999, false);
    emf_fixture_expect(f, "");
    emf_flush(f->emf, T0 + 60000, false); // the counters'
    emf_fixture_expect(f, WINDOW(NAME("c"), "1767323040000", "counter", "\"c\":[1,3,5]"));
    buf_reset(&f->events);
    emf_flush(f->emf, T0 + 60000, true);
    emf_fixture_expect(f, WINDOW(NAME("g"), "1767323100000", "gauge", "\"g\":[9]"));
    assert_int_equal(stats_of(f).waiting, 0);
    emf_fixture_free(f);
}

static void windows_may_be_several_minutes(void **state)
{
    struct emf_fixture *f = window_fixture("5m");
    int64_t start = T0 / 300000 * 300000;
    emf_fixture_scrape(f, "# TYPE g gauge\ng 1\n", start);
    emf_fixture_scrape(f, "# TYPE g gauge\ng 2\n", start + 299999);
    emf_fixture_expect(f, "");
    emf_fixture_scrape(f, "# TYPE g gauge\ng 3\n", start + 300000);
    emf_fixture_expect(f, WINDOW(NAME("g"), "1767322800000", "gauge", "\"g\":[1,2]"));
    emf_fixture_free(f); // sends the last
}

static void a_metric_has_at_most_100_values_in_an_event(void **state)
{
    struct emf_fixture *f = window_fixture("2m");
    for (int i = 0; i < 101; i++) {
        emf_fixture_scrape(f, "# TYPE g gauge\ng 1\n", T0 / 120000 * 120000 + i * 1000);
        assert_int_equal(count_of(&f->events, ",1"), i == 100 ? 99 : 0);
    }
    assert_int_equal(stats_of(f).event_samples, 100);
    assert_int_equal(stats_of(f).waiting, 1);
    emf_fixture_free(f);
}

static void what_waits_of_a_series_that_goes_is_sent(void **state)
{
    struct emf_fixture *f = window_fixture("1m");
    emf_fixture_scrape(f, "# TYPE g gauge\n# TYPE h gauge\ng 1\nh 2\n", T0);
    f->sink.ops->series_free(f->target, f->series[0].handle);
    f->series[0].handle = NULL;
    emf_fixture_expect(
        f, WINDOW(NAME("g") "," NAME("h"), "1767323040000", "gauge", "\"g\":[1],\"h\":[2]"));
    emf_fixture_free(f);
}

static void a_sample_of_an_older_window_is_in_an_event_of_its_own(void **state)
{
    struct emf_fixture *f = window_fixture("1m");
    emf_fixture_scrape(f, "# TYPE g gauge\ng 1 1767323100000\n", T0 + 120000);
    emf_fixture_scrape(f, "# TYPE g gauge\ng 2 1767323040000\n", T0 + 120000);
    emf_fixture_expect(f, WINDOW(NAME("g"), "1767323100000", "gauge", "\"g\":[1]"));
    emf_fixture_scrape(f, "# TYPE g gauge\ng 3 1767323100001\n", T0 + 120000);
    emf_fixture_expect(f, WINDOW(NAME("g"), "1767323040000", "gauge", "\"g\":[2]"));
    emf_fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_have_at_most_100_metrics),
        cmocka_unit_test(plain_members_do_not_count_among_the_100),
        cmocka_unit_test(an_event_of_one_metric_is_262118_bytes_at_most),
        cmocka_unit_test(an_event_that_is_too_large_is_split_by_its_metrics),
        cmocka_unit_test(metrics_beyond_a_groups_room_are_counted),
        cmocka_unit_test(names_that_an_event_uses_get_an_underscore),
        cmocka_unit_test(a_label_named_like_a_metric_is_renamed_in_that_metrics_event),
        cmocka_unit_test(with_compat_labels_that_clash_are_overwritten_and_value_is_prometheus),
        cmocka_unit_test(text_is_escaped_and_numbers_are_shortest),
        cmocka_unit_test(events_go_to_these_log_groups_and_streams),
        cmocka_unit_test(the_default_log_group_names_the_cluster),
        cmocka_unit_test(a_minutes_samples_become_one_event_of_arrays),
        cmocka_unit_test(windows_may_be_several_minutes),
        cmocka_unit_test(a_metric_has_at_most_100_values_in_an_event),
        cmocka_unit_test(what_waits_of_a_series_that_goes_is_sent),
        cmocka_unit_test(a_sample_of_an_older_window_is_in_an_event_of_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
