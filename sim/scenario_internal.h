// SPDX-License-Identifier: Apache-2.0
// What the files that compile a scenario share: one text, one node, where an error stands.
#pragma once

#include "codec/yaml.h"
#include "node_edit.h"

struct compile {
    struct sim_node *n;
    const char *file;  // of the text under the hand, for messages
    struct error *err; // never NULL
    const struct yaml_node *models;
    const char *models_file;
};

// When something lives.
struct compile_span {
    int64_t start, end;
};

// Where processes run: SIM_NONE is in no pod.
struct compile_place {
    uint32_t pod, container;
    struct compile_span span;
};

// --- Values (scenario_values.c); all: 0, -EINVAL or -ENOSPC with c->err ---

// Gives an error from a value's parser the position of the value; rc as it is.
int compile_at(struct compile *c, const struct yaml_node *y, int rc);
int compile_refuse(struct compile *c, const struct yaml_node *y, const char *what); // -EINVAL
int must_use compile_expect(struct compile *c, const struct yaml_node *y, enum yaml_kind kind);
int must_use compile_text(struct compile *c, const struct yaml_node *y, uint32_t *out);
int must_use compile_u32(struct compile *c, const struct yaml_node *y, uint32_t *out);
// fallback when y is NULL
int must_use compile_time(struct compile *c, const struct yaml_node *y, int64_t fallback,
                          int64_t *out);
// A mapping of signals, or NULL; prefix "kubelet." and "driver." for the node's own.
int must_use compile_signals(struct compile *c, uint32_t gpu, const char *prefix,
                             const struct yaml_node *y);
int must_use compile_load(struct compile *c, _Atomic uint32_t *list, const struct yaml_node *y);

// --- scenario_gpu.c, scenario_pods.c ---
void compile_clear_gpu(struct sim_gpu *g);
int must_use compile_gpu(struct compile *c, const struct yaml_node *y);
// The scenario's dcgm section, after its GPUs; that of a GPU.
int must_use compile_dcgm(struct compile *c, const struct yaml_node *y);
int must_use compile_dcgm_gpu(struct compile *c, uint32_t gpu, const struct yaml_node *y);
int must_use compile_pod(struct compile *c, const struct yaml_node *y);
// --- scenario_extra.c ---
// The values of these keys (NULL-ended) as one JSON object.
int must_use compile_extra(struct compile *c, const struct yaml_node *y, const char *const *keys,
                           uint32_t *out);
int must_use compile_node_extra(struct compile *c, const struct yaml_node *root); // claims, slices
int must_use compile_pod_extra(struct compile *c, const struct yaml_node *y, uint32_t *out);

// Processes that live in the place's span unless they say otherwise; list may be NULL.
int must_use compile_processes(struct compile *c, const struct yaml_node *list,
                               struct compile_place place);
