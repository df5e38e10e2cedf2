// SPDX-License-Identifier: Apache-2.0
// Every function of the driver library and the driver branch that brought it; generated from
// data/nvml-symbols.tsv.
#pragma once

#include <stddef.h>
#include <stdint.h>

struct sim_driver_symbol {
    const char *name;
    uint32_t branch; // 450: that or an older one
};
extern const struct sim_driver_symbol sim_driver_symbols[];
extern const size_t sim_driver_symbol_count;
