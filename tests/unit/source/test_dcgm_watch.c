// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dcgm_watch_fixture.h"

// --- reading ---

static void test_values_of_all_types_come_in_one_call_per_class(void **state)
{
    walk();
    fake_dcgm_set_i64(DCGM_FE_GPU, 0, 150, 42);
    fake_dcgm_set_double(DCGM_FE_GPU, 0, 155, 68.5);
    fake_dcgm_set_text(DCGM_FE_GPU, 0, 53, "1320221");
    APPLY(53, 150, 155);
    read_now();
    assert_true(has_frame);
    assert_int_equal(frame.as.sample.head->watch_id, WATCH_ID);
    assert_int_equal(frame.as.sample.head->generation, devices.generation);
    assert_int_equal(frame.as.sample.head->vendor_calls, calls);
    assert_int_equal(i64_of(0, 150), 42);
    assert_true(find(0, 155)->value.f64 == 68.5);
    struct sv text;
    assert_true(frame_record_string(find(0, 53), frame.as.sample.strings, &text));
    assert_true(sv_equals(text, SV("1320221")));
    // 150 and 155 are of one class, 53 of another.
    assert_int_equal(calls, 2);
    assert_int_equal(fake_dcgm.call.dcgmUpdateAllFields.calls, 1);
    assert_int_equal(frame.as.sample.head->count, 3);
}

static void test_values_may_come_one_by_one(void **state)
{
    fake_dcgm.one_by_one = true;
    fake_dcgm_add_gpu(3, "GPU-3");
    walk();
    for (unsigned gpu = 0; gpu <= 3; gpu += 3)
        for (uint16_t field = 100; field < 102; field++)
            fake_dcgm_set_i64(DCGM_FE_GPU, gpu, field, 1000 * gpu + field);
    APPLY(100, 101);
    read_now();
    assert_int_equal(i64_of(0, 100), 100);
    assert_int_equal(i64_of(0, 101), 101);
    assert_int_equal(i64_of(1, 100), 3100);
    assert_int_equal(i64_of(1, 101), 3101);
    assert_int_equal(calls, 1);
}

static void test_what_nobody_asked_for_is_ignored(void **state)
{
    fake_dcgm.noise = true;
    walk();
    fake_dcgm_set_i64(DCGM_FE_GPU, 0, 150, 42);
    APPLY(150);
    read_now();
    assert_int_equal(frame.as.sample.head->count, 1);
    assert_int_equal(i64_of(0, 150), 42);
}

static void test_a_status_is_told_once_and_when_it_changes(void **state)
{
    walk();
    fake_dcgm_set_i64(DCGM_FE_GPU, 0, 150, 42);
    APPLY(150, 203);
    read_now();
    assert_int_equal(status_of(0, 203), FRAME_NO_DATA);
    read_later();
    assert_null(find(0, 203));
    assert_int_equal(i64_of(0, 150), 42);
    fake_dcgm_set_status(DCGM_FE_GPU, 0, 203, DCGM_ST_NOT_SUPPORTED);
    read_later();
    assert_int_equal(status_of(0, 203), FRAME_NOT_SUPPORTED);
    read_later();
    assert_null(find(0, 203));
    fake_dcgm_set_status(DCGM_FE_GPU, 0, 203, DCGM_ST_NVML_ERROR);
    read_later();
    assert_int_equal(status_of(0, 203), FRAME_VENDOR_ERROR);
    assert_int_equal(find(0, 203)->value.i64, -8);
    fake_dcgm_set_status(DCGM_FE_GPU, 0, 203, DCGM_ST_GENERIC_ERROR);
    read_later();
    assert_int_equal(find(0, 203)->value.i64, -3);
    dcgm_watch_resend(watch);
    read_later();
    assert_int_equal(status_of(0, 203), FRAME_VENDOR_ERROR);
    fake_dcgm_set_i64(DCGM_FE_GPU, 0, 203, 97);
    read_later();
    assert_int_equal(i64_of(0, 203), 97);
    fake_dcgm_set_status(DCGM_FE_GPU, 0, 203, DCGM_ST_GENERIC_ERROR);
    read_later();
    assert_int_equal(status_of(0, 203), FRAME_VENDOR_ERROR); // though it was told before
}

static void test_blanks_of_all_kinds_are_statuses(void **state)
{
    static const struct {
        uint16_t field;
        unsigned short type;
        int64_t i64;
        double dbl;
        const char *text;
        enum frame_status status;
    } cases[] = {
        {100, DCGM_FT_INT64, 2147483632, 0, NULL, FRAME_NO_DATA},
        {101, DCGM_FT_INT64, 9223372036854775794, 0, NULL, FRAME_NOT_SUPPORTED},
        {155, DCGM_FT_DOUBLE, 0, 140737488355331.0, NULL, FRAME_NO_PERMISSION},
        {156, DCGM_FT_DOUBLE, 0, 140737488355329.0, NULL, FRAME_NO_DATA},
        {53, DCGM_FT_STRING, 0, 0, "<<<NOT_SUPPORTED>>>", FRAME_NOT_SUPPORTED},
        {50, DCGM_FT_STRING, 0, 0, "<<<NOT_PERM>>>", FRAME_NO_PERMISSION},
    };
    uint16_t ids[] = {50, 53, 100, 101, 155, 156};
    walk();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        fake_dcgm.values[fake_dcgm.value_count++] =
            (struct fake_dcgm_value){.group = DCGM_FE_GPU,
                                     .field = cases[i].field,
                                     .ts = fake_dcgm.now_us,
                                     .type = cases[i].type,
                                     .i64 = cases[i].i64,
                                     .dbl = cases[i].dbl,
                                     .text = cases[i].text};
    assert_int_equal(apply_set(ids, ARRAY_SIZE(ids), UINT64_MAX), DCGM_ST_OK);
    read_now();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(status_of(0, cases[i].field), cases[i].status);
}

static void test_no_xid_is_0_and_the_last_one_stays_true(void **state)
{
    walk();
    APPLY(230);
    // Who looks for XIDs watches them, not we.
    assert_false(fake_dcgm_is_watched(DCGM_FE_GPU, 0, 230));
    read_now();
    assert_int_equal(status_of(0, 230), FRAME_NO_DATA);
    fake_dcgm.needs_watch = false;
    read_later();
    assert_int_equal(i64_of(0, 230), 0);
    assert_true(find(0, 230)->taken_ns >= frame.as.sample.head->started_ns);
    fake_dcgm_add_sample(DCGM_FE_GPU, 0, 230, fake_dcgm.now_us - 3600000000, 79);
    read_later();
    assert_int_equal(i64_of(0, 230), 79);
    assert_true(find(0, 230)->taken_ns >= frame.as.sample.head->started_ns);
}

// --- which field is asked of whom ---

static void test_fields_are_asked_where_dcgm_exporter_asks_them(void **state)
{
    // Levels of the fields of dcgm-exporter's own test of this: 150, 156, 155, 526, 1, 701, 780,
    // 1100.
    static const int levels[] = {DCGM_FE_GPU,  DCGM_FE_GPU,    DCGM_FE_GPU_I, DCGM_FE_VGPU,
                                 DCGM_FE_NONE, DCGM_FE_SWITCH, DCGM_FE_LINK,  DCGM_FE_CPU_CORE};
    static const struct {
        int kind;
        const char *taken; // by level above
    } cases[] = {
        {DCGM_FE_GPU, "11111000"},      {DCGM_FE_GPU_I, "00101000"},    {DCGM_FE_VGPU, "00011000"},
        {DCGM_FE_CPU, "00001001"},      {DCGM_FE_SWITCH, "00001110"},   {DCGM_FE_LINK, "00001010"},
        {DCGM_FE_CPU_CORE, "00001001"}, {DCGM_FE_CONNECTX, "00001000"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (size_t k = 0; k < ARRAY_SIZE(levels); k++)
            assert_int_equal(watch_kind_takes(cases[i].kind, levels[k]), cases[i].taken[k] == '1');
    assert_true(watch_kind_takes(DCGM_FE_GPU, DCGM_FE_GPU_CI));
    assert_true(watch_kind_takes(DCGM_FE_GPU_I, DCGM_FE_GPU_CI));
    assert_true(watch_kind_takes(DCGM_FE_GPU_CI, DCGM_FE_GPU_CI));
    assert_false(watch_kind_takes(DCGM_FE_GPU_CI, DCGM_FE_GPU_I));
    assert_false(watch_kind_takes(DCGM_FE_GPU_I, DCGM_FE_GPU));
    for (int kind = DCGM_FE_GPU; kind < DCGM_FE_CONNECTX; kind++)
        assert_false(watch_kind_takes(kind, DCGM_FE_CONNECTX));
}

// A GPU with an instance and a compute instance, a switch with a link, a CPU with two cores.
static void add_everything(void)
{
    fake_dcgm.gpu[0].mig = true;
    fake_dcgm_add_instance(0, 0, 1, 3);
    fake_dcgm_add_compute(0, 0, 1, 0);
    fake_dcgm.switches = 1;
    fake_dcgm.switch_ids[0] = 5;
    fake_dcgm.switch_link[0][2] = DcgmNvLinkLinkStateUp;
    fake_dcgm.gpu_link[0][4] = DcgmNvLinkLinkStateUp;
    fake_dcgm.cpus.numCpus = 1;
    fake_dcgm.cpus.cpus[0].ownedCores.bitmask[0] = 0x3;
    walk();
    assert_int_equal(devices.count, 9);
}

static bool generate_sum(int group, unsigned id, unsigned short field, struct fake_dcgm_value *out)
{
    out->i64 = 1000000 * group + field;
    return true;
}

static void test_each_kind_has_the_fields_of_its_levels(void **state)
{
    static const int groups[] = {DCGM_FE_GPU,  DCGM_FE_GPU_I, DCGM_FE_GPU_CI,  DCGM_FE_SWITCH,
                                 DCGM_FE_LINK, DCGM_FE_CPU,   DCGM_FE_CPU_CORE};
    static const uint16_t fields[] = {4, 150, 252, 526, 705, 780, 1100, 1110, 1300};
    add_everything();
    fake_dcgm.generate = generate_sum;
    assert_int_equal(apply_set(fields, ARRAY_SIZE(fields), UINT64_MAX), DCGM_ST_OK);
    read_now();
    for (uint32_t i = 0; i < devices.count; i++)
        for (size_t k = 0; k < ARRAY_SIZE(fields); k++) {
            int group = devices.list[i].group;
            bool takes = watch_kind_takes(group, field_find(fields[k])->level);
            if (!takes)
                assert_null(find(i, fields[k]));
            else
                assert_int_equal(i64_of(i, fields[k]), 1000000 * group + fields[k]);
        }
    assert_int_equal(ARRAY_SIZE(groups), 7);
    assert_int_equal(i64_of(place_of(DCGM_FE_CPU_CORE, 1), 1100), 8001100);
    assert_null(find(0, 1300)); // no kind of ours has it
}

static void test_the_librarys_level_and_type_go_before_the_catalogues(void **state)
{
    add_everything();
    fake_dcgm.generate = generate_sum;
    fake_dcgm.meta[0] = (dcgm_field_meta_t){
        .fieldId = 150, .fieldType = DCGM_FT_INT64, .entityLevel = DCGM_FE_SWITCH};
    fake_dcgm.meta[1] = (dcgm_field_meta_t){
        .fieldId = 203, .fieldType = DCGM_FT_BINARY, .entityLevel = DCGM_FE_GPU};
    fake_dcgm.meta[2] = (dcgm_field_meta_t){
        .fieldId = 5000, .fieldType = DCGM_FT_INT64, .entityLevel = DCGM_FE_GPU};
    APPLY(150, 203, 5000);
    read_now();
    assert_null(find(0, 150));
    assert_int_equal(i64_of(place_of(DCGM_FE_SWITCH, 5), 150), 3000150);
    assert_int_equal(status_of(0, 203), FRAME_NOT_SUPPORTED);
    assert_int_equal(i64_of(0, 5000), 1005000); // newer than our catalogue
}

static void test_a_field_that_the_library_does_not_know_costs_itself(void **state)
{
    walk();
    fake_dcgm_set_i64(DCGM_FE_GPU, 0, 150, 42);
    fake_dcgm.unknown_field[203] = true;
    APPLY(150, 203, 204, 6000);
    read_now();
    assert_int_equal(i64_of(0, 150), 42);
    assert_int_equal(status_of(0, 203), FRAME_NOT_SUPPORTED);
    assert_int_equal(status_of(0, 204), FRAME_NO_DATA);
    assert_int_equal(status_of(0, 6000), FRAME_NOT_SUPPORTED);
    read_later();
    assert_null(find(0, 203));
    assert_false(fake_dcgm_is_watched(DCGM_FE_GPU, 0, 203));
    // Without the call, the catalogue knows.
    fake_dcgm.d.fn.DcgmFieldGetById = NULL;
    APPLY(150, 203, 6000);
    read_now();
    assert_int_equal(status_of(0, 203), FRAME_NO_DATA);
    assert_int_equal(status_of(0, 6000), FRAME_NOT_SUPPORTED);
}

static void test_binary_fields_are_not_asked_for(void **state)
{
    walk();
    APPLY(60, 61, 205);
    read_now();
    assert_int_equal(calls, 0);
    assert_int_equal(status_of(0, 60), FRAME_NOT_SUPPORTED);
    assert_int_equal(status_of(0, 205), FRAME_NOT_SUPPORTED);
    assert_int_equal(fake_dcgm_alive(), 0);
}

static void test_gpus_that_are_not_wanted_are_left_alone(void **state)
{
    fake_dcgm_add_gpu(1, "GPU-1");
    fake_dcgm.gpu[0].mig = true;
    fake_dcgm_add_instance(0, 0, 1, 3);
    fake_dcgm.gpu_link[0][0] = fake_dcgm.gpu_link[1][0] = DcgmNvLinkLinkStateUp;
    fake_dcgm.switches = 1;
    fake_dcgm.generate = generate_sum;
    walk();
    assert_int_equal(apply_set((const uint16_t[]){150, 252, 780}, 3, 1u << 1), DCGM_ST_OK);
    read_now();
    assert_int_equal(i64_of(place_of(DCGM_FE_GPU, 1), 150), 1000150);
    for (uint32_t i = 0; i < devices.count; i++)
        if (devices.list[i].gpu_mask_bit == 0)
            for (uint32_t k = 0; k < frame.as.sample.head->count; k++)
                assert_int_not_equal(frame.as.sample.list[k].entity, i);
    for (unsigned g = 0; g < FAKE_DCGM_GROUPS; g++)
        for (unsigned k = 0; fake_dcgm.groups[g].alive && k < fake_dcgm.groups[g].count; k++) {
            dcgmGroupEntityPair_t e = fake_dcgm.groups[g].pairs[k];
            assert_int_not_equal(devices.list[place_of(e.entityGroupId, e.entityId)].gpu_mask_bit,
                                 0);
        }
}

static void test_a_lost_gpu_says_so_and_the_others_go_on(void **state)
{
    fake_dcgm_add_gpu(1, "GPU-1");
    fake_dcgm.gpu_link[1][0] = DcgmNvLinkLinkStateUp;
    fake_dcgm.generate = generate_sum;
    walk();
    APPLY(150, 780);
    read_now();
    assert_int_equal(i64_of(1, 150), 1000150);
    fake_dcgm.gpu[1].status = DcgmEntityStatusLost;
    walk();
    APPLY(150, 780);
    read_now();
    assert_int_equal(i64_of(0, 150), 1000150);
    assert_int_equal(devices.list[1].record.state, FRAME_ENTITY_LOST);
    assert_int_equal(status_of(1, 150), FRAME_LOST);
    assert_false(fake_dcgm_is_watched(DCGM_FE_GPU, 1, 150));
}

// --- how much is asked ---

static uint32_t fields_of_class(enum field_class cost, uint32_t most, uint16_t *out)
{
    uint32_t count = 0;
    for (size_t i = 0; i < field_table_count && count < most; i++)
        if (field_table[i].cost == cost && field_table[i].level == FIELD_LEVEL_GPU &&
            field_table[i].type != FIELD_BINARY && field_table[i].id < FIELD_EXP_FIRST)
            out[count++] = field_table[i].id;
    return count;
}

static void test_calls_do_not_grow_with_the_number_of_fields(void **state)
{
    static const enum field_class classes[] = {FIELD_CLASS_FAST, FIELD_CLASS_MEDIUM};
    static const uint32_t counts[] = {1, 5, 26, 100, 128};
    uint16_t ids[256];
    for (unsigned i = 1; i < 8; i++)
        fake_dcgm_add_gpu(i, "GPU");
    fake_dcgm.generate = generate_sum;
    for (unsigned i = 0; i < 8; i++) {
        uint16_t all[64];
        for (uint16_t k = 0; k < 64; k++)
            all[k] = 1001 + k;
        fake_dcgm_add_metrics(i, 1, 1, all, 64);
    }
    walk();
    for (size_t c = 0; c < ARRAY_SIZE(classes); c++)
        for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
            uint32_t count = fields_of_class(classes[c], counts[i], ids);
            assert_true(count == counts[i] || classes[c] == FIELD_CLASS_FAST);
            assert_int_equal(apply_set(ids, count, UINT64_MAX), DCGM_ST_OK);
            read_now();
            assert_int_equal(calls, 1);
            assert_int_equal(frame.as.sample.head->vendor_calls, 1);
            assert_int_equal(frame.as.sample.head->count, 8 * count);
        }
}

static void test_more_than_128_fields_of_a_class_take_a_call_more(void **state)
{
    uint16_t ids[256];
    fake_dcgm.generate = generate_sum;
    walk();
    uint32_t count = fields_of_class(FIELD_CLASS_MEDIUM, 129, ids);
    assert_int_equal(count, 129);
    assert_int_equal(apply_set(ids, count, UINT64_MAX), DCGM_ST_OK);
    read_now();
    assert_int_equal(calls, 2);
    assert_int_equal(frame.as.sample.head->count, 129);
}

static void test_all_fields_of_the_catalogue_can_be_watched_at_once(void **state)
{
    static uint16_t ids[1024];
    uint32_t count = 0, known = 0;
    add_everything();
    fake_dcgm.generate = generate_sum;
    for (size_t i = 0; i < field_table_count; i++)
        if (field_table[i].id < FIELD_EXP_FIRST)
            ids[count++] = field_table[i].id;
    assert_int_equal(count, 657);
    assert_int_equal(apply_set(ids, count, UINT64_MAX), DCGM_ST_OK);
    read_now();
    for (uint32_t i = 0; i < devices.count; i++)
        for (uint32_t k = 0; k < count; k++) {
            const struct field_info *f = field_find(ids[k]);
            int group = devices.list[i].group;
            if (!watch_kind_takes(group, f->level)) {
                assert_null(find(i, ids[k]));
                continue;
            }
            known++;
            if (ids[k] == 55)
                continue;                   // the fake's GPUs have a value of it
            if (ids[k] == FIELD_XID_ERRORS) // watched by somebody else, or not
                assert_int_equal(status_of(i, ids[k]), FRAME_NO_DATA);
            else if (f->type == FIELD_BINARY || (ids[k] >= 1001 && ids[k] < 1100))
                assert_int_equal(status_of(i, ids[k]), FRAME_NOT_SUPPORTED);
            else
                assert_int_equal(i64_of(i, ids[k]), 1000000 * group + ids[k]);
        }
    assert_int_equal(frame.as.sample.head->count, known);
}

static void test_many_entities_are_split_into_groups_that_the_engine_takes(void **state)
{
    for (unsigned i = 0; i < 8; i++) {
        if (i)
            fake_dcgm_add_gpu(i, "GPU");
        for (unsigned k = 0; k < 18; k++)
            fake_dcgm.gpu_link[i][k] = DcgmNvLinkLinkStateUp;
    }
    fake_dcgm.generate = generate_sum;
    walk();
    assert_int_equal(devices.count, 8 + 144);
    APPLY(780, 781);
    read_now();
    assert_int_equal(frame.as.sample.head->count, 288);
    assert_int_equal(calls, fake_dcgm.d.major < 4 ? 3 : 1); // 64 entities a group, or 512
}

static void test_periods_become_the_engines(void **state)
{
    walk();
    APPLY(53, 150, 310, 391);
    static const struct {
        uint16_t field;
        long long us;
    } cases[] = {{53, 600000000}, {150, 1000000}, {310, 10000000}, {391, 30000000}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct fake_dcgm_watch *found = NULL;
        for (unsigned k = 0; k < FAKE_DCGM_WATCHES; k++) {
            const struct fake_dcgm_watch *w = &fake_dcgm.watches[k];
            if (w->alive && fake_dcgm.fields[w->fields - 1].ids[0] == cases[i].field)
                found = w;
        }
        assert_non_null(found);
        assert_int_equal(found->period_us, cases[i].us);
        assert_true(found->keep_age_s == 3e-6 * (double)cases[i].us);
        assert_int_equal(found->keep_samples, 4);
    }
}

static void test_classes_are_read_when_they_are_due(void **state)
{
    walk();
    APPLY(53, 150, 310);
    read_now();
    assert_int_equal(frame.as.sample.head->classes,
                     1u << FIELD_CLASS_FAST | 1u << FIELD_CLASS_MEDIUM | 1u << FIELD_CLASS_STATIC);
    uint64_t start_ns = (now_ns / (600 * S) + 1) * 600 * S + 100 * S;
    now_ns = start_ns + S / 2;
    (void)try_read();
    uint64_t due = dcgm_watch_due_ns(watch);
    assert_int_equal(due, start_ns + S);
    now_ns = due - 1;
    assert_int_equal(try_read(), DCGM_ST_OK);
    assert_false(has_frame);
    now_ns = due;
    assert_int_equal(try_read(), DCGM_ST_OK);
    assert_int_equal(frame.as.sample.head->classes, 1u << FIELD_CLASS_FAST);
    assert_int_equal(calls, 1);
    now_ns = start_ns + 10 * S;
    assert_int_equal(try_read(), DCGM_ST_OK);
    assert_int_equal(frame.as.sample.head->classes,
                     1u << FIELD_CLASS_FAST | 1u << FIELD_CLASS_MEDIUM);
    assert_int_equal(calls, 2);
}

static void test_a_set_of_exporter_counters_alone_is_answered_by_an_empty_sample(void **state)
{
    walk();
    APPLY(9003, 9004);
    assert_true(dcgm_watch_wants(watch, 9003));
    assert_false(dcgm_watch_wants(watch, 9002));
    read_now();
    assert_true(has_frame);
    assert_int_equal(frame.as.sample.head->count, 0);
    assert_int_equal(calls, 0);
}

// --- time ---

static void test_a_value_that_does_not_move_any_more_grows_old(void **state)
{
    walk();
    fake_dcgm_set_i64(DCGM_FE_GPU, 0, 150, 42);
    APPLY(150);
    read_now();
    uint64_t taken = find(0, 150)->taken_ns;
    assert_true(taken <= clock_mono_ns());
    for (unsigned i = 0; i < 3; i++) {
        read_later();
        assert_int_equal(find(0, 150)->taken_ns, taken);
    }
    tick();
    uint64_t before = clock_mono_ns();
    read_later();
    taken = find(0, 150)->taken_ns;
    assert_true(taken <= clock_mono_ns());
    fake_dcgm.values[fake_dcgm.value_count - 1].ts += INT64_C(86400000000); // its clock was set
    before = clock_mono_ns();
    read_later();
    assert_in_range(find(0, 150)->taken_ns, before, clock_mono_ns());
    fake_dcgm.values[fake_dcgm.value_count - 1].ts -= INT64_C(2) * 86400000000; // and set back
    uint64_t last = find(0, 150)->taken_ns;
    read_later();
    assert_in_range(find(0, 150)->taken_ns, last - S, clock_mono_ns());
}

static void test_a_value_seen_first_is_as_old_as_it_says(void **state)
{
    walk();
    fake_dcgm_add_sample(DCGM_FE_GPU, 0, 150, fake_dcgm.now_us - 3000000, 42);
    uint64_t before = clock_mono_ns();
    APPLY(150);
    read_now();
    // The fake's clock was read a moment ago.
    assert_in_range(find(0, 150)->taken_ns, before - 4 * S, clock_mono_ns() - 2 * S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_values_of_all_types_come_in_one_call_per_class,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_values_may_come_one_by_one, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_what_nobody_asked_for_is_ignored, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_status_is_told_once_and_when_it_changes, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_blanks_of_all_kinds_are_statuses, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_no_xid_is_0_and_the_last_one_stays_true, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_fields_are_asked_where_dcgm_exporter_asks_them,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_each_kind_has_the_fields_of_its_levels, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_the_librarys_level_and_type_go_before_the_catalogues,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_field_that_the_library_does_not_know_costs_itself,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_binary_fields_are_not_asked_for, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_gpus_that_are_not_wanted_are_left_alone, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_lost_gpu_says_so_and_the_others_go_on, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_calls_do_not_grow_with_the_number_of_fields,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_more_than_128_fields_of_a_class_take_a_call_more,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_all_fields_of_the_catalogue_can_be_watched_at_once,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(
            test_many_entities_are_split_into_groups_that_the_engine_takes, watch_setup,
            watch_teardown),
        cmocka_unit_test_setup_teardown(test_periods_become_the_engines, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(test_classes_are_read_when_they_are_due, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(
            test_a_set_of_exporter_counters_alone_is_answered_by_an_empty_sample, watch_setup,
            watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_value_that_does_not_move_any_more_grows_old,
                                        watch_setup, watch_teardown),
        cmocka_unit_test_setup_teardown(test_a_value_seen_first_is_as_old_as_it_says, watch_setup,
                                        watch_teardown),
        cmocka_unit_test_setup_teardown(
            test_many_entities_are_split_into_groups_that_the_engine_takes, watch_setup_3,
            watch_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
