// SPDX-License-Identifier: Apache-2.0
// The counters file: which fields are exported, under which type and help text (dcgm-exporter's
// CSV). Grammar: RFC 4180 fields, '#' as first byte starts a comment, three fields a record, spaces
// trimmed.
#pragma once

#include "base/error.h"
#include "base/sv.h"
#include "gpu/catalogue.h"

enum counter_type {
    COUNTER_GAUGE,
    COUNTER_COUNTER,
    COUNTER_HISTOGRAM,
    COUNTER_SUMMARY,
    COUNTER_LABEL, // no family: a label on every sample of the same entity
    COUNTER_OTHER, // DCGM_EXP_* rows: any text, kept in type_text
};

struct counter {
    const struct field_info *field; // shared
    char *name;                     // as spelled in the file: the exposed metric name
    char *help;
    char *type_text; // as spelled, echoed on the TYPE line
    enum counter_type type;
    unsigned line; // of the file
};

struct counter_list {
    struct counter *rows; // ascending by (field id, name, type, help): the order of the page
    size_t count;
    size_t duplicates; // rows dropped because the same field id stood before
};

void counter_list_deinit(struct counter_list *l);
// The first row of a field id wins; later ones are counted and logged by the caller. 0; -EINVAL
// with *err: file, line, column, what was found, what was expected, and for an unknown name the
// nearest one; -ENOMEM; -E2BIG.
int must_use counters_parse(struct sv text, const char *file, struct counter_list *out,
                            struct error *err);
// Adds one row from another source (the YAML config), same rules.
struct counter_row {
    struct sv name, type, help; // nothing is trimmed
    const char *file;           // where it stands, for messages; lines and columns from 1
    unsigned line, name_column, type_line, type_column, help_line, help_column;
};
int must_use counters_add(struct counter_list *l, const struct counter_row *row, struct error *err);
void counters_sort(struct counter_list *l);
