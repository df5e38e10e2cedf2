// SPDX-License-Identifier: Apache-2.0
// From a pod the answer to the PUT for a token may never come: the instance's hop limit is spent on
// the way. So all waits are short, and a PUT without answer is followed by one GET without token.
#include "agent/aws/imds.h"

#include <errno.h>
#include <stdio.h>

#include "agent/aws/env.h"
#include "base/clock.h"
#include "base/num.h"

#define TOKEN_BYTES_MAX 1024
#define PATH_BYTES_MAX 512
#define DEADLINE_NS NS_PER_S
#define RETRIES_DEFAULT 1
#define RETRIES_MAX 10

bool aws_imds_is_disabled(const struct aws_env *env)
{
    return aws_env_is_true(env, "AWS_EC2_METADATA_DISABLED");
}

void aws_imds_endpoint(const struct aws_env *env, struct buf *out)
{
    const char *given = aws_env_get(env, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
    const char *mode = aws_env_get(env, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
    struct sv url = SV("http://169.254.169.254");
    if (given)
        url = sv_from(given);
    else if (mode && sv_equals_nocase(sv_from(mode), SV("ipv6")))
        url = SV("http://[fd00:ec2::254]");
    while (url.len > 0 && url.ptr[url.len - 1] == '/')
        url.len--;
    buf_add_sv(out, url);
}

static unsigned tries(const struct aws_env *env)
{
    const char *text = aws_env_get(env, "IMDS_NUMBER_RETRY");
    uint64_t retries = RETRIES_DEFAULT;
    if (text && num_parse_u64(sv_from(text), 0, RETRIES_MAX, &retries) < 0)
        retries = RETRIES_DEFAULT;
    return (unsigned)retries + 1;
}

static void ask_token(struct aws_imds *m)
{
    struct aws_ask *a = &m->ask;
    aws_ask_clear(a);
    a->method = "PUT";
    a->deadline_ns = DEADLINE_NS;
    a->tries = tries(a->env);
    a->is_direct = true;
    aws_imds_endpoint(a->env, &a->url);
    buf_add_str(&a->url, "/latest/api/token");
    aws_ask_header(a, "X-aws-ec2-metadata-token-ttl-seconds", SV("21600"));
    m->is_token_asked = true;
    aws_ask_send(a);
}

static void ask_path(struct aws_imds *m)
{
    struct aws_ask *a = &m->ask;
    aws_ask_clear(a);
    a->deadline_ns = DEADLINE_NS;
    a->tries = m->is_without_token ? 1 : tries(a->env);
    a->is_direct = true;
    aws_imds_endpoint(a->env, &a->url);
    buf_add_sv(&a->url, buf_sv(&m->path));
    if (m->path.error)
        a->url.error = m->path.error;
    if (!m->is_without_token)
        aws_ask_header(a, "X-aws-ec2-metadata-token", buf_sv(&m->token));
    m->is_token_asked = false;
    aws_ask_send(a);
}

// The last thing done with m: its owner may be gone afterwards.
static void end(struct aws_imds *m, enum aws_imds_outcome outcome, const char *why)
{
    struct buf place = BUF_INIT(256);
    aws_imds_endpoint(m->ask.env, &place);
    (void)error_set(&m->err, outcome == AWS_IMDS_FAILED ? -EIO : -ENOENT,
                    "instance metadata at %s: %s", buf_cstr(&place), why);
    buf_deinit(&place);
    m->is_off = outcome == AWS_IMDS_OFF;
    m->done(m->user, outcome, SV(""), 0);
}

static void end_status(struct aws_imds *m, const struct http_client_response *r)
{
    char why[256];
    if (r->result < 0)
        (void)snprintf(why, sizeof(why), "%.200s", r->error);
    else
        (void)snprintf(why, sizeof(why), "status %u", r->status);
    end(m, AWS_IMDS_FAILED, why);
}

static bool is_unreachable(int result)
{
    return result == -ECONNREFUSED || result == -ENETUNREACH || result == -EHOSTUNREACH;
}

static void go_without_token(struct aws_imds *m)
{
    if (aws_env_is_true(m->ask.env, "AWS_EC2_METADATA_V1_DISABLED"))
        return end(
            m, AWS_IMDS_OFF,
            "no token (in a pod: is the instance's hop limit 1?), and version 1 is disabled");
    m->is_without_token = true;
    ask_path(m);
}

static void on_token(struct aws_imds *m, const struct http_client_response *r)
{
    if (is_unreachable(r->result))
        return end(m, AWS_IMDS_OFF, "nothing answers");
    if (r->result == -ETIMEDOUT || r->result == -ECONNRESET || r->result == -EPROTO ||
        r->status == 404 || r->status == 405)
        return go_without_token(m);
    if (r->status == 403)
        return end(m, AWS_IMDS_OFF, "it is turned off (403)");
    if (r->result < 0 || r->status != 200)
        return end_status(m, r);
    struct sv token = sv_trim(r->body, " \r\n");
    buf_reset(&m->token);
    if (buf_reserve(&m->token, TOKEN_BYTES_MAX) == 0)
        buf_add_sv(&m->token, token);
    if (token.len == 0 || m->token.error || !aws_is_plain(token))
        return end(m, AWS_IMDS_FAILED, "what it gave is not a token");
    ask_path(m);
}

static void on_path(struct aws_imds *m, const struct http_client_response *r)
{
    if (r->status == 401 && !m->is_without_token && !m->has_renewed) {
        m->has_renewed = true;
        return ask_token(m);
    }
    if (r->result == 0 && r->status == 200) {
        m->err = ERROR_INIT;
        m->done(m->user, AWS_IMDS_FOUND, r->body, r->server_time_s);
        return;
    }
    if (r->result == 0 && r->status == 404)
        return end(m, AWS_IMDS_NOTHING, "no such path (404)");
    if (m->is_without_token && (r->result < 0 || r->status == 401))
        return end(m, AWS_IMDS_OFF,
                   r->result < 0
                       ? "no answer"
                       : "it wants a token and gives none (in a pod: is the instance's hop "
                         "limit 1?)");
    end_status(m, r);
}

static void on_answer(void *user, const struct http_client_response *response)
{
    struct aws_imds *m = user;
    if (m->is_token_asked)
        on_token(m, response);
    else
        on_path(m, response);
}

int aws_imds_init(struct aws_imds *m, const struct aws_env *env,
                  void (*done)(void *user, enum aws_imds_outcome outcome, struct sv body,
                               int64_t server_time_s),
                  void *user)
{
    *m = (struct aws_imds){
        .done = done,
        .user = user,
        .token = BUF_INIT(TOKEN_BYTES_MAX),
        .path = BUF_INIT(PATH_BYTES_MAX),
    };
    return aws_ask_init(&m->ask, env, on_answer, m);
}

void aws_imds_get(struct aws_imds *m, struct sv path)
{
    m->has_renewed = false;
    buf_reset(&m->path);
    buf_add_sv(&m->path, path);
    if (m->token.len > 0 || m->is_without_token)
        ask_path(m);
    else
        ask_token(m);
}

void aws_imds_deinit(struct aws_imds *m)
{
    aws_ask_deinit(&m->ask);
    aws_erase_buf(&m->token);
    buf_deinit(&m->path);
}
