// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/limits.h"
#include "kube/pod_devices.h"

#define ROW(pod_, container_, id_)                                                                 \
    ((struct pod_device){"default", (pod_), (container_), "nvidia.com/gpu", (id_), 0})

static struct pod_devices *list_of(const struct pod_device *rows, size_t count)
{
    struct pod_devices_owned *d = pod_devices_new();
    assert_non_null(d);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pod_devices_append(d, &rows[i]), 0);
    return &d->list;
}
#define LIST(...)                                                                                  \
    list_of((const struct pod_device[]){__VA_ARGS__},                                              \
            sizeof((const struct pod_device[]){__VA_ARGS__}) / sizeof(struct pod_device))

static struct pod_devices *follow(struct pod_devices *fresh, struct pod_devices *previous,
                                  bool keep, size_t want_kept)
{
    size_t kept = SIZE_MAX;
    assert_int_equal(pod_devices_follow(fresh, previous, keep, &kept), 0);
    assert_int_equal(kept, want_kept);
    return fresh;
}

// Expects "pod/container/id pod/container/id ...".
static void assert_rows(const struct pod_devices *list, const char *want)
{
    char got[512] = "";
    size_t len = 0;
    for (size_t i = 0; i < list->count; i++)
        len +=
            (size_t)snprintf(got + len, sizeof(got) - len, "%s%s/%s/%s", i ? " " : "",
                             list->rows[i].pod, list->rows[i].container, list->rows[i].device_id);
    assert_string_equal(got, want);
}

static void a_first_list_is_sorted_by_pod_and_keeps_wire_order_within(void **state)
{
    struct pod_devices *a = LIST(ROW("b", "z", "2"), ROW("b", "a", "1"), ROW("a", "c", "3"));
    follow(a, NULL, false, 0);
    assert_rows(a, "a/c/3 b/z/2 b/a/1");
    pod_devices_unref(a);
    struct pod_devices *none = list_of(NULL, 0);
    follow(none, NULL, true, 0);
    assert_int_equal(none->count, 0);
    pod_devices_unref(none);
}

static void namespaces_sort_before_pods(void **state)
{
    struct pod_devices *a = LIST(((struct pod_device){"z", "a", "c", "r", "1", 0}),
                                 ((struct pod_device){"b", "x", "c", "r", "2", 0}));
    follow(a, NULL, false, 0);
    assert_string_equal(a->rows[0].namespace_name, "b");
    pod_devices_unref(a);
}

static void pods_keep_the_order_in_which_they_came(void **state)
{
    struct pod_devices *first = follow(LIST(ROW("m", "c", "1")), NULL, false, 0);
    struct pod_devices *second =
        follow(LIST(ROW("a", "c", "2"), ROW("m", "c", "1")), first, false, 0);
    assert_rows(second, "m/c/1 a/c/2");
    struct pod_devices *third =
        follow(LIST(ROW("z", "c", "3"), ROW("b", "c", "4"), ROW("a", "c", "2"), ROW("m", "c", "1")),
               second, false, 0);
    assert_rows(third, "m/c/1 a/c/2 b/c/4 z/c/3");
    struct pod_devices *fourth =
        follow(LIST(ROW("b", "c", "4"), ROW("a", "c", "2"), ROW("z", "c", "3")), third, false, 0);
    assert_rows(fourth, "a/c/2 b/c/4 z/c/3");
    pod_devices_unref(first);
    pod_devices_unref(second);
    pod_devices_unref(third);
    pod_devices_unref(fourth);
}

// Expects "pod:since pod:since ...", one a row.
static void assert_since(const struct pod_devices *list, const char *want)
{
    char got[512] = "";
    size_t len = 0;
    for (size_t i = 0; i < list->count; i++)
        len += (size_t)snprintf(got + len, sizeof(got) - len, "%s%s:%u", i ? " " : "",
                                list->rows[i].pod, list->rows[i].since);
    assert_string_equal(got, want);
}

static void a_pod_is_as_old_as_the_list_that_first_had_it(void **state)
{
    struct pod_devices *first =
        follow(LIST(ROW("m", "c", "1"), ROW("n", "c", "2")), NULL, false, 0);
    assert_since(first, "m:1 n:1");
    struct pod_devices *second =
        follow(LIST(ROW("a", "c", "3"), ROW("m", "c", "1"), ROW("n", "c", "2"), ROW("b", "c", "4"),
                    ROW("b", "d", "5")),
               first, false, 0);
    assert_since(second, "m:1 n:1 a:2 b:2 b:2");
    // One that gets another device was made again; a kept row is as old as it was.
    struct pod_devices *third =
        follow(LIST(ROW("m", "c", "6"), ROW("a", "c", "3"), ROW("z", "c", "7")), second, true, 3);
    assert_rows(third, "n/c/2 a/c/3 b/c/4 b/d/5 m/c/6 z/c/7");
    assert_since(third, "n:1 a:2 b:2 b:2 m:3 z:3");
    pod_devices_unref(first);
    pod_devices_unref(second);
    pod_devices_unref(third);
}

static void a_pod_made_again_with_other_devices_is_new(void **state)
{
    struct pod_devices *before =
        follow(LIST(ROW("a", "c", "1"), ROW("b", "c", "2")), NULL, false, 0);
    struct pod_devices *after =
        follow(LIST(ROW("a", "c", "3"), ROW("b", "c", "2")), before, false, 0);
    assert_rows(after, "b/c/2 a/c/3");
    struct pod_devices *grown =
        follow(LIST(ROW("b", "c", "2"), ROW("b", "c", "1"), ROW("a", "c", "3")), after, false, 0);
    assert_rows(grown, "a/c/3 b/c/2 b/c/1");
    pod_devices_unref(before);
    pod_devices_unref(after);
    pod_devices_unref(grown);
}

static void vanished_rows_are_kept_on_request_only(void **state)
{
    struct pod_devices *before =
        follow(LIST(ROW("a", "c", "1"), ROW("b", "c", "2"), ROW("b", "d", "3"), ROW("x", "c", "4")),
               NULL, false, 0);
    struct pod_devices *dropped = follow(LIST(ROW("x", "c", "4")), before, false, 0);
    assert_rows(dropped, "x/c/4");
    struct pod_devices *kept = follow(LIST(ROW("x", "c", "4")), before, true, 3);
    assert_rows(kept, "a/c/1 b/c/2 b/d/3 x/c/4");
    assert_true(pod_devices_same_set(kept, before));
    struct pod_devices *emptied = follow(list_of(NULL, 0), before, true, 4);
    assert_rows(emptied, "a/c/1 b/c/2 b/d/3 x/c/4");
    pod_devices_unref(before); // kept rows have strings of their own
    assert_rows(kept, "a/c/1 b/c/2 b/d/3 x/c/4");
    pod_devices_unref(dropped);
    pod_devices_unref(kept);
    pod_devices_unref(emptied);
}

static void a_vanished_row_gives_way_to_the_new_holder_of_its_device(void **state)
{
    struct pod_devices *before =
        follow(LIST(ROW("a", "c", "1"), ROW("b", "c", "2")), NULL, false, 0);
    struct pod_devices *after = follow(LIST(ROW("n", "c", "1")), before, true, 1);
    assert_rows(after, "b/c/2 n/c/1");
    pod_devices_unref(before);
    pod_devices_unref(after);
}

static void a_vanished_row_gives_way_to_its_own_container_made_again(void **state)
{
    struct pod_devices *before =
        follow(LIST(ROW("a", "c", "1"), ROW("a", "c", "2"), ROW("a", "d", "3")), NULL, false, 0);
    struct pod_devices *after = follow(LIST(ROW("a", "c", "1")), before, true, 1);
    assert_rows(after, "a/c/1 a/d/3");
    pod_devices_unref(before);
    pod_devices_unref(after);
}

static void sets_are_the_same_in_any_order(void **state)
{
    struct pod_devices *a = LIST(ROW("a", "c", "1"), ROW("b", "c", "2"));
    struct pod_devices *b = LIST(ROW("b", "c", "2"), ROW("a", "c", "1"));
    struct pod_devices *c = LIST(ROW("b", "c", "1"), ROW("a", "c", "2"));
    struct pod_devices *d = LIST(ROW("a", "c", "1"));
    struct pod_devices *e = LIST(ROW("a", "c1", ""), ROW("b", "c", "2"));
    assert_true(pod_devices_same_set(a, b));
    assert_false(pod_devices_same_set(a, c));
    assert_false(pod_devices_same_set(a, d));
    assert_false(pod_devices_same_set(a, e));
    b->pods = 17; // how many pods are listed beside those with rows is no difference
    assert_true(pod_devices_same_set(a, b));
    pod_devices_unref(a);
    pod_devices_unref(b);
    pod_devices_unref(c);
    pod_devices_unref(d);
    pod_devices_unref(e);
}

static void columns_do_not_run_into_each_other(void **state)
{
    const struct pod_device a = {"x", "yz", "", "", "", 0};
    const struct pod_device b = {"xy", "z", "", "", "", 0};
    assert_true(row_hash(&a, ROW_ALL) != row_hash(&b, ROW_ALL));
    assert_false(row_equals(&a, &b, ROW_ALL));
    assert_true(row_equals(&a, &b, ROW_RESOURCE | ROW_ID));
    assert_true(row_hash(&a, ROW_RESOURCE | ROW_ID) == row_hash(&b, ROW_RESOURCE | ROW_ID));
}

// At the cap kept rows are counted like any others.
static void keeping_respects_the_cap(void **state)
{
    enum { COUNT = LIMIT_POD_DEVICES };
    static char ids[COUNT][8];
    struct pod_devices_owned *fresh = pod_devices_new();
    assert_non_null(fresh);
    for (size_t i = 0; i < COUNT - 1; i++) {
        snprintf(ids[i], sizeof(ids[i]), "%zu", i);
        const struct pod_device row = ROW("new", "c", ids[i]);
        assert_int_equal(pod_devices_append(fresh, &row), 0);
    }
    struct pod_devices *before = LIST(ROW("a", "c", "x"), ROW("b", "c", "y"));
    uint64_t start = clock_mono_ns();
    follow(&fresh->list, before, true, 1);
    assert_true(clock_mono_ns() - start < 2 * NS_PER_S);
    assert_int_equal(fresh->list.count, COUNT);
    assert_int_equal(fresh->list.skipped, 1);
    assert_string_equal(fresh->list.rows[0].device_id, "x");
    const struct pod_device more = ROW("more", "c", "z");
    assert_int_equal(pod_devices_append(fresh, &more), -EFBIG);
    pod_devices_unref(before);
    pod_devices_unref(&fresh->list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_first_list_is_sorted_by_pod_and_keeps_wire_order_within),
        cmocka_unit_test(namespaces_sort_before_pods),
        cmocka_unit_test(pods_keep_the_order_in_which_they_came),
        cmocka_unit_test(a_pod_is_as_old_as_the_list_that_first_had_it),
        cmocka_unit_test(a_pod_made_again_with_other_devices_is_new),
        cmocka_unit_test(vanished_rows_are_kept_on_request_only),
        cmocka_unit_test(a_vanished_row_gives_way_to_the_new_holder_of_its_device),
        cmocka_unit_test(a_vanished_row_gives_way_to_its_own_container_made_again),
        cmocka_unit_test(sets_are_the_same_in_any_order),
        cmocka_unit_test(columns_do_not_run_into_each_other),
        cmocka_unit_test(keeping_respects_the_cap),
    };
    return cmocka_run_group_tests_name("pod_devices", tests, NULL, NULL);
}
