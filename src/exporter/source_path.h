// SPDX-License-Identifier: Apache-2.0
// Where the helper program podgpu-source is: --source-path, else beside this program.
#pragma once

#include "exporter/options.h"

// 0; negative errno with *err (it cannot be run, or our own path is not known).
int must_use source_path_find(const struct exporter_options *options, char *out, size_t out_bytes,
                              struct error *err);
