// SPDX-License-Identifier: Apache-2.0
// What the metrics address answers: /metrics, /health, /livez, /readyz and the front page, in
// dcgm-exporter's texts where it has the route. Reads ready state only: no vendor call, no kubelet
// call, no lock.
#pragma once

#include "exporter/publish.h"

#define READY_CONDITIONS_MAX 8

// One line of /readyz.
struct ready_condition {
    const char *name; // static: "source nvml"
    bool ok;
    char text[256];
};

struct routes {
    const struct publisher *publisher;
    bool openmetrics; // answer in OpenMetrics to those who ask for it
    bool reloading;   // a reload is waiting for its first sample
    // Fills up to READY_CONDITIONS_MAX and returns how many.
    size_t (*conditions)(void *user, struct ready_condition *out);
    void *user;
};

// http_server_config.handle; user is a struct routes *.
void routes_handle(void *user, struct http_request *request);
