// SPDX-License-Identifier: Apache-2.0
#include "exporter/source_path.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

// Our own path: from the kernel, else (no /proc) as we were started.
static int find_own_path(char *out, size_t out_bytes, struct error *err)
{
    ssize_t n = readlink("/proc/self/exe", out, out_bytes - 1);
    if (n >= 0) {
        out[n] = '\0';
        return 0;
    }
    int r = -errno;
    const char *started_as = (const char *)getauxval(AT_EXECFN);
    if (!started_as || !strchr(started_as, '/'))
        return error_set(err, r, "/proc/self/exe cannot be read (%s): give --source-path",
                         strerror(-r));
    sv_copy(out, out_bytes, sv_from(started_as));
    return 0;
}

int source_path_find(const struct exporter_options *options, char *out, size_t out_bytes,
                     struct error *err)
{
    const char *given = options->flags.source_path;
    if (given[0] != '\0') {
        sv_copy(out, out_bytes, sv_from(given));
    } else {
        char own[3072];
        int r = find_own_path(own, sizeof(own), err);
        if (r < 0)
            return r;
        char *slash = strrchr(own, '/');
        if (slash)
            *slash = '\0';
        (void)snprintf(out, out_bytes, "%s/podgpu-source", own);
    }
    if (access(out, X_OK) < 0)
        return error_set(err, -errno, "%s: the helper program cannot be run: %s", out,
                         strerror(errno));
    return 0;
}
