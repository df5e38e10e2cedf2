// SPDX-License-Identifier: Apache-2.0
// The lookup belongs to the pool until it is done; who is freed before is freed by it.
#include "agent/event_output_tcp.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/sv.h"
#include "io/http_syntax.h"

#define CONNECT_DEADLINE_NS (10 * NS_PER_S)

struct lookup {                // the pool's
    struct tcp_connect *owner; // NULL: nobody waits for it
    char host[256];
    char port[8];
    int failed; // EAI_*
    struct addrinfo *found;
};

struct tcp_connect {
    struct loop *loop;
    void (*connected)(void *user, int fd, const char *error);
    void *user;
    struct lookup *lookup; // under way
    struct addrinfo *found;
    const struct addrinfo *next;
    int fd;
    struct loop_fd *ready;
    struct loop_timer *deadline; // of one address
    char error[160];
};

static void lookup_free(struct lookup *l)
{
    if (l->found)
        freeaddrinfo(l->found);
    free(l);
}

static void close_one(struct tcp_connect *c)
{
    loop_fd_free(TAKE_PTR(c->ready));
    loop_timer_stop(c->deadline);
    if (c->fd >= 0)
        (void)close(TAKE_FD(c->fd));
}

static void end(struct tcp_connect *c)
{
    int fd = -1;
    if (c->fd >= 0) {
        loop_fd_free(TAKE_PTR(c->ready));
        loop_timer_stop(c->deadline);
        fd = TAKE_FD(c->fd);
    }
    c->connected(c->user, fd, c->error); // last: it may free
}

static int start_one(struct tcp_connect *c, const struct addrinfo *a);

// The next address, or the end.
static void try_next(struct tcp_connect *c)
{
    while (c->next) {
        const struct addrinfo *a = c->next;
        c->next = a->ai_next;
        int r = start_one(c, a);
        if (r == 0)
            return;
        (void)snprintf(c->error, sizeof(c->error), "%s", strerror(-r));
        close_one(c);
    }
    end(c);
}

static void on_ready(void *user, unsigned events)
{
    struct tcp_connect *c = user;
    int failed = 0;
    socklen_t bytes = sizeof(failed);
    (void)events;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failed, &bytes) < 0)
        failed = errno;
    if (failed == 0) {
        end(c);
        return;
    }
    (void)snprintf(c->error, sizeof(c->error), "%s", strerror(failed));
    close_one(c);
    try_next(c);
}

static void on_deadline(void *user)
{
    struct tcp_connect *c = user;
    if (c->fd >= 0) {
        (void)snprintf(c->error, sizeof(c->error), "no answer in time");
        close_one(c);
    }
    try_next(c);
}

static int start_one(struct tcp_connect *c, const struct addrinfo *a)
{
    c->fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return -errno;
    if (connect(c->fd, a->ai_addr, a->ai_addrlen) < 0 && errno != EINPROGRESS)
        return -errno;
    loop_timer_set(c->deadline, CONNECT_DEADLINE_NS, 0);
    return loop_fd_new(c->loop, c->fd, LOOP_WRITABLE, on_ready, c, &c->ready);
}

static void look_up(void *user)
{
    struct lookup *l = user;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    l->failed = getaddrinfo(l->host, l->port, &hints, &l->found);
}

static void looked_up(void *user)
{
    struct lookup *l = user;
    struct tcp_connect *c = l->owner;
    if (!c) {
        lookup_free(l);
        return;
    }
    c->lookup = NULL;
    c->found = TAKE_PTR(l->found);
    c->next = c->found;
    if (l->failed)
        (void)snprintf(c->error, sizeof(c->error), "%.100s: %s", l->host, gai_strerror(l->failed));
    lookup_free(l);
    try_next(c);
}

DEFINE_CLEANUP(struct tcp_connect *, tcp_connect_free);

int tcp_connect_new(struct loop *l, const char *where,
                    void (*connected)(void *user, int fd, const char *error), void *user,
                    struct tcp_connect **out, struct error *err)
{
    struct http_address to;
    int r = http_address_parse(where, &to, err);
    if (r < 0)
        return r;
    if (to.is_unix || to.host[0] == '\0')
        return error_set(err, -EINVAL, "expected HOST:PORT, found '%.128s'", where);
    cleanup(tcp_connect_freep) struct tcp_connect *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->loop = l;
    c->connected = connected;
    c->user = user;
    c->fd = -1;
    r = loop_timer_new(l, on_deadline, c, &c->deadline);
    if (r < 0)
        return r;
    struct lookup *lookup = calloc(1, sizeof(*lookup));
    if (!lookup)
        return -ENOMEM;
    lookup->owner = c;
    sv_copy(lookup->host, sizeof(lookup->host), sv_from(to.host));
    (void)snprintf(lookup->port, sizeof(lookup->port), "%u", to.port);
    r = loop_job_start(l, look_up, looked_up, lookup);
    if (r < 0) {
        free(lookup);
        return r;
    }
    c->lookup = lookup;
    *out = TAKE_PTR(c);
    return 0;
}

void tcp_connect_free(struct tcp_connect *c)
{
    if (!c)
        return;
    if (c->lookup)
        c->lookup->owner = NULL;
    close_one(c);
    loop_timer_free(c->deadline);
    if (c->found)
        freeaddrinfo(c->found);
    free(c);
}
