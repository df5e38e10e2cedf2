// SPDX-License-Identifier: Apache-2.0
// Each allocation of ours fails once, from the loop to a server with a web configuration; every run
// must say -ENOMEM and leak nothing (the sanitizer lane looks). What shared libraries allocate is
// not touched.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "io/http_server.h"
#include "io/loop.h"
#include "io/web_config.h"

#define HASH "$2y$10$QOauhQNbBCuQDKes6eFzPeMqBSjb7Mr5DUmpZ/VcEd00UAV/LDeSi"

static const char config_text[] =
    "http_server_config: {headers: {X-Frame-Options: deny, X-XSS-Protection: '0'}}\n"
    "rate_limit: {burst: 1, interval: 1s}\n"
    "basic_auth_users: {alice: " HASH ", bob: " HASH "}\n";
static const char tls_text[] = "tls_server_config:\n"
                               "  cert_file: a.pem\n"
                               "  key: b\n"
                               "  client_auth_type: RequireAnyClientCert\n"
                               "  client_allowed_sans: [a, b]\n"
                               "  cipher_suites: [TLS_AES_128_GCM_SHA256]\n";

static void parse(const char *text)
{
    struct web_config c;
    struct error err = ERROR_INIT;
    int r = web_config_parse(sv_from(text), "/etc/web.yml", &c, &err);
    if (r == 0)
        web_config_deinit(&c);
    assert_int_equal(err.code, r);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
}

static void parse_config(void)
{
    parse(config_text);
}

static void parse_tls(void)
{
    parse(tls_text);
}

static void parsing_a_web_config_survives_any_failure(void **state)
{
    (void)state;
    assert_true(allocation_sweep(parse_config) > 8);
    assert_true(allocation_sweep(parse_tls) > 8);
}

static void nothing(void *user)
{
    (void)user;
}

static void the_loop_survives_any_failure(void **state)
{
    (void)state;
    int pipe_ends[2];
    assert_int_equal(pipe(pipe_ends), 0);
    struct loop *l = NULL;
    allocation_until_failure = 1;
    assert_int_equal(loop_new(&l), -ENOMEM);
    allocation_until_failure = 0;
    assert_int_equal(loop_new(&l), 0);
    struct loop_timer *timer = NULL;
    struct loop_fd *fd = NULL;
    struct loop_path *path = NULL;
    allocation_until_failure = 1;
    assert_int_equal(loop_timer_new(l, nothing, NULL, &timer), -ENOMEM);
    allocation_until_failure = 1;
    assert_int_equal(loop_fd_new(l, pipe_ends[0], 0, NULL, NULL, &fd), -ENOMEM);
    for (unsigned n = 1; n <= 2; n++) {
        allocation_until_failure = n;
        assert_int_equal(loop_path_new(l, "/tmp", NULL, NULL, &path), -ENOMEM);
    }
    allocation_until_failure = 1;
    assert_int_equal(loop_job_start(l, nothing, nothing, NULL), -ENOMEM);
    allocation_until_failure = 0;
    loop_free(l);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void refuse(void *user, struct http_request *r)
{
    (void)user;
    http_reply_text(r, 404, SV("no\n"), NULL, 0);
}

static struct loop *loop;
static char config_path[] = "/tmp/podgpu-web-XXXXXX";

static void serve(void)
{
    const struct http_server_config config = {
        .address = "127.0.0.1:0", .web_config_file = config_path, .handle = refuse};
    struct http_server *s = NULL;
    struct error err = ERROR_INIT;
    int r = http_server_new(loop, &config, &s, &err);
    assert_int_equal(err.code, r);
    assert_true(r == 0 || err.text[0]);
    if (r == 0) {
        r = http_server_reload(s, &err);
        struct http_server_stats stats;
        http_server_get_stats(s, &stats);
        assert_int_equal(stats.web_config_ok, r == 0);
    }
    http_server_free(s);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
}

static void a_server_survives_any_failure(void **state)
{
    (void)state;
    int fd = mkstemp(config_path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, config_text, sizeof(config_text) - 1), sizeof(config_text) - 1);
    close(fd);
    assert_int_equal(loop_new(&loop), 0);
    allocation_failed = false;
    serve(); // libuv's table of descriptors grows here
    assert_true(allocation_sweep(serve) > 30);
    loop_free(loop);
    unlink(config_path);
}

static void make_body(void)
{
    struct http_body *b = NULL;
    char *data = malloc(100);
    int r = data ? http_body_new(data, 100, "text/plain", &b) : -ENOMEM; // owns data from here on
    if (r == 0)
        http_body_unref(b);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
}

static void a_body_survives_any_failure(void **state)
{
    (void)state;
    assert_int_equal(allocation_sweep(make_body), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parsing_a_web_config_survives_any_failure),
        cmocka_unit_test(the_loop_survives_any_failure),
        cmocka_unit_test(a_server_survives_any_failure),
        cmocka_unit_test(a_body_survives_any_failure),
    };
    return cmocka_run_group_tests_name("http allocation", tests, NULL, NULL);
}
