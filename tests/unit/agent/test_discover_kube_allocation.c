// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "agent/discover_kube_store.h"

static const struct {
    enum kube_kind kind;
    const char *key, *text;
} objects[] = {
    {KUBE_KIND_NODE, "n1", "{\"metadata\":{\"labels\":{\"z\":\"1\"}}}"},
    {KUBE_KIND_SERVICE, "ns/e", "{\"metadata\":{\"annotations\":{\"x\":\"y\"}}}"},
    {KUBE_KIND_POD, "ns/p",
     "{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"spec\":{\"nodeName\":\"n1\",\"containers\":[{"
     "\"name\":"
     "\"c\",\"ports\":[{\"containerPort\":80},{\"containerPort\":81}]}]},\"status\":{\"podIP\":\"1."
     "1.1.1\"}}"},
    {KUBE_KIND_ENDPOINTS, "ns/e",
     "{\"subsets\":[{\"addresses\":[{\"ip\":\"1.1.1.1\",\"nodeName\":\"n1\",\"targetRef\":{"
     "\"kind\":\"Pod\","
     "\"namespace\":\"ns\",\"name\":\"p\"}},{\"ip\":\"2.2.2.2\",\"nodeName\":\"n2\"}],\"ports\":[{"
     "\"port\":80},"
     "{\"port\":90}]}]}"},
};
static struct json_document *documents[sizeof(objects) / sizeof(objects[0])];

static int put_all(struct kube_store *s)
{
    int r = 0;
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]) && r == 0; i++)
        r = kube_store_put(s, objects[i].kind, sv_from(objects[i].key), json_root(documents[i]));
    return r;
}

// What failed for want of memory is whole when it is done again.
static void join_everything(void)
{
    struct kube_store s;
    const char *source;
    struct target_group *g = NULL;
    kube_store_init(&s, KUBE_KIND_ENDPOINTS, true, NULL);
    int r = put_all(&s);
    if (r < 0) {
        assert_true(r == -ENOMEM && allocation_failed);
        assert_int_equal(put_all(&s), 0);
    }
    r = kube_store_next(&s, &source, &g);
    if (r == -ENOMEM) {
        assert_true(allocation_failed && kube_store_has_news(&s));
        r = kube_store_next(&s, &source, &g);
    }
    assert_int_equal(r, 1);
    assert_string_equal(source, "endpoints/ns/e");
    assert_int_equal(g->count, 5); // two ports of two addresses, and the pod's other port
    target_group_unref(g);
    kube_store_remove(&s, KUBE_KIND_ENDPOINTS, SV("ns/e"));
    kube_store_remove(&s, KUBE_KIND_POD, SV("ns/p"));
    kube_store_deinit(&s);
}

static void joining_survives_each_failed_allocation(void **state)
{
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
        assert_int_equal(json_parse(sv_from(objects[i].text), "t", &documents[i], NULL), 0);
    assert_true(allocation_sweep(join_everything) >= 20);
    for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
        json_document_free(documents[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joining_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
