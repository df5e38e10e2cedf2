// SPDX-License-Identifier: Apache-2.0
// One unary gRPC call over a Unix socket (nghttp2, cleartext HTTP/2 with prior knowledge), a new
// connection each: the kubelet replaces its socket at every start, so a connection that is kept
// would go stale.
#pragma once

#include <stdint.h>

#include "base/sv.h"
#include "io/loop.h"

struct grpc_call_config {
    // These three are copied.
    const char *socket_path;
    const char *method;       // "/v1.PodResourcesLister/List"
    struct sv request;        // message bytes
    uint64_t deadline_ns;     // from now, for the whole call
    size_t max_message_bytes; // more ends the call with -EFBIG
    // Pieces of the one response message, in order, as they arrive. Non-zero (negative errno) ends
    // the call with it.
    int (*data)(void *user, struct sv piece);
    // Exactly once, unless the call is freed before. result: 0 = answered, grpc_status tells how (0
    // = OK and one whole message was delivered); negative errno = no answer: -ENOENT /
    // -ECONNREFUSED / -EACCES (socket), -ETIMEDOUT, -EPROTO (not gRPC), -ECONNRESET (closed before
    // the trailers), -EFBIG, -ENAMETOOLONG (socket), or what data returned. Of answers without
    // grpc-status, an HTTP status other than 200, RST_STREAM and GOAWAY are turned into the
    // grpc_status that gRPC has for them. message: grpc-message, decoded and sanitised, or a text
    // for result; valid during the call.
    void (*done)(void *user, int result, unsigned grpc_status, const char *message);
    void *user;
};

#define GRPC_OK 0u
#define GRPC_UNKNOWN 2u
#define GRPC_DEADLINE_EXCEEDED 4u
#define GRPC_RESOURCE_EXHAUSTED 8u
#define GRPC_UNIMPLEMENTED 12u
#define GRPC_INTERNAL 13u
#define GRPC_UNAVAILABLE 14u

struct grpc_call;
// 0 (done will come, never from inside this function), -ENOMEM.
int must_use grpc_call_new(struct loop *l, const struct grpc_call_config *config,
                           struct grpc_call **out);
// Cancels if still under way. Allowed inside done, not inside data.
void grpc_call_free(struct grpc_call *c);
