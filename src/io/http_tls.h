// SPDX-License-Identifier: Apache-2.0
// TLS of the HTTP server: the one file that speaks GnuTLS. libmicrohttpd makes a session per
// connection; this sets credentials, versions, ciphers, client certificates and the look at the
// first byte on it.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/sv.h"
#include "io/web_config.h"

struct http_tls; // immutable; must outlive the sessions set from it
// Reads the files config names. 0, or negative errno with *err naming the file. config may be freed
// afterwards.
int must_use http_tls_new(const struct web_config *config, struct http_tls **out,
                          struct error *err);
void http_tls_free(struct http_tls *t);

// The far end of one session, in the caller's storage; must outlive the session.
struct http_tls_peer {
    const struct http_tls *tls;
    int fd;
    bool has_begun; // its first byte was seen
    bool is_plain;  // and was HTTP's: it was told so
};
// session: a fresh gnutls_session_t on fd. A client that speaks plain HTTP is answered 400 and
// shut, in the toolkit's words. 0 or -EPROTO.
int must_use http_tls_start(void *session, struct http_tls_peer *peer, const struct http_tls *tls,
                            int fd);

// libmicrohttpd asks for a certificate source when a TLS daemon is made; http_tls_start replaces
// it. Its type is gnutls_certificate_retrieve_function2 *.
void *http_tls_no_certificate(void);

// GnuTLS' priority string for the versions, suites and curves of config, NUL-terminated. -EINVAL:
// nothing left.
#define HTTP_TLS_PRIORITY_BYTES 1024
int must_use http_tls_priority(const struct web_config *config, char *out, size_t out_bytes);

// Keyed hash (HMAC-SHA-256) and random bytes, for the cache of checked passwords. 0 or -EIO.
#define HTTP_TLS_HASH_BYTES 32
int must_use http_tls_hash(const uint8_t key[HTTP_TLS_HASH_BYTES], struct sv text,
                           uint8_t out[HTTP_TLS_HASH_BYTES]);
int must_use http_tls_random(void *out, size_t bytes);
