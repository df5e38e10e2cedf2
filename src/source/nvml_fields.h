// SPDX-License-Identifier: Apache-2.0
// Recipes: for each DCGM field that NVML can give, the call behind it, which of its numbers is
// meant and how that becomes the number DCGM publishes. One call serves all watched fields that
// come from it.
#pragma once

#include <stdint.h>

#include "gpu/catalogue.h"
#include "gpu/frame.h"
#include "source/nvml_devices.h"

enum nvml_getter {
    GETTER_SYSTEM,   // read once after nvmlInit
    GETTER_IDENTITY, // of the entity's record; arg: 0 name, 1 CUDA_VISIBLE_DEVICES, 2 bus id
    GETTER_BRAND,
    GETTER_SERIAL,
    GETTER_PCI,
    GETTER_COMPUTE_CAPABILITY,
    GETTER_COMPUTE_MODE,
    GETTER_PERSISTENCE_MODE,
    GETTER_CPU_AFFINITY,
    GETTER_MEMORY_AFFINITY,
    GETTER_CONFIDENTIAL_COMPUTE,
    GETTER_INFOROM_VERSION, // arg: NVML_INFOROM_*
    GETTER_INFOROM_IMAGE,
    GETTER_INFOROM_CHECKSUM,
    GETTER_INFOROM_VALID,
    GETTER_VBIOS,
    GETTER_BAR1,
    GETTER_MEMORY,
    GETTER_CLOCK, // arg: NVML_CLOCK_*
    GETTER_MAX_CLOCK,
    GETTER_APPLICATION_CLOCK,
    GETTER_AUTO_BOOST,
    GETTER_CLOCK_REASONS,
    GETTER_TEMPERATURE,
    GETTER_TEMPERATURE_THRESHOLD, // arg: NVML_TEMPERATURE_THRESHOLD_*
    GETTER_TEMPERATURE_MARGIN,
    GETTER_POWER,
    GETTER_POWER_LIMIT,
    GETTER_POWER_LIMIT_RANGE,
    GETTER_POWER_LIMIT_DEFAULT,
    GETTER_POWER_LIMIT_ENFORCED,
    GETTER_FABRIC,
    GETTER_PERFORMANCE_STATE,
    GETTER_FAN,
    GETTER_PCIE_REPLAY,
    GETTER_PCIE_LINK, // arg: 0 max generation, 1 max width, 2 generation, 3 width
    GETTER_UTILIZATION,
    GETTER_ENCODER,
    GETTER_DECODER,
    GETTER_ECC_COUNTER, // arg: error type | counter type << 1 | location << 2
    GETTER_SRAM_ECC,
    GETTER_ROW_REMAP_HISTOGRAM,
    GETTER_RETIRED_PAGES,
    GETTER_UNREPAIRABLE_MEMORY,
    GETTER_NVLINK_ERRORS, // arg: link | counter << 8
    GETTER_VIRTUALIZATION_MODE,
    GETTER_VGPU_LICENSE,
    GETTER_PLATFORM,
    GETTER_CALL_COUNT,                      // all above have a function in nvml_getters.c
    GETTER_FIELD_VALUE = GETTER_CALL_COUNT, // arg: NVML_FI_*; pick: enum nvml_expect
    GETTER_NVLINK_RATE, // arg: link or NVML_ARG_ALL_LINKS; pick: enum nvml_nvlink_direction
    GETTER_GPM,         // arg: NVML_GPM_METRIC_*
    GETTER_XID,
};

#define NVML_ARG_ALL_LINKS 0xffff

enum nvml_convert {
    CONVERT_I64,         // the number as it is
    CONVERT_MIB,         // bytes to MiB, floor
    CONVERT_WATTS,       // mW to W
    CONVERT_WHOLE_WATTS, // mW to W, integer division as DCGM does for limits
    CONVERT_CELSIUS,     // over 200 is garbage
    CONVERT_HERTZ,       // MHz to Hz
    CONVERT_JOULES,      // mJ to J
    CONVERT_PERCENT_TO_RATIO,
    CONVERT_BER,  // packed bit error rate
    CONVERT_REAL, // the reading's double
    CONVERT_TEXT,
    // GPM metrics
    CONVERT_GPM_RATIO, // percent to 0..1
    CONVERT_GPM_BYTES, // MiB/s to bytes/s, truncated
    CONVERT_GPM_COUNT, // truncated
};

// What a field value holds when the driver calls it a double.
enum nvml_expect {
    EXPECT_U32,   // that is a mistake
    EXPECT_U64,   // that is a mistake
    EXPECT_TYPED, // then it is one
};

struct nvml_recipe {
    uint16_t field; // DCGM field id
    uint16_t arg;
    uint8_t getter;   // enum nvml_getter
    uint8_t pick;     // which number or text of the reading
    uint8_t convert;  // enum nvml_convert
    uint8_t cost;     // enum field_class, as in the catalogue
    uint8_t instance; // 1: each MIG instance has its own
};

extern const struct nvml_recipe nvml_recipe_table[]; // ascending by field
extern const uint32_t nvml_recipe_count;

const struct nvml_recipe *nvml_recipe_find(uint16_t field); // NULL: NVML has no such number

// Once after nvmlInit.
struct nvml_system {
    char driver_version[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
    char library_version[NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE];
    nvmlReturn_t cuda_result;
    int cuda_version;
};
void nvml_system_read(struct nvml *n, struct nvml_system *s);

#define NVML_READING_NUMBERS 5
#define NVML_READING_TEXT_BYTES 128

// What one call gave.
struct nvml_reading {
    nvmlReturn_t result;
    uint8_t status[NVML_READING_NUMBERS];  // enum frame_status of each number, FRAME_OK when the
                                           // call gave it
    uint64_t number[NVML_READING_NUMBERS]; // signed ones in two's complement
    double real;
    char text[2][NVML_READING_TEXT_BYTES];
};

struct nvml_getter_context {
    struct nvml *n;
    const struct nvml_system *system;
    const struct nvml_entity *entity;
    uint32_t gpus; // in the machine
};

// Makes the call of a getter below GETTER_CALL_COUNT. *out is zeroed first.
void nvml_get(const struct nvml_getter_context *c, enum nvml_getter getter, uint16_t arg,
              struct nvml_reading *out);

// A number that is ready to be sent.
struct nvml_output {
    enum frame_status status;
    enum frame_value_type type;
    int64_t i64; // FRAME_VENDOR_ERROR: the code
    double f64;
    struct sv text; // borrowed from the reading
};
void nvml_convert(const struct nvml_recipe *recipe, const struct nvml_reading *reading,
                  struct nvml_output *out);
// What a return code means for one field of one entity.
enum frame_status nvml_status_of(nvmlReturn_t result);
// True for a status that stays as it is until the GPUs are enumerated again: the call need not be
// made.
bool nvml_status_is_final(enum frame_status status);
// DCGM's value of a packed bit error rate: bits 0-7 exponent, 8-11 mantissa; mantissa x
// 10^-exponent.
double nvml_unpack_ber(uint64_t packed);
