// SPDX-License-Identifier: Apache-2.0
// The simulated node: one mapped file that holds everything a fake GPU node is, and the truth about
// it.
//
// `simnode` compiles a scenario into the file; the vendor library doubles, the kubelet and the
// tests map it. What a GPU does at a time t is a pure function of the file and t (truth.c):
// piecewise constant loads and linear signals over them, so that values, means and integrals are
// exact. A change made to a live node is a new segment that begins now: the past never changes, and
// every reader agrees on it.
//
// Units: times are nanoseconds of scenario time (t = 0 when the node starts; int64, negative is
// before). Loads are parts per million. Signals are micro-units: millionths of the unit their name
// ends in.
//
// Threads: any number of readers in any processes, one writer at a time (the file's lock,
// node_edit.h). Lists are linked by index and published with a release store, so readers never
// lock.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SIM_MAGIC UINT64_C(0x31656e6f6d697301)
#define SIM_LAYOUT 4u

#define SIM_MAX_GPUS 16u
#define SIM_MAX_SEGMENTS 16384u // of signals
#define SIM_MAX_LOADS 4096u     // segments of loads
#define SIM_MAX_PROCESSES 1024u
#define SIM_MAX_INSTANCES 512u
#define SIM_MAX_PODS 1024u
#define SIM_MAX_CONTAINERS 2048u
#define SIM_MAX_DEVICES 4096u
#define SIM_MAX_EVENTS 4096u
#define SIM_MAX_FAULTS 128u
#define SIM_MAX_SYMBOLS 768u
#define SIM_MAX_CLIENTS 64u
#define SIM_MAX_WORKS 64u  // CUDA contexts at a time
#define SIM_MAX_BUSY 1024u // intervals kept of each
#define SIM_MAX_DCGM_VALUES 8192u
#define SIM_MAX_SWITCHES 12u
#define SIM_MAX_LINKS 1024u
#define SIM_MAX_CPUS 8u
#define SIM_CORE_WORDS 16u // 64 cores a word, as DCGM's hierarchy has them
#define SIM_MAX_INCIDENTS 128u
#define SIM_MAX_PROF_GROUPS 10u
#define SIM_STRING_BYTES (256u << 10)

#define SIM_NONE UINT32_MAX   // no index
#define SIM_NODE SIM_MAX_GPUS // as a "GPU": signals of the node itself (kubelet.*, driver.*)
#define SIM_FOREVER INT64_MAX
#define SIM_ALWAYS (-SIM_FOREVER / 4) // long before t = 0
#define SIM_PPM INT64_C(1000000)

// --- Signals ---

// Every signal of a GPU or of the node; names and kinds in field_table.c (same order).
enum sim_field {
#define SIM_FIELD(id, name, kind) SIM_##id,
#include "fields.def"
#undef SIM_FIELD
    SIM_FIELD_COUNT,
};

enum sim_kind {
    SIM_GAUGE,    // base + slope * load(t)
    SIM_WINDOW,   // the driver's utilisation: mean over its last complete sampling window
    SIM_TRAILING, // mean over the second before t (power, where power_window_ms is set)
    SIM_COUNTER,  // base + what base rate + slope * load have added since the segment began
};

struct sim_field_info {
    const char *name; // "power_mw"
    enum sim_kind kind;
};
extern const struct sim_field_info sim_field_table[SIM_FIELD_COUNT];

// From from_ns until the next segment of the same signal begins. The first one also holds before
// it.
struct sim_segment {
    int64_t from_ns;
    int64_t base;  // micro-units; a counter's value at from_ns
    int64_t slope; // gauge: micro-units at full load; counter: micro-units per second at full load
    int64_t rate;  // counter: micro-units per second at no load
    uint32_t status;        // 0, or the nvmlReturn_t that a question for it gets
    uint32_t flags;         // SIM_SEGMENT_*
    _Atomic uint32_t older; // next in time order backwards, SIM_NONE: the first
    uint32_t reserved;
};
#define SIM_SEGMENT_FOLLOWS_POWER 1u // energy: the integral of power_mw is added

// --- Loads ---
enum sim_shape {
    SIM_CONSTANT,
    SIM_SQUARE, // high for on_ns, low for off_ns
    SIM_BURSTS, // every on_ns + off_ns: `pulses` pulses of width_ns with gaps as wide, within on_ns
};

struct sim_load {
    int64_t from_ns;
    int64_t on_ns, off_ns, phase_ns; // phase: where in its period the pattern is at t = 0
    int64_t width_ns;
    uint32_t shape; // enum sim_shape
    uint32_t pulses;
    uint32_t high_ppm, low_ppm;
    _Atomic uint32_t older;
    uint32_t reserved;
};

// --- What is on the node ---
enum sim_process_type {
    SIM_COMPUTE = 1,
    SIM_GRAPHICS = 2,
    SIM_MPS = 4,
};

struct sim_process {
    uint32_t gpu;
    uint32_t instance; // index in instances, SIM_NONE without MIG
    uint32_t pid;
    uint32_t type;                // bits of enum sim_process_type
    _Atomic int64_t memory_bytes; // -1: the driver doesn't know
    int64_t start_ns;
    _Atomic int64_t end_ns;
    uint32_t name;         // string
    _Atomic uint32_t load; // newest segment, SIM_NONE: idle
    uint32_t pod;          // index, SIM_NONE
    uint32_t next_on_gpu;
    _Atomic uint32_t work;   // 1 + index in works, 0: none, or none any more
    uint32_t container;      // index, SIM_NONE
    _Atomic int64_t busy_ns; // busy time of a work that is none any more
};

// What a real process did on a GPU through the CUDA double, and what it has queued: times at which
// its kernels run. One runs on a GPU (or GPU instance) at a time, so these of all processes are
// disjoint.
struct sim_busy {
    _Atomic int64_t from_ns, to_ns;
    _Atomic int64_t before_ns; // busy time of the intervals before
};

struct sim_work {
    _Atomic uint32_t pid; // 0: free
    uint32_t process;
    uint64_t started;       // the process's start time in clock ticks
    _Atomic uint32_t count; // intervals so far; the ring has the last SIM_MAX_BUSY - 1 of them
    uint32_t reserved;
    struct sim_busy ring[SIM_MAX_BUSY];
};

// A compute instance inside its GPU instance; one MIG device.
struct sim_instance {
    uint32_t gpu;
    uint32_t gi, ci; // NVML ids
    uint32_t slot;   // index for nvmlDeviceGetMigDeviceHandleByIndex
    uint32_t gi_slices, ci_slices;
    uint32_t profile;                   // string "1g.10gb"
    uint32_t uuid;                      // string "MIG-..."
    uint32_t profile_id;                // of the GPU instance, as drivers number them: 19 is 1g
    uint32_t placement, placement_size; // in memory slices
    uint32_t multiprocessors;
    uint32_t engines; // copy engines
    uint32_t reserved;
    int64_t memory_bytes;
    int64_t from_ns;
    _Atomic int64_t until_ns;
};

struct sim_pod {
    uint32_t name, namespace_name, uid; // strings
    uint32_t first_container, containers;
    uint32_t config_hash; // string: of a static pod the UID that its cgroup has, else ""
    uint32_t phase;       // string, until it completes
    uint32_t extra;       // string: JSON, what only objects of Kubernetes tell (scenario_extra.c)
    int64_t start_ns;
    _Atomic int64_t completed_ns; // SIM_FOREVER: never; its processes end then
    _Atomic int64_t end_ns;
    _Atomic uint32_t failed; // 1: completed as Failed, 0: as Succeeded
    uint32_t reserved;
};

struct sim_container {
    uint32_t name;
    uint32_t first_device, devices;
    uint32_t id;    // string: 64 hex digits
    uint32_t init;  // SIM_CONTAINER_*
    uint32_t extra; // string: JSON
};
enum sim_container_kind {
    SIM_CONTAINER_APP,
    SIM_CONTAINER_INIT,    // runs before the others and ends
    SIM_CONTAINER_SIDECAR, // a restartable init container
};

struct sim_device {
    uint32_t resource;  // string "nvidia.com/gpu"
    uint32_t id;        // string, as the device plugin names it
    uint32_t numa_mask; // one bit a NUMA node, 0: no topology
    uint32_t reserved;
};

struct sim_event {
    int64_t at_ns;
    uint64_t type; // NVML event bit
    uint64_t data; // XID
    uint32_t gpu;
    uint32_t gi, ci; // UINT32_MAX: not attributable
    uint32_t flags;  // SIM_EVENT_*
};
#define SIM_EVENT_NVML 1u // reaches NVML clients
#define SIM_EVENT_KMSG 2u // is written to the kernel log

enum sim_fault_kind {
    SIM_FAULT_NONE,
    SIM_FAULT_DELAY,  // value: milliseconds
    SIM_FAULT_RETURN, // value: nvmlReturn_t
    SIM_FAULT_HANG,   // until the fault is cleared; every signal but SIGKILL waits
    SIM_FAULT_CRASH,  // SIGSEGV
    SIM_FAULT_DROP,   // DCGM: the connection to the engine dies in the middle of the call
};

struct sim_fault {
    _Atomic uint32_t kind; // enum sim_fault_kind, written last
    uint32_t symbol;       // index in symbols, SIM_NONE: every call
    uint32_t gpu;          // SIM_NONE: every GPU, and calls without one
    int32_t value;
    int64_t from_ns, until_ns;
    _Atomic int64_t left; // calls it still hits, -1: all
};

struct sim_symbol {
    char name[72];
    uint32_t branch; // driver branch that brought it; 0: not a driver symbol
    uint32_t reserved;
    _Atomic uint64_t calls;
    _Atomic uint64_t total_ns; // real time spent in it
};

// A process with the library open.
struct sim_client {
    _Atomic uint32_t pid; // 0: free
    uint32_t reserved;
    _Atomic uint64_t started;  // its start time in clock ticks, so that a reused pid is told apart
    _Atomic uint32_t inits;    // nvmlInit less nvmlShutdown
    _Atomic uint32_t attached; // bit per GPU it took a handle of
};

// --- What only DCGM tells ---

// Kinds of entities, numbered as DCGM's field entity groups.
enum sim_entity {
    SIM_ENTITY_GPU = 1,
    SIM_ENTITY_SWITCH = 3,
    SIM_ENTITY_GPU_I = 4,
    SIM_ENTITY_GPU_CI = 5,
    SIM_ENTITY_LINK = 6,
    SIM_ENTITY_CPU = 7,
    SIM_ENTITY_CORE = 8,
};

// What a value of an entity is told by, in this node's own numbers: a GPU's index (not DCGM's id),
// NVML's ids of instances.
static inline uint32_t sim_instance_key(uint32_t gpu, uint32_t gi, uint32_t ci)
{
    return gpu << 16 | gi << 8 | ci;
}
// owner: SIM_ENTITY_GPU or SIM_ENTITY_SWITCH
static inline uint32_t sim_link_key(uint32_t owner, uint32_t id, uint32_t index)
{
    return owner << 24 | id << 16 | index;
}

enum sim_dcgm_shape {
    SIM_DCGM_AUTO, // what the truth says: undoes a value
    SIM_DCGM_NUMBER,
    SIM_DCGM_TEXT,
    SIM_DCGM_BLANK, // i64: 0 plain, 1 not found, 2 not supported, 3 no permission
    SIM_DCGM_NAN,
    SIM_DCGM_STATUS, // i64: the dcgmReturn_t beside the value
};

// From from_ns until a later record of the same entity and field.
struct sim_dcgm_value {
    int64_t from_ns;
    int64_t i64;
    double f64;
    uint32_t entity, key;
    uint32_t field;
    uint32_t shape; // enum sim_dcgm_shape
    uint32_t text;  // string
    uint32_t reserved;
};

struct sim_link {
    uint32_t owner, id; // SIM_ENTITY_GPU and its index, SIM_ENTITY_SWITCH and its id
    uint32_t index;
    _Atomic uint32_t state; // dcgmNvLinkLinkState_t: 0 not supported, 1 disabled, 2 down, 3 up
};

struct sim_cpu {
    uint32_t id;
    uint32_t serial; // string
    uint64_t cores[SIM_CORE_WORDS];
};

struct sim_incident {
    int64_t from_ns;
    _Atomic int64_t until_ns;
    uint32_t entity, key;
    uint32_t system; // DCGM_HEALTH_WATCH_* bit
    uint32_t result; // 10 warn, 20 fail
    uint32_t code;   // DCGM_FR_*
    uint32_t text;   // string
};

// Profiling metrics that can be measured together.
struct sim_prof_group {
    uint16_t major, minor;
    uint32_t count;
    uint16_t fields[64];
};

struct sim_dcgm {
    uint32_t library;             // major of the libdcgm on the node, 0: none
    uint32_t engine;              // 1: a host engine runs when the node starts
    uint32_t order[SIM_MAX_GPUS]; // GPU index by DCGM's GPU id
    uint32_t switch_count, cpu_count, link_count;
    uint32_t switches[SIM_MAX_SWITCHES]; // ids
    struct sim_cpu cpus[SIM_MAX_CPUS];
    struct sim_link links[SIM_MAX_LINKS];
    _Atomic uint32_t peers[SIM_MAX_GPUS][SIM_MAX_GPUS]; // dcgmNvLinkP2PStatus of GPU to GPU
    _Atomic uint32_t paused;                            // dcgmProfPause
    _Atomic uint32_t value_count, incident_count;
    struct sim_dcgm_value values[SIM_MAX_DCGM_VALUES];
    struct sim_incident incidents[SIM_MAX_INCIDENTS];
};

struct sim_gpu {
    uint32_t uuid, name, serial, part_number, vbios; // strings
    uint32_t bus_id;                                 // string "00000000:1B:00.0"
    uint32_t inforom_image, inforom_oem, inforom_ecc, inforom_power;
    uint32_t domain, bus, device;
    uint32_t pci_device_id, pci_subsystem_id;
    uint32_t minor;
    uint32_t architecture;       // nvmlDeviceArchitecture_t
    uint32_t cc_major, cc_minor; // CUDA compute capability
    uint32_t brand;
    uint32_t numa_node; // UINT32_MAX: none
    uint32_t gpm;       // 1: GPM supported
    uint32_t mig_capable;
    uint32_t mig_slots;    // nvmlDeviceGetMaxMigDeviceCount
    uint32_t total_slices; // of GPU instances
    uint32_t links;        // NVLink
    uint32_t fans;
    uint32_t multiprocessors;
    uint32_t replicas;         // that the device plugin offers of it, 0: itself
    uint32_t resource;         // string: its resource name, "" the plugin's usual one
    uint32_t prof_group_count; // 0: those of its architecture
    struct sim_prof_group prof_groups[SIM_MAX_PROF_GROUPS];
    int64_t window_ns;                        // of utilisation
    int64_t power_window_ns;                  // of power_mw, 0: instantaneous
    _Atomic uint32_t fields[SIM_FIELD_COUNT]; // newest segment, SIM_NONE: not supported
    _Atomic uint32_t load;      // newest segment; SIM_NONE: the sum of its processes or instances
    _Atomic uint32_t processes; // newest, linked by next_on_gpu
};

struct sim_node {
    uint64_t magic;
    uint32_t layout;
    uint32_t bytes;
    char scenario[64];
    char name[64]; // of the Kubernetes node
    char driver_version[72], nvml_version[80];
    uint32_t driver_branch;
    uint32_t cuda_version; // 12040
    uint32_t gpu_count;
    uint32_t old_library; // 1: this driver is the one of build/sim/old
    uint32_t
        reinit_after_loss; // 1: handles of a GPU that was lost stay lost until the next nvmlInit
    uint32_t cgroups;      // string: shape of the pods' cgroups
    uint32_t extra;        // string: JSON, claims and slices (scenario_extra.c)
    uint32_t reserved;
    int64_t epoch_ns;             // CLOCK_MONOTONIC at t = 0
    int64_t wall_epoch_us;        // since 1970, at t = 0
    uint64_t rate_ppm;            // scenario time per real time
    _Atomic int64_t frozen_ns;    // t while the clock is stopped; INT64_MIN: it runs
    _Atomic uint32_t event_futex; // grows with each live event
    _Atomic uint32_t fault_slots; // of faults, used so far
    _Atomic uint32_t generation;  // grows with each edit
    _Atomic uint32_t work_slots;  // of works, used so far

    _Atomic uint32_t segment_count, load_count, process_count, instance_count, pod_count,
        container_count, device_count, event_count, symbol_count, string_bytes;

    struct sim_gpu gpus[SIM_MAX_GPUS + 1]; // the last holds the node's own signals
    struct sim_segment segments[SIM_MAX_SEGMENTS];
    struct sim_load loads[SIM_MAX_LOADS];
    struct sim_process processes[SIM_MAX_PROCESSES];
    struct sim_instance instances[SIM_MAX_INSTANCES];
    struct sim_pod pods[SIM_MAX_PODS];
    struct sim_container containers[SIM_MAX_CONTAINERS];
    struct sim_device devices[SIM_MAX_DEVICES];
    struct sim_event events[SIM_MAX_EVENTS];
    struct sim_fault faults[SIM_MAX_FAULTS];
    struct sim_symbol symbols[SIM_MAX_SYMBOLS];
    struct sim_client clients[SIM_MAX_CLIENTS];
    struct sim_work works[SIM_MAX_WORKS];
    struct sim_dcgm dcgm;
    char strings[SIM_STRING_BYTES]; // NUL-terminated; index 0 is ""
};

static inline const char *sim_string(const struct sim_node *n, uint32_t at)
{
    return at < SIM_STRING_BYTES ? n->strings + at : "";
}

// --- The truth: pure functions of the file and t (truth.c) ---

typedef __int128 sim_wide; // micro-units, or ppm * ns

// The signal at t in micro-units. 0, or the nvmlReturn_t that a question for it gets (3: not
// supported).
int sim_micro(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t t,
              sim_wide *out);
// The same, cut to whole units as the driver reports it.
int sim_truth(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t t,
              int64_t *out);
// The same with its fraction.
int sim_truth_double(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t t,
                     double *out);
// 0 for a signal that is absent or failing.
int64_t sim_truth_or_zero(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t t);
// Integral of a gauge (windows apart) or growth of a counter over [from, to), micro-units * ns for
// a gauge, micro-units for a counter.
int sim_integral(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t from,
                 int64_t to, sim_wide *out);

// Load of a GPU (instance SIM_NONE) or of a GPU instance (instance: gi id), of a process.
int64_t sim_load_ppm(const struct sim_node *n, uint32_t gpu, uint32_t gi, int64_t t);
sim_wide sim_load_integral(const struct sim_node *n, uint32_t gpu, uint32_t gi, int64_t from,
                           int64_t to);
int64_t sim_process_load_ppm(const struct sim_node *n, uint32_t process, int64_t t);
sim_wide sim_process_load_integral(const struct sim_node *n, uint32_t process, int64_t from,
                                   int64_t to);
// Busy time in [from, to), microseconds, cut. gi SIM_NONE: the whole GPU.
// The number of the last window of that length that is complete at t: it ends at number * window.
int64_t sim_window_at(int64_t t, int64_t window_ns);
int64_t sim_busy_us(const struct sim_node *n, uint32_t gpu, uint32_t gi, int64_t from, int64_t to);
int64_t sim_process_busy_us(const struct sim_node *n, uint32_t process, int64_t from, int64_t to);
// A process's part of an engine's percent over [from, to), cut to a whole one; gpu_percent: its own
// load.
int64_t sim_process_percent(const struct sim_node *n, uint32_t process, enum sim_field field,
                            int64_t from, int64_t to);
// The same of the integral of a load on a GPU, whoever's.
int64_t sim_load_percent(const struct sim_node *n, uint32_t gpu, enum sim_field field,
                         sim_wide load, int64_t from, int64_t to);
// Means over [from, to), for ctypes: a gauge's value, a counter's growth per second. NaN when it
// has none.
double sim_mean(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t from,
                int64_t to);
// The mean of percent * load of an instance (gi) or GPU: what GPM shows for a ratio signal.
double sim_instance_mean(const struct sim_node *n, uint32_t gpu, uint32_t gi, enum sim_field field,
                         int64_t from, int64_t to);

bool sim_process_alive(const struct sim_node *n, uint32_t process, int64_t t);
bool sim_instance_alive(const struct sim_node *n, uint32_t instance, int64_t t);
// Memory in bytes: of the board; of a GPU instance.
struct sim_memory {
    int64_t total, reserved, used, free; // used without reserved
};
int sim_gpu_memory(const struct sim_node *n, uint32_t gpu, int64_t t, struct sim_memory *out);
int sim_instance_memory(const struct sim_node *n, uint32_t instance, int64_t t,
                        struct sim_memory *out);
// 0 or the nvmlReturn_t that every call to the GPU gets at t (15 lost, 16 reset required, 4 no
// permission). since: when the asker opened the library; a loss after it sticks when the node says
// so.
int sim_gpu_return(const struct sim_node *n, uint32_t gpu, int64_t since, int64_t t);

// --- Clock, counters, clients (node_map.c) ---

// Maps the file for reading and writing; NULL with errno. The mapping lives until sim_unmap.
struct sim_node *sim_map(const char *path);
void sim_unmap(struct sim_node *n);
int64_t sim_now(const struct sim_node *n); // scenario time
int64_t sim_wall_us(const struct sim_node *n,
                    int64_t t); // microseconds since 1970 of scenario time t
// Index of a counted symbol, SIM_NONE when unknown.
uint32_t sim_symbol_find(const struct sim_node *n, const char *name);
// A call counts when it begins, so that one that hangs is seen; its time is added when it ends.
void sim_count_begin(struct sim_node *n, uint32_t symbol);
void sim_count_end(struct sim_node *n, uint32_t symbol, uint64_t took_ns);
// Registers an opening (nvmlInit) and a closing of this process; a handle of a GPU; -1 when the
// table is full.
int sim_client_open(struct sim_node *n);
void sim_client_close(struct sim_node *n);
void sim_client_attach(struct sim_node *n, uint32_t gpu);
// pid of a living process that holds the GPU (SIM_NONE: any), 0 when none.
uint32_t sim_client_holding(struct sim_node *n, uint32_t gpu);
// Sleeps until a live event arrives or timeout_ms (real time) is over, at most 100 ms at a time.
void sim_event_sleep(struct sim_node *n, uint32_t seen, int timeout_ms);
void sim_event_wake(struct sim_node *n);
// Start time of a process in clock ticks, 0 when it is gone or a zombie.
uint64_t sim_pid_started(uint32_t pid);

// --- Work of real processes (node_work.c). Whoever changes works holds the file's lock ---

// This process begins to use a GPU (instance SIM_NONE: the whole one): an entry in the lists of
// processes. Index of the work, SIM_NONE when a table is full.
uint32_t sim_work_begin(struct sim_node *n, uint32_t gpu, uint32_t instance, const char *name);
// Claims the GPU for duration_ns, not before earliest_ns nor before what others have claimed.
// Returns when it begins.
int64_t sim_work_claim(struct sim_node *n, uint32_t work, int64_t earliest_ns, int64_t duration_ns);
// Ends the entry now, with what is queued; the busy time stays on the GPU's record.
void sim_work_end(struct sim_node *n, uint32_t work);
// Ends the entries of processes that died. For readers, too: takes no lock.
void sim_work_reap(struct sim_node *n);
// Busy time of a process before t, exact within its ring, a mean before it (truth.c).
int64_t sim_work_busy_ns(const struct sim_node *n, uint32_t process, int64_t t);
