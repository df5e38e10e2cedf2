// SPDX-License-Identifier: Apache-2.0
// Memory that is freed all at once: pieces are cut off growing blocks. Bounded; the first failure
// sticks.
#pragma once

#include <stddef.h>

#include "base/macros.h"
#include "base/sv.h"

struct arena_block;
struct arena {
    struct arena_block *blocks; // newest first
    size_t total_bytes;         // of all blocks
    size_t max_bytes;           // ceiling of total_bytes
    int error;                  // -ENOMEM, -EFBIG (ceiling), else 0
};

#define ARENA_INIT(max) ((struct arena){.max_bytes = (max)})

// Aligned for any object; NULL when it fails.
void *arena_alloc(struct arena *a, size_t bytes);
// NUL-terminated copy, unaligned; NULL when it fails.
const char *arena_dup(struct arena *a, struct sv s);
// Empties it and forgets the error; the oldest block stays for the next use.
void arena_reset(struct arena *a);
// Overwrites what it holds, which stays allocated: before arena_deinit, for secrets.
void arena_erase(struct arena *a);
void arena_deinit(struct arena *a);
