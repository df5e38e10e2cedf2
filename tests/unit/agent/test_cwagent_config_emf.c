// SPDX-License-Identifier: Apache-2.0
// Declarations, units, and what the agent's exporter makes of them (tables of its own tests,
// opentelemetry-collector-contrib, awsemfexporter: metric_declaration_test.go).
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
#define LABELS_AND_SELECTORS "\"source_labels\": [\"a\"], \"metric_selectors\": [\"m\"]"
#define DIMENSIONS(text) DECLARATION(LABELS_AND_SELECTORS ", \"dimensions\": " text)

// Sets as "a,b|c".
static void assert_sets(const struct cw_declaration *d, const char *expected)
{
    struct buf text = BUF_INIT(4096);
    for (size_t i = 0; i < d->dimension_count; i++) {
        if (i)
            buf_add_char(&text, '|');
        for (size_t k = 0; k < d->dimensions[i].count; k++) {
            if (k)
                buf_add_char(&text, ',');
            buf_add_sv(&text, d->dimensions[i].names[k]);
        }
    }
    assert_string_equal(buf_cstr(&text), expected);
    buf_deinit(&text);
}

static void sets_are_sorted_and_each_is_kept_once(void **state)
{
    static const struct {
        const char *given, *kept;
        size_t count;
    } cases[] = {
        {"[[\"a\", \"c\", \"b\", \"c\"], [\"c\", \"b\", \"a\"]]", "a,b,c", 1},
        {"[[\"a\", \"b\"], [\"a\"]]", "a,b|a", 2},
        {"[[\"a\"], [\"b\"], [\"a\"]]", "a|b", 2},
        {"[[]]", "", 1},
        {"[[], []]", "", 1},
        {"[[\"a\"], []]", "a|", 2},
        {"[[\"b\", \"B\", \"a\", \"_\"]]", "B,_,a,b", 1},
        {"[[\"a,b\"], [\"a\", \"b\"]]", "a,b|a,b", 2}, // the agent takes these for one
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[512];
        (void)snprintf(text, sizeof(text), DIMENSIONS("%s"), cases[i].given);
        struct cw_config *c = parse_good(text, false);
        assert_int_equal(c->declaration_count, 1);
        assert_int_equal(c->declarations[0].dimension_count, cases[i].count);
        assert_sets(&c->declarations[0], cases[i].kept);
        cw_config_unref(c);
    }
}

// A declaration with one set of so many names: a0, a1, ..., with so many repeated.
static const char *set_of(unsigned names, unsigned repeated)
{
    static char text[4096];
    size_t length = (size_t)snprintf(text, sizeof(text), DIMENSIONS("[[\"x\"], ["));
    length = (size_t)(strstr(text, ", [}") - text) + 3;
    for (unsigned i = 0; i < names + repeated; i++)
        length += (size_t)snprintf(text + length, sizeof(text) - length, "%s\"a%u\"", i ? ", " : "",
                                   i < names ? i : i - names);
    (void)snprintf(text + length, sizeof(text) - length, "]]}]}}}}}");
    return text;
}

static void sets_of_too_many_names_are_left_out_with_a_warning(void **state)
{
    static const struct {
        unsigned names, repeated;
        bool compat;
        unsigned told; // 0: kept
    } cases[] = {
        {30, 0, false, 0}, {31, 0, false, 31}, {30, 5, false, 0}, {10, 0, true, 0},
        {11, 0, true, 11}, {10, 1, true, 11},  {11, 0, false, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const char *text = set_of(cases[i].names, cases[i].repeated);
        char warning[256] = "";
        if (cases[i].told)
            (void)snprintf(warning, sizeof(warning),
                           "f:1:163: " EMF_PATH "/metric_declaration/0/dimensions/1: a set of %u "
                           "dimensions is left out: %u at most\n",
                           cases[i].told, cases[i].compat ? 10 : 30);
        assert_true(parses(text, cases[i].compat, 0, "", warning));
        struct cw_config *c = parse_good(text, cases[i].compat);
        assert_int_equal(c->declarations[0].dimension_count, cases[i].told ? 1 : 2);
        cw_config_unref(c);
    }
}

static void declarations_that_the_agent_passes_over_are_named(void **state)
{
    static const struct {
        const char *text, *warning;
        size_t count;
    } cases[] = {
        {"\"metric_selectors\": [\"m\"], \"dimensions\": [[\"a\"]]",
         "a declaration without source_labels is left out", 0},
        {"\"source_labels\": [], \"metric_selectors\": [\"m\"], \"dimensions\": [[\"a\"]]",
         "a declaration without source_labels is left out", 0},
        {"\"source_labels\": [\"a\"], \"dimensions\": [[\"a\"]]",
         "a declaration without metric_selectors is left out", 0},
        {"\"source_labels\": [\"a\"], \"metric_selectors\": [], \"dimensions\": [[\"a\"]]",
         "a declaration without metric_selectors is left out", 0},
        {LABELS_AND_SELECTORS ", \"label_matcher\": \"\", \"dimensions\": [[\"a\"]]",
         "a declaration without a label_matcher is left out", 0},
        {LABELS_AND_SELECTORS, "a declaration without dimensions makes no metric", 1},
        {LABELS_AND_SELECTORS ", \"dimensions\": []",
         "a declaration without dimensions makes no metric", 1},
        {"", "a declaration without source_labels is left out", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[512], warning[256];
        (void)snprintf(text, sizeof(text), DECLARATION("%s"), cases[i].text);
        (void)snprintf(warning, sizeof(warning), "f:1:89: " EMF_PATH "/metric_declaration/0: %s\n",
                       cases[i].warning);
        for (int compat = 0; compat < 2; compat++) {
            assert_true(parses(text, compat, 0, "", warning));
            struct cw_config *c = parse_good(text, compat);
            assert_int_equal(c->declaration_count, cases[i].count);
            cw_config_unref(c);
        }
    }
}

static void what_stops_the_agent_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {DECLARATION("\"source_labels\": [\"a\"], \"metric_selectors\": [\"a\", \"(\"]"),
         "f:1:140: " EMF_PATH "/metric_declaration/0/metric_selectors/1: regular expression: "
         "missing ): (\n"},
        {DECLARATION(LABELS_AND_SELECTORS ", \"label_matcher\": \"a**\""),
         "f:1:158: " EMF_PATH "/metric_declaration/0/label_matcher: regular expression: bad "
         "repetition operator: **\n"},
        {DECLARATION("\"source_labels\": \"a\""),
         "f:1:107: " EMF_PATH "/metric_declaration/0/source_labels: expected an array, found the "
         "string 'a'\n"},
        {DECLARATION("\"source_labels\": [5]"),
         "f:1:108: " EMF_PATH
         "/metric_declaration/0/source_labels/0: expected a string, found 5\n"},
        {DECLARATION("\"metric_selectors\": [null]"),
         "f:1:111: " EMF_PATH "/metric_declaration/0/metric_selectors/0: expected a string, found "
         "null\n"},
        {DECLARATION("\"label_separator\": 5"),
         "f:1:109: " EMF_PATH
         "/metric_declaration/0/label_separator: expected a string, found 5\n"},
        {DECLARATION("\"dimensions\": {}"),
         "f:1:104: " EMF_PATH "/metric_declaration/0/dimensions: expected an array, found an "
         "object\n"},
        {DECLARATION("\"dimensions\": [\"a\"]"),
         "f:1:105: " EMF_PATH "/metric_declaration/0/dimensions/0: expected an array, found the "
         "string 'a'\n"},
        {DECLARATION("\"dimensions\": [[\"a\", \":b\"]]"),
         "f:1:111: " EMF_PATH "/metric_declaration/0/dimensions/0/1: expected a name that does not "
         "begin with a colon, found the string ':b'\n"},
        {EMF("\"metric_declaration\": {}"),
         "f:1:88: " EMF_PATH "/metric_declaration: expected an array, found an object\n"},
        {EMF("\"metric_declaration\": [5, {}, []]"),
         "f:1:89: " EMF_PATH "/metric_declaration/0: expected an object, found 5\n"
         "f:1:96: " EMF_PATH "/metric_declaration/2: expected an object, found an array\n"},
        {EMF("\"metric_declaration_dedup\": 1"),
         "f:1:94: " EMF_PATH "/metric_declaration_dedup: expected a boolean, found 1\n"},
        {EMF("\"metric_namespace\": \":x\""),
         "f:1:86: " EMF_PATH "/metric_namespace: expected a namespace that begins with neither "
         "AWS/ nor a colon, found the string ':x'\n"},
        {EMF("\"metric_unit\": []"),
         "f:1:81: " EMF_PATH "/metric_unit: expected an object, found an array\n"},
        {EMF("\"metric_unit\": {\"m\": \"\"}"),
         "f:1:87: " EMF_PATH "/metric_unit/m: expected 1 to 256 characters, found 0\n"},
        {EMF("\"metric_unit\": {\"m\": 5}"),
         "f:1:87: " EMF_PATH "/metric_unit/m: expected a string, found 5\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (int compat = 0; compat < 2; compat++) {
            struct parsed p = parse_one(cases[i].text, compat);
            assert_int_equal(p.result, -EINVAL);
            assert_sv_equals(buf_sv(&p.errors), cases[i].error);
            parsed_deinit(&p);
        }
    }
}

static void the_separator_counts_but_for_compat(void **state)
{
    static const struct {
        const char *given, *separator;
    } cases[] = {{"", ";"}, {";", ";"}, {",", ","}, {"::", "::"}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[512];
        (void)snprintf(
            text, sizeof(text),
            DECLARATION(LABELS_AND_SELECTORS ", \"dimensions\": [[]], \"label_separator\": \"%s\""),
            cases[i].given);
        struct cw_config *c = parse_good(text, false);
        assert_sv_equals(c->declarations[0].separator, cases[i].separator);
        cw_config_unref(c);
        bool told = strcmp(cases[i].separator, ";") != 0;
        assert_true(parses(text, true, 0, "",
                           told ? "f:1:180: " EMF_PATH "/metric_declaration/0/label_separator: "
                                  "without effect with --compat=cwagent: the agent always joins "
                                  "with ;\n"
                                : ""));
        c = parse_good(text, true);
        assert_sv_equals(c->declarations[0].separator, ";");
        cw_config_unref(c);
    }
}

static void labels_are_joined_and_matched_as_in_the_exporter(void **state)
{
    static const struct {
        const char *labels, *declaration, *joined;
        bool matches;
    } cases[] = {
        {"abc", "\"source_labels\": [\"label1\"]", "a", true},
        {"abc", "\"source_labels\": [\"label1\", \"label3\", \"label2\"]", "a;c;b", true},
        {"abc",
         "\"source_labels\": [\"label1\", \"label3\", \"label2\"], \"label_separator\": \",\"",
         "a,c,b", true},
        {"abc", "\"source_labels\": [\"label1\", \"label4\", \"label2\"]", "a;;b", true},
        {"foo", "\"source_labels\": [\"label1\"], \"label_matcher\": \"^fo+$\"", "foo", true},
        {"foo", "\"source_labels\": [\"label1\"], \"label_matcher\": \"^f+$\"", "foo", false},
        {"foo", "\"source_labels\": [\"label4\"], \"label_matcher\": \".+\"", "", false},
        {"foo",
         "\"source_labels\": [\"label1\", \"label3\", \"label2\"], \"label_matcher\": "
         "\"fo+;car;b.*$\"",
         "foo;car;bar", true},
        {"foo",
         "\"source_labels\": [\"label1\", \"label3\", \"label2\"], \"label_separator\": \",\", "
         "\"label_matcher\": \"fo+,car,b.*$\"",
         "foo,car,bar", true},
        {"foo",
         "\"source_labels\": [\"label1\", \"label3\", \"label2\"], \"label_separator\": \",\", "
         "\"label_matcher\": \"fo+;car;b.*$\"",
         "foo,car,bar", false},
        {"foo",
         "\"source_labels\": [\"label1\", \"label4\", \"label2\"], \"label_matcher\": "
         "\"fo+;;b.*$\"",
         "foo;;bar", true},
    };
    struct arena arena = ARENA_INIT(1u << 16);
    struct labels abc, foo;
    struct buf scratch = BUF_INIT(1024);
    labels_init(&abc, &arena);
    labels_init(&foo, &arena);
    assert_int_equal(labels_set(&abc, SV("label1"), SV("a")), 0);
    assert_int_equal(labels_set(&abc, SV("label2"), SV("b")), 0);
    assert_int_equal(labels_set(&abc, SV("label3"), SV("c")), 0);
    assert_int_equal(labels_set(&foo, SV("label1"), SV("foo")), 0);
    assert_int_equal(labels_set(&foo, SV("label2"), SV("bar")), 0);
    assert_int_equal(labels_set(&foo, SV("label3"), SV("car")), 0);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[512];
        (void)snprintf(text, sizeof(text),
                       DECLARATION("\"metric_selectors\": [\"m\"], \"dimensions\": [[]], %s"),
                       cases[i].declaration);
        struct cw_config *c = parse_good(text, false);
        const struct labels *l = strcmp(cases[i].labels, "abc") == 0 ? &abc : &foo;
        assert_int_equal(cw_declaration_matches(&c->declarations[0], l, &scratch),
                         cases[i].matches);
        assert_sv_equals(buf_sv(&scratch), cases[i].joined);
        cw_config_unref(c);
    }
    buf_deinit(&scratch);
    arena_deinit(&arena);
}

static void values_beyond_the_scratch_do_not_match(void **state)
{
    struct cw_config *c = parse_good(DIMENSIONS("[[]]"), false);
    struct arena arena = ARENA_INIT(1u << 16);
    struct labels l;
    struct buf scratch = BUF_INIT(4);
    labels_init(&l, &arena);
    assert_int_equal(labels_set(&l, SV("a"), SV("1234")), 0);
    assert_true(cw_declaration_matches(&c->declarations[0], &l, &scratch));
    assert_int_equal(labels_set(&l, SV("a"), SV("12345")), 0);
    assert_false(cw_declaration_matches(&c->declarations[0], &l, &scratch));
    assert_int_equal(scratch.error, -EFBIG);
    assert_int_equal(labels_set(&l, SV("a"), SV("1")), 0);
    assert_true(cw_declaration_matches(&c->declarations[0], &l, &scratch));
    buf_deinit(&scratch);
    arena_deinit(&arena);
    cw_config_unref(c);
}

static void selectors_look_anywhere_in_the_name_and_one_is_enough(void **state)
{
    struct cw_config *c = parse_good(
        DECLARATION("\"source_labels\": [\"a\"], \"metric_selectors\": [\"^a$\", \"b+\"], "
                    "\"dimensions\": [[]]"),
        false);
    const struct cw_declaration *d = &c->declarations[0];
    assert_true(cw_declaration_selects(d, SV("a")) && cw_declaration_selects(d, SV("xbx")));
    assert_false(cw_declaration_selects(d, SV("aa")) || cw_declaration_selects(d, SV("")));
    cw_config_unref(c);
}

#define DECLARATIONS                                                                               \
    "{\"source_labels\": [\"Service\", \"Namespace\"], \"label_matcher\": \"x\", \"dimensions\": " \
    "[[\"Service\"]], \"metric_selectors\": [\"a\"]}, {\"source_labels\": [\"Service\"], "         \
    "\"label_matcher\": \"y\", \"metric_selectors\": [\"b\"]}, {\"source_labels\": "               \
    "[\"Service\"], "                                                                              \
    "\"dimensions\": [[\"Service\"]], \"metric_selectors\": [\"c\"]}, {\"source_labels\": "        \
    "[\"Service\"], \"dimensions\": [[\"Service\"]], \"metric_selectors\": [\"d\"]}"

// github.com/aws/amazon-cloudwatch-agent, translator/tocwconfig/sampleConfig, prometheus; and the
// table of its translator's tests.
static void the_agent_s_own_samples_are_read_as_it_reads_them(void **state)
{
    struct cw_config *c = parse_good(
        PROMETHEUS(
            "\"log_group_name\": \"/test/log/group\", \"emf_processor\": {\"metric_declaration\": "
            "[{\"source_labels\": [\"Service\", \"Namespace\"], \"label_matcher\": "
            "\"(.*node-exporter.*|.*kube-dns.*);kube-system$\", \"dimensions\": [[\"Service\", "
            "\"Namespace\"]], \"metric_selectors\": "
            "[\"^coredns_dns_request_type_count_total$\"]}], \"metric_unit\": "
            "{\"jvm_gc_collection_seconds_sum\": \"Milliseconds\"}}"),
        true);
    assert_string_equal(c->log_group, "/test/log/group");
    assert_string_equal(c->metric_namespace, "CWAgent/Prometheus");
    assert_sets(&c->declarations[0], "Namespace,Service");
    assert_sv_equals(c->declarations[0].matcher_text,
                     "(.*node-exporter.*|.*kube-dns.*);kube-system$");
    assert_int_equal(c->unit_count, 1);
    assert_sv_equals(c->units[0].metric, "jvm_gc_collection_seconds_sum");
    assert_string_equal(c->units[0].unit, "Milliseconds");
    cw_config_unref(c);
    c = parse_good(PROMETHEUS("\"disable_metric_extraction\": true"), false);
    assert_true(c->disable_metric_extraction && !c->has_emf_processor);
    assert_int_equal(c->declaration_count, 0);
    cw_config_unref(c);
    c = parse_good(EMF("\"metric_unit\": {\"m\": \"Count\"}"), false);
    assert_true(c->has_emf_processor);
    assert_int_equal(c->declaration_count, 0);
    assert_string_equal(c->metric_namespace, "CWAgent/Prometheus");
    cw_config_unref(c);
    c = parse_good("{\"logs\": {\"force_flush_interval\": 30, \"endpoint_override\": "
                   "\"https://fake_endpoint\", \"metrics_collected\": {\"prometheus\": "
                   "{\"emf_processor\": {\"metric_namespace\": \"CustomizedNamespace\", "
                   "\"metric_declaration\": [" DECLARATIONS "]}}}}}",
                   false);
    assert_int_equal(c->declaration_count, 4);
    assert_string_equal(c->metric_namespace, "CustomizedNamespace");
    assert_int_equal(c->declarations[1].dimension_count, 0);
    for (size_t i = 2; i < 4; i++) {
        assert_sv_equals(c->declarations[i].matcher_text, ".*");
        assert_int_equal(c->declarations[i].matcher_line, 0);
        assert_sv_equals(c->declarations[i].separator, ";");
    }
    cw_config_unref(c);
}

static void units_are_cloudwatch_s_or_none(void **state)
{
    static const char *const units[] = {
        "Seconds",
        "Microseconds",
        "Milliseconds",
        "Bytes",
        "Kilobytes",
        "Megabytes",
        "Gigabytes",
        "Terabytes",
        "Bits",
        "Kilobits",
        "Megabits",
        "Gigabits",
        "Terabits",
        "Percent",
        "Count",
        "Bytes/Second",
        "Kilobytes/Second",
        "Megabytes/Second",
        "Gigabytes/Second",
        "Terabytes/Second",
        "Bits/Second",
        "Kilobits/Second",
        "Megabits/Second",
        "Gigabits/Second",
        "Terabits/Second",
        "Count/Second",
        "None",
    };
    for (size_t i = 0; i < ARRAY_SIZE(units); i++)
        assert_string_equal(cw_unit_find(sv_from(units[i])), units[i]);
    assert_null(cw_unit_find(SV("Second")));
    assert_null(cw_unit_find(SV("percent")));
    assert_null(cw_unit_find(SV("")));
    const char *text =
        EMF("\"metric_unit\": {\"z\": \"Count\", \"b\": \"Furlongs\", \"a\": \"None\"}");
    assert_true(parses(text, false, 0, "",
                       "f:1:101: " EMF_PATH "/metric_unit/b: CloudWatch has no unit 'Furlongs': "
                       "the metric has none\n"));
    struct cw_config *c = parse_good(text, false);
    assert_int_equal(c->unit_count, 2);
    assert_sv_equals(c->units[0].metric, "a");
    assert_string_equal(c->units[0].unit, "None");
    assert_sv_equals(c->units[1].metric, "z");
    cw_config_unref(c);
}

// --- Ceilings ---

// before, item so many times with commas, after.
static struct parsed parse_many(const char *before, const char *item, size_t count,
                                const char *after)
{
    struct buf text = BUF_INIT(LIMIT_CW_TEXT_BYTES);
    buf_add_str(&text, before);
    for (size_t i = 0; i < count; i++)
        buf_add_fmt(&text, "%s%s", i ? "," : "", item);
    buf_add_str(&text, after);
    struct parsed p = parse_one(buf_cstr(&text), false);
    buf_deinit(&text);
    return p;
}

static void ceilings_hold_at_their_number(void **state)
{
    static const struct {
        const char *before, *item, *after, *error;
        size_t most;
    } cases[] = {
        {"{\"logs\":{\"metrics_collected\":{\"prometheus\":{\"emf_processor\":{"
         "\"metric_declaration\":[",
         "{\"source_labels\":[\"a\"],\"metric_selectors\":[\"m\"],\"dimensions\":[[]]}", "]}}}}}",
         "f:1:83: " EMF_PATH "/metric_declaration: more than 1024 declarations\n",
         LIMIT_CW_DECLARATIONS},
        {"{\"logs\":{\"metrics_collected\":{\"prometheus\":{\"emf_processor\":{"
         "\"metric_declaration\":[{\"source_labels\":[\"a\"],\"dimensions\":[[]],"
         "\"metric_selectors\":[",
         "\"m\"", "]}]}}}}}",
         "f:1:144: " EMF_PATH "/metric_declaration/0/metric_selectors: more than 8192 selectors in "
         "all\n",
         LIMIT_CW_SELECTORS},
        {"{\"logs\":{\"metrics_collected\":{\"prometheus\":{\"emf_processor\":{"
         "\"metric_declaration\":[{\"source_labels\":[\"a\"],\"metric_selectors\":[\"m\"],"
         "\"dimensions\":[",
         "[]", "]}]}}}}}",
         "f:1:145: " EMF_PATH "/metric_declaration/0/dimensions: more than 1000 sets of "
         "dimensions\n",
         LIMIT_CW_DIMENSION_SETS},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct parsed p = parse_many(cases[i].before, cases[i].item, cases[i].most, cases[i].after);
        assert_int_equal(p.result, 0);
        parsed_deinit(&p);
        p = parse_many(cases[i].before, cases[i].item, cases[i].most + 1, cases[i].after);
        assert_int_equal(p.result, -EINVAL);
        assert_sv_equals(buf_sv(&p.errors), cases[i].error);
        parsed_deinit(&p);
    }
}

static void units_have_a_ceiling(void **state)
{
    for (size_t more = 0; more < 2; more++) {
        struct buf text = BUF_INIT(LIMIT_CW_TEXT_BYTES);
        buf_add_str(&text, "{\"logs\":{\"metrics_collected\":{\"prometheus\":{\"emf_processor\":{"
                           "\"metric_unit\":{");
        for (size_t i = 0; i < LIMIT_CW_UNITS + more; i++)
            buf_add_fmt(&text, "%s\"m%zu\":\"Count\"", i ? "," : "", i);
        buf_add_str(&text, "}}}}}}");
        struct parsed p = parse_one(buf_cstr(&text), false);
        assert_int_equal(p.result, more ? -EINVAL : 0);
        assert_sv_equals(buf_sv(&p.errors),
                         more ? "f:1:76: " EMF_PATH "/metric_unit: more than 16384 units\n" : "");
        parsed_deinit(&p);
        buf_deinit(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_are_sorted_and_each_is_kept_once),
        cmocka_unit_test(sets_of_too_many_names_are_left_out_with_a_warning),
        cmocka_unit_test(declarations_that_the_agent_passes_over_are_named),
        cmocka_unit_test(what_stops_the_agent_is_refused_with_its_place),
        cmocka_unit_test(the_separator_counts_but_for_compat),
        cmocka_unit_test(labels_are_joined_and_matched_as_in_the_exporter),
        cmocka_unit_test(values_beyond_the_scratch_do_not_match),
        cmocka_unit_test(selectors_look_anywhere_in_the_name_and_one_is_enough),
        cmocka_unit_test(the_agent_s_own_samples_are_read_as_it_reads_them),
        cmocka_unit_test(units_are_cloudwatch_s_or_none),
        cmocka_unit_test(ceilings_hold_at_their_number),
        cmocka_unit_test(units_have_a_ceiling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
