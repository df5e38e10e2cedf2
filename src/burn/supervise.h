// SPDX-License-Identifier: Apache-2.0
// The parent of all load: one process for each GPU and --procs, in step from one start on, told of
// once a second, ended together.
#pragma once

#include "burn/options.h"

// Runs to the end; logs what goes wrong. Returns the exit status: the worst enum burn_result of all
// processes. No child is left behind.
int burn_supervise(const struct burn_options *o);
