// SPDX-License-Identifier: Apache-2.0
// A series becomes a member of a group, once when it appears.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/sinks/emf_internal.h"
#include "base/limits.h"
#include "base/map.h"

// A sum of many observations, or the number of them.
static bool is_cumulative(const struct sink_series *s)
{
    if (s->type == PARSE_TYPE_COUNTER)
        return true;
    return s->type == PARSE_TYPE_SUMMARY &&
           (sv_ends_with(s->name, SV("_count")) || sv_ends_with(s->name, SV("_sum")));
}

static unsigned resolution(const struct emf_target *t)
{
    const struct cw_config *c = t->emf->plan->config;
    if (c->aggregate_ns)
        return 60;
    if (c->storage_resolution)
        return c->storage_resolution;
    return t->is_fast && !c->compat ? 1 : 60;
}

// --- What CloudWatch bills: each name with each tuple of dimension values ---

static int add_tuple(struct buf *b, const struct emf_member *m, const struct cw_dimension_set *set)
{
    const char *ns = m->group->plan->config->metric_namespace;
    buf_reset(b);
    buf_add_str(b, ns ? ns : "");
    buf_add_char(b, '\0');
    buf_add_sv(b, m->metric->name);
    for (size_t i = 0; i < set->count; i++) {
        const struct emf_pair *pair = emf_group_find(m->group, set->names[i]);
        buf_add_char(b, '\0');
        buf_add_sv(b, pair->written);
        buf_add_char(b, '=');
        buf_add_sv(b, pair->value);
    }
    return b->error;
}

// Where memory is short, one is not counted and later not taken away.
static void tally_member(struct emf *e, const struct emf_member *m,
                         void (*change)(struct tally *, uint64_t))
{
    for (size_t i = 0; i < m->rule->set_count; i++) {
        if (add_tuple(&e->scratch, m, m->rule->sets[i]) == 0)
            change(&e->custom_metrics, map_hash(buf_sv(&e->scratch)));
    }
}

// --- Members of a group ---

static uint32_t member_position(const struct emf_group *g, struct sv name, bool *found)
{
    uint32_t low = 0, high = g->member_count;
    *found = false;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = sv_compare(g->members[middle]->metric->name, name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int insert_member(struct emf_group *g, uint32_t at, struct emf_member *m)
{
    if (g->member_count == LIMIT_EMF_GROUP_METRICS)
        return -E2BIG;
    if (g->member_count == g->member_capacity) {
        uint32_t capacity = g->member_capacity ? g->member_capacity * 2 : 1;
        struct emf_member **more = reallocarray(g->members, capacity, sizeof(*more));
        if (!more)
            return -ENOMEM;
        g->members = more;
        g->member_capacity = capacity;
    }
    memmove(&g->members[at + 1], &g->members[at], (g->member_count - at) * sizeof(*g->members));
    g->members[at] = m;
    g->member_count++;
    return 0;
}

// Takes over the references to group and metric.
static int member_new(struct emf_group *g, struct emf_metric *metric, struct emf_rule *rule,
                      struct emf_member **out)
{
    bool found;
    uint32_t at = member_position(g, metric->name, &found);
    assert(!found);
    int r = emf_list_reserve(g->target->emf, (size_t)g->member_count + 1);
    struct emf_member *m = r < 0 ? NULL : malloc(sizeof(*m));
    if (!m)
        return -ENOMEM;
    *m = (struct emf_member){.group = g,
                             .metric = metric,
                             .rule = rule,
                             .refs = 1,
                             .scrape = g->target->scrape - 1,
                             .fate = EMF_SENT};
    r = insert_member(g, at, m);
    if (r < 0) {
        free(m);
        return r;
    }
    if (g->plan->config->compat && emf_group_find(g, metric->name))
        g->shadows = true;
    tally_member(g->target->emf, m, tally_add);
    *out = m;
    return 0;
}

// The state that a new member starts with.
static void start_state(struct emf *e, struct emf_member *m, const struct sink_series *s)
{
    const struct emf_member *old = s->replaces;
    const struct regex *from_zero = e->plan->config->counters_from_zero;
    m->type = (uint8_t)s->type;
    m->is_delta = is_cumulative(s);
    if (old && old->fate == EMF_SENT && old->is_delta && m->is_delta) {
        m->previous = old->previous;
        m->has_previous = old->has_previous;
        m->from_zero = old->from_zero;
        m->time_ms = old->time_ms;
    } else if (s->is_new && m->is_delta && from_zero) {
        m->from_zero = regex_matches(from_zero, s->name);
    }
}

static struct emf_member *existing(const struct emf_group *g, const struct emf_metric *metric)
{
    bool found;
    uint32_t at = member_position(g, metric->name, &found);
    return found ? g->members[at] : NULL;
}

// References to group and metric are taken over when 0. *out &e->unmatched: nothing is sent of it.
static int join(struct emf *e, struct emf_group *g, struct emf_metric *metric,
                const struct sink_series *s, struct emf_member **out)
{
    struct emf_rule *rule = NULL;
    struct emf_member *m = existing(g, metric);
    int r = 0;
    if (!m) {
        r = emf_rule_get(e, g, metric, &rule);
        if (r < 0)
            return r;
        e->stats.bad_dimensions += rule->bad_sets;
    }
    if (!m && (rule->set_count || !g->plan->drops_unmatched)) {
        r = member_new(g, metric, rule, out);
        if (r == 0)
            start_state(e, *out, s);
        return r;
    }
    if (m)
        m->refs++;
    emf_metric_unref(g->plan, metric);
    emf_group_release(g);
    *out = m ? m : &e->unmatched;
    return 0;
}

int emf_member_get(struct emf_target *t, const struct sink_series *s, struct emf_member **out)
{
    struct emf *e = t->emf;
    struct emf_plan *p = e->plan;
    struct emf_metric *metric = NULL;
    struct emf_group *g = NULL;
    struct emf_metric_wanted wanted = {s->name, resolution(t)};
    int r = emf_metric_get(e, &wanted, &metric);
    if (r < 0)
        return r;
    if (!metric->selected && p->drops_unmatched) {
        emf_metric_unref(p, metric);
        *out = &e->unmatched;
        return 0;
    }
    e->stats.renamed += metric->renamed;
    r = emf_group_get(t, s, metric, &g);
    if (r < 0) {
        emf_metric_unref(p, metric);
        return r;
    }
    r = join(e, g, metric, s, out);
    if (r < 0) {
        emf_metric_unref(p, metric);
        emf_group_release(g);
    }
    return r;
}

void emf_member_unref(struct emf_member *m)
{
    if (m->fate == EMF_PART) {
        emf_part_unref(m);
        return;
    }
    if (m->fate != EMF_SENT || --m->refs)
        return;
    struct emf_group *g = m->group;
    bool found;
    if (m->values && m->values->count)
        emf_window_send(g);
    tally_member(g->target->emf, m, tally_remove);
    uint32_t at = member_position(g, m->metric->name, &found);
    assert(found && g->members[at] == m);
    g->member_count--;
    memmove(&g->members[at], &g->members[at + 1], (g->member_count - at) * sizeof(*g->members));
    emf_metric_unref(g->plan, m->metric);
    free(m->values);
    emf_histogram_free(m->histogram);
    free(m);
    emf_group_release(g);
}
