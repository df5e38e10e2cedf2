// SPDX-License-Identifier: Apache-2.0
// YAML into a small node tree with positions (libyaml's events; our caps on bytes, depth and
// aliases). Duplicate keys are refused. Scalars stay text: the reader of a key decides its type.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/sv.h"

enum yaml_kind {
    YAML_SCALAR,
    YAML_SEQUENCE,
    YAML_MAPPING,
};

struct yaml_node {
    enum yaml_kind kind;
    unsigned line, column; // of the value; 1-based, the column in characters
    bool quoted;           // scalar was quoted or a block
    struct sv key;         // inside a mapping; NUL-terminated
    unsigned key_line, key_column;
    struct sv scalar;              // NUL-terminated, without NUL inside
    const struct yaml_node *first; // children in order
    const struct yaml_node *next;  // sibling
    size_t count;                  // children
};

struct yaml_document;
// file is for messages. An empty document gives an empty mapping. An alias is a node of its own
// that shares its anchor's children; LIMIT_CONFIG_NODES and LIMIT_CONFIG_DEPTH hold for the
// expanded tree. Merge keys ("<<") are not merged. 0, -EINVAL or -EFBIG with *err (position),
// -ENOMEM.
int must_use yaml_parse(struct sv text, const char *file, struct yaml_document **out,
                        struct error *err);
const struct yaml_node *yaml_root(const struct yaml_document *d);
void yaml_document_free(struct yaml_document *d);
void yaml_document_erase(struct yaml_document *d); // the same, and no text of it stays in memory

const struct yaml_node *yaml_find(const struct yaml_node *mapping,
                                  const char *key); // NULL when absent
bool yaml_is_null(const struct yaml_node *n);       // absent, empty plain scalar, ~, null
// Typed reads; -EINVAL with *err at the node's position ("expected a boolean, found 'maybe'").
// Booleans are the words Go's YAML takes for one (true yes on, false no off; lower, Capital or
// UPPER case), unquoted.
int must_use yaml_read_bool(const struct yaml_node *n, const char *file, bool *out,
                            struct error *err);
int must_use yaml_read_i64(const struct yaml_node *n, const char *file, int64_t min, int64_t max,
                           int64_t *out, struct error *err);
// Any scalar as text; it lives as long as the document.
int must_use yaml_read_text(const struct yaml_node *n, const char *file, struct sv *out,
                            struct error *err);
// 0 when n is of that kind; a null reads as an empty sequence or mapping.
int must_use yaml_expect(const struct yaml_node *n, enum yaml_kind kind, const char *file,
                         struct error *err);
// Every key of the mapping must be in known (NULL-ended): else -EINVAL, the key, its position and
// the nearest. -EINVAL too when it is no mapping; a null or absent one has no keys.
int must_use yaml_check_keys(const struct yaml_node *mapping, const char *file,
                             const char *const *known, struct error *err);
