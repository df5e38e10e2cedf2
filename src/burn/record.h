// SPDX-License-Identifier: Apache-2.0
// What one process does on one GPU, as told to people and to Prometheus at one moment. The texts
// are engines: bytes into a buf.
#pragma once

#include "base/buf.h"
#include "burn/load.h"

struct burn_record {
    uint32_t gpu; // the driver's index
    const char *uuid, *model;
    uint32_t process; // 0, 1, ... on that GPU
    int pid;
    enum burn_kind kind;
    enum burn_state state;
    bool on;
    uint32_t duty_ppm;     // wanted now
    uint64_t scheduled_ns; // the integral of what was wanted since the start
    uint64_t busy_ns;
    uint64_t operations;
    uint64_t operations_per_s;
    uint64_t rounds, mismatches;
    uint64_t memory_bytes;
    enum burn_result result; // once ended
    const char *error;       // "": none
};

struct burn_moment {
    uint64_t wall_ns;
    uint64_t elapsed_ns; // since the start of the first period
};

// A line for people, or a JSON object and a line feed.
void burn_report_text(struct buf *out, const struct burn_moment *now, const struct burn_record *r);
void burn_report_json(struct buf *out, const struct burn_moment *now, const struct burn_record *r);
// gpu_burn's last words: "Tested 2 GPUs:" and OK or FAULTY for each. Records of one GPU stand
// together.
void burn_report_end(struct buf *out, const struct burn_record *records, size_t count);

// The page of /metrics, Prometheus text 0.0.4.
void burn_page(struct buf *out, const struct burn_record *records, size_t count);
