// SPDX-License-Identifier: Apache-2.0
// The web configuration file of the Prometheus exporter-toolkit (docs/web-configuration.md there):
// TLS, client certificates, basic auth, response headers, rate limit. Pure: text in, struct out;
// the files it names are read by io/http_tls. Unknown and duplicate keys are refused. What the
// toolkit accepts, this accepts, except: client CAs without a certificate in them, a burst below 1
// with an interval (the toolkit would refuse every request), and bcrypt costs over 20.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "base/sv.h"

enum web_client_auth {
    WEB_CLIENT_NONE,
    WEB_CLIENT_REQUEST,     // ask, accept anything
    WEB_CLIENT_REQUIRE_ANY, // some certificate, unverified
    WEB_CLIENT_VERIFY_IF_GIVEN,
    WEB_CLIENT_REQUIRE_AND_VERIFY,
};

enum web_tls_version {
    WEB_TLS10,
    WEB_TLS11,
    WEB_TLS12,
    WEB_TLS13,
};

enum web_curve {
    WEB_CURVE_P256,
    WEB_CURVE_P384,
    WEB_CURVE_P521,
    WEB_CURVE_X25519,
};

// A cipher suite by its IANA name, and GnuTLS' names for its parts.
struct web_cipher {
    const char *name;
    const char *key_exchange; // NULL: TLS 1.3
    const char *cipher;
    const char *mac;
};
extern const struct web_cipher web_ciphers[];
extern const size_t web_cipher_count;

#define WEB_HEADERS_MAX 5
#define WEB_LIST_MAX 32 // cipher suites, curves, SANs

struct web_header {
    const char *name;
    char *value;
};

struct web_user {
    char *name;
    char *hash; // bcrypt
};

struct web_config {
    bool tls; // the file asks for TLS
    char *cert_file, *key_file,
        *client_ca_file;          // resolved against the file's directory; win over the texts below
    char *cert, *key, *client_ca; // PEM in the file itself
    enum web_client_auth client_auth;
    char *allowed_sans[WEB_LIST_MAX];
    size_t allowed_san_count;
    enum web_tls_version min_version, max_version;
    uint8_t cipher_suites[WEB_LIST_MAX]; // indices of web_ciphers, in order of preference
    size_t cipher_suite_count;           // 0: the library's choice
    uint8_t curves[WEB_LIST_MAX];        // enum web_curve
    size_t curve_count;                  // 0: the library's choice
    bool prefer_server_cipher_suites;
    bool http2; // accepted; this server speaks HTTP/1.1
    struct web_header headers[WEB_HEADERS_MAX];
    size_t header_count;
    struct web_user *users;
    size_t user_count;
    uint32_t rate_burst;
    uint64_t rate_interval_ns; // 0: no limit
};

// path: of the file, for messages and as the base of relative paths. 0, -EINVAL or -EFBIG with *err
// (position, key, expectation), -ENOMEM. *out owns what it points to: web_config_deinit, which
// erases the secrets.
int must_use web_config_parse(struct sv text, const char *path, struct web_config *out,
                              struct error *err);
void web_config_deinit(struct web_config *c);
const struct web_user *web_config_find_user(const struct web_config *c,
                                            struct sv name); // NULL when absent
