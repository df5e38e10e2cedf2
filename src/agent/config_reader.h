// SPDX-License-Identifier: Apache-2.0
// Reads YAML configuration by tables of keys, and goes on after a problem, so that a person hears
// of all of them at once. What is read lives in the reader's arena. Readers return nothing: look at
// problems and failure at the end.
#pragma once

#include "base/arena.h"
#include "base/buf.h"
#include "base/error.h"
#include "codec/regex.h"
#include "codec/yaml.h"

struct config_reader {
    const char *file;
    struct arena *arena;
    struct buf
        *errors; // gets "file:line:column: text" and a line end for each problem; may be NULL
    struct error *first; // gets the first problem; may be NULL
    struct buf
        *ignored; // gets "rule_files, alerting": keys in use that have no effect; may be NULL
    bool hide;    // what is read is secret: messages do not show it
    struct regex_budget regexes; // of the whole configuration
    unsigned problems;
    int failure; // 0, or -ENOMEM, -EFBIG: the arena is at its end
};

enum config_type {
    CONFIG_TEXT,     // char *
    CONFIG_PATH,     // char *, relative to the directory of the file
    CONFIG_BOOL,     // bool
    CONFIG_COUNT,    // uint64_t
    CONFIG_DURATION, // uint64_t, ns; Prometheus' grammar
    CONFIG_SIZE,     // uint64_t, bytes; "10MB" is 10 MiB
    CONFIG_LIST,     // struct config_list, of texts
    CONFIG_CUSTOM,   // whatever custom does
    CONFIG_INLINE,   // the keys of another section, at this offset
    CONFIG_IGNORED,  // anything, unread
    CONFIG_UNUSED,   // the same, and told as ignored when it has a value
};

struct config_list {
    char **items;
    size_t count;
    const struct yaml_node *node; // NULL: not given
};

struct config_key { // a table ends with name NULL
    const char *name;
    enum config_type type;
    size_t offset; // of the value in the section
    void (*custom)(struct config_reader *r, const struct yaml_node *n,
                   void *section); // CONFIG_CUSTOM
    const struct config_key *keys; // CONFIG_INLINE
};

// The section's mapping, each key into it. A key without a value (null) leaves the default alone.
// "<<" merges, and keys of the mapping itself win.
void config_read_section(struct config_reader *r, const struct yaml_node *n,
                         const struct config_key *keys, void *section);
// Whether n is of that kind, or null, which reads as an empty one; a problem when it is neither.
bool config_expect(struct config_reader *r, const struct yaml_node *n, enum yaml_kind kind,
                   const char *expected);
// The children of a mapping with "<<" merged, in the arena; NULL and 0 for a null. Each key stands
// once.
const struct yaml_node **config_members(struct config_reader *r, const struct yaml_node *mapping,
                                        size_t *out_count);

// Single values: true when *out was written; false after a problem or on null.
bool config_read_text(struct config_reader *r, const struct yaml_node *n, char **out);
bool config_read_bool(struct config_reader *r, const struct yaml_node *n, bool *out);
bool config_read_count(struct config_reader *r, const struct yaml_node *n, uint64_t *out);
bool config_read_duration(struct config_reader *r, const struct yaml_node *n, uint64_t *out_ns);
bool config_read_size(struct config_reader *r, const struct yaml_node *n, uint64_t *out_bytes);
// "512KB", "1.5GiB", "1MB512KB"; 0 needs no unit. False: it is no size.
bool config_parse_size(struct sv s, uint64_t *out_bytes);
bool config_read_path(struct config_reader *r, const struct yaml_node *n, char **out);
bool config_read_list(struct config_reader *r, const struct yaml_node *n, struct config_list *out);
// A list of sections, each read by read, which gets one that is zeroed. NULL and 0 for a null.
void *config_read_items(struct config_reader *r, const struct yaml_node *n, size_t bytes,
                        void (*take)(struct config_reader *r, const struct yaml_node *n,
                                     void *item),
                        size_t *out_count);
// The value of a key, or else the mapping itself: where a problem with that key stands.
const struct yaml_node *config_place(const struct yaml_node *mapping, const char *key);
void config_ignore(struct config_reader *r, struct sv what);
// A path against the directory of the reader's file.
char *config_path(struct config_reader *r, struct sv path);

void config_problem(struct config_reader *r, const struct yaml_node *n, const char *fmt, ...)
    format_printf(3, 4);
// "KEY: expected WHAT, found 'this'".
void config_unexpected(struct config_reader *r, const struct yaml_node *n, const char *expected);
// From the arena; NULL notes the failure.
void *config_alloc(struct config_reader *r, size_t count, size_t bytes); // zeroed
char *config_text(struct config_reader *r, struct sv s);
