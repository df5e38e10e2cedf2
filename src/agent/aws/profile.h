// SPDX-License-Identifier: Apache-2.0
// Profiles of the shared files, and where a profile says its keys come from. An engine: the texts
// of the files come in.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/aws/ini.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/sv.h"

struct aws_profiles { // of both files; an absent file has no lines
    struct ini credentials, config;
    const char *credentials_file, *config_file; // paths, for messages
};

bool aws_profile_exists(const struct aws_profiles *p, struct sv name);
// Value of a setting; those of the credentials file go first. .len 0 when absent.
struct sv aws_profile_get(const struct aws_profiles *p, struct sv name, const char *key);

enum aws_source {
    AWS_SOURCE_NONE, // the profile says nothing of keys
    AWS_SOURCE_KEYS,
    AWS_SOURCE_WEB_IDENTITY,
    AWS_SOURCE_ENVIRONMENT,
    AWS_SOURCE_CONTAINER,
    AWS_SOURCE_IMDS,
};

struct aws_role {
    struct sv arn, session_name, external_id; // the last two may be empty
    uint64_t duration_s;                      // 0: what STS takes
};

struct aws_plan { // views into the files
    enum aws_source source;
    struct sv profile;                               // that has the source
    struct sv access_key, secret_key, session_token; // AWS_SOURCE_KEYS
    struct sv token_file;                            // AWS_SOURCE_WEB_IDENTITY
    struct aws_role web_role;                        // the same
    struct aws_role roles[LIMIT_AWS_ROLES];          // to be assumed with them, the last one first
    size_t role_count;
};
// 0; -EINVAL with *err: the profile asks for what cannot be done (a circle of profiles, half a pair
// of keys, credential_process, single sign-on, a device code).
int must_use aws_profile_plan(const struct aws_profiles *p, struct sv name, struct aws_plan *out,
                              struct error *err);
