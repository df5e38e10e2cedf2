// SPDX-License-Identifier: Apache-2.0
// One request at a time of an AWS service or endpoint, tried again while the fault is not ours: no
// answer, 429, 5xx and what the owner adds. Waits grow, with jitter. What it sent is erased.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/aws/credentials.h"
#include "agent/aws/keys.h"

struct aws_ask {
    // The request; set after aws_ask_clear, borrowed until done.
    const char *method;
    struct buf url, body;           // owned, their ceilings set
    const char *service, *region;   // NULL service: unsigned
    const struct aws_key_set *keys; // to sign with
    uint64_t deadline_ns;           // of one try
    unsigned tries;                 // at most
    bool is_direct;                 // never through a proxy: link-local and loopback addresses
    bool (*again)(const struct http_client_response *response); // also worth another try; or NULL

    // Its own
    const struct aws_env *env;
    void (*done)(void *user, const struct http_client_response *response);
    void *user;
    struct buf headers; // lines, each with a NUL behind it
    struct http_call *call;
    struct loop_timer *timer; // until the next try, or to tell a failure
    unsigned attempt;
    int64_t clock_offset_s; // of the service to us, once it refused a date
    bool has_offset;
    int failure; // of starting; told from the timer
    struct error error;
};

// done is never called from inside aws_ask_send; in it the ask may be sent again and deinited. 0,
// -ENOMEM.
int must_use aws_ask_init(struct aws_ask *a, const struct aws_env *env,
                          void (*done)(void *user, const struct http_client_response *response),
                          void *user);
void aws_ask_deinit(struct aws_ask *a); // cancels; a zeroed one may be deinited
// Forgets the request: GET, unsigned, one try.
void aws_ask_clear(struct aws_ask *a);
void aws_ask_header(struct aws_ask *a, const char *name, struct sv value);
void aws_ask_send(struct aws_ask *a); // what fails here is told to done

// Percent-encodes all but the unreserved characters of RFC 3986.
void aws_add_escaped(struct buf *out, struct sv text);
