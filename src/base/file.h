// SPDX-License-Identifier: Apache-2.0
// Small files read whole, with a cap; and telling whether a file is still the one it was.
#pragma once

#include <sys/stat.h>

#include "base/buf.h"
#include "base/error.h"

// Appends the file to out (whose ceiling bounds it). 0, negative errno with *err naming the path;
// among them -EFBIG for a file over the ceiling, -EMEDIUMTYPE for a FIFO, a socket or a disk.
int must_use file_read(const char *path, struct buf *out, struct error *err);
// The same of a name in an open directory.
int must_use file_read_at(int directory, const char *name, struct buf *out, struct error *err);

// Which file a path leads to and in what state. Two equal stamps may still hide a second change
// within the resolution of the file system's times.
struct file_stamp {
    bool there;
    int error; // errno of looking at it
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified, changed;
};
struct file_stamp file_stamp(const char *path); // none but an error when it can't be looked at
struct file_stamp file_stamp_of(const struct stat *st);
bool file_stamp_equals(const struct file_stamp *a, const struct file_stamp *b);
