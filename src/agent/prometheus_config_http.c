// SPDX-License-Identifier: Apache-2.0
// Source: prometheus.io/docs/prometheus/3.0/configuration/configuration/#scrape_config, and the
// rules of prometheus/common's HTTPClientConfig.
#include <stddef.h>

#include "agent/prometheus_config_internal.h"

// Messages show nothing of what stands in these sections.
static void read_hidden(struct config_reader *r, const struct yaml_node *n,
                        const struct config_key *keys, void *section)
{
    r->hide = true;
    config_read_section(r, n, keys, section);
    r->hide = false;
}

// --- basic_auth, authorization ---

static const struct config_key basic_auth_keys[] = {
    {"username", CONFIG_TEXT, offsetof(struct prom_http, user)},
    {"username_file", CONFIG_PATH, offsetof(struct prom_http, user_file)},
    {"password", CONFIG_TEXT, offsetof(struct prom_http, password)},
    {"password_file", CONFIG_PATH, offsetof(struct prom_http, password_file)},
    {NULL},
};

static void at_most_one(struct config_reader *r, const struct yaml_node *n, const char *a,
                        const char *b)
{
    config_problem(r, config_place(n, b), "at most one of %s and %s can be given", a, b);
}

static void read_basic_auth(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct http_section *s = section;
    if (yaml_is_null(n))
        return;
    s->basic_auth = true;
    read_hidden(r, n, basic_auth_keys, &s->http);
    if (s->http.user && s->http.user_file)
        at_most_one(r, n, "username", "username_file");
    if (s->http.password && s->http.password_file)
        at_most_one(r, n, "password", "password_file");
}

static const struct config_key authorization_keys[] = {
    {"type", CONFIG_TEXT, offsetof(struct prom_http, auth_type)},
    {"credentials", CONFIG_TEXT, offsetof(struct prom_http, credentials)},
    {"credentials_file", CONFIG_PATH, offsetof(struct prom_http, credentials_file)},
    {NULL},
};

static void read_authorization(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct http_section *s = section;
    if (yaml_is_null(n))
        return;
    s->authorization = true;
    read_hidden(r, n, authorization_keys, &s->http);
    struct sv type = sv_trim(sv_from(s->http.auth_type), " \t\r\n");
    s->http.auth_type = config_text(r, type.len ? type : SV("Bearer"));
    if (sv_equals_nocase(type, SV("basic")))
        config_problem(r, config_place(n, "type"),
                       "type: 'basic' has a section of its own, basic_auth");
    if (s->http.credentials && s->http.credentials_file)
        at_most_one(r, n, "credentials", "credentials_file");
}

// --- oauth2: its keys are checked; the agent cannot ask for such tokens ---

struct oauth2 {
    char *client_id, *client_secret, *client_secret_file, *token_url;
};

static const struct config_key oauth2_keys[] = {
    {"client_id", CONFIG_TEXT, offsetof(struct oauth2, client_id)},
    {"client_secret", CONFIG_TEXT, offsetof(struct oauth2, client_secret)},
    {"client_secret_file", CONFIG_PATH, offsetof(struct oauth2, client_secret_file)},
    {"token_url", CONFIG_TEXT, offsetof(struct oauth2, token_url)},
    {"scopes", CONFIG_IGNORED},
    {"endpoint_params", CONFIG_IGNORED},
    {"tls_config", CONFIG_IGNORED},
    {"proxy_url", CONFIG_IGNORED},
    {"no_proxy", CONFIG_IGNORED},
    {"proxy_from_environment", CONFIG_IGNORED},
    {"proxy_connect_header", CONFIG_IGNORED},
    {NULL},
};

static void read_oauth2(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct http_section *s = section;
    struct oauth2 o = {0};
    if (yaml_is_null(n))
        return;
    s->oauth2 = true;
    config_ignore(r, n->key);
    read_hidden(r, n, oauth2_keys, &o);
    if (!o.client_id)
        config_problem(r, n, "oauth2 needs a client_id");
    if (!o.token_url)
        config_problem(r, n, "oauth2 needs a token_url");
    if (!o.client_secret && !o.client_secret_file)
        config_problem(r, n, "oauth2 needs a client_secret or a client_secret_file");
    if (o.client_secret && o.client_secret_file)
        at_most_one(r, n, "client_secret", "client_secret_file");
}

// --- tls_config ---

static void read_version(struct config_reader *r, const struct yaml_node *n, int *out)
{
    static const char *const names[] = {"TLS10", "TLS11", "TLS12", "TLS13"};
    if (yaml_is_null(n))
        return;
    for (int i = 0; n->kind == YAML_SCALAR && i < (int)ARRAY_SIZE(names); i++) {
        if (sv_equals(n->scalar, sv_from(names[i]))) {
            *out = 10 + i;
            return;
        }
    }
    config_unexpected(r, n, "TLS10, TLS11, TLS12 or TLS13");
}

static void read_min_version(struct config_reader *r, const struct yaml_node *n, void *section)
{
    read_version(r, n, &((struct prom_http *)section)->tls.min_version);
}

static void read_max_version(struct config_reader *r, const struct yaml_node *n, void *section)
{
    read_version(r, n, &((struct prom_http *)section)->tls.max_version);
}

static const struct config_key tls_keys[] = {
    {"ca", CONFIG_TEXT, offsetof(struct prom_http, ca)},
    {"cert", CONFIG_TEXT, offsetof(struct prom_http, cert)},
    {"key", CONFIG_TEXT, offsetof(struct prom_http, key)},
    {"ca_file", CONFIG_PATH, offsetof(struct prom_http, tls.ca_file)},
    {"cert_file", CONFIG_PATH, offsetof(struct prom_http, tls.cert_file)},
    {"key_file", CONFIG_PATH, offsetof(struct prom_http, tls.key_file)},
    {"server_name", CONFIG_TEXT, offsetof(struct prom_http, tls.server_name)},
    {"insecure_skip_verify", CONFIG_BOOL, offsetof(struct prom_http, tls.insecure)},
    {"min_version", CONFIG_CUSTOM, 0, read_min_version},
    {"max_version", CONFIG_CUSTOM, 0, read_max_version},
    {NULL},
};

static void read_tls(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct prom_http *http = &((struct http_section *)section)->http;
    config_read_section(r, n, tls_keys, http);
    struct http_tls *tls = &http->tls;
    if (http->ca && tls->ca_file)
        at_most_one(r, n, "ca", "ca_file");
    if (http->cert && tls->cert_file)
        at_most_one(r, n, "cert", "cert_file");
    if (http->key && tls->key_file)
        at_most_one(r, n, "key", "key_file");
    bool cert = http->cert || tls->cert_file, key = http->key || tls->key_file;
    if (cert != key)
        config_problem(r, n,
                       cert ? "a client certificate needs a key or key_file"
                            : "a client key needs a cert or cert_file");
    if (tls->min_version && tls->max_version && tls->min_version > tls->max_version)
        config_problem(r, config_place(n, "max_version"), "max_version is below min_version");
}

// --- http_headers ---

// Set by the client itself, or by SigV4.
static const char *const reserved_headers[] = {
    "Authorization",
    "Host",
    "Content-Encoding",
    "Content-Length",
    "Content-Type",
    "User-Agent",
    "Connection",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "WWW-Authenticate",
    "Accept-Encoding",
    "X-Prometheus-Remote-Write-Version",
    "X-Prometheus-Remote-Read-Version",
    "X-Prometheus-Scrape-Timeout-Seconds",
    "X-Amz-Date",
    "X-Amz-Security-Token",
    "X-Amz-Content-Sha256",
};

struct header {
    struct config_list values, secrets, files;
};

static const struct config_key header_keys[] = {
    {"values", CONFIG_LIST, offsetof(struct header, values)},
    {"secrets", CONFIG_LIST, offsetof(struct header, secrets)},
    {"files", CONFIG_LIST, offsetof(struct header, files)},
    {NULL},
};

static void check_header_name(struct config_reader *r, const struct yaml_node *n)
{
    bool token = n->key.len > 0;
    for (size_t i = 0; i < n->key.len; i++) {
        unsigned char c = (unsigned char)n->key.ptr[i];
        token = token && c > ' ' && c < 0x7f && !strchr("()<>@,;:\\\"/[]?={}", c);
    }
    if (!token)
        config_problem(r, n, "'%.64s' is not a header name", n->key.ptr);
    for (size_t i = 0; i < ARRAY_SIZE(reserved_headers); i++) {
        if (sv_equals_nocase(n->key, sv_from(reserved_headers[i])))
            config_problem(r, n, "header %s cannot be set here", reserved_headers[i]);
    }
}

static bool is_header_value(const char *text)
{
    for (; *text; text++) {
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            return false;
    }
    return true;
}

static void add_pairs(struct config_reader *r, const struct yaml_node *n,
                      const struct config_list *list, bool paths, struct prom_pair *pairs,
                      size_t *count)
{
    char *name = config_text(r, n->key);
    for (size_t i = 0; name && i < list->count; i++) {
        char *value = paths ? config_path(r, sv_from(list->items[i])) : list->items[i];
        if (!paths && !is_header_value(value))
            config_problem(r, n, "a header value is one line without control characters");
        pairs[(*count)++] = (struct prom_pair){name, value};
    }
}

static void read_headers(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct prom_http *http = &((struct http_section *)section)->http;
    size_t count, values = 0, files = 0;
    r->hide = true;
    bool good = config_expect(r, n, YAML_MAPPING, "header names and their values");
    r->hide = false;
    if (!good)
        return;
    const struct yaml_node **members = config_members(r, n, &count);
    struct header *headers = config_alloc(r, count, sizeof(*headers));
    for (size_t i = 0; headers && i < count; i++) {
        check_header_name(r, members[i]);
        read_hidden(r, members[i], header_keys, &headers[i]);
        values += headers[i].values.count + headers[i].secrets.count;
        files += headers[i].files.count;
    }
    http->headers = config_alloc(r, values, sizeof(*http->headers));
    http->header_files = config_alloc(r, files, sizeof(*http->header_files));
    for (size_t i = 0; !r->failure && i < count; i++) {
        add_pairs(r, members[i], &headers[i].values, false, http->headers, &http->header_count);
        add_pairs(r, members[i], &headers[i].secrets, false, http->headers, &http->header_count);
        add_pairs(r, members[i], &headers[i].files, true, http->header_files,
                  &http->header_file_count);
    }
}

// --- All together ---

static void read_proxy_headers(struct config_reader *r, const struct yaml_node *n, void *section)
{
    if (yaml_is_null(n))
        return;
    ((struct http_section *)section)->proxy_headers = true;
    if (config_expect(r, n, YAML_MAPPING, "header names and their values"))
        config_ignore(r, n->key);
}

const struct config_key http_keys[] = {
    {"basic_auth", CONFIG_CUSTOM, 0, read_basic_auth},
    {"authorization", CONFIG_CUSTOM, 0, read_authorization},
    {"oauth2", CONFIG_CUSTOM, 0, read_oauth2},
    {"bearer_token", CONFIG_TEXT, offsetof(struct http_section, bearer_token)},
    {"bearer_token_file", CONFIG_PATH, offsetof(struct http_section, bearer_token_file)},
    {"tls_config", CONFIG_CUSTOM, 0, read_tls},
    {"follow_redirects", CONFIG_BOOL, offsetof(struct http_section, http.follow_redirects)},
    {"enable_http2", CONFIG_BOOL, offsetof(struct http_section, enable_http2)},
    {"proxy_url", CONFIG_TEXT, offsetof(struct http_section, http.proxy_url)},
    {"no_proxy", CONFIG_TEXT, offsetof(struct http_section, http.no_proxy)},
    {"proxy_from_environment", CONFIG_BOOL,
     offsetof(struct http_section, http.proxy_from_environment)},
    {"proxy_connect_header", CONFIG_CUSTOM, 0, read_proxy_headers},
    {"http_headers", CONFIG_CUSTOM, 0, read_headers},
    {NULL},
};

struct http_section http_section_defaults(void)
{
    return (struct http_section){.http.follow_redirects = true, .enable_http2 = true};
}

static void check_auth(struct config_reader *r, const struct yaml_node *n, struct http_section *s)
{
    static const char *const names[] = {"basic_auth", "authorization", "oauth2", "bearer_token",
                                        "bearer_token_file"};
    const bool given[] = {s->basic_auth, s->authorization, s->oauth2, s->bearer_token,
                          s->bearer_token_file};
    const char *first = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (given[i] && first)
            return at_most_one(r, n, first, names[i]);
        first = given[i] ? names[i] : first;
    }
    if (!s->bearer_token && !s->bearer_token_file)
        return;
    s->http.auth_type = config_text(r, SV("Bearer"));
    s->http.credentials = s->bearer_token;
    s->http.credentials_file = s->bearer_token_file;
}

static void check_proxy(struct config_reader *r, const struct yaml_node *n, struct http_section *s)
{
    struct prom_http *http = &s->http;
    if (http->proxy_url && !*http->proxy_url)
        http->proxy_url = NULL;
    if (http->no_proxy && !*http->no_proxy)
        http->no_proxy = NULL;
    if (http->proxy_from_environment && http->proxy_url)
        at_most_one(r, n, "proxy_from_environment", "proxy_url");
    if (http->proxy_from_environment && http->no_proxy)
        at_most_one(r, n, "proxy_from_environment", "no_proxy");
    if (!http->proxy_url && !http->proxy_from_environment && http->no_proxy)
        config_problem(r, config_place(n, "no_proxy"), "no_proxy needs a proxy_url");
    if (!http->proxy_url && !http->proxy_from_environment && s->proxy_headers)
        config_problem(r, config_place(n, "proxy_connect_header"),
                       "proxy_connect_header needs a proxy_url or proxy_from_environment");
}

void http_section_check(struct config_reader *r, const struct yaml_node *n, struct http_section *s)
{
    check_auth(r, n, s);
    check_proxy(r, n, s);
}

bool http_section_is_default(const struct http_section *s)
{
    const struct prom_http *http = &s->http;
    const struct http_tls *tls = &http->tls;
    bool auth =
        s->basic_auth || s->authorization || s->oauth2 || s->bearer_token || s->bearer_token_file;
    bool tls_given = http->ca || http->cert || http->key || tls->ca_file || tls->cert_file ||
                     tls->key_file || tls->server_name || tls->insecure || tls->min_version ||
                     tls->max_version;
    bool proxy =
        http->proxy_url || http->no_proxy || http->proxy_from_environment || s->proxy_headers;
    return !auth && !tls_given && !proxy && http->follow_redirects && s->enable_http2 &&
           !http->header_count && !http->header_file_count;
}
