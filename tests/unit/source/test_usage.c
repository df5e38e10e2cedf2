// SPDX-License-Identifier: Apache-2.0
// The pass on a fake driver, with clocks of the test's own: two GPUs and what they have.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "fake_nvml.h"
#include "source/nvml_usage.h"

#define ALL 31u
#define MIB (UINT64_C(1) << 20)
#define NONE UINT32_MAX

static uint64_t now_ns, wall_ahead_ns;
static struct nvml_devices devices;
static struct nvml_usage usage;
static struct buf wire;
static struct frame_reader reader;
static struct frame frame;
static unsigned slow_gpu = NONE;
static uint64_t slow_ns;

static uint64_t mono(void)
{
    return now_ns;
}

static void take_time(unsigned gpu)
{
    now_ns += gpu == slow_gpu ? slow_ns : 0;
}

static void list(void)
{
    bool changed;
    assert_int_equal(nvml_devices_enumerate(&fake.n, &devices, &changed), NVML_SUCCESS);
    devices.generation++;
}

static int setup(void **state)
{
    (void)state;
    fake_reset();
    fake.gpus = 2;
    fake.on_call = take_time;
    slow_gpu = NONE;
    now_ns = 1000 * NS_PER_S;
    wall_ahead_ns = UINT64_C(1700000000) * NS_PER_S;
    devices = (struct nvml_devices){0};
    wire = BUF_INIT(LIMIT_FRAME_BYTES + 64);
    nvml_usage_init(&usage);
    usage.mono_ns = mono;
    frame_reader_init(&reader);
    for (unsigned i = 0; i < 2; i++) {
        fake.gpu[i].energy_mj = 5000 + i;
        fake.gpu[i].memory =
            (nvmlMemory_v2_t){.total = 100 * MIB, .used = 30 * MIB, .reserved = 5 * MIB};
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    nvml_usage_deinit(&fake.n, &usage);
    nvml_devices_deinit(&fake.n, &devices);
    frame_reader_deinit(&reader);
    buf_deinit(&wire);
    assert_int_equal(fake.samples_alive, 0);
    return 0;
}

static void read_frame(void)
{
    const char *what = "";
    frame_reader_deinit(&reader);
    frame_reader_init(&reader);
    reader.generation = devices.generation;
    reader.entity_count = devices.count;
    for (size_t at = 0; at < wire.len;) {
        char *space;
        size_t room;
        assert_int_equal(frame_reader_space(&reader, &space, &room), 0);
        size_t n = wire.len - at < room ? wire.len - at : room;
        memcpy(space, wire.data + at, n);
        frame_reader_commit(&reader, n);
        at += n;
    }
    if (frame_reader_next(&reader, &frame, &what) != 1)
        fail_msg("%s", what);
    assert_int_equal(frame.type, FRAME_USAGE);
}

static bool read_usage(void)
{
    const struct nvml_usage_clock clock = {now_ns, now_ns + wall_ahead_ns};
    return nvml_usage_read(&usage, &fake.n, &devices, clock, &wire);
}

static void pass(void)
{
    assert_true(read_usage());
    read_frame();
}

// What a device has in the frame.
struct told {
    const struct frame_usage_device *device; // NULL: nothing
    const struct frame_usage_span *spans;
    const struct frame_usage_share *shares;
    const struct frame_usage_process *processes;
};

static struct told find_told(uint32_t entity)
{
    struct told t = {NULL, frame.as.usage.spans, frame.as.usage.shares, frame.as.usage.processes};
    for (uint32_t i = 0; i < frame.as.usage.head->count; i++) {
        const struct frame_usage_device *d = &frame.as.usage.devices[i];
        if (d->entity == entity) {
            t.device = d;
            return t;
        }
        t.spans += d->spans;
        t.shares += d->shares;
        t.processes += d->processes;
    }
    return t;
}

static struct told told(uint32_t entity)
{
    struct told t = find_told(entity);
    assert_non_null(t.device);
    return t;
}

static void assert_process(const struct frame_usage_process *p, uint32_t pid, uint32_t kinds,
                           uint64_t memory)
{
    assert_int_equal(p->pid, pid);
    assert_int_equal(p->kinds, kinds);
    assert_int_equal(p->memory_bytes, memory);
}

static unsigned long long wall_us(void)
{
    return (now_ns + wall_ahead_ns) / NS_PER_US;
}

// The driver's buffers after another tenth of a second.
static void sample(unsigned gpu, unsigned percent, unsigned pid, unsigned share)
{
    struct fake_gpu *g = &fake.gpu[gpu];
    now_ns += 100 * NS_PER_MS;
    g->samples[g->sample_count++] =
        (nvmlSample_t){.timeStamp = wall_us(), .sampleValue.uiVal = percent};
    if (share)
        g->utils[g->util_count++] =
            (nvmlProcessUtilizationSample_t){.pid = pid, .timeStamp = wall_us(), .smUtil = share};
}

static void a_pass_tells_all_of_each_gpu_in_six_calls(void **state)
{
    (void)state;
    list();
    fake_add_process(&fake.gpu[0].lists[FAKE_COMPUTE], 71, 3 * MIB, NONE);
    sample(0, 40, 0, 0);
    sample(0, 50, 0, 0);
    pass();
    assert_int_equal(frame.as.usage.head->vendor_calls, 14); // both graphics lists, too
    assert_int_equal(told(0).device->flags, ALL | FRAME_USAGE_GAP);
    assert_int_equal(told(0).device->spans, 0);
    assert_int_equal(told(0).device->busy_to_ns, now_ns);
    uint64_t before_ns = now_ns;
    sample(0, 0, 0, 0);
    sample(0, 37, 71, 20);
    sample(0, 100, 71, 100);
    now_ns += 50 * NS_PER_MS;
    pass();
    assert_int_equal(frame.as.usage.head->vendor_calls, 12);
    const struct told t = told(0);
    assert_int_equal(t.device->flags, ALL);
    assert_int_equal(t.device->taken_ns, now_ns);
    assert_int_equal(t.device->energy_mj, 5000);
    assert_int_equal(t.device->memory_used, 30 * MIB);
    assert_int_equal(t.device->memory_total, 100 * MIB);
    assert_int_equal(t.device->spans, 3);
    static const uint32_t ppm[] = {0, 375000, 1000000};
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(t.spans[i].from_ns, before_ns + i * 100 * NS_PER_MS);
        assert_int_equal(t.spans[i].to_ns, before_ns + (i + 1) * 100 * NS_PER_MS);
        assert_int_equal(t.spans[i].ppm, ppm[i]);
    }
    assert_int_equal(t.device->shares, 2);
    assert_int_equal(t.shares[0].from_ns, before_ns + 100 * NS_PER_MS);
    assert_int_equal(t.shares[0].ppm, 205000);
    assert_int_equal(t.shares[1].ppm, 1000000);
    assert_int_equal(t.device->busy_to_ns, now_ns - 50 * NS_PER_MS);
    assert_int_equal(t.device->shares_to_ns, now_ns - 50 * NS_PER_MS);
    assert_int_equal(t.device->processes, 1);
    assert_process(t.processes, 71, FRAME_USAGE_COMPUTE, 3 * MIB);
    assert_int_equal(told(1).device->energy_mj, 5001);
}

static void a_buffer_that_fills_no_more_is_none(void **state)
{
    (void)state;
    list();
    sample(0, 40, 0, 0);
    pass();
    now_ns += 4 * NS_PER_S;
    pass();
    assert_true(told(0).device->flags & FRAME_USAGE_BUSY);
    now_ns += 2 * NS_PER_S;
    pass();
    assert_false(told(0).device->flags & FRAME_USAGE_BUSY);
    sample(0, 40, 0, 0);
    pass();
    assert_int_equal(told(0).device->flags, ALL | FRAME_USAGE_GAP);
}

static void processes_of_all_lists_are_told_once_with_the_larger_memory(void **state)
{
    (void)state;
    struct fake_list *lists = fake.gpu[0].lists;
    list();
    fake_add_process(&lists[FAKE_COMPUTE], 72, UINT64_MAX, NONE);
    fake_add_process(&lists[FAKE_COMPUTE], 71, 4 * MIB, NONE);
    fake_add_process(&lists[FAKE_COMPUTE], 73, UINT64_MAX, NONE);
    fake_add_process(&lists[FAKE_GRAPHICS], 71, 6 * MIB, NONE);
    fake_add_process(&lists[FAKE_MPS], 72, 2 * MIB, NONE);
    fake_add_process(&lists[FAKE_MPS], 0, 2 * MIB, NONE); // no pid
    pass();
    const struct told t = told(0);
    assert_int_equal(t.device->processes, 3);
    assert_process(&t.processes[0], 71, FRAME_USAGE_COMPUTE | FRAME_USAGE_GRAPHICS, 6 * MIB);
    assert_process(&t.processes[1], 72, FRAME_USAGE_COMPUTE | FRAME_USAGE_MPS, 2 * MIB);
    assert_process(&t.processes[2], 73, FRAME_USAGE_COMPUTE, UINT64_MAX);
}

static void rows_of_older_drivers_are_shorter(void **state)
{
    (void)state;
    static const unsigned char generations[] = {1, 2, 3};
    for (unsigned i = 0; i < 3; i++) {
        teardown(NULL);
        setup(NULL);
        fake.n.fn.generation.nvmlDeviceGetComputeRunningProcesses = generations[i];
        list();
        fake_add_process(&fake.gpu[0].lists[FAKE_COMPUTE], 71, 4 * MIB, NONE);
        fake_add_process(&fake.gpu[0].lists[FAKE_COMPUTE], 72, 5 * MIB, NONE);
        pass();
        assert_int_equal(told(0).device->processes, 2);
        assert_process(&told(0).processes[0], 71, FRAME_USAGE_COMPUTE, 4 * MIB);
        assert_process(&told(0).processes[1], 72, FRAME_USAGE_COMPUTE, 5 * MIB);
    }
}

static void a_list_longer_than_expected_is_asked_for_again(void **state)
{
    (void)state;
    list();
    for (unsigned i = 0; i < FAKE_ROWS; i++) // more than there is room for at first
        fake_add_process(&fake.gpu[0].lists[FAKE_COMPUTE], 100 + i, MIB, NONE);
    usage.rows = BUF_INIT(1u << 18);
    pass();
    assert_true(fake.gpu[0].lists[FAKE_COMPUTE].calls <= 3);
    assert_int_equal(told(0).device->processes, FAKE_ROWS);
    unsigned calls = fake.gpu[0].lists[FAKE_COMPUTE].calls;
    pass();
    assert_int_equal(fake.gpu[0].lists[FAKE_COMPUTE].calls, calls + 1); // the room is remembered
}

static void graphics_processes_are_asked_seldom_and_remembered(void **state)
{
    (void)state;
    struct fake_list *lists = fake.gpu[0].lists;
    list();
    fake_add_process(&lists[FAKE_COMPUTE], 71, MIB, NONE);
    fake_add_process(&lists[FAKE_GRAPHICS], 71, MIB, NONE);
    fake_add_process(&lists[FAKE_GRAPHICS], 90, MIB, NONE);
    pass();
    assert_int_equal(told(0).device->processes, 2);
    lists[FAKE_COMPUTE].count = 0; // 71 has ended
    for (unsigned i = 0; i < 9; i++) {
        now_ns += NS_PER_S;
        pass();
        assert_int_equal(told(0).device->processes, 1);
        assert_process(told(0).processes, 90, FRAME_USAGE_GRAPHICS, MIB);
    }
    assert_int_equal(lists[FAKE_GRAPHICS].calls, 1);
    lists[FAKE_GRAPHICS].count = 0;
    now_ns += NS_PER_S;
    pass();
    assert_int_equal(told(0).device->processes, 0);
    assert_int_equal(lists[FAKE_GRAPHICS].calls, 2);
}

static void what_is_refused_is_left_out_and_asked_again_seldom(void **state)
{
    (void)state;
    struct fake_gpu *g = &fake.gpu[0];
    fake.gpus = 1;
    list();
    g->samples_result = g->utils_result = NVML_ERROR_NOT_SUPPORTED;
    g->energy_result = g->lists[FAKE_COMPUTE].result = NVML_ERROR_NO_PERMISSION;
    g->lists[FAKE_MPS].result = g->lists[FAKE_GRAPHICS].result = NVML_ERROR_NOT_SUPPORTED;
    pass();
    assert_int_equal(told(0).device->flags, FRAME_USAGE_MEMORY | FRAME_USAGE_GAP);
    for (unsigned i = 0; i < 599; i++) {
        now_ns += NS_PER_S;
        pass();
        assert_int_equal(frame.as.usage.head->vendor_calls, 1); // the memory
    }
    g->samples_result = g->utils_result = g->energy_result = NVML_SUCCESS;
    g->lists[FAKE_COMPUTE].result = NVML_SUCCESS;
    now_ns += NS_PER_S;
    pass();
    assert_int_equal(told(0).device->flags & ALL, ALL);
    g->energy_result = NVML_ERROR_NOT_SUPPORTED; // it was there: a minute
    pass();
    assert_false(told(0).device->flags & FRAME_USAGE_ENERGY);
    g->energy_result = NVML_SUCCESS;
    now_ns += 59 * NS_PER_S;
    pass();
    assert_false(told(0).device->flags & FRAME_USAGE_ENERGY);
    now_ns += NS_PER_S;
    pass();
    assert_true(told(0).device->flags & FRAME_USAGE_ENERGY);
}

static void a_failure_in_passing_costs_its_part_of_one_frame(void **state)
{
    (void)state;
    struct fake_gpu *g = &fake.gpu[0];
    list();
    sample(0, 10, 71, 10);
    pass();
    sample(0, 20, 71, 20);
    g->samples_result = g->utils_result = g->energy_result = NVML_ERROR_UNKNOWN;
    g->lists[FAKE_COMPUTE].result = NVML_ERROR_TIMEOUT;
    pass();
    assert_int_equal(told(0).device->flags,
                     FRAME_USAGE_BUSY | FRAME_USAGE_SHARES | FRAME_USAGE_MEMORY);
    assert_int_equal(told(0).device->spans, 0);
    g->samples_result = g->utils_result = g->energy_result = NVML_SUCCESS;
    g->lists[FAKE_COMPUTE].result = NVML_SUCCESS;
    sample(0, 30, 71, 30);
    pass();
    assert_int_equal(told(0).device->flags, ALL); // nothing of the buffers was missed
    assert_int_equal(told(0).device->spans, 2);
    assert_int_equal(told(0).device->shares, 2);
}

static void functions_that_are_missing_or_avoided_are_not_called(void **state)
{
    (void)state;
    static const struct avoided_call avoided[] = {
        {SV("nvmlDeviceGetTotalEnergyConsumption"), DRIVER_NO_GPU},
        {SV("nvmlDeviceGetProcessUtilization"), 0},
    };
    list();
    fake.n.avoided = avoided;
    fake.n.avoided_count = 2;
    fake.n.fn.nvmlDeviceGetSamples = NULL;
    pass();
    assert_int_equal(told(0).device->flags,
                     FRAME_USAGE_PROCESSES | FRAME_USAGE_MEMORY | FRAME_USAGE_GAP);
    assert_int_equal(told(1).device->flags, FRAME_USAGE_PROCESSES | FRAME_USAGE_MEMORY |
                                                FRAME_USAGE_SHARES | FRAME_USAGE_GAP);
    assert_int_equal(frame.as.usage.head->vendor_calls, 9);
}

static void a_lost_gpu_is_left_out_and_has_a_gap_when_it_is_back(void **state)
{
    (void)state;
    list();
    pass();
    pass();
    assert_int_equal(told(1).device->flags, ALL);
    fake.gpu[1].result = NVML_ERROR_GPU_IS_LOST;
    pass();
    assert_null(find_told(1).device);
    assert_int_equal(frame.as.usage.head->vendor_calls, 7); // one told it
    assert_int_equal(told(0).device->flags, ALL);
    nvml_devices_mark(&devices, 1, FRAME_ENTITY_LOST); // as the sampler does
    pass();
    assert_int_equal(frame.as.usage.head->vendor_calls, 6);
    fake.gpu[1].result = NVML_SUCCESS;
    devices.list[1].record.state = FRAME_ENTITY_UP;
    pass();
    assert_int_equal(told(1).device->flags, ALL | FRAME_USAGE_GAP);
}

static void a_slow_gpu_holds_up_no_other_and_is_told_when_it_is_through(void **state)
{
    (void)state;
    list();
    pass();
    slow_gpu = 0;
    slow_ns = 300 * NS_PER_MS;
    unsigned whole = 0;
    for (unsigned i = 0; i < 40; i++) {
        uint64_t begin_ns = now_ns;
        pass();
        assert_true(now_ns - begin_ns <= 300 * NS_PER_MS); // one call
        assert_int_equal(told(1).device->flags | FRAME_USAGE_BUSY, ALL);
        whole += find_told(0).device != NULL;
        now_ns = begin_ns + NS_PER_S;
    }
    assert_int_equal(whole, 3); // a call each second pass: it rests three times as long as it took
}

static void spans_that_were_drained_before_a_turn_was_cut_off_are_not_lost(void **state)
{
    (void)state;
    fake.gpus = 1;
    list();
    sample(0, 10, 71, 10);
    pass();
    slow_gpu = 0;
    slow_ns = 300 * NS_PER_MS;
    unsigned spans = 0;
    for (unsigned i = 0; i < 30; i++) {
        if (i < 20)
            sample(0, 50, 71, 50);
        now_ns += 900 * NS_PER_MS;
        pass();
        spans += find_told(0).device ? find_told(0).device->spans : 0;
    }
    assert_int_equal(spans, 20);
}

static void a_step_of_the_wall_clock_is_a_gap(void **state)
{
    (void)state;
    static const struct {
        int64_t step_ns;
        bool gap;
    } cases[] = {{49000000, false}, {-49000000, false},    {51000000, true},
                 {-51000000, true}, {3600000000000, true}, {-3600000000000, true}};
    for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        teardown(NULL);
        setup(NULL);
        list();
        sample(0, 10, 71, 10);
        sample(0, 20, 71, 20);
        pass();
        wall_ahead_ns += (uint64_t)cases[i].step_ns;
        now_ns += NS_PER_S;
        sample(0, 30, 71, 30);
        pass();
        assert_int_equal(told(0).device->flags, ALL | (cases[i].gap ? FRAME_USAGE_GAP : 0));
        assert_int_equal(told(0).device->busy_to_ns,
                         cases[i].gap ? now_ns : told(0).device->busy_to_ns);
        uint64_t from_ns = told(0).device->busy_to_ns;
        sample(0, 40, 71, 40);
        pass();
        assert_int_equal(told(0).device->flags, ALL);
        assert_int_equal(told(0).device->spans, 1);
        assert_int_equal(told(0).spans[0].from_ns, from_ns);
        assert_int_equal(told(0).spans[0].to_ns, now_ns);
        assert_int_equal(told(0).spans[0].ppm, 405000);
        assert_int_equal(told(0).device->shares, 1);
    }
}

// --- MIG ---

static void cut_gpu_0(void)
{
    fake.gpu[0].gpm = true;
    fake_add_slot(0, 0, 1, 3, 40192, "MIG-a", "NVIDIA Fake MIG 3g.40gb");
    fake_add_slot(0, 1, 2, 1, 9728, "MIG-b", "NVIDIA Fake MIG 1g.10gb");
    fake.gpu[0].slots[0].memory = (nvmlMemory_v2_t){.total = 40 * MIB, .used = 7 * MIB};
    fake.gpu[0].slots[1].memory = (nvmlMemory_v2_t){.total = 10 * MIB, .used = 2 * MIB};
    fake.metric[1] = 42.5;
    list();
}

static void instances_have_spans_of_gpm_from_pass_to_pass(void **state)
{
    (void)state;
    cut_gpu_0();
    pass();
    assert_int_equal(told(0).device->flags, FRAME_USAGE_ENERGY | FRAME_USAGE_GAP);
    assert_int_equal(told(1).device->flags, FRAME_USAGE_BUSY | FRAME_USAGE_PROCESSES |
                                                FRAME_USAGE_MEMORY | FRAME_USAGE_GAP);
    uint64_t before_ns = now_ns;
    now_ns += NS_PER_S;
    pass();
    assert_int_equal(told(0).device->flags, FRAME_USAGE_ENERGY);
    assert_int_equal(told(2).device->flags,
                     FRAME_USAGE_BUSY | FRAME_USAGE_PROCESSES | FRAME_USAGE_MEMORY);
    assert_int_equal(told(2).device->memory_used, 2 * MIB);
    assert_int_equal(told(2).device->memory_total, 10 * MIB);
    assert_int_equal(told(2).device->spans, 1);
    assert_int_equal(told(2).spans[0].from_ns, before_ns);
    assert_int_equal(told(2).spans[0].to_ns, now_ns);
    assert_int_equal(told(2).spans[0].ppm, 425000);
    assert_int_equal(told(2).device->busy_to_ns, now_ns);
    fake.metric[1] = 100.4;
    now_ns += NS_PER_S;
    pass();
    assert_int_equal(told(1).spans[0].ppm, 1000000);
    fake.gpm_result = NVML_ERROR_UNKNOWN; // both ends are void
    now_ns += NS_PER_S;
    pass();
    assert_int_equal(told(1).device->spans, 0);
    assert_true(told(1).device->flags & FRAME_USAGE_GAP);
    fake.gpm_result = NVML_SUCCESS;
    now_ns += NS_PER_S;
    pass();
    assert_true(told(1).device->flags & FRAME_USAGE_GAP);
    now_ns += NS_PER_S;
    pass();
    assert_int_equal(told(1).device->spans, 1);
    assert_false(told(1).device->flags & FRAME_USAGE_GAP);
}

static void instances_have_their_processes_by_handle_or_from_the_list_of_their_gpu(void **state)
{
    (void)state;
    cut_gpu_0();
    fake_add_process(&fake.gpu[0].slots[0].lists[FAKE_COMPUTE], 71, 3 * MIB, 1);
    fake_add_process(&fake.gpu[0].slots[0].lists[FAKE_COMPUTE], 79, 3 * MIB, 2); // another's
    fake_add_process(&fake.gpu[0].lists[FAKE_COMPUTE], 71, 4 * MIB, 1);
    fake_add_process(&fake.gpu[0].lists[FAKE_COMPUTE], 72, 5 * MIB, 1); // other compute instance
    fake_add_process(&fake.gpu[0].lists[FAKE_COMPUTE], 73, 6 * MIB, 2);
    fake.gpu[0].slots[1].lists[FAKE_COMPUTE].result = NVML_ERROR_NOT_SUPPORTED;
    pass();
    assert_int_equal(told(0).device->processes, 0);
    assert_int_equal(told(1).device->processes, 2);
    assert_process(&told(1).processes[0], 71, FRAME_USAGE_COMPUTE, 4 * MIB);
    assert_process(&told(1).processes[1], 72, FRAME_USAGE_COMPUTE, 5 * MIB);
    assert_true(told(2).device->flags & FRAME_USAGE_PROCESSES);
    assert_int_equal(told(2).device->processes, 1);
    assert_process(told(2).processes, 73, FRAME_USAGE_COMPUTE, 6 * MIB);
}

static void a_new_list_goes_on_with_what_is_still_there(void **state)
{
    (void)state;
    cut_gpu_0();
    sample(1, 10, 71, 10);
    pass();
    uint64_t before_ns = now_ns;
    fake.gpu[0].slots[0].exists = false; // MIG-b moves up a place
    list();
    sample(1, 20, 71, 20);
    pass();
    assert_int_equal(told(1).device->flags & FRAME_USAGE_GAP, 0);
    assert_int_equal(told(1).spans[0].from_ns, before_ns);
    assert_int_equal(told(2).device->flags, ALL);
    assert_int_equal(told(2).spans[0].from_ns, before_ns);
    fake_add_slot(0, 0, 1, 2, 20192, "MIG-a", "NVIDIA Fake MIG 2g.20gb"); // another of that name
    list();
    pass();
    assert_true(told(1).device->flags & FRAME_USAGE_GAP);
}

static void a_driver_opened_anew_begins_anew(void **state)
{
    (void)state;
    cut_gpu_0();
    sample(1, 10, 71, 10);
    pass();
    nvml_usage_release(&fake.n, &usage);
    nvml_devices_release(&fake.n, &devices);
    assert_int_equal(fake.samples_alive, 0);
    list();
    sample(1, 20, 71, 20);
    pass();
    for (uint32_t i = 0; i < 4; i++)
        assert_true(told(i).device->flags & FRAME_USAGE_GAP);
    assert_int_equal(told(3).device->spans, 0);
    sample(1, 30, 71, 30);
    pass();
    assert_int_equal(told(3).device->flags, ALL);
    assert_int_equal(told(3).device->spans, 1);
}

// --- when ---

static void it_is_due_at_multiples_of_its_period_and_never_unasked(void **state)
{
    (void)state;
    list();
    assert_int_equal(nvml_usage_due_ns(&usage), UINT64_MAX);
    now_ns = 1000 * NS_PER_S + 5;
    nvml_usage_watch(&usage, NS_PER_S, now_ns);
    assert_int_equal(nvml_usage_due_ns(&usage), 1001 * NS_PER_S);
    now_ns = 1001 * NS_PER_S + 3;
    pass();
    assert_int_equal(nvml_usage_due_ns(&usage), 1002 * NS_PER_S);
    nvml_usage_watch(&usage, NS_PER_S, now_ns + NS_PER_S); // the same again changes nothing
    assert_int_equal(nvml_usage_due_ns(&usage), 1002 * NS_PER_S);
    pass();
    assert_int_equal(told(0).device->flags, ALL);
    nvml_usage_watch(&usage, 0, now_ns);
    assert_int_equal(nvml_usage_due_ns(&usage), UINT64_MAX);
    now_ns += 100 * NS_PER_S;
    nvml_usage_watch(&usage, 2 * NS_PER_S, now_ns);
    assert_int_equal(nvml_usage_due_ns(&usage), 1102 * NS_PER_S);
    pass();
    assert_int_equal(told(0).device->flags, ALL | FRAME_USAGE_GAP);
}

static void a_lost_frame_is_a_gap(void **state)
{
    (void)state;
    list();
    pass();
    pass();
    assert_int_equal(told(0).device->flags, ALL);
    nvml_usage_break(&usage);
    pass();
    assert_int_equal(told(0).device->flags, ALL | FRAME_USAGE_GAP);
}

// --- no memory ---

static void passes_with_a_failing_allocation(void)
{
    nvml_usage_init(&usage);
    usage.mono_ns = mono;
    fake.gpu[1].sample_count = fake.gpu[1].util_count = 0;
    bool lost = false;
    for (unsigned i = 0; i < 3; i++) {
        sample(1, 10, 71, 10);
        bool failed = allocation_failed, made = read_usage();
        bool now = !failed && allocation_failed;
        assert_true(made || now);
        if (made && lost) {
            read_frame();
            for (uint32_t d = 0; d < frame.as.usage.head->count; d++)
                assert_true(frame.as.usage.devices[d].flags & FRAME_USAGE_GAP);
        }
        lost = !made;
    }
    nvml_usage_deinit(&fake.n, &usage);
}

static void without_memory_a_frame_is_lost_and_the_next_says_so(void **state)
{
    (void)state;
    cut_gpu_0();
    fake_add_process(&fake.gpu[1].lists[FAKE_COMPUTE], 71, 3 * MIB, NONE);
    fake_add_process(&fake.gpu[1].lists[FAKE_GRAPHICS], 72, 3 * MIB, NONE);
    nvml_usage_deinit(&fake.n, &usage);
    assert_true(allocation_sweep(passes_with_a_failing_allocation) > 5);
    nvml_usage_init(&usage);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_pass_tells_all_of_each_gpu_in_six_calls),
        TEST(a_buffer_that_fills_no_more_is_none),
        TEST(processes_of_all_lists_are_told_once_with_the_larger_memory),
        TEST(rows_of_older_drivers_are_shorter),
        TEST(a_list_longer_than_expected_is_asked_for_again),
        TEST(graphics_processes_are_asked_seldom_and_remembered),
        TEST(what_is_refused_is_left_out_and_asked_again_seldom),
        TEST(a_failure_in_passing_costs_its_part_of_one_frame),
        TEST(functions_that_are_missing_or_avoided_are_not_called),
        TEST(a_lost_gpu_is_left_out_and_has_a_gap_when_it_is_back),
        TEST(a_slow_gpu_holds_up_no_other_and_is_told_when_it_is_through),
        TEST(spans_that_were_drained_before_a_turn_was_cut_off_are_not_lost),
        TEST(a_step_of_the_wall_clock_is_a_gap),
        TEST(instances_have_spans_of_gpm_from_pass_to_pass),
        TEST(instances_have_their_processes_by_handle_or_from_the_list_of_their_gpu),
        TEST(a_new_list_goes_on_with_what_is_still_there),
        TEST(a_driver_opened_anew_begins_anew),
        TEST(it_is_due_at_multiples_of_its_period_and_never_unasked),
        TEST(a_lost_frame_is_a_gap),
        TEST(without_memory_a_frame_is_lost_and_the_next_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
