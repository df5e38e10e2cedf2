// SPDX-License-Identifier: Apache-2.0
// The ranges stand in order: a binary search finds the last one that begins at or before a
// character.
#include "agent/letter_case.h"

#include <stdbool.h>

uint32_t letter_to_case(uint32_t character, enum letter_case wanted)
{
    bool upper = wanted == LETTER_UPPER;
    const struct letter_range *ranges = upper ? letter_upper_ranges : letter_lower_ranges;
    size_t low = 0, high = upper ? letter_upper_range_count : letter_lower_range_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges[middle].first <= character)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return character;
    const struct letter_range *r = &ranges[low - 1];
    bool inside = character <= r->last && (character - r->first) % r->step == 0;
    return inside ? character + (uint32_t)r->delta : character;
}

// Of a well-formed sequence of that length.
static uint32_t decode(const char *s, size_t length)
{
    static const unsigned char first_bits[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    uint32_t character = (unsigned char)s[0] & first_bits[length];
    for (size_t i = 1; i < length; i++)
        character = character << 6 | ((unsigned char)s[i] & 0x3f);
    return character;
}

static size_t encode(uint32_t character, char *out)
{
    static const unsigned char marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    size_t length = character < 0x80 ? 1 : character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (character & 0x3f));
        character >>= 6;
    }
    out[0] = (char)(marks[length] | character);
    return length;
}

size_t letter_text_to_case(struct sv s, enum letter_case wanted, char *out)
{
    size_t written = 0;
    while (s.len) {
        size_t length = sv_utf8_length(s);
        if (length == 0)
            out[written++] = s.ptr[0];
        else
            written += encode(letter_to_case(decode(s.ptr, length), wanted), out + written);
        s = sv_sub(s, length ? length : 1, s.len);
    }
    return written;
}
