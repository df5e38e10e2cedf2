// SPDX-License-Identifier: Apache-2.0
// The running agent: every room wired together on one loop. Discovery finds groups of targets, the
// scraper asks them, their series flow into the EMF sink, its events into the delivery to
// CloudWatch or to another place.
#pragma once

#include "agent/config.h"
#include "agent/options.h"
#include "base/error.h"

struct agent;
// Takes config (empty afterwards); options and environment must outlive it. 0, negative errno with
// *err.
int must_use agent_new(const struct agent_options *options, char *const *environment,
                       struct agent_config *config, struct agent **out, struct error *err);
// Until a signal, or with --once or --estimate until that is done; returns the exit status.
int agent_run(struct agent *a);
void agent_free(struct agent *a);
