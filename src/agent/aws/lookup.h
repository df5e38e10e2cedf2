// SPDX-License-Identifier: Apache-2.0
// What the parts of a look-up share: one place after the other, each passed over when it knows
// nothing, its reason noted.
#pragma once

#include "agent/aws/fetch.h"

enum step_result {
    STEP_FOUND,   // text has it
    STEP_NOTHING, // err says why
    STEP_PENDING,
};

struct aws_lookup {
    const struct aws_env *env;
    void (*done)(void *user, const char *text, const struct error *err);
    void *user;
    enum step_result (*const *steps)(struct aws_lookup *l); // NULL-ended
    size_t step;
    struct buf text, looked;
    struct error err; // of the step that ended
    struct aws_ask ask;
    struct aws_imds imds;
    struct loop_timer *timer; // of the first step
    struct loop_timer *again; // until the next try of a step
    char *configured;
    bool is_cluster;
    // Of the tags
    char *region;
    struct aws_credentials *credentials;
    struct aws_key_set keys; // of the request under way
    struct buf instance, next_token;
    unsigned tag_failures, tag_pages;
    uint64_t waiting_since_ns;
};

enum step_result aws_lookup_nothing(struct aws_lookup *l, const char *why);
enum step_result aws_lookup_found(struct aws_lookup *l, struct sv text);
// What a step that was pending came to. The look-up may be gone afterwards.
void aws_lookup_go_on(struct aws_lookup *l, enum step_result r);
// Steps of both.
enum step_result aws_lookup_configured(struct aws_lookup *l);
enum step_result aws_lookup_task(struct aws_lookup *l); // ECS; is_cluster says what of it
// The ask for a new request, the metadata for a path. False: no memory, which l->err says.
bool must_use aws_lookup_ask(struct aws_lookup *l,
                             void (*done)(void *user, const struct http_client_response *response));
bool must_use aws_lookup_imds(struct aws_lookup *l, const char *path,
                              void (*done)(void *user, enum aws_imds_outcome outcome,
                                           struct sv body, int64_t server_time_s));
// The first step is taken in the next turn of the loop. configured is copied; wanted->region is
// taken over, unless this fails. 0, -ENOMEM.
int must_use aws_lookup_start(const struct aws_lookup *wanted, const char *configured,
                              struct aws_lookup **out);
