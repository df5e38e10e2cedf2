// SPDX-License-Identifier: Apache-2.0
// Any bytes either become a tree within the caps, each value where its text stands, or are refused
// with a reason; what became a tree is written, and reads back as the same tree.
#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "base/limits.h"
#include "codec/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The byte at a place; its column counts characters.
static char byte_at(struct sv text, unsigned line, unsigned column)
{
    size_t at = 0;
    for (unsigned l = 1; l < line; l++)
        at += sv_find_char(sv_sub(text, at, text.len), '\n') + 1;
    for (unsigned c = 1; c < column; c++) {
        at++;
        while (at < text.len && (text.ptr[at] & 0xc0) == 0x80)
            at++;
    }
    return at < text.len ? text.ptr[at] : '\0';
}

static bool begins_as(enum json_kind kind, char byte)
{
    switch (kind) {
    case JSON_NULL:
        return byte == 'n';
    case JSON_BOOL:
        return byte == 't' || byte == 'f';
    case JSON_INTEGER:
    case JSON_REAL:
        return byte == '-' || (byte >= '0' && byte <= '9');
    case JSON_STRING:
        return byte == '"';
    case JSON_ARRAY:
        return byte == '[';
    case JSON_OBJECT:
        return byte == '{';
    }
    return false;
}

static void write_value(struct buf *out, const struct json_node *n, struct sv text)
{
    assert(begins_as(n->kind, byte_at(text, n->line, n->column)));
    switch (n->kind) {
    case JSON_NULL:
        return buf_add_str(out, "null");
    case JSON_BOOL:
        return buf_add_str(out, n->boolean ? "true" : "false");
    case JSON_INTEGER:
        return buf_add_i64(out, n->integer);
    case JSON_REAL:
        return json_add_number(out, n->real);
    case JSON_STRING:
        assert(sv_is_utf8(n->string) && n->string.ptr[n->string.len] == '\0');
        return json_add_string(out, n->string);
    case JSON_ARRAY:
    case JSON_OBJECT:
        break;
    }
    buf_add_char(out, n->kind == JSON_ARRAY ? '[' : '{');
    for (const struct json_node *c = n->first; c; c = c->next) {
        if (n->kind == JSON_OBJECT) {
            json_add_string(out, c->key);
            buf_add_char(out, ':');
        }
        write_value(out, c, text);
        buf_add_char(out, c->next ? ',' : ' ');
    }
    buf_add_char(out, n->kind == JSON_ARRAY ? ']' : '}');
}

static bool same(const struct json_node *a, const struct json_node *b)
{
    // A real without a fraction is written as a whole number.
    bool numbers = (a->kind == JSON_INTEGER || a->kind == JSON_REAL) &&
                   (b->kind == JSON_INTEGER || b->kind == JSON_REAL);
    if ((a->kind != b->kind && !numbers) || a->count != b->count || a->boolean != b->boolean ||
        a->real != b->real || (a->kind == b->kind && a->integer != b->integer) ||
        !sv_equals(a->key, b->key) || !sv_equals(a->string, b->string))
        return false;
    const struct json_node *y = b->first;
    for (const struct json_node *x = a->first; x; x = x->next, y = y->next) {
        if (!same(x, y))
            return false;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sv text = {(const char *)data, size};
    struct json_document *d = NULL, *again = NULL;
    struct error err = ERROR_INIT;
    if (json_parse(text, "f", &d, &err) < 0) {
        assert(!d && err.text[0]);
        return 0;
    }
    struct buf out = BUF_INIT(LIMIT_JSON_BYTES);
    if (size < 10000) {
        write_value(&out, json_root(d), text);
        assert(json_parse(buf_sv(&out), "f", &again, &err) == 0);
        assert(same(json_root(d), json_root(again)));
    }
    buf_deinit(&out);
    json_document_free(again);
    json_document_free(d);
    return 0;
}
