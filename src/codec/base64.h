// SPDX-License-Identifier: Apache-2.0
// Strict base64 with padding (RFC 4648, section 4).
#pragma once

#include "base/macros.h"
#include "base/sv.h"

// 0 and the length; -EINVAL: not base64, or longer than out.
int must_use base64_decode(struct sv in, char *out, size_t out_bytes, size_t *out_len);
