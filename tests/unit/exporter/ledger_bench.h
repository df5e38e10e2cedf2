// SPDX-License-Identifier: Apache-2.0
// A ledger that tests tell facts. Time begins at T0 and counts in seconds.
#pragma once

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

static inline struct ledger *make_ledger(void)
{
    struct ledger *l;
    struct ledger_options o = {.linger_ns = 300 * NS_PER_S};
    assert_int_equal(ledger_new(&o, &l), 0);
    return l;
}
DEFINE_CLEANUP(struct ledger *, ledger_free);
#define OWN cleanup(ledger_freep) struct ledger *

static inline void one_gpu(struct ledger *l)
{
    struct ledger_device_info gpu = {.uuid = "GPU-0", .board = 0};
    assert_int_equal(ledger_set_devices(l, &gpu, 1, T0), 0);
}

static inline uint32_t named(struct ledger *l, const char *pod, const char *uid)
{
    return ledger_container_number(l, &(struct ledger_container){"ns", pod, "main", uid});
}

static inline void hold(struct ledger *l, uint32_t device, double at, const struct ledger_holder *h,
                        size_t count, uint32_t offered)
{
    assert_int_equal(ledger_set_holders(l, device, AT(at), h, count, offered), 0);
}

// A look that all the busy time and shares until then are known of.
static inline void look(struct ledger *l, uint32_t device, double at, bool has_busy,
                        bool has_shares)
{
    ledger_reach(l, device, &(struct ledger_reach){AT(at), has_busy, has_shares, AT(at), AT(at)});
}

static inline void busy(struct ledger *l, uint32_t device, double from, double to, uint32_t ppm)
{
    assert_int_equal(ledger_add_busy(l, device, AT(from), AT(to), ppm, true), 0);
}

static inline void share(struct ledger *l, uint32_t c, double from, double to, uint32_t ppm)
{
    assert_int_equal(ledger_add_share(l, 0, c, AT(from), AT(to), ppm), 0);
}

static inline void energy(struct ledger *l, uint32_t board, double at, uint64_t mj)
{
    assert_int_equal(ledger_add_energy(l, board, AT(at), mj), 0);
}

static inline void run(struct ledger *l, double at, const struct ledger_process *list, size_t count)
{
    assert_int_equal(ledger_set_processes(l, 0, AT(at), list, count, true, true), 0);
}

static inline void book(struct ledger *l, double at)
{
    assert_int_equal(ledger_book(l, AT(at)), 0);
    assert_true(ledger_adds_up(l));
}

static inline const struct ledger_account *find(const struct ledger *l, uint32_t device,
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

static inline const struct ledger_account *account(const struct ledger *l, uint32_t device,
                                                   const char *pod)
{
    static const struct ledger_account none;
    const struct ledger_account *a = find(l, device, pod);
    assert_non_null(a);
    return a ? a : &none;
}

static inline void assert_account(const struct ledger *l, const char *pod, uint64_t busy_us,
                                  uint64_t energy_uj, uint64_t allocated_us)
{
    const struct ledger_account *a = account(l, 0, pod);
    assert_int_equal(a->busy_us, busy_us);
    assert_int_equal(a->energy_uj, energy_uj);
    assert_int_equal(a->allocated_us, allocated_us);
}

// A board at place 0 and its instances behind it.
static inline void mig_board(struct ledger *l, uint32_t total, const uint32_t *slices, size_t count)
{
    static const char *const uuids[] = {"MIG-1", "MIG-2", "MIG-3", "MIG-4"};
    struct ledger_device_info list[5] = {{.uuid = "GPU-0", .has_instances = true}};
    for (size_t i = 0; i < count; i++)
        list[i + 1] = (struct ledger_device_info){
            .uuid = uuids[i], .slices = slices[i], .total_slices = total};
    assert_int_equal(ledger_set_devices(l, list, count + 1, T0), 0);
}
