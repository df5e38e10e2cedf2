// SPDX-License-Identifier: Apache-2.0
// What a sample costs the exporter, and whether its memory stays flat:
//   bench_soak SAMPLES GPUS INSTANCES FLAG-OF-THE-EXPORTER...
// One second of virtual time a sample. Frames go through the reader into the inventory, a page is
// published, every fifteenth is compressed as if it had been scraped. In each thousand samples the
// node lives through what nodes live through: pods come and go, a GPU is lost and returns, XIDs
// happen, the counters file changes. Prints the bytes of heap in use after each thousand, and at
// the end the median nanoseconds of each step.
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "codec/gzip.h"
#include "exporter/publish.h"

#define CYCLE 1000
#define GZIP_EVERY 15
#define KEPT 4096 // newest measurements of each step
#define ENTITIES_MAX 128
#define START_NS (1000 * NS_PER_S)

enum step { STEP_APPLY, STEP_PUBLISH, STEP_GZIP, STEP_COUNT };
static const char *const step_names[STEP_COUNT] = {"apply", "publish", "gzip"};

static struct {
    struct exporter_options options;
    struct exporter_config *config;
    struct inventory inventory;
    struct publisher *publisher;
    struct frame_reader reader;
    struct buf frame;
    struct frame_entity entities[ENTITIES_MAX];
    uint32_t entity_count;
    uint32_t generation, watch_id;
    uint16_t fields[LIMIT_COUNTERS];
    size_t field_count;
    uint64_t now_ns;
    uint64_t took_ns[STEP_COUNT][KEPT];
    size_t steps[STEP_COUNT];
    size_t page_bytes, gzip_bytes, records;
} node;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_soak: %s\n", what);
    exit(1);
}

static void measured(enum step step, uint64_t begun_ns)
{
    node.took_ns[step][node.steps[step]++ % KEPT] = clock_mono_ns() - begun_ns;
}

// --- From the helper's side ---

static size_t begin(enum frame_type type, const void *head, size_t bytes)
{
    buf_reset(&node.frame);
    size_t start = frame_begin(&node.frame, type);
    buf_add(&node.frame, head, bytes);
    return start;
}

static void deliver(size_t start)
{
    frame_end(&node.frame, start);
    must(node.frame.error == 0, "frame");
    const char *what = "";
    struct frame f;
    for (size_t sent = 0; sent < node.frame.len;) {
        char *space;
        size_t room;
        must(frame_reader_space(&node.reader, &space, &room) == 0, "memory");
        size_t n = node.frame.len - sent < room ? node.frame.len - sent : room;
        memcpy(space, node.frame.data + sent, n);
        frame_reader_commit(&node.reader, n);
        sent += n;
        int r;
        while ((r = frame_reader_next(&node.reader, &f, &what)) == 1)
            must(inventory_apply(&node.inventory, &f) == 0, "inventory");
        must(r == 0, what);
    }
}

static void send_state(void)
{
    struct frame_state state = {.code = FRAME_STATE_READY, .xid_events_armed = 1, .kmsg_armed = 1};
    sv_copy(state.driver_version, sizeof(state.driver_version), SV("570.124.06"));
    deliver(begin(FRAME_STATE, &state, sizeof(state)));
}

static void send_entities(void)
{
    const struct frame_entities head = {.generation = ++node.generation,
                                        .count = node.entity_count};
    size_t start = begin(FRAME_ENTITIES, &head, sizeof(head));
    buf_add(&node.frame, node.entities, node.entity_count * sizeof(node.entities[0]));
    deliver(start);
}

static void send_xid(uint32_t entity, uint32_t code)
{
    const struct frame_events head = {.generation = node.generation, .count = 1};
    const struct frame_event event = {
        .entity = entity,
        .origin = FRAME_EVENT_NVML,
        .xid = code,
        .gpu_instance_id = UINT32_MAX,
        .taken_ns = node.now_ns,
        .wall_ns = node.now_ns,
    };
    size_t start = begin(FRAME_EVENTS, &head, sizeof(head));
    buf_add(&node.frame, &event, sizeof(event));
    deliver(start);
}

static struct frame_record record_of(uint64_t round, uint32_t entity,
                                     const struct field_info *field)
{
    uint64_t mixed =
        (round * 2654435761u + entity * 40503u + field->id) * UINT64_C(0x9e3779b97f4a7c15) >>
        50; // five digits at most
    struct frame_record r = {.entity = entity,
                             .field = field->id,
                             .type = FRAME_VALUE_I64,
                             .taken_ns = node.now_ns,
                             .value.i64 = (int64_t)mixed};
    if (field->type == FIELD_DOUBLE) {
        r.type = FRAME_VALUE_DOUBLE;
        r.value.f64 = (double)mixed / 1000;
    } else if (field->type == FIELD_STRING) {
        r.type = FRAME_VALUE_STRING;
        r.value.i64 = 5; // at 0
    } else if (field->id == FIELD_XID_ERRORS) {
        r.value.i64 = 0;
    }
    return r;
}

static void send_sample(uint64_t round)
{
    static const uint64_t every[FIELD_CLASS_COUNT] = {1, 10, 30, 600};
    struct frame_sample head = {
        .generation = node.generation,
        .watch_id = node.watch_id,
        .string_bytes = 5,
        .started_ns = node.now_ns,
        .ended_ns = node.now_ns,
    };
    for (unsigned c = 0; c < FIELD_CLASS_COUNT; c++)
        head.classes |= round % every[c] == 0 ? 1u << c : 0;
    size_t start = begin(FRAME_SAMPLE, &head, sizeof(head));
    for (uint32_t e = 0; e < node.entity_count; e++) {
        for (size_t i = 0; i < node.field_count; i++) {
            const struct field_info *field = field_find(node.fields[i]);
            if (!(head.classes & 1u << field->cost) || node.entities[e].state != FRAME_ENTITY_UP)
                continue;
            const struct frame_record record = record_of(round, e, field);
            buf_add(&node.frame, &record, sizeof(record));
            head.count++;
        }
    }
    buf_add_sv(&node.frame, SV("1.2.3"));
    memcpy(node.frame.data + start + sizeof(struct frame_header), &head, sizeof(head));
    node.records = round == 0 ? head.count : node.records;
    uint64_t begun_ns = clock_mono_ns();
    deliver(start);
    measured(STEP_APPLY, begun_ns);
}

// --- From the kubelet's side ---

static void add_message(struct buf *b, unsigned field, struct sv bytes)
{
    buf_add_char(b, (char)(field << 3 | 2));
    if (bytes.len >= 128)
        buf_add_char(b, (char)(bytes.len | 128));
    buf_add_char(b, (char)(bytes.len >= 128 ? bytes.len >> 7 : bytes.len)); // under 16 KiB
    buf_add_sv(b, bytes);
}

// A pod that holds one device: ListPodResourcesResponse.pod_resources, as the kubelet writes it.
static void add_pod(struct buf *list, const char *name, const char *resource, const char *id)
{
    struct buf device = BUF_INIT(200), container = BUF_INIT(300), pod = BUF_INIT(400);
    add_message(&device, 1, sv_from(resource));
    add_message(&device, 2, sv_from(id));
    add_message(&container, 1, SV("main"));
    add_message(&container, 2, buf_sv(&device));
    add_message(&pod, 1, sv_from(name));
    add_message(&pod, 2, SV("research"));
    add_message(&pod, 3, buf_sv(&container));
    add_message(list, 1, buf_sv(&pod));
    buf_deinit(&device);
    buf_deinit(&container);
    buf_deinit(&pod);
}

// Every device is held by the pod with its number plus `shift`.
static void set_pods(unsigned shift)
{
    struct buf list = BUF_INIT(1u << 20);
    for (uint32_t i = 0; i < node.entity_count; i++) {
        char name[64];
        snprintf(name, sizeof(name), "a-training-job-of-some-days-%08u", i + shift);
        bool instance = node.entities[i].kind == FRAME_ENTITY_GPU_I;
        add_pod(&list, name, instance ? "nvidia.com/mig-1g.10gb" : "nvidia.com/gpu",
                node.entities[i].uuid);
    }
    struct pod_resources_decoder *decoder;
    struct pod_devices *rows;
    must(pod_resources_decoder_new(NULL, NULL, &decoder) == 0, "memory");
    must(pod_resources_decoder_feed(decoder, buf_sv(&list)) == 0, "list of pods");
    must(pod_resources_decoder_finish(decoder, &rows) == 0, "list of pods");
    must(rows->count == node.entity_count, "rows");
    pod_resources_decoder_free(decoder);
    publisher_set_pods(node.publisher, rows);
    pod_devices_unref(rows);
    buf_deinit(&list);
}

// --- The exporter ---

static int compare_ids(const void *a, const void *b)
{
    uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
    return (x > y) - (x < y);
}

// All counters of the configuration but the last `without`.
static void watch(size_t without)
{
    const struct counter_list *counters = &node.config->counters;
    uint16_t labels[LIMIT_COUNTERS];
    size_t label_count = 0;
    node.field_count = 0;
    for (size_t i = 0; i + without < counters->count; i++) {
        uint16_t id = counters->rows[i].field->id;
        if (id >= FIELD_EXP_FIRST)
            continue;
        node.fields[node.field_count++] = id;
        if (counters->rows[i].type == COUNTER_LABEL)
            labels[label_count++] = id;
    }
    qsort(node.fields, node.field_count, sizeof(node.fields[0]), compare_ids);
    must(inventory_set_fields(&node.inventory, node.fields, node.field_count, ++node.watch_id) == 0,
         "fields");
    inventory_set_labels(&node.inventory, labels, label_count);
}

static void publish(uint64_t round)
{
    struct render_self self = {
        .started_wall_ns = START_NS,
        .version = "1.2.3",
        .revision = "",
        .sources[DEVICE_SOURCE_NVML].sample_last_wall_ns = node.now_ns,
        .sources[DEVICE_SOURCE_NVML].running = true,
        .attribution_on = true,
        .attribution_up = true,
        .attribution_polls = round,
        .config_ok = true,
        .config_last_ok_wall_ns = START_NS,
        .http.requests = round,
    };
    uint64_t begun_ns = clock_mono_ns();
    inventory_expire(&node.inventory, node.config->period_ns, node.now_ns);
    const struct device_view view = {
        .primary = &node.inventory,
        .sources[DEVICE_SOURCE_NVML] = &node.inventory,
        .layout = node.inventory.layout,
    };
    must(publisher_publish(node.publisher, node.config, &view, &self, node.now_ns) == 0, "page");
    measured(STEP_PUBLISH, begun_ns);
    struct sv page = http_body_bytes(publisher_body(node.publisher, TEXT_FORMAT_PROMETHEUS));
    node.page_bytes = page.len;
    if (round % GZIP_EVERY != 0)
        return;
    char *zipped;
    begun_ns = clock_mono_ns();
    must(gzip_compress(page, &zipped, &node.gzip_bytes) == 0, "gzip");
    measured(STEP_GZIP, begun_ns);
    free(zipped);
}

// --- Life of the node ---

static void add_gpu(uint32_t index, uint32_t instances)
{
    uint32_t own = node.entity_count;
    struct frame_entity gpu = {
        .kind = FRAME_ENTITY_GPU,
        .mig_enabled = instances > 0,
        .gpm = 1,
        .index = index,
        .parent = own,
        .minor = index,
        .gpu_instance_id = UINT32_MAX,
        .instance_entity_id = UINT32_MAX,
        .id = UINT32_MAX,
        .name = "NVIDIA H100 80GB HBM3",
    };
    snprintf(gpu.uuid, sizeof(gpu.uuid), "GPU-5e2b7c90-4d1f-4a36-8c57-%012u", index);
    snprintf(gpu.bus_id, sizeof(gpu.bus_id), "00000000:%02X:00.0", 0x1b + index);
    node.entities[node.entity_count++] = gpu;
    for (uint32_t i = 0; i < instances; i++) {
        struct frame_entity e = gpu;
        e.kind = FRAME_ENTITY_GPU_I;
        e.gpu_instance_id = 7 + i;
        e.instance_entity_id = index * 7 + i;
        snprintf(e.uuid, sizeof(e.uuid), "MIG-%08u-4d1f-5a36-8c57-%012u", index, i);
        sv_copy(e.profile, sizeof(e.profile), SV("1g.10gb"));
        node.entities[node.entity_count++] = e;
    }
}

static void set_last_gpu(enum frame_entity_state state)
{
    uint32_t gpu = node.entities[node.entity_count - 1].parent;
    for (uint32_t i = gpu; i < node.entity_count; i++)
        node.entities[i].state = (uint8_t)state;
    send_entities();
}

static void live(uint64_t round)
{
    switch (round % CYCLE) {
    case 100:
        set_pods(1);
        break;
    case 200:
        set_last_gpu(FRAME_ENTITY_LOST);
        break;
    case 300:
        set_last_gpu(FRAME_ENTITY_UP);
        break;
    case 400:
        send_xid(0, 31);
        send_xid(0, 43);
        break;
    case 500:
        watch(5);
        break;
    case 600:
        watch(0);
        break;
    case 700:
        set_pods(0);
        break;
    }
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void report(void)
{
    for (unsigned step = 0; step < STEP_COUNT; step++) {
        size_t count = node.steps[step] < KEPT ? node.steps[step] : KEPT;
        qsort(node.took_ns[step], count, sizeof(node.took_ns[step][0]), compare_u64);
        printf("%s_ns=%llu\n", step_names[step], (unsigned long long)node.took_ns[step][count / 2]);
    }
    size_t device, all;
    publisher_counts(node.publisher, &device, &all);
    printf("device_series=%zu\nseries=%zu\npage_bytes=%zu\ngzip_bytes=%zu\nrecords=%zu\n", device,
           all, node.page_bytes, node.gzip_bytes, node.records);
}

static uint64_t number(const char *text, uint64_t most)
{
    uint64_t n;
    must(num_parse_u64(sv_from(text), 0, most, &n) == 0, text);
    return n;
}

static void set_up(uint32_t gpus, uint32_t instances, int argc, char **argv)
{
    char *environment[] = {"NODE_NAME=bench", NULL};
    struct error err = ERROR_INIT;
    must(exporter_options_parse(argc, argv, environment, &node.options, &err) == 0, err.text);
    must(exporter_config_load(&node.options, &node.config, &err) == 0, err.text);
    must(publisher_new(&node.options, &node.publisher) == 0, "memory");
    inventory_init(&node.inventory);
    frame_reader_init(&node.reader);
    node.frame = BUF_INIT(LIMIT_FRAME_BYTES);
    node.now_ns = START_NS;
    for (uint32_t i = 0; i < gpus; i++)
        add_gpu(i, instances);
    watch(0);
    send_state();
    send_entities();
    set_pods(0);
}

int main(int argc, char **argv)
{
    must(argc >= 4, "usage: bench_soak SAMPLES GPUS INSTANCES FLAG-OF-THE-EXPORTER...");
    uint64_t samples = number(argv[1], UINT32_MAX);
    uint32_t gpus = (uint32_t)number(argv[2], 16), instances = (uint32_t)number(argv[3], 7);
    set_up(gpus, instances, argc - 3, argv + 3); // argv[3] stands where the program's name would
    for (uint64_t round = 0; round <= samples; round++) {
        live(round);
        send_sample(round);
        publish(round);
        node.now_ns += NS_PER_S;
        if (round % CYCLE != 0)
            continue;
        struct mallinfo2 m = mallinfo2();
        printf("sample=%llu heap=%zu\n", (unsigned long long)round, m.uordblks + m.hblkhd);
    }
    report();
    publisher_free(node.publisher);
    inventory_deinit(&node.inventory);
    frame_reader_deinit(&node.reader);
    buf_deinit(&node.frame);
    exporter_config_unref(node.config);
    exporter_options_deinit(&node.options);
    return 0;
}
