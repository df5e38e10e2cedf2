// SPDX-License-Identifier: Apache-2.0
#include "io/http_syntax.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static bool wants_gzip(const char *value)
{
    struct accept_encoding a = ACCEPT_ENCODING_INIT;
    accept_encoding_read(&a, sv_from(value));
    return accept_encoding_wants_gzip(&a);
}

static void gzip_is_sent_exactly_when_it_is_liked(void **state)
{
    (void)state;
    static const struct {
        const char *value;
        bool gzip;
    } cases[] = {
        {"", false},
        {"gzip", true},
        {"GZip", true},
        {"x-gzip", true},
        {"deflate, gzip", true},
        {"gzip;q=1.0", true},
        {"gzip ; q=0.5", true},
        {"gzip;Q=0.001", true},
        {"gzip;q=0", false},
        {"gzip;q=0.0", false},
        {"gzip;q=0.000", false},
        {"*", true},
        {"*;q=0", false},
        {"*;q=0.1", true},
        {"*, gzip;q=0", false},
        {"gzip;q=0, *", false},
        {"*;q=0, gzip", true},
        {"identity", false},
        {"identity, gzip", true},
        {"identity;q=1, gzip;q=0.5", false},
        {"identity;q=0.5, gzip;q=0.5", true},
        {"identity;q=0", false},
        {"identity;q=0, *", true},
        {"br, zstd", false},
        {"gzipped", false},
        {"gzip;q=", false},
        {"gzip;q=2", false},
        {"gzip;q=1.001", false},
        {"gzip;q=0.0001", false},
        {"gzip;q=-1", false},
        {"gzip;q=abc", false},
        {"gzip;level=9", true},
        {"gzip;level=9;q=0", false},
        {",,;,gzip", true},
        // What Prometheus and the CloudWatch agent send.
        {"gzip", true},
        // A browser.
        {"gzip, deflate, br", true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        if (wants_gzip(cases[i].value) != cases[i].gzip)
            fail_msg("'%s' should be %d", cases[i].value, cases[i].gzip);
    }
}

static void several_header_lines_count_together(void **state)
{
    (void)state;
    struct accept_encoding a = ACCEPT_ENCODING_INIT;
    accept_encoding_read(&a, SV("br"));
    accept_encoding_read(&a, SV("gzip;q=0.2"));
    assert_int_equal(a.gzip, 200);
    assert_true(accept_encoding_wants_gzip(&a));
    accept_encoding_read(&a, SV("identity;q=0.3"));
    assert_false(accept_encoding_wants_gzip(&a));
}

static void header_names_are_tokens(void **state)
{
    (void)state;
    assert_true(http_name_is_token(SV("Content-Length")));
    assert_true(http_name_is_token(SV("x_1!#$%&'*+-.^`|~")));
    assert_false(http_name_is_token(SV("")));
    assert_false(http_name_is_token(SV("Content-Length ")));
    assert_false(http_name_is_token(SV(" Host")));
    assert_false(http_name_is_token(SV("a\tb")));
    assert_false(http_name_is_token(SV("a\0b")));
    assert_false(http_name_is_token(SV("a(b)")));
    assert_false(http_name_is_token(SV("caf\xc3\xa9")));
}

static void escapes_are_decoded_but_for_nul_and_broken_ones(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", ""},
        {"/metrics", "/metrics"},
        {"/%6Detrics", "/metrics"},
        {"/a%2fb", "/a/b"},
        {"/a%20b+c", "/a b+c"},
        {"/metrics%00.html", "/metrics%00.html"},
        {"%", "%"},
        {"%4", "%4"},
        {"%zz", "%zz"},
        {"%4g", "%4g"},
        {"%%41", "%A"},
        {"%25%34%31", "%41"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[64];
        sv_copy(text, sizeof(text), sv_from(cases[i].in));
        size_t len = http_unescape(text);
        assert_string_equal(text, cases[i].out);
        assert_int_equal(len, strlen(cases[i].out));
    }
}

static void basic_credentials_are_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *value, *user, *password; // user NULL: refused
    } cases[] = {
        {"Basic YWxpY2U6cGFzc3dvcmQ=", "alice", "password"},
        {"basic YWxpY2U6cGFzc3dvcmQ=", "alice", "password"},
        {"BASIC   YWxpY2U6cGFzc3dvcmQ=  ", "alice", "password"},
        {"Basic YTpiOmM=", "a", "b:c"},
        {"Basic Og==", "", ""},
        {"Basic YTo=", "a", ""},
        {"Basic YQ==", NULL, NULL},
        {"Basic ", NULL, NULL},
        {"Basic", NULL, NULL},
        {"", NULL, NULL},
        {"Bearer YWxpY2U6cGFzc3dvcmQ=", NULL, NULL},
        {"Basic YWxpY2U6cGFzc3dvcmQ", NULL, NULL},
        {"Basic YWxpY2U6cGFzc3dvcm=Q", NULL, NULL},
        {"Basic YWxpY2U6cGFzc3dv=mQ=", NULL, NULL},
        {"Basic YW*pY2U6cGFzc3dvcmQ=", NULL, NULL},
        {"Basic YWxp Y2U6", NULL, NULL},
        {"Basic ====", NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[64];
        struct sv user, password;
        int r = http_basic_decode(sv_from(cases[i].value), out, sizeof(out), &user, &password);
        assert_int_equal(r, cases[i].user ? 0 : -EINVAL);
        if (r < 0)
            continue;
        assert_true(sv_equals(user, sv_from(cases[i].user)));
        assert_true(sv_equals(password, sv_from(cases[i].password)));
    }
}

static void credentials_longer_than_the_room_are_refused(void **state)
{
    (void)state;
    char out[12];
    struct sv user, password;
    // "abc:efghijkl" is 12 bytes, 16 digits.
    assert_int_equal(http_basic_decode(SV("Basic YWJjOmVmZ2hpamts"), out, 12, &user, &password), 0);
    assert_int_equal(http_basic_decode(SV("Basic YWJjOmVmZ2hpamts"), out, 11, &user, &password),
                     -EINVAL);
}

static void paths_are_cleaned_as_go_cleans_them(void **state)
{
    (void)state;
    static const struct {
        const char *path, *clean; // NULL: it is
    } cases[] = {
        {"/", NULL},
        {"/metrics", NULL},
        {"/metrics/", NULL},
        {"/a/...", NULL},
        {"/.a/b.", NULL},
        {"/%2e", NULL}, // decoded by the server before
        {"//metrics", "/metrics"},
        {"/./metrics", "/metrics"},
        {"/metrics/.", "/metrics"},
        {"/metrics/./", "/metrics/"},
        {"/metrics//", "/metrics/"},
        {"//", "/"},
        {"/.", "/"},
        {"/..", "/"},
        {"/../../metrics", "/metrics"},
        {"/a/../metrics", "/metrics"},
        {"/a/b/..", "/a"},
        {"/a/b/../", "/a/"},
        {"/a/..", "/"},
        {"/aa/b/../../c", "/c"},
        {"", "/"},
        {"*", "/*"},
        {"metrics", "/metrics"},
        {"/\\evil.example//", "/%5Cevil.example/"},
        {"//a b\r\nX: y?q#f%\xc3\xa9", "/a%20b%0D%0AX:%20y%3Fq%23f%25%C3%A9"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char out[128];
        struct sv path = sv_from(cases[i].path);
        assert_int_equal(http_path_is_clean(path), cases[i].clean == NULL);
        assert_int_equal(http_path_clean(path, out, sizeof(out)), 0);
        if (cases[i].clean)
            assert_string_equal(out, cases[i].clean);
    }
}

static void a_path_that_may_not_fit_is_refused(void **state)
{
    (void)state;
    static const char path[] = "/\x01\x01\x01\x01";
    for (size_t room = 0; room < 32; room++) {
        char *out = malloc(room + 1);
        assert_non_null(out);
        int r = http_path_clean((struct sv){path, sizeof(path) - 1}, out, room);
        assert_int_equal(r, room < 3 * (sizeof(path) - 1) + 3 ? -E2BIG : 0);
        if (r == 0)
            assert_string_equal(out, "/%01%01%01%01");
        free(out);
    }
}

static void addresses_are_read_in_each_form(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        unsigned port;
        bool is_unix;
    } cases[] = {
        {":9400", "", 9400, false},
        {"0.0.0.0:9400", "0.0.0.0", 9400, false},
        {"localhost:0", "localhost", 0, false},
        {"[::1]:65535", "::1", 65535, false},
        {"[::]:9400", "::", 9400, false},
        {"[fe80::1%eth0]:1", "fe80::1%eth0", 1, false},
        {"unix:/run/podgpu.sock", "/run/podgpu.sock", 0, true},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct http_address a;
        assert_int_equal(http_address_parse(cases[i].text, &a, NULL), 0);
        assert_string_equal(a.host, cases[i].host);
        assert_int_equal(a.port, cases[i].port);
        assert_int_equal(a.is_unix, cases[i].is_unix);
    }
}

static void bad_addresses_are_refused_with_the_text_found(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",       "9400",   "localhost", "localhost:",    ":",        ":http", ":65536",
        ":-1",    ": 9400", ":94 00",    "::1:9400",      "[::1",     "[::1]", "[::1]9400",
        "a[b]:1", "[a]b:1", "unix:",     "unix:relative", "unix:x:1",
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct http_address a;
        struct error err = ERROR_INIT;
        if (http_address_parse(texts[i], &a, &err) != -EINVAL)
            fail_msg("'%s' was taken", texts[i]);
        char want[64];
        snprintf(want, sizeof(want), "address '%s': ", texts[i]);
        assert_memory_equal(err.text, want, strlen(want));
    }
}

static void longest_names_fit_and_one_more_is_refused(void **state)
{
    (void)state;
    char text[512];
    struct http_address a;
    for (size_t len = 254; len <= 256; len++) {
        memset(text, 'h', len);
        sv_copy(text + len, sizeof(text) - len, SV(":1"));
        assert_int_equal(http_address_parse(text, &a, NULL), len <= 255 ? 0 : -EINVAL);
    }
    for (size_t len = 106; len <= 108; len++) {
        sv_copy(text, sizeof(text), SV("unix:/"));
        memset(text + 6, 'p', len - 1);
        text[5 + len] = '\0';
        assert_int_equal(http_address_parse(text, &a, NULL), len <= 107 ? 0 : -EINVAL);
    }
}

static void loopback_is_told_by_the_text(void **state)
{
    (void)state;
    static const char *const here[] = {"localhost", "LocalHost", "127.0.0.1", "127.255.9.9", "::1"};
    static const char *const there[] = {
        "", "localhost.example", "128.0.0.1", "126.255.255.255", "::", "::2", "0.0.0.0", "127.1"};
    for (size_t i = 0; i < ARRAY_SIZE(here); i++)
        assert_true(http_host_is_loopback(here[i]));
    for (size_t i = 0; i < ARRAY_SIZE(there); i++)
        assert_false(http_host_is_loopback(there[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip_is_sent_exactly_when_it_is_liked),
        cmocka_unit_test(several_header_lines_count_together),
        cmocka_unit_test(header_names_are_tokens),
        cmocka_unit_test(escapes_are_decoded_but_for_nul_and_broken_ones),
        cmocka_unit_test(basic_credentials_are_decoded),
        cmocka_unit_test(credentials_longer_than_the_room_are_refused),
        cmocka_unit_test(paths_are_cleaned_as_go_cleans_them),
        cmocka_unit_test(a_path_that_may_not_fit_is_refused),
        cmocka_unit_test(addresses_are_read_in_each_form),
        cmocka_unit_test(bad_addresses_are_refused_with_the_text_found),
        cmocka_unit_test(longest_names_fit_and_one_more_is_refused),
        cmocka_unit_test(loopback_is_told_by_the_text),
    };
    return cmocka_run_group_tests_name("http syntax", tests, NULL, NULL);
}
