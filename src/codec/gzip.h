// SPDX-License-Identifier: Apache-2.0
// gzip of whole bodies (libdeflate, level 1). Pure; callable from the pool.
#pragma once

#include <stddef.h>

#include "base/macros.h"
#include "base/sv.h"

// 0 and a heap buffer; -ENOMEM.
int must_use gzip_compress(struct sv in, char **out_data, size_t *out_bytes);
