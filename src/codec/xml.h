// SPDX-License-Identifier: Apache-2.0
// XML answers of web services, read into a tree (expat; our caps on bytes, depth and elements).
// Elements and their text alone: attributes, comments and processing instructions are left out. A
// document type declaration is refused, so there are no entities but the five that XML itself has.
// Always UTF-8, whatever the document says. An engine: bytes come in as arguments.
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/sv.h"

struct xml_node {
    struct sv name;               // as written, prefix included
    struct sv text;               // NUL-terminated; of itself, its children's not among it
    const struct xml_node *first; // children in order
    const struct xml_node *next;
};

struct xml_document;
// 0; -EINVAL with *err (line and column; no text of the document, which may be secret), -EFBIG,
// -ENOMEM. A byte order mark is accepted; UTF-16 is not.
int must_use xml_parse(struct sv text, struct xml_document **out, struct error *err);
const struct xml_node *xml_root(const struct xml_document *d);
void xml_document_free(struct xml_document *d); // erases what it held

// The first child of that name; NULL when absent or n is NULL.
const struct xml_node *xml_find(const struct xml_node *n, const char *name);
struct sv xml_text(const struct xml_node *n, const char *name); // of that child; .len 0 when absent
