// SPDX-License-Identifier: Apache-2.0
// The objects of two pods, a NUL between them: what is shown of the second is fit for a page, and
// once both are deleted nothing is left.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "exporter/render.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds)
{
    if (!holds)
        abort();
}

struct told {
    char namespace_name[LIMIT_POD_KEY_BYTES], name[LIMIT_POD_KEY_BYTES];
};

// False: no pod.
static bool put(struct pod_metadata *m, struct sv text, struct told *out)
{
    struct json_document *d = NULL;
    struct arena arena = ARENA_INIT(LIMIT_POD_RECORD_BYTES);
    struct pod_record pod;
    if (json_parse(text, "pod", &d, NULL) < 0)
        return false;
    bool is_pod = pod_record_from_json(json_root(d), &arena, &pod) == 0 &&
                  pod.namespace_name.len + pod.name.len < LIMIT_POD_KEY_BYTES - 1;
    if (is_pod) {
        check(pod_metadata_put(m, POD_METADATA_API_SERVER, &pod) == 0);
        sv_copy(out->namespace_name, sizeof(out->namespace_name), pod.namespace_name);
        sv_copy(out->name, sizeof(out->name), pod.name);
    }
    arena_deinit(&arena);
    json_document_free(d);
    return is_pod;
}

static void check_entry(const struct exporter_options *o, const struct pod_metadata_entry *e)
{
    const char *at = e->text + strlen(e->text) + 1, *before = "";
    check(e->label_count <= LIMIT_POD_LABELS);
    check(e->text_bytes <= LIMIT_POD_LABELS_BYTES + 256);
    for (uint32_t i = 0; i < e->label_count; i++) {
        struct sv name = sv_from(at);
        check(text_is_label_name(name) && !render_label_is_built_in(o, name));
        check(!sv_starts_with(name, SV("__")) && strcmp(before, at) < 0);
        before = at;
        at += strlen(at) + 1;
        at += strlen(at) + 1;
    }
    check(at == e->text + e->text_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct exporter_options o = {.flags = {.pod_labels = true, .pod_uid = true}};
    struct sv text = {(const char *)data, size};
    size_t split = sv_find_char(text, '\0');
    struct pod_metadata *m = NULL;
    if (size == 0 || pod_metadata_new(&o, &m) < 0)
        return 0;
    struct told told[2];
    bool known[2] = {split != (size_t)-1 && put(m, sv_sub(text, 0, split), &told[0]), false};
    known[1] = put(m, split != (size_t)-1 ? sv_sub(text, split + 1, size) : text, &told[1]);
    for (size_t i = 0; i < ARRAY_SIZE(told); i++) {
        if (!known[i])
            continue;
        const struct pod_metadata_entry *e =
            pod_metadata_find(m, told[i].namespace_name, told[i].name);
        check(e != NULL);
        check_entry(&o, e);
    }
    pod_metadata_forget(m, POD_METADATA_API_SERVER);
    pod_metadata_prune(m, NULL);
    struct pod_metadata_stats stats;
    pod_metadata_get_stats(m, &stats);
    check(stats.pods == 0);
    pod_metadata_free(m);
    return 0;
}
