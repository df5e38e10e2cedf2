// SPDX-License-Identifier: Apache-2.0
#include "gpu/health.h"

// dcgm_structs.h, enum dcgmHealthSystems_enum.
const struct health_system health_systems[HEALTH_SYSTEMS] = {
    {1, "PCIE"},    {2, "NVLINK"},   {4, "PMU"},          {8, "MCU"},
    {16, "MEM"},    {32, "SM"},      {64, "INFOROM"},     {128, "THERMAL"},
    {256, "POWER"}, {512, "DRIVER"}, {UINT32_MAX, "ALL"},
};

const char *health_error_name(uint32_t code)
{
    return code < health_error_name_count ? health_error_names[code] : NULL;
}
