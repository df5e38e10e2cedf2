// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fake_nvml.h"
#include "source/nvml_events.h"

// --- pairing ---

static struct xid_sighting event_at(uint64_t ns, uint32_t key, uint32_t xid, uint32_t gi)
{
    return (struct xid_sighting){.bus_key = key,
                                 .xid = xid,
                                 .gpu_instance_id = gi,
                                 .origin = FRAME_EVENT_NVML,
                                 .taken_ns = ns,
                                 .wall_ns = ns + 1};
}

static struct xid_sighting line_at(uint64_t ns, uint32_t key, uint32_t xid)
{
    struct xid_sighting s = {.bus_key = key,
                             .xid = xid,
                             .gpu_instance_id = UINT32_MAX,
                             .origin = FRAME_EVENT_KMSG,
                             .taken_ns = ns,
                             .wall_ns = ns + 1,
                             .text = "Xid"};
    return s;
}

static void a_line_waits_for_its_event_and_gives_it_its_text(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting line = line_at(NS_PER_S, 1, 79), event = event_at(2 * NS_PER_S, 1, 79, 5),
                        out;
    assert_false(xid_pairs_line(&p, &line, true, &out));
    assert_int_equal(xid_pairs_due_ns(&p), NS_PER_S + XID_PAIR_NS);
    xid_pairs_event(&p, &event, &out);
    assert_int_equal(out.origin, FRAME_EVENT_NVML);
    assert_int_equal(out.gpu_instance_id, 5);
    assert_int_equal(out.taken_ns, NS_PER_S);
    assert_string_equal(out.text, "Xid");
    assert_int_equal(xid_pairs_due_ns(&p), UINT64_MAX);
}

static void a_line_behind_its_event_is_not_told_again(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting event = event_at(NS_PER_S, 1, 79, UINT32_MAX), out;
    struct xid_sighting line = line_at(NS_PER_S + XID_PAIR_NS - 1, 1, 79);
    xid_pairs_event(&p, &event, &out);
    assert_false(xid_pairs_line(&p, &line, true, &out));
    assert_int_equal(p.line_count, 0);
    // The same a moment later is another error.
    assert_false(xid_pairs_line(&p, &line, true, &out));
    assert_int_equal(p.line_count, 1);
}

static void a_line_too_long_behind_an_event_is_another_error(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting event = event_at(NS_PER_S, 1, 79, UINT32_MAX), out;
    struct xid_sighting line = line_at(NS_PER_S + XID_PAIR_NS, 1, 79);
    xid_pairs_event(&p, &event, &out);
    assert_true(xid_pairs_line(&p, &line, false, &out));
}

static void other_gpus_and_codes_do_not_pair(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting line = line_at(NS_PER_S, 1, 79), out;
    struct xid_sighting other_code = event_at(NS_PER_S, 1, 48, UINT32_MAX);
    struct xid_sighting other_gpu = event_at(NS_PER_S, 2, 79, UINT32_MAX);
    assert_false(xid_pairs_line(&p, &line, true, &out));
    xid_pairs_event(&p, &other_code, &out);
    assert_string_equal(out.text, "");
    xid_pairs_event(&p, &other_gpu, &out);
    assert_string_equal(out.text, "");
    assert_int_equal(p.line_count, 1);
}

static void a_burst_of_lines_and_events_is_counted_once_each(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting out;
    unsigned told = 0;
    for (unsigned i = 0; i < 3; i++) {
        struct xid_sighting line = line_at(NS_PER_S + i, 1, 31);
        told += xid_pairs_line(&p, &line, true, &out);
    }
    for (unsigned i = 0; i < 3; i++, told++) {
        struct xid_sighting event = event_at(2 * NS_PER_S, 1, 31, UINT32_MAX);
        xid_pairs_event(&p, &event, &out);
        assert_string_equal(out.text, "Xid");
    }
    while (xid_pairs_expire(&p, 100 * NS_PER_S, &out))
        told++;
    assert_int_equal(told, 3);
}

static void a_line_whose_event_does_not_come_is_told_alone(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting line = line_at(NS_PER_S, 1, 79), out;
    assert_false(xid_pairs_line(&p, &line, true, &out));
    assert_false(xid_pairs_expire(&p, NS_PER_S + XID_PAIR_NS - 1, &out));
    assert_true(xid_pairs_expire(&p, NS_PER_S + XID_PAIR_NS, &out));
    assert_int_equal(out.origin, FRAME_EVENT_KMSG);
    assert_false(xid_pairs_expire(&p, UINT64_MAX, &out));
}

static void lines_beyond_the_room_are_told_at_once(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting out;
    for (uint32_t i = 0; i < XID_PAIRS_MAX; i++) {
        struct xid_sighting line = line_at(NS_PER_S, 1, i + 1);
        assert_false(xid_pairs_line(&p, &line, true, &out));
    }
    struct xid_sighting line = line_at(NS_PER_S, 1, 1000);
    assert_true(xid_pairs_line(&p, &line, true, &out));
    assert_int_equal(out.xid, 1);
    assert_int_equal(p.line_count, XID_PAIRS_MAX);
    for (uint32_t i = 0; i < 2 * XID_PAIRS_MAX; i++) {
        struct xid_sighting event = event_at(NS_PER_S, 9, i + 1, UINT32_MAX);
        xid_pairs_event(&p, &event, &out);
    }
    assert_int_equal(p.event_count, XID_PAIRS_MAX);
}

// --- board and events ---

static int fds[2];
static struct output output;
static struct xid_board board;
static struct nvml_devices d;
static struct nvml_events events;
static struct frame_reader reader;

static int setup(void **state)
{
    fake_reset();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    output_init(&output, fds[0]);
    xid_board_init(&board, &output);
    frame_reader_init(&reader);
    d = (struct nvml_devices){0};
    events = (struct nvml_events){0};
    return 0;
}

static int teardown(void **state)
{
    nvml_events_disarm(&fake.n, &events, &d);
    nvml_devices_deinit(&fake.n, &d);
    xid_board_deinit(&board);
    output_deinit(&output);
    frame_reader_deinit(&reader);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return 0;
}

static void announce(void)
{
    bool changed;
    static struct buf frame = BUF_INIT(LIMIT_FRAME_BYTES);
    assert_int_equal(nvml_devices_enumerate(&fake.n, &d, &changed), NVML_SUCCESS);
    d.generation++;
    struct frame_entities head = {.generation = d.generation, .count = d.count};
    buf_reset(&frame);
    size_t start = frame_begin(&frame, FRAME_ENTITIES);
    buf_add(&frame, &head, sizeof(head));
    for (uint32_t i = 0; i < d.count; i++)
        buf_add(&frame, &d.list[i].record, sizeof(d.list[i].record));
    frame_end(&frame, start);
    assert_int_equal(xid_board_send_entities(&board, &d, &frame), 0);
    buf_deinit(&frame);
    nvml_events_arm(&fake.n, &events, &d);
    xid_board_set_armed(&board, events.armed);
}

// The next EVENTS frame that lies in the socket, copied; false when there is none.
static bool next_event(struct frame_event *out)
{
    struct frame f;
    const char *what = "";
    for (;;) {
        int rc = frame_reader_next(&reader, &f, &what);
        if (rc < 0)
            fail_msg("%s", what);
        if (rc > 0 && f.type == FRAME_EVENTS) {
            assert_int_equal(f.as.events.head->count, 1);
            *out = f.as.events.list[0];
            return true;
        }
        if (rc > 0)
            continue;
        char *space;
        size_t room;
        assert_int_equal(frame_reader_space(&reader, &space, &room), 0);
        ssize_t n = recv(fds[1], space, room, MSG_DONTWAIT);
        if (n <= 0)
            return false;
        frame_reader_commit(&reader, (size_t)n);
    }
}

static void push_event(unsigned gpu, unsigned long long type, unsigned xid, unsigned gi)
{
    fake.events[fake.event_count++] = (nvmlEventData_t){.device = fake_device(gpu),
                                                        .eventType = type,
                                                        .eventData = xid,
                                                        .gpuInstanceId = gi,
                                                        .computeInstanceId = gi};
}

static void xid_is_registered_first_and_alone(void **state)
{
    fake.gpus = 2;
    fake.supported_events = 0x8;
    announce();
    assert_true(events.armed);
    assert_true(d.list[0].xid_armed && d.list[1].xid_armed);
    assert_int_equal(fake.registered_events[0], 0x8);
    fake.supported_events = 0x108;
    d.list[0].xid_armed = false;
    nvml_events_arm(&fake.n, &events, &d);
    assert_int_equal(fake.registered_events[0], 0x108);
}

static void a_gpu_without_xid_events_leaves_the_others_armed(void **state)
{
    fake.gpus = 1;
    fake.supported_events = 0x1;
    announce();
    assert_false(events.armed);
    assert_false(d.list[0].xid_armed);
    assert_true(fake.set_alive);
}

static void a_driver_that_fails_to_register_is_left_without_a_set(void **state)
{
    fake.register_result = NVML_ERROR_UNKNOWN;
    announce();
    assert_false(events.armed);
    assert_false(fake.set_alive);
    assert_null(events.set);
}

static void events_reach_the_exporter_and_the_last_code_is_kept(void **state)
{
    fake.gpus = 2;
    announce();
    push_event(1, 8, 79, UINT32_MAX);
    push_event(0, 8, 13, UINT32_MAX);
    assert_int_equal(nvml_events_poll(&fake.n, &events, &d, &board), 0);
    struct frame_event e;
    assert_true(next_event(&e));
    assert_int_equal(e.entity, 1);
    assert_int_equal(e.xid, 79);
    assert_int_equal(e.origin, FRAME_EVENT_NVML);
    assert_int_equal(e.gpu_instance_id, UINT32_MAX);
    assert_true(e.taken_ns > 0 && e.wall_ns > 0);
    assert_true(next_event(&e));
    assert_int_equal(e.entity, 0);
    assert_false(next_event(&e));
    assert_int_equal(xid_board_last(&board, 0), 13);
    assert_int_equal(xid_board_last(&board, 1), 79);
    assert_int_equal(xid_board_last(&board, 2), 0);
}

static void an_attributed_code_belongs_to_its_instance_and_others_to_all(void **state)
{
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    fake_add_slot(0, 1, 8, 1, 9728, "MIG-b", "NVIDIA Fake MIG 1g.10gb");
    announce();
    push_event(0, 8, 43, 8);
    (void)nvml_events_poll(&fake.n, &events, &d, &board);
    assert_int_equal(xid_board_last(&board, 0), 43);
    assert_int_equal(xid_board_last(&board, 1), 0);
    assert_int_equal(xid_board_last(&board, 2), 43);
    push_event(0, 8, 79, UINT32_MAX);
    (void)nvml_events_poll(&fake.n, &events, &d, &board);
    assert_int_equal(xid_board_last(&board, 0), 79);
    assert_int_equal(xid_board_last(&board, 1), 79);
    assert_int_equal(xid_board_last(&board, 2), 79);
    // Codes stay with their GPU and instance when the list changes.
    fake.gpu[0].slots[0].exists = false;
    announce();
    assert_int_equal(d.count, 2);
    assert_int_equal(xid_board_last(&board, 1), 79);
}

static nvmlReturn_t get_index(nvmlDevice_t device, unsigned int *index)
{
    *index = device->gpu;
    return NVML_SUCCESS;
}

static void an_event_with_another_handle_is_told_by_its_index(void **state)
{
    static struct nvmlDevice_st other = {1, -1};
    fake.gpus = 2;
    announce();
    push_event(0, 8, 31, UINT32_MAX);
    fake.events[0].device = &other;
    (void)nvml_events_poll(&fake.n, &events, &d, &board);
    struct frame_event e;
    assert_false(next_event(&e)); // this driver cannot say
    fake.n.fn.nvmlDeviceGetIndex = get_index;
    push_event(0, 8, 31, UINT32_MAX);
    fake.events[0].device = &other;
    (void)nvml_events_poll(&fake.n, &events, &d, &board);
    assert_true(next_event(&e));
    assert_int_equal(e.entity, 1);
}

static void a_gpu_without_a_bus_id_has_events_all_the_same(void **state)
{
    fake.n.fn.nvmlDeviceGetPciInfo = NULL;
    announce();
    push_event(0, 8, 79, UINT32_MAX);
    (void)nvml_events_poll(&fake.n, &events, &d, &board);
    struct frame_event e;
    assert_true(next_event(&e));
    assert_int_equal(e.xid, 79);
    assert_int_equal(xid_board_last(&board, 0), 79);
}

static void the_first_generation_of_the_wait_is_the_fallback(void **state)
{
    announce();
    push_event(0, 8, 31, 5);
    fake.n.fn.nvmlEventSetWait = fake.n.fn.nvmlEventSetWait_v2;
    fake.n.fn.nvmlEventSetWait_v2 = NULL;
    (void)nvml_events_poll(&fake.n, &events, &d, &board);
    struct frame_event e;
    assert_true(next_event(&e));
    assert_int_equal(e.xid, 31);
    assert_true(events.first_generation);
}

static void mig_changes_and_lost_gpus_are_reported(void **state)
{
    announce();
    push_event(0, 0x100, 0, UINT32_MAX);
    assert_int_equal(nvml_events_poll(&fake.n, &events, &d, &board), NVML_EVENTS_MIG_CHANGED);
    fake.wait_result = NVML_ERROR_GPU_IS_LOST;
    assert_int_equal(nvml_events_poll(&fake.n, &events, &d, &board), NVML_EVENTS_GPU_LOST);
    fake.wait_result = NVML_ERROR_UNINITIALIZED;
    assert_int_equal(nvml_events_poll(&fake.n, &events, &d, &board), NVML_EVENTS_UNINITIALIZED);
}

static void a_wait_that_keeps_failing_is_given_up(void **state)
{
    announce();
    fake.wait_result = NVML_ERROR_UNKNOWN;
    for (unsigned i = 0; i < 59; i++)
        (void)nvml_events_poll(&fake.n, &events, &d, &board);
    assert_true(events.armed);
    (void)nvml_events_poll(&fake.n, &events, &d, &board);
    assert_false(events.armed);
    assert_false(d.list[0].xid_armed);
}

static void a_kernel_line_waits_only_while_events_are_armed(void **state)
{
    struct sv line = SV("6,1,2,-;NVRM: Xid (PCI:0000:10:00): 119, pid=1, name=a, Timeout");
    struct frame_event e;
    announce();
    assert_int_equal(xid_board_line(&board, line), 0);
    assert_false(next_event(&e));
    assert_int_equal(xid_board_expire(&board, clock_mono_ns() + 2 * NS_PER_S), 0);
    assert_true(next_event(&e));
    assert_int_equal(e.origin, FRAME_EVENT_KMSG);
    assert_int_equal(e.xid, 119);
    assert_string_equal(e.text, "Xid (PCI:0000:10:00): 119, pid=1, name=a, Timeout");

    xid_board_set_armed(&board, false);
    assert_int_equal(xid_board_line(&board, line), 0);
    assert_true(next_event(&e));
}

static void a_line_of_a_gpu_we_do_not_have_is_dropped(void **state)
{
    struct frame_event e;
    announce();
    xid_board_set_armed(&board, false);
    assert_int_equal(xid_board_line(&board, SV("NVRM: Xid (PCI:0000:77:00): 79, x")), 0);
    assert_false(next_event(&e));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_waits_for_its_event_and_gives_it_its_text),
        cmocka_unit_test(a_line_behind_its_event_is_not_told_again),
        cmocka_unit_test(a_line_too_long_behind_an_event_is_another_error),
        cmocka_unit_test(other_gpus_and_codes_do_not_pair),
        cmocka_unit_test(a_burst_of_lines_and_events_is_counted_once_each),
        cmocka_unit_test(a_line_whose_event_does_not_come_is_told_alone),
        cmocka_unit_test(lines_beyond_the_room_are_told_at_once),
        cmocka_unit_test_setup_teardown(xid_is_registered_first_and_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gpu_without_xid_events_leaves_the_others_armed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_driver_that_fails_to_register_is_left_without_a_set,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(events_reach_the_exporter_and_the_last_code_is_kept, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            an_attributed_code_belongs_to_its_instance_and_others_to_all, setup, teardown),
        cmocka_unit_test_setup_teardown(an_event_with_another_handle_is_told_by_its_index, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_gpu_without_a_bus_id_has_events_all_the_same, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(the_first_generation_of_the_wait_is_the_fallback, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(mig_changes_and_lost_gpus_are_reported, setup, teardown),
        cmocka_unit_test_setup_teardown(a_wait_that_keeps_failing_is_given_up, setup, teardown),
        cmocka_unit_test_setup_teardown(a_kernel_line_waits_only_while_events_are_armed, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_line_of_a_gpu_we_do_not_have_is_dropped, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
