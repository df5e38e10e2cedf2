// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

static uint64_t read_clock(clockid_t id)
{
    struct timespec t = {0};
    (void)clock_gettime(id, &t); // cannot fail for these two clocks
    return clock_timespec_ns(t);
}

uint64_t clock_mono_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}
