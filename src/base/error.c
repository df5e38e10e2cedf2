// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/sv.h"

static void format_printf(5, 0) set_position(struct error *err, const char *file, unsigned line,
                                             unsigned column, const char *fmt, va_list args)
{
    sv_copy(err->file, sizeof(err->file), sv_from(file));
    err->line = line;
    err->column = column;
    (void)vsnprintf(err->text, sizeof(err->text), fmt, args);
    // One line, whatever foreign text was quoted in it.
    for (char *c = err->text; *c; c++) {
        if ((unsigned char)*c < 0x20)
            *c = ' ';
    }
}

int error_set(struct error *err, int code, const char *fmt, ...)
{
    if (!err)
        return code;
    va_list args;
    va_start(args, fmt);
    set_position(err, NULL, 0, 0, fmt, args);
    va_end(args);
    err->code = code;
    return code;
}

int error_set_at(struct error *err, int code, const char *file, unsigned line, unsigned column,
                 const char *fmt, ...)
{
    if (!err)
        return code;
    va_list args;
    va_start(args, fmt);
    set_position(err, file, line, column, fmt, args);
    va_end(args);
    err->code = code;
    return code;
}

const char *error_text(const struct error *err, char *out, size_t out_bytes)
{
    const char *colon = err->file[0] ? ":" : "";
    const char *space = err->file[0] || err->line ? " " : "";
    if (err->line && err->column)
        (void)snprintf(out, out_bytes, "%s%s%u:%u: %s", err->file, colon, err->line, err->column,
                       err->text);
    else if (err->line)
        (void)snprintf(out, out_bytes, "%s%s%u: %s", err->file, colon, err->line, err->text);
    else
        (void)snprintf(out, out_bytes, "%s%s%s%s", err->file, colon, space, err->text);
    return out;
}
