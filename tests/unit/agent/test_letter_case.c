// SPDX-License-Identifier: Apache-2.0
#include "agent/letter_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/macros.h"

// What Go 1.19 answers.
static void texts_change_case_as_in_go(void **state)
{
    static const struct {
        const char *text, *lower, *upper;
    } cases[] = {
        {"", "", ""},
        {"bAr123Foo", "bar123foo", "BAR123FOO"},
        {"@[`{", "@[`{", "@[`{"},
        {"Äpfel ÉTÉ ñ", "äpfel été ñ", "ÄPFEL ÉTÉ Ñ"},
        {"ß", "ß", "ß"}, // a letter stays a letter
        {"ŉ", "ŉ", "ŉ"},
        {"ÿŸ", "ÿÿ", "ŸŸ"},
        {"İı", "iı", "İI"},
        {"ſ", "ſ", "S"},
        {"K", "k", "K"}, // Kelvin
        {"µ", "µ", "Μ"}, // micro; the capital is Greek
        {"ǅ", "ǆ", "Ǆ"}, // the title case between them
        {"ΣΑΣ σας", "σασ σας", "ΣΑΣ ΣΑΣ"},
        {"Привет", "привет", "ПРИВЕТ"},
        {"Ⱥⱥ", "ⱥⱥ", "ȺȺ"},
        {"Ⰰⰰ ꭰ Ꭰ", "ⰰⰰ ꭰ ꭰ", "ⰀⰀ Ꭰ Ꭰ"},
        {"𐐀𐐨", "𐐨𐐨", "𐐀𐐀"},
        {"日本 😀 ٣", "日本 😀 ٣", "日本 😀 ٣"},
        {"\xff"
         "A\xc3",
         "\xff"
         "a\xc3",
         "\xff"
         "A\xc3"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[100];
        struct sv text = sv_from(cases[i].text);
        size_t length = letter_text_to_case(text, LETTER_LOWER, out);
        assert_true(length <= text.len * LETTER_CASE_GROWTH);
        out[length] = '\0';
        assert_string_equal(out, cases[i].lower);
        out[letter_text_to_case(text, LETTER_UPPER, out)] = '\0';
        assert_string_equal(out, cases[i].upper);
    }
}

static size_t utf8_bytes(uint32_t c)
{
    return c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
}

static void the_table_is_sorted_and_keeps_its_promise_on_growth(void **state)
{
    size_t upper = 0, lower = 0;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        uint32_t u = letter_to_case(c, LETTER_UPPER), l = letter_to_case(c, LETTER_LOWER);
        upper += u != c;
        lower += l != c;
        assert_true(utf8_bytes(u) <= LETTER_CASE_GROWTH * utf8_bytes(c));
        assert_true(utf8_bytes(l) <= LETTER_CASE_GROWTH * utf8_bytes(c));
    }
    // Unicode 15.0 has that many.
    assert_int_equal(upper, 1450);
    assert_int_equal(lower, 1433);
    for (size_t i = 1; i < letter_upper_range_count; i++)
        assert_true(letter_upper_ranges[i - 1].last < letter_upper_ranges[i].first);
    for (size_t i = 1; i < letter_lower_range_count; i++)
        assert_true(letter_lower_ranges[i - 1].last < letter_lower_ranges[i].first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_change_case_as_in_go),
        cmocka_unit_test(the_table_is_sorted_and_keeps_its_promise_on_growth),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
