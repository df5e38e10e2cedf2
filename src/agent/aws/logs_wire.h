// SPDX-License-Identifier: Apache-2.0
// What CloudWatch Logs is asked and what its answers mean: bodies, names, errors. An engine: bytes
// in, bytes out. Sources: the CloudWatch Logs API reference (PutLogEvents, CreateLogGroup,
// CreateLogStream, PutRetentionPolicy, Common Errors) and the AWS JSON 1.1 protocol of Smithy.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/aws/logs.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/sv.h"

// What went wrong, as far as it matters for what to do about it.
enum logs_fault {
    LOGS_FAULT_NONE,
    LOGS_FAULT_NOT_FOUND,   // the group or the stream
    LOGS_FAULT_EXISTS,      // what was to be made
    LOGS_FAULT_SERVICE,     // the network, the service, or what nobody knows: later
    LOGS_FAULT_THROTTLED,   // later, and slower
    LOGS_FAULT_INVALID,     // something in the request is not allowed
    LOGS_FAULT_TOO_LARGE,   // the request
    LOGS_FAULT_UNREADABLE,  // the service cannot make sense of the body
    LOGS_FAULT_CLOCK,       // the signature's date is refused
    LOGS_FAULT_SIGNATURE,   // the signature: keys, or the date
    LOGS_FAULT_CREDENTIALS, // the keys, or what they may do
    LOGS_FAULT_NAME,        // of the group or the stream
};

#define LOGS_TEXT_BYTES 512

struct logs_answer {
    enum logs_fault fault;
    size_t rejected_old, rejected_new; // together no more than were sent
    uint64_t retry_after_s;
    char text[LOGS_TEXT_BYTES]; // one line; "" without a fault
};

struct logs_reply { // what came by HTTP
    const char *operation;
    unsigned status;
    struct sv error_type; // header x-amzn-ErrorType
    struct sv body;
    size_t events; // that were sent
};
// Whatever the reply holds, out is written; retry_after_s is left at 0. -ENOMEM is a fault of the
// service's kind.
void logs_answer_read(const struct logs_reply *reply, struct logs_answer *out);
// A fault without a reply.
void logs_answer_set(struct logs_answer *out, enum logs_fault fault, const char *operation,
                     const char *text);
// events: of the batch; 0: the request was to make a group or a stream.
enum logs_outcome logs_outcome_of(enum logs_fault fault, size_t events);

// 0 or -EINVAL with *err: the service would not take such names.
int must_use logs_check_names(struct sv group, struct sv stream, struct error *err);
// Of the groups that CloudWatch Container Insights reads.
bool logs_is_insights_group(struct sv group);
// "http://host", "https://host:port" or "host", which is https; a slash at the end is left away. 0
// and the URL; -EINVAL with *err. out's own error is the caller's to look at.
int must_use logs_read_endpoint(struct sv text, struct buf *out, struct error *err);

// Bodies of requests.
void logs_write_events(struct buf *out, const struct logs_batch *batch);
void logs_write_group(struct buf *out, struct sv group);
void logs_write_stream(struct buf *out, struct sv group, struct sv stream);
void logs_write_retention(struct buf *out, struct sv group, unsigned days);
