// SPDX-License-Identifier: Apache-2.0
// The kernel log, followed by a thread of its own from where it ends now: when a GPU hangs, the
// thread that samples is stuck in the driver, and these lines say why.
#pragma once

#include <stdbool.h>

#include "source/xid_board.h"

struct kmsg_reader {
    struct xid_board *board;
    int fd;         // -1: not followed
    bool is_device; // one record a read, else lines
    bool is_file;   // a plain file: looked at again and again
    bool armed;     // atomic: the thread runs
};

// path: /dev/kmsg, or a file or pipe of lines; NULL or "": none. The thread lives until the process
// ends. 0, or negative errno (no permission, no such file): the log is then not followed.
int kmsg_reader_start(struct kmsg_reader *k, const char *path, struct xid_board *board);
bool kmsg_reader_is_armed(struct kmsg_reader *k);
