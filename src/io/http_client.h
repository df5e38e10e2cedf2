// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 requests from the loop (libcurl's multi interface). libcurl is loaded at run time, on
// first use, through a typed table: programs that never ask pay nothing for it. All functions
// belong to the loop's thread.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/sv.h"
#include "io/loop.h"

struct http_client; // one a program: the multi handle, shared DNS and TLS sessions
// 0; -ENOENT with *err when libcurl is not installed; -ENOMEM.
int must_use http_client_new(struct loop *l, struct http_client **out, struct error *err);
// Cancels what is under way. Calls and handles that outlive it are empty and still freed by their
// owners.
void http_client_free(struct http_client *c);

struct http_tls { // NULL or "" members: default
    const char
        *ca_file; // default: the system's bundle, or AWS_CA_BUNDLE where the caller passes it
    const char *cert_file, *key_file;
    const char *ca_pem, *cert_pem, *key_pem; // the same as text; of each, this or the file
    const char *server_name;
    bool insecure;
    int min_version, max_version; // 10..13 for TLS 1.0..1.3; 0: library default
};

struct http_sign {                // AWS Signature Version 4 by libcurl; all borrowed for the call
    const char *service, *region; // NULL service: no signature; redirects are not followed with one
    struct sv access_key, secret_key, session_token;
    const char *date; // X-Amz-Date to use ("20260102T030405Z"), NULL: now
};

struct http_client_request {
    const char *method; // "GET", "POST", "PUT"
    const char *url;
    const char *const *headers; // "Name: value", NULL-ended; may be NULL
    const char *user_agent;     // NULL: "podgpu/VERSION"; not signed, unlike a header of that name
    struct sv body;             // copied
    struct http_tls tls;
    struct http_sign sign;
    const char *proxy;    // NULL: from the environment; "": none
    const char *no_proxy; // hosts that proxy is not for, comma-separated; NULL: as the proxy itself
    const char *user, *password; // basic auth; NULL: none
    const char *unix_socket;     // NULL: TCP
    bool follow_redirects;       // same scheme or http to https, at most 10
    bool accept_gzip;            // and decompress, within max_body_bytes
    uint64_t deadline_ns;        // from now, for the whole request; never 0
    size_t max_body_bytes;       // decompressed; more ends it with -EFBIG
    // Body bytes as they come; NULL: gathered into the response. Non-zero (negative errno) ends the
    // request with it. user is that of done. No request may be started from inside it, nor the
    // client freed; calls may.
    int (*data)(void *user, struct sv piece);
};

struct http_client_response {
    int result; // 0: an HTTP status came; else negative errno (-ETIMEDOUT, -ECONNREFUSED,
                // -EHOSTUNREACH for a name that does not resolve, -EPROTO, -EFBIG, -EKEYREJECTED
                // for TLS trouble, -ECONNRESET, -ENETUNREACH, -ENOENT for a socket file that is not
                // there, -ENOMEM)
    unsigned status; // 0 without an answer
    struct sv body;  // borrowed for the callback; may be taken with http_client_take_body
    struct sv content_type;
    int64_t server_time_s; // from the Date header, 0: none
    uint64_t retry_after_s;
    const char *error; // borrowed; one line for people; "" when result is 0
};

struct http_call;
// done comes exactly once, never from inside this call, unless the call is freed before. handle: a
// connection to keep alive between calls to one place (a target); NULL: none kept. 0, -EINVAL with
// *err (URL), -ENOMEM, -EBUSY (the handle is in use, LIMIT_HTTP_CLIENT_CALLS reached, called inside
// data).
struct http_handle;                                         // keeps a connection
struct http_handle *http_handle_new(struct http_client *c); // NULL: no memory
void http_handle_free(struct http_handle *h); // a request under way goes on without it
int must_use http_client_start(struct http_client *c, struct http_handle *handle,
                               const struct http_client_request *request,
                               void (*done)(void *user,
                                            const struct http_client_response *response),
                               void *user, struct http_call **out, struct error *err);
// A header of the answer by name, inside done; .ptr NULL when absent.
struct sv http_call_header(const struct http_call *call, const char *name);
// The gathered body, inside done or later, to be freed by the caller; NULL when empty.
char *http_client_take_body(struct http_call *call, size_t *out_len);
void http_call_free(struct http_call *call); // cancels; allowed inside done
