// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <errno.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "source/output.h"

static int fds[2];
static struct output o;

static int setup(void **state)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    int small = 4096;
    (void)setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small));
    output_init(&o, fds[0]);
    return 0;
}

static int teardown(void **state)
{
    output_deinit(&o);
    (void)close(fds[0]);
    if (fds[1] >= 0)
        (void)close(fds[1]);
    return 0;
}

// A frame of `bytes` in all whose payload is the number n over and over.
static int send_number(enum frame_type type, uint32_t n, size_t bytes)
{
    struct buf b = BUF_INIT(1u << 20);
    size_t start = frame_begin(&b, type);
    while (b.len < bytes)
        buf_add(&b, &n, sizeof(n));
    frame_end(&b, start);
    int rc = output_send(&o, type, &b);
    buf_deinit(&b);
    return rc;
}

static void read_all(char *out, size_t len)
{
    for (size_t at = 0; at < len;) {
        ssize_t n = recv(fds[1], out + at, len - at, MSG_DONTWAIT);
        if (n > 0)
            at += (size_t)n;
        else
            assert_int_equal(output_flush(&o), 0);
    }
}

struct seen {
    enum frame_type type;
    uint32_t number;
};

// Reads frames until nothing waits any more; checks that each is whole.
static size_t drain(struct seen *out, size_t most)
{
    size_t count = 0;
    for (;;) {
        struct frame_header h;
        ssize_t n = recv(fds[1], &h, sizeof(h), MSG_DONTWAIT | MSG_PEEK);
        if (n <= 0 && !output_is_pending(&o))
            return count;
        if (n <= 0) {
            assert_int_equal(output_flush(&o), 0);
            continue;
        }
        read_all((char *)&h, sizeof(h));
        char *body = malloc(h.bytes);
        assert_non_null(body);
        read_all(body, h.bytes);
        assert_true(count < most);
        out[count].type = (enum frame_type)h.type;
        memcpy(&out[count].number, body, sizeof(uint32_t));
        for (size_t i = 0; i + 4 <= h.bytes; i += 4)
            assert_memory_equal(body + i, body, 4);
        free(body);
        count++;
    }
}

static void frames_go_out_whole_and_in_order(void **state)
{
    struct seen seen[64];
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(send_number(i == 20 ? FRAME_EVENTS : FRAME_SAMPLE, i, 1000), 0);
    assert_true(output_is_pending(&o));
    assert_int_equal(drain(seen, 64), 40);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(seen[i].number, i);
    assert_int_equal(o.dropped, 0);
}

static void the_oldest_samples_make_room(void **state)
{
    static struct seen seen[200];
    assert_int_equal(send_number(FRAME_STATE, 1, 1000), 0);
    for (uint32_t i = 0; i < 150; i++)
        assert_int_equal(send_number(FRAME_SAMPLE, 100 + i, 1000), 0);
    assert_int_equal(send_number(FRAME_EVENTS, 2, 1000), 0);
    assert_int_equal(send_number(FRAME_ENTITIES, 3, 1000), 0);
    assert_true(o.count <= OUTPUT_FRAMES_MAX);
    assert_true(o.dropped > 0);
    size_t n = drain(seen, 200);
    assert_int_equal(n + o.dropped, 153);
    assert_int_equal(seen[0].type, FRAME_STATE);
    assert_int_equal(seen[n - 1].type, FRAME_ENTITIES);
    assert_int_equal(seen[n - 2].type, FRAME_EVENTS);
    assert_int_equal(seen[n - 3].number, 249); // the newest sample is there
    for (size_t i = 2; i < n - 2; i++)
        assert_true(seen[i].number > seen[i - 1].number);
}

static void bytes_are_bounded_too(void **state)
{
    for (uint32_t i = 0; i < 30; i++)
        assert_int_equal(send_number(FRAME_SAMPLE, i, 600000), 0);
    assert_true(o.bytes <= OUTPUT_BYTES_MAX);
    assert_true(o.dropped > 0);
}

static void without_samples_old_states_go_first_and_then_events(void **state)
{
    static struct seen seen[OUTPUT_FRAMES_MAX + 8];
    for (uint32_t i = 0; i < 10; i++)
        (void)send_number(FRAME_ENTITIES, i, 4000);
    for (uint32_t i = 0; i < 80; i++)
        (void)send_number(FRAME_EVENTS, 100 + i, 4000);
    size_t n = drain(seen, OUTPUT_FRAMES_MAX + 8);
    uint32_t last_entities = 0;
    for (size_t i = 0; i < n; i++)
        if (seen[i].type == FRAME_ENTITIES)
            last_entities = seen[i].number;
    assert_int_equal(last_entities, 9); // the last list is never dropped
    assert_int_equal(seen[n - 1].number, 179);
}

static void the_last_tables_and_answers_stay(void **state)
{
    static struct seen seen[OUTPUT_FRAMES_MAX + 8];
    uint32_t health = 0, peers = 0, answers = 0;
    (void)send_number(FRAME_CONTROL_DONE, 1, 4000);
    for (uint32_t i = 0; i < 200; i++)
        (void)send_number(i % 2 ? FRAME_HEALTH : FRAME_PEERS, i, 4000);
    for (uint32_t i = 0; i < 80; i++)
        (void)send_number(FRAME_EVENTS, 1000 + i, 4000);
    size_t n = drain(seen, OUTPUT_FRAMES_MAX + 8);
    for (size_t i = 0; i < n; i++) {
        answers += seen[i].type == FRAME_CONTROL_DONE;
        health = seen[i].type == FRAME_HEALTH ? seen[i].number : health;
        peers = seen[i].type == FRAME_PEERS ? seen[i].number : peers;
    }
    assert_int_equal(health, 199);
    assert_int_equal(peers, 198);
    assert_int_equal(answers, 1);
    assert_int_equal(seen[n - 1].number, 1079);
}

static void a_gone_peer_is_told_once_and_for_all(void **state)
{
    (void)close(fds[1]);
    fds[1] = -1;
    assert_int_equal(send_number(FRAME_SAMPLE, 1, 100), -EPIPE);
    assert_int_equal(send_number(FRAME_SAMPLE, 2, 100), -EPIPE);
    assert_int_equal(output_flush(&o), -EPIPE);
}

static void a_failed_buffer_is_dropped(void **state)
{
    struct buf b = BUF_INIT(4);
    size_t start = frame_begin(&b, FRAME_SAMPLE);
    frame_end(&b, start);
    assert_int_equal(output_send(&o, FRAME_SAMPLE, &b), 0);
    assert_int_equal(o.dropped, 1);
    buf_deinit(&b);
}

// What is left of usage follows on each other: the newest goes first, and never for its own kind
// something else.
static void of_usage_the_newest_is_dropped_and_it_is_told(void **state)
{
    (void)state;
    static struct seen seen[OUTPUT_FRAMES_MAX + 8];
    assert_int_equal(send_number(FRAME_EVENTS, 1000, 1000), 0);
    for (uint32_t i = 0; i < 150; i++)
        assert_int_equal(send_number(FRAME_USAGE, i, 1000), 0);
    assert_true(output_take_usage_lost(&o));
    assert_false(output_take_usage_lost(&o));
    uint64_t dropped = output_get_dropped(&o);
    assert_int_equal(send_number(FRAME_EVENTS, 2000, 1000), 0);
    assert_int_equal(output_get_dropped(&o), dropped + 1);
    assert_true(output_take_usage_lost(&o));
    size_t n = drain(seen, OUTPUT_FRAMES_MAX + 8);
    assert_int_equal(seen[0].number, 1000);
    assert_int_equal(seen[n - 1].number, 2000);
    for (size_t i = 1; i < n - 1; i++) {
        assert_int_equal(seen[i].type, FRAME_USAGE);
        assert_int_equal(seen[i].number, i - 1);
    }
    assert_int_equal(n + dropped + 1, 152);
}

static void samples_are_dropped_before_usage(void **state)
{
    (void)state;
    static struct seen seen[OUTPUT_FRAMES_MAX + 8];
    for (uint32_t i = 0; i < 150; i++)
        assert_int_equal(send_number(i % 5 ? FRAME_SAMPLE : FRAME_USAGE, i, 1000), 0);
    assert_false(output_take_usage_lost(&o));
    size_t n = drain(seen, OUTPUT_FRAMES_MAX + 8), usage = 0;
    for (size_t i = 0; i < n; i++)
        usage += seen[i].type == FRAME_USAGE;
    assert_int_equal(usage, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(frames_go_out_whole_and_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(of_usage_the_newest_is_dropped_and_it_is_told, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(samples_are_dropped_before_usage, setup, teardown),
        cmocka_unit_test_setup_teardown(the_oldest_samples_make_room, setup, teardown),
        cmocka_unit_test_setup_teardown(bytes_are_bounded_too, setup, teardown),
        cmocka_unit_test_setup_teardown(without_samples_old_states_go_first_and_then_events, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_last_tables_and_answers_stay, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gone_peer_is_told_once_and_for_all, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_buffer_is_dropped, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
