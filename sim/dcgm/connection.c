// SPDX-License-Identifier: Apache-2.0
// Ways to an engine. The socket stands for the connection only: values are computed here. A peer
// that isn't our engine makes a connection that looks fine until the first call, as with DCGM,
// whose login step may fail without an error.
#include "double.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "../hostengine.h"

static struct connection *connections[MAX_CONNECTIONS];
static dcgmHandle_t next_handle = 1;

struct connection *connection_new(void)
{
    for (unsigned i = 0; i < MAX_CONNECTIONS; i++) {
        if (connections[i])
            continue;
        struct connection *at = calloc(1, sizeof(*at));
        if (!at)
            return NULL;
        at->used = true;
        at->fd = -1;
        at->next_id = 1;
        at->handle = next_handle++;
        connections[i] = at;
        return at;
    }
    return NULL;
}

void connection_free(struct connection *at)
{
    for (unsigned i = 0; i < MAX_CONNECTIONS; i++) {
        if (connections[i] == at)
            connections[i] = NULL;
    }
    watches_free(at);
    groups_free(at);
    if (at->fd >= 0)
        (void)close(at->fd);
    free(at);
}

struct connection *connection_find(dcgmHandle_t handle)
{
    for (unsigned i = 0; i < MAX_CONNECTIONS; i++) {
        if (connections[i] && connections[i]->handle == handle)
            return connections[i];
    }
    return NULL;
}

bool connection_lives(struct connection *at)
{
    char byte;
    if (at->gone || at->embedded)
        return !at->gone;
    ssize_t got = recv(at->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
        at->gone = true;
    return !at->gone;
}

// --- Connecting, each step until a deadline ---

static int left_ms(uint64_t deadline_ns)
{
    uint64_t now = double_mono_ns();
    return now >= deadline_ns ? 0 : (int)((deadline_ns - now) / 1000000u) + 1;
}

static bool wait_for(int fd, short events, uint64_t deadline_ns)
{
    struct pollfd p = {.fd = fd, .events = events};
    int got;
    do
        got = poll(&p, 1, left_ms(deadline_ns));
    while (got < 0 && errno == EINTR);
    return got > 0;
}

static int connect_to(const struct sockaddr *address, socklen_t bytes, uint64_t deadline_ns)
{
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int error = 0;
    socklen_t size = sizeof(error);
    if (connect(fd, address, bytes) == 0)
        return fd;
    if (errno == EINPROGRESS && wait_for(fd, POLLOUT, deadline_ns) &&
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0)
        return fd;
    (void)close(fd);
    return -1;
}

static int connect_unix(const char *path, uint64_t deadline_ns)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return -1;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return connect_to((struct sockaddr *)&address, sizeof(address), deadline_ns);
}

// host, host:port, [v6], [v6]:port
static int split_host(const char *text, char *host, size_t host_bytes, char *port,
                      size_t port_bytes)
{
    const char *colon = strrchr(text, ':'), *end = text[0] == '[' ? strchr(text, ']') : NULL;
    if (end && colon && colon < end)
        colon = NULL;
    if (!end && colon && strchr(text, ':') != colon)
        colon = NULL; // a bare v6 address
    const char *from = end ? text + 1 : text;
    size_t len = end ? (size_t)(end - from) : colon ? (size_t)(colon - from) : strlen(from);
    if (len == 0 || len >= host_bytes)
        return -1;
    memcpy(host, from, len);
    host[len] = '\0';
    (void)snprintf(port, port_bytes, "%s", colon ? colon + 1 : "5555");
    return 0;
}

static int connect_tcp(const char *text, uint64_t deadline_ns)
{
    char host[256], port[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list;
    if (split_host(text, host, sizeof(host), port, sizeof(port)) != 0 ||
        getaddrinfo(host, port, &hints, &list) != 0)
        return -1;
    int fd = -1;
    for (const struct addrinfo *a = list; fd < 0 && a; a = a->ai_next)
        fd = connect_to(a->ai_addr, a->ai_addrlen, deadline_ns);
    freeaddrinfo(list);
    return fd;
}

#if DCGM_MAJOR == 4
static int connect_vsock(const char *text, uint64_t deadline_ns)
{
    struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_port = 5555};
    address.svm_cid = hostengine_number(&text);
    if (*text == ':') {
        text++;
        address.svm_port = hostengine_number(&text);
    }
    bool good = address.svm_cid != UINT32_MAX && address.svm_port != UINT32_MAX && *text == '\0';
    return good ? connect_to((struct sockaddr *)&address, sizeof(address), deadline_ns) : -1;
}

#endif

// What the peer says: ST_OK, or what every call to it will get.
static int shake_hands(int fd, uint64_t deadline_ns, bool *out_silent)
{
    char hello[64], answer[64] = "";
    size_t have = 0;
    int bytes = snprintf(hello, sizeof(hello), HOSTENGINE_HELLO "%d\n", DCGM_MAJOR);
    *out_silent = false;
    if (send(fd, hello, (size_t)bytes, MSG_NOSIGNAL) != bytes)
        return ST_CONNECTION_NOT_VALID;
    while (!memchr(answer, '\n', have) && have + 1 < sizeof(answer)) {
        if (!wait_for(fd, POLLIN, deadline_ns)) {
            *out_silent = true;
            return ST_CONNECTION_NOT_VALID;
        }
        ssize_t got = recv(fd, answer + have, sizeof(answer) - 1 - have, 0);
        if (got <= 0)
            return ST_CONNECTION_NOT_VALID;
        have += (size_t)got;
    }
    if (strncmp(answer, HOSTENGINE_WELCOME, strlen(HOSTENGINE_WELCOME)) != 0)
        return ST_CONNECTION_NOT_VALID;
    const char *major = answer + strlen(HOSTENGINE_WELCOME);
    return hostengine_number(&major) == DCGM_MAJOR ? ST_OK : ST_VER_MISMATCH;
}

static dcgmReturn_t take_over(int fd, unsigned timeout_ms, dcgmHandle_t *out)
{
    bool silent;
    if (fd < 0)
        return ST_CONNECTION_NOT_VALID;
    int refusal = shake_hands(
        fd, double_mono_ns() + (uint64_t)(timeout_ms ? timeout_ms : 5000) * 1000000u, &silent);
    struct connection *at = silent ? NULL : connection_new();
    if (!at) {
        (void)close(fd);
        return silent ? ST_CONNECTION_NOT_VALID : ST_MEMORY;
    }
    at->fd = fd;
    at->refusal = refusal;
    *out = at->handle;
    return ST_OK;
}

API(dcgmConnect_v2, const char *address, dcgmConnectV2Params_v2 *params, dcgmHandle_t *handle)
{
    CALL();
    NEED(address && address[0] && params && handle);
    if (params->version != WORD(dcgmConnectV2Params_v2, 2))
        return ST_VER_MISMATCH;
    uint64_t deadline =
        double_mono_ns() + (uint64_t)(params->timeoutMs ? params->timeoutMs : 5000) * 1000000u;
    int fd = params->addressIsUnixSocket ? connect_unix(address, deadline)
                                         : connect_tcp(address, deadline);
    return take_over(fd, params->timeoutMs, handle);
}

#if DCGM_MAJOR == 4
API(dcgmConnect_v3, const char *address, dcgmConnectV3Params_v1 *params, dcgmHandle_t *handle)
{
    CALL();
    NEED(address && address[0] && params && handle);
    if (params->version != WORD(dcgmConnectV3Params_v1, 1))
        return ST_VER_MISMATCH;
    uint64_t deadline =
        double_mono_ns() + (uint64_t)(params->timeoutMs ? params->timeoutMs : 5000) * 1000000u;
    int fd;
    if (strncmp(address, "unix://", 7) == 0)
        fd = connect_unix(address + 7, deadline);
    else if (strncmp(address, "vsock://", 8) == 0)
        fd = connect_vsock(address + 8, deadline);
    else if (strncmp(address, "tcp://", 6) == 0)
        fd = connect_tcp(address + 6, deadline);
    else
        return ST_BADPARAM;
    return take_over(fd, params->timeoutMs, handle);
}
#endif

API(dcgmDisconnect, dcgmHandle_t handle)
{
    CALL();
    struct connection *at = connection_find(handle);
    if (!at || at->embedded)
        return at ? ST_BADPARAM : ST_CONNECTION_NOT_VALID;
    connection_free(at);
    return ST_OK;
}

// --- The engine in this process ---

static struct connection *embedded;

static dcgmReturn_t start_embedded(struct call *c, int mode, dcgmHandle_t *out)
{
    if (mode != MODE_AUTO && mode != MODE_MANUAL)
        return ST_BADPARAM;
    if (embedded)
        return ST_OK; // as DCGM: without a handle
    int64_t code = sim_truth_or_zero(c->node, SIM_NODE, SIM_DCGM_EMBEDDED, c->t);
    if (code != ST_OK)
        return (dcgmReturn_t)code;
    embedded = connection_new();
    if (!embedded)
        return ST_MEMORY;
    embedded->embedded = true;
    embedded->manual = mode == MODE_MANUAL;
    embedded->handle = EMBEDDED_HANDLE;
    atomic_store(&c->node->dcgm.paused, 0);
    *out = embedded->handle;
    return ST_OK;
}

API(dcgmStartEmbedded, int mode, dcgmHandle_t *handle)
{
    CALL();
    NEED(handle);
    return start_embedded(&c, mode, handle);
}

API(dcgmStartEmbedded_v2, dcgmStartEmbeddedV2Params_v1 *params)
{
    CALL();
    NEED(params);
    if (params->version != WORD(dcgmStartEmbeddedV2Params_v1, 1))
        return ST_VER_MISMATCH;
    NEED(params->denyListCount <= 10);
    return start_embedded(&c, params->opMode, &params->dcgmHandle);
}

API(dcgmStopEmbedded, dcgmHandle_t handle)
{
    CALL();
    if (!embedded || handle != EMBEDDED_HANDLE)
        return ST_BADPARAM;
    connection_free(embedded);
    embedded = NULL;
    return ST_OK;
}
