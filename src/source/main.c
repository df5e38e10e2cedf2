// SPDX-License-Identifier: Apache-2.0
// podgpu-source: the helper process that loads a vendor's library, so that its crashes and hangs
// are not the exporter's. Started by podgpu-exporter with a socket as fd 3 and the shared call page
// as fd 4 (gpu/frame.h).
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/process.h"
#include "source/arguments.h"

// The exporter may have died before follow_parent: its end of the socket is closed then, and nobody
// would end us in a call that hangs.
static bool is_orphan(void)
{
    struct pollfd p = {.fd = FRAME_SOCKET_FD, .events = POLLRDHUP};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR));
}

// Dies with the exporter, even while a call into the driver never returns.
static void follow_parent(void)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    // What a terminal or a service manager sends to all processes is the exporter's to handle.
    (void)signal(SIGINT, SIG_IGN);
    (void)signal(SIGTERM, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
}

// Descriptors that leaked from a parent are not kept open by a process that may become unkillable.
static void tidy_descriptors(void)
{
    (void)close_range(FRAME_CALL_PAGE_FD + 1, ~0u, 0);
    int null = open("/dev/null", O_RDONLY);
    if (null > STDIN_FILENO) {
        (void)dup2(null, STDIN_FILENO);
        (void)close(null);
    }
    (void)fcntl(FRAME_SOCKET_FD, F_SETFD, FD_CLOEXEC);
    (void)fcntl(FRAME_CALL_PAGE_FD, F_SETFD, FD_CLOEXEC);
}

static struct frame_call_page *map_page(void)
{
    struct stat st;
    if (fstat(FRAME_CALL_PAGE_FD, &st) < 0 || st.st_size < FRAME_CALL_PAGE_BYTES)
        return NULL;
    void *page = mmap(NULL, FRAME_CALL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                      FRAME_CALL_PAGE_FD, 0);
    return page == MAP_FAILED ? NULL : page;
}

int main(int argc, char **argv)
{
    static struct source_arguments arguments; // large, and borrowed by the loop
    struct source_arguments *a = &arguments;
    process_set_up();
    int rc = source_arguments_parse(argc, argv, a);
    if (rc != 0)
        return rc;
    follow_parent();
    struct stat st;
    if (fstat(FRAME_SOCKET_FD, &st) < 0 || !S_ISSOCK(st.st_mode))
        return source_arguments_refuse("descriptor is not a socket:", "3");
    if (is_orphan())
        return 0;
    a->common.socket_fd = FRAME_SOCKET_FD;
    a->common.page = map_page();
    if (!a->common.page)
        return source_arguments_refuse("descriptor is not a call page:", "4");
    tidy_descriptors();
    log_setup(a->log_json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT,
              a->log_debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
    process_set_oom_score_adj(SOURCE_OOM_SCORE);
    (void)mallopt(M_ARENA_MAX, 1);
    return a->source == FRAME_SOURCE_DCGM ? dcgm_source_run(&a->common, &a->dcgm)
                                          : nvml_source_run(&a->common, &a->nvml);
}
