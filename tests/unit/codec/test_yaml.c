// SPDX-License-Identifier: Apache-2.0
#include "codec/yaml.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/limits.h"

// The tree as one line: mappings {k:v,...}, lists [a,...], plain scalars as they are, quoted ones
// in ''.
static void show(const struct yaml_node *n, struct buf *out)
{
    if (n->kind == YAML_SCALAR) {
        buf_add_fmt(out, n->quoted ? "'%.*s'" : "%.*s", SV_FMT(n->scalar));
        return;
    }
    buf_add_char(out, n->kind == YAML_MAPPING ? '{' : '[');
    size_t count = 0;
    for (const struct yaml_node *c = n->first; c; c = c->next, count++) {
        if (count)
            buf_add_char(out, ',');
        if (n->kind == YAML_MAPPING)
            buf_add_fmt(out, "%.*s:", SV_FMT(c->key));
        show(c, out);
    }
    assert_int_equal(count, n->count);
    buf_add_char(out, n->kind == YAML_MAPPING ? '}' : ']');
}

static void good_documents_become_trees(void **state)
{
    static const struct {
        const char *text, *tree;
    } cases[] = {
        {"", "{}"},
        {"# only a comment\n", "{}"},
        {"---\n", "{}"},
        {"a: 1", "{a:1}"},
        {"a: {b: [1, 'two', \"three\"], c: }\n", "{a:{b:[1,'two','three'],c:}}"},
        {"- a\n- - b\n  - c\n- d: |\n    text\n", "[a,[b,c],{d:'text\n'}]"},
        {"scalar", "scalar"},
        {"a: &x [1, 2]\nb: *x\nc: *x\n", "{a:[1,2],b:[1,2],c:[1,2]}"},
        {"a: &x text\nb: *x\n", "{a:text,b:text}"},
        {"a: &x {k: &y [1]}\nb: [*x, *y]\n", "{a:{k:[1]},b:[{k:[1]},[1]]}"},
        {"a: &x 1\nb: &x 2\nc: *x\n", "{a:1,b:2,c:2}"},
        {"\xef\xbb\xbf"
         "a: \xc3\xa9\n",
         "{a:\xc3\xa9}"},
        {"? a\n: b\n", "{a:b}"},
        {"a: 1\n...\n", "{a:1}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct yaml_document *d = NULL;
        struct error err = ERROR_INIT;
        struct buf out = BUF_INIT(10000);
        assert_int_equal(yaml_parse(sv_from(cases[i].text), "f", &d, &err), 0);
        show(yaml_root(d), &out);
        assert_string_equal(buf_cstr(&out), cases[i].tree);
        buf_deinit(&out);
        yaml_document_free(d);
    }
}

static void bad_documents_are_refused_with_a_position(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a: 1\nb: 2\na: 3\n", "f:3:1: key 'a' stands here twice"},
        {"x:\n  a: 1\n  'a': 3\n", "f:3:3: key 'a' stands here twice"},
        {"a: *x\n", "f:1:4: no anchor 'x' before this alias"},
        {"a: &x [*x]\n", "f:1:8: no anchor 'x' before this alias"},
        {"a: &x {k: &y 1, *y : 2}\n", "f:1:17: an alias as a key is not accepted"},
        {"&k a: 1\n", "f:1:1: an anchor on a key is not accepted"},
        {"[a]: 1\n", "f:1:1: expected a key, found a collection"},
        {"a: 1\n---\nb: 1\n", "f:2:1: a second document is not accepted"},
        {"a: \"x\\0y\"\n", "f:1:4: a NUL character is not accepted in text"},
        {"a: [1\n", "f:2:1: did not find expected ',' or ']' while parsing a flow sequence"},
        {"a:\n\t- b\n",
         "f:2:1: found character that cannot start any token while scanning for the next token"},
        {"a: 'x\n", "f:2:1: found unexpected end of stream while scanning a quoted scalar"},
        {"ok: 1\nb: \xff\n", "f:2:4: invalid leading UTF-8 octet"},
        {"a: \x01\n", "f:1:4: control characters are not allowed"},
        {"a: b: c\n", "f:1:5: mapping values are not allowed in this context"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct yaml_document *d = NULL;
        struct error err = ERROR_INIT;
        char text[1024];
        assert_int_equal(yaml_parse(sv_from(cases[i].text), "f", &d, &err), -EINVAL);
        assert_null(d);
        assert_int_equal(err.code, -EINVAL);
        assert_string_equal(error_text(&err, text, sizeof(text)), cases[i].message);
    }
}

static int parse_only(struct sv text, struct error *err)
{
    struct yaml_document *d = NULL;
    int r = yaml_parse(text, "f", &d, err);
    yaml_document_free(d);
    return r;
}

static void depth_is_capped_exactly(void **state)
{
    for (unsigned depth = LIMIT_CONFIG_DEPTH - 1; depth <= LIMIT_CONFIG_DEPTH + 1; depth++) {
        struct buf b = BUF_INIT(10000);
        for (unsigned i = 0; i < depth; i++)
            buf_add_char(&b, '[');
        for (unsigned i = 0; i < depth; i++)
            buf_add_char(&b, ']');
        struct error err = ERROR_INIT;
        bool fits = depth <= LIMIT_CONFIG_DEPTH;
        assert_int_equal(parse_only(buf_sv(&b), &err), fits ? 0 : -EFBIG);
        assert_int_equal(err.column, fits ? 0 : LIMIT_CONFIG_DEPTH + 1);
        buf_deinit(&b);
    }
}

// The whole megabyte would take libyaml minutes.
static void a_nesting_bomb_is_left_at_the_cap(void **state)
{
    struct buf b = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    while (b.len < LIMIT_CONFIG_FILE_BYTES)
        buf_add_char(&b, '[');
    struct error err = ERROR_INIT;
    assert_int_equal(parse_only(buf_sv(&b), &err), -EFBIG);
    assert_string_equal(err.text, "nested too deeply");
    buf_deinit(&b);
}

static void depth_counts_what_an_alias_stands_for(void **state)
{
    struct buf b = BUF_INIT(10000);
    buf_add_str(&b, "[&x [[[[[[[[[[1]]]]]]]]]], ");
    for (unsigned i = 0; i < LIMIT_CONFIG_DEPTH - 10; i++)
        buf_add_char(&b, '[');
    buf_add_str(&b, "*x");
    struct error err = ERROR_INIT;
    assert_int_equal(parse_only(buf_sv(&b), &err), -EFBIG);
    assert_string_equal(err.text, "nested too deeply");
    buf_deinit(&b);
}

static void size_is_capped_exactly(void **state)
{
    char *text = malloc(LIMIT_CONFIG_FILE_BYTES + 1);
    assert_non_null(text);
    memset(text, ' ', LIMIT_CONFIG_FILE_BYTES + 1);
    text[0] = '#';
    struct error err = ERROR_INIT;
    assert_int_equal(parse_only((struct sv){text, LIMIT_CONFIG_FILE_BYTES}, &err), 0);
    assert_int_equal(parse_only((struct sv){text, LIMIT_CONFIG_FILE_BYTES + 1}, &err), -EFBIG);
    assert_string_equal(err.text, "larger than 1048576 bytes");
    free(text);
}

static void values_are_capped_exactly(void **state)
{
    for (size_t count = LIMIT_CONFIG_NODES - 1; count <= LIMIT_CONFIG_NODES + 1; count++) {
        struct buf b = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
        buf_add_char(&b, '[');
        for (size_t i = 1; i < count; i++)
            buf_add_str(&b, "1,");
        buf_add_char(&b, ']');
        struct error err = ERROR_INIT;
        assert_int_equal(parse_only(buf_sv(&b), &err), count <= LIMIT_CONFIG_NODES ? 0 : -EFBIG);
        buf_deinit(&b);
    }
}

static void an_alias_bomb_is_refused(void **state)
{
    struct buf b = BUF_INIT(10000);
    buf_add_str(&b, "a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for (unsigned i = 1; i < 9; i++) {
        buf_add_fmt(&b, "a%u: &a%u [", i, i);
        for (unsigned k = 0; k < 9; k++)
            buf_add_fmt(&b, "*a%u,", i - 1);
        buf_add_str(&b, "]\n");
    }
    struct error err = ERROR_INIT;
    assert_int_equal(parse_only(buf_sv(&b), &err), -EFBIG);
    assert_string_equal(err.text, "too many values");
    buf_deinit(&b);
}

static void anchors_are_capped_exactly(void **state)
{
    for (unsigned count = LIMIT_CONFIG_ANCHORS; count <= LIMIT_CONFIG_ANCHORS + 1; count++) {
        struct buf b = BUF_INIT(100000);
        for (unsigned i = 0; i < count; i++)
            buf_add_fmt(&b, "- &a%u x\n", i);
        struct error err = ERROR_INIT;
        assert_int_equal(parse_only(buf_sv(&b), &err), count <= LIMIT_CONFIG_ANCHORS ? 0 : -EFBIG);
        buf_deinit(&b);
    }
}

static void every_truncation_is_handled(void **state)
{
    static const char text[] =
        "version: 2\nmetrics:\n  fields: &f\n  - {name: \"A\\u00e9\", help: 'it''s'}\n"
        "  - name: >-\n      folded\n      text\nx: [*f, !!str 1, ~]\n";
    for (size_t cut = 0; cut < sizeof(text); cut++) {
        char *copy = malloc(cut + 1);
        assert_non_null(copy);
        memcpy(copy, text, cut);
        int r = parse_only((struct sv){copy, cut}, NULL);
        assert_true(r == 0 || r == -EINVAL);
        free(copy);
    }
}

static const char typed_text[] =
    "yes: true\nno: Off\nquoted: 'true'\nword: maybe\nint: -42\nbig: 9223372036854775808\n"
    "list: [1]\nmap: {a: 1}\nnothing: \ntilde: ~\nempty: ''\n";

static struct yaml_document *typed(void)
{
    struct yaml_document *d = NULL;
    assert_int_equal(yaml_parse(sv_from(typed_text), "f", &d, NULL), 0);
    return d;
}

static void typed_reads_take_their_type_only(void **state)
{
    struct yaml_document *d = typed();
    const struct yaml_node *root = yaml_root(d);
    struct error err = ERROR_INIT;
    bool truth = false;
    int64_t number = 0;
    struct sv text;
    char shown[900];
    assert_int_equal(yaml_read_bool(yaml_find(root, "yes"), "f", &truth, &err), 0);
    assert_true(truth);
    assert_int_equal(yaml_read_bool(yaml_find(root, "no"), "f", &truth, &err), 0);
    assert_false(truth);
    assert_int_equal(yaml_read_bool(yaml_find(root, "quoted"), "f", &truth, &err), -EINVAL);
    assert_string_equal(error_text(&err, shown, sizeof(shown)),
                        "f:3:9: expected a boolean, found the text 'true'");
    assert_int_equal(yaml_read_bool(yaml_find(root, "word"), "f", &truth, &err), -EINVAL);
    assert_string_equal(error_text(&err, shown, sizeof(shown)),
                        "f:4:7: expected a boolean, found 'maybe'");
    assert_int_equal(yaml_read_i64(yaml_find(root, "int"), "f", -42, 0, &number, &err), 0);
    assert_int_equal(number, -42);
    assert_int_equal(yaml_read_i64(yaml_find(root, "int"), "f", -41, 0, &number, &err), -EINVAL);
    assert_string_equal(err.text, "expected a number from -41 to 0, found '-42'");
    assert_int_equal(yaml_read_i64(yaml_find(root, "big"), "f", 0, INT64_MAX, &number, &err),
                     -EINVAL);
    assert_int_equal(yaml_read_i64(yaml_find(root, "list"), "f", 0, 9, &number, &err), -EINVAL);
    assert_string_equal(err.text, "expected a number, found a list");
    assert_int_equal(yaml_read_i64(yaml_find(root, "nothing"), "f", 0, 9, &number, &err), -EINVAL);
    assert_string_equal(err.text, "expected a number, found nothing");
    assert_int_equal(yaml_read_text(yaml_find(root, "word"), "f", &text, &err), 0);
    assert_string_equal(text.ptr, "maybe");
    assert_int_equal(yaml_read_text(yaml_find(root, "empty"), "f", &text, &err), 0);
    assert_int_equal(yaml_read_text(yaml_find(root, "tilde"), "f", &text, &err), -EINVAL);
    assert_int_equal(yaml_read_text(yaml_find(root, "map"), "f", &text, &err), -EINVAL);
    assert_string_equal(err.text, "expected text, found a mapping");
    yaml_document_free(d);
}

static void kinds_and_nulls_are_told_apart(void **state)
{
    struct yaml_document *d = typed();
    const struct yaml_node *root = yaml_root(d);
    struct error err = ERROR_INIT;
    assert_true(yaml_is_null(yaml_find(root, "absent")));
    assert_true(yaml_is_null(yaml_find(root, "nothing")));
    assert_true(yaml_is_null(yaml_find(root, "tilde")));
    assert_false(yaml_is_null(yaml_find(root, "empty")));
    assert_false(yaml_is_null(yaml_find(root, "list")));
    assert_null(yaml_find(yaml_find(root, "list"), "a"));
    assert_int_equal(yaml_expect(yaml_find(root, "list"), YAML_SEQUENCE, "f", &err), 0);
    assert_int_equal(yaml_expect(yaml_find(root, "nothing"), YAML_SEQUENCE, "f", &err), 0);
    assert_int_equal(yaml_expect(yaml_find(root, "word"), YAML_SEQUENCE, "f", &err), -EINVAL);
    assert_string_equal(err.text, "expected a list, found 'maybe'");
    yaml_document_free(d);
}

static void unknown_keys_are_named_with_the_nearest(void **state)
{
    static const char *const known[] = {"interval", "metrics", "version", NULL};
    struct yaml_document *d = NULL;
    struct error err = ERROR_INIT;
    char text[900];
    assert_int_equal(yaml_parse(SV("version: 1\n  \n\nintervall: 5\n"), "c.yaml", &d, &err), 0);
    assert_int_equal(yaml_check_keys(yaml_root(d), "c.yaml", known, &err), -EINVAL);
    assert_string_equal(error_text(&err, text, sizeof(text)),
                        "c.yaml:4:1: unknown key 'intervall' (did you mean 'interval'?)");
    yaml_document_free(d);
    assert_int_equal(yaml_parse(SV("{zzz: 1}"), "c.yaml", &d, &err), 0);
    assert_int_equal(yaml_check_keys(yaml_root(d), "c.yaml", known, &err), -EINVAL);
    assert_string_equal(err.text, "unknown key 'zzz'");
    assert_int_equal(yaml_check_keys(yaml_find(yaml_root(d), "zzz"), "c.yaml", known, &err),
                     -EINVAL);
    assert_string_equal(err.text, "expected a mapping, found '1'");
    assert_int_equal(yaml_check_keys(NULL, "c.yaml", known, &err), 0);
    yaml_document_free(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_documents_become_trees),
        cmocka_unit_test(bad_documents_are_refused_with_a_position),
        cmocka_unit_test(depth_is_capped_exactly),
        cmocka_unit_test(a_nesting_bomb_is_left_at_the_cap),
        cmocka_unit_test(depth_counts_what_an_alias_stands_for),
        cmocka_unit_test(size_is_capped_exactly),
        cmocka_unit_test(values_are_capped_exactly),
        cmocka_unit_test(an_alias_bomb_is_refused),
        cmocka_unit_test(anchors_are_capped_exactly),
        cmocka_unit_test(every_truncation_is_handled),
        cmocka_unit_test(typed_reads_take_their_type_only),
        cmocka_unit_test(kinds_and_nulls_are_told_apart),
        cmocka_unit_test(unknown_keys_are_named_with_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
