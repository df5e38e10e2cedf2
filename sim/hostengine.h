// SPDX-License-Identifier: Apache-2.0
// What a client and the simulated host engine say to each other first: one line each way, with the
// major of DCGM.
#pragma once

#include <stdint.h>

#define HOSTENGINE_HELLO "podgpu-sim-dcgm client "
#define HOSTENGINE_WELCOME "podgpu-sim-dcgm engine "

// Decimal digits at *text, which moves behind them; UINT32_MAX when there are none or too many.
static inline uint32_t hostengine_number(const char **text)
{
    uint64_t value = 0;
    const char *at = *text;
    while (*at >= '0' && *at <= '9' && value < UINT32_MAX)
        value = value * 10 + (uint64_t)(*at++ - '0');
    uint32_t out = at == *text || value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
    *text = at;
    return out;
}
