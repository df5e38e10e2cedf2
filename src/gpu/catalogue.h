// SPDX-License-Identifier: Apache-2.0
// The field catalogue: every field id and name of NVIDIA DCGM up to 4.6 with its aliases, type and
// level, and what podgpu knows of where its value comes from. The rows are generated
// (script/make-catalogue) from data/dcgm-fields.tsv into catalogue_table.c; ids are NVIDIA's public
// field ids and never move.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/sv.h"

enum field_type {
    FIELD_I64,
    FIELD_DOUBLE,
    FIELD_STRING,
    FIELD_BINARY,
};

// Lowest entity at which the field has a value of its own (DCGM's entityLevel).
enum field_level {
    FIELD_LEVEL_NONE, // global
    FIELD_LEVEL_GPU,
    FIELD_LEVEL_VGPU,
    FIELD_LEVEL_SWITCH,
    FIELD_LEVEL_GPU_I,
    FIELD_LEVEL_GPU_CI,
    FIELD_LEVEL_LINK,
    FIELD_LEVEL_CPU,
    FIELD_LEVEL_CPU_CORE,
    FIELD_LEVEL_CONNECTX,
};

// How the NVML source gets it.
enum field_origin {
    FIELD_ORIGIN_NONE,        // NVML has no such number (DCGM may)
    FIELD_ORIGIN_CALL,        // a function of its own
    FIELD_ORIGIN_FIELD_VALUE, // nvmlDeviceGetFieldValues
    FIELD_ORIGIN_GPM,         // GPU performance monitoring, Hopper and later
    FIELD_ORIGIN_EVENT,       // XID events
};

// How often it is worth asking: the cost class of the call behind it.
enum field_class {
    FIELD_CLASS_FAST,   // 1 s
    FIELD_CLASS_MEDIUM, // 10 s
    FIELD_CLASS_SLOW,   // 30 s
    FIELD_CLASS_STATIC, // once per enumeration, refreshed every 10 minutes
    FIELD_CLASS_COUNT,
};

struct field_info {
    uint16_t id;
    uint16_t nvml_field_id; // NVML_FI_*, 0: none
    uint16_t gpm_metric_id; // NVML_GPM_METRIC_*, 0: none
    uint8_t type;           // enum field_type
    uint8_t level;          // enum field_level
    uint8_t origin;         // enum field_origin
    uint8_t cost;           // enum field_class
    const char *name;       // the name that counters files use most: DCGM_FI_* of DCGM 4.5
};

// One accepted spelling. Aliases, old and 4.6 names and the lower-case 1.x names are all rows.
struct field_name {
    const char *name;
    uint16_t id;
};

extern const struct field_info field_table[]; // ascending by id
extern const size_t field_table_count;
extern const struct field_name field_name_table[]; // ascending by name (strcmp)
extern const size_t field_name_table_count;

// From here on: dcgm-exporter's own counters; they are in the table too, typed FIELD_I64.
#define FIELD_EXP_FIRST 9001
#define FIELD_EXP_XID_COUNT 9001
#define FIELD_EXP_CLOCK_COUNT 9002
#define FIELD_EXP_HEALTH 9003
#define FIELD_EXP_P2P 9004
#define FIELD_EXP_CLOCK_TOTAL 9005
#define FIELD_EXP_XID_TOTAL 9006

#define FIELD_GPU_UTIL 203
#define FIELD_XID_ERRORS 230
#define FIELD_FB_USED 252
#define FIELD_PROF_GR_ENGINE_ACTIVE 1001
#define FIELD_CLOCKS_EVENT_REASONS 112
#define FIELD_RECOVERY_ACTION 1523

// NULL when unknown. Static storage.
const struct field_info *field_find(uint16_t id);
const struct field_info *field_find_by_name(struct sv name);
// The known spelling closest to name, or NULL when none is near (for "did you mean").
const char *field_nearest_name(struct sv name);
