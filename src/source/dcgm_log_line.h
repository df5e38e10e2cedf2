// SPDX-License-Identifier: Apache-2.0
// A line of DCGM's own log: "2024-02-07 18:01:05.641 INFO  [517155:517155] text". Pure functions.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"
#include "base/sv.h"

struct dcgm_log_line {
    struct sv level; // as DCGM writes it: FATAL ERROR WARN INFO DEBUG VERB
    // What follows process and thread, words with one space between them: borrowed from scratch.
    struct sv text;
};

// False: no such line, to be passed on as it is; a line that ends before its text is none. scratch
// has the room of the line at least.
bool dcgm_log_line_parse(struct sv line, char *scratch, struct dcgm_log_line *out);
