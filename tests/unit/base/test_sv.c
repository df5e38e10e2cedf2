// SPDX-License-Identifier: Apache-2.0
#include "base/sv.h"

#include <stdlib.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"

#define assert_sv(s, text) assert_true(sv_equals((s), sv_from(text)))

static void views_are_equal_by_bytes(void **state)
{
    assert_true(sv_equals(SV("ab"), SV("ab")));
    assert_false(sv_equals(SV("ab"), SV("aB")));
    assert_false(sv_equals(SV("ab"), SV("abc")));
    assert_true(sv_equals(SV(""), (struct sv){NULL, 0}));
    assert_true(sv_equals(SV("a\0b"), SV("a\0b")));
    assert_true(sv_equals_nocase(SV("GPU-aF"), SV("gpu-Af")));
    assert_false(sv_equals_nocase(SV("["), SV("{")));
    assert_false(sv_equals_nocase(SV("a"), SV("ab")));
}

static void order_is_that_of_bytes(void **state)
{
    assert_true(sv_compare(SV("a"), SV("b")) < 0);
    assert_true(sv_compare(SV("a"), SV("aa")) < 0);
    assert_true(sv_compare(SV("\xff"), SV("a")) > 0);
    assert_int_equal(sv_compare(SV("a"), SV("a")), 0);
    assert_int_equal(sv_compare(SV(""), (struct sv){NULL, 0}), 0);
}

static void prefixes_and_suffixes_are_seen(void **state)
{
    assert_true(sv_starts_with(SV("nvidia.com/mig-1g"), SV("nvidia.com/mig-")));
    assert_true(sv_starts_with(SV("x"), SV("")));
    assert_false(sv_starts_with(SV("nv"), SV("nvi")));
    assert_true(sv_ends_with(SV("energy_total"), SV("_total")));
    assert_false(sv_ends_with(SV("total"), SV("_total")));
}

static void subviews_are_clamped(void **state)
{
    assert_sv(sv_sub(SV("hello"), 1, 3), "ell");
    assert_sv(sv_sub(SV("hello"), 3, 99), "lo");
    assert_sv(sv_sub(SV("hello"), 9, 1), "");
    assert_sv(sv_sub(SV("hello"), 1, SIZE_MAX), "ello");
    assert_null(sv_sub((struct sv){NULL, 0}, 1, 1).ptr);
}

static void trimming_takes_the_set_off_both_ends(void **state)
{
    assert_sv(sv_trim(SV("  a b "), " "), "a b");
    assert_sv(sv_trim(SV("\t a"), " "), "\t a");
    assert_sv(sv_trim(SV("   "), " "), "");
    assert_int_equal(sv_trim(SV("\0a"), " ").len, 2);
}

static void finding_gives_the_first_index(void **state)
{
    assert_int_equal(sv_find_char(SV("a:b:c"), ':'), 1);
    assert_int_equal(sv_find_char(SV("abc"), ':'), (size_t)-1);
    assert_int_equal(sv_find_char((struct sv){NULL, 0}, ':'), (size_t)-1);
    assert_int_equal(sv_find(SV("a::b::c"), SV("::")), 1);
    assert_int_equal(sv_find(SV("a:b"), SV("::")), (size_t)-1);
    assert_int_equal(sv_find(SV("a"), SV("")), 0);
}

static void splitting_gives_each_piece_once(void **state)
{
    static const char *const pieces[] = {"a", "", "b"};
    struct sv rest = SV("a,,b,"), head;
    for (size_t i = 0; i < ARRAY_SIZE(pieces); i++) {
        assert_true(sv_next(&rest, ',', &head));
        assert_sv(head, pieces[i]);
    }
    assert_false(sv_next(&rest, ',', &head));
    rest = SV("last");
    assert_true(sv_next(&rest, ',', &head));
    assert_sv(head, "last");
    assert_false(sv_next(&rest, ',', &head));
    assert_sv(head, "");
}

static void utf8_is_told_from_other_bytes(void **state)
{
    static const struct {
        const char *text;
        size_t first; // sv_utf8_length
        bool valid;
    } cases[] = {
        {"plain", 1, true},
        {"\x7f", 1, true},
        {"\xc2\x80", 2, true},
        {"\xdf\xbf", 2, true},
        {"\xe0\xa0\x80", 3, true},
        {"\xed\x9f\xbf", 3, true},
        {"\xef\xbf\xbf", 3, true},
        {"\xf0\x90\x80\x80", 4, true},
        {"\xf4\x8f\xbf\xbf", 4, true},
        {"\xc0\x80", 0, false}, // overlong
        {"\xc1\xbf", 0, false},
        {"\xe0\x9f\xbf", 0, false},
        {"\xf0\x8f\xbf\xbf", 0, false},
        {"\xed\xa0\x80", 0, false},     // surrogate
        {"\xf4\x90\x80\x80", 0, false}, // past U+10FFFF
        {"\xf5\x80\x80\x80", 0, false},
        {"\x80", 0, false},
        {"\xc2", 0, false}, // cut
        {"\xe2\x82", 0, false},
        {"\xe2\x82"
         "a",
         0, false},
        {"a\xff", 1, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(sv_utf8_length(sv_from(cases[i].text)), cases[i].first);
        assert_int_equal(sv_is_utf8(sv_from(cases[i].text)), cases[i].valid);
    }
    assert_true(sv_is_utf8((struct sv){NULL, 0}));
    assert_int_equal(sv_utf8_length(SV("")), 0);
}

static void cutting_leaves_no_part_of_a_character(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t most, kept;
    } cases[] = {
        {"abc", 4, 3},
        {"abc", 3, 3},
        {"abc", 2, 2},
        {"abc", 0, 0},
        {"a\u20ac", 4, 4},
        {"a\u20ac", 3, 1},
        {"a\u20ac", 2, 1},
        {"a\u20ac", 1, 1},
        {"\U0001f600b", 4, 4},
        {"\U0001f600b", 3, 0},
        {"\U0001f600b", 1, 0},
        {"\x80\x80\x80\x80\x80\x80", 5, 2}, // no text: three bytes less at most
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(sv_cut(sv_from(cases[i].text), cases[i].most).len, cases[i].kept);
    assert_int_equal(sv_cut((struct sv){NULL, 0}, 0).len, 0);
}

static void distance_counts_edits_up_to_its_limit(void **state)
{
    assert_int_equal(sv_distance(SV("kitten"), SV("sitting"), 5), 3);
    assert_int_equal(sv_distance(SV("kitten"), SV("sitting"), 2), 3);
    assert_int_equal(sv_distance(SV("same"), SV("same"), 2), 0);
    assert_int_equal(sv_distance(SV(""), SV("ab"), 3), 2);
    assert_int_equal(sv_distance(SV("abcdefgh"), SV("a"), 3), 4);
    char longest[SV_DISTANCE_MAX_BYTES + 1];
    memset(longest, 'x', sizeof(longest));
    struct sv fits = {longest, SV_DISTANCE_MAX_BYTES}, too_long = {longest, sizeof(longest)};
    assert_int_equal(sv_distance(fits, fits, 3), 0);
    assert_int_equal(sv_distance(too_long, too_long, 3), 4);
}

static const char *guess(const char *wanted)
{
    static const char *const known[] = {"interval", "internal", "metrics", "id", "version"};
    struct sv_guess g = sv_guess_start(sv_from(wanted));
    for (size_t i = 0; i < ARRAY_SIZE(known); i++)
        sv_guess_offer(&g, sv_from(known[i]));
    return g.best.len ? g.best.ptr : "";
}

static void a_guess_is_the_nearest_word_or_none(void **state)
{
    assert_string_equal(guess("intervall"), "interval");
    assert_string_equal(guess("internall"), "internal");
    assert_string_equal(guess("metric"), "metrics");
    assert_string_equal(guess("metrics"), "metrics");
    assert_string_equal(guess("metircs"), "metrics");
    assert_string_equal(guess("zz"), ""); // "id" is two edits away, which is all of it
    assert_string_equal(guess("collectors"), "");
    assert_string_equal(guess(""), "");
}

static void copies_are_terminated(void **state)
{
    char *copy = sv_dup(SV("a\0b"));
    assert_memory_equal(copy, "a\0b", 4);
    free(copy);
    copy = sv_dup((struct sv){NULL, 0});
    assert_string_equal(copy, "");
    free(copy);
    char fixed[4] = "zzz";
    sv_copy(fixed, sizeof(fixed), SV("abc"));
    assert_string_equal(fixed, "abc");
    sv_copy(fixed, sizeof(fixed), SV("abcd"));
    assert_string_equal(fixed, "abc");
    sv_copy(fixed, sizeof(fixed), (struct sv){NULL, 0});
    assert_string_equal(fixed, "");
    sv_copy(NULL, 0, SV("abc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_are_equal_by_bytes),
        cmocka_unit_test(order_is_that_of_bytes),
        cmocka_unit_test(prefixes_and_suffixes_are_seen),
        cmocka_unit_test(subviews_are_clamped),
        cmocka_unit_test(trimming_takes_the_set_off_both_ends),
        cmocka_unit_test(finding_gives_the_first_index),
        cmocka_unit_test(splitting_gives_each_piece_once),
        cmocka_unit_test(utf8_is_told_from_other_bytes),
        cmocka_unit_test(cutting_leaves_no_part_of_a_character),
        cmocka_unit_test(distance_counts_edits_up_to_its_limit),
        cmocka_unit_test(a_guess_is_the_nearest_word_or_none),
        cmocka_unit_test(copies_are_terminated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
