// SPDX-License-Identifier: Apache-2.0
// Numbers from and to text, range-checked; no locale. The shortest-double printer is num_text.h.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/sv.h"

// The value of a hexadecimal digit of either case, or -1.
int num_hex_digit(char c);
// All of s must be the number. 0, -EINVAL (not a number), -ERANGE (outside [min, max]).
int must_use num_parse_u64(struct sv s, uint64_t min, uint64_t max, uint64_t *out);
int must_use num_parse_i64(struct sv s, int64_t min, int64_t max, int64_t *out);
// Decimal or exponent form, no hex, no inf/nan. 0, -EINVAL, -ERANGE.
int must_use num_parse_double(struct sv s, double *out);
// What ParseFloat of Go has beside digits: inf and infinity of any case and sign, nan without one.
bool num_parse_special_go(struct sv s, double *out);
// Go's strconv base prefixes (0x, 0o, 0b, leading 0 = octal, `_` between digits). As num_parse_i64.
int must_use num_parse_i64_go(struct sv s, int64_t min, int64_t max, int64_t *out);
// Go's ParseBool: 1 t T TRUE true True 0 f F FALSE false False. 0 or -EINVAL.
int must_use num_parse_bool_go(struct sv s, bool *out);
// Go's time.ParseDuration ("1s", "1h30m", "100ms", "0"); result in ns, never negative. 0, -EINVAL,
// -ERANGE.
int must_use num_parse_duration_go(struct sv s, uint64_t *out_ns);

#define NUM_U64_BYTES 20 // longest text
#define NUM_I64_BYTES 20
// Write without NUL, return the length; out must have the room named above.
unsigned num_print_u64(char *out, uint64_t v);
unsigned num_print_i64(char *out, int64_t v);
