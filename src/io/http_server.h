// SPDX-License-Identifier: Apache-2.0
// An HTTP/1.1 server for few, small routes (libmicrohttpd in our loop, TLS by GnuTLS), and the
// bodies it sends. HTTP/1.0 and 1.1, any method without a body; a body or Transfer-Encoding in a
// request is answered 400 and the connection closed. Limits: base/limits.h. TLS, client
// certificates, basic auth, headers and rate limit come from the exporter-toolkit web-config file
// (io/web_config.h) and are re-read when it changes.
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "base/sv.h"
#include "io/loop.h"

// --- Bodies: immutable, reference-counted, shared by any number of responses ---
struct http_body;
// Takes data (heap; freed with the last reference, also on failure). 0 or -ENOMEM. One reference.
// content_type is borrowed and must outlive the body (a literal).
int must_use http_body_new(char *data, size_t bytes, const char *content_type,
                           struct http_body **out);
struct http_body *http_body_ref(struct http_body *b);
void http_body_unref(struct http_body *b);
struct sv http_body_bytes(const struct http_body *b);
// How many connections are sending it right now, or wait for its gzip.
unsigned http_body_readers(const struct http_body *b);
// Shuts down those connections (a reader too slow for the pages that follow). Returns how many.
unsigned http_body_shut_readers(struct http_body *b);

// --- Requests ---
struct http_request; // valid during the handler call
struct sv http_request_method(const struct http_request *r);
struct sv http_request_path(const struct http_request *r); // decoded, without the query
struct sv http_request_header(const struct http_request *r,
                              const char *name);          // .ptr NULL when absent
bool http_request_is_local(const struct http_request *r); // loopback or unix peer

struct http_header {
    const char *name;
    const char *value;
};

// Each request must be answered once, in the handler, or put off there. gzip is used when the
// client asks for it and the body is over 1 KiB; it is made once per body, on the pool over 1 MiB
// (a reply with extra headers doesn't wait for that and goes out as it is). HEAD gets headers only.
// Extra headers are copied; a Content-Type among them takes the place of the body's.
void http_reply(struct http_request *r, unsigned status, struct http_body *body,
                const struct http_header *headers, size_t header_count);
// A small text answer, copied: "text/plain; charset=utf-8".
void http_reply_text(struct http_request *r, unsigned status, struct sv text,
                     const struct http_header *headers, size_t header_count);

// Puts the answer off, for as long as whoever does so bounds: the connection waits. NULL: no
// memory, answer now.
struct http_deferred;
struct http_deferred *http_defer(struct http_request *r);
// The answer, copied; once, also when the client or the server is gone, and frees d.
void http_deferred_reply(struct http_deferred *d, unsigned status, struct sv text);

// --- Server ---
struct http_server_config {
    const char *address;         // "host:port", ":port", "[v6]:port", "unix:/path"
    const char *web_config_file; // NULL or "": plain, open
    bool systemd_socket;         // use LISTEN_FDS instead of address
    uint32_t idle_ms;            // 0: LIMIT_HTTP_IDLE_MS
    // 0: LIMIT_HTTP_CONNECTIONS; fewer where the process may not have so many descriptors
    uint32_t most_connections;
    void (*handle)(void *user, struct http_request *request);
    void *user;
};

struct http_server_stats {
    uint64_t requests;     // answered by the handler
    uint64_t denied;       // 401
    uint64_t limited;      // 429, and 503 while too many passwords wait to be checked
    uint64_t bad_requests; // 400 of our own making
    uint64_t connections;  // accepted since start
    uint64_t refused;      // over the per-peer cap, or no place could be made
    uint64_t evicted;      // idle ones shut for a new one
    uint64_t timed_out; // past the deadline for asking or taking the answer; not those closed after
                        // being idle
    uint32_t open;      // now
    bool web_config_ok; // last (re)load of the web config succeeded
};

struct http_server;
// 0, or negative errno with *err (address in use, bad web config with its position, unreadable key,
// ...).
int must_use http_server_new(struct loop *l, const struct http_server_config *config,
                             struct http_server **out, struct error *err);
unsigned http_server_port(const struct http_server *s); // as bound; 0 for unix
void http_server_get_stats(const struct http_server *s, struct http_server_stats *out);
// Re-reads the web config now. On failure the old one stays; *err says why.
int http_server_reload(struct http_server *s, struct error *err);
// Closes everything at once. Not from within handle. Password checks and compressions under way end
// unheard; loop_free waits for them.
void http_server_free(struct http_server *s);
