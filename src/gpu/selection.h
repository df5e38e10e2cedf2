// SPDX-License-Identifier: Apache-2.0
// Device selection: the -d, -s and -p values of dcgm-exporter and which entities they choose.
// Grammar: `f`, or `g[:list]`, `i[:list]`, or both joined by `+`; list = item{,item}, item = n |
// a-b (inclusive). -d: g are GPUs, i instances. -s: g are switches, i links of chosen switches. -p:
// g are CPUs, i cores of chosen CPUs. Links of GPUs go with -d.
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
    // The first range that ends before it begins, and so selects nothing.
    bool has_reversed;
    uint32_t reversed_from, reversed_to;
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
// Whether -d chooses links of that GPU: f and g do, i alone chooses none.
bool selection_has_gpu_links(const struct selection *s, uint32_t gpu);

// A switch or a CPU, or a part of one: a link, a core.
struct selection_part {
    bool is_part;
    uint32_t id;  // entity id of the switch or CPU; number of the link at its switch, of the core
    size_t owner; // position of its switch or CPU in the list, before it; its own for those
};
enum selection_kind {
    SELECTION_SWITCHES, // -s
    SELECTION_CPUS,     // -p
};
#define SELECTION_MISSING_BYTES 64
// What was asked for and is not there; "" each. A missing owner leaves neither owners nor parts, a
// missing core no cores. A missing link leaves the others: only links that are up are listed.
struct selection_missing {
    char owner[SELECTION_MISSING_BYTES]; // "couldn't find requested NvSwitch ID '7'"
    char part[SELECTION_MISSING_BYTES];  // "couldn't find requested NvLink '7'"
};
// Says of each of count whether it is chosen.
void selection_apply_parts(const struct selection *s, enum selection_kind kind,
                           const struct selection_part *parts, size_t count, bool *chosen,
                           struct selection_missing *out_missing);
