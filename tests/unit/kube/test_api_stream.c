// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/limits.h"
#include "kube/api_stream.h"

struct found {
    struct buf text; // objects, a line each
    int answer;
};

static int on_found(void *user, struct sv object)
{
    struct found *f = user;
    buf_add_sv(&f->text, object);
    buf_add_char(&f->text, '\n');
    return f->answer;
}

// The outcome of feeding text in pieces; what was found and the rest as text.
static int feed(enum kube_stream_kind kind, struct sv text, size_t piece, struct found *f,
                struct buf *rest, bool *complete)
{
    struct kube_stream s;
    int r = 0;
    *f = (struct found){.text = BUF_INIT(1u << 24)};
    kube_stream_init(&s, on_found, f);
    kube_stream_start(&s, kind);
    for (size_t at = 0; at < text.len && r == 0; at += piece)
        r = kube_stream_feed(&s, sv_sub(text, at, piece));
    *complete = kube_stream_is_complete(&s);
    *rest = BUF_INIT(1u << 20);
    buf_add_sv(rest, buf_sv(&s.rest));
    kube_stream_deinit(&s);
    return r;
}

static const struct {
    const char *text, *found, *rest;
    enum kube_stream_kind kind;
    int result;
} cases[] = {
    {"{\"kind\":\"PodList\",\"metadata\":{\"continue\":\"x\"},\"items\":[{\"a\":1},{\"b\":[{}]}]}"
     "\n",
     "{\"a\":1}\n{\"b\":[{}]}\n",
     "{\"kind\":\"PodList\",\"metadata\":{\"continue\":\"x\"},\"items\":[]}\n", KUBE_STREAM_LIST,
     0},
    {"{\"items\" : [ {} , {} ] ,\"z\":1}", "{}\n{}\n", "{\"items\" : [] ,\"z\":1}",
     KUBE_STREAM_LIST, 0},
    {"{\"items\":[],\"kind\":\"L\"}", "", "{\"items\":[],\"kind\":\"L\"}", KUBE_STREAM_LIST, 0},
    {"{\"items\":null}", "", "{\"items\":null}", KUBE_STREAM_LIST, 0},
    // Not the list's own items.
    {"{\"metadata\":{\"items\":[{\"a\":1}]}}", "", "{\"metadata\":{\"items\":[{\"a\":1}]}}",
     KUBE_STREAM_LIST, 0},
    {"{\"kind\":\"items\",\"x\":[{}]}", "", "{\"kind\":\"items\",\"x\":[{}]}", KUBE_STREAM_LIST, 0},
    {"{\"itemsets\":[{}]}", "", "{\"itemsets\":[{}]}", KUBE_STREAM_LIST, 0},
    // Brackets and quotes in strings.
    {"{\"items\":[{\"a\":\"}]\\\"{\\\\\"},{\"b\":\"[\"}]}",
     "{\"a\":\"}]\\\"{\\\\\"}\n{\"b\":\"[\"}\n", "{\"items\":[]}", KUBE_STREAM_LIST, 0},
    {"<html>", "", "", KUBE_STREAM_LIST, -EBADMSG},
    {"[{}]", "", "", KUBE_STREAM_LIST, -EBADMSG},
    {"\"text\"", "", "", KUBE_STREAM_LIST, -EBADMSG},
    {"{}}", "", "{}", KUBE_STREAM_LIST, -EBADMSG},
    {"{\"type\":\"ADDED\",\"object\":{}}\n{\"type\":\"B\"}{\"c\":{\"d\":1}}\n",
     "{\"type\":\"ADDED\",\"object\":{}}\n{\"type\":\"B\"}\n{\"c\":{\"d\":1}}\n", "",
     KUBE_STREAM_WATCH, 0},
    {"\n\n", "", "", KUBE_STREAM_WATCH, 0},
    {"{\"items\":[{}]}", "{\"items\":[{}]}\n", "", KUBE_STREAM_WATCH, 0},
    {"{\"a\":1} x", "{\"a\":1}\n", "", KUBE_STREAM_WATCH, -EBADMSG},
};

static void objects_are_found_however_the_bytes_come(void **state)
{
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct sv text = sv_from(cases[i].text);
        for (size_t piece = 1; piece <= text.len; piece++) {
            struct found f;
            struct buf rest;
            bool complete;
            int r = feed(cases[i].kind, text, piece, &f, &rest, &complete);
            assert_int_equal(r, cases[i].result);
            assert_string_equal(buf_cstr(&f.text), cases[i].found);
            if (r == 0) {
                assert_string_equal(buf_cstr(&rest), cases[i].rest);
                assert_true(complete);
            }
            buf_deinit(&f.text);
            buf_deinit(&rest);
        }
    }
}

static void a_document_cut_short_is_not_complete(void **state)
{
    struct sv text = SV("{\"kind\":\"PodList\",\"items\":[{\"a\":\"b\"}]}");
    for (size_t length = 1; length <= text.len; length++) {
        struct found f;
        struct buf rest;
        bool complete;
        assert_int_equal(
            feed(KUBE_STREAM_LIST, sv_sub(text, 0, length), length, &f, &rest, &complete), 0);
        assert_int_equal(complete, length == text.len);
        buf_deinit(&f.text);
        buf_deinit(&rest);
    }
}

// An object of this many bytes between two small ones.
static size_t found_around(size_t bytes, size_t *out_skipped)
{
    char *text = malloc(bytes + 32);
    struct found f = {.text = BUF_INIT(1u << 24)};
    struct kube_stream s;
    size_t at = 0, lines = 0;
    memcpy(text, "{}{\"", 4);
    memset(text + 4, 'x', bytes - 3);
    memcpy(text + 2 + bytes - 2, "\"}{}", 4);
    kube_stream_init(&s, on_found, &f);
    kube_stream_start(&s, KUBE_STREAM_WATCH);
    for (size_t end = bytes + 4; at < end; at += 65536)
        assert_int_equal(kube_stream_feed(&s, sv_sub((struct sv){text, end}, at, 65536)), 0);
    for (size_t i = 0; i < f.text.len; i++)
        lines += f.text.data[i] == '\n';
    *out_skipped = s.skipped;
    assert_true(kube_stream_is_complete(&s));
    assert_true(s.object.cap <= 65536);
    kube_stream_deinit(&s);
    buf_deinit(&f.text);
    free(text);
    return lines;
}

static void an_object_over_the_limit_is_left_out_and_counted(void **state)
{
    size_t skipped;
    assert_int_equal(found_around(LIMIT_KUBE_OBJECT_BYTES - 1, &skipped), 3);
    assert_int_equal(found_around(LIMIT_KUBE_OBJECT_BYTES, &skipped), 3);
    assert_int_equal(skipped, 0);
    assert_int_equal(found_around(LIMIT_KUBE_OBJECT_BYTES + 1, &skipped), 2);
    assert_int_equal(skipped, 1);
}

static void a_list_with_much_beside_its_items_is_none(void **state)
{
    struct kube_stream s;
    struct found f = {.text = BUF_INIT(16)};
    char text[4096];
    int r = 0;
    memset(text, 'x', sizeof(text));
    kube_stream_init(&s, on_found, &f);
    kube_stream_start(&s, KUBE_STREAM_LIST);
    assert_int_equal(kube_stream_feed(&s, SV("{\"")), 0);
    for (size_t i = 0; i < LIMIT_KUBE_LIST_REST_BYTES / sizeof(text) + 1 && r == 0; i++)
        r = kube_stream_feed(&s, (struct sv){text, sizeof(text)});
    assert_int_equal(r, -EBADMSG);
    assert_int_equal(kube_stream_feed(&s, SV("{}")), -EBADMSG);
    kube_stream_deinit(&s);
}

static void what_the_finder_returns_ends_the_feed(void **state)
{
    struct kube_stream s;
    struct found f = {.text = BUF_INIT(1024), .answer = -ECANCELED};
    kube_stream_init(&s, on_found, &f);
    kube_stream_start(&s, KUBE_STREAM_WATCH);
    assert_int_equal(kube_stream_feed(&s, SV("{}{}")), -ECANCELED);
    assert_string_equal(buf_cstr(&f.text), "{}\n");
    kube_stream_deinit(&s);
    buf_deinit(&f.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(objects_are_found_however_the_bytes_come),
        cmocka_unit_test(a_document_cut_short_is_not_complete),
        cmocka_unit_test(an_object_over_the_limit_is_left_out_and_counted),
        cmocka_unit_test(a_list_with_much_beside_its_items_is_none),
        cmocka_unit_test(what_the_finder_returns_ends_the_feed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
