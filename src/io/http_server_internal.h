// SPDX-License-Identifier: Apache-2.0
// What the files of the HTTP server share; the one place that includes libmicrohttpd. See
// http_server.c for how it works.
#pragma once

#include <microhttpd.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "io/http_server.h"
#include "io/http_syntax.h"
#include "io/http_tls.h"
#include "io/web_config.h"

// --- The web configuration in force (http_server_config.c) ---

#define WEB_FILES_MAX 4 // the file itself, certificate, key, client CA

struct web_file {
    char *path;
    struct file_stamp seen;
};

// Immutable but for its count; a TLS connection keeps the one it was set from.
struct web_state {
    unsigned refs;
    uint64_t headers_id; // 0: no configured headers; else different for each load
    struct web_config config;
    struct http_tls *tls; // NULL: plain
};
// Without a file (NULL or ""): the empty configuration. files gets the paths to watch, also on
// failure.
int web_state_load(const char *path, struct web_state **out, struct web_file files[WEB_FILES_MAX],
                   struct error *err);
struct web_state *web_state_ref(struct web_state *s);
void web_state_unref(struct web_state *s);
// Whether `to` asks clients for less than `from`: no TLS, no passwords, no client certificate.
bool web_state_is_looser(const struct web_state *to, const struct web_state *from);
void web_files_deinit(struct web_file files[WEB_FILES_MAX]);

// Changed files are taken once they stood still from one look to the next; a file that opens what
// was closed must stand still for longer: it may be one that is being written.
#define WEB_FILES_LOOK_NS NS_PER_S
#define WEB_FILES_LOOSEN_NS (5 * NS_PER_S)
struct web_watch {
    struct file_stamp stamps[WEB_FILES_MAX]; // of the last look
    uint64_t since_ns;                       // when they were seen first; 0: nothing has changed
    bool is_told;                            // that the file would open what was closed
};

// --- Connections ---

enum conn_phase {
    CONN_FREE,
    CONN_OPENING,     // TLS handshake, first request's head
    CONN_IDLE,        // between requests
    CONN_CHECKING,    // suspended: a password is being checked
    CONN_COMPRESSING, // suspended: its body is being compressed
    CONN_DEFERRED,    // suspended: its answer was put off
    CONN_SENDING,
};

// One request's head, read once; its texts live in libmicrohttpd until the request is answered.
struct http_request {
    struct http_conn *conn;
    const char *method;
    const char *url;
    struct accept_encoding accept;
    const char *authorization; // NULL: none
    const char *content_length;
    unsigned hosts;
    bool is_bad; // a body, a transfer coding, a name that is none, not one host
    bool is_answered;
    bool has_failed; // the connection is to be closed
};

enum auth_verdict {
    AUTH_GRANTED,
    AUTH_DENIED,
    AUTH_WAIT, // the connection is suspended until the pool has the answer
    AUTH_BUSY, // too many checks wait
};

struct http_conn {
    struct http_server *server;
    struct MHD_Connection *mhd;
    struct web_state *tls_state; // NULL: plain
    struct http_tls_peer tls_peer;
    struct in6_addr peer; // IPv4 in its mapped form
    uint64_t since_ns;    // start of the phase
    int fd;
    enum conn_phase phase;
    bool is_local;     // loopback or unix
    bool is_shut;      // by us; it goes away at libmicrohttpd's next turn
    bool drains;       // what it sent is dropped before the close
    bool is_looked_at; // since it became idle
    struct http_request request;
    // The body that is sent or compressed for it, and its neighbours there.
    struct http_body *body;
    struct http_conn *body_previous, *body_next;
    unsigned status;                // of the reply that waits for the body
    struct http_deferred *deferred; // NULL: none, or answered
    char *late_text;                // the answer that was put off; owned
    // The password check it waits for, and its outcome.
    struct http_conn *check_next;
    bool is_checked;
    enum auth_verdict verdict;
    uint8_t checked_hash[HTTP_TLS_HASH_BYTES];
};

// --- Password checks (http_server_auth.c) ---

struct auth_result {
    uint8_t hash[HTTP_TLS_HASH_BYTES];
    uint64_t used; // 0: empty; else the order of use
    bool is_granted;
};

struct auth_check;

struct http_auth {
    uint8_t key[HTTP_TLS_HASH_BYTES]; // of the hashes, per process
    struct auth_result results[LIMIT_HTTP_AUTH_CACHE];
    uint64_t uses;
    struct auth_check *checks; // the first is on the pool, the others wait
};
int http_auth_init(struct http_auth *a);
void http_auth_deinit(struct http_auth *a); // forgets the checks that still run
// conn is suspended when the answer is AUTH_WAIT.
enum auth_verdict http_auth_check(struct http_server *s, struct http_conn *conn,
                                  const char *authorization);

// --- The server ---

struct http_listener {
    struct http_server *server;
    int fd;
    struct loop_fd *watch;
};

struct http_daemon {
    struct http_server *server;
    struct MHD_Daemon *mhd; // NULL: not made yet
    struct loop_fd *watch;
    bool is_tls;
};

struct http_server {
    struct loop *loop;
    struct http_server_config config; // without its texts
    struct http_server_stats stats;
    struct http_listener listeners[LIMIT_HTTP_LISTENERS];
    size_t listener_count;
    char *unix_path; // to be removed at the end
    uint16_t port;
    bool is_accepting;
    bool is_closing;
    unsigned most_open; // connections
    unsigned busy_open; // from here the longest idle one makes room

    char *web_config_path;
    struct web_state *web;
    struct web_file files[WEB_FILES_MAX];
    struct web_watch watch;
    struct loop_timer *watch_files;
    uint64_t rate_due_ns; // when the token bucket is full again

    struct http_daemon plain, tls;
    struct loop_timer *again; // libmicrohttpd has more to do
    struct loop_timer *sweep; // deadlines
    uint64_t sweep_period_ns; // 0: it rests
    struct http_auth auth;
    struct http_conn *arriving; // between MHD_add_connection and its notification
    unsigned shut;              // of the open ones
    struct http_conn conns[LIMIT_HTTP_CONNECTIONS];
};

// http_server.c
// Loads the web configuration and puts it in force. 0; 1 when it was left alone because it asks for
// less than the one in force and must not; negative errno with *err, the one in force stays.
int http_server_load(struct http_server *s, bool may_loosen, struct error *err);
void http_server_run_later(struct http_server *s);
struct MHD_Response *http_response_text(const struct http_server *s, struct sv text,
                                        const struct http_header *headers, size_t header_count,
                                        bool close);
// http_server_config.c
void http_server_look_at_files(void *user); // user: struct http_server; every WEB_FILES_LOOK_NS
// http_server_conn.c
void http_conn_accept(void *user, unsigned events);            // user: struct http_listener
void http_conn_set_caps(struct http_server *s, unsigned most); // 0: the usual ones
void http_conn_set_phase(struct http_conn *c, enum conn_phase phase);
void http_conn_shut(struct http_conn *c);
void http_conn_closed(struct http_conn *c);
void http_conn_sweep(void *user); // user: struct http_server
// http_server_listen.c
int http_listen(struct http_server *s, const char *address, struct error *err);
int http_listen_systemd(struct http_server *s, struct error *err);
void http_listen_stop(struct http_server *s);
// http_body.c
void http_deferred_forget(struct http_conn *c); // it goes away
// Queues the body on c, or suspends c until it is compressed. 0 or -ENOMEM.
int http_body_send(struct http_body *b, struct http_conn *c, unsigned status, bool wants_gzip,
                   const struct http_header *headers, size_t header_count);
int http_body_resume(struct http_conn *c);   // after CONN_COMPRESSING
void http_body_release(struct http_conn *c); // c is done with its body
// Adds to r: Content-Type, nosniff, the configured headers, then headers. 0 or -ENOMEM.
int http_response_add_headers(struct MHD_Response *r, const struct web_config *web,
                              const char *content_type, const struct http_header *headers,
                              size_t header_count);
