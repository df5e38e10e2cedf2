// SPDX-License-Identifier: Apache-2.0
#include "agent/lint_internal.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void lint_problem(struct lint *l, const char *file, unsigned line, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    buf_add_fmt(l->out, "%s:%u: %s\n", file, line, text);
    l->findings++;
}

void lint_each_text(const struct yaml_node *list, lint_text_fn *each, void *user)
{
    if (!list)
        return;
    if (list->kind == YAML_SCALAR) {
        each(user, list);
        return;
    }
    for (const struct yaml_node *n = list->first; list->kind == YAML_SEQUENCE && n; n = n->next)
        each(user, n);
}

static bool mentions_gpus(struct sv text)
{
    static const struct sv words[] = {SV("dcgm"), SV("podgpu"), SV(":9400")};
    for (size_t w = 0; w < ARRAY_SIZE(words); w++) {
        for (size_t i = 0; i + words[w].len <= text.len; i++) {
            if (sv_equals_nocase(sv_sub(text, i, words[w].len), words[w]))
                return true;
        }
    }
    return false;
}

// What names a GPU exporter stands in the first four levels of a job.
static bool subtree_mentions_gpus(const struct yaml_node *job)
{
    const struct yaml_node *at[4] = {job->first};
    size_t depth = 0;
    for (;;) {
        const struct yaml_node *n = at[depth];
        if (!n && depth == 0)
            return false;
        if (!n)
            n = at[--depth];
        else if (mentions_gpus(n->scalar))
            return true;
        else if (n->first && depth + 1 < ARRAY_SIZE(at)) {
            at[++depth] = n->first;
            continue;
        }
        at[depth] = n->next;
    }
}

static bool discovery_gives_any_label(const struct yaml_node *node)
{
    for (const struct yaml_node *n = node->first; n; n = n->next) {
        if (sv_ends_with(n->key, SV("_sd_configs")) && n->first &&
            !sv_equals(n->key, SV("kubernetes_sd_configs")))
            return true;
    }
    return false;
}

static const struct prom_job *job_find(const struct prom_config *prom, struct sv name)
{
    for (size_t i = 0; i < prom->job_count; i++) {
        if (sv_equals(sv_from(prom->jobs[i].name), name))
            return &prom->jobs[i];
    }
    return NULL;
}

// Jobs of scrape_config_files stand elsewhere and are not looked at.
static size_t collect_jobs(const struct lint *l, struct lint_job *jobs)
{
    const struct yaml_node *list = yaml_find(l->yaml, "scrape_configs");
    size_t count = 0;
    for (const struct yaml_node *n = list ? list->first : NULL; n; n = n->next) {
        const struct yaml_node *name = yaml_find(n, "job_name");
        const struct prom_job *job = name ? job_find(l->prom, name->scalar) : NULL;
        if (!job)
            continue;
        jobs[count++] = (struct lint_job){
            .job = job,
            .node = n,
            .is_about_gpus = subtree_mentions_gpus(n),
            .any_label = discovery_gives_any_label(n),
        };
    }
    return count;
}

int lint_run(struct lint *l)
{
    const struct yaml_node *list = yaml_find(l->yaml, "scrape_configs");
    size_t most = list ? list->count : 0;
    struct lint_job *jobs = calloc(most + 1, sizeof(*jobs));
    if (!jobs)
        return -ENOMEM;
    l->findings = 0;
    size_t count = collect_jobs(l, jobs);
    for (size_t i = 0; i < count; i++)
        lint_job_run(l, &jobs[i]);
    lint_declarations_run(l, jobs, count);
    free(jobs);
    return l->out->error;
}
