// SPDX-License-Identifier: Apache-2.0
// What the ledger costs the exporter's engines, and whether its memory stays flat:
//   bench_ledger SAMPLES FLAG-OF-THE-EXPORTER...
// One second of virtual time a sample. Eight GPUs are held in eight replicas each by pods of three
// processes; every tenth second a pod is followed by another, with another name, UID and pids.
// Prints the bytes of heap in use after each thousand samples, and at the end the median
// nanoseconds of each step.
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "exporter/publish.h"
#include "exporter/usage.h"

#define GPUS 8
#define REPLICAS 8
#define PODS (GPUS * REPLICAS)
#define RUN 3 // processes of a pod
#define SPANS 6
#define CYCLE 1000
#define CHURN 10
#define KEPT 4096 // newest measurements of each step
#define START_NS (1000 * NS_PER_S)
#define LINGER_NS (300 * NS_PER_S)

enum step { STEP_TAKE, STEP_BOOK, STEP_PUBLISH, STEP_COUNT };
static const char *const step_names[STEP_COUNT] = {"take", "book", "publish"};

static struct {
    struct exporter_options options;
    struct exporter_config *config;
    struct inventory inventory;
    struct device_view view;
    struct publisher *publisher;
    struct pod_metadata *metadata;
    struct ledger *ledger;
    struct usage *usage;
    uint32_t lives[PODS]; // how many pods stood at this place before
    char names[PODS][64];
    uint64_t now_ns, looks;
    uint64_t took_ns[STEP_COUNT][KEPT];
    size_t steps[STEP_COUNT];
    size_t page_bytes;
} node;

static struct {
    struct frame_usage head;
    struct frame_usage_device devices[GPUS];
    struct frame_usage_span spans[GPUS * SPANS];
    struct frame_usage_share shares[GPUS * SPANS * REPLICAS * RUN];
    struct frame_usage_process processes[PODS * RUN];
} made;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_ledger: %s\n", what);
    exit(1);
}

static void measured(enum step step, uint64_t begun_ns)
{
    node.took_ns[step][node.steps[step]++ % KEPT] = clock_mono_ns() - begun_ns;
}

// --- Pods ---

static uint32_t pid_of(size_t pod, size_t process)
{
    return 1000 + (uint32_t)(pod * RUN + process) + node.lives[pod] % 1000 * 1000;
}

static void write_uid(size_t pod, char out[POD_UID_BYTES])
{
    (void)snprintf(out, POD_UID_BYTES, "%08x-0000-4000-8000-%012x", (unsigned)pod, node.lives[pod]);
}

static bool find_process(void *user, uint32_t pid, struct process_identity *out)
{
    (void)user;
    node.looks++;
    size_t pod = (pid - 1000) % 1000 / RUN;
    *out = (struct process_identity){.kind = PROCESS_POD, .start_ticks = pid};
    write_uid(pod, out->pod_uid);
    return true;
}

static void name_pods(void)
{
    pod_metadata_begin(node.metadata, POD_METADATA_KUBELET);
    for (size_t i = 0; i < PODS; i++) {
        char uid[POD_UID_BYTES];
        write_uid(i, uid);
        (void)snprintf(node.names[i], sizeof(node.names[i]), "a-shared-worker-%02zu-%06u", i,
                       node.lives[i]);
        const struct pod_record r = {
            .namespace_name = SV("research"),
            .name = sv_from(node.names[i]),
            .uid = sv_from(uid),
            .phase = SV("Running"),
        };
        must(pod_metadata_put(node.metadata, POD_METADATA_KUBELET, &r) == 0, "pod");
    }
    pod_metadata_end(node.metadata, POD_METADATA_KUBELET);
}

static void tell_owners(void)
{
    static const uint32_t offered[GPUS] = {8, 8, 8, 8, 8, 8, 8, 8};
    struct pod_device rows[PODS] = {{0}};
    struct attribute_holder holders[PODS] = {{0}};
    struct attribute_device_holders devices[GPUS] = {{0}};
    struct pod_devices pods = {.count = PODS, .rows = rows};
    const struct attribute_result result = {
        .device_count = GPUS, .devices = devices, .holders = holders, .holder_count = PODS};
    for (size_t i = 0; i < PODS; i++) {
        rows[i] = (struct pod_device){.namespace_name = "research",
                                      .pod = node.names[i],
                                      .container = "main",
                                      .resource = "nvidia.com/gpu.shared",
                                      .device_id = "",
                                      .since = node.lives[i]};
        holders[i].row = i;
        devices[i / REPLICAS] = (struct attribute_device_holders){
            .first = i / REPLICAS * REPLICAS, .count = REPLICAS, .containers = REPLICAS};
    }
    must(usage_set_owners(node.usage, &node.view, &pods, &result, offered, node.now_ns) == 0,
         "owners");
}

static void live(uint64_t round)
{
    if (round % CHURN != 0)
        return;
    node.lives[round / CHURN % PODS]++;
    name_pods();
    tell_owners();
}

// --- Samples ---

static void fill_gpu(uint32_t gpu)
{
    uint64_t from_ns = node.now_ns - NS_PER_S, step_ns = NS_PER_S / SPANS;
    made.devices[gpu] = (struct frame_usage_device){
        .entity = gpu,
        .flags = FRAME_USAGE_BUSY | FRAME_USAGE_SHARES | FRAME_USAGE_PROCESSES |
                 FRAME_USAGE_ENERGY | FRAME_USAGE_MEMORY,
        .taken_ns = node.now_ns,
        .energy_mj = (node.now_ns - START_NS) / NS_PER_MS * 400,
        .memory_used = 60000000000,
        .memory_total = 80000000000,
        .busy_to_ns = from_ns + SPANS * step_ns,
        .shares_to_ns = from_ns + SPANS * step_ns,
        .spans = SPANS,
        .shares = SPANS * REPLICAS * RUN,
        .processes = REPLICAS * RUN,
    };
    for (uint32_t s = 0; s < SPANS; s++) {
        made.spans[made.head.spans++] = (struct frame_usage_span){
            from_ns + s * step_ns, from_ns + (s + 1) * step_ns, 900000, 0};
        for (uint32_t i = 0; i < REPLICAS * RUN; i++)
            made.shares[made.head.shares++] =
                (struct frame_usage_share){from_ns + s * step_ns, from_ns + (s + 1) * step_ns,
                                           pid_of(gpu * REPLICAS + i / RUN, i % RUN), 30000};
    }
    for (uint32_t i = 0; i < REPLICAS * RUN; i++)
        made.processes[made.head.processes++] = (struct frame_usage_process){
            pid_of(gpu * REPLICAS + i / RUN, i % RUN), FRAME_USAGE_COMPUTE, 1000000000};
}

static void send_usage(void)
{
    made.head = (struct frame_usage){.generation = node.inventory.generation,
                                     .count = GPUS,
                                     .started_ns = node.now_ns,
                                     .ended_ns = node.now_ns};
    for (uint32_t gpu = 0; gpu < GPUS; gpu++)
        fill_gpu(gpu);
    const struct frame frame = {
        .type = FRAME_USAGE,
        .as.usage = {&made.head, made.devices, made.spans, made.shares, made.processes}};
    uint64_t begun_ns = clock_mono_ns();
    must(usage_take(node.usage, &node.view, DEVICE_SOURCE_NVML, &frame) == 0, "usage");
    measured(STEP_TAKE, begun_ns);
    begun_ns = clock_mono_ns();
    must(ledger_book(node.ledger, node.now_ns) == 0, "ledger");
    measured(STEP_BOOK, begun_ns);
    must(ledger_adds_up(node.ledger), "the ledger does not add up");
}

static void publish(void)
{
    struct render_self self = {.version = "1.2.3", .revision = ""};
    uint64_t begun_ns = clock_mono_ns();
    must(publisher_publish(node.publisher, node.config, &node.view, &self, node.now_ns) == 0,
         "page");
    measured(STEP_PUBLISH, begun_ns);
    node.page_bytes = http_body_bytes(publisher_body(node.publisher, TEXT_FORMAT_PROMETHEUS)).len;
}

// --- All ---

static void list_gpus(void)
{
    struct frame_entity list[GPUS] = {{0}};
    const struct frame_entities head = {.generation = 1, .count = GPUS};
    for (uint32_t i = 0; i < GPUS; i++) {
        list[i] = (struct frame_entity){.kind = FRAME_ENTITY_GPU,
                                        .index = i,
                                        .parent = i,
                                        .minor = i,
                                        .gpu_instance_id = UINT32_MAX,
                                        .instance_entity_id = UINT32_MAX,
                                        .id = UINT32_MAX,
                                        .name = "NVIDIA H100 80GB HBM3"};
        (void)snprintf(list[i].uuid, sizeof(list[i].uuid), "GPU-5e2b7c90-4d1f-4a36-8c57-%012u", i);
    }
    const struct frame frame = {.type = FRAME_ENTITIES, .as.entities = {&head, list}};
    inventory_init(&node.inventory);
    must(inventory_apply(&node.inventory, &frame) == 0, "inventory");
    device_view_init(&node.view);
    must(device_view_refresh(&node.view, &node.inventory, NULL) == 0, "view");
}

static void set_up(int argc, char **argv)
{
    char *environment[] = {"NODE_NAME=bench", NULL};
    const struct ledger_options options = {.linger_ns = LINGER_NS};
    struct error err = ERROR_INIT;
    must(exporter_options_parse(argc, argv, environment, &node.options, &err) == 0, err.text);
    must(exporter_config_load(&node.options, &node.config, &err) == 0, err.text);
    must(publisher_new(&node.options, &node.publisher) == 0, "memory");
    must(pod_metadata_new(&node.options, &node.metadata) == 0, "memory");
    must(ledger_new(&options, &node.ledger) == 0, "memory");
    const struct usage_config usage = {.ledger = node.ledger,
                                       .metadata = node.metadata,
                                       .find = find_process,
                                       .look_ns = 5 * NS_PER_S};
    must(usage_new(&usage, &node.usage) == 0, "memory");
    publisher_set_ledger(node.publisher, node.ledger);
    publisher_set_metadata(node.publisher, node.metadata); // it forgets pods that nobody lists
    node.now_ns = START_NS;
    list_gpus();
    must(usage_set_devices(node.usage, &node.view, node.now_ns) == 0, "devices");
}

static void tear_down(void)
{
    usage_free(node.usage);
    ledger_free(node.ledger);
    publisher_free(node.publisher);
    pod_metadata_free(node.metadata);
    device_view_deinit(&node.view);
    inventory_deinit(&node.inventory);
    exporter_config_unref(node.config);
    exporter_options_deinit(&node.options);
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
        printf("%s_ns=%" PRIu64 "\n", step_names[step], node.took_ns[step][count / 2]);
    }
    printf("page_bytes=%zu\naccounts=%zu\nlooks=%" PRIu64 "\n", node.page_bytes,
           ledger_account_count(node.ledger), node.looks);
}

int main(int argc, char **argv)
{
    uint64_t samples = 0;
    must(argc >= 2 && num_parse_u64(sv_from(argv[1]), 0, UINT32_MAX, &samples) == 0,
         "usage: bench_ledger SAMPLES FLAG-OF-THE-EXPORTER...");
    set_up(argc - 1, argv + 1); // argv[1] stands where the program's name would
    for (uint64_t round = 0; round <= samples; round++) {
        node.now_ns += NS_PER_S;
        live(round);
        send_usage();
        publish();
        if (round % CYCLE != 0)
            continue;
        struct mallinfo2 m = mallinfo2();
        printf("sample=%" PRIu64 " heap=%zu\n", round, m.uordblks + m.hblkhd);
    }
    report();
    tear_down();
    return 0;
}
