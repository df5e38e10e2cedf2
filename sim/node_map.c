// SPDX-License-Identifier: Apache-2.0
// Mapping the node's file, its clock, its counters and who has the library open. libc only: the
// doubles link it.
#include "node.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS INT64_C(1000000)
#define NS_PER_S INT64_C(1000000000)

struct sim_node *sim_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    struct stat st;
    void *at = MAP_FAILED;
    if (fstat(fd, &st) == 0 && st.st_size == (off_t)sizeof(struct sim_node))
        at = mmap(NULL, sizeof(struct sim_node), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    else
        errno = EINVAL;
    int saved = errno;
    (void)close(fd);
    if (at == MAP_FAILED) {
        errno = saved;
        return NULL;
    }
    struct sim_node *n = at;
    if (n->magic != SIM_MAGIC || n->layout != SIM_LAYOUT || n->bytes != sizeof(struct sim_node)) {
        (void)munmap(at, sizeof(struct sim_node));
        errno = EINVAL;
        return NULL;
    }
    return n;
}

void sim_unmap(struct sim_node *n)
{
    if (n)
        (void)munmap(n, sizeof(*n));
}

static int64_t mono_ns(void)
{
    struct timespec ts;
    (void)clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec * NS_PER_S + ts.tv_nsec;
}

int64_t sim_now(const struct sim_node *n)
{
    int64_t frozen = atomic_load(&n->frozen_ns);
    if (frozen != INT64_MIN)
        return frozen;
    return (int64_t)((sim_wide)(mono_ns() - n->epoch_ns) * (int64_t)n->rate_ppm / SIM_PPM);
}

int64_t sim_wall_us(const struct sim_node *n, int64_t t)
{
    return n->wall_epoch_us + (int64_t)((sim_wide)t * SIM_PPM / (int64_t)n->rate_ppm / 1000);
}

uint32_t sim_symbol_find(const struct sim_node *n, const char *name)
{
    uint32_t count = atomic_load(&n->symbol_count);
    for (uint32_t i = 0; i < count && i < SIM_MAX_SYMBOLS; i++) {
        if (strcmp(n->symbols[i].name, name) == 0)
            return i;
    }
    return SIM_NONE;
}

void sim_count_begin(struct sim_node *n, uint32_t symbol)
{
    if (symbol < SIM_MAX_SYMBOLS)
        atomic_fetch_add(&n->symbols[symbol].calls, 1);
}

void sim_count_end(struct sim_node *n, uint32_t symbol, uint64_t took_ns)
{
    if (symbol < SIM_MAX_SYMBOLS)
        atomic_fetch_add(&n->symbols[symbol].total_ns, took_ns);
}

// Start time of a process in clock ticks (field 22 of /proc/PID/stat), 0 when it is gone.
uint64_t sim_pid_started(uint32_t pid)
{
    char path[32], text[1024];
    (void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    const char *at = strrchr(text, ')'); // the name may hold anything
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
        return 0;
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    uint64_t ticks = 0;
    for (at = at ? at + 1 : ""; *at >= '0' && *at <= '9'; at++)
        ticks = ticks * 10 + (uint64_t)(*at - '0');
    return ticks;
}

static bool client_lives(const struct sim_client *c)
{
    uint32_t pid = atomic_load(&c->pid);
    return pid != 0 && sim_pid_started(pid) == atomic_load(&c->started);
}

static struct sim_client *client_find(struct sim_node *n, uint32_t pid)
{
    for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++) {
        if (atomic_load(&n->clients[i].pid) == pid && client_lives(&n->clients[i]))
            return &n->clients[i];
    }
    return NULL;
}

// Takes a free slot, or one of a process that died without closing.
static struct sim_client *client_claim(struct sim_node *n, uint32_t pid)
{
    for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++) {
        struct sim_client *c = &n->clients[i];
        uint32_t old = atomic_load(&c->pid);
        if (old != 0 && client_lives(c))
            continue;
        if (!atomic_compare_exchange_strong(&c->pid, &old, pid))
            continue;
        atomic_store(&c->inits, 0);
        atomic_store(&c->attached, 0);
        atomic_store(&c->started, sim_pid_started(pid));
        return c;
    }
    return NULL;
}

int sim_client_open(struct sim_node *n)
{
    uint32_t pid = (uint32_t)getpid();
    struct sim_client *c = client_find(n, pid);
    if (!c)
        c = client_claim(n, pid);
    if (!c)
        return -1;
    atomic_fetch_add(&c->inits, 1);
    return 0;
}

void sim_client_close(struct sim_node *n)
{
    struct sim_client *c = client_find(n, (uint32_t)getpid());
    if (!c || atomic_load(&c->inits) == 0)
        return;
    if (atomic_fetch_sub(&c->inits, 1) == 1) {
        atomic_store(&c->attached, 0);
        atomic_store(&c->pid, 0);
    }
}

void sim_client_attach(struct sim_node *n, uint32_t gpu)
{
    struct sim_client *c = client_find(n, (uint32_t)getpid());
    if (c)
        atomic_fetch_or(&c->attached, 1u << gpu);
}

uint32_t sim_client_holding(struct sim_node *n, uint32_t gpu)
{
    for (uint32_t i = 0; i < SIM_MAX_CLIENTS; i++) {
        struct sim_client *c = &n->clients[i];
        if (!client_lives(c))
            continue;
        uint32_t attached = atomic_load(&c->attached);
        if (gpu == SIM_NONE ? atomic_load(&c->inits) != 0 : (attached >> gpu & 1) != 0)
            return atomic_load(&c->pid);
    }
    return 0;
}

void sim_event_sleep(struct sim_node *n, uint32_t seen, int timeout_ms)
{
    int ms = timeout_ms > 100 ? 100 : timeout_ms;
    struct timespec ts = {.tv_nsec = ms * NS_PER_MS};
    (void)syscall(SYS_futex, &n->event_futex, FUTEX_WAIT, seen, &ts, NULL, 0);
}

void sim_event_wake(struct sim_node *n)
{
    atomic_fetch_add(&n->event_futex, 1);
    (void)syscall(SYS_futex, &n->event_futex, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}
