// SPDX-License-Identifier: Apache-2.0
// Looking at a scraper. Targets are shown with the label set that makes them; where several do,
// with the first that is met.
#include <stdlib.h>

#include "agent/scrape_internal.h"
#include "base/limits.h"

struct tour {
    struct arena arena; // for what is shown
    void (*each)(void *user, const struct target_view *t);
    void *user;
    uint64_t dropped_shown; // of this job
};

static void show_target(struct tour *tour, struct scrape_target *t, const struct labels *found)
{
    if (t->is_shown)
        return;
    t->is_shown = true;
    const struct target_view view = {
        .job = t->job->config->name,
        .url = t->shown_url,
        .labels = &t->labels,
        .discovered = found,
        .health = t->health,
        .error = t->error ? t->error : "",
        .last_scrape_ms = t->last_scrape_ms,
        .last_duration_ns = t->last_duration_ns,
        .last = t->last,
        .interval_ns = t->interval_ns,
        .timeout_ns = t->timeout_ns,
    };
    tour->each(tour->user, &view);
}

static void show_rest(struct tour *tour, const struct scrape_job *job, const struct outcome *o,
                      const struct labels *found)
{
    static const struct labels none;
    uint64_t most = job->config->keep_dropped_targets;
    if (o->kind == OUTCOME_DROPPED && most && tour->dropped_shown++ >= most)
        return;
    const struct target_view view = {
        .job = job->config->name,
        .url = "",
        .labels = &none,
        .discovered = found,
        .health = o->kind == OUTCOME_DROPPED ? TARGET_UNKNOWN : TARGET_DOWN,
        .error = o->kind == OUTCOME_DROPPED   ? ""
                 : o->kind == OUTCOME_LIMITED ? "too many targets, or no memory for it"
                 : o->reason                  ? o->reason
                                              : "unusable",
        .is_dropped = true,
    };
    tour->each(tour->user, &view);
}

static void hide_secrets(struct labels *found)
{
    for (size_t i = 0; i < found->count; i++) {
        struct label *l = &found->items[i];
        if (sv_starts_with(l->name, SV("__param_")) && target_looks_secret(l->name))
            l->value = SV(TARGET_HIDDEN);
    }
}

static void show_group(struct tour *tour, const struct scrape_job *job,
                       const struct scrape_group *g)
{
    for (size_t i = 0; g->outcomes && i < g->group->count; i++) {
        const struct outcome *o = &g->outcomes[i];
        struct labels found;
        arena_reset(&tour->arena);
        labels_init(&found, &tour->arena);
        if (target_discovered(job->config, &g->group->targets[i], &found) < 0)
            found = (struct labels){0};
        hide_secrets(&found);
        if (o->target)
            show_target(tour, o->target, &found);
        else
            show_rest(tour, job, o, &found);
    }
}

void scraper_each_target(const struct scraper *s,
                         void (*each)(void *user, const struct target_view *t), void *user)
{
    struct tour tour = {.arena = ARENA_INIT(LIMIT_TARGET_BUILD_BYTES), .each = each, .user = user};
    for (size_t i = 0; s->config && i < s->config->job_count; i++) {
        tour.dropped_shown = 0;
        for (struct scrape_target *t = s->jobs[i].first; t; t = t->next)
            t->is_shown = false;
        for (struct scrape_group *g = s->jobs[i].first_group; g; g = g->next)
            show_group(&tour, &s->jobs[i], g);
    }
    arena_deinit(&tour.arena);
}

static void count_group(const struct scrape_group *g, struct scraper_stats *out)
{
    for (size_t i = 0; g->outcomes && i < g->group->count; i++) {
        switch (g->outcomes[i].kind) {
        case OUTCOME_TARGET:
            break;
        case OUTCOME_DROPPED:
            out->dropped++;
            break;
        case OUTCOME_INVALID:
            out->invalid++;
            break;
        case OUTCOME_LIMITED:
            out->limited++;
            break;
        }
    }
}

static void count_job(const struct scrape_job *job, struct scraper_stats *out)
{
    for (struct scrape_target *t = job->first; t; t = t->next) {
        out->up += t->health == TARGET_UP;
        out->down += t->health == TARGET_DOWN;
        out->series += t->series ? series_table_count(t->series) : 0;
    }
    for (struct scrape_group *g = job->first_group; g; g = g->next)
        count_group(g, out);
    out->targets += job->targets.count;
    if (scrape_is_over_limit(job))
        out->limited += job->targets.count - job->config->target_limit;
}

void scraper_get_stats(const struct scraper *s, struct scraper_stats *out)
{
    *out = (struct scraper_stats){
        .scrapes = s->scrapes,
        .failures = s->failures,
        .skipped = s->skipped,
        .samples = s->samples,
        .duplicates = s->duplicates,
        .unusable = s->unusable,
        .bytes = s->bytes,
    };
    for (size_t i = 0; s->config && i < s->config->job_count; i++)
        count_job(&s->jobs[i], out);
}
