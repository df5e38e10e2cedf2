// SPDX-License-Identifier: Apache-2.0
#include "exporter/source_skips.h"

#include <string.h>

#include "base/sv.h"

static struct source_skip *skip_find(struct source_skips *s, uint32_t index)
{
    for (size_t i = 0; i < s->count; i++) {
        if (s->list[i].index == index)
            return &s->list[i];
    }
    return NULL;
}

void source_skips_add(struct source_skips *s, uint32_t index, const char *bus_id, bool at_once,
                      uint64_t now_ns)
{
    if (index == UINT32_MAX || skip_find(s, index) || s->count == LIMIT_GPUS)
        return;
    struct source_skip *skip = &s->list[s->count++];
    *skip = (struct source_skip){
        .index = index,
        .due_ns = at_once ? now_ns : now_ns + s->wait_ns,
        .wait_ns = s->wait_ns,
    };
    sv_copy(skip->bus_id, sizeof(skip->bus_id), sv_from(bus_id));
}

void source_skips_remove(struct source_skips *s, uint32_t index)
{
    struct source_skip *skip = skip_find(s, index);
    if (!skip)
        return;
    s->count--;
    memmove(skip, skip + 1, (size_t)(s->list + s->count - skip) * sizeof(*skip));
}

void source_skips_put_off(struct source_skips *s, uint32_t index, uint64_t now_ns)
{
    struct source_skip *skip = skip_find(s, index);
    if (!skip)
        return;
    uint64_t twice_ns = 2 * skip->wait_ns;
    skip->wait_ns = twice_ns < s->most_wait_ns ? twice_ns : s->most_wait_ns;
    skip->due_ns = now_ns + skip->wait_ns;
}

uint32_t source_skips_due(const struct source_skips *s, uint64_t now_ns)
{
    for (size_t i = 0; i < s->count; i++) {
        if (now_ns >= s->list[i].due_ns)
            return s->list[i].index;
    }
    return UINT32_MAX;
}
