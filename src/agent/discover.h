// SPDX-License-Identifier: Apache-2.0
// Discovery of the targets of each job: static_configs, file_sd_configs (watched and re-read),
// http_sd_configs, kubernetes_sd_configs (agent/discover_kube.h).
#pragma once

#include "agent/prometheus_config.h"
#include "agent/target_group.h"
#include "io/http_client.h"
#include "io/loop.h"

struct discovery_options {
    struct loop *loop;
    struct http_client *client;
    const char *node_name; // scope: node, only targets on it; NULL: all
    // As in discover_events, with the job they are for.
    void (*group)(void *user, const struct prom_job *job, const char *source,
                  struct target_group *group);
    void (*ready)(void *user, const struct prom_job *job); // all discoverers of the job are
    void *user;
};

struct discovery_problem { // of one discoverer, now
    const char *job, *kind, *text;
};

struct discovery;
// Starts one discoverer a section. Borrows the configuration, which must outlive it: a new one for
// each configuration. 0, -ENOMEM.
int must_use discovery_new(const struct discovery_options *o, const struct prom_config *config,
                           struct discovery **out);
void discovery_free(struct discovery *d);
// The problems there are now; *out_count of them, borrowed until the next turn of the loop.
const struct discovery_problem *discovery_problems(const struct discovery *d, size_t *out_count);
