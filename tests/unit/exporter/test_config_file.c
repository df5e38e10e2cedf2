// SPDX-License-Identifier: Apache-2.0
#include "exporter/config_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"

static void version_1_is_read(void **state)
{
    static const char text[] =
        "version: 1\n"
        "sources: {dcgm: {detectBindUnbind: {enabled: true, pollInterval: 250ms}}}\n"
        "metrics:\n"
        "  file: ' /etc/counters.csv '\n"
        "  enableExporterMetrics: true\n"
        "server: {maxConcurrentScrapes: 8}\n"
        "collection:\n"
        "  interval: 30s\n"
        "  retention: {maxAge: 10m, maxSamples: 0}\n"
        "  watchGroups:\n"
        "  - name: fast-thermals\n"
        "    interval: 5s\n"
        "    retention: {maxAge: 0s, maxSamples: 2}\n"
        "    fields: [DCGM_FI_DEV_GPU_TEMP, DCGM_FI_DEV_POWER_USAGE]\n"
        "  - name: slow\n"
        "    interval: 5m\n"
        "    fields:\n"
        "    - DCGM_FI_DEV_NVLINK_*\n";
    struct config_file c;
    struct error err = ERROR_INIT;
    assert_int_equal(config_file_parse(SV(text), "f", &c, &err), 0);
    assert_true(sv_equals(c.metrics_file, SV("/etc/counters.csv")));
    assert_null(c.fields);
    assert_true(c.exporter_metrics_given && c.exporter_metrics);
    assert_int_equal(c.period_ns, 30 * NS_PER_S);
    assert_int_equal(c.group_count, 2);
    assert_true(sv_equals(c.groups[0].name, SV("fast-thermals")));
    assert_int_equal(c.groups[0].period_ns, 5 * NS_PER_S);
    assert_int_equal(c.groups[0].patterns->count, 2);
    assert_int_equal(c.groups[0].line, 11);
    assert_int_equal(c.groups[1].period_ns, 300 * NS_PER_S);
    config_file_deinit(&c);
}

static void version_2_is_read(void **state)
{
    static const char text[] =
        "version: 2\n"
        "metrics:\n"
        "  fields:\n"
        "  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: Temperature.}\n"
        "sources: {dcgm: {watch: {maxKeepAge: 10m, maxKeepSamples: 0}}}\n"
        "collections:\n"
        "- name: scrape\n"
        "  every: 45s\n"
        "  metrics: {include: ['*']}\n"
        "- name: fast\n"
        "  every: 500ms\n"
        "  sources: {dcgm: {watch: {maxKeepAge: 0s, maxKeepSamples: 2}}}\n"
        "  metrics: {include: [DCGM_FI_DEV_GPU_TEMP]}\n";
    struct config_file c;
    struct error err = ERROR_INIT;
    assert_int_equal(config_file_parse(SV(text), "f", &c, &err), 0);
    assert_int_equal(c.metrics_file.len, 0);
    assert_int_equal(c.fields->count, 1);
    assert_false(c.exporter_metrics_given);
    assert_int_equal(c.period_ns, 45 * NS_PER_S);
    assert_int_equal(c.group_count, 1);
    assert_int_equal(c.groups[0].period_ns, 500 * NS_PER_MS);
    config_file_deinit(&c);
}

static void little_is_enough(void **state)
{
    static const char *const texts[] = {
        "version: 1",
        "version: 2",
        "version: 1\nmetrics:\ncollection:\nsources:\nserver:\n",
        "version: 2\nmetrics: {enableExporterMetrics: no}\ncollections:\n",
        "version: 1\ncollection: {interval: , watchGroups: []}",
        ("version: 2\nsources: {dcgm: {watch: {maxKeepAge: 0s, maxKeepSamples: 0}, "
         "detectBindUnbind: {}}}"),
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct config_file c;
        struct error err = ERROR_INIT;
        assert_int_equal(config_file_parse(sv_from(texts[i]), "f", &c, &err), 0);
        assert_int_equal(c.period_ns, 0);
        config_file_deinit(&c);
    }
}

static void mistakes_have_a_position_and_a_reason(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "f:1:1: expected 'version: 1' or 'version: 2', found none"},
        {"metrics: {file: x}", "f:1:1: expected 'version: 1' or 'version: 2', found none"},
        {"version: 3", "f:1:10: expected a number from 1 to 2, found '3'"},
        {"version: '2'", "f:1:10: expected a number, found the text '2'"},
        {"- version: 2", "f:1:1: expected a mapping, found a list"},
        {"version: 2\nmetrix: {}", "f:2:1: unknown key 'metrix' (did you mean 'metrics'?)"},
        {"version: 2\ncollection: {interval: 30s}",
         "f:2:1: unknown key 'collection' (did you mean 'collections'?)"},
        {"version: 1\ncollections: []",
         "f:2:1: unknown key 'collections' (did you mean 'collection'?)"},
        {"version: 1\nsources: {dcgm: {watch: {maxKeepAge: 10m}}}", "f:2:18: unknown key 'watch'"},
        {"version: 1\nserver:\n  gpu: {}", "f:3:3: unknown key 'gpu'"},
        {"version: 2\nserver: {maxConcurrentScrapes: 0}",
         "f:2:32: expected a number from 1 to 2147483647, found '0'"},
        {"version: 2\nmetrics: {configMap: {}}", "f:2:11: unknown key 'configMap'"},
        {"version: 2\nmetrics: x", "f:2:10: expected a mapping, found 'x'"},
        {"version: 2\nmetrics: {file: a, fields: [{name: n, prometheusType: gauge, help: h}]}",
         "f:2:10: expected either 'file' or 'fields', found both"},
        {"version: 2\nmetrics: {file: ''}",
         "f:2:10: expected 'file', 'fields' or 'enableExporterMetrics'"},
        {"version: 2\nmetrics: {fields: x}", "f:2:19: expected a list, found 'x'"},
        {"version: 2\nmetrics: {fields: [x]}", "f:2:20: expected a mapping, found 'x'"},
        {"version: 2\nmetrics:\n  fields:\n  - {name: n, type: gauge, help: h}",
         "f:4:15: unknown key 'type'"},
        {"version: 2\nmetrics:\n  fields:\n  - {name: n, help: h}",
         "f:4:5: 'prometheusType' is missing here"},
        {"version: 2\nmetrics:\n  fields:\n  - {name: n, prometheusType: gauge, help: ' '}",
         "f:4:44: 'help' is empty"},
        {"version: 2\nmetrics: {file: a, file: b}", "f:2:20: key 'file' stands here twice"},
        {"version: 2\nmetrics: {enableExporterMetrics: maybe}",
         "f:2:34: expected a boolean, found 'maybe'"},
        {"version: 1\ncollection: {interval: 30000}",
         "f:2:24: expected a duration such as 30s or 1m30s, found '30000'"},
        {"version: 1\ncollection: {interval: 0s}",
         "f:2:24: expected whole milliseconds, more than 0"},
        {"version: 1\ncollection: {interval: 500us}",
         "f:2:24: expected whole milliseconds, more than 0"},
        {"version: 1\ncollection: {interval: -1s}",
         "f:2:24: expected a duration such as 30s or 1m30s, found '-1s'"},
        {"version: 1\ncollection: {watchGroups: [{interval: 1s, fields: [a]}]}",
         "f:2:28: 'name' is missing here"},
        {"version: 1\ncollection: {watchGroups: [{name: a, fields: [a]}]}",
         "f:2:28: 'interval' is missing here"},
        {"version: 1\ncollection: {watchGroups: [{name: a, interval: 1s}]}",
         "f:2:28: expected fields under 'fields'"},
        {"version: 1\ncollection: {watchGroups: [{name: a, interval: 1s, fields: []}]}",
         "f:2:28: expected fields under 'fields'"},
        {"version: 1\ncollection: {watchGroups: [{name: a, interval: 1s, fields: [' ']}]}",
         "f:2:61: expected the name or pattern of a field, found nothing"},
        {"version: 1\ncollection:\n  watchGroups:\n  - {name: a, interval: 1s, fields: [x]}\n"
         "  - {name: a, interval: 1s, fields: [y]}",
         "f:5:5: name 'a' stands here twice"},
        {"version: 1\ncollection: {watchGroups: [{name: a, interval: 1s, fields: [x], retention: "
         "{maxAge: 0s, "
         "maxSamples: 0}}]}",
         "f:2:76: 'maxAge' and 'maxSamples' cannot both be 0"},
        {"version: 2\nsources: {dcgm: {watch: {maxKeepSamples: -1}}}",
         "f:2:42: expected a number from 0 to 2147483647, found '-1'"},
        {"version: 2\nsources: {dcgm: {detectBindUnbind: {pollInterval: 0s}}}",
         "f:2:51: expected a duration of more than 0"},
        {"version: 2\ncollections: []", "f:2:14: expected at least one collection"},
        {"version: 2\ncollections: [{name: a, every: 1s, metrics: {}}]",
         "f:2:45: expected fields under 'include'"},
        {"version: 2\ncollections: [{name: a, every: 1s, metrics: {include: x}}]",
         "f:2:55: expected a list, found 'x'"},
        {"version: 2\ncollections: [{name: a, metrics: {include: [x]}}]",
         "f:2:15: 'every' is missing here"},
        {"version: 2\ncollections:\n- {name: a, every: 1s, metrics: {include: ['*']}}\n"
         "- {name: b, every: 2s, metrics: {include: ['*']}}",
         "f:4:3: a second collection of all fields (include: ['*'])"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct config_file c = {0};
        struct error err = ERROR_INIT;
        char text[1024];
        assert_int_equal(config_file_parse(sv_from(cases[i].text), "f", &c, &err), -EINVAL);
        assert_string_equal(error_text(&err, text, sizeof(text)), cases[i].message);
        assert_null(c.document);
    }
}

static void groups_are_capped_exactly(void **state)
{
    for (int count = LIMIT_CONFIG_GROUPS; count <= LIMIT_CONFIG_GROUPS + 1; count++) {
        struct buf b = BUF_INIT(100000);
        struct config_file c = {0};
        struct error err = ERROR_INIT;
        buf_add_str(&b, "version: 2\ncollections:\n");
        for (int i = 0; i < count; i++)
            buf_add_fmt(&b, "- {name: n%d, every: 1s, metrics: {include: [f%d]}}\n", i, i);
        assert_int_equal(config_file_parse(buf_sv(&b), "f", &c, &err),
                         count <= LIMIT_CONFIG_GROUPS ? 0 : -EFBIG);
        config_file_deinit(&c);
        buf_deinit(&b);
    }
}

static void every_truncation_is_handled(void **state)
{
    static const char text[] =
        "version: 2\nmetrics: {file: a}\ncollections:\n- name: n\n  every: 1s\n"
        "  metrics: {include: [A, B*]}\n  sources: {dcgm: {watch: {maxKeepAge: 1s}}}\n";
    for (size_t cut = 0; cut < sizeof(text); cut++) {
        char *copy = malloc(cut + 1);
        assert_non_null(copy);
        memcpy(copy, text, cut);
        struct config_file c = {0};
        int r = config_file_parse((struct sv){copy, cut}, "f", &c, NULL);
        assert_true(r == 0 || r == -EINVAL);
        config_file_deinit(&c);
        free(copy);
    }
}

static void patterns_match_whole_names(void **state)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } cases[] = {
        {"A", "A", true},
        {"A", "AB", false},
        {"AB", "A", false},
        {"", "", true},
        {"", "A", false},
        {"*", "", true},
        {"*", "anything", true},
        {"A*", "A", true},
        {"A*", "ABC", true},
        {"A*", "BA", false},
        {"*C", "ABC", true},
        {"*C", "ABCD", false},
        {"A*C*E", "ABCDE", true},
        {"A*C*E", "ABCDEF", false},
        {"A**C", "ABC", true},
        {"*B*", "ABA", true},
        {"*AB", "AAB", true},
        {"A?C", "ABC", true},
        {"A?C", "AC", false},
        {"?", "", false},
        {"L[01]", "L0", true},
        {"L[01]", "L2", false},
        {"L[0-9]", "L5", true},
        {"L[^0-9]", "L5", false},
        {"L[^0-9]", "LX", true},
        {"L[0-9]*", "L12", true},
        {"L[]]", "L]", true},
        {"L[", "L[", true},
        {"L[a", "L[a", true},
        {"DCGM_FI_DEV_NVLINK_*", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(config_pattern_matches(sv_from(cases[i].pattern), sv_from(cases[i].name)),
                         cases[i].matches);
}

// With backtracking into every star this would take ages.
static void many_stars_take_no_time(void **state)
{
    char pattern[2001], name[2001];
    for (size_t i = 0; i < 2000; i += 2)
        memcpy(pattern + i, "*A", 2);
    memset(name, 'A', 2000);
    name[1999] = 'B';
    uint64_t before = clock_mono_ns();
    assert_false(config_pattern_matches((struct sv){pattern, 2000}, (struct sv){name, 2000}));
    assert_true(clock_mono_ns() - before < NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_1_is_read),
        cmocka_unit_test(version_2_is_read),
        cmocka_unit_test(little_is_enough),
        cmocka_unit_test(mistakes_have_a_position_and_a_reason),
        cmocka_unit_test(groups_are_capped_exactly),
        cmocka_unit_test(every_truncation_is_handled),
        cmocka_unit_test(patterns_match_whole_names),
        cmocka_unit_test(many_stars_take_no_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
