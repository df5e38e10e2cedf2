// SPDX-License-Identifier: Apache-2.0
// The EC2 instance metadata: a session token first (version 2); where none can be had, one try
// without (version 1). Source: the EC2 user guide, "Use the Instance Metadata Service".
#pragma once

#include "agent/aws/ask.h"

enum aws_imds_outcome {
    AWS_IMDS_FOUND,
    AWS_IMDS_NOTHING, // it answers, and has no such path
    AWS_IMDS_OFF,     // nothing answers there, or not to us
    AWS_IMDS_FAILED,
};

struct aws_imds {
    struct aws_ask ask;
    void (*done)(void *user, enum aws_imds_outcome outcome, struct sv body, int64_t server_time_s);
    void *user;
    struct error err;      // in done: why it is not AWS_IMDS_FOUND
    struct buf token;      // of the session; empty: none yet
    struct buf path;       // asked for
    bool is_without_token; // version 1
    bool has_renewed;      // the token, for this path
    bool is_token_asked;   // the answer to come is a token
    bool is_off;           // AWS_IMDS_OFF was the last outcome
};

bool aws_imds_is_disabled(const struct aws_env *env); // AWS_EC2_METADATA_DISABLED
void aws_imds_endpoint(const struct aws_env *env, struct buf *out);
// done comes once for each aws_imds_get, not from inside it; in it another may be asked for, or all
// be deinited. The body is borrowed for the call. 0, -ENOMEM.
int must_use aws_imds_init(struct aws_imds *m, const struct aws_env *env,
                           void (*done)(void *user, enum aws_imds_outcome outcome, struct sv body,
                                        int64_t server_time_s),
                           void *user);
void aws_imds_get(struct aws_imds *m, struct sv path); // "/latest/meta-data/..."
void aws_imds_deinit(struct aws_imds *m);              // cancels; a zeroed one may be deinited
