// SPDX-License-Identifier: Apache-2.0
// Between the files of the reader: the cursor over the text, and the families seen.
#pragma once

#include "metrics/parse.h"

struct cursor {
    const char *at, *end;
    const char *line_start; // for columns
    unsigned line;
    int at_end; // what stands behind the last byte: -1, or '}' where the text is what a pair holds
    enum parse_format format;
    struct sv known_labels; // found good before, up to their closing brace
    const struct parse_memory *memory;
    struct error *err;
};

static inline int cursor_peek(const struct cursor *c)
{
    return c->at < c->end ? (unsigned char)*c->at : c->at_end;
}

// Blanks mean something only in the Prometheus format; OpenMetrics has one space where it has any.
static inline void cursor_skip_blanks(struct cursor *c)
{
    if (c->format != PARSE_PROMETHEUS)
        return;
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
        c->at++;
}

// "expected ..., got ..." at the cursor. Returns -EINVAL.
int cursor_expected(const struct cursor *c, const char *expected);

// Each leaves the cursor behind what it read. 0 or -EINVAL.
int must_use scan_metric_name(struct cursor *c, struct sv *out);
int must_use scan_string(struct cursor *c, struct sv *out); // at its quote; valid UTF-8
// A value or, in OpenMetrics, a timestamp: all up to a blank or the end of the line.
int must_use scan_number(struct cursor *c, const char *expected, double *out);
bool scan_is_utf8(struct sv s);
// The same with an error at what is not; start is where s starts. 0 or -EINVAL.
int must_use scan_check_utf8(struct cursor start, struct sv s);

enum scan_entry {
    SCAN_ENTRY_END,  // at the closing brace
    SCAN_ENTRY_PAIR, // name="value"
    SCAN_ENTRY_NAME, // "name": the metric name
};
// One entry between braces and the comma behind it. An enum scan_entry, or -EINVAL.
int must_use scan_entry(struct cursor *c, struct sv *out_name, struct sv *out_value);

struct parse_family {
    struct sv name;
    enum parse_type type;
};
// The last TYPE line of a name counts. 0, -ENOMEM, -E2BIG.
int must_use parse_family_put(struct parser *p, struct sv name, enum parse_type type);
enum parse_type parse_family_type(const struct parser *p, struct sv sample_name);
