// SPDX-License-Identifier: Apache-2.0
// Each allocation fails once, over a life of a table: pages, a change of labels, growth. RE2 ends
// the program when it is out of memory, so its rules are read before and do not match by text.
// parser_next is wrapped, too: a stale marker has no text, so no page can hold one.
#include "series_fixture.h"

#include <math.h>

#include "../allocation_sweep.h"

int __real_parser_next(struct parser *p, struct parse_sample *out, struct error *err);
int __wrap_parser_next(struct parser *p, struct parse_sample *out, struct error *err);

// A value of 0xdead becomes the stale marker.
int __wrap_parser_next(struct parser *p, struct parse_sample *out, struct error *err)
{
    int r = __real_parser_next(p, out, err);
    const uint64_t marker = UINT64_C(0x7ff0000000000002);
    if (r == 1 && out->value == 0xdead)
        memcpy(&out->value, &marker, sizeof(marker));
    return r;
}

static void a_stale_marker_in_the_page_ends_its_series(void **state)
{
    struct fixture f;
    fixture_init(&f, "");
    f.job.sample_limit = 2;
    fixture_start(&f);
    fixture_take(&f, "a 1\nb 1\n");
    buf_reset(&f.sink.log);
    fixture_take(&f, "a 57005\nb 2\nc 3\n"); // it does not count for the limit either
    fixture_expect(&f, "s3 c{} none new\nbegin T1 1000\ns1 stale\ns2=2@1000\ns3=3@1000\nend\n");
    fixture_take(&f, "a 57005\nb 3\n"); // nor ends it twice
    fixture_expect(&f, "begin T1 1000\ns2=3@1000\ns3 stale\nend\n");
    fixture_take(&f, "b 4\n");
    fixture_expect(&f, "begin T1 1000\ns2=4@1000\nend\n");
    fixture_take(&f, "a 5 555\n");
    fixture_take(&f, "a 57005 556\n"); // who gives timestamps ends series so
    fixture_expect(&f, "begin T1 1000\ns1=5@555\ns2 stale\nend\nbegin T1 1000\ns1 stale\nend\n");
    fixture_deinit(&f);
}

static char long_value[9000];
static struct buf pages[3];

static void make_pages(void)
{
    memset(long_value, 'v', sizeof(long_value) - 1);
    for (size_t i = 0; i < ARRAY_SIZE(pages); i++)
        pages[i] = BUF_INIT(1u << 20);
    for (unsigned i = 0; i < 40; i++) {
        buf_add_fmt(&pages[0], "# TYPE m%u gauge\nm%u{job=\"x\",l=\"\\\\\"} 1\n", i, i);
        buf_add_fmt(&pages[1], "# TYPE m%u counter\nm%u{job=\"x\",l=\"\\\\\"} 2\nn%u 1\n", i, i, i);
    }
    buf_add_fmt(&pages[2], "m0{job=\"x\",l=\"\\\\\"} 3\nlong{l=\"%s\\\\\",job=\"%s\"} 1\n",
                long_value, long_value);
}

static void take_or_lack(struct fixture *f, struct sv page, unsigned series)
{
    size_t before = series_table_count(f->table);
    bool failed_before = allocation_failed;
    int r = fixture_take_sv(f, page);
    if (r == 0) {
        assert_int_equal(series_table_count(f->table), series);
        return;
    }
    assert_true(r == -ENOMEM && allocation_failed && !failed_before);
    assert_string_equal(f->err.text, "out of memory");
    assert_true(series_table_count(f->table) <= before); // less what is too old
    assert_int_equal(fixture_take_sv(f, page), 0);       // once more, and all is well
    assert_int_equal(series_table_count(f->table), series);
}

static void live(void)
{
    struct fixture f;
    struct sink sink;
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    fixture_init(&f, "job=j instance=i");
    f.sink.wants_internal = true;
    (void)!buf_reserve(&f.sink.log, (1u << 20) - 1); // what the test itself needs
    struct labels before = f.labels;
    fixture_set_labels(&f, "job=k instance=i");
    struct labels after = f.labels;
    f.labels = before;
    allocation_until_failure = left;

    struct series_options o = fixture_options(&f, &sink);
    int r = series_table_new(&o, &f.table);
    if (r == -ENOMEM) {
        assert_true(allocation_failed && !f.table);
        r = series_table_new(&o, &f.table);
    }
    assert_int_equal(r, 0);
    take_or_lack(&f, buf_sv(&pages[0]), 40);
    take_or_lack(&f, buf_sv(&pages[1]), 80);
    o.labels = &after;
    r = series_table_renew(f.table, &o);
    if (r == -ENOMEM)
        r = series_table_renew(f.table, &o);
    assert_int_equal(r, 0);
    take_or_lack(&f, buf_sv(&pages[2]), 81);
    take_or_lack(&f, buf_sv(&pages[1]), 81);
    f.now_ms += 1000000;
    take_or_lack(&f, buf_sv(&pages[2]), 2);
    assert_int_equal(f.sink.live_series, 2 + REPORT_COUNT);
    assert_int_equal(f.sink.live_targets, 1);
    fixture_deinit(&f);
}

static void a_table_survives_each_failed_allocation(void **state)
{
    make_pages();
    assert_true(allocation_sweep(live) >= 200);
    for (size_t i = 0; i < ARRAY_SIZE(pages); i++)
        buf_deinit(&pages[i]);
}

static void a_page_without_new_series_allocates_nothing_for_them(void **state)
{
    struct fixture f;
    struct buf page = BUF_INIT(1u << 20);
    fixture_init(&f, "job=j");
    (void)!buf_reserve(&f.sink.log, (1u << 20) - 1);
    fixture_start(&f);
    for (unsigned i = 0; i < 1000; i++)
        buf_add_fmt(&page, "m%u{job=\"x\",l=\"\\\\\"} 1\n", i);
    assert_int_equal(fixture_take_sv(&f, buf_sv(&page)), 0);
    buf_reset(&f.sink.log);
    unsigned before = allocation_count;
    assert_int_equal(fixture_take_sv(&f, buf_sv(&page)), 0);
    assert_int_equal(allocation_count, before);
    buf_deinit(&page);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stale_marker_in_the_page_ends_its_series),
        cmocka_unit_test(a_table_survives_each_failed_allocation),
        cmocka_unit_test(a_page_without_new_series_allocates_nothing_for_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
