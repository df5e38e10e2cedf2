// SPDX-License-Identifier: Apache-2.0
// What lint knows about the world (lint_table.c), and its parts.
#pragma once

#include "agent/lint.h"

// Bits of discovery roles: 1 << enum prom_kube_role.
struct lint_meta_label {
    const char *name; // without "__meta_kubernetes_"; a prefix where it ends with '*'
    unsigned roles;
};
extern const struct lint_meta_label lint_meta_labels[];
extern const size_t lint_meta_label_count;
extern const char *const lint_gpu_labels[]; // of GPU exporters' own samples; NULL-ended

struct lint_job { // one job, seen from both sides
    const struct prom_job *job;
    const struct yaml_node *node;
    bool is_about_gpus;
    bool any_label; // its discovery can give whatever label
};

void lint_problem(struct lint *l, const char *file, unsigned line, const char *fmt, ...)
    format_printf(4, 5);

// lint_job.c: one job by itself
void lint_job_run(struct lint *l, const struct lint_job *j);
// Whether discovery can give that label. *nearest: the most similar one that it can.
bool lint_meta_exists(const struct lint_job *j, struct sv name, struct sv_guess *nearest);
// The values of a key that is a text or a list of texts: calls each for every one.
typedef void lint_text_fn(void *user, const struct yaml_node *text);
void lint_each_text(const struct yaml_node *list, lint_text_fn *each, void *user);

// lint_declaration.c: declarations against all jobs
void lint_declarations_run(struct lint *l, const struct lint_job *jobs, size_t count);
