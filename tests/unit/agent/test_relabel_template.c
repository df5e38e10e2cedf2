// SPDX-License-Identifier: Apache-2.0
#include "agent/relabel_template.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"

static void check(const char *pattern, const char *text, const char *template_text,
                  const char *expected)
{
    struct arena arena = ARENA_INIT(1u << 16);
    struct regex *regex = NULL;
    struct relabel_template t;
    struct sv spans[REGEX_GROUPS_MAX] = {{NULL, 0}};
    if (pattern)
        assert_int_equal(regex_new(sv_from(pattern), REGEX_FULL, &regex, NULL), 0);
    assert_int_equal(relabel_template_read(sv_from(template_text), regex, &arena, &t), 0);
    spans[0] = spans[1] = sv_from(text); // of the default
    if (pattern)
        assert_true(regex_match(regex, sv_from(text), spans, t.groups ? t.groups : 1));
    struct sv filled = relabel_template_fill(&t, spans, &arena);
    if (!sv_equals(filled, sv_from(expected)))
        fail_msg("%s: '%.*s', expected '%s'", template_text, SV_FMT(filled), expected);
    regex_free(regex);
    arena_deinit(&arena);
}

static void templates_are_filled_as_go_expands_them(void **state)
{
    static const struct {
        const char *text, *filled;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"$1", "a"},
        {"${1}x", "ax"},
        {"$1x", ""},
        {"$2", ""},
        {"$nm", "c"},
        {"${nm}_", "c_"},
        {"$nm_", ""},
        {"$$1", "$1"},
        {"$$", "$"},
        {"$$$1", "$a"},
        {"$", "$"},
        {"x$", "x$"},
        {"$ 1", "$ 1"},
        {"${1", "${1"},
        {"${", "${"},
        {"$9", ""},
        {"$99999999999999999999", ""},
        {"$1_$3", "c"},
        {"${1}_$3", "a_c"},
        {"${}", "${}"},
        {"${1 }", "${1 }"},
        {"$-", "$-"},
        {"$0", "ac"},
        {"${0}", "ac"},
        {"$01", ""}, // padded: a name
        {"$00", ""},
        {"$1$3$1", "aca"},
        {"<$1>", "<a>"},
        {"$1-$3", "a-c"},
        {"$unknown!", "!"},
        {"$\xc3\xa9t\xc3\xa9!", "!"}, // letters of all scripts are of the name
        {"$1\xc3\xa9!", "!"},
        {"${1\xd9\xa3}!", "!"},
        {"$\xe2\x82\xac", "$\xe2\x82\xac"}, // a sign is not
        {"$1\xe2\x82\xac", "a\xe2\x82\xac"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check("(a)(b)?(?P<nm>c)", "ac", cases[i].text, cases[i].filled);
}

static void the_default_pattern_has_one_group(void **state)
{
    check(NULL, "text", "$1", "text");
    check(NULL, "text", "${0}-$1", "text-text");
    check(NULL, "text", "$2", "");
    check(NULL, "text", "$name", "");
}

static void a_shared_name_is_the_first_group_that_took_part(void **state)
{
    static const char pattern[] = "(?P<n>a)?(?P<n>b?)(?P<n>c)?";
    check(pattern, "bc", "<$n>", "<b>");
    check(pattern, "abc", "<$n$n>", "<aa>");
    check(pattern, "c", "<$n>", "<>"); // the second took part, with nothing
    check("(?P<n>a)?(?P<n>b)?", "", "<${n}>", "<>");
}

static void only_the_groups_named_are_asked_for(void **state)
{
    static const struct {
        const char *text;
        unsigned groups;
    } cases[] = {{"x", 0}, {"$0", 1}, {"$1", 2}, {"$2$1", 3}, {"$4", 0}, {"${nm}", 4}, {"$$1", 0}};
    struct arena arena = ARENA_INIT(1u << 16);
    struct regex *regex = NULL;
    assert_int_equal(regex_new(SV("(a)(b)?(?P<nm>c)"), REGEX_FULL, &regex, NULL), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct relabel_template t;
        assert_int_equal(relabel_template_read(sv_from(cases[i].text), regex, &arena, &t), 0);
        assert_int_equal(t.groups, cases[i].groups);
    }
    regex_free(regex);
    arena_deinit(&arena);
}

static void groups_are_capped_exactly(void **state)
{
    struct arena arena = ARENA_INIT(1u << 16);
    struct buf pattern = BUF_INIT(1000);
    for (int i = 0; i < REGEX_GROUPS_MAX + 8; i++)
        buf_add_str(&pattern, "(x)?");
    struct regex *regex = NULL;
    struct relabel_template t;
    assert_int_equal(regex_new(buf_sv(&pattern), REGEX_FULL, &regex, NULL), 0);
    assert_int_equal(relabel_template_read(SV("$31"), regex, &arena, &t), 0);
    assert_int_equal(t.groups, REGEX_GROUPS_MAX);
    assert_int_equal(relabel_template_read(SV("$32"), regex, &arena, &t), -E2BIG);
    assert_int_equal(relabel_template_read(SV("$41"), regex, &arena, &t), 0); // there is none
    buf_deinit(&pattern);
    regex_free(regex);
    arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(templates_are_filled_as_go_expands_them),
        cmocka_unit_test(the_default_pattern_has_one_group),
        cmocka_unit_test(a_shared_name_is_the_first_group_that_took_part),
        cmocka_unit_test(only_the_groups_named_are_asked_for),
        cmocka_unit_test(groups_are_capped_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
