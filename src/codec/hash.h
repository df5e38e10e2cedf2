// SPDX-License-Identifier: Apache-2.0
// Hashes of pure libraries: seeded 128-bit XXH3 for our tables, MD5 for relabelling's hashmod.
#pragma once

#include <stdint.h>

#include "base/sv.h"

struct hash128 {
    uint64_t low, high;
};

struct hash128 hash_128(struct sv bytes, uint64_t seed);
uint64_t hash_seed(void);                  // of this process, from the kernel
uint64_t hash_md5_last64(struct sv bytes); // the last 8 bytes of the MD5, big-endian
