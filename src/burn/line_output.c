// SPDX-License-Identifier: Apache-2.0
// A pipe that polls writable takes PIPE_BUF bytes without waiting, so that is what is written at a
// time; what comes behind a piece that was not taken is left out up to the end of the text.
#include "burn/line_output.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

int line_output_write(struct sv text)
{
    while (text.len > 0) {
        struct pollfd out = {.fd = STDOUT_FILENO, .events = POLLOUT};
        if (poll(&out, 1, 0) != 1 || !(out.revents & POLLOUT))
            return 0;
        ssize_t n = write(STDOUT_FILENO, text.ptr, text.len < PIPE_BUF ? text.len : PIPE_BUF);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0)
            text = sv_sub(text, (size_t)n, text.len);
    }
    return 0;
}
