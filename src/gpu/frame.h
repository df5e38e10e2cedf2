// SPDX-License-Identifier: Apache-2.0
// What a source process (podgpu-source) and the exporter say to each other over a SOCK_STREAM
// socketpair.
//
// Both ends are the same build on one machine, so numbers are native-endian and structs are sent as
// they lie in memory; still the exporter trusts nothing in them (frame_reader checks every length,
// count, index and enum). A frame is struct frame_header and `bytes` bytes of payload. Source to
// exporter: HELLO first, then STATE, ENTITIES, SAMPLE, EVENTS, HEALTH, PEERS, CONTROL_DONE and
// USAGE in any order. Exporter to source: WATCH, again at every reload, and CONTROL. End of file
// ends either side.
//
// The process is started as `podgpu-source nvml|dcgm [OPTION VALUE]...` (see source/arguments.c)
// with the socket as fd 3 and the shared call page (a memfd of FRAME_CALL_PAGE_BYTES) as fd 4.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/macros.h"

#define FRAME_PROTOCOL 3
#define FRAME_SOCKET_FD 3
#define FRAME_CALL_PAGE_FD 4
#define FRAME_CALL_PAGE_BYTES 4096

enum frame_type {
    FRAME_HELLO = 1,
    FRAME_STATE,
    FRAME_ENTITIES,
    FRAME_SAMPLE,
    FRAME_EVENTS,
    FRAME_WATCH,
    FRAME_HEALTH,
    FRAME_PEERS,
    FRAME_CONTROL,
    FRAME_CONTROL_DONE,
    FRAME_USAGE,
    FRAME_TYPE_END,
};

struct frame_header {
    uint32_t bytes; // of payload, <= LIMIT_FRAME_BYTES
    uint16_t type;
    uint16_t protocol; // FRAME_PROTOCOL
};

// HELLO
enum frame_source {
    FRAME_SOURCE_NVML = 1,
    FRAME_SOURCE_DCGM,
};

struct frame_hello {
    uint32_t protocol;
    uint32_t source;
    int32_t pid;
    uint32_t reserved;
};

// STATE: sent when it changes. A source that is not READY keeps trying by itself with backoff.
enum frame_state_code {
    FRAME_STATE_READY,      // library open, driver answering
    FRAME_STATE_NO_LIBRARY, // vendor library not found, or a stub
    FRAME_STATE_NO_DRIVER,  // library there, kernel driver not loaded
    FRAME_STATE_NO_PERMISSION,
    FRAME_STATE_MISMATCH, // library and kernel driver differ in version
    FRAME_STATE_FAILED,   // anything else; vendor_code says what
    FRAME_STATE_END,
};

struct frame_state {
    uint32_t code;             // enum frame_state_code
    int32_t vendor_code;       // nvmlReturn_t or dcgmReturn_t, 0 when READY
    uint32_t xid_events_armed; // 1 while XIDs would be told (event set registered, field watched)
    uint32_t kmsg_armed;       // 1 while /dev/kmsg is being read
    char text[256];            // one line for people; empty when READY
    char driver_version[80];
    char library_version[80]; // of NVML or DCGM
    char library_path[256];   // where the library was found, "" if unknown
    // DCGM only, else zero
    uint32_t paused;        // 1: profiling was paused by FRAME_CONTROL
    int32_t profiling_code; // dcgmReturn_t that keeps profiling fields away, 0: none
    char engine[128];       // address of the host engine in use, "embedded", or "" without one
};

// ENTITIES: the whole list, whenever it changes. Records name an entity by its index here.
enum frame_entity_kind {
    FRAME_ENTITY_GPU = 1,
    FRAME_ENTITY_GPU_I,    // MIG GPU instance
    FRAME_ENTITY_GPU_CI,   // MIG compute instance
    FRAME_ENTITY_SWITCH,   // NVSwitch
    FRAME_ENTITY_LINK,     // NVLink that is up, of a GPU or of a switch
    FRAME_ENTITY_CPU,      // Grace socket
    FRAME_ENTITY_CPU_CORE, //
    FRAME_ENTITY_KIND_END,
};

enum frame_entity_state {
    FRAME_ENTITY_UP,
    FRAME_ENTITY_LOST, // fallen off the bus
    FRAME_ENTITY_RESET_REQUIRED,
    FRAME_ENTITY_NO_PERMISSION,
    FRAME_ENTITY_SKIPPED, // a call to it hung before; this helper leaves it alone
    FRAME_ENTITY_FAILED,
    FRAME_ENTITY_STATE_END,
};

struct frame_entity {
    uint8_t kind;        // enum frame_entity_kind
    uint8_t state;       // enum frame_entity_state
    uint8_t mig_enabled; // GPU: MIG mode is on
    uint8_t gpm;         // 1: GPM supported
    // GPU: NVML index, or DCGM's GPU id where DCGM is the source; instance, compute instance and
    // link of a GPU: of that GPU; UINT32_MAX for all others.
    uint32_t index;
    // Index in this list, of an entity before this one. Instance and link of a GPU: the GPU;
    // compute instance: its GPU instance; link of a switch: the switch; core: its CPU. GPU, switch
    // and CPU: their own index.
    uint32_t parent;
    uint32_t minor; // /dev/nvidiaN of the GPU; UINT32_MAX unknown
    uint32_t
        gpu_instance_id; // NVML GI id, of a compute instance that of its parent; else UINT32_MAX
    uint32_t instance_entity_id; // DCGM's GPU_I id: index * max MIG devices + n; else UINT32_MAX
    // Compute instance: NVML's CI id; switch, CPU, core: DCGM's entity id; link: its number at its
    // owner, from 0. UINT32_MAX for GPUs and instances.
    uint32_t id;
    // Instance: NVML's id of its profile and where its memory slices begin, which name it for DRA;
    // UINT32_MAX: not known (they may need rights)
    uint32_t profile_id, placement;
    uint32_t slices;       // instance: compute slices; GPU: 0
    uint32_t total_slices; // GPU slices of the board (7 or 8 with MIG), 0 without
    char uuid[96];         // "GPU-..." or "MIG-..." (of the instance's first compute instance)
    char legacy_uuid[96];  // instance: "MIG-GPU-<uuid>/gi/ci", else ""
    char name[96];         // of the GPU: "NVIDIA A10G"
    char bus_id[32];       // "00000000:1B:00.0"
    char profile[32];      // instance: "1g.10gb"
};

// Only strings above are NUL-terminated within their arrays; the reader enforces it and valid UTF-8
// (each bad byte becomes '?').
struct frame_entities {
    uint32_t generation; // grows with each list; SAMPLE and EVENTS carry it
    uint32_t count;      // <= LIMIT_ENTITIES
    // struct frame_entity[count]
};

// SAMPLE: what one pass over some cost classes gave.
enum frame_status {
    FRAME_OK,
    FRAME_NO_DATA,       // nothing yet (first GPM cycle, no XID event channel, rate without a base)
    FRAME_NOT_SUPPORTED, // this GPU, or this entity, has no such value
    FRAME_NO_SYMBOL,     // the driver is older than the function
    FRAME_NO_PERMISSION,
    FRAME_NEEDS_DCGM,    // NVML has no such number
    FRAME_NEEDS_GPM,     // a profiling field on a GPU before Hopper: DCGM's profiling module only
    FRAME_LOST,          // the GPU is gone
    FRAME_VENDOR_ERROR,  // value.i64 holds the vendor's code
    FRAME_INVALID,       // the driver's number is out of any sense (temperature > 200, NaN)
    FRAME_AVOIDED,       // the call crashed or hung the helper before: it is not made any more
    FRAME_NOT_CONNECTED, // DCGM is to give it, and no host engine answers
    FRAME_IN_USE,        // another program owns the profiling counters
    FRAME_PAUSED,        // profiling is paused
    FRAME_STATUS_END,
};

enum frame_value_type {
    FRAME_VALUE_NONE, // status is not FRAME_OK
    FRAME_VALUE_I64,
    FRAME_VALUE_DOUBLE,
    FRAME_VALUE_STRING, // i64 = offset << 32 | length in the frame's string area
    FRAME_VALUE_TYPE_END,
};

struct frame_record {
    uint32_t entity;   // index in ENTITIES
    uint16_t field;    // DCGM field id
    uint8_t status;    // enum frame_status
    uint8_t type;      // enum frame_value_type
    uint64_t taken_ns; // CLOCK_MONOTONIC when the value was read
    union {
        int64_t i64;
        double f64;
    } value;
};

struct frame_sample {
    uint32_t generation;
    uint32_t watch_id; // of the WATCH it answers
    uint32_t classes;  // bit per enum field_class covered
    uint32_t count;    // records
    uint32_t string_bytes;
    uint32_t vendor_calls;         // made for this sample
    uint64_t started_ns, ended_ns; // CLOCK_MONOTONIC
    // struct frame_record[count], then string_bytes bytes
};

// EVENTS
enum frame_event_origin {
    FRAME_EVENT_NVML = 1,
    FRAME_EVENT_KMSG,
    FRAME_EVENT_DCGM,
    FRAME_EVENT_ORIGIN_END,
};

struct frame_event {
    uint32_t entity; // GPU in ENTITIES
    uint32_t origin; // enum frame_event_origin
    uint32_t xid;
    uint32_t gpu_instance_id; // UINT32_MAX: not attributable
    uint32_t repeats;         // how many more of the same there were; the rest tells of the last
    uint32_t reserved;
    uint64_t taken_ns; // CLOCK_MONOTONIC
    uint64_t wall_ns;  // since 1970
    char text[160];    // kernel line, cut and sanitised; "" from NVML and DCGM
};

struct frame_events {
    uint32_t generation;
    uint32_t count;
    // struct frame_event[count]
};

// WATCH: which fields to sample and how often. Replaces the one before. DCGM_EXP_GPU_HEALTH_STATUS
// (DCGM) and DCGM_EXP_P2P_STATUS (both) among the fields ask for HEALTH and PEERS frames.
struct frame_watch {
    uint32_t watch_id;
    uint32_t count;
    uint64_t period_ns[4]; // by enum field_class; STATIC is refreshed at this period too
    // DCGM: bit per `index` of the GPUs to watch, with their instances and links; all ones: all.
    // NVML reads all.
    uint64_t gpus;
    uint64_t usage_ns; // NVML: period of USAGE frames; 0: none are wanted
    // uint16_t field_ids[count], ascending, each once
};

// HEALTH: DCGM's verdicts, the whole table, after each check. What is not in it passes.
struct frame_verdict {
    uint32_t entity; // GPU in ENTITIES
    uint32_t system; // one bit of DCGM_HEALTH_WATCH_*; all ones: the GPU as a whole
    uint32_t result; // 10 warn, 20 fail
    uint32_t code;   // DCGM_FR_*
};

struct frame_health {
    uint32_t generation;
    uint32_t count;    // <= LIMIT_VERDICTS
    uint64_t taken_ns; // CLOCK_MONOTONIC
    // struct frame_verdict[count]
};

// PEERS: the state of NVLink peer-to-peer between GPUs, the whole table; pairs that are not in it
// are not known.
struct frame_peer {
    uint32_t entity, peer; // GPUs in ENTITIES
    uint32_t status; // nvmlGpuP2PStatus_t: 0 OK, 1 chipset, 2 GPU, 3 topology not supported, 4
                     // disabled by registry, 5 not supported, 6 unknown
    uint32_t reserved;
};

struct frame_peers {
    uint32_t generation;
    uint32_t count; // <= LIMIT_GPUS squared
    uint64_t taken_ns;
    // struct frame_peer[count]
};

// USAGE: what each GPU and instance did since the frame before, from the driver's own timestamped
// buffers, and who ran on it. NVML only. Times are CLOCK_MONOTONIC: the source has turned the
// driver's (microseconds since 1970) into it, with the clocks' distance at that moment.
enum frame_usage_flag {
    FRAME_USAGE_BUSY = 1,      // spans can be had of this device
    FRAME_USAGE_SHARES = 2,    // utilisation per process can be had
    FRAME_USAGE_PROCESSES = 4, // the processes are all that run now, of all kinds the driver lists
    FRAME_USAGE_ENERGY = 8,    // energy_mj is set
    FRAME_USAGE_MEMORY = 16,   // memory_used and memory_total are set
    FRAME_USAGE_GAP = 32, // does not follow on the frame before: first one, clock stepped, entries
                          // of the buffer lost for good, driver opened anew
    FRAME_USAGE_FLAGS = 63,
};

struct frame_usage_device {
    uint32_t entity; // GPU or instance in ENTITIES; ascending, each once. A GPU with instances has
                     // energy alone, an instance no energy
    uint32_t flags;  // enum frame_usage_flag
    uint64_t taken_ns;                  // energy, memory and processes were read; <= ended_ns
    uint64_t energy_mj;                 // the driver's counter
    uint64_t memory_used, memory_total; // bytes, as FB_USED and FB_TOTAL have them
    uint64_t busy_to_ns;                // spans after those sent so far begin here or later
    uint64_t shares_to_ns;              // likewise; what is not in a share until then was 0
    uint32_t spans, shares, processes;  // of it below
    uint32_t reserved;
};

// Ascending, without overlap.
struct frame_usage_span {
    uint64_t from_ns, to_ns; // from < to
    uint32_t ppm;            // of that time in which some kernel was resident; <= 1000000
    uint32_t filled;         // 1: no sample of the driver's, but between two of them
};

struct frame_usage_share {
    uint64_t from_ns, to_ns;
    uint32_t pid;
    uint32_t
        ppm; // of the device, as the driver says it: those of all may sum to more than the device's
};

#define FRAME_USAGE_COMPUTE 1u
#define FRAME_USAGE_GRAPHICS 2u
#define FRAME_USAGE_MPS 4u // a client of an MPS server
#define FRAME_USAGE_KINDS 7u

struct frame_usage_process {
    uint32_t pid;          // each once a device
    uint32_t kinds;        // FRAME_USAGE_COMPUTE ...
    uint64_t memory_bytes; // UINT64_MAX: not known
};

struct frame_usage {
    uint32_t generation;
    uint32_t count;                    // devices, <= LIMIT_ENTITIES
    uint32_t spans, shares, processes; // sums of the devices'; <= LIMIT_USAGE_*
    uint32_t vendor_calls;
    uint64_t started_ns, ended_ns;
    // struct frame_usage_device[count], frame_usage_span[spans], frame_usage_share[shares],
    // frame_usage_process[processes], each in the order of the devices
};

// CONTROL: something to do once; CONTROL_DONE answers it.
enum frame_command {
    FRAME_COMMAND_PAUSE = 1, // DCGM's profiling, for Nsight
    FRAME_COMMAND_RESUME,
    FRAME_COMMAND_END,
};

struct frame_control {
    uint32_t command; // enum frame_command
    uint32_t number;  // comes back in the answer
};

struct frame_control_done {
    uint32_t number;
    int32_t code;   // 0: done; else dcgmReturn_t, or INT32_MIN: not possible now
    char text[120]; // why not, for people
};

// The shared page: the source writes it around every vendor call, the exporter's watchdog reads it.
struct frame_call_page {
    uint64_t
        entered_ns; // CLOCK_MONOTONIC, 0 while no call is in flight (written last, release order)
    uint32_t index; // NVML index of the GPU asked, UINT32_MAX for none
    uint32_t calls; // count of vendor calls so far
    char call[64];  // function name
    uint64_t kmsg_seq; // records of the kernel log up to this number are dealt with, 0: none yet
    uint32_t turns;    // of the source's main loop, once a second at least: it is alive
};

// --- Writing: one frame into a buffer ---
// frame_begin remembers where the frame starts; frame_end fills in the length. Errors stick in the
// buffer.
size_t frame_begin(struct buf *b, enum frame_type type);
void frame_end(struct buf *b, size_t start);

// --- Reading: bytes in, checked frames out ---
// A parsed frame borrows the reader's buffer until the next frame_reader_next.
struct frame {
    enum frame_type type;
    union {
        const struct frame_hello *hello;
        const struct frame_state *state;
        struct {
            const struct frame_entities *head;
            const struct frame_entity *list; // head->count
        } entities;
        struct {
            const struct frame_sample *head;
            const struct frame_record *list; // head->count
            struct sv strings;               // every string record lies inside, checked
        } sample;
        struct {
            const struct frame_events *head;
            const struct frame_event *list;
        } events;
        struct {
            const struct frame_watch *head;
            const uint16_t *field_ids;
        } watch;
        struct {
            const struct frame_health *head;
            const struct frame_verdict *list;
        } health;
        struct {
            const struct frame_peers *head;
            const struct frame_peer *list;
        } peers;
        struct {
            const struct frame_usage *head;
            const struct frame_usage_device *devices;
            const struct frame_usage_span *spans;
            const struct frame_usage_share *shares;
            const struct frame_usage_process *processes;
        } usage;
        const struct frame_control *control;
        const struct frame_control_done *control_done;
    } as;
};

struct frame_reader {
    struct buf input;      // ceiling LIMIT_FRAME_BYTES + header + one read
    size_t consumed;       // of input, by the frame last returned
    int failed;            // negative errno once the stream is unusable
    uint32_t entity_count; // of the last ENTITIES, bounds the indices in SAMPLE and EVENTS
    uint32_t generation;
    uint64_t gpu_bits[LIMIT_ENTITIES / 64]; // which of them are GPUs
};

void frame_reader_init(struct frame_reader *r);
void frame_reader_deinit(struct frame_reader *r);
// Room for more bytes at *out_space (at least 4 KiB, grows as a large frame arrives); then
// frame_reader_commit. Ends the life of the frame returned last. 0 or -ENOMEM.
int must_use frame_reader_space(struct frame_reader *r, char **out_space, size_t *out_bytes);
void frame_reader_commit(struct frame_reader *r, size_t bytes);
// 1: *out holds the next frame. 0: more bytes are needed. -EPROTO: not our protocol or a field out
// of range; *what names it (static text); the stream is unusable from then on. -EFBIG: announced
// length over the ceiling. Samples, events, health, peers and usage of another generation than the
// last ENTITIES are returned with count 0. What the reader mends: text (see struct frame_entity;
// string values alike), and a double that is not finite becomes FRAME_INVALID.
int must_use frame_reader_next(struct frame_reader *r, struct frame *out, const char **what);

// The text of a string record; false when it is none, or reaches outside strings (never after
// frame_reader_next).
bool frame_record_string(const struct frame_record *rec, struct sv strings, struct sv *out);

const char *frame_status_text(enum frame_status status);  // "not_supported", for reason labels
const char *frame_state_text(enum frame_state_code code); // "no_library"
const char *frame_entity_state_text(enum frame_entity_state state); // "lost"
