// SPDX-License-Identifier: Apache-2.0
// The real server on a socket; the client is a few lines here.
#include <arpa/inet.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/sv.h"
#include "exporter/admin.h"

struct fixture {
    struct loop *loop;
    struct loop_timer *late;
    struct admin *admin;
    int client;
    struct loop_fd *watch;
    char answer[8192];
    size_t answer_len;
    // What the command got and gives
    unsigned calls;
    enum admin_command command;
    int result;
    char reason[128];
    // How a command that is put off ends
    struct loop_timer *finish;
    int late_result;
};

static void on_finish(void *user)
{
    struct fixture *f = user;
    admin_finish(f->admin, f->late_result, "profiling is in use");
}

static int on_command(void *user, enum admin_command command, struct error *err)
{
    struct fixture *f = user;
    f->calls++;
    f->command = command;
    if (f->result == ADMIN_LATER)
        loop_timer_set(f->finish, 20 * NS_PER_MS, 0);
    if (f->result < 0 && f->reason[0])
        return error_set_at(err, f->result, "counters.csv", 3, 7, "%s", f->reason);
    return f->result;
}

static int start(struct fixture *f, const char *address, struct error *err)
{
    const struct admin_config config = {address, on_command, f};
    return admin_new(f->loop, &config, &f->admin, err);
}

static void on_late(void *user)
{
    struct fixture *f = user;
    loop_stop(f->loop, -ETIMEDOUT);
}

static void on_readable(void *user, unsigned events)
{
    struct fixture *f = user;
    (void)events;
    ssize_t n = recv(f->client, f->answer + f->answer_len, sizeof(f->answer) - 1 - f->answer_len,
                     MSG_DONTWAIT);
    if (n > 0)
        f->answer_len += (size_t)n;
    f->answer[f->answer_len] = '\0';
    if (n == 0)
        loop_stop(f->loop, 0);
}

// Sends one request on a connected socket and returns the whole answer.
static const char *talk(struct fixture *f, int client, const char *method, const char *path,
                        const char *headers)
{
    char request[1024];
    int len =
        snprintf(request, sizeof(request),
                 "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%s\r\n", method, path, headers);
    assert_int_equal(send(client, request, (size_t)len, MSG_NOSIGNAL), len);
    f->client = client;
    f->answer_len = 0;
    assert_int_equal(loop_fd_new(f->loop, client, LOOP_READABLE, on_readable, f, &f->watch), 0);
    loop_timer_set(f->late, 10 * NS_PER_S, 0);
    assert_int_equal(loop_run(f->loop), 0);
    loop_timer_stop(f->late);
    loop_fd_free(f->watch);
    close(client);
    return f->answer;
}

static const char *ask(struct fixture *f, const char *method, const char *path, const char *headers)
{
    const struct sockaddr_in a = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)admin_port(f->admin)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&a, sizeof(a)), 0);
    return talk(f, client, method, path, headers);
}

static void assert_answer(const char *answer, unsigned status, const char *body)
{
    char line[32];
    (void)snprintf(line, sizeof(line), "HTTP/1.1 %u ", status);
    assert_memory_equal(answer, line, strlen(line));
    const char *end = strstr(answer, "\r\n\r\n");
    assert_non_null(end);
    assert_string_equal(end + 4, body);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_int_equal(loop_new(&f->loop), 0);
    assert_int_equal(loop_timer_new(f->loop, on_late, f, &f->late), 0);
    assert_int_equal(loop_timer_new(f->loop, on_finish, f, &f->finish), 0);
    struct error err = ERROR_INIT;
    assert_int_equal(start(f, "127.0.0.1:0", &err), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    admin_free(f->admin);
    loop_timer_free(f->late);
    loop_timer_free(f->finish);
    loop_free(f->loop);
    free(f);
    return 0;
}

// --- Requests ---

static void each_path_is_its_command(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *path;
        enum admin_command command;
    } cases[] = {{"/-/reload", ADMIN_RELOAD},
                 {"/-/release", ADMIN_RELEASE},
                 {"/-/attach", ADMIN_ATTACH},
                 {"/-/pause", ADMIN_PAUSE},
                 {"/-/resume", ADMIN_RESUME}};
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_answer(ask(f, "POST", cases[i].path, ""), 200, "ok\n");
        assert_int_equal(f->calls, i + 1);
        assert_int_equal(f->command, cases[i].command);
    }
    assert_answer(ask(f, "POST", "/-/reload", "Content-Length: 0\r\n"), 200, "ok\n");
}

static void a_refusal_is_409_with_its_reason(void **state)
{
    struct fixture *f = *state;
    f->result = -EINVAL;
    sv_copy(f->reason, sizeof(f->reason), SV("unknown field 'DCGM_FI_DEV_GPU_TMP'"));
    assert_answer(ask(f, "POST", "/-/reload", ""), 409,
                  "counters.csv:3:7: unknown field 'DCGM_FI_DEV_GPU_TMP'\n");
    f->reason[0] = '\0';
    assert_answer(ask(f, "POST", "/-/reload", ""), 409, "failed\n");
}

static void an_answer_may_come_later(void **state)
{
    struct fixture *f = *state;
    f->result = ADMIN_LATER;
    for (unsigned i = 0; i < 3; i++) {
        f->late_result = 0;
        assert_answer(ask(f, "POST", "/-/pause", ""), 200, "ok\n");
        f->late_result = -EBUSY;
        assert_answer(ask(f, "POST", "/-/resume", ""), 409, "profiling is in use\n");
    }
    assert_int_equal(f->calls, 6);
    on_finish(f); // nobody waits
}

static void take_turn(void *user)
{
    struct fixture *f = user;
    loop_stop(f->loop, f->calls > 0 ? 1 : 0);
}

// A client whose request waits, without reading.
static int ask_and_leave(struct fixture *f, const char *path)
{
    const struct sockaddr_in a = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)admin_port(f->admin)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&a, sizeof(a)), 0);
    char request[128];
    int len = snprintf(request, sizeof(request), "POST %s HTTP/1.1\r\nHost: x\r\n\r\n", path);
    assert_int_equal(send(client, request, (size_t)len, MSG_NOSIGNAL), len);
    struct loop_timer *turn;
    assert_int_equal(loop_timer_new(f->loop, take_turn, f, &turn), 0);
    for (unsigned i = 0; i < 2000 && f->calls == 0; i++) {
        loop_timer_set(turn, 5 * NS_PER_MS, 0);
        (void)loop_run(f->loop);
    }
    assert_int_equal(f->calls, 1);
    loop_timer_free(turn);
    return client;
}

static void one_request_waits_and_another_like_it_is_refused(void **state)
{
    struct fixture *f = *state;
    f->result = ADMIN_LATER;
    int client = ask_and_leave(f, "/-/pause");
    loop_timer_stop(f->finish);
    assert_answer(ask(f, "POST", "/-/resume", ""), 409, "another request like it is under way\n");
    f->result = 0;
    assert_answer(ask(f, "POST", "/-/reload", ""), 200, "ok\n"); // the loop goes on
    close(client);
    on_finish(f); // the client has gone
    f->calls = 0;
    f->result = ADMIN_LATER;
    assert_answer(ask(f, "POST", "/-/resume", ""), 200, "ok\n");
}

static void a_request_that_waits_does_not_hold_up_the_end(void **state)
{
    struct fixture *f = *state;
    f->result = ADMIN_LATER;
    int client = ask_and_leave(f, "/-/pause");
    loop_timer_stop(f->finish);
    admin_free(TAKE_PTR(f->admin));
    close(client);
}

static void other_methods_are_405(void **state)
{
    struct fixture *f = *state;
    static const char *const methods[] = {"GET", "PUT", "DELETE", "OPTIONS"};
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        const char *answer = ask(f, methods[i], "/-/reload", "");
        assert_answer(answer, 405, "use POST\n");
        assert_non_null(strstr(answer, "\r\nAllow: POST\r\n"));
    }
    assert_answer(ask(f, "HEAD", "/-/pause", ""), 405, "");
    assert_int_equal(f->calls, 0);
}

static void other_paths_are_404(void **state)
{
    struct fixture *f = *state;
    static const char *const paths[] = {"/",         "/metrics",   "/-/",     "/-/reload/",
                                        "/-/Reload", "/-/reloadx", "/-/relea"};
    for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
        assert_answer(ask(f, "POST", paths[i], ""), 404, "not found\n");
    assert_int_equal(f->calls, 0);
}

static void web_pages_are_refused(void **state)
{
    struct fixture *f = *state;
    assert_answer(ask(f, "POST", "/-/release", "Origin: http://evil.example\r\n"), 403,
                  "not for web pages\n");
    assert_answer(ask(f, "POST", "/-/release", "Origin: null\r\n"), 403, "not for web pages\n");
    assert_answer(ask(f, "POST", "/-/release", "Sec-Fetch-Site: cross-site\r\n"), 403,
                  "not for web pages\n");
    assert_int_equal(f->calls, 0);
}

// --- Addresses ---

static void only_loopback_and_unix_addresses_are_taken(void **state)
{
    struct fixture *f = *state;
    admin_free(f->admin);
    f->admin = NULL;
    static const char *const bad[] = {
        ":9402",
        "0.0.0.0:9402",
        "[::]:9402",
        "10.0.0.1:9402",
        "node1:9402",
        "127.0.0.1.example.com:9402",
        "128.0.0.1:9402",
        "126.255.255.255:9402",
        "[fe80::1]:9402",
        "[::2]:9402",
        "localhost.example.com:9402",
    };
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct error err = ERROR_INIT;
        char expected[256];
        (void)snprintf(
            expected, sizeof(expected),
            "admin address '%s' must be loopback (127.0.0.1:PORT, [::1]:PORT) or unix:/PATH",
            bad[i]);
        assert_int_equal(start(f, bad[i], &err), -EINVAL);
        assert_string_equal(err.text, expected);
        assert_null(f->admin);
    }
    static const char *const malformed[] = {"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "unix:"};
    for (size_t i = 0; i < ARRAY_SIZE(malformed); i++) {
        struct error err = ERROR_INIT;
        assert_int_equal(start(f, malformed[i], &err), -EINVAL);
        assert_true(err.text[0] != '\0');
    }
    static const char *const good[] = {"127.0.0.1:0", "127.5.0.1:0", "localhost:0"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct error err = ERROR_INIT;
        assert_int_equal(start(f, good[i], &err), 0);
        assert_true(admin_port(f->admin) > 0);
        admin_free(f->admin);
        f->admin = NULL;
    }
    struct error err = ERROR_INIT; // where there is IPv6 at all
    int r = start(f, "[::1]:0", &err);
    assert_true(r == 0 || r == -EAFNOSUPPORT || r == -EADDRNOTAVAIL);
}

static void a_unix_socket_is_for_its_owner(void **state)
{
    struct fixture *f = *state;
    admin_free(f->admin);
    f->admin = NULL;
    char dir[] = "/tmp/podgpu-test-XXXXXX", address[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(address, sizeof(address), "unix:%s/admin.sock", dir);
    mode_t before = umask(0);
    struct error err = ERROR_INIT;
    assert_int_equal(start(f, address, &err), 0);
    assert_int_equal(umask(before), 0); // as it was
    struct stat st;
    assert_int_equal(stat(address + 5, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(admin_port(f->admin), 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    sv_copy(a.sun_path, sizeof(a.sun_path), sv_from(address + 5));
    int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (const struct sockaddr *)&a, sizeof(a)), 0);
    assert_answer(talk(f, client, "POST", "/-/attach", ""), 200, "ok\n");
    assert_int_equal(f->command, ADMIN_ATTACH);
    admin_free(f->admin);
    f->admin = NULL;
    (void)unlink(address + 5);
    assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(each_path_is_its_command),
        T(a_refusal_is_409_with_its_reason),
        T(an_answer_may_come_later),
        T(one_request_waits_and_another_like_it_is_refused),
        T(a_request_that_waits_does_not_hold_up_the_end),
        T(other_methods_are_405),
        T(other_paths_are_404),
        T(web_pages_are_refused),
        T(only_loopback_and_unix_addresses_are_taken),
        T(a_unix_socket_is_for_its_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
