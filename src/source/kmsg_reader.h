// SPDX-License-Identifier: Apache-2.0
// The kernel log, followed by a thread of its own: when a GPU hangs, the thread that samples is
// stuck in the driver, and these lines say why. The first helper starts where the log ends; one
// that follows another starts behind the last record that was told, so that what the driver says
// while no helper runs is not lost. (A pipe can't be read again.)
#pragma once

#include <stdbool.h>

#include "source/xid_board.h"

struct kmsg_reader {
    struct xid_board *board;
    uint64_t *told_seq; // in the call page
    uint64_t after;     // what is up to this number was told by the helper before
    uint64_t seq;       // of the record read last
    int fd;             // -1: not followed
    bool is_device;     // one record a read, else lines
    bool is_file;       // a plain file: looked at again and again
    bool armed;         // atomic: the thread runs
};

struct kmsg_options {
    const char *path;   // /dev/kmsg, or a file or pipe of lines; NULL or "": none
    uint64_t after;     // number of the last record that is not news; 0: what is there now is not
    uint64_t *told_seq; // is set, atomically, to the number up to which all is told
};
// The thread lives until the process ends, or the log does: then it may be started again. 0, or
// negative errno (no permission, no such file): the log is then not followed.
int kmsg_reader_start(struct kmsg_reader *k, const struct kmsg_options *options,
                      struct xid_board *board);
bool kmsg_reader_is_armed(struct kmsg_reader *k);
