// SPDX-License-Identifier: Apache-2.0
// proc(5): /proc/self/stat is one line; the name in it stands in parentheses and may hold anything,
// so fields are counted from the last ')'. starttime counts clock ticks since boot: what that is in
// wall time is worked out once and kept, since the wall clock is stepped now and then but a start
// time must not move.
#include "exporter/process_stats.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/clock.h"
#include "base/num.h"

// Fields of /proc/self/stat, counted from 1 as in proc(5)
#define STAT_FIRST 3 // behind the name
#define STAT_UTIME 14
#define STAT_STIME 15
#define STAT_STARTTIME 22
#define STAT_VSIZE 23
#define STAT_RSS 24

// A whole small file; 0 when it can't be read.
static size_t read_file(const char *path, char *out, size_t out_bytes)
{
    cleanup(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, out, out_bytes);
    return n > 0 ? (size_t)n : 0;
}

static uint64_t ticks_to_ns(uint64_t ticks)
{
    uint64_t per_s = (uint64_t)sysconf(_SC_CLK_TCK);
    return ticks / per_s * NS_PER_S + ticks % per_s * NS_PER_S / per_s;
}

static uint64_t start_wall_ns(uint64_t start_ticks)
{
    static uint64_t known;
    struct timespec since_boot;
    if (known == 0 && clock_gettime(CLOCK_BOOTTIME, &since_boot) == 0) {
        known = clock_wall_ns() - clock_timespec_ns(since_boot) + ticks_to_ns(start_ticks);
    }
    return known;
}

static void take_field(unsigned field, uint64_t value, uint64_t *ticks,
                       struct render_self_process *out)
{
    switch (field) {
    case STAT_UTIME:
    case STAT_STIME:
        *ticks += value;
        break;
    case STAT_STARTTIME:
        out->start_wall_ns = start_wall_ns(value);
        break;
    case STAT_VSIZE:
        out->virtual_bytes = value;
        break;
    case STAT_RSS:
        out->resident_bytes = value * (uint64_t)sysconf(_SC_PAGESIZE);
        break;
    default:
        break;
    }
}

static void read_stat(struct render_self_process *out)
{
    char text[1024];
    struct sv line = {text, read_file("/proc/self/stat", text, sizeof(text))};
    size_t at = line.len;
    while (at > 0 && line.ptr[at - 1] != ')')
        at--;
    struct sv rest = sv_sub(line, at + 1, line.len), word; // behind ") "
    uint64_t ticks = 0;
    for (unsigned field = STAT_FIRST; field <= STAT_RSS && sv_next(&rest, ' ', &word); field++) {
        uint64_t value;
        if (num_parse_u64(word, 0, UINT64_MAX, &value) == 0)
            take_field(field, value, &ticks, out);
    }
    out->cpu_seconds = (double)ticks_to_ns(ticks) / (double)NS_PER_S;
}

// Entries of /proc/self/fd but for ".", ".." and the descriptor that reads them. opendir would take
// memory.
static uint64_t count_fds(void)
{
    cleanup(fd_closep) int fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    _Alignas(struct dirent64) char entries[4096];
    uint64_t count = 0;
    for (;;) {
        long n = syscall(SYS_getdents64, fd, entries, sizeof(entries));
        if (n <= 0)
            break;
        for (long at = 0; at < n;
             at += ((const struct dirent64 *)(const void *)(entries + at))->d_reclen)
            count++;
    }
    return count > 3 ? count - 3 : 0;
}

void process_stats_read(struct render_self_process *out)
{
    *out = (struct render_self_process){0};
    read_stat(out);
    out->open_fds = count_fds();
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        out->max_fds = limit.rlim_cur;
}
