// SPDX-License-Identifier: Apache-2.0
// The same XID is seen twice: NVML's event knows the GPU instance, the kernel's line has the text.
// Sightings of one GPU and code within XID_PAIR_NS are paired one to one, so that a burst of n is
// counted n times. Engine: no clock, no I/O, no lock.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define XID_PAIR_NS (1200 * UINT64_C(1000000)) // NVML events are fetched once a second
#define XID_PAIRS_MAX 64                       // of each kind, waiting

struct xid_sighting {
    uint64_t bus_key; // as kmsg_bus_key_parse makes it
    uint32_t xid;
    uint32_t gpu_instance_id; // UINT32_MAX: not attributable
    uint32_t origin;          // enum frame_event_origin
    uint64_t taken_ns;
    uint64_t wall_ns;
    char text[160]; // of the kernel, or ""
};

struct xid_pairs {
    struct xid_sighting
        lines[XID_PAIRS_MAX]; // of the kernel, waiting for their event; oldest first
    uint32_t line_count;
    struct {
        uint64_t bus_key;
        uint32_t xid;
        uint64_t taken_ns;
    } events[XID_PAIRS_MAX]; // of NVML, already told, whose line has not come; oldest first
    uint32_t event_count;
};

// An NVML event. *out is what to tell: the event, with its line's text and times when that was
// waiting.
void xid_pairs_event(struct xid_pairs *p, const struct xid_sighting *event,
                     struct xid_sighting *out);
// A kernel line. True: tell *out now (the line itself when events is false: no event will come; or
// the oldest waiting line, when there is no more room). False: its event was told before, or it
// waits.
bool xid_pairs_line(struct xid_pairs *p, const struct xid_sighting *line, bool events,
                    struct xid_sighting *out);
// True and *out: a line has waited in vain and is to be told alone. Call until false.
bool xid_pairs_expire(struct xid_pairs *p, uint64_t now_ns, struct xid_sighting *out);
// When the next line expires; UINT64_MAX: none waits.
uint64_t xid_pairs_due_ns(const struct xid_pairs *p);
