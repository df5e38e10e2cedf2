// SPDX-License-Identifier: Apache-2.0
// Which sources run, what each is asked and on which GPUs: --source, --remote-hostengine-info and
// what NVML has said it cannot give. An engine.
//
// auto: NVML is asked for everything. DCGM is asked, on the selected GPUs that need it, for fields
// that NVML said needs_dcgm or needs_gpm of, for fields of switches, links, CPUs and cores, and for
// health verdicts; without any of these it is not started. A running engine is used first: -r alone
// when it is given, else /tmp/nv-hostengine (the socket) and localhost:5555; only without -r may
// one be embedded. Outside Kubernetes a -r that is not this machine means dcgm. nvml, dcgm: that
// one alone.
#pragma once

#include "exporter/config.h"
#include "exporter/device_view.h"

struct source_plan {
    bool nvml, dcgm;
    bool embed;
    const char *addresses[3]; // borrowed from options, or static
    size_t address_count;
    uint16_t
        *fields[DEVICE_SOURCE_COUNT]; // ascending, each once; owned. With 9003 and 9004 where
                                      // wanted, and 230 and 112 where a windowed counter needs them
    size_t field_count[DEVICE_SOURCE_COUNT];
    uint64_t gpus; // frame_watch.gpus for DCGM: bit per index of its own list
};

// 0, -ENOMEM. The view may be empty: nothing is known yet. once_dcgm: DCGM has been needed since
// the last configuration: then it stays, so that a series does not come and go.
int must_use source_plan_make(const struct exporter_config *config, const struct device_view *view,
                              bool once_dcgm, struct source_plan *out);
void source_plan_deinit(struct source_plan *p);
bool source_plan_equals(const struct source_plan *a, const struct source_plan *b);
