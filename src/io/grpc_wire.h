// SPDX-License-Identifier: Apache-2.0
// The parts of gRPC over HTTP/2 that are bytes in, facts out: the length-prefixed message,
// grpc-message text, and what stands for a missing grpc-status. Source: the gRPC project's "gRPC
// over HTTP2" and "HTTP to gRPC Status Code Mapping". For grpc.c only.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/sv.h"

#define GRPC_CANCELLED 1u
#define GRPC_PERMISSION_DENIED 7u
#define GRPC_UNAUTHENTICATED 16u

// The one message of a unary answer: a flag byte, four bytes of length, the message.
struct grpc_body {
    size_t max_message_bytes;
    unsigned char prefix[5];
    unsigned prefix_len;
    uint32_t left; // of the message, once the prefix is whole
};
// Bytes of the stream in any split; data gets the message's. 0; -EPROTO (compressed, or bytes after
// the message; *what names it, static text); -EFBIG; or what data returned.
int must_use grpc_body_feed(struct grpc_body *b, struct sv piece,
                            int (*data)(void *user, struct sv piece), void *user,
                            const char **what);
bool grpc_body_is_whole(const struct grpc_body *b);

// grpc-message for people: %XX decoded, control characters as blanks, bytes that are not UTF-8 as
// '?', cut to fit at a character boundary.
void grpc_message_decode(struct sv raw, char *out, size_t out_bytes);
// grpc-status: GRPC_UNKNOWN when it is no number.
unsigned grpc_status_parse(struct sv text);
unsigned grpc_status_of_http(unsigned http_status);  // an answer that is not gRPC
unsigned grpc_status_of_reset(uint32_t http2_error); // RST_STREAM
// grpc-timeout: at most 8 digits and a unit. out has GRPC_TIMEOUT_BYTES.
#define GRPC_TIMEOUT_BYTES 24
void grpc_timeout_print(uint64_t timeout_ns, char *out);
