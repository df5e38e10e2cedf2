// SPDX-License-Identifier: Apache-2.0
// Each allocation of a run of work fails once; every run must say -ENOMEM, leak nothing and leave
// its objects usable.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/map.h"

static unsigned until_failure; // 0: none fails
static bool failed;

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *p, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *p, size_t bytes);

static bool fails_now(void)
{
    if (!until_failure || --until_failure)
        return false;
    failed = true;
    return true;
}

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *p, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(p, bytes);
}

// Runs work with the first, second, ... allocation failing until a run needs fewer.
static unsigned sweep(void (*work)(void))
{
    unsigned n = 0;
    do {
        failed = false;
        until_failure = ++n;
        work();
        until_failure = 0;
    } while (failed);
    return n - 1;
}

static void use_buf(void)
{
    struct buf b = BUF_INIT(1 << 20);
    size_t whole = 0;
    for (unsigned i = 0; i < 3000 && !b.error; i++) {
        whole = b.len;
        buf_add_u64(&b, i);
    }
    assert_int_equal(b.error, failed ? -ENOMEM : 0);
    if (failed) {
        assert_int_equal(b.len, whole); // nothing half appended
        buf_reset(&b);
    }
    until_failure = 0;
    buf_add_str(&b, "usable");
    assert_int_equal(b.error, 0);
    buf_deinit(&b);
}

static void use_map(void)
{
    struct map m = MAP_INIT(1000);
    char key[] = "k00";
    int r = 0;
    unsigned added = 0;
    for (unsigned i = 0; i < 60 && r == 0; i++) {
        key[1] = (char)('0' + i / 10);
        key[2] = (char)('0' + i % 10);
        r = map_put(&m, sv_from(key), key, NULL);
        added += r == 0;
    }
    assert_int_equal(r, failed ? -ENOMEM : 0);
    assert_int_equal(m.count, added);
    assert_null(failed ? map_find(&m, sv_from(key)) : NULL);
    until_failure = 0;
    assert_int_equal(map_put(&m, SV("usable"), key, NULL), 0);
    assert_ptr_equal(map_find(&m, SV("usable")), key);
    map_deinit(&m);
}

static void buf_survives_each_failed_allocation(void **state)
{
    assert_int_equal(sweep(use_buf), 7); // 256 B doubled to 16 KiB
}

static void map_survives_each_failed_allocation(void **state)
{
    assert_int_equal(sweep(use_map), 60 + 4); // keys, and tables of 16 to 128 slots
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_survives_each_failed_allocation),
        cmocka_unit_test(map_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
