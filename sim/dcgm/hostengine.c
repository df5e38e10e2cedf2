// SPDX-License-Identifier: Apache-2.0
// nv-hostengine of a simulated node: it takes connections and greets; values come from the mapped
// node in the client. It ends by SIGTERM, or when the node's file is gone.
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../hostengine.h"
#include "../node.h"

static const char usage[] =
    "usage: nv-hostengine --node FILE [--listen IPV4:PORT | --socket PATH] [--major 3|4]\n"
    "                     [--behave normal|close|garbage|mute]\n";

#define MAX_CLIENTS 64

struct options {
    const char *node, *listen, *socket, *behave;
    int major;
};

static int listen_tcp(const char *text)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    struct sockaddr_in address = {.sin_family = AF_INET};
    if (!colon || (size_t)(colon - text) >= sizeof(host))
        return -1;
    memcpy(host, text, (size_t)(colon - text));
    host[colon - text] = '\0';
    const char *port = colon + 1;
    address.sin_port = htons((uint16_t)hostengine_number(&port));
    if (*port || inet_pton(AF_INET, host, &address.sin_addr) != 1)
        return -1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    socklen_t size = sizeof(address);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, 16) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        return -1;
    (void)printf("%s:%u\n", host, ntohs(address.sin_port));
    return fd;
}

static int listen_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return -1;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    (void)unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(fd, 16) != 0)
        return -1;
    (void)printf("unix://%s\n", path);
    return fd;
}

static void sleep_ms(int64_t ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

// A client said hello, or something else: the answer. False: hang up.
static bool answer(const struct options *o, struct sim_node *n, int fd)
{
    char text[128];
    ssize_t got = recv(fd, text, sizeof(text), 0);
    if (got <= 0 || strcmp(o->behave, "close") == 0)
        return false;
    if (strcmp(o->behave, "mute") == 0)
        return true;
    sleep_ms(sim_truth_or_zero(n, SIM_NODE, SIM_DCGM_SLOW_CONNECT, sim_now(n)));
    int bytes = strcmp(o->behave, "garbage") == 0
                    ? snprintf(text, sizeof(text), "SSH-2.0-OpenSSH_9.2p1\r\n")
                    : snprintf(text, sizeof(text), HOSTENGINE_WELCOME "%d\n", o->major);
    return send(fd, text, (size_t)bytes, MSG_NOSIGNAL) == bytes;
}

static void serve(const struct options *o, struct sim_node *n, int listener)
{
    struct pollfd list[1 + MAX_CLIENTS] = {{.fd = listener, .events = POLLIN}};
    nfds_t count = 1;
    while (access(o->node, F_OK) == 0) {
        if (poll(list, count, 500) < 0 && errno != EINTR)
            return;
        for (nfds_t i = count; i-- > 1;) {
            if (!list[i].revents || answer(o, n, list[i].fd))
                continue;
            (void)close(list[i].fd);
            list[i] = list[--count];
        }
        if (!(list[0].revents & POLLIN))
            continue;
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0 && count <= MAX_CLIENTS)
            list[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
        else if (fd >= 0)
            (void)close(fd);
    }
}

static bool read_options(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"node", required_argument, NULL, 'n'},   {"listen", required_argument, NULL, 'l'},
        {"socket", required_argument, NULL, 's'}, {"major", required_argument, NULL, 'm'},
        {"behave", required_argument, NULL, 'b'}, {NULL, 0, NULL, 0}};
    int c;
    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'n':
            o->node = optarg;
            break;
        case 'l':
            o->listen = optarg;
            break;
        case 's':
            o->socket = optarg;
            break;
        case 'm':
            o->major = optarg[0] - '0';
            break;
        case 'b':
            o->behave = optarg;
            break;
        default:
            return false;
        }
    }
    return o->node && optind == argc;
}

int main(int argc, char **argv)
{
    struct options o = {.listen = "127.0.0.1:0", .behave = "normal"};
    if (!read_options(argc, argv, &o)) {
        (void)fputs(usage, stderr);
        return EXIT_FAILURE;
    }
    struct sim_node *n = sim_map(o.node);
    if (!n) {
        (void)fprintf(stderr, "nv-hostengine: %s: not a simulated node\n", o.node);
        return EXIT_FAILURE;
    }
    if (o.major == 0)
        o.major = n->dcgm.library ? (int)n->dcgm.library : 4;
    int listener = o.socket ? listen_unix(o.socket) : listen_tcp(o.listen);
    if (listener < 0) {
        (void)fprintf(stderr, "nv-hostengine: can't listen: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    atomic_store(&n->dcgm.paused, 0); // a new engine pauses nothing
    (void)fflush(stdout);
    serve(&o, n, listener);
    return EXIT_SUCCESS;
}
