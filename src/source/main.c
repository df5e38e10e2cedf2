// SPDX-License-Identifier: Apache-2.0
// podgpu-source: the helper process that loads a vendor's library, so that its crashes and hangs
// are not the exporter's. Started by podgpu-exporter with a socket as fd 3 and the shared call page
// as fd 4 (gpu/frame.h).
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/num.h"
#include "base/process.h"
#include "source/source.h"

#define USAGE                                                                                      \
    "usage: podgpu-source nvml [--library PATH] [--skip INDEX[=BUS-ID]]... [--avoid "              \
    "CALL[@INDEX]]...\n"                                                                           \
    "                          [--kmsg PATH] [--kmsg-after NUMBER] [--device-dir PATH]\n"          \
    "                          [--log-format text|json] [--log-level info|debug]\n"                \
    "podgpu-exporter starts it; it is of no use by hand.\n"

static int usage(const char *what, const char *word)
{
    (void)fprintf(stderr, "podgpu-source: %s '%s'\n" USAGE, what, word);
    return 2;
}

// One of two words; *out whether it is the second.
static bool parse_either(const char *word, const char *first, const char *second, bool *out)
{
    *out = strcmp(word, second) == 0;
    return *out || strcmp(word, first) == 0;
}

static int parse_avoided(const char *value, struct source_options *o)
{
    struct sv name = sv_from(value), index;
    uint64_t number = UINT32_MAX;
    size_t at = sv_find_char(name, '@');
    if (at != (size_t)-1) {
        index = sv_sub(name, at + 1, name.len);
        name = sv_sub(name, 0, at);
        if (num_parse_u64(index, 0, LIMIT_GPUS - 1, &number) < 0)
            return usage("not a call of a GPU:", value);
    }
    if (o->avoided_count == SOURCE_AVOIDED_MAX)
        return usage("too many calls to avoid:", value);
    o->avoided[o->avoided_count++] = (struct nvml_avoided){name, (uint32_t)number};
    return 0;
}

// INDEX or INDEX=BUS-ID of a GPU that must not be called.
static int parse_skipped(const char *value, struct source_options *o)
{
    struct sv word = sv_from(value);
    size_t equals = sv_find_char(word, '=');
    uint64_t index;
    if (num_parse_u64(sv_sub(word, 0, equals == (size_t)-1 ? word.len : equals), 0, LIMIT_GPUS - 1,
                      &index) < 0)
        return usage("not the index of a GPU:", value);
    o->skipped |= UINT64_C(1) << index;
    if (equals != (size_t)-1)
        o->skipped_bus_ids[index] = value + equals + 1;
    return 0;
}

static int take(const char *name, const char *value, struct source_options *o)
{
    if (strcmp(name, "--log-format") == 0)
        return parse_either(value, "text", "json", &o->log_json) ? 0
                                                                 : usage("no log format:", value);
    if (strcmp(name, "--log-level") == 0)
        return parse_either(value, "info", "debug", &o->log_debug) ? 0
                                                                   : usage("no log level:", value);
    if (strcmp(name, "--avoid") == 0)
        return parse_avoided(value, o);
    if (strcmp(name, "--kmsg-after") == 0)
        return num_parse_u64(sv_from(value), 0, UINT64_MAX, &o->kmsg_after) < 0
                   ? usage("not a number:", value)
                   : 0;
    if (strcmp(name, "--library") == 0)
        o->library = value;
    else if (strcmp(name, "--kmsg") == 0)
        o->kmsg_path = value;
    else if (strcmp(name, "--device-dir") == 0)
        o->device_dir = value;
    else if (strcmp(name, "--skip") == 0)
        return parse_skipped(value, o);
    else
        return usage("unknown option", name);
    return 0;
}

static int parse(int argc, char **argv, struct source_options *o)
{
    for (int i = 2; i < argc; i += 2) {
        if (!argv[i + 1])
            return usage("no value for", argv[i]);
        int status = take(argv[i], argv[i + 1], o);
        if (status != 0)
            return status;
    }
    return 0;
}

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
    struct source_options options = {.device_dir = "/dev", .socket_fd = FRAME_SOCKET_FD};
    process_set_up();
    if (argc < 2 || strcmp(argv[1], "nvml") != 0)
        return usage("unknown source", argc < 2 ? "" : argv[1]);
    int rc = parse(argc, argv, &options);
    if (rc != 0)
        return rc;
    follow_parent();
    struct stat st;
    if (fstat(FRAME_SOCKET_FD, &st) < 0 || !S_ISSOCK(st.st_mode))
        return usage("descriptor is not a socket:", "3");
    if (is_orphan())
        return 0;
    options.page = map_page();
    if (!options.page)
        return usage("descriptor is not a call page:", "4");
    tidy_descriptors();
    log_setup(options.log_json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT,
              options.log_debug ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO);
    // When memory is short, the kernel takes this process rather than the exporter, which starts
    // another.
    process_set_oom_score_adj(500);
    (void)mallopt(M_ARENA_MAX, 1);
    return source_run(&options);
}
