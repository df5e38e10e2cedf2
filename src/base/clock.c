// SPDX-License-Identifier: Apache-2.0
#include "base/clock.h"

#include <stdlib.h>

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

uint64_t clock_backoff_ns(unsigned attempt, uint64_t least_ns, uint64_t most_ns)
{
    uint64_t wait_ns = least_ns;
    for (unsigned i = 0; i < attempt && wait_ns < most_ns; i++)
        wait_ns = wait_ns > most_ns / 2 ? most_ns : wait_ns * 2;
    return wait_ns < most_ns ? wait_ns : most_ns;
}

uint64_t clock_jitter_ns(uint64_t most_ns)
{
    uint64_t random;
    arc4random_buf(&random, sizeof(random));
    return most_ns < UINT64_MAX ? random % (most_ns + 1) : random;
}
