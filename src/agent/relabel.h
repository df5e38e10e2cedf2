// SPDX-License-Identifier: Apache-2.0
// Relabelling as Prometheus 3.0 does it (relabel_configs, metric_relabel_configs): every action,
// its validation at load, its expansion of $1, ${name}. An engine; rules are immutable once read.
// Source: prometheus.io/docs/prometheus/latest/configuration/configuration/#relabel_config.
#pragma once

#include "agent/labels.h"
#include "base/error.h"
#include "codec/yaml.h"

struct config_reader;
struct relabel_rules;
// node: the sequence of rules (NULL or null: none). 0; -EINVAL with *err at the rule's position;
// -ENOMEM.
int must_use relabel_parse(const struct yaml_node *node, const char *file,
                           struct relabel_rules **out, struct error *err);
// The same for a configuration that goes on after a problem: each is told to the reader.
// legacy_names: a label name made by a rule is [a-zA-Z_][a-zA-Z0-9_]*, else any text but the empty
// one. NULL after a problem.
struct relabel_rules *relabel_read(struct config_reader *r, const struct yaml_node *node,
                                   bool legacy_names);
void relabel_free(struct relabel_rules *r);
size_t relabel_count(const struct relabel_rules *r); // NULL: 0

#define RELABEL_OUTCOME_DROP 1
// 0: l is the result; RELABEL_OUTCOME_DROP: the target or sample is dropped (l is undefined);
// -ENOMEM, -E2BIG.
int must_use relabel_apply(const struct relabel_rules *r, struct labels *l);
