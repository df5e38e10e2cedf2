// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define CHUNK_BYTES 16384

static int read_all(int fd, struct buf *out)
{
    for (;;) {
        // At the ceiling one more byte is asked for, to tell a file that just fits from one that
        // does not.
        size_t room = out->max - out->len;
        char extra;
        if (room && buf_reserve(out, room < CHUNK_BYTES ? room : CHUNK_BYTES) < 0)
            return out->error;
        ssize_t got = room ? read(fd, out->data + out->len, room < CHUNK_BYTES ? room : CHUNK_BYTES)
                           : read(fd, &extra, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -errno;
        if (!got)
            return 0;
        if (!room)
            return -EFBIG;
        out->len += (size_t)got;
    }
}

// A FIFO reads as empty while nobody writes to it, which must not pass for an empty file.
static int check_kind(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return -errno;
    return S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode) || S_ISBLK(st.st_mode) ? -EMEDIUMTYPE : 0;
}

int file_read_at(int directory, const char *path, struct buf *out, struct error *err)
{
    if (out->error)
        return error_set(err, out->error, "cannot read '%s': %s", path, strerror(-out->error));
    // O_NONBLOCK: opening a FIFO does not wait for a writer.
    cleanup(fd_closep) int fd =
        openat(directory, path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    int r = fd < 0 ? -errno : check_kind(fd);
    if (r == 0)
        r = read_all(fd, out);
    if (r == -EMEDIUMTYPE)
        return error_set(err, r, "cannot read '%s': not a file", path);
    if (r == -EFBIG)
        return error_set(err, r, "cannot read '%s': larger than %zu bytes", path, out->max);
    if (r < 0)
        return error_set(err, r, "cannot read '%s': %s", path, strerror(-r));
    return 0;
}

int file_read(const char *path, struct buf *out, struct error *err)
{
    return file_read_at(AT_FDCWD, path, out, err);
}

struct file_stamp file_stamp_of(const struct stat *st)
{
    return (struct file_stamp){true,        0,           st->st_dev, st->st_ino,
                               st->st_size, st->st_mtim, st->st_ctim};
}

struct file_stamp file_stamp(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? file_stamp_of(&st) : (struct file_stamp){.error = errno};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool file_stamp_equals(const struct file_stamp *a, const struct file_stamp *b)
{
    return a->there == b->there && a->error == b->error && a->device == b->device &&
           a->inode == b->inode && a->bytes == b->bytes && same_time(a->modified, b->modified) &&
           same_time(a->changed, b->changed);
}
