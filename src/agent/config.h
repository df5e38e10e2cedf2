// SPDX-License-Identifier: Apache-2.0
// Both files of the agent, read and checked together: cwagentconfig.json and the prometheus.yaml
// that it or --prometheus-config names.
#pragma once

#include "agent/cwagent_config.h"
#include "agent/options.h"
#include "agent/prometheus_config.h"

struct agent_config {
    struct cw_config *cw;
    struct prom_config *prom;
    struct cw_output outputs[CW_OUTPUTS_MAX]; // of --output, else of the JSON; texts are owned
    size_t output_count;                      // one at least
};

// 0; -ENOENT or -EINVAL: errors has every problem, one a line; -ENOMEM. warnings are appended on
// success and failure. The files that were looked at are appended to watched, one path a line, also
// on failure: their repair is waited for.
int must_use agent_config_load(const struct agent_options *options, char *const *environment,
                               struct agent_config *out, struct buf *errors, struct buf *warnings,
                               struct buf *watched);
void agent_config_deinit(struct agent_config *c);
