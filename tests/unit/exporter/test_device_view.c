// SPDX-License-Identifier: Apache-2.0
#include "../allocation_sweep.h"
#include "exporter/device_view.h"
#include "inventory_frames.h"

#define GR_ACTIVE 1001 // double, down to the compute instance
#define SWITCH_TEMP 701
#define HORIZON_NS (15 * NS_PER_S)
#define OLD_NS (T0 - HORIZON_NS - 1)

static const uint16_t nvml_fields[] = {DRIVER, SERIAL, TEMP, XID, FB_USED, GR_ACTIVE};
static const uint16_t dcgm_fields[] = {DRIVER, TEMP, POWER, XID, SWITCH_TEMP, GR_ACTIVE};

struct fixture {
    struct inventory nvml, dcgm;
    struct device_view view;
};

static void source_init(struct inventory *inv, const uint16_t *watched, size_t count)
{
    const uint16_t labels[] = {DRIVER, SERIAL};
    inventory_init(inv);
    assert_int_equal(inventory_set_fields(inv, watched, count, 1), 0);
    inventory_set_labels(inv, labels, ARRAY_SIZE(labels));
    state(inv, FRAME_STATE_READY, "");
}

static int setup(void **state_out)
{
    struct fixture *f = calloc(1, sizeof(*f));
    source_init(&f->nvml, nvml_fields, ARRAY_SIZE(nvml_fields));
    source_init(&f->dcgm, dcgm_fields, ARRAY_SIZE(dcgm_fields));
    f->dcgm.ends_at_once = true;
    device_view_init(&f->view);
    *state_out = f;
    return 0;
}

static int teardown(void **state_in)
{
    struct fixture *f = *state_in;
    device_view_deinit(&f->view);
    inventory_deinit(&f->nvml);
    inventory_deinit(&f->dcgm);
    free(f);
    return 0;
}

static void join(struct fixture *f)
{
    assert_int_equal(device_view_refresh(&f->view, &f->nvml, &f->dcgm), 0);
}

// The entity of primary has this place at DCGM; SIZE_MAX: none. And the other way.
static void assert_twin(const struct fixture *f, size_t entity, size_t place)
{
    const struct inventory_entity *twin = device_view_entity(&f->view, entity, DEVICE_SOURCE_DCGM);
    if (place == SIZE_MAX) {
        assert_null(twin);
        return;
    }
    assert_ptr_equal(twin, &f->dcgm.entities[place]);
    assert_int_equal(device_view_place(&f->view, DEVICE_SOURCE_DCGM, place), entity);
}

// --- Joining ---

static void a_gpu_is_joined_by_uuid_and_never_by_index(void **st)
{
    struct fixture *f = *st;
    LIST(&f->nvml, 1, gpu(0, "GPU-a", "00000000:01:00.0"), gpu(1, "GPU-b", "00000000:02:00.0"),
         gpu(2, "GPU-c", "00000000:03:00.0"));
    LIST(&f->dcgm, 1, gpu(0, "GPU-b", "00000000:02:00.0"), gpu(1, "GPU-a", "00000000:01:00.0"),
         gpu(2, "GPU-d", "00000000:04:00.0"));
    join(f);
    assert_ptr_equal(f->view.primary, &f->nvml);
    assert_twin(f, 0, 1);
    assert_twin(f, 1, 0);
    assert_twin(f, 2, SIZE_MAX); // the same index is not the same GPU
    assert_int_equal(device_view_place(&f->view, DEVICE_SOURCE_DCGM, 2), SIZE_MAX);
    assert_int_equal(device_view_place(&f->view, DEVICE_SOURCE_DCGM, SIZE_MAX), SIZE_MAX);
    assert_ptr_equal(device_view_entity(&f->view, 2, DEVICE_SOURCE_NVML), &f->nvml.entities[2]);
    assert_null(device_view_entity(&f->view, 3, DEVICE_SOURCE_NVML));
    assert_null(device_view_entity(&f->view, 3, DEVICE_SOURCE_DCGM));
    assert_int_equal(device_view_place(&f->view, DEVICE_SOURCE_NVML, 2), 2);
    assert_int_equal(device_view_place(&f->view, DEVICE_SOURCE_NVML, 3), SIZE_MAX);
}

static void bus_ids_decide_where_a_uuid_is_not_known(void **st)
{
    struct fixture *f = *st;
    static const struct {
        const char *nvml_uuid, *nvml_bus, *dcgm_uuid, *dcgm_bus;
        bool same;
    } cases[] = {
        {"GPU-a", "00000000:01:00.0", "GPU-a", "00000000:02:00.0", true},
        {"GPU-a", "00000000:01:00.0", "GPU-b", "00000000:01:00.0", false},
        {"GPU-a", "00000000:01:00.0", "", "00000000:01:00.0", true},
        {"", "00000000:01:00.0", "GPU-b", "00000000:01:00.0", true},
        {"", "00000000:01:00.0", "", "0000:01:00.0", true}, // domains of 8 and 4 digits
        {"", "00000000:0A:00.0", "", "00000000:0a:00.0", true},
        {"", "00000001:01:00.0", "", "00000000:01:00.0", false},
        {"", "00000010:01:00.0", "", "00000001:01:00.0", false},
        {"", "", "", "", false}, // the index is the same
        {"GPU-a", "", "", "", false},
    };
    for (uint32_t i = 0; i < ARRAY_SIZE(cases); i++) {
        inventory_forget_absent(&f->nvml);
        inventory_forget_absent(&f->dcgm);
        assert_int_equal(try_list(&f->nvml, 2 * i + 1, NULL, 0), 0);
        assert_int_equal(try_list(&f->dcgm, 2 * i + 1, NULL, 0), 0);
        LIST(&f->nvml, 2 * i + 2, gpu(0, cases[i].nvml_uuid, cases[i].nvml_bus));
        LIST(&f->dcgm, 2 * i + 2, gpu(0, cases[i].dcgm_uuid, cases[i].dcgm_bus));
        join(f);
        assert_int_equal(f->nvml.entity_count, 1);
        assert_twin(f, 0, cases[i].same ? 0 : SIZE_MAX);
    }
}

static void one_device_is_the_twin_of_one(void **st)
{
    struct fixture *f = *st;
    // GPU-b's UUID is known to both; the blank one at its bus id does not get it too.
    LIST(&f->nvml, 1, gpu(0, "", "00000000:01:00.0"), gpu(1, "GPU-b", "00000000:02:00.0"));
    LIST(&f->dcgm, 1, gpu(0, "GPU-b", "00000000:01:00.0"));
    join(f);
    assert_twin(f, 1, 0);
    assert_null(device_view_entity(&f->view, 0, DEVICE_SOURCE_DCGM));
}

static void what_a_source_has_lost_gives_way_to_what_is_there(void **st)
{
    struct fixture *f = *st;
    LIST(&f->dcgm, 1, gpu(0, "GPU-old", "00000000:01:00.0"));
    LIST(&f->dcgm, 2, gpu(0, "GPU-new", "00000000:01:00.0")); // the card was changed
    assert_int_equal(f->dcgm.entity_count, 2);
    assert_entity(&f->dcgm, 1, "GPU-old", "lost");
    LIST(&f->nvml, 1, gpu(0, "", "00000000:01:00.0"));
    join(f);
    assert_twin(f, 0, 0);
}

static void instances_are_joined_below_their_gpu_by_their_ids(void **st)
{
    struct fixture *f = *st;
    LIST(&f->nvml, 1, gpu(0, "GPU-a", ""), instance(0, 0, 1, "MIG-1", "1g.10gb"),
         instance(0, 0, 2, "MIG-2", "1g.10gb"), gpu(1, "GPU-b", ""),
         instance(3, 1, 1, "MIG-3", "1g.10gb"), compute_instance(4, 1, 1, 0));
    LIST(&f->dcgm, 1, gpu(0, "GPU-b", ""), instance(0, 0, 1, "", ""), compute_instance(1, 0, 1, 1),
         compute_instance(1, 0, 1, 0), instance(0, 0, 2, "", ""), gpu(1, "GPU-a", ""),
         instance(5, 1, 2, "", ""), gpu_link(5, 1, 0), nvswitch(8, 1));
    join(f);
    assert_twin(f, 0, 5);
    assert_twin(f, 1, SIZE_MAX);
    assert_twin(f, 2, 6);
    assert_twin(f, 3, 0);
    assert_twin(f, 4, 1);
    assert_twin(f, 5, 3);
    for (size_t p = 7; p < 9; p++) // a part has no place among NVML's
        assert_int_equal(device_view_place(&f->view, DEVICE_SOURCE_DCGM, p), SIZE_MAX);
}

static void nvml_is_primary_once_it_has_listed_a_gpu(void **st)
{
    struct fixture *f = *st;
    struct device_view *v = &f->view;
    assert_int_equal(v->primary->entity_count, 0); // before anything is known
    assert_int_equal(device_view_refresh(v, NULL, NULL), 0);
    assert_non_null(v->primary);
    assert_int_equal(v->primary->entity_count, 0);
    assert_int_equal(device_view_refresh(v, &f->nvml, NULL), 0);
    assert_ptr_equal(v->primary, &f->nvml);
    assert_int_equal(device_view_refresh(v, NULL, &f->dcgm), 0);
    assert_ptr_equal(v->primary, &f->dcgm);
    join(f);
    assert_ptr_equal(v->primary, &f->nvml);
    LIST(&f->dcgm, 1, nvswitch(0, 0));
    join(f);
    assert_ptr_equal(v->primary, &f->nvml); // DCGM has no GPU either
    LIST(&f->dcgm, 2, gpu(0, "GPU-a", ""), nvswitch(1, 0));
    join(f);
    assert_ptr_equal(v->primary, &f->dcgm);
    assert_ptr_equal(device_view_entity(v, 0, DEVICE_SOURCE_DCGM), &f->dcgm.entities[0]);
    assert_null(device_view_entity(v, 0, DEVICE_SOURCE_NVML));
    assert_int_equal(device_view_place(v, DEVICE_SOURCE_DCGM, 1), 1);
    LIST(&f->nvml, 1, gpu(7, "GPU-a", ""));
    join(f);
    assert_ptr_equal(v->primary, &f->nvml);
    assert_twin(f, 0, 0);
    LIST(&f->nvml, 2, blank(7, FRAME_ENTITY_LOST)); // a lost one is still NVML's
    join(f);
    assert_ptr_equal(v->primary, &f->nvml);
    assert_int_equal(device_view_refresh(v, &f->nvml, NULL), 0);
    assert_null(device_view_entity(v, 0, DEVICE_SOURCE_DCGM));
}

static void layout_grows_with_either_inventory_and_else_stays(void **st)
{
    struct fixture *f = *st;
    LIST(&f->nvml, 1, gpu(0, "GPU-a", ""));
    join(f);
    uint64_t layout = f->view.layout;
    join(f);
    assert_int_equal(f->view.layout, layout);
    SAMPLE(&f->nvml, 1, 1, record_i64(0, TEMP, 41, T0));
    join(f);
    assert_int_equal(f->view.layout, layout);
    LIST(&f->dcgm, 1, gpu(0, "GPU-a", ""));
    join(f);
    assert_int_equal(f->view.layout, ++layout);
    event(&f->nvml, 1, 0, UINT32_MAX, 79, T0);
    join(f);
    assert_int_equal(f->view.layout, ++layout);
    state(&f->dcgm, FRAME_STATE_FAILED, "");
    join(f);
    assert_int_equal(f->view.layout, ++layout);
    assert_int_equal(device_view_refresh(&f->view, &f->nvml, NULL), 0);
    assert_int_equal(f->view.layout, ++layout);
    join(f);
    assert_int_equal(f->view.layout, ++layout);
}

static void an_inventory_that_was_reset_is_joined_anew(void **st)
{
    struct fixture *f = *st;
    LIST(&f->nvml, 1, gpu(0, "GPU-a", ""), gpu(1, "GPU-b", ""));
    LIST(&f->dcgm, 1, gpu(0, "GPU-b", ""), gpu(1, "GPU-a", ""));
    join(f);
    assert_twin(f, 0, 1);
    uint64_t layout = f->dcgm.layout;
    inventory_reset(&f->dcgm);
    assert_true(f->dcgm.layout > layout);
    assert_true(f->dcgm.ends_at_once);
    assert_false(inventory_is_connected(&f->dcgm));
    assert_int_equal(f->dcgm.entity_count, 0);
    assert_int_equal(f->dcgm.field_count, 0);
    assert_null(device_view_entity(&f->view, 0, DEVICE_SOURCE_DCGM)); // not joined again yet
    LIST(&f->dcgm, 1, gpu(0, "GPU-a", ""), gpu(1, "GPU-b", ""));
    join(f);
    assert_twin(f, 0, 0);
    assert_twin(f, 1, 1);
}

// --- Which value ---

// What a source has of GR_ACTIVE: a status; or one of these.
enum {
    NOW = FRAME_OK,
    OLD = FRAME_STATUS_END, // a value over its horizon
    UNWATCHED,
    ABSENT, // DCGM has no such GPU
    AWAY,   // DCGM has no host engine
    GONE,   // DCGM's helper is not there
    LOST,   // a value, but the GPU is lost there
    HUNG,   // a value, but the GPU is marked down there
    OFF,    // DCGM is not in use
    SILENT, // DCGM has not said anything yet
};

static void give(struct inventory *inv, int what, double number)
{
    static const uint16_t without[] = {TEMP};
    struct frame_entity e = gpu(0, "GPU-a", "");
    if (what == ABSENT)
        sv_copy(e.uuid, sizeof(e.uuid), SV("GPU-z"));
    LIST(inv, 1, e);
    if (what == UNWATCHED)
        assert_int_equal(inventory_set_fields(inv, without, 1, 1), 0);
    else if (what > FRAME_OK && what < FRAME_STATUS_END)
        SAMPLE(inv, 1, 1, record_status(0, GR_ACTIVE, (enum frame_status)what, T0));
    else
        SAMPLE(inv, 1, 1, record_double(0, GR_ACTIVE, number, what == OLD ? OLD_NS : T0));
    if (what == AWAY)
        state(inv, FRAME_STATE_FAILED, "");
    if (what == GONE)
        inventory_disconnect(inv);
    if (what == LOST)
        LIST(inv, 2, blank(0, FRAME_ENTITY_LOST));
    if (what == HUNG)
        inventory_mark_down(inv, 0, "hung");
    if (what == SILENT)
        inv->state_known = false;
}

#define N DEVICE_SOURCE_NVML
#define D DEVICE_SOURCE_DCGM

static const struct choice {
    int nvml, dcgm;
    enum device_source source;
    int shows; // OK, OLD or the status that says why not; UNWATCHED: NULL
} choices[] = {
    // NVML's while it is there, whatever DCGM has.
    {NOW, OFF, N, NOW},
    {NOW, NOW, N, NOW},
    {NOW, OLD, N, NOW},
    {NOW, UNWATCHED, N, NOW},
    {NOW, AWAY, N, NOW},
    {NOW, FRAME_IN_USE, N, NOW},
    // Else DCGM's, whatever keeps NVML's away.
    {OLD, NOW, D, NOW},
    {UNWATCHED, NOW, D, NOW},
    {FRAME_NO_DATA, NOW, D, NOW},
    {FRAME_NOT_SUPPORTED, NOW, D, NOW},
    {FRAME_NO_SYMBOL, NOW, D, NOW},
    {FRAME_NO_PERMISSION, NOW, D, NOW},
    {FRAME_NEEDS_DCGM, NOW, D, NOW},
    {FRAME_NEEDS_GPM, NOW, D, NOW},
    {FRAME_VENDOR_ERROR, NOW, D, NOW},
    {FRAME_INVALID, NOW, D, NOW},
    {FRAME_AVOIDED, NOW, D, NOW},
    // Neither: DCGM says why where NVML never has it or has nothing yet.
    {FRAME_NEEDS_DCGM, OLD, D, OLD},
    {FRAME_NEEDS_GPM, FRAME_IN_USE, D, FRAME_IN_USE},
    {FRAME_NEEDS_GPM, FRAME_PAUSED, D, FRAME_PAUSED},
    {FRAME_NEEDS_GPM, FRAME_NOT_SUPPORTED, D, FRAME_NOT_SUPPORTED},
    {FRAME_NEEDS_GPM, FRAME_NO_DATA, D, FRAME_NO_DATA},
    {FRAME_NEEDS_GPM, AWAY, D, FRAME_NOT_CONNECTED},
    {FRAME_NEEDS_DCGM, GONE, D, FRAME_NOT_CONNECTED},
    {FRAME_NEEDS_DCGM, SILENT, D, FRAME_NOT_CONNECTED},
    {FRAME_NEEDS_DCGM, LOST, D, FRAME_NO_DATA}, // its readings are gone with it
    {FRAME_NEEDS_DCGM, HUNG, D, FRAME_NO_DATA},
    {FRAME_NO_DATA, FRAME_IN_USE, D, FRAME_IN_USE},
    {FRAME_NO_DATA, FRAME_VENDOR_ERROR, D, FRAME_VENDOR_ERROR},
    {UNWATCHED, FRAME_NOT_SUPPORTED, D, FRAME_NOT_SUPPORTED},
    {UNWATCHED, OLD, D, OLD},
    {UNWATCHED, AWAY, D, FRAME_NOT_CONNECTED},
    // And NVML for all others.
    {OLD, OLD, N, OLD},
    {OLD, FRAME_NO_DATA, N, OLD},
    {OLD, AWAY, N, OLD},
    {OLD, HUNG, N, OLD},
    {FRAME_NOT_SUPPORTED, FRAME_NO_DATA, N, FRAME_NOT_SUPPORTED},
    {FRAME_NO_PERMISSION, FRAME_NOT_SUPPORTED, N, FRAME_NO_PERMISSION},
    {FRAME_NO_SYMBOL, OLD, N, FRAME_NO_SYMBOL},
    {FRAME_VENDOR_ERROR, AWAY, N, FRAME_VENDOR_ERROR},
    {FRAME_INVALID, FRAME_INVALID, N, FRAME_INVALID},
    {FRAME_AVOIDED, GONE, N, FRAME_AVOIDED},
    {FRAME_LOST, FRAME_NO_DATA, N, FRAME_LOST},
    // DCGM is not in use, or not for this field or GPU.
    {FRAME_NEEDS_GPM, OFF, N, FRAME_NEEDS_GPM},
    {FRAME_NEEDS_DCGM, UNWATCHED, N, FRAME_NEEDS_DCGM},
    {FRAME_NEEDS_DCGM, ABSENT, N, FRAME_NEEDS_DCGM},
    {FRAME_NO_DATA, ABSENT, N, FRAME_NO_DATA},
    {UNWATCHED, UNWATCHED, N, UNWATCHED},
    {UNWATCHED, ABSENT, N, UNWATCHED},
    {UNWATCHED, OFF, N, UNWATCHED},
};

static void check_choice(struct fixture *f, const struct choice *c)
{
    give(&f->nvml, c->nvml, 0.25);
    if (c->dcgm != OFF)
        give(&f->dcgm, c->dcgm, 0.75);
    struct device_view *v = &f->view;
    assert_int_equal(device_view_refresh(v, &f->nvml, c->dcgm == OFF ? NULL : &f->dcgm), 0);
    struct device_slots slots = device_view_slots(v, GR_ACTIVE);
    assert_int_equal(slots.at[N] == UINT32_MAX, c->nvml == UNWATCHED);
    assert_int_equal(slots.at[D] == UINT32_MAX, c->dcgm == UNWATCHED || c->dcgm == OFF);
    enum device_source source = DEVICE_SOURCE_COUNT, found = DEVICE_SOURCE_COUNT;
    const struct inventory_value *value = device_view_value(v, 0, slots, HORIZON_NS, T0, &source);
    const struct field_info *field = field_find(GR_ACTIVE);
    const struct inventory_value *shown = device_view_find(v, 0, field, periods, T0, &found);
    enum frame_status status = device_view_status(v, 0, GR_ACTIVE);
    if (c->shows == UNWATCHED) {
        assert_null(value);
        assert_null(shown);
        assert_int_equal(status, FRAME_NO_DATA);
        return;
    }
    assert_non_null(value);
    assert_int_equal(source, c->source);
    bool has_number = c->shows == NOW || c->shows == OLD;
    assert_int_equal(value->status, has_number ? FRAME_OK : c->shows);
    if (has_number)
        assert_true(value->value.f64 == (c->source == N ? 0.25 : 0.75));
    assert_int_equal(value->taken_ns == OLD_NS, c->shows == OLD);
    assert_ptr_equal(shown, c->shows == NOW ? value : NULL);
    assert_int_equal(found, c->shows == NOW ? source : DEVICE_SOURCE_COUNT);
    // Either has a value, however old.
    assert_int_equal(status, has_number || c->dcgm == OLD ? FRAME_OK : c->shows);
}

static void nvmls_value_while_it_is_there_else_dcgms_else_the_best_reason(void **st)
{
    (void)st;
    for (size_t i = 0; i < ARRAY_SIZE(choices); i++) {
        void *f;
        setup(&f);
        check_choice(f, &choices[i]);
        teardown(&f);
    }
}

static void alone_dcgm_is_taken_as_it_is(void **st)
{
    struct fixture *f = *st;
    static const int shows[] = {NOW, OLD, FRAME_IN_USE, FRAME_NOT_CONNECTED};
    static const int has[] = {NOW, OLD, FRAME_IN_USE, GONE};
    for (size_t i = 0; i < ARRAY_SIZE(has); i++) {
        give(&f->dcgm, has[i], 0.75);
        for (int with_nvml = 0; with_nvml < 2; with_nvml++) {
            enum device_source source = N;
            assert_int_equal(device_view_refresh(&f->view, with_nvml ? &f->nvml : NULL, &f->dcgm),
                             0);
            const struct inventory_value *value = device_view_value(
                &f->view, 0, device_view_slots(&f->view, GR_ACTIVE), HORIZON_NS, T0, &source);
            assert_int_equal(source, D);
            assert_int_equal(value->status, shows[i] == OLD ? NOW : shows[i]);
        }
    }
}

static void a_device_that_is_down_at_the_primary_shows_nothing(void **st)
{
    struct fixture *f = *st;
    give(&f->nvml, FRAME_NEEDS_GPM, 0);
    give(&f->dcgm, NOW, 0.75);
    join(f);
    assert_non_null(device_view_find(&f->view, 0, field_find(GR_ACTIVE), periods, T0, NULL));
    inventory_mark_down(&f->nvml, 0, "hung");
    join(f);
    assert_null(device_view_find(&f->view, 0, field_find(GR_ACTIVE), periods, T0, NULL));
    LIST(&f->nvml, 2, blank(0, FRAME_ENTITY_LOST));
    join(f);
    assert_int_equal(device_view_status(&f->view, 0, GR_ACTIVE), FRAME_LOST);
    assert_int_equal(device_view_status(&f->view, 0, POWER), FRAME_LOST);
    assert_int_equal(device_view_status(&f->view, 0, 9999), FRAME_NO_DATA); // watched nowhere
}

static void an_instance_looks_up_to_its_gpu_in_both(void **st)
{
    struct fixture *f = *st;
    LIST(&f->nvml, 1, gpu(0, "GPU-a", ""), instance(0, 0, 1, "MIG-1", ""));
    LIST(&f->dcgm, 1, nvswitch(0, 0), gpu(0, "GPU-a", ""), instance(1, 0, 1, "", ""));
    SAMPLE(&f->nvml, 1, 1, record_status(0, TEMP, FRAME_NOT_SUPPORTED, T0));
    SAMPLE(&f->dcgm, 1, 1, record_i64(1, TEMP, 41, T0), record_double(1, POWER, 71.5, T0),
           record_double(1, GR_ACTIVE, 0.5, T0), record_double(2, GR_ACTIVE, 0.125, T0));
    join(f);
    static const struct {
        uint16_t field;
        double gpu, instance;
    } cases[] = {{POWER, 71.5, 71.5}, {GR_ACTIVE, 0.5, 0.125}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (size_t e = 0; e < 2; e++) {
            const struct inventory_value *v =
                device_view_find(&f->view, e, field_find(cases[i].field), periods, T0, NULL);
            assert_non_null(v);
            assert_true(v->value.f64 == (e ? cases[i].instance : cases[i].gpu));
            assert_int_equal(device_view_status(&f->view, e, cases[i].field), FRAME_OK);
        }
    }
    enum device_source source = N;
    assert_int_equal(
        device_view_find(&f->view, 1, field_find(TEMP), periods, T0, &source)->value.i64, 41);
    assert_int_equal(source, D);
}

// --- XIDs ---

static void assert_xid_shown(const struct fixture *f, int64_t code, enum device_source source)
{
    enum device_source whose = DEVICE_SOURCE_COUNT;
    const struct inventory_value *v =
        device_view_find(&f->view, 0, field_find(XID), periods, T0 + 1000 * NS_PER_S, &whose);
    assert_int_equal(v ? v->value.i64 : -1, code);
    assert_int_equal(whose, source);
}

static void the_newest_xid_that_a_source_has_seen_is_shown(void **st)
{
    struct fixture *f = *st;
    LIST(&f->nvml, 1, gpu(0, "GPU-a", ""));
    LIST(&f->dcgm, 1, gpu(1, "GPU-b", ""), gpu(0, "GPU-a", ""));
    join(f);
    assert_xid_shown(f, -1, DEVICE_SOURCE_COUNT);
    SAMPLE(&f->dcgm, 1, 1, record_i64(1, XID, 0, T0 + 1000 * NS_PER_S));
    assert_xid_shown(f, 0, D);
    SAMPLE(&f->nvml, 1, 1, record_i64(0, XID, 0, T0 + 1000 * NS_PER_S));
    assert_xid_shown(f, 0, N);
    SAMPLE(&f->dcgm, 1, 1, record_i64(0, XID, 48, T0 + 9), record_i64(1, XID, 31, T0 + 5));
    join(f);
    assert_xid_shown(f, 31, D); // evidence, where NVML came later
    event(&f->nvml, 1, 0, UINT32_MAX, 79, T0 + 5);
    join(f);
    assert_xid_shown(f, 79, N); // at the same time NVML's
    event(&f->dcgm, 1, 1, UINT32_MAX, 79, T0 + 6);
    join(f);
    assert_xid_shown(f, 79, N); // and of the same code, whoever told it later
    event(&f->dcgm, 1, 1, UINT32_MAX, 94, T0 + 7);
    join(f);
    assert_xid_shown(f, 94, D);
    // It neither ends with the device nor with the source.
    LIST(&f->nvml, 2, blank(0, FRAME_ENTITY_LOST));
    inventory_disconnect(&f->dcgm);
    join(f);
    assert_xid_shown(f, 94, D);
}

// --- Labels ---

static const char *label(const struct fixture *f, size_t entity, uint16_t field)
{
    const struct inventory_value *v = device_view_label(&f->view, entity, field_find(field));
    return v ? v->value.string : NULL;
}

static void a_label_is_nvmls_else_dcgms(void **st)
{
    struct fixture *f = *st;
    const uint16_t with_serial[] = {DRIVER, SERIAL};
    LIST(&f->nvml, 1, gpu(0, "GPU-a", ""), gpu(1, "GPU-b", ""));
    LIST(&f->dcgm, 1, nvswitch(0, 0), gpu(0, "GPU-b", ""));
    assert_int_equal(inventory_set_fields(&f->dcgm, with_serial, 2, 1), 0);
    inventory_set_labels(&f->dcgm, with_serial, 2);
    join(f);
    assert_null(label(f, 0, SERIAL));
    SAMPLE_TEXT(&f->dcgm, 1, 1, SV("550d1"), record_text(1, DRIVER, 0, 3, T0),
                record_text(1, SERIAL, 3, 2, T0));
    assert_null(label(f, 0, SERIAL));
    assert_string_equal(label(f, 1, SERIAL), "d1");
    assert_string_equal(label(f, 0, DRIVER), "550"); // a global field, of a GPU DCGM has not
    assert_string_equal(device_view_part_label(&f->view, 1, field_find(DRIVER))->value.string,
                        "550");
    assert_null(device_view_part_label(&f->view, 1, field_find(SERIAL)));
    SAMPLE_TEXT(&f->nvml, 1, 1, SV("551n1"), record_text(1, DRIVER, 0, 3, T0),
                record_text(1, SERIAL, 3, 2, T0));
    assert_string_equal(label(f, 1, SERIAL), "n1");
    assert_string_equal(label(f, 0, DRIVER), "551");
    inventory_disconnect(&f->dcgm);
    assert_string_equal(device_view_part_label(&f->view, 1, field_find(DRIVER))->value.string,
                        "550"); // a label stays
}

static void a_part_without_a_global_label_has_nvmls(void **st)
{
    struct fixture *f = *st;
    LIST(&f->nvml, 1, gpu(0, "GPU-a", ""));
    LIST(&f->dcgm, 1, nvswitch(0, 0));
    SAMPLE_TEXT(&f->nvml, 1, 1, SV("551n1"), record_text(0, DRIVER, 0, 3, T0),
                record_text(0, SERIAL, 3, 2, T0));
    join(f);
    assert_string_equal(device_view_part_label(&f->view, 0, field_find(DRIVER))->value.string,
                        "551");
    assert_null(device_view_part_label(&f->view, 0, field_find(SERIAL)));
    assert_int_equal(device_view_refresh(&f->view, NULL, &f->dcgm), 0);
    assert_null(device_view_part_label(&f->view, 0, field_find(DRIVER)));
}

// --- Parts ---

static const struct inventory_value *part_value(const struct fixture *f, size_t part,
                                                uint16_t field)
{
    const struct inventory_value *v =
        device_view_part_value(&f->view, part, device_view_slots(&f->view, field));
    assert_non_null(v);
    if (!v)
        abort();
    return v;
}

static void the_value_of_a_part_is_dcgms(void **st)
{
    struct fixture *f = *st;
    LIST(&f->nvml, 1, gpu(0, "GPU-a", ""));
    LIST(&f->dcgm, 1, nvswitch(0, 0), nvswitch(1, 1), gpu(0, "GPU-a", ""));
    join(f);
    // GPU 0, switches 1 and 2
    SAMPLE(&f->dcgm, 1, 1, record_i64(0, SWITCH_TEMP, 40, T0), record_i64(1, SWITCH_TEMP, 41, T0));
    assert_int_equal(device_view_slots(&f->view, SWITCH_TEMP).at[N], UINT32_MAX);
    assert_int_equal(part_value(f, 1, SWITCH_TEMP)->value.i64, 40);
    assert_int_equal(part_value(f, 2, SWITCH_TEMP)->value.i64, 41);
    assert_null(device_view_part_value(&f->view, 1, device_view_slots(&f->view, SERIAL)));
    inventory_disconnect(&f->dcgm);
    assert_int_equal(part_value(f, 1, SWITCH_TEMP)->status, FRAME_NOT_CONNECTED);
}

// --- Memory ---

static struct fixture *swept;

static void join_swept(void)
{
    struct device_view v;
    device_view_init(&v);
    int r = device_view_refresh(&v, &swept->nvml, &swept->dcgm);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    bool joined = device_view_entity(&v, 0, DEVICE_SOURCE_DCGM) != NULL;
    assert_int_equal(joined, !allocation_failed);
    assert_ptr_equal(v.primary, &swept->nvml);
    // The next time it has memory, though no list changed.
    allocation_until_failure = 0;
    assert_int_equal(device_view_refresh(&v, &swept->nvml, &swept->dcgm), 0);
    assert_ptr_equal(device_view_entity(&v, 0, DEVICE_SOURCE_DCGM), &swept->dcgm.entities[0]);
    device_view_deinit(&v);
}

static void without_memory_nothing_is_joined_until_the_next_time(void **st)
{
    swept = *st;
    LIST(&swept->nvml, 1, gpu(0, "GPU-a", ""));
    LIST(&swept->dcgm, 1, gpu(0, "GPU-a", ""));
    assert_int_equal(allocation_sweep(join_swept), 1);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_gpu_is_joined_by_uuid_and_never_by_index),
        T(bus_ids_decide_where_a_uuid_is_not_known),
        T(one_device_is_the_twin_of_one),
        T(what_a_source_has_lost_gives_way_to_what_is_there),
        T(instances_are_joined_below_their_gpu_by_their_ids),
        T(nvml_is_primary_once_it_has_listed_a_gpu),
        T(layout_grows_with_either_inventory_and_else_stays),
        T(an_inventory_that_was_reset_is_joined_anew),
        T(nvmls_value_while_it_is_there_else_dcgms_else_the_best_reason),
        T(alone_dcgm_is_taken_as_it_is),
        T(a_device_that_is_down_at_the_primary_shows_nothing),
        T(an_instance_looks_up_to_its_gpu_in_both),
        T(the_newest_xid_that_a_source_has_seen_is_shown),
        T(a_label_is_nvmls_else_dcgms),
        T(a_part_without_a_global_label_has_nvmls),
        T(the_value_of_a_part_is_dcgms),
        T(without_memory_nothing_is_joined_until_the_next_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
