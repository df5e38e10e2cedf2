// SPDX-License-Identifier: Apache-2.0
#include "codec/xml.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/limits.h"

// The tree as one line: name'text'(children).
static void show(const struct xml_node *n, struct buf *out)
{
    buf_add_fmt(out, "%.*s", SV_FMT(n->name));
    if (n->text.len > 0)
        buf_add_fmt(out, "'%.*s'", SV_FMT(n->text));
    assert_int_equal(n->text.ptr[n->text.len], '\0');
    if (!n->first)
        return;
    buf_add_char(out, '(');
    for (const struct xml_node *c = n->first; c; c = c->next) {
        show(c, out);
        if (c->next)
            buf_add_char(out, ' ');
    }
    buf_add_char(out, ')');
}

static void documents_become_trees(void **state)
{
    static const struct {
        const char *text, *tree;
    } cases[] = {
        {"<a/>", "a"},
        {"<a></a>", "a"},
        {"<a>t</a>", "a't'"},
        {"<a><b>1</b><b>2</b><c/></a>", "a(b'1' b'2' c)"},
        {"<a>x<b>y</b>z</a>", "a'xz'(b'y')"},
        {"<a x=\"1\" y='2'><b xmlns=\"u\">1</b></a>", "a(b'1')"},
        {"<p:a xmlns:p='u'><p:b>1</p:b></p:a>", "p:a(p:b'1')"},
        {"<?xml version=\"1.0\" encoding=\"UTF-8\"?><!-- c --><a>1<!-- 2 --><?pi x?>3</a>",
         "a'13'"},
        {"<a>&lt;&amp;&gt;&quot;&apos;&#65;&#x42;</a>", "a'<&>\"'AB'"},
        {"<a><![CDATA[<b>&]]></a>", "a'<b>&'"},
        {"\xef\xbb\xbf<a>\xc3\xbc</a>", "a'\xc3\xbc'"},
        {"<?xml version='1.0' encoding='latin-1'?><a>\xc3\xbc</a>", "a'\xc3\xbc'"}, // always UTF-8
        {"<a>\r\n b </a>", "a'\n b '"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct xml_document *d = NULL;
        struct error err = ERROR_INIT;
        struct buf out = BUF_INIT(4096);
        assert_int_equal(xml_parse(sv_from(cases[i].text), &d, &err), 0);
        show(xml_root(d), &out);
        assert_string_equal(buf_cstr(&out), cases[i].tree);
        buf_deinit(&out);
        xml_document_free(d);
    }
    (void)state;
}

static void what_is_not_taken_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text;
        unsigned line;
        const char *says;
    } cases[] = {
        {"", 1, "not XML: no element found"},
        {"   ", 1, "not XML: no element found"},
        {"secret", 1, "not XML: syntax error"},
        {"<a>\n<b>secret</a>", 2, "not XML: mismatched tag"},
        {"<a>secret", 1, "not XML: no element found"},
        {"<a/><b/>", 1, "not XML: junk after document element"},
        {"<a>&secret;</a>", 1, "not XML: undefined entity"},
        {"<a>\xff</a>", 1, "not XML: not well-formed (invalid token)"},
        {"<a b='1' b='2'/>", 1, "not XML: duplicate attribute"},
        {"<!DOCTYPE a><a/>", 1, "a document type declaration is not accepted"},
        {"<!DOCTYPE a [<!ENTITY b \"secret\">]><a>&b;</a>", 1,
         "a document type declaration is not accepted"},
        {"<!DOCTYPE a SYSTEM \"http://127.0.0.1/x.dtd\"><a/>", 1,
         "a document type declaration is not accepted"},
        {"\n<!DOCTYPE a [<!ENTITY l \"ha\"><!ENTITY m \"&l;&l;\">]><a>&m;</a>", 2,
         "a document type declaration is not accepted"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct xml_document *d = NULL;
        struct error err = ERROR_INIT;
        assert_int_equal(xml_parse(sv_from(cases[i].text), &d, &err), -EINVAL);
        assert_null(d);
        assert_string_equal(err.text, cases[i].says);
        assert_int_equal(err.line, cases[i].line);
    }
    (void)state;
}

static int parse_nested(unsigned depth)
{
    struct buf text = BUF_INIT(1u << 20);
    for (unsigned i = 0; i < depth; i++)
        buf_add_str(&text, "<a>");
    for (unsigned i = 0; i < depth; i++)
        buf_add_str(&text, "</a>");
    struct xml_document *d = NULL;
    struct error err = ERROR_INIT;
    int r = xml_parse(buf_sv(&text), &d, &err);
    if (r < 0)
        assert_string_equal(err.text, "nested too deeply");
    xml_document_free(d);
    buf_deinit(&text);
    return r;
}

static int parse_many(unsigned children)
{
    struct buf text = BUF_INIT(1u << 20);
    buf_add_str(&text, "<a>");
    for (unsigned i = 0; i < children; i++)
        buf_add_str(&text, "<b/>");
    buf_add_str(&text, "</a>");
    struct xml_document *d = NULL;
    struct error err = ERROR_INIT;
    int r = xml_parse(buf_sv(&text), &d, &err);
    if (r < 0)
        assert_string_equal(err.text, "too many elements");
    xml_document_free(d);
    buf_deinit(&text);
    return r;
}

static int parse_long(size_t bytes)
{
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, 'x', bytes);
    memcpy(text, "<a>", 3);
    memcpy(text + bytes - 4, "</a>", 4);
    struct xml_document *d = NULL;
    int r = xml_parse((struct sv){text, bytes}, &d, NULL);
    xml_document_free(d);
    free(text);
    return r;
}

static void limits_are_exact(void **state)
{
    assert_int_equal(parse_nested(LIMIT_XML_DEPTH - 1), 0);
    assert_int_equal(parse_nested(LIMIT_XML_DEPTH), 0);
    assert_int_equal(parse_nested(LIMIT_XML_DEPTH + 1), -EFBIG);
    assert_int_equal(parse_many(LIMIT_XML_ELEMENTS - 1), 0);
    assert_int_equal(parse_many(LIMIT_XML_ELEMENTS), -EFBIG);
    assert_int_equal(parse_long(LIMIT_XML_BYTES), 0);
    assert_int_equal(parse_long(LIMIT_XML_BYTES + 1), -EFBIG);
    (void)state;
}

static void children_are_found_by_name(void **state)
{
    struct xml_document *d = NULL;
    assert_int_equal(xml_parse(SV("<a><b>1</b><c><b>2</b></c><b>3</b></a>"), &d, NULL), 0);
    const struct xml_node *root = xml_root(d);
    assert_true(sv_equals(xml_text(root, "b"), SV("1")));
    assert_true(sv_equals(xml_text(xml_find(root, "c"), "b"), SV("2")));
    assert_null(xml_find(root, "d"));
    assert_null(xml_find(NULL, "b"));
    assert_int_equal(xml_text(root, "d").len, 0);
    xml_document_free(d);
    (void)state;
}

static void each_truncation_is_refused(void **state)
{
    static const char text[] = "<a><b c='1'>x&amp;y</b><!-- z --><![CDATA[q]]></a>";
    for (size_t n = 0; n < sizeof(text) - 1; n++) {
        struct xml_document *d = NULL;
        assert_int_equal(xml_parse((struct sv){text, n}, &d, NULL), -EINVAL);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_become_trees),
        cmocka_unit_test(what_is_not_taken_is_refused_with_its_place),
        cmocka_unit_test(limits_are_exact),
        cmocka_unit_test(children_are_found_by_name),
        cmocka_unit_test(each_truncation_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
