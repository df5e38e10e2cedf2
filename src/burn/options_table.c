// SPDX-License-Identifier: Apache-2.0
#include "burn/options.h"

#define AT(member) offsetof(struct burn_flags, member)
#define UNMARKED ((size_t)-1)

#define TEXT(flag, variable, member, initial, theme, words)                                        \
    {                                                                                              \
        flag, NULL, variable, OPTION_STRING, AT(member), UNMARKED, initial, 0, 0, theme, words,    \
            false                                                                                  \
    }
#define TEXT_MARKED(flag, variable, member, mark, initial, theme, words)                           \
    {                                                                                              \
        flag, NULL, variable, OPTION_STRING, AT(member), AT(mark), initial, 0, 0, theme, words,    \
            false                                                                                  \
    }
#define NUMBER(flag, variable, member, initial, least, most, theme, words)                         \
    {                                                                                              \
        flag, NULL, variable, OPTION_INT, AT(member), UNMARKED, initial, least, most, theme,       \
            words, false                                                                           \
    }
#define SWITCH(flag, short_form, variable, member, theme, words)                                   \
    {                                                                                              \
        flag, short_form, variable, OPTION_BOOL, AT(member), UNMARKED, NULL, 0, 0, theme, words,   \
            false                                                                                  \
    }
#define INERT(flag, member, mark, words)                                                           \
    {                                                                                              \
        flag, NULL, NULL, OPTION_STRING, AT(member), AT(mark), NULL, 0, 0, GPU_BURN, words, true   \
    }

#define LOAD "Load"
#define TIME "Load over time"
#define WHERE "Where"
#define OUTPUT "Output"
#define GPU_BURN "As gpu_burn: [FLAGS] [TIME], TIME in seconds (default 10) of constant load"

static const struct option_row rows[] = {
    TEXT_MARKED("kind", "PODGPU_BURN_KIND", kind, kind_given, "fp32", LOAD,
                "What the load is made of: fp32, fp64, int32 (arithmetic), fp16, bf16, tf32 "
                "(tensor cores), dram (a stream through memory), pcie-h2d, pcie-d2h, pcie-both "
                "(copies from and to the host), peer (copies between two GPUs)."),
    {"memory", "mem", "PODGPU_BURN_MEMORY", OPTION_STRING, AT(memory), AT(memory_given),
     "10%", 0, 0, LOAD,
     "GPU memory that each process takes: 8GiB, 512MiB, or a percentage of what is free, shared by "
     "the processes of a GPU.",
     false},
    SWITCH("hold", NULL, "PODGPU_BURN_HOLD", hold, LOAD,
           "Keep the memory while the load is off. Otherwise it is given back and taken anew."),
    SWITCH("provoke-xid", NULL, NULL, provoke_xid, LOAD,
           "Make one illegal memory access on each GPU at the start, for testing how XID errors are "
           "told. The load ends by it, with status 3."),
    TEXT("shape", "PODGPU_BURN_SHAPE", shape, NULL, TIME,
         "constant[:high=1] | square:on=20s,off=20s[,high=1][,low=0] | "
         "sine:period=60s[,low=0][,high=1] | ramp:period=60s[,low=0][,high=1] | "
         "steps:every=10s,levels=0/0.5/1 | random:every=10s,seed=1[,low=0][,high=1]. Without one "
         "the load is constant."),
    TEXT("on", "PODGPU_BURN_ON", on, NULL, TIME,
         "With --off, short for a square: how long the load is on, as 20s, 1m30s or seconds."),
    TEXT("off", "PODGPU_BURN_OFF", off, NULL, TIME, "With --on: how long it is off."),
    NUMBER("cycles", "PODGPU_BURN_CYCLES", cycles, "0", 0, INT32_MAX, TIME,
           "End after so many periods of the shape; 0: never."),
    TEXT("duration", "PODGPU_BURN_DURATION", duration, NULL, TIME,
         "End after this time, as 10m or seconds; 0 or without: never."),
    TEXT("util", "PODGPU_BURN_UTIL", util, "100%", TIME,
         "Percentage of the shape's load that is made."),
    SWITCH("align", NULL, "PODGPU_BURN_ALIGN", align, TIME,
           "Periods begin at multiples of their length in wall time, so that pods on many nodes go "
           "in step."),
    {"gpus", NULL, "PODGPU_BURN_GPUS", OPTION_LIST, AT(gpus), UNMARKED, NULL, 0, 0, WHERE,
     "GPUs by index or UUID with commas between, or all (the default).", false},
    NUMBER("procs", "PODGPU_BURN_PROCS", procs, "1", 1, BURN_PROCESSES_MAX, WHERE,
           "Processes on each GPU."),
    TEXT("cuda-library", "PODGPU_BURN_CUDA_LIBRARY", cuda_library, NULL, WHERE,
         "The driver's libcuda.so.1, where it is not found by itself."),
    SWITCH("list", "l", NULL, list, WHERE, "Print the GPUs that the driver shows, end."),
    SWITCH("json", NULL, "PODGPU_BURN_JSON", json, OUTPUT,
           "The line a second for each process as JSON."),
    TEXT("listen", "PODGPU_BURN_LISTEN", listen, NULL, OUTPUT,
         "Serve what is being done as Prometheus metrics at /metrics: host:port, :port or "
         "unix:/path."),
    SWITCH("debug", NULL, "PODGPU_BURN_DEBUG", debug, OUTPUT, "Log details, too."),
    TEXT_MARKED("m", NULL, memory_mib, memory_mib_given, "90%", GPU_BURN,
                "Memory in MiB, or N% of what is free."),
    SWITCH("d", NULL, NULL, doubles, GPU_BURN, "Double precision: --kind=fp64."),
    SWITCH("tc", NULL, NULL, tensor, GPU_BURN, "Tensor cores: --kind=fp16."),
    TEXT_MARKED("i", NULL, index, index_given, NULL, GPU_BURN, "Only this GPU: --gpus=N."),
    INERT("c", compare, compare_given, "The compare kernel's file: ours is built in."),
    INERT("stts", grace, grace_given, "Seconds between SIGTERM and SIGKILL: ours end at once."),
};

const struct option_table burn_option_table = {
    .program = "podgpu-burn",
    .summary = "Makes load of a known shape on GPUs and tells what it makes. Ends with 0; 1: a "
               "GPU gave wrong results; 2: no such GPU; 3: the driver failed; 64: bad usage.",
    .rows = rows,
    .count = ARRAY_SIZE(rows),
};
