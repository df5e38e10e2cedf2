// SPDX-License-Identifier: Apache-2.0
// One job: where it looks, what it keeps, what its rules read.
#include "agent/lint_internal.h"

#include <ctype.h>
#include <stdio.h>

#define META SV("__meta_kubernetes_")

// --- Meta labels ---

static unsigned roles_of(const struct lint_job *j)
{
    unsigned roles = 0;
    for (size_t i = 0; i < j->job->kube_sd_count; i++) {
        roles |= 1u << j->job->kube_sds[i].role;
        if (j->job->kube_sds[i].attach_node)
            roles |= 1u << PROM_KUBE_NODE;
    }
    return roles;
}

static bool is_that_label(const struct lint_meta_label *known, struct sv rest)
{
    struct sv name = sv_from(known->name);
    if (!sv_ends_with(name, SV("*")))
        return sv_equals(name, rest);
    return sv_starts_with(rest, sv_sub(name, 0, name.len - 1));
}

bool lint_meta_exists(const struct lint_job *j, struct sv name, struct sv_guess *nearest)
{
    if (!sv_starts_with(name, META) || j->any_label)
        return true;
    struct sv rest = sv_sub(name, META.len, name.len);
    unsigned roles = roles_of(j);
    // What is asked for in short, as "pod" for "pod_name", is nearer than what is spelled alike.
    struct sv longer = {NULL, 0};
    *nearest = sv_guess_start(rest);
    for (size_t i = 0; i < lint_meta_label_count; i++) {
        const struct lint_meta_label *known = &lint_meta_labels[i];
        if (!(known->roles & roles))
            continue;
        if (is_that_label(known, rest))
            return true;
        struct sv text = sv_from(known->name);
        sv_guess_offer(nearest, text);
        if (!longer.ptr && sv_starts_with(text, rest) && sv_ends_with(text, SV("_name")))
            longer = text;
    }
    if (longer.ptr)
        nearest->best = longer;
    return false;
}

// --- Regular expressions ---

// 'd', 's' or 'w' that is repeated behind what begins something new: the backslash before it is
// gone. Returns its index or -1.
static ssize_t find_lost_backslash(struct sv regex)
{
    for (size_t i = 1; i + 1 < regex.len; i++) {
        char before = regex.ptr[i - 1], c = regex.ptr[i], after = regex.ptr[i + 1];
        bool is_class = c == 'd' || c == 's' || c == 'w' || c == 'D' || c == 'S' || c == 'W';
        if (is_class && strchr("(:;.|", before) && (after == '+' || after == '*' || after == '{'))
            return (ssize_t)i;
    }
    return -1;
}

static size_t skip_class(struct sv r, size_t i)
{
    size_t start = i;
    for (i++; i < r.len && (r.ptr[i] != ']' || i == start + 1); i++)
        i += r.ptr[i] == '\\';
    return i;
}

// Whether every match must hold a capital letter. Says no where it cannot tell.
static bool needs_capital(struct sv r)
{
    if (sv_find_char(r, '|') != (size_t)-1 || sv_find(r, SV("(?i")) != (size_t)-1)
        return false;
    for (size_t i = 0; i < r.len; i++) {
        char after = i + 1 < r.len ? r.ptr[i + 1] : '\0';
        if (r.ptr[i] == '\\')
            i++;
        else if (r.ptr[i] == '[')
            i = skip_class(r, i);
        else if (isupper((unsigned char)r.ptr[i]) && after != '*' && after != '?' && after != '{' &&
                 sv_find_char(r, ')') == (size_t)-1) // a group may be left out as a whole
            return true;
    }
    return false;
}

// Names of Kubernetes objects, containers and ports are lower-case (RFC 1123).
static bool is_lower_case_name(struct sv label)
{
    return sv_starts_with(label, META) &&
           (sv_ends_with(label, SV("_name")) || sv_ends_with(label, SV("_namespace"))) &&
           !sv_ends_with(label, SV("_class_name"));
}

static bool is_action(const struct yaml_node *rule, struct sv action)
{
    const struct yaml_node *n = yaml_find(rule, "action");
    return n && sv_equals_nocase(n->scalar, action);
}

static void check_regex(struct lint *l, const struct lint_job *j, const struct yaml_node *rule)
{
    const struct yaml_node *regex = yaml_find(rule, "regex");
    const struct yaml_node *sources = yaml_find(rule, "source_labels");
    if (!regex)
        return;
    ssize_t at = find_lost_backslash(regex->scalar);
    if (at >= 0)
        lint_problem(l, l->prom->file, regex->line,
                     "job '%s': regex '%.*s': '%c%c' means the letter %c here, a backslash got "
                     "lost; mend: write '%.*s\\%.*s'",
                     j->job->name, SV_FMT(regex->scalar), regex->scalar.ptr[at],
                     regex->scalar.ptr[at + 1], regex->scalar.ptr[at], (int)at, regex->scalar.ptr,
                     SV_FMT(sv_sub(regex->scalar, (size_t)at, regex->scalar.len)));
    const struct yaml_node *source = sources && sources->count == 1 ? sources->first : NULL;
    if (source && is_action(rule, SV("keep")) && is_lower_case_name(source->scalar) &&
        needs_capital(regex->scalar))
        lint_problem(l, l->prom->file, regex->line,
                     "job '%s': regex '%.*s' asks %.*s for capital letters, which names in "
                     "Kubernetes never have, so every target is dropped; mend: '%s'",
                     j->job->name, SV_FMT(regex->scalar), SV_FMT(source->scalar),
                     j->is_about_gpus ? ".*(dcgm|podgpu)-exporter|exporter" : "(?i)...");
}

// --- Rules ---

struct rule_check {
    struct lint *l;
    const struct lint_job *j;
    const struct yaml_node *rule;
};

static void check_source(void *user, const struct yaml_node *text)
{
    const struct rule_check *c = user;
    struct sv_guess nearest;
    if (lint_meta_exists(c->j, text->scalar, &nearest))
        return;
    const struct yaml_node *target = yaml_find(c->rule, "target_label");
    bool takes_pod = target && sv_equals(target->scalar, SV("pod")) && c->j->is_about_gpus;
    char mend[256];
    if (takes_pod)
        (void)snprintf(mend, sizeof(mend),
                       "remove the rule: the exporter's own label pod names the workload, and "
                       "__meta_kubernetes_pod_name would put the exporter's pod in its place");
    else if (nearest.best.len > 0)
        (void)snprintf(mend, sizeof(mend), "write __meta_kubernetes_%.*s", SV_FMT(nearest.best));
    else
        (void)snprintf(mend, sizeof(mend), "use a label that this job's discovery gives");
    lint_problem(c->l, c->l->prom->file, text->line,
                 "job '%s': no discovery of this job gives the label %.*s, it is always empty; "
                 "mend: %s",
                 c->j->job->name, SV_FMT(text->scalar), mend);
}

static void check_rules(struct lint *l, const struct lint_job *j, const char *key)
{
    const struct yaml_node *rules = yaml_find(j->node, key);
    for (const struct yaml_node *rule = rules ? rules->first : NULL; rule; rule = rule->next) {
        struct rule_check c = {l, j, rule};
        lint_each_text(yaml_find(rule, "source_labels"), check_source, &c);
        check_regex(l, j, rule);
    }
}

static void check_path(struct lint *l, const struct lint_job *j)
{
    const struct yaml_node *path = yaml_find(j->node, "metrics_path");
    if (!path || !j->is_about_gpus || sv_equals(path->scalar, SV("/metrics")))
        return;
    lint_problem(
        l, l->prom->file, path->line,
        "job '%s': GPU exporters answer /metrics, not %.*s%s; mend: metrics_path: /metrics",
        j->job->name, SV_FMT(path->scalar),
        sv_equals(path->scalar, SV("/api/v1/metrics/prometheus")) ? " (which is Fluent Bit's)"
                                                                  : "");
}

static void check_discovery(struct lint *l, const struct lint_job *j)
{
    const struct prom_job *job = j->job;
    if (job->static_count || job->file_sd_count || job->http_sd_count || job->kube_sd_count)
        return;
    lint_problem(
        l, l->prom->file, job->line,
        "job '%s': has no discovery that podgpu-agent knows, so it has no target; mend: add "
        "static_configs, file_sd_configs, http_sd_configs or kubernetes_sd_configs",
        job->name);
}

void lint_job_run(struct lint *l, const struct lint_job *j)
{
    check_discovery(l, j);
    check_path(l, j);
    check_rules(l, j, "relabel_configs");
    check_rules(l, j, "metric_relabel_configs");
}
