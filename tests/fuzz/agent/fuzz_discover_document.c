// SPDX-License-Identifier: Apache-2.0
// A first byte 'j' reads the rest as JSON, any other as YAML. Whatever is read: each target has an
// address (unless the document gave an empty one), what the caller adds is in all of them, and
// targets can be built of them or refused with a reason.
#include <assert.h>
#include <errno.h>
#include <stdint.h>

#include "agent/discover_document.h"
#include "agent/target.h"
#include "base/clock.h"
#include "base/limits.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_target(const struct labels *found)
{
    static char name[] = "j", path[] = "/metrics", scheme[] = "http";
    const struct prom_job job = {.name = name,
                                 .metrics_path = path,
                                 .scheme = scheme,
                                 .interval_ns = 60 * NS_PER_S,
                                 .timeout_ns = 10 * NS_PER_S};
    struct arena arena = ARENA_INIT(LIMIT_TARGET_BUILD_BYTES);
    struct target_spec spec;
    struct error err = ERROR_INIT;
    int r = target_build(&job, found, &arena, &spec, &err);
    assert(r == 0 || r == -E2BIG || (r == -EINVAL && err.text[0]));
    if (r == 0) {
        assert(spec.timeout_ns && spec.timeout_ns <= spec.interval_ns);
        assert(!labels_has(&spec.labels, SV("__meta_filepath")));
        assert(labels_has(&spec.labels, SV("instance")));
        assert(target_offset_ns(&spec, 1) < spec.interval_ns);
        bool http = sv_equals(labels_get(&spec.labels, SV("__scheme__")), SV("http"));
        for (const char *c = spec.url; http && *c; c++)
            assert((unsigned char)*c > ' ' && *c != 0x7f);
    }
    arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct label extra = {SV("__meta_filepath"), SV("/f")};
    struct target_group *g = NULL;
    struct error err = ERROR_INIT;
    if (size == 0)
        return 0;
    struct sv text = {(const char *)data + 1, size - 1};
    int r = data[0] == 'j' ? discover_document_read_json(text, "f", &extra, &g, &err)
                           : discover_document_read_yaml(text, "f", &extra, &g, &err);
    if (r < 0) {
        assert(!g && err.text[0] && (r == -EINVAL || r == -EFBIG));
        return 0;
    }
    assert(g->count <= LIMIT_SD_TARGETS && g->count <= g->capacity);
    for (size_t i = 0; i < g->count; i++) {
        assert(sv_equals(labels_get(&g->targets[i], extra.name), extra.value));
        check_target(&g->targets[i]);
    }
    target_group_unref(g);
    return 0;
}
