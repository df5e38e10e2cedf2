// SPDX-License-Identifier: Apache-2.0
// Makes each allocation of a run of work fail once. Link with allocation_sweep_args
// (tests/unit/base/meson.build); include from one file of a test.
#pragma once

#include <stdbool.h>
#include <stddef.h>

// volatile: the compiler takes malloc for a function that changes no variable of ours.
static volatile unsigned allocation_until_failure; // 0: none fails
static volatile bool allocation_failed;
static volatile unsigned allocation_count; // all since start, those that failed too

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__real_reallocarray(void *p, size_t count, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);
void *__wrap_reallocarray(void *p, size_t count, size_t bytes);

static bool allocation_fails_now(void)
{
    allocation_count = allocation_count + 1;
    if (!allocation_until_failure)
        return false;
    unsigned left = allocation_until_failure - 1;
    allocation_until_failure = left;
    allocation_failed = allocation_failed || left == 0;
    return left == 0;
}

void *__wrap_malloc(size_t bytes)
{
    return allocation_fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return allocation_fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    return allocation_fails_now() ? NULL : __real_realloc(p, bytes);
}

void *__wrap_reallocarray(void *p, size_t count, size_t bytes)
{
    return allocation_fails_now() ? NULL : __real_reallocarray(p, count, bytes);
}

// Runs work with the first, second, ... allocation failing until a run needs fewer. Returns how
// many it needs.
static inline unsigned allocation_sweep(void (*work)(void))
{
    unsigned n = 0;
    do {
        allocation_failed = false;
        allocation_until_failure = ++n;
        work();
        allocation_until_failure = 0;
    } while (allocation_failed);
    return n - 1;
}
