// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
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
                                 .count = 1,
                                 .taken_ns = ns,
                                 .wall_ns = ns + 1};
}

static struct xid_sighting line_at(uint64_t ns, uint32_t key, uint32_t xid)
{
    struct xid_sighting s = {.bus_key = key,
                             .xid = xid,
                             .gpu_instance_id = UINT32_MAX,
                             .origin = FRAME_EVENT_KMSG,
                             .count = 1,
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
    assert_true(xid_pairs_event(&p, &event, &out));
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
    assert_true(xid_pairs_event(&p, &event, &out));
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
    assert_true(xid_pairs_event(&p, &event, &out));
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
    assert_true(xid_pairs_event(&p, &other_code, &out));
    assert_string_equal(out.text, "");
    assert_true(xid_pairs_event(&p, &other_gpu, &out));
    assert_string_equal(out.text, "");
    assert_int_equal(p.line_count, 1);
}

// What was told of `lines` lines from `at` on, `events` events fetched `late_ns` after each line,
// the queue found empty at the end.
static unsigned count_storm(unsigned lines, unsigned events, uint64_t late_ns)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    const uint64_t step = NS_PER_MS, at = 10 * NS_PER_S;
    struct xid_sighting out;
    unsigned told = 0;
    for (uint64_t now = at; now < at + (lines + events) * step + late_ns + NS_PER_S; now += step) {
        uint64_t n = (now - at) / step;
        struct xid_sighting line = line_at(now, 1, 31);
        if (n < lines && xid_pairs_line(&p, &line, true, &out))
            told += out.count;
        struct xid_sighting event = event_at(now, 1, 31, UINT32_MAX);
        bool due = now >= at + late_ns && (now - at - late_ns) / step < events;
        if (due && xid_pairs_event(&p, &event, &out))
            told += out.count;
        while (xid_pairs_expire(&p, now, 0, &out))
            told += out.count;
    }
    while (xid_pairs_expire(&p, 1000 * NS_PER_S, 1000 * NS_PER_S, &out))
        told += out.count;
    assert_int_equal(p.line_count, 0);
    return told;
}

static void a_storm_of_lines_and_events_is_counted_once_each(void **state)
{
    static const uint64_t late_ms[] = {0, 1, 50, 500, 999, 1199, 1200, 1201, 3000, 20000};
    for (size_t i = 0; i < ARRAY_SIZE(late_ms); i++) {
        assert_int_equal(count_storm(3, 3, late_ms[i] * NS_PER_MS), 3);
        assert_int_equal(count_storm(10000, 10000, late_ms[i] * NS_PER_MS), 10000);
    }
    assert_int_equal(count_storm(100000, 100000, 60 * NS_PER_S), 100000);
    assert_int_equal(count_storm(10000, 0, 0), 10000);
    assert_int_equal(count_storm(0, 10000, 0), 10000);
    assert_int_equal(count_storm(5000, 100, 100 * NS_PER_MS), 5000);
}

static void events_before_their_lines_are_counted_once_each(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting out;
    unsigned told = 0;
    for (unsigned i = 0; i < 10000; i++) {
        struct xid_sighting event = event_at(NS_PER_S + i, 1, 31, UINT32_MAX);
        told += xid_pairs_event(&p, &event, &out);
    }
    for (unsigned i = 0; i < 10000; i++) {
        struct xid_sighting line = line_at(2 * NS_PER_S, 1, 31);
        told += xid_pairs_line(&p, &line, true, &out);
    }
    assert_int_equal(told, 10000);
    assert_int_equal(p.line_count, 0);
    assert_int_equal(p.event_count, 0);
}

static void a_line_whose_event_does_not_come_is_told_alone(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting line = line_at(NS_PER_S, 1, 79), out;
    assert_false(xid_pairs_line(&p, &line, true, &out));
    assert_false(xid_pairs_expire(&p, NS_PER_S + XID_PAIR_NS - 1, 0, &out));
    assert_true(xid_pairs_expire(&p, NS_PER_S + XID_PAIR_NS, 0, &out));
    assert_int_equal(out.origin, FRAME_EVENT_KMSG);
    assert_int_equal(out.count, 1);
    assert_int_equal(xid_pairs_due_ns(&p), UINT64_MAX);
    assert_false(xid_pairs_expire(&p, UINT64_MAX, 0, &out));
}

static void an_event_that_comes_after_its_line_was_told_is_not_another(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting line = line_at(NS_PER_S, 1, 79), out;
    struct xid_sighting event = event_at(60 * NS_PER_S, 1, 79, UINT32_MAX);
    assert_false(xid_pairs_line(&p, &line, true, &out));
    assert_true(xid_pairs_expire(&p, 30 * NS_PER_S, 0, &out));
    assert_false(xid_pairs_event(&p, &event, &out));
    assert_true(xid_pairs_event(&p, &event, &out)); // the next one is

    // Once the queue was seen empty, none is under way.
    p = (struct xid_pairs){0};
    assert_false(xid_pairs_line(&p, &line, true, &out));
    assert_true(xid_pairs_expire(&p, 30 * NS_PER_S, 0, &out));
    assert_false(xid_pairs_expire(&p, 30 * NS_PER_S, NS_PER_S + XID_PAIR_NS - 1, &out));
    assert_int_equal(p.line_count, 1);
    assert_false(xid_pairs_expire(&p, 30 * NS_PER_S, NS_PER_S + XID_PAIR_NS, &out));
    assert_int_equal(p.line_count, 0);
    assert_true(xid_pairs_event(&p, &event, &out));
}

static void beyond_the_room_the_oldest_are_told_at_once_and_none_is_lost(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting out;
    for (uint32_t i = 0; i < XID_PAIRS_MAX; i++) {
        struct xid_sighting line = line_at(NS_PER_S, 1, i + 1);
        assert_false(xid_pairs_line(&p, &line, true, &out));
    }
    struct xid_sighting same = line_at(NS_PER_S + 2 * XID_GROUP_NS, 1, 1);
    assert_false(xid_pairs_line(&p, &same, true, &out)); // no room of its own is needed
    struct xid_sighting line = line_at(NS_PER_S, 1, 1000);
    assert_true(xid_pairs_line(&p, &line, true, &out));
    assert_int_equal(out.xid, 1);
    assert_int_equal(out.count, 2);
    assert_int_equal(p.line_count, XID_PAIRS_MAX);
    for (uint32_t i = 0; i < 2 * XID_PAIRS_MAX; i++) {
        struct xid_sighting event = event_at(NS_PER_S, 9, i + 1, UINT32_MAX);
        assert_true(xid_pairs_event(&p, &event, &out));
    }
    assert_int_equal(p.event_count, XID_PAIRS_MAX);
}

static void the_lowest_record_that_waits_is_known(void **state)
{
    static struct xid_pairs p;
    p = (struct xid_pairs){0};
    struct xid_sighting out, line = line_at(NS_PER_S, 1, 79), other = line_at(NS_PER_S, 2, 79);
    assert_int_equal(xid_pairs_first_seq(&p), UINT64_MAX);
    line.seq = 17;
    other.seq = 16;
    assert_false(xid_pairs_line(&p, &line, true, &out));
    assert_false(xid_pairs_line(&p, &other, true, &out));
    assert_int_equal(xid_pairs_first_seq(&p), 16);
    while (xid_pairs_expire(&p, 5 * NS_PER_S, 0, &out))
        ;
    assert_int_equal(xid_pairs_first_seq(&p), UINT64_MAX);
}

// --- board and events ---

static int fds[2];
static struct output output;
static struct xid_board board;
static struct nvml_devices d;
static struct nvml_events events;
static struct frame_reader reader;

// Events of the frame taken last that next_event has not given yet.
static struct frame_event taken[XID_BOARD_PENDING];
static unsigned taken_count, taken_at, frames;

static int setup(void **state)
{
    fake_reset();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    output_init(&output, fds[0]);
    xid_board_init(&board, &output);
    frame_reader_init(&reader);
    d = (struct nvml_devices){0};
    events = (struct nvml_events){0};
    taken_at = taken_count = frames = 0;
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

// The next event that lies in the socket; false when there is none.
static bool next_event(struct frame_event *out)
{
    struct frame f;
    const char *what = "";
    for (;;) {
        if (taken_at < taken_count) {
            *out = taken[taken_at++];
            return true;
        }
        int rc = frame_reader_next(&reader, &f, &what);
        if (rc < 0)
            fail_msg("%s", what);
        if (rc > 0 && f.type == FRAME_EVENTS) {
            frames++;
            taken_at = 0;
            taken_count = f.as.events.head->count;
            memcpy(taken, f.as.events.list, taken_count * sizeof(taken[0]));
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
    assert_int_equal(xid_board_expire(&board, clock_mono_ns() + 3 * NS_PER_S), 0);
    assert_true(next_event(&e));
}

static void the_same_xid_again_and_again_makes_few_frames_and_is_counted_to_the_last(void **state)
{
    fake.gpus = 2;
    announce();
    xid_board_set_armed(&board, false);
    struct sv lines[] = {SV("NVRM: Xid (PCI:0000:10:00): 31, a"),
                         SV("NVRM: Xid (PCI:0000:11:00): 31, b"),
                         SV("NVRM: Xid (PCI:0000:11:00): 13, c")};
    for (unsigned i = 0; i < 10000; i++)
        for (size_t k = 0; k < ARRAY_SIZE(lines); k++)
            assert_int_equal(xid_board_line(&board, lines[k]), 0);
    assert_int_equal(xid_board_expire(&board, clock_mono_ns() + NS_PER_S), 0);
    uint64_t counts[3] = {0};
    struct frame_event e;
    while (next_event(&e))
        counts[e.entity == 0 ? 0 : e.xid == 31 ? 1 : 2] += (uint64_t)e.repeats + 1;
    assert_true(frames < 100);
    for (size_t k = 0; k < ARRAY_SIZE(lines); k++)
        assert_int_equal(counts[k], 10000);
    assert_int_equal(e.xid, 13); // the last one stands last
}

static void what_an_exporter_does_not_read_is_added_up(void **state)
{
    fake.gpus = 1;
    announce();
    xid_board_set_armed(&board, false);
    static char big[400000];
    struct buf filler = BUF_INIT(sizeof(big));
    buf_add(&filler, big, sizeof(big));
    assert_int_equal(output_send(&output, FRAME_SAMPLE, &filler), 0); // what stops the socket up
    assert_true(output_is_pending(&output));
    for (unsigned i = 0; i < 500; i++) {
        assert_int_equal(xid_board_line(&board, SV("NVRM: Xid (PCI:0000:10:00): 31, a")), 0);
        assert_int_equal(xid_board_expire(&board, clock_mono_ns() + i * NS_PER_S), 0);
    }
    assert_int_equal(board.pending_count, 1);
    assert_int_equal(board.pending[0].repeats, 499);
    assert_int_equal(output.count, 1);
    assert_int_equal(output.dropped, 0);
    buf_deinit(&filler);
}

static void lines_before_the_first_list_wait_for_it(void **state)
{
    struct frame_event e;
    assert_int_equal(xid_board_line(&board, SV("6,9,1,-;NVRM: Xid (PCI:0000:10:00): 79, a")), 0);
    assert_int_equal(xid_board_expire(&board, clock_mono_ns() + 5 * NS_PER_S), 0);
    assert_int_equal(xid_board_due_ns(&board), UINT64_MAX);
    assert_int_equal(xid_board_told_seq(&board, 9), 8);
    announce();
    assert_int_equal(xid_board_expire(&board, clock_mono_ns() + 5 * NS_PER_S), 0);
    assert_true(next_event(&e));
    assert_int_equal(e.xid, 79);
    assert_int_equal(xid_board_told_seq(&board, 9), 9);
}

static void an_old_record_is_told_with_the_time_it_was_written(void **state)
{
    struct frame_event e;
    announce();
    xid_board_set_armed(&board, false);
    uint64_t now_ns = clock_mono_ns(), wall_ns = clock_wall_ns();
    char line[128];
    (void)snprintf(line, sizeof(line), "6,9,%llu,-;NVRM: Xid (PCI:0000:10:00): 79, a",
                   (unsigned long long)(now_ns / 1000 - 30000000));
    assert_int_equal(xid_board_line(&board, sv_from(line)), 0);
    assert_int_equal(xid_board_expire(&board, clock_mono_ns() + NS_PER_S), 0);
    assert_true(next_event(&e));
    assert_true(e.taken_ns <= now_ns - 30 * NS_PER_S && e.taken_ns > now_ns - 31 * NS_PER_S);
    assert_true(e.wall_ns < wall_ns - 29 * NS_PER_S && e.wall_ns > wall_ns - 32 * NS_PER_S);
}

static void a_queue_longer_than_a_poll_asks_for_another(void **state)
{
    announce();
    fake.endless_event = (nvmlEventData_t){.device = fake_device(0),
                                           .eventType = 8,
                                           .eventData = 31,
                                           .gpuInstanceId = UINT32_MAX,
                                           .computeInstanceId = UINT32_MAX};
    fake.endless_count = 1000;
    unsigned polls = 0;
    while (nvml_events_poll(&fake.n, &events, &d, &board) & NVML_EVENTS_MORE)
        polls++;
    assert_int_equal(polls, 3);
    struct frame_event e;
    uint64_t count = 0;
    while (next_event(&e))
        count += (uint64_t)e.repeats + 1;
    assert_int_equal(count, 1000);
}

static void a_set_with_a_lost_gpu_is_spoilt(void **state)
{
    fake.gpus = 2;
    announce();
    assert_false(nvml_events_is_spoilt(&d));
    assert_true(nvml_devices_mark(&d, 1, FRAME_ENTITY_LOST));
    assert_true(nvml_events_is_spoilt(&d));
    nvml_events_disarm(&fake.n, &events, &d);
    nvml_events_arm(&fake.n, &events, &d);
    assert_true(events.armed);
    assert_false(nvml_events_is_spoilt(&d));
}

static void a_line_of_a_skipped_gpu_is_told_by_the_bus_id_that_was_given(void **state)
{
    static const char *const bus_ids[LIMIT_GPUS] = {"00000000:10:00.0"};
    struct frame_event e;
    fake.gpus = 2;
    d.skipped = 1;
    d.skipped_bus_ids = bus_ids;
    announce();
    xid_board_set_armed(&board, false);
    assert_int_equal(xid_board_line(&board, SV("NVRM: Xid (PCI:0000:10:00): 119, x")), 0);
    assert_int_equal(xid_board_expire(&board, clock_mono_ns() + 3 * NS_PER_S), 0);
    assert_true(next_event(&e));
    assert_int_equal(e.entity, 0);
    assert_int_equal(e.xid, 119);
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
        cmocka_unit_test(a_storm_of_lines_and_events_is_counted_once_each),
        cmocka_unit_test(events_before_their_lines_are_counted_once_each),
        cmocka_unit_test(a_line_whose_event_does_not_come_is_told_alone),
        cmocka_unit_test(an_event_that_comes_after_its_line_was_told_is_not_another),
        cmocka_unit_test(beyond_the_room_the_oldest_are_told_at_once_and_none_is_lost),
        cmocka_unit_test(the_lowest_record_that_waits_is_known),
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
        cmocka_unit_test_setup_teardown(
            a_line_of_a_skipped_gpu_is_told_by_the_bus_id_that_was_given, setup, teardown),
        cmocka_unit_test_setup_teardown(a_line_of_a_gpu_we_do_not_have_is_dropped, setup, teardown),
        cmocka_unit_test_setup_teardown(
            the_same_xid_again_and_again_makes_few_frames_and_is_counted_to_the_last, setup,
            teardown),
        cmocka_unit_test_setup_teardown(what_an_exporter_does_not_read_is_added_up, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(lines_before_the_first_list_wait_for_it, setup, teardown),
        cmocka_unit_test_setup_teardown(an_old_record_is_told_with_the_time_it_was_written, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_queue_longer_than_a_poll_asks_for_another, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_set_with_a_lost_gpu_is_spoilt, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
