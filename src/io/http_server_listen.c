// SPDX-License-Identifier: Apache-2.0
// Listening sockets: from an address, or handed over by systemd (sd_listen_fds(3): LISTEN_PID,
// LISTEN_FDS, descriptors from 3 on). All are non-blocking and close-on-exec; the accepted ones
// inherit the send buffer's size.
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/num.h"
#include "io/http_server_internal.h"

#define SYSTEMD_FIRST_FD 3
#define BACKLOG 512

static int add_listener(struct http_server *s, int fd)
{
    static const int send_bytes = LIMIT_HTTP_SEND_BUFFER_BYTES;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof(send_bytes));
    struct http_listener *l = &s->listeners[s->listener_count];
    *l = (struct http_listener){.server = s, .fd = fd};
    int r = loop_fd_new(s->loop, fd, LOOP_READABLE, http_conn_accept, l, &l->watch);
    if (r == 0)
        s->listener_count++;
    return r;
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t bytes = sizeof(a);
    if (getsockname(fd, (struct sockaddr *)&a, &bytes) < 0)
        return 0;
    if (a.ss_family == AF_INET)
        return ntohs(((const struct sockaddr_in *)&a)->sin_port);
    return a.ss_family == AF_INET6 ? ntohs(((const struct sockaddr_in6 *)&a)->sin6_port) : 0;
}

// --- TCP ---

// A descriptor, or negative errno.
static int bind_one(int family, const struct sockaddr *a, socklen_t bytes, bool dual)
{
    static const int on = 1;
    int v6_only = !dual;
    cleanup(fd_closep) int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
        return -errno;
    if (family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof(v6_only)) < 0)
        return -errno;
    if (bind(fd, a, bytes) < 0 || listen(fd, BACKLOG) < 0)
        return -errno;
    return TAKE_FD(fd);
}

// Every address: IPv6 with IPv4 in it, or IPv4 alone where the kernel has no IPv6.
static int bind_any(uint16_t port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
    int fd = bind_one(AF_INET6, (const struct sockaddr *)&six, sizeof(six), true);
    if (fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL)
        return fd;
    const struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(port)};
    return bind_one(AF_INET, (const struct sockaddr *)&four, sizeof(four), false);
}

static int bind_host(const struct http_address *a, const char *text, struct error *err)
{
    char port[8];
    snprintf(port, sizeof(port), "%u", a->port);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(a->host, port, &hints, &found);
    if (failed)
        return error_set(err, -EADDRNOTAVAIL, "address '%.120s': %s", text, gai_strerror(failed));
    int fd = -EADDRNOTAVAIL;
    for (const struct addrinfo *i = found; i && fd < 0; i = i->ai_next)
        fd = bind_one(i->ai_family, i->ai_addr, i->ai_addrlen, false);
    freeaddrinfo(found);
    return fd < 0 ? error_set(err, fd, "cannot listen on '%.120s': %s", text, strerror(-fd)) : fd;
}

// --- Unix ---

// A socket file nobody listens on any more is in the way of bind; one in use, or a file of another
// kind, stays.
static void remove_stale(const struct sockaddr_un *a)
{
    struct stat st;
    if (lstat(a->sun_path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return;
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof(*a)) < 0 && errno == ECONNREFUSED)
        (void)unlink(a->sun_path);
}

static int bind_unix(const struct http_address *address, const char *text, struct error *err)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    sv_copy(a.sun_path, sizeof(a.sun_path), sv_from(address->host));
    remove_stale(&a);
    int fd = bind_one(AF_UNIX, (const struct sockaddr *)&a, sizeof(a), false);
    return fd < 0 ? error_set(err, fd, "cannot listen on '%.120s': %s", text, strerror(-fd)) : fd;
}

int http_listen(struct http_server *s, const char *address, struct error *err)
{
    struct http_address a;
    int r = http_address_parse(address, &a, err);
    if (r < 0)
        return r;
    cleanup(fd_closep) int fd = -1;
    if (a.is_unix) {
        fd = bind_unix(&a, address, err);
    } else if (a.host[0]) {
        fd = bind_host(&a, address, err);
    } else {
        fd = bind_any(a.port);
        if (fd < 0)
            error_set(err, fd, "cannot listen on '%.120s': %s", address, strerror(-fd));
    }
    if (fd < 0)
        return fd;
    if (a.is_unix) {
        s->unix_path = sv_dup(sv_from(a.host));
        if (!s->unix_path)
            return -ENOMEM;
    }
    s->port = bound_port(fd);
    r = add_listener(s, fd);
    if (r == 0)
        (void)TAKE_FD(fd);
    return r;
}

// --- systemd ---

static bool read_env(const char *name, uint64_t max, uint64_t *out)
{
    const char *text = getenv(name);
    return text && num_parse_u64(sv_from(text), 0, max, out) == 0;
}

static int take_systemd_fd(struct http_server *s, int fd, struct error *err)
{
    int accepts = 0;
    socklen_t bytes = sizeof(accepts);
    if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &accepts, &bytes) < 0 || !accepts)
        return error_set(err, -ENOTSOCK, "descriptor %d from systemd is not a listening socket",
                         fd);
    int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
        return error_set(err, -errno, "descriptor %d from systemd: %s", fd, strerror(errno));
    int r = add_listener(s, fd);
    return r < 0 ? error_set(err, r, "descriptor %d from systemd: %s", fd, strerror(-r)) : 0;
}

int http_listen_systemd(struct http_server *s, struct error *err)
{
    uint64_t pid, count;
    if (!read_env("LISTEN_PID", INT32_MAX, &pid) || pid != (uint64_t)getpid() ||
        !read_env("LISTEN_FDS", LIMIT_HTTP_LISTENERS, &count) || count == 0)
        return error_set(
            err, -ENOENT,
            "no listening socket from systemd: LISTEN_PID is not this process, or LISTEN_FDS "
            "is not from 1 to %d",
            LIMIT_HTTP_LISTENERS);
    for (int i = 0; i < (int)count; i++) {
        int r = take_systemd_fd(s, SYSTEMD_FIRST_FD + i, err);
        if (r < 0)
            return r;
    }
    s->port = bound_port(SYSTEMD_FIRST_FD);
    // They are not for our children.
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    return 0;
}

void http_listen_stop(struct http_server *s)
{
    for (size_t i = 0; i < s->listener_count; i++) {
        loop_fd_free(TAKE_PTR(s->listeners[i].watch));
        (void)close(s->listeners[i].fd);
    }
    s->listener_count = 0;
    if (s->unix_path)
        (void)unlink(s->unix_path);
    free(TAKE_PTR(s->unix_path));
}
