// SPDX-License-Identifier: Apache-2.0
// Look-ups over the two generated tables, which are sorted: by id, and by name in byte order.
#include "gpu/catalogue.h"

const struct field_info *field_find(uint16_t id)
{
    size_t low = 0, high = field_table_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (field_table[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < field_table_count && field_table[low].id == id ? &field_table[low] : NULL;
}

const struct field_info *field_find_by_name(struct sv name)
{
    size_t low = 0, high = field_name_table_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = sv_compare(sv_from(field_name_table[middle].name), name);
        if (!order)
            return field_find(field_name_table[middle].id);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const char *field_nearest_name(struct sv name)
{
    // A typing error or two: one byte in six, so that a wholly different word finds nothing.
    unsigned best = (unsigned)(name.len < 96 ? name.len / 6 : 16) + 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < field_name_table_count; i++) {
        struct sv known = sv_from(field_name_table[i].name);
        if (sv_equals_nocase(known, name))
            return known.ptr;
        unsigned distance = sv_distance(known, name, best);
        if (distance < best) {
            best = distance;
            nearest = known.ptr;
        }
    }
    return nearest;
}
