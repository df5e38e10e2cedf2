// SPDX-License-Identifier: Apache-2.0
// Where XID errors meet: NVML events from the sampling thread, kernel lines from a thread of their
// own (NVML calls of the other may hang, and that is when the lines matter). Each is told once, and
// the last code of each GPU and instance is kept. Lines that come before the first list wait for
// it. In a storm, and while the exporter does not read, the same XID of the same GPU is added up,
// so that EVENTS frames are few and none is lost. All functions may be called from both threads.
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "source/nvml_devices.h"
#include "source/output.h"
#include "source/xid_pairs.h"

#define XID_BOARD_PENDING 64
#define XID_BOARD_FLUSH_NS (50 * NS_PER_MS) // between two frames of lines

struct xid_row { // of an entity, in its order
    uint64_t bus_key;
    uint32_t gpu_instance_id; // UINT32_MAX: a GPU
    uint32_t last;            // 0: none seen
    bool known;               // has a bus id: the kernel's lines can name it
};

struct xid_board {
    struct output *output;
    pthread_mutex_t lock; // of all below
    struct xid_pairs pairs;
    struct xid_row *rows; // owned
    uint32_t count;
    uint32_t generation; // of the entity list sent last
    bool listed;         // there has been a list
    bool events_armed;
    uint64_t drained_ns; // begin of the last look that found the driver's queue empty
    struct frame_event pending[XID_BOARD_PENDING]; // to be told, of this generation
    uint32_t pending_count;
    uint64_t flush_ns; // not before
    struct buf frame;
};

void xid_board_init(struct xid_board *b, struct output *output);
void xid_board_deinit(struct xid_board *b);
// Sends the ENTITIES frame and knows the list from then on; last codes stay with their GPU or
// instance. As output_send, or -ENOMEM.
int xid_board_send_entities(struct xid_board *b, const struct nvml_devices *d,
                            const struct buf *frame);
void xid_board_set_armed(struct xid_board *b, bool events_armed);
// Tell of an event; times are taken here. As output_send.
int xid_board_event(struct xid_board *b, uint32_t entity, uint32_t xid, uint32_t gpu_instance_id);
// Events have been fetched, since started_ns; drained: until there were none left. Sends what was
// told. As output_send.
int xid_board_fetched(struct xid_board *b, uint64_t started_ns, bool drained);
// A line or record of the kernel log, any bytes. As output_send.
int xid_board_line(struct xid_board *b, struct sv line);
// What is due: lines whose event did not come, frames held back. As output_send.
int xid_board_expire(struct xid_board *b, uint64_t now_ns);
uint64_t xid_board_due_ns(struct xid_board *b); // UINT64_MAX: nothing waits
// The number of the kernel's record up to which all are told, seq_read being the last one given to
// xid_board_line; 0: not known now.
uint64_t xid_board_told_seq(struct xid_board *b, uint64_t seq_read);
// Last code seen on the entity; 0: none.
uint32_t xid_board_last(struct xid_board *b, uint32_t entity);
