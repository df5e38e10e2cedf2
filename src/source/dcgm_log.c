// SPDX-License-Identifier: Apache-2.0
// How it works: the thread owns the reading end and a line's room; a line that does not fit is told
// in pieces. It ends at end of file, when nobody has the writing end any more.
#include "source/dcgm_log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "source/dcgm_log_line.h"

#define LINE_BYTES 4095 // with its end a write of PIPE_BUF bytes, which a pipe takes whole or not
#define STOP_MS 500

struct capture {
    int pipe_fd;  // reading end
    int done_fd;  // closed by the thread when it is done
    int saved_fd; // what standard output was, -1: nothing is captured
    int ended_fd; // the other end of done_fd
    size_t used;
    char line[LINE_BYTES], scratch[LINE_BYTES];
};

static struct capture capture = {.saved_fd = -1}; // standard output is one a process

bool dcgm_log_is_level(const char *level)
{
    static const char *const levels[] = {"NONE", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "VERB"};
    for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
        if (strcmp(level, levels[i]) == 0)
            return true;
    return false;
}

// Never waits: behind this thread DCGM's own would stand.
static void pass_on(struct sv line)
{
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    char text[LINE_BYTES + 1];
    if (poll(&p, 1, 0) <= 0 || !(p.revents & POLLOUT))
        return;
    memcpy(text, line.ptr, line.len);
    text[line.len] = '\n';
    ssize_t n = write(STDERR_FILENO, text, line.len + 1);
    (void)n;
}

static void tell(struct capture *c, struct sv line)
{
    struct dcgm_log_line parsed;
    if (!dcgm_log_line_parse(line, c->scratch, &parsed)) {
        pass_on(line);
        return;
    }
    bool is_detail =
        sv_starts_with(parsed.level, SV("DEBUG")) || sv_starts_with(parsed.level, SV("VERB"));
    log_at(is_detail ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO, "dcgm log",
           LOG_SV("dcgm_level", parsed.level), LOG_SV("text", parsed.text));
}

// Tells the whole lines, and a piece when there is no end of line in all the room.
static void tell_lines(struct capture *c, bool at_end)
{
    struct sv rest = {c->line, c->used};
    size_t at;
    while ((at = sv_find_char(rest, '\n')) != (size_t)-1) {
        tell(c, sv_sub(rest, 0, at));
        rest = sv_sub(rest, at + 1, rest.len);
    }
    if (rest.len && (at_end || rest.len == sizeof(c->line))) {
        tell(c, rest);
        rest.len = 0;
    }
    memmove(c->line, rest.ptr, rest.len);
    c->used = rest.len;
}

static void *follow(void *argument)
{
    struct capture *c = argument;
    ssize_t n;
    while ((n = read(c->pipe_fd, c->line + c->used, sizeof(c->line) - c->used)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        c->used += (size_t)n;
        tell_lines(c, false);
    }
    tell_lines(c, true);
    (void)close(c->pipe_fd);
    (void)close(c->done_fd);
    return NULL;
}

static int start_thread(struct capture *c)
{
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, follow, c);
    if (rc == 0)
        (void)pthread_detach(thread);
    return -rc;
}

static void close_both(const int *fds)
{
    (void)close(fds[0]);
    (void)close(fds[1]);
}

int dcgm_log_start(const char *level)
{
    struct capture *c = &capture;
    int lines[2], done[2];
    if (setenv("__DCGM_DBG_FILE", "-", 1) < 0 || setenv("__DCGM_DBG_LVL", level, 1) < 0)
        return -errno;
    if (pipe2(lines, O_CLOEXEC) < 0)
        return -errno;
    if (pipe2(done, O_CLOEXEC) < 0) {
        int rc = -errno;
        close_both(lines);
        return rc;
    }
    *c = (struct capture){.pipe_fd = lines[0], .done_fd = done[1], .ended_fd = done[0]};
    c->saved_fd = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    int rc = c->saved_fd < 0 ? -errno : start_thread(c);
    if (rc < 0) {
        close_both(lines);
        close_both(done);
        if (c->saved_fd >= 0)
            (void)close(c->saved_fd);
        c->saved_fd = -1;
        return rc;
    }
    (void)dup2(lines[1], STDOUT_FILENO);
    (void)close(lines[1]);
    return 0;
}

void dcgm_log_stop(void)
{
    struct capture *c = &capture;
    if (c->saved_fd < 0)
        return;
    (void)dup2(c->saved_fd, STDOUT_FILENO);
    (void)close(c->saved_fd);
    c->saved_fd = -1;
    // A process that DCGM started may hold the pipe open.
    struct pollfd p = {.fd = c->ended_fd};
    (void)poll(&p, 1, STOP_MS);
    (void)close(c->ended_fd);
}
