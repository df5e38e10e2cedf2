// SPDX-License-Identifier: Apache-2.0
// The ledger: what containers used of each GPU, in integers that add up. An engine: facts come in
// with their times (CLOCK_MONOTONIC), time itself is an argument; no I/O, no clock, no log. Nothing
// here knows what a pid or a kubelet is.
//
// Devices. A board (GPU) has an energy counter. A device is a board without instances, or a MIG
// instance: it has busy time, memory, holders and processes. A device is recognised by its UUID
// over new lists; a board's or device's totals end only with the exporter.
//
// Booking. An interval runs from one energy reading of its board to the next (without energy: from
// one look at the device to the next). It is booked once busy spans and shares reach its end, or
// LEDGER_LAG_NS later with what there is. T is its length, B the device's busy time in it (us), E
// the board's energy (uJ), s the instance's slices / the board's (1 without MIG), h_c = replicas
// that container c holds / replicas the device is offered in (else 1 for a sole holder).
//   busy of c: a sole holder with no foreign process seen has B. Else the sum of shares of its
//     processes; if those of all are more than B, all are scaled to B (largest remainder, counted).
//     Shared without evidence: nobody has any.
//   energy of c: E*s*((T-B)*h_c + b_c)/T; without B E*s*h_c; with B but without evidence of b_c the
//     part (T-B)*h_c alone. An allocation, not a measurement.
//   allocated seconds of c: T*s*h_c.
// What is not booked to a container is unattributed. All roundings are down, and what they leave is
// unattributed too, so that at any time, to the last digit, for busy and energy
//     sum of containers + ended + unattributed = device (energy: board).
// Of an interval in which the set of holders changed nobody has a part for holding: shares of
// processes are booked where there is evidence (a short Job keeps what it did), the rest is
// unattributed. A counter that went down, a gap, or a device that was away begins anew and books
// nothing.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/macros.h"

#define LEDGER_LAG_NS (2 * NS_PER_S)
#define LEDGER_NONE UINT32_MAX

struct ledger;

struct ledger_options {
    uint64_t linger_ns; // how long an ended container's counters stay
    uint64_t idle_ppm; // busy below this share of an interval counts as idle; 0: any busy time ends
                       // idleness
};
int must_use ledger_new(const struct ledger_options *o, struct ledger **out);
void ledger_free(struct ledger *l);

// --- Devices ---

struct ledger_device_info { // strings borrowed for the call
    const char *uuid;
    uint32_t board;     // place in this list; its own: a board
    bool has_instances; // board under MIG: energy only
    uint32_t slices,
        total_slices; // instance: compute slices of the board's; 0: unknown, taken as 1/1
};
// The whole list, boards before their instances. Devices that are not in it any more are away:
// their containers end. Places below mean this list. 0, -ENOMEM (then as before).
int must_use ledger_set_devices(struct ledger *l, const struct ledger_device_info *list,
                                size_t count, uint64_t now_ns);

// --- Containers ---

struct ledger_container { // as given; strings owned by the ledger when it hands one out
    const char *namespace_name, *pod, *container; // "" unknown
    const char *pod_uid;                          // "" unknown
};
// The number of a container, the same as long as it is known: equal names and UID (a UID that
// becomes known belongs to the same one). Equal names with another UID are another container, and
// the one before is ended and gone from the list at once: they would have the same labels. Numbers
// are not used again while accounts of it are shown. LEDGER_NONE: out of memory or over
// LIMIT_LEDGER_CONTAINERS (counted).
uint32_t ledger_container_number(struct ledger *l, const struct ledger_container *c);
const struct ledger_container *ledger_container_at(const struct ledger *l, uint32_t number);

// --- Facts; device is a place in the list; times of one device and kind ascend ---

struct ledger_holder {
    uint32_t container;
    uint32_t replicas; // that it holds, >= 1
};
// Who holds the device from at_ns on, and in how many replicas it is offered (0: not known, then as
// many as are held, 1 at least). Asked again with the same it is no change. 0, -ENOMEM.
int must_use ledger_set_holders(struct ledger *l, uint32_t device, uint64_t at_ns,
                                const struct ledger_holder *holders, size_t count,
                                uint32_t offered);
// A span of the device's busy time; a sample says whether it is one of the driver's (histogram).
int must_use ledger_add_busy(struct ledger *l, uint32_t device, uint64_t from_ns, uint64_t to_ns,
                             uint32_t ppm, bool sample);
// Busy time of a container's processes (LEDGER_NONE: of nobody who is known).
int must_use ledger_add_share(struct ledger *l, uint32_t device, uint32_t container,
                              uint64_t from_ns, uint64_t to_ns, uint32_t ppm);
// A look at the device: what it told reaches until there. A device without spans has no busy
// families, one without shares no evidence. Looks at a board end intervals while no energy can be
// read, so boards under MIG are told of too, with their times alone. Tell it after spans and
// shares.
struct ledger_reach {
    uint64_t at_ns; // of the look, as for energy, memory and processes of the same look
    bool has_busy, has_shares;
    uint64_t busy_to_ns, shares_to_ns;
};
void ledger_reach(struct ledger *l, uint32_t device, const struct ledger_reach *reach);
int must_use ledger_add_energy(struct ledger *l, uint32_t board, uint64_t at_ns, uint64_t mj);
void ledger_add_memory(struct ledger *l, uint32_t device, uint64_t at_ns, uint64_t used,
                       uint64_t total);

struct ledger_process {
    uint32_t container;    // LEDGER_NONE: nobody who is known
    bool foreign;          // known not to be of the sole holder's (a host process, another pod)
    uint64_t memory_bytes; // UINT64_MAX: not known
};
// Who runs on the device at at_ns. busy_evidence: shares of these processes are theirs (false: only
// an MPS server is seen, or pids mean nothing here); memory_evidence likewise. Containers in it
// that hold nothing use the device undeclared and get an account. 0, -ENOMEM.
int must_use ledger_set_processes(struct ledger *l, uint32_t device, uint64_t at_ns,
                                  const struct ledger_process *list, size_t count,
                                  bool busy_evidence, bool memory_evidence);
// Process lists cannot be had (any more).
void ledger_clear_processes(struct ledger *l, uint32_t device, uint64_t at_ns);
// The device does not answer, or what follows does not join what was: book nothing over it. Told
// before the facts of the same look.
void ledger_gap(struct ledger *l, uint32_t device, uint64_t at_ns);

// Books what is complete, ends what lingered long enough. 0, -ENOMEM (nothing is lost: the next
// call books it).
int must_use ledger_book(struct ledger *l, uint64_t now_ns);

// --- What stands in it: as of the last ledger_book or ledger_set_devices ---

enum ledger_method {
    LEDGER_METHOD_NONE,      // nobody holds it
    LEDGER_METHOD_EXCLUSIVE, // a sole holder has all
    LEDGER_METHOD_PROCESS,   // by process
    LEDGER_METHOD_HELD,      // shared, and nobody knows who did what
};
const char *ledger_method_text(enum ledger_method m); // "exclusive"

#define LEDGER_BUCKETS 13 // 0, 0.1 .. 0.9, 0.99, 1, +Inf: upper bounds in ledger_bucket_ppm
extern const uint32_t ledger_bucket_ppm[LEDGER_BUCKETS - 1];

struct ledger_device {
    const char *uuid;
    uint32_t board;
    bool present;  // in the list
    bool has_busy; // families of busy time are to be shown
    bool has_energy, has_memory;
    uint64_t busy_us, unattributed_busy_us, ended_busy_us;
    uint64_t energy_uj, unattributed_energy_uj, ended_energy_uj; // boards
    uint64_t memory_used, memory_total,
        unattributed_memory; // used: max(driver's, sum of processes)
    enum ledger_method method;
    uint64_t samples[LEDGER_BUCKETS]; // how many samples fell into each bucket (not cumulative)
    uint64_t samples_ppm;             // their sum
};
size_t ledger_device_count(const struct ledger *l);
const struct ledger_device *ledger_device_at(const struct ledger *l, size_t place);

struct ledger_account { // of a container on a device
    uint32_t device, container;
    bool live; // holds or runs on it; false: ended, counters frozen
    bool holds;
    bool has_busy;      // it has had evidence of busy time
    bool has_memory;    // live, and evidence of memory
    bool has_processes; // live, and who runs is known
    uint64_t share_ppm; // live
    uint64_t allocated_us;
    uint64_t busy_us;
    uint64_t energy_uj;
    uint64_t memory_bytes;
    uint32_t processes;
    bool has_idle;          // live, holds, has_busy, and its device answers
    uint64_t idle_since_ns; // has_idle: end of the last interval with busy time, else when it began
};
// In order of device, then of first appearance; ended ones of the linger among them.
size_t ledger_account_count(const struct ledger *l);
const struct ledger_account *ledger_account_at(const struct ledger *l, size_t n);

// Grows whenever the list of devices or accounts, their names, or which families they have change:
// what a page's constant text is made from.
uint64_t ledger_layout(const struct ledger *l);

struct ledger_stats {
    uint64_t intervals, scaled, gaps, holder_changes; // booked; with shares scaled to B; rebased
    uint64_t refused;     // containers over the ceiling, or facts out of order
    uint64_t early_ended; // lingering ones folded early: LIMIT_LEDGER_ENDED
};
void ledger_get_stats(const struct ledger *l, struct ledger_stats *out);
// True when the identity holds for each device and board; tests ask it at any time.
bool ledger_adds_up(const struct ledger *l);
