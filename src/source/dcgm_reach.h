// SPDX-License-Identifier: Apache-2.0
// Whether anybody listens where a host engine may be: a plain connect, closed at once. libdcgm
// tells a refused connection, a timeout and a name that is not known in one and the same code.
#pragma once

#include "gpu/dcgm_address.h"

enum dcgm_reach {
    DCGM_REACH_LISTENS, // somebody took the connection
    DCGM_REACH_NOBODY,  // surely nobody: refused, or no such socket
    DCGM_REACH_UNKNOWN, // timed out, no permission, no such name: somebody may
};

// Waits timeout_ms at most, the resolver apart (RES_OPTIONS bounds it). *why gets a line of static
// or thread-local text; "" when somebody listens.
enum dcgm_reach dcgm_reach_try(const struct dcgm_address *a, unsigned timeout_ms, const char **why);
