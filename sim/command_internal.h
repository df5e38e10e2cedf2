// SPDX-License-Identifier: Apache-2.0
// What the files of verbs share: a verb's words and how they are read.
#pragma once

#include "node_edit.h"

#define COMMAND_MAX_WORDS 32

// The words behind the verb.
struct command {
    size_t count;
    const struct sv *list;
};

// The value of the word `key=value`; ptr is NULL when it isn't there.
struct sv command_word(const struct command *w, const char *key);
bool command_has(const struct command *w, const char *exact);
int must_use command_number(const struct command *w, const char *key, int64_t fallback,
                            int64_t *out, struct error *err);
// gpu=N; SIM_NONE when it isn't there and isn't required.
int must_use command_gpu(const struct sim_node *n, const struct command *w, bool required,
                         uint32_t *out, struct error *err);
// The process of that pid that lives after `at`, SIM_NONE.
uint32_t command_process(const struct sim_node *n, struct sv pid_text, int64_t at);
int must_use command_set_load(struct sim_node *n, _Atomic uint32_t *list, struct sv value,
                              int64_t at, struct error *err);

// Verbs of other files.
#define COMMAND_VERB(name)                                                                         \
    int must_use name(struct sim_node *n, int64_t at, const struct command *w, struct buf *out,    \
                      struct error *err)
COMMAND_VERB(command_fault_verb);
COMMAND_VERB(command_crash_verb);
COMMAND_VERB(command_dcgm_verb);
COMMAND_VERB(command_pods_verb);
COMMAND_VERB(command_process_verb);
