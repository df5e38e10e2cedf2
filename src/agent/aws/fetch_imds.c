// SPDX-License-Identifier: Apache-2.0
// Keys of the instance's role: its name first, then its keys.
#include <errno.h>

#include "agent/aws/fetch.h"

#define ROLES_PATH "/latest/meta-data/iam/security-credentials/"
#define ROLE_BYTES_MAX 128

// Role names are 64 of these at most.
static bool is_role_name(struct sv name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              (c && strchr("+=,.@_-", c))))
            return false;
    }
    return name.len > 0 && name.len <= ROLE_BYTES_MAX;
}

// 0 when the next request is under way.
static int ask_keys(struct aws_fetch *f, struct sv body)
{
    struct sv name;
    if (!sv_next(&body, '\n', &name))
        return error_set(&f->err, -ENOENT, "instance metadata: the instance has no role");
    name = sv_trim(name, " \r");
    if (!is_role_name(name))
        return error_set(&f->err, -EPROTO, "instance metadata: what it gave is no role's name");
    f->has_role_name = true;
    buf_reset(&f->imds_path);
    buf_add_str(&f->imds_path, ROLES_PATH);
    buf_add_sv(&f->imds_path, name);
    if (f->imds_path.error)
        return error_set(&f->err, -ENOMEM, "out of memory");
    aws_imds_get(&f->imds, buf_sv(&f->imds_path));
    return 0;
}

static int take_keys(struct aws_fetch *f, struct sv body, int64_t server_time_s)
{
    struct error err = ERROR_INIT;
    int r = aws_answer_container(body, &f->keys, &err);
    if (r < 0)
        return error_set(&f->err, r, "instance metadata: %s", err.text);
    return aws_fetch_set_expiry(f, server_time_s);
}

static void on_metadata(void *user, enum aws_imds_outcome outcome, struct sv body,
                        int64_t server_time_s)
{
    struct aws_fetch *f = user;
    int r = -EIO;
    if (outcome == AWS_IMDS_FOUND && !f->has_role_name) {
        r = ask_keys(f, body);
        if (r == 0)
            return;
    } else if (outcome == AWS_IMDS_FOUND) {
        r = take_keys(f, body, server_time_s);
    } else {
        f->err = f->imds.err;
        if (outcome == AWS_IMDS_NOTHING)
            error_set(&f->err, -ENOENT, "instance metadata: the instance has no role");
        r = f->err.code;
    }
    aws_fetch_continue(f, r);
}

int aws_fetch_imds(struct aws_fetch *f)
{
    if (aws_imds_is_disabled(f->env))
        return error_set(&f->err, -ENOENT, "instance metadata: AWS_EC2_METADATA_DISABLED is true");
    int r = aws_imds_init(&f->imds, f->env, on_metadata, f);
    if (r < 0)
        return error_set(&f->err, r, "out of memory");
    aws_imds_get(&f->imds, SV(ROLES_PATH));
    return AWS_PENDING;
}
