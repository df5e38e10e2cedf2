// SPDX-License-Identifier: Apache-2.0
#include "truth_run.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "exporter/attribute.h"

#define MONO_NS (5000 * NS_PER_S) // CLOCK_MONOTONIC when the node began
#define DRIFT 20000               // CLOCK_REALTIME is slewed by one part in so many
#define RUN_BEFORE_S 5
#define MOST_ENERGIES 4 // readings that wait for their interval

static struct sim_node *found_in; // of the run that goes
static uint64_t mono_ns;

static uint64_t read_mono(void)
{
    return mono_ns;
}

static uint64_t mono_of(int64_t t)
{
    return MONO_NS + (uint64_t)t + (uint64_t)t / DRIFT;
}

static void set_time(struct truth_run *r, int64_t t)
{
    atomic_store(&r->node->frozen_ns, t);
    mono_ns = r->now_ns = mono_of(t);
}

// Passes are late by some milliseconds, never by the same.
static int64_t time_of_pass(int64_t second)
{
    return (RUN_FROM_S + second) * INT64_C(1000000000) + (3 + (second + 40) * 37 % 40) * 1000000;
}

// --- What the exporter learns elsewhere ---

static bool find_process(void *user, uint32_t pid, struct process_identity *out)
{
    (void)user;
    const struct sim_node *n = found_in;
    *out = (struct process_identity){.kind = PROCESS_GONE};
    for (uint32_t i = 0; i < n->process_count; i++) {
        const struct sim_process *p = &n->processes[i];
        if (p->pid != pid)
            continue;
        out->kind = p->pod == SIM_NONE ? PROCESS_HOST : PROCESS_POD;
        out->start_ticks = i + 1;
        sv_copy(out->name, sizeof(out->name), sv_from(sim_string(n, p->name)));
        if (p->pod != SIM_NONE)
            sv_copy(out->pod_uid, POD_UID_BYTES, sv_from(sim_string(n, n->pods[p->pod].uid)));
        if (p->container != SIM_NONE)
            sv_copy(out->container_id, CONTAINER_ID_BYTES,
                    sv_from(sim_string(n, n->containers[p->container].id)));
    }
    return true;
}

static void tell_metadata(struct truth_run *r)
{
    const struct sim_node *n = r->node;
    for (uint32_t i = 0; i < n->pod_count; i++) {
        const struct sim_pod *pod = &n->pods[i];
        struct pod_record_container containers[8] = {0};
        assert_true(pod->containers <= ARRAY_SIZE(containers));
        for (uint32_t c = 0; c < pod->containers; c++) {
            const struct sim_container *from = &n->containers[pod->first_container + c];
            containers[c].name = sv_from(sim_string(n, from->name));
            containers[c].id = sv_from(sim_string(n, from->id));
        }
        const struct pod_record record = {.namespace_name =
                                              sv_from(sim_string(n, pod->namespace_name)),
                                          .name = sv_from(sim_string(n, pod->name)),
                                          .uid = sv_from(sim_string(n, pod->uid)),
                                          .phase = SV("Running"),
                                          .created_s = 1,
                                          .containers = containers,
                                          .container_count = pod->containers};
        assert_int_equal(pod_metadata_put(r->metadata, POD_METADATA_KUBELET, &record), 0);
    }
}

static bool is_there(const struct sim_pod *pod, int64_t t)
{
    return pod->start_ns <= t && t < pod->end_ns;
}

static void add_rows(struct truth_run *r, const struct sim_pod *pod)
{
    const struct sim_node *n = r->node;
    for (uint32_t c = pod->first_container; c < pod->first_container + pod->containers; c++) {
        const struct sim_container *from = &n->containers[c];
        for (uint32_t d = from->first_device; d < from->first_device + from->devices; d++)
            r->rows[r->held.count++] = (struct pod_device){
                .namespace_name = sim_string(n, pod->namespace_name),
                .pod = sim_string(n, pod->name),
                .container = sim_string(n, from->name),
                .resource = sim_string(n, n->devices[d].resource),
                .device_id = sim_string(n, n->devices[d].id),
                .since = 1,
            };
    }
}

static void fill_device(const struct inventory *inv, size_t i, struct attribute_device *out)
{
    const struct frame_entity *e = &inv->entities[i].info;
    *out = (struct attribute_device){
        .is_instance = e->kind == FRAME_ENTITY_GPU_I,
        .index = e->index,
        .gpu_instance_id = e->gpu_instance_id,
        .uuid = sv_from(e->uuid),
        .legacy_uuid = sv_from(e->legacy_uuid),
        .profile_id = e->profile_id,
        .placement = e->placement,
    };
    if (out->is_instance)
        out->parent_uuid = sv_from(inv->entities[e->parent].info.uuid);
}

static void tell_owners(struct truth_run *r)
{
    const struct sv resources[] = {SV("nvidia.com/gpu.shared")};
    const struct attribute_options options = {.resource_names = resources,
                                              .resource_name_count = ARRAY_SIZE(resources)};
    const struct inventory *inv = &r->inventory;
    struct attribute_device devices[LIMIT_GPUS];
    uint32_t offered[LIMIT_GPUS];
    assert_true(inv->entity_count <= ARRAY_SIZE(devices));
    for (size_t i = 0; i < inv->entity_count; i++) {
        fill_device(inv, i, &devices[i]);
        offered[i] = sim_gpu_number(r->session, inv->entities[i].info.index, "replicas");
    }
    attribute_result_deinit(&r->holders);
    r->held.rows = r->rows;
    assert_int_equal(attribute(&options, devices, inv->entity_count, &r->held, &r->holders), 0);
    assert_int_equal(
        usage_set_owners(r->usage, &r->view, &r->held, &r->holders, offered, r->now_ns), 0);
}

static void follow_pods(struct truth_run *r, int64_t t)
{
    const struct sim_node *n = r->node;
    uint64_t seen = 1;
    for (uint32_t i = 0; i < n->pod_count; i++)
        seen = seen * 2 + is_there(&n->pods[i], t);
    if (seen == r->pods_seen)
        return;
    r->pods_seen = seen;
    r->held.count = 0;
    for (uint32_t i = 0; i < n->pod_count; i++)
        if (is_there(&n->pods[i], t))
            add_rows(r, &n->pods[i]);
    tell_owners(r);
}

// --- Frames ---

static void take_bytes(struct truth_run *r, struct frame *out)
{
    const char *what = "";
    for (size_t at = 0; at < r->wire.len;) {
        char *space;
        size_t room;
        assert_int_equal(frame_reader_space(&r->reader, &space, &room), 0);
        size_t n = r->wire.len - at < room ? r->wire.len - at : room;
        memcpy(space, r->wire.data + at, n);
        frame_reader_commit(&r->reader, n);
        at += n;
    }
    if (frame_reader_next(&r->reader, out, &what) != 1)
        fail_msg("%s", what);
}

static void list_devices(struct truth_run *r)
{
    const struct frame_state state = {.code = FRAME_STATE_READY};
    const struct frame ready = {.type = FRAME_STATE, .as.state = &state};
    bool changed;
    struct frame frame;
    assert_int_equal(nvml_devices_enumerate(&r->n, &r->devices, &changed), NVML_SUCCESS);
    r->devices.generation = 1;
    const struct frame_entities head = {1, r->devices.count};
    buf_reset(&r->wire);
    size_t start = frame_begin(&r->wire, FRAME_ENTITIES);
    buf_add(&r->wire, &head, sizeof(head));
    for (uint32_t i = 0; i < r->devices.count; i++)
        buf_add(&r->wire, &r->devices.list[i].record, sizeof(r->devices.list[i].record));
    frame_end(&r->wire, start);
    take_bytes(r, &frame);
    assert_int_equal(inventory_apply(&r->inventory, &ready), 0);
    assert_int_equal(inventory_apply(&r->inventory, &frame), 0);
    assert_int_equal(device_view_refresh(&r->view, &r->inventory, NULL), 0);
    assert_int_equal(usage_set_devices(r->usage, &r->view, r->now_ns), 0);
}

static void pass(struct truth_run *r, int64_t t)
{
    struct frame frame;
    set_time(r, t);
    follow_pods(r, t);
    const struct nvml_usage_clock clock = {.now_ns = r->now_ns,
                                           .wall_ns = (uint64_t)sim_wall_us(r->node, t) * 1000};
    assert_true(nvml_usage_read(&r->source, &r->n, &r->devices, clock, &r->wire));
    take_bytes(r, &frame);
    assert_int_equal(usage_take(r->usage, &r->view, DEVICE_SOURCE_NVML, &frame), 0);
    assert_int_equal(ledger_book(r->ledger, r->now_ns), 0);
}

// --- Start and end ---

static void make_node(struct truth_run *r, const char *scenario, const char *const *verbs)
{
    char from[512], path[128], answer[256];
    struct error err = ERROR_INIT;
    (void)snprintf(from, sizeof(from), "%s/%s.yaml", SCENARIOS, scenario);
    (void)snprintf(path, sizeof(path), "/tmp/podgpu-truth-%d", getpid());
    if (sim_session_create(from, path, 1.0, &err) < 0)
        fail_msg("%s", err.text);
    r->session = sim_session_open(path);
    r->node = sim_map(path);
    assert_int_equal(setenv("SIM_NODE", path, 1), 0);
    assert_non_null(r->session);
    assert_non_null(r->node);
    for (; verbs && *verbs; verbs++)
        if (sim_session_run(r->session, *verbs, 0, answer, sizeof(answer), NULL) < 0)
            fail_msg("%s: %s", *verbs, answer);
    found_in = r->node;
}

static void open_driver(struct truth_run *r)
{
    struct error err = ERROR_INIT;
    r->n.page = calloc(1, sizeof(*r->n.page));
    assert_non_null(r->n.page);
    if (nvml_open(&r->n, NVML_DOUBLE, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(nvml_init(&r->n), NVML_SUCCESS);
    nvml_usage_init(&r->source);
    r->source.mono_ns = read_mono;
    nvml_usage_watch(&r->source, NS_PER_S, r->now_ns);
}

void truth_run_start(struct truth_run *r, const char *scenario, const char *const *verbs)
{
    const struct ledger_options ledger = {.linger_ns = 3600 * NS_PER_S};
    *r = (struct truth_run){.wire = BUF_INIT(LIMIT_FRAME_BYTES + 64)};
    make_node(r, scenario, verbs);
    set_time(r, time_of_pass(-RUN_BEFORE_S - 1));
    frame_reader_init(&r->reader);
    inventory_init(&r->inventory);
    device_view_init(&r->view);
    r->options = calloc(1, sizeof(*r->options));
    r->rows = calloc(SIM_MAX_DEVICES, sizeof(*r->rows));
    r->series = calloc(RUN_SERIES_MAX, sizeof(*r->series));
    assert_true(r->options && r->rows && r->series);
    assert_int_equal(pod_metadata_new(r->options, &r->metadata), 0);
    tell_metadata(r);
    assert_int_equal(ledger_new(&ledger, &r->ledger), 0);
    const struct usage_config usage = {.ledger = r->ledger,
                                       .metadata = r->metadata,
                                       .find = find_process,
                                       .own_namespace = "",
                                       .own_pod = ""};
    assert_int_equal(usage_new(&usage, &r->usage), 0);
    open_driver(r);
    list_devices(r);
}

void truth_run_end(struct truth_run *r)
{
    nvml_usage_deinit(&r->n, &r->source);
    nvml_devices_deinit(&r->n, &r->devices);
    nvml_close(&r->n);
    free(r->n.page);
    usage_free(r->usage);
    ledger_free(r->ledger);
    pod_metadata_free(r->metadata);
    attribute_result_deinit(&r->holders);
    device_view_deinit(&r->view);
    inventory_deinit(&r->inventory);
    frame_reader_deinit(&r->reader);
    buf_deinit(&r->wire);
    free(r->options);
    free(r->rows);
    free(r->series);
    sim_session_close(r->session);
    sim_unmap(r->node);
    (void)unlink(getenv("SIM_NODE"));
}

// --- Devices and accounts ---

void truth_run_place(const struct truth_run *r, size_t device, uint32_t *gpu, uint32_t *gi)
{
    const char *uuid = ledger_device_at(r->ledger, device)->uuid;
    for (uint32_t i = 0; i < r->devices.count; i++) {
        const struct frame_entity *e = &r->devices.list[i].record;
        if (strcmp(e->uuid, uuid) != 0)
            continue;
        *gpu = e->index;
        *gi = e->kind == FRAME_ENTITY_GPU ? SIM_NONE : e->gpu_instance_id;
        return;
    }
    fail_msg("no device %s", uuid);
}

static const struct sim_pod *pod_of(const struct sim_node *n, uint32_t container)
{
    for (uint32_t i = 0; i < n->pod_count; i++)
        if (container - n->pods[i].first_container < n->pods[i].containers)
            return &n->pods[i];
    return NULL;
}

static bool is_named(const struct truth_run *r, const struct ledger_container *c,
                     uint32_t container)
{
    const struct sim_node *n = r->node;
    const struct sim_pod *pod = pod_of(n, container);
    return pod && strcmp(c->pod, sim_string(n, pod->name)) == 0 &&
           strcmp(c->namespace_name, sim_string(n, pod->namespace_name)) == 0 &&
           strcmp(c->container, sim_string(n, n->containers[container].name)) == 0;
}

const struct ledger_account *truth_run_account(const struct truth_run *r, size_t device,
                                               uint32_t container)
{
    for (size_t i = 0; i < ledger_account_count(r->ledger); i++) {
        const struct ledger_account *a = ledger_account_at(r->ledger, i);
        if (a->device == device &&
            is_named(r, ledger_container_at(r->ledger, a->container), container))
            return a;
    }
    return NULL;
}

// --- The truth ---

static bool runs_on(const struct sim_node *n, const struct sim_process *p, uint32_t gpu,
                    uint32_t gi)
{
    return p->gpu == gpu &&
           (gi == SIM_NONE || (p->instance != SIM_NONE && n->instances[p->instance].gi == gi));
}

// Of a container in [from, to): its processes' time, and where that of all of them is more than the
// device's, all are scaled to that.
static double true_of(const struct truth_run *r, const struct truth_series *s, int64_t from,
                      int64_t to)
{
    const struct sim_node *n = r->node;
    uint32_t gpu, gi;
    truth_run_place(r, s->device, &gpu, &gi);
    double busy = (double)sim_load_integral(n, gpu, gi, from, to), own = 0, all = 0;
    for (uint32_t i = 0; i < n->process_count; i++) {
        if (!runs_on(n, &n->processes[i], gpu, gi))
            continue;
        double load = (double)sim_process_load_integral(n, i, from, to);
        all += load;
        own += n->processes[i].container == s->container ? load : 0;
    }
    if (s->container == SIM_NONE)
        own = busy;
    else if (all > busy)
        own *= busy / all;
    return own / 1e9; // ppm * ns
}

static void add_series(struct truth_run *r, size_t device, uint32_t container)
{
    struct truth_series *s = &r->series[r->series_count++];
    uint32_t gpu, gi;
    assert_true(r->series_count <= RUN_SERIES_MAX);
    truth_run_place(r, device, &gpu, &gi);
    s->device = device;
    s->container = container;
    int at = snprintf(s->text, sizeof(s->text), gi == SIM_NONE ? "gpu%u" : "gpu%u/gi%u", gpu, gi);
    const struct sim_pod *pod = container == SIM_NONE ? NULL : pod_of(r->node, container);
    if (pod)
        (void)snprintf(s->text + at, sizeof(s->text) - (size_t)at, " %s",
                       sim_string(r->node, pod->name));
    s->what = s->text;
}

// Each device with busy time, and each container that has an account of some on it.
static void find_series(struct truth_run *r)
{
    for (size_t d = 0; d < ledger_device_count(r->ledger); d++) {
        if (!ledger_device_at(r->ledger, d)->has_busy)
            continue;
        add_series(r, d, SIM_NONE);
        for (uint32_t c = 0; c < r->node->container_count; c++) {
            const struct ledger_account *a = truth_run_account(r, d, c);
            if (a && a->has_busy)
                add_series(r, d, c);
        }
    }
}

static void scrape(struct truth_run *r, uint64_t second)
{
    for (size_t i = 0; i < r->series_count; i++) {
        struct truth_series *s = &r->series[i];
        const struct ledger_account *a =
            s->container == SIM_NONE ? NULL : truth_run_account(r, s->device, s->container);
        int64_t t = (int64_t)(RUN_FROM_S + second) * INT64_C(1000000000);
        s->due_us += second ? true_of(r, s, t - INT64_C(1000000000), t) : 0;
        s->true_us[second] = s->due_us;
        s->told_us[second] = a ? a->busy_us : ledger_device_at(r->ledger, s->device)->busy_us;
    }
}

// --- Energy, by hand ---

struct booked { // of all devices and accounts, before and after
    uint64_t busy_us[RUN_SERIES_MAX];
    uint64_t account_busy_us[64], account_energy_uj[64];
    uint64_t energy_uj[RUN_SERIES_MAX];
    size_t accounts;
};

static void note_booked(const struct truth_run *r, struct booked *b)
{
    assert_true(ledger_device_count(r->ledger) <= RUN_SERIES_MAX);
    b->accounts = ledger_account_count(r->ledger);
    assert_true(b->accounts <= ARRAY_SIZE(b->account_busy_us));
    for (size_t i = 0; i < ledger_device_count(r->ledger); i++) {
        b->busy_us[i] = ledger_device_at(r->ledger, i)->busy_us;
        b->energy_uj[i] = ledger_device_at(r->ledger, i)->energy_uj;
    }
    for (size_t i = 0; i < b->accounts; i++) {
        b->account_busy_us[i] = ledger_account_at(r->ledger, i)->busy_us;
        b->account_energy_uj[i] = ledger_account_at(r->ledger, i)->energy_uj;
    }
}

// The counter of a GPU at the pass of this second, as the driver reads it.
static uint64_t energy_uj(const struct truth_run *r, uint32_t gpu, int64_t t)
{
    int64_t mj;
    assert_int_equal(sim_truth(r->node, gpu, SIM_ENERGY, t, &mj), 0);
    return (uint64_t)mj * 1000;
}

// How many replicas a container has of a device, and how many it is offered in.
static void replicas_of(const struct truth_run *r, const struct ledger_account *a, uint64_t *held,
                        uint64_t *offered)
{
    const struct ledger_container *c = ledger_container_at(r->ledger, a->container);
    const char *uuid = ledger_device_at(r->ledger, a->device)->uuid;
    uint32_t gpu, gi;
    *held = 0;
    for (size_t i = 0; i < r->held.count; i++) {
        const struct pod_device *row = &r->rows[i];
        *held += strcmp(row->pod, c->pod) == 0 && strcmp(row->container, c->container) == 0 &&
                 strncmp(row->device_id, uuid, strlen(uuid)) == 0;
    }
    truth_run_place(r, a->device, &gpu, &gi);
    uint32_t replicas = sim_gpu_number(r->session, gpu, "replicas");
    *offered = replicas ? replicas : 1;
}

static uint64_t slices_of(const struct truth_run *r, size_t device, uint64_t *total)
{
    uint32_t gpu, gi;
    truth_run_place(r, device, &gpu, &gi);
    *total = 1;
    for (uint32_t i = 0; i < r->node->instance_count; i++) {
        const struct sim_instance *x = &r->node->instances[i];
        if (gi == SIM_NONE || x->gpu != gpu || x->gi != gi)
            continue;
        *total = r->node->gpus[gpu].total_slices;
        return x->gi_slices;
    }
    return 1;
}

// E*s*((T-B)*h + b)/T, cut to whole microjoules.
static void check_account(struct truth_run *r, const struct booked *before, size_t place,
                          uint64_t length_us, uint64_t energy)
{
    const struct ledger_account *a = ledger_account_at(r->ledger, place);
    uint64_t held, offered, total, slices = slices_of(r, a->device, &total);
    uint64_t busy = ledger_device_at(r->ledger, a->device)->busy_us - before->busy_us[a->device];
    uint64_t own = a->busy_us - before->account_busy_us[place];
    replicas_of(r, a, &held, &offered);
    unsigned __int128 time =
        (unsigned __int128)(length_us - busy) * held + (unsigned __int128)own * offered;
    uint64_t expected =
        (uint64_t)(time * energy * slices / ((unsigned __int128)length_us * offered * total));
    if (a->energy_uj - before->account_energy_uj[place] != expected)
        fail_msg("energy of %s: %" PRIu64 ", not %" PRIu64,
                 ledger_container_at(r->ledger, a->container)->pod,
                 a->energy_uj - before->account_energy_uj[place], expected);
    r->energies_checked++;
}

// Which interval of a board was booked is told by how much energy it has: that of one second. Where
// two were booked at once nothing can be said of each.
static void check_energy(struct truth_run *r, const struct booked *before, int64_t second)
{
    if (ledger_account_count(r->ledger) != before->accounts)
        return;
    for (size_t i = 0; i < before->accounts; i++) {
        size_t board = ledger_device_at(r->ledger, ledger_account_at(r->ledger, i)->device)->board;
        uint64_t energy = ledger_device_at(r->ledger, board)->energy_uj - before->energy_uj[board];
        uint32_t gpu, gi;
        bool found = false;
        truth_run_place(r, board, &gpu, &gi);
        for (int64_t k = second; k > 0 && k > second - MOST_ENERGIES && energy && !found; k--) {
            int64_t from = time_of_pass(k - 1), to = time_of_pass(k);
            uint64_t told = ledger_device_at(r->ledger, board)->energy_uj;
            if (told != energy_uj(r, gpu, to) - energy_uj(r, gpu, time_of_pass(-RUN_BEFORE_S)) ||
                energy != energy_uj(r, gpu, to) - energy_uj(r, gpu, from))
                continue;
            found = true;
            check_account(r, before, i, mono_of(to) / 1000 - mono_of(from) / 1000, energy);
        }
        r->energies_skipped += !found;
    }
}

// --- The run ---

void truth_run_go(struct truth_run *r)
{
    struct booked before;
    struct ledger_stats stats;
    for (int64_t second = -RUN_BEFORE_S; second < 0;
         second++) // until the first intervals are booked
        pass(r, time_of_pass(second));
    find_series(r);
    for (int64_t second = 0; second <= RUN_S; second++) {
        scrape(r, (uint64_t)second);
        note_booked(r, &before);
        pass(r, time_of_pass(second));
        if (second > 0)
            check_energy(r, &before, second);
        assert_true(ledger_adds_up(r->ledger));
    }
    ledger_get_stats(r->ledger, &stats);
    assert_int_equal(stats.refused, 0);
}
