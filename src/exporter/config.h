// SPDX-License-Identifier: Apache-2.0
// A whole, checked, immutable configuration: options, counters and collection periods. A reload
// builds a new one beside the old and swaps. References belong to the loop.
#pragma once

#include "base/error.h"
#include "exporter/counters.h"
#include "exporter/options.h"

struct exporter_config {
    unsigned refs;
    const struct exporter_options *options; // borrowed for the process's life
    struct counter_list counters;
    uint64_t period_ns[FIELD_CLASS_COUNT];
    bool exporter_metrics;    // --enable-exporter-metrics or the YAML file's setting
    char counters_file[4096]; // where the counters came from, for messages and watching (the YAML
                              // file for inline ones)
    char config_file[4096];   // "" without --config-file
    size_t counters_bytes;    // size of that file
    uint64_t hash;            // of the files' bytes: a reload that changes nothing is told so
};

// Reads --config-file (YAML version 1 or 2 as dcgm-exporter 4.8.3/4.8.4 has them) and the counters
// file. Flags and variables that are given override the YAML file, as there: --collectors its
// metrics, --collect-interval its default period. Periods: fast = the interval, medium and slow the
// same but at least 10 s and 30 s, static 10 minutes. A watch group (version 1) or collection
// (version 2) sets the period of its fields; as fields of one cost class share a period, the class
// gets the shortest one that any of its fields asks for: none is sampled less often than its group
// says. 0, negative errno with *err (file:line:column, for an unknown key the nearest one).
int must_use exporter_config_load(const struct exporter_options *options,
                                  struct exporter_config **out, struct error *err);
// The same, and tells in *tried which files it looked at, also on failure ("": none): so that their
// repair can be waited for.
struct exporter_config_files {
    char counters[4096];
    char config[4096];
};
int must_use exporter_config_try(const struct exporter_options *options,
                                 struct exporter_config_files *tried, struct exporter_config **out,
                                 struct error *err);
struct exporter_config *exporter_config_ref(struct exporter_config *c);
void exporter_config_unref(struct exporter_config *c); // NULL is fine
