// SPDX-License-Identifier: Apache-2.0
// What a scrape asks for and how an answer is to be read. An engine. Source: Prometheus 3.0's
// scrape and textparse packages.
#pragma once

#include "agent/prometheus_config.h"
#include "base/buf.h"
#include "metrics/parse.h"

// The value of the Accept header for scrape_protocols, the liked ones first; without them
// Prometheus' default.
void scrape_protocol_add_accept(struct buf *out, const struct prom_job *job);
// By Content-Type; where that is none that is known, by the job's fallback. 0, -EINVAL with *err.
int must_use scrape_protocol_format(struct sv content_type, const char *fallback,
                                    enum parse_format *out, struct error *err);
