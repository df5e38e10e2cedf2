// SPDX-License-Identifier: Apache-2.0
// Declarations against the jobs: the labels they match on and take as dimensions must come from
// somewhere. Labels of samples are known for GPU exporters only, so only declarations about GPU
// metrics are judged, against jobs about GPUs. The label job is known of every job.
#include "agent/lint_internal.h"

#include <stdio.h>

enum origin {
    ORIGIN_NONE,
    ORIGIN_LABELMAP, // only if an object has a label of that name
    ORIGIN_KNOWN,
};

struct place { // where a labelmap stands
    unsigned line;
};

static bool is_always_there(const struct lint *l, struct sv name)
{
    static const struct sv names[] = {SV("job"), SV("instance"), SV("ClusterName"),
                                      SV("prom_metric_type")};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (sv_equals(names[i], name))
            return true;
    }
    if (l->cw->add_host && sv_equals(name, SV("host")))
        return true;
    for (size_t i = 0; lint_gpu_labels[i]; i++) {
        if (sv_equals(sv_from(lint_gpu_labels[i]), name))
            return true;
    }
    return false;
}

struct source_check {
    const struct lint_job *j;
    bool any; // a source that can have a value
};

static void check_source(void *user, const struct yaml_node *text)
{
    struct source_check *c = user;
    struct sv_guess nearest;
    c->any = c->any || lint_meta_exists(c->j, text->scalar, &nearest);
}

// A rule that copies from labels nobody gives sets nothing.
static bool rule_sets(const struct lint_job *j, const struct yaml_node *rule, struct sv name)
{
    const struct yaml_node *target = yaml_find(rule, "target_label");
    const struct yaml_node *sources = yaml_find(rule, "source_labels");
    struct source_check c = {j, !sources};
    if (!target ||
        (!sv_equals(target->scalar, name) && sv_find_char(target->scalar, '$') == (size_t)-1))
        return false;
    lint_each_text(sources, check_source, &c);
    return c.any;
}

static bool is_labelmap(const struct yaml_node *rule)
{
    const struct yaml_node *action = yaml_find(rule, "action");
    return action && sv_equals_nocase(action->scalar, SV("labelmap"));
}

static enum origin origin_in_rules(const struct lint_job *j, const char *key, struct sv name,
                                   struct place *out)
{
    const struct yaml_node *rules = yaml_find(j->node, key);
    enum origin found = ORIGIN_NONE;
    for (const struct yaml_node *rule = rules ? rules->first : NULL; rule; rule = rule->next) {
        if (rule_sets(j, rule, name))
            return ORIGIN_KNOWN;
        if (is_labelmap(rule)) {
            found = ORIGIN_LABELMAP;
            out->line = rule->line;
        }
    }
    return found;
}

static bool static_sets(const struct prom_job *job, struct sv name)
{
    for (size_t g = 0; g < job->static_count; g++) {
        for (size_t i = 0; i < job->static_groups[g].label_count; i++) {
            if (sv_equals(sv_from(job->static_groups[g].labels[i].name), name))
                return true;
        }
    }
    return false;
}

static enum origin origin_in_job(const struct lint_job *j, struct sv name, struct place *out)
{
    if (j->any_label || static_sets(j->job, name))
        return ORIGIN_KNOWN;
    enum origin a = origin_in_rules(j, "relabel_configs", name, out);
    if (a == ORIGIN_KNOWN)
        return a;
    enum origin b = origin_in_rules(j, "metric_relabel_configs", name, out);
    return b == ORIGIN_NONE ? a : b;
}

// The best of all jobs that can have such metrics.
static enum origin origin_of(const struct lint *l, const struct lint_job *jobs, size_t count,
                             struct sv name, struct place *out)
{
    enum origin best = is_always_there(l, name) ? ORIGIN_KNOWN : ORIGIN_NONE;
    for (size_t i = 0; i < count && best != ORIGIN_KNOWN; i++) {
        enum origin here = jobs[i].is_about_gpus ? origin_in_job(&jobs[i], name, out) : ORIGIN_NONE;
        best = here > best ? here : best;
    }
    return best;
}

static bool selects_gpu_metrics(const struct cw_declaration *d)
{
    for (size_t i = 0; i < d->selector_count; i++) {
        if (sv_find(d->selector_texts[i], SV("DCGM")) != (size_t)-1 ||
            sv_find(d->selector_texts[i], SV("podgpu")) != (size_t)-1)
            return true;
    }
    return false;
}

static void describe(const struct lint *l, enum origin o, const struct place *at, char *out,
                     size_t bytes)
{
    if (o == ORIGIN_LABELMAP)
        (void)snprintf(
            out, bytes,
            "no rule of a job about GPUs sets it (only a label of that name on an object "
            "could, by the labelmap at %s:%u)",
            l->prom->file, at->line);
    else
        (void)snprintf(out, bytes, "no rule of a job about GPUs sets it");
}

static void check_sources(struct lint *l, const struct cw_declaration *d,
                          const struct lint_job *jobs, size_t count)
{
    // Empty values may be what it is after.
    if (d->source_label_count != 1 || regex_matches(d->matcher, SV("")))
        return;
    struct place at = {0};
    struct sv name = d->source_labels[0];
    enum origin o = origin_of(l, jobs, count, name, &at);
    if (o == ORIGIN_KNOWN)
        return;
    char why[512];
    describe(l, o, &at, why, sizeof(why));
    lint_problem(l, d->file, d->source_labels_line ? d->source_labels_line : d->line,
                 "the declaration matches on the label %.*s, and %s, so that '%.*s' finds nothing "
                 "and no metric is made; mend: in relabel_configs add a rule with target_label: "
                 "%.*s, or match on job",
                 SV_FMT(name), why, SV_FMT(d->matcher_text), SV_FMT(name));
}

static void check_dimensions(struct lint *l, const struct cw_declaration *d,
                             const struct lint_job *jobs, size_t count)
{
    for (size_t s = 0; s < d->dimension_count; s++) {
        for (size_t i = 0; i < d->dimensions[s].count; i++) {
            struct place at = {0};
            struct sv name = d->dimensions[s].names[i];
            bool is_told = d->source_label_count == 1 && sv_equals(d->source_labels[0], name);
            enum origin o = origin_of(l, jobs, count, name, &at);
            if (o == ORIGIN_KNOWN || is_told)
                continue;
            char why[512];
            describe(l, o, &at, why, sizeof(why));
            lint_problem(l, d->file, d->dimensions_line ? d->dimensions_line : d->line,
                         "dimension %.*s: %s, so that its set is never used; mend: in "
                         "relabel_configs add a rule with target_label: %.*s, or leave it out",
                         SV_FMT(name), why, SV_FMT(name));
        }
    }
}

// Whether a job's series may have a label job that the declaration's matcher finds.
static bool job_may_match(const struct cw_declaration *d, const struct lint_job *j)
{
    struct place unused;
    return j->job->honor_labels || origin_in_job(j, SV("job"), &unused) != ORIGIN_NONE ||
           regex_matches(d->matcher, sv_from(j->job->name));
}

static void check_job(struct lint *l, const struct cw_declaration *d, const struct lint_job *jobs,
                      size_t count)
{
    bool may_match = count < l->prom->job_count; // of scrape_config_files, not looked at
    if (d->source_label_count != 1 || !sv_equals(d->source_labels[0], SV("job")))
        return;
    for (size_t i = 0; i < count && !may_match; i++)
        may_match = job_may_match(d, &jobs[i]);
    if (!may_match)
        lint_problem(l, d->file, d->matcher_line ? d->matcher_line : d->line,
                     "the declaration matches on the label job, and '%.*s' finds nothing in the "
                     "name of any job; mend: '^%s$'",
                     SV_FMT(d->matcher_text), count ? jobs[0].job->name : "JOB_NAME");
}

void lint_declarations_run(struct lint *l, const struct lint_job *jobs, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        any = any || jobs[i].is_about_gpus;
    if (l->cw->declaration_count == 0 && !l->cw->disable_metric_extraction)
        lint_problem(l, l->prom->file, 1,
                     "there is no metric_declaration, so that no metric is made; mend: add "
                     "emf_processor.metric_declaration to the agent's JSON");
    for (size_t i = 0; i < l->cw->declaration_count; i++) {
        const struct cw_declaration *d = &l->cw->declarations[i];
        check_job(l, d, jobs, count);
        if (!any || !selects_gpu_metrics(d))
            continue;
        check_sources(l, d, jobs, count);
        check_dimensions(l, d, jobs, count);
    }
}
