// SPDX-License-Identifier: Apache-2.0
// CPU time, memory and descriptors of this process, from /proc/self; no malloc.
#pragma once

#include "exporter/render.h"

void process_stats_read(struct render_self_process *out); // what can't be read stays 0
