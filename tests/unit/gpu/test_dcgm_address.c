// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>

#include <cmocka.h>

#include "gpu/dcgm_address.h"

struct good {
    const char *text;
    enum dcgm_address_kind kind;
    bool is_uri;
    const char *plain, *uri;
};

static const struct good good[] = {
    {"", DCGM_ADDRESS_TCP, false, "127.0.0.1:5555", "tcp://127.0.0.1:5555"},
    {" gpu-1 ", DCGM_ADDRESS_TCP, false, "gpu-1:5555", "tcp://gpu-1:5555"},
    {"localhost:5555", DCGM_ADDRESS_TCP, false, "127.0.0.1:5555", "tcp://127.0.0.1:5555"},
    {"example.com:65535", DCGM_ADDRESS_TCP, false, "example.com:65535", "tcp://example.com:65535"},
    {"127.0.0.1:1", DCGM_ADDRESS_TCP, false, "127.0.0.1:1", "tcp://127.0.0.1:1"},
    {"[::1]:5556", DCGM_ADDRESS_TCP, false, "[::1]:5556", "tcp://[::1]:5556"},
    {"[2001:db8::1]", DCGM_ADDRESS_TCP, false, "[2001:db8::1]:5555", "tcp://[2001:db8::1]:5555"},
    {"::1", DCGM_ADDRESS_TCP, false, "[::1]:5555", "tcp://[::1]:5555"},
    {"[fe80::1%eth0]:7", DCGM_ADDRESS_TCP, false, "[fe80::1%eth0]:7", "tcp://[fe80::1%eth0]:7"},
    {"tcp://node", DCGM_ADDRESS_TCP, true, "node:5555", "tcp://node:5555"},
    {"tcp://[::1]:9", DCGM_ADDRESS_TCP, true, "[::1]:9", "tcp://[::1]:9"},
    {"unix:///run/dcgm.sock", DCGM_ADDRESS_UNIX, true, "/run/dcgm.sock", "unix:///run/dcgm.sock"},
    {"unix:/run/dcgm.sock", DCGM_ADDRESS_UNIX, true, "/run/dcgm.sock", "unix:///run/dcgm.sock"},
    {"/tmp/nv-hostengine", DCGM_ADDRESS_UNIX, false, "/tmp/nv-hostengine",
     "unix:///tmp/nv-hostengine"},
    {"/a b:c", DCGM_ADDRESS_UNIX, false, "/a b:c", "unix:///a b:c"},
    {"vsock://2", DCGM_ADDRESS_VSOCK, true, "2:5555", "vsock://2:5555"},
    {"vsock://3:70000", DCGM_ADDRESS_VSOCK, true, "3:70000", "vsock://3:70000"},
};

struct bad {
    const char *text, *why;
};

static const struct bad bad[] = {
    {":5555", "no host"},
    {"host:", "not HOST or HOST:PORT"},
    {"host:0", "not a port"},
    {"host:65536", "not a port"},
    {"host:55 55", "not a port"},
    {"host:+1", "not a port"},
    {"[::1", "not HOST or HOST:PORT"},
    {"[::1]5555", "not HOST or HOST:PORT"},
    {"[::1]:", "not HOST or HOST:PORT"},
    {"[]:5", "no host"},
    {"tcp://", "no host"},
    {"two words", "not the name of a host"},
    {"host/path", "not the name of a host"},
    {"001:db8::1]:555555", "not the name of a host"},
    {"127.0.0.1:5555,127.0.0.1:5556", "not the name of a host"},
    {":::", "not the name of a host"},
    {"[he]x:1", "not HOST or HOST:PORT"},
    {"he]:1", "not the name of a host"},
    {"[1::2::3]:1", "not the name of a host"},
    {"unix://", "not an absolute path"},
    {"unix://relative", "not an absolute path"},
    {"http://host:5555", "tcp://, unix:// and vsock:// are known"},
    {"UNIX:///a", "tcp://, unix:// and vsock:// are known"},
    {"vsock://", "not CID or CID:PORT"},
    {"vsock://host:1", "not CID or CID:PORT"},
    {"vsock://4294967295", "not CID or CID:PORT"},
    {"vsock://1:x", "not a port"},
};

static void address_forms_have_one_meaning(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct dcgm_address a;
        const char *why = "";
        assert_int_equal(dcgm_address_parse(sv_from(good[i].text), &a, &why), 0);
        assert_int_equal(a.kind, good[i].kind);
        assert_int_equal(a.is_uri, good[i].is_uri);
        assert_string_equal(a.plain, good[i].plain);
        assert_string_equal(a.uri, good[i].uri);
    }
}

static void what_is_no_address_is_refused_with_a_reason(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct dcgm_address a;
        const char *why = "";
        if (dcgm_address_parse(sv_from(bad[i].text), &a, &why) != -EINVAL)
            fail_msg("accepted: %s", bad[i].text);
        assert_string_equal(why, bad[i].why);
    }
}

static void lengths_end_where_they_should(void **state)
{
    char text[400];
    struct dcgm_address a;
    const char *why;
    memset(text, 'a', sizeof(text));
    assert_int_equal(dcgm_address_parse((struct sv){text, 253}, &a, &why), 0);
    assert_int_equal(strlen(a.plain), 253 + 5);
    assert_int_equal(strlen(a.uri), 253 + 5 + 6);
    assert_int_equal(dcgm_address_parse((struct sv){text, 254}, &a, &why), -EINVAL);
    text[0] = '/';
    assert_int_equal(dcgm_address_parse((struct sv){text, 107}, &a, &why), 0);
    assert_int_equal(strlen(a.path), 107);
    assert_int_equal(dcgm_address_parse((struct sv){text, 108}, &a, &why), -EINVAL);
    assert_int_equal(dcgm_address_parse((struct sv){"/a\0b", 4}, &a, &why), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(address_forms_have_one_meaning),
        cmocka_unit_test(what_is_no_address_is_refused_with_a_reason),
        cmocka_unit_test(lengths_end_where_they_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
