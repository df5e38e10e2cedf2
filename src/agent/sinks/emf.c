// SPDX-License-Identifier: Apache-2.0
// The sink's operations. A sample is put into its member, its group onto the list of those that the
// scrape touched; at the scrape's end each group on it becomes an event.
#include "agent/sinks/emf.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/sinks/emf_internal.h"
#include "base/clock.h"
#include "base/limits.h"

// --- Targets ---

static int target_new(void *sink, const struct sink_target *target, void **out_target)
{
    struct emf *e = sink;
    struct emf_target *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    // The agent forgets what a counter was after five minutes, which with longer intervals is
    // always.
    int64_t three = (int64_t)(target->interval_ns / NS_PER_MS) * 3;
    t->ttl_compat_ms = 5 * 60 * 1000;
    t->ttl_ms = three > t->ttl_compat_ms ? three : t->ttl_compat_ms;
    t->interval_ns = target->interval_ns;
    t->is_fast = target->interval_ns < 60 * NS_PER_S;
    t->emf = e;
    t->next = e->targets;
    if (e->targets)
        e->targets->previous = t;
    e->targets = t;
    *out_target = t;
    return 0;
}

static void target_free(void *target)
{
    struct emf_target *t = target;
    *(t->previous ? &t->previous->next : &t->emf->targets) = t->next;
    if (t->next)
        t->next->previous = t->previous;
    intern_deinit(&t->groups);
    free(t);
}

// --- Series ---

static bool is_sent(enum parse_type type)
{
    return type == PARSE_TYPE_GAUGE || type == PARSE_TYPE_COUNTER || type == PARSE_TYPE_SUMMARY;
}

static int series_new(void *target, const struct sink_series *s, void **out_series)
{
    struct emf_target *t = target;
    struct emf *e = t->emf;
    struct emf_member *m = NULL;
    if (s->is_internal) {
        *out_series = NULL;
        return 0;
    }
    bool is_part = s->type == PARSE_TYPE_HISTOGRAM && e->plan->config->histograms;
    if (!is_sent(s->type) && !is_part) {
        *out_series = &e->by_type[s->type];
        return 0;
    }
    int r = is_part ? emf_part_get(t, s, &m) : emf_member_get(t, s, &m);
    arena_reset(&e->arena);
    if (r == -E2BIG) { // too much to keep: its samples are counted
        *out_series = &e->no_memory;
        return 0;
    }
    if (r == 0)
        *out_series = m;
    return r;
}

static void series_free(void *target, void *series)
{
    if (series)
        emf_member_unref(series);
}

// --- Samples ---

static void begin(void *target, int64_t scrape_ms)
{
    struct emf_target *t = target;
    t->scrape_ms = scrape_ms;
    t->scrape++;
    t->touched = NULL;
    t->touched_end = &t->touched;
    t->error = 0;
}

static void count_unsent(struct emf *e, const struct emf_member *m)
{
    switch ((enum emf_fate)m->fate) {
    case EMF_WRONG_TYPE:
        e->stats.dropped_type[m->type]++;
        break;
    case EMF_UNMATCHED:
        e->stats.dropped_unmatched++;
        break;
    case EMF_NO_MEMORY:
        e->stats.dropped_memory++;
        break;
    case EMF_SENT:
    case EMF_PART:
        break;
    }
}

static void touch(struct emf_target *t, struct emf_group *g, int64_t time_ms)
{
    if (g->scrape == t->scrape) {
        // The agent takes the timestamp of the first for all.
        g->mixed |= time_ms != g->time_ms && !g->plan->config->compat;
        return;
    }
    g->scrape = t->scrape;
    g->time_ms = time_ms;
    g->mixed = false;
    g->next_touched = NULL;
    *t->touched_end = g;
    t->touched_end = &g->next_touched;
}

static void sample(void *target, void *series, double value, int64_t timestamp_ms)
{
    struct emf_target *t = target;
    struct emf_member *m = series;
    struct emf *e = t->emf;
    e->stats.samples++;
    if (m->fate != EMF_SENT && m->fate != EMF_PART) {
        count_unsent(e, m);
        return;
    }
    bool again = m->scrape == t->scrape;
    if (again && (m->fate == EMF_PART || !m->group->plan->config->compat)) {
        e->stats.dropped_duplicate++;
        return;
    }
    if (!emf_value_take(t, m, &value, timestamp_ms))
        return;
    e->stats.dropped_duplicate += again; // the one before it
    m->value = value;
    m->scrape = t->scrape;
    touch(t, m->group, timestamp_ms);
}

static void stale(void *target, void *series)
{
    struct emf_member *m = series;
    // The agent takes the stale marker for any other NaN.
    if (m->group && m->group->plan->config->compat)
        m->has_previous = m->from_zero = false;
}

static int end(void *target)
{
    struct emf_target *t = target;
    for (struct emf_group *g = t->touched; g; g = g->next_touched) {
        int r = g->plan->config->aggregate_ns ? emf_window_add(g) : emf_group_send(g);
        if (t->error == 0)
            t->error = r;
    }
    t->touched = NULL;
    return t->error;
}

static const struct sink_ops ops = {
    .target_new = target_new,
    .target_free = target_free,
    .series_new = series_new,
    .series_free = series_free,
    .begin = begin,
    .sample = sample,
    .stale = stale,
    .end = end,
};

// --- The sink ---

int emf_new(struct cw_config *config, const struct emf_options *o, struct emf **out)
{
    struct emf *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    e->event = o->event;
    e->user = o->user;
    e->arena = ARENA_INIT(LIMIT_EMF_SERIES_BYTES);
    e->text = BUF_INIT(LIMIT_EMF_TEXT_BYTES);
    e->scratch = BUF_INIT(LIMIT_EMF_SERIES_BYTES);
    for (size_t i = 0; i < ARRAY_SIZE(e->by_type); i++)
        e->by_type[i] = (struct emf_member){.fate = EMF_WRONG_TYPE, .type = (uint8_t)i};
    e->unmatched.fate = EMF_UNMATCHED;
    e->no_memory.fate = EMF_NO_MEMORY;
    e->hostname = o->hostname ? sv_dup(sv_from(o->hostname)) : NULL;
    if ((o->hostname && !e->hostname) || emf_plan_new(config, o->cluster, &e->plan) < 0) {
        emf_free(e);
        return -ENOMEM;
    }
    *out = e;
    return 0;
}

int emf_set_config(struct emf *e, struct cw_config *config, const char *cluster)
{
    struct emf_plan *p = NULL;
    int r = emf_plan_new(config, cluster, &p);
    if (r < 0)
        return r;
    emf_plan_unref(e->plan);
    e->plan = p;
    return 0;
}

struct sink emf_sink(struct emf *e)
{
    return (struct sink){&ops, e};
}

void emf_get_stats(const struct emf *e, struct emf_stats *out)
{
    *out = e->stats;
    out->custom_metrics = e->custom_metrics.count;
}

void emf_free(struct emf *e)
{
    if (!e)
        return;
    emf_plan_unref(e->plan);
    intern_deinit(&e->pairs);
    tally_deinit(&e->custom_metrics);
    arena_deinit(&e->arena);
    buf_deinit(&e->text);
    buf_deinit(&e->scratch);
    free(e->hostname);
    free(e->list);
    free(e);
}
