// SPDX-License-Identifier: Apache-2.0
// Which GPUs the driver shows, asked in a process of its own: one that has called the driver cannot
// fork into processes that use it.
#pragma once

#include "base/clock.h"
#include "burn/load.h"

#define BURN_REAP_NS (150 * NS_PER_MS) // what a killed child is waited for

struct burn_gpus {
    uint32_t count;
    char uuids[BURN_GPUS_MAX][48]; // at the driver's index; "" when it has none
};

// Makes a child that runs work(user) with SIGINT and SIGTERM ignored, keeps no descriptor above 2
// and is killed when we end. work returns its exit status. Returns the pid or negative errno.
pid_t burn_fork(int (*work)(void *user), void *user);
// Kills a child of ours and waits until it is gone, at most until then: one that hangs in the
// driver is left to init.
void burn_kill(pid_t pid, uint64_t until_ns);
// Asks; prints the list when o->list. Ends early, with *out_stopped, at SIGTERM or SIGINT. Before
// other children or signal handlers exist. An enum burn_result, *err told unless it is clean.
enum burn_result burn_probe(const struct burn_options *o, struct burn_gpus *out, bool *out_stopped,
                            struct error *err);
