// SPDX-License-Identifier: Apache-2.0
// The small grammars of HTTP that the server needs beside libmicrohttpd's parser. Pure: no I/O, no
// allocation.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/sv.h"

// Accept-Encoding (RFC 9110 12.5.3). Weights in thousandths; -1: not named.
struct accept_encoding {
    int gzip;
    int identity;
    int any; // `*`
};
#define ACCEPT_ENCODING_INIT ((struct accept_encoding){-1, -1, -1})
// Adds one header line; a request may have several. A coding whose weight is malformed is ignored.
void accept_encoding_read(struct accept_encoding *a, struct sv value);
// gzip is acceptable and not liked less than a named identity.
bool accept_encoding_wants_gzip(const struct accept_encoding *a);

// A field name as RFC 9110 5.6.2 allows it.
bool http_name_is_token(struct sv name);

// Decodes %XX in place and returns the new length; a %00 and a broken escape stay as they are
// written.
size_t http_unescape(char *s);

// Whether a decoded path has no empty, "." or ".." segment; a slash at the end is no empty segment.
bool http_path_is_clean(struct sv path);
// The path without such segments, as Go's path.Clean has it, for a Location header: it begins with
// one slash, and what has no place in a path is escaped. 0, or -E2BIG when out is too small.
int must_use http_path_clean(struct sv path, char *out, size_t out_bytes);

// "Basic base64(user:password)" (RFC 7617), decoded into out, which must be erased by the caller.
// 0 and views into out; -EINVAL: another scheme, bad base64, no colon, or longer than out.
int must_use http_basic_decode(struct sv value, char *out, size_t out_bytes, struct sv *out_user,
                               struct sv *out_password);

// Where to listen: "host:port", ":port", "[v6]:port", "unix:/path".
struct http_address {
    bool is_unix;
    char host[256]; // empty: every address; or the path of the socket
    uint16_t port;
};
#define HTTP_UNIX_PATH_BYTES 108 // sockaddr_un
// 0 or -EINVAL with *err.
int must_use http_address_parse(const char *text, struct http_address *out, struct error *err);

// Whether a host (no port, no brackets) is this machine by its own text: localhost, 127.0.0.0/8,
// ::1. Names are not resolved: what they resolve to can change.
bool http_host_is_loopback(const char *host);
