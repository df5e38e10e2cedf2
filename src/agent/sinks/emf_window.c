// SPDX-License-Identifier: Apache-2.0
// Aggregation: the values of a window of whole minutes wait with their members and go out as one
// event of arrays, stamped with the window's start. A member with as many values as one event may
// have sends its group's early.
#include <errno.h>
#include <stdlib.h>

#include "agent/sinks/emf_internal.h"
#include "base/clock.h"
#include "base/limits.h"

static int64_t window_of(const struct emf_plan *p, int64_t time_ms)
{
    int64_t length = (int64_t)(p->config->aggregate_ns / NS_PER_MS);
    int64_t past = time_ms % length;
    return time_ms - (past < 0 ? past + length : past);
}

static int keep_value(struct emf_member *m)
{
    uint32_t count = m->values ? m->values->count : 0;
    if (!m->values || count == m->values->capacity) {
        uint32_t capacity = count ? count * 2 : 8;
        if (capacity > LIMIT_EMF_VALUES)
            capacity = LIMIT_EMF_VALUES;
        struct emf_values *more =
            realloc(m->values, sizeof(*more) + capacity * sizeof(more->items[0]));
        if (!more)
            return -ENOMEM;
        more->count = count;
        more->capacity = capacity;
        m->values = more;
    }
    m->values->items[m->values->count++] = m->value;
    return 0;
}

// A member that has values, in this or another window than its group's: then that one is sent.
static int add_member(struct emf_group *g, struct emf_member *m, int64_t time_ms)
{
    struct emf *e = g->target->emf;
    int64_t window = window_of(g->plan, time_ms);
    if (g->waiting &&
        (window != g->window_ms || (m->values && m->values->count == LIMIT_EMF_VALUES)))
        emf_window_send(g);
    g->window_ms = window;
    if (m->histogram) {
        uint32_t samples = emf_histogram_add(m);
        g->waiting += samples;
        e->stats.waiting += samples;
        return 0;
    }
    if (keep_value(m) < 0) {
        e->stats.dropped_memory++;
        return -ENOMEM;
    }
    g->waiting++;
    e->stats.waiting++;
    return 0;
}

int emf_window_add(struct emf_group *g)
{
    int result = 0;
    for (uint32_t i = 0; i < g->member_count; i++) {
        struct emf_member *m = g->members[i];
        if (m->scrape != g->target->scrape)
            continue;
        int r = add_member(g, m, g->plan->config->compat ? g->time_ms : m->time_ms);
        if (result == 0)
            result = r;
    }
    return result;
}

static bool has_piece(const struct emf_member *m, uint32_t piece)
{
    if (m->histogram)
        return m->histogram->bar_count > piece * LIMIT_EMF_VALUES;
    return piece == 0 && m->values && m->values->count;
}

static void close_histograms(struct emf_group *g)
{
    for (uint32_t i = 0; i < g->member_count; i++) {
        struct emf_member *m = g->members[i];
        if (!m->histogram)
            continue;
        emf_histogram_close(m);
        if (m->histogram->bar_count == 0)
            g->target->emf->stats.dropped_empty += m->histogram->waiting;
    }
}

static void empty_window(struct emf_group *g)
{
    for (uint32_t i = 0; i < g->member_count; i++) {
        if (g->members[i]->histogram)
            emf_histogram_open(g->members[i]);
        if (g->members[i]->values)
            g->members[i]->values->count = 0;
    }
    g->target->emf->stats.waiting -= g->waiting;
    g->waiting = 0;
}

void emf_window_send(struct emf_group *g)
{
    struct emf *e = g->target->emf;
    struct emf_batch b = {.members = e->list, .time_ms = g->window_ms, .values = true};
    close_histograms(g);
    do {
        b.count = 0;
        for (uint32_t i = 0; i < g->member_count; i++) {
            if (has_piece(g->members[i], b.piece))
                e->list[b.count++] = g->members[i];
        }
        emf_batch_send(g, &b);
        b.piece++;
    } while (b.count);
    empty_window(g);
}

static void flush_target(struct emf_target *t, int64_t now_ms, bool final)
{
    for (struct emf_group *g = t->first; g; g = g->next) {
        if (g->waiting && (final || window_of(g->plan, now_ms) > g->window_ms))
            emf_window_send(g);
    }
}

void emf_flush(struct emf *e, int64_t now_ms, bool final)
{
    for (struct emf_target *t = e->targets; t; t = t->next)
        flush_target(t, now_ms, final);
}
