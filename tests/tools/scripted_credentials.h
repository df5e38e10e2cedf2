// SPDX-License-Identifier: Apache-2.0
// Stands in for agent/aws/credentials: keys as a test says, at the time that it says. Link with
// scripted_credentials_args; credentials from aws_credentials_new are the real ones still.
#pragma once

#include "agent/aws/credentials.h"

struct scripted_keys {
    const char *access_key, *secret_key, *session_token; // NULL: "-", none
};

struct scripted_credentials {
    struct scripted_keys keys[2]; // the second after they expired
    uint64_t first_ms;            // from the start, until then -EAGAIN
    uint64_t renew_ms;            // from expiry, until then -EAGAIN
    bool has_none;                // -ENOENT
    bool has_two;                 // else expiry brings nothing new, and is not told
    bool is_quiet;                // the keys are the old ones while the new ones are fetched
};
int must_use scripted_credentials_new(struct loop *loop, const struct scripted_credentials *script,
                                      struct aws_credentials **out);
unsigned scripted_credentials_expired(const struct aws_credentials *c); // how often
