// SPDX-License-Identifier: Apache-2.0
// What begins, ends, goes and comes back; what is refused.
#include "ledger_bench.h"

#include "../allocation_sweep.h"

// A second of a busy holder: 1 s of busy time, 1 J.
static void second_of(struct ledger *l, double to)
{
    if (to > 0)
        busy(l, 0, to - 1, to, 1000000);
    look(l, 0, to, true, true);
    energy(l, 0, to, 1000 * (uint64_t)to);
    book(l, to);
}

static struct ledger *held_for(double seconds)
{
    struct ledger *l = make_ledger();
    one_gpu(l);
    hold(l, 0, 0, &(struct ledger_holder){named(l, "a", "u"), 1}, 1, 1);
    for (double at = 0; at <= seconds; at++)
        second_of(l, at);
    return l;
}

static void an_ended_container_stays_frozen_for_its_linger(void **state)
{
    OWN l = held_for(3);
    uint64_t layout = ledger_layout(l);
    hold(l, 0, 3, NULL, 0, 1);
    for (double at = 4; at <= 302; at++)
        second_of(l, at);
    assert_true(ledger_layout(l) > layout);
    assert_account(l, "a", 3000000, 3000000, 3000000);
    assert_false(account(l, 0, "a")->live);
    assert_int_equal(account(l, 0, "a")->share_ppm, 0);
    assert_int_equal(ledger_device_at(l, 0)->ended_busy_us, 0);
    book(l, 303);
    assert_null(find(l, 0, "a"));
    assert_int_equal(ledger_device_at(l, 0)->ended_busy_us, 3000000);
    assert_int_equal(ledger_device_at(l, 0)->ended_energy_uj, 3000000);
}

static void a_container_that_comes_back_goes_on(void **state)
{
    OWN l = held_for(3);
    hold(l, 0, 3, NULL, 0, 1);
    for (double at = 4; at <= 10; at++)
        second_of(l, at);
    hold(l, 0, 10, &(struct ledger_holder){named(l, "a", "u"), 1}, 1, 1);
    for (double at = 11; at <= 12; at++)
        second_of(l, at);
    assert_account(l, "a", 5000000, 5000000, 5000000);
}

static void the_same_names_with_another_uid_begin_at_0(void **state)
{
    OWN l = held_for(3);
    uint32_t first = named(l, "a", "u"), second = named(l, "a", "w");
    assert_int_not_equal(first, second);
    assert_int_equal(ledger_account_count(l), 0);
    assert_int_equal(ledger_device_at(l, 0)->ended_busy_us, 3000000);
    assert_true(ledger_adds_up(l));
    hold(l, 0, 3, &(struct ledger_holder){second, 1}, 1, 1);
    second_of(l, 4);
    assert_account(l, "a", 1000000, 1000000, 1000000);
    // Facts of the old one, and its number, stay its own.
    assert_int_equal(named(l, "a", "u"), first);
    assert_int_equal(named(l, "a", "w"), second);
    assert_int_equal(named(l, "a", ""), second);
    run(l, 4, &(struct ledger_process){first, true, GIB}, 1);
    share(l, first, 4, 5, 250000);
    second_of(l, 5);
    assert_account(l, "a", 1000000, 1000000, 2000000);
    assert_int_equal(ledger_device_at(l, 0)->ended_busy_us, 3250000);
    assert_int_equal(ledger_account_count(l), 1);
}

static void a_uid_that_becomes_known_is_the_same_container(void **state)
{
    OWN l = make_ledger();
    uint32_t a = named(l, "a", "");
    assert_int_equal(named(l, "a", "u"), a);
    assert_string_equal(ledger_container_at(l, a)->pod_uid, "u");
    assert_int_equal(named(l, "a", ""), a);
}

static void too_many_ended_ones_are_folded_oldest_first(void **state)
{
    OWN l = make_ledger();
    one_gpu(l);
    for (unsigned i = 0; i < LIMIT_LEDGER_ENDED + 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "p%u", i);
        hold(l, 0, i, &(struct ledger_holder){named(l, name, name), 1}, 1, 1);
        if (i % 64 == 0)
            assert_int_equal(ledger_book(l, AT(0)), 0); // no linger is over
    }
    hold(l, 0, 1e6, NULL, 0, 1);
    book(l, 0);
    struct ledger_stats s;
    ledger_get_stats(l, &s);
    assert_int_equal(s.early_ended, 3);
    assert_null(find(l, 0, "p2"));
    assert_non_null(find(l, 0, "p3"));
}

static void a_device_that_is_away_begins_anew_when_it_is_back(void **state)
{
    OWN l = held_for(3);
    assert_int_equal(ledger_set_devices(l, NULL, 0, AT(3)), 0);
    assert_int_equal(ledger_device_count(l), 1);
    assert_false(ledger_device_at(l, 0)->present);
    assert_false(account(l, 0, "a")->live);
    one_gpu(l);
    assert_true(ledger_device_at(l, 0)->present);
    hold(l, 0, 20, &(struct ledger_holder){named(l, "a", "u"), 1}, 1, 1);
    for (double at = 20; at <= 22; at++)
        second_of(l, at);
    assert_account(l, "a", 5000000, 5000000, 5000000);
}

static void gaps_and_decreases_book_nothing(void **state)
{
    OWN l = held_for(2);
    ledger_gap(l, 0, AT(3));
    second_of(l, 3);
    second_of(l, 4);
    assert_account(l, "a", 3000000, 3000000, 3000000);
    energy(l, 0, 5, 10); // less than before
    busy(l, 0, 4, 5, 1000000);
    look(l, 0, 5, true, true);
    book(l, 5);
    assert_account(l, "a", 3000000, 3000000, 3000000);
    energy(l, 0, 6, 20);
    busy(l, 0, 5, 6, 1000000);
    look(l, 0, 6, true, true);
    book(l, 6);
    assert_account(l, "a", 4000000, 3010000, 4000000);
}

static void energy_that_is_not_read_for_a_moment_goes_on(void **state)
{
    OWN l = held_for(1);
    busy(l, 0, 1, 2, 500000);
    look(l, 0, 2, true, true);
    book(l, 2);
    second_of(l, 3);
    assert_account(l, "a", 2500000, 3000000, 3000000);
}

static void without_energy_looks_end_intervals(void **state)
{
    OWN l = make_ledger();
    one_gpu(l);
    hold(l, 0, 0, &(struct ledger_holder){named(l, "a", "u"), 1}, 1, 1);
    for (double at = 0; at <= 3; at++) {
        if (at > 0)
            busy(l, 0, at - 1, at, 250000);
        look(l, 0, at, true, true);
        book(l, at);
    }
    assert_account(l, "a", 750000, 0, 3000000);
    assert_false(ledger_device_at(l, 0)->has_energy);
}

static void an_interval_waits_for_its_spans_no_longer_than_the_lag(void **state)
{
    OWN l = held_for(1);
    struct ledger_reach late = {AT(2), true, true, AT(1.8), AT(1.8)};
    busy(l, 0, 1, 1.8, 1000000);
    ledger_reach(l, 0, &late);
    energy(l, 0, 2, 2000);
    book(l, 2);
    book(l, 3.999);
    assert_account(l, "a", 1000000, 1000000, 1000000);
    book(l, 4);
    assert_account(l, "a", 1800000, 2000000, 2000000);
}

static void idle_since_the_last_interval_with_work(void **state)
{
    OWN l = held_for(2);
    assert_int_equal(account(l, 0, "a")->idle_since_ns, AT(2));
    look(l, 0, 3, true, true);
    energy(l, 0, 3, 3000);
    book(l, 3);
    assert_int_equal(account(l, 0, "a")->idle_since_ns, AT(2));
    assert_true(account(l, 0, "a")->has_idle);
    ledger_gap(l, 0, AT(4));
    book(l, 4);
    assert_false(account(l, 0, "a")->has_idle); // what it does now nobody knows
    second_of(l, 5);
    book(l, 5);
    assert_true(account(l, 0, "a")->has_idle);
}

static void absurd_facts_are_refused_and_counted(void **state)
{
    OWN l = held_for(1);
    struct ledger_stats before, after;
    ledger_get_stats(l, &before);
    assert_int_equal(ledger_add_busy(l, 0, AT(3), AT(2), 1, true), 0);
    assert_int_equal(ledger_add_busy(l, 0, AT(3), AT(3), 1, true), 0);
    assert_int_equal(ledger_add_busy(l, 0, AT(2), AT(3), 1000001, true), 0);
    assert_int_equal(ledger_add_busy(l, 0, 0, UINT64_MAX, 1, true), 0);
    assert_int_equal(ledger_add_busy(l, 0, AT(0.2), AT(0.8), 1, true), 0); // told before
    assert_int_equal(ledger_add_busy(l, 7, AT(2), AT(3), 1, true), 0);     // no such device
    assert_int_equal(ledger_add_share(l, 0, 0, AT(0), AT(1), 1), 0);       // booked already
    assert_int_equal(ledger_add_energy(l, 0, AT(0.5), 1), 0);              // likewise
    assert_int_equal(ledger_set_holders(l, 0, 0, NULL, 0, 0), 0);          // before the last one
    ledger_add_memory(l, 0, AT(1), UINT64_MAX, UINT64_MAX);
    ledger_get_stats(l, &after);
    assert_int_equal(after.refused - before.refused, 10);
    assert_account(l, "a", 1000000, 1000000, 1000000);
    // A counter that runs as none can.
    energy(l, 0, 2, UINT64_MAX);
    book(l, 10);
    assert_account(l, "a", 1000000, 1000000, 1000000);
}

static void a_life_that_began_or_ended_in_the_future_does_so_now(void **state)
{
    OWN l = held_for(3);
    uint32_t others[] = {named(l, "b", "b"), named(l, "c", "c")};
    for (size_t i = 0; i < 2; i++) { // a share makes an account, and says when it ended
        assert_int_equal(ledger_add_share(l, 0, others[i], AT(2), UINT64_MAX, 5), 0);
        assert_int_equal(ledger_add_share(l, 0, others[i], UINT64_MAX - 9, UINT64_MAX, 5), 0);
    }
    run(l, 1e9, &(struct ledger_process){named(l, "d", "d"), true, GIB}, 1);
    book(l, 3);
    assert_int_equal(account(l, 0, "d")->idle_since_ns, AT(3));
    assert_non_null(find(l, 0, "c"));
    book(l, 303); // one linger for both, not one after the other
    assert_null(find(l, 0, "b"));
    assert_null(find(l, 0, "c"));
    assert_true(ledger_adds_up(l));
}

static void facts_of_the_future_are_void(void **state)
{
    OWN l = held_for(1);
    hold(l, 0, 4999, NULL, 0, 1);
    look(l, 0, 5000, true, true);
    energy(l, 0, 5000, 5000);
    busy(l, 0, 4999, 5000, 1000000);
    book(l, 2);
    hold(l, 0, 3, &(struct ledger_holder){named(l, "a", "u"), 1}, 1, 1);
    for (double at = 3; at <= 5; at++)
        second_of(l, at);
    assert_account(l, "a", 3000000, 3000000, 3000000);
    hold(l, 0, 1e6, NULL, 0, 1);
    book(l, 5);
    book(l, 305);
    assert_null(find(l, 0, "a"));
}

static void lists_that_name_nothing_cost_nobody_else(void **state)
{
    OWN l = make_ledger();
    struct ledger_device_info list[] = {{.uuid = "GPU-0", .board = 0},
                                        {.uuid = "GPU-0", .board = 1},
                                        {.uuid = "", .board = 2},
                                        {.uuid = "MIG-1", .board = 1, .slices = 1},
                                        {.uuid = "MIG-2", .board = 99, .slices = 1}};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ledger_set_devices(l, list, ARRAY_SIZE(list), T0), 0);
        assert_int_equal(ledger_device_count(l), 5);
    }
    assert_false(ledger_device_at(l, 1)->present);
    assert_int_equal(ledger_device_at(l, 3)->board, 3);
    assert_int_equal(ledger_set_devices(l, list, 1, T0), 0);
    assert_int_equal(ledger_device_count(l), 3);
}

// --- Memory ---

static int steps(struct ledger *l)
{
    struct ledger_device_info gpus[] = {{.uuid = "GPU-0", .board = 0},
                                        {.uuid = "GPU-1", .board = 1}};
    int r = ledger_set_devices(l, gpus, 2, T0);
    struct ledger_holder h[] = {{named(l, "a", "u"), 1}, {named(l, "b", "v"), 1}};
    struct ledger_process p[] = {{h[0].container, false, 1}, {named(l, "c", "w"), true, 1}};
    if (r == 0)
        r = ledger_set_holders(l, 0, T0, h, 2, 2);
    if (r == 0)
        r = ledger_set_processes(l, 0, T0, p, 2, true, true);
    if (r == 0)
        r = ledger_add_busy(l, 0, AT(0), AT(1), 500000, true);
    if (r == 0)
        r = ledger_add_share(l, 0, h[0].container, AT(0), AT(1), 500000);
    (void)named(l, "a", "x");
    if (r == 0)
        r = ledger_set_devices(l, gpus + 1, 1, AT(1));
    return r;
}

static void run_without_memory(void)
{
    struct ledger *l = NULL;
    struct ledger_options o = {.linger_ns = NS_PER_S};
    if (ledger_new(&o, &l) < 0)
        return;
    int r = steps(l);
    assert_true(r == 0 || (r == -ENOMEM && allocation_failed));
    r = ledger_book(l, AT(2));
    assert_true(r == 0 && ledger_adds_up(l));
    ledger_free(l);
}

static void each_allocation_may_fail(void **state)
{
    assert_true(allocation_sweep(run_without_memory) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ended_container_stays_frozen_for_its_linger),
        cmocka_unit_test(a_container_that_comes_back_goes_on),
        cmocka_unit_test(the_same_names_with_another_uid_begin_at_0),
        cmocka_unit_test(a_uid_that_becomes_known_is_the_same_container),
        cmocka_unit_test(too_many_ended_ones_are_folded_oldest_first),
        cmocka_unit_test(a_device_that_is_away_begins_anew_when_it_is_back),
        cmocka_unit_test(gaps_and_decreases_book_nothing),
        cmocka_unit_test(energy_that_is_not_read_for_a_moment_goes_on),
        cmocka_unit_test(without_energy_looks_end_intervals),
        cmocka_unit_test(an_interval_waits_for_its_spans_no_longer_than_the_lag),
        cmocka_unit_test(idle_since_the_last_interval_with_work),
        cmocka_unit_test(absurd_facts_are_refused_and_counted),
        cmocka_unit_test(a_life_that_began_or_ended_in_the_future_does_so_now),
        cmocka_unit_test(facts_of_the_future_are_void),
        cmocka_unit_test(lists_that_name_nothing_cost_nobody_else),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
