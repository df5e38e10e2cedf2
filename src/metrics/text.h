// SPDX-License-Identifier: Apache-2.0
// Writing metrics as text: Prometheus exposition format 0.0.4 and OpenMetrics 1.0. Engines: bytes
// into a buf. Source: prometheus.io/docs/instrumenting/exposition_formats and the OpenMetrics 1.0
// specification.
#pragma once

#include "base/buf.h"
#include "base/sv.h"

enum text_format {
    TEXT_FORMAT_PROMETHEUS,  // "text/plain; version=0.0.4; charset=utf-8"
    TEXT_FORMAT_OPENMETRICS, // "application/openmetrics-text; version=1.0.0; charset=utf-8"
    TEXT_FORMAT_COUNT,
};

enum text_type {
    TEXT_TYPE_GAUGE,
    TEXT_TYPE_COUNTER,
    TEXT_TYPE_HISTOGRAM,
    TEXT_TYPE_SUMMARY,
    TEXT_TYPE_UNTYPED, // "unknown" in OpenMetrics
    TEXT_TYPE_INFO,    // a gauge named *_info in 0.0.4; type info in OpenMetrics
};

const char *text_content_type(enum text_format f); // static
const char *text_type_name(enum text_type t, enum text_format f);

// Escapes as the format asks: label values \ " and newline; help \ and newline (and " in
// OpenMetrics). Bytes that are not UTF-8 become U+FFFD; values over LIMIT_LABEL_VALUE_BYTES are cut
// at a character boundary.
void text_add_label_value(struct buf *out, struct sv value);
void text_add_help(struct buf *out, enum text_format f, struct sv help);
// `name="value"` with a comma before it unless the buffer ends in '{'.
void text_add_label(struct buf *out, const char *name, struct sv value);

// The # HELP and # TYPE lines of a family. In OpenMetrics a counter's family name loses "_total",
// one that has none is exposed as `unknown` (its samples would be illegal otherwise), and an info
// family loses "_info"; TYPE comes first.
void text_add_family(struct buf *out, enum text_format f, struct sv name, enum text_type type,
                     struct sv help);

// Values
void text_add_f6(struct buf *out, double v); // C's "%f": always six decimals, "+Inf", "-Inf", "NaN"
void text_add_double(struct buf *out, double v); // shortest text, num_print_double
// units / 10^decimals as a plain decimal, trailing zeros kept: (1234567, 6) -> "1.234567".
void text_add_fixed(struct buf *out, uint64_t units, unsigned decimals);

// A histogram whose counts, bounds and sum are whole numbers.
struct text_histogram {
    const uint32_t *bounds_ppm; // upper ones, ascending, in millionths; +Inf is not among them
    const uint64_t *counts;     // of each bucket alone, bound_count + 1 of them
    size_t bound_count;
    uint64_t sum_millionths;
};
// Its _bucket, _sum and _count lines; labels: `{gpu="0"`, left open, or empty. Bounds are written
// as the format has floats: OpenMetrics' have a point.
void text_add_histogram(struct buf *out, enum text_format f, struct sv name, struct sv labels,
                        const struct text_histogram *h);

// A label or metric name from foreign text: each byte outside [a-zA-Z0-9_] becomes '_' (and a
// leading digit gets '_' before it).
void text_add_sanitised_name(struct buf *out, struct sv raw);
bool text_is_metric_name(struct sv s); // [a-zA-Z_:][a-zA-Z0-9_:]*
bool text_is_label_name(struct sv s);  // [a-zA-Z_][a-zA-Z0-9_]*
