// SPDX-License-Identifier: Apache-2.0
// How it works: each address of a name is tried until somebody takes the connection; one that is
// unknown outweighs those that refuse.
#include "source/dcgm_reach.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

static enum dcgm_reach of_errno(int number, const char **why)
{
    switch (number) {
    case 0:
        *why = "";
        return DCGM_REACH_LISTENS;
    case ECONNREFUSED:
    case ECONNRESET: // vsock: no such machine, or no such port
    case ENOENT:
    case ENOTDIR:
        *why = "nobody listens";
        return DCGM_REACH_NOBODY;
    case ENETUNREACH: // loopback is down, or the family is not there
    case EADDRNOTAVAIL:
    case EAFNOSUPPORT:
    case ENODEV:
        *why = "no such network here";
        return DCGM_REACH_NOBODY;
    case ETIMEDOUT:
        *why = "no answer";
        return DCGM_REACH_UNKNOWN;
    default:
        *why = strerror(number);
        return DCGM_REACH_UNKNOWN;
    }
}

// errno of a connect that may still be going on; 0: connected.
static int finish(int fd, unsigned timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int number = 0;
    socklen_t bytes = sizeof(number);
    int n = poll(&p, 1, (int)timeout_ms);
    if (n < 0)
        return errno;
    if (n == 0)
        return ETIMEDOUT;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &bytes) < 0 ? errno : number;
}

static int try_address(int family, const struct sockaddr *address, socklen_t bytes,
                       unsigned timeout_ms)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    int number = connect(fd, address, bytes) == 0 ? 0 : errno;
    if (number == EINPROGRESS)
        number = finish(fd, timeout_ms);
    if (number == EAGAIN) // a unix socket whose queue is full: there is one
        number = 0;
    (void)close(fd);
    return number;
}

static enum dcgm_reach try_tcp(const struct dcgm_address *a, unsigned timeout_ms, const char **why)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
    char port[8];
    (void)snprintf(port, sizeof(port), "%u", (unsigned)a->port);
    int rc = getaddrinfo(a->host, port, &hints, &list);
    if (rc != 0) {
        *why = gai_strerror(rc);
        return DCGM_REACH_UNKNOWN;
    }
    enum dcgm_reach reach = DCGM_REACH_NOBODY;
    *why = "nobody listens";
    for (const struct addrinfo *i = list; i && reach != DCGM_REACH_LISTENS; i = i->ai_next) {
        const char *reason;
        enum dcgm_reach one =
            of_errno(try_address(i->ai_family, i->ai_addr, i->ai_addrlen, timeout_ms), &reason);
        if (one == DCGM_REACH_NOBODY)
            continue;
        reach = one;
        *why = reason;
    }
    freeaddrinfo(list);
    return reach;
}

static enum dcgm_reach try_unix(const struct dcgm_address *a, unsigned timeout_ms, const char **why)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sv_copy(address.sun_path, sizeof(address.sun_path), sv_from(a->path));
    return of_errno(
        try_address(AF_UNIX, (const struct sockaddr *)&address, sizeof(address), timeout_ms), why);
}

static enum dcgm_reach try_vsock(const struct dcgm_address *a, unsigned timeout_ms,
                                 const char **why)
{
    struct sockaddr_vm address = {
        .svm_family = AF_VSOCK, .svm_cid = a->cid, .svm_port = a->vsock_port};
    return of_errno(
        try_address(AF_VSOCK, (const struct sockaddr *)&address, sizeof(address), timeout_ms), why);
}

enum dcgm_reach dcgm_reach_try(const struct dcgm_address *a, unsigned timeout_ms, const char **why)
{
    switch (a->kind) {
    case DCGM_ADDRESS_TCP:
        return try_tcp(a, timeout_ms, why);
    case DCGM_ADDRESS_UNIX:
        return try_unix(a, timeout_ms, why);
    case DCGM_ADDRESS_VSOCK:
        return try_vsock(a, timeout_ms, why);
    }
    *why = "";
    return DCGM_REACH_UNKNOWN;
}
