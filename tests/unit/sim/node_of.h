// SPDX-License-Identifier: Apache-2.0
// Nodes for the tests: a scenario's text into a node on the heap.
#pragma once

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "node_edit.h"

#define S INT64_C(1000000000)
#define MS INT64_C(1000000)

#define DRIVER "driver: {version: 550.90.07}\n"
// One GPU, its body's further keys behind.
#define GPU "  - uuid: GPU-0\n    bus_id: \"00000000:1B:00.0\"\n"

static inline struct sim_node *node_of(const char *text)
{
    struct sim_node *n = calloc(1, sizeof(*n));
    struct error err = ERROR_INIT;
    char why[1024];
    assert_non_null(n);
    if (sim_compile(n, sv_from(text), "test.yaml", &err) != 0)
        fail_msg("%s", error_text(&err, why, sizeof(why)));
    return n;
}

// A verb that must work, or fail with this code.
static inline void verb(struct sim_node *n, int64_t at, const char *line, int expected)
{
    struct buf out = BUF_INIT(1 << 20);
    struct error err = ERROR_INIT;
    int rc = sim_command_line(n, at, sv_from(line), &out, &err);
    if (rc != expected)
        fail_msg("%s: %d: %s", line, rc, err.text);
    buf_deinit(&out);
}

static inline int64_t truth(const struct sim_node *n, enum sim_field field, int64_t t)
{
    int64_t value;
    assert_int_equal(sim_truth(n, 0, field, t, &value), 0);
    return value;
}
