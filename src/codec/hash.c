// SPDX-License-Identifier: Apache-2.0
#include "codec/hash.h"

#include <assert.h>
#include <gnutls/crypto.h>

#include "base/map.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

struct hash128 hash_128(struct sv bytes, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(bytes.ptr, bytes.len, seed);
    return (struct hash128){.low = h.low64, .high = h.high64};
}

uint64_t hash_seed(void)
{
    return map_hash(SV("hash_128")); // the process key is the kernel's
}

uint64_t hash_md5_last64(struct sv bytes)
{
    unsigned char digest[16] = {0};
    // Spreading targets over shards is no use of cryptography, so MD5 is fine where FIPS 140
    // forbids it otherwise.
    GNUTLS_FIPS140_SET_LAX_MODE();
    int r = gnutls_hash_fast(GNUTLS_DIG_MD5, bytes.len ? bytes.ptr : "", bytes.len, digest);
    GNUTLS_FIPS140_SET_STRICT_MODE();
    assert(r == 0);
    uint64_t last = 0;
    for (int i = 8; i < 16; i++)
        last = last << 8 | digest[i];
    return last;
}
