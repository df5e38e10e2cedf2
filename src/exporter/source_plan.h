// SPDX-License-Identifier: Apache-2.0
// Which sources run, what each is asked and on which GPUs: --source, --remote-hostengine-info and
// what NVML has said it cannot give. An engine.
//
// Under MIG without GPM DCGM_FI_PROF_GR_ENGINE_ACTIVE is wanted for the ledger, whatever the
// counters file has.
//
// auto: NVML is asked for everything. DCGM is asked, on the selected GPUs that need it, for fields
// that NVML said needs_dcgm or needs_gpm of, for fields of switches, links, CPUs and cores, and for
// health verdicts; without any of these it is not started. Where NVML is not to be had and -r is
// given, DCGM is asked for everything. A running engine is used first: -r alone when it is given,
// else /tmp/nv-hostengine (the socket) and localhost:5555; only without -r may one be embedded.
// nvml, dcgm: that one alone (options.h: outside Kubernetes a -r that is not this machine means
// dcgm).
#pragma once

#include "exporter/config.h"
#include "exporter/device_view.h"

struct source_plan {
    bool nvml, dcgm;
    bool embed;
    const char *addresses[3]; // borrowed from options, or static
    size_t address_count;
    uint16_t *fields[DEVICE_SOURCE_COUNT]; // ascending, each once; owned. With 9003 and 9004 where
                                           // wanted, 230 and 112 where a windowed counter needs
                                           // them, 112 and 1523 for podgpu's own families
    size_t field_count[DEVICE_SOURCE_COUNT];
    uint64_t gpus; // frame_watch.gpus for DCGM: bit per index of its own list. Those that need it
                   // are known once it has listed them, and again the plan is made then
};

// 0, -ENOMEM. The view may be empty: nothing is known yet. before: the plan in force, NULL none;
// what DCGM was asked for then it is asked for still until NVML says otherwise, so that a GPU that
// is lost does not make series come and go. It may not be *out.
int must_use source_plan_make(const struct exporter_config *config, const struct device_view *view,
                              const struct source_plan *before, struct source_plan *out);
// What podgpu-source dcgm is told of the engine, beside what all helpers are: words has room for
// SOURCE_EXTRA_MAX and NULL. They borrow from the plan and the flags.
void source_plan_engine_words(const struct source_plan *p, const struct exporter_flags *f,
                              const char **words);
void source_plan_deinit(struct source_plan *p);
bool source_plan_equals(const struct source_plan *a, const struct source_plan *b);
// Whether a source is asked the same: fields, and of DCGM the GPUs.
bool source_plan_asks_same(const struct source_plan *a, const struct source_plan *b,
                           enum device_source source);
