// SPDX-License-Identifier: Apache-2.0
// From events to delivered batches: events gather by log group and stream, become batches within
// the limits of PutLogEvents at each flush, are written to the spool first (agent/spool.h), then
// sent; what could not be sent stays in the spool and follows at no more than half the rate while
// live ones go first. At least once: after a kill at most the batch in flight of a stream is sent
// again. Every event that is lost is counted with its samples and its reason.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/aws/logs.h"
#include "base/error.h"
#include "io/loop.h"

struct delivery_options {
    struct loop *loop;
    struct aws_logs *logs; // NULL: everything waits for delivery_set_logs
    uint64_t flush_ns;
    const char *spool_directory; // "": none; a ring in memory (LIMIT_DELIVERY_MEMORY_BYTES) instead
    uint64_t spool_max_bytes, spool_max_age_ns;
    void (*drained)(void *user); // see delivery_drain
    void *user;
};

struct delivery_event { // borrowed for the call
    struct sv group, stream;
    struct sv message;
    int64_t timestamp_ms;
    unsigned samples;
};

enum delivery_loss {
    DELIVERY_LOST_OLD,     // over 14 days when its turn came, or refused as too old or too new
    DELIVERY_LOST_FULL,    // the oldest, for want of room
    DELIVERY_LOST_REFUSED, // the service will never take it
    DELIVERY_LOST_LARGE,   // over the limit of an event
    DELIVERY_LOST_CORRUPT, // spooled, and unreadable afterwards
    DELIVERY_LOST_MEMORY,  // no memory to hold it
    DELIVERY_LOSS_COUNT,
};
const char *delivery_loss_text(enum delivery_loss l); // "too_old", "spool_full", ...

struct delivery;
// A spool directory that cannot be made or written is told once in the log and a ring in memory
// takes its place; one that another process has is refused. Batches that an earlier process left
// there are sent. 0, -ENOMEM, -EBUSY (another process) with *err.
int must_use delivery_new(const struct delivery_options *o, struct delivery **out,
                          struct error *err);
void delivery_add(struct delivery *d, const struct delivery_event *event);
// Other credentials, another endpoint: batches from now on go there. Requests in flight are
// cancelled and sent again: the logs of before may be freed. NULL: everything waits.
void delivery_set_logs(struct delivery *d, struct aws_logs *logs);
void delivery_set_flush(struct delivery *d, uint64_t flush_ns);
// Flushes now; drained is called when nothing is left, or at the deadline (what is left then stays
// in the spool). deadline_ns: from now.
void delivery_drain(struct delivery *d, uint64_t deadline_ns);
// Nothing waits for the network; what is not delivered is in the spool when it returns.
void delivery_free(struct delivery *d);

// At any time, for events and for samples: added + recovered = delivered + lost + waiting.
struct delivery_stats {
    uint64_t events, samples;                     // added
    uint64_t recovered_events, recovered_samples; // left in the spool by an earlier process
    uint64_t waiting_events, waiting_samples;     // gathered, spooled or in flight
    uint64_t delivered_events, delivered_samples;
    uint64_t lost_events[DELIVERY_LOSS_COUNT], lost_samples[DELIVERY_LOSS_COUNT];
    // Sent again although the first request, of which no good answer came, may have been taken.
    uint64_t duplicate_events;
    uint64_t batches, retries;
    uint64_t spool_bytes, spool_batches; // waiting now, also in memory
    uint64_t oldest_wall_ns;             // of what waits; 0: nothing does
    uint64_t spool_failures; // times that batches could not be written and were kept in memory
    uint64_t spool_foreign;  // files in the directory that are not ours: left alone
    bool is_spooling_to_memory;
    bool was_unclean; // the process before did not end in order: what it held in memory is lost
    uint64_t last_delivery_wall_ns;
    const char *last_error; // borrowed until the next turn; "" none
};
void delivery_get_stats(const struct delivery *d, struct delivery_stats *out);
