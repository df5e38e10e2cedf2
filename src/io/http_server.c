// SPDX-License-Identifier: Apache-2.0
// How it works: libmicrohttpd parses requests and sends responses. It has an epoll descriptor of
// its own, which our loop watches; we accept connections ourselves (http_server_conn.c) and hand
// them over, so that caps, counts and the choice of TLS are ours. There are two daemons in the
// sense of libmicrohttpd, one plain and one for TLS, each made when first needed: a reload may
// switch. A request that waits for the pool is suspended; when it goes on, libmicrohttpd asks for
// its answer again. What libmicrohttpd 0.9.75 takes too lightly (a body beside a transfer coding,
// two lengths, folded lines that end up in a header's name) is refused here before anything is
// answered. Its own check for a Host header stays off: that refusal comes out with its head twice.
#include "io/http_server.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "io/http_server_internal.h"

#define TURNS_AT_ONCE 8
#define DRAIN_BYTES (64u << 10)

// --- Turning libmicrohttpd ---

static bool has_more(const struct http_daemon *d)
{
    MHD_UNSIGNED_LONG_LONG wait_ms;
    return MHD_get_timeout(d->mhd, &wait_ms) == MHD_YES && wait_ms == 0;
}

static void run_daemon(struct http_daemon *d)
{
    if (!d->mhd || d->server->is_closing)
        return;
    int turns = 0;
    do
        (void)MHD_run(d->mhd);
    while (++turns < TURNS_AT_ONCE && has_more(d));
    if (has_more(d))
        http_server_run_later(d->server);
}

static void daemon_ready(void *user, unsigned events)
{
    (void)events;
    run_daemon(user);
}

static void run_again(void *user)
{
    struct http_server *s = user;
    run_daemon(&s->plain);
    run_daemon(&s->tls);
}

void http_server_run_later(struct http_server *s)
{
    loop_timer_set(s->again, 0, 0);
}

// --- Reading a request's head ---

static void read_content_length(struct http_request *r, const char *value)
{
    // POST with an empty body is a request without one.
    if (r->content_length || strcmp(value, "0") != 0)
        r->is_bad = true;
    r->content_length = value;
}

static enum MHD_Result read_header(void *user, enum MHD_ValueKind kind, const char *name,
                                   size_t name_len, const char *value, size_t value_len)
{
    struct http_request *r = user;
    struct sv n = {name, name_len};
    (void)kind;
    if (!http_name_is_token(n)) {
        r->is_bad = true;
    } else if (sv_equals_nocase(n, SV("Accept-Encoding"))) {
        accept_encoding_read(&r->accept, (struct sv){value, value_len});
    } else if (sv_equals_nocase(n, SV("Authorization"))) {
        r->is_bad = r->is_bad || r->authorization;
        r->authorization = value;
    } else if (sv_equals_nocase(n, SV("Host"))) {
        r->is_bad = r->is_bad || ++r->hosts > 1;
    } else if (sv_equals_nocase(n, SV("Content-Length"))) {
        read_content_length(r, value ? value : "");
    } else if (sv_equals_nocase(sv_sub(n, 0, 17), SV("Transfer-Encoding")) ||
               sv_equals_nocase(sv_sub(n, 0, 14), SV("Content-Length"))) {
        // Also with a tail: libmicrohttpd 0.9.75 appends a folded line to the name.
        r->is_bad = true;
    }
    return MHD_YES;
}

// --- Answers of our own ---

struct MHD_Response *http_response_text(const struct http_server *s, struct sv text,
                                        const struct http_header *headers, size_t header_count,
                                        bool close)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(text.len, (void *)(uintptr_t)text.ptr,
                                                             MHD_RESPMEM_MUST_COPY);
    if (!r)
        return NULL;
    bool ok = http_response_add_headers(r, &s->web->config, "text/plain; charset=utf-8", headers,
                                        header_count) == 0;
    if (ok && close)
        ok = MHD_add_response_header(r, MHD_HTTP_HEADER_CONNECTION, "close") == MHD_YES;
    if (ok)
        return r;
    MHD_destroy_response(r);
    return NULL;
}

static void answer_text(struct http_request *r, unsigned status, struct sv text,
                        const struct http_header *headers, size_t header_count, bool close)
{
    struct http_conn *c = r->conn;
    struct MHD_Response *response =
        http_response_text(c->server, text, headers, header_count, close);
    r->is_answered = true;
    http_conn_set_phase(c, CONN_SENDING);
    r->has_failed = !response || MHD_queue_response(c->mhd, status, response) != MHD_YES;
    if (response)
        MHD_destroy_response(response);
}

static void refuse_bad_request(struct http_request *r)
{
    r->conn->server->stats.bad_requests++;
    r->conn->drains = true;
    answer_text(r, MHD_HTTP_BAD_REQUEST, SV("Bad Request\n"), NULL, 0, true);
}

// --- Rate limit, password ---

// The token bucket as one time: when it will be full again. A request moves it by an interval; it
// may be at most burst intervals ahead (golang.org/x/time/rate, which the toolkit uses, in other
// words).
static bool is_within_rate(struct http_server *s)
{
    const struct web_config *web = &s->web->config;
    uint64_t interval_ns = web->rate_interval_ns;
    if (interval_ns == 0)
        return true;
    uint64_t now_ns = loop_now_ns(s->loop);
    uint64_t due_ns = s->rate_due_ns > now_ns ? s->rate_due_ns : now_ns;
    uint64_t most_ahead_ns;
    if (__builtin_mul_overflow(interval_ns, web->rate_burst, &most_ahead_ns))
        most_ahead_ns = UINT64_MAX / 2;
    if (interval_ns > most_ahead_ns || due_ns - now_ns > most_ahead_ns - interval_ns)
        return false;
    s->rate_due_ns = due_ns + interval_ns;
    return true;
}

// True when the request may go to the handler; else it is answered or suspended.
static bool pass_auth(struct http_request *r)
{
    static const struct http_header ask = {"WWW-Authenticate", "Basic"};
    static const struct http_header later = {"Retry-After", "1"};
    struct http_server *s = r->conn->server;
    if (s->web->config.user_count == 0)
        return true;
    switch (http_auth_check(s, r->conn, r->authorization)) {
    case AUTH_GRANTED:
        return true;
    case AUTH_DENIED:
        s->stats.denied++;
        answer_text(r, MHD_HTTP_UNAUTHORIZED, SV("Unauthorized\n"), &ask, 1, false);
        break;
    case AUTH_BUSY:
        s->stats.limited++;
        answer_text(r, MHD_HTTP_SERVICE_UNAVAILABLE, SV("Service Unavailable\n"), &later, 1, false);
        break;
    case AUTH_WAIT:
        break;
    }
    return false;
}

// --- Requests ---

// The head is whole. An answer at this point makes libmicrohttpd close the connection, which is
// what a bad request gets; the others are answered at the next call.
static void begin_request(struct http_conn *c, const char *method, const char *url,
                          const char *version)
{
    c->request = (struct http_request){
        .conn = c, .method = method, .url = url, .accept = ACCEPT_ENCODING_INIT};
    c->is_checked = false;
    (void)MHD_get_connection_values_n(c->mhd, MHD_HEADER_KIND, read_header, &c->request);
    if (c->request.hosts == 0 && strcmp(version, "HTTP/1.0") != 0)
        c->request.is_bad = true;
    if (c->request.is_bad)
        refuse_bad_request(&c->request);
}

static void handle_request(struct http_request *r)
{
    struct http_conn *c = r->conn;
    struct http_server *s = c->server;
    if (c->phase != CONN_CHECKING && !is_within_rate(s)) {
        s->stats.limited++;
        answer_text(r, MHD_HTTP_TOO_MANY_REQUESTS, SV("Too Many Requests\n"), NULL, 0, false);
        return;
    }
    if (!pass_auth(r))
        return;
    s->stats.requests++;
    s->config.handle(s->config.user, r);
    assert(r->is_answered);
}

// libmicrohttpd asks again.
static void answer_late(struct http_conn *c)
{
    char *text = TAKE_PTR(c->late_text);
    if (text)
        answer_text(&c->request, c->status, sv_from(text), NULL, 0, false);
    c->request.has_failed = c->request.has_failed || !text;
    free(text);
}

static struct http_conn *conn_of(struct MHD_Connection *mhd)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info ? info->socket_context : NULL;
}

static enum MHD_Result request_arrived(void *user, struct MHD_Connection *mhd, const char *url,
                                       const char *method, const char *version, const char *upload,
                                       size_t *upload_bytes, void **context)
{
    const struct http_server *s = user;
    struct http_conn *c = conn_of(mhd);
    (void)upload;
    if (!c || s->is_closing || *upload_bytes > 0)
        return MHD_NO;
    if (!*context) {
        *context = c;
        begin_request(c, method, url, version);
    } else if (c->phase == CONN_COMPRESSING) {
        c->request.has_failed = http_body_resume(c) < 0;
    } else if (c->phase == CONN_DEFERRED) {
        answer_late(c);
    } else {
        handle_request(&c->request);
    }
    return c->request.has_failed ? MHD_NO : MHD_YES;
}

static void request_completed(void *user, struct MHD_Connection *mhd, void **context,
                              enum MHD_RequestTerminationCode code)
{
    struct http_conn *c = conn_of(mhd);
    (void)user, (void)context, (void)code;
    if (!c)
        return;
    http_body_release(c);
    http_conn_set_phase(c, CONN_IDLE);
    // What is left unread would turn the close into a reset, which may overtake the answer.
    char dropped[4096];
    for (size_t i = 0; c->drains && i < DRAIN_BYTES / sizeof(dropped); i++) {
        if (recv(c->fd, dropped, sizeof(dropped), MSG_DONTWAIT) <= 0)
            break;
    }
}

// --- Connections come and go ---

static void start_tls(struct http_server *s, struct http_conn *c)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    c->tls_state = web_state_ref(s->web);
    if (!info || !s->web->tls ||
        http_tls_start(info->tls_session, &c->tls_peer, s->web->tls, c->fd) < 0)
        http_conn_shut(c);
}

static void connection_changed(void *user, struct MHD_Connection *mhd, void **socket_context,
                               enum MHD_ConnectionNotificationCode code)
{
    struct http_daemon *d = user;
    struct http_server *s = d->server;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        struct http_conn *c = TAKE_PTR(s->arriving);
        *socket_context = c;
        if (!c)
            return;
        c->mhd = mhd;
        if (d->is_tls)
            start_tls(s, c);
        return;
    }
    if (*socket_context)
        http_conn_closed(TAKE_PTR(*socket_context));
}

static size_t unescape(void *user, struct MHD_Connection *mhd, char *text)
{
    (void)user, (void)mhd;
    return http_unescape(text);
}

// Nobody here asks for the query. libmicrohttpd would take it apart within the memory of the
// connection, and 150 parameters make it fall silent; it has not looked yet when it tells the URI,
// which lies in that memory.
static void *drop_query(void *user, const char *uri, struct MHD_Connection *mhd)
{
    (void)user, (void)mhd;
    char *query = strchr((char *)(uintptr_t)uri, '?');
    if (query)
        memset(query, '\0', strlen(query));
    return NULL;
}

// --- Daemons ---

static int start_daemon(struct http_server *s, struct http_daemon *d)
{
    if (d->mhd)
        return 0;
    unsigned flags = MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME |
                     (d->is_tls ? (unsigned)MHD_USE_TLS : 0);
    d->mhd = MHD_start_daemon(
        flags, 0, NULL, NULL, request_arrived, s, MHD_OPTION_NOTIFY_COMPLETED, request_completed, s,
        MHD_OPTION_NOTIFY_CONNECTION, connection_changed, d, MHD_OPTION_UNESCAPE_CALLBACK, unescape,
        s, MHD_OPTION_URI_LOG_CALLBACK, drop_query, s, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)LIMIT_HTTP_CONNECTIONS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)LIMIT_HTTP_CONNECTION_BYTES,
        d->is_tls ? MHD_OPTION_HTTPS_CERT_CALLBACK : MHD_OPTION_END, http_tls_no_certificate(),
        MHD_OPTION_END);
    if (!d->mhd)
        return errno == ENOMEM ? -ENOMEM : -EIO;
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(d->mhd, MHD_DAEMON_INFO_EPOLL_FD);
    int r = info ? loop_fd_new(s->loop, info->epoll_fd, LOOP_READABLE, daemon_ready, d, &d->watch)
                 : -EIO;
    if (r < 0)
        MHD_stop_daemon(TAKE_PTR(d->mhd));
    return r;
}

static void stop_daemon(struct http_daemon *d)
{
    loop_fd_free(TAKE_PTR(d->watch));
    if (d->mhd)
        MHD_stop_daemon(TAKE_PTR(d->mhd));
}

// --- Web configuration ---

// Connections in the mode that no longer holds would go on for as long as their client likes.
static void shut_other_mode(struct http_server *s)
{
    for (size_t i = 0; i < LIMIT_HTTP_CONNECTIONS; i++) {
        struct http_conn *c = &s->conns[i];
        if (c->phase != CONN_FREE && !c->tls_state != !s->web->tls)
            http_conn_shut(c);
    }
}

// The files to watch are those of the last attempt, so that a later repair of any of them is seen.
static void watch_files(struct http_server *s, struct web_file files[WEB_FILES_MAX])
{
    if (files[0].path || !s->web_config_path) {
        web_files_deinit(s->files);
        memcpy(s->files, files, sizeof(s->files));
    } else {
        web_files_deinit(files);
    }
}

static void put_in_force(struct http_server *s, struct web_state *loaded)
{
    if (s->web && (s->web->config.rate_interval_ns != loaded->config.rate_interval_ns ||
                   s->web->config.rate_burst != loaded->config.rate_burst))
        s->rate_due_ns = 0;
    web_state_unref(s->web);
    s->web = loaded;
    shut_other_mode(s);
}

int http_server_load(struct http_server *s, bool may_loosen, struct error *err)
{
    struct web_file files[WEB_FILES_MAX] = {{0}};
    struct web_state *loaded = NULL;
    int r = web_state_load(s->web_config_path, &loaded, files, err);
    if (r == 0 && !may_loosen && web_state_is_looser(loaded, s->web)) {
        web_files_deinit(files);
        web_state_unref(loaded);
        return 1;
    }
    watch_files(s, files);
    if (r == 0)
        r = start_daemon(s, loaded->tls ? &s->tls : &s->plain);
    s->stats.web_config_ok = r == 0;
    if (r < 0) {
        web_state_unref(loaded);
        return err && err->code
                   ? r
                   : error_set(err, r, "cannot start the HTTP server: %s", strerror(-r));
    }
    put_in_force(s, loaded);
    return 0;
}

int http_server_reload(struct http_server *s, struct error *err)
{
    struct error own = ERROR_INIT;
    int r = http_server_load(s, true, err ? err : &own);
    http_server_run_later(s);
    return r;
}

// --- Life ---

static int make_timers(struct http_server *s)
{
    int r = loop_timer_new(s->loop, run_again, s, &s->again);
    if (r == 0)
        r = loop_timer_new(s->loop, http_conn_sweep, s, &s->sweep);
    if (r == 0 && s->web_config_path)
        r = loop_timer_new(s->loop, http_server_look_at_files, s, &s->watch_files);
    if (r == 0 && s->watch_files)
        loop_timer_every(s->watch_files, WEB_FILES_LOOK_NS);
    return r;
}

static int set_up(struct http_server *s, const struct http_server_config *config, struct error *err)
{
    if (config->web_config_file && *config->web_config_file) {
        s->web_config_path = sv_dup(sv_from(config->web_config_file));
        if (!s->web_config_path)
            return -ENOMEM;
    }
    int r = http_auth_init(&s->auth);
    if (r == 0)
        r = make_timers(s);
    if (r == 0)
        r = http_server_load(s, true, err);
    if (r < 0)
        return r;
    s->is_accepting = true;
    return config->systemd_socket ? http_listen_systemd(s, err)
                                  : http_listen(s, config->address, err);
}

int http_server_new(struct loop *l, const struct http_server_config *config,
                    struct http_server **out, struct error *err)
{
    struct error own = ERROR_INIT;
    struct error *e = err ? err : &own;
    // A peer that goes away while we write must not end the process.
    (void)signal(SIGPIPE, SIG_IGN);
    struct http_server *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(e, -ENOMEM, "out of memory for the HTTP server");
    *e = ERROR_INIT;
    s->loop = l;
    s->config = (struct http_server_config){
        .idle_ms = config->idle_ms ? config->idle_ms : LIMIT_HTTP_IDLE_MS,
        .handle = config->handle,
        .user = config->user,
    };
    s->plain = (struct http_daemon){.server = s};
    s->tls = (struct http_daemon){.server = s, .is_tls = true};
    http_conn_set_caps(s, config->most_connections);
    int r = set_up(s, config, e);
    if (r < 0) {
        http_server_free(s);
        return e->code ? r : error_set(e, r, "cannot start the HTTP server: %s", strerror(-r));
    }
    *out = s;
    return 0;
}

unsigned http_server_port(const struct http_server *s)
{
    return s->port;
}

void http_server_get_stats(const struct http_server *s, struct http_server_stats *out)
{
    *out = s->stats;
}

static void resume_all(struct http_server *s)
{
    // libmicrohttpd must not be stopped with a connection suspended.
    for (size_t i = 0; i < LIMIT_HTTP_CONNECTIONS; i++) {
        struct http_conn *c = &s->conns[i];
        if (c->phase == CONN_CHECKING || c->phase == CONN_COMPRESSING || c->deferred)
            MHD_resume_connection(c->mhd);
    }
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    s->is_closing = true;
    http_listen_stop(s);
    loop_timer_free(TAKE_PTR(s->watch_files));
    http_auth_deinit(&s->auth);
    resume_all(s);
    stop_daemon(&s->plain);
    stop_daemon(&s->tls);
    loop_timer_free(TAKE_PTR(s->again));
    loop_timer_free(TAKE_PTR(s->sweep));
    web_state_unref(s->web);
    web_files_deinit(s->files);
    free(s->web_config_path);
    free(s);
}

// --- What a handler uses ---

struct sv http_request_method(const struct http_request *r)
{
    return sv_from(r->method);
}

struct sv http_request_path(const struct http_request *r)
{
    struct sv url = sv_from(r->url);
    // The absolute form, which only proxies are sent but every server must take (RFC 9112 3.2.2).
    size_t scheme = sv_starts_with(url, SV("http://"))    ? 7
                    : sv_starts_with(url, SV("https://")) ? 8
                                                          : 0;
    if (scheme == 0)
        return url;
    size_t slash = sv_find_char(sv_sub(url, scheme, url.len), '/');
    return slash == (size_t)-1 ? SV("/") : sv_sub(url, scheme + slash, url.len);
}

struct sv http_request_header(const struct http_request *r, const char *name)
{
    return sv_from(MHD_lookup_connection_value(r->conn->mhd, MHD_HEADER_KIND, name));
}

bool http_request_is_local(const struct http_request *r)
{
    return r->conn->is_local;
}

void http_reply(struct http_request *r, unsigned status, struct http_body *body,
                const struct http_header *headers, size_t header_count)
{
    assert(!r->is_answered);
    r->is_answered = true;
    r->has_failed = http_body_send(body, r->conn, status, accept_encoding_wants_gzip(&r->accept),
                                   headers, header_count) < 0;
}

void http_reply_text(struct http_request *r, unsigned status, struct sv text,
                     const struct http_header *headers, size_t header_count)
{
    assert(!r->is_answered);
    answer_text(r, status, text, headers, header_count, false);
}

// --- Answers that are put off ---

struct http_deferred {
    struct http_conn *conn; // NULL: gone
};

struct http_deferred *http_defer(struct http_request *r)
{
    assert(!r->is_answered);
    struct http_conn *c = r->conn;
    c->deferred = calloc(1, sizeof(*c->deferred));
    if (!c->deferred)
        return NULL;
    c->deferred->conn = c;
    r->is_answered = true;
    http_conn_set_phase(c, CONN_DEFERRED);
    MHD_suspend_connection(c->mhd);
    return c->deferred;
}

void http_deferred_forget(struct http_conn *c)
{
    if (c->deferred)
        c->deferred->conn = NULL;
    c->deferred = NULL;
    free(TAKE_PTR(c->late_text));
}

void http_deferred_reply(struct http_deferred *d, unsigned status, struct sv text)
{
    struct http_conn *c = d->conn;
    free(d);
    if (!c)
        return;
    c->deferred = NULL;
    c->status = status;
    c->late_text = sv_dup(text); // without memory the connection is closed
    MHD_resume_connection(c->mhd);
    http_server_run_later(c->server);
}
