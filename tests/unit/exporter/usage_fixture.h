// SPDX-License-Identifier: Apache-2.0
// A node for tests of usage: two GPUs and one under MIG, pods and processes by hand, and a ledger
// that writes down what it is told. Include from one file of a test.
#pragma once

#include "base/buf.h"
#include "exporter/usage.h"
#include "inventory_frames.h"

#define MIB (UINT64_C(1) << 20)
#define UNKNOWN UINT64_MAX
#define UID_A "aaaaaaaa-0000-0000-0000-00000000000a"
#define UID_B "bbbbbbbb-0000-0000-0000-00000000000b"
#define UID_C "cccccccc-0000-0000-0000-00000000000c"
#define UID_M "dddddddd-0000-0000-0000-00000000000d"

// --- The ledger: lines "verb device ...", times in ms since T0 ---

static struct buf told = {.max = 1u << 20};
static struct fake_container {
    char pod_uid[POD_UID_BYTES];
} containers[64];
static char container_names[64][96];
static uint32_t container_count;
static bool ledger_is_full;

static inline int64_t ms(uint64_t ns)
{
    return ((int64_t)ns - (int64_t)T0) / (int64_t)NS_PER_MS;
}

static inline const char *name_of(uint32_t number)
{
    return number == LEDGER_NONE ? "-" : container_names[number];
}

uint32_t ledger_container_number(struct ledger *l, const struct ledger_container *c)
{
    (void)l;
    char name[96];
    (void)snprintf(name, sizeof(name), "%s/%s/%s", c->namespace_name, c->pod, c->container);
    for (uint32_t i = 0; i < container_count; i++) {
        bool same_uid = !c->pod_uid[0] || !containers[i].pod_uid[0] ||
                        strcmp(c->pod_uid, containers[i].pod_uid) == 0;
        if (same_uid && strcmp(container_names[i], name) == 0) {
            if (c->pod_uid[0] && !containers[i].pod_uid[0])
                sv_copy(containers[i].pod_uid, POD_UID_BYTES, sv_from(c->pod_uid));
            return i;
        }
    }
    if (ledger_is_full || container_count == ARRAY_SIZE(containers))
        return LEDGER_NONE;
    memcpy(container_names[container_count], name, sizeof(name));
    sv_copy(containers[container_count].pod_uid, POD_UID_BYTES, sv_from(c->pod_uid));
    return container_count++;
}

int ledger_set_devices(struct ledger *l, const struct ledger_device_info *list, size_t count,
                       uint64_t now_ns)
{
    (void)l;
    (void)now_ns;
    for (size_t i = 0; i < count; i++)
        buf_add_fmt(&told, "device %zu %s board=%u%s %u/%u\n", i, list[i].uuid, list[i].board,
                    list[i].has_instances ? " cut" : "", list[i].slices, list[i].total_slices);
    return 0;
}

int ledger_set_holders(struct ledger *l, uint32_t device, uint64_t at_ns,
                       const struct ledger_holder *holders, size_t count, uint32_t offered)
{
    (void)l;
    (void)at_ns;
    buf_add_fmt(&told, "holders %u", device);
    for (size_t i = 0; i < count; i++)
        buf_add_fmt(&told, " %s*%u", name_of(holders[i].container), holders[i].replicas);
    buf_add_fmt(&told, " of %u\n", offered);
    return 0;
}

int ledger_add_busy(struct ledger *l, uint32_t device, uint64_t from_ns, uint64_t to_ns,
                    uint32_t ppm, bool sample)
{
    (void)l;
    buf_add_fmt(&told, "busy %u %" PRId64 "-%" PRId64 " %u%s\n", device, ms(from_ns), ms(to_ns),
                ppm, sample ? "" : " filled");
    return 0;
}

int ledger_add_share(struct ledger *l, uint32_t device, uint32_t container, uint64_t from_ns,
                     uint64_t to_ns, uint32_t ppm)
{
    (void)l;
    buf_add_fmt(&told, "share %u %s %" PRId64 "-%" PRId64 " %u\n", device, name_of(container),
                ms(from_ns), ms(to_ns), ppm);
    return 0;
}

void ledger_reach(struct ledger *l, uint32_t device, const struct ledger_reach *reach)
{
    (void)l;
    buf_add_fmt(&told, "reach %u", device);
    if (reach->has_busy)
        buf_add_fmt(&told, " busy=%" PRId64, ms(reach->busy_to_ns));
    if (reach->has_shares)
        buf_add_fmt(&told, " shares=%" PRId64, ms(reach->shares_to_ns));
    buf_add_str(&told, "\n");
}

int ledger_add_energy(struct ledger *l, uint32_t board, uint64_t at_ns, uint64_t mj)
{
    (void)l;
    buf_add_fmt(&told, "energy %u %" PRId64 " %" PRIu64 "\n", board, ms(at_ns), mj);
    return 0;
}

void ledger_add_memory(struct ledger *l, uint32_t device, uint64_t at_ns, uint64_t used,
                       uint64_t total)
{
    (void)l;
    (void)at_ns;
    buf_add_fmt(&told, "memory %u %" PRIu64 "/%" PRIu64 "\n", device, used / MIB, total / MIB);
}

int ledger_set_processes(struct ledger *l, uint32_t device, uint64_t at_ns,
                         const struct ledger_process *list, size_t count, bool busy_evidence,
                         bool memory_evidence)
{
    (void)l;
    (void)at_ns;
    buf_add_fmt(&told, "processes %u", device);
    for (size_t i = 0; i < count; i++) {
        buf_add_fmt(&told, " %s%s", name_of(list[i].container), list[i].foreign ? "!" : "");
        if (list[i].memory_bytes != UNKNOWN)
            buf_add_fmt(&told, "=%" PRIu64, list[i].memory_bytes / MIB);
    }
    buf_add_fmt(&told, "%s%s\n", busy_evidence ? " +busy" : "", memory_evidence ? " +memory" : "");
    return 0;
}

void ledger_clear_processes(struct ledger *l, uint32_t device, uint64_t at_ns)
{
    (void)l;
    (void)at_ns;
    buf_add_fmt(&told, "processes %u unknown\n", device);
}

void ledger_gap(struct ledger *l, uint32_t device, uint64_t at_ns)
{
    (void)l;
    buf_add_fmt(&told, "gap %u %" PRId64 "\n", device, ms(at_ns));
}

// The lines that begin so, one behind the other.
static inline const char *lines(const char *beginning)
{
    static char out[4096];
    struct sv text = buf_sv(&told), line;
    size_t used = 0;
    while (sv_next(&text, '\n', &line))
        if (sv_starts_with(line, sv_from(beginning)) && used + line.len + 2 < sizeof(out)) {
            memcpy(out + used, line.ptr, line.len);
            used += line.len;
            out[used++] = '\n';
        }
    out[used ? used - 1 : 0] = '\0';
    return out;
}

#define TOLD(beginning, expected) assert_string_equal(lines(beginning), expected)

// --- Processes ---

static struct fake_process {
    uint32_t pid;
    struct process_identity id;
} fake_processes[32];
static size_t fake_process_count;

static inline void pod_process(uint32_t pid, const char *uid, const char *container_id)
{
    struct fake_process *p = NULL;
    for (size_t i = 0; i < fake_process_count; i++)
        if (fake_processes[i].pid == pid)
            p = &fake_processes[i];
    p = p ? p : &fake_processes[fake_process_count++];
    *p =
        (struct fake_process){pid, {.kind = PROCESS_POD, .start_ticks = pid * 10, .name = "train"}};
    sv_copy(p->id.pod_uid, sizeof(p->id.pod_uid), sv_from(uid));
    sv_copy(p->id.container_id, sizeof(p->id.container_id), sv_from(container_id));
}

static inline struct process_identity *process(uint32_t pid)
{
    for (size_t i = 0; i < fake_process_count; i++)
        if (fake_processes[i].pid == pid)
            return &fake_processes[i].id;
    pod_process(pid, "", "");
    return process(pid);
}

static unsigned looks; // how often anybody's identity was asked for

static inline bool find_process(void *user, uint32_t pid, struct process_identity *out)
{
    (void)user;
    looks++;
    *out = (struct process_identity){.kind = PROCESS_GONE};
    for (size_t i = 0; i < fake_process_count; i++)
        if (fake_processes[i].pid == pid)
            *out = fake_processes[i].id;
    return true;
}

// --- The node ---

static struct inventory nvml, dcgm;
static struct device_view view;
static struct exporter_options options;
static struct pod_metadata *metadata;
static struct usage *usage;

#define HOLD(device_, pod_, container_, id_)                                                       \
    {                                                                                              \
        device_, "ns", pod_, container_, id_, 1                                                    \
    }
struct hold {
    size_t entity;
    const char *namespace_name, *pod, *container, *device_id;
    uint32_t since;
};

static inline int try_hold(const struct hold *list, size_t count, const uint32_t *offered)
{
    struct pod_device rows[16] = {{0}};
    struct attribute_holder holders[16] = {{0}};
    struct attribute_device_holders devices[16] = {{0}};
    struct pod_devices pods = {.count = count, .rows = rows};
    struct attribute_result result = {.device_count = nvml.entity_count,
                                      .devices = devices,
                                      .holders = holders,
                                      .holder_count = count};
    size_t at = 0;
    for (size_t d = 0; d < nvml.entity_count; d++) {
        devices[d].first = at;
        for (size_t i = 0; i < count; i++) {
            if (list[i].entity != d)
                continue;
            rows[at] = (struct pod_device){
                .namespace_name = list[i].namespace_name,
                .pod = list[i].pod,
                .container = list[i].container,
                .resource = "nvidia.com/gpu",
                .device_id = list[i].device_id,
                .since = list[i].since,
            };
            holders[at].row = at;
            at++;
            devices[d].count++;
        }
    }
    return usage_set_owners(usage, &view, &pods, &result, offered, T0);
}

#define OWNERS(...)                                                                                \
    do {                                                                                           \
        const struct hold list_[] = {__VA_ARGS__};                                                 \
        assert_int_equal(try_hold(list_, ARRAY_SIZE(list_), NULL), 0);                             \
    } while (0)

static inline void name_pod(const char *pod, const char *uid, const char *phase)
{
    const struct pod_record r = {
        .namespace_name = SV("ns"),
        .name = sv_from(pod),
        .uid = sv_from(uid),
        .phase = sv_from(phase),
    };
    assert_int_equal(pod_metadata_put(metadata, POD_METADATA_KUBELET, &r), 0);
}

static inline void name_containers(const char *pod, const char *uid,
                                   struct pod_record_container *list, size_t count)
{
    const struct pod_record r = {
        .namespace_name = SV("ns"),
        .name = sv_from(pod),
        .uid = sv_from(uid),
        .phase = SV("Running"),
        .containers = list,
        .container_count = count,
    };
    assert_int_equal(pod_metadata_put(metadata, POD_METADATA_KUBELET, &r), 0);
}

// --- Frames ---

#define ALL                                                                                        \
    (FRAME_USAGE_BUSY | FRAME_USAGE_SHARES | FRAME_USAGE_PROCESSES | FRAME_USAGE_ENERGY |          \
     FRAME_USAGE_MEMORY)
#define NO_BUSY (FRAME_USAGE_PROCESSES | FRAME_USAGE_MEMORY)

static struct {
    struct frame_usage head;
    struct frame_usage_device devices[8];
    struct frame_usage_span spans[32];
    struct frame_usage_share shares[64];
    struct frame_usage_process processes[64];
} made;

static inline void frame_start(uint64_t at_ms)
{
    memset(&made, 0, sizeof(made));
    made.head.generation = nvml.generation;
    made.head.started_ns = made.head.ended_ns = T0 + at_ms * NS_PER_MS;
}

static inline void on(uint32_t entity, uint32_t flags)
{
    uint64_t at_ns = made.head.ended_ns;
    made.devices[made.head.count++] = (struct frame_usage_device){
        .entity = entity,
        .flags = flags,
        .taken_ns = at_ns,
        .energy_mj = 5000,
        .memory_used = 900 * MIB,
        .memory_total = 1000 * MIB,
        .busy_to_ns = at_ns - 200 * NS_PER_MS,
        .shares_to_ns = at_ns - 100 * NS_PER_MS,
    };
}

static inline void runs(uint32_t pid, uint32_t kinds, uint64_t memory)
{
    made.devices[made.head.count - 1].processes++;
    made.processes[made.head.processes++] =
        (struct frame_usage_process){pid, kinds, memory == UNKNOWN ? UNKNOWN : memory * MIB};
}

// A tenth of a second that ends when the frame does.
static inline void does(uint32_t pid, uint32_t percent)
{
    uint64_t to_ns = made.head.ended_ns;
    made.devices[made.head.count - 1].shares++;
    made.shares[made.head.shares++] =
        (struct frame_usage_share){to_ns - 100 * NS_PER_MS, to_ns, pid, percent * 10000};
}

static inline int try_take(void)
{
    const struct frame f = {
        .type = FRAME_USAGE,
        .as.usage = {&made.head, made.devices, made.spans, made.shares, made.processes}};
    told.len = 0;
    return usage_take(usage, &view, DEVICE_SOURCE_NVML, &f);
}

static inline void take(void)
{
    assert_int_equal(try_take(), 0);
}

static inline void take_activity(uint64_t at_ms, uint32_t entity, double value)
{
    const struct frame_record rec = record_double(entity, 1001, value, T0 + at_ms * NS_PER_MS);
    const struct frame_sample head = {.generation = dcgm.generation, .count = 1};
    const struct frame f = {.type = FRAME_SAMPLE, .as.sample = {&head, &rec, SV("")}};
    told.len = 0;
    assert_int_equal(usage_take(usage, &view, DEVICE_SOURCE_DCGM, &f), 0);
}

static inline struct usage_stats stats(void)
{
    struct usage_stats s;
    usage_get_stats(usage, &s);
    return s;
}
