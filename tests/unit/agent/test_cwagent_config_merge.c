// SPDX-License-Identifier: Apache-2.0
// Several files as one configuration: sections are joined, a key that two files give must have one
// value.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "cwagent_config_help.h"

#define EMF_PATH "/logs/metrics_collected/prometheus/emf_processor"

static struct parsed parse_two(const char *a, const char *b)
{
    struct cw_text texts[] = {{sv_from(a), "a.json"}, {sv_from(b), "b.json"}};
    struct cw_sources from = {0};
    return parse_texts(texts, 2, &from);
}

static void sections_of_several_files_are_one(void **state)
{
    struct cw_text texts[] = {
        {SV("{\"agent\": {\"region\": \"us-east-1\"}, \"podgpu\": {\"scope\": \"node\"}}"), "a"},
        {SV(PROMETHEUS("\"cluster_name\": \"c\"")), "b"},
        {SV(EMF("\"metric_namespace\": \"n\"")), "c"},
        {SV("{\"logs\": {\"force_flush_interval\": 7, \"metrics_collected\": {\"ecs\": {}}}, "
            "\"agent\": {\"debug\": true}, \"podgpu\": {\"retention_days\": 7, \"spool\": "
            "{\"max_age\": \"1d\"}}}"),
         "d"},
        {SV("{\"podgpu\": {\"spool\": {\"max_size\": \"1MiB\"}}}"), "e"},
        {SV("{}"), "f"},
    };
    struct cw_sources from = {0};
    struct parsed p = parse_texts(texts, ARRAY_SIZE(texts), &from);
    assert_int_equal(p.result, 0);
    assert_int_equal(p.warnings.len, 0);
    struct cw_config *c = p.config;
    assert_string_equal(c->region, "us-east-1");
    assert_true(c->debug && c->has_prometheus && c->has_emf_processor && c->scope_node);
    assert_string_equal(c->cluster_name, "c");
    assert_string_equal(c->metric_namespace, "n");
    assert_int_equal(c->flush_ns, UINT64_C(7000000000));
    assert_int_equal(c->retention_days, 7);
    assert_int_equal(c->spool_max_bytes, 1u << 20);
    assert_int_equal(c->spool_max_age_ns, UINT64_C(86400000000000));
    assert_string_equal(c->ignored, "logs.metrics_collected.ecs");
    parsed_deinit(&p);
}

static void equal_values_in_two_files_are_fine(void **state)
{
    static const struct {
        const char *a, *b;
    } cases[] = {
        {"{\"agent\": {\"region\": \"r\"}}", "{\"agent\": {\"region\": \"r\"}}"},
        {"{\"agent\": {\"metrics_collection_interval\": 60}}",
         "{\"agent\": {\"metrics_collection_interval\": 6.0e1}}"},
        {EMF("\"metric_unit\": {\"a\": \"Count\", \"b\": \"Bytes\"}"),
         EMF("\"metric_unit\": {\"b\": \"Bytes\", \"a\": \"Count\"}")},
        {DECLARATION("\"source_labels\": [\"a\"], \"metric_selectors\": [\"m\"], \"dimensions\": "
                     "[[\"a\"], [], [\"b\", \"c\"]]"),
         DECLARATION("\"dimensions\": [[\"a\"], [], [\"b\", \"c\"]], \"source_labels\": [\"a\"], "
                     "\"metric_selectors\": [\"m\"]")},
        // What is not ours is never compared.
        {"{\"metrics\": {\"namespace\": \"a\"}}", "{\"metrics\": {\"namespace\": \"b\"}}"},
        {"{\"agent\": {\"user_agent\": \"a\"}}", "{\"agent\": {\"user_agent\": \"b\"}}"},
        {"{\"agent\": {\"x\": \"a\"}}", "{\"agent\": {\"x\": \"b\"}}"},
        {"{\"logs\": {\"logs_collected\": {\"files\": {\"collect_list\": [1]}}}}",
         "{\"logs\": {\"logs_collected\": {\"files\": {\"collect_list\": [2]}}}}"},
        {PROMETHEUS("\"ecs_service_discovery\": {\"sd_frequency\": \"1m\"}"),
         PROMETHEUS("\"ecs_service_discovery\": {}")},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct parsed p = parse_two(cases[i].a, cases[i].b);
        if (p.result != 0)
            fail_msg("%s and %s:\n%s", cases[i].a, cases[i].b, buf_cstr(&p.errors));
        assert_true(p.config->declaration_count <= 1);
        parsed_deinit(&p);
    }
}

static void different_values_are_refused_with_both_places(void **state)
{
    static const struct {
        const char *a, *b, *error;
    } cases[] = {
        {"{\"agent\": {\"region\": \"r\"}}", "{\n\"agent\": {\"region\": \"s\"}}",
         "b.json:2:21: /agent/region: differs from the value at a.json:1:22\n"},
        {"{\"agent\": {\"debug\": true}}", "{\"agent\": {\"debug\": false}}",
         "b.json:1:21: /agent/debug: differs from the value at a.json:1:21\n"},
        {"{\"agent\": {\"metrics_collection_interval\": 60}}",
         "{\"agent\": {\"metrics_collection_interval\": 61}}",
         "b.json:1:43: /agent/metrics_collection_interval: differs from the value at "
         "a.json:1:43\n"},
        {"{\"agent\": {\"region\": \"1\"}}", "{\"agent\": {\"region\": 1}}",
         "b.json:1:22: /agent/region: differs from the value at a.json:1:22\n"},
        {"{\"agent\": {\"credentials\": {\"role_arn\": \"aaaaaaaaaaaaaaaaaaaa\"}}}",
         "{\"agent\": {\"credentials\": {\"role_arn\": \"aaaaaaaaaaaaaaaaaaab\"}}}",
         "b.json:1:40: /agent/credentials/role_arn: differs from the value at a.json:1:40\n"},
        {EMF("\"metric_unit\": {\"a\": \"Count\"}"), EMF(""),
         "b.json:1:65: " EMF_PATH ": differs from the value at a.json:1:65\n"},
        {EMF("\"metric_unit\": {\"a\": \"Count\"}"), EMF("\"metric_unit\": {\"a\": \"Bytes\"}"),
         "b.json:1:65: " EMF_PATH ": differs from the value at a.json:1:65\n"},
        {EMF("\"metric_unit\": {\"a\": \"Count\"}"), EMF("\"metric_unit\": {\"b\": \"Count\"}"),
         "b.json:1:65: " EMF_PATH ": differs from the value at a.json:1:65\n"},
        {DECLARATION("\"dimensions\": [[\"a\", \"b\"]]"),
         DECLARATION("\"dimensions\": [[\"b\", \"a\"]]"),
         "b.json:1:65: " EMF_PATH ": differs from the value at a.json:1:65\n"},
        {"{\"podgpu\": {\"output\": \"stdout\"}}", "{\"podgpu\": {\"output\": \"cloudwatch\"}}",
         "b.json:1:23: /podgpu/output: differs from the value at a.json:1:23\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct parsed p = parse_two(cases[i].a, cases[i].b);
        assert_int_equal(p.result, -EINVAL);
        assert_sv_equals(buf_sv(&p.errors), cases[i].error);
        parsed_deinit(&p);
    }
}

static void a_third_file_is_held_against_the_first_that_has_the_key(void **state)
{
    struct cw_text texts[] = {
        {SV("{\"agent\": {}}"), "a"},
        {SV("{\"agent\": {\"region\": \"r\"}}"), "b"},
        {SV("{}"), "c"},
        {SV("{\"agent\": {\"region\": \"s\"}}"), "d"},
        {SV("{\"agent\": {\"region\": \"r\"}}"), "e"},
    };
    struct cw_sources from = {0};
    struct parsed p = parse_texts(texts, ARRAY_SIZE(texts), &from);
    assert_sv_equals(buf_sv(&p.errors),
                     "d:1:22: /agent/region: differs from the value at b:1:22\n");
    parsed_deinit(&p);
}

static void problems_name_the_file_they_are_in(void **state)
{
    struct parsed p = parse_two(
        "{\"logs\": {}, \"agent\": {\"region\": 5}}",
        "{\"agent\": {\"debug\": 5}, \"podgpu\": {\"x\": 1}, \"logs\": {\"metrics_collected\": "
        "{\"prometheus\": {\"y\": 1}}}}");
    assert_sv_equals(buf_sv(&p.errors),
                     "b.json:1:96: /logs/metrics_collected/prometheus/y: unknown key\n"
                     "a.json:1:34: /agent/region: expected a string, found 5\n"
                     "b.json:1:21: /agent/debug: expected a boolean, found 5\n"
                     "b.json:1:41: /podgpu/x: unknown key\n");
    parsed_deinit(&p);
    p = parse_two("{", "[1}");
    assert_sv_equals(buf_sv(&p.errors),
                     "a.json:1:2: /: not JSON: string or '}' expected near end of file\n"
                     "b.json:1:3: /: not JSON: ']' expected near '}'\n");
    parsed_deinit(&p);
    p = parse_two("{\"agent\": []}", "{\"agent\": {\"region\": \"r\"}}");
    assert_sv_equals(buf_sv(&p.errors),
                     "a.json:1:11: /agent: expected an object, found an array\n");
    parsed_deinit(&p);
}

static void a_declaration_names_its_file_for_as_long_as_it_lives(void **state)
{
    char file[] = "b.json";
    struct cw_text texts[] = {
        {SV("{}"), "a.json"},
        {SV(DECLARATION("\"source_labels\": [\"a\"],\n\"metric_selectors\": [\"m\"], "
                        "\"dimensions\": [[]]")),
         file},
    };
    struct cw_sources from = {0};
    struct parsed p = parse_texts(texts, 2, &from);
    memset(file, 'x', sizeof(file) - 1);
    assert_int_equal(p.result, 0);
    assert_string_equal(p.config->declarations[0].file, "b.json");
    assert_int_equal(p.config->declarations[0].line, 1);
    assert_int_equal(p.config->declarations[0].selectors_line, 2);
    parsed_deinit(&p);
}

// Members by the thousand in the other order, and nesting to the ceiling.
static void large_values_are_compared_in_time(void **state)
{
    struct buf a = BUF_INIT(1u << 20), b = BUF_INIT(1u << 20);
    buf_add_str(&a, "{\"logs\":{\"metrics_collected\":{\"prometheus\":{\"emf_processor\":{"
                    "\"metric_unit\":{");
    buf_add_sv(&b, buf_sv(&a));
    for (unsigned i = 0; i < LIMIT_CW_UNITS; i++) {
        buf_add_fmt(&a, "%s\"m%u\":\"Count\"", i ? "," : "", i);
        buf_add_fmt(&b, "%s\"m%u\":\"Count\"", i ? "," : "", LIMIT_CW_UNITS - 1 - i);
    }
    buf_add_str(&a, "}}}}}}");
    buf_add_str(&b, "}}}}}}");
    struct parsed p = parse_two(buf_cstr(&a), buf_cstr(&b));
    assert_int_equal(p.result, 0);
    assert_int_equal(p.config->unit_count, LIMIT_CW_UNITS);
    parsed_deinit(&p);
    buf_reset(&a);
    buf_add_str(&a, "{\"logs\":{\"metrics_collected\":{\"prometheus\":{\"emf_processor\":");
    for (unsigned i = 4; i < LIMIT_CONFIG_DEPTH; i++)
        buf_add_char(&a, '[');
    for (unsigned i = 4; i < LIMIT_CONFIG_DEPTH; i++)
        buf_add_char(&a, ']');
    buf_add_str(&a, "}}}}");
    p = parse_two(buf_cstr(&a), buf_cstr(&a));
    assert_sv_equals(buf_sv(&p.errors),
                     "a.json:1:61: " EMF_PATH ": expected an object, found an array\n");
    parsed_deinit(&p);
    buf_deinit(&a);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_of_several_files_are_one),
        cmocka_unit_test(equal_values_in_two_files_are_fine),
        cmocka_unit_test(different_values_are_refused_with_both_places),
        cmocka_unit_test(a_third_file_is_held_against_the_first_that_has_the_key),
        cmocka_unit_test(problems_name_the_file_they_are_in),
        cmocka_unit_test(a_declaration_names_its_file_for_as_long_as_it_lives),
        cmocka_unit_test(large_values_are_compared_in_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
