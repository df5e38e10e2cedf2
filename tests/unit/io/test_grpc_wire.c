// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "io/grpc.h"
#include "io/grpc_wire.h"

static int collect(void *user, struct sv piece)
{
    assert_true(piece.len > 0);
    buf_add_sv(user, piece);
    return 0;
}

static int refuse(void *user, struct sv piece)
{
    return -EBADMSG;
}

// Feeds bytes in pieces; the first error, or 0.
static int feed(struct grpc_body *b, struct sv bytes, size_t piece, struct buf *out,
                const char **what)
{
    int r = 0;
    for (size_t at = 0; at < bytes.len && r == 0; at += piece)
        r = grpc_body_feed(b, sv_sub(bytes, at, piece), collect, out, what);
    return r;
}

static void a_body_is_one_message_in_any_split(void **state)
{
    const struct sv bytes = SV("\0\0\0\0\x0chello, world");
    for (size_t piece = 1; piece <= bytes.len; piece++) {
        struct grpc_body b = {.max_message_bytes = 12};
        struct buf out = BUF_INIT(100);
        const char *what = NULL;
        assert_int_equal(feed(&b, bytes, piece, &out, &what), 0);
        assert_true(grpc_body_is_whole(&b));
        assert_string_equal(buf_cstr(&out), "hello, world");
        buf_deinit(&out);
    }
}

static void an_empty_message_is_whole_without_data(void **state)
{
    struct grpc_body b = {.max_message_bytes = 0};
    const char *what = NULL;
    assert_false(grpc_body_is_whole(&b));
    assert_int_equal(grpc_body_feed(&b, SV("\0\0\0\0"), collect, NULL, &what), 0);
    assert_false(grpc_body_is_whole(&b));
    assert_int_equal(grpc_body_feed(&b, SV("\0"), collect, NULL, &what), 0);
    assert_true(grpc_body_is_whole(&b));
    assert_int_equal(grpc_body_feed(&b, SV(""), collect, NULL, &what), 0);
}

static void a_cut_body_is_not_whole(void **state)
{
    const struct sv bytes = SV("\0\0\0\0\x03"
                               "abc");
    for (size_t cut = 0; cut < bytes.len; cut++) {
        struct grpc_body b = {.max_message_bytes = 10};
        struct buf out = BUF_INIT(100);
        const char *what = NULL;
        assert_int_equal(feed(&b, sv_sub(bytes, 0, cut), 2, &out, &what), 0);
        assert_false(grpc_body_is_whole(&b));
        buf_deinit(&out);
    }
}

static void bad_bodies_are_refused(void **state)
{
    static const struct {
        struct sv bytes;
        size_t max;
        int error;
        const char *what;
    } cases[] = {
        {SV("\1\0\0\0\1x"), 10, -EPROTO, "compressed message"},
        {SV("\1"), 10, -EPROTO, "compressed message"},
        {SV("\xff"), 10, -EPROTO, "compressed message"},
        {SV("\0\0\0\0\1xy"), 10, -EPROTO, "more than one message"},
        {SV("\0\0\0\0\0\0"), 10, -EPROTO, "more than one message"},
        {SV("\0\0\0\0\1x\0\0\0\0\1y"), 10, -EPROTO, "more than one message"},
        {SV("\0\0\0\0\x0b"), 10, -EFBIG, "message over the ceiling"},
        {SV("\0\xff\xff\xff\xff"), 10, -EFBIG, "message over the ceiling"},
        {SV("\0\0\1\0\0"), 65535, -EFBIG, "message over the ceiling"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (size_t piece = 1; piece <= cases[i].bytes.len; piece++) {
            struct grpc_body b = {.max_message_bytes = cases[i].max};
            struct buf out = BUF_INIT(100);
            const char *what = NULL;
            assert_int_equal(feed(&b, cases[i].bytes, piece, &out, &what), cases[i].error);
            assert_string_equal(what, cases[i].what);
            buf_deinit(&out);
        }
    }
}

static void the_ceiling_itself_is_allowed(void **state)
{
    for (uint32_t len = 65535; len <= 65537; len++) {
        struct grpc_body b = {.max_message_bytes = 65536};
        const char prefix[] = {0, 0, (char)(len >> 16), (char)(len >> 8), (char)len};
        const char *what = NULL;
        int r = grpc_body_feed(&b, (struct sv){prefix, 5}, collect, NULL, &what);
        assert_int_equal(r, len <= 65536 ? 0 : -EFBIG);
    }
}

static void a_refusal_is_passed_on(void **state)
{
    struct grpc_body b = {.max_message_bytes = 10};
    const char *what = NULL;
    assert_int_equal(grpc_body_feed(&b, SV("\0\0\0\0\2x"), refuse, NULL, &what), -EBADMSG);
}

static void messages_are_decoded_and_made_harmless(void **state)
{
    static const struct {
        const char *raw, *text;
    } cases[] = {
        {"", ""},
        {"rejected by rate limit", "rejected by rate limit"},
        {"rejected%20by%20rate%20limit", "rejected by rate limit"},
        {"100%25", "100%"},
        {"%c3%A9", "\xc3\xa9"},
        {"%", "%"},
        {"%4", "%4"},
        {"%zz%4g%41", "%zz%4gA"},
        {"a%0Ab%09c%00d%7fe", "a b c d e"},
        {"raw\nline", "raw line"},
        {"%ff%fe", "??"},
        {"%e2%82", "??"},         // a character cut short
        {"%ed%a0%80x", "???x"},   // a surrogate
        {"%c0%80", "??"},         // an overlong NUL
        {"%f4%90%80%80", "????"}, // beyond Unicode
        {"%f0%9f%98%80!", "\xf0\x9f\x98\x80!"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[64];
        grpc_message_decode(sv_from(cases[i].raw), out, sizeof(out));
        assert_string_equal(out, cases[i].text);
    }
}

static void a_long_message_is_cut_between_characters(void **state)
{
    static const char *const want[] = {
        "", "a", "a", "a\xc3\xa9", "a\xc3\xa9", "a\xc3\xa9", "a\xc3\xa9\xe2\x82\xac"};
    for (size_t room = 1; room <= ARRAY_SIZE(want); room++) {
        char out[16];
        memset(out, 'x', sizeof(out));
        grpc_message_decode(SV("a%c3%a9%e2%82%ac"), out, room);
        assert_string_equal(out, want[room - 1]);
    }
    char big[2000], out[256];
    memset(big, 'm', sizeof(big));
    grpc_message_decode((struct sv){big, sizeof(big)}, out, sizeof(out));
    assert_int_equal(strlen(out), sizeof(out) - 1);
}

static void statuses_are_numbers(void **state)
{
    assert_int_equal(grpc_status_parse(SV("0")), GRPC_OK);
    assert_int_equal(grpc_status_parse(SV("8")), GRPC_RESOURCE_EXHAUSTED);
    assert_int_equal(grpc_status_parse(SV("12")), GRPC_UNIMPLEMENTED);
    assert_int_equal(grpc_status_parse(SV("")), GRPC_UNKNOWN);
    assert_int_equal(grpc_status_parse(SV("-1")), GRPC_UNKNOWN);
    assert_int_equal(grpc_status_parse(SV("OK")), GRPC_UNKNOWN);
    assert_int_equal(grpc_status_parse(SV("99999999999")), GRPC_UNKNOWN);
}

static void http_statuses_map_as_grpc_says(void **state)
{
    static const struct {
        unsigned http, grpc;
    } cases[] = {{400, 13}, {401, 16}, {403, 7}, {404, 12}, {429, 14}, {502, 14}, {503, 14},
                 {504, 14}, {200, 2},  {302, 2}, {415, 2},  {500, 2},  {0, 2}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(grpc_status_of_http(cases[i].http), cases[i].grpc);
}

static void resets_map_as_grpc_says(void **state)
{
    static const struct {
        uint32_t http2;
        unsigned grpc;
    } cases[] = {{0x0, 13}, {0x1, 13}, {0x2, 13}, {0x7, 14},
                 {0x8, 1},  {0xb, 8},  {0xc, 13}, {0xffffffff, 13}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(grpc_status_of_reset(cases[i].http2), cases[i].grpc);
}

static void timeouts_have_at_most_eight_digits(void **state)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = {
        {5 * NS_PER_S, "5000m"},
        {1, "1m"},
        {NS_PER_MS + 1, "2m"},
        {99999999 * NS_PER_MS, "99999999m"},
        {99999999 * NS_PER_MS + 1, "99999S"},
        {UINT64_MAX, "99999999S"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[GRPC_TIMEOUT_BYTES];
        grpc_timeout_print(cases[i].ns, out);
        assert_string_equal(out, cases[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_body_is_one_message_in_any_split),
        cmocka_unit_test(an_empty_message_is_whole_without_data),
        cmocka_unit_test(a_cut_body_is_not_whole),
        cmocka_unit_test(bad_bodies_are_refused),
        cmocka_unit_test(the_ceiling_itself_is_allowed),
        cmocka_unit_test(a_refusal_is_passed_on),
        cmocka_unit_test(messages_are_decoded_and_made_harmless),
        cmocka_unit_test(a_long_message_is_cut_between_characters),
        cmocka_unit_test(statuses_are_numbers),
        cmocka_unit_test(http_statuses_map_as_grpc_says),
        cmocka_unit_test(resets_map_as_grpc_says),
        cmocka_unit_test(timeouts_have_at_most_eight_digits),
    };
    return cmocka_run_group_tests_name("grpc_wire", tests, NULL, NULL);
}
