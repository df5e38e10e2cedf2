// SPDX-License-Identifier: Apache-2.0
// Each allocation of ours fails once, from the first look to a batch delivered into a group, with
// its retention, and a stream that had to be made: every batch is told of exactly once, and nothing
// leaks (the sanitizer lane looks). What libcurl and jansson allocate is not touched.
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

#include "../../tools/scripted_credentials.h"
#include "../allocation_sweep.h"
#include "agent/aws/logs.h"
#include "base/clock.h"
#include "base/log.h"
#include "io/loop.h"

static struct loop *the_loop;
static int listener, peer = -1;
static char url[64];
static unsigned answers, told, delivered;
static struct logs_call *the_call;

// What the service answers, one connection each. It answers before it was asked: the same thread
// has yet to send the request.
static const char *const bodies[] = {
    "400 Bad Request\r\nContent-Length: "
    "38\r\n\r\n{\"__type\":\"ResourceNotFoundException\"}", // put
    "400 Bad Request\r\nContent-Length: "
    "38\r\n\r\n{\"__type\":\"ResourceNotFoundException\"}",
    "200 OK\r\nContent-Length: 0\r\n\r\n", // the group
    "400 Bad Request\r\nContent-Length: "
    "38\r\n\r\n{\"__type\":\"OperationAbortedException\"}",
    "200 OK\r\nContent-Length: 0\r\n\r\n", // the stream
    "403 Forbidden\r\nContent-Length: 34\r\n\r\n{\"__type\":\"ExpiredTokenException\"}",
    "200 OK\r\nContent-Length: 2\r\n\r\n{}", // put
};

static void on_connection(void *user, unsigned events)
{
    char answer[256];
    (void)user;
    (void)events;
    fd_closep(&peer);
    peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    const char *body = bodies[answers < ARRAY_SIZE(bodies) ? answers : ARRAY_SIZE(bodies) - 1];
    int length = snprintf(answer, sizeof(answer), "HTTP/1.1 %s", body);
    answers++;
    if (peer >= 0) {
        (void)send(peer, answer, (size_t)length, MSG_NOSIGNAL);
        (void)shutdown(peer, SHUT_WR);
    }
}

static void on_done(void *user, const struct logs_result *result)
{
    (void)user;
    told++;
    delivered += result->outcome == LOGS_DELIVERED;
    assert_true(result->outcome == LOGS_DELIVERED || result->error[0]);
    logs_call_free(TAKE_PTR(the_call));
    loop_stop(the_loop, 0);
}

static void put(struct aws_logs *l)
{
    char message[3000]; // compressed
    memset(message, 'm', sizeof(message));
    const struct logs_event event = {1767323045000, {message, sizeof(message)}};
    const struct logs_batch batch = {SV("group"), SV("stream"), &event, 1};
    unsigned before = told;
    if (aws_logs_put(l, &batch, on_done, NULL, &the_call) < 0) {
        assert_true(allocation_failed);
        return;
    }
    assert_int_equal(loop_run(the_loop), 0);
    assert_int_equal(told, before + 1);
}

static void work(void)
{
    static char *const environment[] = {NULL};
    const struct scripted_credentials script = {
        .keys = {{"AKID", "secret", NULL}, {"AKID2", "secret", "token"}}, .has_two = true};
    const struct logs_options options = {
        .region = "r-1", .endpoint_override = url, .retention_days = 1, .deadline_s = 20};
    struct aws_env env = {the_loop, NULL, environment};
    struct aws_credentials *credentials = NULL;
    struct aws_logs *l = NULL;
    answers = 0;
    if (http_client_new(the_loop, &env.client, NULL) < 0)
        assert_true(allocation_failed);
    else if (scripted_credentials_new(the_loop, &script, &credentials) < 0 ||
             aws_logs_new(&env, credentials, &options, &l) < 0)
        assert_true(allocation_failed && !l);
    else
        put(l);
    aws_logs_free(l);
    aws_credentials_free(credentials);
    http_client_free(env.client);
}

// libuv ends the program when its table of descriptors cannot grow: it has the room beforehand.
static int widen_loop(void)
{
    struct loop_fd *watch = NULL;
    int fd = fcntl(listener, F_DUPFD_CLOEXEC, 250);
    int r = fd < 0 ? -1 : loop_fd_new(the_loop, fd, LOOP_READABLE, on_connection, NULL, &watch);
    loop_fd_free(watch);
    fd_closep(&fd);
    return r;
}

static void each_failed_allocation_is_survived(void **state)
{
    (void)state;
    work(); // libcurl is loaded
    assert_int_equal(delivered, 1);
    assert_int_equal(answers, ARRAY_SIZE(bodies));
    assert_true(allocation_sweep(work) >= 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_failed_allocation_is_survived)};
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    struct loop_fd *watch = NULL;
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_ERROR);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        listen(listener, 16) < 0 ||
        getsockname(listener, (struct sockaddr *)&address, &length) < 0 ||
        loop_new(&the_loop) < 0 ||
        loop_fd_new(the_loop, listener, LOOP_READABLE, on_connection, NULL, &watch) < 0 ||
        widen_loop() < 0)
        return 1;
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", ntohs(address.sin_port));
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fd_closep(&peer);
    loop_fd_free(watch);
    loop_free(the_loop);
    fd_closep(&listener);
    return failed;
}
