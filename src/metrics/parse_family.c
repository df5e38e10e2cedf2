// SPDX-License-Identifier: Apache-2.0
// The families of a page: an array in order of their TYPE lines and a hash table over it.
#include "metrics/parse_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/map.h"

#define FAMILIES_LEAST 64

// The slot of name, or the free one where it would go. The table is never more than half full.
static uint32_t *find_slot(const struct parser *p, struct sv name)
{
    size_t mask = 2 * p->family_capacity - 1;
    size_t at = (size_t)map_hash(name) & mask;
    while (p->slots[at] && !sv_equals(p->families[p->slots[at] - 1].name, name))
        at = (at + 1) & mask;
    return &p->slots[at];
}

static int grow(struct parser *p)
{
    size_t capacity = p->family_capacity ? 2 * p->family_capacity : FAMILIES_LEAST;
    uint32_t *slots = calloc(2 * capacity, sizeof(*slots));
    struct parse_family *families = realloc(p->families, capacity * sizeof(*families));
    if (families)
        p->families = families;
    if (!slots || !families) {
        free(slots);
        return -ENOMEM;
    }
    free(p->slots);
    p->slots = slots;
    p->family_capacity = capacity;
    for (size_t i = 0; i < p->family_count; i++)
        *find_slot(p, families[i].name) = (uint32_t)i + 1;
    return 0;
}

int parse_family_put(struct parser *p, struct sv name, enum parse_type type)
{
    uint32_t *slot = p->slots ? find_slot(p, name) : NULL;
    p->last_name = (struct sv){0};
    if (slot && *slot) {
        p->families[*slot - 1].type = type;
        return 0;
    }
    if (p->family_count == LIMIT_PARSE_FAMILIES)
        return -E2BIG;
    if (p->family_count == p->family_capacity) {
        int r = grow(p);
        if (r < 0)
            return r;
        slot = find_slot(p, name);
    }
    p->families[p->family_count++] = (struct parse_family){name, type};
    *slot = (uint32_t)p->family_count;
    return 0;
}

#define TYPE_BIT(t) (1u << PARSE_TYPE_##t)
#define ANY_TYPE (~0u)

// Suffixes of samples and the types whose families they belong to. The four that Prometheus' own
// formats know count whatever the type, as the CloudWatch agent looks types up.
static const struct {
    struct sv text;
    unsigned types;
} suffixes[] = {
    {{"_total", 6}, ANY_TYPE},
    {{"_count", 6}, ANY_TYPE},
    {{"_sum", 4}, ANY_TYPE},
    {{"_bucket", 7}, ANY_TYPE},
    {{"_created", 8}, TYPE_BIT(COUNTER) | TYPE_BIT(HISTOGRAM) | TYPE_BIT(SUMMARY)},
    {{"_info", 5}, TYPE_BIT(INFO)},
    {{"_gcount", 7}, TYPE_BIT(GAUGEHISTOGRAM)},
    {{"_gsum", 5}, TYPE_BIT(GAUGEHISTOGRAM)},
};

enum parse_type parse_family_type(const struct parser *p, struct sv sample_name)
{
    if (!p->family_count)
        return PARSE_TYPE_NONE;
    uint32_t index = *find_slot(p, sample_name);
    if (index)
        return p->families[index - 1].type;
    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        if (!sv_ends_with(sample_name, suffixes[i].text))
            continue;
        index = *find_slot(p, sv_sub(sample_name, 0, sample_name.len - suffixes[i].text.len));
        if (index && (suffixes[i].types & (1u << p->families[index - 1].type)))
            return p->families[index - 1].type;
    }
    return PARSE_TYPE_NONE;
}
