// SPDX-License-Identifier: Apache-2.0
// Names of DCGM's health verdicts: the systems that dcgm-exporter shows, in its order, and the
// codes of what is wrong with one (dcgm_errors.h of DCGM 4.6). The codes are generated
// (script/make-catalogue) from data/dcgm-abi.tsv into health_table.c.
#pragma once

#include <stdint.h>

#include "base/macros.h"

struct health_system {
    uint32_t bit; // DCGM_HEALTH_WATCH_*; all ones: the GPU as a whole
    const char *name;
};

#define HEALTH_SYSTEMS 11

extern const struct health_system health_systems[HEALTH_SYSTEMS];
extern const char *const health_error_names[]; // by code, "DCGM_FR_OK" first
extern const size_t health_error_name_count;

// NULL past the table.
const char *health_error_name(uint32_t code);
