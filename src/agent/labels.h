// SPDX-License-Identifier: Apache-2.0
// A label set: names and values sorted by name (byte order), each name once, no empty value. Grows
// in an arena.
#pragma once

#include <stdbool.h>

#include "base/arena.h"
#include "base/macros.h"
#include "base/sv.h"

struct label {
    struct sv name, value;
};

struct labels {
    struct label *items;
    size_t count, capacity;
    struct arena *arena; // where items and copied text live; borrowed
};

void labels_init(struct labels *l, struct arena *arena); // empty
// Copies name and value into the arena. An empty value deletes. 0, -ENOMEM, -E2BIG (LIMIT_LABELS).
int must_use labels_set(struct labels *l, struct sv name, struct sv value);
// The same without copying: both must outlive the arena.
int must_use labels_set_borrowed(struct labels *l, struct sv name, struct sv value);
void labels_delete(struct labels *l, struct sv name);
struct sv labels_get(const struct labels *l, struct sv name); // .len 0 when absent
bool labels_has(const struct labels *l, struct sv name);
void labels_delete_prefix(struct labels *l, struct sv prefix);         // "__meta_"
int must_use labels_copy(struct labels *out, const struct labels *in); // into out's arena, deep
bool labels_equal(const struct labels *a, const struct labels *b);
