// SPDX-License-Identifier: Apache-2.0
// Between the files of nvml_usage: nvml_usage.c goes through the devices and makes the frame,
// nvml_usage_calls.c asks the driver, nvml_usage_track.c makes spans and shares of its buffers.
#pragma once

#include "source/nvml_usage.h"

// --- nvml_usage_track.c: an engine ---

// One of the driver's buffers as it is drained.
struct usage_track {
    bool based;         // it has been read: what is newer than last_us is news
    bool late;          // shares came for a time of which all had been told
    uint64_t last_us;   // newest time seen, since 1970; 0: none
    uint64_t last_ns;   // shares: the same in our time, as it was told
    uint64_t window_us; // shortest distance of two times; 0: none seen
    uint64_t batch_us;  // the shortest of the distances counted in batch_count
    uint32_t batch_count;
    uint32_t last_ppm; // spans: of the newest
    uint64_t to_ns;    // all until then is told
    uint64_t reach_ns; // shares: how far they may have been known at the pass before
};

struct usage_entry { // of a buffer
    uint64_t us;     // end of the window, since 1970
    uint32_t pid;    // shares
    uint32_t ppm;
};

struct usage_times {
    int64_t ahead_ns;    // CLOCK_REALTIME less CLOCK_MONOTONIC
    uint64_t wall_us;    // now
    bool stepped_lately; // the buffer may hold times that were ahead of now before a step
};

#define USAGE_ENTRIES_MAX 512 // of a device and pass that are told; the driver keeps 120

// Percent as the driver cuts it, to parts in a million.
uint32_t usage_ppm(uint32_t percent);
// Orders by time and pid and leaves out what is not new, of the future or twice. Returns how many
// stay, at the beginning of list.
size_t usage_entries_settle(const struct usage_track *t, const struct usage_times *times,
                            struct usage_entry *list, size_t count);
// Appends struct frame_usage_span of settled entries. True: there is a gap in or before them.
bool usage_add_spans(struct usage_track *t, const struct usage_times *times,
                     const struct usage_entry *list, size_t count, struct buf *spans);
// Appends struct frame_usage_share of settled entries, whose windows are no longer than that of
// busy. known_ns: all until then is in the list.
void usage_add_shares(struct usage_track *t, const struct usage_times *times,
                      const struct usage_track *busy, uint64_t known_ns,
                      const struct usage_entry *list, size_t count, struct buf *shares);
// What was read is void; what was told stays told.
void usage_track_void(struct usage_track *t);

struct nvml_usage_device;
// Spans from spans_at on that fill a hole between two samples, told with the shares from told_at on
// in the same pass: where it is known who was busy, and who was explains what the device did around
// it, too, their sum is better than what stood beside the hole. What was told ahead of its samples
// is remembered for the next pass.
void usage_refill_spans(struct nvml_usage_device *x, struct buf *spans, size_t spans_at,
                        const struct buf *told, size_t told_at);

// --- nvml_usage_calls.c ---

enum usage_step { // of a device, in this order
    USAGE_STEP_COMPUTE,
    USAGE_STEP_GRAPHICS,
    USAGE_STEP_MPS,
    USAGE_STEP_MEMORY,
    USAGE_STEP_ENERGY,
    USAGE_STEP_GPM,
    USAGE_STEP_SAMPLES,
    USAGE_STEP_SHARES,
    USAGE_STEP_END,
};

struct usage_answer { // of a step
    bool has;         // it can be had
    bool was_ok;      // since the device was listed
    uint8_t failures; // that mean nothing for good, in a row
    uint64_t again_ns;
};

struct usage_row { // a process
    uint32_t pid, kinds;
    uint64_t memory_bytes;
    uint32_t gpu_instance;
};

struct nvml_usage_device {
    char uuid[96];
    uint8_t kind;
    uint32_t gpu_instance_id, slices;
    nvmlDevice_t device; // of the GPU, which GPM's samples belong to
    uint8_t step;        // next one
    uint32_t at;         // GPU: place of the device of it that is asked next
    uint64_t rest_ns;    // GPU: it is slow, and not asked before
    bool gap;            // the next frame says so
    struct usage_answer answers[USAGE_STEP_END];
    struct usage_track busy, shares;
    uint64_t fresh_ns; // when the buffer of samples had news
    struct nvml_gpm gpm;
    struct buf rows;      // struct usage_row
    struct buf graphics;  // struct usage_row, remembered
    uint64_t graphics_ns; // when they are to be asked again
    bool processes_whole;
    uint64_t taken_ns, energy_mj, memory_used, memory_total;
    struct buf held;  // spans that were drained before the device's turn was cut off
    struct buf ahead; // struct frame_usage_share after busy.to_ns
};

struct usage_pass {
    struct nvml_usage *u;
    struct nvml *n;
    const struct nvml_devices *d;
    struct usage_times times;
};

// Whether a device has the step at all.
bool usage_has_step(const struct usage_pass *p, uint32_t place, enum usage_step step);
// Takes a step, of one call as a rule. False: the GPU is gone, or the library.
bool usage_take_step(struct usage_pass *p, uint32_t place, enum usage_step step);
