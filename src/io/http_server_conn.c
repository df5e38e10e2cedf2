// SPDX-License-Identifier: Apache-2.0
// Connections: accepting, caps, deadlines. libmicrohttpd owns the socket and closes it; to end a
// connection we shut the socket down, which libmicrohttpd sees as an error at its next turn
// (is_shut until then). A slot is free again when it says so (http_conn_closed). Deadlines are
// absolute: bytes that trickle in do not move them.
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "io/http_server_internal.h"

#define ACCEPT_BATCH 16
#define EVICT_SENDING_NS (2 * NS_PER_S) // an answer to a live scraper takes milliseconds
#define LOOK_IDLE_NS NS_PER_S           // idle ones younger than this are not worth a call

void http_conn_set_phase(struct http_conn *c, enum conn_phase phase)
{
    c->phase = phase;
    c->since_ns = loop_now_ns(c->server->loop);
    c->is_looked_at = false;
}

void http_conn_shut(struct http_conn *c)
{
    if (c->is_shut)
        return;
    c->is_shut = true;
    c->server->shut++;
    (void)shutdown(c->fd, SHUT_RDWR);
}

static void set_accepting(struct http_server *s, bool accepts)
{
    if (accepts == s->is_accepting)
        return;
    s->is_accepting = accepts;
    for (size_t i = 0; i < s->listener_count; i++) {
        if (s->listeners[i].watch)
            loop_fd_set(s->listeners[i].watch, accepts ? LOOP_READABLE : 0);
    }
}

static bool has_room(const struct http_server *s)
{
    return s->stats.open < s->most_open && !s->is_closing;
}

// Often only while it matters: idle connections, which scrapers keep open all day, can wait.
static void set_sweep(struct http_server *s, uint64_t period_ns)
{
    if (s->sweep_period_ns == period_ns)
        return;
    s->sweep_period_ns = period_ns;
    if (period_ns > 0)
        loop_timer_every(s->sweep, period_ns);
    else
        loop_timer_stop(s->sweep);
}

static void sweep_often(struct http_server *s)
{
    set_sweep(s, LIMIT_HTTP_SWEEP_MS * NS_PER_MS);
}

void http_conn_closed(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (c->is_shut)
        s->shut--;
    s->stats.bad_requests += c->tls_peer.is_plain;
    http_body_release(c);
    http_deferred_forget(c);
    web_state_unref(c->tls_state);
    *c = (struct http_conn){0};
    s->stats.open--;
    if (s->stats.open == 0)
        set_sweep(s, 0);
    set_accepting(s, has_room(s));
}

// --- Deadlines ---

// Has anything arrived since the last answer? Only the kernel knows: libmicrohttpd keeps it to
// itself until a request's head is whole.
static bool has_begun_a_request(const struct http_conn *c, uint64_t now_ns)
{
    struct tcp_info info;
    socklen_t bytes = sizeof(info);
    if (now_ns - c->since_ns < LOOK_IDLE_NS)
        return false;
    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) < 0)
        return false;
    // The kernel counts in ticks of up to 10 ms, from the last segment with data.
    uint64_t idle_ms = (now_ns - c->since_ns) / NS_PER_MS;
    return info.tcpi_last_data_recv + 20 < idle_ms;
}

// A client that closed its side together with its request, or with a part of one: libmicrohttpd,
// which is told of changes only, was told of both at once, took what there was and would wait for
// more.
static bool has_hung_up(const struct http_conn *c)
{
    char next;
    return recv(c->fd, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void look_at_idle(struct http_conn *c, uint64_t now_ns)
{
    if (!c->is_looked_at && has_hung_up(c))
        http_conn_shut(c);
    else if (has_begun_a_request(c, now_ns))
        http_conn_set_phase(c, CONN_OPENING);
    c->is_looked_at = true;
}

static bool is_past_deadline(const struct http_conn *c, uint64_t now_ns)
{
    uint64_t limit_ms = UINT64_MAX / NS_PER_MS;
    switch (c->phase) {
    case CONN_FREE:
    case CONN_CHECKING: // bounded by the pool's work
    case CONN_COMPRESSING:
    case CONN_DEFERRED: // by whoever put it off
        return false;
    case CONN_OPENING:
        limit_ms = LIMIT_HTTP_HEADERS_MS;
        break;
    case CONN_IDLE:
        limit_ms = c->server->config.idle_ms;
        break;
    case CONN_SENDING:
        limit_ms = LIMIT_HTTP_SEND_MS;
        break;
    }
    return now_ns - c->since_ns >= limit_ms * NS_PER_MS;
}

void http_conn_sweep(void *user)
{
    struct http_server *s = user;
    uint64_t now_ns = loop_now_ns(s->loop);
    bool all_idle = true;
    for (size_t i = 0; i < LIMIT_HTTP_CONNECTIONS; i++) {
        struct http_conn *c = &s->conns[i];
        if (c->phase == CONN_FREE || c->is_shut)
            continue;
        if (c->phase == CONN_IDLE)
            look_at_idle(c, now_ns);
        else if (c->phase == CONN_OPENING && has_hung_up(c))
            http_conn_shut(c);
        all_idle = all_idle && c->phase == CONN_IDLE;
        if (c->is_shut || !is_past_deadline(c, now_ns))
            continue;
        s->stats.timed_out += c->phase != CONN_IDLE;
        http_conn_shut(c);
    }
    set_accepting(s, has_room(s)); // also after a pause for want of descriptors
    set_sweep(s, s->stats.open == 0
                     ? 0
                     : (all_idle ? LIMIT_HTTP_SWEEP_IDLE_MS : LIMIT_HTTP_SWEEP_MS) * NS_PER_MS);
}

// --- Caps ---

void http_conn_set_caps(struct http_server *s, unsigned most)
{
    // What connections may have of the descriptors; of few, half.
    uint64_t limit = process_raise_fd_limit(0);
    uint64_t room =
        limit > 2 * LIMIT_DESCRIPTORS_RESERVED ? limit - LIMIT_DESCRIPTORS_RESERVED : limit / 2;
    if (most == 0 || most > LIMIT_HTTP_CONNECTIONS)
        most = LIMIT_HTTP_CONNECTIONS;
    if (most > room)
        most = (unsigned)room;
    s->most_open = most > 0 ? most : 1;
    s->busy_open = s->most_open - s->most_open / 8;
}

static bool is_better_victim(const struct http_conn *c, const struct http_conn *than)
{
    // Kept alive for later, before not yet asking, before being answered; among equals the longest.
    static const unsigned char rank[] = {
        [CONN_FREE] = 0,    [CONN_CHECKING] = 0, [CONN_COMPRESSING] = 0, [CONN_DEFERRED] = 0,
        [CONN_SENDING] = 1, [CONN_OPENING] = 2,  [CONN_IDLE] = 3,
    };
    if (!than || rank[c->phase] != rank[than->phase])
        return rank[c->phase] > (than ? rank[than->phase] : 0);
    return c->since_ns < than->since_ns;
}

// Shuts the longest idle connection, so that a new scraper always gets in.
static void evict_one(struct http_server *s)
{
    struct http_conn *victim = NULL;
    uint64_t now_ns = loop_now_ns(s->loop);
    for (size_t i = 0; i < LIMIT_HTTP_CONNECTIONS; i++) {
        struct http_conn *c = &s->conns[i];
        if (c->is_shut || (c->phase == CONN_SENDING && now_ns - c->since_ns < EVICT_SENDING_NS))
            continue;
        if (is_better_victim(c, victim))
            victim = c;
    }
    if (!victim)
        return;
    s->stats.evicted++;
    http_conn_shut(victim);
}

static bool is_over_peer_cap(const struct http_server *s, const struct in6_addr *peer)
{
    unsigned count = 0;
    for (size_t i = 0; i < LIMIT_HTTP_CONNECTIONS; i++) {
        const struct http_conn *c = &s->conns[i];
        count += c->phase != CONN_FREE && !c->is_shut && !c->is_local &&
                 IN6_ARE_ADDR_EQUAL(&c->peer, peer);
    }
    return count >= LIMIT_HTTP_CONNECTIONS_PER_IP;
}

// --- Accepting ---

// The peer in one form for all families; true when it is this machine.
static bool read_peer(const struct sockaddr_storage *from, struct in6_addr *out)
{
    *out = in6addr_any;
    if (from->ss_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)from)->sin6_addr;
    } else if (from->ss_family == AF_INET) {
        out->s6_addr[10] = out->s6_addr[11] = 0xff;
        memcpy(&out->s6_addr[12], &((const struct sockaddr_in *)from)->sin_addr, 4);
    } else {
        return true;
    }
    return IN6_IS_ADDR_LOOPBACK(out) || (IN6_IS_ADDR_V4MAPPED(out) && out->s6_addr[12] == 127);
}

static struct http_conn *take_slot(struct http_server *s)
{
    for (size_t i = 0; i < LIMIT_HTTP_CONNECTIONS; i++) {
        if (s->conns[i].phase == CONN_FREE)
            return &s->conns[i];
    }
    return NULL;
}

static void hand_over(struct http_server *s, struct http_conn *c,
                      const struct sockaddr_storage *from, socklen_t bytes)
{
    struct http_daemon *d = s->web->tls ? &s->tls : &s->plain;
    s->stats.open++;
    sweep_often(s);
    s->stats.connections++;
    s->arriving = c;
    int fd = c->fd;
    // The socket is libmicrohttpd's from here on, also when it fails: no memory, which one that
    // idles gives back.
    bool is_added = MHD_add_connection(d->mhd, fd, (const struct sockaddr *)from, bytes) == MHD_YES;
    s->arriving = NULL;
    if (is_added)
        return;
    if (c->phase != CONN_FREE)
        http_conn_closed(c);
    evict_one(s);
}

static void admit(struct http_server *s, int fd, const struct sockaddr_storage *from,
                  socklen_t bytes)
{
    struct in6_addr peer;
    bool is_local = read_peer(from, &peer);
    if (!is_local && is_over_peer_cap(s, &peer)) {
        s->stats.refused++;
        (void)close(fd);
        return;
    }
    if (s->stats.open - s->shut >= s->busy_open)
        evict_one(s);
    struct http_conn *c = take_slot(s);
    if (!c) {
        s->stats.refused++;
        (void)close(fd);
        return;
    }
    *c = (struct http_conn){.server = s, .fd = fd, .peer = peer, .is_local = is_local};
    http_conn_set_phase(c, CONN_OPENING);
    hand_over(s, c, from, bytes);
}

// False when no more can be accepted for now.
static bool accept_one(struct http_listener *l)
{
    struct sockaddr_storage from = {0};
    socklen_t bytes = sizeof(from);
    int fd = accept4(l->fd, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
        admit(l->server, fd, &from, bytes);
        return true;
    }
    if (errno == EINTR || errno == ECONNABORTED)
        return true;
    if (errno != EAGAIN && errno != EWOULDBLOCK) {
        // Out of descriptors or memory: one that idles makes room, and the sweep, or the next
        // connection that ends, asks again.
        evict_one(l->server);
        set_accepting(l->server, false);
        sweep_often(l->server);
    }
    return false;
}

void http_conn_accept(void *user, unsigned events)
{
    struct http_listener *l = user;
    struct http_server *s = l->server;
    (void)events;
    for (int i = 0; i < ACCEPT_BATCH && has_room(s) && accept_one(l); i++)
        ;
    if (s->stats.open > 0)
        http_server_run_later(s);
    if (!has_room(s))
        set_accepting(s, false);
}
