// SPDX-License-Identifier: Apache-2.0
// The running exporter: every room wired together on one loop. Frames arrive, the inventory takes
// them, a page is published; the kubelet map, reloads and control requests arrive beside that. See
// docs/architecture.md.
#pragma once

#include "base/error.h"
#include "exporter/config.h"
#include "exporter/options.h"

struct app;
// Takes neither; both must outlive the app. 0, negative errno with *err.
int must_use app_new(const struct exporter_options *options, struct exporter_config *config,
                     struct app **out, struct error *err);
int app_run(struct app *a); // until SIGINT, SIGTERM or SIGQUIT; returns the exit status
void app_free(struct app *a);
