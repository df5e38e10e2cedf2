// SPDX-License-Identifier: Apache-2.0
// What only DCGM lists: compute instances, switches, links, CPUs, cores; and the source's going
// away at once.
#include "../allocation_sweep.h"
#include "inventory_frames.h"

#define GR_ACTIVE 1001   // double, down to the compute instance
#define DRAM_ACTIVE 1005 // double, down to the instance
#define SWITCH_TEMP 701
#define LINK_FLIT 780
#define CORE_UTIL 1100
#define CPU_TEMP 1110

static const uint16_t dcgm_fields[] = {DRIVER,    TEMP,      XID,         FB_USED,   SWITCH_TEMP,
                                       LINK_FLIT, GR_ACTIVE, DRAM_ACTIVE, CORE_UTIL, CPU_TEMP};

static int setup(void **state_out)
{
    struct inventory *inv = calloc(1, sizeof(*inv));
    inventory_init(inv);
    inv->ends_at_once = true;
    assert_int_equal(inventory_set_fields(inv, dcgm_fields, ARRAY_SIZE(dcgm_fields), 1), 0);
    const uint16_t labels[] = {DRIVER};
    inventory_set_labels(inv, labels, ARRAY_SIZE(labels));
    state(inv, FRAME_STATE_READY, "");
    *state_out = inv;
    return 0;
}

static int teardown(void **state_in)
{
    inventory_deinit(*state_in);
    free(*state_in);
    return 0;
}

// A node whose list has an order that nothing asks for; parents come before their parts, as the
// reader demands. What the inventory makes of it: places, with the place in the list below.
static const struct {
    uint8_t kind;
    uint32_t parent, id, listed;
} placed[] = {
    {FRAME_ENTITY_GPU, 0, UINT32_MAX, 7},   // 0
    {FRAME_ENTITY_GPU_I, 0, UINT32_MAX, 8}, // 1: GPU instance 2, listed first
    {FRAME_ENTITY_GPU_I, 0, UINT32_MAX, 9}, // 2: GPU instance 1
    {FRAME_ENTITY_GPU_CI, 2, 0, 11},        // 3
    {FRAME_ENTITY_GPU, 4, UINT32_MAX, 2},   // 4
    {FRAME_ENTITY_SWITCH, 5, 0, 6},         // 5
    {FRAME_ENTITY_SWITCH, 6, 3, 0},         // 6
    {FRAME_ENTITY_LINK, 0, 0, 14},          // 7
    {FRAME_ENTITY_LINK, 0, 1, 12},          // 8
    {FRAME_ENTITY_LINK, 4, 4, 3},           // 9
    {FRAME_ENTITY_LINK, 5, 2, 13},          // 10
    {FRAME_ENTITY_LINK, 6, 0, 1},           // 11
    {FRAME_ENTITY_LINK, 6, 1, 5},           // 12
    {FRAME_ENTITY_CPU, 13, 0, 10},          // 13
    {FRAME_ENTITY_CPU, 14, 1, 4},           // 14
    {FRAME_ENTITY_CPU_CORE, 13, 5, 16},     // 15
    {FRAME_ENTITY_CPU_CORE, 13, 6, 15},     // 16
    {FRAME_ENTITY_CPU_CORE, 14, 5, 17},     // 17
};

static int node(struct inventory *inv, uint32_t generation)
{
    const struct frame_entity list[] = {
        nvswitch(0, 3),
        switch_link(0, 0),
        gpu(1, "GPU-b", ""),
        gpu_link(2, 1, 4),
        cpu(4, 1),
        switch_link(0, 1),
        nvswitch(6, 0),
        gpu(0, "GPU-a", ""),
        instance(7, 0, 2, "", ""),
        instance(7, 0, 1, "", ""),
        cpu(10, 0),
        compute_instance(9, 0, 1, 0),
        gpu_link(7, 0, 1),
        switch_link(6, 2),
        gpu_link(7, 0, 0),
        core(10, 6),
        core(10, 5),
        core(4, 5),
    };
    return try_list(inv, generation, list, ARRAY_SIZE(list));
}

static void kinds_stand_together_each_after_what_it_hangs_on(void **st)
{
    struct inventory *inv = *st;
    assert_int_equal(node(inv, 1), 0);
    assert_int_equal(inv->entity_count, ARRAY_SIZE(placed));
    for (size_t i = 0; i < ARRAY_SIZE(placed); i++) {
        const struct inventory_entity *e = &inv->entities[i];
        assert_int_equal(e->info.kind, placed[i].kind);
        assert_int_equal(e->info.id, placed[i].id);
        assert_int_equal(e->info.parent, placed[i].parent);
        assert_true(e->up && e->present);
    }
}

static size_t find(const struct inventory *inv, enum frame_entity_kind kind, size_t parent,
                   uint32_t id)
{
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct frame_entity *e = &inv->entities[i].info;
        if (e->kind == kind && e->id == id && (parent == SIZE_MAX || e->parent == parent))
            return i;
    }
    return SIZE_MAX;
}

static void top_is_the_gpu_switch_or_cpu(void **st)
{
    struct inventory *inv = *st;
    static const uint8_t tops[] = {0, 0, 0, 0, 4, 5, 6, 0, 0, 4, 5, 6, 6, 13, 14, 13, 13, 14};
    assert_int_equal(node(inv, 1), 0);
    for (size_t i = 0; i < ARRAY_SIZE(tops); i++) {
        assert_int_equal(inventory_top(inv, i), tops[i]);
        assert_int_equal(inventory_is_of_gpu(&inv->entities[i]), i <= 4);
    }
}

static void records_find_their_entity_and_each_part_has_its_own_value(void **st)
{
    struct inventory *inv = *st;
    assert_int_equal(node(inv, 1), 0);
    struct frame_record records[ARRAY_SIZE(placed)];
    for (uint32_t i = 0; i < ARRAY_SIZE(placed); i++)
        records[i] = record_i64(i, TEMP, 100 + i, T0);
    assert_int_equal(try_sample(inv, 1, 1, records, ARRAY_SIZE(records), SV("")), 0);
    // A GPU's field is the GPU's for its instances, and a part's own.
    for (size_t i = 0; i < ARRAY_SIZE(placed); i++)
        assert_i64(inv, i, TEMP, 100 + placed[i < 4 ? 0 : i].listed);
}

static void a_compute_instance_looks_up_to_its_instance_then_its_gpu(void **st)
{
    struct inventory *inv = *st;
    // 0 GPU, 1 gi 2, 2 gi 1, 3 ci of gi 1
    assert_int_equal(node(inv, 1), 0);
    static const struct {
        uint16_t field;
        size_t place[4];
    } cases[] = {
        {TEMP, {0, 0, 0, 0}},      {DRIVER, {0, 0, 0, 0}},  {DRAM_ACTIVE, {0, 1, 2, 2}},
        {GR_ACTIVE, {0, 1, 2, 3}}, {FB_USED, {0, 1, 2, 3}},
    };
    for (size_t c = 0; c < ARRAY_SIZE(cases); c++)
        for (size_t e = 0; e < 4; e++)
            assert_int_equal(inventory_value_place(inv, e, field_find(cases[c].field)),
                             cases[c].place[e]);
    for (size_t e = 4; e < inv->entity_count; e++)
        for (size_t c = 0; c < ARRAY_SIZE(cases); c++)
            assert_int_equal(inventory_value_place(inv, e, field_find(cases[c].field)), e);
}

// --- Matching over lists ---

static void parts_keep_their_values_over_a_list_in_another_order(void **st)
{
    struct inventory *inv = *st;
    LIST(inv, 1, nvswitch(0, 0), nvswitch(1, 1), switch_link(0, 5), switch_link(1, 5),
         gpu(0, "GPU-a", ""), gpu(1, "GPU-b", ""), gpu_link(4, 0, 5), gpu_link(5, 1, 5), cpu(8, 0),
         core(8, 1), core(8, 2));
    SAMPLE(inv, 1, 1, record_i64(0, SWITCH_TEMP, 40, T0), record_i64(1, SWITCH_TEMP, 41, T0),
           record_i64(2, LINK_FLIT, 5, T0), record_i64(3, LINK_FLIT, 15, T0),
           record_i64(6, LINK_FLIT, 105, T0), record_i64(7, LINK_FLIT, 115, T0),
           record_i64(9, CORE_UTIL, 1, T0), record_i64(10, CORE_UTIL, 2, T0));
    uint64_t layout = inv->layout;
    // The GPUs change places and one core and one link are gone; another link is there.
    LIST(inv, 2, gpu(0, "GPU-b", ""), gpu(1, "GPU-a", ""), gpu_link(0, 0, 5), gpu_link(1, 1, 6),
         nvswitch(4, 1), nvswitch(5, 0), switch_link(4, 5), switch_link(5, 5), cpu(8, 0),
         core(8, 2));
    assert_true(inv->layout > layout);
    assert_int_equal(inv->entity_count, 10);
    assert_i64(inv, 2, SWITCH_TEMP, 40);
    assert_i64(inv, 3, SWITCH_TEMP, 41);
    assert_i64(inv, find(inv, FRAME_ENTITY_LINK, 0, 5), LINK_FLIT, 115); // GPU-b's
    assert_reason(inv, find(inv, FRAME_ENTITY_LINK, 1, 6), LINK_FLIT, "no_data");
    assert_i64(inv, find(inv, FRAME_ENTITY_LINK, 2, 5), LINK_FLIT, 5);
    assert_i64(inv, find(inv, FRAME_ENTITY_LINK, 3, 5), LINK_FLIT, 15);
    assert_i64(inv, find(inv, FRAME_ENTITY_CPU_CORE, 8, 2), CORE_UTIL, 2);
    assert_int_equal(find(inv, FRAME_ENTITY_CPU_CORE, 8, 1), SIZE_MAX);
}

static void the_same_list_again_changes_nothing(void **st)
{
    struct inventory *inv = *st;
    assert_int_equal(node(inv, 1), 0);
    uint64_t layout = inv->layout;
    assert_int_equal(node(inv, 2), 0);
    assert_int_equal(inv->layout, layout);
    assert_int_equal(inv->generation, 2);
}

static void parts_that_are_gone_are_dropped_and_a_lost_gpu_has_none(void **st)
{
    struct inventory *inv = *st;
    LIST(inv, 1, gpu(0, "GPU-a", ""), gpu(1, "GPU-b", ""), gpu_link(0, 0, 0), gpu_link(1, 1, 0),
         instance(1, 1, 1, "", ""), compute_instance(4, 1, 1, 0), nvswitch(6, 0), switch_link(6, 0),
         cpu(8, 0), core(8, 0));
    LIST(inv, 2, gpu(0, "GPU-a", ""), gpu_link(0, 0, 0));
    assert_int_equal(inv->entity_count, 3);
    assert_entity(inv, 0, "GPU-a", "");
    assert_entity(inv, 1, "GPU-b", "lost");
    assert_int_equal(inv->entities[2].info.kind, FRAME_ENTITY_LINK);
    assert_int_equal(inv->entities[2].info.parent, 0);
    // A GPU that comes before all others moves what hangs on them.
    LIST(inv, 3, gpu(1, "GPU-a", ""), gpu_link(0, 1, 0), gpu(0, "GPU-c", ""));
    assert_int_equal(inv->entity_count, 4);
    assert_entity(inv, 1, "GPU-a", "");
    assert_int_equal(inv->entities[3].info.parent, 1);
}

static void what_hangs_on_nothing_it_can_hang_on_is_not_taken(void **st)
{
    struct inventory *inv = *st;
    LIST(inv, 1, gpu(0, "GPU-a", ""), gpu_link(99, 0, 0), compute_instance(0, 0, 1, 0), core(0, 1),
         switch_link(3, 0), instance(3, 0, 1, "", ""), compute_instance(5, 0, 1, 0), cpu(7, 0),
         gpu_link(7, 0, 1), core(UINT32_MAX, 1));
    assert_int_equal(inv->entity_count, 2);
    assert_int_equal(inv->entities[1].info.kind, FRAME_ENTITY_CPU);
    SAMPLE(inv, 1, 1, record_i64(1, LINK_FLIT, 1, T0), record_i64(7, CPU_TEMP, 50, T0));
    assert_i64(inv, 1, CPU_TEMP, 50);
}

static void compute_instances_follow_their_instance_over_lists(void **st)
{
    struct inventory *inv = *st;
    LIST(inv, 1, gpu(0, "GPU-a", ""), instance(0, 0, 1, "", ""), instance(0, 0, 2, "", ""),
         compute_instance(1, 0, 1, 0), compute_instance(1, 0, 1, 1), compute_instance(2, 0, 2, 0));
    SAMPLE(inv, 1, 1, record_i64(3, FB_USED, 10, T0), record_i64(4, FB_USED, 11, T0),
           record_i64(5, FB_USED, 20, T0));
    LIST(inv, 2, gpu(0, "GPU-a", ""), instance(0, 0, 2, "", ""), compute_instance(1, 0, 2, 0),
         instance(0, 0, 1, "", ""), compute_instance(3, 0, 1, 1));
    assert_int_equal(inv->entity_count, 5);
    assert_i64(inv, 2, FB_USED, 20);
    assert_i64(inv, 4, FB_USED, 11);
}

// --- Up and down ---

static void a_part_goes_down_with_what_it_hangs_on(void **st)
{
    struct inventory *inv = *st;
    struct frame_entity lost = nvswitch(0, 0), failed = gpu(0, "GPU-a", "");
    lost.state = FRAME_ENTITY_LOST;
    failed.state = FRAME_ENTITY_FAILED;
    LIST(inv, 1, nvswitch(0, 0), switch_link(0, 0), gpu(0, "GPU-a", ""), gpu_link(2, 0, 0),
         instance(2, 0, 1, "", ""), compute_instance(4, 0, 1, 0));
    SAMPLE(inv, 1, 1, record_i64(1, LINK_FLIT, 7, T0), record_i64(3, LINK_FLIT, 8, T0),
           record_i64(5, FB_USED, 9, T0));
    // GPU, instance, compute instance, switch, links
    assert_i64(inv, 2, FB_USED, 9);
    assert_i64(inv, 4, LINK_FLIT, 8);
    assert_i64(inv, 5, LINK_FLIT, 7);
    inventory_mark_down(inv, 0, "hung");
    for (size_t i = 0; i < 6; i++)
        assert_entity(inv, i, i == 0 ? "GPU-a" : "", i == 3 || i == 5 ? "" : "hung");
    inventory_mark_down(inv, UINT32_MAX, "released");
    for (size_t i = 0; i < 6; i++)
        assert_entity(inv, i, i == 0 ? "GPU-a" : "", "released");
    LIST(inv, 2, lost, switch_link(0, 0), failed, gpu_link(2, 0, 0), instance(2, 0, 1, "", ""),
         compute_instance(4, 0, 1, 0));
    for (size_t i = 0; i < 6; i++)
        assert_entity(inv, i, i == 0 ? "GPU-a" : "", i == 3 || i == 5 ? "lost" : "failed");
    LIST(inv, 3, nvswitch(0, 0), switch_link(0, 0), gpu(0, "GPU-a", ""), gpu_link(2, 0, 0));
    assert_reason(inv, 2, LINK_FLIT, "no_data"); // no old reading
    assert_reason(inv, 3, LINK_FLIT, "no_data");
}

// --- XIDs among parts ---

static void events_and_codes_pass_over_what_follows_the_gpus(void **st)
{
    struct inventory *inv = *st;
    LIST(inv, 1, gpu(0, "GPU-a", ""), instance(0, 0, 1, "", ""), compute_instance(1, 0, 1, 0),
         instance(0, 0, 2, "", ""), gpu(1, "GPU-b", ""), gpu_link(4, 1, 0), nvswitch(6, 0),
         switch_link(6, 0), cpu(8, 0));
    event(inv, 1, 0, 2, 13, T0); // the second instance, behind a compute instance
    assert_xid(&inv->entities[3], 0, 13, 1);
    assert_i64(inv, 0, XID, 13);
    assert_i64(inv, 3, XID, 13);
    assert_null(find_at(inv, 1, XID, T0));
    assert_null(find_at(inv, 2, XID, T0));
    event(inv, 1, 0, 1, 31, T0 + 1);
    assert_i64(inv, 1, XID, 31);
    assert_i64(inv, 2, XID, 31); // its compute instance is hit too
    assert_i64(inv, 3, XID, 13);
    event(inv, 1, 4, UINT32_MAX, 79, T0 + 2);
    event(inv, 1, 4, 7, 48, T0 + 3); // an instance that GPU 1 has not
    assert_xid(&inv->entities[4], 0, 48, 1);
    assert_i64(inv, 4, XID, 48);
    for (size_t i = 5; i < 9; i++)
        assert_null(find_at(inv, i, XID, T0));
    // Not a GPU's: no code of anything.
    SAMPLE(inv, 1, 1, record_i64(5, XID, 62, T0 + 4), record_i64(8, XID, 62, T0 + 4),
           record_i64(2, XID, 63, T0 + 4));
    assert_int_equal(inv->entities[5].last_xid, -1);
    assert_int_equal(inv->entities[8].last_xid, -1);
    assert_i64(inv, 4, XID, 48);
    // A compute instance's code is its board's newest, and its instance's.
    assert_i64(inv, 0, XID, 63);
    assert_i64(inv, 1, XID, 63);
    assert_i64(inv, 3, XID, 13);
}

// --- The source ends ---

static void sampled(struct inventory *inv, uint32_t generation)
{
    LIST(inv, generation, gpu(0, "GPU-a", ""), nvswitch(1, 0));
    SAMPLE_TEXT(inv, generation, 1, SV("550"), record_text(0, DRIVER, 0, 3, T0),
                record_i64(0, TEMP, 41, T0), record_i64(1, SWITCH_TEMP, 50, T0));
    assert_i64(inv, 0, TEMP, 41);
}

static void assert_ended(const struct inventory *inv, const char *reason)
{
    assert_entity(inv, 0, "GPU-a", reason);
    assert_entity(inv, 1, "", reason);
    for (size_t f = 1; f < inv->field_count; f++)
        for (size_t e = 0; e < 2; e++)
            assert_int_equal(inv->entities[e].values[f].status, FRAME_NOT_CONNECTED);
    assert_string_equal(
        inventory_find_label(inv, &inv->entities[0], field_find(DRIVER))->value.string, "550");
    assert_false(inventory_is_connected(inv));
}

static void without_a_ready_engine_no_value_stands_a_moment_longer(void **st)
{
    struct inventory *inv = *st;
    sampled(inv, 1);
    assert_true(inventory_is_connected(inv));
    uint64_t layout = inv->layout;
    state(inv, FRAME_STATE_FAILED, "");
    assert_true(inv->layout > layout);
    assert_ended(inv, "failed");
    state(inv, FRAME_STATE_READY, "");
    assert_true(inventory_is_connected(inv));
    assert_entity(inv, 0, "GPU-a", "");
    assert_reason(inv, 0, TEMP, "not_connected"); // until it is read anew
    SAMPLE(inv, 1, 1, record_i64(0, TEMP, 42, T0));
    assert_i64(inv, 0, TEMP, 42);
}

static void a_helper_that_is_gone_disconnects_until_another_is_ready(void **st)
{
    struct inventory *inv = *st;
    sampled(inv, 1);
    inventory_disconnect(inv);
    assert_ended(inv, "not_connected");
    assert_int_equal(inv->state.xid_events_armed, 0);
    LIST(inv, 2, gpu(0, "GPU-a", ""), nvswitch(1, 0));
    assert_ended(inv, "not_connected");
    state(inv, FRAME_STATE_NO_LIBRARY, "");
    assert_ended(inv, "no_library");
    inventory_disconnect(inv);
    assert_ended(inv, "no_library"); // the surer word
    state(inv, FRAME_STATE_READY, "");
    assert_entity(inv, 0, "GPU-a", "");
    sampled(inv, 3);
}

static void the_same_ready_again_after_a_disconnect_connects(void **st)
{
    struct inventory *inv = *st;
    sampled(inv, 1);
    inventory_disconnect(inv);
    inv->state.xid_events_armed = 1; // as before it: the STATE that comes is the same
    state(inv, FRAME_STATE_READY, "");
    assert_true(inventory_is_connected(inv));
    assert_entity(inv, 0, "GPU-a", "");
}

static void a_source_that_does_not_end_at_once_keeps_its_values(void **st)
{
    struct inventory *inv = *st;
    inv->ends_at_once = false;
    sampled(inv, 1);
    state(inv, FRAME_STATE_NO_DRIVER, "");
    assert_entity(inv, 0, "GPU-a", "no_driver");
    assert_int_equal(inv->entities[0].values[1].status, FRAME_OK);
    state(inv, FRAME_STATE_READY, "");
    assert_i64(inv, 0, TEMP, 41);
}

static void before_any_state_it_is_not_connected(void **st)
{
    (void)st;
    struct inventory inv;
    inventory_init(&inv);
    assert_false(inventory_is_connected(&inv));
    inventory_disconnect(&inv);
    state(&inv, FRAME_STATE_READY, "");
    assert_true(inventory_is_connected(&inv));
    inventory_deinit(&inv);
}

// --- Health and peers ---

static const struct frame_verdict verdicts[] = {{3, 1, 10, 14}, {1, UINT32_MAX, 20, 97}};
static const struct frame_peer peers[] = {{1, 3, 0, 0}, {3, 1, 2, 0}};

// GPU 1 is listed before GPU 0: in the inventory they are 1 and 0.
static void two_gpus(struct inventory *inv, uint32_t generation)
{
    LIST(inv, generation, nvswitch(0, 0), gpu(1, "GPU-b", ""), switch_link(0, 0),
         gpu(0, "GPU-a", ""));
}

static void tables_name_places_of_the_inventory(void **st)
{
    struct inventory *inv = *st;
    two_gpus(inv, 1);
    assert_int_equal(inv->verdicts_ns, 0);
    assert_int_equal(inv->peers_ns, 0);
    uint64_t layout = inv->layout;
    assert_int_equal(try_health(inv, 1, verdicts, 2, T0), 0);
    assert_int_equal(try_peers(inv, 1, peers, 2, T0 + 1), 0);
    assert_int_equal(inv->layout, layout + 2);
    assert_int_equal(inv->verdict_count, 2);
    assert_int_equal(inv->verdicts_ns, T0);
    assert_memory_equal(&inv->verdicts[0], (&(struct frame_verdict){0, 1, 10, 14}), 16);
    assert_memory_equal(&inv->verdicts[1], (&(struct frame_verdict){1, UINT32_MAX, 20, 97}), 16);
    assert_int_equal(inv->peer_count, 2);
    assert_int_equal(inv->peers_ns, T0 + 1);
    assert_memory_equal(&inv->peers[0], (&(struct frame_peer){1, 0, 0, 0}), 16);
    assert_memory_equal(&inv->peers[1], (&(struct frame_peer){0, 1, 2, 0}), 16);
    // The next replaces the whole; the same again is no change of layout, but news.
    assert_int_equal(try_health(inv, 1, verdicts, 2, T0 + 5), 0);
    assert_int_equal(inv->layout, layout + 2);
    assert_int_equal(inv->verdicts_ns, T0 + 5);
    assert_int_equal(try_health(inv, 1, NULL, 0, T0 + 6), 0);
    assert_int_equal(inv->verdict_count, 0);
    assert_int_equal(inv->verdicts_ns, T0 + 6); // all pass
    assert_int_equal(inv->layout, layout + 3);
}

static void tables_of_another_list_or_of_unknown_devices_are_left_out(void **st)
{
    struct inventory *inv = *st;
    two_gpus(inv, 1);
    assert_int_equal(try_health(inv, 2, verdicts, 2, T0), 0);
    assert_int_equal(try_peers(inv, 2, peers, 2, T0), 0);
    assert_int_equal(inv->verdicts_ns, 0);
    assert_int_equal(inv->peers_ns, 0);
    const struct frame_verdict far[] = {{4, 1, 10, 1}, {1, 2, 10, 2}, {UINT32_MAX, 1, 10, 3}};
    const struct frame_peer far_peers[] = {{1, 4, 0, 0}, {4, 1, 0, 0}, {3, 1, 1, 0}};
    assert_int_equal(try_health(inv, 1, far, 3, T0), 0);
    assert_int_equal(try_peers(inv, 1, far_peers, 3, T0), 0);
    assert_int_equal(inv->verdict_count, 1);
    assert_int_equal(inv->verdicts[0].code, 2);
    assert_int_equal(inv->peer_count, 1);
    assert_int_equal(inv->peers[0].status, 1);
}

static void with_tables(struct inventory *inv)
{
    assert_int_equal(try_health(inv, inv->generation, verdicts, 2, T0), 0);
    assert_int_equal(try_peers(inv, inv->generation, peers, 2, T0), 0);
    assert_true(inv->verdicts_ns && inv->peers_ns);
}

static void assert_no_tables(const struct inventory *inv)
{
    assert_int_equal(inv->verdicts_ns, 0);
    assert_int_equal(inv->peers_ns, 0);
    assert_int_equal(inv->verdict_count, 0);
    assert_int_equal(inv->peer_count, 0);
}

static void tables_end_with_the_list_or_the_source(void **st)
{
    struct inventory *inv = *st;
    two_gpus(inv, 1);
    with_tables(inv);
    two_gpus(inv, 2); // another helper, the same devices: it is still so
    assert_true(inv->verdicts_ns && inv->peers_ns);
    LIST(inv, 3, gpu(1, "GPU-b", ""), gpu(0, "GPU-a", ""));
    assert_no_tables(inv);
    for (int i = 0; i < 3; i++) {
        two_gpus(inv, (uint32_t)(4 + i));
        with_tables(inv);
        uint64_t layout = inv->layout;
        if (i == 0)
            state(inv, FRAME_STATE_FAILED, "");
        else if (i == 1)
            inventory_disconnect(inv);
        else
            inventory_mark_down(inv, UINT32_MAX, "released");
        assert_no_tables(inv);
        assert_true(inv->layout > layout);
        state(inv, FRAME_STATE_READY, "");
    }
}

// --- Memory ---

static void take_all(void)
{
    struct inventory inv;
    inventory_init(&inv);
    inv.ends_at_once = true;
    int r = inventory_set_fields(&inv, dcgm_fields, ARRAY_SIZE(dcgm_fields), 1);
    if (r == 0)
        r = node(&inv, 1);
    uint64_t layout = inv.layout;
    if (r == 0)
        r = node(&inv, 2);
    assert_int_equal(inv.layout, layout); // a list that failed leaves the one before
    if (r == 0) {
        const struct frame_verdict verdict = {2, 1, 10, 1};
        r = try_health(&inv, 2, &verdict, 1, T0);
        assert_int_equal(inv.verdict_count, r == 0);
    }
    if (r == 0) {
        const struct frame_peer peer = {2, 7, 0, 0};
        r = try_peers(&inv, 2, &peer, 1, T0);
        assert_int_equal(inv.peer_count, r == 0);
    }
    assert_true(r == 0 ? !allocation_failed : r == -ENOMEM && allocation_failed);
    inventory_disconnect(&inv);
    inventory_deinit(&inv);
}

static void every_allocation_may_fail(void **st)
{
    (void)st;
    assert_true(allocation_sweep(take_all) >= 38); // the sweep really met them
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(kinds_stand_together_each_after_what_it_hangs_on),
        T(top_is_the_gpu_switch_or_cpu),
        T(records_find_their_entity_and_each_part_has_its_own_value),
        T(a_compute_instance_looks_up_to_its_instance_then_its_gpu),
        T(parts_keep_their_values_over_a_list_in_another_order),
        T(the_same_list_again_changes_nothing),
        T(parts_that_are_gone_are_dropped_and_a_lost_gpu_has_none),
        T(what_hangs_on_nothing_it_can_hang_on_is_not_taken),
        T(compute_instances_follow_their_instance_over_lists),
        T(a_part_goes_down_with_what_it_hangs_on),
        T(events_and_codes_pass_over_what_follows_the_gpus),
        T(without_a_ready_engine_no_value_stands_a_moment_longer),
        T(a_helper_that_is_gone_disconnects_until_another_is_ready),
        T(the_same_ready_again_after_a_disconnect_connects),
        T(a_source_that_does_not_end_at_once_keeps_its_values),
        T(before_any_state_it_is_not_connected),
        T(tables_name_places_of_the_inventory),
        T(tables_of_another_list_or_of_unknown_devices_are_left_out),
        T(tables_end_with_the_list_or_the_source),
        T(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
