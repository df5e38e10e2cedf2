// SPDX-License-Identifier: Apache-2.0
// Where container credentials may be asked for: by https anywhere, by http only on this host and at
// the addresses of ECS and EKS. An engine.
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "base/sv.h"

// 0, *out_is_local: no proxy leads there; -EINVAL with *err.
int must_use aws_container_url_check(struct sv url, bool *out_is_local, struct error *err);
