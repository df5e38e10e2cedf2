// SPDX-License-Identifier: Apache-2.0
// One walk along the providers, to the first that has keys, and the roles to be assumed with them.
// A provider that isn't configured is passed over; one that is and fails ends the walk.
#pragma once

#include "agent/aws/answer.h"
#include "agent/aws/imds.h"
#include "agent/aws/profile.h"

// Outcomes of a provider, beside negative errno: 0 keys are in the fetch; AWS_PENDING an answer is
// to come, which aws_fetch_continue gets; -ENOENT with the error set: not configured.
#define AWS_PENDING 1

struct aws_profile_files { // the shared files in memory
    struct buf credentials_text, config_text;
    struct buf credentials_path, config_path;
    struct aws_profiles profiles;
    struct buf name; // of the profile in use
    bool is_named;   // by AWS_PROFILE
};
// 0, negative errno with *err (a file that cannot be read or is malformed; none at all is fine).
int must_use aws_profile_files_load(struct aws_profile_files *f, const struct aws_env *env,
                                    struct error *err);
void aws_profile_files_deinit(struct aws_profile_files *f); // erases; a zeroed one may be deinited

struct aws_fetch {
    const struct aws_env *env;
    const char *region;   // of STS; "": by the environment or the role
    const char *top_role; // NULL: none
    void (*done)(void *user, int r);
    void *user;

    struct aws_key_set keys;
    struct error err;
    char provider[64];

    // Its own
    size_t provider_index;
    bool is_bound; // to one provider, by a profile's credential_source
    struct buf looked;
    struct aws_profile_files files;
    struct aws_plan plan;
    size_t roles_left; // of the plan
    bool is_top_left;
    struct aws_ask ask;
    struct aws_imds imds;
    // Of STS
    struct aws_role role;
    struct sv token_file; // .len 0: the role is assumed with keys
    struct buf sts_region;
    bool is_elsewhere; // asking the partition's main region
    // Of the instance metadata
    struct buf imds_path;
    bool has_role_name;
};

// done comes once if AWS_PENDING is returned, and not else. 0 keys; AWS_PENDING; -ENOENT nobody
// has keys, f->err names all places; other negative errno with f->err.
int must_use aws_fetch_start(struct aws_fetch *f, const struct aws_env *env);
void aws_fetch_deinit(struct aws_fetch *f); // cancels, erases; a zeroed one may be deinited

// --- For the providers ---

void aws_fetch_continue(struct aws_fetch *f, int r);
// Turns the keys' expiry into our clock, by the clock of who gave them. 0, -EKEYEXPIRED.
int must_use aws_fetch_set_expiry(struct aws_fetch *f, int64_t server_time_s);
// The ask for a new request.
int must_use aws_fetch_ask(struct aws_fetch *f,
                           void (*done)(void *user, const struct http_client_response *response));
// f->err from an answer that is no success; returns its code.
int aws_fetch_fault(struct aws_fetch *f, const char *whom, const struct http_client_response *r);
// A token's text from a file: trimmed of line ends, erased by the caller. 0, negative errno.
int must_use aws_token_read(const char *path, struct buf *out, struct error *err);

int aws_fetch_environment(struct aws_fetch *f);
int aws_fetch_web_identity(struct aws_fetch *f);
int aws_fetch_profile(struct aws_fetch *f);
int aws_fetch_container(struct aws_fetch *f);
int aws_fetch_imds(struct aws_fetch *f);
// f->role with the token of f->token_file, or with f->keys.
int aws_fetch_role(struct aws_fetch *f);
