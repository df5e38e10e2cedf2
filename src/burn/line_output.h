// SPDX-License-Identifier: Apache-2.0
// Lines on stdout that never make us wait: schedules and signals go on while a reader sleeps.
#pragma once

#include "base/sv.h"

// Writes the text, or leaves it out when stdout doesn't take it at once: 0. Negative errno when it
// can't be written.
int line_output_write(struct sv text);
