// SPDX-License-Identifier: Apache-2.0
// AWS credentials on the loop, by the chain of the AWS SDKs: environment, web identity (IRSA),
// shared files with profiles and role_arn, container endpoints (EKS Pod Identity, ECS), EC2
// instance metadata (IMDSv2); then, if asked, AssumeRole on top. Refreshed ahead of expiry. Secrets
// are erased when they are replaced. Source: the AWS SDKs and Tools reference guide, "Standardized
// credential providers".
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/sv.h"
#include "io/http_client.h"
#include "io/loop.h"

struct aws_env { // what the providers read; borrowed, must outlive them
    struct loop *loop;
    struct http_client *client;
    char *const *environment; // NULL-ended
};
const char *aws_env_get(const struct aws_env *e, const char *name); // NULL: unset or empty

struct aws_keys { // borrowed until the next turn of the loop
    struct sv access_key, secret_key, session_token;
};

struct aws_credentials;
// role_arn NULL: none on top. region: of STS; copied, may be NULL (then AWS_REGION,
// AWS_DEFAULT_REGION, the profile's, the main region of the role's partition). The first look
// starts at once, and what needs no request is there when this returns. 0, -ENOMEM.
int must_use aws_credentials_new(const struct aws_env *env, const char *role_arn,
                                 const char *region, struct aws_credentials **out);
// 0 and the keys; -EAGAIN: being fetched; -ENOENT with *err: no provider has any (every place
// looked is named); other negative errno with *err: the provider that should have them failed. Keys
// past their expiry are never given.
int must_use aws_credentials_get(const struct aws_credentials *c, struct aws_keys *out,
                                 struct error *err);
// Called from the loop when aws_credentials_get may give another answer; c may be freed in it. One
// at most; NULL: none.
void aws_credentials_watch(struct aws_credentials *c, void (*changed)(void *user), void *user);
// The service refused them: fetch anew now (not more than once in 10 s).
void aws_credentials_expire(struct aws_credentials *c);
const char *
aws_credentials_provider(const struct aws_credentials *c); // "web identity"; "" none yet
void aws_credentials_free(struct aws_credentials *c);

// --- What else the instance knows ---

// done comes once, not from inside the call. text "" and err set: not found, err names every place
// looked.
struct aws_lookup;
void aws_lookup_free(struct aws_lookup *l); // cancels; allowed inside done
// configured (may be NULL), AWS_REGION, AWS_DEFAULT_REGION, the profile, ECS metadata, IMDS.
int must_use aws_region_find(const struct aws_env *env, const char *configured,
                             void (*done)(void *user, const char *text, const struct error *err),
                             void *user, struct aws_lookup **out);
// configured (may be NULL), K8S_CLUSTER_NAME, the tag kubernetes.io/cluster/NAME = owned of the EC2
// instance (DescribeTags, tried 5 times with backoff), the cluster of ECS metadata.
int must_use aws_cluster_find(const struct aws_env *env, const char *configured, const char *region,
                              struct aws_credentials *credentials,
                              void (*done)(void *user, const char *text, const struct error *err),
                              void *user, struct aws_lookup **out);

// --- Endpoints ---

// Host part of a service's URL with scheme, without a slash at the end: AWS_ENDPOINT_URL_<SERVICE>,
// AWS_ENDPOINT_URL, else by region, partition, AWS_USE_FIPS_ENDPOINT, AWS_USE_DUALSTACK_ENDPOINT
// (or dualstack). service: "logs", "sts", "ec2". A region that cannot be one: out->error is
// -EINVAL.
void aws_endpoint(const struct aws_env *env, const char *service, const char *region,
                  bool dualstack, struct buf *out);
