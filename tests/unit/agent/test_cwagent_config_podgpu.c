// SPDX-License-Identifier: Apache-2.0
// The section "podgpu", and the grammar of outputs.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/error.h"
#include "cwagent_config_help.h"

#define MIB (UINT64_C(1) << 20)
#define MINUTE_NS (60 * NS_PER_S)
#define DAY_NS (24 * 60 * MINUTE_NS)

static void every_key_is_read_and_counts_with_compat_too(void **state)
{
    for (int compat = 0; compat < 2; compat++) {
        struct cw_config *c = parse_good(
            PODGPU("\"unmatched\": \"log\", \"counters_from_zero\": \"x.*\", "
                   "\"storage_resolution\": 1, \"aggregate\": \"5m\", \"histograms\": \"values\", "
                   "\"scope\": \"node\", "
                   "\"spool\": {\"directory\": \"/s\", \"max_size\": \"1GiB\", \"max_age\": "
                   "\"36h\"}, \"retention_days\": 365, \"output\": \"file:/tmp/x\""),
            compat);
        assert_int_equal(c->unmatched, CW_UNMATCHED_LOG);
        assert_true(regex_matches(c->counters_from_zero, SV("xyz")));
        assert_false(regex_matches(c->counters_from_zero, SV("axyz")));
        assert_int_equal(c->storage_resolution, 1);
        assert_int_equal(c->aggregate_ns, 5 * MINUTE_NS);
        assert_true(c->histograms && c->scope_node);
        assert_string_equal(c->spool_directory, "/s");
        assert_int_equal(c->spool_max_bytes, 1024 * MIB);
        assert_int_equal(c->spool_max_age_ns, 36 * 60 * MINUTE_NS);
        assert_int_equal(c->retention_days, 365);
        assert_int_equal(c->output_count, 1);
        assert_int_equal(c->outputs[0].kind, CW_OUTPUT_FILE);
        assert_string_equal(c->outputs[0].where, "/tmp/x");
        cw_config_unref(c);
    }
}

static void the_agent_s_way_and_ours_can_each_be_asked_for(void **state)
{
    struct cw_config *c = parse_good(
        PODGPU("\"unmatched\": \"drop\", \"storage_resolution\": \"auto\", \"scope\": \"cluster\", "
               "\"retention_days\": 30, \"counters_from_zero\": \"^podgpu_.*_total$\""),
        true);
    assert_int_equal(c->unmatched, CW_UNMATCHED_DROP);
    assert_int_equal(c->storage_resolution, 0);
    assert_int_equal(c->retention_days, 30);
    assert_non_null(c->counters_from_zero);
    cw_config_unref(c);
    c = parse_good(PODGPU("\"counters_from_zero\": \"\", \"retention_days\": 0, "
                          "\"storage_resolution\": 60, \"spool\": {\"directory\": \"\"}"),
                   false);
    assert_null(c->counters_from_zero);
    assert_int_equal(c->retention_days, 0);
    assert_int_equal(c->storage_resolution, 60);
    assert_string_equal(c->spool_directory, "");
    cw_config_unref(c);
}

static void values_at_their_bounds_are_read(void **state)
{
    static const char *const good[] = {
        "\"aggregate\": \"0\"",
        "\"aggregate\": \"0s\"",
        "\"aggregate\": \"60s\"",
        "\"aggregate\": \"1m\"",
        "\"aggregate\": \"1h\"",
        "\"aggregate\": \"59m60s\"",
        "\"spool\": {\"max_size\": \"1MiB\"}",
        "\"spool\": {\"max_size\": \"1048576B\"}",
        "\"spool\": {\"max_size\": \"1TiB\"}",
        "\"spool\": {\"max_size\": \"1.5GB\"}",
        "\"spool\": {\"max_age\": \"1m\"}",
        "\"spool\": {\"max_age\": \"14d\"}",
        "\"spool\": {\"max_age\": \"2w\"}",
        "\"spool\": {}",
        "\"retention_days\": 1",
        "\"retention_days\": 3653",
        "\"retention_days\": 30.0",
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        char text[256];
        (void)snprintf(text, sizeof(text), PODGPU("%s"), good[i]);
        assert_true(parses(text, false, 0, "", ""));
    }
}

#define DAYS                                                                                       \
    "0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, "   \
    "2922, 3288 or 3653 days"

static void values_beyond_are_refused_with_what_was_expected(void **state)
{
    static const struct {
        const char *key, *value, *error;
    } cases[] = {
        {"unmatched", "\"Drop\"", "expected \"drop\" or \"log\", found the string 'Drop'"},
        {"unmatched", "true", "expected \"drop\" or \"log\", found true"},
        {"histograms", "\"all\"", "expected \"drop\" or \"values\", found the string 'all'"},
        {"scope", "\"\"", "expected \"cluster\" or \"node\", found the string ''"},
        {"counters_from_zero", "\"(\"", "regular expression: missing ): ("},
        {"counters_from_zero", "null", "expected a string, found null"},
        {"storage_resolution", "0", "expected 1, 60 or \"auto\", found 0"},
        {"storage_resolution", "30", "expected 1, 60 or \"auto\", found 30"},
        {"storage_resolution", "\"60\"", "expected 1, 60 or \"auto\", found the string '60'"},
        {"aggregate", "60", "expected a duration as in \"60s\" or \"5m\", found 60"},
        {"aggregate", "\"60\"",
         "expected a duration as in \"60s\" or \"5m\", found the string '60'"},
        {"aggregate", "\"90s\"", "expected a whole number of minutes, found the string '90s'"},
        {"aggregate", "\"59s\"", "expected a whole number of minutes, found the string '59s'"},
        {"aggregate", "\"61m\"", "expected a duration from 0 s to 3600 s, found the string '61m'"},
        {"retention_days", "2", "expected " DAYS ", found 2"},
        {"retention_days", "-1", "expected a whole number from 0 to 3653, found -1"},
        {"retention_days", "3654", "expected a whole number from 0 to 3653, found 3654"},
        {"retention_days", "\"30\"",
         "expected a whole number from 0 to 3653, found the string '30'"},
        {"output", "\"\"", "expected cloudwatch, stdout, file:PATH or tcp:HOST:PORT, found ''"},
        {"output", "{}", "expected a string or an array of strings, found an object"},
        {"output", "[]", "expected 1 to 4 outputs, found 0"},
        {"output", "[\"stdout\", \"stdout\", \"stdout\", \"stdout\", \"stdout\"]",
         "expected 1 to 4 outputs, found 5"},
    };
    static const struct {
        const char *key, *value, *error;
    } spool[] = {
        {"directory", "\"spool\"",
         "expected an absolute path, or \"\" for none, found the string 'spool'"},
        {"max_size", "1048576", "expected a size as in \"256MiB\", found 1048576"},
        {"max_size", "\"256\"", "expected a size as in \"256MiB\", found the string '256'"},
        {"max_size", "\"0\"", "expected a size from 1 MiB to 1048576 MiB, found the string '0'"},
        {"max_size", "\"1023KiB\"",
         "expected a size from 1 MiB to 1048576 MiB, found the string '1023KiB'"},
        {"max_size", "\"1025GiB\"",
         "expected a size from 1 MiB to 1048576 MiB, found the string '1025GiB'"},
        {"max_age", "\"59s\"",
         "expected a duration from 60 s to 1209600 s, found the string '59s'"},
        {"max_age", "\"15d\"",
         "expected a duration from 60 s to 1209600 s, found the string '15d'"},
        {"max_age", "\"\"", "expected a duration as in \"60s\" or \"5m\", found the string ''"},
    };
    char text[256], error[512];
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        (void)snprintf(text, sizeof(text), PODGPU("\"%s\": %s"), cases[i].key, cases[i].value);
        (void)snprintf(error, sizeof(error), "f:1:%zu: /podgpu/%s: %s\n",
                       strlen("{'podgpu': {'': ") + strlen(cases[i].key) + 1, cases[i].key,
                       cases[i].error);
        assert_true(parses(text, false, -EINVAL, error, ""));
    }
    for (size_t i = 0; i < ARRAY_SIZE(spool); i++) {
        (void)snprintf(text, sizeof(text), PODGPU("\"spool\": {\"%s\": %s}"), spool[i].key,
                       spool[i].value);
        (void)snprintf(error, sizeof(error), "f:1:%zu: /podgpu/spool/%s: %s\n",
                       strlen("{'podgpu': {'spool': {'': ") + strlen(spool[i].key) + 1,
                       spool[i].key, spool[i].error);
        assert_true(parses(text, false, -EINVAL, error, ""));
    }
}

static void each_retention_of_cloudwatch_is_known(void **state)
{
    static const unsigned days[] = {1,   3,   5,   7,   14,   30,   60,   90,   120,  150,  180,
                                    365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653};
    size_t good = 0;
    for (unsigned wanted = 1; wanted <= 3653; wanted++) {
        char text[64];
        (void)snprintf(text, sizeof(text), PODGPU("\"retention_days\": %u"), wanted);
        struct parsed p = parse_one(text, false);
        bool known = good < ARRAY_SIZE(days) && days[good] == wanted;
        assert_int_equal(p.result, known ? 0 : -EINVAL);
        if (known)
            assert_int_equal(p.config->retention_days, days[good++]);
        parsed_deinit(&p);
    }
    assert_int_equal(good, ARRAY_SIZE(days));
}

static void outputs_are_words_paths_and_addresses(void **state)
{
    static const struct {
        const char *text;
        enum cw_output_kind kind;
        const char *where;
    } good[] = {
        {"cloudwatch", CW_OUTPUT_CLOUDWATCH, NULL},
        {"stdout", CW_OUTPUT_STDOUT, NULL},
        {"file:x", CW_OUTPUT_FILE, "x"},
        {"file:/a b/c:d", CW_OUTPUT_FILE, "/a b/c:d"},
        {"tcp:127.0.0.1:25888", CW_OUTPUT_TCP, "127.0.0.1:25888"},
        {"tcp:host.example:1", CW_OUTPUT_TCP, "host.example:1"},
        {"tcp:[::1]:65535", CW_OUTPUT_TCP, "[::1]:65535"},
    };
    static const char *const bad[] = {
        "",          "CloudWatch", "cloudwatch ", "stdout:",   "file:",      "file",
        "tcp:",      "tcp:h",      "tcp:h:",      "tcp::1",    "tcp:h:0",    "tcp:h:65536",
        "tcp:h:+1",  "tcp:::1:5",  "tcp:[]:5",    "tcp:[:5",   "tcp:a b:5",  "tcp:u@h:5",
        "tcp:h/x:5", "udp:h:5",    "tcp:h:5 ",    "tcp:h:0x5", "tcp:h:\xc3",
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct cw_output out;
        assert_int_equal(cw_output_parse(sv_from(good[i].text), &out, NULL), 0);
        assert_int_equal(out.kind, good[i].kind);
        if (good[i].where)
            assert_string_equal(out.where, good[i].where);
        else
            assert_null(out.where);
        free(out.where);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct cw_output out = {CW_OUTPUT_STDOUT, NULL};
        struct error err = ERROR_INIT;
        assert_int_equal(cw_output_parse(sv_from(bad[i]), &out, &err), -EINVAL);
        assert_int_equal(out.kind, CW_OUTPUT_STDOUT);
        assert_true(sv_starts_with(sv_from(err.text),
                                   SV("expected cloudwatch, stdout, file:PATH or tcp:HOST:PORT")));
    }
}

static void events_may_go_to_several_outputs(void **state)
{
    struct cw_config *c = parse_good(
        PODGPU("\"output\": [\"file:/a\", \"cloudwatch\", \"tcp:h:1\", \"stdout\"]"), false);
    assert_int_equal(c->output_count, 4);
    assert_int_equal(c->outputs[0].kind, CW_OUTPUT_FILE);
    assert_string_equal(c->outputs[0].where, "/a");
    assert_int_equal(c->outputs[1].kind, CW_OUTPUT_CLOUDWATCH);
    assert_null(c->outputs[1].where);
    assert_int_equal(c->outputs[2].kind, CW_OUTPUT_TCP);
    assert_string_equal(c->outputs[2].where, "h:1");
    assert_int_equal(c->outputs[3].kind, CW_OUTPUT_STDOUT);
    cw_config_unref(c);
    assert_true(parses(PODGPU("\"output\": [\"file:/a\", 1, \"file:\"]"), false, -EINVAL,
                       "f:1:35: /podgpu/output/1: expected a string, found 1\n"
                       "f:1:38: /podgpu/output/2: expected cloudwatch, stdout, file:PATH or "
                       "tcp:HOST:PORT, found 'file:'\n",
                       ""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_is_read_and_counts_with_compat_too),
        cmocka_unit_test(the_agent_s_way_and_ours_can_each_be_asked_for),
        cmocka_unit_test(values_at_their_bounds_are_read),
        cmocka_unit_test(values_beyond_are_refused_with_what_was_expected),
        cmocka_unit_test(each_retention_of_cloudwatch_is_known),
        cmocka_unit_test(outputs_are_words_paths_and_addresses),
        cmocka_unit_test(events_may_go_to_several_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
