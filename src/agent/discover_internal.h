// SPDX-License-Identifier: Apache-2.0
// The discoverers that this room has itself.
#pragma once

#include "agent/prometheus_config.h"
#include "agent/target_group.h"
#include "io/http_client.h"
#include "io/loop.h"

// --- discover_file.c: file_sd_configs ---
struct discover_file;
// config is borrowed. 0, -ENOMEM.
int must_use discover_file_new(struct loop *l, const struct prom_file_sd *config,
                               const struct discover_events *events, struct discover_file **out);
void discover_file_free(struct discover_file *f);

// --- discover_http.c: http_sd_configs ---
struct discover_http;
int must_use discover_http_new(struct loop *l, struct http_client *client,
                               const struct prom_http_sd *config,
                               const struct discover_events *events, struct discover_http **out);
void discover_http_free(struct discover_http *h);
