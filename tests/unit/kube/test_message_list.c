// SPDX-License-Identifier: Apache-2.0
// A list in any pieces: the items, the ceiling of one, and what is no list.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "kube/message_list.h"

#define MOST 300 // its length takes two bytes

struct seen {
    size_t count, bytes;
    unsigned char last;
    int answer; // what the callback returns
};

static int on_item(void *user, struct sv bytes)
{
    struct seen *s = user;
    s->count++;
    s->bytes += bytes.len;
    if (bytes.len)
        s->last = (unsigned char)bytes.ptr[bytes.len - 1];
    return s->answer;
}

// Fed `step` bytes at a time: the first error, or the end's.
static int read_list(struct sv bytes, size_t step, struct seen *seen)
{
    struct message_list l;
    int answer = seen->answer;
    *seen = (struct seen){.answer = answer};
    message_list_init(&l, MOST, on_item, seen);
    int r = 0;
    for (size_t at = 0; at < bytes.len && r == 0; at += step) {
        size_t len = bytes.len - at < step ? bytes.len - at : step;
        r = message_list_feed(&l, (struct sv){bytes.ptr + at, len});
    }
    if (r == 0)
        r = message_list_finish(&l);
    else
        assert_int_equal(message_list_finish(&l), r); // sticky
    message_list_deinit(&l);
    return r;
}

static struct sv item_of(char *room, size_t len)
{
    room[0] = 0x0a;
    room[1] = (char)((len & 0x7f) | 0x80);
    room[2] = (char)(len >> 7);
    memset(room + 3, 'x', len);
    return (struct sv){room, len + 3};
}

static void an_item_may_be_as_long_as_its_ceiling_and_no_longer(void **state)
{
    static const struct {
        size_t len;
        int result;
    } cases[] = {{MOST - 1, 0}, {MOST, 0}, {MOST + 1, -EFBIG}};
    char room[MOST + 8];
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct sv list = item_of(room, cases[i].len);
        for (size_t step = 1; step <= list.len; step++) {
            struct seen seen = {0};
            assert_int_equal(read_list(list, step, &seen), cases[i].result);
            assert_int_equal(seen.count, cases[i].result == 0);
            assert_int_equal(seen.bytes, cases[i].result == 0 ? cases[i].len : 0);
        }
    }
}

// Two items, one empty, and between them a field of each type that nobody knows.
#define LIST                                                                                       \
    "\x0a\x03"                                                                                     \
    "abc"                                                                                          \
    "\x10\xff\x01"                                                                                 \
    "\x19"                                                                                         \
    "12345678"                                                                                     \
    "\x22\x02"                                                                                     \
    "zz"                                                                                           \
    "\x2d"                                                                                         \
    "1234"                                                                                         \
    "\x0a\x00"                                                                                     \
    "\x0a\x02"                                                                                     \
    "de"

static void items_are_found_in_any_pieces_and_the_rest_is_passed_over(void **state)
{
    const struct sv list = SV(LIST);
    for (size_t step = 1; step <= list.len; step++) {
        struct seen seen = {0};
        assert_int_equal(read_list(list, step, &seen), 0);
        assert_int_equal(seen.count, 3);
        assert_int_equal(seen.bytes, 5);
        assert_int_equal(seen.last, 'e');
    }
}

static void a_list_that_is_cut_short_is_none(void **state)
{
    static const size_t ends[] = {0, 5, 8, 17, 21, 26, 28, 32}; // of fields
    const struct sv list = SV(LIST);
    assert_int_equal(list.len, ends[ARRAY_SIZE(ends) - 1]);
    size_t next = 0;
    for (size_t len = 0; len <= list.len; len++) {
        struct seen seen = {0};
        bool whole = len == ends[next];
        next += whole;
        assert_int_equal(read_list((struct sv){list.ptr, len}, 3, &seen), whole ? 0 : -EBADMSG);
    }
}

static void what_is_no_list_is_refused(void **state)
{
    const struct sv cases[] = {
        SV("\x08\x01"),                                 // the item is a number
        SV("\x0b"),                                     // a group
        SV("\x17"),                                     // a type that there is not
        SV("\x02\x00"),                                 // field 0
        SV("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02"), // a number of 65 bits
        SV("\x12\x80\x80\x80\x80\x08"),                 // 2 GiB of bytes
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (size_t step = 1; step <= cases[i].len; step++) {
            struct seen seen = {0};
            assert_int_equal(read_list(cases[i], step, &seen), -EBADMSG);
            assert_int_equal(seen.count, 0);
        }
}

static void what_the_taker_returns_ends_it(void **state)
{
    const struct sv list = SV(LIST);
    for (size_t step = 1; step <= list.len; step++) {
        struct seen seen = {.answer = -ENOMEM};
        assert_int_equal(read_list(list, step, &seen), -ENOMEM);
        assert_int_equal(seen.count, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_item_may_be_as_long_as_its_ceiling_and_no_longer),
        cmocka_unit_test(items_are_found_in_any_pieces_and_the_rest_is_passed_over),
        cmocka_unit_test(a_list_that_is_cut_short_is_none),
        cmocka_unit_test(what_is_no_list_is_refused),
        cmocka_unit_test(what_the_taker_returns_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
