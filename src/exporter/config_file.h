// SPDX-License-Identifier: Apache-2.0
// The YAML configuration file, as dcgm-exporter reads it: version 1 (4.8.3) with `collection` and
// its `watchGroups`, version 2 (4.8.4) with `collections`. What concerns DCGM's own sample cache or
// a limit on scrapes is checked and has no effect.
#pragma once

#include "base/error.h"
#include "codec/yaml.h"

// Fields with a period of their own.
struct config_group {
    struct sv name;
    uint64_t period_ns;
    const struct yaml_node *patterns; // list of texts, at least one
    unsigned line, column;
};

// Views and nodes live as long as the document.
struct config_file {
    struct yaml_document *document; // owned
    struct sv metrics_file;         // empty: not said
    const struct yaml_node *fields; // inline counters; NULL: none
    uint64_t period_ns;             // default for all fields; 0: not said
    bool exporter_metrics, exporter_metrics_given;
    struct config_group *groups; // owned
    size_t group_count;
};

// Reads and checks text; file is for messages and must outlive *out. 0; -EINVAL or -EFBIG with
// *err; -ENOMEM.
int must_use config_file_parse(struct sv text, const char *file, struct config_file *out,
                               struct error *err);
void config_file_deinit(struct config_file *c);

// Shell patterns over a field's name: `*`, `?`, `[abc]`, `[a-z]`, `[^abc]`; the whole name has to
// match.
bool config_pattern_matches(struct sv pattern, struct sv name);
