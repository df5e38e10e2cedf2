// SPDX-License-Identifier: Apache-2.0
// The windowed counters, fed through an inventory as the exporter does.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/clock.h"
#include "exporter/exp_counts.h"

#define T0 (10000 * NS_PER_S)
#define WINDOW (300 * NS_PER_S)
#define NO_INSTANCE UINT32_MAX
#define BLANK_I32 INT64_C(0x7ffffff0)
#define BLANK_I64 INT64_C(0x7ffffffffffffff0)

static const uint16_t fields[] = {112, 150};

struct bench {
    struct inventory inv;
    struct exp_counts *counts;
    uint32_t generation;
    int result; // of all frames: 0, or the last error
};

static void take(struct bench *b, const struct frame *f)
{
    int r = inventory_apply(&b->inv, f);
    int e = exp_counts_take(b->counts, &b->inv, f);
    b->result = r < 0 ? r : e < 0 ? e : b->result;
}

static struct frame_entity gpu(uint32_t index, const char *uuid)
{
    struct frame_entity e = {.kind = FRAME_ENTITY_GPU,
                             .parent = index,
                             .index = index,
                             .minor = index,
                             .id = UINT32_MAX};
    e.gpu_instance_id = e.instance_entity_id = UINT32_MAX;
    sv_copy(e.uuid, sizeof(e.uuid), sv_from(uuid));
    return e;
}

static struct frame_entity instance(uint32_t parent, uint32_t gi, const char *uuid)
{
    struct frame_entity e = {.kind = FRAME_ENTITY_GPU_I, .parent = parent, .minor = UINT32_MAX};
    e.gpu_instance_id = gi;
    e.instance_entity_id = gi;
    e.id = UINT32_MAX;
    sv_copy(e.uuid, sizeof(e.uuid), sv_from(uuid));
    return e;
}

static void list(struct bench *b, const struct frame_entity *entities, uint32_t count)
{
    const struct frame_entities head = {++b->generation, count};
    take(b, &(struct frame){.type = FRAME_ENTITIES, .as.entities = {&head, entities}});
}

#define LIST(b, ...)                                                                               \
    do {                                                                                           \
        const struct frame_entity list_[] = {__VA_ARGS__};                                         \
        list((b), list_, ARRAY_SIZE(list_));                                                       \
    } while (0)

static void sample_of(struct bench *b, uint32_t entity, uint32_t watch, int64_t mask, uint64_t at)
{
    const struct frame_record r = {entity, 112, FRAME_OK, FRAME_VALUE_I64, at, {.i64 = mask}};
    const struct frame_sample head = {
        .generation = b->generation, .watch_id = watch, .classes = 1, .count = 1};
    take(b, &(struct frame){.type = FRAME_SAMPLE, .as.sample = {&head, &r, SV("")}});
}

static void sample(struct bench *b, uint32_t entity, int64_t mask, uint64_t at)
{
    sample_of(b, entity, 1, mask, at);
}

static void no_sample(struct bench *b, uint32_t entity, enum frame_status status, uint64_t at)
{
    const struct frame_record r = {entity, 112, (uint8_t)status, FRAME_VALUE_NONE, at, {.i64 = 0}};
    const struct frame_sample head = {
        .generation = b->generation, .watch_id = 1, .classes = 1, .count = 1};
    take(b, &(struct frame){.type = FRAME_SAMPLE, .as.sample = {&head, &r, SV("")}});
}

static void xids(struct bench *b, uint32_t entity, uint32_t gi, uint32_t code, uint32_t repeats,
                 uint64_t at)
{
    const struct frame_event event = {.entity = entity,
                                      .origin = FRAME_EVENT_NVML,
                                      .xid = code,
                                      .gpu_instance_id = gi,
                                      .repeats = repeats,
                                      .taken_ns = at,
                                      .wall_ns = at};
    const struct frame_events head = {b->generation, 1};
    take(b, &(struct frame){.type = FRAME_EVENTS, .as.events = {&head, &event}});
}

static void xid(struct bench *b, uint32_t entity, uint32_t code, uint64_t at)
{
    xids(b, entity, NO_INSTANCE, code, 0, at);
}

static void open_bench(struct bench *b, uint64_t window_ns)
{
    *b = (struct bench){0};
    inventory_init(&b->inv);
    assert_int_equal(inventory_set_fields(&b->inv, fields, ARRAY_SIZE(fields), 1), 0);
    assert_int_equal(exp_counts_new(&b->counts), 0);
    exp_counts_set_windows(b->counts, window_ns, window_ns);
}

static void close_bench(struct bench *b)
{
    exp_counts_free(b->counts);
    inventory_deinit(&b->inv);
}

static int setup(void **state)
{
    static struct bench b;
    open_bench(&b, WINDOW);
    LIST(&b, gpu(0, "GPU-a"), gpu(1, "GPU-b"));
    *state = &b;
    return 0;
}

static int teardown(void **state)
{
    close_bench(*state);
    return 0;
}

// --- Looking: "42:2 46:1", or "none" without a sample in the window ---

typedef size_t get_rows(struct exp_counts *c, const struct inventory *inv, size_t entity,
                        uint64_t now_ns, struct exp_count *out, bool *known);

static void expect_rows(struct bench *b, get_rows *get, size_t entity, uint64_t now_ns,
                        const char *expected)
{
    struct exp_count rows[LIMIT_XID_CODES];
    bool known = false;
    size_t count = get(b->counts, &b->inv, entity, now_ns, rows, &known);
    struct buf text = BUF_INIT(64 << 10);
    for (size_t i = 0; i < count; i++)
        buf_add_fmt(&text, "%s%u:%llu", i ? " " : "", rows[i].key,
                    (unsigned long long)rows[i].count);
    if (!known)
        buf_add_str(&text, "none");
    assert_string_equal(buf_cstr(&text), expected);
    buf_deinit(&text);
}

#define EXPECT_XIDS(b, entity, now, rows) expect_rows(b, exp_counts_xids, entity, now, rows)
#define EXPECT_CLOCKS(b, entity, now, rows) expect_rows(b, exp_counts_clocks, entity, now, rows)

static size_t xid_totals(struct exp_counts *c, const struct inventory *inv, size_t entity,
                         uint64_t now_ns, struct exp_count *out, bool *known)
{
    (void)now_ns;
    return exp_counts_xid_totals(c, inv, entity, out, known);
}

static size_t clock_totals(struct exp_counts *c, const struct inventory *inv, size_t entity,
                           uint64_t now_ns, struct exp_count *out, bool *known)
{
    (void)now_ns;
    return exp_counts_clock_totals(c, inv, entity, out, known);
}

#define EXPECT_XID_TOTALS(b, entity, rows) expect_rows(b, xid_totals, entity, 0, rows)
#define EXPECT_CLOCK_TOTALS(b, entity, rows) expect_rows(b, clock_totals, entity, 0, rows)

// --- dcgm-exporter's cases ---

static void one_xid_of_each_gpu_is_one(void **state)
{
    xid(*state, 0, 42, T0);
    xid(*state, 1, 46, T0);
    EXPECT_XIDS(*state, 0, T0, "42:1");
    EXPECT_XIDS(*state, 1, T0, "46:1");
}

static void xids_are_counted_by_code(void **state)
{
    static const uint32_t of[2][4] = {{42, 42, 46}, {42, 46, 46, 46}};
    for (uint32_t g = 0; g < 2; g++)
        for (uint32_t i = 0; i < 4 && of[g][i]; i++)
            xid(*state, g, of[g][i], T0 + i);
    EXPECT_XIDS(*state, 0, T0 + NS_PER_S, "42:2 46:1");
    EXPECT_XIDS(*state, 1, T0 + NS_PER_S, "42:1 46:3");
}

static void no_xid_is_counted_for_code_0(void **state)
{
    xid(*state, 0, 0, T0);
    xid(*state, 0, 42, T0);
    EXPECT_XIDS(*state, 0, T0, "42:1");
    EXPECT_XIDS(*state, 1, T0, "none");
    EXPECT_XID_TOTALS(*state, 0, "42:1");
}

static void each_bit_of_a_clock_sample_adds_one(void **state)
{
    sample(*state, 0, 0x24, T0);
    sample(*state, 1, 0xc0, T0);
    EXPECT_CLOCKS(*state, 0, T0, "2:1 5:1");
    EXPECT_CLOCKS(*state, 1, T0, "6:1 7:1");
    for (unsigned i = 1; i < 3; i++)
        sample(*state, 0, 0x24, T0 + i * NS_PER_S);
    sample(*state, 1, 0xc0, T0 + NS_PER_S);
    EXPECT_CLOCKS(*state, 0, T0 + 3 * NS_PER_S, "2:3 5:3");
    EXPECT_CLOCKS(*state, 1, T0 + 3 * NS_PER_S, "6:2 7:2");
}

static void clocks_without_samples_are_unknown_and_zeros_are_known(void **state)
{
    sample(*state, 0, 0, T0);
    EXPECT_CLOCKS(*state, 0, T0, "");
    EXPECT_CLOCKS(*state, 1, T0, "none");
}

static void bits_that_nobody_names_and_blanks_are_not_counted(void **state)
{
    sample(*state, 0, 0x7000000000000201, T0);
    sample(*state, 1, BLANK_I64 + 1, T0);
    EXPECT_CLOCKS(*state, 0, T0, "0:1");
    EXPECT_CLOCKS(*state, 1, T0, "none");
    sample(*state, 1, BLANK_I32 + 3, T0 + 1);
    no_sample(*state, 1, FRAME_NO_DATA, T0 + 2);
    EXPECT_CLOCKS(*state, 1, T0 + 3, "none");
    sample(*state, 1, 0x1ff, T0 + 4);
    EXPECT_CLOCKS(*state, 1, T0 + 4, "0:1 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1");
}

static void clock_events_have_dcgm_exporters_names(void **state)
{
    (void)state;
    static const char *const names[EXP_CLOCK_EVENTS] = {
        "gpu_idle",   "clocks_setting", "power_cap",      "hw_slowdown",    "sync_boost",
        "sw_thermal", "hw_thermal",     "hw_power_brake", "display_clocks",
    };
    for (unsigned i = 0; i < EXP_CLOCK_EVENTS; i++)
        assert_string_equal(exp_clock_event_name(i), names[i]);
    assert_null(exp_clock_event_name(EXP_CLOCK_EVENTS));
}

// --- Windows ---

static void what_is_as_old_as_the_window_counts_and_what_is_older_does_not(void **state)
{
    xid(*state, 0, 79, T0);
    sample(*state, 0, 0x4, T0);
    sample(*state, 0, 0x4, T0 + NS_PER_S);
    EXPECT_XIDS(*state, 0, T0 + WINDOW, "79:1");
    EXPECT_CLOCKS(*state, 0, T0 + WINDOW, "2:2");
    EXPECT_XIDS(*state, 0, T0 + WINDOW + 1, "none");
    EXPECT_CLOCKS(*state, 0, T0 + WINDOW + 1, "2:1");
    EXPECT_CLOCKS(*state, 0, T0 + NS_PER_S + WINDOW + 1, "none");
    EXPECT_XID_TOTALS(*state, 0, "79:1");
}

static void a_window_of_0_counts_the_same_instant(void **state)
{
    struct bench *b = *state;
    exp_counts_set_windows(b->counts, 0, 0);
    xid(b, 0, 42, T0);
    xid(b, 0, 42, T0);
    sample(b, 0, 0x1, T0);
    EXPECT_XIDS(b, 0, T0, "42:2");
    EXPECT_CLOCKS(b, 0, T0, "0:1");
    EXPECT_XIDS(b, 0, T0 + 1, "none");
    EXPECT_CLOCKS(b, 0, T0 + 1, "none");
}

static void a_second_apart_counts_are_exact_at_every_moment(void **state)
{
    for (uint64_t i = 0; i < 2000; i++) {
        sample(*state, 0, i % 3 ? 0x1 : 0x5, T0 + i * NS_PER_S);
        uint64_t first = i > 300 ? i - 300 : 0;
        unsigned idle = 0, capped = 0;
        for (uint64_t n = first; n <= i; n++) {
            idle++;
            capped += n % 3 == 0;
        }
        char rows[64];
        (void)snprintf(rows, sizeof(rows), capped ? "0:%u 2:%u" : "0:%u", idle, capped);
        EXPECT_CLOCKS(*state, 0, T0 + i * NS_PER_S, rows);
    }
}

// Samples each period through three windows: the count is never short, and too high by what came in
// one 600th of the window at most.
static void faster_samples_are_counted_to_a_600th_of_the_window(void **state)
{
    (void)state;
    static const struct {
        uint64_t window_ns, period_ns;
    } cases[] = {
        {WINDOW, 100 * NS_PER_MS},
        {60 * NS_PER_S, 100 * NS_PER_MS},
        {60 * NS_PER_S, NS_PER_MS},
        {7 * 86400 * NS_PER_S, 100 * NS_PER_S},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct bench b;
        open_bench(&b, cases[i].window_ns);
        LIST(&b, gpu(0, "GPU-a"));
        uint64_t within = cases[i].window_ns / cases[i].period_ns + 1;
        uint64_t part = within / LIMIT_EXP_BUCKETS + 2;
        for (uint64_t n = 0; n < 3 * within; n++) {
            uint64_t now = T0 + n * cases[i].period_ns;
            sample(&b, 0, 0x8, now);
            struct exp_count rows[EXP_CLOCK_EVENTS];
            bool known;
            assert_int_equal(exp_counts_clocks(b.counts, &b.inv, 0, now, rows, &known), 1);
            uint64_t exact = n + 1 < within ? n + 1 : within;
            assert_in_range(rows[0].count, exact, exact + part);
        }
        assert_int_equal(exp_counts_dropped(b.counts), 0);
        close_bench(&b);
    }
}

static void a_narrower_window_and_a_wider_one_take_what_is_there(void **state)
{
    struct bench *b = *state;
    for (unsigned i = 0; i < 100; i++)
        sample(b, 0, 0x1, T0 + i * NS_PER_S);
    exp_counts_set_windows(b->counts, NS_PER_S, 10 * NS_PER_S);
    EXPECT_CLOCKS(b, 0, T0 + 99 * NS_PER_S, "0:11");
    exp_counts_set_windows(b->counts, NS_PER_S, 1000 * NS_PER_S);
    EXPECT_CLOCKS(b, 0, T0 + 99 * NS_PER_S, "0:11");
    for (unsigned i = 100; i < 200; i++)
        sample(b, 0, 0x1, T0 + i * NS_PER_S);
    EXPECT_CLOCKS(b, 0, T0 + 200 * NS_PER_S, "0:111");
}

// --- Time that does not go on as it should ---

static void a_gap_in_the_samples_is_a_gap_in_the_counts(void **state)
{
    sample(*state, 0, 0x4, T0);
    no_sample(*state, 0, FRAME_LOST, T0 + NS_PER_S);
    sample(*state, 0, 0x4, T0 + 200 * NS_PER_S);
    EXPECT_CLOCKS(*state, 0, T0 + 200 * NS_PER_S, "2:2");
    EXPECT_CLOCK_TOTALS(*state, 0, "");
}

static void a_value_that_is_told_again_counts_once(void **state)
{
    sample(*state, 0, 0x4, T0);
    sample(*state, 0, 0x4, T0);
    sample(*state, 1, 0x8, T0 + 1);
    EXPECT_CLOCKS(*state, 0, T0 + 1, "2:1");
}

static void a_sample_from_the_future_empties_no_window_and_does_not_stay(void **state)
{
    sample(*state, 0, 0x1, T0);
    xid(*state, 0, 31, T0);
    sample(*state, 0, 0x2, T0 + 9000 * NS_PER_S);
    xid(*state, 0, 43, UINT64_MAX);
    sample(*state, 0, 0x4, T0 + NS_PER_S);
    EXPECT_CLOCKS(*state, 0, T0 + NS_PER_S, "0:1 1:1 2:1");
    EXPECT_XIDS(*state, 0, T0 + NS_PER_S, "31:1 43:1");
    EXPECT_CLOCKS(*state, 0, T0 + 2 * NS_PER_S + WINDOW, "none");
    EXPECT_XIDS(*state, 0, T0 + 2 * NS_PER_S + WINDOW, "none");
}

static void a_clock_that_jumps_back_delays_an_end_by_a_window_at_most(void **state)
{
    sample(*state, 0, 0x1, T0);
    xid(*state, 0, 31, T0);
    EXPECT_CLOCKS(*state, 0, T0 - 5000 * NS_PER_S, "0:1");
    EXPECT_XIDS(*state, 0, T0 - 5000 * NS_PER_S, "31:1");
    EXPECT_CLOCKS(*state, 0, T0 - 4999 * NS_PER_S + WINDOW, "none");
    EXPECT_XIDS(*state, 0, T0 - 4999 * NS_PER_S + WINDOW, "none");
}

static void samples_of_another_watch_do_not_count(void **state)
{
    sample_of(*state, 0, 2, 0x1, T0);
    EXPECT_CLOCKS(*state, 0, T0, "none");
}

// --- Devices that come and go ---

static void counts_go_with_the_gpu_over_new_lists_and_places(void **state)
{
    struct bench *b = *state;
    xid(b, 1, 48, T0);
    sample(b, 1, 0x4, T0);
    LIST(b, gpu(0, "GPU-b"), gpu(1, "GPU-c"));
    EXPECT_XIDS(b, 0, T0, "48:1");
    EXPECT_CLOCKS(b, 0, T0, "2:1");
    EXPECT_XIDS(b, 1, T0, "none");
    xid(b, 0, 48, T0 + 1);
    EXPECT_XIDS(b, 0, T0 + 1, "48:2");
    EXPECT_XID_TOTALS(b, 0, "48:2");
}

static void events_of_a_list_before_do_not_count(void **state)
{
    struct bench *b = *state;
    const struct frame_event event = {.entity = 0, .xid = 42, .gpu_instance_id = NO_INSTANCE};
    const struct frame_events head = {b->generation, 1};
    LIST(b, gpu(0, "GPU-b"));
    take(b, &(struct frame){.type = FRAME_EVENTS, .as.events = {&head, &event}});
    EXPECT_XIDS(b, 0, T0, "none");
}

static void an_instance_has_its_own_xids_and_those_nobody_owns(void **state)
{
    struct bench *b = *state;
    LIST(b, gpu(0, "GPU-a"), instance(0, 1, "MIG-1"), instance(0, 2, "MIG-2"));
    xids(b, 0, 1, 43, 0, T0);
    xids(b, 0, 2, 31, 2, T0);
    xids(b, 0, NO_INSTANCE, 79, 0, T0);
    xids(b, 0, 9, 13, 0, T0); // an instance that is not listed: the GPU's
    sample(b, 0, 0x20, T0);
    EXPECT_XIDS(b, 0, T0, "13:1 31:3 43:1 79:1");
    EXPECT_XIDS(b, 1, T0, "13:1 43:1 79:1");
    EXPECT_XIDS(b, 2, T0, "13:1 31:3 79:1");
    EXPECT_XID_TOTALS(b, 2, "13:1 31:3 79:1");
    for (size_t entity = 0; entity < 3; entity++)
        EXPECT_CLOCKS(b, entity, T0, "5:1");
}

static void a_new_instance_in_an_old_ones_place_starts_with_nothing(void **state)
{
    struct bench *b = *state;
    LIST(b, gpu(0, "GPU-a"), instance(0, 1, "MIG-1"));
    xids(b, 0, 1, 43, 0, T0);
    LIST(b, gpu(0, "GPU-a"), instance(0, 1, "MIG-other"));
    EXPECT_XIDS(b, 1, T0, "none");
    EXPECT_XID_TOTALS(b, 1, "none");
    EXPECT_XIDS(b, 0, T0, "43:1");
    LIST(b, gpu(0, "GPU-a"), instance(0, 1, "MIG-1"));
    EXPECT_XIDS(b, 1, T0, "43:1"); // the same layout again
}

static void two_inventories_do_not_add_up(void **state)
{
    struct bench *b = *state;
    struct bench other = *b;
    inventory_init(&other.inv);
    other.generation = 0;
    LIST(&other, gpu(0, "GPU-a"));
    xid(b, 0, 42, T0);
    xid(&other, 0, 42, T0);
    EXPECT_XIDS(b, 0, T0, "42:1");
    EXPECT_XIDS(&other, 0, T0, "42:1");
    inventory_deinit(&other.inv);
}

// --- Totals ---

static void totals_count_how_often_a_reason_came(void **state)
{
    static const int64_t masks[] = {0x5, 0x5, 0x1, 0x5, 0x0, 0x4, 0x4};
    for (unsigned i = 0; i < ARRAY_SIZE(masks); i++)
        sample(*state, 0, masks[i], T0 + i * NS_PER_S);
    EXPECT_CLOCK_TOTALS(*state, 0, "2:2"); // what was set at the start is not counted
    EXPECT_CLOCK_TOTALS(*state, 1, "none");
    sample(*state, 0, 0x5, T0 + 100 * NS_PER_S);
    EXPECT_CLOCK_TOTALS(*state, 0, "0:1 2:2");
}

static void totals_of_xids_outlast_the_window(void **state)
{
    struct bench *b = *state;
    exp_counts_set_windows(b->counts, 0, 0);
    for (unsigned i = 0; i < 5000; i++) {
        xids(b, 0, NO_INSTANCE, 40 + i % 3, 9, T0 + i);
        bool known;
        struct exp_count rows[LIMIT_XID_CODES];
        assert_int_equal(exp_counts_xids(b->counts, &b->inv, 0, T0 + i, rows, &known), 1);
    }
    EXPECT_XID_TOTALS(b, 0, "40:16670 41:16670 42:16660");
    assert_int_equal(exp_counts_dropped(b->counts), 0);
}

// --- Ceilings ---

static void a_storm_of_one_xid_is_one_row_and_one_place(void **state)
{
    for (unsigned i = 0; i < 100000; i++)
        xid(*state, 0, 31, T0 + i * NS_PER_US);
    EXPECT_XIDS(*state, 0, T0 + NS_PER_S, "31:100000");
    struct bench *b = *state;
    assert_int_equal(exp_counts_dropped(b->counts), 0);
}

static void more_xids_than_are_remembered_push_out_the_oldest(void **state)
{
    struct bench *b = *state;
    for (unsigned i = 0; i < LIMIT_EXP_XIDS; i++)
        xid(b, 0, 1 + i % 200, T0 + i / 200);
    xids(b, 0, NO_INSTANCE, 500, 4, T0 + 10);
    struct exp_count rows[LIMIT_XID_CODES];
    bool known;
    // Each code came within one part of the window: 200 places are taken.
    assert_int_equal(exp_counts_xids(b->counts, &b->inv, 0, T0 + 10, rows, &known), 201);
    assert_int_equal(rows[0].count, 6);
    assert_int_equal(rows[200].count, 5);
    assert_int_equal(exp_counts_dropped(b->counts), 0);
    for (unsigned i = 0; i < LIMIT_EXP_XIDS; i++)
        xid(b, 0, 600 + i, T0 + 20);
    assert_int_equal(exp_counts_xids(b->counts, &b->inv, 0, T0 + 30, rows, &known),
                     LIMIT_XID_CODES);
    assert_int_equal(rows[0].key, 600);
    // 1024 of 200 codes, five of 500; 201 codes and 823 of 1024 fit in the totals.
    assert_int_equal(exp_counts_dropped(b->counts), 1024 + 5 + 201);
}

static void totals_of_instances_that_are_gone_make_room_and_stay_with_the_gpu(void **state)
{
    struct bench *b = *state;
    for (unsigned i = 0; i < 2 * LIMIT_EXP_XIDS; i++) {
        char uuid[32];
        (void)snprintf(uuid, sizeof(uuid), "MIG-%u", i);
        LIST(b, gpu(0, "GPU-a"), instance(0, 1, uuid));
        xids(b, 0, 1, 43, 0, T0 + i * NS_PER_S);
        EXPECT_XID_TOTALS(b, 1, "43:1");
    }
    EXPECT_XID_TOTALS(b, 0, "43:2048");
}

static void gpus_that_are_gone_make_room(void **state)
{
    struct bench *b = *state;
    for (unsigned i = 0; i < 3 * LIMIT_EXP_DEVICES; i++) {
        char uuid[32];
        (void)snprintf(uuid, sizeof(uuid), "GPU-%u", i);
        inventory_forget_absent(&b->inv);
        LIST(b, gpu(0, uuid));
        xid(b, 0, 79, T0);
        EXPECT_XIDS(b, 0, T0, "79:1");
    }
    assert_int_equal(exp_counts_dropped(b->counts), 0);
}

// --- Memory ---

static void work_of_the_sweep(void)
{
    struct bench b = {0};
    inventory_init(&b.inv);
    bool ready = inventory_set_fields(&b.inv, fields, ARRAY_SIZE(fields), 1) == 0 &&
                 exp_counts_new(&b.counts) == 0;
    if (ready) {
        exp_counts_set_windows(b.counts, WINDOW, WINDOW);
        LIST(&b, gpu(0, "GPU-a"), instance(0, 1, "MIG-1"));
    }
    for (unsigned i = 0; ready && i < 40; i++) {
        sample(&b, 0, 0x1, T0 + i * NS_PER_S);
        xids(&b, 0, i % 2 ? 1 : NO_INSTANCE, 1 + i, 0, T0 + i * NS_PER_S);
    }
    assert_true(!ready || b.result == (allocation_failed ? -ENOMEM : 0));
    struct exp_count rows[EXP_CLOCK_EVENTS];
    bool known;
    if (ready && !allocation_failed) {
        assert_int_equal(exp_counts_clocks(b.counts, &b.inv, 0, T0 + WINDOW, rows, &known), 1);
        assert_int_equal(rows[0].count, 40);
    }
    exp_counts_free(b.counts);
    inventory_deinit(&b.inv);
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    assert_in_range(allocation_sweep(work_of_the_sweep), 10, 1000);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_xid_of_each_gpu_is_one),
        TEST(xids_are_counted_by_code),
        TEST(no_xid_is_counted_for_code_0),
        TEST(each_bit_of_a_clock_sample_adds_one),
        TEST(clocks_without_samples_are_unknown_and_zeros_are_known),
        TEST(bits_that_nobody_names_and_blanks_are_not_counted),
        TEST(clock_events_have_dcgm_exporters_names),
        TEST(what_is_as_old_as_the_window_counts_and_what_is_older_does_not),
        TEST(a_window_of_0_counts_the_same_instant),
        TEST(a_second_apart_counts_are_exact_at_every_moment),
        TEST(faster_samples_are_counted_to_a_600th_of_the_window),
        TEST(a_narrower_window_and_a_wider_one_take_what_is_there),
        TEST(a_gap_in_the_samples_is_a_gap_in_the_counts),
        TEST(a_value_that_is_told_again_counts_once),
        TEST(a_sample_from_the_future_empties_no_window_and_does_not_stay),
        TEST(a_clock_that_jumps_back_delays_an_end_by_a_window_at_most),
        TEST(samples_of_another_watch_do_not_count),
        TEST(counts_go_with_the_gpu_over_new_lists_and_places),
        TEST(events_of_a_list_before_do_not_count),
        TEST(an_instance_has_its_own_xids_and_those_nobody_owns),
        TEST(a_new_instance_in_an_old_ones_place_starts_with_nothing),
        TEST(two_inventories_do_not_add_up),
        TEST(totals_count_how_often_a_reason_came),
        TEST(totals_of_xids_outlast_the_window),
        TEST(a_storm_of_one_xid_is_one_row_and_one_place),
        TEST(more_xids_than_are_remembered_push_out_the_oldest),
        TEST(totals_of_instances_that_are_gone_make_room_and_stay_with_the_gpu),
        TEST(gpus_that_are_gone_make_room),
        TEST(each_allocation_may_fail),
    };
    return cmocka_run_group_tests_name("exp_counts", tests, NULL, NULL);
}
