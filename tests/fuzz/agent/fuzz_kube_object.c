// SPDX-License-Identifier: Apache-2.0
// A JSON object as an object of each kind, joined with itself as its pod, service and node: its
// targets have sorted labels with values, and the same object again is no news.
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "agent/discover_kube_store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct target_group *g)
{
    for (size_t i = 0; g && i < g->count; i++) {
        const struct labels *l = &g->targets[i];
        for (size_t k = 0; k < l->count; k++) {
            assert(l->items[k].name.len && l->items[k].value.len);
            assert(k == 0 || sv_compare(l->items[k - 1].name, l->items[k].name) < 0);
        }
    }
}

static void put(struct kube_store *s, enum kube_kind kind, const char *key,
                const struct json_node *object)
{
    int r = kube_store_put(s, kind, sv_from(key), object);
    assert(r == 0 || r == -EFBIG);
}

static void try_kind(enum kube_kind kind, const struct json_node *object)
{
    struct kube_store s;
    const char *source;
    struct target_group *g;
    int r;
    kube_store_init(&s, kind, true, kind == KUBE_KIND_ENDPOINTSLICE ? "n" : NULL);
    put(&s, kind, "a/b", object);
    put(&s, KUBE_KIND_POD, "a/b", object);
    put(&s, KUBE_KIND_SERVICE, "a/b", object);
    put(&s, KUBE_KIND_NODE, "n", object);
    while ((r = kube_store_next(&s, &source, &g)) != 0) {
        assert(r == 1 || r == -E2BIG);
        check(g);
        target_group_unref(g);
    }
    put(&s, kind, "a/b", object);
    put(&s, KUBE_KIND_NODE, "n", object);
    assert(!kube_store_has_news(&s));
    kube_store_remove(&s, KUBE_KIND_POD, SV("a/b"));
    kube_store_deinit(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json_document *d = NULL;
    if (json_parse((struct sv){(const char *)data, size}, "f", &d, NULL) < 0)
        return 0;
    for (unsigned kind = 0; kind < KUBE_KINDS; kind++)
        try_kind(kind, json_root(d));
    json_document_free(d);
    return 0;
}
