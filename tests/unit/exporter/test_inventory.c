// SPDX-License-Identifier: Apache-2.0
#include "../allocation_sweep.h"
#include "inventory_frames.h"

// --- Fixtures: two GPUs, watch 1, generation 1 ---

static int setup(void **state_out)
{
    struct inventory *inv = calloc(1, sizeof(*inv));
    inventory_init(inv);
    assert_int_equal(inventory_set_fields(inv, fields, ARRAY_SIZE(fields), 1), 0);
    const uint16_t labels[] = {DRIVER, SERIAL};
    inventory_set_labels(inv, labels, ARRAY_SIZE(labels));
    state(inv, FRAME_STATE_READY, "550.54.15");
    LIST(inv, 1, gpu(0, "GPU-a", "0000:01:00.0"), gpu(1, "GPU-b", "0000:02:00.0"));
    *state_out = inv;
    return 0;
}

static int teardown(void **state_in)
{
    inventory_deinit(*state_in);
    free(*state_in);
    return 0;
}

// --- Values ---

static void gives_what_was_sampled(void **st)
{
    struct inventory *inv = *st;
    SAMPLE_TEXT(inv, 1, 1, SV("550.54.15x123"), record_text(0, DRIVER, 0, 9, T0),
                record_text(0, SERIAL, 10, 3, T0), record_i64(0, TEMP, 41, T0),
                record_double(0, POWER, 71.25, T0), record_i64(1, TEMP, 43, T0));
    assert_i64(inv, 0, TEMP, 41);
    assert_i64(inv, 1, TEMP, 43);
    assert_true(find_at(inv, 0, POWER, T0)->value.f64 == 71.25);
    assert_string_equal(find_at(inv, 0, DRIVER, T0)->value.string, "550.54.15");
    assert_string_equal(find_at(inv, 0, SERIAL, T0)->value.string, "123");
    assert_reason(inv, 1, POWER, "no_data");
    assert_int_equal(inv->samples, 1);
    assert_int_equal(inv->last_duration_ns, 5 * NS_PER_MS);
    assert_int_equal(inv->last_sample_ns[FIELD_CLASS_FAST], T0 + 5 * NS_PER_MS);
    assert_int_equal(inv->last_sample_ns[FIELD_CLASS_SLOW], 0);
}

static void layout_stays_over_samples_of_readings(void **st)
{
    struct inventory *inv = *st;
    SAMPLE_TEXT(inv, 1, 1, SV("550"), record_text(0, DRIVER, 0, 3, T0),
                record_i64(0, TEMP, 41, T0));
    uint64_t layout = inv->layout;
    for (int64_t i = 0; i < 100; i++)
        SAMPLE_TEXT(inv, 1, 1, SV("550"), record_text(0, DRIVER, 0, 3, T0 + (uint64_t)i),
                    record_i64(0, TEMP, i, T0 + (uint64_t)i), record_i64(1, XID, 0, T0));
    assert_int_equal(inv->layout, layout);
    SAMPLE_TEXT(inv, 1, 1, SV("560"), record_text(0, DRIVER, 0, 3, T0));
    assert_int_equal(inv->layout, layout + 1);
}

static void layout_grows_when_a_number_that_is_a_label_changes(void **st)
{
    struct inventory *inv = *st;
    const uint16_t labels[] = {TEMP};
    inventory_set_labels(inv, labels, 1);
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0));
    uint64_t layout = inv->layout;
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0 + 1));
    assert_int_equal(inv->layout, layout);
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 42, T0 + 2));
    assert_int_equal(inv->layout, layout + 1);
    SAMPLE(inv, 1, 1, record_status(0, TEMP, FRAME_NOT_SUPPORTED, T0 + 3));
    assert_int_equal(inv->layout, layout + 2);
    SAMPLE(inv, 1, 1, record_status(0, TEMP, FRAME_NO_DATA, T0 + 4));
    assert_int_equal(inv->layout, layout + 2);
}

static void a_bad_status_clears_at_once_and_is_remembered(void **st)
{
    struct inventory *inv = *st;
    static const struct {
        enum frame_status status;
        const char *text;
    } cases[] = {
        {FRAME_NO_DATA, "no_data"},
        {FRAME_NOT_SUPPORTED, "not_supported"},
        {FRAME_NO_SYMBOL, "no_symbol"},
        {FRAME_NO_PERMISSION, "no_permission"},
        {FRAME_NEEDS_DCGM, "needs_dcgm"},
        {FRAME_NEEDS_GPM, "needs_gpm"},
        {FRAME_LOST, "lost"},
        {FRAME_VENDOR_ERROR, "vendor_error"},
        {FRAME_INVALID, "invalid"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0));
        assert_i64(inv, 0, TEMP, 41);
        assert_int_equal(inventory_field_status(inv, &inv->entities[0], TEMP), FRAME_OK);
        SAMPLE(inv, 1, 1, record_status(0, TEMP, cases[i].status, T0));
        assert_reason(inv, 0, TEMP, cases[i].text);
        assert_int_equal(inventory_field_status(inv, &inv->entities[0], TEMP), cases[i].status);
    }
}

static void numbers_without_sense_are_invalid(void **st)
{
    struct inventory *inv = *st;
    const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        SAMPLE(inv, 1, 1, record_double(0, POWER, 1.0, T0));
        SAMPLE(inv, 1, 1, record_double(0, POWER, bad[i], T0));
        assert_reason(inv, 0, POWER, "invalid");
    }
}

static void age_at(const struct inventory *inv, uint16_t field, uint64_t horizon_ns)
{
    assert_non_null(find_at(inv, 0, field, T0));
    assert_non_null(find_at(inv, 0, field, T0 + horizon_ns - 1));
    assert_non_null(find_at(inv, 0, field, T0 + horizon_ns));
    assert_null(find_at(inv, 0, field, T0 + horizon_ns + 1));
    assert_non_null(find_at(inv, 0, field, T0 - horizon_ns));
    assert_null(find_at(inv, 0, field, T0 - horizon_ns - 1));
}

static uint64_t expected_horizon(uint16_t field)
{
    uint64_t three = 3 * periods[field_find(field)->cost];
    return three > 15 * NS_PER_S ? three : 15 * NS_PER_S;
}

static void a_value_is_good_for_three_periods_and_at_least_15_s(void **st)
{
    struct inventory *inv = *st;
    SAMPLE_TEXT(inv, 1, 1, SV("550"), record_text(0, DRIVER, 0, 3, T0), record_i64(0, TEMP, 41, T0),
                record_double(0, POWER, 1, T0), record_i64(0, FB_USED, 7, T0));
    age_at(inv, TEMP, expected_horizon(TEMP));
    age_at(inv, POWER, expected_horizon(POWER));
    age_at(inv, FB_USED, expected_horizon(FB_USED));
    age_at(inv, DRIVER, expected_horizon(DRIVER));
    assert_int_equal(expected_horizon(TEMP), 15 * NS_PER_S);
    assert_true(expected_horizon(DRIVER) > 15 * NS_PER_S);
}

static void a_huge_period_does_not_overflow(void **st)
{
    struct inventory *inv = *st;
    const uint64_t huge[FIELD_CLASS_COUNT] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0));
    assert_non_null(
        inventory_find(inv, &inv->entities[0], field_find(TEMP), huge, T0 + 1000 * NS_PER_S));
}

static void texts_are_cut_at_a_character_and_made_clean(void **st)
{
    struct inventory *inv = *st;
    char text[LIMIT_VALUE_STRING_BYTES + 2];
    memset(text, 'x', sizeof(text));
    struct sv all = {text, sizeof(text)};
    for (uint64_t n = LIMIT_VALUE_STRING_BYTES - 1; n <= LIMIT_VALUE_STRING_BYTES + 1; n++) {
        SAMPLE_TEXT(inv, 1, 1, all, record_text(0, SERIAL, 0, n, T0));
        size_t expected = n < LIMIT_VALUE_STRING_BYTES ? n : LIMIT_VALUE_STRING_BYTES;
        assert_int_equal(strlen(find_at(inv, 0, SERIAL, T0)->value.string), expected);
    }
    memcpy(text + LIMIT_VALUE_STRING_BYTES - 1, "\xc3\xa9", 2); // é over the edge
    SAMPLE_TEXT(inv, 1, 1, all, record_text(0, SERIAL, 0, LIMIT_VALUE_STRING_BYTES + 1, T0));
    assert_int_equal(strlen(find_at(inv, 0, SERIAL, T0)->value.string),
                     LIMIT_VALUE_STRING_BYTES - 1);
    SAMPLE_TEXT(inv, 1, 1,
                SV("a\xff"
                   "b\0c"),
                record_text(0, SERIAL, 0, 5, T0));
    assert_string_equal(find_at(inv, 0, SERIAL, T0)->value.string, "a?b");
    SAMPLE_TEXT(inv, 1, 1, SV("\xc3\xa9"), record_text(0, SERIAL, 0, 2, T0));
    assert_string_equal(find_at(inv, 0, SERIAL, T0)->value.string, "\xc3\xa9");
}

static void texts_together_have_a_ceiling(void **st)
{
    struct inventory *inv = *st;
    // 2 MiB of texts; the rest up to the ceiling is made believe.
    enum { COUNT = 1024 };
    static struct frame_entity list[COUNT];
    static struct frame_record records[2 * COUNT];
    static char text[LIMIT_VALUE_STRING_BYTES];
    memset(text, 'x', sizeof(text));
    for (uint32_t i = 0; i < COUNT; i++) {
        list[i] = gpu(i, "", "");
        records[2 * i] = record_text(i, DRIVER, 0, sizeof(text), T0);
        records[2 * i + 1] = record_text(i, SERIAL, 0, sizeof(text), T0);
    }
    assert_int_equal(try_list(inv, 2, list, COUNT), 0);
    const struct sv strings = {text, sizeof(text)};
    assert_int_equal(try_sample(inv, 2, 1, records, 2 * COUNT, strings), 0);
    assert_int_equal(inv->dropped, 0);
    inv->string_bytes +=
        LIMIT_INVENTORY_STRING_BYTES - inv->string_bytes - LIMIT_VALUE_STRING_BYTES - 1;
    size_t before = inv->string_bytes;
    assert_int_equal(inventory_set_fields(inv, (const uint16_t[]){SERIAL, 54}, 2, 2), 0);
    size_t held = COUNT * (sizeof(text) + 1);
    assert_int_equal(inv->string_bytes, before - held); // DRIVER's are gone
    inv->string_bytes += held;
    const struct frame_record one[] = {record_text(0, 54, 0, sizeof(text), T0),
                                       record_text(1, 54, 0, 1, T0)};
    assert_int_equal(try_sample(inv, 2, 2, one, 2, strings), 0);
    assert_int_equal(inv->dropped, 1); // the first fitted exactly
    assert_int_equal(inventory_field_status(inv, &inv->entities[0], 54), FRAME_OK);
    assert_int_equal(inventory_field_status(inv, &inv->entities[1], 54), FRAME_NO_DATA);
    inv->string_bytes -= before;
}

static void frames_of_another_watch_or_generation_are_ignored(void **st)
{
    struct inventory *inv = *st;
    SAMPLE(inv, 1, 2, record_i64(0, TEMP, 1, T0));
    SAMPLE(inv, 2, 1, record_i64(0, TEMP, 2, T0));
    event(inv, 2, 0, UINT32_MAX, 79, T0);
    assert_int_equal(inv->samples, 0);
    assert_reason(inv, 0, TEMP, "no_data");
    assert_int_equal(inv->entities[0].xid_count, 0);
}

static void records_of_unknown_entities_or_fields_are_ignored(void **st)
{
    struct inventory *inv = *st;
    SAMPLE(inv, 1, 1, record_i64(2, TEMP, 1, T0), record_i64(UINT32_MAX, TEMP, 1, T0),
           record_i64(0, 9999, 1, T0), record_i64(0, TEMP, 5, T0));
    assert_i64(inv, 0, TEMP, 5);
    assert_reason(inv, 1, TEMP, "no_data");
}

// --- Lists ---

static void values_and_xids_follow_the_uuid_over_a_new_list(void **st)
{
    struct inventory *inv = *st;
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0), record_i64(1, TEMP, 43, T0));
    event(inv, 1, 1, UINT32_MAX, 13, T0);
    uint64_t layout = inv->layout;
    LIST(inv, 7, gpu(0, "GPU-a", "0000:01:00.0"),
         gpu(1, "GPU-b", "0000:02:00.0")); // another helper, same devices
    assert_int_equal(inv->layout, layout);
    assert_i64(inv, 1, TEMP, 43);
    LIST(inv, 1, gpu(0, "GPU-b", "0000:02:00.0"), gpu(1, "GPU-a", "0000:01:00.0"));
    assert_int_equal(inv->layout, layout + 1);
    assert_entity(inv, 0, "GPU-b", "");
    assert_i64(inv, 0, TEMP, 43);
    assert_i64(inv, 1, TEMP, 41);
    assert_xid(&inv->entities[0], 0, 13, 1);
    assert_int_equal(inv->entities[0].last_xid, 13);
    assert_int_equal(inv->entities[1].xid_count, 0);
}

static void a_new_uuid_at_the_same_place_is_a_new_gpu(void **st)
{
    struct inventory *inv = *st;
    SAMPLE(inv, 1, 1, record_i64(1, TEMP, 43, T0));
    LIST(inv, 2, gpu(0, "GPU-a", "0000:01:00.0"), gpu(1, "GPU-c", "0000:02:00.0"));
    assert_int_equal(inv->entity_count, 3);
    assert_entity(inv, 1, "GPU-c", "");
    assert_reason(inv, 1, TEMP, "no_data");
    assert_entity(inv, 2, "GPU-b", "lost");
    assert_false(inv->entities[2].present);
}

static void unknown_uuids_are_matched_by_bus_id_then_by_index(void **st)
{
    struct inventory *inv = *st;
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0), record_i64(1, TEMP, 43, T0));
    // Index 0 is blank but for the bus id of b; index 1 is a.
    LIST(inv, 2, gpu(0, "", "0000:02:00.0"), gpu(1, "GPU-a", ""));
    assert_int_equal(inv->entity_count, 2);
    assert_entity(inv, 0, "GPU-b", "");
    assert_entity(inv, 1, "GPU-a", "");
    assert_string_equal(inv->entities[1].info.bus_id, "0000:01:00.0");
    assert_i64(inv, 0, TEMP, 43);
    assert_i64(inv, 1, TEMP, 41);
    LIST(inv, 3, blank(0, FRAME_ENTITY_UP), blank(1, FRAME_ENTITY_UP));
    assert_entity(inv, 0, "GPU-b", "");
    assert_entity(inv, 1, "GPU-a", "");
    assert_int_equal(inv->entities[1].info.minor, 1);
}

static void a_lost_gpu_keeps_identity_labels_and_xids_but_no_readings(void **st)
{
    struct inventory *inv = *st;
    SAMPLE_TEXT(inv, 1, 1, SV("550s1"), record_text(1, DRIVER, 0, 3, T0),
                record_text(1, SERIAL, 3, 2, T0), record_i64(1, TEMP, 43, T0),
                record_i64(0, TEMP, 41, T0), record_i64(0, XID, 0, T0), record_i64(1, XID, 0, T0));
    event(inv, 1, 1, UINT32_MAX, 79, T0);
    uint64_t layout = inv->layout;
    LIST(inv, 2, gpu(0, "GPU-a", "0000:01:00.0"), blank(1, FRAME_ENTITY_LOST));
    assert_true(inv->layout > layout);
    assert_entity(inv, 0, "GPU-a", "");
    assert_i64(inv, 0, TEMP, 41);
    assert_entity(inv, 1, "GPU-b", "lost");
    assert_true(inv->entities[1].present);
    assert_string_equal(inv->entities[1].info.name, "NVIDIA A10G");
    assert_string_equal(inv->entities[1].info.bus_id, "0000:02:00.0");
    assert_reason(inv, 1, TEMP, "lost");
    assert_int_equal(inventory_field_status(inv, &inv->entities[1], TEMP), FRAME_LOST);
    SAMPLE(inv, 2, 1, record_status(1, SERIAL, FRAME_LOST, T0),
           record_status(1, TEMP, FRAME_LOST, T0));
    assert_string_equal(
        inventory_find_label(inv, &inv->entities[1], field_find(SERIAL))->value.string, "s1");
    assert_string_equal(
        inventory_find_label(inv, &inv->entities[1], field_find(DRIVER))->value.string, "550");
    assert_xid(&inv->entities[1], 0, 79, 1);
    assert_i64(inv, 1, XID, 79);
    assert_i64(inv, 0, XID, 0);
}

static void a_gpu_that_comes_back_starts_without_old_readings(void **st)
{
    struct inventory *inv = *st;
    SAMPLE(inv, 1, 1, record_i64(1, TEMP, 43, T0));
    event(inv, 1, 1, UINT32_MAX, 79, T0);
    LIST(inv, 2, gpu(0, "GPU-a", "0000:01:00.0")); // not even enumerated
    assert_entity(inv, 1, "GPU-b", "lost");
    LIST(inv, 3, gpu(0, "GPU-a", "0000:01:00.0"), gpu(1, "GPU-b", "0000:02:00.0"));
    assert_int_equal(inv->entity_count, 2);
    assert_entity(inv, 1, "GPU-b", "");
    assert_true(inv->entities[1].present);
    assert_reason(inv, 1, TEMP, "no_data");
    assert_xid(&inv->entities[1], 0, 79, 1);
    SAMPLE(inv, 3, 1, record_i64(1, TEMP, 44, T0));
    assert_i64(inv, 1, TEMP, 44);
}

static void each_state_has_its_reason(void **st)
{
    struct inventory *inv = *st;
    static const struct {
        enum frame_entity_state state;
        const char *text;
    } cases[] = {
        {FRAME_ENTITY_UP, ""},
        {FRAME_ENTITY_LOST, "lost"},
        {FRAME_ENTITY_RESET_REQUIRED, "reset_required"},
        {FRAME_ENTITY_NO_PERMISSION, "no_permission"},
        {FRAME_ENTITY_SKIPPED, "hung"},
        {FRAME_ENTITY_FAILED, "failed"},
    };
    for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
        LIST(inv, 2 + i, gpu(0, "GPU-a", "0000:01:00.0"), blank(1, cases[i].state));
        assert_entity(inv, 0, "GPU-a", "");
        assert_entity(inv, 1, "GPU-b", cases[i].text);
    }
}

static void gone_gpus_are_dropped_when_their_removal_was_announced(void **st)
{
    struct inventory *inv = *st;
    LIST(inv, 2, gpu(0, "GPU-a", "0000:01:00.0"));
    assert_int_equal(inv->entity_count, 2);
    inventory_forget_absent(inv);
    assert_int_equal(inv->entity_count, 2);
    LIST(inv, 3, gpu(0, "GPU-c", "0000:03:00.0"));
    assert_int_equal(inv->entity_count, 1);
    assert_entity(inv, 0, "GPU-c", "");
    LIST(inv, 4, gpu(0, "GPU-d", "0000:04:00.0")); // once only
    assert_int_equal(inv->entity_count, 2);
}

static void at_most_limit_gpus_are_kept_as_lost(void **st)
{
    struct inventory *inv = *st;
    struct frame_entity list[LIMIT_GPUS];
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < LIMIT_GPUS; i++) {
            list[i] = gpu(i, "GPU-r-xx", "");
            list[i].uuid[4] = (char)('0' + round);
            list[i].uuid[6] = (char)('0' + i / 10);
            list[i].uuid[7] = (char)('0' + i % 10);
        }
        assert_int_equal(try_list(inv, 2 + round, list, LIMIT_GPUS), 0);
    }
    assert_int_equal(inv->entity_count, 2 * LIMIT_GPUS);
    assert_entity(inv, 0, "GPU-2-00", "");
    assert_entity(inv, 1, "GPU-1-00", "lost"); // the newest evidence stays
    assert_int_equal(inv->entities[1].info.parent, 1);
}

static void a_driver_that_goes_away_takes_all_down_and_back(void **st)
{
    struct inventory *inv = *st;
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0));
    uint64_t layout = inv->layout;
    state(inv, FRAME_STATE_NO_DRIVER, "");
    assert_true(inv->layout > layout);
    assert_entity(inv, 0, "GPU-a", "no_driver");
    assert_reason(inv, 0, TEMP, "no_driver");
    assert_int_equal(try_list(inv, 2, NULL, 0), 0);
    assert_int_equal(inv->entity_count, 2);
    assert_entity(inv, 0, "GPU-a",
                  "no_driver"); // nothing is listed then: that does not make it lost
    state(inv, FRAME_STATE_READY, "560");
    assert_entity(inv, 0, "GPU-a", "lost");
    LIST(inv, 3, gpu(0, "GPU-a", "0000:01:00.0"), gpu(1, "GPU-b", "0000:02:00.0"));
    assert_entity(inv, 0, "GPU-a", "");
    state(inv, FRAME_STATE_MISMATCH, "560");
    LIST(inv, 4, blank(0, FRAME_ENTITY_LOST), blank(1, FRAME_ENTITY_RESET_REQUIRED));
    assert_entity(inv, 0, "GPU-a", "mismatch");
    assert_entity(inv, 1, "GPU-b", "reset_required");
    state(inv, FRAME_STATE_READY, "560");
    assert_entity(inv, 0, "GPU-a", "lost");
}

static void the_same_state_twice_changes_nothing(void **st)
{
    struct inventory *inv = *st;
    uint64_t layout = inv->layout;
    state(inv, FRAME_STATE_READY, "550.54.15");
    assert_int_equal(inv->layout, layout);
    state(inv, FRAME_STATE_READY, "560");
    assert_int_equal(inv->layout, layout + 1);
}

// --- Down without a list ---

static void a_mark_holds_until_the_next_list(void **st)
{
    struct inventory *inv = *st;
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0), record_i64(1, TEMP, 43, T0));
    inventory_mark_down(inv, 1, "hung");
    assert_entity(inv, 0, "GPU-a", "");
    assert_entity(inv, 1, "GPU-b", "hung");
    assert_reason(inv, 1, TEMP, "hung");
    assert_int_equal(inv->state.xid_events_armed, 1);
    inventory_mark_down(inv, UINT32_MAX, "driver_hung");
    assert_entity(inv, 0, "GPU-a", "driver_hung");
    assert_entity(inv, 1, "GPU-b", "driver_hung");
    assert_int_equal(inv->state.xid_events_armed, 0);
    state(inv, FRAME_STATE_READY, "550.54.15");
    assert_int_equal(inv->state.xid_events_armed, 1);
    assert_entity(inv, 0, "GPU-a", "driver_hung");
    LIST(inv, 1, gpu(0, "GPU-a", "0000:01:00.0"), blank(1, FRAME_ENTITY_SKIPPED));
    assert_entity(inv, 0, "GPU-a", "");
    assert_i64(inv, 0, TEMP, 41);
    assert_entity(inv, 1, "GPU-b", "hung");
}

static void silence_takes_all_down_after_15_s(void **st)
{
    struct inventory *inv = *st;
    inventory_expire(inv, periods, T0);             // the list is news of now
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0)); // ended 5 ms later
    uint64_t last = T0 + 5 * NS_PER_MS + 15 * NS_PER_S;
    uint64_t layout = inv->layout;
    inventory_expire(inv, periods, last);
    assert_entity(inv, 0, "GPU-a", "");
    assert_int_equal(inv->layout, layout);
    inventory_expire(inv, periods, last + 1);
    assert_entity(inv, 0, "GPU-a", "stale");
    assert_int_equal(inv->layout, layout + 1);
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 41, T0));
    assert_entity(inv, 0, "GPU-a", "");
    inventory_expire(inv, periods, last + 1);
    assert_entity(inv, 0, "GPU-a", "stale");
    LIST(inv, 2, gpu(0, "GPU-a", "0000:01:00.0"), gpu(1, "GPU-b", "0000:02:00.0"));
    inventory_expire(inv, periods, last + NS_PER_S);
    assert_entity(inv, 0, "GPU-a", ""); // a helper that has just listed them gets its time
    inventory_expire(inv, periods, last + NS_PER_S + 15 * NS_PER_S + 1);
    assert_entity(inv, 0, "GPU-a", "stale");
}

// --- MIG ---

static void instances_follow_their_gpu_and_look_up_to_it(void **st)
{
    struct inventory *inv = *st;
    // Instances at the end of the frame, one with a parent that is none, one with a parent out of
    // range.
    LIST(inv, 2, gpu(1, "GPU-b", ""), gpu(0, "GPU-a", ""), instance(1, 0, 2, "MIG-a2", "1g.10gb"),
         instance(0, 1, 1, "MIG-b1", "2g.20gb"), instance(1, 0, 1, "MIG-a1", "1g.10gb"),
         instance(2, 0, 3, "MIG-x", "1g.10gb"), instance(99, 0, 3, "MIG-y", "1g.10gb"));
    assert_int_equal(inv->entity_count, 5);
    assert_entity(inv, 0, "GPU-a", "");
    assert_entity(inv, 1, "MIG-a2", "");
    assert_entity(inv, 2, "MIG-a1", "");
    assert_entity(inv, 3, "GPU-b", "");
    assert_entity(inv, 4, "MIG-b1", "");
    static const uint32_t parents[] = {0, 0, 0, 3, 3};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(inv->entities[i].info.parent, parents[i]);
    SAMPLE_TEXT(inv, 2, 1, SV("550"), record_i64(1, TEMP, 41, T0), record_i64(1, FB_USED, 900, T0),
                record_i64(2, FB_USED, 300, T0), record_text(1, DRIVER, 0, 3, T0),
                record_i64(5, FB_USED, 1, T0));
    assert_i64(inv, 1, TEMP, 41);
    assert_i64(inv, 1, FB_USED, 300);
    assert_reason(inv, 2, FB_USED, "no_data");
    assert_string_equal(
        inventory_find_label(inv, &inv->entities[2], field_find(DRIVER))->value.string, "550");
    // A global field of a GPU that has none yet is the others'.
    assert_string_equal(
        inventory_find_label(inv, &inv->entities[4], field_find(DRIVER))->value.string, "550");
    assert_null(inventory_find_label(inv, &inv->entities[4], field_find(TEMP)));
}

static void a_new_layout_keeps_only_the_instances_that_are_the_same(void **st)
{
    struct inventory *inv = *st;
    LIST(inv, 2, gpu(0, "GPU-a", ""), instance(0, 0, 1, "MIG-1", "1g.10gb"),
         instance(0, 0, 2, "", "1g.10gb"), instance(0, 0, 3, "", "1g.10gb"), gpu(1, "GPU-b", ""));
    SAMPLE(inv, 2, 1, record_i64(1, FB_USED, 100, T0), record_i64(2, FB_USED, 200, T0),
           record_i64(3, FB_USED, 300, T0));
    // 1 moved to GI 5 with its UUID; 2 has a UUID now; 3 was cut anew with another profile.
    LIST(inv, 3, gpu(0, "GPU-a", ""), instance(0, 0, 2, "MIG-2", "1g.10gb"),
         instance(0, 0, 3, "", "2g.20gb"), instance(0, 0, 5, "MIG-1", "1g.10gb"),
         gpu(1, "GPU-b", ""), instance(4, 1, 2, "", "1g.10gb"));
    assert_int_equal(inv->entity_count, 6);
    assert_i64(inv, 1, FB_USED, 200);
    assert_reason(inv, 2, FB_USED, "no_data");
    assert_i64(inv, 3, FB_USED, 100);
    assert_reason(inv, 5, FB_USED, "no_data"); // same GI on another GPU
    LIST(inv, 4, gpu(0, "GPU-a", ""), gpu(1, "GPU-b", ""));
    assert_int_equal(inv->entity_count, 2); // instances are not kept
}

static void instances_go_down_with_their_gpu(void **st)
{
    struct inventory *inv = *st;
    struct frame_entity lost = gpu(0, "GPU-a", "");
    lost.state = FRAME_ENTITY_LOST;
    LIST(inv, 2, gpu(0, "GPU-a", ""), instance(0, 0, 1, "MIG-1", "1g.10gb"), gpu(1, "GPU-b", ""));
    SAMPLE(inv, 2, 1, record_i64(1, FB_USED, 100, T0));
    inventory_mark_down(inv, 0, "hung");
    assert_entity(inv, 1, "MIG-1", "hung");
    LIST(inv, 3, lost, instance(0, 0, 1, "MIG-1", "1g.10gb"), gpu(1, "GPU-b", ""));
    assert_entity(inv, 1, "MIG-1", "lost");
    assert_entity(inv, 2, "GPU-b", "");
    LIST(inv, 4, gpu(0, "GPU-a", ""), instance(0, 0, 1, "MIG-1", "1g.10gb"), gpu(1, "GPU-b", ""));
    assert_reason(inv, 1, FB_USED, "no_data");
}

// --- XIDs ---

static void events_are_counted_per_code_ascending(void **st)
{
    struct inventory *inv = *st;
    uint64_t layout = inv->layout;
    static const uint32_t codes[] = {79, 13, 79, 31, 13, 79};
    for (size_t i = 0; i < ARRAY_SIZE(codes); i++)
        event(inv, 1, 0, UINT32_MAX, codes[i], T0 + i);
    const struct inventory_entity *e = &inv->entities[0];
    assert_int_equal(e->xid_count, 3);
    assert_xid(e, 0, 13, 2);
    assert_xid(e, 1, 31, 1);
    assert_xid(e, 2, 79, 3);
    assert_int_equal(e->xids[2].last_wall_ns, T0 + 12);
    assert_int_equal(e->last_xid, 79);
    assert_true(inv->layout > layout);
    layout = inv->layout;
    event(inv, 1, 0, UINT32_MAX, 79, T0 + 9);
    assert_int_equal(inv->layout, layout); // known code, same last one
    assert_xid(e, 2, 79, 4);
    assert_int_equal(inv->entities[1].xid_count, 0);
}

static void an_event_counts_for_the_instance_it_names_else_for_the_gpu(void **st)
{
    struct inventory *inv = *st;
    LIST(inv, 2, gpu(0, "GPU-a", ""), instance(0, 0, 1, "MIG-1", ""),
         instance(0, 0, 2, "MIG-2", ""), gpu(1, "GPU-b", ""), instance(3, 1, 3, "MIG-3", ""));
    event(inv, 2, 0, 2, 13, T0);
    assert_int_equal(inv->entities[0].xid_count, 0);
    assert_int_equal(inv->entities[1].xid_count, 0);
    assert_xid(&inv->entities[2], 0, 13, 1);
    assert_i64(inv, 0, XID, 13); // the board shows its instances' codes
    assert_null(find_at(inv, 1, XID, T0));
    assert_i64(inv, 2, XID, 13);
    // The board's field repeats the code, which does not make it every instance's.
    SAMPLE(inv, 2, 1, record_i64(0, XID, 13, T0 + 1), record_i64(1, XID, 0, T0 + 1),
           record_i64(2, XID, 13, T0 + 1));
    assert_int_equal(inv->entities[0].last_xid, -1);
    assert_i64(inv, 0, XID, 13);
    assert_i64(inv, 1, XID, 0);
    assert_i64(inv, 2, XID, 13);
    event(inv, 2, 0, UINT32_MAX, 79, T0 + 1);
    assert_xid(&inv->entities[0], 0, 79, 1);
    for (size_t i = 0; i < 3; i++)
        assert_i64(inv, i, XID, 79); // it hit all of the board
    assert_null(find_at(inv, 3, XID, T0));
    event(inv, 2, 0, 3, 31, T0 + 2); // an instance of another GPU: not ours, so the GPU's
    assert_xid(&inv->entities[0], 0, 31, 1);
}

static void the_xid_field_sets_the_last_code_but_counts_nothing(void **st)
{
    struct inventory *inv = *st;
    SAMPLE(inv, 1, 1, record_i64(0, XID, 0, T0));
    assert_int_equal(inv->entities[0].last_xid, -1);
    assert_i64(inv, 0, XID, 0);
    SAMPLE(inv, 1, 1, record_i64(0, XID, 31, T0 + 1));
    assert_int_equal(inv->entities[0].last_xid, 31);
    assert_int_equal(inv->entities[0].xid_count, 0);
    SAMPLE(inv, 1, 1, record_i64(0, XID, 0, T0 + 2),
           record_i64(0, XID, -4, T0 + 3)); // a fresh helper saw none
    assert_int_equal(inv->entities[0].last_xid, 31);
    assert_i64(inv, 0, XID, 31);
    event(inv, 1, 0, UINT32_MAX, 79, T0 + 9);
    SAMPLE(inv, 1, 1, record_i64(0, XID, 31, T0 + 8)); // older than the event
    assert_i64(inv, 0, XID, 79);
    const struct inventory_value *v = find_at(inv, 0, XID, T0 + 1000000 * NS_PER_S);
    assert_non_null(v); // evidence does not age
    assert_int_equal(v->value.i64, 79);
}

static void at_most_256_codes_are_kept(void **st)
{
    struct inventory *inv = *st;
    for (uint32_t code = 1; code <= LIMIT_XID_CODES; code++)
        event(inv, 1, 0, UINT32_MAX, code, T0 + code);
    assert_int_equal(inv->entities[0].xid_count, LIMIT_XID_CODES);
    assert_int_equal(inv->dropped, 0);
    event(inv, 1, 0, UINT32_MAX, 5000, T0 + 300);
    event(inv, 1, 0, UINT32_MAX, 7, T0 + 301);
    assert_int_equal(inv->entities[0].xid_count, LIMIT_XID_CODES);
    assert_int_equal(inv->dropped, 1);
    assert_xid(&inv->entities[0], 6, 7, 2);
}

// --- Reload ---

static void values_of_kept_fields_survive_a_reload(void **st)
{
    struct inventory *inv = *st;
    SAMPLE_TEXT(inv, 1, 1, SV("550"), record_text(0, DRIVER, 0, 3, T0), record_i64(0, TEMP, 41, T0),
                record_double(0, POWER, 2.5, T0), record_i64(1, FB_USED, 9, T0));
    event(inv, 1, 0, UINT32_MAX, 13, T0);
    uint64_t layout = inv->layout;
    assert_int_equal(inventory_set_fields(inv, fields, ARRAY_SIZE(fields), 2), 0);
    assert_int_equal(inv->layout, layout); // the same fields
    const uint16_t next[] = {54, POWER, FB_USED, 9999};
    assert_int_equal(inventory_set_fields(inv, next, ARRAY_SIZE(next), 3), 0);
    assert_true(inv->layout > layout);
    assert_int_equal(inv->watch_id, 3);
    assert_true(find_at(inv, 0, POWER, T0)->value.f64 == 2.5);
    assert_i64(inv, 1, FB_USED, 9);
    assert_reason(inv, 0, TEMP, "no_data"); // not watched any more
    assert_reason(inv, 0, 54, "no_data");
    assert_i64(inv, 0, XID, 13);                       // known from the event
    SAMPLE(inv, 1, 1, record_i64(1, FB_USED, 10, T0)); // answers the old watch
    assert_i64(inv, 1, FB_USED, 9);
    SAMPLE(inv, 1, 3, record_i64(1, FB_USED, 10, T0), record_i64(1, 9999, 10, T0));
    assert_i64(inv, 1, FB_USED, 10);
    assert_int_equal(inventory_field_index(inv, 54), 0);
    assert_int_equal(inventory_field_index(inv, 9999), 3);
    assert_int_equal(inventory_field_index(inv, 55), SIZE_MAX);
    assert_int_equal(inventory_set_fields(inv, NULL, 0, 4), 0);
    assert_null(find_at(inv, 1, FB_USED, T0));
    assert_int_equal(inventory_set_fields(inv, fields, ARRAY_SIZE(fields), 5), 0);
    assert_reason(inv, 1, FB_USED, "no_data");
}

static void an_empty_inventory_has_nothing(void **st)
{
    (void)st;
    struct inventory inv;
    inventory_init(&inv);
    inventory_expire(&inv, periods, T0);
    inventory_mark_down(&inv, UINT32_MAX, "released");
    inventory_forget_absent(&inv);
    assert_int_equal(try_list(&inv, 1, NULL, 0), 0);
    LIST(&inv, 2, gpu(0, "GPU-a", "")); // before any field is set
    assert_entity(&inv, 0, "GPU-a", "");
    inventory_deinit(&inv);
}

// --- Memory ---

// One life: each step may fail and is then tried again, which must succeed and give the same end.
static void live(size_t fail_step, unsigned fail_n, bool *out_failed)
{
    struct inventory inv;
    inventory_init(&inv);
    const uint16_t next[] = {SERIAL, TEMP, XID, FB_USED};
    const struct frame_entity first[] = {gpu(0, "GPU-a", ""), instance(0, 0, 1, "MIG-1", ""),
                                         gpu(1, "GPU-b", "")};
    const struct frame_entity second[] = {gpu(0, "GPU-a", ""), instance(0, 0, 1, "MIG-1", ""),
                                          instance(0, 0, 2, "MIG-2", "")};
    const struct frame_record records[] = {
        record_text(0, SERIAL, 0, 2, T0), record_i64(0, TEMP, 41, T0),
        record_text(2, SERIAL, 2, 2, T0), record_i64(1, FB_USED, 5, T0)};
    *out_failed = false;
    for (size_t step = 0; step < 6; step++) {
        for (int attempt = 0; attempt < 2; attempt++) {
            allocation_until_failure = step == fail_step && attempt == 0 ? fail_n : 0;
            uint64_t layout = inv.layout;
            int r = 0;
            switch (step) {
            case 0:
                r = inventory_set_fields(&inv, fields, ARRAY_SIZE(fields), 1);
                break;
            case 1:
                r = try_list(&inv, 1, first, ARRAY_SIZE(first));
                break;
            case 2:
                r = try_sample(&inv, 1, 1, records, ARRAY_SIZE(records), SV("s0s1"));
                break;
            case 3:
                r = try_event(&inv, 1, 0, UINT32_MAX, 79, T0);
                break;
            case 4:
                r = inventory_set_fields(&inv, next, ARRAY_SIZE(next), 2);
                break;
            default:
                r = try_list(&inv, 2, second, ARRAY_SIZE(second));
                break;
            }
            allocation_until_failure = 0;
            if (r == 0)
                break;
            assert_int_equal(r, -ENOMEM);
            assert_int_equal(attempt, 0);
            *out_failed = true;
            if (step != 2 && step != 3)
                assert_int_equal(inv.layout, layout); // all or nothing
        }
    }
    assert_int_equal(inv.entity_count, 4);
    assert_entity(&inv, 0, "GPU-a", "");
    assert_entity(&inv, 3, "GPU-b", "lost");
    assert_i64(&inv, 0, TEMP, 41);
    assert_i64(&inv, 1, FB_USED, 5);
    assert_string_equal(find_at(&inv, 0, SERIAL, T0)->value.string, "s0");
    assert_int_equal(inv.entities[0].last_xid, 79);
    assert_true(inv.entities[0].xid_count == 1 && inv.entities[0].xids[0].count >= 1);
    inventory_deinit(&inv);
    assert_int_equal(inv.string_bytes, 0);
}

static void every_allocation_may_fail(void **st)
{
    (void)st;
    size_t failures = 0;
    for (size_t step = 0; step < 6; step++) {
        bool failed = true;
        for (unsigned n = 1; failed; n++) {
            live(step, n, &failed);
            failures += failed;
        }
    }
    assert_true(failures >= 25); // the sweep really met them
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(gives_what_was_sampled),
        T(layout_stays_over_samples_of_readings),
        T(layout_grows_when_a_number_that_is_a_label_changes),
        T(a_bad_status_clears_at_once_and_is_remembered),
        T(numbers_without_sense_are_invalid),
        T(a_value_is_good_for_three_periods_and_at_least_15_s),
        T(a_huge_period_does_not_overflow),
        T(texts_are_cut_at_a_character_and_made_clean),
        T(texts_together_have_a_ceiling),
        T(frames_of_another_watch_or_generation_are_ignored),
        T(records_of_unknown_entities_or_fields_are_ignored),
        T(values_and_xids_follow_the_uuid_over_a_new_list),
        T(a_new_uuid_at_the_same_place_is_a_new_gpu),
        T(unknown_uuids_are_matched_by_bus_id_then_by_index),
        T(a_lost_gpu_keeps_identity_labels_and_xids_but_no_readings),
        T(a_gpu_that_comes_back_starts_without_old_readings),
        T(each_state_has_its_reason),
        T(gone_gpus_are_dropped_when_their_removal_was_announced),
        T(at_most_limit_gpus_are_kept_as_lost),
        T(a_driver_that_goes_away_takes_all_down_and_back),
        T(the_same_state_twice_changes_nothing),
        T(a_mark_holds_until_the_next_list),
        T(silence_takes_all_down_after_15_s),
        T(instances_follow_their_gpu_and_look_up_to_it),
        T(a_new_layout_keeps_only_the_instances_that_are_the_same),
        T(instances_go_down_with_their_gpu),
        T(events_are_counted_per_code_ascending),
        T(an_event_counts_for_the_instance_it_names_else_for_the_gpu),
        T(the_xid_field_sets_the_last_code_but_counts_nothing),
        T(at_most_256_codes_are_kept),
        T(values_of_kept_fields_survive_a_reload),
        T(an_empty_inventory_has_nothing),
        T(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
