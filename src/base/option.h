// SPDX-License-Identifier: Apache-2.0
// Command-line and environment options from one table: parser, --help and docs come from it.
// Grammar: Go's flag package (the programs we stand in for use it): `-x`, `--x`, `-x=v`, `-x v` are
// equal, booleans need `=` for a value, parsing stops at `--` or the first word that is not an
// option. Precedence: command line > environment > default.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"

enum option_type {
    OPTION_STRING,   // const char *
    OPTION_INT,      // int64_t, min..max
    OPTION_BOOL,     // bool
    OPTION_LIST,     // struct option_list: comma-split, trimmed, repeatable
    OPTION_DURATION, // uint64_t ns, Go syntax ("10s")
};

struct option_list {
    char **items; // owned
    size_t count;
};

struct option_row {
    const char *name;
    const char *alias; // or NULL
    const char *env;   // or NULL
    enum option_type type;
    size_t offset;            // of the value in the options struct
    size_t set_offset;        // of a bool "given at all" there, or (size_t)-1
    const char *default_text; // as a user would write it; NULL: empty / 0 / false
    int64_t min, max;         // OPTION_INT; both 0: any
    const char *group;        // heading in --help
    const char *help;         // one or two sentences
    bool inert;               // accepted, without effect; --help says so
};

#define OPTION_MAX_ROWS 128

struct option_table {
    const char *program;
    const char *summary; // one line under the usage line
    const struct option_row *rows;
    size_t count;
};

// Outcomes of option_parse beside 0 and negative errno.
#define OPTION_OUTCOME_HELP 1
#define OPTION_OUTCOME_VERSION 2

// Fills values (zeroed by the caller). Strings and lists are owned by it: option_deinit.
// environment may be NULL. *out_first_positional (may be NULL) gets the index in argv of the first
// positional, argc when there is none; a first positional "help" or "h" asks for help, as -h does.
// An empty variable empties a string or list, is false for a boolean and leaves a number or
// duration alone. 0; OPTION_OUTCOME_HELP; OPTION_OUTCOME_VERSION; -EINVAL with *err (names the flag
// or variable, the text found, what was expected, and the nearest known flag); -ENOMEM. values is
// empty again unless 0.
int must_use option_parse(const struct option_table *table, int argc, char **argv,
                          char **environment, void *values, int *out_first_positional,
                          struct error *err);
void option_deinit(const struct option_table *table, void *values);
// Whether the row's value is the default one.
bool option_is_default(const struct option_row *row, const void *values);
void option_print_help(const struct option_table *table, struct buf *out);
// Prints what an outcome asks for, help or version, on stdout.
void option_print(const struct option_table *table, int outcome);
