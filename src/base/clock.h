// SPDX-License-Identifier: Apache-2.0
// One monotonic time type for the whole tree: nanoseconds of CLOCK_MONOTONIC in a uint64_t, named
// *_ns. Wall time (nanoseconds since 1970) only at the edges, named *_wall_ns.
#pragma once

#include <stdint.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

uint64_t clock_mono_ns(void);
uint64_t clock_wall_ns(void);

// How long to wait before another try: least_ns after the first failure (attempt 0), twice that
// after the second ... at most most_ns.
uint64_t clock_backoff_ns(unsigned attempt, uint64_t least_ns, uint64_t most_ns);
// A random time from 0 to most_ns, so that those who failed together do not come back together.
uint64_t clock_jitter_ns(uint64_t most_ns);

static inline uint64_t clock_timespec_ns(struct timespec t)
{
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}
