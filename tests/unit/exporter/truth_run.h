// SPDX-License-Identifier: Apache-2.0
// A run in virtual time, in one process: the driver's double on a simulated node whose clock is
// moved by hand, the source's reader of it, the frames, and the exporter's engines up to the
// ledger. What the ledger counts is written down each second beside what the node knows to be true.
#pragma once

#include "exporter/ledger.h"
#include "exporter/usage.h"
#include "node.h"
#include "session.h"
#include "source/nvml_devices.h"
#include "source/nvml_usage.h"

#define RUN_FROM_S 100 // the driver's buffers have a history by then
#define RUN_S 600
#define RUN_SERIES_MAX 16

// A counter of busy time and what it should be, as of each second of the run, in microseconds. A
// counter is read as late as can be: just before the next look at the driver.
struct truth_series {
    const char *what;   // "gpu0/gi1 team-a/pod/main"; a device: "gpu0"
    size_t device;      // place in the ledger
    uint32_t container; // of the node; SIM_NONE: the device itself
    uint64_t told_us[RUN_S + 1];
    double true_us[RUN_S + 1];
    double due_us; // so far
    char text[96];
};

struct truth_run {
    struct sim_session *session;
    struct sim_node *node;
    struct nvml n;
    struct nvml_devices devices;
    struct nvml_usage source;
    struct frame_reader reader;
    struct buf wire;
    struct inventory inventory;
    struct device_view view;
    struct pod_metadata *metadata;
    struct exporter_options *options;
    struct ledger *ledger;
    struct usage *usage;
    struct pod_device *rows;
    struct pod_devices held;
    struct attribute_result holders;
    uint64_t pods_seen; // sum over those that were there
    struct truth_series *series;
    size_t series_count;
    uint64_t energies_checked, energies_skipped; // intervals times accounts
    uint64_t now_ns;                             // CLOCK_MONOTONIC of the run
};

// A scenario of sim/scenarios, and verbs that hold from its beginning, a line each.
void truth_run_start(struct truth_run *r, const char *scenario, const char *const *verbs);
// The whole run; checks energy, the identity and that nothing is refused all along.
void truth_run_go(struct truth_run *r);
void truth_run_end(struct truth_run *r);

// The account of a container of the node on a device, NULL: none.
const struct ledger_account *truth_run_account(const struct truth_run *r, size_t device,
                                               uint32_t container);
// Which GPU and GPU instance (SIM_NONE: whole) a device of the ledger is.
void truth_run_place(const struct truth_run *r, size_t device, uint32_t *gpu, uint32_t *gi);
