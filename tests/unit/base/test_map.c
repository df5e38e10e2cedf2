// SPDX-License-Identifier: Apache-2.0
#include "base/map.h"

#include <errno.h>
#include <stdio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define MANY 5000

static struct sv key_of(unsigned i, char *text, size_t text_bytes)
{
    return (struct sv){text, (size_t)snprintf(text, text_bytes, "key-%u", i)};
}

static void an_empty_map_finds_nothing(void **state)
{
    struct map m = MAP_INIT(10);
    size_t pos = 0;
    assert_null(map_find(&m, SV("a")));
    assert_null(map_remove(&m, SV("a")));
    assert_false(map_next(&m, &pos, NULL, NULL));
    map_deinit(&m);
}

static void keys_are_bytes_and_are_copied(void **state)
{
    struct map m = MAP_INIT(10);
    int one, two;
    char key[] = "a\0b";
    assert_int_equal(map_put(&m, (struct sv){key, 3}, &one, NULL), 0);
    key[2] = 'c';
    assert_int_equal(map_put(&m, (struct sv){key, 3}, &two, NULL), 0);
    assert_ptr_equal(map_find(&m, SV("a\0b")), &one);
    assert_ptr_equal(map_find(&m, SV("a\0c")), &two);
    assert_null(map_find(&m, SV("a")));
    assert_int_equal(map_put(&m, SV(""), &one, NULL), 0);
    assert_ptr_equal(map_find(&m, (struct sv){NULL, 0}), &one);
    map_deinit(&m);
}

static void putting_again_replaces_and_gives_the_old_value(void **state)
{
    struct map m = MAP_INIT(1);
    int one, two;
    void *old = &two;
    assert_int_equal(map_put(&m, SV("k"), &one, &old), 0);
    assert_null(old);
    assert_int_equal(map_put(&m, SV("k"), &two, &old), 0);
    assert_ptr_equal(old, &one);
    assert_int_equal(m.count, 1);
    assert_ptr_equal(map_remove(&m, SV("k")), &two);
    assert_int_equal(m.count, 0);
    map_deinit(&m);
}

static void the_cap_is_exact(void **state)
{
    struct map m = MAP_INIT(3);
    int value;
    assert_int_equal(map_put(&m, SV("1"), &value, NULL), 0);
    assert_int_equal(map_put(&m, SV("2"), &value, NULL), 0);
    assert_int_equal(map_put(&m, SV("3"), &value, NULL), 0);
    assert_int_equal(map_put(&m, SV("4"), &value, NULL), -E2BIG);
    assert_int_equal(map_put(&m, SV("3"), &value, NULL), 0);
    assert_non_null(map_remove(&m, SV("1")));
    assert_int_equal(map_put(&m, SV("4"), &value, NULL), 0);
    map_deinit(&m);
}

// Compared with a plain array of flags over a long run of puts and removes.
static void a_long_mixed_run_agrees_with_a_plain_array(void **state)
{
    static char present[MANY];
    struct map m = MAP_INIT(MANY);
    char text[32];
    uint64_t random = 12345;
    for (unsigned step = 0; step < 20 * MANY; step++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned i = (unsigned)(random >> 33) % MANY;
        struct sv key = key_of(i, text, sizeof(text));
        assert_ptr_equal(map_find(&m, key), present[i] ? &present[i] : NULL);
        if (random >> 63)
            assert_int_equal(map_put(&m, key, &present[i], NULL), 0);
        else
            assert_ptr_equal(map_remove(&m, key), present[i] ? &present[i] : NULL);
        present[i] = random >> 63 != 0;
    }
    size_t expected = 0, seen = 0, pos = 0;
    for (unsigned i = 0; i < MANY; i++)
        expected += present[i] != 0;
    struct sv key;
    void *value;
    while (map_next(&m, &pos, &key, &value)) {
        assert_int_equal(*(char *)value, 1);
        assert_ptr_equal(map_find(&m, key), value);
        seen++;
    }
    assert_int_equal(seen, expected);
    assert_int_equal(m.count, expected);
    map_deinit(&m);
}

// Vectors: CPython 3.11, hash(bytes(range(n))) under PYTHONHASHSEED=0, which is SipHash-1-3 under a
// zero key; the last one is the first of the Rust standard library's test-suite, under the key 00
// 01 .. 0f.
static void the_hash_is_siphash_1_3(void **state)
{
    static const struct {
        uint64_t k0, k1;
        size_t len;
        uint64_t hash;
    } cases[] = {
        {0, 0, 0, UINT64_C(0xd1fba762150c532c)},
        {0, 0, 1, UINT64_C(0x68a914128e01e473)},
        {0, 0, 7, UINT64_C(0x2f098ab0c751325a)},
        {0, 0, 8, UINT64_C(0xead411e67ebe2eea)},
        {0, 0, 9, UINT64_C(0x75927f9d95124362)},
        {0, 0, 16, UINT64_C(0x8972188433a5c5b7)},
        {0, 0, 63, UINT64_C(0x385d3e39e5f37359)},
        {UINT64_C(0x0706050403020100), UINT64_C(0x0f0e0d0c0b0a0908), 0,
         UINT64_C(0xabac0158050fc4dc)},
    };
    char input[64];
    for (unsigned i = 0; i < sizeof(input); i++)
        input[i] = (char)i;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_true(map_siphash13(cases[i].k0, cases[i].k1, (struct sv){input, cases[i].len}) ==
                    cases[i].hash);
    assert_int_equal(map_hash(SV("x")), map_hash(SV("x")));
    assert_int_not_equal(map_hash(SV("x")), map_hash(SV("y")));
    assert_int_not_equal(map_hash(SV("x")), map_siphash13(0, 0, SV("x")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_finds_nothing),
        cmocka_unit_test(keys_are_bytes_and_are_copied),
        cmocka_unit_test(putting_again_replaces_and_gives_the_old_value),
        cmocka_unit_test(the_cap_is_exact),
        cmocka_unit_test(a_long_mixed_run_agrees_with_a_plain_array),
        cmocka_unit_test(the_hash_is_siphash_1_3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
