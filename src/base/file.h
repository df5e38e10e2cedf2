// SPDX-License-Identifier: Apache-2.0
// Small files read whole, with a cap.
#pragma once

#include "base/buf.h"
#include "base/error.h"

// Appends the file to out (whose ceiling bounds it). 0, negative errno with *err naming the path.
int must_use file_read(const char *path, struct buf *out, struct error *err);
