// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"

static void pieces_are_aligned_and_keep_their_content(void **state)
{
    (void)state;
    struct arena a = ARENA_INIT(1u << 20);
    unsigned char *pieces[200];
    for (unsigned i = 0; i < 200; i++) {
        (void)arena_dup(&a, SV("x")); // texts are not aligned
        pieces[i] = arena_alloc(&a, i + 1);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % _Alignof(max_align_t), 0);
        memset(pieces[i], (int)i, i + 1);
    }
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(pieces[i][0], i);
        assert_int_equal(pieces[i][i], i);
    }
    arena_deinit(&a);
    assert_int_equal(a.total_bytes, 0);
}

static void a_copy_is_terminated_and_may_hold_nul(void **state)
{
    (void)state;
    struct arena a = ARENA_INIT(1u << 20);
    assert_memory_equal(arena_dup(&a, SV("a\0b")), "a\0b\0", 4);
    assert_string_equal(arena_dup(&a, (struct sv){NULL, 0}), "");
    arena_deinit(&a);
}

static void the_ceiling_holds_for_all_blocks_together(void **state)
{
    (void)state;
    struct arena a = ARENA_INIT(3u << 20);
    assert_non_null(arena_alloc(&a, 1u << 20));
    assert_non_null(arena_alloc(&a, 1u << 20));
    assert_null(arena_alloc(&a, (1u << 20) + 1));
    assert_int_equal(a.error, -EFBIG);
    assert_null(arena_alloc(&a, 1)); // the first failure sticks
    arena_reset(&a);
    assert_int_equal(a.error, 0);
    assert_non_null(arena_alloc(&a, 2u << 20)); // beside the oldest block, which stays
    assert_int_equal(a.total_bytes, 3u << 20);
    assert_null(arena_dup(&a, (struct sv){"", SIZE_MAX - 1}));
    assert_int_equal(a.error, -EFBIG);
    arena_deinit(&a);
}

static void a_reset_gives_the_oldest_block_again(void **state)
{
    (void)state;
    struct arena a = ARENA_INIT(1u << 20);
    void *first = arena_alloc(&a, 100);
    for (unsigned i = 0; i < 1000; i++)
        assert_non_null(arena_alloc(&a, 100));
    arena_reset(&a);
    assert_ptr_equal(arena_alloc(&a, 100), first);
    assert_int_equal(a.total_bytes, 4096);
    arena_deinit(&a);
}

static void erasing_overwrites_every_block(void **state)
{
    struct arena a = ARENA_INIT(1u << 20);
    const char *texts[3];
    for (size_t i = 0; i < 3; i++) {
        texts[i] = arena_dup(&a, SV("secret"));
        assert_non_null(arena_alloc(&a, 5000)); // the next text is in another block
    }
    arena_erase(&a);
    for (size_t i = 0; i < 3; i++)
        assert_memory_equal(texts[i], "\0\0\0\0\0\0", 7);
    arena_deinit(&a);
    arena_erase(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_keep_their_content),
        cmocka_unit_test(a_copy_is_terminated_and_may_hold_nul),
        cmocka_unit_test(the_ceiling_holds_for_all_blocks_together),
        cmocka_unit_test(a_reset_gives_the_oldest_block_again),
        cmocka_unit_test(erasing_overwrites_every_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
