// SPDX-License-Identifier: Apache-2.0
#include "codec/regex.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/macros.h"

static struct regex *compile(const char *pattern, enum regex_anchor anchor)
{
    struct regex *r = NULL;
    struct error err = ERROR_INIT;
    if (regex_new(sv_from(pattern), anchor, &r, &err) != 0)
        fail_msg("%s: %s", pattern, err.text);
    return r;
}

static void check(const char *pattern, enum regex_anchor anchor, const char *text, bool expected)
{
    struct regex *r = compile(pattern, anchor);
    struct sv span;
    if (regex_matches(r, sv_from(text)) != expected ||
        regex_match(r, sv_from(text), &span, 1) != expected)
        fail_msg("%s on %s: expected %d", pattern, text, expected);
    if (expected && anchor == REGEX_FULL)
        assert_true(sv_equals(span, sv_from(text)));
    regex_free(r);
}

static void full_patterns_match_the_whole_text(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"foo", "foo", true},
        {"foo", "xfoo", false},
        {"foo", "foox", false},
        {"foo", "", false},
        {"", "", true},
        {"", "x", false},
        {"^foo$", "foo", true},
        {"^foo$", "foo\n", false},
        {"f|o", "foo", false}, // the alternation is in brackets
        {"f|foo", "foo", true},
        {".*o.*", "foo", true},
        {".*", "", true},
        {".*", "a\nb", true},
        {"(.*)", "a\nb", true},
        {"line1.*line2", "line1\nline2", true}, // a dot takes a line end
        {"(?i)foo", "FoO", true},
        {"foo", "FOO", false},
        {"DCGM_FI_DEV_.+", "DCGM_FI_DEV_GPU_UTIL", true},
        {"[^:]+", "10.0.0.1", true},
        {"\\d+", "123", true},
        {"\\d+", "\xd9\xa3", false}, // ASCII digits only
        {"\\pL+", "\xc3\xa9t\xc3\xa9", true},
        {"\\Qa.b\\E", "a.b", true},
        {"\\Qa.b\\E", "axb", false},
        {"a{1000}", "a", false},
        {".", "\xc3\xa9", true}, // a character, not a byte
        {"$^", "", true},
        {"$^", "x", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check(cases[i].pattern, REGEX_FULL, cases[i].text, cases[i].matches);
}

static void search_patterns_match_anywhere(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"foo", "xfoox", true},
        {"foo", "fo", false},
        {"", "x", true},
        {"^foo$", "foo", true},
        {"^foo$", "xfoo", false},
        {"^foo$", "foo\n", false},
        {"^foo", "foobar", true},
        {"foo$", "barfoo", true},
        {"^a|b$", "xb", true},
        {"^$", "", true},
        {"^$", "x", false},
        {"^", "x", true},
        {"$", "x", true},
        {"$^", "x", false},
        {".*dcgm.*", "a dcgm b", true},
        {"a.b", "a\nb", false}, // unlike in a rule
        {"^DCGM_FI_DEV_GPU_UTIL$", "DCGM_FI_DEV_GPU_UTIL", true},
        {"^DCGM_FI_DEV_GPU_UTIL$", "DCGM_FI_DEV_GPU_UTIL2", false},
        {"fo+;car;b.*$", "foo;car;bar", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        check(cases[i].pattern, REGEX_SEARCH, cases[i].text, cases[i].matches);
}

static void groups_are_spans_of_the_text(void **state)
{
    struct regex *r = compile("(a)(b)?(?P<nm>c)", REGEX_FULL);
    static const char text[] = "ac";
    struct sv spans[5];
    assert_int_equal(regex_group_count(r), 3);
    assert_true(regex_match(r, SV(text), spans, 5));
    assert_true(spans[0].ptr == text && spans[0].len == 2);
    assert_true(spans[1].ptr == text && spans[1].len == 1);
    assert_null(spans[2].ptr);
    assert_true(spans[3].ptr == text + 1 && spans[3].len == 1);
    assert_null(spans[4].ptr); // no such group
    assert_false(regex_match(r, SV("ad"), spans, 5));
    regex_free(r);
}

static void shortcuts_fill_groups_as_the_engine_does(void **state)
{
    static const char *const patterns[] = {".*", "(.*)", "text", "(text)", "tex[t]"};
    for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
        struct regex *r = compile(patterns[i], REGEX_FULL);
        struct sv spans[3];
        assert_true(regex_match(r, SV("text"), spans, 3));
        assert_true(sv_equals(spans[0], SV("text")));
        if (patterns[i][0] == '(')
            assert_true(sv_equals(spans[1], SV("text")));
        else
            assert_null(spans[1].ptr);
        assert_null(spans[2].ptr);
        assert_int_equal(regex_group_count(r), patterns[i][0] == '(');
        regex_free(r);
    }
}

static void an_empty_text_may_have_no_address(void **state)
{
    struct regex *r = compile("(x?)", REGEX_FULL);
    struct sv spans[2];
    assert_true(regex_match(r, (struct sv){NULL, 0}, spans, 2));
    assert_non_null(spans[1].ptr); // it took part
    regex_free(r);
    r = compile("(.*)", REGEX_FULL);
    assert_true(regex_match(r, (struct sv){NULL, 0}, spans, 2));
    assert_non_null(spans[1].ptr);
    regex_free(r);
}

static void the_leftmost_first_alternative_wins(void **state)
{
    struct regex *r = compile("(a|ab)(c|bcd)?", REGEX_SEARCH);
    struct sv spans[3];
    assert_true(regex_match(r, SV("abcd"), spans, 3));
    assert_true(sv_equals(spans[1], SV("a")));
    assert_true(sv_equals(spans[2], SV("bcd")));
    regex_free(r);
}

static void groups_may_be_named_as_go_does(void **state)
{
    static const struct {
        const char *pattern;
        int index;
    } cases[] = {
        {"(?P<second>b)", 1},      {"(?<second>b)", 1},       {"(a)?(?<second>b)", 2},
        {"\\((?<second>b)", 1},    {"\\(?<second>b", -1},     {"[(?<second>]+b", -1},
        {"[](?<second>]+b", -1},   {"[^](?<second>]b", -1},   {"[[:alpha:](?<second>]+b", -1},
        {"[\\](?<second>]+b", -1}, {"\\Q(?<second>\\Eb", -1}, {"\\Q(?<x>\\E(?<second>b)", 1},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct regex *r = compile(cases[i].pattern, REGEX_FULL);
        assert_int_equal(regex_group_index(r, SV("second")), cases[i].index);
        assert_int_equal(regex_group_index(r, SV("first")), -1);
        assert_int_equal(regex_group_index(r, SV("")), -1);
        regex_free(r);
    }
}

// Go lets them, and takes the first of them that took part.
static void groups_may_share_a_name(void **state)
{
    struct regex *r = compile("(?P<a>x)?(y)?(?<a>z)?(?<b>w)?", REGEX_FULL);
    assert_int_equal(regex_group_index(r, SV("a")), 1);
    assert_int_equal(regex_next_group(r, SV("a"), 0), 1);
    assert_int_equal(regex_next_group(r, SV("a"), 1), 3);
    assert_int_equal(regex_next_group(r, SV("a"), 3), -1);
    assert_int_equal(regex_next_group(r, SV("b"), 0), 4);
    regex_free(r);
}

static void bad_patterns_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *pattern, *message;
    } cases[] = {
        {"(", "regular expression: missing ): ("},
        {")", "regular expression: unexpected ): )"},
        {"foo(bar", "regular expression: missing ): foo(bar"},
        {"[a", "regular expression: missing ]: [a"},
        {"*", "regular expression: no argument for repetition operator: *"},
        {"a**", "regular expression: bad repetition operator: **"},
        {"a{1001}", "regular expression: invalid repetition size: {1001}"},
        {"[z-a]", "regular expression: invalid character class range: z-a"},
        {"\\", "regular expression: trailing \\"},
        {"\\8", "regular expression: invalid escape sequence: \\8"},
        {"(?=x)", "regular expression: invalid perl operator: (?="},
        {"(?<=x)y", "regular expression: invalid perl operator: (?<"},
        {"(?<!x)y", "regular expression: invalid perl operator: (?<"},
        {"(a)\\1", "regular expression: invalid escape sequence: \\1"},
        {"a++", "regular expression: bad repetition operator: ++"},
        {"(?P<>x)", "regular expression: invalid named capture group: (?P<>"},
        {"\xff", "regular expression: invalid UTF-8"},
        {"a\\Cb", "regular expression: invalid escape sequence: \\C"},
        {"\\Z", "regular expression: invalid escape sequence: \\Z"},
    };
    for (size_t i = 0; i < 2 * ARRAY_SIZE(cases); i++) {
        struct regex *r = NULL;
        struct error err = ERROR_INIT;
        const char *pattern = cases[i / 2].pattern;
        if (regex_new(sv_from(pattern), i % 2 ? REGEX_SEARCH : REGEX_FULL, &r, &err) != -EINVAL)
            fail_msg("%s: %s", pattern, err.text);
        assert_null(r);
        assert_string_equal(err.text, cases[i / 2].message);
    }
}

// As Prometheus has it: the pattern is pasted between the brackets.
static void brackets_of_a_rule_may_be_closed_by_the_pattern(void **state)
{
    struct regex *r = compile("a)|(b", REGEX_FULL);
    assert_true(regex_matches(r, SV("ax"))); // ^(?s:a)
    assert_true(regex_matches(r, SV("xb"))); // (b)$
    assert_false(regex_matches(r, SV("xa")));
    regex_free(r);
}

static void sizes_are_capped(void **state)
{
    struct regex *r = NULL;
    struct error err = ERROR_INIT;
    struct buf b = BUF_INIT(LIMIT_REGEX_BYTES + 1);
    while (b.len < LIMIT_REGEX_BYTES)
        buf_add_str(&b, "(?:|)|||");
    int at_cap = regex_new(buf_sv(&b), REGEX_FULL, &r, &err);
    assert_true(at_cap == 0 || at_cap == -E2BIG);
    regex_free(r);
    r = NULL;
    buf_add_char(&b, '|');
    assert_int_equal(regex_new(buf_sv(&b), REGEX_FULL, &r, &err), -E2BIG);
    assert_string_equal(err.text, "the regular expression is larger than 65536 bytes");
    buf_deinit(&b);
    assert_int_equal(regex_new(SV("(\\pL{100}){10}"), REGEX_FULL, &r, &err), -E2BIG);
    assert_string_equal(err.text, "the regular expression is too large");
}

static void a_list_of_five_hundred_names_fits(void **state)
{
    struct buf b = BUF_INIT(LIMIT_REGEX_BYTES);
    for (unsigned i = 0; i < 500; i++)
        buf_add_fmt(&b, "%s(container_memory_working_set_bytes_%u)", i ? "|" : "", i);
    struct regex *r = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(regex_new(buf_sv(&b), REGEX_FULL, &r, &err), 0);
    assert_true(regex_matches(r, SV("container_memory_working_set_bytes_499")));
    assert_false(regex_matches(r, SV("container_memory_working_set_bytes_500")));
    regex_free(r);
    buf_deinit(&b);
}

static void a_pattern_that_backtracks_elsewhere_takes_linear_time(void **state)
{
    struct regex *r = compile("(x+x+)+y", REGEX_FULL);
    char *text = malloc(100000);
    assert_non_null(text);
    memset(text, 'x', 100000);
    assert_false(regex_matches(r, (struct sv){text, 100000}));
    free(text);
    regex_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_patterns_match_the_whole_text),
        cmocka_unit_test(search_patterns_match_anywhere),
        cmocka_unit_test(groups_are_spans_of_the_text),
        cmocka_unit_test(shortcuts_fill_groups_as_the_engine_does),
        cmocka_unit_test(an_empty_text_may_have_no_address),
        cmocka_unit_test(the_leftmost_first_alternative_wins),
        cmocka_unit_test(groups_may_be_named_as_go_does),
        cmocka_unit_test(groups_may_share_a_name),
        cmocka_unit_test(bad_patterns_are_refused_with_a_reason),
        cmocka_unit_test(brackets_of_a_rule_may_be_closed_by_the_pattern),
        cmocka_unit_test(sizes_are_capped),
        cmocka_unit_test(a_list_of_five_hundred_names_fits),
        cmocka_unit_test(a_pattern_that_backtracks_elsewhere_takes_linear_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
