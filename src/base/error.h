// SPDX-License-Identifier: Apache-2.0
// What went wrong, for a human: set once where it is born, passed up unchanged.
#pragma once

#include "base/macros.h"

struct error {
    int code;        // negative errno
    char file[256];  // empty: no file
    unsigned line;   // 1-based; 0: none
    unsigned column; // 1-based bytes; 0: none
    char text[512];  // one line, no final full stop
};

#define ERROR_INIT ((struct error){0})

// Sets *err (err may be NULL) and returns code, so that `return error_set(err, -EINVAL, ...)` reads
// well.
int error_set(struct error *err, int code, const char *fmt, ...) format_printf(3, 4);
// The same with a position; file may be NULL.
int error_set_at(struct error *err, int code, const char *file, unsigned line, unsigned column,
                 const char *fmt, ...) format_printf(6, 7);
// "file:line:column: text" with what is known of it, into out; returns out.
const char *error_text(const struct error *err, char *out, size_t out_bytes);
