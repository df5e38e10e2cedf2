// SPDX-License-Identifier: Apache-2.0
#include "source/kmsg_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/log.h"
#include "source/kmsg.h"

#define RECORD_BYTES 8192 // the kernel's own ceiling of a record
#define STACK_BYTES (128u << 10)
#define FILE_LOOK_MS 200
#define TURN_READS 256

struct line_buffer {
    char bytes[RECORD_BYTES];
    size_t len;
};

static void stop_if_gone(int rc)
{
    if (rc < 0)
        _exit(0); // the exporter is gone, and the other thread may be stuck in the driver
}

static void take_record(struct kmsg_reader *k, struct sv line)
{
    struct kmsg_stamp stamp;
    if (kmsg_stamp_parse(line, &stamp)) {
        if (stamp.seq <= k->after)
            return;
        k->seq = stamp.seq;
    }
    stop_if_gone(xid_board_line(k->board, line));
}

// For the helper that comes after this one.
static void note_told(struct kmsg_reader *k)
{
    uint64_t told = xid_board_told_seq(k->board, k->seq);
    if (told > 0)
        __atomic_store_n(k->told_seq, told, __ATOMIC_RELAXED);
}

static void take_lines(struct kmsg_reader *k, struct line_buffer *b)
{
    size_t start = 0;
    for (size_t i = 0; i < b->len; i++) {
        if (b->bytes[i] != '\n')
            continue;
        take_record(k, (struct sv){b->bytes + start, i - start});
        start = i + 1;
    }
    if (start == 0 && b->len == sizeof(b->bytes))
        start = b->len; // longer than any line of the kernel
    b->len -= start;
    memmove(b->bytes, b->bytes + start, b->len);
}

// A file that has become shorter than what was read begins anew.
static bool follow_truncation(const struct kmsg_reader *k)
{
    struct stat st;
    off_t at = lseek(k->fd, 0, SEEK_CUR);
    if (at < 0 || fstat(k->fd, &st) < 0)
        return false;
    return st.st_size >= at || lseek(k->fd, 0, SEEK_SET) == 0;
}

// False when there is no more to read for ever. Takes a turn's worth at most, so that a log that is
// written all the time does not keep lines waiting for their event for ever.
static bool read_some(struct kmsg_reader *k, struct line_buffer *b)
{
    for (unsigned i = 0; i < TURN_READS; i++) {
        size_t room = k->is_device ? sizeof(b->bytes) : sizeof(b->bytes) - b->len;
        ssize_t n = read(k->fd, b->bytes + (k->is_device ? 0 : b->len), room);
        if (n < 0 && (errno == EINTR || errno == EPIPE || errno == EINVAL))
            continue; // EPIPE: records were overwritten before we came; EINVAL: a record larger
                      // than the buffer
        if (n < 0)
            return errno == EAGAIN;
        if (n == 0)
            return k->is_file && follow_truncation(k);
        if (k->is_device) {
            take_record(k, (struct sv){b->bytes, (size_t)n});
            continue;
        }
        b->len += (size_t)n;
        take_lines(k, b);
    }
    return true;
}

static int wait_ms(struct kmsg_reader *k)
{
    uint64_t due = xid_board_due_ns(k->board), now = clock_mono_ns();
    int ms = -1;
    if (due != UINT64_MAX)
        ms = due <= now ? 0 : (int)((due - now) / NS_PER_MS + 1);
    return k->is_file && (ms < 0 || ms > FILE_LOOK_MS) ? FILE_LOOK_MS : ms;
}

static void *follow(void *user)
{
    struct kmsg_reader *k = user;
    static struct line_buffer buffer;
    buffer.len = 0;
    for (bool more = true; more;) {
        struct pollfd p = {.fd = k->fd, .events = POLLIN};
        // A plain file is always ready, so only time is waited for.
        int ready = poll(&p, k->is_file ? 0 : 1, wait_ms(k));
        stop_if_gone(xid_board_expire(k->board, clock_mono_ns()));
        if (ready > 0 || k->is_file)
            more = read_some(k, &buffer);
        note_told(k);
    }
    log_warn("kernel log ended", LOG_ERRNO(errno));
    (void)close(k->fd);
    // Lines that still wait for their event are the other thread's now. From here on k may be
    // started again.
    __atomic_store_n(&k->armed, false, __ATOMIC_RELEASE);
    return NULL;
}

// The kernel's log device (Documentation/admin-guide/devices.txt: char 1:11), a pipe or a file.
// What else may stand there (a console in its place, a directory) is never read.
static bool is_log(const struct stat *st)
{
    if (S_ISCHR(st->st_mode))
        return st->st_rdev == makedev(1, 11);
    return S_ISFIFO(st->st_mode) || S_ISREG(st->st_mode);
}

static int open_log(struct kmsg_reader *k, const char *path, bool at_end)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return -errno;
    if (!is_log(&st))
        return -EMEDIUMTYPE;
    k->is_device = S_ISCHR(st.st_mode);
    k->is_file = S_ISREG(st.st_mode);
    // A pipe is opened both ways, so that it does not end when its writer does.
    int access = S_ISFIFO(st.st_mode) ? O_RDWR : O_RDONLY;
    k->fd = open(path, access | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (k->fd < 0)
        return -errno;
    if (at_end)
        (void)lseek(k->fd, 0, SEEK_END);
    return 0;
}

static int start_thread(struct kmsg_reader *k)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all, before;
    (void)sigfillset(&all);
    (void)pthread_attr_init(&attr);
    (void)pthread_attr_setstacksize(&attr, STACK_BYTES);
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, &attr, follow, k);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return -rc;
}

int kmsg_reader_start(struct kmsg_reader *k, const struct kmsg_options *options,
                      struct xid_board *board)
{
    *k = (struct kmsg_reader){
        .board = board,
        .told_seq = options->told_seq,
        .after = options->after,
        .seq = options->after,
        .fd = -1,
    };
    if (!options->path || !*options->path)
        return 0;
    int rc = open_log(k, options->path, options->after == 0);
    if (rc < 0)
        return rc;
    k->armed = true;
    rc = start_thread(k);
    if (rc < 0) {
        fd_closep(&k->fd);
        k->fd = -1;
        k->armed = false;
    }
    return rc;
}

bool kmsg_reader_is_armed(struct kmsg_reader *k)
{
    return __atomic_load_n(&k->armed, __ATOMIC_ACQUIRE);
}
