// SPDX-License-Identifier: Apache-2.0
// Events as lines to a place that is not CloudWatch: standard output, a file that grows, a TCP
// server (the CloudWatch agent's own EMF listener takes such lines). What the place does not take
// now waits in memory, LIMIT_EVENT_OUTPUT_BYTES at most; beyond that the newest are lost, and
// counted. A line is written whole or, after a broken connection, again from its beginning.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/cwagent_config.h"
#include "base/error.h"
#include "io/loop.h"

struct event_output_stats {
    uint64_t events, samples; // given
    uint64_t written_events, written_samples;
    uint64_t lost_events, lost_samples; // for want of room or memory
    uint64_t waiting_bytes;
    uint64_t failures;      // to write, open or connect
    bool is_gone;           // nobody reads our standard output any more
    const char *last_error; // "" none; borrowed until the next turn
};

struct event_output;
// Not for CW_OUTPUT_CLOUDWATCH. A file is made with mode 0644 when there is none. 0; -ENOMEM; other
// negative errno with *err naming the path (a TCP server that does not answer is waited for).
int must_use event_output_new(struct loop *l, const struct cw_output *to, struct event_output **out,
                              struct error *err);
void event_output_add(struct event_output *o, struct sv line, unsigned samples);
// A file is opened anew by its name: after it was renamed by whoever rotates it.
void event_output_reopen(struct event_output *o);
const char *event_output_kind(const struct event_output *o);  // "stdout", "file", "tcp"
const char *event_output_place(const struct event_output *o); // path, host and port, or ""
// Tells, once, when nothing waits; at once when that is now.
void event_output_drain(struct event_output *o, void (*drained)(void *user), void *user);
void event_output_get_stats(const struct event_output *o, struct event_output_stats *out);
void event_output_free(struct event_output *o); // what still waits is lost
