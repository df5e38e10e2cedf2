// SPDX-License-Identifier: Apache-2.0
// A group that is given again makes its new targets before its old ones go: those that are the same
// never die in between.
#include <errno.h>
#include <stdlib.h>

#include "agent/scrape_internal.h"
#include "base/limits.h"
#include "base/log.h"

static struct outcome make_target(struct scraper *s, struct scrape_job *job,
                                  const struct target_spec *spec)
{
    struct hash128 id = target_identity(spec, s->identity_seed);
    struct scrape_target *t = scrape_target_find(job, id);
    if (t) {
        scrape_target_set_times(t, spec);
    } else {
        if (s->target_count >= LIMIT_TARGETS || scrape_target_new(job, s, spec, id) < 0)
            return (struct outcome){.kind = OUTCOME_LIMITED};
        t = scrape_target_find(job, id);
    }
    t->providers++;
    return (struct outcome){.kind = OUTCOME_TARGET, .target = t};
}

static struct outcome make_outcome(struct scraper *s, struct scrape_job *job,
                                   const struct labels *found)
{
    struct target_spec spec;
    struct error err = ERROR_INIT;
    arena_reset(&s->build);
    int r = target_build(job->config, found, &s->build, &spec, &err);
    if (r == 0)
        return make_target(s, job, &spec);
    if (r == TARGET_DROPPED)
        return (struct outcome){.kind = OUTCOME_DROPPED};
    if (r != -EINVAL)
        return (struct outcome){.kind = OUTCOME_LIMITED};
    return (struct outcome){.kind = OUTCOME_INVALID, .reason = sv_dup(sv_from(err.text))};
}

static struct outcome *make_outcomes(struct scraper *s, struct scrape_job *job,
                                     const struct target_group *group)
{
    struct outcome *outcomes = calloc(group->count ? group->count : 1, sizeof(*outcomes));
    const char *reason = NULL;
    size_t invalid = 0, limited = 0;
    for (size_t i = 0; outcomes && i < group->count; i++) {
        outcomes[i] = make_outcome(s, job, &group->targets[i]);
        limited += outcomes[i].kind == OUTCOME_LIMITED;
        invalid += outcomes[i].kind == OUTCOME_INVALID;
        if (outcomes[i].reason)
            reason = outcomes[i].reason;
    }
    if (invalid)
        log_warn("targets left out that relabelling made unusable", LOG_LIMIT(job->config->name),
                 LOG_STR("job", job->config->name), LOG_U64("targets", invalid),
                 LOG_STR("error", reason ? reason : ""));
    if (limited)
        log_error("targets left out: more than this program takes, or no memory for them",
                  LOG_LIMIT(job->config->name), LOG_STR("job", job->config->name),
                  LOG_U64("targets", limited), LOG_U64("most", LIMIT_TARGETS));
    return outcomes;
}

static void release_outcomes(struct outcome *outcomes, size_t count)
{
    for (size_t i = 0; outcomes && i < count; i++) {
        struct scrape_target *t = outcomes[i].target;
        free(outcomes[i].reason);
        if (t && --t->providers == 0)
            scrape_target_free(t);
    }
    free(outcomes);
}

static void drop(struct scrape_job *job, struct scrape_group *g)
{
    (void)map_remove(&job->groups, sv_from(g->source));
    if (g->previous)
        g->previous->next = g->next;
    else
        job->first_group = g->next;
    if (g->next)
        g->next->previous = g->previous;
    release_outcomes(g->outcomes, g->group->count);
    target_group_unref(g->group);
    free(g);
}

static int add_group(struct scrape_job *job, struct sv source, struct target_group *group,
                     struct outcome *outcomes)
{
    struct scrape_group *g = calloc(1, sizeof(*g) + source.len + 1);
    if (!g)
        return -ENOMEM;
    *g = (struct scrape_group){.group = group, .outcomes = outcomes, .next = job->first_group};
    sv_copy(g->source, source.len + 1, source);
    if (map_put(&job->groups, source, g, NULL) < 0) {
        free(g);
        return -ENOMEM;
    }
    if (g->next)
        g->next->previous = g;
    job->first_group = g;
    return 0;
}

static void replace_group(struct scrape_group *g, struct target_group *group,
                          struct outcome *outcomes)
{
    struct outcome *old_outcomes = g->outcomes;
    struct target_group *old = g->group;
    g->group = group;
    g->outcomes = outcomes;
    g->is_old = false;
    release_outcomes(old_outcomes, old->count);
    target_group_unref(old);
}

int scrape_group_set(struct scraper *s, struct scrape_job *job, struct sv source,
                     struct target_group *group)
{
    struct scrape_group *g = map_find(&job->groups, source);
    if (!group) {
        if (g)
            drop(job, g);
        return 0;
    }
    struct outcome *outcomes = make_outcomes(s, job, group);
    int r = outcomes ? 0 : -ENOMEM;
    if (r == 0 && g)
        replace_group(g, group, outcomes);
    else if (r == 0)
        r = add_group(job, source, group, outcomes);
    if (r < 0) {
        release_outcomes(outcomes, group->count);
        target_group_unref(group);
    }
    return r;
}

void scrape_group_remake(struct scraper *s, struct scrape_job *job)
{
    for (struct scrape_group *g = job->first_group; g; g = g->next) {
        struct outcome *old = g->outcomes;
        g->outcomes = make_outcomes(s, job, g->group);
        g->is_old = true;
        release_outcomes(old, g->group->count);
    }
}

void scrape_group_drop(struct scrape_job *job, bool only_old)
{
    struct scrape_group *next;
    for (struct scrape_group *g = job->first_group; g; g = next) {
        next = g->next;
        if (!only_old || g->is_old)
            drop(job, g);
    }
}
