// SPDX-License-Identifier: Apache-2.0
// Upper and lower case of any letter, one character to one: the simple mappings of Unicode, as Go's
// strings.ToUpper and strings.ToLower apply them.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/sv.h"

enum letter_case {
    LETTER_LOWER,
    LETTER_UPPER,
};

// The character, or itself when it has no other case.
uint32_t letter_to_case(uint32_t character, enum letter_case wanted);
// No text grows beyond that many times its bytes.
#define LETTER_CASE_GROWTH 2
// Writes s in that case into out, which has room; returns the length. Bytes that are no UTF-8 stay.
size_t letter_text_to_case(struct sv s, enum letter_case wanted, char *out);

struct letter_range { // every step-th character from first to last maps to itself + delta
    uint32_t first, last, step;
    int32_t delta;
};
extern const struct letter_range letter_upper_ranges[], letter_lower_ranges[];
extern const size_t letter_upper_range_count, letter_lower_range_count;
