// SPDX-License-Identifier: Apache-2.0
// The walk itself. Providers that know at once return; those that ask somebody return AWS_PENDING
// and come back by aws_fetch_continue. Roles follow the keys: those of the profile from the
// innermost outwards, then the one asked for on top.
#include "agent/aws/fetch.h"

#include <errno.h>
#include <stdio.h>

#include "agent/aws/env.h"
#include "base/clock.h"
#include "base/file.h"

// Five reasons, none of them longer than REASON_BYTES_MAX, fit the text of an error.
#define LOOKED_BYTES_MAX 480
#define REASON_BYTES_MAX 200
#define TOP_ROLE_S 900
#define LIFE_S_MAX                                                                                 \
    (UINT64_C(30) * 24 * 3600) // services give hours; the year 9999 has no place in ns

static const struct {
    const char *name;
    int (*start)(struct aws_fetch *f);
} providers[] = {
    {"environment", aws_fetch_environment}, {"web identity", aws_fetch_web_identity},
    {"profile", aws_fetch_profile},         {"container", aws_fetch_container},
    {"instance metadata", aws_fetch_imds},
};

static int start_provider(struct aws_fetch *f)
{
    (void)snprintf(f->provider, sizeof(f->provider), "%s", providers[f->provider_index].name);
    return providers[f->provider_index].start(f);
}

static int start_next_role(struct aws_fetch *f)
{
    f->token_file = SV("");
    if (f->roles_left > 0) {
        f->role = f->plan.roles[--f->roles_left];
    } else {
        f->is_top_left = false;
        f->role = (struct aws_role){.arn = sv_from(f->top_role), .duration_s = TOP_ROLE_S};
    }
    size_t length = strlen(f->provider);
    if (!sv_ends_with(sv_from(f->provider), SV("role")))
        (void)snprintf(f->provider + length, sizeof(f->provider) - length, ", assumed role");
    return aws_fetch_role(f);
}

// The error of one that isn't configured, kept for the end.
static void note_absent(struct aws_fetch *f)
{
    size_t room = f->looked.max - f->looked.len;
    if (room <= 2)
        return;
    if (f->looked.len > 0)
        buf_add_str(&f->looked, "; ");
    struct sv reason = sv_cut(sv_from(f->err.text), REASON_BYTES_MAX);
    buf_add_sv(&f->looked, sv_cut(reason, room - 2));
}

static int nobody(struct aws_fetch *f)
{
    return error_set(&f->err, -ENOENT, "no AWS credentials: %s", buf_cstr(&f->looked));
}

static int go_on(struct aws_fetch *f, int r)
{
    while (r != AWS_PENDING) {
        if (r == 0 && (f->roles_left > 0 || f->is_top_left)) {
            r = start_next_role(f);
        } else if (r == -ENOENT && f->is_bound) {
            return f->err.code = -ENODATA; // it should have been there
        } else if (r == -ENOENT) {
            note_absent(f);
            if (++f->provider_index == ARRAY_SIZE(providers))
                return nobody(f);
            r = start_provider(f);
        } else {
            return r;
        }
    }
    return r;
}

void aws_fetch_continue(struct aws_fetch *f, int r)
{
    r = go_on(f, r);
    if (r != AWS_PENDING)
        f->done(f->user, r);
}

int aws_fetch_start(struct aws_fetch *f, const struct aws_env *env)
{
    f->env = env;
    f->looked = BUF_INIT(LOOKED_BYTES_MAX);
    f->sts_region = BUF_INIT(AWS_REGION_BYTES_MAX);
    f->imds_path = BUF_INIT(256);
    f->is_top_left = f->top_role != NULL;
    return go_on(f, start_provider(f));
}

void aws_fetch_deinit(struct aws_fetch *f)
{
    aws_ask_deinit(&f->ask);
    aws_imds_deinit(&f->imds);
    aws_key_set_deinit(&f->keys);
    aws_profile_files_deinit(&f->files);
    buf_deinit(&f->looked);
    buf_deinit(&f->sts_region);
    buf_deinit(&f->imds_path);
    *f = (struct aws_fetch){0};
}

int aws_fetch_set_expiry(struct aws_fetch *f, int64_t server_time_s)
{
    struct aws_key_set *k = &f->keys;
    if (k->expires_s == 0)
        return 0;
    int64_t now_s = server_time_s > 0 ? server_time_s : (int64_t)(clock_wall_ns() / NS_PER_S);
    if (k->expires_s <= now_s)
        return error_set(&f->err, -EKEYEXPIRED, "%s: the keys were expired when they came",
                         f->provider);
    uint64_t left_s = (uint64_t)(k->expires_s - now_s);
    if (left_s > LIFE_S_MAX)
        left_s = LIFE_S_MAX;
    k->expires_ns = loop_now_ns(f->env->loop) + left_s * NS_PER_S;
    return 0;
}

int aws_fetch_ask(struct aws_fetch *f,
                  void (*done)(void *user, const struct http_client_response *response))
{
    if (!f->ask.env) {
        int r = aws_ask_init(&f->ask, f->env, done, f);
        if (r < 0)
            return error_set(&f->err, r, "out of memory");
    }
    aws_ask_clear(&f->ask);
    f->ask.done = done;
    return 0;
}

int aws_fetch_fault(struct aws_fetch *f, const char *whom, const struct http_client_response *r)
{
    struct aws_fault fault;
    if (r->result < 0)
        return error_set(&f->err, r->result, "%s: %s", whom, r->error);
    aws_answer_fault(r->body, &fault);
    return error_set(&f->err, r->status == 401 || r->status == 403 ? -EACCES : -EIO,
                     "%s: status %u%s%s%s%s", whom, r->status, *fault.code ? " " : "", fault.code,
                     *fault.message ? ": " : "", fault.message);
}

int aws_token_read(const char *path, struct buf *out, struct error *err)
{
    if (buf_reserve(out, out->max) < 0)
        return error_set(err, -ENOMEM, "out of memory");
    return file_read(path, out, err);
}
