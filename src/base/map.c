// SPDX-License-Identifier: Apache-2.0
// Open addressing with linear probing and backward-shift removal, at most 3/4 full.
// Hash: SipHash-1-3 (Aumasson, Bernstein 2012) under a per-process key from getrandom; each map
// mixes a seed of its own in, so that copying one map into another in slot order does not pile its
// entries up.
#include "base/map.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"

#define FIRST_CAPACITY 16

struct map_slot {
    char *key; // NULL: free slot
    size_t key_len;
    uint64_t hash;
    void *value;
};

static uint64_t process_key[2];
static pthread_once_t process_key_once = PTHREAD_ONCE_INIT;

static void draw_process_key(void)
{
    // Early in boot the kernel may have no entropy; then time and addresses have to do.
    if (getrandom(process_key, sizeof(process_key), GRND_NONBLOCK) == (ssize_t)sizeof(process_key))
        return;
    process_key[0] = clock_wall_ns() ^ (uint64_t)(uintptr_t)&process_key;
    process_key[1] = clock_mono_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid();
}

static inline uint64_t rotate(uint64_t x, unsigned by)
{
    return x << by | x >> (64 - by);
}

struct sip {
    uint64_t v0, v1, v2, v3;
};

static inline void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v1 = rotate(s->v1, 13) ^ s->v0;
    s->v0 = rotate(s->v0, 32);
    s->v2 += s->v3;
    s->v3 = rotate(s->v3, 16) ^ s->v2;
    s->v0 += s->v3;
    s->v3 = rotate(s->v3, 21) ^ s->v0;
    s->v2 += s->v1;
    s->v1 = rotate(s->v1, 17) ^ s->v2;
    s->v2 = rotate(s->v2, 32);
}

static inline void sip_absorb(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    s->v0 ^= word;
}

uint64_t map_siphash13(uint64_t k0, uint64_t k1, struct sv key)
{
    struct sip s = {k0 ^ UINT64_C(0x736f6d6570736575), k1 ^ UINT64_C(0x646f72616e646f6d),
                    k0 ^ UINT64_C(0x6c7967656e657261), k1 ^ UINT64_C(0x7465646279746573)};
    const char *p = key.ptr;
    size_t left = key.len;
    for (; left >= 8; p += 8, left -= 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        sip_absorb(&s, word); // little-endian hosts only: amd64 and arm64
    }
    uint64_t last = (uint64_t)key.len << 56;
    for (size_t i = 0; i < left; i++)
        last |= (uint64_t)(unsigned char)p[i] << (8 * i);
    sip_absorb(&s, last);
    s.v2 ^= 0xff;
    for (int i = 0; i < 3; i++)
        sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

static uint64_t seeded_hash(struct sv key, uint64_t seed)
{
    (void)pthread_once(&process_key_once, draw_process_key);
    return map_siphash13(process_key[0], process_key[1] ^ seed, key);
}

uint64_t map_hash(struct sv key)
{
    return seeded_hash(key, 0);
}

void map_deinit(struct map *m)
{
    for (size_t i = 0; i < m->capacity; i++)
        free(m->slots[i].key);
    free(m->slots);
    *m = MAP_INIT(m->max);
}

// The slot that holds key, or the free one where it would go. The table is never full.
static struct map_slot *probe(const struct map *m, struct sv key, uint64_t hash)
{
    size_t mask = m->capacity - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct map_slot *slot = &m->slots[i];
        if (!slot->key ||
            (slot->hash == hash && sv_equals((struct sv){slot->key, slot->key_len}, key)))
            return slot;
    }
}

void *map_find(const struct map *m, struct sv key)
{
    if (!m->count)
        return NULL;
    struct map_slot *slot = probe(m, key, seeded_hash(key, m->seed));
    return slot->key ? slot->value : NULL;
}

static void place(struct map_slot *slots, size_t capacity, const struct map_slot *entry)
{
    size_t i = entry->hash & (capacity - 1);
    while (slots[i].key)
        i = (i + 1) & (capacity - 1);
    slots[i] = *entry;
}

static int grow(struct map *m)
{
    if (m->capacity > SIZE_MAX / 2)
        return -ENOMEM;
    size_t capacity = m->capacity ? m->capacity * 2 : FIRST_CAPACITY;
    struct map_slot *slots = calloc(capacity, sizeof(*slots));
    if (!slots)
        return -ENOMEM;
    for (size_t i = 0; i < m->capacity; i++) {
        if (m->slots[i].key)
            place(slots, capacity, &m->slots[i]);
    }
    if (!m->capacity)
        m->seed = (uint64_t)(uintptr_t)slots * UINT64_C(0x9e3779b97f4a7c15);
    free(m->slots);
    m->slots = slots;
    m->capacity = capacity;
    return 0;
}

static int add_new(struct map *m, struct sv key, void *value)
{
    if (m->count >= m->max)
        return -E2BIG;
    char *copy = sv_dup(key);
    if (!copy)
        return -ENOMEM;
    if (m->count + 1 > m->capacity - m->capacity / 4 && grow(m) < 0) {
        free(copy);
        return -ENOMEM;
    }
    uint64_t hash = seeded_hash(key, m->seed); // after grow: the first one draws the seed
    place(m->slots, m->capacity, &(struct map_slot){copy, key.len, hash, value});
    m->count++;
    return 0;
}

int map_put(struct map *m, struct sv key, void *value, void **out_old)
{
    struct map_slot *slot = m->count ? probe(m, key, seeded_hash(key, m->seed)) : NULL;
    void *old = NULL;
    if (slot && slot->key) {
        old = slot->value;
        slot->value = value;
    } else {
        int r = add_new(m, key, value);
        if (r < 0)
            return r;
    }
    if (out_old)
        *out_old = old;
    return 0;
}

void *map_remove(struct map *m, struct sv key)
{
    if (!m->count)
        return NULL;
    struct map_slot *slot = probe(m, key, seeded_hash(key, m->seed));
    if (!slot->key)
        return NULL;
    void *value = slot->value;
    free(slot->key);
    size_t mask = m->capacity - 1;
    size_t hole = (size_t)(slot - m->slots);
    // Moves back each following entry that may stand in the hole: its home is not between the hole
    // and itself.
    for (size_t i = (hole + 1) & mask; m->slots[i].key; i = (i + 1) & mask) {
        size_t from_home = (i - (m->slots[i].hash & mask)) & mask;
        if (from_home < ((i - hole) & mask))
            continue;
        m->slots[hole] = m->slots[i];
        hole = i;
    }
    m->slots[hole] = (struct map_slot){0};
    m->count--;
    return value;
}

bool map_next(const struct map *m, size_t *pos, struct sv *key, void **value)
{
    while (*pos < m->capacity) {
        const struct map_slot *slot = &m->slots[(*pos)++];
        if (!slot->key)
            continue;
        if (key)
            *key = (struct sv){slot->key, slot->key_len};
        if (value)
            *value = slot->value;
        return true;
    }
    return false;
}
