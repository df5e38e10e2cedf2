// SPDX-License-Identifier: Apache-2.0
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
#include "exporter/source_plan.h"

#define GPUS_MAX 4
#define TEMP 150
#define PROF_GR 1001
#define PROF_TENSOR 1004
#define PROF_DRAM 1005
#define PROF_TX 1009
#define PROF_RX 1010
#define DRIVER 1
#define SWITCH_TEMP 701

// --- A node, as the two sources tell of it: without podgpu's own families, unless they are asked
// for
// ---

struct node {
    struct exporter_options options;
    struct exporter_config config;
    struct inventory nvml, dcgm;
    struct device_view view;
    char uuids[GPUS_MAX][40];
    uint32_t generation;
};

static struct node *node_new(const char *csv, const char *const *words)
{
    struct node *n = calloc(1, sizeof(*n));
    char *argv[16] = {"podgpu-exporter", "--podgpu-families=none"};
    int argc = 2;
    for (; *words; words++)
        argv[argc++] = (char *)*words;
    char *environment[] = {"NODE_NAME=node", NULL};
    struct error err = ERROR_INIT;
    assert_int_equal(exporter_options_parse(argc, argv, environment, &n->options, &err), 0);
    assert_int_equal(counters_parse(sv_from(csv), "test.csv", &n->config.counters, &err), 0);
    n->config.options = &n->options;
    inventory_init(&n->nvml);
    inventory_init(&n->dcgm);
    device_view_init(&n->view);
    return n;
}

static void node_free(struct node *n)
{
    device_view_deinit(&n->view);
    inventory_deinit(&n->nvml);
    inventory_deinit(&n->dcgm);
    counter_list_deinit(&n->config.counters);
    exporter_options_deinit(&n->options);
    free(n);
}

static inline maybe_unused void node_freep(struct node **n)
{
    node_free(*n);
}

// Lists GPUs: uuids[i] is the letter of the GPU at place i, so that the sources may differ in
// order.
static void list(struct node *n, struct inventory *inv, const char *letters)
{
    struct frame_entity entities[GPUS_MAX] = {0};
    uint32_t count = 0;
    for (; letters[count]; count++) {
        struct frame_entity *e = &entities[count];
        *e = (struct frame_entity){.kind = FRAME_ENTITY_GPU,
                                   .index = count,
                                   .parent = count,
                                   .minor = count,
                                   .gpu_instance_id = UINT32_MAX,
                                   .instance_entity_id = UINT32_MAX,
                                   .id = UINT32_MAX};
        (void)snprintf(e->uuid, sizeof(e->uuid), "GPU-%c", letters[count]);
        (void)snprintf(e->bus_id, sizeof(e->bus_id), "00000000:0%c:00.0", letters[count]);
    }
    const struct frame_entities head = {++n->generation, count};
    const struct frame f = {.type = FRAME_ENTITIES, .as.entities = {&head, entities}};
    assert_int_equal(inventory_apply(inv, &f), 0);
}

// A GPU, and where it is asked for an instance on it.
static void list_one(struct node *n, bool with_instance, bool gpm)
{
    struct frame_entity entities[2] = {
        {.kind = FRAME_ENTITY_GPU,
         .gpu_instance_id = UINT32_MAX,
         .instance_entity_id = UINT32_MAX,
         .id = UINT32_MAX,
         .uuid = "GPU-a",
         .gpm = gpm,
         .mig_enabled = with_instance},
        {.kind = FRAME_ENTITY_GPU_I,
         .gpu_instance_id = 1,
         .id = UINT32_MAX,
         .uuid = "MIG-a",
         .profile = "1g.5gb",
         .gpm = gpm},
    };
    const struct frame_entities head = {++n->generation, with_instance ? 2 : 1};
    const struct frame f = {.type = FRAME_ENTITIES, .as.entities = {&head, entities}};
    assert_int_equal(inventory_apply(&n->nvml, &f), 0);
}

static void state(struct inventory *inv, enum frame_state_code code)
{
    const struct frame_state s = {.code = code};
    const struct frame f = {.type = FRAME_STATE, .as.state = &s};
    assert_int_equal(inventory_apply(inv, &f), 0);
}

static void refresh(struct node *n, bool with_dcgm)
{
    assert_int_equal(device_view_refresh(&n->view,
                                         n->options.source == SOURCE_CHOICE_DCGM ? NULL : &n->nvml,
                                         with_dcgm ? &n->dcgm : NULL),
                     0);
}

// One status for each of NVML's GPUs.
static void nvml_says(struct node *n, uint16_t field, const enum frame_status *statuses)
{
    struct frame_record records[GPUS_MAX];
    uint32_t count = (uint32_t)n->nvml.entity_count;
    for (uint32_t i = 0; i < count; i++)
        records[i] = (struct frame_record){.entity = i,
                                           .field = field,
                                           .status = (uint8_t)statuses[i],
                                           .type = statuses[i] == FRAME_OK ? FRAME_VALUE_I64
                                                                           : FRAME_VALUE_NONE,
                                           .taken_ns = NS_PER_S,
                                           .value = {.i64 = 1}};
    const struct frame_sample head = {.generation = n->nvml.generation,
                                      .watch_id = 1,
                                      .classes = 1,
                                      .count = count,
                                      .started_ns = NS_PER_S,
                                      .ended_ns = NS_PER_S};
    const struct frame f = {.type = FRAME_SAMPLE, .as.sample = {&head, records, {NULL, 0}}};
    assert_int_equal(inventory_apply(&n->nvml, &f), 0);
}
#define SAYS(n, field, ...) nvml_says(n, field, (const enum frame_status[GPUS_MAX]){__VA_ARGS__})

// NVML is asked what the plan says, before there is anything to know.
static void watch(struct node *n)
{
    struct source_plan plan;
    refresh(n, false);
    assert_int_equal(source_plan_make(&n->config, &n->view, NULL, &plan), 0);
    assert_int_equal(inventory_set_fields(&n->nvml, plan.fields[DEVICE_SOURCE_NVML],
                                          plan.field_count[DEVICE_SOURCE_NVML], 1),
                     0);
    source_plan_deinit(&plan);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

#define STOCK                                                                                      \
    "DCGM_FI_DEV_GPU_TEMP, gauge, t\n"                                                             \
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, t\nDCGM_FI_PROF_PIPE_TENSOR_ACTIVE, gauge, t\n"         \
    "DCGM_FI_PROF_DRAM_ACTIVE, gauge, t\nDCGM_FI_PROF_PCIE_TX_BYTES, gauge, t\n"                   \
    "DCGM_FI_PROF_PCIE_RX_BYTES, gauge, t\nDCGM_FI_DRIVER_VERSION, label, t\n"

static const uint16_t prof[] = {PROF_GR, PROF_TENSOR, PROF_DRAM, PROF_TX, PROF_RX};

static void all_prof(struct node *n, enum frame_status a, enum frame_status b)
{
    for (size_t i = 0; i < ARRAY_SIZE(prof); i++)
        SAYS(n, prof[i], a, b, b, b);
}

static void make(struct node *n, const struct source_plan *before, struct source_plan *out)
{
    assert_int_equal(source_plan_make(&n->config, &n->view, before, out), 0);
}

static void assert_fields(const struct source_plan *p, enum device_source source,
                          const uint16_t *expected, size_t count)
{
    assert_int_equal(p->field_count[source], count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(p->fields[source][i], expected[i]);
}
#define ASSERT_FIELDS(p, source, ...)                                                              \
    do {                                                                                           \
        const uint16_t expected_[] = {__VA_ARGS__};                                                \
        assert_fields(p, source, expected_, ARRAY_SIZE(expected_));                                \
    } while (0)

// --- Claims ---

static void before_nvml_has_sampled_dcgm_is_not_wanted(void **state_)
{
    (void)state_;
    cleanup(node_freep) struct node *n = node_new(STOCK, WORDS());
    watch(n);
    struct source_plan p;
    make(n, NULL, &p);
    assert_true(p.nvml);
    assert_false(p.dcgm);
    ASSERT_FIELDS(&p, DEVICE_SOURCE_NVML, DRIVER, TEMP, PROF_GR, PROF_TENSOR, PROF_DRAM, PROF_TX,
                  PROF_RX);
    source_plan_deinit(&p);
    list(n, &n->nvml, "ab");
    refresh(n, false);
    make(n, NULL, &p);
    assert_false(p.dcgm);
    source_plan_deinit(&p);
}

// Recovery action and clocks: of NVML where it knows them, of DCGM with --source=dcgm alone.
static void podgpus_own_families_bring_their_fields_once(void **state_)
{
    (void)state_;
    static const struct {
        const char *csv, *flag;
        uint16_t expected[4];
        size_t count;
    } cases[] = {
        {"DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "--podgpu-families=core", {112, TEMP, 1523}, 3},
        {"DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "--podgpu-families=all", {112, TEMP, 1523}, 3},
        {"DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "--podgpu-families=none", {TEMP}, 1},
        {"DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, t\nDCGM_FI_DEV_CLOCK_THROTTLE_REASONS, gauge, t\n",
         "--podgpu-families=core",
         {112, 1523},
         2},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(node_freep) struct node *n = node_new(cases[i].csv, WORDS(cases[i].flag));
        watch(n);
        list(n, &n->nvml, "ab");
        SAYS(n, 1523, FRAME_NOT_SUPPORTED, FRAME_NO_SYMBOL);
        refresh(n, false);
        struct source_plan p;
        make(n, NULL, &p);
        assert_fields(&p, DEVICE_SOURCE_NVML, cases[i].expected, cases[i].count);
        assert_false(p.dcgm);
        source_plan_deinit(&p);
    }
}

// The ledger asks for an instance's activity, which an H100 tells itself and an A100 does not.
static void instances_without_gpm_bring_dcgms_activity_for_the_ledger(void **state_)
{
    (void)state_;
    static const struct {
        const char *flag;
        bool is_instance, gpm, asked;
    } cases[] = {
        {"--podgpu-families=core", true, false, true},
        {"--podgpu-families=core", true, true, false},
        {"--podgpu-families=core", false, false, false}, // whole GPUs have the driver's samples
        {"--podgpu-families=none", true, false, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(node_freep) struct node *n =
            node_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", WORDS(cases[i].flag));
        list_one(n, cases[i].is_instance, cases[i].gpm);
        watch(n);
        SAYS(n, PROF_GR, FRAME_NEEDS_GPM, FRAME_NEEDS_GPM);
        refresh(n, false);
        struct source_plan p;
        make(n, NULL, &p);
        bool asked = false;
        for (size_t f = 0; f < p.field_count[DEVICE_SOURCE_NVML]; f++)
            asked = asked || p.fields[DEVICE_SOURCE_NVML][f] == PROF_GR;
        assert_int_equal(asked, cases[i].asked);
        assert_int_equal(p.dcgm, cases[i].asked);
        source_plan_deinit(&p);
    }
}

static void a_node_with_gpm_needs_no_dcgm(void **state_)
{
    (void)state_;
    cleanup(node_freep) struct node *n = node_new(STOCK, WORDS());
    watch(n);
    list(n, &n->nvml, "ab");
    refresh(n, false);
    static const enum frame_status statuses[] = {FRAME_NO_DATA, FRAME_OK, FRAME_NOT_SUPPORTED,
                                                 FRAME_NO_SYMBOL, FRAME_LOST};
    for (size_t i = 0; i < ARRAY_SIZE(statuses); i++) {
        all_prof(n, statuses[i], FRAME_OK);
        struct source_plan p;
        make(n, NULL, &p);
        assert_false(p.dcgm);
        assert_int_equal(p.field_count[DEVICE_SOURCE_DCGM], 0);
        source_plan_deinit(&p);
    }
}

static void gpus_before_hopper_get_the_profiling_fields_of_dcgm(void **state_)
{
    (void)state_;
    cleanup(node_freep) struct node *n = node_new(STOCK, WORDS());
    watch(n);
    list(n, &n->nvml, "ab");
    all_prof(n, FRAME_NEEDS_GPM, FRAME_NEEDS_GPM);
    SAYS(n, TEMP, FRAME_OK, FRAME_OK);
    refresh(n, false);
    struct source_plan p;
    make(n, NULL, &p);
    assert_true(p.nvml && p.dcgm && p.embed);
    assert_int_equal(p.address_count, 2);
    assert_string_equal(p.addresses[0], "unix:///tmp/nv-hostengine");
    assert_string_equal(p.addresses[1], "localhost:5555");
    assert_fields(&p, DEVICE_SOURCE_DCGM, prof, ARRAY_SIZE(prof));
    assert_int_equal(p.gpus, 0); // it has listed none yet
    source_plan_deinit(&p);

    list(n, &n->dcgm, "ba"); // its own order
    refresh(n, true);
    make(n, NULL, &p);
    assert_int_equal(p.gpus, 0x3);
    source_plan_deinit(&p);
}

static void only_the_gpus_that_need_it_are_in_the_mask(void **state_)
{
    (void)state_;
    cleanup(node_freep) struct node *n = node_new(STOCK, WORDS());
    watch(n);
    list(n, &n->nvml, "abc");
    list(n, &n->dcgm, "xcba");
    all_prof(n, FRAME_NEEDS_GPM, FRAME_OK); // a alone
    refresh(n, true);
    struct source_plan p;
    make(n, NULL, &p);
    assert_int_equal(p.gpus, 1u << 3); // DCGM's index of a
    source_plan_deinit(&p);
}

static void gpus_that_are_not_selected_need_nothing(void **state_)
{
    (void)state_;
    static const struct {
        const char *devices;
        bool dcgm;
        uint64_t gpus;
    } cases[] = {
        {"f", true, 0x3},  {"g:0", true, 0x2}, {"g:1", true, 0x1},
        {"g:2", false, 0}, {"g:7", false, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(node_freep) struct node *n = node_new(STOCK, WORDS("-d", cases[i].devices));
        watch(n);
        list(n, &n->nvml, "abc");
        list(n, &n->dcgm, "bac");
        for (size_t f = 0; f < ARRAY_SIZE(prof); f++)
            SAYS(n, prof[f], FRAME_NEEDS_GPM, FRAME_NEEDS_GPM, FRAME_OK);
        refresh(n, true);
        struct source_plan p;
        make(n, NULL, &p);
        assert_int_equal(p.dcgm, cases[i].dcgm);
        assert_int_equal(p.gpus, cases[i].gpus);
        source_plan_deinit(&p);
    }
}

static void what_is_beside_gpus_needs_dcgm_at_once_and_no_gpu(void **state_)
{
    (void)state_;
    static const struct {
        const char *csv;
        uint16_t field;
        uint64_t gpus;
    } cases[] = {
        {"DCGM_FI_DEV_NVSWITCH_VOLTAGE_MVOLT, gauge, t\n", SWITCH_TEMP, 0},
        {"DCGM_FI_DEV_CPU_POWER_UTIL_CURRENT, gauge, t\n", 1130, 0},
        {"DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, t\n", 1100, 0},
        {"DCGM_EXP_GPU_HEALTH_STATUS, gauge, t\n", 9003, 0x3},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(node_freep) struct node *n = node_new(cases[i].csv, WORDS());
        list(n, &n->nvml, "ab");
        list(n, &n->dcgm, "ab");
        refresh(n, true);
        struct source_plan p;
        make(n, NULL, &p);
        assert_true(p.dcgm);
        ASSERT_FIELDS(&p, DEVICE_SOURCE_DCGM, cases[i].field);
        assert_int_equal(p.gpus, cases[i].gpus);
        source_plan_deinit(&p);
    }
}

static const char *name_of_level(enum field_level level, uint16_t *out_id)
{
    for (size_t i = 0; i < field_table_count; i++) {
        if (field_table[i].level != level || field_table[i].type == FIELD_BINARY)
            continue;
        *out_id = field_table[i].id;
        return field_table[i].name;
    }
    fail();
    return NULL;
}

static void fields_of_each_level_beside_gpus_are_asked_of_dcgm(void **state_)
{
    (void)state_;
    static const struct {
        enum field_level level;
        bool dcgm;
        uint64_t gpus; // links come with their GPUs
    } cases[] = {
        {FIELD_LEVEL_SWITCH, true, 0},    {FIELD_LEVEL_LINK, true, 0x3},
        {FIELD_LEVEL_CPU, true, 0},       {FIELD_LEVEL_CPU_CORE, true, 0},
        {FIELD_LEVEL_CONNECTX, false, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char csv[256];
        uint16_t id = 0;
        (void)snprintf(csv, sizeof(csv), "%s, gauge, t\nDCGM_FI_DRIVER_VERSION, label, t\n",
                       name_of_level(cases[i].level, &id));
        cleanup(node_freep) struct node *n = node_new(csv, WORDS());
        watch(n);
        list(n, &n->nvml, "ab");
        list(n, &n->dcgm, "ab");
        SAYS(n, id, FRAME_NEEDS_DCGM, FRAME_NEEDS_DCGM);
        refresh(n, true);
        struct source_plan p;
        make(n, NULL, &p);
        assert_int_equal(p.dcgm, cases[i].dcgm);
        if (cases[i].dcgm)
            ASSERT_FIELDS(&p, DEVICE_SOURCE_DCGM, DRIVER, id); // its label goes along
        assert_int_equal(p.gpus, cases[i].gpus);
        source_plan_deinit(&p);
    }
}

// dcgm-exporter's rows: {230, count}, {230}, {count}, {}, and the same of 112.
static void windowed_counters_bring_their_field_once(void **state_)
{
    (void)state_;
#define XID_ROW "DCGM_FI_DEV_XID_ERRORS, gauge, t\n"
#define XID_COUNT "DCGM_EXP_XID_ERRORS_COUNT, gauge, t\n"
#define CLOCK_ROW "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS, gauge, t\n"
#define CLOCK_COUNT "DCGM_EXP_CLOCK_EVENTS_COUNT, gauge, t\n"
    static const struct {
        const char *csv;
        size_t count;
        uint16_t field;
    } cases[] = {
        {XID_ROW XID_COUNT, 1, 230},
        {XID_ROW, 1, 230},
        {XID_COUNT, 1, 230},
        {"DCGM_EXP_XID_ERRORS_TOTAL, counter, t\n" XID_COUNT, 1, 230},
        {"", 0, 0},
        {CLOCK_ROW CLOCK_COUNT, 1, 112},
        {CLOCK_ROW, 1, 112},
        {CLOCK_COUNT, 1, 112},
        {"DCGM_EXP_CLOCK_EVENTS_TOTAL, counter, t\n", 1, 112},
        {"DCGM_EXP_P2P_STATUS, gauge, t\n", 1, 9004},
        {"DCGM_EXP_GPU_HEALTH_STATUS, gauge, t\n", 0, 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(node_freep) struct node *n = node_new(cases[i].csv, WORDS("--source=nvml"));
        refresh(n, false);
        struct source_plan p;
        make(n, NULL, &p);
        assert_fields(&p, DEVICE_SOURCE_NVML, &cases[i].field, cases[i].count);
        source_plan_deinit(&p);
    }
}

static void one_source_alone_is_asked_for_everything(void **state_)
{
    (void)state_;
    cleanup(node_freep) struct node *n = node_new(STOCK XID_COUNT, WORDS("--source=nvml"));
    watch(n);
    list(n, &n->nvml, "a");
    all_prof(n, FRAME_NEEDS_GPM, FRAME_NEEDS_GPM);
    refresh(n, false);
    struct source_plan p;
    make(n, NULL, &p);
    assert_true(p.nvml);
    assert_false(p.dcgm);
    source_plan_deinit(&p);

    cleanup(node_freep) struct node *d = node_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n" XID_COUNT
                                                  "DCGM_EXP_GPU_HEALTH_STATUS, gauge, t\n"
                                                  "DCGM_EXP_P2P_STATUS, gauge, t\n",
                                                  WORDS("--source=dcgm"));
    refresh(d, true);
    make(d, NULL, &p);
    assert_false(p.nvml);
    assert_true(p.dcgm && p.embed);
    ASSERT_FIELDS(&p, DEVICE_SOURCE_DCGM, TEMP, 230, 9003, 9004);
    assert_int_equal(p.field_count[DEVICE_SOURCE_NVML], 0);
    assert_true(p.gpus == UINT64_MAX);
    source_plan_deinit(&p);

    cleanup(node_freep) struct node *s = node_new(STOCK, WORDS("--source=dcgm", "-d", "g:1"));
    refresh(s, true);
    make(s, NULL, &p);
    assert_int_equal(p.gpus, 0);
    source_plan_deinit(&p);
    list(s, &s->dcgm, "ab");
    refresh(s, true);
    make(s, NULL, &p);
    assert_int_equal(p.gpus, 0x2);
    source_plan_deinit(&p);
}

static void a_given_engine_is_the_only_one_and_none_is_embedded(void **state_)
{
    (void)state_;
    static const struct {
        const char *words[4];
        const char *address;
        bool nvml;
    } cases[] = {
        {{"-r", "localhost:5556"}, "localhost:5556", true},
        {{"-r", "unix:///run/he.sock"}, "unix:///run/he.sock", true},
        {{"-r", ""}, "localhost:5555", true},
        {{"-k", "-r", "dcgm.example:5555"}, "dcgm.example:5555", true},
        {{"-r", "dcgm.example:5555"}, "dcgm.example:5555", false},
        {{"-r", "localhost:5555", "--source=dcgm"}, "localhost:5555", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        cleanup(node_freep) struct node *n =
            node_new("DCGM_EXP_GPU_HEALTH_STATUS, gauge, t\n", cases[i].words);
        refresh(n, false);
        struct source_plan p;
        make(n, NULL, &p);
        assert_true(p.dcgm);
        assert_false(p.embed);
        assert_int_equal(p.nvml, cases[i].nvml);
        assert_int_equal(p.address_count, 1);
        assert_string_equal(p.addresses[0], cases[i].address);
        source_plan_deinit(&p);
    }
}

static void without_nvml_a_given_engine_is_asked_for_everything(void **state_)
{
    (void)state_;
    for (unsigned given = 0; given < 2; given++) {
        cleanup(node_freep) struct node *n =
            node_new(STOCK, given ? WORDS("-r", "localhost:5555") : WORDS());
        watch(n);
        struct source_plan p;
        make(n, NULL, &p);
        assert_false(p.dcgm); // NVML has not said anything
        source_plan_deinit(&p);
        state(&n->nvml, FRAME_STATE_NO_LIBRARY);
        make(n, NULL, &p);
        assert_int_equal(p.dcgm, given);
        if (given)
            assert_int_equal(p.field_count[DEVICE_SOURCE_DCGM], 7);
        source_plan_deinit(&p);
    }
}

static void what_dcgm_was_asked_for_stays_until_nvml_says_otherwise(void **state_)
{
    (void)state_;
    cleanup(node_freep) struct node *n = node_new(STOCK, WORDS());
    watch(n);
    list(n, &n->nvml, "ab");
    list(n, &n->dcgm, "ab");
    all_prof(n, FRAME_NEEDS_GPM, FRAME_OK); // a needs it
    refresh(n, true);
    struct source_plan before, p;
    make(n, NULL, &before);
    assert_int_equal(before.gpus, 0x1);
    list(n, &n->nvml, "b"); // a falls off the bus
    refresh(n, true);
    all_prof(n, FRAME_NO_DATA, FRAME_NO_DATA);
    make(n, &before, &p);
    assert_true(p.dcgm);
    assert_fields(&p, DEVICE_SOURCE_DCGM, prof, ARRAY_SIZE(prof));
    assert_int_equal(p.gpus, 0x1); // DCGM may list it still
    source_plan_deinit(&p);
    list(n, &n->nvml, "ab");
    all_prof(n, FRAME_OK, FRAME_OK);
    refresh(n, true);
    make(n, &before, &p);
    assert_false(p.dcgm);
    source_plan_deinit(&p);
    source_plan_deinit(&before);
}

static void plans_are_equal_when_nothing_in_them_differs(void **state_)
{
    (void)state_;
    cleanup(node_freep) struct node *n = node_new(STOCK, WORDS());
    watch(n);
    list(n, &n->nvml, "ab");
    list(n, &n->dcgm, "ab");
    refresh(n, true);
    struct source_plan a, b;
    make(n, NULL, &a);
    make(n, NULL, &b);
    assert_true(source_plan_equals(&a, &b));
    source_plan_deinit(&b);
    all_prof(n, FRAME_NEEDS_GPM, FRAME_OK);
    make(n, NULL, &b);
    assert_false(source_plan_equals(&a, &b));
    source_plan_deinit(&a);
    make(n, NULL, &a);
    assert_true(source_plan_equals(&a, &b));
    all_prof(n, FRAME_NEEDS_GPM, FRAME_NEEDS_GPM);
    source_plan_deinit(&a);
    make(n, NULL, &a); // another mask
    assert_false(source_plan_equals(&a, &b));
    source_plan_deinit(&a);
    source_plan_deinit(&b);
}

static struct node *swept;

static void plan_once(void)
{
    struct source_plan p;
    int r = source_plan_make(&swept->config, &swept->view, NULL, &p);
    assert_true(r == (allocation_failed ? -ENOMEM : 0));
    if (r == 0)
        source_plan_deinit(&p);
}

static void out_of_memory_leaves_no_plan(void **state_)
{
    (void)state_;
    cleanup(node_freep) struct node *n = node_new(STOCK, WORDS());
    watch(n);
    list(n, &n->nvml, "ab");
    all_prof(n, FRAME_NEEDS_GPM, FRAME_NEEDS_GPM);
    refresh(n, false);
    swept = n;
    assert_true(allocation_sweep(plan_once) >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_nvml_has_sampled_dcgm_is_not_wanted),
        cmocka_unit_test(podgpus_own_families_bring_their_fields_once),
        cmocka_unit_test(instances_without_gpm_bring_dcgms_activity_for_the_ledger),
        cmocka_unit_test(a_node_with_gpm_needs_no_dcgm),
        cmocka_unit_test(gpus_before_hopper_get_the_profiling_fields_of_dcgm),
        cmocka_unit_test(only_the_gpus_that_need_it_are_in_the_mask),
        cmocka_unit_test(gpus_that_are_not_selected_need_nothing),
        cmocka_unit_test(what_is_beside_gpus_needs_dcgm_at_once_and_no_gpu),
        cmocka_unit_test(fields_of_each_level_beside_gpus_are_asked_of_dcgm),
        cmocka_unit_test(windowed_counters_bring_their_field_once),
        cmocka_unit_test(one_source_alone_is_asked_for_everything),
        cmocka_unit_test(a_given_engine_is_the_only_one_and_none_is_embedded),
        cmocka_unit_test(without_nvml_a_given_engine_is_asked_for_everything),
        cmocka_unit_test(what_dcgm_was_asked_for_stays_until_nvml_says_otherwise),
        cmocka_unit_test(plans_are_equal_when_nothing_in_them_differs),
        cmocka_unit_test(out_of_memory_leaves_no_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
