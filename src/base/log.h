// SPDX-License-Identifier: Apache-2.0
// Structured log on stderr: a constant lower-case phrase and typed key/values, as logfmt or JSON.
// One write() a line, so lines of several processes on one stderr do not mix. Not for per-sample
// use. A log line never waits: what the reader of stderr does not take at once is left out, and
// counted in `unwritten=N` on the next line that is taken.
// Repeats: the same phrase with the same LOG_LIMIT key is written at most once a minute; any phrase
// but those of debug level 200 times at once and then 10 times a minute, so that nobody outside can
// fill a disk. What was left out is counted in `repeats=N` on the next one.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/sv.h"

enum log_level {
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_INFO,
    LOG_LEVEL_WARN,
    LOG_LEVEL_ERROR,
};

enum log_format {
    LOG_FORMAT_TEXT, // time=<RFC 3339, ms, local zone> level=INFO msg="..." key=value
    LOG_FORMAT_JSON, // {"time":...,"level":"INFO","msg":...,"key":...}
};

enum log_kind {
    LOG_KIND_END,
    LOG_KIND_STR,
    LOG_KIND_SV,
    LOG_KIND_I64,
    LOG_KIND_U64,
    LOG_KIND_BOOL,
    LOG_KIND_ERRNO, // takes an errno of either sign, prints its text
    LOG_KIND_LIMIT, // not printed: the repeat key
};

struct log_field {
    enum log_kind kind;
    const char *key;
    union {
        const char *str;
        struct sv sv;
        int64_t i64;
        uint64_t u64;
        bool boolean;
    } value;
};

#define LOG_STR(k, v) ((struct log_field){LOG_KIND_STR, (k), {.str = (v)}})
#define LOG_SV(k, v) ((struct log_field){LOG_KIND_SV, (k), {.sv = (v)}})
#define LOG_I64(k, v) ((struct log_field){LOG_KIND_I64, (k), {.i64 = (v)}})
#define LOG_U64(k, v) ((struct log_field){LOG_KIND_U64, (k), {.u64 = (v)}})
#define LOG_BOOL(k, v) ((struct log_field){LOG_KIND_BOOL, (k), {.boolean = (v)}})
#define LOG_ERRNO(v) ((struct log_field){LOG_KIND_ERRNO, "error", {.i64 = (v)}})
#define LOG_LIMIT(key) ((struct log_field){LOG_KIND_LIMIT, NULL, {.str = (key)}})

// Before any other thread exists; again when descriptor 2 has become another.
void log_setup(enum log_format format, enum log_level least);
bool log_wants(enum log_level level);
// The field list ends with a LOG_KIND_END entry; use the macros below.
void log_write(enum log_level level, const char *phrase, const struct log_field *fields);

#define log_at(level, phrase, ...)                                                                 \
    do {                                                                                           \
        if (log_wants(level))                                                                      \
            log_write(                                                                             \
                (level), (phrase),                                                                 \
                (const struct log_field[]){__VA_ARGS__ __VA_OPT__(, ){LOG_KIND_END, NULL, {0}}});  \
    } while (0)
#define log_debug(phrase, ...) log_at(LOG_LEVEL_DEBUG, phrase __VA_OPT__(, ) __VA_ARGS__)
#define log_info(phrase, ...) log_at(LOG_LEVEL_INFO, phrase __VA_OPT__(, ) __VA_ARGS__)
#define log_warn(phrase, ...) log_at(LOG_LEVEL_WARN, phrase __VA_OPT__(, ) __VA_ARGS__)
#define log_error(phrase, ...) log_at(LOG_LEVEL_ERROR, phrase __VA_OPT__(, ) __VA_ARGS__)
