// SPDX-License-Identifier: Apache-2.0
// Makes each allocation of a run of work fail once. Link with
// -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,
// --wrap=reallocarray; include from one file of a test.
#pragma once

#include <stdbool.h>
#include <stddef.h>

static unsigned allocation_until_failure; // 0: none fails
static bool allocation_failed;

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
    if (!allocation_until_failure || --allocation_until_failure)
        return false;
    allocation_failed = true;
    return true;
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
static unsigned allocation_sweep(void (*work)(void))
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
