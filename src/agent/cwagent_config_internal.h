// SPDX-License-Identifier: Apache-2.0
// The parts that cwagentconfig.json is read in.
#pragma once

#include "agent/cwagent_config.h"
#include "agent/cwagent_config_reader.h"

// What the tables read into: the configuration, and what it is made of in the end.
struct cw_values {
    struct cw_config config; // first: the sections read straight into it
    const struct cw_sources *from;
    char *agent_role, *logs_role;
    bool omit_hostname;
    uint64_t flush_s;
    bool has_collected; // logs.metrics_collected or logs.logs_collected
    size_t selector_count;
    uint64_t retention_days;
};

// --- cwagent_config.c ---

extern const struct cw_section cw_root_section;
// The value of an environment variable; NULL: not set.
const char *cw_environment_find(const struct cw_sources *from, const char *name);
// Of a configuration nobody else has yet; the paths, one a line, are owned by it from now on.
void cw_config_set_watched(struct cw_config *c, char *paths);

// --- cwagent_config_places.c: paths, URLs and names that are more than text ---

void cw_region_read(struct cw_reader *r, const struct json_node *n, void *values);
void cw_endpoint_read(struct cw_reader *r, const struct json_node *n, void *values);
void cw_log_group_read(struct cw_reader *r, const struct json_node *n, void *values);
void cw_prometheus_path_read(struct cw_reader *r, const struct json_node *n, void *values);

// --- cwagent_config_emf.c: emf_processor ---

extern const struct cw_section cw_emf_section, cw_declaration_section;
void cw_emf_read(struct cw_reader *r, const struct json_node *n, void *values);
void cw_declaration_deinit(struct cw_declaration *d);

// --- cwagent_config_podgpu.c: our own section ---

extern const struct cw_section cw_podgpu_section, cw_spool_section;
// Defaults of what compat changes. 0, -ENOMEM.
int must_use cw_podgpu_defaults(struct cw_reader *r, struct cw_values *v);
