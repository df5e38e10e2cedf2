// SPDX-License-Identifier: Apache-2.0
// Of the environment, for the files of this folder.
#pragma once

#include "agent/aws/credentials.h"

#define AWS_REGION_BYTES_MAX 63 // a label of a host name

bool aws_env_is_true(const struct aws_env *e, const char *name); // "true" in any case
bool aws_region_is_valid(struct sv region);                      // fit for a host name

struct aws_partition {
    const char *prefix; // of its regions
    const char *name;   // in ARNs
    const char *suffix, *dualstack_suffix;
    const char *main_region; // where STS always answers
};
// Of a region, or by its own name. Never NULL.
const struct aws_partition *aws_partition_of(struct sv region);
