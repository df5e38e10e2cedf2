// SPDX-License-Identifier: Apache-2.0
// What the HTTP options of prometheus.yaml (basic_auth, authorization, tls_config, proxies,
// http_headers) make of a request. Files are read anew for each request, so that a rotated token or
// password counts at once. Source: prometheus/common's HTTPClientConfig,
// prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config.
#pragma once

#include "agent/prometheus_config.h"
#include "base/arena.h"

// The texts a request borrows; secrets among them.
struct http_options {
    struct arena arena;
    const char **headers; // NULL-ended
};

// Fills everything of *request but its URL, deadline, body and size. own_headers (NULL-ended, may
// be NULL, "Name: value") come first. *out must live until the request is started. 0; negative
// errno with *err (a file that cannot be read, or is no header value), -ENOMEM.
int must_use http_options_init(struct http_options *out, const struct prom_http *http,
                               const char *const *own_headers, struct http_client_request *request,
                               struct error *err);
void http_options_deinit(struct http_options *o); // erases; a zeroed one, too
