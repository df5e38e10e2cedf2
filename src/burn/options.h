// SPDX-License-Identifier: Apache-2.0
// The command line: podgpu-burn's own flags, or gpu_burn's (TIME, -m, -d, -tc, -i, -l, -c, -stts),
// which existing manifests pass.
#pragma once

#include "base/log.h"
#include "base/option.h"
#include "burn/shape.h"

enum burn_kind {
    BURN_FP32,
    BURN_FP64,
    BURN_FP16, // tensor cores
    BURN_BF16,
    BURN_TF32,
    BURN_INT32,
    BURN_DRAM, // stream through memory
    BURN_PCIE_H2D,
    BURN_PCIE_D2H,
    BURN_PCIE_BOTH,
    BURN_PEER, // copies between two GPUs
    BURN_KIND_COUNT,
};
const char *burn_kind_name(enum burn_kind kind); // "fp32"

#define BURN_GPUS_MAX 64
#define BURN_PROCESSES_MAX 16
// A command line that means nothing: none of enum burn_result, so that a mistyped flag is never
// taken for a broken GPU (sysexits.h: EX_USAGE).
#define BURN_STATUS_USAGE 64

// The values of burn_option_table as they were typed.
struct burn_flags {
    char *kind, *shape, *on, *off, *util, *duration;
    int64_t cycles;
    bool align;
    char *memory;
    bool hold;
    struct option_list gpus;
    int64_t procs;
    bool list, json;
    char *listen, *cuda_library;
    bool provoke_xid, debug;
    // gpu_burn's
    char *memory_mib, *index, *compare, *grace;
    bool doubles, tensor;
    bool memory_mib_given, index_given, compare_given, grace_given;
    bool kind_given, memory_given;
};
extern const struct option_table burn_option_table;

struct burn_options {
    enum burn_kind kind;
    struct burn_shape shape;
    uint64_t cycles;         // of a shape that has periods, 0: for ever
    uint64_t duration_ns;    // 0: for ever
    uint32_t util_ppm;       // --util: of the shape's duty
    bool align;              // phases begin at multiples of the period of wall time
    uint64_t memory_bytes;   // of a process; 0: memory_percent
    uint32_t memory_percent; // of what is free
    bool hold;               // memory is kept in the off phase
    bool all_gpus;
    char *gpus[BURN_GPUS_MAX]; // index or UUID; owned
    uint32_t gpu_count;
    uint32_t processes; // of each GPU
    bool list;          // -l
    bool json;
    char *listen;        // "": none
    char *cuda_library;  // "": search
    bool illegal_access; // --provoke-xid
    bool gpu_burn;       // gpu_burn's arguments were given
    enum log_level log_level;
};
// 0; OPTION_OUTCOME_HELP or _VERSION; -EINVAL or -ENOMEM with *err naming the word, what was
// expected and, where there is one, the nearest flag. *out is empty unless 0.
int must_use burn_options_parse(int argc, char **argv, char **environment, struct burn_options *out,
                                struct error *err);
void burn_options_deinit(struct burn_options *o);

// What is wanted: the duty at t after the start, its integral over [0, t), and when it ends
// (UINT64_MAX: never).
uint32_t burn_duty_ppm(const struct burn_options *o, uint64_t t_ns);
uint64_t burn_due_ns(const struct burn_options *o, uint64_t t_ns);
uint64_t burn_end_ns(const struct burn_options *o);
