// SPDX-License-Identifier: Apache-2.0
// The DCGM source: one loop that keeps an engine, walks its entities, reads what is watched and
// talks to the exporter. An engine that is lost is looked for again after 0.25 s ... 5 s; STATE
// tells.
#pragma once

#include "source/dcgm_engine.h"

struct dcgm_source_options {
    const char *library; // NULL or "": search
    struct dcgm_engine_options engine;
    struct dcgm_avoided avoided[64];
    uint32_t avoided_count;
    uint64_t skipped;      // bit per GPU id
    const char *log_level; // of DCGM itself (__DCGM_DBG_LVL), NULL: none
    int socket_fd;
    struct frame_call_page *page;
};

// As source_run.
int dcgm_source_run(const struct dcgm_source_options *options);
