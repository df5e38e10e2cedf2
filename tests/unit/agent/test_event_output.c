// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/event_output.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"

struct fixture {
    char dir[64], path[96];
    struct loop *loop;
    struct loop_timer *late;
    struct event_output *output;
    unsigned drained;
};

static void on_late(void *user)
{
    struct fixture *f = user;
    loop_stop(f->loop, 1);
}

static void on_drained(void *user)
{
    struct fixture *f = user;
    f->drained++;
    loop_stop(f->loop, 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/podgpu-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof(f->path), "%s/events", f->dir);
    assert_int_equal(loop_new(&f->loop), 0);
    assert_int_equal(loop_timer_new(f->loop, on_late, f, &f->late), 0);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    event_output_free(f->output);
    loop_timer_free(f->late);
    loop_free(f->loop);
    (void)unlink(f->path);
    (void)rmdir(f->dir);
    free(f);
    return 0;
}

static void open_output(struct fixture *f, enum cw_output_kind kind, char *where)
{
    const struct cw_output to = {kind, where};
    struct error err = ERROR_INIT;
    assert_int_equal(event_output_new(f->loop, &to, &f->output, &err), 0);
}

static struct event_output_stats stats_of(const struct fixture *f)
{
    struct event_output_stats s;
    event_output_get_stats(f->output, &s);
    return s;
}

static void drain(struct fixture *f)
{
    loop_timer_set(f->late, 20 * NS_PER_S, 0);
    event_output_drain(f->output, on_drained, f);
    if (f->drained == 0)
        assert_int_equal(loop_run(f->loop), 0);
    assert_int_equal(f->drained, 1);
}

static void lines_reach_a_file_in_order(void **state)
{
    struct fixture *f = *state;
    open_output(f, CW_OUTPUT_FILE, f->path);
    event_output_add(f->output, SV("{\"a\":1}"), 2);
    event_output_add(f->output, SV("{\"b\":2}"), 3);
    drain(f);
    struct buf text = BUF_INIT(4096);
    assert_int_equal(file_read(f->path, &text, NULL), 0);
    assert_string_equal(buf_cstr(&text), "{\"a\":1}\n{\"b\":2}\n");
    buf_deinit(&text);
    struct event_output_stats s = stats_of(f);
    assert_int_equal(s.events, 2);
    assert_int_equal(s.written_events, 2);
    assert_int_equal(s.written_samples, 5);
    assert_int_equal(s.waiting_bytes, 0);
}

static void an_empty_output_is_drained_at_once(void **state)
{
    struct fixture *f = *state;
    open_output(f, CW_OUTPUT_FILE, f->path);
    event_output_drain(f->output, on_drained, f);
    assert_int_equal(f->drained, 1);
}

static void a_file_that_cannot_be_made_is_an_error_that_names_it(void **state)
{
    struct fixture *f = *state;
    char where[] = "/nowhere/at/all";
    const struct cw_output to = {CW_OUTPUT_FILE, where};
    struct error err = ERROR_INIT;
    assert_int_equal(event_output_new(f->loop, &to, &f->output, &err), -ENOENT);
    assert_non_null(strstr(err.text, where));
}

// Nobody listens on port 9 of this address.
static void what_finds_no_room_is_counted_as_lost_and_the_rest_waits(void **state)
{
    struct fixture *f = *state;
    char where[] = "127.0.0.1:9";
    open_output(f, CW_OUTPUT_TCP, where);
    const size_t bytes = 1u << 20, most = LIMIT_EVENT_OUTPUT_BYTES / (bytes + 1);
    char *line = malloc(bytes);
    memset(line, 'x', bytes);
    for (size_t i = 0; i < most + 3; i++)
        event_output_add(f->output, (struct sv){line, bytes}, 7);
    event_output_add(f->output, SV("short"), 1); // still finds room
    free(line);
    struct event_output_stats s = stats_of(f);
    assert_int_equal(s.events, most + 4);
    assert_int_equal(s.lost_events, 3);
    assert_int_equal(s.lost_samples, 21);
    assert_int_equal(s.written_events, 0);
    assert_int_equal(s.waiting_bytes, most * (bytes + 1) + 6);
    assert_int_equal(s.samples, 7 * (most + 3) + 1);
}

static void a_server_that_is_not_there_is_a_failure_that_is_told(void **state)
{
    struct fixture *f = *state;
    char where[] = "127.0.0.1:9";
    open_output(f, CW_OUTPUT_TCP, where);
    event_output_add(f->output, SV("x"), 1);
    for (unsigned i = 0; i < 200 && stats_of(f).failures < 2; i++) {
        loop_timer_set(f->late, 50 * NS_PER_MS, 0);
        assert_int_equal(loop_run(f->loop), 1);
    }
    assert_true(stats_of(f).failures >= 2);
    assert_string_equal(stats_of(f).last_error, "Connection refused");
}

// Nothing waits for the loop there.
static void one_turn_may_bring_more_than_there_is_room_for(void **state)
{
    struct fixture *f = *state;
    static char line[64u << 10];
    memset(line, 'x', sizeof(line));
    open_output(f, CW_OUTPUT_FILE, f->path);
    size_t lines = 2 * (LIMIT_EVENT_OUTPUT_BYTES / sizeof(line));
    for (size_t i = 0; i < lines; i++)
        event_output_add(f->output, (struct sv){line, sizeof(line)}, 1);
    drain(f);
    struct stat st;
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_size, lines * (sizeof(line) + 1));
    assert_int_equal(stats_of(f).written_events, lines);
    assert_int_equal(stats_of(f).lost_events, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(lines_reach_a_file_in_order),
        T(an_empty_output_is_drained_at_once),
        T(a_file_that_cannot_be_made_is_an_error_that_names_it),
        T(what_finds_no_room_is_counted_as_lost_and_the_rest_waits),
        T(one_turn_may_bring_more_than_there_is_room_for),
        T(a_server_that_is_not_there_is_a_failure_that_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
