// SPDX-License-Identifier: Apache-2.0
// How it works: the shape says how much load is due up to each moment since the start; what was
// measured of it says how much was made. At full load two launches of at most 10 ms are always in
// the GPU's queue, and the last one before an edge is cut to end there. Below, each slice of 10 ms
// begins with the work that is still due at its end, so that errors do not add up; the account
// begins anew at each edge, so that no debt is paid in a phase that is off.
#include "burn/load.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/sv.h"
#include "burn/work.h"

#define SLICE_NS (10 * NS_PER_MS)
#define ROUND_NS (250 * NS_PER_MS) // of work between comparisons
#define DEBT_NS (2 * SLICE_NS)     // of work that could not be made in time, and still will be
#define NAP_NS (50 * NS_PER_MS)    // at most before stop is looked at

struct schedule {
    const struct burn_options *o;
    struct burn_work *work;
    struct burn_progress *progress;
    const volatile int *stop;
    uint64_t start_ns; // of CLOCK_MONOTONIC; all other times are since it
    uint64_t end_ns, edge_ns;
    uint64_t base_ns, base_busy_ns; // where the account begins
    bool closing;                   // the last work before the edge is queued
};

static uint64_t since_start_ns(const struct schedule *s)
{
    uint64_t now = clock_mono_ns();
    return now > s->start_ns ? now - s->start_ns : 0;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

// Until the time, or a signal; not longer than a nap.
static void sleep_until(const struct schedule *s, uint64_t t)
{
    uint64_t now = clock_mono_ns(), wake = least(s->start_ns + t, now + NAP_NS);
    struct timespec at = {.tv_sec = (time_t)(wake / NS_PER_S), .tv_nsec = (long)(wake % NS_PER_S)};
    if (!*s->stop && wake > now)
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

// A comparison: now and then, at the end of a phase, and before results are written over.
static bool round_is_due(const struct schedule *s, bool last)
{
    const struct burn_work *w = s->work;
    return w->written > 0 && (last || w->busy_ns - w->checked_busy_ns >= ROUND_NS ||
                              !burn_work_has_room(w, SLICE_NS));
}

// Keeps the queue full up to the edge. The last piece of a phase leaves room for its comparison.
static enum burn_result step_full(struct schedule *s)
{
    struct burn_work *w = s->work;
    uint64_t now = clock_mono_ns(), edge = s->start_ns + least(s->edge_ns, s->end_ns);
    uint64_t free_at = w->free_at_ns > now && w->job_count > 0 ? w->free_at_ns : now;
    uint64_t room = edge > free_at ? edge - free_at : 0;
    if (w->job_count == BURN_JOBS)
        return burn_work_collect(w);
    if (round_is_due(s, s->closing) && room >= w->check_ns / 2)
        return burn_work_check(w);
    if (room >= SLICE_NS + w->check_ns)
        return burn_work_submit(w, SLICE_NS);
    if (!s->closing && room > w->check_ns + w->quantum_ns / 2) {
        s->closing = true;
        return burn_work_submit(w, room - w->check_ns);
    }
    if (w->job_count > 0)
        return burn_work_collect(w);
    sleep_until(s, edge - s->start_ns);
    return BURN_CLEAN;
}

// What is due at the end of a slice and was not made.
static uint64_t debt_ns(struct schedule *s, uint64_t slice_end)
{
    uint64_t due = burn_due_ns(s->o, slice_end) - burn_due_ns(s->o, s->base_ns);
    uint64_t made = s->work->busy_ns - s->base_busy_ns;
    if (due <= made)
        return 0;
    if (due - made > DEBT_NS) { // the GPU was another's: the rest is let go
        s->base_busy_ns -= least(s->base_busy_ns, due - made - DEBT_NS);
        return DEBT_NS;
    }
    return due - made;
}

static enum burn_result step_partial(struct schedule *s, uint64_t t)
{
    struct burn_work *w = s->work;
    uint64_t slice_end = least((t / SLICE_NS + 1) * SLICE_NS, least(s->edge_ns, s->end_ns));
    enum burn_result r = burn_work_drain(w);
    if (r != BURN_CLEAN)
        return r;
    uint64_t debt = debt_ns(s, slice_end), room = slice_end - t;
    if (debt >= w->check_ns && round_is_due(s, slice_end == s->edge_ns)) {
        r = burn_work_check(w);
        debt -= w->check_ns;
    }
    debt = least(debt, room);
    if (r == BURN_CLEAN && debt > w->quantum_ns / 2)
        r = burn_work_submit(w, debt);
    if (r == BURN_CLEAN)
        r = burn_work_drain(w);
    while (r == BURN_CLEAN && !*s->stop && since_start_ns(s) < slice_end)
        sleep_until(s, slice_end);
    return r;
}

// Nothing to do until an edge, or until a shape that moves all the time has moved.
static enum burn_result step_idle(struct schedule *s, uint64_t t)
{
    bool moves = s->o->shape.kind == BURN_SINE || s->o->shape.kind == BURN_RAMP;
    enum burn_result r = burn_work_drain(s->work);
    if (r == BURN_CLEAN)
        sleep_until(s, least(least(s->edge_ns, s->end_ns), moves ? t + SLICE_NS : UINT64_MAX / 2));
    return r;
}

static enum burn_result step(struct schedule *s, uint64_t t)
{
    const struct burn_shape *shape = &s->o->shape;
    if (t >= s->edge_ns) {
        enum burn_result r = burn_work_drain(s->work);
        if (r != BURN_CLEAN)
            return r;
        s->base_ns = t;
        s->base_busy_ns = s->work->busy_ns;
        s->edge_ns = burn_shape_edge_ns(shape, t);
        s->closing = false;
    }
    bool on = burn_shape_is_on(shape, t);
    uint32_t duty = burn_duty_ppm(s->o, t);
    enum burn_result r =
        on || s->o->hold || duty > 0 ? burn_work_hold(s->work) : burn_work_free(s->work);
    if (r != BURN_CLEAN)
        return r;
    return duty == 0 ? step_idle(s, t) : duty >= BURN_PPM ? step_full(s) : step_partial(s, t);
}

// What was made and not compared yet still is.
static enum burn_result finish(struct burn_work *w)
{
    enum burn_result r = burn_work_drain(w);
    if (r == BURN_CLEAN && w->memory && w->written > 0)
        r = burn_work_check(w);
    if (r == BURN_CLEAN)
        r = burn_work_drain(w);
    return r == BURN_CLEAN ? burn_work_settle(w) : r;
}

static enum burn_result run(struct schedule *s)
{
    s->progress->state = BURN_RUNNING;
    while (!*s->stop && clock_mono_ns() < s->start_ns)
        sleep_until(s, 0);
    if (!*s->stop && s->o->illegal_access)
        return burn_work_fault(s->work);
    enum burn_result r = BURN_CLEAN;
    uint64_t t;
    while (r == BURN_CLEAN && !*s->stop && (t = since_start_ns(s)) < s->end_ns)
        r = step(s, t);
    return r == BURN_CLEAN ? finish(s->work) : r;
}

enum burn_result burn_load_run(const struct burn_options *o, const char *gpu, uint64_t start_ns,
                               const volatile int *stop, struct burn_progress *progress)
{
    struct error err = ERROR_INIT;
    struct burn_work work;
    progress->state = BURN_STARTING;
    enum burn_result r = burn_work_open(&work, o, gpu, progress, &err);
    struct schedule s = {.o = o,
                         .work = &work,
                         .progress = progress,
                         .stop = stop,
                         .start_ns = start_ns,
                         .end_ns = least(burn_end_ns(o), UINT64_MAX / 2)};
    if (r == BURN_CLEAN)
        r = run(&s);
    burn_work_close(&work);
    if (r == BURN_CLEAN && progress->mismatches > 0) {
        (void)error_set(&err, -EIO, "wrong results: %llu words differ",
                        (unsigned long long)progress->mismatches);
        r = BURN_WRONG_RESULTS;
    }
    sv_copy(progress->error, sizeof(progress->error), sv_from(err.text));
    progress->state = BURN_ENDED; // last: who sees it sees the rest
    return r;
}

enum burn_result burn_load_list(const struct burn_options *o, char uuids[BURN_GPUS_MAX][48],
                                uint32_t *count, struct error *err)
{
    struct cuda c;
    int gpus = 0;
    int rc = cuda_open(&c, o->cuda_library, err);
    if (rc == 0)
        rc = cuda_gpu_count(&c, &gpus, err);
    uint32_t n = 0;
    for (int i = 0; rc == 0 && i < gpus && i < BURN_GPUS_MAX; i++) {
        struct cuda_gpu g;
        rc = cuda_gpu_read(&c, i, &g, err);
        if (rc != 0)
            break;
        sv_copy(uuids[n++], sizeof(uuids[0]), sv_from(g.uuid));
        if (o->list)
            (void)printf("%d: %s %s %zu MiB\n", i, g.name, g.uuid, g.memory_bytes >> 20);
    }
    cuda_close(&c);
    if (rc != 0)
        return rc == CUDA_NO_GPU ? BURN_NO_GPU : BURN_DRIVER_ERROR;
    *count = n;
    return BURN_CLEAN;
}
