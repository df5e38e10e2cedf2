// SPDX-License-Identifier: Apache-2.0
// What the GPUs did between two looks, and who ran on them: the driver's timestamped sample buffers
// (nvmlDeviceGetSamples), utilisation per process with a last-seen time of its own for each device,
// process lists, energy and memory. One USAGE frame a pass.
//
// Spans: a sample of the buffer is the mean over the window that ends at its time. Entries that are
// missing between two that were read (the driver loses some) are filled up to USAGE_FILL_NS, with
// the sum of the processes' shares where the driver tells them, else the mean of both neighbours
// (which may hit each burst or none of a load with a rhythm); more is a gap. The driver cuts
// percents to whole ones: 1..99 are taken half a percent higher, 0 and 100 as they are. Under MIG
// the driver has no such buffer: instances of GPUs with GPM have a span from pass to pass, of
// metric GRAPHICS_UTIL; others none.
//
// Shares: a driver answers NOT_FOUND when nobody was busy, that is 0 and no error. A sample's
// window begins at the sample before of the same device, but is no longer than the shortest
// distance seen, which is the driver's window.
//
// What a pass costs: a GPU without instances takes 6 calls (samples, shares, compute and MPS
// processes, energy, memory), one under MIG 2 and each of its instances 5 at most; the lists of
// graphics processes come each USAGE_GRAPHICS_NS.
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "source/nvml_devices.h"

#define USAGE_FILL_NS (1 * NS_PER_S)
#define USAGE_STEP_NS (50 * NS_PER_MS) // of the wall clock against the monotonic one: a gap
// Lists of graphics processes cost milliseconds: asked this seldom, remembered in between.
#define USAGE_GRAPHICS_NS (10 * NS_PER_S)
// No GPU may hold up the others: one that needs longer in a pass goes on in a later one.
#define USAGE_SLICE_NS (250 * NS_PER_MS)

struct nvml_usage_device; // running state of a device, by UUID

struct nvml_usage {
    uint64_t period_ns;                // 0: not wanted
    uint64_t due_ns;                   // UINT64_MAX: never
    struct nvml_usage_device *devices; // owned; place by place as in the list of that generation
    uint32_t device_count;
    uint32_t generation;
    bool has_list;
    int64_t wall_ahead_ns; // CLOCK_REALTIME less CLOCK_MONOTONIC at the last pass
    bool has_wall;
    uint64_t stepped_until_ns; // the driver's buffers may hold times of before a step until then
    struct buf head, spans, shares, processes; // of the frame in the making
    struct buf rows;                           // of a call
    uint64_t (*mono_ns)(void);                 // clock_mono_ns; tests have their own
};

void nvml_usage_init(struct nvml_usage *u);
void nvml_usage_deinit(struct nvml *n, struct nvml_usage *u);
// period_ns 0: no more. Another period than before: due at its next multiple.
void nvml_usage_watch(struct nvml_usage *u, uint64_t period_ns, uint64_t now_ns);
// Before nvmlShutdown: all that was read is void, and so are samples of GPM.
void nvml_usage_release(struct nvml *n, struct nvml_usage *u);
// A frame was lost: what comes next does not follow on what the exporter has.
void nvml_usage_break(struct nvml_usage *u);
static inline uint64_t nvml_usage_due_ns(const struct nvml_usage *u)
{
    return u->due_ns;
}

// The clocks at the begin of a pass; tests give their own.
struct nvml_usage_clock {
    uint64_t now_ns, wall_ns; // CLOCK_MONOTONIC, CLOCK_REALTIME, read together
};
// Makes a pass and its frame (reset before). A list of another generation than at the pass before
// is followed: what is still there, by UUID, goes on without a gap. False: there was no memory for
// it; what was read is lost, and the next frame says so. What calls tell of a GPU's state (lost,
// reset required) is the sampler's to find out; here its devices are left out, and have a gap when
// they are back.
bool nvml_usage_read(struct nvml_usage *u, struct nvml *n, const struct nvml_devices *d,
                     struct nvml_usage_clock clock, struct buf *frame);
