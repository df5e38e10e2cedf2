// SPDX-License-Identifier: Apache-2.0
// Scrapes as fast as a server answers: bench_scrape PORT CONNECTIONS SECONDS [gzip].
// Keep-alive connections, one request under way on each. Bodies are dropped in the kernel
// (MSG_TRUNC, tcp(7)): a client that copied and parsed them would cost more than the server and
// measure itself. Prints the number of scrapes and the median and 99th percentile of their times in
// ns.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "base/sv.h"

#define CONNECTIONS_MAX 64
#define HEAD_BYTES 1024
#define TIMES_MAX (4u << 20)

struct connection {
    int fd;
    uint64_t asked_ns;
    char head[HEAD_BYTES];
    size_t head_len;
    size_t left; // of the body
    bool in_body;
};

static struct connection connections[CONNECTIONS_MAX];
static uint32_t times_ns[TIMES_MAX];
static size_t scrapes;
static struct sv request;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "bench_scrape: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void ask(struct connection *c)
{
    c->in_body = false;
    c->head_len = 0;
    c->asked_ns = clock_mono_ns();
    must(send(c->fd, request.ptr, request.len, MSG_NOSIGNAL) == (ssize_t)request.len, "send");
}

// Takes what has come of the head. True once the body begins.
static bool read_head(struct connection *c)
{
    static const char end[] = "\r\n\r\n", length[] = "Content-Length: ";
    ssize_t n = recv(c->fd, c->head + c->head_len, sizeof(c->head) - c->head_len, MSG_DONTWAIT);
    must(n > 0, "the server closed a connection");
    c->head_len += (size_t)n;
    const char *body = memmem(c->head, c->head_len, end, sizeof(end) - 1);
    if (!body)
        return false;
    must(c->head_len > 12 && memcmp(c->head + 9, "200", 3) == 0, "not answered with 200");
    const char *text = memmem(c->head, c->head_len, length, sizeof(length) - 1);
    must(text != NULL, "no Content-Length");
    text += sizeof(length) - 1;
    const char *line_end = memchr(text, '\r', (size_t)(body + 1 - text));
    uint64_t bytes;
    must(line_end &&
             num_parse_u64((struct sv){text, (size_t)(line_end - text)}, 0, 1u << 30, &bytes) == 0,
         "Content-Length");
    size_t read_already = (size_t)(c->head + c->head_len - body) - (sizeof(end) - 1);
    must(read_already <= bytes, "more than an answer");
    c->left = (size_t)bytes - read_already;
    c->in_body = true;
    return true;
}

static void take(struct connection *c)
{
    if (!c->in_body && !read_head(c))
        return;
    if (c->left > 0) {
        ssize_t n = recv(c->fd, NULL, c->left, MSG_DONTWAIT | MSG_TRUNC);
        if (n < 0 && errno == EAGAIN)
            return;
        must(n > 0, "the server closed a connection");
        c->left -= (size_t)n;
    }
    if (c->left > 0)
        return;
    uint64_t took_ns = clock_mono_ns() - c->asked_ns;
    times_ns[scrapes++ % TIMES_MAX] = took_ns < UINT32_MAX ? (uint32_t)took_ns : UINT32_MAX;
    ask(c);
}

static int connect_to(uint16_t port)
{
    const struct sockaddr_in a = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(fd >= 0 && connect(fd, (const struct sockaddr *)&a, sizeof(a)) == 0, "connect");
    return fd;
}

static int compare_u32(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void report(uint64_t took_ns)
{
    size_t count = scrapes < TIMES_MAX ? scrapes : TIMES_MAX;
    must(count > 0, "no scrape");
    qsort(times_ns, count, sizeof(times_ns[0]), compare_u32);
    printf("scrapes=%zu\ntook_ns=%llu\nmedian_ns=%u\np99_ns=%u\n", scrapes,
           (unsigned long long)took_ns, times_ns[count / 2], times_ns[count - 1 - count / 100]);
}

static uint64_t number(const char *text, uint64_t most)
{
    uint64_t n;
    must(num_parse_u64(sv_from(text), 1, most, &n) == 0, text);
    return n;
}

int main(int argc, char **argv)
{
    must(argc == 4 || argc == 5, "usage: bench_scrape PORT CONNECTIONS SECONDS [gzip]");
    uint16_t port = (uint16_t)number(argv[1], UINT16_MAX);
    size_t count = number(argv[2], CONNECTIONS_MAX);
    uint64_t length_ns = number(argv[3], 3600) * NS_PER_S;
    request = argc == 5
                  ? SV("GET /metrics HTTP/1.1\r\nHost: bench\r\nAccept-Encoding: gzip\r\n\r\n")
                  : SV("GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n");
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (size_t i = 0; i < count; i++) {
        connections[i].fd = connect_to(port);
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &connections[i]};
        must(epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &e) == 0, "epoll");
        ask(&connections[i]);
    }
    uint64_t start_ns = clock_mono_ns();
    while (clock_mono_ns() - start_ns < length_ns) {
        struct epoll_event events[CONNECTIONS_MAX];
        int n = epoll_wait(epoll, events, CONNECTIONS_MAX, 1000);
        for (int i = 0; i < n; i++)
            take(events[i].data.ptr);
    }
    report(clock_mono_ns() - start_ns);
    return 0;
}
