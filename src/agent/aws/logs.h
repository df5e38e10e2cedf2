// SPDX-License-Identifier: Apache-2.0
// CloudWatch Logs: one PutLogEvents of one batch, signed, with everything it may need first (log
// group, its retention, stream). What to do after a failure is told as an outcome, not done here,
// with two exceptions: a wrong clock is set right by the service's Date and a refused key is
// fetched anew, each once a request. Proxies are those of the environment, AWS_CA_BUNDLE is the CA.
// Source: the CloudWatch Logs API reference, PutLogEvents.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/aws/credentials.h"

// Limits of PutLogEvents.
#define LOGS_BATCH_BYTES_MAX 1048576u // of messages, with LOGS_EVENT_OVERHEAD for each
#define LOGS_BATCH_EVENTS_MAX 10000u
#define LOGS_EVENT_OVERHEAD 26u
#define LOGS_EVENT_BYTES_MAX 262144u // of one event, with the overhead: what every region takes
#define LOGS_BATCH_SPAN_MS (24 * 3600 * INT64_C(1000))
#define LOGS_OLDEST_MS (14 * 24 * 3600 * INT64_C(1000))
#define LOGS_NEWEST_MS (2 * 3600 * INT64_C(1000))

struct logs_event {
    int64_t timestamp_ms;
    struct sv message;
};

struct logs_batch { // of one stream; events in order of time, within all limits
    struct sv group, stream;
    const struct logs_event *events;
    size_t count;
};

enum logs_outcome {
    LOGS_DELIVERED,
    LOGS_RETRY,       // the network, the service: try again later
    LOGS_THROTTLED,   // the same, and slower
    LOGS_SPLIT,       // the batch is too large, or one of its events is refused: send halves
    LOGS_REFUSED,     // it will never be taken (one event, a name that is not allowed)
    LOGS_CREDENTIALS, // no credentials, or they may not: hold, and tell
};

struct logs_result { // borrowed for the callback
    enum logs_outcome outcome;
    size_t rejected_old, rejected_new; // events that the service took note of and threw away
    uint64_t retry_after_s;            // what the service asks for; 0: nothing
    const char *error;                 // one line; "" when delivered
};

struct logs_options {
    const char *region;            // copied
    const char *endpoint_override; // NULL or "": by region; see aws_logs_endpoint
    bool dualstack;
    unsigned retention_days; // of groups made here; 0: never expires
    unsigned deadline_s;     // of a request; 0: 30
};

// Where requests go: the override, else as aws_endpoint has it. It may leave the scheme away, which
// is https then, and has no path. 0; -EINVAL with *err; -ENOMEM.
int must_use aws_logs_endpoint(const struct aws_env *env, const struct logs_options *o,
                               struct buf *out, struct error *err);

struct aws_logs;
// The credentials are watched by it alone. 0; -EINVAL: no endpoint, and aws_logs_endpoint tells
// why; -ENOMEM.
int must_use aws_logs_new(const struct aws_env *env, struct aws_credentials *credentials,
                          const struct logs_options *o, struct aws_logs **out);
// The credentials may go right afterwards. Calls that are alive go on as far as they can without,
// else end with LOGS_RETRY; they are still to be freed. Allowed inside done.
void aws_logs_free(struct aws_logs *l);
struct logs_call;
// Groups and streams are made on demand, one request at a time for each; what exists is left as it
// is, its retention too. The batch is copied. At most LIMIT_LOGS_CONNECTIONS requests are under
// way, the others queue. done comes once, not from inside the call. A connection that breaks while
// it is reused is tried once more on a new one: the service may have the batch already. 0, -ENOMEM.
int must_use aws_logs_put(struct aws_logs *l, const struct logs_batch *batch,
                          void (*done)(void *user, const struct logs_result *result), void *user,
                          struct logs_call **out);
void logs_call_free(struct logs_call *c); // cancels; allowed inside done

struct logs_stats {
    uint64_t requests; // of all operations
    uint64_t failures; // of them; a group or stream found missing, or there already, is none
    uint64_t groups_created, streams_created;
    uint64_t throttled;
    int64_t clock_offset_s; // of the service's clock, as its Date headers tell
};
void aws_logs_get_stats(const struct aws_logs *l, struct logs_stats *out);
