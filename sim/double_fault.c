// SPDX-License-Identifier: Apache-2.0
#include "double_fault.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

static void sleep_ms(int ms)
{
    struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static bool fault_hits(const struct sim_fault *f, const struct double_call *c)
{
    if (atomic_load(&f->kind) == SIM_FAULT_NONE || atomic_load(&f->left) == 0)
        return false;
    if (f->symbol != SIM_NONE && f->symbol != c->symbol)
        return false;
    if (f->gpu != SIM_NONE && f->gpu != c->gpu)
        return false;
    return f->from_ns <= c->t && c->t < f->until_ns;
}

// A thread stuck in the kernel: no signal reaches it, and it goes on when the driver does.
static void hang(const struct sim_node *n, const struct sim_fault *f)
{
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &old);
    while (atomic_load(&f->kind) == SIM_FAULT_HANG && sim_now(n) < f->until_ns)
        sleep_ms(20);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void crash(void)
{
    (void)signal(SIGSEGV, SIG_DFL);
    (void)raise(SIGSEGV);
}

static bool fault_take(struct sim_fault *f)
{
    int64_t left = atomic_load(&f->left);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&f->left, &left, left - 1))
            return true;
    }
    return left < 0;
}

void double_meet_faults(struct double_call *c)
{
    uint32_t count = atomic_load(&c->node->fault_slots);
    for (uint32_t i = 0; i < count; i++) {
        struct sim_fault *f = &c->node->faults[i];
        if (!fault_hits(f, c) || !fault_take(f))
            continue;
        switch ((enum sim_fault_kind)atomic_load(&f->kind)) {
        case SIM_FAULT_NONE:
            break;
        case SIM_FAULT_DELAY:
            sleep_ms(f->value);
            c->t = sim_now(c->node);
            break;
        case SIM_FAULT_RETURN:
            c->code = f->value;
            break;
        case SIM_FAULT_HANG:
            hang(c->node, f);
            c->t = sim_now(c->node);
            break;
        case SIM_FAULT_CRASH:
            crash();
            break;
        case SIM_FAULT_DROP:
            c->dropped = true;
            break;
        }
    }
}
