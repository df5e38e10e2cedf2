// SPDX-License-Identifier: Apache-2.0
// Reading metrics: Prometheus text 0.0.4 and OpenMetrics 1.0, one sample after the other, no
// allocation. An engine.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/sv.h"

enum parse_type {
    PARSE_TYPE_NONE, // no # TYPE seen for the family
    PARSE_TYPE_COUNTER,
    PARSE_TYPE_GAUGE,
    PARSE_TYPE_HISTOGRAM,
    PARSE_TYPE_SUMMARY,
    PARSE_TYPE_UNKNOWN, // untyped
    PARSE_TYPE_INFO,
    PARSE_TYPE_STATESET,
    PARSE_TYPE_GAUGEHISTOGRAM,
};
const char *parse_type_text(enum parse_type t); // "counter"; unknown for none

// One sample. name and labels borrow the input. A quoted name stands as written: parse_unescape
// gives its text (other names have nothing to unescape).
struct parse_sample {
    struct sv series; // raw text from the name to before the value: what a series cache is keyed by
    struct sv name;   // metric name, with its suffix
    struct sv labels; // raw text between the braces, "" without
    // Of its family: the one of the same name; else the one named by the sample less a suffix:
    // _total, _count, _sum, _bucket; _created, _info, _gcount and _gsum for types that have them.
    enum parse_type type;
    double value;
    bool has_timestamp;
    int64_t timestamp_ms;
    unsigned line;
};

enum parse_format {
    PARSE_PROMETHEUS,
    PARSE_OPENMETRICS,
};

// For a caller who remembers series by their text: one that he knows is not read again, which is
// most of the work. Set in a parser after parser_init.
struct parse_memory {
    size_t likely_bytes; // of the text of the series that probably comes next; 0: no idea
    // Whether this is, to the byte, the series of a sample that a parser gave: one whose name comes
    // first and that has no line feed.
    bool (*knows)(void *user, struct sv series);
    void *user;
};

struct parse_family;
struct parser {
    struct sv rest;
    enum parse_format format;
    unsigned line; // the one rest starts with
    bool eof_seen; // OpenMetrics: # EOF
    struct parse_memory memory;
    // private: the TYPE lines seen, bounded; they borrow the input
    struct parse_family *families;
    size_t family_count;
    size_t family_capacity;
    uint32_t *slots;     // hash table of family index + 1; twice family_capacity, 0 is free
    struct sv last_name; // of the last sample; its type is looked up once
    enum parse_type last_type;
    struct sv last_labels; // of the last sample, where the next one may have the same
};

void parser_init(struct parser *p, struct sv text, enum parse_format format);
void parser_deinit(struct parser *p);
// 1: *out is the next sample. 0: end (OpenMetrics: after # EOF). -EINVAL with *err (line, column,
// what was expected): the rest of the text is not to be trusted. -ENOMEM; -E2BIG (more families
// than LIMIT_PARSE_FAMILIES).
int must_use parser_next(struct parser *p, struct parse_sample *out, struct error *err);

// The labels of a sample, one after the other: start with *rest = sample.labels. A quoted metric
// name among them is passed over. Name and value borrow the input or, where one has escapes,
// scratch, until the next call. Values may hold any character, NUL too. 1, 0 at the end, -EINVAL,
// -ENOMEM.
struct buf;
int must_use parse_next_label(struct sv *rest, struct buf *scratch, struct sv *out_name,
                              struct sv *out_value);
// The text of a name or value as written: \\, \" and \n are replaced, other escapes stay. *out
// borrows raw, or scratch (which is reset) where there are escapes. 0, -ENOMEM, -EFBIG.
int must_use parse_unescape(struct sv raw, struct buf *scratch, struct sv *out);
