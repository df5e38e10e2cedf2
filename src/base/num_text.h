// SPDX-License-Identifier: Apache-2.0
// Shortest text that reads back to the same double, laid out as Go's FormatFloat(x, 'g', -1, 64)
// does with Prometheus' thresholds (exponent below 1e-4 and from 1e21): "0.1", "1e+21", "+Inf",
// "-Inf", "NaN". Implemented in the tree's one C++ file of this room with std::to_chars.
#pragma once

#define NUM_DOUBLE_BYTES 32

#ifdef __cplusplus
extern "C" {
#endif
// Writes without NUL, returns the length (<= NUM_DOUBLE_BYTES).
unsigned num_print_double(char *out, double v);
#ifdef __cplusplus
}
#endif
