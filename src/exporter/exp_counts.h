// SPDX-License-Identifier: Apache-2.0
// dcgm-exporter's windowed counters, from what the sources tell: how often each XID came, and in
// how many samples each clock event reason was set, within the last window. An engine; bounded: per
// device LIMIT_XID_CODES codes, and window / period samples in buckets. Keyed by device (UUID, GPU
// instance id), so that lists may come and go.
#pragma once

#include "exporter/device_view.h"

#define EXP_CLOCK_EVENTS 9

struct exp_count {
    uint32_t key; // XID, or bit number of the clock event
    uint64_t count;
};

struct exp_counts;
int must_use exp_counts_new(struct exp_counts **out);
void exp_counts_free(struct exp_counts *c);
// 0 counts nothing older than the same instant, as dcgm-exporter does.
void exp_counts_set_windows(struct exp_counts *c, uint64_t xid_ns, uint64_t clock_ns);
// After each frame that an inventory has taken. Those of NVML and DCGM are told apart by the
// inventory; only the primary one's are counted.
int must_use exp_counts_take(struct exp_counts *c, const struct inventory *inv,
                             const struct frame *frame);
// Rows of a device at now_ns, ascending by key, into out (room for LIMIT_XID_CODES). known: at
// least one sample fell into the window (an idle device with none has one row of value 0).
size_t exp_counts_xids(struct exp_counts *c, const struct inventory *inv, size_t entity,
                       uint64_t now_ns, struct exp_count *out, bool *known);
size_t exp_counts_clocks(struct exp_counts *c, const struct inventory *inv, size_t entity,
                         uint64_t now_ns, struct exp_count *out, bool *known);
// "power_cap"; NULL past EXP_CLOCK_EVENTS.
const char *exp_clock_event_name(unsigned bit);
