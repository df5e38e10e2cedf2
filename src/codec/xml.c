// SPDX-License-Identifier: Apache-2.0
// expat calls back for each element and piece of text; the tree grows in an arena. The text of an
// element comes in pieces, gathered until it ends. The first cap that is passed stops expat.
// Whatever expat itself allocates is overwritten when it is freed: answers carry credentials.
//
// Invariant: frames[0..depth) are the open elements, the root first.
#include "codec/xml.h"

#include <errno.h>
#include <expat.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/limits.h"

struct xml_document {
    struct arena arena;
    const struct xml_node *root;
};

struct frame {
    struct xml_node *node;
    struct xml_node *last; // child
    struct buf text;
};

struct builder {
    XML_Parser parser;
    struct xml_document *document;
    struct frame frames[LIMIT_XML_DEPTH];
    unsigned depth;
    size_t elements;
    int failure;
    const char *reason;
};

// --- Memory that is erased ---

union block { // in front of what expat gets
    size_t bytes;
    max_align_t align;
};

static void *erasing_malloc(size_t bytes)
{
    if (bytes > SIZE_MAX - sizeof(union block))
        return NULL;
    union block *b = malloc(sizeof(*b) + bytes);
    if (!b)
        return NULL;
    b->bytes = bytes;
    return b + 1;
}

static void erasing_free(void *p)
{
    if (!p)
        return;
    union block *b = (union block *)p - 1;
    explicit_bzero(b, sizeof(*b) + b->bytes);
    free(b);
}

static void *erasing_realloc(void *p, size_t bytes)
{
    void *fresh = erasing_malloc(bytes);
    if (!fresh || !p)
        return fresh;
    size_t old = ((union block *)p - 1)->bytes;
    memcpy(fresh, p, old < bytes ? old : bytes);
    erasing_free(p);
    return fresh;
}

static void erase_buf(struct buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_deinit(b);
}

// --- expat's calls ---

static void fail(struct builder *b, int code, const char *reason)
{
    if (b->failure)
        return;
    b->failure = code;
    b->reason = reason;
    (void)XML_StopParser(b->parser, XML_FALSE);
}

static const char *copy(struct builder *b, struct sv text)
{
    const char *p = arena_dup(&b->document->arena, text);
    if (!p)
        fail(b, b->document->arena.error, NULL);
    return p;
}

static void attach(struct builder *b, struct xml_node *n)
{
    if (b->depth == 0) {
        b->document->root = n;
        return;
    }
    struct frame *parent = &b->frames[b->depth - 1];
    if (parent->last)
        parent->last->next = n;
    else
        parent->node->first = n;
    parent->last = n;
}

static void XMLCALL on_start(void *user, const XML_Char *name, const XML_Char **attributes)
{
    struct builder *b = user;
    (void)attributes;
    if (b->failure)
        return;
    if (b->depth == LIMIT_XML_DEPTH)
        return fail(b, -EFBIG, "nested too deeply");
    if (b->elements++ == LIMIT_XML_ELEMENTS)
        return fail(b, -EFBIG, "too many elements");
    struct xml_node *n = arena_alloc(&b->document->arena, sizeof(*n));
    if (!n)
        return fail(b, b->document->arena.error, NULL);
    struct sv text = sv_from(name);
    *n = (struct xml_node){.name = {copy(b, text), text.len}, .text = SV("")};
    attach(b, n);
    b->frames[b->depth++] = (struct frame){n, NULL, BUF_INIT(LIMIT_XML_BYTES)};
}

static void XMLCALL on_end(void *user, const XML_Char *name)
{
    struct builder *b = user;
    (void)name;
    if (b->failure)
        return;
    struct frame *f = &b->frames[--b->depth];
    if (f->text.len > 0)
        f->node->text = (struct sv){copy(b, buf_sv(&f->text)), f->text.len};
    erase_buf(&f->text);
}

static void XMLCALL on_text(void *user, const XML_Char *bytes, int length)
{
    struct builder *b = user;
    if (b->failure || b->depth == 0)
        return;
    struct buf *text = &b->frames[b->depth - 1].text;
    buf_add(text, bytes, (size_t)length);
    if (text->error)
        fail(b, text->error, NULL);
}

static void XMLCALL on_doctype(void *user, const XML_Char *name, const XML_Char *system,
                               const XML_Char *public, int has_internal_subset)
{
    (void)name;
    (void)system;
    (void)public;
    (void)has_internal_subset;
    fail(user, -EINVAL, "a document type declaration is not accepted");
}

// --- A document ---

static int explain(struct builder *b, struct error *err)
{
    unsigned line = (unsigned)XML_GetCurrentLineNumber(b->parser);
    unsigned column = (unsigned)XML_GetCurrentColumnNumber(b->parser) + 1;
    enum XML_Error code = XML_GetErrorCode(b->parser);
    if (b->failure == -ENOMEM || (!b->failure && code == XML_ERROR_NO_MEMORY))
        return error_set(err, -ENOMEM, "out of memory");
    if (b->failure)
        return error_set_at(err, b->failure, NULL, line, column, "%s",
                            b->reason ? b->reason : "too large");
    return error_set_at(err, -EINVAL, NULL, line, column, "not XML: %s", XML_ErrorString(code));
}

static int build(struct builder *b, struct sv text, struct error *err)
{
    static const XML_Memory_Handling_Suite memory = {erasing_malloc, erasing_realloc, erasing_free};
    b->parser = XML_ParserCreate_MM("UTF-8", &memory, NULL);
    if (!b->parser)
        return error_set(err, -ENOMEM, "out of memory");
    XML_SetUserData(b->parser, b);
    XML_SetElementHandler(b->parser, on_start, on_end);
    XML_SetCharacterDataHandler(b->parser, on_text);
    XML_SetStartDoctypeDeclHandler(b->parser, on_doctype);
    int r = 0;
    if (XML_Parse(b->parser, text.ptr, (int)text.len, XML_TRUE) != XML_STATUS_OK || b->failure)
        r = explain(b, err);
    XML_ParserFree(b->parser);
    while (b->depth > 0)
        erase_buf(&b->frames[--b->depth].text);
    return r;
}

int xml_parse(struct sv text, struct xml_document **out, struct error *err)
{
    if (text.len > LIMIT_XML_BYTES)
        return error_set(err, -EFBIG, "larger than %u bytes", LIMIT_XML_BYTES);
    struct xml_document *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->arena = ARENA_INIT(LIMIT_XML_TREE_BYTES);
    struct builder b = {.document = d};
    int r = build(&b, text.ptr ? text : SV(""), err);
    if (r == 0)
        *out = d;
    else
        xml_document_free(d);
    return r;
}

const struct xml_node *xml_root(const struct xml_document *d)
{
    return d->root;
}

void xml_document_free(struct xml_document *d)
{
    if (!d)
        return;
    arena_erase(&d->arena);
    arena_deinit(&d->arena);
    free(d);
}

const struct xml_node *xml_find(const struct xml_node *n, const char *name)
{
    for (const struct xml_node *c = n ? n->first : NULL; c; c = c->next)
        if (sv_equals(c->name, sv_from(name)))
            return c;
    return NULL;
}

struct sv xml_text(const struct xml_node *n, const char *name)
{
    const struct xml_node *c = xml_find(n, name);
    return c ? c->text : SV("");
}
