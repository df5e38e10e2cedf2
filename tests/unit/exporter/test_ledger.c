// SPDX-License-Identifier: Apache-2.0
// The ledger's rules, each worked by hand. Time here begins at T0 and counts in seconds.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "exporter/ledger.h"

#define T0 (1000 * NS_PER_S)
#define AT(s) (T0 + (uint64_t)((s)*1000) * NS_PER_MS)
#define GIB (UINT64_C(1) << 30)

static struct ledger *make_ledger(void)
{
    struct ledger *l;
    struct ledger_options o = {.linger_ns = 300 * NS_PER_S};
    assert_int_equal(ledger_new(&o, &l), 0);
    return l;
}
DEFINE_CLEANUP(struct ledger *, ledger_free);
#define OWN cleanup(ledger_freep) struct ledger *

static void one_gpu(struct ledger *l)
{
    struct ledger_device_info gpu = {.uuid = "GPU-0", .board = 0};
    assert_int_equal(ledger_set_devices(l, &gpu, 1, T0), 0);
}

static uint32_t named(struct ledger *l, const char *pod, const char *uid)
{
    return ledger_container_number(l, &(struct ledger_container){"ns", pod, "main", uid});
}

static void hold(struct ledger *l, uint32_t device, double at, const struct ledger_holder *h,
                 size_t count, uint32_t offered)
{
    assert_int_equal(ledger_set_holders(l, device, AT(at), h, count, offered), 0);
}

// A look that all the busy time and shares until then are known of.
static void look(struct ledger *l, uint32_t device, double at, bool has_busy, bool has_shares)
{
    ledger_reach(l, device,
                 &(struct ledger_reach){AT(at), has_busy, has_shares, AT(at), AT(at)});
}

static void busy(struct ledger *l, uint32_t device, double from, double to, uint32_t ppm)
{
    assert_int_equal(ledger_add_busy(l, device, AT(from), AT(to), ppm, true), 0);
}

static void share(struct ledger *l, uint32_t c, double from, double to, uint32_t ppm)
{
    assert_int_equal(ledger_add_share(l, 0, c, AT(from), AT(to), ppm), 0);
}

static void energy(struct ledger *l, uint32_t board, double at, uint64_t mj)
{
    assert_int_equal(ledger_add_energy(l, board, AT(at), mj), 0);
}

static void run(struct ledger *l, double at, const struct ledger_process *list, size_t count)
{
    assert_int_equal(ledger_set_processes(l, 0, AT(at), list, count, true, true), 0);
}

static void book(struct ledger *l, double at)
{
    assert_int_equal(ledger_book(l, AT(at)), 0);
    assert_true(ledger_adds_up(l));
}

static const struct ledger_account *account(const struct ledger *l, uint32_t device,
                                            const char *pod)
{
    for (size_t i = 0; i < ledger_account_count(l); i++) {
        const struct ledger_account *a = ledger_account_at(l, i);
        const struct ledger_container *c = ledger_container_at(l, a->container);
        if (a->device == device && strcmp(c->pod, pod) == 0)
            return a;
    }
    return NULL;
}

static void assert_account(const struct ledger *l, const char *pod, uint64_t busy_us,
                           uint64_t energy_uj, uint64_t allocated_us)
{
    const struct ledger_account *a = account(l, 0, pod);
    assert_non_null(a);
    assert_int_equal(a->busy_us, busy_us);
    assert_int_equal(a->energy_uj, energy_uj);
    assert_int_equal(a->allocated_us, allocated_us);
}

static void a_sole_holder_has_all(void **state)
{
    OWN l = make_ledger();
    one_gpu(l);
    struct ledger_holder h = {named(l, "a", "u"), 1};
    hold(l, 0, 0, &h, 1, 1);
    look(l, 0, 0, true, true);
    energy(l, 0, 0, 1000);
    book(l, 0);
    assert_account(l, "a", 0, 0, 0);
    assert_true(account(l, 0, "a")->has_busy);
    busy(l, 0, 0, 0.5, 1000000);
    busy(l, 0, 0.5, 1.2, 500000);
    look(l, 0, 1, true, true);
    energy(l, 0, 1, 1300);
    book(l, 1);
    assert_account(l, "a", 750000, 300000, 1000000);
    assert_int_equal(ledger_device_at(l, 0)->method, LEDGER_METHOD_EXCLUSIVE);
    // The rest of the span that was cut.
    look(l, 0, 2, true, true);
    energy(l, 0, 2, 1400);
    book(l, 2);
    assert_account(l, "a", 850000, 400000, 2000000);
    assert_int_equal(ledger_device_at(l, 0)->busy_us, 850000);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_energy_uj, 0);
}

// E = 100 J, T = 1 s, B = 0.6 s; a: 0.4 s of it, 1 of 4 replicas; b: 0.1 s, 2 of 4; 0.1 s nobody's.
static void sharers_have_what_their_processes_did(void **state)
{
    OWN l = make_ledger();
    one_gpu(l);
    struct ledger_holder h[] = {{named(l, "a", "u"), 1}, {named(l, "b", "v"), 2}};
    struct ledger_process p[] = {{h[0].container, false, 2 * GIB},
                                 {h[0].container, false, GIB},
                                 {h[1].container, false, GIB},
                                 {LEDGER_NONE, true, GIB / 2}};
    hold(l, 0, 0, h, 2, 4);
    look(l, 0, 0, true, true);
    energy(l, 0, 0, 0);
    run(l, 0, p, 4);
    ledger_add_memory(l, 0, AT(0), 5 * GIB, 16 * GIB);
    book(l, 0);
    busy(l, 0, 0, 1, 600000);
    share(l, h[0].container, 0, 1, 400000);
    share(l, h[1].container, 0.5, 1, 200000);
    look(l, 0, 1, true, true);
    energy(l, 0, 1, 100000);
    book(l, 1);
    assert_int_equal(ledger_device_at(l, 0)->method, LEDGER_METHOD_PROCESS);
    assert_account(l, "a", 400000, (uint64_t)(100e6 * (0.4 / 4 + 0.4)), 250000);
    assert_account(l, "b", 100000, (uint64_t)(100e6 * (0.4 / 2 + 0.1)), 500000);
    const struct ledger_device *d = ledger_device_at(l, 0);
    assert_int_equal(d->unattributed_busy_us, 100000);
    assert_int_equal(d->unattributed_energy_uj, 20000000);
    assert_int_equal(account(l, 0, "a")->memory_bytes, 3 * GIB);
    assert_int_equal(account(l, 0, "a")->processes, 2);
    assert_int_equal(account(l, 0, "a")->share_ppm, 250000);
    assert_int_equal(d->memory_used, 5 * GIB);
    assert_int_equal(d->unattributed_memory, GIB);
}

const struct scaling {
    uint64_t busy_ppm, shares[8];
    uint64_t want[8];
} scalings[] = {
    {500000, {500000, 500000}, {250000, 250000}},
    {1000000, {500000, 500001}, {500000, 500000}}, // 499999.5, 500000.49: the larger remainder
    {100000, {100000, 100000, 100000}, {33334, 33333, 33333}},
    {700000,
     {100000, 100000, 100000, 100000, 100000, 100000, 100000, 100000},
     {87500, 87500, 87500, 87500, 87500, 87500, 87500, 87500}},
    {1, {3, 2, 1}, {1, 0, 0}},
};

static void shares_over_the_devices_are_scaled_by_largest_remainder(void **state)
{
    for (size_t n = 0; n < ARRAY_SIZE(scalings); n++) {
        const struct scaling *s = &scalings[n];
        OWN l = make_ledger();
        one_gpu(l);
        struct ledger_holder h[8];
        size_t count = 0;
        for (; count < 8 && s->shares[count]; count++) {
            char name[] = {(char)('a' + count), 0};
            h[count] = (struct ledger_holder){named(l, name, name), 1};
        }
        hold(l, 0, 0, h, count, 8);
        look(l, 0, 0, true, true);
        run(l, 0, NULL, 0);
        busy(l, 0, 0, 1, (uint32_t)s->busy_ppm);
        for (size_t i = 0; i < count; i++)
            share(l, h[i].container, 0, 1, (uint32_t)s->shares[i]);
        look(l, 0, 1, true, true);
        book(l, 1);
        for (size_t i = 0; i < count; i++)
            assert_int_equal(account(l, 0, (char[]){(char)('a' + i), 0})->busy_us, s->want[i]);
        struct ledger_stats stats;
        ledger_get_stats(l, &stats);
        assert_int_equal(stats.scaled, 1);
        assert_int_equal(ledger_device_at(l, 0)->unattributed_busy_us, 0);
    }
}

static void without_evidence_sharers_have_no_busy_time(void **state)
{
    OWN l = make_ledger();
    one_gpu(l);
    struct ledger_holder h[] = {{named(l, "a", "u"), 1}, {named(l, "b", "v"), 1}};
    hold(l, 0, 0, h, 2, 4);
    look(l, 0, 0, true, true);
    energy(l, 0, 0, 0);
    assert_int_equal(ledger_set_processes(l, 0, AT(0), NULL, 0, false, false), 0);
    ledger_add_memory(l, 0, AT(0), GIB, 16 * GIB);
    book(l, 0);
    busy(l, 0, 0, 1, 600000);
    look(l, 0, 1, true, true);
    energy(l, 0, 1, 100000);
    book(l, 1);
    assert_int_equal(ledger_device_at(l, 0)->method, LEDGER_METHOD_HELD);
    assert_account(l, "a", 0, 10000000, 250000); // 100 J * 0.4 / 4
    assert_false(account(l, 0, "a")->has_busy);
    assert_false(account(l, 0, "a")->has_memory);
    assert_false(account(l, 0, "a")->has_processes);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_busy_us, 600000);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_memory, GIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sole_holder_has_all),
        cmocka_unit_test(sharers_have_what_their_processes_did),
        cmocka_unit_test(shares_over_the_devices_are_scaled_by_largest_remainder),
        cmocka_unit_test(without_evidence_sharers_have_no_busy_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
