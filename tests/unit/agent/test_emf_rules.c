// SPDX-License-Identifier: Apache-2.0
// Which metrics declarations extract, by which dimensions; what an event looks like then.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "codec/json.h"
#include "emf_fixture.h"

#define T0 INT64_C(1596151098037)

// --- Declarations to rules ---

#define DECLARE(matched, matcher, selectors, dimensions)                                           \
    "{\"source_labels\": [" matched "], \"label_matcher\": \"" matcher                             \
    "\", \"metric_selectors\": [" selectors "], \"dimensions\": [" dimensions "]}"
#define ANY(selectors, dimensions) DECLARE("\"prom_metric_type\"", ".*", selectors, dimensions)

#define ABC "a=\"A\",b=\"B\",c=\"C\""
#define THREE                                                                                      \
    "# TYPE metric1 gauge\n# TYPE metric2 gauge\n# TYPE metric3 gauge\n"                           \
    "metric1 1\nmetric2 200\nmetric3 3.14\n"

static const struct rules_case {
    const char *declarations;
    const char *labels;
    const char *rules; // dimension sets: metrics; rules in the order of their declarations
} rules_cases[] = {
    {ANY("\"metric.*\"", "[\"a\"],[\"a\",\"c\"],[\"b\",\"d\"]"), ABC,
     "[a][a,c]: metric1/Count metric2/Count metric3/Seconds; "},
    {ANY("\"metric.*\"", "[\"a\"],[\"b\",\"d\"]") "," ANY(
         "\"metric1\"", "[\"a\",\"c\"],[\"b\",\"d\"]") "," ANY("\"metric(1|2)\"",
                                                               "[\"a\"],[\"b\"],[\"b\",\"d\"]"),
     ABC, "[a][a,c][b]: metric1/Count; [a][b]: metric2/Count; [a]: metric3/Seconds; "},
    {ANY("\"metric.*\"", "[\"a\"],[\"b\",\"d\"]") "," ANY("\"metric(1|2)\"",
                                                          "[\"a\"],[\"b\"],[\"b\",\"d\"]"),
     ABC, "[a][b]: metric1/Count metric2/Count; [a]: metric3/Seconds; "},
    {ANY("\"metric.*\"", "[\"b\",\"d\"]") "," ANY("\"metric(1|2)\"",
                                                  "[\"a\"],[\"b\"],[\"b\",\"d\"]"),
     ABC, "[a][b]: metric1/Count metric2/Count; "},
    {ANY("\"metric.*\"", "[\"b\",\"d\"]"), ABC, ""},
    {ANY("\"metric(1|3)\"", "[]"), ABC, "[]: metric1/Count metric3/Seconds; "},
    {DECLARE("\"a\",\"b\",\"d\"", "A;B;D", "\"metric.*\"",
             "[\"a\"],[\"a\",\"c\"],[\"b\",\"d\"]") "," DECLARE("\"a\",\"b\"", "A;B",
                                                                "\"metric.*\"",
                                                                "[\"b\"],[\"b\",\"d\"]"),
     ABC, "[b]: metric1/Count metric2/Count metric3/Seconds; "},
    {DECLARE("\"a\",\"b\"", "A;C", "\"metric.*\"",
             "[\"a\"]") "," DECLARE("\"a\",\"b\"", "a;B", "\"metric.*\"", "[\"a\"]"),
     ABC, ""},
    {ANY("\"metric4\"", "[\"a\"]"), ABC, ""},
    {ANY("\"metric1\"", "[\"a\",\"b\"],[\"b\"]") "," ANY(
         "\"metric1\"", "[\"a\",\"c\"],[\"b\"],[\"c\"]") "," ANY("\"metric1\"",
                                                                 "[\"a\",\"d\"],[\"b\",\"c\"]"),
     ABC, "[a,b][b][a,c][c][b,c]: metric1/Count; "},
    {ANY("\"metric1\"", "[\"a\",\"e\"],[\"d\"]") "," ANY("\"metric1\"", "[\"a\",\"d\"]"), ABC, ""},
    {ANY("\"metric1\"", "[],[\"a\"]"), "", "[]: metric1/Count; "},
    // Sets are sorted and each is there once.
    {ANY("\"metric1\"", "[\"c\",\"a\"],[\"a\",\"c\"]"), ABC, "[a,c]: metric1/Count; "},
    // What was added is a label like others.
    {DECLARE("\"ClusterName\",\"prom_metric_type\"", "^demo;gauge$", "\"metric1\"",
             "[\"ClusterName\"],[\"prom_metric_type\"]"),
     "", "[ClusterName][prom_metric_type]: metric1/Count; "},
    // Matchers and selectors search.
    {DECLARE("\"a\",\"missing\",\"c\"", "^A;;C$", "\"tric1$\"", "[\"a\"]"), ABC,
     "[a]: metric1/Count; "},
};

static void add_set(struct buf *out, const struct json_node *set)
{
    buf_add_char(out, '[');
    for (const struct json_node *n = set->first; n; n = n->next) {
        buf_add_str(out, n == set->first ? "" : ",");
        buf_add_sv(out, n->string);
    }
    buf_add_char(out, ']');
}

static void add_rules(struct buf *out, const struct json_node *directives)
{
    for (const struct json_node *d = directives->first; d; d = d->next) {
        assert_string_equal(json_find(d, "Namespace")->string.ptr, "ContainerInsights/Prometheus");
        for (const struct json_node *n = json_find(d, "Dimensions")->first; n; n = n->next)
            add_set(out, n);
        buf_add_char(out, ':');
        for (const struct json_node *n = json_find(d, "Metrics")->first; n; n = n->next) {
            const struct json_node *unit = json_find(n, "Unit");
            buf_add_fmt(out, " %s", json_find(n, "Name")->string.ptr);
            if (unit && unit->string.len)
                buf_add_fmt(out, "/%s", unit->string.ptr);
        }
        buf_add_str(out, "; ");
    }
}

// The rules of the first event; "" when it has none, or there is no event.
static void rules_of(struct emf_fixture *f, struct buf *out)
{
    struct json_document *d = NULL;
    struct sv rest = buf_sv(&f->events), line;
    if (!sv_next(&rest, '\n', &line))
        return;
    assert_int_equal(json_parse(line, "event", &d, NULL), 0);
    const struct json_node *aws = json_find(json_root(d), "_aws");
    const struct json_node *directives = json_find(aws ? aws : json_root(d), "CloudWatchMetrics");
    if (directives)
        add_rules(out, directives);
    json_document_free(d);
}

static void check_rules(const struct rules_case *c, bool compat)
{
    char config[4096];
    struct buf rules = BUF_INIT(1u << 16);
    (void)snprintf(config, sizeof(config),
                   "\"emf_processor\": {\"metric_declaration\": [%s], \"metric_unit\": "
                   "{\"metric1\": \"Count\", \"metric2\": \"Count\", \"metric3\": \"Seconds\"}}",
                   c->declarations);
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .config = config, .cluster = "demo", .labels = c->labels, .compat = compat});
    emf_fixture_scrape(f, THREE, T0);
    rules_of(f, &rules);
    if (strcmp(buf_cstr(&rules), c->rules) != 0)
        fail_msg("%s\nmake\n%s\nnot\n%s", c->declarations, buf_cstr(&rules), c->rules);
    // With compat what is not extracted is sent all the same.
    assert_int_equal(emf_fixture_stats(f).events, compat || *c->rules ? 1 : 0);
    assert_int_equal(emf_fixture_stats(f).dropped_unmatched > 0,
                     !compat && (!strstr(c->rules, "metric1") || !strstr(c->rules, "metric2") ||
                                 !strstr(c->rules, "metric3")));
    buf_deinit(&rules);
    emf_fixture_free(f);
}

static void declarations_make_these_rules(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(rules_cases); i++) {
        check_rules(&rules_cases[i], false);
        check_rules(&rules_cases[i], true);
    }
}

// More rules than are looked through one by one; and declarations beyond the first 64.
static void many_rules_keep_the_order_of_their_declarations(void **state)
{
    static const unsigned counts[] = {8, 9, 70};
    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        struct buf config = BUF_INIT(1u << 20), page = BUF_INIT(1u << 20);
        struct buf expected = BUF_INIT(1u << 20), rules = BUF_INIT(1u << 20);
        buf_add_str(&config, "\"emf_processor\": {\"metric_declaration\": [");
        for (unsigned k = 0; k < counts[i]; k++) { // metrics in the opposite order
            unsigned metric = 99 - k;
            buf_add_fmt(&config,
                        "%s{\"source_labels\": [\"job\"], \"metric_selectors\": [\"m%u\"], "
                        "\"dimensions\": [[\"job\"]]}",
                        k ? "," : "", metric);
            buf_add_fmt(&page, "# TYPE m%u gauge\nm%u 1\n", metric, metric);
            buf_add_fmt(&expected, "[job]: m%u; ", metric);
        }
        buf_add_str(&config, "]}");
        struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
            .config = buf_cstr(&config), .cluster = "c", .labels = "job=\"j\""});
        emf_fixture_scrape(f, buf_cstr(&page), T0);
        rules_of(f, &rules);
        assert_string_equal(buf_cstr(&rules), buf_cstr(&expected));
        emf_fixture_free(f);
        buf_deinit(&config);
        buf_deinit(&page);
        buf_deinit(&expected);
        buf_deinit(&rules);
    }
}

static void dimension_values_over_1024_characters_leave_their_set_out(void **state)
{
    static const struct {
        const char *character;
        unsigned count;
        const char *rules;
        unsigned bad;
    } cases[] = {
        {"x", 1024, "[a][long]: metric1; ", 0},
        {"x", 1025, "[a]: metric1; ", 1},
        {"é", 1024, "[a][long]: metric1; ", 0},
        {"é", 1025, "[a]: metric1; ", 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char page[4096];
        struct buf rules = BUF_INIT(1u << 16);
        int length = snprintf(page, sizeof(page), "# TYPE metric1 gauge\nmetric1{a=\"A\",long=\"");
        for (unsigned k = 0; k < cases[i].count; k++)
            length +=
                snprintf(page + length, sizeof(page) - (size_t)length, "%s", cases[i].character);
        (void)snprintf(page + length, sizeof(page) - (size_t)length, "\"} 1\n");
        struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
            .config = "\"emf_processor\": {\"metric_declaration\": [" ANY(
                "\"metric1\"", "[\"a\"],[\"long\"]") "]}",
            .cluster = "c"});
        emf_fixture_scrape(f, page, T0);
        rules_of(f, &rules);
        assert_string_equal(buf_cstr(&rules), cases[i].rules);
        assert_int_equal(emf_fixture_stats(f).bad_dimensions, cases[i].bad);
        buf_deinit(&rules);
        emf_fixture_free(f);
    }
}

static void custom_metrics_are_counted_by_name_and_dimension_values(void **state)
{
    struct emf_fixture *f = emf_fixture_new(
        &(struct emf_fixture_options){.config = "\"emf_processor\": {\"metric_declaration\": [" ANY(
                                          "\"^m\"", "[\"a\"],[\"a\",\"b\"],[]") "]}",
                                      .cluster = "c"});
    emf_fixture_scrape(f,
                       "# TYPE m gauge\n# TYPE m2 gauge\nm{a=\"1\",b=\"1\"} 1\nm{a=\"1\",b=\"2\"} "
                       "1\nm{a=\"2\",b=\"1\"} 1\nm2{a=\"1\",b=\"1\"} 1\nm2{x=\"1\"} 1\n",
                       T0);
    // m: a=1, a=2, three pairs, one without; m2: a=1, one pair, one without.
    assert_int_equal(emf_fixture_stats(f).custom_metrics, 6 + 3);
    f->sink.ops->series_free(f->target, f->series[2].handle); // a=2 and its pair
    f->series[2].handle = NULL;
    assert_int_equal(emf_fixture_stats(f).custom_metrics, 4 + 3);
    emf_fixture_free(f);
}

// --- The form of an event ---

#define LABELS                                                                                     \
    "OTelLib=\"cloudwatch-otel\",Sources=\"[\\\"cloudwatch\\\",\\\"prometheus\\\"]\","             \
    "kubernetes=\"k\",spanName=\"test\""
#define SPAN                                                                                       \
    "\"emf_processor\": {\"metric_namespace\": \"test-emf\", \"metric_declaration\": [" ANY(       \
        "\"^spanCounter$\"",                                                                       \
        "[\"OTelLib\"],[\"OTelLib\",\"spanName\"]") "], "                                          \
                                                    "\"metric_unit\": {\"spanCounter\": "          \
                                                    "\"Count\"}}"
#define RULES                                                                                      \
    "\"CloudWatchMetrics\":[{\"Namespace\":\"test-emf\",\"Dimensions\":[[\"OTelLib\"],"            \
    "[\"OTelLib\",\"spanName\"]],\"Metrics\":[{\"Name\":\"spanCounter\",\"Unit\":\"Count\","       \
    "\"StorageResolution\":60}]}]"
#define FIRST                                                                                      \
    "\"OTelLib\":\"cloudwatch-otel\",\"Sources\":\"[\\\"cloudwatch\\\",\\\"prometheus\\\"]\""

static void events_have_the_form_of_their_version(void **state)
{
    static const struct {
        const char *config;
        bool compat;
        const char *event;
    } cases[] = {
        {SPAN, true,
         "{" RULES ",\"JobName\":\"default\"," FIRST
         ",\"Timestamp\":\"1596151098037\",\"Version\":\"0\","
         "\"kubernetes\":\"k\",\"prom_metric_type\":\"gauge\",\"spanName\":\"test\","
         "\"spanCounter\":0}\n"},
        {SPAN, false,
         "{\"JobName\":\"default\"," FIRST ",\"Version\":\"1\",\"_aws\":{" RULES
         ",\"Timestamp\":1596151098037},\"kubernetes\":\"k\",\"prom_metric_type\":\"gauge\","
         "\"spanName\":\"test\",\"spanCounter\":0}\n"},
        {"", false,
         "{\"JobName\":\"default\"," FIRST ",\"kubernetes\":\"k\",\"prom_metric_type\":\"gauge\","
         "\"spanCounter\":0,\"spanName\":\"test\"}\n"},
        {"", true,
         "{\"JobName\":\"default\"," FIRST ",\"Timestamp\":\"1596151098037\",\"Version\":\"0\","
         "\"kubernetes\":\"k\",\"prom_metric_type\":\"gauge\",\"spanCounter\":0,"
         "\"spanName\":\"test\"}\n"},
        {SPAN ", \"disable_metric_extraction\": true", false,
         "{\"JobName\":\"default\"," FIRST ",\"kubernetes\":\"k\",\"prom_metric_type\":\"gauge\","
         "\"spanCounter\":0,\"spanName\":\"test\"}\n"},
        {SPAN ", \"disable_metric_extraction\": true", true,
         "{\"JobName\":\"default\"," FIRST ",\"Timestamp\":\"1596151098037\",\"Version\":\"0\","
         "\"kubernetes\":\"k\",\"prom_metric_type\":\"gauge\",\"spanCounter\":0,"
         "\"spanName\":\"test\"}\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
            .config = cases[i].config,
            .podgpu = *cases[i].config ? "" : "\"unmatched\": \"log\"",
            .labels = LABELS,
            .compat = cases[i].compat});
        emf_fixture_scrape(f, "# TYPE spanCounter gauge\nspanCounter 0\n", T0);
        emf_fixture_expect(f, cases[i].event);
        emf_fixture_free(f);
    }
}

static void disabled_extraction_sends_everything_as_plain_events(void **state)
{
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .config = SPAN ", \"disable_metric_extraction\": true", .labels = "job=\"j\""});
    emf_fixture_scrape(f, "# TYPE spanCounter gauge\n# TYPE x gauge\nspanCounter 0\nx 2\n", T0);
    emf_fixture_expect(
        f, "{\"job\":\"j\",\"prom_metric_type\":\"gauge\",\"spanCounter\":0,\"x\":2}\n");
    emf_fixture_free(f);
}

static void what_is_not_extracted_stands_among_the_labels_when_it_is_logged(void **state)
{
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .config = SPAN, .podgpu = "\"unmatched\": \"log\"", .labels = LABELS});
    emf_fixture_scrape(f,
                       "# TYPE spanCounter gauge\n# TYPE A gauge\n# TYPE Z gauge\n# TYPE z gauge\n"
                       "A 1\nZ 2\nspanCounter 0\nz 3\n",
                       T0);
    emf_fixture_expect(f, "{\"A\":1,\"JobName\":\"default\"," FIRST
                          ",\"Version\":\"1\",\"Z\":2,\"_aws\":{" RULES
                          ",\"Timestamp\":1596151098037},\"kubernetes\":\"k\","
                          "\"prom_metric_type\":\"gauge\",\"spanName\":\"test\",\"z\":3,"
                          "\"spanCounter\":0}\n");
    emf_fixture_free(f);
}

static void resolution_follows_the_interval_or_the_configuration(void **state)
{
    static const struct {
        const char *podgpu;
        uint64_t interval_s;
        bool compat;
        const char *resolution;
    } cases[] = {
        {"", 59, false, ":1}"},
        {"", 60, false, ":60}"},
        {"", 15, true, ":60}"},
        {"\"storage_resolution\": 60", 15, false, ":60}"},
        {"\"storage_resolution\": 1", 60, false, ":1}"},
        {"\"storage_resolution\": 1", 60, true, ":1}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct emf_fixture *f =
            emf_fixture_new(&(struct emf_fixture_options){.config = SPAN,
                                                          .podgpu = cases[i].podgpu,
                                                          .interval_s = cases[i].interval_s,
                                                          .compat = cases[i].compat,
                                                          .labels = LABELS});
        emf_fixture_scrape(f, "# TYPE spanCounter gauge\nspanCounter 0\n", T0);
        const char *at = strstr(buf_cstr(&f->events), "\"StorageResolution\"");
        assert_non_null(at);
        assert_int_equal(strncmp(at + 19, cases[i].resolution, strlen(cases[i].resolution)), 0);
        emf_fixture_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(declarations_make_these_rules),
        cmocka_unit_test(many_rules_keep_the_order_of_their_declarations),
        cmocka_unit_test(dimension_values_over_1024_characters_leave_their_set_out),
        cmocka_unit_test(custom_metrics_are_counted_by_name_and_dimension_values),
        cmocka_unit_test(events_have_the_form_of_their_version),
        cmocka_unit_test(disabled_extraction_sends_everything_as_plain_events),
        cmocka_unit_test(what_is_not_extracted_stands_among_the_labels_when_it_is_logged),
        cmocka_unit_test(resolution_follows_the_interval_or_the_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
