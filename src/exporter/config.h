// SPDX-License-Identifier: Apache-2.0
// A whole, checked, immutable configuration: options, counters and collection periods. A reload builds a new one
// beside the old and swaps. References belong to the loop.
#pragma once

#include "base/error.h"
#include "exporter/counters.h"
#include "exporter/options.h"

struct exporter_config {
    unsigned refs;
    const struct exporter_options *options; // borrowed for the process's life
    struct counter_list counters;
    uint64_t period_ns[FIELD_CLASS_COUNT];
    char counters_file[4096]; // where the counters came from, for messages and watching
    char config_file[4096]; // "" without --config-file
    uint64_t hash; // of the files' bytes: a reload that changes nothing is told so
};

// Reads --config-file (YAML version 1 or 2 as dcgm-exporter 4.8.3/4.8.4 has them) and the counters file.
// 0, negative errno with *err.
int must_use exporter_config_load(const struct exporter_options *options, struct exporter_config **out,
                                  struct error *err);
struct exporter_config *exporter_config_ref(struct exporter_config *c);
void exporter_config_unref(struct exporter_config *c);
