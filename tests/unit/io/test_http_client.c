// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "io/http_client.h"

struct fixture {
    struct loop *loop;
    struct http_client *client;
    struct http_call *call;
    int result, told;
};

static int setup(void **state)
{
    static struct fixture f;
    f = (struct fixture){0};
    struct error err = ERROR_INIT;
    assert_int_equal(loop_new(&f.loop), 0);
    assert_int_equal(http_client_new(f.loop, &f.client, &err), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    http_client_free(f->client);
    loop_free(f->loop);
    return 0;
}

static void on_done(void *user, const struct http_client_response *response)
{
    struct fixture *f = user;
    f->told++;
    f->result = response->result;
    http_call_free(f->call);
    loop_stop(f->loop, 0);
}

static struct http_client_request request(const char *url)
{
    return (struct http_client_request){
        .method = "GET", .url = url, .proxy = "", .deadline_ns = 5 * NS_PER_S};
}

static int start(struct fixture *f, const struct http_client_request *r, struct error *err)
{
    return http_client_start(f->client, NULL, r, on_done, f, &f->call, err);
}

static void bad_requests_are_refused_with_a_reason(void **state)
{
    const char *const nameless[] = {": x", NULL}, *const split[] = {"A: b\r\nC: d", NULL};
    const struct {
        struct http_client_request request;
        const char *text;
    } cases[] = {
        {request(""), "no URL"},
        {request("http://a b/"), "'http://a b/' is not a URL"},
        {request("a/b"), "'a/b' is not a URL"},
        {request("http://h:65536/"), "'http://h:65536/' is not a URL"},
        {request("ftp://h/"), "'ftp://h/' is neither http nor https"},
        {request("file:///etc/passwd"), "'file:///etc/passwd' is neither http nor https"},
        {request("http://h/\r\nX: y"), "no URL"},
        {{.method = "GET", .url = "http://h/"}, "no deadline"},
        {{.method = "get", .url = "http://h/", .deadline_ns = 1}, "'get' is not a method"},
        {{.url = "http://h/", .headers = nameless, .deadline_ns = 1},
         "header 1 is not a line 'name: value'"},
        {{.url = "http://h/", .headers = split, .deadline_ns = 1},
         "header 1 is not a line 'name: value'"},
        {{.url = "https://h/", .tls = {.min_version = 14}, .deadline_ns = 1},
         "TLS versions 14 to 0"},
        {{.url = "https://h/", .tls = {.min_version = 13, .max_version = 12}, .deadline_ns = 1},
         "TLS versions 13 to 12"},
        {{.url = "http://h/", .sign = {.service = "logs"}, .deadline_ns = 1},
         "not a region and a service to sign for"},
        {{.url = "http://h/", .sign = {"logs", "x"}, .user = "u", .deadline_ns = 1},
         "both a signature and basic authentication"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct error err = ERROR_INIT;
        assert_int_equal(start(*state, &cases[i].request, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].text);
    }
}

static void a_refused_connection_is_told_once_and_later(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_INIT;
    // Port 1 of loopback is nobody's.
    struct http_client_request r = request("http://127.0.0.1:1/");
    assert_int_equal(start(f, &r, &err), 0);
    assert_int_equal(f->told, 0);
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->told, 1);
    assert_int_equal(f->result, -ECONNREFUSED);
}

static void a_handle_serves_one_request_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_INIT;
    struct http_client_request r = request("http://127.0.0.1:1/");
    struct http_call *first, *second;
    struct http_handle *h = http_handle_new(f->client);
    assert_non_null(h);
    assert_int_equal(http_client_start(f->client, h, &r, on_done, f, &first, &err), 0);
    assert_int_equal(http_client_start(f->client, h, &r, on_done, f, &second, &err), -EBUSY);
    http_call_free(first);
    assert_int_equal(http_client_start(f->client, h, &r, on_done, f, &f->call, &err), 0);
    http_handle_free(h);
    assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->result, -ECONNREFUSED);
}

static void calls_and_handles_may_outlive_their_client(void **state)
{
    struct fixture *f = *state;
    struct error err = ERROR_INIT;
    struct http_client_request r = request("http://127.0.0.1:1/");
    struct http_call *call;
    struct http_handle *h = http_handle_new(f->client);
    assert_int_equal(http_client_start(f->client, h, &r, on_done, f, &call, &err), 0);
    http_client_free(TAKE_PTR(f->client));
    assert_null(http_call_header(call, "Date").ptr);
    http_call_free(call);
    http_handle_free(h);
    assert_int_equal(f->told, 0);
}

static void calls_are_capped(void **state)
{
    struct fixture *f = *state;
    static struct http_call *calls[LIMIT_HTTP_CLIENT_CALLS];
    struct http_client_request r = request("http://127.0.0.1:1/");
    struct error err = ERROR_INIT;
    for (size_t i = 0; i < LIMIT_HTTP_CLIENT_CALLS; i++)
        assert_int_equal(http_client_start(f->client, NULL, &r, on_done, f, &calls[i], &err), 0);
    assert_int_equal(start(f, &r, &err), -EBUSY);
    assert_string_equal(err.text, "4096 requests under way");
    http_call_free(calls[0]);
    assert_int_equal(start(f, &r, &err), 0);
    http_call_free(f->call);
    for (size_t i = 1; i < LIMIT_HTTP_CLIENT_CALLS; i++)
        http_call_free(calls[i]);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(bad_requests_are_refused_with_a_reason),
        TEST(a_refused_connection_is_told_once_and_later),
        TEST(a_handle_serves_one_request_at_a_time),
        TEST(calls_and_handles_may_outlive_their_client),
        TEST(calls_are_capped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
