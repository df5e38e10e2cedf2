// SPDX-License-Identifier: Apache-2.0
#include "agent/labels.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/limits.h"

static struct arena arena;

static int setup(void **state)
{
    arena = ARENA_INIT(1u << 20);
    return 0;
}

static int teardown(void **state)
{
    arena_deinit(&arena);
    return 0;
}

static void set(struct labels *l, const char *name, const char *value)
{
    assert_int_equal(labels_set(l, sv_from(name), sv_from(value)), 0);
}

static void expect(const struct labels *l, const char *text)
{
    struct buf b = BUF_INIT(1u << 16);
    for (size_t i = 0; i < l->count; i++)
        buf_add_fmt(&b, "%s%.*s=%.*s", i ? " " : "", SV_FMT(l->items[i].name),
                    SV_FMT(l->items[i].value));
    assert_string_equal(buf_cstr(&b), text);
    buf_deinit(&b);
}

static void names_stand_sorted_and_once(void **state)
{
    struct labels l;
    labels_init(&l, &arena);
    expect(&l, "");
    set(&l, "m", "1");
    set(&l, "a", "2");
    set(&l, "z", "3");
    set(&l, "ab", "4");
    set(&l, "B", "5");
    set(&l, "__name__", "6");
    expect(&l, "B=5 __name__=6 a=2 ab=4 m=1 z=3");
    set(&l, "a", "new");
    expect(&l, "B=5 __name__=6 a=new ab=4 m=1 z=3");
}

static void names_and_values_are_copied(void **state)
{
    struct labels l;
    char name[] = "name", value[] = "value";
    labels_init(&l, &arena);
    set(&l, name, value);
    name[0] = value[0] = 'x';
    expect(&l, "name=value");
    assert_int_equal(labels_set_borrowed(&l, SV("b"), sv_from(value)), 0);
    value[1] = 'x';
    expect(&l, "b=xxlue name=value");
}

static void an_empty_value_deletes(void **state)
{
    struct labels l;
    labels_init(&l, &arena);
    set(&l, "a", "1");
    set(&l, "b", "2");
    set(&l, "a", "");
    set(&l, "c", "");
    expect(&l, "b=2");
    assert_int_equal(labels_set_borrowed(&l, SV("b"), SV("")), 0);
    expect(&l, "");
    labels_delete(&l, SV("b"));
}

static void absent_labels_are_empty(void **state)
{
    struct labels l;
    labels_init(&l, &arena);
    set(&l, "b", "2");
    assert_true(sv_equals(labels_get(&l, SV("b")), SV("2")));
    assert_int_equal(labels_get(&l, SV("a")).len, 0);
    assert_int_equal(labels_get(&l, SV("c")).len, 0);
    assert_true(labels_has(&l, SV("b")));
    assert_false(labels_has(&l, SV("bb")));
    assert_false(labels_has(&l, SV("")));
}

static void a_prefix_is_deleted_whole(void **state)
{
    struct labels l;
    labels_init(&l, &arena);
    for (const char *const *name = (const char *const[]){"__meta_a", "__meta", "__meta_", "__metb",
                                                         "__address__", "__meta_zz", "a", NULL};
         *name; name++)
        set(&l, *name, "1");
    labels_delete_prefix(&l, SV("__meta_"));
    expect(&l, "__address__=1 __meta=1 __metb=1 a=1");
    labels_delete_prefix(&l, SV("b"));
    labels_delete_prefix(&l, SV("__"));
    expect(&l, "a=1");
    labels_delete_prefix(&l, SV(""));
    expect(&l, "");
}

static void copies_stand_alone(void **state)
{
    struct arena other = ARENA_INIT(1u << 20);
    struct labels l, copy;
    labels_init(&l, &other);
    labels_init(&copy, &arena);
    set(&copy, "old", "x");
    set(&l, "a", "1");
    set(&l, "b", "2");
    assert_int_equal(labels_copy(&copy, &l), 0);
    assert_true(labels_equal(&copy, &l));
    arena_deinit(&other);
    expect(&copy, "a=1 b=2");
}

static void equal_means_all_names_and_values(void **state)
{
    struct labels a, b;
    labels_init(&a, &arena);
    labels_init(&b, &arena);
    assert_true(labels_equal(&a, &b));
    set(&a, "x", "1");
    assert_false(labels_equal(&a, &b));
    set(&b, "x", "2");
    assert_false(labels_equal(&a, &b));
    set(&b, "x", "1");
    assert_true(labels_equal(&a, &b));
    set(&a, "y", "1");
    set(&b, "z", "1");
    assert_false(labels_equal(&a, &b));
}

static void their_number_is_capped_exactly(void **state)
{
    struct labels l;
    labels_init(&l, &arena);
    for (unsigned i = 0; i < LIMIT_LABELS; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "label_%u", i);
        set(&l, name, "x");
    }
    assert_int_equal(labels_set(&l, SV("one_more"), SV("x")), -E2BIG);
    assert_int_equal(l.count, LIMIT_LABELS);
    set(&l, "label_7", "y"); // there already
    set(&l, "label_8", "");
    set(&l, "one_more", "x");
}

static void a_full_arena_is_told(void **state)
{
    struct arena small = ARENA_INIT(5000);
    struct labels l, copy;
    labels_init(&l, &small);
    labels_init(&copy, &small);
    char long_value[6000] = "";
    memset(long_value, 'v', sizeof(long_value) - 1);
    set(&l, "a", "1");
    assert_int_equal(labels_set(&l, SV("b"), sv_from(long_value)), -E2BIG);
    expect(&l, "a=1");
    assert_int_equal(labels_copy(&copy, &l), -E2BIG);
    arena_deinit(&small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_stand_sorted_and_once),
        cmocka_unit_test(names_and_values_are_copied),
        cmocka_unit_test(an_empty_value_deletes),
        cmocka_unit_test(absent_labels_are_empty),
        cmocka_unit_test(a_prefix_is_deleted_whole),
        cmocka_unit_test(copies_stand_alone),
        cmocka_unit_test(equal_means_all_names_and_values),
        cmocka_unit_test(their_number_is_capped_exactly),
        cmocka_unit_test(a_full_arena_is_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
