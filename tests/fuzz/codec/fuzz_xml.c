// SPDX-License-Identifier: Apache-2.0
// Any bytes either become a tree within the caps, whose names are names and whose texts end in a
// NUL, or are refused with a reason; no document with a type declaration becomes one.
#include <assert.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/macros.h"
#include "codec/xml.h"

// Walks without recursion; counts elements.
static size_t walk(const struct xml_node *root)
{
    const struct xml_node *path[LIMIT_XML_DEPTH];
    size_t depth = 0, count = 0;
    const struct xml_node *n = root;
    while (n) {
        count++;
        assert(n->name.len > 0 && n->name.ptr[n->name.len] == '\0');
        assert(n->text.ptr[n->text.len] == '\0' && sv_is_utf8(n->text));
        if (n->first) {
            assert(depth < LIMIT_XML_DEPTH - 1);
            path[depth++] = n;
            n = n->first;
            continue;
        }
        while (n && !n->next)
            n = depth > 0 ? path[--depth] : NULL;
        n = n ? n->next : NULL;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv text = {(const char *)data, size};
    struct xml_document *d = NULL;
    struct error err = ERROR_INIT;
    int r = xml_parse(text, &d, &err);
    assert((r == 0) == (d != NULL));
    assert(r == 0 || err.text[0]);
    if (d) {
        assert(!xml_root(d)->next && walk(xml_root(d)) <= LIMIT_XML_ELEMENTS);
        (void)xml_text(xml_root(d), "a");
    }
    xml_document_free(d);
    return 0;
}
