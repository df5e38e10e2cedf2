// SPDX-License-Identifier: Apache-2.0
// What stands in the ledger is said by a test in the ledger's stead, so that each number on the
// page is known. For the one file of a test program.
#pragma once

#include "exporter/ledger.h"

struct ledger {
    struct ledger_device devices[4];
    size_t device_count;
    struct ledger_account accounts[8];
    size_t account_count;
    struct ledger_container containers[4];
    uint64_t layout;
};

const uint32_t ledger_bucket_ppm[LEDGER_BUCKETS - 1] = {
    0, 100000, 200000, 300000, 400000, 500000, 600000, 700000, 800000, 900000, 990000, 1000000};

size_t ledger_device_count(const struct ledger *l)
{
    return l->device_count;
}

const struct ledger_device *ledger_device_at(const struct ledger *l, size_t place)
{
    return &l->devices[place];
}

size_t ledger_account_count(const struct ledger *l)
{
    return l->account_count;
}

const struct ledger_account *ledger_account_at(const struct ledger *l, size_t n)
{
    return &l->accounts[n];
}

const struct ledger_container *ledger_container_at(const struct ledger *l, uint32_t number)
{
    return &l->containers[number];
}

uint64_t ledger_layout(const struct ledger *l)
{
    return l->layout;
}

const char *ledger_method_text(enum ledger_method m)
{
    return m == LEDGER_METHOD_PROCESS ? "process" : "exclusive";
}
