// SPDX-License-Identifier: Apache-2.0
#include "metrics/parse.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/limits.h"
#include "metrics/text.h"

static struct sv copy(struct sv s)
{
    struct sv c = {malloc(s.len ? s.len : 1), s.len}; // exact: ASan sees a byte read behind it
    assert_non_null(c.ptr);
    memcpy((char *)c.ptr, s.ptr, s.len);
    return c;
}

static void add_quoted(struct buf *out, struct sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (s.ptr[i] == '\n')
            buf_add_str(out, "<LF>");
        else
            buf_add_char(out, s.ptr[i] ? s.ptr[i] : '0');
    }
}

// "name{a=b}=value@timestamp:type;" of each sample, or what went wrong.
static void describe(struct buf *out, const struct parse_sample *s)
{
    struct buf scratch = BUF_INIT(1000);
    struct sv rest = s->labels, name, value;
    int r;
    assert_int_equal(parse_unescape(s->name, &scratch, &name), 0);
    add_quoted(out, name);
    while ((r = parse_next_label(&rest, &scratch, &name, &value)) > 0) {
        buf_add_char(out, '{');
        add_quoted(out, name);
        buf_add_char(out, '=');
        add_quoted(out, value);
        buf_add_char(out, '}');
    }
    assert_int_equal(r, 0);
    buf_add_char(out, '=');
    text_add_double(out, s->value);
    if (s->has_timestamp)
        buf_add_fmt(out, "@%lld", (long long)s->timestamp_ms);
    if (s->type != PARSE_TYPE_NONE)
        buf_add_fmt(out, ":%s", parse_type_text(s->type));
    buf_add_char(out, ';');
    buf_deinit(&scratch);
}

static int read_all(struct buf *out, struct sv text, enum parse_format format)
{
    struct parser p;
    struct parse_sample s;
    struct error err = ERROR_INIT;
    struct sv input = copy(text);
    int r;
    parser_init(&p, input, format);
    while ((r = parser_next(&p, &s, &err)) > 0)
        describe(out, &s);
    if (r < 0) {
        struct error again = ERROR_INIT;
        assert_int_equal(err.code, r);
        buf_add_fmt(out, "%u:%u: %s", err.line, err.column, err.text);
        assert_int_equal(parser_next(&p, &s, &again), r);
        assert_string_equal(again.text, err.text);
    } else {
        assert_int_equal(p.rest.len, 0);
        assert_int_equal(p.eof_seen, format == PARSE_OPENMETRICS);
    }
    parser_deinit(&p);
    free((char *)input.ptr);
    return r;
}

struct parse_case {
    const char *text, *expected;
};

static void check_cases(const struct parse_case *cases, size_t count, enum parse_format format,
                        int outcome)
{
    for (size_t i = 0; i < count; i++) {
        struct buf out = BUF_INIT(100000);
        int r = read_all(&out, sv_from(cases[i].text), format);
        assert_string_equal(buf_cstr(&out), cases[i].expected);
        assert_int_equal(r, outcome);
        buf_deinit(&out);
    }
}

static void prometheus_lines_are_read(void **state)
{
    static const struct parse_case cases[] = {
        {"", ""},
        {"\n\n \t\n", ""},
        {"a 1", "a=1;"},
        {"a 1\n", "a=1;"},
        {" \ta \t1 \n", "a=1;"},
        {":a_9:b 2\n\nb 3\n", ":a_9:b=2;b=3;"},
        {"a{} 1", "a=1;"},
        {"a {b=\"c\"}\t1 1000", "a{b=c}=1@1000;"},
        {"a{b=\"c\"}1", "a{b=c}=1;"},
        {"a { b = \"c\" , d = \"e\" , } 1 2 ", "a{b=c}{d=e}=1@2;"},
        {"a{b=\"c\" d=\"e\"} 1", "a{b=c}{d=e}=1;"},
        {"a{b=\"\"} 1", "a{b=}=1;"},
        {"a{b=\"}\",c=\",= {#\"} 1", "a{b=}}{c=,= {#}=1;"},
        {"a{b=\"\\\\ \\\" \\n \\t \\\"\"} 1", "a{b=\\ \" <LF> \\t \"}=1;"},
        {"a{b=\"x\ny\"} 1\nc{", "a{b=x<LF>y}=1;3:3: expected a label name or '}', got the end of "
                                "the line"},
        {"a{b=\"caf\xc3\xa9 \xe2\x82\xac\"} 1", "a{b=caf\xc3\xa9 \xe2\x82\xac}=1;"},
        {"a NaN\na nan\na +Inf\na -Inf\na Inf\na inf\na -infinity\n",
         "a=NaN;a=NaN;a=+Inf;a=-Inf;a=+Inf;a=+Inf;a=-Inf;"},
        {"a 1e3\na 1E-3\na +1\na -1\na .5\na 5.\na 0.1\na 123456789012345678\na 1e-400\n",
         "a=1000;a=0.001;a=1;a=-1;a=0.5;a=5;a=0.1;a=123456789012345680;a=0;"},
        {"a 1 9223372036854775807", "a=1@9223372036854775807;"},
        {"#\n#a\n# a\n# \n# HELP\n# HELPX 1\n#HELP 1\n#TYPE a b\n# TYPEa\na 1", "a=1;"},
        {"# HELP a\n# HELP a \n# HELP a x \\n \\\\ \"\n# HELP  \t a\tx", ""},
        {"# TYPE a counter\na 1\n# TYPE a gauge\na 2\n", "a=1:counter;a=2:gauge;"},
        {"#\tTYPE\ta\tgauge\na 1", "a=1:gauge;"},
        {"# TYPE a  gauge \na 1", "a=1:gauge;"},
        {"# TYPE a untyped\na 1\nb 1", "a=1:unknown;b=1;"},
        {"{\"a b\"} 1\n{\"a b\",c=\"d\"} 2\n{c=\"d\",\"a b\"} 3\n{\"a\\\"\\n\\\\\"} 4",
         "a b=1;a b{c=d}=2;a b{c=d}=3;a\"<LF>\\=4;"},
        {"a{\"b c\"=\"d\",\"e\\\"\"=\"\\\\\"} 1", "a{b c=d}{e\"=\\}=1;"},
        {"# TYPE \"a b\" counter\n{\"a b\"} 1\n{\"a b_total\"} 1",
         "a b=1:counter;a b_total=1:counter;"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check_cases(&cases[i], 1, PARSE_PROMETHEUS,
                    strstr(cases[i].expected, "expected") ? -EINVAL : 0);
}

static void prometheus_errors_have_line_column_and_expectation(void **state)
{
    static const struct parse_case cases[] = {
        {"a", "1:2: expected a value, got the end of the line"},
        {"a\n", "1:2: expected a value, got the end of the line"},
        {"a b", "1:3: expected a value, got 'b'"},
        {"a 1 b", "1:5: expected a timestamp or a line feed, got 'b'"},
        {"a 1 -5", "1:5: expected a timestamp or a line feed, got '-'"},
        {"a 1 1.5", "1:6: expected a line feed, got '.'"},
        {"a 1 2 3", "1:7: expected a line feed, got '3'"},
        {"a 1 9223372036854775808", "1:5: expected a timestamp of 64 bits, got '9'"},
        {"a 1\r\n", "1:4: expected a line feed, got a carriage return"},
        {"a 1 5\r\n", "1:6: expected a line feed, got a carriage return"},
        {"a NaN\r\n", "1:6: expected a line feed, got a carriage return"},
        {"\r\n", "1:1: expected a sample, got a carriage return"},
        {"# TYPE a gauge\r\n", "1:15: expected a line feed, got a carriage return"},
        {"a 0x10", "1:3: expected a value, got '0'"},
        {"a 1_0", "1:3: expected a value, got '1'"},
        {"a 1e", "1:3: expected a value, got '1'"},
        {"a 1e400", "1:3: expected a number a double can hold, got '1'"},
        {"a +NaN", "1:3: expected a value, got '+'"},
        {"a -", "1:3: expected a value, got '-'"},
        {"a-1", "1:2: expected a space or '{', got '-'"},
        {"a.b 1", "1:2: expected a space or '{', got '.'"},
        {"a 1\n9 1", "a=1;2:1: expected a metric name, got '9'"},
        {"\xc3\xa9 1", "1:1: expected a metric name, got byte 0xc3"},
        {"a{,} 1", "1:3: expected a label name or '}', got ','"},
        {"a{b=\"c\",,} 1", "1:9: expected a label name or '}', got ','"},
        {"a{1=\"c\"} 1", "1:3: expected a label name or '}', got '1'"},
        {"a{b:c=\"c\"} 1", "1:4: expected '=', got ':'"},
        {"a{b} 1", "1:4: expected '=', got '}'"},
        {"a{b=c} 1", "1:5: expected a label value in quotes, got 'c'"},
        {"a{b=\"c} 1", "1:10: expected a closing quote, got the end of the line"},
        {"a{b=\"c\\", "1:8: expected an escaped character, got the end of the line"},
        {"a{b=\"c\\\n\"} 1", "1:8: expected an escaped character, got the end of the line"},
        {"a{b=\"c\"", "1:8: expected a label name or '}', got the end of the line"},
        {"a{b=\"c\";} 1", "1:8: expected a label name or '}', got ';'"},
        {"a{b=\"long enough \xff\"} 1", "1:18: expected valid UTF-8, got byte 0xff"},
        {"a{b=\"\xed\xa0\x80\"} 1", "1:6: expected valid UTF-8, got byte 0xed"},
        {"a{b=\"x\ny\xff\nz\"} 1", "2:2: expected valid UTF-8, got byte 0xff"},
        {"a{b=\"\xffx\ny\"} 1", "1:6: expected valid UTF-8, got byte 0xff"},
        {"a{b=\"\\\xff\"} 1", "1:7: expected valid UTF-8, got byte 0xff"},
        {"{} 1", "1:2: expected a metric name in quotes, got '}'"},
        {"{b=\"c\"} 1", "1:7: expected a metric name in quotes, got '}'"},
        {"{\"\"} 1", "1:2: expected a name that is not empty, got '\"'"},
        {"a{\"b\"} 1", "1:3: expected one metric name, got '\"'"},
        {"{\"a\",\"b\"} 1", "1:6: expected one metric name, got '\"'"},
        {"{\"a\",\"b\nc\"} 1", "1:6: expected one metric name, got '\"'"},
        {"{a} 1", "1:3: expected '=', got '}'"},
        {"# TYPE 1 gauge", "1:8: expected a metric name, got '1'"},
        {"# TYPE a", "1:9: expected a metric type, got the end of the line"},
        {"# TYPE a unknown", "1:10: expected a metric type, got 'u'"},
        {"# TYPE a info", "1:10: expected a metric type, got 'i'"},
        {"# TYPE a-gauge", "1:9: expected a metric type, got '-'"},
        {"# HELP \n", "1:8: expected a metric name, got the end of the line"},
        {"# HELP a x\xff", "1:11: expected valid UTF-8, got byte 0xff"},
        {"# HELP \"a\nb\" x", "1:10: expected a closing quote, got the end of the line"},
    };
    check_cases(cases, ARRAY_SIZE(cases), PARSE_PROMETHEUS, -EINVAL);
}

static void openmetrics_lines_are_read(void **state)
{
    static const struct parse_case cases[] = {
        {"# EOF", ""},
        {"# EOF\n", ""},
        {"a 1\n# EOF\n", "a=1;"},
        {"a 1 1.5\na 1 -1\na 1 1e3\na 1 0.0015\n# EOF\n", "a=1@1500;a=1@-1000;a=1@1000000;a=1@1;"},
        {"a{b=\"c\",d=\"e\",} 1\n# EOF\n", "a{b=c}{d=e}=1;"},
        {"# TYPE a counter\n# HELP a x\n# UNIT a \na_total 1\na_created 2\n# EOF\n",
         "a_total=1:counter;a_created=2:counter;"},
        {"# TYPE a_seconds gauge\n# UNIT a_seconds seconds\na_seconds 1\n# EOF\n",
         "a_seconds=1:gauge;"},
        {"# TYPE a unknown\n# TYPE b stateset\n# TYPE c info\n# TYPE d gaugehistogram\na 1\n"
         "b{b=\"x\"} 1\nc_info 1\nd_bucket{le=\"1\"} 2\nd_gcount 2\nd_gsum 3\n# EOF\n",
         "a=1:unknown;b{b=x}=1:stateset;c_info=1:info;d_bucket{le=1}=2:gaugehistogram;"
         "d_gcount=2:gaugehistogram;d_gsum=3:gaugehistogram;"},
        {"a_total 1 # {} 0.5\na_total{b=\"c\"} 2 5 # {id=\"x y\",k=\"\\\"\"} 0.5 1.5\n# EOF\n",
         "a_total=1;a_total{b=c}=2@5000;"},
        {"{\"a b\",c=\"d\"} 1\n# EOF", "a b{c=d}=1;"},
    };
    check_cases(cases, ARRAY_SIZE(cases), PARSE_OPENMETRICS, 0);
}

static void openmetrics_errors_have_line_column_and_expectation(void **state)
{
    static const struct parse_case cases[] = {
        {"", "1:1: expected # EOF, got the end of the line"},
        {"a 1\n", "a=1;2:1: expected # EOF, got the end of the line"},
        {"a 1", "1:4: expected a line feed, got the end of the line"},
        {"# EOF\n\n", "2:1: expected nothing behind # EOF, got the end of the line"},
        {"# EOF\na 1\n", "2:1: expected nothing behind # EOF, got 'a'"},
        {"# EOF ", "1:6: expected nothing behind # EOF, got ' '"},
        {"# EOF\r\n", "1:6: expected nothing behind # EOF, got a carriage return"},
        {"\na 1\n", "1:1: expected a sample, got the end of the line"},
        {" a 1\n", "1:1: expected a metric name, got ' '"},
        {"a  1\n", "1:3: expected a value, got ' '"},
        {"a\t1\n", "1:2: expected a space and the value, got byte 0x09"},
        {"a 1 \n", "1:5: expected a timestamp, got the end of the line"},
        {"a 1 NaN\n", "1:5: expected a timestamp of 64 bits, got 'N'"},
        {"a 1 1e300\n", "1:5: expected a timestamp of 64 bits, got '1'"},
        {"a 1\r\n", "1:4: expected a line feed, got a carriage return"},
        {"a {b=\"c\"} 1\n", "1:3: expected a value, got '{'"},
        {"a{b=\"c\"}1\n", "1:9: expected a space and the value, got '1'"},
        {"a{b=\"c\" } 1\n", "1:8: expected ',' or '}', got ' '"},
        {"a{b=\"c\"d=\"e\"} 1\n", "1:8: expected ',' or '}', got 'd'"},
        {"a{ b=\"c\"} 1\n", "1:3: expected a label name or '}', got ' '"},
        {"a{b=\"c\nd\"} 1\n", "1:7: expected a closing quote, got the end of the line"},
        {"# comment\n", "1:3: expected HELP, TYPE, UNIT or EOF behind \"# \", got 'c'"},
        {"#a\n", "1:2: expected HELP, TYPE, UNIT or EOF behind \"# \", got 'a'"},
        {"# TYPE a untyped\n", "1:10: expected a metric type, got 'u'"},
        {"# TYPE a  gauge\n", "1:10: expected a metric type, got ' '"},
        {"# TYPE a gauge", "1:15: expected a line feed, got the end of the line"},
        {"# HELP a\n", "1:9: expected a space, got the end of the line"},
        {"# UNIT a_b c\n", "1:12: expected the unit the metric name ends in, got 'c'"},
        {"# UNIT seconds seconds\n", "1:16: expected the unit the metric name ends in, got 's'"},
        {"a 1 # {b=\"c\"}\n", "1:14: expected a space and the exemplar's value, got the end of "
                              "the line"},
        {"a 1 # {\"b\"} 1\n", "1:11: expected '=', got '}'"},
        {"a 1 # {\"b\",c=\"d\"} 1\n", "1:11: expected '=', got ','"},
        {"a 1 # {} x\n", "1:10: expected the exemplar's value, got 'x'"},
        {"a 1 # {} 1 2 3\n", "1:13: expected a line feed, got ' '"},
        {"a 1 #{} 1\n", "1:5: expected a timestamp, got '#'"},
    };
    check_cases(cases, ARRAY_SIZE(cases), PARSE_OPENMETRICS, -EINVAL);
}

static void types_are_found_by_family(void **state)
{
    static const struct parse_case cases[] = {
        {"# TYPE a summary\na{quantile=\"0.5\"} 1\na_sum 2\na_count 3\na_total 4\na_x 5\n",
         "a{quantile=0.5}=1:summary;a_sum=2:summary;a_count=3:summary;a_total=4:summary;a_x=5;"},
        {"# TYPE a histogram\na_bucket{le=\"1\"} 1\na_created 2\n",
         "a_bucket{le=1}=1:histogram;a_created=2:histogram;"},
        {"# TYPE a_total counter\na_total 1\na 2\n", "a_total=1:counter;a=2;"},
        {"# TYPE a gauge\na_info 1\na_created 2\na_count 3\n",
         "a_info=1;a_created=2;a_count=3:gauge;"},
        {"# TYPE a gauge\n# TYPE a_count counter\na_count 3\na 1\n",
         "a_count=3:counter;a=1:gauge;"},
        {"# TYPE a gauge\n# TYPE b counter\na 1\nb 1\na 2\nb 2\n",
         "a=1:gauge;b=1:counter;a=2:gauge;b=2:counter;"},
        {"a 1\n# TYPE a gauge\na 2\n", "a=1;a=2:gauge;"},
        {"# TYPE a gauge\n_total 1\n_sum 1\n", "_total=1;_sum=1;"},
    };
    check_cases(cases, ARRAY_SIZE(cases), PARSE_PROMETHEUS, 0);
}

static void labels_seen_before_are_read_the_same(void **state)
{
    static const struct parse_case good[] = {
        {"a{b=\"c\"} 1\nd{b=\"c\"} 2\ne{b=\"c\",f=\"g\"} 3\nh{b=\"c\"} 4",
         "a{b=c}=1;d{b=c}=2;e{b=c}{f=g}=3;h{b=c}=4;"},
        {"a{b=\"c}\"} 1\nd{b=\"c\"} 2\nd{b=\"c}\"} 3", "a{b=c}}=1;d{b=c}=2;d{b=c}}=3;"},
        {"a{b=\"c\"} 1\nd{} 2\ne 3\nf{b=\"c\"} 4", "a{b=c}=1;d=2;e=3;f{b=c}=4;"},
        {"{\"a\",b=\"c\"} 1\n{\"a\",b=\"c\"} 2", "a{b=c}=1;a{b=c}=2;"},
    };
    static const struct parse_case bad[] = {
        {"a{b=\"c\"} 1\n{b=\"c\"} 2", "a{b=c}=1;2:7: expected a metric name in quotes, got '}'"},
        {"{\"a\",b=\"c\"} 1\nd{\"a\",b=\"c\"} 2",
         "a{b=c}=1;2:3: expected one metric name, got '\"'"},
        {"a{b=\"x\ny\"} 1\na{b=\"x\ny\"} 1\nc",
         "a{b=x<LF>y}=1;a{b=x<LF>y}=1;5:2: expected a value, got the end of the line"},
        {"a{b=\"c\"} 1\na{b=\"c\"", "a{b=c}=1;2:8: expected a label name or '}', got the end of "
                                    "the line"},
    };
    check_cases(good, ARRAY_SIZE(good), PARSE_PROMETHEUS, 0);
    check_cases(bad, ARRAY_SIZE(bad), PARSE_PROMETHEUS, -EINVAL);
}

static void a_series_is_the_raw_text_before_the_value(void **state)
{
    struct parser p;
    struct parse_sample s;
    parser_init(&p, SV("\n  a{b=\"\\n\", } 1\nc \t2\nd {} 3\n{\"e\"}\t4\n"), PARSE_PROMETHEUS);
    static const char *const series[] = {"a{b=\"\\n\", }", "c", "d {}", "{\"e\"}"};
    static const char *const labels[] = {"b=\"\\n\", ", "", "", "\"e\""};
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(parser_next(&p, &s, NULL), 1);
        assert_true(sv_equals(s.series, sv_from(series[i])));
        assert_true(sv_equals(s.labels, sv_from(labels[i])));
        assert_int_equal(s.line, i + 2);
    }
    assert_int_equal(parser_next(&p, &s, NULL), 0);
    parser_deinit(&p);
}

static void label_values_may_hold_nul(void **state)
{
    struct buf out = BUF_INIT(1000);
    assert_int_equal(read_all(&out, SV("a{b=\"x\0y\"} 1\n"), PARSE_PROMETHEUS), 0);
    assert_string_equal(buf_cstr(&out), "a{b=x0y}=1;");
    buf_deinit(&out);
}

static void bad_label_text_is_refused(void **state)
{
    static const char *const bad[] = {"a", "a=",       "a=b", "a=\"", "a=\"b\\",
                                      "}", "a=\"b\"}", "=",   ","};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct buf scratch = BUF_INIT(1000);
        struct sv rest = sv_from(bad[i]), name, value;
        int r;
        while ((r = parse_next_label(&rest, &scratch, &name, &value)) > 0)
            continue;
        assert_int_equal(r, -EINVAL);
        buf_deinit(&scratch);
    }
}

static void families_are_counted_up_to_the_limit(void **state)
{
    for (size_t more = 0; more < 2; more++) {
        struct buf text = BUF_INIT(4u << 20);
        struct parser p;
        struct parse_sample s;
        struct error err = ERROR_INIT;
        for (size_t i = 0; i < LIMIT_PARSE_FAMILIES + more; i++)
            buf_add_fmt(&text, "# TYPE m%zu gauge\n", i);
        buf_add_str(&text, "# TYPE m7 counter\nm7 1\nm60000 2\n");
        parser_init(&p, buf_sv(&text), PARSE_PROMETHEUS);
        if (more) {
            assert_int_equal(parser_next(&p, &s, &err), -E2BIG);
            assert_string_equal(err.text, "more than 65536 metric families");
            assert_int_equal(err.line, LIMIT_PARSE_FAMILIES + 1);
        } else {
            assert_int_equal(parser_next(&p, &s, &err), 1);
            assert_int_equal(s.type, PARSE_TYPE_COUNTER);
            assert_int_equal(parser_next(&p, &s, &err), 1);
            assert_int_equal(s.type, PARSE_TYPE_GAUGE);
            assert_int_equal(s.line, LIMIT_PARSE_FAMILIES + 3);
        }
        parser_deinit(&p);
        buf_deinit(&text);
    }
}

static void an_openmetrics_page_cut_at_any_byte_is_refused(void **state)
{
    static const char page[] = "# HELP a x\n# TYPE a counter\n"
                               "a_total{b=\"c\\n\xc3\xa9\",\"d e\"=\"f\"} 1.5 123 # {g=\"h\"} 1 2\n"
                               "# UNIT a_b b\n{\"i j\",k=\"l\"} -2e3\n# EOF\n";
    const struct sv whole = SV(page);
    for (size_t cut = 0; cut < whole.len; cut++) {
        struct buf out = BUF_INIT(1000);
        int r = read_all(&out, sv_sub(whole, 0, cut), PARSE_OPENMETRICS);
        assert_int_equal(r, cut == whole.len - 1 ? 0 : -EINVAL);
        buf_reset(&out);
        (void)!read_all(&out, sv_sub(whole, 0, cut), PARSE_PROMETHEUS);
        buf_deinit(&out);
    }
}

static void read_file(struct buf *out, const char *path)
{
    char piece[4096];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(piece, 1, sizeof(piece), f)) > 0;)
        buf_add(out, piece, n);
    fclose(f);
}

static void the_exporters_page_has_23_families(void **state)
{
    struct buf text = BUF_INIT(1u << 20);
    struct parser p;
    struct parse_sample s;
    unsigned samples = 0, counters = 0, labels = 0;
    double sum = 0;
    read_file(&text, TESTS_DIR "/blog/metrics.txt");
    parser_init(&p, buf_sv(&text), PARSE_PROMETHEUS);
    while (parser_next(&p, &s, NULL) > 0) {
        struct buf scratch = BUF_INIT(1000);
        struct sv rest = s.labels, name, value;
        while (parse_next_label(&rest, &scratch, &name, &value) > 0)
            labels++;
        assert_int_equal(scratch.cap, 0);
        samples++;
        counters += s.type == PARSE_TYPE_COUNTER;
        assert_true(s.type == PARSE_TYPE_COUNTER || s.type == PARSE_TYPE_GAUGE);
        sum += s.value;
    }
    assert_int_equal(p.rest.len, 0);
    assert_int_equal(samples, 23);
    assert_int_equal(p.family_count, 23);
    assert_int_equal(labels, 23 * 9);
    assert_true(counters > 0 && sum > 15782796862.0);
    parser_deinit(&p);
    buf_deinit(&text);
}

static void what_the_writer_writes_is_read_back(void **state)
{
    static const char *const values[] = {"", "x", "a\"b\\c\nd", "caf\xc3\xa9", "\\n\\\\\""};
    static const double numbers[] = {0, -1.5, 1e300, 0.1, 15782796862, 5e-324, INFINITY, NAN};
    for (int f = 0; f < 2; f++) {
        struct buf text = BUF_INIT(100000), scratch = BUF_INIT(1000);
        enum text_format format = f ? TEXT_FORMAT_OPENMETRICS : TEXT_FORMAT_PROMETHEUS;
        text_add_family(&text, format, SV("a_total"), TEXT_TYPE_COUNTER, SV("x \"y\" \\ \n"));
        for (size_t i = 0; i < 40; i++) {
            buf_add_str(&text, "a_total{");
            text_add_label(&text, "l", sv_from(values[i % 5]));
            text_add_label(&text, "m", sv_from(values[i / 8]));
            buf_add_str(&text, "} ");
            text_add_double(&text, numbers[i % 8]);
            buf_add_char(&text, '\n');
        }
        buf_add_str(&text, f ? "# EOF\n" : "");
        struct parser p;
        struct parse_sample s;
        struct sv name, value;
        parser_init(&p, buf_sv(&text), f ? PARSE_OPENMETRICS : PARSE_PROMETHEUS);
        for (size_t i = 0; i < 40; i++) {
            assert_int_equal(parser_next(&p, &s, NULL), 1);
            assert_int_equal(s.type, PARSE_TYPE_COUNTER);
            assert_int_equal(parse_next_label(&s.labels, &scratch, &name, &value), 1);
            assert_true(sv_equals(name, SV("l")) && sv_equals(value, sv_from(values[i % 5])));
            assert_int_equal(parse_next_label(&s.labels, &scratch, &name, &value), 1);
            assert_true(sv_equals(name, SV("m")) && sv_equals(value, sv_from(values[i / 8])));
            assert_true(isnan(numbers[i % 8]) ? isnan(s.value) : s.value == numbers[i % 8]);
        }
        assert_int_equal(parser_next(&p, &s, NULL), 0);
        parser_deinit(&p);
        buf_deinit(&text);
        buf_deinit(&scratch);
    }
}

struct guess {
    struct sv text;
    bool is_right;
};

static bool knows_text(void *user, struct sv series)
{
    struct guess *g = user;
    g->is_right = sv_equals(series, g->text);
    return g->is_right;
}

// Each line is read as it is without a memory, whatever the guess was.
static void a_series_that_is_known_is_not_read_again(void **state)
{
    static const struct {
        const char *guess, *line;
        bool is_taken; // unread
    } cases[] = {
        {"a", "a 1\n", true},
        {"a", "ab 1\n", false},
        {"a", "a {x=\"y\"} 1\n", false},
        {"a", "a  {x=\"y\"} 1\n", false},
        {"a", "a \t{x=\"y\"} 1\n", false},
        {"a", "a{x=\"y\"} 1\n", false},
        {"a", "a", false},
        {"a{x=\"y\"}", "a{x=\"y\"} 1\n", true},
        {"a{x=\"y\"}", "a{x=\"y\"}  1 5\n", true},
        {"a{x=\"y\"}", "a{x=\"y\"}1\n", false},
        {"a{x=\"y\"}", "a{x=\"z\"} 1\n", false},
        {"a{x=\"y\"}", "a{x=\"y\"}", false},
        {"a \t{x=\"{\",}", "a \t{x=\"{\",} 1\n", true},
        {"a{}", "a{} 1\n", true},
        {"a{x=\"y}\"}", "a{x=\"y}\"} 1\n", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sv page = sv_from(cases[i].line);
        struct guess guess = {sv_from(cases[i].guess), false};
        struct parser plain, knowing;
        struct parse_sample a = {0}, b = {0};
        parser_init(&plain, page, PARSE_PROMETHEUS);
        parser_init(&knowing, page, PARSE_PROMETHEUS);
        knowing.memory = (struct parse_memory){guess.text.len, knows_text, &guess};
        int r = parser_next(&plain, &a, NULL);
        assert_int_equal(parser_next(&knowing, &b, NULL), r);
        if (!sv_equals(a.series, b.series) || !sv_equals(a.name, b.name) ||
            !sv_equals(a.labels, b.labels) || a.value != b.value || a.line != b.line)
            fail_msg("%s: %.*s %.*s", cases[i].line, SV_FMT(b.name), SV_FMT(b.labels));
        assert_int_equal(guess.is_right, cases[i].is_taken);
        parser_deinit(&plain);
        parser_deinit(&knowing);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prometheus_lines_are_read),
        cmocka_unit_test(prometheus_errors_have_line_column_and_expectation),
        cmocka_unit_test(openmetrics_lines_are_read),
        cmocka_unit_test(openmetrics_errors_have_line_column_and_expectation),
        cmocka_unit_test(types_are_found_by_family),
        cmocka_unit_test(labels_seen_before_are_read_the_same),
        cmocka_unit_test(a_series_is_the_raw_text_before_the_value),
        cmocka_unit_test(label_values_may_hold_nul),
        cmocka_unit_test(bad_label_text_is_refused),
        cmocka_unit_test(families_are_counted_up_to_the_limit),
        cmocka_unit_test(an_openmetrics_page_cut_at_any_byte_is_refused),
        cmocka_unit_test(the_exporters_page_has_23_families),
        cmocka_unit_test(what_the_writer_writes_is_read_back),
        cmocka_unit_test(a_series_that_is_known_is_not_read_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
