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

// volatile: the compiler takes malloc for a function that changes no variable of ours.
static volatile unsigned until_failure; // 0: none fails
static volatile bool failed;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

static bool fails_now(void)
{
    if (!until_failure)
        return false;
    unsigned left = until_failure - 1;
    until_failure = left;
    if (left)
        return false;
    failed = true;
    return true;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(p, bytes);
}

// Runs work with the first, second, ... allocation failing until a run needs fewer. How many it
// needs.
static unsigned sweep(int (*work)(void *user), void *user)
{
    unsigned n = 0;
    do {
        failed = false;
        until_failure = ++n;
        int r = work(user);
        until_failure = 0;
        assert_int_equal(r, failed ? -ENOMEM : 0);
        assert_true(n < 1000);
    } while (failed);
    return n - 1;
}

static int parse(void *user)
{
    struct web_config c;
    struct error err = ERROR_INIT;
    int r = web_config_parse(sv_from(user), "/etc/web.yml", &c, &err);
    if (r == 0)
        web_config_deinit(&c);
    assert_int_equal(err.code, r);
    return r;
}

static void parsing_a_web_config_survives_any_failure(void **state)
{
    (void)state;
    assert_true(sweep(parse, (void *)(uintptr_t)config_text) > 8);
    assert_true(sweep(parse, (void *)(uintptr_t)tls_text) > 8);
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
    until_failure = 1;
    assert_int_equal(loop_new(&l), -ENOMEM);
    until_failure = 0;
    assert_int_equal(loop_new(&l), 0);
    struct loop_timer *timer = NULL;
    struct loop_fd *fd = NULL;
    struct loop_path *path = NULL;
    until_failure = 1;
    assert_int_equal(loop_timer_new(l, nothing, NULL, &timer), -ENOMEM);
    until_failure = 1;
    assert_int_equal(loop_fd_new(l, pipe_ends[0], 0, NULL, NULL, &fd), -ENOMEM);
    for (unsigned n = 1; n <= 2; n++) {
        until_failure = n;
        assert_int_equal(loop_path_new(l, "/tmp", NULL, NULL, &path), -ENOMEM);
    }
    until_failure = 1;
    assert_int_equal(loop_job_start(l, nothing, nothing, NULL), -ENOMEM);
    until_failure = 0;
    loop_free(l);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}

static void refuse(void *user, struct http_request *r)
{
    (void)user;
    http_reply_text(r, 404, SV("no\n"), NULL, 0);
}

struct server_test {
    struct loop *loop;
    char path[32];
};

static int serve(void *user)
{
    struct server_test *t = user;
    const struct http_server_config config = {
        .address = "127.0.0.1:0", .web_config_file = t->path, .handle = refuse};
    struct http_server *s = NULL;
    struct error err = ERROR_INIT;
    int r = http_server_new(t->loop, &config, &s, &err);
    assert_int_equal(err.code, r);
    assert_true(r == 0 || err.text[0]);
    if (r == 0) {
        r = http_server_reload(s, &err);
        struct http_server_stats stats;
        http_server_get_stats(s, &stats);
        assert_int_equal(stats.web_config_ok, r == 0);
    }
    http_server_free(s);
    return r;
}

static void a_server_survives_any_failure(void **state)
{
    (void)state;
    struct server_test t = {.path = "/tmp/podgpu-web-XXXXXX"};
    int fd = mkstemp(t.path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, config_text, sizeof(config_text) - 1), sizeof(config_text) - 1);
    close(fd);
    assert_int_equal(loop_new(&t.loop), 0);
    assert_int_equal(serve(&t), 0); // libuv's table of descriptors grows here
    assert_true(sweep(serve, &t) > 30);
    loop_free(t.loop);
    unlink(t.path);
}

static int make_body(void *user)
{
    struct http_body *b = NULL;
    char *data = malloc(100);
    (void)user;
    if (!data)
        return -ENOMEM;
    int r = http_body_new(data, 100, "text/plain", &b); // owns data from here on
    if (r == 0)
        http_body_unref(b);
    return r;
}

static void a_body_survives_any_failure(void **state)
{
    (void)state;
    assert_int_equal(sweep(make_body, NULL), 2);
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
