// SPDX-License-Identifier: Apache-2.0
// Every flag of podgpu-agent and its environment variable, from one table.
#pragma once

#include "agent/cwagent_config.h"
#include "base/error.h"
#include "base/log.h"
#include "base/option.h"

// As given: one member a flag of the table in options_table.c. Strings are never NULL.
struct agent_flags {
    char *config, *prometheus_config, *compat;
    struct option_list output;
    char *listen, *web_config_file;
    char *node_name;
    char *log_format;
    bool once, check, lint, estimate, debug;
};

extern const struct option_table agent_option_table;

enum agent_task {
    AGENT_RUN,
    AGENT_CHECK,    // read the configuration, say what is wrong with it, end
    AGENT_LINT,     // the same, and why a job or a declaration can match nothing
    AGENT_ESTIMATE, // scrape once, say what the configuration would make and cost, end
};

struct agent_options {
    struct agent_flags flags; // owned
    enum agent_task task;
    bool compat;                              // --compat=cwagent
    struct cw_output outputs[CW_OUTPUTS_MAX]; // of --output; where is owned
    size_t output_count;                      // 0: it was not given
    enum log_format log_format;
    enum log_level log_level;
    const char *node_name; // --node-name, NODE_NAME, K8S_NODE_NAME; "" unknown
};

// 0; OPTION_OUTCOME_HELP; OPTION_OUTCOME_VERSION; -EINVAL with *err; -ENOMEM. environment is
// borrowed by *out.
int must_use agent_options_parse(int argc, char **argv, char **environment,
                                 struct agent_options *out, struct error *err);
void agent_options_deinit(struct agent_options *o);
