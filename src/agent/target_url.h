// SPDX-License-Identifier: Apache-2.0
// The URL of a target, written as Go's net/url writes it: what Prometheus would ask, byte for byte.
#pragma once

#include "agent/prometheus_config.h"

#define TARGET_PARAM_PREFIX "__param_"

// scheme://address path ? parameters; those of the job, sorted, each first value replaced by that
// of its label. In the arena of l. 0, -ENOMEM, -E2BIG.
int must_use target_print_url(const struct prom_job *job, const struct labels *l,
                              const char **out_url);
