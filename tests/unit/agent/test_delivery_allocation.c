// SPDX-License-Identifier: Apache-2.0
// Each allocation fails once: the accounts hold (world_check), and what was counted as waiting is
// delivered when there is memory again.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/clock.h"
#include "delivery_world.h"

static void fail_first(struct request *r)
{
    r->result = (struct logs_result){.outcome = LOGS_RETRY, .error = "once"};
    r->is_taken = false;
    world.answer = NULL;
}

// The world's own memory is none of the delivery's, but it is swept along: its calls may fail.
static void live_a_little(void)
{
    const struct delivery_options o = world_options(world.directory);
    struct error err = ERROR_INIT;
    world.answer = fail_first;
    int r = delivery_new(&o, &world.delivery, &err);
    if (r < 0) {
        assert_int_equal(r, -ENOMEM);
        assert_string_equal(err.text, "out of memory");
        return;
    }
    for (unsigned i = 0; i < 20; i++)
        world_add(i % 2 ? "a" : "b", (int64_t)(i % 3), 3, 10 + 100 * (size_t)i);
    world_run(5 * NS_PER_S);
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    assert_true(world_run_until(world_is_quiet, 3600 * NS_PER_S));
    struct delivery_stats t = world_stats();
    assert_int_equal(t.events + t.recovered_events, t.delivered_events + world_lost());
    assert_true(allocation_failed || t.delivered_events == 20);
    world_close();
    allocation_until_failure = left;
}

static void the_delivery_survives_each_failed_allocation(void **state)
{
    world_start();
    world.keeps_requests = false;
    unsigned needed = allocation_sweep(live_a_little);
    assert_true(needed >= 20);
    world_stop();
}

static void recover_a_little(void)
{
    const struct delivery_options o = world_options(world.directory);
    struct error err = ERROR_INIT;
    if (delivery_new(&o, &world.delivery, &err) < 0)
        return;
    world_run(100 * NS_PER_MS);
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    struct delivery_stats t = world_stats();
    assert_true(t.recovered_events == 20 || (allocation_failed && t.recovered_events < 20));
    assert_int_equal(t.waiting_events, t.recovered_events);
    world_close();
    allocation_until_failure = left;
}

static void a_recovery_that_runs_out_of_memory_loses_nothing(void **state)
{
    world_start();
    world.logs = NULL; // nothing is sent
    world_open(world.directory);
    for (unsigned i = 0; i < 20; i++)
        world_add(i % 2 ? "a" : "b", 0, 1, 10);
    world_close();
    assert_true(allocation_sweep(recover_a_little) >= 8);
    world_open(world.directory);
    world_run(100 * NS_PER_MS);
    assert_int_equal(world_stats().recovered_events, 20);
    world_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_delivery_survives_each_failed_allocation),
        cmocka_unit_test(a_recovery_that_runs_out_of_memory_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
