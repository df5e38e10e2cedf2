// SPDX-License-Identifier: Apache-2.0
// Device selection: the -d, -s and -p values of dcgm-exporter and which entities they choose.
// Grammar: `f`, or `g[:list]`, `i[:list]`, or both joined by `+`; list = item{,item}, item = n |
// a-b (inclusive).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/sv.h"

#define SELECTION_MAX_IDS 4096

struct selection {
    bool flexible;  // f: instances of a GPU if it has any, else the GPU
    bool gpus;      // g given
    bool instances; // i given
    bool all_gpus;  // g without a list
    bool all_instances;
    uint32_t *gpu_ids; // ascending, each once; owned
    size_t gpu_count;
    uint32_t *instance_ids; // DCGM GPU_I entity ids
    size_t instance_count;
};

void selection_deinit(struct selection *s);
// 0, -EINVAL with *err (what was found, what is expected), -ENOMEM.
int must_use selection_parse(struct sv text, struct selection *out, struct error *err);

// One device as selection sees it, in entity order: a GPU, then its instances.
struct selection_device {
    bool is_instance;
    uint32_t id;   // GPU index, or DCGM GPU_I entity id
    size_t parent; // instance: position of its GPU in the list
};

// Writes positions of the chosen devices in output order (f: in list order; g and i: GPUs first,
// then instances). chosen must have room for count entries. 0 and *out_count; -ENODEV with *err
// when an id that was asked for is not there ("couldn't find requested GPU ID '7'"): then nothing
// is chosen.
int must_use selection_apply(const struct selection *s, const struct selection_device *devices,
                             size_t count, size_t *chosen, size_t *out_count, struct error *err);
