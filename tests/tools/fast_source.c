// SPDX-License-Identifier: Apache-2.0
// A podgpu-source in a hurry: the real one (named by FAST_SOURCE_PROGRAM), asked for samples
// FAST_SOURCE_FACTOR times as often as the exporter asks, so that a test of the programs sees a
// day's samples in seconds.
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/num.h"
#include "gpu/frame.h"

static void die(const char *what)
{
    perror(what);
    exit(99);
}

static void write_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);
        if (n <= 0)
            exit(1); // the other side is gone
        bytes += n;
        len -= (size_t)n;
    }
}

static void hurry(char *frame, uint64_t factor)
{
    struct frame_header header;
    struct frame_watch watch;
    memcpy(&header, frame, sizeof(header));
    if (header.type != FRAME_WATCH || header.bytes < sizeof(watch))
        return;
    memcpy(&watch, frame + sizeof(header), sizeof(watch));
    for (size_t i = 0; i < ARRAY_SIZE(watch.period_ns); i++)
        watch.period_ns[i] = watch.period_ns[i] / factor + 1;
    memcpy(frame + sizeof(header), &watch, sizeof(watch));
}

// Whole frames only, each changed on its way.
static void pass_down(int from, int to, uint64_t factor)
{
    static struct buf input = BUF_INIT(2 * LIMIT_FRAME_BYTES);
    char bytes[4096];
    struct frame_header header;
    ssize_t n = read(from, bytes, sizeof(bytes));
    if (n <= 0)
        exit(0);
    buf_add(&input, bytes, (size_t)n);
    while (input.len >= sizeof(header)) {
        memcpy(&header, input.data, sizeof(header));
        size_t len = sizeof(header) + header.bytes;
        if (input.len < len)
            break;
        hurry(input.data, factor);
        write_all(to, input.data, len);
        buf_consume(&input, len);
    }
}

static void pass_up(int from, int to)
{
    static char bytes[1 << 16];
    ssize_t n = read(from, bytes, sizeof(bytes));
    if (n <= 0)
        exit(0);
    write_all(to, bytes, (size_t)n);
}

int main(int argc, char **argv)
{
    const char *program = getenv("FAST_SOURCE_PROGRAM"), *text = getenv("FAST_SOURCE_FACTOR");
    uint64_t factor;
    int pair[2];
    (void)argc;
    if (!program || !text || num_parse_u64(sv_from(text), 1, 1000000, &factor) < 0)
        die("FAST_SOURCE_PROGRAM and FAST_SOURCE_FACTOR");
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
        die("socketpair");
    pid_t child = fork();
    if (child == 0) {
        if (dup2(pair[1], FRAME_SOCKET_FD) < 0)
            die("dup2");
        execv(program, argv);
        die(program);
    }
    (void)close(pair[1]);
    struct pollfd fds[] = {{.fd = FRAME_SOCKET_FD, .events = POLLIN},
                           {.fd = pair[0], .events = POLLIN}};
    while (poll(fds, 2, -1) > 0) {
        if (fds[0].revents)
            pass_down(FRAME_SOCKET_FD, pair[0], factor);
        if (fds[1].revents)
            pass_up(pair[0], FRAME_SOCKET_FD);
    }
    return 1;
}
