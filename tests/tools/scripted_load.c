// SPDX-License-Identifier: Apache-2.0
// In place of the load on a driver: SCRIPTED_GPUS GPUs (default 2), on which the shape is played on
// the clock alone. SCRIPTED_LOAD tells what goes wrong on GPU 1: mismatch, no-memory, crash (a
// signal), hang (does not stop), no-driver (the list fails), hang-list.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/num.h"
#include "burn/load.h"
#include "burn/record.h"

static bool scripted(const char *what)
{
    const char *found = getenv("SCRIPTED_LOAD");
    return found && strcmp(found, what) == 0;
}

static void wait_ns(uint64_t ns)
{
    struct timespec t = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
    (void)nanosleep(&t, NULL);
}

enum burn_result burn_load_list(const struct burn_options *o, char uuids[BURN_GPUS_MAX][48],
                                uint32_t *count, struct error *err)
{
    uint64_t gpus = 2;
    const char *text = getenv("SCRIPTED_GPUS");
    while (scripted("hang-list"))
        wait_ns(NS_PER_S);
    if (scripted("no-driver")) {
        (void)error_set(err, -ENOENT, "libcuda.so.1 is not there");
        return BURN_DRIVER_ERROR;
    }
    if (text && num_parse_u64(sv_from(text), 0, BURN_GPUS_MAX, &gpus) < 0)
        abort();
    for (uint32_t i = 0; i < gpus; i++) {
        snprintf(uuids[i], sizeof(uuids[i]), "GPU-00000000-0000-0000-0000-%012x", i);
        if (o->list)
            printf("%u: Scripted %s 1024 MiB\n", i, uuids[i]);
    }
    *count = (uint32_t)gpus;
    return BURN_CLEAN;
}

static enum burn_result fail_on_purpose(struct burn_progress *p)
{
    if (scripted("mismatch"))
        p->mismatches = 7;
    if (scripted("crash"))
        (void)raise(SIGKILL);
    while (scripted("hang"))
        wait_ns(NS_PER_S);
    if (!scripted("no-memory"))
        return BURN_CLEAN;
    snprintf(p->error, sizeof(p->error), "%s", "8192 MiB wanted, 512 MiB free");
    return BURN_DRIVER_ERROR;
}

static void play(const struct burn_options *o, uint64_t t_ns, struct burn_progress *p)
{
    p->busy_ns = burn_due_ns(o, t_ns);
    p->operations = p->busy_ns * 10000;
    p->rounds = p->busy_ns / (50 * NS_PER_MS);
    p->memory_bytes = burn_shape_is_on(&o->shape, t_ns) || o->hold ? UINT64_C(1) << 30 : 0;
}

enum burn_result burn_load_run(const struct burn_options *o, const char *gpu, uint64_t start_ns,
                               const volatile int *stop, struct burn_progress *p)
{
    uint64_t most_ns = burn_end_ns(o), now_ns;
    snprintf(p->name, sizeof(p->name), "%s", "Scripted \"X1\"");
    snprintf(p->uuid, sizeof(p->uuid), "GPU-00000000-0000-0000-0000-%012x", (unsigned)gpu[0] - '0');
    enum burn_result r = strcmp(gpu, "1") == 0 ? fail_on_purpose(p) : BURN_CLEAN;
    while (r == BURN_CLEAN && !*stop && (now_ns = clock_mono_ns()) < start_ns)
        wait_ns(NS_PER_MS);
    p->state = BURN_RUNNING;
    while (r == BURN_CLEAN && !*stop && (now_ns = clock_mono_ns() - start_ns) < most_ns) {
        play(o, now_ns, p);
        wait_ns(NS_PER_MS);
    }
    if (r == BURN_CLEAN && !*stop)
        play(o, most_ns, p);
    p->state = BURN_ENDED;
    return r;
}
