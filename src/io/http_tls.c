// SPDX-License-Identifier: Apache-2.0
// How it works: struct http_tls holds one set of GnuTLS credentials and one priority cache, made
// from the web configuration and never changed; a reload makes another. A session finds its struct
// http_tls_peer as GnuTLS' receive pointer, which is how the callbacks below know their rules. The
// receive callback looks at the first byte before GnuTLS does: a TLS record starts with 22, an HTTP
// request with a capital letter.
#include "io/http_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/abstract.h>
#include <gnutls/crypto.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/limits.h"

#define SAN_BYTES 512
#define CERTIFICATES_MAX 16 // of a server's chain

struct http_tls {
    gnutls_certificate_credentials_t credentials;
    gnutls_priority_t priorities;
    enum web_client_auth client_auth;
    char *allowed_sans[WEB_LIST_MAX];
    size_t allowed_san_count;
};

// --- PEM texts, from a file or the configuration itself ---

struct pem {
    struct buf bytes;
    const char *name; // for messages
    char name_bytes[300];
};

static void pem_deinit(struct pem *p)
{
    if (p->bytes.data)
        explicit_bzero(p->bytes.data, p->bytes.cap);
    buf_deinit(&p->bytes);
}

static int pem_read(struct pem *p, const char *key, const char *file, const char *text,
                    struct error *err)
{
    p->bytes = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    p->name = key;
    if (!file || !*file) {
        buf_add_str(&p->bytes, text ? text : "");
        return p->bytes.error;
    }
    snprintf(p->name_bytes, sizeof(p->name_bytes), "%s_file '%s'", key, file);
    p->name = p->name_bytes;
    // Reserved in one piece: growing would leave copies of a key behind.
    int r = buf_reserve(&p->bytes, 64u << 10);
    return r < 0 ? r : file_read(file, &p->bytes, err);
}

static gnutls_datum_t pem_datum(const struct pem *p)
{
    return (gnutls_datum_t){(unsigned char *)p->bytes.data, (unsigned)p->bytes.len};
}

static int check_certificate(const struct pem *p, struct error *err)
{
    gnutls_x509_crt_t certificates[CERTIFICATES_MAX];
    unsigned count = CERTIFICATES_MAX;
    gnutls_datum_t datum = pem_datum(p);
    int r = gnutls_x509_crt_list_import(certificates, &count, &datum, GNUTLS_X509_FMT_PEM,
                                        GNUTLS_X509_CRT_LIST_IMPORT_FAIL_IF_EXCEED);
    if (r < 0)
        return error_set(err, -EINVAL, "%s: no certificate in PEM form (%s)", p->name,
                         gnutls_strerror(r));
    for (int i = 0; i < r; i++)
        gnutls_x509_crt_deinit(certificates[i]);
    return 0;
}

static int check_key(const struct pem *p, struct error *err)
{
    gnutls_privkey_t key;
    if (gnutls_privkey_init(&key) < 0)
        return -ENOMEM;
    gnutls_datum_t datum = pem_datum(p);
    int r = gnutls_privkey_import_x509_raw(key, &datum, GNUTLS_X509_FMT_PEM, NULL, 0);
    gnutls_privkey_deinit(key);
    if (r < 0)
        return error_set(err, -EINVAL, "%s: no private key in PEM form (%s)", p->name,
                         gnutls_strerror(r));
    return 0;
}

static int set_pair(struct http_tls *t, const struct pem *cert, const struct pem *key,
                    struct error *err)
{
    int r = check_certificate(cert, err);
    if (r == 0)
        r = check_key(key, err);
    if (r < 0)
        return r;
    gnutls_datum_t cert_datum = pem_datum(cert);
    gnutls_datum_t key_datum = pem_datum(key);
    r = gnutls_certificate_set_x509_key_mem2(t->credentials, &cert_datum, &key_datum,
                                             GNUTLS_X509_FMT_PEM, NULL, 0);
    if (r < 0)
        return error_set(err, -EINVAL, "%s and %s cannot be used together (%s)", cert->name,
                         key->name, gnutls_strerror(r));
    return 0;
}

static int load_pair(struct http_tls *t, const struct web_config *c, struct error *err)
{
    struct pem cert, key = {.bytes = BUF_INIT(0)};
    int r = pem_read(&cert, "cert", c->cert_file, c->cert, err);
    if (r == 0)
        r = pem_read(&key, "key", c->key_file, c->key, err);
    if (r == 0)
        r = set_pair(t, &cert, &key, err);
    pem_deinit(&cert);
    pem_deinit(&key);
    return r;
}

// --- Client certificates ---

static bool is_verified(enum web_client_auth mode)
{
    return mode == WEB_CLIENT_VERIFY_IF_GIVEN || mode == WEB_CLIENT_REQUIRE_AND_VERIFY;
}

static int load_client_ca(struct http_tls *t, const struct web_config *c, struct error *err)
{
    bool given = (c->client_ca_file && *c->client_ca_file) || (c->client_ca && *c->client_ca);
    if (!given) {
        // As Go does: without a CA of its own, the machine's.
        if (is_verified(c->client_auth))
            (void)gnutls_certificate_set_x509_system_trust(t->credentials);
        return 0;
    }
    struct pem ca;
    int r = pem_read(&ca, "client_ca", c->client_ca_file, c->client_ca, err);
    if (r == 0) {
        gnutls_datum_t datum = pem_datum(&ca);
        int found =
            gnutls_certificate_set_x509_trust_mem(t->credentials, &datum, GNUTLS_X509_FMT_PEM);
        if (found <= 0)
            r = error_set(err, -EINVAL, "%s: no certificate in PEM form", ca.name);
    }
    pem_deinit(&ca);
    return r;
}

static const struct http_tls_peer *peer_of(gnutls_session_t session)
{
    gnutls_transport_ptr_t received_by, sent_by;
    gnutls_transport_get_ptr2(session, &received_by, &sent_by);
    return received_by;
}

static bool san_is_allowed(const struct http_tls *t, const char *san)
{
    for (size_t i = 0; i < t->allowed_san_count; i++) {
        if (strcmp(t->allowed_sans[i], san) == 0)
            return true;
    }
    return false;
}

// One alternative name as text; false for the kinds the toolkit does not look at and for oversized
// ones.
static bool read_san(gnutls_x509_crt_t certificate, unsigned sequence, char *out, size_t out_bytes,
                     bool *at_end)
{
    unsigned char raw[SAN_BYTES];
    size_t bytes = sizeof(raw) - 1;
    int kind = gnutls_x509_crt_get_subject_alt_name(certificate, sequence, raw, &bytes, NULL);
    *at_end = kind == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE;
    if (kind == GNUTLS_SAN_IPADDRESS)
        return (bytes == 4 || bytes == 16) &&
               inet_ntop(bytes == 4 ? AF_INET : AF_INET6, raw, out, (socklen_t)out_bytes);
    if (kind != GNUTLS_SAN_DNSNAME && kind != GNUTLS_SAN_RFC822NAME && kind != GNUTLS_SAN_URI)
        return false;
    if (bytes >= out_bytes || memchr(raw, '\0', bytes))
        return false;
    memcpy(out, raw, bytes);
    out[bytes] = '\0';
    return true;
}

static bool certificate_is_allowed(const struct http_tls *t, const gnutls_datum_t *leaf)
{
    if (t->allowed_san_count == 0)
        return true;
    gnutls_x509_crt_t certificate;
    if (gnutls_x509_crt_init(&certificate) < 0)
        return false;
    bool allowed = false;
    bool at_end = gnutls_x509_crt_import(certificate, leaf, GNUTLS_X509_FMT_DER) < 0;
    for (unsigned i = 0; i < 1000 && !at_end && !allowed; i++) {
        char san[SAN_BYTES];
        allowed = read_san(certificate, i, san, sizeof(san), &at_end) && san_is_allowed(t, san);
    }
    gnutls_x509_crt_deinit(certificate);
    return allowed;
}

// GnuTLS' verify callback: 0 lets the client in.
static int verify_client(gnutls_session_t session)
{
    const struct http_tls *t = peer_of(session)->tls;
    unsigned count = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &count);
    if (!chain || count == 0)
        return 0; // GnuTLS itself refuses where one is required
    gnutls_alert_description_t alert = GNUTLS_A_UNKNOWN_CA;
    unsigned status = 0;
    if (is_verified(t->client_auth)) {
        gnutls_typed_vdata_st purpose = {GNUTLS_DT_KEY_PURPOSE_OID,
                                         (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT, 0};
        if (gnutls_certificate_verify_peers(session, &purpose, 1, &status) < 0)
            status = GNUTLS_CERT_INVALID;
    }
    if (status == 0) {
        if (certificate_is_allowed(t, &chain[0]))
            return 0;
        alert = GNUTLS_A_BAD_CERTIFICATE;
    }
    (void)gnutls_alert_send(session, GNUTLS_AL_FATAL, alert);
    return GNUTLS_E_CERTIFICATE_ERROR;
}

// --- Priorities ---

// Adds ":+PREFIXname" unless it is there.
static void add_once(struct buf *out, const char *prefix, const char *name)
{
    char item[64];
    int len = snprintf(item, sizeof(item), ":+%s%s", prefix, name);
    struct sv rest = buf_sv(out);
    for (size_t at; (at = sv_find(rest, (struct sv){item, (size_t)len})) != (size_t)-1;) {
        rest = sv_sub(rest, at + (size_t)len, rest.len);
        if (rest.len == 0 || rest.ptr[0] == ':')
            return;
    }
    buf_add(out, item, (size_t)len);
}

// Suites are enabled by their parts: where a list crosses key exchanges with ciphers unevenly, more
// pairs are enabled than it names.
static void add_suite(struct buf *out, const struct web_cipher *suite)
{
    if (suite->key_exchange)
        add_once(out, "", suite->key_exchange);
    add_once(out, "", suite->cipher);
    add_once(out, "", suite->mac);
}

static void add_suites(struct buf *out, const struct web_config *c)
{
    static const char *const aead[] = {"AES-256-GCM", "CHACHA20-POLY1305"};
    buf_add_str(out, ":-KX-ALL:-CIPHER-ALL:-MAC-ALL");
    for (size_t i = 0; i < c->cipher_suite_count; i++)
        add_suite(out, &web_ciphers[c->cipher_suites[i]]);
    for (size_t i = 0; c->cipher_suite_count == 0 && i < web_cipher_count; i++) {
        // Go's default: everything with forward secrecy.
        if (!web_ciphers[i].key_exchange || strcmp(web_ciphers[i].key_exchange, "RSA") != 0)
            add_suite(out, &web_ciphers[i]);
    }
    // A list without any cipher of TLS 1.3 does not turn TLS 1.3 off.
    bool has_aead = sv_find(buf_sv(out), SV(":+AEAD")) != (size_t)-1;
    for (size_t i = 0; !has_aead && c->max_version == WEB_TLS13 && i < ARRAY_SIZE(aead); i++)
        add_suite(out, &(struct web_cipher){.cipher = aead[i], .mac = "AEAD"});
}

static void add_curves(struct buf *out, const struct web_config *c)
{
    static const char *const names[] = {
        [WEB_CURVE_P256] = "SECP256R1",
        [WEB_CURVE_P384] = "SECP384R1",
        [WEB_CURVE_P521] = "SECP521R1",
        [WEB_CURVE_X25519] = "X25519",
    };
    static const uint8_t usual[] = {WEB_CURVE_X25519, WEB_CURVE_P256, WEB_CURVE_P384,
                                    WEB_CURVE_P521};
    const uint8_t *curves = c->curve_count ? c->curves : usual;
    size_t count = c->curve_count ? c->curve_count : ARRAY_SIZE(usual);
    buf_add_str(out, ":-GROUP-ALL");
    for (size_t i = 0; i < count; i++)
        add_once(out, "GROUP-", names[curves[i]]);
}

int http_tls_priority(const struct web_config *config, char *out, size_t out_bytes)
{
    static const char *const versions[] = {
        [WEB_TLS10] = "1.0", [WEB_TLS11] = "1.1", [WEB_TLS12] = "1.2", [WEB_TLS13] = "1.3"};
    struct buf text = BUF_INIT(out_bytes - 1);
    buf_add_str(&text, "NORMAL:-VERS-ALL");
    for (unsigned v = WEB_TLS13 + 1; v-- > 0;) {
        if (v >= config->min_version && v <= config->max_version)
            add_once(&text, "VERS-TLS", versions[v]);
    }
    add_suites(&text, config);
    add_curves(&text, config);
    if (config->prefer_server_cipher_suites)
        buf_add_str(&text, ":%SERVER_PRECEDENCE");
    int r = text.error;
    if (r == 0)
        sv_copy(out, out_bytes, buf_sv(&text));
    buf_deinit(&text);
    return r;
}

// --- The set of rules ---

static int copy_sans(struct http_tls *t, const struct web_config *c)
{
    for (size_t i = 0; i < c->allowed_san_count; i++) {
        char *san = sv_dup(sv_from(c->allowed_sans[i]));
        if (!san)
            return -ENOMEM;
        t->allowed_sans[t->allowed_san_count++] = san;
    }
    return 0;
}

static int set_priorities(struct http_tls *t, const struct web_config *c, struct error *err)
{
    char text[HTTP_TLS_PRIORITY_BYTES];
    int r = http_tls_priority(c, text, sizeof(text));
    if (r < 0)
        return error_set(err, r, "the TLS settings are too long");
    r = gnutls_priority_init(&t->priorities, text, NULL);
    if (r < 0)
        return error_set(err, -EINVAL,
                         "no TLS version and cipher is left by min_version, max_version and "
                         "cipher_suites (%s)",
                         gnutls_strerror(r));
    return 0;
}

static int fill(struct http_tls *t, const struct web_config *c, struct error *err)
{
    t->client_auth = c->client_auth;
    if (gnutls_certificate_allocate_credentials(&t->credentials) < 0)
        return -ENOMEM;
    gnutls_certificate_set_verify_function(t->credentials, verify_client);
    int r = copy_sans(t, c);
    if (r == 0)
        r = set_priorities(t, c, err);
    if (r == 0)
        r = load_pair(t, c, err);
    if (r == 0)
        r = load_client_ca(t, c, err);
    return r;
}

int http_tls_new(const struct web_config *config, struct http_tls **out, struct error *err)
{
    struct http_tls *t = calloc(1, sizeof(*t));
    int r = t ? fill(t, config, err) : -ENOMEM;
    if (r == -ENOMEM)
        error_set(err, -ENOMEM, "out of memory for the TLS settings");
    if (r < 0) {
        http_tls_free(t);
        return r;
    }
    *out = t;
    return 0;
}

void http_tls_free(struct http_tls *t)
{
    if (!t)
        return;
    if (t->credentials)
        gnutls_certificate_free_credentials(t->credentials);
    if (t->priorities)
        gnutls_priority_deinit(t->priorities);
    for (size_t i = 0; i < t->allowed_san_count; i++)
        free(t->allowed_sans[i]);
    free(t);
}

// --- Sessions ---

static const char plain_answer[] = "HTTP/1.0 400 Bad Request\r\n"
                                   "Content-Type: text/plain; charset=utf-8\r\n"
                                   "Connection: close\r\n"
                                   "\r\n"
                                   "Client sent an HTTP request to an HTTPS server.\n";

static void answer_plain(int fd)
{
    char dropped[8192];
    // What is left unread would turn the close into a reset, which may overtake the answer.
    for (int i = 0;
         i < 4 && recv(fd, dropped, sizeof(dropped), MSG_DONTWAIT) == (ssize_t)sizeof(dropped); i++)
        ;
    (void)send(fd, plain_answer, sizeof(plain_answer) - 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)shutdown(fd, SHUT_WR);
}

static ssize_t receive(gnutls_transport_ptr_t user, void *out, size_t bytes)
{
    struct http_tls_peer *peer = user;
    char first = 0;
    if (!peer->has_begun && recv(peer->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 1) {
        peer->has_begun = true;
        if (first >= 'A' && first <= 'Z') {
            peer->is_plain = true;
            answer_plain(peer->fd);
            errno = ECONNRESET;
            return -1;
        }
    }
    return recv(peer->fd, out, bytes, 0);
}

int http_tls_start(void *session, struct http_tls_peer *peer, const struct http_tls *tls, int fd)
{
    gnutls_session_t s = session;
    *peer = (struct http_tls_peer){.tls = tls, .fd = fd};
    if (gnutls_credentials_set(s, GNUTLS_CRD_CERTIFICATE, tls->credentials) < 0 ||
        gnutls_priority_set(s, tls->priorities) < 0)
        return -EPROTO;
    switch (tls->client_auth) {
    case WEB_CLIENT_NONE:
        gnutls_certificate_server_set_request(s, GNUTLS_CERT_IGNORE);
        break;
    case WEB_CLIENT_REQUEST:
    case WEB_CLIENT_VERIFY_IF_GIVEN:
        gnutls_certificate_server_set_request(s, GNUTLS_CERT_REQUEST);
        break;
    case WEB_CLIENT_REQUIRE_ANY:
    case WEB_CLIENT_REQUIRE_AND_VERIFY:
        gnutls_certificate_server_set_request(s, GNUTLS_CERT_REQUIRE);
        break;
    }
    gnutls_transport_set_ptr2(s, peer, (gnutls_transport_ptr_t)(intptr_t)fd);
    gnutls_transport_set_pull_function(s, receive);
    return 0;
}

static int no_certificate(gnutls_session_t session, const gnutls_datum_t *authorities,
                          int authority_count, const gnutls_pk_algorithm_t *algorithms,
                          int algorithm_count, gnutls_pcert_st **certificates,
                          unsigned *certificate_count, gnutls_privkey_t *key)
{
    (void)session, (void)authorities, (void)authority_count, (void)algorithms,
        (void)algorithm_count;
    (void)certificates, (void)certificate_count, (void)key;
    return -1;
}

void *http_tls_no_certificate(void)
{
    return (void *)no_certificate;
}

// --- Hash and randomness ---

int http_tls_hash(const uint8_t key[HTTP_TLS_HASH_BYTES], struct sv text,
                  uint8_t out[HTTP_TLS_HASH_BYTES])
{
    return gnutls_hmac_fast(GNUTLS_MAC_SHA256, key, HTTP_TLS_HASH_BYTES, text.ptr, text.len, out) <
                   0
               ? -EIO
               : 0;
}

int http_tls_random(void *out, size_t bytes)
{
    return gnutls_rnd(GNUTLS_RND_KEY, out, bytes) < 0 ? -EIO : 0;
}
