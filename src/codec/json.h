// SPDX-License-Identifier: Apache-2.0
// JSON documents from people, read into a tree with positions (jansson; our caps on bytes and
// depth). Duplicate keys are refused. Also the writer's escaping. For configuration and API
// answers; event text is written directly (json_add_*).
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/sv.h"

enum json_kind {
    JSON_NULL,
    JSON_BOOL,
    JSON_INTEGER,
    JSON_REAL,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

struct json_node {
    enum json_kind kind;
    unsigned line; // 1-based, of the value in its file; 0 unknown
    unsigned column;
    struct sv key;    // inside an object; NUL-terminated
    struct sv string; // JSON_STRING; NUL-terminated, valid UTF-8, no NUL inside
    int64_t integer;
    double real; // also set for JSON_INTEGER; a whole number beyond int64_t is a JSON_REAL
    bool boolean;
    struct json_node *first; // children in order
    struct json_node *next;
    size_t count;
};

struct json_document;
// 0; -EINVAL with *err (file:line:column and what was expected); -EFBIG; -ENOMEM.
int must_use json_parse(struct sv text, const char *file, struct json_document **out,
                        struct error *err);
const struct json_node *json_root(const struct json_document *d);
void json_document_free(struct json_document *d);
const struct json_node *json_find(const struct json_node *object,
                                  const char *key); // NULL when absent
const char *json_kind_text(enum json_kind kind);    // "an object", "a string", for messages

// Writing. String with quotes, escaped as Go's encoding/json does: < > & as \u00XX, U+2028/9,
// control characters, invalid UTF-8 as \ufffd. Number as Go's float64: shortest, fixed for 1e-6 <=
// |x| < 1e21. NaN and infinities must not be passed.
void json_add_string(struct buf *out, struct sv s);
void json_add_number(struct buf *out, double v);
