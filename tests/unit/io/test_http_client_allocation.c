// SPDX-License-Identifier: Apache-2.0
// Each allocation of ours and of the loop fails once, from the client's birth to an answer read:
// the request is refused or told of exactly once, and nothing leaks (the sanitizer lane looks).
// What libcurl allocates is not touched.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "allocation_sweep.h"
#include "base/clock.h"
#include "io/http_client.h"

static struct loop *the_loop;
static int listener;
static char url[64];
static unsigned told, answered;

// Answers before it was asked: the same thread has yet to send the request. Closed at the next.
static int peer = -1;

static void on_connection(void *user, unsigned events)
{
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
    (void)user;
    (void)events;
    fd_closep(&peer);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (peer >= 0)
        (void)send(peer, answer, sizeof(answer) - 1, MSG_NOSIGNAL);
}

static void on_done(void *user, const struct http_client_response *response)
{
    (void)user;
    told++;
    if (response->result == 0) {
        assert_int_equal(response->body.len, 5);
        assert_memory_equal(response->body.ptr, "hello", 5);
        answered++;
    }
    loop_stop(the_loop, 0);
}

static void ask(struct http_client *c, struct http_handle *h)
{
    const char *const headers[] = {"Accept: text/plain", NULL};
    struct http_client_request r = {.method = "POST",
                                    .url = url,
                                    .headers = headers,
                                    .body = SV("a body"),
                                    .tls = {.ca_pem = "ca", .cert_pem = "cert", .key_pem = "key"},
                                    .user = "me",
                                    .password = "secret",
                                    .proxy = "",
                                    .max_body_bytes = 100,
                                    .deadline_ns = 5 * NS_PER_S};
    struct http_call *call;
    unsigned before = told;
    if (http_client_start(c, h, &r, on_done, NULL, &call, NULL) < 0) {
        assert_true(allocation_failed);
        return;
    }
    assert_int_equal(loop_run(the_loop), 0);
    assert_int_equal(told, before + 1);
    http_call_free(call);
}

static void work(void)
{
    struct http_client *c = NULL;
    int r = http_client_new(the_loop, &c, NULL);
    if (r < 0) {
        assert_int_equal(r, -ENOMEM);
        return;
    }
    struct http_handle *h = http_handle_new(c);
    assert_true(h || allocation_failed);
    ask(c, h);
    http_handle_free(h);
    http_client_free(c);
}

// libuv aborts when its table of descriptors can't grow: it has room before.
static void grow_the_loop(void)
{
    struct loop_fd *watch;
    int high = fcntl(listener, F_DUPFD_CLOEXEC, 200);
    assert_true(high >= 200);
    assert_int_equal(loop_fd_new(the_loop, high, LOOP_WRITABLE, on_connection, NULL, &watch), 0);
    loop_fd_free(watch);
    (void)close(high);
}

static void each_allocation_may_fail(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    struct loop_fd *watch;
    (void)state;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(listener, 16), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &length), 0);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", ntohs(address.sin_port));
    assert_int_equal(loop_new(&the_loop), 0);
    assert_int_equal(loop_fd_new(the_loop, listener, LOOP_READABLE, on_connection, NULL, &watch),
                     0);
    grow_the_loop();
    assert_true(allocation_sweep(work) >= 10);
    assert_true(answered >= 1);
    fd_closep(&peer);
    loop_fd_free(watch);
    loop_free(the_loop);
    (void)close(listener);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
