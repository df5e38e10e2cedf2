// SPDX-License-Identifier: Apache-2.0
// Attributes and ownership helpers used in every room.
#pragma once

#include <stddef.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

// The value must be looked at by the caller: every fallible function carries it.
#define must_use __attribute__((warn_unused_result))
#define maybe_unused __attribute__((unused))
#define format_printf(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))

// cleanup(fn) runs fn(&variable) when the variable leaves its scope.
#define cleanup(fn) __attribute__((cleanup(fn)))

// DEFINE_CLEANUP(struct foo *, foo_free) makes foo_freep for use with cleanup().
#define DEFINE_CLEANUP(type, fn)                                                                   \
    static inline maybe_unused void fn##p(type *p)                                                 \
    {                                                                                              \
        if (*p)                                                                                    \
            fn(*p);                                                                                \
    }                                                                                              \
    struct allow_semicolon_##fn

// Hands ownership over: yields the pointer and empties the variable.
#define TAKE_PTR(p)                                                                                \
    ({                                                                                             \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

// The same for a file descriptor; -1 means none.
#define TAKE_FD(fd)                                                                                \
    ({                                                                                             \
        int taken_ = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        taken_;                                                                                    \
    })

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

// For cleanup(): closes a descriptor unless it is -1.
static inline maybe_unused void fd_closep(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

void mem_freep(void *p); // for cleanup() on any heap pointer
