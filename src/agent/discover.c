// SPDX-License-Identifier: Apache-2.0
// A list of discoverers, each of which knows its job and puts its kind and place before the names
// of its sources, so that those of one job never meet. What needs no waiting (static groups, jobs
// without any section, sections that failed to start) is told at the next turn of the loop.
#include "agent/discover.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/discover_internal.h"
#include "agent/discover_kube.h"
#include "base/limits.h"
#include "base/log.h"

#define SOURCE_BYTES 1024

struct discoverer {
    struct discovery *discovery;
    struct job_state *job;
    const char *kind;
    size_t place; // among the sections of its kind
    struct discover_file *file;
    struct discover_http *http;
    struct discover_kube *kube;
    bool is_ready;
    bool has_failed_to_start;
    char *problem; // NULL: none
};

struct job_state {
    const struct prom_job *config;
    size_t waiting; // discoverers that are not ready, the static groups among them
};

struct discovery {
    struct discovery_options options;
    const struct prom_config *config;
    struct job_state *jobs;
    struct discoverer *discoverers;
    size_t count;
    struct loop_timer *first_turn;
    struct discovery_problem *problems; // as many as discoverers
};

// --- What discoverers tell ---

static void tell_group(void *user, const char *source, struct target_group *group)
{
    struct discoverer *x = user;
    const struct discovery_options *o = &x->discovery->options;
    char name[SOURCE_BYTES];
    int n = snprintf(name, sizeof(name), "%s/%zu/%s", x->kind, x->place, source);
    if (n < 0 || (size_t)n >= sizeof(name)) {
        log_error("a source of targets has too long a name", LOG_STR("job", x->job->config->name),
                  LOG_STR("source", source));
        target_group_unref(group);
        return;
    }
    o->group(o->user, x->job->config, name, group);
}

static void one_less(const struct discovery *d, struct job_state *job)
{
    if (--job->waiting == 0)
        d->options.ready(d->options.user, job->config);
}

static void tell_ready(void *user)
{
    struct discoverer *x = user;
    if (x->is_ready)
        return;
    x->is_ready = true;
    one_less(x->discovery, x->job);
}

static void tell_problem(void *user, const char *text)
{
    struct discoverer *x = user;
    const char *job = x->job->config->name;
    if (x->problem && text && strcmp(x->problem, text) == 0)
        return;
    bool had = x->problem;
    free(x->problem);
    x->problem = text ? sv_dup(sv_from(text)) : NULL;
    if (text)
        log_warn("discovery has a problem", LOG_LIMIT(job), LOG_STR("job", job),
                 LOG_STR("kind", x->kind), LOG_STR("error", text));
    else if (had)
        log_info("discovery works again", LOG_STR("job", job), LOG_STR("kind", x->kind));
}

// --- static_configs ---

static int add_static(struct target_group *g, const struct prom_static_group *config)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < config->target_count; i++) {
        struct labels *l = target_group_add(g, config->label_count + 1);
        r = l ? 0 : -ENOMEM;
        for (size_t k = 0; r == 0 && k < config->label_count; k++)
            r = labels_set(l, sv_from(config->labels[k].name), sv_from(config->labels[k].value));
        if (r == 0)
            r = labels_set(l, SV("__address__"), sv_from(config->targets[i]));
    }
    return r;
}

// All of a job as one group: a thousand small ones would each have a block of memory.
static struct target_group *static_targets(const struct prom_job *job)
{
    size_t count = 0;
    for (size_t i = 0; i < job->static_count; i++)
        count += job->static_groups[i].target_count;
    struct target_group *g = target_group_new(count, LIMIT_TARGET_GROUP_BYTES);
    int r = g ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < job->static_count; i++)
        r = add_static(g, &job->static_groups[i]);
    if (r == 0)
        return g;
    target_group_unref(g);
    return NULL;
}

static void tell_static(struct discovery *d, const struct prom_job *job)
{
    const struct discovery_options *o = &d->options;
    if (job->static_count == 0)
        return;
    struct target_group *g = static_targets(job);
    if (g)
        o->group(o->user, job, "static", g);
    else
        log_error("no memory for static targets", LOG_STR("job", job->name));
}

static void first_turn(void *user)
{
    struct discovery *d = user;
    for (size_t i = 0; i < d->config->job_count; i++) {
        tell_static(d, d->jobs[i].config);
        one_less(d, &d->jobs[i]);
    }
    for (size_t i = 0; i < d->count; i++) {
        if (d->discoverers[i].has_failed_to_start)
            tell_ready(&d->discoverers[i]);
    }
}

// --- Start ---

static struct discover_events events_of(struct discoverer *x)
{
    return (struct discover_events){tell_group, tell_ready, tell_problem, x};
}

static struct discoverer *add(struct discovery *d, size_t job, const char *kind, size_t place)
{
    struct discoverer *x = &d->discoverers[d->count++];
    *x = (struct discoverer){.discovery = d, .job = &d->jobs[job], .kind = kind, .place = place};
    x->job->waiting++;
    return x;
}

static int start_kube(struct discovery *d, struct discoverer *x, const struct prom_kube_sd *config)
{
    const struct discovery_options *o = &d->options;
    struct discover_events events = events_of(x);
    struct error err = ERROR_INIT;
    char text[sizeof(err.text) + sizeof(err.file) + 32];
    int r = discover_kube_new(o->loop, o->client, config, o->node_name, &events, &x->kube, &err);
    if (r != -EINVAL)
        return r;
    tell_problem(x, error_text(&err, text, sizeof(text)));
    x->has_failed_to_start = true;
    return 0;
}

static int start_job(struct discovery *d, size_t at)
{
    const struct prom_job *job = &d->config->jobs[at];
    const struct discovery_options *o = &d->options;
    int r = 0;
    for (size_t i = 0; r == 0 && i < job->file_sd_count; i++) {
        struct discoverer *x = add(d, at, "file", i);
        struct discover_events events = events_of(x);
        r = discover_file_new(o->loop, &job->file_sds[i], &events, &x->file);
    }
    for (size_t i = 0; r == 0 && i < job->http_sd_count; i++) {
        struct discoverer *x = add(d, at, "http", i);
        struct discover_events events = events_of(x);
        r = discover_http_new(o->loop, o->client, &job->http_sds[i], &events, &x->http);
    }
    for (size_t i = 0; r == 0 && i < job->kube_sd_count; i++)
        r = start_kube(d, add(d, at, "kubernetes", i), &job->kube_sds[i]);
    return r;
}

static size_t count_sections(const struct prom_config *config)
{
    size_t count = 0;
    for (size_t i = 0; i < config->job_count; i++)
        count += config->jobs[i].file_sd_count + config->jobs[i].http_sd_count +
                 config->jobs[i].kube_sd_count;
    return count;
}

static int start(struct discovery *d)
{
    size_t sections = count_sections(d->config), jobs = d->config->job_count;
    d->jobs = calloc(jobs + 1, sizeof(*d->jobs));
    d->discoverers = calloc(sections + 1, sizeof(*d->discoverers));
    d->problems = calloc(sections + 1, sizeof(*d->problems));
    if (!d->jobs || !d->discoverers || !d->problems)
        return -ENOMEM;
    int r = loop_timer_new(d->options.loop, first_turn, d, &d->first_turn);
    for (size_t i = 0; r == 0 && i < jobs; i++) {
        d->jobs[i] = (struct job_state){.config = &d->config->jobs[i], .waiting = 1};
        r = start_job(d, i);
    }
    if (r == 0)
        loop_timer_set(d->first_turn, 0, 0);
    return r;
}

int discovery_new(const struct discovery_options *o, const struct prom_config *config,
                  struct discovery **out)
{
    struct discovery *d = calloc(1, sizeof(*d));
    if (!d)
        return -ENOMEM;
    d->options = *o;
    d->config = config;
    int r = start(d);
    if (r < 0) {
        discovery_free(d);
        return r;
    }
    *out = d;
    return 0;
}

void discovery_free(struct discovery *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->count; i++) {
        discover_file_free(d->discoverers[i].file);
        discover_http_free(d->discoverers[i].http);
        discover_kube_free(d->discoverers[i].kube);
        free(d->discoverers[i].problem);
    }
    loop_timer_free(d->first_turn);
    free(d->discoverers);
    free(d->problems);
    free(d->jobs);
    free(d);
}

const struct discovery_problem *discovery_problems(const struct discovery *d, size_t *out_count)
{
    size_t count = 0;
    for (size_t i = 0; i < d->count; i++) {
        const struct discoverer *x = &d->discoverers[i];
        if (x->problem)
            d->problems[count++] =
                (struct discovery_problem){x->job->config->name, x->kind, x->problem};
    }
    *out_count = count;
    return d->problems;
}
