// SPDX-License-Identifier: Apache-2.0
#include "frame_fixture.h"

// A USAGE frame in the making: two devices, of which the first has all.
struct usage_frame {
    struct frame_usage head;
    struct frame_usage_device devices[2];
    struct frame_usage_span spans[2];
    struct frame_usage_share shares[2];
    struct frame_usage_process processes[2];
};

static struct usage_frame good(void)
{
    return (struct usage_frame){
        .head = {.generation = 1,
                 .count = 2,
                 .spans = 2,
                 .shares = 2,
                 .processes = 2,
                 .vendor_calls = 8,
                 .started_ns = 1000,
                 .ended_ns = 2000},
        .devices = {{.entity = 0, .flags = 63, .spans = 2, .shares = 1, .processes = 2},
                    {.entity = 2, .flags = 21, .shares = 1}},
        .spans = {{.from_ns = 10, .to_ns = 20, .ppm = 1000000}, {20, 30, 0, 1}},
        .shares = {{10, 20, 7, 500000}, {10, 20, 7, 1000000}},
        .processes = {{.pid = 7, .kinds = 1, .memory_bytes = UINT64_MAX}, {8, 7, 1 << 20}},
    };
}

static void put_usage(struct fixture *f, const struct usage_frame *u, size_t less)
{
    char bytes[sizeof(*u)];
    size_t at = 0;
    const struct {
        const void *from;
        size_t bytes;
    } parts[] = {{&u->head, sizeof(u->head)},
                 {u->devices, sizeof(u->devices)},
                 {u->spans, sizeof(u->spans)},
                 {u->shares, sizeof(u->shares)},
                 {u->processes, sizeof(u->processes)}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        memcpy(bytes + at, parts[i].from, parts[i].bytes);
        at += parts[i].bytes;
    }
    put(f, FRAME_USAGE, bytes, at - less);
}

static void three_entities(struct fixture *f)
{
    const struct frame_entity list[] = {gpu(0, 0), instance(0, 0, 1), instance(0, 0, 2)};
    struct frame out;
    put_entities(f, 1, list, 3);
    assert_int_equal(next(f, &out), 1);
}

static void usage_comes_as_it_was_sent(void **state)
{
    struct fixture *f = *state;
    const struct usage_frame u = good();
    struct frame out;
    three_entities(f);
    put_usage(f, &u, 0);
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.type, FRAME_USAGE);
    assert_memory_equal(out.as.usage.head, &u.head, sizeof(u.head));
    assert_memory_equal(out.as.usage.devices, u.devices, sizeof(u.devices));
    assert_memory_equal(out.as.usage.spans, u.spans, sizeof(u.spans));
    assert_memory_equal(out.as.usage.shares, u.shares, sizeof(u.shares));
    assert_memory_equal(out.as.usage.processes, u.processes, sizeof(u.processes));
}

static void usage_of_another_list_comes_empty(void **state)
{
    struct fixture *f = *state;
    struct usage_frame u = good();
    struct frame out;
    three_entities(f);
    u.head.generation = 2;
    u.devices[1].entity = 4000;
    put_usage(f, &u, 0);
    assert_int_equal(next(f, &out), 1);
    assert_int_equal(out.as.usage.head->count, 0);
    assert_int_equal(out.as.usage.head->spans, 0);
    assert_int_equal(out.as.usage.head->shares, 0);
    assert_int_equal(out.as.usage.head->processes, 0);
}

static void usage_of_a_wrong_length_is_refused(void **state)
{
    (void)state;
    for (size_t less = 1; less <= sizeof(struct usage_frame); less++) {
        struct fixture *f = fresh();
        const struct usage_frame u = good();
        three_entities(f);
        put_usage(f, &u, less);
        assert_refused(f, "usage: length");
        done(f);
    }
}

#define REFUSED(change, text)                                                                      \
    do {                                                                                           \
        struct fixture *f_ = fresh();                                                              \
        struct usage_frame u = good();                                                             \
        three_entities(f_);                                                                        \
        change;                                                                                    \
        put_usage(f_, &u, 0);                                                                      \
        assert_refused(f_, text);                                                                  \
        done(f_);                                                                                  \
    } while (0)

static void what_does_not_hold_together_is_refused(void **state)
{
    (void)state;
    REFUSED(u.head.started_ns = 2001, "usage: ends before it starts");
    REFUSED(u.devices[1].taken_ns = u.head.ended_ns + 1, "usage: taken after its end");
    REFUSED(u.devices[1].entity = 3, "usage: entity");
    REFUSED(u.devices[1].entity = 0, "usage: entity");
    REFUSED(u.devices[0].entity = 2; u.devices[1].entity = 1, "usage: entity");
    REFUSED(u.devices[1].flags = 64, "usage: flags");
    REFUSED(u.devices[0].spans = 1, "usage: counts");
    REFUSED(u.devices[1].spans = 1, "usage: counts");
    REFUSED(u.devices[0].shares = 3, "usage: counts");
    REFUSED(u.devices[1].shares = 0, "usage: counts");
    REFUSED(u.devices[0].processes = 1, "usage: counts");
    REFUSED(u.devices[0].processes = UINT32_MAX, "usage: counts");
    REFUSED(u.spans[0].from_ns = 20, "usage: times of spans");
    REFUSED(u.spans[1].from_ns = 19, "usage: times of spans");
    REFUSED(u.spans[0].ppm = 1000001, "usage: span");
    REFUSED(u.spans[0].filled = 2, "usage: span");
    REFUSED(u.shares[1].to_ns = 10, "usage: share");
    REFUSED(u.shares[0].ppm = 1000001, "usage: share");
    REFUSED(u.processes[0].kinds = 0, "usage: process");
    REFUSED(u.processes[1].kinds = 8, "usage: process");
    REFUSED(u.head.count = LIMIT_ENTITIES + 1, "usage: length");
    REFUSED(u.head.spans = UINT32_MAX, "usage: length");
    REFUSED(u.head.shares = UINT32_MAX, "usage: length");
    REFUSED(u.head.processes = UINT32_MAX, "usage: length");
}

// n spans of one GPU.
static int put_spans(struct fixture *f, uint32_t n, struct frame *out)
{
    struct frame_usage head = {.generation = 1, .count = 1, .spans = n};
    struct frame_usage_device device = {.spans = n};
    size_t start = frame_begin(&f->wire, FRAME_USAGE);
    buf_add(&f->wire, &head, sizeof(head));
    buf_add(&f->wire, &device, sizeof(device));
    for (uint32_t i = 0; i < n; i++) {
        const struct frame_usage_span span = {.from_ns = i, .to_ns = i + 1};
        buf_add(&f->wire, &span, sizeof(span));
    }
    frame_end(&f->wire, start);
    return next(f, out);
}

static void usage_has_its_ceilings(void **state)
{
    struct fixture *f = *state;
    struct frame out;
    one_gpu(f);
    assert_int_equal(put_spans(f, LIMIT_USAGE_SPANS, &out), 1);
    assert_int_equal(out.as.usage.head->spans, LIMIT_USAGE_SPANS);
    assert_int_equal(put_spans(f, LIMIT_USAGE_SPANS + 1, &out), -EPROTO);
    assert_string_equal(f->what, "usage: length");
}

// The largest frame that the ceilings allow is one that the reader takes.
_Static_assert(sizeof(struct frame_usage) + LIMIT_ENTITIES * sizeof(struct frame_usage_device) +
                       LIMIT_USAGE_SPANS * sizeof(struct frame_usage_span) +
                       LIMIT_USAGE_SHARES * sizeof(struct frame_usage_share) +
                       LIMIT_USAGE_PROCESSES * sizeof(struct frame_usage_process) <=
                   LIMIT_FRAME_BYTES,
               "a USAGE frame fits");

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(usage_comes_as_it_was_sent),
        TEST(usage_of_another_list_comes_empty),
        cmocka_unit_test(usage_of_a_wrong_length_is_refused),
        cmocka_unit_test(what_does_not_hold_together_is_refused),
        TEST(usage_has_its_ceilings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
