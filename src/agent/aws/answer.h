// SPDX-License-Identifier: Apache-2.0
// Answers of AWS services with keys in them, and without. An engine. Messages never show what an
// answer holds but its own code and message.
#pragma once

#include <stdint.h>

#include "agent/aws/keys.h"

// "2026-01-02T03:04:05Z", also with a fraction or an offset, as seconds since 1970. 0, -EINVAL.
int must_use aws_time_parse(struct sv text, int64_t *out_s);

// JSON of container endpoints and of the instance metadata: AccessKeyId, SecretAccessKey, Token,
// Expiration, and Code "Success" where there is a Code. 0, -EPROTO with *err, -ENOMEM.
int must_use aws_answer_container(struct sv body, struct aws_key_set *out, struct error *err);

// XML of STS: ActionResponse/ActionResult/Credentials. 0, -EPROTO with *err, -ENOMEM.
int must_use aws_answer_sts(struct sv body, struct aws_key_set *out, struct error *err);

// Code and message of an error's XML (STS: ErrorResponse/Error, EC2: Response/Errors/Error) or JSON
// ({"code","message"}), cut to fit and made of printable characters; "" when there are none.
struct aws_fault {
    char code[64];
    char message[256];
};
void aws_answer_fault(struct sv body, struct aws_fault *out);

// XML of DescribeTags: each tag, and the next page's token (appended; none: nothing). 0, -EPROTO
// with *err, -ENOMEM.
int must_use aws_answer_tags(struct sv body,
                             void (*tag)(void *user, struct sv key, struct sv value), void *user,
                             struct buf *next_token, struct error *err);

// JSON of the ECS task metadata: the name of the cluster (from its ARN, if it is one) and the
// region of the task's ARN, appended. 0, -EPROTO with *err, -ENOMEM.
int must_use aws_answer_task(struct sv body, struct buf *cluster, struct buf *region,
                             struct error *err);
