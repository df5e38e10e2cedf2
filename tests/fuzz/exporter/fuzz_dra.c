// SPDX-License-Identifier: Apache-2.0
// Any JSON objects, one a line, as ResourceSlices that come and go; any names as devices. The
// ceilings hold, whatever was put is gone when all is deleted, and nothing is told of a device but
// by the rules of its kind.
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/limits.h"
#include "exporter/dra.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define KEYS 4

static const char *const keys[KEYS] = {"a", "b", "c", "d"};

static void check_device(struct dra *d, struct sv name)
{
    struct dra_device out;
    assert(!dra_find(d, SV("other.example.com"), SV("p"), name, &out));
    if (!dra_find(d, SV(DRA_DRIVER), SV("p"), name, &out))
        return;
    assert(out.uuid && out.parent_uuid && out.profile);
    assert(!out.guessed || out.uuid[0] == '\0');
    assert(!out.guessed || out.minor != UINT32_MAX);
    assert(out.kind == DRA_MIG || (out.parent_uuid[0] == '\0' && out.profile[0] == '\0'));
    assert((out.profile_id == UINT32_MAX) == (out.placement == UINT32_MAX));
}

static void put(struct dra *d, const char *key, struct sv line)
{
    struct json_document *doc = NULL;
    struct dra_stats before, after;
    uint64_t version = dra_version(d);
    dra_get_stats(d, &before);
    if (json_parse(line, "slice", &doc, NULL) < 0) {
        dra_delete(d, sv_from(key));
        return;
    }
    int r = dra_put(d, sv_from(key), json_root(doc));
    dra_get_stats(d, &after);
    assert(r == 0 || (r == -EBADMSG && after.skipped > before.skipped));
    assert(after.slices <= KEYS && after.devices <= LIMIT_DRA_DEVICES);
    // The same once more changes nothing.
    version = dra_version(d);
    assert(dra_put(d, sv_from(key), json_root(doc)) == r);
    assert(dra_version(d) == version);
    json_document_free(doc);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv rest = {(const char *)data, size}, line;
    struct dra *d;
    struct dra_stats s;
    if (dra_new(&d) < 0)
        abort();
    for (size_t n = 0; n < 64 && sv_next(&rest, '\n', &line); n++) {
        put(d, keys[n % KEYS], line);
        check_device(d, line);
        check_device(d, SV("gpu-0"));
    }
    for (size_t i = 0; i < KEYS; i++)
        dra_delete(d, sv_from(keys[i]));
    dra_get_stats(d, &s);
    assert(s.slices == 0 && s.devices == 0);
    dra_free(d);
    return 0;
}
