// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fake_nvml.h"
#include "sample_frame.h"
#include "source/sampler.h"

#define S NS_PER_S

static int fds[2];
static struct output output;
static struct xid_board board;
static struct nvml_devices d;
static struct nvml_field_values field_values;
static struct nvml_system nvml_system;
static struct sampler s;

static int setup(void **state)
{
    fake_reset();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
    output_init(&output, fds[0]);
    xid_board_init(&board, &output);
    d = (struct nvml_devices){0};
    nvml_field_values_init(&field_values, "");
    nvml_system =
        (struct nvml_system){.driver_version = "550.90.07", .library_version = "12.550.90.07"};
    sampler_init(&s);
    s.n = &fake.n;
    s.system = &nvml_system;
    s.devices = &d;
    s.field_values = &field_values;
    s.board = &board;
    fake.gpu[0].utilization = 97;
    fake.gpu[0].memory_utilization = 38;
    fake.gpu[0].memory = (nvmlMemory_v2_t){.total = 24576ull << 20,
                                           .reserved = 512ull << 20,
                                           .free = 20000ull << 20,
                                           .used = 4064ull << 20};
    return 0;
}

static int teardown(void **state)
{
    sampler_deinit(&s);
    nvml_devices_deinit(&fake.n, &d);
    xid_board_deinit(&board);
    output_deinit(&output);
    (void)close(fds[0]);
    (void)close(fds[1]);
    return 0;
}

static void list(void)
{
    bool changed;
    static struct buf none;
    assert_int_equal(nvml_devices_enumerate(&fake.n, &d, &changed), NVML_SUCCESS);
    d.generation++;
    none.error = -1; // the board learns the list, nothing is sent
    assert_int_equal(xid_board_send_entities(&board, &d, &none), 0);
    assert_int_equal(sampler_reset(&s, S), 0);
}

static void watch_with(const uint16_t *ids, uint32_t count, uint64_t fast_ns)
{
    struct frame_watch w = {
        .watch_id = 7, .count = count, .period_ns = {fast_ns, 10 * S, 30 * S, 600 * S}};
    assert_int_equal(sampler_watch(&s, &w, ids, S), 0);
}

#define WATCH(...)                                                                                 \
    watch_with((const uint16_t[]){__VA_ARGS__}, ARRAY_SIZE(((const uint16_t[]){__VA_ARGS__})), S)

static struct frame_reader reader;
static struct frame frame;
static uint32_t calls;

// A pass over the classes; `frame` is the SAMPLE as the exporter would read it.
static void pass(unsigned classes)
{
    uint32_t before = fake.n.calls;
    uint64_t started = clock_mono_ns();
    sampler_pass(&s, classes);
    const struct buf *b = sampler_frame(&s, classes, started, before);
    calls = fake.n.calls - before;
    read_sample_frame(b, d.generation, d.count, &reader, &frame);
    assert_int_equal(frame.as.sample.head->classes, classes);
    assert_int_equal(frame.as.sample.head->vendor_calls, calls);
    assert_int_equal(frame.as.sample.head->watch_id, 7);
}

static const struct frame_record *find(uint32_t entity, uint16_t field)
{
    const struct frame_record *found = NULL;
    for (uint32_t i = 0; i < frame.as.sample.head->count; i++)
        if (frame.as.sample.list[i].entity == entity && frame.as.sample.list[i].field == field)
            found = &frame.as.sample.list[i];
    return found;
}

static int64_t number(uint32_t entity, uint16_t field)
{
    const struct frame_record *r = find(entity, field);
    if (!r || r->status != FRAME_OK || r->type != FRAME_VALUE_I64)
        fail_msg("field %u of %u has no number", field, entity);
    return r->value.i64;
}

static double real(uint32_t entity, uint16_t field)
{
    const struct frame_record *r = find(entity, field);
    if (!r || r->status != FRAME_OK || r->type != FRAME_VALUE_DOUBLE)
        fail_msg("field %u of %u has no double", field, entity);
    return r->value.f64;
}

static enum frame_status status(uint32_t entity, uint16_t field)
{
    const struct frame_record *r = find(entity, field);
    if (!r)
        fail_msg("no record of field %u of %u", field, entity);
    return (enum frame_status)r->status;
}

static int64_t vendor_code(uint32_t entity, uint16_t field)
{
    const struct frame_record *r = find(entity, field);
    if (!r || r->status != FRAME_VENDOR_ERROR) {
        fail_msg("field %u of %u is no vendor error", field, entity);
        return 0;
    }
    return r->value.i64;
}

#define FAST_BIT (1u << FIELD_CLASS_FAST)
#define ALL_BITS 15u

static void one_call_serves_all_fields_that_come_from_it(void **state)
{
    list();
    WATCH(203, 204, 250, 251, 252, 253, 254);
    pass(ALL_BITS);
    assert_int_equal(calls, 2);
    assert_int_equal(number(0, 203), 97);
    assert_int_equal(number(0, 204), 38);
    assert_int_equal(number(0, 250), 24576);
    assert_int_equal(number(0, 251), 20000);
    assert_int_equal(number(0, 252), 4064);
    assert_int_equal(number(0, 253), 512);
    assert_true(real(0, 254) == 4064.0 / (24576 - 512));
}

static void what_is_not_watched_is_not_called(void **state)
{
    list();
    WATCH(155);
    pass(ALL_BITS);
    assert_int_equal(calls, 1);
    assert_true(real(0, 155) == 299.437);
    assert_int_equal(frame.as.sample.head->count, 1);
}

static void field_values_of_a_class_come_in_one_call_each_id_once(void **state)
{
    fake_set_value(83, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 12345});
    fake_set_value(82, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 61});
    fake_set_value(138, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 0});
    fake_set_value(139, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 0});
    list();
    WATCH(140, 156, 449, 843, 897, 1611);
    pass(FAST_BIT);
    assert_int_equal(calls, 1);
    assert_int_equal(fake.last_value_count, 4); // 82, 83, 138 and 139 of all links
    assert_int_equal(number(0, 140), 61);
    assert_int_equal(number(0, 156), 12345);
    assert_true(real(0, 1611) == 12.345);
    assert_int_equal(number(0, 449), 0);
}

static void the_driver_version_costs_no_call(void **state)
{
    list();
    WATCH(1, 2, 4, 50, 52, 54);
    pass(ALL_BITS);
    assert_int_equal(calls, 0);
    struct sv text;
    assert_true(frame_record_string(find(0, 1), frame.as.sample.strings, &text));
    assert_true(sv_equals(text, SV("550.90.07")));
    assert_true(frame_record_string(find(0, 54), frame.as.sample.strings, &text));
    assert_true(sv_equals(text, SV("GPU-0")));
    assert_int_equal(number(0, 4), 1);
}

static void a_status_is_sent_once_and_again_when_asked_and_when_it_changes(void **state)
{
    fake.values[82].nvmlReturn = NVML_ERROR_UNKNOWN;
    list();
    WATCH(140, 155);
    pass(FAST_BIT);
    assert_int_equal(vendor_code(0, 140), 999);
    pass(FAST_BIT);
    assert_null(find(0, 140));
    assert_non_null(find(0, 155)); // values come each time
    sampler_resend(&s);
    pass(FAST_BIT);
    assert_int_equal(status(0, 140), FRAME_VENDOR_ERROR);
    fake_set_value(82, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 61});
    pass(FAST_BIT);
    assert_int_equal(number(0, 140), 61);
    fake_set_value(82, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 255});
    pass(FAST_BIT);
    assert_int_equal(status(0, 140), FRAME_INVALID);
    pass(FAST_BIT);
    assert_null(find(0, 140));
}

static void what_is_not_supported_is_not_asked_again_until_the_list_is_new(void **state)
{
    fake.values[82].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    list();
    WATCH(140, 191); // 191: no such function here
    pass(ALL_BITS);
    assert_int_equal(status(0, 140), FRAME_NOT_SUPPORTED);
    assert_int_equal(status(0, 191), FRAME_NO_SYMBOL);
    pass(ALL_BITS);
    assert_int_equal(calls, 0);
    assert_int_equal(frame.as.sample.head->count, 0);
    list();
    pass(ALL_BITS);
    assert_int_equal(status(0, 140), FRAME_NOT_SUPPORTED);
    assert_int_equal(calls, 1);
}

static void fields_that_nvml_lacks_say_so_at_once(void **state)
{
    list();
    WATCH(60, 1110, 9001, 9004);
    pass(FAST_BIT);
    assert_int_equal(calls, 0);
    assert_int_equal(frame.as.sample.head->count, 3); // peers are told apart
    assert_int_equal(status(0, 60), FRAME_NEEDS_DCGM);
    assert_int_equal(status(0, 1110), FRAME_NEEDS_DCGM);
    assert_int_equal(status(0, 9001), FRAME_NEEDS_DCGM);
}

static void profiling_fields_need_gpm(void **state)
{
    list();
    WATCH(1001, 1009);
    pass(FAST_BIT);
    assert_int_equal(calls, 0);
    assert_int_equal(status(0, 1001), FRAME_NEEDS_GPM);
    assert_int_equal(status(0, 1009), FRAME_NEEDS_GPM);
}

// Sets the bases back so that they are old enough.
static void age_bases(void)
{
    for (uint32_t i = 0; i < d.count; i++)
        if (d.list[i].gpm.base_ns)
            d.list[i].gpm.base_ns = clock_mono_ns() - NS_PER_S;
}

static void gpm_fields_come_with_the_second_sample_in_one_call(void **state)
{
    fake.gpu[0].gpm = true;
    fake.metric[1] = 50;
    fake.metric[20] = 3;
    list();
    WATCH(1001, 1009);
    pass(FAST_BIT);
    assert_int_equal(status(0, 1001), FRAME_NO_DATA);
    assert_true(s.ripe_ns != UINT64_MAX);
    assert_true(sampler_due_ns(&s) <= s.ripe_ns);
    age_bases();
    pass(FAST_BIT);
    assert_int_equal(calls, 3); // the second object, the sample, the metrics
    assert_true(real(0, 1001) == 0.5);
    assert_int_equal(number(0, 1009), 3 << 20);
    age_bases();
    pass(FAST_BIT);
    assert_int_equal(calls, 2);
}

static void a_pass_too_soon_after_gpm_changes_no_value_of_it(void **state)
{
    fake.gpu[0].gpm = true;
    list();
    WATCH(1001);
    pass(FAST_BIT);
    age_bases();
    pass(FAST_BIT);
    pass(FAST_BIT); // at once again
    assert_int_equal(calls, 0);
    assert_null(find(0, 1001));
    assert_true(s.ripe_ns != UINT64_MAX);
}

static void instances_have_the_fields_of_their_own_and_no_other(void **state)
{
    fake.gpu[0].gpm = true;
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    list();
    WATCH(50, 54, 150, 203, 230, 252, 1001, 1009);
    pass(ALL_BITS);
    age_bases();
    pass(ALL_BITS);
    assert_int_equal(number(1, 252), 4064);
    assert_int_equal(number(0, 252), 4064);
    assert_true(real(1, 1001) == 0.0);
    assert_null(find(1, 1009)); // PCIe is the board's
    assert_null(find(1, 150));
    assert_null(find(1, 203));
    assert_int_equal(number(0, 150), 40);
    assert_int_equal(d.list[1].gpm.base->gi, 7);
    struct sv text;
    assert_true(frame_record_string(find(1, 50), frame.as.sample.strings, &text));
    assert_true(sv_equals(text, SV("1g.10gb")));
}

static void a_mig_handle_gone_bad_asks_for_a_walk(void **state)
{
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    list();
    WATCH(252);
    pass(FAST_BIT);
    assert_false(s.walk_wanted);
    fake.gpu[0].slots[0].exists = false;
    pass(FAST_BIT);
    assert_true(s.walk_wanted);
    assert_int_equal(status(1, 252), FRAME_NO_DATA);
}

static void a_lost_gpu_is_asked_no_more_and_the_others_go_on(void **state)
{
    fake.gpus = 2;
    list();
    WATCH(100, 150, 155, 203);
    pass(FAST_BIT);
    fake.gpu[0].result = NVML_ERROR_GPU_IS_LOST;
    pass(FAST_BIT);
    assert_true(s.state_changed);
    assert_int_equal(calls, 1 + 3); // 100 has no function in this table
    assert_int_equal(status(0, 150), FRAME_LOST);
    assert_int_equal(status(0, 155), FRAME_LOST);
    assert_int_equal(number(1, 150), 41);
    assert_int_equal(d.list[0].record.state, FRAME_ENTITY_LOST);
    s.state_changed = false;
    pass(FAST_BIT);
    assert_false(s.state_changed);
    assert_int_equal(calls, 3);
    assert_null(find(0, 150));
}

static void a_gpu_that_fails_whatever_it_is_asked_is_failed_until_it_answers(void **state)
{
    fake.gpus = 2;
    list();
    WATCH(150, 155, 203, 250);
    pass(FAST_BIT);
    fake.gpu[0].result = NVML_ERROR_UNKNOWN;
    pass(FAST_BIT);
    assert_true(s.state_changed);
    assert_int_equal(d.list[0].record.state, FRAME_ENTITY_FAILED);
    assert_int_equal(d.list[1].record.state, FRAME_ENTITY_UP);
    assert_int_equal(vendor_code(0, 150), 999);
    assert_int_equal(number(1, 150), 41);
    s.state_changed = false;
    pass(FAST_BIT);
    assert_false(s.state_changed);
    bool changed;
    assert_int_equal(nvml_devices_walk(&fake.n, &d, &changed), NVML_SUCCESS);
    assert_int_equal(d.list[0].record.state, FRAME_ENTITY_FAILED);
    fake.gpu[0].result = NVML_SUCCESS;
    assert_int_equal(nvml_devices_walk(&fake.n, &d, &changed), NVML_SUCCESS);
    pass(FAST_BIT);
    assert_true(s.state_changed);
    assert_int_equal(d.list[0].record.state, FRAME_ENTITY_UP);
    assert_int_equal(number(0, 150), 40);
}

static void fields_that_fail_make_no_failed_gpu(void **state)
{
    fake.values[83].nvmlReturn = NVML_ERROR_UNKNOWN;
    fake.values[82].nvmlReturn = NVML_ERROR_UNKNOWN;
    list();
    WATCH(140, 156);
    for (unsigned i = 0; i < 5; i++)
        pass(FAST_BIT);
    assert_int_equal(d.list[0].record.state, FRAME_ENTITY_UP);
    assert_false(s.state_changed);
}

static void a_result_that_speaks_of_the_driver_makes_it_suspect(void **state)
{
    list();
    WATCH(140, 155);
    static const nvmlReturn_t of_library[] = {
        NVML_ERROR_UNINITIALIZED, NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_LIBRARY_NOT_FOUND,
        NVML_ERROR_LIB_RM_VERSION_MISMATCH};
    for (size_t i = 0; i < ARRAY_SIZE(of_library); i++) {
        fake.values[82].nvmlReturn = of_library[i];
        s.suspect = false;
        pass(FAST_BIT);
        assert_true(s.suspect);
        assert_false(s.state_changed);
        assert_true(real(0, 155) == 299.437);
    }
    fake.values[82].nvmlReturn = NVML_ERROR_UNKNOWN;
    s.suspect = false;
    pass(FAST_BIT);
    assert_false(s.suspect);
}

// --- slow GPUs ---

static void a_slow_gpu_has_a_slice_of_each_pass_and_holds_up_none(void **state)
{
    fake.gpus = 3;
    list();
    WATCH(150, 155, 203, 250, 54, 140);
    s.slice_ns = 20 * NS_PER_MS;
    fake.gpu[1].delay_ms = 25;
    fake_set_value(82, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 61});
    unsigned seen = 0;
    for (unsigned i = 0; i < 5; i++) {
        pass(FAST_BIT);
        assert_int_equal(calls, 5 + 1 + 5);
        assert_true(number(0, 150) == 40 && number(2, 150) == 42);
        assert_true(real(0, 155) > 0 && real(2, 155) > 0);
        seen |= (find(1, 150) ? 1u : 0) | (find(1, 155) ? 2u : 0) | (find(1, 203) ? 4u : 0) |
                (find(1, 250) ? 8u : 0) | (find(1, 140) ? 16u : 0);
        assert_true(s.unfinished);
        assert_int_equal(sampler_due_ns(&s), 0);
    }
    assert_int_equal(seen, 31);
    pass(0);
    assert_int_equal(calls, 0);
    assert_false(s.unfinished);
}

static void what_is_unfinished_goes_on_between_two_dues(void **state)
{
    fake.gpus = 2;
    list();
    WATCH(150, 155, 203);
    s.slice_ns = 0;
    pass(FAST_BIT);
    assert_int_equal(calls, 2); // one each
    pass(0);
    assert_int_equal(calls, 2);
    assert_true(s.unfinished);
    pass(0);
    assert_int_equal(calls, 2);
    pass(0); // there is no further call
    assert_int_equal(calls, 0);
    assert_false(s.unfinished);
    pass(0);
    assert_int_equal(frame.as.sample.head->count, 0);
}

static void on_a_slow_gpu_slow_classes_have_a_quarter_of_the_calls(void **state)
{
    list();
    WATCH(150, 155, 203, 250, 63, 235, 236, 113);
    s.slice_ns = 0;
    fake.n.fn.nvmlDeviceGetMaxPcieLinkGeneration = NULL;
    unsigned fast = 0, others = 0;
    for (unsigned i = 0; i < 12; i++) {
        pass(i == 0 ? ALL_BITS : FAST_BIT);
        for (uint32_t r = 0; r < frame.as.sample.head->count; r++) {
            const struct frame_record *record = &frame.as.sample.list[r];
            bool is_fast = record->field == 150 || record->field == 155 || record->field == 203 ||
                           record->field == 250;
            fast += is_fast && record->status == FRAME_OK;
            others += !is_fast;
        }
    }
    assert_true(fast >= 8);
    assert_true(others >= 1);
    assert_true(s.unfinished);
}

static void what_is_lost_in_the_middle_is_not_gone_on_with(void **state)
{
    fake.gpus = 2;
    list();
    WATCH(150, 155, 203);
    s.slice_ns = 0;
    pass(FAST_BIT);
    fake.gpu[0].result = NVML_ERROR_GPU_IS_LOST;
    pass(FAST_BIT);
    assert_int_equal(status(0, 150), FRAME_LOST);
    assert_int_equal(s.progress[0].pending, 0);
    pass(0);
    assert_null(find(0, 155));
}

// --- what is final ---

static void what_is_final_is_asked_again_in_time(void **state)
{
    fake_set_value(83, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 12345});
    fake.values[82].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
    list();
    WATCH(140, 156, 60, 1001);
    pass(FAST_BIT);
    assert_int_equal(number(0, 156), 12345);
    static const nvmlReturn_t in_passing[] = {NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_INVALID_ARGUMENT,
                                              NVML_ERROR_NO_PERMISSION,
                                              NVML_ERROR_FUNCTION_NOT_FOUND};
    uint64_t now_ns = S;
    for (size_t i = 0; i < ARRAY_SIZE(in_passing); i++) {
        fake.values[83].nvmlReturn = in_passing[i];
        pass(FAST_BIT);
        assert_null(find(0, 140));
        assert_true(status(0, 156) != FRAME_OK);
        fake_set_value(83, NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, (nvmlValue_t){.ullVal = 12345});
        pass(FAST_BIT);
        assert_int_equal(calls, 0); // not at once
        now_ns += SAMPLER_AGAIN_NS;
        (void)sampler_take_due(&s, now_ns);
        pass(FAST_BIT);
        assert_int_equal(number(0, 156), 12345);
        assert_int_equal(fake.last_value_count, 1); // 140 was never there
    }
    fake_set_value(82, NVML_VALUE_TYPE_UNSIGNED_INT, (nvmlValue_t){.uiVal = 61});
    fake.n.gpm_refused[0] = 4;
    (void)sampler_take_due(&s, S + SAMPLER_AGAIN_ALL_NS);
    pass(FAST_BIT);
    assert_int_equal(number(0, 140), 61);
    assert_int_equal(fake.n.gpm_refused[0], 0);
    assert_null(find(0, 60)); // what NVML never has is not news
}

static void a_reset_that_is_required_marks_the_gpu_and_is_a_vendor_error(void **state)
{
    fake.values[83].nvmlReturn = NVML_ERROR_RESET_REQUIRED;
    list();
    WATCH(150, 156);
    pass(FAST_BIT);
    assert_true(s.state_changed);
    assert_int_equal(d.list[0].record.state, FRAME_ENTITY_RESET_REQUIRED);
    assert_int_equal(number(0, 150), 40); // some calls still work
    assert_int_equal(vendor_code(0, 156), 16);
}

static void xid_is_0_while_armed_absent_when_not_and_stays_when_lost(void **state)
{
    list();
    WATCH(150, 230);
    pass(FAST_BIT);
    assert_int_equal(status(0, 230), FRAME_NO_DATA);
    d.list[0].xid_armed = true;
    pass(FAST_BIT);
    assert_int_equal(number(0, 230), 0);
    assert_int_equal(xid_board_event(&board, 0, 79, UINT32_MAX), 0);
    pass(FAST_BIT);
    assert_int_equal(number(0, 230), 79);
    fake.gpu[0].result = NVML_ERROR_GPU_IS_LOST;
    pass(FAST_BIT);
    assert_int_equal(status(0, 150), FRAME_LOST);
    assert_int_equal(number(0, 230), 79);
    d.list[0].xid_armed = false;
    pass(FAST_BIT);
    assert_int_equal(number(0, 230), 79); // what was seen stays seen
}

static void the_kernel_log_alone_arms_xid_too(void **state)
{
    list();
    WATCH(230);
    s.kmsg_armed = true;
    pass(FAST_BIT);
    assert_int_equal(number(0, 230), 0);
}

static void gpus_out_of_reach_say_why(void **state)
{
    fake.gpus = 2;
    fake.gpu[0].result = NVML_ERROR_NO_PERMISSION;
    d.skipped = 2;
    list();
    WATCH(150);
    pass(FAST_BIT);
    assert_int_equal(calls, 0);
    assert_int_equal(status(0, 150), FRAME_NO_PERMISSION);
    assert_int_equal(status(1, 150), FRAME_NO_DATA);
}

static void classes_come_back_at_multiples_of_their_period(void **state)
{
    list();
    WATCH(155, 202, 191, 53); // fast, medium, slow, static
    assert_int_equal(sampler_due_ns(&s), S);
    assert_int_equal(sampler_take_due(&s, S), ALL_BITS); // at once
    assert_int_equal(sampler_due_ns(&s), 2 * S);
    assert_int_equal(sampler_take_due(&s, 2 * S - 1), 0);
    assert_int_equal(sampler_take_due(&s, 2 * S + 300), FAST_BIT);
    assert_int_equal(sampler_due_ns(&s), 3 * S);
    assert_int_equal(sampler_take_due(&s, 10 * S),
                     FAST_BIT | 1u << FIELD_CLASS_MEDIUM); // together, ticks between lost
    assert_int_equal(sampler_due_ns(&s), 11 * S);
    assert_int_equal(sampler_take_due(&s, 600 * S), ALL_BITS);
}

static void an_unwatched_class_is_never_due(void **state)
{
    list();
    WATCH(202);
    (void)sampler_take_due(&s, S);
    assert_int_equal(sampler_due_ns(&s), 10 * S);
}

static void nothing_watched_is_never_due(void **state)
{
    list();
    watch_with(NULL, 0, S);
    assert_int_equal(sampler_due_ns(&s), UINT64_MAX);
}

static void a_new_watch_replaces_the_old(void **state)
{
    list();
    WATCH(155);
    (void)sampler_take_due(&s, S);
    WATCH(150, 203);
    assert_int_equal(sampler_take_due(&s, S), FAST_BIT);
    pass(FAST_BIT);
    assert_null(find(0, 155));
    assert_int_equal(number(0, 150), 40);
}

static void a_watch_is_cut_at_the_most_counters(void **state)
{
    static uint16_t ids[LIMIT_COUNTERS + 1];
    list();
    for (uint32_t n = LIMIT_COUNTERS - 1; n <= LIMIT_COUNTERS + 1; n++) {
        for (uint32_t i = 0; i < n; i++)
            ids[i] = (uint16_t)(10000 + i);
        watch_with(ids, n, S);
        assert_int_equal(s.row_count, n < LIMIT_COUNTERS ? n : LIMIT_COUNTERS);
    }
    pass(ALL_BITS);
    assert_int_equal(frame.as.sample.head->count, LIMIT_COUNTERS);
}

static void without_gpus_a_sample_is_empty(void **state)
{
    fake.gpus = 0;
    list();
    WATCH(150, 60);
    pass(FAST_BIT);
    assert_int_equal(frame.as.sample.head->count, 0);
}

static void all_recipes_can_be_watched_at_once(void **state)
{
    static uint16_t ids[1024];
    fake.gpus = FAKE_GPUS;
    fake.gpu[0].gpm = true;
    fake_add_slot(0, 0, 7, 1, 9728, "MIG-a", "NVIDIA Fake MIG 1g.10gb");
    list();
    for (uint32_t i = 0; i < nvml_recipe_count; i++)
        ids[i] = nvml_recipe_table[i].field;
    watch_with(ids, nvml_recipe_count, S);
    pass(ALL_BITS);
    // Each GPU says something of each field.
    for (uint32_t i = 0; i < nvml_recipe_count; i++)
        for (uint32_t e = 0; e < d.count; e++)
            if (nvml_entity_is_gpu(&d.list[e]))
                assert_non_null(find(e, ids[i]));
    age_bases();
    pass(ALL_BITS);
}

static void the_call_page_names_the_call_and_is_clear_behind_it(void **state)
{
    list();
    WATCH(155);
    pass(FAST_BIT);
    assert_string_equal(fake.page.call, "nvmlDeviceGetPowerUsage");
    assert_int_equal(fake.page.index, 0);
    assert_int_equal(fake.page.entered_ns, 0);
    assert_int_equal(fake.page.calls, fake.n.calls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_call_serves_all_fields_that_come_from_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_not_watched_is_not_called, setup, teardown),
        cmocka_unit_test_setup_teardown(field_values_of_a_class_come_in_one_call_each_id_once,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(the_driver_version_costs_no_call, setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_status_is_sent_once_and_again_when_asked_and_when_it_changes, setup, teardown),
        cmocka_unit_test_setup_teardown(
            what_is_not_supported_is_not_asked_again_until_the_list_is_new, setup, teardown),
        cmocka_unit_test_setup_teardown(fields_that_nvml_lacks_say_so_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(profiling_fields_need_gpm, setup, teardown),
        cmocka_unit_test_setup_teardown(gpm_fields_come_with_the_second_sample_in_one_call, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_pass_too_soon_after_gpm_changes_no_value_of_it, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(instances_have_the_fields_of_their_own_and_no_other, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_mig_handle_gone_bad_asks_for_a_walk, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_gpu_is_asked_no_more_and_the_others_go_on, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(
            a_reset_that_is_required_marks_the_gpu_and_is_a_vendor_error, setup, teardown),
        cmocka_unit_test_setup_teardown(xid_is_0_while_armed_absent_when_not_and_stays_when_lost,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(
            a_gpu_that_fails_whatever_it_is_asked_is_failed_until_it_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(fields_that_fail_make_no_failed_gpu, setup, teardown),
        cmocka_unit_test_setup_teardown(a_result_that_speaks_of_the_driver_makes_it_suspect, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_slow_gpu_has_a_slice_of_each_pass_and_holds_up_none,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_unfinished_goes_on_between_two_dues, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(on_a_slow_gpu_slow_classes_have_a_quarter_of_the_calls,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_lost_in_the_middle_is_not_gone_on_with, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_final_is_asked_again_in_time, setup, teardown),
        cmocka_unit_test_setup_teardown(the_kernel_log_alone_arms_xid_too, setup, teardown),
        cmocka_unit_test_setup_teardown(gpus_out_of_reach_say_why, setup, teardown),
        cmocka_unit_test_setup_teardown(classes_come_back_at_multiples_of_their_period, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(an_unwatched_class_is_never_due, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_watched_is_never_due, setup, teardown),
        cmocka_unit_test_setup_teardown(a_new_watch_replaces_the_old, setup, teardown),
        cmocka_unit_test_setup_teardown(a_watch_is_cut_at_the_most_counters, setup, teardown),
        cmocka_unit_test_setup_teardown(without_gpus_a_sample_is_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(all_recipes_can_be_watched_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(the_call_page_names_the_call_and_is_clear_behind_it, setup,
                                        teardown),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    frame_reader_deinit(&reader);
    return rc;
}
