// SPDX-License-Identifier: Apache-2.0
// What becomes of samples: types, values, counters, groups, names.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/num.h"
#include "emf_fixture.h"

#define E2E_CONFIG                                                                                 \
    "\"cluster_name\": \"demo\", \"log_group_name\": \"/g\", \"emf_processor\": "                  \
    "{\"metric_declaration\": [{\"source_labels\": [\"job\"], \"label_matcher\": \"^dcgm$\", "     \
    "\"metric_selectors\": [\"^DCGM_FI_DEV_GPU_UTIL$\", "                                          \
    "\"^DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION$\"], \"dimensions\": "                                \
    "[[\"ClusterName\",\"Hostname\",\"gpu\"],[\"ClusterName\"]]}], "                               \
    "\"metric_unit\": {\"DCGM_FI_DEV_GPU_UTIL\": \"Percent\"}}"
#define DCGM_LABELS "{gpu=\"0\",UUID=\"GPU-1\",device=\"nvidia0\",modelName=\"T\",Hostname=\"n1\"}"
#define DCGM_PAGE(util, fb, energy)                                                                \
    "# TYPE DCGM_FI_DEV_GPU_UTIL gauge\nDCGM_FI_DEV_GPU_UTIL" DCGM_LABELS " " util                 \
    "\n# TYPE DCGM_FI_DEV_FB_USED gauge\nDCGM_FI_DEV_FB_USED" DCGM_LABELS " " fb                   \
    "\n# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter\n"                                      \
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" DCGM_LABELS " " energy "\n"
#define T0 INT64_C(1767323045000)
#define T1 INT64_C(1767323105000)

// --- From pages to events ---

#define COMPAT_DIRECTIVE(metric, unit)                                                             \
    "{\"CloudWatchMetrics\":[{\"Namespace\":\"ContainerInsights/Prometheus\",\"Dimensions\":"      \
    "[[\"ClusterName\",\"Hostname\",\"gpu\"],[\"ClusterName\"]],\"Metrics\":[{\"Name\":\"" metric  \
    "\",\"Unit\":\"" unit "\",\"StorageResolution\":60}]}],\"ClusterName\":\"demo\","
#define COMPAT_LABELS(time, type)                                                                  \
    "\"Hostname\":\"n1\",\"Timestamp\":\"" time "\",\"UUID\":\"GPU-1\",\"Version\":\"0\","         \
    "\"device\":\"nvidia0\",\"gpu\":\"0\",\"instance\":\"10.0.0.9:9400\",\"job\":\"dcgm\","        \
    "\"modelName\":\"T\",\"prom_metric_type\":\"" type "\","

static void with_compat_a_dcgm_page_is_the_agents_events(void **state)
{
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .config = E2E_CONFIG,
        .cluster = "demo",
        .compat = true,
        .labels = "instance=\"10.0.0.9:9400\",job=\"dcgm\"",
    });
    emf_fixture_scrape(f, DCGM_PAGE("42", "1024", "1000"), T0);
    emf_fixture_expect(f, COMPAT_DIRECTIVE("DCGM_FI_DEV_GPU_UTIL", "Percent")                  //
                       "\"DCGM_FI_DEV_FB_USED\":1024," COMPAT_LABELS("1767323045000", "gauge") //
                       "\"DCGM_FI_DEV_GPU_UTIL\":42}\n");
    emf_fixture_expect_places(f, "/g dcgm 1767323045000 2\n");
    emf_fixture_scrape(f, DCGM_PAGE("43", "1024.5", "1600"), T1);
    emf_fixture_expect(f, COMPAT_DIRECTIVE("DCGM_FI_DEV_GPU_UTIL", "Percent")                    //
                       "\"DCGM_FI_DEV_FB_USED\":1024.5," COMPAT_LABELS("1767323105000", "gauge") //
                       "\"DCGM_FI_DEV_GPU_UTIL\":43}\n"                                          //
                       COMPAT_DIRECTIVE("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "")              //
                       COMPAT_LABELS("1767323105000", "counter")                                 //
                       "\"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION\":600}\n");
    emf_fixture_free(f);
}

#define LABELS_BEFORE "{\"ClusterName\":\"demo\",\"Hostname\":\"n1\",\"UUID\":\"GPU-1\","
#define AWS(metric, unit, resolution, time)                                                        \
    "\"Version\":\"1\",\"_aws\":{\"CloudWatchMetrics\":[{\"Namespace\":"                           \
    "\"ContainerInsights/Prometheus\",\"Dimensions\":[[\"ClusterName\",\"Hostname\",\"gpu\"],"     \
    "[\"ClusterName\"]],\"Metrics\":[{\"Name\":\"" metric "\"" unit                                \
    ",\"StorageResolution\":" resolution "}]}],\"Timestamp\":" time "},"
#define LABELS_AFTER(type)                                                                         \
    "\"device\":\"nvidia0\",\"gpu\":\"0\",\"instance\":\"10.0.0.9:9400\",\"job\":\"dcgm\","        \
    "\"modelName\":\"T\",\"prom_metric_type\":\"" type "\","

static void a_dcgm_page_is_version_1_events_of_what_is_extracted(void **state)
{
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .config = E2E_CONFIG,
        .cluster = "demo",
        .interval_s = 15,
        .labels = "instance=\"10.0.0.9:9400\",job=\"dcgm\"",
    });
    emf_fixture_scrape(f, DCGM_PAGE("42", "1024", "1000"), T0);
    emf_fixture_expect(
        f, LABELS_BEFORE AWS("DCGM_FI_DEV_GPU_UTIL", ",\"Unit\":\"Percent\"", "1", "1767323045000")
               LABELS_AFTER("gauge") "\"DCGM_FI_DEV_GPU_UTIL\":42}\n");
    emf_fixture_scrape(f, DCGM_PAGE("43", "1024.5", "1600"), T1);
    emf_fixture_expect(
        f, LABELS_BEFORE AWS("DCGM_FI_DEV_GPU_UTIL", ",\"Unit\":\"Percent\"", "1", "1767323105000")
               LABELS_AFTER("gauge") "\"DCGM_FI_DEV_GPU_UTIL\":43}\n" LABELS_BEFORE AWS(
                   "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "", "1", "1767323105000")
                   LABELS_AFTER("counter") "\"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION\":600}\n");
    struct emf_stats s = emf_fixture_stats(f);
    assert_int_equal(s.samples, 6);
    assert_int_equal(s.event_samples, 3);
    assert_int_equal(s.dropped_unmatched, 2);
    assert_int_equal(s.dropped_first, 1);
    assert_int_equal(s.custom_metrics, 4);
    emf_fixture_free(f);
}

static void with_compat_what_nothing_extracts_is_a_plain_event(void **state)
{
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .config = E2E_CONFIG,
        .cluster = "demo",
        .compat = true,
        .labels = "instance=\"10.0.0.9:9400\",job=\"other\"",
    });
    emf_fixture_scrape(f, "# TYPE temp gauge\ntemp 2.5e-7\n", T0);
    emf_fixture_expect(f, "{\"ClusterName\":\"demo\",\"Timestamp\":\"1767323045000\",\"Version\":"
                          "\"0\",\"instance\":\"10.0.0.9:9400\",\"job\":\"other\","
                          "\"prom_metric_type\":\"gauge\",\"temp\":2.5e-7}\n");
    emf_fixture_free(f);
}

#define SUMMARY_PAGE(quantile, sum, count)                                                         \
    "# TYPE go_gc_duration_seconds summary\ngo_gc_duration_seconds{quantile=\"0.5\"} " quantile    \
    "\ngo_gc_duration_seconds_sum " sum "\ngo_gc_duration_seconds_count " count "\n"
#define QUANTILE_EVENT(head)                                                                       \
    "{\"ClusterName\":\"demo\"," head "\"go_gc_duration_seconds\":0.000124,\"instance\":"          \
    "\"10.0.0.9:8080\",\"job\":\"app\",\"prom_metric_type\":\"summary\",\"quantile\":\"0.5\"}\n"
#define SUM_EVENT(head)                                                                            \
    "{\"ClusterName\":\"demo\"," head "\"go_gc_duration_seconds_count\":3,"                        \
    "\"go_gc_duration_seconds_sum\":0.5,\"instance\":\"10.0.0.9:8080\",\"job\":\"app\","           \
    "\"prom_metric_type\":\"summary\"}\n"

static void a_summary_is_quantiles_and_increases(void **state)
{
    static const struct {
        bool compat;
        const char *first, *second;
    } cases[] = {
        {true, QUANTILE_EVENT("\"Timestamp\":\"1767323045000\",\"Version\":\"0\","),
         SUM_EVENT("\"Timestamp\":\"1767323105000\",\"Version\":\"0\",")},
        {false, QUANTILE_EVENT(""), SUM_EVENT("")},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
            .config = E2E_CONFIG,
            .podgpu = "\"unmatched\": \"log\"",
            .cluster = "demo",
            .compat = cases[i].compat,
            .labels = "instance=\"10.0.0.9:8080\",job=\"app\"",
        });
        emf_fixture_scrape(f, SUMMARY_PAGE("0.000124", "1.5", "10"), T0);
        emf_fixture_expect(f, cases[i].first);
        emf_fixture_scrape(f, SUMMARY_PAGE("NaN", "2", "13"), T1);
        emf_fixture_expect(f, cases[i].second);
        assert_int_equal(emf_fixture_stats(f).dropped_not_finite, 1);
        emf_fixture_free(f);
    }
}

static void other_types_and_our_own_samples_are_not_sent(void **state)
{
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .podgpu = "\"unmatched\": \"log\"",
        .cluster = "c",
    });
    emf_fixture_scrape(f,
                       "up 1\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} "
                       "1\nh_sum 1\nh_count 1\n# TYPE u untyped\nu 1\nnone 1\n",
                       T0);
    emf_fixture_expect(f, "");
    struct emf_stats s = emf_fixture_stats(f);
    assert_int_equal(s.samples, 6);
    assert_int_equal(s.dropped_type[PARSE_TYPE_HISTOGRAM], 4);
    assert_int_equal(s.dropped_type[PARSE_TYPE_UNKNOWN], 1);
    assert_int_equal(s.dropped_type[PARSE_TYPE_NONE], 1);
    emf_fixture_free(f);
}

// --- Values ---

// Values of one series, one a scrape ("-": the scrape fails; V@S: honoured timestamp of second S);
// what is sent of it, "." for nothing.
static const struct sequence {
    const char *type, *name, *values, *sent, *sent_with_compat;
    int step_s;
} sequences[] = {
    {"counter", "c", "10 15 15 20", ". 5 0 5", ". 5 0 5"},
    {"counter", "c", "10 4 9", ". 4 5", ". 4 5"},
    {"counter", "c", "1 2 3 4 NaN NaN 100 101", ". 1 1 1 . . . 1", ". 1 1 1 . . . 1"},
    {"counter", "c", "0 5 +Inf 7 8", ". 5 . . 1", ". 5 . . 1"},
    {"counter", "c", "0 5 -Inf 7", ". 5 . .", ". 5 . ."},
    {"counter", "c", "10@0 12@0 15@60", ". . 5", ". 12 3"},
    {"counter", "c", "10@60 12@0 15@120", ". . 5", ". 12 3"},
    {"counter", "c", "10 30", ". 20", ". 20", 300},
    {"counter", "c", "10 30 31", ". . .", ". . .", 301},
    {"counter", "c", "-17 1", ". 18", ". 18"},
    {"counter", "c", "0.4 0.8", ". 0.4", ". 0.4"},
    {"counter", "c", "10 - 30", ". . 20", ". . ."},
    {"counter", "c", "0 1e301", ". .", ". 1e+301"},
    {"counter", "c", "-1e308 1.7e308 1.7e308", ". . 0", ". . 0"},
    {"summary", "s_sum", "17.3 100 120", ". 82.7 20", ". 82.7 20"},
    {"summary", "s_count", "17 25 26", ". 8 1", ". 8 1"},
    {"summary", "s", "17 25 26", "17 25 26", "17 25 26"},
    {"gauge", "g_count", "17 NaN 26 +Inf -Inf", "17 . 26 . .", "17 . 26 . ."},
    {"gauge", "g",
     "2348542582773833227889480596789337027375682548908319870707290971532209025114608"
     "443463698998384768703031934976 1e109 -1e109",
     "2.3485425827738332e+108 . .", "2.3485425827738332e+108 1e+109 -1e+109"},
};

static const char *sent_of(struct emf_fixture *f, const char *name)
{
    static char text[64];
    char key[64];
    (void)snprintf(key, sizeof(key), "\"%s\":", name);
    char *at = strstr(buf_cstr(&f->events), key);
    if (!at)
        return ".";
    sv_copy(text, sizeof(text), sv_from(at + strlen(key)));
    text[strcspn(text, ",}")] = '\0';
    return text;
}

static void take_step(struct emf_fixture *f, const struct sequence *s, struct sv value, int64_t now)
{
    char page[512];
    size_t at = sv_find_char(value, '@');
    if (sv_equals(value, SV("-"))) {
        emf_fixture_fail(f, now);
        return;
    }
    struct sv stamp = sv_sub(value, at == (size_t)-1 ? value.len : at + 1, value.len);
    uint64_t seconds = 0;
    if (stamp.len)
        assert_int_equal(num_parse_u64(stamp, 0, 10000, &seconds), 0);
    int length =
        snprintf(page, sizeof(page), "# TYPE %s %s\n%s %.*s", s->type[0] == 's' ? "s" : s->name,
                 s->type, s->name, (int)(at == (size_t)-1 ? value.len : at), value.ptr);
    if (stamp.len)
        (void)snprintf(page + length, sizeof(page) - (size_t)length, " %lld",
                       (long long)(T0 + (int64_t)seconds * 1000));
    sv_copy(page + strlen(page), 2, SV("\n"));
    emf_fixture_scrape(f, page, now);
}

static void check_sequence(const struct sequence *s, bool compat)
{
    struct emf_fixture *f = emf_fixture_new(&(struct emf_fixture_options){
        .podgpu = "\"unmatched\": \"log\"", .cluster = "c", .compat = compat});
    struct sv values = sv_from(s->values), value, sent;
    struct sv rest = sv_from(compat ? s->sent_with_compat : s->sent);
    for (int i = 0; sv_next(&values, ' ', &value); i++) {
        buf_reset(&f->events);
        take_step(f, s, value, T0 + (int64_t)i * 1000 * (s->step_s ? s->step_s : 60));
        assert_true(sv_next(&rest, ' ', &sent));
        if (!sv_equals(sent, sv_from(sent_of(f, s->name))))
            fail_msg("%s %s: value %d is sent as %s, not %.*s (compat %d)", s->name, s->values, i,
                     sent_of(f, s->name), SV_FMT(sent), compat);
        emf_fixture_check_stats(f);
    }
    assert_int_equal(rest.len, 0);
    emf_fixture_free(f);
}

static void each_sequence_of_values_sends_its_numbers(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(sequences); i++) {
        check_sequence(&sequences[i], false);
        check_sequence(&sequences[i], true);
    }
}

static void with_long_intervals_a_counter_is_remembered_for_three(void **state)
{
    static const struct {
        bool compat;
        int64_t gap_s;
        const char *sent;
    } cases[] = {
        {false, 600, "20"}, {false, 1800, "20"}, {false, 1801, "."},
        {true, 300, "20"},  {true, 301, "."},    {true, 600, "."},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct emf_fixture *f =
            emf_fixture_new(&(struct emf_fixture_options){.podgpu = "\"unmatched\": \"log\"",
                                                          .cluster = "c",
                                                          .interval_s = 600,
                                                          .compat = cases[i].compat});
        emf_fixture_scrape(f, "# TYPE c counter\nc 10\n", T0);
        emf_fixture_scrape(f, "# TYPE c counter\nc 30\n", T0 + cases[i].gap_s * 1000);
        assert_string_equal(sent_of(f, "c"), cases[i].sent);
        emf_fixture_free(f);
    }
}

static void timestamps_that_cloudwatch_refuses_are_dropped(void **state)
{
    static const struct {
        int64_t from_scrape_ms;
        const char *sent;
    } cases[] = {
        {-14 * 86400000LL, "1"},
        {-14 * 86400000LL - 1, "."},
        {7200000, "1"},
        {7200001, "."},
        {-T1, "."},
        {INT64_MAX - T1, "."},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char page[128];
        struct emf_fixture *f = emf_fixture_new(
            &(struct emf_fixture_options){.podgpu = "\"unmatched\": \"log\"", .cluster = "c"});
        (void)snprintf(page, sizeof(page), "# TYPE g gauge\ng 1 %lld\n",
                       (long long)(T1 + cases[i].from_scrape_ms));
        emf_fixture_scrape(f, page, T1);
        assert_string_equal(sent_of(f, "g"), cases[i].sent);
        assert_int_equal(emf_fixture_stats(f).dropped_old, *cases[i].sent == '.');
        emf_fixture_free(f);
    }
}

static void a_new_counter_of_ours_counts_from_zero(void **state)
{
    static const struct {
        const char *podgpu, *name, *first, *later;
    } cases[] = {
        {"", "podgpu_busy_total", ".", "7"},
        {"", "other_total", ".", "."},
        {"", "podgpu_busy_totals", ".", "."},
        {"\"counters_from_zero\": \"\",", "podgpu_busy_total", ".", "."},
        {"\"counters_from_zero\": \"other.*\",", "other_total", ".", "7"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char podgpu[128], first[128], later[256];
        (void)snprintf(podgpu, sizeof(podgpu), "%s\"unmatched\": \"log\"", cases[i].podgpu);
        (void)snprintf(first, sizeof(first), "# TYPE %s counter\n%s{a=\"1\"} 7\n", cases[i].name,
                       cases[i].name);
        (void)snprintf(later, sizeof(later), "# TYPE %s counter\n%s{a=\"2\"} 7\n", cases[i].name,
                       cases[i].name);
        struct emf_fixture *f =
            emf_fixture_new(&(struct emf_fixture_options){.podgpu = podgpu, .cluster = "c"});
        emf_fixture_scrape(f, first, T0); // of the target: it may have been there for long
        assert_string_equal(sent_of(f, cases[i].name), cases[i].first);
        emf_fixture_scrape(f, later, T1);
        assert_string_equal(sent_of(f, cases[i].name), cases[i].later);
        emf_fixture_fail(f, T1 + 1000);
        later[strlen(later) - 6] = '3'; // {a="3"}: after a failed scrape
        emf_fixture_scrape(f, later, T1 + 2000);
        assert_string_equal(sent_of(f, cases[i].name), ".");
        emf_fixture_free(f);
    }
}

static void a_new_configuration_keeps_what_a_counter_was(void **state)
{
    struct emf_fixture_options o = {
        .podgpu = "\"unmatched\": \"log\"", .cluster = "c", .labels = "job=\"j\""};
    struct emf_fixture *f = emf_fixture_new(&o);
    emf_fixture_scrape(f, "# TYPE c counter\nc 10\n", T0);
    o.cluster = "d";
    emf_fixture_renew(f, &o);
    emf_fixture_scrape(f, "# TYPE c counter\nc 13\n", T1);
    emf_fixture_expect(
        f, "{\"ClusterName\":\"d\",\"c\":3,\"job\":\"j\",\"prom_metric_type\":\"counter\"}\n");
    emf_fixture_expect_places(f, "/aws/containerinsights/d/prometheus j 1767323105000 1\n");
    emf_fixture_free(f);
}

// --- Labels and groups ---

static void labels_are_added_as_the_agent_adds_them(void **state)
{
    static const struct {
        const char *cluster, *labels;
        bool add_host;
        const char *event;
    } cases[] = {
        {"c", "job=\"j\"", false, "{\"ClusterName\":\"c\",\"g\":1,\"job\":\"j\","},
        {NULL, "job=\"j\"", false, "{\"g\":1,\"job\":\"j\","},
        {"c", "ClusterName=\"x\",job=\"j\"", false,
         "{\"ClusterName\":\"x\",\"g\":1,\"job\":\"j\","},
        {"c", "", false, "{\"ClusterName\":\"c\",\"JobName\":\"default\",\"g\":1,"},
        {"c", "JobName=\"x\"", false, "{\"ClusterName\":\"c\",\"JobName\":\"x\",\"g\":1,"},
        {"c", "job=\"j\"", true,
         "{\"ClusterName\":\"c\",\"g\":1,\"host\":\"node-1\",\"job\":\"j\","},
        {"c", "host=\"h\",job=\"j\"", true,
         "{\"ClusterName\":\"c\",\"g\":1,\"host\":\"h\",\"job\":\"j\","},
        {"c", "job=\"j\",prom_metric_type=\"x\"", false,
         "{\"ClusterName\":\"c\",\"g\":1,\"job\":\"j\","},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char event[256];
        struct emf_fixture *f =
            emf_fixture_new(&(struct emf_fixture_options){.config = "\"cluster_name\": \"unused\"",
                                                          .podgpu = "\"unmatched\": \"log\"",
                                                          .cluster = cases[i].cluster,
                                                          .hostname = "node-1",
                                                          .add_host = cases[i].add_host,
                                                          .labels = cases[i].labels});
        emf_fixture_scrape(f, "# TYPE g gauge\ng 1\n", T0);
        (void)snprintf(event, sizeof(event), "%s\"prom_metric_type\":\"gauge\"}\n", cases[i].event);
        emf_fixture_expect(f, event);
        emf_fixture_free(f);
    }
}

static void equal_labels_share_an_event_and_others_do_not(void **state)
{
    struct emf_fixture *f = emf_fixture_new(
        &(struct emf_fixture_options){.podgpu = "\"unmatched\": \"log\"", .labels = "job=\"j\""});
    emf_fixture_scrape(f,
                       "# TYPE metric_a gauge\n# TYPE metric_b gauge\n"
                       "metric_b{tagA=\"tagA_v\",tagB=\"tagB_v\"} 0.2\n"
                       "metric_a{tagA=\"tagA_v\",tagC=\"tagC_v\"} 3\n"
                       "metric_a{tagB=\"tagB_v\",tagA=\"tagA_v\"} 0.1\n",
                       T0);
    emf_fixture_expect(
        f, "{\"job\":\"j\",\"metric_a\":0.1,\"metric_b\":0.2,\"prom_metric_type\":\"gauge\","
           "\"tagA\":\"tagA_v\",\"tagB\":\"tagB_v\"}\n"
           "{\"job\":\"j\",\"metric_a\":3,\"prom_metric_type\":\"gauge\","
           "\"tagA\":\"tagA_v\",\"tagC\":\"tagC_v\"}\n");
    emf_fixture_free(f);
}

static void samples_of_different_times_are_different_events(void **state)
{
    static const char page[] = "# TYPE a gauge\n# TYPE b gauge\n# TYPE c gauge\n"
                               "b 2 1767323045001\na 1 1767323045000\nc 3 1767323045001\n";
    struct emf_fixture_options o = {.podgpu = "\"unmatched\": \"log\"", .labels = "job=\"j\""};
    struct emf_fixture *f = emf_fixture_new(&o);
    emf_fixture_scrape(f, page, T1);
    emf_fixture_expect(f, "{\"a\":1,\"job\":\"j\",\"prom_metric_type\":\"gauge\"}\n"
                          "{\"b\":2,\"c\":3,\"job\":\"j\",\"prom_metric_type\":\"gauge\"}\n");
    emf_fixture_expect_places(f, "/aws/containerinsights/undefined/prometheus j 1767323045000 1\n"
                                 "/aws/containerinsights/undefined/prometheus j 1767323045001 2\n");
    emf_fixture_free(f);
    o.compat = true; // the first one's for all
    o.cluster = "k";
    f = emf_fixture_new(&o);
    emf_fixture_scrape(f, page, T1);
    emf_fixture_expect_places(f, "/aws/containerinsights/k/prometheus j 1767323045001 3\n");
    emf_fixture_free(f);
}

// Relabelling may take away what told two series apart; the fixture's target label does it here.
static void of_several_samples_of_a_metric_one_counts(void **state)
{
    static const char first[] = "# TYPE g gauge\n# TYPE c counter\ng 1\ng{} 2\nc 10\nc{} 20\n";
    static const char second[] = "# TYPE g gauge\n# TYPE c counter\ng 3\ng{} 4\nc 12\nc{} 25\n";
    struct emf_fixture_options o = {.podgpu = "\"unmatched\": \"log\"", .cluster = "c"};
    struct emf_fixture *f = emf_fixture_new(&o);
    emf_fixture_scrape(f, first, T0);
    assert_string_equal(sent_of(f, "g"), "1");
    emf_fixture_scrape(f, second, T1);
    assert_string_equal(sent_of(f, "g"), "3");
    assert_string_equal(sent_of(f, "c"), "2");
    assert_int_equal(emf_fixture_stats(f).dropped_duplicate, 3);
    assert_int_equal(emf_fixture_stats(f).dropped_repeated, 1);
    emf_fixture_free(f);
    o.compat = true; // the last; a repeated timestamp sends a counter's whole value
    f = emf_fixture_new(&o);
    emf_fixture_scrape(f, first, T0);
    assert_string_equal(sent_of(f, "g"), "2");
    assert_string_equal(sent_of(f, "c"), "20");
    emf_fixture_scrape(f, second, T1);
    assert_string_equal(sent_of(f, "g"), "4");
    assert_string_equal(sent_of(f, "c"), "25");
    emf_fixture_check_stats(f);
    emf_fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_compat_a_dcgm_page_is_the_agents_events),
        cmocka_unit_test(a_dcgm_page_is_version_1_events_of_what_is_extracted),
        cmocka_unit_test(with_compat_what_nothing_extracts_is_a_plain_event),
        cmocka_unit_test(a_summary_is_quantiles_and_increases),
        cmocka_unit_test(other_types_and_our_own_samples_are_not_sent),
        cmocka_unit_test(each_sequence_of_values_sends_its_numbers),
        cmocka_unit_test(with_long_intervals_a_counter_is_remembered_for_three),
        cmocka_unit_test(timestamps_that_cloudwatch_refuses_are_dropped),
        cmocka_unit_test(a_new_counter_of_ours_counts_from_zero),
        cmocka_unit_test(a_new_configuration_keeps_what_a_counter_was),
        cmocka_unit_test(labels_are_added_as_the_agent_adds_them),
        cmocka_unit_test(equal_labels_share_an_event_and_others_do_not),
        cmocka_unit_test(samples_of_different_times_are_different_events),
        cmocka_unit_test(of_several_samples_of_a_metric_one_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
