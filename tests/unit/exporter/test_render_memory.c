// SPDX-License-Identifier: Apache-2.0
// Memory: every allocation of a page fails once, and a page that changes nothing allocates nothing.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "render_fixture.h"

static int page(struct fixture *f, enum text_format format, struct buf *out)
{
    const struct render_input in = fixture_input(f);
    buf_reset(out);
    return render_page(f->render, &in, format, out);
}

static void sweep(bool warm)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new_rich_dcgm();
    f->options.mig_board_once = true; // one list more
    char *want = strdup(fixture_page(f, TEXT_FORMAT_PROMETHEUS));
    unsigned rounds = 0;
    do {
        render_free(f->render);
        assert_int_equal(render_new(&f->render), 0);
        struct buf out = BUF_INIT(LIMIT_PAGE_BYTES);
        if (warm) {
            assert_int_equal(page(f, TEXT_FORMAT_PROMETHEUS, &out), 0);
            f->owners.version++; // everything anew, in memory that is there
            buf_deinit(&out);
        }
        allocation_failed = false;
        allocation_until_failure = ++rounds;
        int r = page(f, TEXT_FORMAT_PROMETHEUS, &out);
        allocation_until_failure = 0;
        assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
        // The next page is whole again.
        assert_int_equal(page(f, TEXT_FORMAT_PROMETHEUS, &out), 0);
        assert_string_equal(buf_cstr(&out), want);
        buf_deinit(&out);
    } while (allocation_failed && rounds < 1000);
    assert_true(rounds > 3 && rounds < 1000);
    free(want);
}

static void test_each_failing_allocation_is_survived_cold(void **state)
{
    sweep(false);
}

static void test_each_failing_allocation_is_survived_warm(void **state)
{
    sweep(true);
}

static void test_render_new_fails_cleanly(void **state)
{
    struct render *r = NULL;
    allocation_until_failure = 1;
    assert_int_equal(render_new(&r), -ENOMEM);
    assert_null(r);
}

static void test_a_page_with_other_numbers_allocates_nothing(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new_rich();
    struct buf out = BUF_INIT(LIMIT_PAGE_BYTES);
    for (int format = 0; format < TEXT_FORMAT_COUNT; format++)
        assert_int_equal(page(f, (enum text_format)format, &out), 0);
    assert_int_equal(buf_reserve(&out, 1 << 20), 0);
    for (unsigned i = 0; i < 20; i++) {
        fixture_i64(f, 1, 252, 5000 + i);
        fixture_f64(f, 3, 155, 99.5 + i);
        f->now_ns += NS_PER_S / 4;
        f->self.http.requests += 1;
        f->self.page_bytes = out.len;
        unsigned before = allocation_count;
        for (int format = 0; format < TEXT_FORMAT_COUNT; format++)
            assert_int_equal(page(f, (enum text_format)format, &out), 0);
        assert_int_equal(allocation_count - before, 0);
    }
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_failing_allocation_is_survived_cold),
        cmocka_unit_test(test_each_failing_allocation_is_survived_warm),
        cmocka_unit_test(test_render_new_fails_cleanly),
        cmocka_unit_test(test_a_page_with_other_numbers_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
