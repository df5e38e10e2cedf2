// SPDX-License-Identifier: Apache-2.0
// The same XID is seen twice: NVML's event knows the GPU instance, the kernel's line has the text.
// Sightings of one GPU and code are paired one to one, so that a burst of n is counted n times,
// whichever of the two comes first and however late the events are fetched. Engine: no clock, no
// I/O, no lock.
//
// A line waits XID_PAIR_NS for its event and is then told alone; should the event come later all
// the same (the thread that fetches them was held up in the driver), it is known to be told. That
// memory ends once the driver's queue has been seen empty after the line's time. Lines of one GPU
// and code that come close together stand in one group, so a storm of any length fits.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define XID_PAIR_NS (1200 * NS_PER_MS) // NVML events are fetched once a second
#define XID_GROUP_NS (100 * NS_PER_MS) // lines this close are one group
#define XID_PAIRS_MAX 64               // groups of each kind

struct xid_sighting {
    uint64_t bus_key; // as kmsg_bus_key_parse makes it
    uint32_t xid;
    uint32_t gpu_instance_id; // UINT32_MAX: not attributable
    uint32_t origin;          // enum frame_event_origin
    uint32_t count;           // how many of it
    uint64_t seq;             // of the kernel's record, 0 unknown
    uint64_t taken_ns;
    uint64_t wall_ns;
    char text[160]; // of the kernel, or ""
};

struct xid_pairs {
    struct xid_lines {
        struct xid_sighting first; // its count: of lines that wait for their event
        uint32_t told;             // lines told alone, whose event may still come
        uint64_t last_ns;          // taken_ns of the newest
    } lines[XID_PAIRS_MAX];        // by the time of their first, oldest first
    uint32_t line_count;
    struct xid_events {
        uint64_t bus_key;
        uint32_t xid;
        uint32_t count; // told, their lines have not come
        uint64_t taken_ns;
    } events[XID_PAIRS_MAX]; // oldest first
    uint32_t event_count;
};

// An NVML event. True: *out is what to tell, the event with its line's text and times when that was
// waiting. False: its line has been told already.
bool xid_pairs_event(struct xid_pairs *p, const struct xid_sighting *event,
                     struct xid_sighting *out);
// A kernel line. True: tell *out now (the line itself when events is false: no event will come; or
// the oldest group's lines, when there is no more room). False: its event was told before, or it
// waits.
bool xid_pairs_line(struct xid_pairs *p, const struct xid_sighting *line, bool events,
                    struct xid_sighting *out);
// True and *out: lines have waited in vain and are to be told alone. Call until false. drained_ns:
// begin of the last look that found the driver's queue of events empty; UINT64_MAX: there is none.
bool xid_pairs_expire(struct xid_pairs *p, uint64_t now_ns, uint64_t drained_ns,
                      struct xid_sighting *out);
// When the next line expires; UINT64_MAX: none waits.
uint64_t xid_pairs_due_ns(const struct xid_pairs *p);
// The lowest record number among the lines that wait; UINT64_MAX: none waits.
uint64_t xid_pairs_first_seq(const struct xid_pairs *p);
