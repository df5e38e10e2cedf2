// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/limits.h"
#include "kube/api_access.h"
#include "kube/api_stream.h"

static const char config[] =
    "current-context: here\n"
    "contexts: [{name: here, context: {cluster: c, user: u, namespace: n}}]\n"
    "clusters: [{name: c, cluster: {server: 'https://h:1', certificate-authority-data: Zm9v,\n"
    "  tls-server-name: s, proxy-url: 'http://p:1'}}]\n"
    "users: [{name: u, user: {tokenFile: t, client-certificate: /c.pem, client-key-data: YmFy,\n"
    "  username: a, password: b}}]\n";

static void read_kubeconfig(void)
{
    struct kube_access a = {.arena = ARENA_INIT(LIMIT_KUBE_ACCESS_BYTES)};
    struct error err = ERROR_INIT;
    int r = kube_access_parse_kubeconfig(&a, sv_from(config), "/d/config", &err);
    if (r < 0) {
        assert_true(r == -ENOMEM && allocation_failed);
    } else {
        assert_string_equal(a.server, "https://h:1");
        assert_string_equal(a.namespace_name, "n");
        assert_string_equal(a.tls.ca_pem, "foo");
        assert_string_equal(a.tls.server_name, "s");
        assert_string_equal(a.proxy_url, "http://p:1");
        assert_string_equal(a.credentials_file, "/d/t");
        assert_string_equal(a.tls.cert_file, "/c.pem");
        assert_string_equal(a.tls.key_pem, "bar");
        assert_string_equal(a.user, "a");
        assert_string_equal(a.password, "b");
    }
    kube_access_deinit(&a);
}

static void given_server(void)
{
    static const char *const headers[] = {"X-A: 1", "X-B: 2", NULL};
    static const char *const files[] = {"X-C", "/f", NULL};
    struct kube_api_config c = {.server = "http://h:1/base//",
                                .user = "u",
                                .password_file = "/p",
                                .tls.ca_pem = "pem",
                                .headers = headers,
                                .header_files = files};
    struct kube_access a;
    struct error err = ERROR_INIT;
    int r = kube_access_init(&a, &c, &err);
    if (r < 0) {
        assert_true(r == -ENOMEM && allocation_failed);
        assert_string_equal(err.text, "out of memory");
    } else {
        assert_string_equal(a.server, "http://h:1/base");
        assert_string_equal(a.headers[1], "X-B: 2");
        assert_string_equal(a.header_files[1], "/f");
        assert_null(a.headers[2]);
    }
    kube_access_deinit(&a);
}

static int on_found(void *user, struct sv object)
{
    *(size_t *)user += object.len;
    return 0;
}

static void cut_a_list(void)
{
    struct kube_stream s;
    size_t found = 0;
    kube_stream_init(&s, on_found, &found);
    kube_stream_start(&s, KUBE_STREAM_LIST);
    int r = kube_stream_feed(&s, SV("{\"kind\":\"L\",\"items\":[{\"a\":1},{}]}"));
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r == 0)
        assert_int_equal(found, 9);
    kube_stream_deinit(&s);
}

static void access_survives_each_failed_allocation(void **state)
{
    assert_true(allocation_sweep(read_kubeconfig) >= 4);
    assert_true(allocation_sweep(given_server) >= 1);
}

static void a_stream_survives_each_failed_allocation(void **state)
{
    assert_true(allocation_sweep(cut_a_list) >= 2);
}

static void a_server_needs_a_scheme(void **state)
{
    struct kube_api_config c = {.server = "10.0.0.1:443"};
    struct kube_access a;
    struct error err = ERROR_INIT;
    assert_int_equal(kube_access_init(&a, &c, &err), -EINVAL);
    assert_string_equal(err.text, "API server '10.0.0.1:443': expected http:// or https://");
    kube_access_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(access_survives_each_failed_allocation),
        cmocka_unit_test(a_stream_survives_each_failed_allocation),
        cmocka_unit_test(a_server_needs_a_scheme),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
