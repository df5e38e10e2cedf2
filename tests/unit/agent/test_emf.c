// SPDX-License-Identifier: Apache-2.0
// What becomes of samples: types, values, counters, groups, names.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

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

static void expect_events(struct emf_fixture *f, const char *expected)
{
    if (!sv_equals(buf_sv(&f->events), sv_from(expected)))
        fail_msg("events\n%sexpected\n%s", buf_cstr(&f->events), expected);
    emf_fixture_check_stats(f);
}

static void expect_places(struct emf_fixture *f, const char *expected)
{
    if (!sv_equals(buf_sv(&f->places), sv_from(expected)))
        fail_msg("places\n%sexpected\n%s", buf_cstr(&f->places), expected);
}

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
    expect_events(f, COMPAT_DIRECTIVE("DCGM_FI_DEV_GPU_UTIL", "Percent") //
                  "\"DCGM_FI_DEV_FB_USED\":1024," COMPAT_LABELS("1767323045000", "gauge") //
                  "\"DCGM_FI_DEV_GPU_UTIL\":42}\n");
    expect_places(f, "/g dcgm 1767323045000 2\n");
    emf_fixture_scrape(f, DCGM_PAGE("43", "1024.5", "1600"), T1);
    expect_events(f, COMPAT_DIRECTIVE("DCGM_FI_DEV_GPU_UTIL", "Percent") //
                  "\"DCGM_FI_DEV_FB_USED\":1024.5," COMPAT_LABELS("1767323105000", "gauge") //
                  "\"DCGM_FI_DEV_GPU_UTIL\":43}\n" //
                  COMPAT_DIRECTIVE("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "") //
                  COMPAT_LABELS("1767323105000", "counter") //
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
    expect_events(f, LABELS_BEFORE
                  AWS("DCGM_FI_DEV_GPU_UTIL", ",\"Unit\":\"Percent\"", "1", "1767323045000")
                      LABELS_AFTER("gauge") "\"DCGM_FI_DEV_GPU_UTIL\":42}\n");
    emf_fixture_scrape(f, DCGM_PAGE("43", "1024.5", "1600"), T1);
    expect_events(
        f, LABELS_BEFORE
        AWS("DCGM_FI_DEV_GPU_UTIL", ",\"Unit\":\"Percent\"", "1", "1767323105000")
            LABELS_AFTER("gauge") "\"DCGM_FI_DEV_GPU_UTIL\":43}\n" LABELS_BEFORE
        AWS("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "", "1", "1767323105000")
            LABELS_AFTER("counter") "\"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION\":600}\n");
    struct emf_stats s = emf_fixture_stats(f);
    assert_int_equal(s.samples, 6);
    assert_int_equal(s.event_samples, 3);
    assert_int_equal(s.dropped_unmatched, 2);
    assert_int_equal(s.dropped_first, 1);
    assert_int_equal(s.custom_metrics, 4);
    emf_fixture_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(with_compat_a_dcgm_page_is_the_agents_events),
        cmocka_unit_test(a_dcgm_page_is_version_1_events_of_what_is_extracted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
