// SPDX-License-Identifier: Apache-2.0
// Why a configuration that is valid can still yield nothing: a job that keeps no target, a label
// that no discovery gives, a backslash that got lost, a declaration that matches on what no job
// sets. An engine. Each finding is one line: "file:line: what; mend: how".
#pragma once

#include "agent/cwagent_config.h"
#include "agent/prometheus_config.h"
#include "codec/yaml.h"

struct lint {
    const struct prom_config *prom;
    const struct cw_config *cw;
    const struct yaml_node *yaml; // root of prometheus.yaml, for positions
    struct buf *out;              // findings are appended
    unsigned findings;
};

// Looks at everything; sets findings. 0; -ENOMEM, -EFBIG: out is not complete.
int must_use lint_run(struct lint *l);
