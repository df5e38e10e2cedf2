// SPDX-License-Identifier: Apache-2.0
// A request as libcurl's options, and libcurl's answer as a response. All choices of the house
// stand here: HTTP/1.1 over http and https alone, no signals, one CA file (never a directory: each
// connection would read it whole), proxies as said, a ceiling on what comes back.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "io/http_client_internal.h"

#define SYSTEM_CA_FILE "/etc/ssl/certs/ca-certificates.crt"
#define REDIRECTS_MAX 10L
#define AWS_DATE_BYTES sizeof("20260102T030405Z")

// Options with a sticky error.
struct setup {
    struct http_call *call;
    const struct curl_api *curl;
    CURLcode code;
};

static void set_long(struct setup *s, CURLoption option, long value)
{
    if (s->code == CURLE_OK)
        s->code = s->curl->easy_setopt(s->call->easy, option, value);
}

static void set_pointer(struct setup *s, CURLoption option, const void *value)
{
    if (s->code == CURLE_OK)
        s->code = s->curl->easy_setopt(s->call->easy, option, value);
}

static bool is_given(const char *text)
{
    return text && *text;
}

static void add_header(struct setup *s, const char *line)
{
    struct curl_slist *list = s->curl->slist_append(s->call->headers, line);
    if (list)
        s->call->headers = list;
    else
        s->code = CURLE_OUT_OF_MEMORY;
}

static void add_secret_header(struct setup *s, const char *name, struct sv value)
{
    char line[16 << 10];
    int length = snprintf(line, sizeof(line), "%s: %.*s", name, SV_FMT(value));
    if (length < 0 || (size_t)length >= sizeof(line))
        s->code = CURLE_BAD_FUNCTION_ARGUMENT;
    else
        add_header(s, line);
    explicit_bzero(line, sizeof(line));
}

static size_t on_body(char *bytes, size_t size, size_t count, void *user)
{
    struct http_call *call = user;
    size_t length = size * count;
    if (call->abandoned)
        return CURL_WRITEFUNC_ERROR;
    if (length > call->body.max - call->received) {
        call->write_error = -EFBIG;
        return CURL_WRITEFUNC_ERROR;
    }
    call->received += length;
    if (call->data) {
        call->write_error = call->data(call->user, (struct sv){bytes, length});
    } else {
        buf_add(&call->body, bytes, length);
        call->write_error = call->body.error;
    }
    return call->write_error == 0 && !call->abandoned ? length : CURL_WRITEFUNC_ERROR;
}

// Counts; and once an answer came by https, no redirect leads back to http.
static size_t on_header(char *bytes, size_t size, size_t count, void *user)
{
    struct http_call *call = user;
    const struct curl_api *curl = call->client->curl;
    size_t length = size * count;
    const char *scheme = NULL;
    (void)bytes;
    if (length > LIMIT_HTTP_CLIENT_HEADER_BYTES - call->header_bytes) {
        call->write_error = -EFBIG;
        return CURL_WRITEFUNC_ERROR;
    }
    call->header_bytes += length;
    if (curl->easy_getinfo(call->easy, CURLINFO_SCHEME, &scheme) == CURLE_OK && scheme &&
        sv_equals_nocase(sv_from(scheme), SV("https")))
        (void)curl->easy_setopt(call->easy, CURLOPT_REDIR_PROTOCOLS_STR, "https");
    return length;
}

static bool has_control(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return true;
    return false;
}

static struct sv header_name(const char *line)
{
    struct sv text = sv_from(line);
    size_t colon = sv_find_char(text, ':');
    return sv_sub(text, 0, colon == (size_t)-1 ? 0 : colon);
}

static int set_headers(struct setup *s, const char *const *headers, struct error *err)
{
    bool has_type = false;
    for (size_t i = 0; headers && headers[i]; i++) {
        struct sv name = header_name(headers[i]);
        if (i == LIMIT_HTTP_CLIENT_HEADERS)
            return error_set(err, -EINVAL, "more than %d headers", LIMIT_HTTP_CLIENT_HEADERS);
        if (name.len == 0 || has_control(headers[i]))
            return error_set(err, -EINVAL, "header %zu is not a line 'name: value'", i + 1);
        has_type |= sv_equals_nocase(name, SV("Content-Type"));
        // libcurl sends a header without value only when it ends in a semicolon.
        if (sv_trim(sv_from(headers[i] + name.len + 1), " ").len > 0) {
            add_header(s, headers[i]);
            continue;
        }
        char line[1024];
        int length = snprintf(line, sizeof(line), "%.*s;", SV_FMT(name));
        if (length < 0 || (size_t)length >= sizeof(line))
            return error_set(err, -EINVAL, "header %zu: name too long", i + 1);
        add_header(s, line);
    }
    if (s->call->is_signed) {
        // libcurl 7.88 signs headers that it then leaves out: none may be taken away here.
        set_long(s, CURLOPT_EXPECT_100_TIMEOUT_MS, 1);
        return 0;
    }
    if (!has_type)
        add_header(s, "Content-Type:"); // not libcurl's idea of one
    add_header(s, "Expect:");
    return 0;
}

static int set_method(struct setup *s, const struct http_client_request *r, struct error *err)
{
    struct sv method = sv_from(is_given(r->method) ? r->method : "GET");
    for (size_t i = 0; i < method.len; i++)
        if (method.ptr[i] < 'A' || method.ptr[i] > 'Z')
            return error_set(err, -EINVAL, "'%.40s' is not a method", method.ptr);
    if (sv_equals(method, SV("HEAD"))) {
        set_long(s, CURLOPT_NOBODY, 1);
        return 0;
    }
    bool is_post = sv_equals(method, SV("POST"));
    if (!is_post && !sv_equals(method, SV("GET")))
        set_pointer(s, CURLOPT_CUSTOMREQUEST, method.ptr);
    else if (!is_post && r->body.len > 0)
        set_pointer(s, CURLOPT_CUSTOMREQUEST, method.ptr);
    if (!is_post && r->body.len == 0 && !sv_equals(method, SV("PUT")))
        return 0;
    s->call->body_out = sv_dup((struct sv){r->body.len ? r->body.ptr : "", r->body.len});
    if (!s->call->body_out)
        return -ENOMEM;
    s->call->body_out_bytes = r->body.len;
    set_long(s, CURLOPT_POST, 1);
    if (s->code == CURLE_OK)
        s->code = s->curl->easy_setopt(s->call->easy, CURLOPT_POSTFIELDSIZE_LARGE,
                                       (curl_off_t)r->body.len);
    set_pointer(s, CURLOPT_POSTFIELDS, s->call->body_out);
    return 0;
}

static int set_pem(struct setup *s, unsigned which, CURLoption option, const char *text)
{
    struct sv view = sv_from(text);
    s->call->pem[which] = sv_dup(view);
    if (!s->call->pem[which])
        return -ENOMEM;
    struct curl_blob blob = {s->call->pem[which], view.len, CURL_BLOB_NOCOPY};
    set_pointer(s, option, &blob);
    return 0;
}

static int set_certificates(struct setup *s, const struct http_tls *tls)
{
    int r = 0;
    set_pointer(s, CURLOPT_CAPATH, NULL);
    if (is_given(tls->ca_pem)) {
        set_pointer(s, CURLOPT_CAINFO, NULL);
        r = set_pem(s, 0, CURLOPT_CAINFO_BLOB, tls->ca_pem);
    } else {
        bool own = is_given(tls->ca_file);
        set_pointer(s, CURLOPT_CAINFO, own ? tls->ca_file : SYSTEM_CA_FILE);
        // A file of one's own is small and may be rotated: read for each new connection.
        set_long(s, CURLOPT_CA_CACHE_TIMEOUT, own ? 0 : 3600);
    }
    if (r == 0 && is_given(tls->cert_pem))
        r = set_pem(s, 1, CURLOPT_SSLCERT_BLOB, tls->cert_pem);
    else if (is_given(tls->cert_file))
        set_pointer(s, CURLOPT_SSLCERT, tls->cert_file);
    if (r == 0 && is_given(tls->key_pem))
        r = set_pem(s, 2, CURLOPT_SSLKEY_BLOB, tls->key_pem);
    else if (is_given(tls->key_file))
        set_pointer(s, CURLOPT_SSLKEY, tls->key_file);
    return r;
}

static int set_tls(struct setup *s, const struct http_tls *tls, struct error *err)
{
    static const long least[] = {CURL_SSLVERSION_TLSv1_0, CURL_SSLVERSION_TLSv1_1,
                                 CURL_SSLVERSION_TLSv1_2, CURL_SSLVERSION_TLSv1_3};
    static const long most[] = {CURL_SSLVERSION_MAX_TLSv1_0, CURL_SSLVERSION_MAX_TLSv1_1,
                                CURL_SSLVERSION_MAX_TLSv1_2, CURL_SSLVERSION_MAX_TLSv1_3};
    int min = tls->min_version, max = tls->max_version;
    if ((min && (min < 10 || min > 13)) || (max && (max < 10 || max > 13)) || (max && max < min))
        return error_set(err, -EINVAL, "TLS versions %d to %d", min, max);
    set_long(s, CURLOPT_SSLVERSION,
             (min ? least[min - 10] : CURL_SSLVERSION_DEFAULT) |
                 (max ? most[max - 10] : CURL_SSLVERSION_MAX_DEFAULT));
    set_long(s, CURLOPT_SSL_VERIFYPEER, !tls->insecure);
    set_long(s, CURLOPT_SSL_VERIFYHOST, tls->insecure ? 0 : 2);
    return set_certificates(s, tls);
}

// HTTP_PROXY in capitals, too, as most programs outside libcurl read it; machines of this host are
// never behind a proxy.
static void set_environment_proxy(struct setup *s, const char *url)
{
    const char *none = getenv("no_proxy");
    if (!is_given(none))
        none = getenv("NO_PROXY");
    char hosts[4096];
    int length = snprintf(hosts, sizeof(hosts), "%s%slocalhost,127.0.0.0/8,::1",
                          is_given(none) ? none : "", is_given(none) ? "," : "");
    bool all = is_given(none) && strcmp(none, "*") == 0;
    if (all || length < 0 || (size_t)length >= sizeof(hosts))
        set_pointer(s, CURLOPT_NOPROXY, none);
    else
        set_pointer(s, CURLOPT_NOPROXY, hosts);
    const char *upper = getenv("HTTP_PROXY");
    if (is_given(upper) && !is_given(getenv("http_proxy")) && !getenv("REQUEST_METHOD") &&
        sv_starts_with(sv_from(url), SV("http://")))
        set_pointer(s, CURLOPT_PROXY, upper);
}

static void set_way(struct setup *s, const struct http_client_request *r)
{
    if (is_given(r->unix_socket)) {
        set_pointer(s, CURLOPT_UNIX_SOCKET_PATH, r->unix_socket);
        set_pointer(s, CURLOPT_PROXY, "");
    } else if (r->proxy) {
        set_pointer(s, CURLOPT_PROXY, r->proxy);
        set_pointer(s, CURLOPT_NOPROXY, r->no_proxy ? r->no_proxy : "");
    } else {
        set_environment_proxy(s, r->url);
    }
    set_long(s, CURLOPT_FRESH_CONNECT, !s->call->handle);
    set_long(s, CURLOPT_FORBID_REUSE, !s->call->handle);
    set_long(s, CURLOPT_TCP_KEEPALIVE, 1);
    // A new connection looks its name up anew. libcurl would go through all names it remembers at
    // the end of each request, which with a thousand targets was a seventh of the work.
    set_long(s, CURLOPT_DNS_CACHE_TIMEOUT, 0);
}

static void set_redirects(struct setup *s, const struct http_client_request *r, bool https)
{
    set_pointer(s, CURLOPT_PROTOCOLS_STR, "http,https");
    set_pointer(s, CURLOPT_REDIR_PROTOCOLS_STR, https ? "https" : "http,https");
    set_long(s, CURLOPT_FOLLOWLOCATION, r->follow_redirects && !r->sign.service);
    set_long(s, CURLOPT_MAXREDIRS, REDIRECTS_MAX);
}

static void add_date(struct setup *s, const char *given)
{
    char line[sizeof("X-Amz-Date: ") + AWS_DATE_BYTES];
    char now[AWS_DATE_BYTES];
    time_t seconds = (time_t)(clock_wall_ns() / NS_PER_S);
    struct tm parts;
    if (!given &&
        (!gmtime_r(&seconds, &parts) || strftime(now, sizeof(now), "%Y%m%dT%H%M%SZ", &parts) == 0))
        s->code = CURLE_BAD_FUNCTION_ARGUMENT;
    else if ((size_t)snprintf(line, sizeof(line), "X-Amz-Date: %s", given ? given : now) >=
             sizeof(line))
        s->code = CURLE_BAD_FUNCTION_ARGUMENT;
    else
        add_header(s, line);
}

// user and password of the request, by any scheme.
static int set_login(struct setup *s, struct sv user, struct sv password)
{
    char *text[2] = {sv_dup(user.len ? user : SV("")), sv_dup(password.len ? password : SV(""))};
    bool ok = text[0] && text[1];
    if (ok) {
        set_pointer(s, CURLOPT_USERNAME, text[0]);
        set_pointer(s, CURLOPT_PASSWORD, text[1]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(text); i++) {
        if (text[i])
            explicit_bzero(text[i], strlen(text[i]));
        free(text[i]);
    }
    return ok ? 0 : -ENOMEM;
}

static int set_signature(struct setup *s, const struct http_sign *sign, struct error *err)
{
    char text[256];
    int length = snprintf(text, sizeof(text), "aws:amz:%s:%s", sign->region ? sign->region : "",
                          sign->service);
    if (!is_given(sign->region) || length < 0 || (size_t)length >= sizeof(text) ||
        strchr(sign->region, ':') || strchr(sign->service, ':'))
        return error_set(err, -EINVAL, "not a region and a service to sign for");
    add_date(s, sign->date);
    if (sign->session_token.len > 0)
        add_secret_header(s, "X-Amz-Security-Token", sign->session_token);
    set_pointer(s, CURLOPT_AWS_SIGV4, text);
    return set_login(s, sign->access_key, sign->secret_key);
}

static int set_identity(struct setup *s, const struct http_client_request *r, struct error *err)
{
    if (r->sign.service)
        return r->user ? error_set(err, -EINVAL, "both a signature and basic authentication")
                       : set_signature(s, &r->sign, err);
    if (!r->user && !r->password)
        return 0;
    set_long(s, CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    return set_login(s, sv_from(r->user ? r->user : ""), sv_from(r->password ? r->password : ""));
}

static void set_basics(struct setup *s, const struct http_client_request *r)
{
    struct http_call *call = s->call;
    set_long(s, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    set_long(s, CURLOPT_NOSIGNAL, 1);
    set_long(s, CURLOPT_QUICK_EXIT, 1); // cancelling does not wait for a name's look-up
    set_long(s, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1);
    set_pointer(s, CURLOPT_USERAGENT,
                is_given(r->user_agent) ? r->user_agent : "podgpu/" PODGPU_VERSION);
    if (r->accept_gzip)
        set_pointer(s, CURLOPT_ACCEPT_ENCODING, "gzip");
    set_long(s, CURLOPT_TIMEOUT_MS, (long)call->deadline_ms);
    set_long(s, CURLOPT_CONNECTTIMEOUT_MS, (long)call->deadline_ms);
    set_pointer(s, CURLOPT_ERRORBUFFER, call->text);
    set_pointer(s, CURLOPT_PRIVATE, call);
    set_pointer(s, CURLOPT_SHARE, call->client->share);
    if (s->code == CURLE_OK)
        s->code = s->curl->easy_setopt(call->easy, CURLOPT_WRITEFUNCTION, on_body);
    if (s->code == CURLE_OK)
        s->code = s->curl->easy_setopt(call->easy, CURLOPT_HEADERFUNCTION, on_header);
    set_pointer(s, CURLOPT_WRITEDATA, call);
    set_pointer(s, CURLOPT_HEADERDATA, call);
}

// The name the certificate is for, instead of the URL's: the URL gets it, the connection goes to
// where the URL said, and the Host header stays.
static int set_server_name(struct setup *s, CURLU *url, const char *name)
{
    char *host = NULL, *port = NULL;
    const struct curl_api *curl = s->curl;
    char line[1024];
    if (curl->url_get(url, CURLUPART_HOST, &host, 0) != CURLUE_OK ||
        curl->url_get(url, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) != CURLUE_OK ||
        curl->url_set(url, CURLUPART_HOST, name, 0) != CURLUE_OK) {
        s->code = CURLE_URL_MALFORMAT;
    } else {
        bool usual = strcmp(port, "443") == 0;
        (void)snprintf(line, sizeof(line), "Host: %s%s%s", host, usual ? "" : ":",
                       usual ? "" : port);
        add_header(s, line);
        (void)snprintf(line, sizeof(line), "%s:%s:%s:%s", name, port, host, port);
        s->call->connect_to = curl->slist_append(NULL, line);
        if (!s->call->connect_to)
            s->code = CURLE_OUT_OF_MEMORY;
        set_pointer(s, CURLOPT_CONNECT_TO, s->call->connect_to);
    }
    curl->free(host);
    curl->free(port);
    return 0;
}

static int set_parsed_url(struct setup *s, CURLU *url, const struct http_client_request *r,
                          struct error *err)
{
    const struct curl_api *curl = s->curl;
    char *scheme = NULL, *text = NULL;
    if (curl->url_set(url, CURLUPART_URL, r->url, 0) != CURLUE_OK ||
        curl->url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK)
        return error_set(err, -EINVAL, "'%.200s' is not a URL", r->url);
    bool https = strcmp(scheme, "https") == 0;
    bool known = https || strcmp(scheme, "http") == 0;
    curl->free(scheme);
    if (!known)
        return error_set(err, -EINVAL, "'%.200s' is neither http nor https", r->url);
    set_redirects(s, r, https);
    if (https && is_given(r->tls.server_name))
        set_server_name(s, url, r->tls.server_name);
    if (curl->url_get(url, CURLUPART_URL, &text, 0) != CURLUE_OK)
        return error_set(err, -EINVAL, "'%.200s' is not a URL with that server name", r->url);
    set_pointer(s, CURLOPT_URL, text);
    curl->free(text);
    return 0;
}

static int set_url(struct setup *s, const struct http_client_request *r, struct error *err)
{
    if (!is_given(r->url) || has_control(r->url))
        return error_set(err, -EINVAL, "no URL");
    CURLU *url = s->curl->url();
    if (!url)
        return -ENOMEM;
    int result = set_parsed_url(s, url, r, err);
    s->curl->url_cleanup(url);
    return result;
}

int http_client_setup(struct http_call *call, const struct http_client_request *request,
                      struct error *err)
{
    struct setup s = {call, call->client->curl, CURLE_OK};
    if (request->deadline_ns == 0)
        return error_set(err, -EINVAL, "no deadline");
    call->deadline_ms = (request->deadline_ns - 1) / NS_PER_MS + 1;
    if (call->deadline_ms > INT32_MAX)
        call->deadline_ms = INT32_MAX;
    call->data = request->data;
    call->is_signed = request->sign.service != NULL;
    call->body = BUF_INIT(request->max_body_bytes);
    set_basics(&s, request);
    set_way(&s, request);
    int r = set_headers(&s, request->headers, err);
    if (r == 0)
        r = set_url(&s, request, err);
    if (r == 0)
        r = set_method(&s, request, err);
    if (r == 0)
        r = set_tls(&s, &request->tls, err);
    if (r == 0)
        r = set_identity(&s, request, err);
    set_pointer(&s, CURLOPT_HTTPHEADER, call->headers);
    if (r < 0 || s.code == CURLE_OK)
        return r;
    if (s.code == CURLE_OUT_OF_MEMORY)
        return -ENOMEM;
    return error_set(err, -EINVAL, "request refused: %s", s.curl->easy_strerror(s.code));
}

static void free_secret(char *text)
{
    if (text)
        explicit_bzero(text, strlen(text));
    free(text);
}

void http_client_setup_deinit(struct http_call *call, const struct curl_api *curl)
{
    for (struct curl_slist *l = call->headers; l; l = l->next)
        explicit_bzero(l->data, strlen(l->data));
    curl->slist_free_all(TAKE_PTR(call->headers));
    curl->slist_free_all(TAKE_PTR(call->connect_to));
    if (call->body_out)
        explicit_bzero(call->body_out, call->body_out_bytes);
    free(TAKE_PTR(call->body_out));
    for (size_t i = 0; i < ARRAY_SIZE(call->pem); i++)
        free_secret(TAKE_PTR(call->pem[i]));
}

static int connect_errno(const struct http_call *call)
{
    long number = 0;
    (void)call->client->curl->easy_getinfo(call->easy, CURLINFO_OS_ERRNO, &number);
    return number > 0 && number != EINPROGRESS ? -(int)number : -ECONNREFUSED;
}

// One code for three troubles, told apart by the text alone: a TLS 1.3 server that refuses a
// client's certificate after the handshake, bad chunks, a connection that broke.
static int broken_errno(struct sv text)
{
    if (sv_find(text, SV("alert")) != (size_t)-1)
        return -EKEYREJECTED;
    return sv_ends_with(text, SV("chunked-encoding")) ? -EPROTO : -ECONNRESET;
}

static int result_of(const struct http_call *call)
{
    switch (call->code) {
    case CURLE_OK:
        return 0;
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return -EHOSTUNREACH;
    case CURLE_COULDNT_CONNECT:
        return connect_errno(call);
    case CURLE_OUT_OF_MEMORY:
        return -ENOMEM;
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_SSL_ENGINE_NOTFOUND:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_INVALIDCERTSTATUS:
        return -EKEYREJECTED;
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        return broken_errno(sv_from(call->text));
    case CURLE_GOT_NOTHING:
        return -ECONNRESET;
    default:
        return -EPROTO;
    }
}

static void describe(struct http_call *call, int result)
{
    const struct curl_api *curl = call->client->curl;
    if (result == 0)
        call->text[0] = '\0';
    else if (call->write_error == -EFBIG)
        sv_copy(call->text, sizeof(call->text), SV("answer over its limit"));
    else if (call->write_error)
        (void)snprintf(call->text, sizeof(call->text), "ended by its reader: %s",
                       strerror(-call->write_error));
    else if (result == -ETIMEDOUT && call->code == CURLE_OPERATION_TIMEDOUT)
        (void)snprintf(call->text, sizeof(call->text), "no whole answer within %" PRIu64 " ms",
                       call->deadline_ms);
    else if (!call->text[0])
        sv_copy(call->text, sizeof(call->text), sv_from(curl->easy_strerror(call->code)));
    for (char *c = call->text; *c; c++)
        if ((unsigned char)*c < 0x20)
            *c = ' ';
}

static int64_t server_time(const struct http_call *call)
{
    struct sv date = http_call_header(call, "Date");
    time_t seconds = date.ptr ? call->client->curl->getdate(date.ptr, NULL) : -1;
    return seconds > 0 ? seconds : 0;
}

void http_client_answer(struct http_call *call, struct http_client_response *out)
{
    const struct curl_api *curl = call->client->curl;
    long status = 0;
    curl_off_t retry_after = 0;
    const char *type = NULL;
    (void)curl->easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl->easy_getinfo(call->easy, CURLINFO_RETRY_AFTER, &retry_after);
    (void)curl->easy_getinfo(call->easy, CURLINFO_CONTENT_TYPE, &type);
    int result = call->write_error && call->code != CURLE_OK ? call->write_error : result_of(call);
    sv_copy(call->content_type, sizeof(call->content_type), sv_from(type ? type : ""));
    describe(call, result);
    *out = (struct http_client_response){
        .result = result,
        .status = status > 0 ? (unsigned)status : 0,
        .body = buf_sv(&call->body),
        .content_type = sv_from(call->content_type),
        .server_time_s = server_time(call),
        .retry_after_s = retry_after > 0 ? (uint64_t)retry_after : 0,
        .error = call->text,
    };
}
