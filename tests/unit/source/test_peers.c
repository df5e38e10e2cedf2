// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fake_nvml.h"
#include "source/nvml_peers.h"

static struct nvml_devices devices;
static struct nvml_peers peers;
static struct buf frame;
static struct frame_reader reader;

static int setup(void **state)
{
    fake_reset();
    fake.gpus = 3;
    devices = (struct nvml_devices){0};
    frame = BUF_INIT(LIMIT_FRAME_BYTES);
    nvml_peers_init(&peers);
    frame_reader_init(&reader);
    return 0;
}

static int teardown(void **state)
{
    nvml_peers_deinit(&peers);
    nvml_devices_deinit(&fake.n, &devices);
    frame_reader_deinit(&reader);
    buf_deinit(&frame);
    return 0;
}

static void list(void)
{
    bool changed;
    assert_int_equal(nvml_devices_enumerate(&fake.n, &devices, &changed), NVML_SUCCESS);
    devices.generation++;
}

static void watch(uint64_t now_ns)
{
    static const uint16_t fields[] = {150, FIELD_EXP_P2P};
    const struct frame_watch head = {
        .watch_id = 1, .count = 2, .period_ns = {1, 1, 30 * NS_PER_S, 1}};
    nvml_peers_watch(&peers, &head, fields, now_ns);
}

static void feed(const char *bytes, size_t length)
{
    while (length > 0) {
        char *space;
        size_t room;
        assert_int_equal(frame_reader_space(&reader, &space, &room), 0);
        room = room < length ? room : length;
        memcpy(space, bytes, room);
        frame_reader_commit(&reader, room);
        bytes += room;
        length -= room;
    }
}

// The PEERS frame as the exporter reads it.
static struct frame read_frame(void)
{
    struct frame f;
    const char *what = "";
    struct buf entities = BUF_INIT(LIMIT_FRAME_BYTES);
    const struct frame_entities head = {devices.generation, devices.count};
    size_t start = frame_begin(&entities, FRAME_ENTITIES);
    buf_add(&entities, &head, sizeof(head));
    for (uint32_t i = 0; i < devices.count; i++)
        buf_add(&entities, &devices.list[i].record, sizeof(devices.list[i].record));
    frame_end(&entities, start);
    feed(entities.data, entities.len);
    buf_deinit(&entities);
    assert_int_equal(frame_reader_next(&reader, &f, &what), 1);
    assert_int_equal(frame.error, 0);
    feed(frame.data, frame.len);
    assert_int_equal(frame_reader_next(&reader, &f, &what), 1);
    assert_int_equal(f.type, FRAME_PEERS);
    return f;
}

// Slices until the round is done; a slice is at least one call.
static void read_round(void)
{
    for (unsigned i = 0; i < 1000; i++)
        if (nvml_peers_read(&peers, &fake.n, &devices, &frame))
            return;
    fail_msg("no round is ever done");
}

static void each_ordered_pair_is_asked_once(void **state)
{
    list();
    assert_true(nvml_peers_due_ns(&peers) == UINT64_MAX);
    watch(NS_PER_S);
    assert_true(nvml_peers_due_ns(&peers) == NS_PER_S);
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            fake.p2p_status[i][j] = i + j;
    uint64_t before_ns = clock_mono_ns();
    read_round();
    assert_int_equal(fake.p2p_calls, 6);
    struct frame f = read_frame();
    static const struct frame_peer want[] = {
        {0, 1, 1, 0}, {0, 2, 2, 0}, {1, 0, 1, 0}, {1, 2, 3, 0}, {2, 0, 2, 0}, {2, 1, 3, 0},
    };
    assert_int_equal(f.as.peers.head->count, ARRAY_SIZE(want));
    assert_memory_equal(f.as.peers.list, want, sizeof(want));
    assert_in_range(f.as.peers.head->taken_ns, before_ns, clock_mono_ns());
    assert_in_range(nvml_peers_due_ns(&peers), before_ns + 1, clock_mono_ns() + 30 * NS_PER_S);
    assert_int_equal(nvml_peers_due_ns(&peers) % (30 * NS_PER_S), 0);
}

static void what_is_not_watched_is_not_asked(void **state)
{
    static const uint16_t fields[] = {150};
    const struct frame_watch head = {.watch_id = 2, .count = 1, .period_ns = {1, 1, 1, 1}};
    list();
    watch(0);
    nvml_peers_watch(&peers, &head, fields, 0);
    assert_true(nvml_peers_due_ns(&peers) == UINT64_MAX);
    nvml_peers_reset(&peers, 0);
    assert_true(nvml_peers_due_ns(&peers) == UINT64_MAX);
}

static void gpus_that_are_not_up_are_left_out(void **state)
{
    list();
    watch(0);
    assert_true(nvml_devices_mark(&devices, 1, FRAME_ENTITY_LOST));
    read_round();
    assert_int_equal(fake.p2p_calls, 2);
    struct frame f = read_frame();
    static const struct frame_peer want[] = {{0, 2, 0, 0}, {2, 0, 0, 0}};
    assert_int_equal(f.as.peers.head->count, 2);
    assert_memory_equal(f.as.peers.list, want, sizeof(want));
}

static void instances_are_no_peers(void **state)
{
    fake.gpus = 2;
    fake_add_slot(0, 0, 1, 1, 10240, "MIG-1", "NVIDIA Fake MIG 1g.10gb");
    list();
    assert_int_equal(devices.count, 3);
    watch(0);
    read_round();
    struct frame f = read_frame();
    static const struct frame_peer want[] = {{0, 2, 0, 0}, {2, 0, 0, 0}};
    assert_int_equal(f.as.peers.head->count, 2);
    assert_memory_equal(f.as.peers.list, want, sizeof(want));
}

static void answers_that_are_none_are_mended_or_left_out(void **state)
{
    static const struct {
        nvmlReturn_t result;
        int status;
        uint32_t count, want;
    } cases[] = {
        {NVML_SUCCESS, 4, 2, 4},
        {NVML_SUCCESS, 6, 2, 6},
        {NVML_SUCCESS, 7, 2, 6},
        {NVML_SUCCESS, -1, 2, 6},
        {NVML_ERROR_NOT_SUPPORTED, 0, 2, 5},
        {NVML_ERROR_GPU_IS_LOST, 0, 0, 0},
        {NVML_ERROR_UNKNOWN, 0, 0, 0},
    };
    fake.gpus = 2;
    list();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        watch(0);
        fake.p2p_result = cases[i].result;
        fake.p2p_status[0][1] = fake.p2p_status[1][0] = cases[i].status;
        read_round();
        devices.generation++;
        nvml_peers_reset(&peers, 0);
        read_round();
        struct frame f = read_frame();
        assert_int_equal(f.as.peers.head->count, cases[i].count);
        for (uint32_t n = 0; n < cases[i].count; n++)
            assert_int_equal(f.as.peers.list[n].status, cases[i].want);
    }
}

static void a_single_gpu_has_no_pairs_and_says_so(void **state)
{
    fake.gpus = 1;
    list();
    watch(0);
    read_round();
    struct frame f = read_frame();
    assert_int_equal(f.as.peers.head->count, 0);
    assert_int_equal(fake.p2p_calls, 0);
}

static void without_the_function_nothing_is_said_until_the_list_is_new(void **state)
{
    list();
    watch(0);
    fake.n.fn.nvmlDeviceGetP2PStatus = NULL;
    assert_false(nvml_peers_read(&peers, &fake.n, &devices, &frame));
    assert_true(nvml_peers_due_ns(&peers) == UINT64_MAX);
    nvml_peers_reset(&peers, 5);
    assert_true(nvml_peers_due_ns(&peers) == 5);
}

static void a_slow_driver_is_asked_slice_by_slice_and_left_alone_between(void **state)
{
    fake.gpus = 2;
    fake.gpu[0].delay_ms = fake.gpu[1].delay_ms = 15; // each pair: 30 ms
    list();
    watch(0);
    uint64_t before_ns = clock_mono_ns();
    assert_false(nvml_peers_read(&peers, &fake.n, &devices, &frame));
    uint64_t took_ns = clock_mono_ns() - before_ns;
    assert_int_equal(fake.p2p_calls, 1);
    assert_true(nvml_peers_due_ns(&peers) >= before_ns + 4 * 30 * NS_PER_MS);
    assert_true(nvml_peers_due_ns(&peers) <= before_ns + 4 * took_ns);
    read_round();
    assert_int_equal(fake.p2p_calls, 2);
}

static void a_new_list_begins_the_round_anew(void **state)
{
    fake.gpu[0].delay_ms = 15;
    list();
    watch(0);
    assert_false(nvml_peers_read(&peers, &fake.n, &devices, &frame));
    fake.gpus = 2;
    fake.gpu[0].delay_ms = 0;
    list();
    nvml_peers_reset(&peers, 0);
    read_round();
    struct frame f = read_frame();
    assert_int_equal(f.as.peers.head->count, 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_ordered_pair_is_asked_once),
        TEST(what_is_not_watched_is_not_asked),
        TEST(gpus_that_are_not_up_are_left_out),
        TEST(instances_are_no_peers),
        TEST(answers_that_are_none_are_mended_or_left_out),
        TEST(a_single_gpu_has_no_pairs_and_says_so),
        TEST(without_the_function_nothing_is_said_until_the_list_is_new),
        TEST(a_slow_driver_is_asked_slice_by_slice_and_left_alone_between),
        TEST(a_new_list_begins_the_round_anew),
    };
    return cmocka_run_group_tests_name("peers", tests, NULL, NULL);
}
