// SPDX-License-Identifier: Apache-2.0
#include "codec/json.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "base/num_text.h"

// The tree as one line, each value with its place: {k@1:2=...}, strings in '', reals as R.
static void show(const struct json_node *n, struct buf *out)
{
    char text[NUM_DOUBLE_BYTES];
    buf_add_fmt(out, "%u:%u=", n->line, n->column);
    if (n->kind == JSON_NULL)
        buf_add_str(out, "null");
    if (n->kind == JSON_BOOL)
        buf_add_str(out, n->boolean ? "true" : "false");
    if (n->kind == JSON_INTEGER)
        buf_add_i64(out, n->integer);
    if (n->kind == JSON_REAL)
        buf_add_fmt(out, "R%.*s", (int)num_print_double(text, n->real), text);
    if (n->kind == JSON_STRING)
        buf_add_fmt(out, "'%.*s'", SV_FMT(n->string));
    if (n->kind != JSON_ARRAY && n->kind != JSON_OBJECT)
        return;
    size_t count = 0;
    buf_add_char(out, n->kind == JSON_OBJECT ? '{' : '[');
    for (const struct json_node *c = n->first; c; c = c->next, count++) {
        if (count)
            buf_add_char(out, ',');
        if (n->kind == JSON_OBJECT)
            buf_add_fmt(out, "%.*s@", SV_FMT(c->key));
        show(c, out);
    }
    assert_int_equal(count, n->count);
    buf_add_char(out, n->kind == JSON_OBJECT ? '}' : ']');
}

static void good_documents_become_trees_with_places(void **state)
{
    static const struct {
        const char *text, *tree;
    } cases[] = {
        {"{}", "1:1={}"},
        {" \t\r\n [ ] \n", "2:2=[]"},
        {"[1,-2,0,-0]", "1:1=[1:2=1,1:4=-2,1:7=0,1:9=0]"},
        {"[1.5,1e3,2E-2,-0.0,9223372036854775807]",
         "1:1=[1:2=R1.5,1:6=R1000,1:10=R0.02,1:15=R-0,1:20=9223372036854775807]"},
        {"[-9223372036854775808,9223372036854775808]",
         "1:1=[1:2=-9223372036854775808,1:23=R9223372036854776000]"},
        {"[true,false,null]", "1:1=[1:2=true,1:7=false,1:13=null]"},
        {"{\"a\":{\"b\":[[],{}]},\n \"c\" : \"d\"}",
         "1:1={a@1:6={b@1:11=[1:12=[],1:15={}]},c@2:8='d'}"},
        // Columns are characters; what stands in strings is no syntax.
        {"{\"\xc3\xa9\":\"\xe2\x82\xac\",\"x\":1}", "1:1={\xc3\xa9@1:6='\xe2\x82\xac',x@1:14=1}"},
        {"[\"]}\\\",[{\", 2]", "1:1=[1:2=']}\",[{',1:13=2]"},
        {"[\"\\\\\",3]", "1:1=[1:2='\\',1:7=3]"},
        {"[\"\\u00e9\\n\\/\\ud83d\\ude00\"]", "1:1=[1:2='\xc3\xa9\n/\xf0\x9f\x98\x80']"},
        {"{\"\":\"\"}", "1:1={@1:5=''}"},
        // In the order of the text, not sorted.
        {"{\"z\":1,\"a\":2,\"m\":3}", "1:1={z@1:6=1,a@1:12=2,m@1:18=3}"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_document *d = NULL;
        struct error err = ERROR_INIT;
        struct buf out = BUF_INIT(10000);
        assert_int_equal(json_parse(sv_from(cases[i].text), "f", &d, &err), 0);
        show(json_root(d), &out);
        assert_string_equal(buf_cstr(&out), cases[i].tree);
        buf_deinit(&out);
        json_document_free(d);
    }
}

static void bad_documents_are_refused_with_a_position(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "f:1:1: '[' or '{' expected near end of file"},
        {" \n", "f:2:1: '[' or '{' expected near end of file"},
        {"1", "f:1:1: '[' or '{' expected near '1'"},
        {"nope", "f:1:1: '[' or '{' expected near 'nope'"},
        {"{\"a\":1,\n \"b\":2,\n \"a\":3}", "f:3:2: duplicate object key near '\"a\"'"},
        {"{\"x\":{\"a\":1,\"\\u0061\":3}}", "f:1:13: duplicate object key near '\"\\u0061\"'"},
        {"[1,]", "f:1:4: unexpected token near ']'"},
        {"{\"a\":1,}", "f:1:8: string or '}' expected near '}'"},
        {"{\"a\" 1}", "f:1:6: ':' expected near '1'"},
        {"{a: 1}", "f:1:2: string or '}' expected near 'a'"},
        {"{'a': 1}", "f:1:2: string or '}' expected near '''"},
        {"[1 2]", "f:1:4: ']' expected near '2'"},
        {"[01]", "f:1:2: invalid token near '0'"},
        {"[+1]", "f:1:2: invalid token near '+'"},
        {"[1.]", "f:1:2: invalid token near '1.'"},
        {"[1e]", "f:1:2: invalid token near '1e'"},
        {"[0x10]", "f:1:2: ']' expected near 'x'"},
        {"[NaN]", "f:1:2: invalid token near 'NaN'"},
        {"[True]", "f:1:2: invalid token near 'True'"},
        {"{\"a\": // c\n 1}", "f:1:7: invalid token near '/'"},
        {"{\"a\":1} x", "f:1:9: end of file expected near 'x'"},
        {"{}{}", "f:1:3: end of file expected near '{'"},
        {"{\n \"a\": [1,\n 2\n", "f:4:1: ']' expected near end of file"},
        {"[\"abc", "f:1:6: premature end of input near '\"abc'"},
        {"[\"a\nb\"]", "f:1:2: unexpected newline near '\"a'"},
        {"[\"a\tb\"]", "f:1:2: control character 0x9 near '\"a'"},
        {"[\"\\x\"]", "f:1:2: invalid escape near '\"\\x'"},
        {"[\"\\u12\"]", "f:1:2: invalid escape near '\"\\u12\"'"},
        {"[\"\\ud800\"]", "f:1:2: invalid Unicode '\\uD800' near '\"\\ud800\"'"},
        {"[\"\\u0000\"]",
         "f:1:2: \\u0000 is not allowed without JSON_ALLOW_NUL near '\"\\u0000\"'"},
        {"[\"ab\xff\"]", "f:1:2: unable to decode byte 0xff near '\"ab'"},
        {"[\"\xc3\"]", "f:1:2: unable to decode byte 0xc3 near '\"'"},
        {"[1e400]", "f:1:2: real number overflow near '1e400'"},
        {"[1, 2}\n", "f:1:6: ']' expected near '}'"},
        {"\xef\xbb\xbf{}", "f:1:1: a byte order mark cannot stand here"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_document *d = NULL;
        struct error err = ERROR_INIT;
        char text[1024];
        assert_int_equal(json_parse(sv_from(cases[i].text), "f", &d, &err), -EINVAL);
        assert_null(d);
        assert_int_equal(err.code, -EINVAL);
        assert_string_equal(error_text(&err, text, sizeof(text)), cases[i].message);
    }
}

static void a_nul_byte_is_refused_wherever_it_stands(void **state)
{
    static const struct sv cases[] = {
        {"\0{}", 3}, {"{}\0", 3}, {"{\"a\0b\":1}", 9}, {"[\"\0\"]", 5}, {"[1,\0 2]", 7},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_document *d = NULL;
        assert_int_equal(json_parse(cases[i], "f", &d, NULL), -EINVAL);
    }
}

static void every_truncation_is_refused(void **state)
{
    static const char text[] =
        "{\"a\": [1, 2.5e3, \"x\\u00e9\xc3\xa9\", {\"b\": null}], \"c\": true}";
    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        char *part = malloc(len ? len : 1); // of exactly that size, for the sanitizer
        assert_non_null(part);
        memcpy(part, text, len);
        struct json_document *d = NULL;
        struct error err = ERROR_INIT;
        assert_int_equal(json_parse((struct sv){part, len}, "f", &d, &err), -EINVAL);
        assert_true(err.line == 1 && err.column >= 1 && err.column <= len + 1);
        free(part);
    }
}

static int parse_only(struct sv text, struct error *err)
{
    struct json_document *d = NULL;
    int r = json_parse(text, "f", &d, err);
    json_document_free(d);
    return r;
}

static void depth_is_capped_exactly(void **state)
{
    for (unsigned depth = LIMIT_CONFIG_DEPTH - 1; depth <= LIMIT_CONFIG_DEPTH + 1; depth++) {
        struct buf b = BUF_INIT(10000);
        for (unsigned i = 0; i < depth; i++)
            buf_add_str(&b, i % 2 ? "{\"a\":" : "[");
        if (depth % 2 == 0)
            buf_add_str(&b, "1");
        for (unsigned i = depth; i > 0; i--)
            buf_add_char(&b, i % 2 ? ']' : '}');
        struct error err = ERROR_INIT;
        bool fits = depth <= LIMIT_CONFIG_DEPTH;
        assert_int_equal(parse_only(buf_sv(&b), &err), fits ? 0 : -EFBIG);
        if (!fits)
            assert_string_equal(err.text, "nested too deeply");
        buf_deinit(&b);
    }
}

static void a_nesting_bomb_is_left_at_the_cap(void **state)
{
    char *text = malloc(LIMIT_JSON_BYTES + 1);
    assert_non_null(text);
    memset(text, '[', LIMIT_JSON_BYTES + 1);
    struct error err = ERROR_INIT;
    assert_int_equal(parse_only((struct sv){text, LIMIT_JSON_BYTES}, &err), -EFBIG);
    assert_int_equal(err.column, LIMIT_CONFIG_DEPTH + 1);
    assert_int_equal(parse_only((struct sv){text, LIMIT_JSON_BYTES + 1}, &err), -EFBIG);
    assert_string_equal(err.text, "larger than 16777216 bytes");
    free(text);
}

static void size_is_capped_exactly(void **state)
{
    char *text = malloc(LIMIT_JSON_BYTES + 1);
    assert_non_null(text);
    memset(text, ' ', LIMIT_JSON_BYTES + 1);
    text[0] = '{';
    text[1] = '}';
    assert_int_equal(parse_only((struct sv){text, LIMIT_JSON_BYTES}, NULL), 0);
    assert_int_equal(parse_only((struct sv){text, LIMIT_JSON_BYTES + 1}, NULL), -EFBIG);
    free(text);
}

static void values_are_capped_exactly(void **state)
{
    for (size_t count = LIMIT_JSON_VALUES - 1; count <= LIMIT_JSON_VALUES + 1; count++) {
        struct buf b = BUF_INIT(LIMIT_JSON_BYTES);
        buf_add_str(&b, "[1");
        for (size_t i = 2; i < count; i++)
            buf_add_str(&b, ",1");
        buf_add_char(&b, ']');
        struct error err = ERROR_INIT;
        assert_int_equal(parse_only(buf_sv(&b), &err), count <= LIMIT_JSON_VALUES ? 0 : -EFBIG);
        if (count > LIMIT_JSON_VALUES)
            assert_string_equal(err.text, "too many values");
        buf_deinit(&b);
    }
}

// A long line must not cost its length squared.
static void a_long_line_is_located_in_linear_time(void **state)
{
    struct buf b = BUF_INIT(LIMIT_JSON_BYTES);
    buf_add_char(&b, '[');
    for (size_t i = 0; i < 200000; i++)
        buf_add_str(&b, "\"0123456789012345678901234567890123456789\",");
    buf_add_str(&b, "1]");
    struct json_document *d = NULL;
    assert_int_equal(json_parse(buf_sv(&b), "f", &d, NULL), 0);
    const struct json_node *last = json_root(d)->first;
    while (last->next)
        last = last->next;
    assert_int_equal(last->column, 200000 * 43 + 2);
    json_document_free(d);
    buf_deinit(&b);
}

static void members_are_found_by_name(void **state)
{
    struct json_document *d = NULL;
    assert_int_equal(json_parse(SV("{\"a\":1,\"ab\":[2]}"), "f", &d, NULL), 0);
    const struct json_node *root = json_root(d);
    assert_int_equal(json_find(root, "a")->integer, 1);
    assert_true(json_find(root, "a")->real == 1.0);
    assert_int_equal(json_find(root, "ab")->kind, JSON_ARRAY);
    assert_null(json_find(root, "b"));
    assert_null(json_find(root, ""));
    assert_null(json_find(json_find(root, "ab"), "a"));
    assert_null(json_find(NULL, "a"));
    json_document_free(d);
    json_document_free(NULL);
}

static void kinds_have_names_for_messages(void **state)
{
    assert_string_equal(json_kind_text(JSON_OBJECT), "an object");
    assert_string_equal(json_kind_text(JSON_STRING), "a string");
    assert_string_equal(json_kind_text(JSON_NULL), "null");
}

static void strings_are_escaped_as_go_does(void **state)
{
    static const struct {
        struct sv in;
        const char *out;
    } cases[] = {
        {{"", 0}, "\"\""},
        {{"plain text", 10}, "\"plain text\""},
        {{"<a>&\xe2\x80\xa8\x01\"\\/\t\xc3\xa9", 14},
         "\"\\u003ca\\u003e\\u0026\\u2028\\u0001\\\"\\\\/\\t\xc3\xa9\""},
        {{"\xff\xfe", 2}, "\"\\ufffd\\ufffd\""},
        {{"\xe2\x80\xa9\xe2\x80\xaa\xe2\x80", 8}, "\"\\u2029\xe2\x80\xaa\\ufffd\\ufffd\""},
        {{"\n\r\b\f\x00\x1f\x7f", 7}, "\"\\n\\r\\b\\f\\u0000\\u001f\x7f\""},
        {{"\xed\xa0\x80\xc0\x80", 5}, "\"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\""},
        {{"\xf0\x9f\x98\x80", 4}, "\"\xf0\x9f\x98\x80\""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf b = BUF_INIT(1000);
        json_add_string(&b, cases[i].in);
        assert_string_equal(buf_cstr(&b), cases[i].out);
        buf_deinit(&b);
    }
}

static void numbers_are_written_as_go_does(void **state)
{
    static const struct {
        double in;
        const char *out;
    } cases[] = {
        {65, "65"},
        {-65, "-65"},
        {0, "0"},
        {-0.0, "-0"},
        {0.5, "0.5"},
        {0.1, "0.1"},
        {0.0001, "0.0001"},
        {0.00012345, "0.00012345"},
        {0.00001, "0.00001"},
        {0.000012345, "0.000012345"},
        {-0.00009, "-0.00009"},
        {1e-6, "0.000001"},
        {1.25e-6, "0.00000125"},
        {9.99e-7, "9.99e-7"},
        {2.5e-7, "2.5e-7"},
        {-2.5e-7, "-2.5e-7"},
        {1e-7, "1e-7"},
        {1e-9, "1e-9"},
        {1e-10, "1e-10"},
        {5e-324, "5e-324"},
        {1234567.891, "1234567.891"},
        {1e15, "1000000000000000"},
        {999999999999999, "999999999999999"},
        {-1e15, "-1000000000000000"},
        {1e20, "100000000000000000000"},
        {1e21, "1e+21"},
        {1700000000, "1700000000"},
        {123456789012345680, "123456789012345680"},
        {1.7976931348623157e308, "1.7976931348623157e+308"},
        {3.0000000000000004, "3.0000000000000004"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct buf b = BUF_INIT(1000);
        json_add_number(&b, cases[i].in);
        assert_string_equal(buf_cstr(&b), cases[i].out);
        buf_deinit(&b);
    }
}

// What we write, jansson reads: any bytes come back, invalid ones as U+FFFD.
static void what_is_written_reads_back(void **state)
{
    uint64_t random = 88172645463325252u;
    for (int round = 0; round < 2000; round++) {
        char bytes[12];
        size_t len = 0;
        for (; len < sizeof(bytes) && (random & 0xf000); len++) {
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            bytes[len] =
                (char)(random & 1 ? (random >> 8 & 0x7f) | 1 : (random >> 8 & 0xff) | 0x80);
        }
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        double number;
        memcpy(&number, &random, sizeof(number));
        number = isfinite(number) ? number : 1.5;
        struct buf b = BUF_INIT(1000);
        buf_add_char(&b, '[');
        json_add_string(&b, (struct sv){bytes, len});
        buf_add_char(&b, ',');
        json_add_number(&b, number);
        buf_add_char(&b, ']');
        struct json_document *d = NULL;
        struct error err = ERROR_INIT;
        if (json_parse(buf_sv(&b), "f", &d, &err) < 0)
            fail_msg("%s: %s", err.text, buf_cstr(&b));
        const struct json_node *text = json_root(d)->first;
        assert_true(sv_is_utf8(text->string));
        if (sv_is_utf8((struct sv){bytes, len}))
            assert_true(sv_equals(text->string, (struct sv){bytes, len}));
        assert_memory_equal(&text->next->real, &number, sizeof(number));
        json_document_free(d);
        buf_deinit(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_documents_become_trees_with_places),
        cmocka_unit_test(bad_documents_are_refused_with_a_position),
        cmocka_unit_test(a_nul_byte_is_refused_wherever_it_stands),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(depth_is_capped_exactly),
        cmocka_unit_test(a_nesting_bomb_is_left_at_the_cap),
        cmocka_unit_test(size_is_capped_exactly),
        cmocka_unit_test(values_are_capped_exactly),
        cmocka_unit_test(a_long_line_is_located_in_linear_time),
        cmocka_unit_test(members_are_found_by_name),
        cmocka_unit_test(kinds_have_names_for_messages),
        cmocka_unit_test(strings_are_escaped_as_go_does),
        cmocka_unit_test(numbers_are_written_as_go_does),
        cmocka_unit_test(what_is_written_reads_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
