// SPDX-License-Identifier: Apache-2.0
#include <stdarg.h>
#include <stdio.h>

#include "base/buf.h"
#include "codec/json.h"
#include "exporter/doctor_internal.h"

#define LINE_MOST 4096

static const char *const level_names[] = {"ok", "warn", "FAIL"};

static void add_member(struct buf *b, const char *key, const char *value)
{
    buf_add_fmt(b, "%s\"%s\":", b->len > 1 ? "," : "", key);
    json_add_string(b, sv_from(value));
}

static void add_json(struct buf *b, const char *level, const char *what, const char *detail,
                     const struct doctor_fault *fault)
{
    buf_add_char(b, '{');
    add_member(b, "level", level);
    add_member(b, "check", what);
    add_member(b, "detail", detail);
    if (fault) {
        add_member(b, "costs", fault->costs);
        add_member(b, "mend", fault->mend);
    }
    buf_add_str(b, "}\n");
}

// What others wrote stays one line.
static void add_text(struct buf *b, const char *text)
{
    for (; *text; text++)
        buf_add_char(b, (unsigned char)*text < ' ' || *text == 0x7f ? '?' : *text);
}

static void add_line(struct buf *b, const char *level, const char *what, const char *detail,
                     const struct doctor_fault *fault)
{
    buf_add_fmt(b, "%-4s  %-18s  ", level, what);
    add_text(b, detail);
    if (fault)
        buf_add_fmt(b, "; costs: %s; mend: %s", fault->costs, fault->mend);
    buf_add_char(b, '\n');
}

static void say(struct doctor *d, const char *what, const struct doctor_fault *fault,
                const char *detail)
{
    enum doctor_level level = fault ? fault->level : DOCTOR_OK;
    struct buf b = BUF_INIT(LINE_MOST);
    if (d->options->log_format == LOG_FORMAT_JSON)
        add_json(&b, level_names[level], what, detail, fault);
    else
        add_line(&b, level_names[level], what, detail, fault);
    d->failed = d->failed || level == DOCTOR_FAIL || b.error;
    if (b.len > 0)
        (void)fwrite(b.data, 1, b.len, stdout); // process_finish_stdout tells
    buf_deinit(&b);
}

void doctor_ok(struct doctor *d, const char *what, const char *fmt, ...)
{
    char detail[1400];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(detail, sizeof(detail), fmt, args);
    va_end(args);
    say(d, what, NULL, detail);
}

void doctor_fault(struct doctor *d, const char *what, const struct doctor_fault *fault,
                  const char *fmt, ...)
{
    char detail[1400];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(detail, sizeof(detail), fmt, args);
    va_end(args);
    say(d, what, fault, detail);
}
