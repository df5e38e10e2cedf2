// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "gpu/selection.h"

// "g:0,1 i:*" and so on: a selection as text, for comparison.
static const char *describe(const struct selection *s, char *out, size_t out_bytes)
{
    struct buf b = BUF_INIT(1u << 20);
    if (s->flexible)
        buf_add_str(&b, "f");
    for (int letter = 0; letter < 2; letter++) {
        bool given = letter ? s->instances : s->gpus, all = letter ? s->all_instances : s->all_gpus;
        const uint32_t *ids = letter ? s->instance_ids : s->gpu_ids;
        size_t count = letter ? s->instance_count : s->gpu_count;
        if (!given)
            continue;
        buf_add_fmt(&b, "%s%c%s", b.len ? " " : "", letter ? 'i' : 'g', all ? ":*" : ":");
        for (size_t i = 0; i < count; i++)
            buf_add_fmt(&b, "%s%u", i ? "," : "", ids[i]);
    }
    snprintf(out, out_bytes, "%s", buf_cstr(&b));
    buf_deinit(&b);
    return out;
}

static void each_form_of_the_grammar_parses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *meaning;
    } cases[] = {
        {"f", "f"},
        {" f ", "f"},
        {"g", "g:*"},
        {"i", "i:*"},
        {"g:0", "g:0"},
        {"g:0,1,7", "g:0,1,7"},
        {"g:7,1,0,1", "g:0,1,7"},
        {"g:0-3", "g:0,1,2,3"},
        {"g:2-2", "g:2"},
        {"g:3-1", "g:"}, // ends before it begins: empty
        {"g:0-2,5,4-6", "g:0,1,2,4,5,6"},
        {"i:0,14", "i:0,14"},
        {"g+i", "g:* i:*"},
        {"i+g", "g:* i:*"},
        {"g:1+i", "g:1 i:*"},
        {"g+i:14", "g:* i:14"},
        {"g:0,1+i:0,14", "g:0,1 i:0,14"},
        {"g:0, 1 + i: 14", "g:0,1 i:14"},
        {"g:4294967294", "g:4294967294"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct selection s;
        struct error err = ERROR_INIT;
        char text[256];
        assert_int_equal(selection_parse(sv_from(cases[i].text), &s, &err), 0);
        assert_string_equal(describe(&s, text, sizeof(text)), cases[i].meaning);
        selection_deinit(&s);
    }
}

static void a_range_that_ends_before_it_begins_is_remembered(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool reversed;
        uint32_t from, to;
    } cases[] = {
        {"f", false, 0, 0},      {"g:2-2+i:3-9", false, 0, 0},      {"g:3-1", true, 3, 1},
        {"g+i:9-3", true, 9, 3}, {"g:0,7-5,4-2+i:9-3", true, 7, 5},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct selection s;
        struct error err = ERROR_INIT;
        assert_int_equal(selection_parse(sv_from(cases[i].text), &s, &err), 0);
        assert_int_equal(s.has_reversed, cases[i].reversed);
        assert_int_equal(s.reversed_from, cases[i].from);
        assert_int_equal(s.reversed_to, cases[i].to);
        selection_deinit(&s);
    }
}

static void each_wrong_form_says_what_was_found_and_expected(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"",
         "the only options are 'f', 'g[:<range>]', 'i[:<range>]' and 'g...+i...', but found ''"},
        {"h",
         "the only options are 'f', 'g[:<range>]', 'i[:<range>]' and 'g...+i...', but found 'h'"},
        {"0",
         "the only options are 'f', 'g[:<range>]', 'i[:<range>]' and 'g...+i...', but found '0'"},
        {"G",
         "the only options are 'f', 'g[:<range>]', 'i[:<range>]' and 'g...+i...', but found 'G'"},
        {"gg:1", "the only options are 'f', 'g[:<range>]', 'i[:<range>]' and 'g...+i...', but "
                 "found 'gg:1'"},
        {"g+",
         "the only options are 'f', 'g[:<range>]', 'i[:<range>]' and 'g...+i...', but found ''"},
        {"+i",
         "the only options are 'f', 'g[:<range>]', 'i[:<range>]' and 'g...+i...', but found ''"},
        {"g:1:2", "'g:1:2': there can only be one range after a letter"},
        {"g::", "'g::': there can only be one range after a letter"},
        {"f:0", "no range and no other option can go with 'f', but found 'f:0'"},
        {"f+g", "no range and no other option can go with 'f', but found 'f'"},
        {"g+g:1", "'g' is given twice"},
        {"i:1+i:2", "'i' is given twice"},
        {"g:", "expected a device id (a number), but found ''"},
        {"g:1,", "expected a device id (a number), but found ''"},
        {"g:,1", "expected a device id (a number), but found ''"},
        {"g:x", "expected a device id (a number), but found 'x'"},
        {"g:1x", "expected a device id (a number), but found '1x'"},
        {"g:+1", "expected a device id (a number), but found ''"},
        {"g:1.5", "expected a device id (a number), but found '1.5'"},
        {"g:0x1", "expected a device id (a number), but found '0x1'"},
        {"g:-1", "range can only be '<number>-<number>', but found '-1'"},
        {"g:1-", "range can only be '<number>-<number>', but found '1-'"},
        {"g:1-2-3", "range can only be '<number>-<number>', but found '1-2-3'"},
        {"g:1--3", "range can only be '<number>-<number>', but found '1--3'"},
        {"g:a-3", "expected a device id (a number), but found 'a'"},
        {"g:1-b", "expected a device id (a number), but found 'b'"},
        {"g:4294967295", "device id '4294967295' is too large"},
        {"g:99999999999999999999999", "device id '99999999999999999999999' is too large"},
        {"g:0-4294967294", "more than 4096 device ids"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct selection s = {0};
        struct error err = ERROR_INIT;
        assert_int_equal(selection_parse(sv_from(cases[i].text), &s, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].message);
        assert_int_equal(err.code, -EINVAL);
    }
}

static void as_many_ids_as_the_limit_and_no_more(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int rc;
        size_t count;
    } cases[] = {{"i:0-4094", 0, 4095},
                 {"i:0-4095", 0, 4096},
                 {"i:0-4096", -EINVAL, 0},
                 {"i:1-4096,0", -EINVAL, 0}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct selection s = {0};
        struct error err = ERROR_INIT;
        assert_int_equal(selection_parse(sv_from(cases[i].text), &s, &err), cases[i].rc);
        assert_int_equal(s.instance_count, cases[i].count);
        selection_deinit(&s);
    }
}

static void a_text_cut_anywhere_parses_or_fails_cleanly(void **state)
{
    (void)state;
    static const char text[] = "g:0-3,5,7-9+i:1,14,20-21";
    for (size_t cut = 0; cut < sizeof(text); cut++) {
        struct selection s = {0};
        struct error err = ERROR_INIT;
        char *copy = malloc(cut ? cut : 1); // no NUL behind it
        assert_non_null(copy);
        memcpy(copy, text, cut);
        int rc = selection_parse((struct sv){copy, cut}, &s, &err);
        assert_true(rc == 0 || (rc == -EINVAL && err.text[0]));
        selection_deinit(&s);
        free(copy);
    }
}

// Two GPUs with an instance each: entity ids 0 (A) and 14 (B). Positions 0: GPU 0, 1: A, 2: GPU 1,
// 3: B.
static const struct selection_device two_split[] = {
    {false, 0, 0}, {true, 0, 0}, {false, 1, 2}, {true, 14, 2}};
static const struct selection_device two_whole[] = {{false, 0, 0}, {false, 1, 1}};
static const struct selection_device one_split[] = {
    {false, 0, 0}, {true, 0, 0}, {true, 1, 0}, {false, 1, 3}};
static const struct selection_device three[] = {{false, 0, 0}, {false, 2, 1}, {false, 5, 2}};

static void selections_choose_in_order(void **state)
{
    (void)state;
    static const struct {
        const struct selection_device *devices;
        size_t count;
        const char *text, *chosen;
    } cases[] = {
        {two_whole, 2, "f", "0 1 "},
        {two_split, 4, "f", "1 3 "},
        {one_split, 4, "f", "1 2 3 "},
        {two_split, 4, "g+i", "0 2 1 3 "},
        {two_split, 4, "g+i:14", "0 2 3 "},
        {two_split, 4, "g:1+i", "2 1 3 "},
        {two_split, 4, "g:0+i:14", "0 3 "},
        {two_split, 4, "i", "1 3 "},
        {two_split, 4, "g", "0 2 "},
        {two_split, 4, "i:14", "3 "},
        {two_split, 4, "g:0,1+i:0,14", "0 2 1 3 "},
        {two_whole, 2, "i", ""},
        {two_whole, 2, "g:1-0", ""},
        {two_whole, 0, "f", ""},
        {two_whole, 0, "g", ""},
        {three, 3, "g:5,0", "0 2 "},
        {three, 3, "g:2", "1 "},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct selection s;
        struct error err = ERROR_INIT;
        size_t chosen[8], count = 99;
        assert_int_equal(selection_parse(sv_from(cases[i].text), &s, &err), 0);
        assert_int_equal(
            selection_apply(&s, cases[i].devices, cases[i].count, chosen, &count, &err), 0);
        char text[64] = "";
        for (size_t c = 0, at = 0; c < count; c++)
            at += (size_t)snprintf(text + at, sizeof(text) - at, "%zu ", chosen[c]);
        assert_string_equal(text, cases[i].chosen);
        selection_deinit(&s);
    }
}

static void an_id_that_is_not_there_chooses_nothing(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"g:7", "couldn't find requested GPU ID '7'"},
        {"g:0,7", "couldn't find requested GPU ID '7'"},
        {"g:10", "couldn't find requested GPU ID '10'"},
        {"i:10", "couldn't find requested GPU instance ID '10'"},
        {"g:0+i:1", "couldn't find requested GPU instance ID '1'"},
        {"g:14", "couldn't find requested GPU ID '14'"}, // an instance has it
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct selection s;
        struct error err = ERROR_INIT;
        size_t chosen[8], count = 99;
        assert_int_equal(selection_parse(sv_from(cases[i].text), &s, &err), 0);
        assert_int_equal(selection_apply(&s, two_split, 4, chosen, &count, &err), -ENODEV);
        assert_string_equal(err.text, cases[i].message);
        assert_int_equal(count, 99);
        selection_deinit(&s);
    }
}

// --- Switches and links, CPUs and cores ---

// Switches 3, 4 and 6 with links 1 to 3 each; positions 0 (3), 4 (4), 8 (6).
static const struct selection_part switches[] = {
    {false, 3, 0}, {true, 1, 0}, {true, 2, 0},  {true, 3, 0}, {false, 4, 4}, {true, 1, 4},
    {true, 2, 4},  {true, 3, 4}, {false, 6, 8}, {true, 1, 8}, {true, 2, 8},  {true, 3, 8},
};
// CPUs 0 and 1 with cores 0 to 2 and 64 to 66.
static const struct selection_part cpus[] = {
    {false, 0, 0}, {true, 0, 0},  {true, 1, 0},  {true, 2, 0},
    {false, 1, 4}, {true, 64, 4}, {true, 65, 4}, {true, 66, 4},
};

static void parts_are_chosen_with_their_owners(void **state)
{
    (void)state;
    static const struct {
        enum selection_kind kind;
        const char *text, *chosen, *owner, *part;
    } cases[] = {
        {SELECTION_SWITCHES, "f", "0 1 2 3 4 5 6 7 8 9 10 11 ", "", ""},
        {SELECTION_SWITCHES, "g", "0 4 8 ", "", ""}, // without links
        {SELECTION_SWITCHES, "g:4", "4 ", "", ""},
        {SELECTION_SWITCHES, "g:3,6", "0 8 ", "", ""},
        {SELECTION_SWITCHES, "g:1-0", "", "", ""}, // none
        {SELECTION_SWITCHES, "i", "", "", ""},     // no switch is chosen, so no link
        {SELECTION_SWITCHES, "i:1", "", "", "couldn't find requested NvLink '1'"},
        {SELECTION_SWITCHES, "g+i", "0 1 2 3 4 5 6 7 8 9 10 11 ", "", ""},
        {SELECTION_SWITCHES, "g:4+i", "4 5 6 7 ", "", ""},
        {SELECTION_SWITCHES, "g:4+i:1-3", "4 5 6 7 ", "", ""},
        {SELECTION_SWITCHES, "g:4+i:3", "4 7 ", "", ""},
        {SELECTION_SWITCHES, "g+i:2", "0 2 4 6 8 10 ", "", ""},
        {SELECTION_SWITCHES, "g+i:1-0", "0 4 8 ", "", ""},
        {SELECTION_SWITCHES, "g:3,4,5", "", "couldn't find requested NvSwitch ID '5'", ""},
        {SELECTION_SWITCHES, "g:5+i", "", "couldn't find requested NvSwitch ID '5'", ""},
        {SELECTION_SWITCHES, "g+i:1,4", "0 1 4 5 8 9 ", "", "couldn't find requested NvLink '4'"},
        {SELECTION_CPUS, "f", "0 1 2 3 4 5 6 7 ", "", ""},
        {SELECTION_CPUS, "g", "0 4 ", "", ""}, // without cores
        {SELECTION_CPUS, "g:1", "4 ", "", ""},
        {SELECTION_CPUS, "g:1-0", "", "", ""},
        {SELECTION_CPUS, "g:4", "", "couldn't find requested CPU ID '4'", ""},
        {SELECTION_CPUS, "g+i", "0 1 2 3 4 5 6 7 ", "", ""},
        {SELECTION_CPUS, "g+i:1,2,65", "0 2 3 4 6 ", "", ""},
        {SELECTION_CPUS, "g:1+i:64-66", "4 5 6 7 ", "", ""},
        {SELECTION_CPUS, "g+i:4", "0 4 ", "", "couldn't find requested CPU core '4'"},
        {SELECTION_CPUS, "g:0+i:65", "0 ", "", "couldn't find requested CPU core '65'"},
        {SELECTION_CPUS, "i", "", "", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        bool are_switches = cases[i].kind == SELECTION_SWITCHES;
        const struct selection_part *parts = are_switches ? switches : cpus;
        size_t count = are_switches ? ARRAY_SIZE(switches) : ARRAY_SIZE(cpus);
        struct selection s;
        struct selection_missing missing;
        struct error err = ERROR_INIT;
        bool chosen[ARRAY_SIZE(switches)];
        assert_int_equal(selection_parse(sv_from(cases[i].text), &s, &err), 0);
        selection_apply_parts(&s, cases[i].kind, parts, count, chosen, &missing);
        char text[64] = "";
        for (size_t n = 0, at = 0; n < count; n++)
            if (chosen[n])
                at += (size_t)snprintf(text + at, sizeof(text) - at, "%zu ", n);
        assert_string_equal(text, cases[i].chosen);
        assert_string_equal(missing.owner, cases[i].owner);
        assert_string_equal(missing.part, cases[i].part);
        selection_deinit(&s);
    }
}

static void links_of_gpus_go_with_their_gpus(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool zero, one;
    } cases[] = {{"f", true, true},      {"g", true, true},   {"g:1", false, true},
                 {"g:1+i", false, true}, {"i", false, false}, {"i:0", false, false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct selection s;
        struct error err = ERROR_INIT;
        assert_int_equal(selection_parse(sv_from(cases[i].text), &s, &err), 0);
        assert_int_equal(selection_has_gpu_links(&s, 0), cases[i].zero);
        assert_int_equal(selection_has_gpu_links(&s, 1), cases[i].one);
        selection_deinit(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_that_ends_before_it_begins_is_remembered),
        cmocka_unit_test(each_form_of_the_grammar_parses),
        cmocka_unit_test(each_wrong_form_says_what_was_found_and_expected),
        cmocka_unit_test(as_many_ids_as_the_limit_and_no_more),
        cmocka_unit_test(a_text_cut_anywhere_parses_or_fails_cleanly),
        cmocka_unit_test(selections_choose_in_order),
        cmocka_unit_test(an_id_that_is_not_there_chooses_nothing),
        cmocka_unit_test(parts_are_chosen_with_their_owners),
        cmocka_unit_test(links_of_gpus_go_with_their_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
