// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/discover_document.h"
#include "base/buf.h"
#include "base/limits.h"

static const struct label extra = {SV("__meta_url"), SV("u")};

static void targets_have_their_groups_labels_and_what_the_caller_adds(void **state)
{
    static const char json[] =
        "[{\"targets\":[\"a:1\",\"b:2\"],\"labels\":{\"x\":\"y\",\"__address__\":\"no\","
        "\"e\":\"\",\"__meta_url\":\"no\"}},{\"targets\":[\"c:3\"]},{\"labels\":{\"q\":\"r\"}},{}]";
    static const char yaml[] = "- targets: ['a:1', 'b:2']\n  labels: {x: y, __address__: no, e: , "
                               "__meta_url: no}\n- targets: [c:3]\n- labels: {q: r}\n- {}\n";
    for (int i = 0; i < 2; i++) {
        struct target_group *g = NULL;
        struct error err = ERROR_INIT;
        int r = i == 0 ? discover_document_read_json(SV(json), "f", &extra, &g, &err)
                       : discover_document_read_yaml(SV(yaml), "f", &extra, &g, &err);
        assert_int_equal(r, 0);
        assert_int_equal(g->count, 3);
        static const char *const addresses[] = {"a:1", "b:2", "c:3"};
        for (size_t k = 0; k < 3; k++) {
            const struct labels *l = &g->targets[k];
            assert_int_equal(l->count, k < 2 ? 3 : 2);
            assert_true(sv_equals(labels_get(l, SV("__address__")), sv_from(addresses[k])));
            assert_true(sv_equals(labels_get(l, SV("__meta_url")), SV("u")));
            assert_true(sv_equals(labels_get(l, SV("x")), k < 2 ? SV("y") : SV("")));
        }
        target_group_unref(g);
    }
}

static void empty_documents_have_no_targets(void **state)
{
    static const char *const yaml[] = {"", "# x\n", "[]", "null", "--- \n"};
    static const char *const json[] = {"[]", " [ ] "};
    struct error err = ERROR_INIT;
    struct target_group *g;
    for (size_t i = 0; i < sizeof(yaml) / sizeof(yaml[0]); i++) {
        assert_int_equal(discover_document_read_yaml(sv_from(yaml[i]), "f", &extra, &g, &err), 0);
        assert_int_equal(g->count, 0);
        target_group_unref(g);
    }
    for (size_t i = 0; i < sizeof(json) / sizeof(json[0]); i++) {
        assert_int_equal(discover_document_read_json(sv_from(json[i]), "f", &extra, &g, &err), 0);
        assert_int_equal(g->count, 0);
        target_group_unref(g);
    }
}

// A document of that many targets.
static int read_many(size_t count, size_t *out_count)
{
    struct buf text = BUF_INIT(LIMIT_JSON_BYTES);
    struct target_group *g = NULL;
    struct error err = ERROR_INIT;
    buf_add_str(&text, "[{\"targets\":[");
    for (size_t i = 0; i < count; i++)
        buf_add_str(&text, i ? ",\"h\"" : "\"h\"");
    buf_add_str(&text, "]}]");
    int r = discover_document_read_json(buf_sv(&text), "f", &extra, &g, &err);
    *out_count = g ? g->count : 0;
    if (r < 0)
        assert_string_equal(err.text, "more than 65536 targets");
    target_group_unref(g);
    buf_deinit(&text);
    return r;
}

static void the_cap_of_targets_is_exact(void **state)
{
    size_t count;
    assert_int_equal(read_many(LIMIT_SD_TARGETS, &count), 0);
    assert_int_equal(count, LIMIT_SD_TARGETS);
    assert_int_equal(read_many(LIMIT_SD_TARGETS + 1, &count), -EFBIG);
}

static void a_document_cut_anywhere_is_refused_or_whole(void **state)
{
    static const char json[] = "[{\"targets\":[\"a:1\"],\"labels\":{\"x\":\"y\"}}]";
    for (size_t length = 0; length < sizeof(json) - 1; length++) {
        struct target_group *g = NULL;
        struct error err = ERROR_INIT;
        assert_int_equal(
            discover_document_read_json((struct sv){json, length}, "f", &extra, &g, &err), -EINVAL);
        assert_null(g);
        assert_true(err.text[0] && err.line >= 1);
    }
}

static void a_group_takes_as_many_as_it_has_room_for(void **state)
{
    struct target_group *g = target_group_new(2, 1u << 20);
    assert_non_null(target_group_add(g, 4));
    assert_non_null(target_group_add(g, 0));
    assert_null(target_group_add(g, 1));
    assert_int_equal(g->count, 2);
    assert_ptr_equal(target_group_ref(g), g);
    target_group_unref(g);
    target_group_unref(g);
    assert_null(target_group_new(SIZE_MAX / 4, 1u << 20));
    assert_null(target_group_new(1000, 100));
    target_group_unref(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_have_their_groups_labels_and_what_the_caller_adds),
        cmocka_unit_test(empty_documents_have_no_targets),
        cmocka_unit_test(the_cap_of_targets_is_exact),
        cmocka_unit_test(a_document_cut_anywhere_is_refused_or_whole),
        cmocka_unit_test(a_group_takes_as_many_as_it_has_room_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
