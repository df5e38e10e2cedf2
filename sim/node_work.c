// SPDX-License-Identifier: Apache-2.0
// What real processes do on the node's GPUs through the CUDA double: who began, when their kernels
// run, who died. libc only: the doubles link it.
//
// A kernel's time is known when it is queued (nothing here depends on how long a machine takes to
// wake a thread up), so it is written down then; a reader that looks at an earlier time doesn't see
// it yet. An interval that goes on where the last one ended makes that one longer.
#include "node.h"

#include <string.h>
#include <unistd.h>

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static struct sim_busy *newest(struct sim_work *w)
{
    uint32_t count = atomic_load(&w->count);
    return count == 0 ? NULL : &w->ring[(count - 1) % SIM_MAX_BUSY];
}

static void end_process(struct sim_process *p, int64_t t)
{
    int64_t forever = SIM_FOREVER;
    (void)atomic_compare_exchange_strong(&p->end_ns, &forever, t);
}

static bool work_lives(const struct sim_work *w, uint32_t pid)
{
    return pid != 0 && (pid == (uint32_t)getpid() || sim_pid_started(pid) == w->started);
}

void sim_work_reap(struct sim_node *n)
{
    uint32_t slots = atomic_load(&n->work_slots); // each call of NVML's double comes here
    for (uint32_t i = 0; i < slots; i++) {
        struct sim_work *w = &n->works[i];
        uint32_t pid = atomic_load(&w->pid), process = w->process;
        if (pid == 0 || work_lives(w, pid))
            continue;
        // The slot isn't taken anew before it is freed here, so the process is the dead one's.
        if (atomic_compare_exchange_strong(&w->pid, &pid, 0))
            end_process(&n->processes[process], sim_now(n));
    }
}

static uint32_t add_string(struct sim_node *n, const char *text)
{
    uint32_t end = atomic_load(&n->string_bytes);
    for (uint32_t at = 0; at < end; at += (uint32_t)strlen(n->strings + at) + 1) {
        if (strcmp(n->strings + at, text) == 0)
            return at;
    }
    size_t len = strlen(text);
    if (len >= SIM_STRING_BYTES - end)
        return 0;
    memcpy(n->strings + end, text, len + 1);
    atomic_store(&n->string_bytes, end + (uint32_t)len + 1);
    return end;
}

// A slot that was never used, else of the free ones that which ended first: until it is used again
// its history is exact.
static struct sim_work *free_slot(struct sim_node *n)
{
    struct sim_work *best = NULL;
    uint32_t slots = atomic_load(&n->work_slots);
    if (slots < SIM_MAX_WORKS) {
        n->works[slots].process = SIM_NONE;
        atomic_store(&n->work_slots, slots + 1);
        return &n->works[slots];
    }
    int64_t best_end = SIM_FOREVER;
    for (uint32_t i = 0; i < slots; i++) {
        struct sim_work *w = &n->works[i];
        int64_t end = w->process == SIM_NONE ? SIM_ALWAYS // whoever took it died at once
                                             : atomic_load(&n->processes[w->process].end_ns);
        if (atomic_load(&w->pid) == 0 && (!best || end < best_end)) {
            best = w;
            best_end = end;
        }
    }
    return best;
}

// Leaves the sum of a slot's intervals to the process that it was of.
static void fold(struct sim_node *n, struct sim_work *w)
{
    if (w->process == SIM_NONE)
        return;
    struct sim_process *p = &n->processes[w->process];
    end_process(p, sim_now(n));
    atomic_store(&p->busy_ns, sim_work_busy_ns(n, w->process, atomic_load(&p->end_ns)));
    atomic_store(&p->work, 0);
}

uint32_t sim_work_begin(struct sim_node *n, uint32_t gpu, uint32_t instance, const char *name)
{
    sim_work_reap(n);
    uint32_t at = atomic_load(&n->process_count);
    struct sim_work *w = at == SIM_MAX_PROCESSES ? NULL : free_slot(n);
    if (!w)
        return SIM_NONE;
    fold(n, w);
    uint32_t work = (uint32_t)(w - n->works);
    w->process = at;
    w->started = sim_pid_started((uint32_t)getpid());
    atomic_store(&w->count, 0);
    n->processes[at] = (struct sim_process){
        .gpu = gpu,
        .instance = instance,
        .pid = (uint32_t)getpid(),
        .type = SIM_COMPUTE,
        .start_ns = sim_now(n),
        .end_ns = SIM_FOREVER,
        .name = add_string(n, name),
        .load = SIM_NONE,
        .pod = SIM_NONE,
        .container = SIM_NONE,
        .next_on_gpu = atomic_load(&n->gpus[gpu].processes),
        .work = work + 1,
    };
    atomic_store(&w->pid, (uint32_t)getpid());
    atomic_store(&n->process_count, at + 1);
    atomic_store_explicit(&n->gpus[gpu].processes, at, memory_order_release);
    atomic_fetch_add(&n->generation, 1);
    return work;
}

// When the GPU has done what others have claimed of it. What the dead had queued is gone.
static int64_t others_done(struct sim_node *n, uint32_t work, int64_t now)
{
    const struct sim_process *mine = &n->processes[n->works[work].process];
    int64_t done = now;
    for (uint32_t i = 0; i < atomic_load(&n->work_slots); i++) {
        struct sim_work *w = &n->works[i];
        uint32_t pid = atomic_load(&w->pid);
        const struct sim_busy *last = newest(w);
        if (pid == 0 || i == work || !last || atomic_load(&last->to_ns) <= done)
            continue;
        const struct sim_process *p = &n->processes[w->process];
        if (p->gpu == mine->gpu && p->instance == mine->instance && work_lives(w, pid))
            done = atomic_load(&last->to_ns);
    }
    return done;
}

int64_t sim_work_claim(struct sim_node *n, uint32_t work, int64_t earliest_ns, int64_t duration_ns)
{
    struct sim_work *w = &n->works[work];
    struct sim_busy *last = newest(w);
    int64_t begin = max64(others_done(n, work, sim_now(n)), earliest_ns);
    int64_t before = 0;
    if (last) {
        int64_t from = atomic_load(&last->from_ns), to = atomic_load(&last->to_ns);
        begin = max64(begin, to);
        if (begin == to) {
            atomic_store(&last->to_ns, to + duration_ns);
            return begin;
        }
        before = atomic_load(&last->before_ns) + to - from;
    }
    uint32_t count = atomic_load(&w->count);
    struct sim_busy *b = &w->ring[count % SIM_MAX_BUSY];
    atomic_store(&b->from_ns, begin);
    atomic_store(&b->to_ns, begin + duration_ns);
    atomic_store(&b->before_ns, before);
    atomic_store_explicit(&w->count, count + 1, memory_order_release);
    return begin;
}

void sim_work_end(struct sim_node *n, uint32_t work)
{
    struct sim_work *w = &n->works[work];
    end_process(&n->processes[w->process], sim_now(n));
    atomic_store(&w->pid, 0);
    atomic_fetch_add(&n->generation, 1);
}
