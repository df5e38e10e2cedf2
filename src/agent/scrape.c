// SPDX-License-Identifier: Apache-2.0
// Owns jobs and what they share. A new configuration takes over the groups and targets of jobs of
// the same name; their targets are made anew by its rules, and what comes out as it was stays the
// same target.
#include "agent/scrape.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/scrape_internal.h"
#include "agent/scrape_protocol.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/log.h"

#define ACCEPT_BYTES 4096

// Machines that run the same configuration do not ask a target at the same moment.
static uint64_t host_seed(void)
{
    char name[256] = "";
    if (gethostname(name, sizeof(name) - 1) < 0)
        return 0;
    return map_siphash13(0, 0, sv_from(name));
}

static void tell_done(void *user)
{
    struct scraper *s = user;
    if (!s->is_stopped && s->options.all_done)
        s->options.all_done(s->options.user);
}

int scraper_new(const struct scraper_options *o, struct scraper **out)
{
    struct scraper *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->options = *o;
    s->build = ARENA_INIT(LIMIT_TARGET_BUILD_BYTES);
    s->identity_seed = hash_seed();
    s->offset_seed = host_seed();
    s->sinks = calloc(o->sink_count ? o->sink_count : 1, sizeof(*s->sinks));
    if (!s->sinks || loop_timer_new(o->loop, tell_done, s, &s->done_timer) < 0) {
        scraper_free(s);
        return -ENOMEM;
    }
    if (o->sink_count)
        memcpy(s->sinks, o->sinks, o->sink_count * sizeof(*s->sinks));
    s->options.sinks = s->sinks;
    *out = s;
    return 0;
}

// --- Jobs ---

static void job_deinit(struct scrape_job *job)
{
    scrape_group_drop(job, false);
    map_deinit(&job->groups);
    map_deinit(&job->targets);
    free(job->accept);
}

static void jobs_free(struct scrape_job *jobs, size_t count)
{
    for (size_t i = 0; jobs && i < count; i++)
        job_deinit(&jobs[i]);
    free(jobs);
}

static int job_init(struct scrape_job *job, const struct prom_job *config)
{
    cleanup(buf_deinit) struct buf accept = BUF_INIT(ACCEPT_BYTES);
    buf_add_str(&accept, "Accept: ");
    scrape_protocol_add_accept(&accept, config);
    *job = (struct scrape_job){
        .config = config,
        .groups = MAP_INIT(LIMIT_TARGET_GROUPS),
        .targets = MAP_INIT(LIMIT_TARGETS),
        .accept = accept.error ? NULL : sv_dup(buf_sv(&accept)),
    };
    return job->accept ? 0 : -ENOMEM;
}

static struct scrape_job *jobs_new(const struct prom_config *config)
{
    struct scrape_job *jobs = calloc(config->job_count ? config->job_count : 1, sizeof(*jobs));
    for (size_t i = 0; jobs && i < config->job_count; i++) {
        if (job_init(&jobs[i], &config->jobs[i]) < 0) {
            jobs_free(jobs, i + 1);
            return NULL;
        }
    }
    return jobs;
}

static struct scrape_job *job_of_name(const struct scraper *s, const char *name)
{
    for (size_t i = 0; s->config && i < s->config->job_count; i++) {
        if (strcmp(s->jobs[i].config->name, name) == 0)
            return &s->jobs[i];
    }
    return NULL;
}

static struct scrape_job *job_of_config(const struct scraper *s, const struct prom_job *config)
{
    for (size_t i = 0; s->config && i < s->config->job_count; i++) {
        if (s->jobs[i].config == config)
            return &s->jobs[i];
    }
    return NULL;
}

// Groups and targets change their job; the old one is left empty.
static void take_over(struct scrape_job *job, struct scrape_job *old)
{
    job->groups = old->groups;
    job->targets = old->targets;
    job->first = TAKE_PTR(old->first);
    job->first_group = TAKE_PTR(old->first_group);
    old->groups = MAP_INIT(LIMIT_TARGET_GROUPS);
    old->targets = MAP_INIT(LIMIT_TARGETS);
    for (struct scrape_target *t = job->first; t; t = t->next)
        t->job = job;
}

static void renew_job(struct scraper *s, struct scrape_job *job)
{
    scrape_group_remake(s, job);
    for (struct scrape_target *t = job->first; t; t = t->next)
        scrape_target_renew(t);
}

int scraper_set_config(struct scraper *s, struct prom_config *config)
{
    struct scrape_job *jobs = jobs_new(config);
    if (!jobs) {
        prom_config_unref(config);
        return -ENOMEM;
    }
    struct scrape_job *old_jobs = s->jobs;
    struct prom_config *old_config = s->config;
    for (size_t i = 0; old_config && i < config->job_count; i++) {
        struct scrape_job *old = job_of_name(s, config->jobs[i].name);
        if (old)
            take_over(&jobs[i], old);
    }
    s->jobs = jobs;
    s->config = config;
    for (size_t i = 0; i < config->job_count; i++)
        renew_job(s, &jobs[i]);
    jobs_free(old_jobs, old_config ? old_config->job_count : 0);
    prom_config_unref(old_config);
    scrape_check_once(s);
    return 0;
}

void scraper_renew_series(struct scraper *s)
{
    for (size_t i = 0; s->config && i < s->config->job_count; i++) {
        for (struct scrape_target *t = s->jobs[i].first; t; t = t->next)
            scrape_target_renew(t);
    }
}

bool scrape_is_over_limit(const struct scrape_job *job)
{
    return job->config->target_limit && job->targets.count > job->config->target_limit;
}

// --- From discovery ---

void scraper_set_group(struct scraper *s, const struct prom_job *job, const char *source,
                       struct target_group *group)
{
    struct scrape_job *known = job_of_config(s, job);
    if (!known) {
        target_group_unref(group);
        return;
    }
    if (scrape_group_set(s, known, sv_from(source), group) < 0)
        log_error("targets left as they were: no memory, or too many sources", LOG_LIMIT(job->name),
                  LOG_STR("job", job->name), LOG_STR("source", source));
    scrape_check_once(s);
}

void scraper_set_ready(struct scraper *s, const struct prom_job *job)
{
    struct scrape_job *known = job_of_config(s, job);
    if (!known)
        return;
    known->is_ready = true;
    scrape_group_drop(known, true);
    scrape_check_once(s);
}

// --- Once, and the end ---

void scrape_check_once(struct scraper *s)
{
    if (!s->is_once || s->unasked > 0 || !s->config)
        return;
    for (size_t i = 0; i < s->config->job_count; i++) {
        if (!s->jobs[i].is_ready)
            return;
    }
    loop_timer_set(s->done_timer, 0, 0);
}

void scraper_run_once(struct scraper *s)
{
    s->is_once = true;
    for (size_t i = 0; s->config && i < s->config->job_count; i++) {
        for (struct scrape_target *t = s->jobs[i].first; t; t = t->next)
            scrape_target_ask(t);
    }
    scrape_check_once(s);
}

void scraper_stop(struct scraper *s)
{
    s->is_stopped = true;
    loop_timer_stop(s->done_timer);
    for (size_t i = 0; s->config && i < s->config->job_count; i++) {
        for (struct scrape_target *t = s->jobs[i].first; t; t = t->next)
            scrape_target_stop(t);
    }
}

void scraper_free(struct scraper *s)
{
    if (!s)
        return;
    s->is_once = false; // nobody is told any more
    jobs_free(s->jobs, s->config ? s->config->job_count : 0);
    prom_config_unref(s->config);
    for (size_t i = 0; i < s->spare_count; i++)
        buf_deinit(&s->spares[i]);
    loop_timer_free(s->done_timer);
    arena_deinit(&s->build);
    free(s->sinks);
    free(s);
}
