// SPDX-License-Identifier: Apache-2.0
// A sorted array, found in by halving. What is dropped from it stays in the arena until that is
// reset.
#include "agent/labels.h"

#include <errno.h>

#include "base/limits.h"

#define FIRST_CAPACITY 16

void labels_init(struct labels *l, struct arena *arena)
{
    *l = (struct labels){.arena = arena};
}

static int arena_failure(const struct arena *a)
{
    return a->error == -EFBIG ? -E2BIG : -ENOMEM;
}

// Where name is, or has to stand.
static size_t position(const struct labels *l, struct sv name, bool *found)
{
    size_t low = 0, high = l->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = sv_compare(l->items[middle].name, name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return low;
}

static int grow(struct labels *l, size_t capacity)
{
    if (capacity > LIMIT_LABELS)
        capacity = LIMIT_LABELS;
    struct label *items = arena_alloc(l->arena, capacity * sizeof(*items));
    if (!items)
        return arena_failure(l->arena);
    if (l->count)
        memcpy(items, l->items, l->count * sizeof(*items));
    l->items = items;
    l->capacity = capacity;
    return 0;
}

static int insert(struct labels *l, size_t at, struct sv name, struct sv value)
{
    if (l->count == LIMIT_LABELS)
        return -E2BIG;
    if (l->count == l->capacity) {
        int r = grow(l, l->capacity ? l->capacity * 2 : FIRST_CAPACITY);
        if (r < 0)
            return r;
    }
    memmove(&l->items[at + 1], &l->items[at], (l->count - at) * sizeof(*l->items));
    l->items[at] = (struct label){name, value};
    l->count++;
    return 0;
}

static void remove_at(struct labels *l, size_t at, size_t count)
{
    l->count -= count;
    memmove(&l->items[at], &l->items[at + count], (l->count - at) * sizeof(*l->items));
}

static int copy_text(struct arena *a, struct sv *s)
{
    s->ptr = arena_dup(a, *s);
    return s->ptr ? 0 : arena_failure(a);
}

static int set(struct labels *l, struct sv name, struct sv value, bool copy)
{
    bool found;
    size_t at = position(l, name, &found);
    if (value.len == 0) {
        if (found)
            remove_at(l, at, 1);
        return 0;
    }
    int r = copy ? copy_text(l->arena, &value) : 0;
    if (r == 0 && copy && !found)
        r = copy_text(l->arena, &name);
    if (r < 0)
        return r;
    if (!found)
        return insert(l, at, name, value);
    l->items[at].value = value;
    return 0;
}

int labels_set(struct labels *l, struct sv name, struct sv value)
{
    return set(l, name, value, true);
}

int labels_set_borrowed(struct labels *l, struct sv name, struct sv value)
{
    return set(l, name, value, false);
}

void labels_delete(struct labels *l, struct sv name)
{
    bool found;
    size_t at = position(l, name, &found);
    if (found)
        remove_at(l, at, 1);
}

struct sv labels_get(const struct labels *l, struct sv name)
{
    bool found;
    size_t at = position(l, name, &found);
    return found ? l->items[at].value : SV("");
}

bool labels_has(const struct labels *l, struct sv name)
{
    bool found;
    (void)position(l, name, &found);
    return found;
}

void labels_delete_prefix(struct labels *l, struct sv prefix)
{
    bool found;
    size_t first = position(l, prefix, &found), end = first;
    while (end < l->count && sv_starts_with(l->items[end].name, prefix))
        end++;
    if (end > first)
        remove_at(l, first, end - first);
}

int labels_copy(struct labels *out, const struct labels *in)
{
    out->count = 0;
    if (out->capacity < in->count) {
        int r = grow(out, in->count);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < in->count; i++) {
        struct label copy = in->items[i];
        int r = copy_text(out->arena, &copy.name);
        if (r == 0)
            r = copy_text(out->arena, &copy.value);
        if (r < 0)
            return r;
        out->items[out->count++] = copy;
    }
    return 0;
}

bool labels_equal(const struct labels *a, const struct labels *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        if (!sv_equals(a->items[i].name, b->items[i].name) ||
            !sv_equals(a->items[i].value, b->items[i].value))
            return false;
    }
    return true;
}
