// SPDX-License-Identifier: Apache-2.0
// Keys from the endpoint that a container is given: EKS Pod Identity, ECS. Source: the AWS SDKs and
// Tools reference guide, "Container credential provider".
#include <errno.h>

#include "agent/aws/container_url.h"
#include "agent/aws/fetch.h"
#include "base/clock.h"

#define TRIES 4
#define ECS_ENDPOINT "http://169.254.170.2"

static void on_answer(void *user, const struct http_client_response *response)
{
    struct aws_fetch *f = user;
    int r;
    if (response->result < 0 || response->status != 200) {
        r = aws_fetch_fault(f, "container credentials", response);
    } else {
        struct error err = ERROR_INIT;
        r = aws_answer_container(response->body, &f->keys, &err);
        if (r < 0)
            error_set(&f->err, r, "container credentials: %s", err.text);
        else
            r = aws_fetch_set_expiry(f, response->server_time_s);
    }
    aws_fetch_continue(f, r == -ENOENT ? -EIO : r);
}

// The token as it stands in its file: a line break in it could begin another header.
static int add_authorization(struct aws_fetch *f)
{
    const char *path = aws_env_get(f->env, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *given = aws_env_get(f->env, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    struct buf file = BUF_INIT(LIMIT_AWS_TOKEN_BYTES);
    int r = path ? aws_token_read(path, &file, &f->err) : 0;
    struct sv token = path ? buf_sv(&file) : sv_from(given);
    if (r == 0 &&
        (sv_find_char(token, '\r') != (size_t)-1 || sv_find_char(token, '\n') != (size_t)-1))
        r = error_set(&f->err, -EINVAL, "the container authorization token%s%s has a line break",
                      path ? " in " : "", path ? path : "");
    if (r == 0 && token.len > 0)
        aws_ask_header(&f->ask, "Authorization", token);
    aws_erase_buf(&file);
    return r == -ENOENT ? -EIO : r;
}

int aws_fetch_container(struct aws_fetch *f)
{
    const char *relative = aws_env_get(f->env, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = aws_env_get(f->env, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    bool is_local = true;
    if (!relative && !full)
        return error_set(&f->err, -ENOENT, "AWS_CONTAINER_CREDENTIALS_FULL_URI is not set");
    int r = aws_fetch_ask(f, on_answer);
    if (r == 0 && relative && (*relative != '/' || !aws_is_plain(sv_from(relative))))
        r = error_set(&f->err, -EINVAL, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is not a path");
    if (r == 0 && !relative)
        r = aws_container_url_check(sv_from(full), &is_local, &f->err);
    if (r < 0)
        return r;
    buf_add_str(&f->ask.url, relative ? ECS_ENDPOINT : full);
    buf_add_str(&f->ask.url, relative ? relative : "");
    f->ask.tries = TRIES;
    f->ask.deadline_ns = 5 * NS_PER_S;
    f->ask.is_direct = is_local;
    aws_ask_header(&f->ask, "Accept", SV("application/json"));
    r = add_authorization(f);
    if (r < 0)
        return r;
    aws_ask_send(&f->ask);
    return AWS_PENDING;
}
