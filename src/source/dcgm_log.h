// SPDX-License-Identifier: Apache-2.0
// DCGM's own log as lines of ours. DCGM writes it to standard output, which becomes a pipe with a
// thread behind it: a call into DCGM that logs would wait for ever on a pipe that the calling
// thread is to read.
#pragma once

#include <stdbool.h>

#include "base/macros.h"

// One of NONE FATAL ERROR WARN INFO DEBUG VERB.
bool dcgm_log_is_level(const char *level);
// Before libdcgm is loaded. Lines of DEBUG and VERB are ours of debug level, others of info level;
// what is no line of DCGM's log goes to standard error as it is. 0 or a negative errno.
int must_use dcgm_log_start(const char *level);
// Standard output is what it was; waits a moment for the lines that are on their way.
void dcgm_log_stop(void);
