// SPDX-License-Identifier: Apache-2.0
// How an interval is shared, each rule worked by hand.
#include "ledger_bench.h"

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

// Each has a series of its own, so that their sum by pod is right.
static void trap_9_a_container_with_two_gpus_has_an_account_on_each(void **state)
{
    OWN l = make_ledger();
    struct ledger_device_info gpus[] = {{.uuid = "GPU-0", .board = 0},
                                        {.uuid = "GPU-1", .board = 1}};
    assert_int_equal(ledger_set_devices(l, gpus, 2, T0), 0);
    struct ledger_holder h = {named(l, "a", "u"), 1};
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        hold(l, gpu, 0, &h, 1, 1);
        look(l, gpu, 0, true, true);
        energy(l, gpu, 0, 0);
    }
    book(l, 0);
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        busy(l, gpu, 0, 1, 250000 * (gpu + 1));
        look(l, gpu, 1, true, true);
        energy(l, gpu, 1, 100 * (gpu + 1));
    }
    book(l, 1);
    assert_int_equal(ledger_account_count(l), 2);
    for (uint32_t gpu = 0; gpu < 2; gpu++) {
        assert_int_equal(account(l, gpu, "a")->busy_us, 250000 * (gpu + 1));
        assert_int_equal(account(l, gpu, "a")->energy_uj, 100000 * (gpu + 1));
        assert_int_equal(account(l, gpu, "a")->allocated_us, 1000000);
    }
}

// Energy by slices of a board: 1/7 and 3/7 held, 2/7 free, 1/7 of no instance.
static void instances_share_the_energy_of_their_board(void **state)
{
    OWN l = make_ledger();
    mig_board(l, 7, (uint32_t[]){1, 3, 2}, 3);
    struct ledger_holder a = {named(l, "a", "u"), 1}, b = {named(l, "b", "v"), 1};
    hold(l, 1, 0, &a, 1, 1);
    hold(l, 2, 0, &b, 1, 1);
    for (double at = 0; at <= 1; at++) {
        look(l, 0, at, false, false);
        for (uint32_t i = 1; i <= 3; i++)
            look(l, i, at, i != 2, false); // the second has no busy time
        busy(l, 1, at - 1, at, 300000);
        energy(l, 0, at, at > 0 ? 70000 : 0);
        book(l, at);
    }
    assert_int_equal(account(l, 1, "a")->busy_us, 300000);
    assert_int_equal(account(l, 1, "a")->energy_uj, 10000000);
    assert_int_equal(account(l, 1, "a")->allocated_us, 142857);
    assert_int_equal(account(l, 1, "a")->share_ppm, 142857);
    assert_int_equal(account(l, 2, "b")->energy_uj, 30000000);
    assert_false(account(l, 2, "b")->has_busy);
    assert_false(ledger_device_at(l, 2)->has_busy);
    assert_int_equal(ledger_device_at(l, 0)->energy_uj, 70000000);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_energy_uj, 30000000);
    assert_int_equal(ledger_device_at(l, 2)->board, 0);
}

static void eight_slices_are_eighths(void **state)
{
    OWN l = make_ledger();
    mig_board(l, 8, (uint32_t[]){4, 1}, 2);
    struct ledger_holder a = {named(l, "a", "u"), 1};
    hold(l, 1, 0, &a, 1, 1);
    for (double at = 0; at <= 1; at++) {
        look(l, 0, at, false, false);
        energy(l, 0, at, at > 0 ? 80001 : 0);
        book(l, at);
    }
    assert_int_equal(account(l, 1, "a")->energy_uj, 40000500);
    assert_int_equal(account(l, 1, "a")->allocated_us, 500000);
}

// More slices than the board has, or slices that are not known, are shares of their sum.
static void absurd_slices_do_not_make_energy(void **state)
{
    OWN l = make_ledger();
    mig_board(l, 7, (uint32_t[]){7, 7}, 2);
    struct ledger_holder a = {named(l, "a", "u"), 1}, b = {named(l, "b", "v"), 1};
    hold(l, 1, 0, &a, 1, 1);
    hold(l, 2, 0, &b, 1, 1);
    for (double at = 0; at <= 1; at++) {
        energy(l, 0, at, at > 0 ? 1001 : 0);
        book(l, at);
    }
    assert_int_equal(account(l, 1, "a")->energy_uj, 500500);
    assert_int_equal(account(l, 2, "b")->energy_uj, 500500);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_energy_uj, 0);
}

// A held device of another's process is shared by what they did.
static void a_foreign_process_ends_exclusiveness(void **state)
{
    OWN l = make_ledger();
    one_gpu(l);
    uint32_t a = named(l, "a", "u"), b = named(l, "b", "v");
    hold(l, 0, 0, &(struct ledger_holder){a, 1}, 1, 1);
    struct ledger_process both[] = {{a, false, GIB}, {b, true, GIB}};
    look(l, 0, 0, true, true);
    energy(l, 0, 0, 0);
    run(l, 0, both, 1);
    book(l, 0);
    busy(l, 0, 0, 1, 500000);
    share(l, a, 0, 1, 100000);
    share(l, b, 0, 1, 300000);
    look(l, 0, 1, true, true);
    energy(l, 0, 1, 10000);
    run(l, 1, both, 2);
    book(l, 1);
    assert_account(l, "a", 100000, 6000000, 1000000);
    assert_account(l, "b", 300000, 3000000, 0);
    assert_true(account(l, 0, "b")->live);
    assert_false(account(l, 0, "b")->holds);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_busy_us, 100000);
    assert_int_equal(ledger_device_at(l, 0)->method, LEDGER_METHOD_PROCESS);
    // Gone at 2; the interval that began with it is still shared, the next one is the holder's.
    for (double at = 2; at <= 3; at++) {
        busy(l, 0, at - 1, at, 500000);
        look(l, 0, at, true, true);
        run(l, at, both, 1);
        energy(l, 0, at, 10000);
        book(l, at);
    }
    assert_account(l, "a", 600000, 6000000, 3000000);
    assert_false(account(l, 0, "b")->live);
}

static void undeclared_use_of_a_free_device_has_an_account(void **state)
{
    OWN l = make_ledger();
    one_gpu(l);
    struct ledger_process p = {named(l, "a", "u"), false, GIB};
    look(l, 0, 0, true, true);
    energy(l, 0, 0, 0);
    run(l, 0, &p, 1);
    book(l, 0);
    busy(l, 0, 0, 1, 500000);
    share(l, p.container, 0, 1, 500000);
    look(l, 0, 1, true, true);
    energy(l, 0, 1, 10000);
    book(l, 1);
    assert_account(l, "a", 500000, 5000000, 0);
    assert_int_equal(account(l, 0, "a")->share_ppm, 0);
    assert_int_equal(ledger_device_at(l, 0)->method, LEDGER_METHOD_PROCESS);
}

static void what_holding_gives_of_an_interval_in_which_holders_change_is_nobodys(void **state)
{
    OWN l = make_ledger();
    one_gpu(l);
    hold(l, 0, 0, &(struct ledger_holder){named(l, "a", "u"), 1}, 1, 1);
    for (double at = 0; at <= 3; at++) {
        if (at == 2)
            hold(l, 0, 1.25, &(struct ledger_holder){named(l, "b", "v"), 1}, 1, 1);
        if (at > 0)
            busy(l, 0, at - 1, at, 1000000);
        look(l, 0, at, true, true);
        energy(l, 0, at, 1000 * (uint64_t)at);
        book(l, at);
    }
    assert_account(l, "a", 1000000, 1000000, 1250000);
    assert_account(l, "b", 1000000, 1000000, 1750000);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_busy_us, 1000000);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_energy_uj, 1000000);
}

// The GPU goes from a to b at 1.25 s; each keeps what its process did between 1 s and 2 s.
static void what_processes_did_while_holders_changed_is_theirs(void **state)
{
    OWN l = make_ledger();
    one_gpu(l);
    struct ledger_holder a = {named(l, "a", "u"), 1}, b = {named(l, "b", "v"), 1};
    hold(l, 0, 0, &a, 1, 1);
    for (double at = 0; at <= 2; at++) {
        if (at == 2) {
            hold(l, 0, 1.25, &b, 1, 1);
            share(l, a.container, 1, 1.25, 800000);
            share(l, b.container, 1.5, 2, 1000000);
        }
        if (at > 0)
            busy(l, 0, at - 1, at, at == 2 ? 750000 : 1000000);
        look(l, 0, at, true, true);
        energy(l, 0, at, 1000 * (uint64_t)at);
        run(l, 0,
            at < 2 ? &(struct ledger_process){a.container, false, GIB}
                   : &(struct ledger_process){b.container, false, GIB},
            1);
        book(l, at);
    }
    assert_account(l, "a", 1200000, 1200000, 1250000);
    assert_account(l, "b", 500000, 500000, 750000);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_busy_us, 50000);
    assert_int_equal(ledger_device_at(l, 0)->unattributed_energy_uj, 300000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sole_holder_has_all),
        cmocka_unit_test(sharers_have_what_their_processes_did),
        cmocka_unit_test(shares_over_the_devices_are_scaled_by_largest_remainder),
        cmocka_unit_test(without_evidence_sharers_have_no_busy_time),
        cmocka_unit_test(trap_9_a_container_with_two_gpus_has_an_account_on_each),
        cmocka_unit_test(instances_share_the_energy_of_their_board),
        cmocka_unit_test(eight_slices_are_eighths),
        cmocka_unit_test(absurd_slices_do_not_make_energy),
        cmocka_unit_test(a_foreign_process_ends_exclusiveness),
        cmocka_unit_test(undeclared_use_of_a_free_device_has_an_account),
        cmocka_unit_test(what_holding_gives_of_an_interval_in_which_holders_change_is_nobodys),
        cmocka_unit_test(what_processes_did_while_holders_changed_is_theirs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
