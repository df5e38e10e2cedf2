// SPDX-License-Identifier: Apache-2.0
// The objects of two pods of one name, a NUL between them: what is shown of the second is fit for a
// page, and nothing is left of the first.
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

static bool put(struct pod_metadata *m, struct sv text)
{
    struct json_document *d = NULL;
    if (json_parse(text, "pod", &d, NULL) < 0)
        return false;
    check(pod_metadata_put(m, SV("ns/p"), json_root(d)) == 0);
    json_document_free(d);
    return true;
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
    bool known = split != (size_t)-1 && put(m, sv_sub(text, 0, split));
    struct sv second = split != (size_t)-1 ? sv_sub(text, split + 1, size) : text;
    known = put(m, second) || known;
    const struct pod_metadata_entry *e = pod_metadata_find(m, "ns", "p");
    check(known == (e != NULL));
    if (e)
        check_entry(&o, e);
    pod_metadata_delete(m, SV("ns/p"));
    pod_metadata_prune(m, NULL);
    check(pod_metadata_find(m, "ns", "p") == NULL);
    pod_metadata_free(m);
    return 0;
}
