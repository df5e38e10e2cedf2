// SPDX-License-Identifier: Apache-2.0
// Blocks double from FIRST_BLOCK_BYTES to MOST_BLOCK_BYTES; a larger piece gets a block of its own.
// A piece is taken from the newest block only, so at most half of each block is lost.
#include "base/arena.h"

#include <errno.h>
#include <stdalign.h>
#include <stdlib.h>

#define FIRST_BLOCK_BYTES 4096
#define MOST_BLOCK_BYTES (256u << 10)

struct arena_block {
    struct arena_block *next;
    size_t bytes; // of data
    size_t used;
    alignas(max_align_t) char data[];
};

static void *fail(struct arena *a, int error)
{
    if (!a->error)
        a->error = error;
    return NULL;
}

static struct arena_block *add_block(struct arena *a, size_t bytes)
{
    size_t size = a->blocks ? a->blocks->bytes * 2 : FIRST_BLOCK_BYTES;
    if (size > MOST_BLOCK_BYTES)
        size = MOST_BLOCK_BYTES;
    if (size < bytes)
        size = bytes;
    if (size > a->max_bytes - a->total_bytes)
        return fail(a, -EFBIG);
    struct arena_block *b = malloc(sizeof(*b) + size);
    if (!b)
        return fail(a, -ENOMEM);
    *b = (struct arena_block){.next = a->blocks, .bytes = size};
    a->blocks = b;
    a->total_bytes += size;
    return b;
}

static void *take(struct arena *a, size_t bytes, size_t alignment)
{
    if (a->error)
        return NULL;
    if (bytes > a->max_bytes)
        return fail(a, -EFBIG);
    struct arena_block *b = a->blocks;
    size_t at = b ? (b->used + alignment - 1) / alignment * alignment : 0;
    if (!b || at > b->bytes || bytes > b->bytes - at) {
        b = add_block(a, bytes);
        at = 0;
    }
    if (!b)
        return NULL;
    b->used = at + bytes;
    return b->data + at;
}

void *arena_alloc(struct arena *a, size_t bytes)
{
    return take(a, bytes, alignof(max_align_t));
}

const char *arena_dup(struct arena *a, struct sv s)
{
    char *copy = s.len < (size_t)-1 ? take(a, s.len + 1, 1) : NULL;
    if (copy)
        sv_copy(copy, s.len + 1, s);
    return copy;
}

static void free_blocks_down_to(struct arena *a, const struct arena_block *last)
{
    while (a->blocks && a->blocks != last) {
        struct arena_block *b = a->blocks;
        a->blocks = b->next;
        a->total_bytes -= b->bytes;
        free(b);
    }
}

void arena_reset(struct arena *a)
{
    struct arena_block *oldest = a->blocks;
    while (oldest && oldest->next)
        oldest = oldest->next;
    free_blocks_down_to(a, oldest);
    if (oldest)
        oldest->used = 0;
    a->error = 0;
}

void arena_erase(struct arena *a)
{
    for (struct arena_block *b = a->blocks; b; b = b->next)
        explicit_bzero(b->data, b->bytes);
}

void arena_deinit(struct arena *a)
{
    free_blocks_down_to(a, NULL);
    a->error = 0;
}
