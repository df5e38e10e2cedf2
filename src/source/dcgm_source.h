// SPDX-License-Identifier: Apache-2.0
// The DCGM source: one loop that keeps an engine, walks its entities, reads what is watched and
// talks to the exporter. An engine that is lost is looked for again after 0.25 s ... 5 s; STATE
// tells.
#pragma once

#include "source/dcgm_engine.h"
#include "source/source.h"

struct dcgm_source_options {
    struct dcgm_engine_options engine;
    const char *log_level; // of DCGM itself (__DCGM_DBG_LVL), NULL: none
};

// As nvml_source_run.
int dcgm_source_run(const struct source_options *common, const struct dcgm_source_options *options);
