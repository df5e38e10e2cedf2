// SPDX-License-Identifier: Apache-2.0
// DCGM_EXP_*, dcgm-exporter's own counters. The cases are those that its tests assert: there an
// error or a collector that cannot be made ends the process or the scrape; here the family is away
// and podgpu_exporter_field_unavailable_info says why.
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gpu/health.h"
#include "render_fixture.h"

#define DRIVER 1
#define NVML_VERSION 2
#define CLOCKS 112
#define XID 230
#define CSV                                                                                        \
    "DCGM_EXP_XID_ERRORS_COUNT, gauge, x\nDCGM_EXP_CLOCK_EVENTS_COUNT, gauge, c\n"                 \
    "DCGM_EXP_GPU_HEALTH_STATUS, gauge, h\nDCGM_EXP_P2P_STATUS, gauge, p\n"                        \
    "DCGM_EXP_XID_ERRORS_TOTAL, counter, X\nDCGM_EXP_CLOCK_EVENTS_TOTAL, counter, C\n"             \
    "DCGM_FI_DRIVER_VERSION, label, d\nDCGM_FI_NVML_VERSION, label, n\n"
#define U(n) "GPU-00000000-0000-0000-0000-00000000000" n
#define BUILT_IN(n, bus)                                                                           \
    "{gpu=\"" n "\",UUID=\"" U(n) "\",pci_bus_id=\"00000000:" bus ":00.0\",device=\"nvidia" n      \
                                  "\",modelName=\"H100\""
#define REST ",hostname=\"testhost\",DCGM_FI_DRIVER_VERSION=\"this is mock label\""
#define G0 BUILT_IN("0", "1B") REST
#define G1 BUILT_IN("1", "1C") REST
#define G2 BUILT_IN("2", "1D") REST
#define I3 BUILT_IN("3", "1E") ",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"3\"" REST
#define X "DCGM_EXP_XID_ERRORS_COUNT"
#define C "DCGM_EXP_CLOCK_EVENTS_COUNT"
#define H "DCGM_EXP_GPU_HEALTH_STATUS"
#define P "DCGM_EXP_P2P_STATUS"
#define XT "DCGM_EXP_XID_ERRORS_TOTAL"
#define CT "DCGM_EXP_CLOCK_EVENTS_TOTAL"
#define HEAD(name, help, type) "# HELP " name " " help "\n# TYPE " name " " type "\n"
#define X_HEAD HEAD(X, "x", "gauge")
#define C_HEAD HEAD(C, "c", "gauge")
#define H_HEAD HEAD(H, "h", "gauge")
#define P_HEAD HEAD(P, "p", "gauge")
#define WINDOW ",window_size_in_ms=\"300000\""
#define X_ROW(labels, xid, n) X labels WINDOW ",xid=\"" xid "\"} " n "\n"
#define X_ZERO(labels) X labels WINDOW "} 0\n"
#define C_ROW(labels, event, n) C labels ",clock_event=\"" event "\"" WINDOW "} " n "\n"
#define C_ZERO(labels) C labels WINDOW "} 0\n"
#define H_ROW(labels, code, system, n)                                                             \
    H labels ",health_error_code=\"DCGM_FR_" code "\",health_watch=\"" system "\"} " n "\n"
#define P_ROW(labels, status, peer, n)                                                             \
    P labels ",link_status=\"" status "\",peer_gpu=\"" peer "\"} " n "\n"
#define MISSING(field, reason, gpu)                                                                \
    "podgpu_exporter_field_unavailable_info{field=\"" field "\",reason=\"" reason "\",gpu=\"" gpu  \
    "\",UUID=\"" U(gpu) "\"} 1"

struct node {
    struct fixture *f;
    struct exp_counts *exp;
    struct inventory dcgm;
    bool with_dcgm;
    struct device_view view;
};

static void start(struct node *n, const char *devices, unsigned gpus)
{
    static const uint16_t fields[] = {DRIVER, NVML_VERSION, CLOCKS, XID};
    *n = (struct node){.f = fixture_new(CSV, devices)};
    inventory_init(&n->dcgm);
    device_view_init(&n->view);
    assert_int_equal(exp_counts_new(&n->exp), 0);
    exp_counts_set_windows(n->exp, 300 * NS_PER_S, 300 * NS_PER_S);
    n->f->options.flags.xid_window_ms = n->f->options.flags.clock_window_ms = 300000;
    assert_int_equal(inventory_set_fields(&n->f->inventory, fields, ARRAY_SIZE(fields), 1), 0);
    inventory_set_labels(&n->f->inventory, fields, 2);
    for (unsigned i = 0; i < gpus; i++)
        fixture_add_gpu(n->f, "H100");
}

static void begin(struct node *n)
{
    fixture_ready(n->f, true);
    fixture_list(n->f);
    for (uint32_t i = 0; i < n->f->entity_count; i++) {
        if (n->f->entities[i].kind != FRAME_ENTITY_GPU)
            continue;
        fixture_string(n->f, i, DRIVER, "this is mock label");
        fixture_string(n->f, i, NVML_VERSION, "<<<NOT_FOUND>>>");
    }
}

static void open_node(struct node *n, const char *devices, unsigned gpus)
{
    start(n, devices, gpus);
    begin(n);
}

static void close_node(struct node *n)
{
    device_view_deinit(&n->view);
    inventory_deinit(&n->dcgm);
    exp_counts_free(n->exp);
    fixture_free(n->f);
}

static void xid_at(struct node *n, uint32_t entity, uint32_t gi, uint32_t code)
{
    const struct frame_event event = {.entity = entity,
                                      .origin = FRAME_EVENT_NVML,
                                      .xid = code,
                                      .gpu_instance_id = gi,
                                      .taken_ns = n->f->now_ns,
                                      .wall_ns = FIXTURE_WALL_NS};
    const struct frame_events head = {n->f->inventory.generation, 1};
    const struct frame frame = {.type = FRAME_EVENTS, .as.events = {&head, &event}};
    assert_int_equal(inventory_apply(&n->f->inventory, &frame), 0);
    assert_int_equal(exp_counts_take(n->exp, &n->f->inventory, &frame), 0);
}

static void xid(struct node *n, uint32_t entity, uint32_t code)
{
    xid_at(n, entity, UINT32_MAX, code);
}

static void clocks(struct node *n, uint32_t entity, int64_t mask)
{
    const struct frame sample = {.type = FRAME_SAMPLE};
    fixture_i64(n->f, entity, CLOCKS, mask);
    assert_int_equal(exp_counts_take(n->exp, &n->f->inventory, &sample), 0);
}

// --- DCGM's side: the same GPUs, listed the other way round ---

static void apply(struct node *n, const struct frame *frame)
{
    assert_int_equal(inventory_apply(&n->dcgm, frame), 0);
}

static void dcgm_state(struct node *n, enum frame_state_code code)
{
    struct frame_state state = {.code = code};
    sv_copy(state.engine, sizeof(state.engine), SV("localhost:5555"));
    n->with_dcgm = true;
    apply(n, &(struct frame){.type = FRAME_STATE, .as.state = &state});
}

static void dcgm_list(struct node *n)
{
    struct frame_entity list[FIXTURE_ENTITIES_MAX];
    uint32_t count = 0;
    for (uint32_t i = n->f->entity_count; i-- > 0;) {
        if (n->f->entities[i].kind != FRAME_ENTITY_GPU)
            continue;
        list[count] = n->f->entities[i];
        list[count].index += 10;
        list[count].parent = count;
        count++;
    }
    const struct frame_entities head = {1, count};
    dcgm_state(n, FRAME_STATE_READY);
    apply(n, &(struct frame){.type = FRAME_ENTITIES, .as.entities = {&head, list}});
}

static void health(struct node *n, const struct frame_verdict *verdicts, uint32_t count)
{
    const struct frame_health head = {1, count, n->f->now_ns};
    apply(n, &(struct frame){.type = FRAME_HEALTH, .as.health = {&head, verdicts}});
}

static void peers_of(struct inventory *inv, uint64_t taken_ns, const struct frame_peer *peers,
                     uint32_t count)
{
    const struct frame_peers head = {inv->generation, count, taken_ns};
    const struct frame frame = {.type = FRAME_PEERS, .as.peers = {&head, peers}};
    assert_int_equal(inventory_apply(inv, &frame), 0);
}

// --- Pages ---

static void page_in(struct node *n, enum text_format format)
{
    struct render_input in = fixture_input(n->f);
    assert_int_equal(
        device_view_refresh(&n->view, &n->f->inventory, n->with_dcgm ? &n->dcgm : NULL), 0);
    in.view = &n->view;
    in.exp = n->exp;
    buf_reset(&n->f->page);
    assert_int_equal(render_page(n->f->render, &in, format, &n->f->page), 0);
    (void)buf_cstr(&n->f->page);
}

static void expect(struct node *n, const char *family, const char *text)
{
    page_in(n, TEXT_FORMAT_PROMETHEUS);
    assert_string_equal(fixture_family(n->f, family), text);
}

static void expect_missing(struct node *n, const char *line, bool missing)
{
    page_in(n, TEXT_FORMAT_PROMETHEUS);
    assert_int_equal(fixture_has_line(n->f, line), missing);
}

// --- XIDs ---

static void one_xid_of_each_gpu(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    xid(n, 0, 42);
    xid(n, 1, 46);
    expect(n, X, X_HEAD X_ROW(G0, "42", "1") X_ROW(G1, "46", "1"));
    expect(n, XT, HEAD(XT, "X", "counter") XT G0 ",xid=\"42\"} 1\n" XT G1 ",xid=\"46\"} 1\n");
}

static void several_xids_of_each_gpu(void **state)
{
    struct node *n = *state;
    static const uint32_t codes[2][4] = {{42, 42, 46}, {42, 46, 46, 46}};
    open_node(n, "f", 2);
    for (uint32_t g = 0; g < 2; g++)
        for (unsigned i = 0; i < 4 && codes[g][i]; i++)
            xid(n, g, codes[g][i]);
    expect(n, X,
           X_HEAD X_ROW(G0, "42", "2") X_ROW(G0, "46", "1") X_ROW(G1, "42", "1")
               X_ROW(G1, "46", "3"));
}

static void three_gpus_with_two_xids_and_one_with_a_third(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 3);
    for (uint32_t g = 0; g < 3; g++) {
        xid(n, g, 42);
        xid(n, g, 46);
    }
#define SIX                                                                                        \
    X_ROW(G0, "42", "1")                                                                           \
    X_ROW(G0, "46", "1")                                                                           \
    X_ROW(G1, "42", "1") X_ROW(G1, "46", "1") X_ROW(G2, "42", "1") X_ROW(G2, "46", "1")
    expect(n, X, X_HEAD SIX);
    xid(n, 0, 19);
    expect(n, X, X_HEAD X_ROW(G0, "19", "1") SIX);
}

static void a_gpu_without_xids_has_a_row_of_0_while_somebody_listens(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    xid(n, 1, 79);
    expect(n, X, X_HEAD X_ZERO(G0) X_ROW(G1, "79", "1"));
    fixture_ready(n->f, false);
    expect(n, X, X_HEAD X_ROW(G1, "79", "1")); // evidence
    expect_missing(n, MISSING(X, "no_data", "0"), true);
    expect_missing(n, MISSING(X, "no_data", "1"), false);
    fixture_ready(n->f, true);
    expect_missing(n, MISSING(X, "no_data", "0"), false);
    expect(n, XT, HEAD(XT, "X", "counter") XT G1 ",xid=\"79\"} 1\n");
}

static void an_xid_leaves_with_its_window_and_stays_in_the_total(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    xid(n, 0, 48);
    n->f->now_ns += 300 * NS_PER_S;
    expect(n, X, X_HEAD X_ROW(G0, "48", "1"));
    n->f->now_ns++;
    expect(n, X, X_HEAD X_ZERO(G0));
    expect(n, XT, HEAD(XT, "X", "counter") XT G0 ",xid=\"48\"} 1\n");
}

static void a_lost_gpu_keeps_its_xids(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    clocks(n, 0, 0x4);
    clocks(n, 1, 0x4);
    xid(n, 0, 79);
    n->f->entities[0].state = FRAME_ENTITY_LOST;
    fixture_list(n->f);
    expect(n, X, X_HEAD X_ROW(G0, "79", "1") X_ZERO(G1));
    expect(n, C, C_HEAD C_ROW(G1, "power_cap", "1"));
    expect_missing(n, MISSING(C, "lost", "0"), true);
}

static void an_instance_has_its_own_xids_and_the_boards_clocks(void **state)
{
    struct node *n = *state;
    start(n, "g+i", 1);
    fixture_add_instance(n->f, 0, 11, "1g.10gb");
    fixture_add_instance(n->f, 0, 13, "1g.10gb");
    begin(n);
    xid_at(n, 0, 11, 43);
    xid_at(n, 0, 13, 31);
    clocks(n, 0, 0x1);
#define I(gi) BUILT_IN("0", "1B") ",GPU_I_PROFILE=\"1g.10gb\",GPU_I_ID=\"" gi "\"" REST
    expect(n, X,
           X_HEAD X_ROW(G0, "31", "1") X_ROW(G0, "43", "1") X_ROW(I("11"), "43", "1")
               X_ROW(I("13"), "31", "1"));
    expect(n, C,
           C_HEAD C_ROW(G0, "gpu_idle", "1") C_ROW(I("11"), "gpu_idle", "1")
               C_ROW(I("13"), "gpu_idle", "1"));
}

// --- Clock events ---

static void two_clock_events_of_each_gpu_under_the_old_names(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    n->f->options.flags.use_old_namespace = true;
    clocks(n, 0, 0x24);
    clocks(n, 1, 0xc0);
    page_in(n, TEXT_FORMAT_PROMETHEUS);
    expect(
        n, C,
        C_HEAD C "{gpu=\"0\",uuid=\"" U(
            "0") "\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\","
                 "modelName=\"H100\"" REST ",clock_event=\"power_cap\"" WINDOW "} 1\n" C
                 "{gpu=\"0\",uuid=\"" U(
                     "0") "\",pci_bus_id=\"00000000:1B:00.0\",device=\"nvidia0\","
                          "modelName=\"H100\"" REST ",clock_event=\"sw_thermal\"" WINDOW "} 1\n" C
                          "{gpu=\"1\",uuid=\"" U(
                              "1") "\",pci_bus_id=\"00000000:1C:00.0\",device=\"nvidia1\","
                                   "modelName=\"H100\"" REST ",clock_event=\"hw_thermal\"" WINDOW
                                   "} 1\n" C "{gpu=\"1\",uuid=\"" U(
                                       "1") "\",pci_bus_id=\"00000000:1C:00.0\",device=\"nvidia1\","
                                            "modelName=\"H100\"" REST
                                            ",clock_event=\"hw_power_brake\"" WINDOW "} 1\n");
}

#define FOUR(a, b)                                                                                 \
    C_ROW(G0, "power_cap", a)                                                                      \
    C_ROW(G0, "sw_thermal", a) C_ROW(G1, "hw_thermal", b) C_ROW(G1, "hw_power_brake", b)

static void samples_of_a_gpu_that_is_not_chosen_are_not_shown(void **state)
{
    struct node *n = *state;
    open_node(n, "g:0-1", 3);
    clocks(n, 0, 0x24);
    clocks(n, 1, 0xc0);
    clocks(n, 2, 0xc0);
    expect(n, C, C_HEAD FOUR("1", "1"));
}

static void devices_without_samples_have_a_row_of_0_without_an_event(void **state)
{
    struct node *n = *state;
    start(n, "f", 4);
    fixture_add_instance(n->f, 3, 3, "1g.10gb");
    begin(n);
    clocks(n, 0, 0x24);
    clocks(n, 1, 0xc0);
    expect(n, C, C_HEAD FOUR("1", "1") C_ZERO(G2) C_ZERO(I3));
}

static void clock_events_of_several_samples_add_up(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    for (unsigned i = 0; i < 3; i++) {
        n->f->now_ns += NS_PER_S;
        clocks(n, 0, 0x24);
        if (i < 2)
            clocks(n, 1, 0xc0);
    }
    expect(n, C, C_HEAD FOUR("3", "2"));
}

static void three_gpus_with_three_samples_have_nine_rows(void **state)
{
    struct node *n = *state;
    static const int64_t masks[] = {0x60, 0x60, 0x1};
    open_node(n, "f", 3);
    for (unsigned i = 0; i < 3; i++) {
        n->f->now_ns += NS_PER_S;
        for (uint32_t g = 0; g < 3; g++)
            clocks(n, g, masks[i]);
    }
#define THREE(g) C_ROW(g, "gpu_idle", "1") C_ROW(g, "sw_thermal", "2") C_ROW(g, "hw_thermal", "2")
    expect(n, C, C_HEAD THREE(G0) THREE(G1) THREE(G2));
    // Those of the first sample were there before anybody looked.
    expect(n, CT,
           HEAD(CT, "C", "counter") CT G0 ",clock_event=\"gpu_idle\"} 1\n" CT G1
                                          ",clock_event=\"gpu_idle\"} 1\n" CT G2
                                          ",clock_event=\"gpu_idle\"} 1\n");
}

static void samples_of_zeros_have_no_row(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    clocks(n, 0, 0);
    clocks(n, 1, 0x100);
    expect(n, C, C_HEAD C_ROW(G1, "display_clocks", "1"));
    expect_missing(n, MISSING(C, "no_data", "0"), false);
}

static void windows_are_told_as_they_are_set(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    exp_counts_set_windows(n->exp, 0, 60 * NS_PER_S);
    n->f->options.flags.xid_window_ms = 0;
    n->f->options.flags.clock_window_ms = 60000;
    xid(n, 0, 13);
    clocks(n, 0, 0x8);
    n->f->now_ns += 1;
    expect(n, X, X_HEAD X G0 ",window_size_in_ms=\"0\"} 0\n");
    expect(n, C, C_HEAD C G0 ",clock_event=\"hw_slowdown\",window_size_in_ms=\"60000\"} 1\n");
}

// --- Labels ---

// gpu, UUID, pci_bus_id, device, modelName, hostname, window_size_in_ms, xid.
static void without_configured_labels_a_row_has_eight_and_a_zero_row_seven(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    const uint16_t fields[] = {CLOCKS, XID};
    assert_int_equal(inventory_set_fields(&n->f->inventory, fields, 2, 1), 0);
    xid(n, 0, 42);
    expect(n, X,
           X_HEAD X BUILT_IN("0", "1B") ",hostname=\"testhost\"" WINDOW
                                        ",xid=\"42\"} 1\n" X BUILT_IN(
                                            "1", "1C") ",hostname=\"testhost\"" WINDOW "} 0\n");
}

static void pod_labels_stand_among_the_rows_own_and_owners_after_them(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    fixture_hold(n->f, 0, "ns", "p", "c", NULL);
    fixture_label(
        n->f, "ns/p", "u1",
        "\"app\":\"a\",\"clock_event\":\"mine\",\"tier\":\"t\",\"xid\":\"mine\",\"z\":\"9\"");
    xid(n, 0, 42);
    clocks(n, 0, 0x4);
#define OWNER ",container=\"c\",namespace=\"ns\",pod=\"p\",pod_uid=\"u1\"} 1\n"
    expect(n, X,
           X_HEAD X G0 ",app=\"a\",clock_event=\"mine\",tier=\"t\"" WINDOW
                       ",xid=\"42\",z=\"9\"" OWNER);
    expect(n, C,
           C_HEAD C G0 ",app=\"a\",clock_event=\"power_cap\",tier=\"t\"" WINDOW
                       ",xid=\"mine\",z=\"9\"" OWNER);
}

static void each_holder_of_a_shared_gpu_has_its_rows(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    n->f->options.flags.virtual_gpus = true;
    fixture_hold(n->f, 0, "ns", "p", "c", "0");
    fixture_hold(n->f, 0, "ns", "q", "c", "1");
    xid(n, 0, 42);
    expect(n, X,
           X_HEAD X G0 WINDOW
           ",xid=\"42\",container=\"c\",namespace=\"ns\",pod=\"p\",vgpu=\"0\"} 1\n" X G0 WINDOW
           ",xid=\"42\",container=\"c\",namespace=\"ns\",pod=\"q\",vgpu=\"1\"} 1\n");
}

static void openmetrics_has_the_same_rows(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    xid(n, 0, 42);
    page_in(n, TEXT_FORMAT_OPENMETRICS);
    assert_true(
        fixture_has_line(n->f, "# TYPE " XT " unknown")); // its name does not end as counters must
    assert_true(fixture_has_line(n->f, XT G0 ",xid=\"42\"} 1"));
    assert_true(fixture_has_line(n->f, X G0 WINDOW ",xid=\"42\"} 1"));
}

// --- Health ---

#define H_OK(labels, system) H_ROW(labels, "OK", system, "0")
#define H_SEVEN(labels)                                                                            \
    H_OK(labels, "PCIE")                                                                           \
    H_OK(labels, "NVLINK")                                                                         \
    H_OK(labels, "PMU")                                                                            \
    H_OK(labels, "MCU") H_OK(labels, "MEM") H_OK(labels, "SM") H_OK(labels, "INFOROM")
#define H_TEN(labels)                                                                              \
    H_SEVEN(labels)                                                                                \
    H_OK(labels, "THERMAL") H_OK(labels, "POWER") H_OK(labels, "DRIVER")

static void health_of_a_gpu_is_eleven_rows(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    dcgm_list(n);
    health(n, (const struct frame_verdict[]){{0, 128, 20, 40}}, 1);
    expect(n, H,
           H_HEAD H_SEVEN(G0) H_ROW(G0, "THERMAL_VIOLATIONS", "THERMAL", "20") H_OK(G0, "POWER")
               H_OK(G0, "DRIVER") H_OK(G0, "ALL"));
}

static void a_verdict_on_the_whole_gpu_is_the_row_all(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    dcgm_list(n);
    health(n, (const struct frame_verdict[]){{0, UINT32_MAX, 20, 120}}, 1);
    expect(n, H, H_HEAD H_TEN(G0) H_ROW(G0, "FALLEN_OFF_BUS", "ALL", "20"));
    health(n, (const struct frame_verdict[]){{0, 1, 10, 3}, {0, UINT32_MAX, 20, 120}}, 2);
    page_in(n, TEXT_FORMAT_PROMETHEUS);
    assert_non_null(strstr(fixture_family(n->f, H), H_ROW(G0, "PCI_REPLAY_RATE", "PCIE", "10")));
    assert_non_null(strstr(fixture_family(n->f, H), H_ROW(G0, "FALLEN_OFF_BUS", "ALL", "20")));
}

static void of_several_verdicts_the_last_is_shown_and_unknown_systems_are_not(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    dcgm_list(n);
    health(n,
           (const struct frame_verdict[]){
               {0, 16, 10, 5}, {0, 4096, 20, 40}, {0, 16, 20, 424242}, {0, 1u << 30, 20, 40}},
           4);
    expect(n, H,
           H_HEAD H_OK(G0, "PCIE") H_OK(G0, "NVLINK") H_OK(G0, "PMU") H_OK(G0, "MCU")
               H_ROW(G0, "UNKNOWN(424242)", "MEM", "20") H_OK(G0, "SM") H_OK(G0, "INFOROM")
                   H_OK(G0, "THERMAL") H_OK(G0, "POWER") H_OK(G0, "DRIVER") H_OK(G0, "ALL"));
}

static void verdicts_go_to_the_gpu_of_their_uuid_and_only_chosen_ones_are_shown(void **state)
{
    struct node *n = *state;
    open_node(n, "g:0", 3);
    dcgm_list(n); // GPU 2 first
    health(n, (const struct frame_verdict[]){{0, 256, 20, 12}, {2, 512, 10, 125}}, 2);
    expect(n, H,
           H_HEAD H_SEVEN(G0) H_OK(G0, "THERMAL") H_OK(G0, "POWER")
               H_ROW(G0, "GPU_RECOVERY_RESET", "DRIVER", "10") H_OK(G0, "ALL"));
}

static void without_verdicts_the_reason_is_told(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    expect(n, H, "");
    expect_missing(n, MISSING(H, "needs_dcgm", "0"), true);
    dcgm_state(n, FRAME_STATE_NO_LIBRARY);
    expect_missing(n, MISSING(H, "needs_dcgm", "0"), true);
    dcgm_state(n, FRAME_STATE_FAILED);
    expect_missing(n, MISSING(H, "not_connected", "0"), true);
    dcgm_list(n);
    expect_missing(n, MISSING(H, "no_data", "0"), true);
    health(n, NULL, 0);
    expect(n, H, H_HEAD H_TEN(G0) H_OK(G0, "ALL"));
    expect_missing(n, MISSING(H, "no_data", "0"), false);
    n->f->now_ns += 31 * NS_PER_S;
    expect(n, H, "");
    expect_missing(n, MISSING(H, "stale", "0"), true);
}

static void health_has_dcgms_names(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        const char *name;
    } cases[] = {
        {0, "DCGM_FR_OK"},
        {40, "DCGM_FR_THERMAL_VIOLATIONS"},
        {110, "DCGM_FR_GFLOPS_THRESHOLD_VIOLATION"},
        {116, "DCGM_FR_BROKEN_P2P_NVLINK_WRITER_DEVICE"},
        {120, "DCGM_FR_FALLEN_OFF_BUS"},
        {130, "DCGM_FR_RETEST_REQUESTED"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(health_error_name(cases[i].code), cases[i].name);
    assert_null(health_error_name((uint32_t)health_error_name_count));
    assert_null(health_error_name(424242));
    static const char *const systems[HEALTH_SYSTEMS] = {
        "PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER", "ALL",
    };
    for (unsigned i = 0; i < HEALTH_SYSTEMS; i++) {
        assert_string_equal(health_systems[i].name, systems[i]);
        assert_int_equal(health_systems[i].bit, i < 10 ? 1u << i : UINT32_MAX);
    }
}

// --- Peers ---

static void two_gpus_are_peers_of_each_other(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    peers_of(&n->f->inventory, n->f->now_ns,
             (const struct frame_peer[]){{0, 1, 1, 0}, {1, 0, 1, 0}}, 2);
    expect(n, P,
           P_HEAD P_ROW(G0, "ChipsetNotSupported", "1", "1")
               P_ROW(G1, "ChipsetNotSupported", "0", "1"));
}

static void each_state_has_its_text(void **state)
{
    struct node *n = *state;
    static const struct {
        uint32_t status;
        const char *text;
    } cases[] = {
        {0, P_HEAD P_ROW(G0, "OK", "1", "0")},
        {1, P_HEAD P_ROW(G0, "ChipsetNotSupported", "1", "1")},
        {2, P_HEAD P_ROW(G0, "GPUNotSupported", "1", "2")},
        {3, P_HEAD P_ROW(G0, "TopologyNotSupported", "1", "3")},
        {4, P_HEAD P_ROW(G0, "DisabledByRegKey", "1", "4")},
        {5, P_HEAD P_ROW(G0, "NotSupported", "1", "5")},
        {6, P_HEAD P_ROW(G0, "Unknown", "1", "6")},
        {99, P_HEAD P_ROW(G0, "Unknown", "1", "99")},
    };
    open_node(n, "f", 2);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct frame_peer pair = {0, 1, cases[i].status, 0};
        peers_of(&n->f->inventory, n->f->now_ns, &pair, 1);
        expect(n, P, cases[i].text);
    }
}

static void peers_that_dcgm_tells_are_named_as_nvml_numbers_them(void **state)
{
    struct node *n = *state;
    open_node(n, "g:1", 3);
    dcgm_list(n); // GPU 2 first
    peers_of(&n->dcgm, n->f->now_ns,
             (const struct frame_peer[]){{1, 0, 0, 0}, {1, 2, 5, 0}, {2, 1, 5, 0}}, 3);
    expect(n, P, P_HEAD P_ROW(G1, "OK", "2", "0") P_ROW(G1, "NotSupported", "0", "5"));
}

static void a_pair_that_stands_twice_is_one_row(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    peers_of(&n->f->inventory, n->f->now_ns,
             (const struct frame_peer[]){{0, 1, 0, 0}, {0, 1, 5, 0}, {0, 0, 0, 0}}, 3);
    expect(n, P, P_HEAD P_ROW(G0, "OK", "1", "0"));
}

static void a_single_gpu_has_the_family_and_no_row(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    peers_of(&n->f->inventory, n->f->now_ns, NULL, 0);
    expect(n, P, P_HEAD);
    expect_missing(n, MISSING(P, "no_data", "0"), false);
}

static void without_peers_the_reason_is_told(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 2);
    expect(n, P, "");
    expect_missing(n, MISSING(P, "no_data", "1"), true);
    const struct frame_peer pair = {0, 1, 0, 0};
    peers_of(&n->f->inventory, n->f->now_ns, &pair, 1);
    expect_missing(n, MISSING(P, "no_data", "1"), false);
    n->f->now_ns += 91 * NS_PER_S;
    expect(n, P, "");
}

static void board_fields_once_are_once(void **state)
{
    struct node *n = *state;
    start(n, "f", 2);
    fixture_add_instance(n->f, 1, 3, "1g.10gb");
    fixture_add_instance(n->f, 1, 4, "1g.10gb");
    n->f->options.mig_board_once = true;
    begin(n);
    peers_of(&n->f->inventory, n->f->now_ns,
             (const struct frame_peer[]){{0, 1, 0, 0}, {1, 0, 0, 0}}, 2);
    expect(n, P, P_HEAD P_ROW(G0, "OK", "1", "0") P_ROW(G1, "OK", "0", "0"));
    xid_at(n, 1, 3, 13);
    page_in(n, TEXT_FORMAT_PROMETHEUS);
    assert_non_null(strstr(fixture_family(n->f, X), "GPU_I_ID=\"3\"" REST WINDOW ",xid=\"13\"} 1"));
}

// --- Nothing to count with ---

static void without_counts_the_families_are_away(void **state)
{
    struct node *n = *state;
    open_node(n, "f", 1);
    exp_counts_free(n->exp);
    n->exp = NULL;
    expect(n, X, "");
    expect(n, C, "");
    expect_missing(n, MISSING(X, "no_data", "0"), true);
}

static int setup(void **state)
{
    static struct node n;
    *state = &n;
    return 0;
}

static int teardown(void **state)
{
    struct node *n = *state;
    if (n->f)
        close_node(n);
    n->f = NULL;
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_xid_of_each_gpu),
        TEST(several_xids_of_each_gpu),
        TEST(three_gpus_with_two_xids_and_one_with_a_third),
        TEST(a_gpu_without_xids_has_a_row_of_0_while_somebody_listens),
        TEST(an_xid_leaves_with_its_window_and_stays_in_the_total),
        TEST(a_lost_gpu_keeps_its_xids),
        TEST(an_instance_has_its_own_xids_and_the_boards_clocks),
        TEST(two_clock_events_of_each_gpu_under_the_old_names),
        TEST(samples_of_a_gpu_that_is_not_chosen_are_not_shown),
        TEST(devices_without_samples_have_a_row_of_0_without_an_event),
        TEST(clock_events_of_several_samples_add_up),
        TEST(three_gpus_with_three_samples_have_nine_rows),
        TEST(samples_of_zeros_have_no_row),
        TEST(windows_are_told_as_they_are_set),
        TEST(without_configured_labels_a_row_has_eight_and_a_zero_row_seven),
        TEST(pod_labels_stand_among_the_rows_own_and_owners_after_them),
        TEST(each_holder_of_a_shared_gpu_has_its_rows),
        TEST(openmetrics_has_the_same_rows),
        TEST(health_of_a_gpu_is_eleven_rows),
        TEST(a_verdict_on_the_whole_gpu_is_the_row_all),
        TEST(of_several_verdicts_the_last_is_shown_and_unknown_systems_are_not),
        TEST(verdicts_go_to_the_gpu_of_their_uuid_and_only_chosen_ones_are_shown),
        TEST(without_verdicts_the_reason_is_told),
        TEST(health_has_dcgms_names),
        TEST(two_gpus_are_peers_of_each_other),
        TEST(each_state_has_its_text),
        TEST(peers_that_dcgm_tells_are_named_as_nvml_numbers_them),
        TEST(a_pair_that_stands_twice_is_one_row),
        TEST(a_single_gpu_has_the_family_and_no_row),
        TEST(without_peers_the_reason_is_told),
        TEST(board_fields_once_are_once),
        TEST(without_counts_the_families_are_away),
    };
    return cmocka_run_group_tests_name("render_exp", tests, NULL, NULL);
}
