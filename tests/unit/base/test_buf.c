// SPDX-License-Identifier: Apache-2.0
#include "base/buf.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void appends_add_up(void **state)
{
    struct buf b = BUF_INIT(1000);
    buf_add(&b, "a\0b", 3);
    buf_add_sv(&b, SV("cd"));
    buf_add_str(&b, "ef");
    buf_add_char(&b, '|');
    buf_add_u64(&b, UINT64_MAX);
    buf_add_char(&b, '|');
    buf_add_i64(&b, INT64_MIN);
    buf_add_fmt(&b, "|%03d", 7);
    assert_int_equal(b.error, 0);
    assert_true(
        sv_equals(buf_sv(&b), SV("a\0bcdef|18446744073709551615|-9223372036854775808|007")));
    buf_deinit(&b);
}

static void growth_keeps_the_content(void **state)
{
    struct buf b = BUF_INIT(1 << 20);
    for (unsigned i = 0; i < 50000; i++)
        buf_add_char(&b, (char)('a' + i % 26));
    assert_int_equal(b.len, 50000);
    for (unsigned i = 0; i < 50000; i++)
        assert_int_equal(b.data[i], 'a' + i % 26);
    buf_deinit(&b);
}

static void the_ceiling_is_exact_and_sticky(void **state)
{
    struct buf b = BUF_INIT(10);
    buf_add_str(&b, "123456789");
    assert_int_equal(b.error, 0);
    buf_add_char(&b, '0');
    assert_int_equal(b.error, 0);
    assert_int_equal(b.len, 10);
    assert_string_equal(buf_cstr(&b), "1234567890");
    buf_add_char(&b, 'x');
    assert_int_equal(b.error, -EFBIG);
    buf_reset(&b);
    buf_add_str(&b, "12345678901");
    assert_int_equal(b.error, -EFBIG);
    buf_add_str(&b, "fits");
    assert_int_equal(b.len, 0);
    assert_int_equal(buf_reserve(&b, 1), -EFBIG);
    assert_string_equal(buf_cstr(&b), "");
    buf_deinit(&b);
}

static void formatted_text_respects_the_ceiling(void **state)
{
    struct buf b = BUF_INIT(4);
    buf_add_fmt(&b, "%s", "1234");
    assert_int_equal(b.error, 0);
    assert_string_equal(buf_cstr(&b), "1234");
    buf_reset(&b);
    buf_add_fmt(&b, "%s", "12345");
    assert_int_equal(b.error, -EFBIG);
    buf_deinit(&b);
}

static void huge_lengths_do_not_wrap(void **state)
{
    struct buf b = BUF_INIT(100);
    buf_add_char(&b, 'x');
    assert_int_equal(buf_reserve(&b, SIZE_MAX), -EFBIG);
    buf_deinit(&b);
}

static void reset_keeps_the_memory_and_clears_the_error(void **state)
{
    struct buf b = BUF_INIT(300);
    buf_add_str(&b, "abc");
    char *data = b.data;
    assert_int_equal(buf_reserve(&b, 300), -EFBIG);
    buf_reset(&b);
    buf_add_str(&b, "de");
    assert_ptr_equal(b.data, data);
    assert_string_equal(buf_cstr(&b), "de");
    buf_deinit(&b);
}

static void consuming_drops_from_the_front(void **state)
{
    struct buf b = BUF_INIT(100);
    buf_consume(&b, 5);
    buf_add_str(&b, "abcdef");
    buf_consume(&b, 2);
    assert_string_equal(buf_cstr(&b), "cdef");
    buf_consume(&b, 99);
    assert_int_equal(b.len, 0);
    buf_deinit(&b);
}

static void taking_hands_over_terminated_memory(void **state)
{
    struct buf b = BUF_INIT(100);
    size_t len = 99;
    assert_null(buf_take(&b, &len));
    assert_int_equal(len, 0);
    buf_add_str(&b, "abc");
    char *taken = buf_take(&b, &len);
    assert_int_equal(len, 3);
    assert_string_equal(taken, "abc");
    assert_null(b.data);
    buf_add_str(&b, "again");
    assert_string_equal(buf_cstr(&b), "again");
    free(taken);
    buf_deinit(&b);
}

static void an_empty_buffer_reads_as_an_empty_string(void **state)
{
    struct buf b = BUF_INIT(100);
    assert_string_equal(buf_cstr(&b), "");
    buf_add(&b, NULL, 0);
    buf_add_sv(&b, (struct sv){NULL, 0});
    assert_int_equal(b.error, 0);
    buf_deinit(&b);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appends_add_up),
        cmocka_unit_test(growth_keeps_the_content),
        cmocka_unit_test(the_ceiling_is_exact_and_sticky),
        cmocka_unit_test(formatted_text_respects_the_ceiling),
        cmocka_unit_test(huge_lengths_do_not_wrap),
        cmocka_unit_test(reset_keeps_the_memory_and_clears_the_error),
        cmocka_unit_test(consuming_drops_from_the_front),
        cmocka_unit_test(taking_hands_over_terminated_memory),
        cmocka_unit_test(an_empty_buffer_reads_as_an_empty_string),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
