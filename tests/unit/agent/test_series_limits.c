// SPDX-License-Identifier: Apache-2.0
// Limits on the number of samples and series, each at one less, the limit and one more.
#include "series_fixture.h"

#include "base/limits.h"

// name0{} 1 ... count lines from first on.
static void add_lines(struct buf *page, const char *name, unsigned first, unsigned count)
{
    for (unsigned i = first; i < first + count; i++)
        buf_add_fmt(page, "%s%u 1\n", name, i);
}

static int take_lines(struct fixture *f, unsigned first, unsigned count)
{
    struct buf page = BUF_INIT(1u << 20);
    add_lines(&page, "m", first, count);
    int r = fixture_take_sv(f, buf_sv(&page));
    buf_deinit(&page);
    return r;
}

static void the_sample_limit_counts_what_relabelling_left(void **state)
{
    static const struct {
        const char *page, *error; // NULL: within the limit of 3
        unsigned relabelled;
    } cases[] = {
        {"a 1\nb 1\n", NULL, 2},
        {"a 1\nb 1\nc 1\n", NULL, 3},
        {"a 1\nb 1\nc 1\nd 1\n", "sample_limit exceeded: 4 samples after relabelling, 3 at most",
         4},
        {"a 1\nb 1\nc 1\nd 1\ndrop 1\ne 1\nf 1\n",
         "sample_limit exceeded: 6 samples after relabelling, 3 at most", 6},
        {"a 1\nb 1\nc 1\ndrop 1\ndrop2 1\n", NULL, 3},
        {"a 1\na 2\na 3\na 4\na 5\n", NULL, 5}, // one series
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct fixture f;
        fixture_init(&f, "");
        f.job.sample_limit = 3;
        fixture_set_rules(&f, "- {source_labels: [__name__], regex: drop.*, action: drop}");
        fixture_start(&f);
        for (int turn = 0; turn < 2; turn++) {
            int r = fixture_take_sv(&f, sv_from(cases[i].page));
            if (r != (cases[i].error ? -EINVAL : 0) ||
                strcmp(f.err.text, cases[i].error ? cases[i].error : "") != 0 ||
                f.result.relabelled != cases[i].relabelled)
                fail_msg("%s: %d, %llu, %s", cases[i].page, r,
                         (unsigned long long)f.result.relabelled, f.err.text);
        }
        if (cases[i].error)
            assert_int_equal(series_table_count(f.table), 0);
        fixture_deinit(&f);
    }
}

static void samples_that_no_sink_wants_count_for_the_limit(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    f.sink.unwanted = "a";
    f.job.sample_limit = 1;
    fixture_start(&f);
    fixture_take(&f, "a 1\n");
    assert_int_equal(fixture_take_sv(&f, SV("a 1\nb 1\n")), -EINVAL);
    fixture_deinit(&f);
}

static void a_page_over_the_limit_ends_what_was_there(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    f.job.sample_limit = 2;
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\n");
    buf_reset(&f.sink.log);
    assert_int_equal(fixture_take_sv(&f, SV("a 2\nb 2\nc 2\nd 2\n")), -EINVAL);
    // Where the limit is passed, nothing more is told.
    fixture_expect(&f, "s3 c{} none new\n-s3\nbegin T1 1000\ns1 stale\ns2 stale\nend\n");
    fixture_take(&f, "b 3\na 3\n");
    fixture_expect(&f, "begin T1 1000\ns1=3@1000\ns2=3@1000\nend\n");
    fixture_deinit(&f);
}

static void a_target_has_as_many_series_as_the_cap_and_no_more(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    assert_int_equal(f.table->store.max, LIMIT_TARGET_SERIES);
    f.table->store.max = 100;
    assert_int_equal(take_lines(&f, 0, 99), 0);
    assert_int_equal(take_lines(&f, 0, 100), 0);
    assert_int_equal(series_table_count(f.table), 100);
    assert_int_equal(take_lines(&f, 0, 101), -E2BIG);
    assert_string_equal(f.err.text, "more than 100 series of one target");
    assert_int_equal(f.result.scraped, 101);
    assert_int_equal(series_table_count(f.table), 100);
    assert_int_equal(f.sink.live_series, 100);
    assert_int_equal(take_lines(&f, 0, 100), 0);
    fixture_deinit(&f);
}

static void series_that_are_gone_make_room_at_the_cap(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    fixture_start(&f);
    f.table->store.max = 100;
    assert_int_equal(take_lines(&f, 0, 60), 0);
    assert_int_equal(take_lines(&f, 50, 10), 0); // 0 to 49 are gone
    assert_int_equal(series_table_count(f.table), 60);
    assert_int_equal(take_lines(&f, 50, 60), 0); // 110 would be too many
    assert_int_equal(series_table_count(f.table), 60);
    assert_int_equal(f.sink.live_series, 60);
    assert_int_equal(take_lines(&f, 200, 50), -E2BIG); // those of the last page stay
    assert_int_equal(series_table_count(f.table), 60);
    assert_int_equal(take_lines(&f, 50, 60), 0);
    fixture_deinit(&f);
}

static void a_failed_page_leaves_the_series_where_they_were(void **state)
{
    struct fixture f;
    struct buf page = BUF_INIT(1u << 22);
    fixture_init(&f, "");
    fixture_start(&f);
    assert_int_equal(take_lines(&f, 0, 40), 0);
    const size_t capacity = f.table->store.capacity;
    // Over many growths of the table, known and new lines mixed.
    for (unsigned i = 0; i < 5000; i++)
        buf_add_fmt(&page, "m%u 1\nx%u 2\n", i % 40, i);
    buf_add_str(&page, "broken\n");
    assert_int_equal(fixture_take_sv(&f, buf_sv(&page)), -EINVAL);
    assert_int_equal(f.err.line, 10001);
    assert_int_equal(series_table_count(f.table), 40);
    assert_int_equal(f.sink.live_series, 40);
    assert_true(f.table->store.capacity < 4 * capacity); // and does not keep the memory
    buf_reset(&f.sink.log);
    assert_int_equal(take_lines(&f, 0, 40), 0);
    assert_null(strstr(buf_cstr(&f.sink.log), "m")); // all are known
    buf_deinit(&page);
    fixture_deinit(&f);
}

static void many_series_are_found_again(void **state)
{
    struct fixture f;
    struct buf page = BUF_INIT(1u << 22);
    fixture_init(&f, "");
    f.sink.log.max = 1u << 24;
    fixture_start(&f);
    add_lines(&page, "m", 0, 20000);
    assert_int_equal(fixture_take_sv(&f, buf_sv(&page)), 0);
    buf_reset(&page);
    for (unsigned i = 20000; i-- > 0;)
        buf_add_fmt(&page, "m%u 2\n", i);
    assert_int_equal(fixture_take_sv(&f, buf_sv(&page)), 0);
    assert_int_equal(f.result.relabelled, 20000);
    assert_int_equal(f.result.added, 0);
    assert_int_equal(f.result.duplicates, 0);
    assert_int_equal(f.sink.live_series, 20000);
    buf_deinit(&page);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sample_limit_counts_what_relabelling_left),
        cmocka_unit_test(samples_that_no_sink_wants_count_for_the_limit),
        cmocka_unit_test(a_page_over_the_limit_ends_what_was_there),
        cmocka_unit_test(a_target_has_as_many_series_as_the_cap_and_no_more),
        cmocka_unit_test(series_that_are_gone_make_room_at_the_cap),
        cmocka_unit_test(a_failed_page_leaves_the_series_where_they_were),
        cmocka_unit_test(many_series_are_found_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
