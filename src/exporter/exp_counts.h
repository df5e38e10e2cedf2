// SPDX-License-Identifier: Apache-2.0
// dcgm-exporter's own counters, from what the sources tell: how often each XID came and in how many
// samples each clock event reason was set within the last window (DCGM_EXP_*_COUNT), and how often
// each came since the exporter started (DCGM_EXP_*_TOTAL). An engine.
//
// Counted per GPU, which is known by its UUID, else its bus id, else its index, so lists, helpers
// and watches may come and go; an XID is remembered with the GPU instance it was told of. A GPU's
// rows have its own XIDs and those of its instances; an instance's rows its own and those that no
// instance owns, and its GPU's clocks.
//
// How precise: a window is cut into LIMIT_EXP_BUCKETS parts, and what falls into one part leaves
// with the newest of it. So counts are exact while samples are at least that far apart (0.5 s at
// 300 s), else too high by what came in one part at most. Of one GPU LIMIT_EXP_XIDS different (XID,
// instance, part) are remembered; beyond, the oldest leave the window early, which is counted.
// A gap in the samples is one in the counts. Times are those of the samples, in ascending order;
// one later than the reader's now counts as now, so a clock that jumps delays an end by a window at
// most.
#pragma once

#include "exporter/device_view.h"

#define EXP_CLOCK_EVENTS 9

struct exp_count {
    uint32_t key; // XID, or number of the clock event
    uint64_t count;
};

struct exp_counts;
int must_use exp_counts_new(struct exp_counts **out);
void exp_counts_free(struct exp_counts *c);
// 0 counts nothing older than the same instant, as dcgm-exporter does. What was counted stays.
void exp_counts_set_windows(struct exp_counts *c, uint64_t xid_ns, uint64_t clock_ns);
// Whether clock events are wanted: by default. What was counted stays.
void exp_counts_set_clocks(struct exp_counts *c, bool wanted);
// After each frame that an inventory has taken: EVENTS are counted as XIDs, and new values of
// DCGM_FI_DEV_CLOCKS_EVENT_REASONS, if the inventory keeps them, as clock events; other frames do
// no harm. Inventories are told apart by their address: two that tell the same do not add up. 0,
// -ENOMEM (what could be counted is).
int must_use exp_counts_take(struct exp_counts *c, const struct inventory *inv,
                             const struct frame *frame);
// Rows of a device (index in inv) within the window that ends at now_ns, ascending by key, into out
// (room for LIMIT_XID_CODES, EXP_CLOCK_EVENTS). known: at least one sample fell into the window.
size_t exp_counts_xids(struct exp_counts *c, const struct inventory *inv, size_t entity,
                       uint64_t now_ns, struct exp_count *out, bool *known);
size_t exp_counts_clocks(struct exp_counts *c, const struct inventory *inv, size_t entity,
                         uint64_t now_ns, struct exp_count *out, bool *known);
// The same since the start: XIDs, and how often each reason came (it was not set in the sample
// before; one that is set in the first sample is not counted until it comes again). They never
// fall, but that an instance ends with its XIDs.
size_t exp_counts_xid_totals(const struct exp_counts *c, const struct inventory *inv, size_t entity,
                             struct exp_count *out, bool *known);
size_t exp_counts_clock_totals(const struct exp_counts *c, const struct inventory *inv,
                               size_t entity, struct exp_count *out, bool *known);
// What was counted and is forgotten early, or not counted, because of a ceiling.
uint64_t exp_counts_dropped(const struct exp_counts *c);
// "power_cap"; NULL past EXP_CLOCK_EVENTS.
const char *exp_clock_event_name(unsigned number);
