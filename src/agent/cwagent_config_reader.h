// SPDX-License-Identifier: Apache-2.0
// Reads JSON by tables of keys, each value told with its place and its path, and goes on after a
// problem. A section may stand in several files: what they say of it is one section, and a key that
// two of them give must have the same value in both. Readers return nothing: look at problems and
// failure at the end. What is read lives in the reader's arena.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "codec/json.h"
#include "codec/regex.h"

#define CW_PATH_BYTES 224 // shown of a path
#define CW_NOWHERE ((size_t)-1)

struct cw_part { // what one file says of a section
    const struct json_node *node;
    const char *file;
};

struct cw_reader {
    struct arena *arena;
    struct arena scratch;                    // for as long as the reading takes
    struct buf *errors, *warnings, *ignored; // may be NULL
    const char *file;                        // of what is being read
    char path[CW_PATH_BYTES + 1]; // "/logs/metrics_collected", of what is being read; "" the root
    size_t path_len;
    struct regex_budget regexes;
    unsigned problems;
    int failure; // 0, -ENOMEM, -EFBIG: the arena is at its end
};

enum cw_type {
    CW_TEXT,     // char *; min to max characters; "" leaves the default alone, where min is 0
    CW_BOOL,     // bool
    CW_WHOLE,    // uint64_t, min to max
    CW_DURATION, // uint64_t, ns, min to max; Prometheus' grammar
    CW_SIZE,     // uint64_t, bytes, min to max; "10MB" is 10 MiB
    CW_NODE,     // const struct json_node *, for who reads the section
    CW_CUSTOM,   // whatever custom does
    CW_SECTION,  // keys of another table, read into the same values
    CW_ANY,      // anything, without effect and not told
    CW_IGNORED,  // a part of the agent that we are not: anything, told as ignored; custom may be
                 // NULL
};

struct cw_section;
struct cw_key { // a table ends with name NULL
    const char *name;
    enum cw_type type;
    size_t offset; // in the values; CW_NOWHERE: checked, without effect
    int64_t min, max;
    void (*custom)(struct cw_reader *r, const struct json_node *n, void *values);
    const struct cw_section *section;
    // For docs/agent-configuration.md.
    const char *kind, *preset, *text;
};

struct cw_section {
    const char *path; // as in the documentation
    const struct cw_key *keys;
    bool open;    // unknown keys are accepted, as the agent accepts them here
    bool ignored; // told as ignored, though some of it is read
    // What joins several keys; n is of the first part. May be NULL.
    void (*check)(struct cw_reader *r, const struct json_node *n, void *values);
};

void cw_section_read(struct cw_reader *r, const struct cw_part *parts, size_t count,
                     const struct cw_section *s, void *values);
// A section in one file.
void cw_object_read(struct cw_reader *r, const struct json_node *n, const struct cw_section *s,
                    void *values);
// The path, one element longer, and back: what was before.
size_t cw_path_enter(struct cw_reader *r, struct sv name);
size_t cw_path_enter_index(struct cw_reader *r, size_t index);
void cw_path_leave(struct cw_reader *r, size_t before);

// "FILE:LINE:COLUMN: PATH: TEXT" and a line end. n may be NULL: the whole file.
void cw_problem(struct cw_reader *r, const struct json_node *n, const char *fmt, ...)
    format_printf(3, 4);
void cw_warning(struct cw_reader *r, const struct json_node *n, const char *fmt, ...)
    format_printf(3, 4);
// "expected WHAT, found 'this'".
void cw_unexpected(struct cw_reader *r, const struct json_node *n, const char *expected);
// Whether n is of that kind; a problem when it is not.
bool cw_expect(struct cw_reader *r, const struct json_node *n, enum json_kind kind);

// True when *out was written, else a problem was told.
bool cw_text_read(struct cw_reader *r, const struct json_node *n, int64_t min, int64_t max,
                  char **out);
bool cw_whole_read(struct cw_reader *r, const struct json_node *n, int64_t min, int64_t max,
                   uint64_t *out);
bool cw_duration_read(struct cw_reader *r, const struct json_node *n, int64_t min, int64_t max,
                      uint64_t *out_ns);
// One of a list of words that ends with NULL.
bool cw_choice_read(struct cw_reader *r, const struct json_node *n, const char *const *words,
                    size_t *out);
size_t cw_characters(struct sv s); // of valid UTF-8
// From the arena; NULL notes the failure.
void *cw_alloc(struct cw_reader *r, size_t count, size_t bytes); // zeroed
char *cw_copy(struct cw_reader *r, struct sv s);
