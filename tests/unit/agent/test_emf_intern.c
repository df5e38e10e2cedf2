// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/sinks/emf_intern.h"

#define MANY 2000

struct item {
    struct intern_item base;
    char key[16];
};

static struct item items[MANY];

static void make(unsigned i)
{
    (void)snprintf(items[i].key, sizeof(items[i].key), "key %u", i);
    items[i].base = (struct intern_item){.key = sv_from(items[i].key)};
}

static void what_was_added_is_found_until_its_last_reference_goes(void **state)
{
    struct intern t = {0};
    assert_null(intern_ref(&t, SV("key 0")));
    for (unsigned i = 0; i < MANY; i++) {
        make(i);
        assert_int_equal(intern_add(&t, &items[i].base), 0);
    }
    assert_int_equal(t.count, MANY);
    for (unsigned i = 0; i < MANY; i += 2)
        assert_ptr_equal(intern_ref(&t, sv_from(items[i].key)), &items[i].base);
    for (unsigned i = 0; i < MANY; i++)
        assert_int_equal(intern_unref(&t, &items[i].base), i % 2); // even ones have another
    for (unsigned i = 0; i < MANY; i++) {
        struct intern_item *found = intern_ref(&t, sv_from(items[i].key));
        assert_ptr_equal(found, i % 2 ? NULL : &items[i].base);
        if (found)
            assert_false(intern_unref(&t, found));
    }
    for (unsigned i = 0; i < MANY; i += 2)
        assert_true(intern_unref(&t, &items[i].base));
    assert_int_equal(t.count, 0);
    intern_deinit(&t);
}

// Hashes that collide in small tables.
static uint64_t colliding(unsigned i)
{
    return (uint64_t)i << 12 | (i % 3);
}

static void a_tally_counts_different_hashes_while_they_have_users(void **state)
{
    struct tally t = {0};
    tally_remove(&t, 5);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < MANY; i++)
            tally_add(&t, colliding(i));
        assert_int_equal(t.count, MANY);
    }
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < MANY; i++)
            tally_remove(&t, colliding(i));
        assert_int_equal(t.count, MANY);
    }
    for (unsigned i = 0; i < MANY; i++) {
        tally_remove(&t, colliding(i));
        tally_remove(&t, colliding(i)); // one that is not there
        assert_int_equal(t.count, MANY - 1 - i);
    }
    tally_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_added_is_found_until_its_last_reference_goes),
        cmocka_unit_test(a_tally_counts_different_hashes_while_they_have_users),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
