// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/spool_record.h"

// Two events of a stream, 3 and 4 samples.
static struct buf example(uint64_t sequence)
{
    struct buf b = BUF_INIT(SPOOL_RECORD_BYTES_MAX);
    spool_record_begin(&b, SV("grp"), SV("st"));
    spool_record_add(&b, 1767323045000, 3, SV("{}"));
    spool_record_add(&b, 1767323045001, 4, SV("{\"a\":1}"));
    assert_int_equal(b.error, 0);
    const struct spool_info info = {
        .events = 2, .samples = 7, .first_ms = 1767323045000, .last_ms = 1767323045001};
    spool_record_finish(b.data, b.len, &info);
    spool_record_seal(b.data, b.len, sequence);
    return b;
}

// The checksums as a program of libxxhash alone gives them.
static const char bytes_of_example[] = "50475352"         // magic
                                       "01005800"         // version, bytes of the header
                                       "0000000000000000" // waits
                                       "0500000000000000" // sequence
                                       "2e000000"         // bytes behind the header
                                       "02000000"         // events
                                       "0700000000000000" // samples
                                       "888ca97c9b010000" // first
                                       "898ca97c9b010000" // last
                                       "0300"
                                       "0200"
                                       "00000000" // lengths of the names
                                       "6888c9ddf82e2b042ee31d44054715d5"
                                       "c03a14502a255b4e"
                                       "677270"
                                       "7374"
                                       "888ca97c9b010000"
                                       "03000000"
                                       "02000000"
                                       "7b7d"
                                       "898ca97c9b010000"
                                       "04000000"
                                       "07000000"
                                       "7b2261223a317d";

static void a_record_has_exactly_these_bytes(void **state)
{
    struct buf b = example(5);
    char hex[512];
    assert_int_equal(b.len * 2, sizeof(bytes_of_example) - 1);
    for (size_t i = 0; i < b.len; i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", (unsigned char)b.data[i]);
    assert_string_equal(hex, bytes_of_example);
    buf_deinit(&b);
}

static void a_record_is_read_as_it_was_written(void **state)
{
    struct buf b = example(5);
    struct spool_info info;
    struct spool_event e;
    assert_true(spool_record_is_whole(buf_sv(&b), &info));
    assert_int_equal(info.sequence, 5);
    assert_int_equal(info.bytes, b.len);
    assert_int_equal(info.events, 2);
    assert_int_equal(info.samples, 7);
    assert_int_equal(info.first_ms, 1767323045000);
    assert_int_equal(info.last_ms, 1767323045001);
    assert_true(sv_equals(info.group, SV("grp")) && sv_equals(info.stream, SV("st")));
    assert_false(info.is_acknowledged);
    struct sv events = spool_record_events(buf_sv(&b));
    assert_true(spool_event_next(&events, &e));
    assert_int_equal(e.timestamp_ms, 1767323045000);
    assert_int_equal(e.samples, 3);
    assert_true(sv_equals(e.message, SV("{}")));
    assert_true(spool_event_next(&events, &e));
    assert_true(sv_equals(e.message, SV("{\"a\":1}")));
    assert_false(spool_event_next(&events, &e));
    buf_deinit(&b);
}

static void an_acknowledgement_changes_only_its_field(void **state)
{
    struct buf b = example(5);
    struct spool_info info;
    spool_record_acknowledgement(b.data + SPOOL_CHECK_OFFSET, b.data + SPOOL_ACK_OFFSET);
    assert_true(spool_record_is_whole(buf_sv(&b), &info));
    assert_true(info.is_acknowledged);
    for (unsigned bit = 0; bit < 64; bit++) {
        b.data[SPOOL_ACK_OFFSET + bit / 8] ^= (char)(1u << bit % 8);
        assert_true(spool_record_is_whole(buf_sv(&b), &info));
        assert_false(info.is_acknowledged);
        b.data[SPOOL_ACK_OFFSET + bit / 8] ^= (char)(1u << bit % 8);
    }
    buf_deinit(&b);
}

// Three records, sequences 1 to 3.
static struct buf three(void)
{
    struct buf all = BUF_INIT(1u << 20);
    for (uint64_t i = 1; i <= 3; i++) {
        struct buf b = example(i);
        buf_add_sv(&all, buf_sv(&b));
        buf_deinit(&b);
    }
    return all;
}

struct tally {
    unsigned whole, corrupt, damaged, torn, newer;
    uint64_t sequences; // sum of those of whole records
    uint64_t corrupt_samples;
};

static struct tally scan(const char *bytes, size_t len)
{
    struct tally t = {0};
    struct spool_info info;
    enum spool_found what;
    size_t at, last = 0;
    char *copy = malloc(len ? len : 1); // of exactly this size, for the sanitizer
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    struct spool_scan s = {.bytes = {copy, len}};
    while ((what = spool_scan_next(&s, &at, &info)) != SPOOL_FOUND_END) {
        assert_true(at < s.at && s.at <= len && at >= last);
        last = s.at;
        t.whole += what == SPOOL_FOUND_RECORD;
        t.corrupt += what == SPOOL_FOUND_CORRUPT;
        t.damaged += what == SPOOL_FOUND_DAMAGED;
        t.torn += what == SPOOL_FOUND_TORN;
        t.newer += what == SPOOL_FOUND_NEWER;
        if (what == SPOOL_FOUND_RECORD) {
            t.sequences += info.sequence;
            assert_true(info.events == 2 && info.samples == 7 && !info.is_acknowledged);
        } else {
            t.corrupt_samples += info.samples;
        }
    }
    free(copy);
    return t;
}

static void a_cut_at_every_byte_leaves_the_whole_records(void **state)
{
    struct buf all = three();
    size_t each = all.len / 3;
    for (size_t cut = 0; cut <= all.len; cut++) {
        struct tally t = scan(all.data, cut);
        bool has_header = cut % each >= SPOOL_HEADER_BYTES;
        assert_int_equal(t.whole, cut / each);
        assert_int_equal(t.torn, cut % each != 0);
        assert_int_equal(t.corrupt + t.damaged + t.newer, 0);
        assert_int_equal(t.corrupt_samples, has_header ? 7 : 0);
    }
    buf_deinit(&all);
}

static void any_wrong_byte_costs_its_record_alone(void **state)
{
    struct buf all = three();
    size_t each = all.len / 3;
    static const unsigned char flips[] = {1, 0x80, 0xff};
    for (size_t i = 0; i < all.len; i++) {
        size_t in_record = i % each;
        if (in_record >= SPOOL_ACK_OFFSET && in_record < SPOOL_ACK_OFFSET + 8)
            continue; // an_acknowledgement_changes_only_its_field
        for (size_t k = 0; k < sizeof(flips); k++) {
            all.data[i] ^= (char)flips[k];
            struct tally t = scan(all.data, all.len);
            bool in_header = in_record < SPOOL_HEADER_BYTES, is_last = i / each == 2;
            assert_int_equal(t.whole, 2);
            assert_int_equal(t.sequences, 6 - (i / each + 1));
            assert_int_equal(t.corrupt, !in_header);
            assert_int_equal(t.damaged, in_header && !is_last);
            assert_int_equal(t.torn, in_header && is_last);
            assert_int_equal(t.corrupt_samples, in_header ? 0 : 7);
            all.data[i] ^= (char)flips[k];
        }
    }
    buf_deinit(&all);
}

static struct tally scan_one(struct buf *b)
{
    spool_record_seal(b->data, b->len, 5);
    struct tally t = scan(b->data, b->len);
    buf_deinit(b);
    return t;
}

static void put(char *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (char)(value >> 8 * i);
}

// Whoever writes such a thing knows how to make checksums.
static void a_record_that_contradicts_itself_is_none(void **state)
{
    static const struct {
        const char *what;
        size_t offset, bytes;
        uint64_t value;
        bool is_counted; // its numbers could be true
    } cases[] = {
        {"no events", 28, 4, 0, false},
        {"one event too few", 28, 4, 1, true},
        {"too many events", 28, 4, 10001, false},
        {"another number of samples", 32, 8, 8, true},
        {"more samples than events can have", 32, 8, UINT64_MAX, false},
        {"an earlier first", 40, 8, 1767323044999, true},
        {"a later last", 48, 8, 1767323045002, true},
        {"the last before the first", 48, 8, 1767323044999, false},
        {"a span of more than a day", 40, 8, 1767323045001 - 86400001, false},
        {"a time before 1970", 40, 8, (uint64_t)-5, false},
        {"a name longer than the record", 56, 2, 65535, true},
        {"a name that ends elsewhere", 58, 2, 3, true},
        {"a message longer than the record", 88 + 5 + 12, 4, 1000, true},
        {"an empty message", 88 + 5 + 12, 4, 0, true},
        {"events out of order", 88 + 5, 8, 1767323045002, true},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct buf b = example(5);
        put(b.data + cases[i].offset, cases[i].value, cases[i].bytes);
        struct tally t = scan_one(&b);
        if (t.whole != 0 || t.corrupt != 1 || (t.corrupt_samples > 0) != cases[i].is_counted)
            fail_msg("%s: %u whole, %u corrupt", cases[i].what, t.whole, t.corrupt);
    }
}

static void a_header_that_claims_too_much_is_none(void **state)
{
    struct buf b = example(5);
    put(b.data + 24, SPOOL_RECORD_BYTES_MAX, 4);
    // Its length is over the ceiling: no record, and nothing behind it.
    spool_record_seal(b.data, b.len, 5);
    struct tally t = scan(b.data, b.len);
    assert_true(t.whole == 0 && t.torn == 1 && t.corrupt_samples == 0);
    buf_deinit(&b);
    b = example(5);
    spool_record_seal(b.data, b.len, UINT64_C(1) << 62);
    t = scan(b.data, b.len);
    assert_true(t.whole == 0 && t.corrupt == 1 && t.corrupt_samples == 0);
    buf_deinit(&b);
}

static void another_version_is_left_alone(void **state)
{
    struct buf b = example(5);
    b.data[4] = 2;
    struct tally t = scan_one(&b);
    assert_true(t.newer == 1 && t.whole == 0 && t.corrupt == 0);
}

static void garbage_between_records_is_passed_over(void **state)
{
    struct buf all = BUF_INIT(1u << 20);
    struct buf one = example(1);
    buf_add_str(&all, "PGSRPGSR and a little more, PGS");
    buf_add_sv(&all, buf_sv(&one));
    buf_add(&all, one.data, 60); // half a header
    buf_add_sv(&all, buf_sv(&one));
    struct tally t = scan(all.data, all.len);
    assert_true(t.whole == 2 && t.damaged == 2 && t.torn == 0 && t.corrupt == 0);
    buf_deinit(&one);
    buf_deinit(&all);
}

static void the_largest_batch_fits(void **state)
{
    struct buf b = BUF_INIT(SPOOL_RECORD_BYTES_MAX);
    char name[SPOOL_NAME_BYTES_MAX], message[1048576 / 10000 - 26];
    memset(name, 'n', sizeof(name));
    memset(message, 'm', sizeof(message));
    spool_record_begin(&b, (struct sv){name, sizeof(name)}, (struct sv){name, sizeof(name)});
    for (unsigned i = 0; i < 10000; i++)
        spool_record_add(&b, 1767323045000, UINT32_MAX, (struct sv){message, sizeof(message)});
    assert_int_equal(b.error, 0);
    struct spool_info info = {.events = 10000,
                              .samples = 10000 * (uint64_t)UINT32_MAX,
                              .first_ms = 1767323045000,
                              .last_ms = 1767323045000};
    spool_record_finish(b.data, b.len, &info);
    spool_record_seal(b.data, b.len, 1);
    assert_true(spool_record_is_whole(buf_sv(&b), &info));
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_has_exactly_these_bytes),
        cmocka_unit_test(a_record_is_read_as_it_was_written),
        cmocka_unit_test(an_acknowledgement_changes_only_its_field),
        cmocka_unit_test(a_cut_at_every_byte_leaves_the_whole_records),
        cmocka_unit_test(any_wrong_byte_costs_its_record_alone),
        cmocka_unit_test(a_record_that_contradicts_itself_is_none),
        cmocka_unit_test(a_header_that_claims_too_much_is_none),
        cmocka_unit_test(another_version_is_left_alone),
        cmocka_unit_test(garbage_between_records_is_passed_over),
        cmocka_unit_test(the_largest_batch_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
