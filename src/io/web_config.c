// SPDX-License-Identifier: Apache-2.0
// How it works: each section has a table of keys, each with the function that reads its value into
// struct web_config; the rules that join several keys come last. Errors stand at the node they are
// about. Texts that may be secret are erased in the tree before it is freed.
#include "io/web_config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/num.h"
#include "codec/yaml.h"

#define BCRYPT_BYTES 60
#define BCRYPT_COST_MAX 20 // half a minute a check
#define BCRYPT_COST_MIN 4

struct choice {
    const char *name;
    unsigned value;
};

static const struct choice client_auth_choices[] = {
    {"", WEB_CLIENT_NONE},
    {"NoClientCert", WEB_CLIENT_NONE},
    {"RequestClientCert", WEB_CLIENT_REQUEST},
    {"RequireAnyClientCert", WEB_CLIENT_REQUIRE_ANY},
    {"RequireClientCert", WEB_CLIENT_REQUIRE_ANY}, // the toolkit's older name
    {"VerifyClientCertIfGiven", WEB_CLIENT_VERIFY_IF_GIVEN},
    {"RequireAndVerifyClientCert", WEB_CLIENT_REQUIRE_AND_VERIFY},
    {NULL, 0},
};
static const struct choice version_choices[] = {
    {"TLS10", WEB_TLS10},
    {"TLS11", WEB_TLS11},
    {"TLS12", WEB_TLS12},
    {"TLS13", WEB_TLS13},
    {NULL, 0},
};
static const struct choice curve_choices[] = {
    {"CurveP256", WEB_CURVE_P256},
    {"CurveP384", WEB_CURVE_P384},
    {"CurveP521", WEB_CURVE_P521},
    {"X25519", WEB_CURVE_X25519},
    {NULL, 0},
};

// What a reader works on.
struct reading {
    const char *path;
    struct web_config *config;
    struct error *err;
};

#define FAIL_AT(r, node, ...)                                                                      \
    error_set_at((r)->err, -EINVAL, (r)->path, (node)->line, (node)->column, __VA_ARGS__)

// --- Values ---

static int read_text(struct reading *r, const struct yaml_node *n, char **out)
{
    if (yaml_is_null(n))
        return 0;
    if (n->kind != YAML_SCALAR)
        return FAIL_AT(r, n, "%s: expected a text", n->key.ptr);
    *out = sv_dup(n->scalar);
    return *out ? 0 : -ENOMEM;
}

// A file name, relative to the directory of the configuration file.
static int read_file_name(struct reading *r, const struct yaml_node *n, char **out)
{
    char *name = NULL;
    int result = read_text(r, n, &name);
    if (result < 0 || !name)
        return result;
    const char *slash = strrchr(r->path, '/');
    if (!*name || *name == '/' || !slash) {
        *out = name;
        return 0;
    }
    struct buf joined = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    buf_add(&joined, r->path, (size_t)(slash - r->path) + 1);
    buf_add_str(&joined, name);
    buf_add_char(&joined, '\0');
    free(name);
    result = joined.error;
    if (result == 0)
        *out = buf_take(&joined, NULL);
    buf_deinit(&joined);
    return result;
}

static int read_choice(struct reading *r, const struct yaml_node *n, const struct choice *choices,
                       const char *what, unsigned *out)
{
    if (n->kind == YAML_SCALAR) {
        for (const struct choice *c = choices; c->name; c++) {
            if (sv_equals(n->scalar, sv_from(c->name))) {
                *out = c->value;
                return 0;
            }
        }
    }
    struct buf names = BUF_INIT(512);
    for (const struct choice *c = choices; c->name; c++) {
        if (*c->name)
            buf_add_fmt(&names, "%s%s", names.len ? ", " : "", c->name);
    }
    int result =
        FAIL_AT(r, n, "unknown %s '%.*s': expected one of %s", what,
                n->kind == YAML_SCALAR ? (int)(n->scalar.len > 64 ? 64 : n->scalar.len) : 0,
                n->kind == YAML_SCALAR ? n->scalar.ptr : "", buf_cstr(&names));
    buf_deinit(&names);
    return result;
}

// The nodes of a list, at most WEB_LIST_MAX; nothing for null.
static int check_list(struct reading *r, const struct yaml_node *n)
{
    if (yaml_is_null(n))
        return 0;
    if (n->kind != YAML_SEQUENCE)
        return FAIL_AT(r, n, "%s: expected a list", n->key.ptr);
    if (n->count > WEB_LIST_MAX)
        return FAIL_AT(r, n, "%s: at most %d entries", n->key.ptr, WEB_LIST_MAX);
    return 0;
}

static const struct yaml_node *list_first(const struct yaml_node *n)
{
    return n->kind == YAML_SEQUENCE ? n->first : NULL;
}

// --- tls_server_config ---

static int read_cert(struct reading *r, const struct yaml_node *n)
{
    return read_text(r, n, &r->config->cert);
}

static int read_key(struct reading *r, const struct yaml_node *n)
{
    return read_text(r, n, &r->config->key);
}

static int read_client_ca(struct reading *r, const struct yaml_node *n)
{
    return read_text(r, n, &r->config->client_ca);
}

static int read_cert_file(struct reading *r, const struct yaml_node *n)
{
    return read_file_name(r, n, &r->config->cert_file);
}

static int read_key_file(struct reading *r, const struct yaml_node *n)
{
    return read_file_name(r, n, &r->config->key_file);
}

static int read_client_ca_file(struct reading *r, const struct yaml_node *n)
{
    return read_file_name(r, n, &r->config->client_ca_file);
}

static int read_client_auth(struct reading *r, const struct yaml_node *n)
{
    if (yaml_is_null(n))
        return 0;
    unsigned value;
    int result = read_choice(r, n, client_auth_choices, "client_auth_type", &value);
    if (result < 0)
        return result;
    r->config->client_auth = value;
    r->config->tls = n->scalar.len > 0;
    return 0;
}

static int read_version(struct reading *r, const struct yaml_node *n, enum web_tls_version *out)
{
    if (yaml_is_null(n))
        return 0;
    unsigned value;
    int result = read_choice(r, n, version_choices, "TLS version", &value);
    if (result == 0)
        *out = value;
    return result;
}

static int read_min_version(struct reading *r, const struct yaml_node *n)
{
    return read_version(r, n, &r->config->min_version);
}

static int read_max_version(struct reading *r, const struct yaml_node *n)
{
    return read_version(r, n, &r->config->max_version);
}

static int read_cipher_suites(struct reading *r, const struct yaml_node *n)
{
    int result = check_list(r, n);
    if (result < 0)
        return result;
    struct web_config *c = r->config;
    for (const struct yaml_node *item = list_first(n); item; item = item->next) {
        size_t i = 0;
        while (i < web_cipher_count && !(item->kind == YAML_SCALAR &&
                                         sv_equals(item->scalar, sv_from(web_ciphers[i].name))))
            i++;
        if (i == web_cipher_count)
            return FAIL_AT(r, item,
                           "unknown cipher '%.64s': expected a name as in "
                           "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                           item->kind == YAML_SCALAR ? item->scalar.ptr : "");
        c->cipher_suites[c->cipher_suite_count++] = (uint8_t)i;
    }
    return 0;
}

static int read_curves(struct reading *r, const struct yaml_node *n)
{
    int result = check_list(r, n);
    if (result < 0)
        return result;
    struct web_config *c = r->config;
    for (const struct yaml_node *item = list_first(n); item; item = item->next) {
        unsigned curve;
        result = read_choice(r, item, curve_choices, "curve", &curve);
        if (result < 0)
            return result;
        c->curves[c->curve_count++] = (uint8_t)curve;
    }
    return 0;
}

static int read_allowed_sans(struct reading *r, const struct yaml_node *n)
{
    int result = check_list(r, n);
    if (result < 0)
        return result;
    struct web_config *c = r->config;
    for (const struct yaml_node *item = list_first(n); item; item = item->next) {
        if (item->kind != YAML_SCALAR)
            return FAIL_AT(r, item, "client_allowed_sans: expected a list of names");
        char *san = sv_dup(item->scalar);
        if (!san)
            return -ENOMEM;
        c->allowed_sans[c->allowed_san_count++] = san;
    }
    return 0;
}

static int read_prefer_server(struct reading *r, const struct yaml_node *n)
{
    return yaml_is_null(n)
               ? 0
               : yaml_read_bool(n, r->path, &r->config->prefer_server_cipher_suites, r->err);
}

// --- http_server_config, rate_limit ---

static int read_http2(struct reading *r, const struct yaml_node *n)
{
    return yaml_is_null(n) ? 0 : yaml_read_bool(n, r->path, &r->config->http2, r->err);
}

// The toolkit lets these be set and no other; where it lists values, only those.
static const struct allowed_header {
    const char *name;
    const char *values[2];
} allowed_headers[WEB_HEADERS_MAX] = {
    {"Content-Security-Policy", {NULL, NULL}},
    {"Strict-Transport-Security", {NULL, NULL}},
    {"X-Content-Type-Options", {"nosniff", NULL}},
    {"X-Frame-Options", {"deny", "sameorigin"}},
    {"X-XSS-Protection", {NULL, NULL}},
};

static int check_header_value(struct reading *r, const struct yaml_node *n,
                              const struct allowed_header *h)
{
    for (size_t i = 0; i < n->scalar.len; i++) {
        unsigned char byte = (unsigned char)n->scalar.ptr[i];
        if (byte < ' ' || byte == 0x7f)
            return FAIL_AT(r, n, "%s: a header value is one line without control characters",
                           h->name);
    }
    if (!h->values[0])
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(h->values); i++) {
        if (h->values[i] && sv_equals(n->scalar, sv_from(h->values[i])))
            return 0;
    }
    return FAIL_AT(r, n, "%s: expected '%s'%s%s%s, found '%.64s'", h->name, h->values[0],
                   h->values[1] ? " or '" : "", h->values[1] ? h->values[1] : "",
                   h->values[1] ? "'" : "", n->scalar.ptr);
}

static int read_header(struct reading *r, const struct yaml_node *n, size_t *total)
{
    const struct allowed_header *h = allowed_headers;
    while (h < allowed_headers + WEB_HEADERS_MAX && !sv_equals(n->key, sv_from(h->name)))
        h++;
    if (h == allowed_headers + WEB_HEADERS_MAX)
        return FAIL_AT(
            r, n,
            "header '%.64s' cannot be set here: expected Content-Security-Policy, X-Frame-Options, "
            "X-Content-Type-Options, X-XSS-Protection or Strict-Transport-Security",
            n->key.ptr);
    if (n->kind != YAML_SCALAR)
        return FAIL_AT(r, n, "%s: expected a text", h->name);
    int result = check_header_value(r, n, h);
    if (result < 0)
        return result;
    *total += n->scalar.len;
    if (*total > LIMIT_WEB_HEADER_BYTES)
        return FAIL_AT(r, n, "headers: at most %u bytes together", LIMIT_WEB_HEADER_BYTES);
    if (yaml_is_null(n) || n->scalar.len == 0)
        return 0;
    char *value = sv_dup(n->scalar);
    if (!value)
        return -ENOMEM;
    r->config->headers[r->config->header_count++] = (struct web_header){h->name, value};
    return 0;
}

static int read_headers(struct reading *r, const struct yaml_node *n)
{
    if (yaml_is_null(n))
        return 0;
    if (n->kind != YAML_MAPPING)
        return FAIL_AT(r, n, "headers: expected names and values");
    size_t total = 0;
    for (const struct yaml_node *h = n->first; h; h = h->next) {
        int result = read_header(r, h, &total);
        if (result < 0)
            return result;
    }
    return 0;
}

static int read_burst(struct reading *r, const struct yaml_node *n)
{
    int64_t burst = 0;
    int result = yaml_is_null(n) ? 0 : yaml_read_i64(n, r->path, 0, INT32_MAX, &burst, r->err);
    if (result == 0)
        r->config->rate_burst = (uint32_t)burst;
    return result;
}

// Go reads a time.Duration from text ("1s") or from a number of nanoseconds.
static int read_interval(struct reading *r, const struct yaml_node *n)
{
    if (yaml_is_null(n))
        return 0;
    uint64_t *out = &r->config->rate_interval_ns;
    if (n->kind == YAML_SCALAR && (num_parse_u64(n->scalar, 0, INT64_MAX, out) == 0 ||
                                   num_parse_duration_go(n->scalar, out) == 0))
        return 0;
    return FAIL_AT(r, n, "interval: expected a duration as in 100ms, 1s or 1m30s");
}

// --- basic_auth_users ---

static bool is_bcrypt(struct sv s)
{
    static const char digits[] = "./ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    if (s.len != BCRYPT_BYTES || s.ptr[0] != '$' || s.ptr[1] != '2' || !strchr("aby", s.ptr[2]) ||
        s.ptr[3] != '$' || s.ptr[6] != '$')
        return false;
    for (size_t i = 7; i < s.len; i++) {
        if (!s.ptr[i] || !strchr(digits, s.ptr[i]))
            return false;
    }
    return true;
}

static int read_user(struct reading *r, const struct yaml_node *n)
{
    uint64_t cost;
    // The hash itself is never printed.
    if (n->kind != YAML_SCALAR || !is_bcrypt(n->scalar) ||
        num_parse_u64(sv_sub(n->scalar, 4, 2), 0, 99, &cost) < 0)
        return FAIL_AT(r, n,
                       "user '%.64s': expected a bcrypt hash ($2y$10$ and 53 more characters)",
                       n->key.ptr);
    if (cost < BCRYPT_COST_MIN || cost > BCRYPT_COST_MAX)
        return FAIL_AT(r, n, "user '%.64s': expected a bcrypt cost from %d to %d", n->key.ptr,
                       BCRYPT_COST_MIN, BCRYPT_COST_MAX);
    struct web_user *u = &r->config->users[r->config->user_count];
    u->name = sv_dup(n->key);
    u->hash = sv_dup(n->scalar);
    r->config->user_count++; // also half made: it is owned
    return u->name && u->hash ? 0 : -ENOMEM;
}

static int read_users(struct reading *r, const struct yaml_node *n)
{
    if (yaml_is_null(n))
        return 0;
    if (n->kind != YAML_MAPPING)
        return FAIL_AT(r, n, "basic_auth_users: expected user names with bcrypt hashes");
    if (n->count > LIMIT_WEB_USERS)
        return FAIL_AT(r, n, "basic_auth_users: at most %d users", LIMIT_WEB_USERS);
    if (n->count == 0)
        return 0;
    r->config->users = calloc(n->count, sizeof(*r->config->users));
    if (!r->config->users)
        return -ENOMEM;
    for (const struct yaml_node *u = n->first; u; u = u->next) {
        int result = read_user(r, u);
        if (result < 0)
            return result;
    }
    return 0;
}

// --- Sections ---

struct key {
    const char *name;
    int (*read)(struct reading *r, const struct yaml_node *n);
};
#define KEYS_MAX 16

static const struct key tls_keys[] = {
    {"cert", read_cert},
    {"key", read_key},
    {"client_ca", read_client_ca},
    {"cert_file", read_cert_file},
    {"key_file", read_key_file},
    {"client_auth_type", read_client_auth},
    {"client_ca_file", read_client_ca_file},
    {"cipher_suites", read_cipher_suites},
    {"curve_preferences", read_curves},
    {"min_version", read_min_version},
    {"max_version", read_max_version},
    {"prefer_server_cipher_suites", read_prefer_server},
    {"client_allowed_sans", read_allowed_sans},
    {NULL, NULL},
};
static const struct key http_keys[] = {
    {"http2", read_http2}, {"headers", read_headers}, {NULL, NULL}};
static const struct key rate_keys[] = {
    {"burst", read_burst}, {"interval", read_interval}, {NULL, NULL}};

static int read_section(struct reading *r, const struct yaml_node *n, const struct key *keys)
{
    if (yaml_is_null(n))
        return 0;
    if (n->kind != YAML_MAPPING)
        return FAIL_AT(r, n, "%s: expected keys and values", n->key.len ? n->key.ptr : "the file");
    const char *known[KEYS_MAX + 1] = {NULL};
    for (size_t i = 0; keys[i].name && i < KEYS_MAX; i++)
        known[i] = keys[i].name;
    int result = yaml_check_keys(n, r->path, known, r->err);
    for (const struct key *k = keys; k->name && result == 0; k++) {
        const struct yaml_node *value = yaml_find(n, k->name);
        if (value)
            result = k->read(r, value);
    }
    return result;
}

static bool is_set(const char *text)
{
    return text && *text;
}

// The toolkit's rules between keys (validateTLSPaths, ConfigToTLSConfig).
static int check_tls(struct reading *r, const struct yaml_node *n)
{
    struct web_config *c = r->config;
    bool has_cert = is_set(c->cert_file) || is_set(c->cert);
    bool has_key = is_set(c->key_file) || is_set(c->key);
    bool has_ca = is_set(c->client_ca_file) || is_set(c->client_ca);
    c->tls = c->tls || has_cert || has_key || has_ca;
    if (!c->tls)
        return 0;
    if (!has_cert)
        return FAIL_AT(r, n, "tls_server_config: one of cert and cert_file is needed");
    if (!has_key)
        return FAIL_AT(r, n, "tls_server_config: one of key and key_file is needed");
    if (has_ca && c->client_auth == WEB_CLIENT_NONE)
        return FAIL_AT(r, n,
                       "tls_server_config: client_ca and client_ca_file need a client_auth_type");
    if (c->allowed_san_count > 0 && c->client_auth != WEB_CLIENT_REQUIRE_ANY &&
        c->client_auth != WEB_CLIENT_REQUIRE_AND_VERIFY)
        return FAIL_AT(
            r, n,
            "tls_server_config: client_allowed_sans needs client_auth_type RequireAnyClientCert or "
            "RequireAndVerifyClientCert");
    if (c->min_version > c->max_version)
        return FAIL_AT(r, n, "tls_server_config: min_version is above max_version");
    return 0;
}

static int read_tls(struct reading *r, const struct yaml_node *n)
{
    int result = read_section(r, n, tls_keys);
    return result < 0 ? result : check_tls(r, n);
}

static int read_http(struct reading *r, const struct yaml_node *n)
{
    return read_section(r, n, http_keys);
}

static int read_rate(struct reading *r, const struct yaml_node *n)
{
    int result = read_section(r, n, rate_keys);
    if (result == 0 && r->config->rate_interval_ns > 0 && r->config->rate_burst == 0)
        return FAIL_AT(r, n, "rate_limit: a burst of at least 1 is needed beside interval");
    return result;
}

static const struct key file_keys[] = {
    {"tls_server_config", read_tls},
    {"http_server_config", read_http},
    {"rate_limit", read_rate},
    {"basic_auth_users", read_users},
    {NULL, NULL},
};

// --- The whole ---

static void erase(struct sv s)
{
    // The document is ours and about to be freed; only its interface is const.
    if (s.ptr)
        explicit_bzero((char *)(uintptr_t)s.ptr, s.len);
}

static void erase_secrets(const struct yaml_node *root)
{
    if (root->kind != YAML_MAPPING)
        return;
    const struct yaml_node *tls = yaml_find(root, "tls_server_config");
    const struct yaml_node *key = tls && tls->kind == YAML_MAPPING ? yaml_find(tls, "key") : NULL;
    if (key)
        erase(key->scalar);
    const struct yaml_node *users = yaml_find(root, "basic_auth_users");
    for (const struct yaml_node *u = users ? users->first : NULL; u; u = u->next)
        erase(u->scalar);
}

int web_config_parse(struct sv text, const char *path, struct web_config *out, struct error *err)
{
    struct yaml_document *document = NULL;
    int result = yaml_parse(text, path, &document, err);
    if (result < 0)
        return result;
    struct web_config config = {
        .min_version = WEB_TLS12,
        .max_version = WEB_TLS13,
        .prefer_server_cipher_suites = true,
        .http2 = true,
    };
    struct reading r = {path, &config, err};
    const struct yaml_node *root = yaml_root(document);
    result = read_section(&r, root, file_keys);
    erase_secrets(root);
    yaml_document_free(document);
    if (result == -ENOMEM)
        error_set(err, -ENOMEM, "out of memory for the web configuration");
    if (result < 0) {
        web_config_deinit(&config);
        return result;
    }
    *out = config;
    return 0;
}

static void free_secret(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void web_config_deinit(struct web_config *c)
{
    free(c->cert_file);
    free(c->key_file);
    free(c->client_ca_file);
    free(c->cert);
    free_secret(c->key);
    free(c->client_ca);
    for (size_t i = 0; i < c->allowed_san_count; i++)
        free(c->allowed_sans[i]);
    for (size_t i = 0; i < c->header_count; i++)
        free(c->headers[i].value);
    for (size_t i = 0; i < c->user_count; i++) {
        free(c->users[i].name);
        free_secret(c->users[i].hash);
    }
    free(c->users);
    *c = (struct web_config){0};
}

const struct web_user *web_config_find_user(const struct web_config *c, struct sv name)
{
    for (size_t i = 0; i < c->user_count; i++) {
        if (sv_equals(name, sv_from(c->users[i].name)))
            return &c->users[i];
    }
    return NULL;
}
