// SPDX-License-Identifier: Apache-2.0
#include "codec/gzip.h"

#include <errno.h>
#include <libdeflate.h>
#include <stdlib.h>

// The fastest level: pages are compressed while a scraper waits.
#define LEVEL 1

int gzip_compress(struct sv in, char **out_data, size_t *out_bytes)
{
    // A compressor per call, not a static one: calls may run in parallel.
    struct libdeflate_compressor *c = libdeflate_alloc_compressor(LEVEL);
    if (!c)
        return -ENOMEM;
    size_t bound = libdeflate_gzip_compress_bound(c, in.len);
    char *data = malloc(bound);
    size_t bytes =
        data ? libdeflate_gzip_compress(c, in.len ? in.ptr : "", in.len, data, bound) : 0;
    libdeflate_free_compressor(c);
    if (!bytes) {
        free(data);
        return -ENOMEM;
    }
    char *fitted = realloc(data, bytes);
    *out_data = fitted ? fitted : data;
    *out_bytes = bytes;
    return 0;
}
