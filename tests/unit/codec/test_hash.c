// SPDX-License-Identifier: Apache-2.0
#include "codec/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/macros.h"

// Computed with Go's crypto/md5.
static void hashmod_takes_the_last_half_of_the_md5(void **state)
{
    static const struct {
        const char *text;
        uint64_t hash;
    } cases[] = {
        {"", UINT64_C(16825458760271544958)},
        {"baz", UINT64_C(16450797887570275976)},
        {"10.0.0.1:9400", UINT64_C(10987688926785053563)},
        {"a;b", UINT64_C(2420134994223480074)},
        {"node-1;nvidia0", UINT64_C(6877512266161161074)},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_true(hash_md5_last64(sv_from(cases[i].text)) == cases[i].hash);
    assert_true(hash_md5_last64((struct sv){NULL, 0}) == cases[0].hash);
    assert_int_equal(hash_md5_last64(SV("foo\nbar")) % 1000, 734);
}

// The xxHash library's own value of the empty input without a seed.
static void the_128_bit_hash_is_xxh3(void **state)
{
    struct hash128 h = hash_128(SV(""), 0);
    assert_true(h.low == UINT64_C(0x6001c324468d497f));
    assert_true(h.high == UINT64_C(0x99aa06d3014798d8));
}

static void hashes_depend_on_bytes_and_seed(void **state)
{
    struct hash128 a = hash_128(SV("label=\"a\""), 1);
    struct hash128 b = hash_128(SV("label=\"b\""), 1);
    struct hash128 c = hash_128(SV("label=\"a\""), 2);
    struct hash128 again = hash_128(SV("label=\"a\""), 1);
    assert_memory_equal(&a, &again, sizeof(a));
    assert_true(a.low != b.low && a.high != b.high);
    assert_true(a.low != c.low && a.high != c.high);
}

static void the_seed_stays_for_the_process(void **state)
{
    assert_true(hash_seed() == hash_seed());
    assert_true(hash_seed() != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hashmod_takes_the_last_half_of_the_md5),
        cmocka_unit_test(the_128_bit_hash_is_xxh3),
        cmocka_unit_test(hashes_depend_on_bytes_and_seed),
        cmocka_unit_test(the_seed_stays_for_the_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
