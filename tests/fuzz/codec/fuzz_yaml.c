// SPDX-License-Identifier: Apache-2.0
// Any bytes either become a tree within the caps or are refused with a reason.
#include <assert.h>
#include <stdlib.h>

#include "base/limits.h"
#include "codec/yaml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// Reads all of the expanded tree, at most LIMIT_CONFIG_DEPTH deep by contract.
static size_t walk(const struct yaml_node *n, unsigned depth)
{
    static const char *const known[] = {"version", "metrics", NULL};
    bool truth;
    int64_t number;
    struct sv text;
    size_t seen = 1, count = 0;
    assert(depth <= LIMIT_CONFIG_DEPTH + 1);
    (void)!yaml_read_bool(n, "f", &truth, NULL);
    (void)!yaml_read_i64(n, "f", INT64_MIN, INT64_MAX, &number, NULL);
    (void)!yaml_read_text(n, "f", &text, NULL);
    (void)!yaml_check_keys(n, "f", known, NULL);
    assert(!n->scalar.len || n->scalar.ptr[n->scalar.len] == '\0');
    for (const struct yaml_node *c = n->first; c; c = c->next, count++)
        seen += walk(c, depth + 1);
    assert(count == n->count);
    return seen;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct yaml_document *d = NULL;
    struct error err = ERROR_INIT;
    if (yaml_parse((struct sv){(const char *)data, size}, "f", &d, &err) < 0) {
        assert(!d && err.text[0]);
        return 0;
    }
    size_t seen = walk(yaml_root(d), 1);
    assert(seen <= LIMIT_CONFIG_NODES + 1);
    yaml_document_free(d);
    return 0;
}
