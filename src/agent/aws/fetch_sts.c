// SPDX-License-Identifier: Apache-2.0
// Roles: AssumeRoleWithWebIdentity with the token of a file, AssumeRole with keys. The region's own
// endpoint first; when it is turned off for the account, the partition's main region. Source: the
// AWS Security Token Service API reference.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "agent/aws/env.h"
#include "agent/aws/fetch.h"
#include "base/clock.h"

#define TRIES 4

static void add_field(struct buf *out, const char *name, struct sv value)
{
    buf_add_char(out, '&');
    buf_add_str(out, name);
    buf_add_char(out, '=');
    aws_add_escaped(out, value);
}

static int add_token(struct aws_fetch *f, struct buf *out)
{
    char path[4096];
    if (f->token_file.len >= sizeof(path))
        return error_set(&f->err, -ENAMETOOLONG, "web identity: the token file's name is too long");
    sv_copy(path, sizeof(path), f->token_file);
    struct buf token = BUF_INIT(LIMIT_AWS_TOKEN_BYTES);
    struct error err = ERROR_INIT;
    int r = aws_token_read(path, &token, &err);
    struct sv text = sv_trim(buf_sv(&token), " \r\n");
    if (r < 0)
        r = error_set(&f->err, r, "web identity: %s", err.text);
    else if (text.len == 0)
        r = error_set(&f->err, -EINVAL, "web identity: '%.200s' is empty", path);
    else
        add_field(out, "WebIdentityToken", text);
    aws_erase_buf(&token);
    return r == -ENOENT ? -EIO : r; // it was named, so it should be there
}

static void add_session_name(struct aws_fetch *f, struct buf *out)
{
    const char *given = aws_env_get(f->env, "AWS_ROLE_SESSION_NAME");
    struct sv name = f->role.session_name;
    if (name.len == 0 && f->token_file.len > 0)
        name = sv_from(given);
    if (name.len > 0)
        return add_field(out, "RoleSessionName", name);
    char made[40];
    int length =
        snprintf(made, sizeof(made), "podgpu-agent-%016" PRIx64, clock_jitter_ns(UINT64_MAX));
    add_field(out, "RoleSessionName", (struct sv){made, (size_t)length});
}

static int write_body(struct aws_fetch *f, struct buf *out)
{
    bool has_token = f->token_file.len > 0;
    if (buf_reserve(out, has_token ? out->max : 0) < 0)
        return error_set(&f->err, out->error, "out of memory");
    buf_add_str(out, has_token ? "Action=AssumeRoleWithWebIdentity" : "Action=AssumeRole");
    buf_add_str(out, "&Version=2011-06-15");
    add_field(out, "RoleArn", f->role.arn);
    add_session_name(f, out);
    if (f->role.duration_s > 0) {
        buf_add_str(out, "&DurationSeconds=");
        buf_add_u64(out, f->role.duration_s);
    }
    if (f->role.external_id.len > 0 && !has_token)
        add_field(out, "ExternalId", f->role.external_id);
    return has_token ? add_token(f, out) : 0;
}

// --- Where ---

static struct sv arn_partition(struct sv arn)
{
    struct sv field = SV("");
    (void)sv_next(&arn, ':', &field);
    if (!sv_equals(field, SV("arn")) || !sv_next(&arn, ':', &field))
        return SV("");
    return field;
}

// The region to ask first; empty: nothing says one, and the partition's main region has to do.
static void choose_region(struct aws_fetch *f)
{
    const char *region = f->region && *f->region ? f->region : aws_env_get(f->env, "AWS_REGION");
    if (!region)
        region = aws_env_get(f->env, "AWS_DEFAULT_REGION");
    struct sv of_profile = aws_profile_get(&f->files.profiles, buf_sv(&f->files.name), "region");
    buf_reset(&f->sts_region);
    if (region)
        buf_add_str(&f->sts_region, region);
    else if (of_profile.len > 0)
        buf_add_sv(&f->sts_region, of_profile);
    else
        buf_add_str(&f->sts_region, aws_partition_of(arn_partition(f->role.arn))->main_region);
    f->is_elsewhere = false;
}

static int set_url(struct aws_fetch *f)
{
    aws_endpoint(f->env, "sts", buf_cstr(&f->sts_region), false, &f->ask.url);
    if (f->ask.url.error == -EINVAL)
        return error_set(&f->err, -EINVAL, "STS: '%s' is not a region", buf_cstr(&f->sts_region));
    buf_add_char(&f->ask.url, '/');
    return 0;
}

// --- The request ---

static bool is_code(const struct http_client_response *r, const char *const *codes)
{
    struct aws_fault fault;
    if (r->result < 0 || r->status == 200)
        return false;
    aws_answer_fault(r->body, &fault);
    for (; *codes; codes++)
        if (strcmp(fault.code, *codes) == 0)
            return true;
    return false;
}

// Of these STS says itself that another try may help; the first also while keys are propagated.
static bool is_transient(const struct http_client_response *r)
{
    static const char *const codes[] = {
        "InvalidIdentityToken", "IDPCommunicationError", "Throttling",
        "ThrottlingException",  "RequestLimitExceeded",  NULL,
    };
    return is_code(r, codes);
}

static int send_request(struct aws_fetch *f);

static int take_keys(struct aws_fetch *f, const struct http_client_response *response)
{
    struct error err = ERROR_INIT;
    struct aws_key_set keys;
    int r = aws_answer_sts(response->body, &keys, &err);
    if (r < 0)
        return error_set(&f->err, r, "STS: %s", err.text);
    aws_key_set_deinit(&f->keys);
    f->keys = keys;
    return aws_fetch_set_expiry(f, response->server_time_s);
}

static void on_answer(void *user, const struct http_client_response *response)
{
    static const char *const disabled[] = {"RegionDisabledException", NULL};
    struct aws_fetch *f = user;
    int r;
    if (response->result == 0 && response->status == 200) {
        r = take_keys(f, response);
    } else if (!f->is_elsewhere && is_code(response, disabled)) {
        const char *main_region = aws_partition_of(buf_sv(&f->sts_region))->main_region;
        f->is_elsewhere = true;
        buf_reset(&f->sts_region);
        buf_add_str(&f->sts_region, main_region);
        r = send_request(f);
    } else {
        char whom[300];
        (void)snprintf(whom, sizeof(whom), "STS in %s for role %.*s", buf_cstr(&f->sts_region),
                       SV_FMT(sv_cut(f->role.arn, 200)));
        r = aws_fetch_fault(f, whom, response);
    }
    aws_fetch_continue(f, r == -ENOENT ? -EIO : r);
}

// Who calls STS on behalf of whom: against the confused deputy.
static void add_source(struct aws_fetch *f)
{
    const char *account = aws_env_get(f->env, "AMZ_SOURCE_ACCOUNT");
    const char *arn = aws_env_get(f->env, "AMZ_SOURCE_ARN");
    if (!account || !arn)
        return;
    aws_ask_header(&f->ask, "x-amz-source-account", sv_from(account));
    aws_ask_header(&f->ask, "x-amz-source-arn", sv_from(arn));
}

static int send_request(struct aws_fetch *f)
{
    struct aws_ask *a = &f->ask;
    int r = aws_fetch_ask(f, on_answer);
    if (r == 0)
        r = set_url(f);
    if (r == 0)
        r = write_body(f, &a->body);
    if (r < 0)
        return r;
    a->method = "POST";
    a->tries = TRIES;
    a->deadline_ns = 10 * NS_PER_S;
    a->again = is_transient;
    aws_ask_header(a, "Content-Type", SV("application/x-www-form-urlencoded"));
    if (f->token_file.len == 0) {
        a->service = "sts";
        a->region = buf_cstr(&f->sts_region);
        a->keys = &f->keys;
        add_source(f);
    }
    aws_ask_send(a);
    return AWS_PENDING;
}

int aws_fetch_role(struct aws_fetch *f)
{
    choose_region(f);
    return send_request(f);
}

int aws_fetch_web_identity(struct aws_fetch *f)
{
    const char *file = aws_env_get(f->env, "AWS_WEB_IDENTITY_TOKEN_FILE");
    const char *role = aws_env_get(f->env, "AWS_ROLE_ARN");
    if (!file)
        return error_set(&f->err, -ENOENT, "AWS_WEB_IDENTITY_TOKEN_FILE is not set");
    if (!role)
        return error_set(&f->err, -EINVAL,
                         "web identity: AWS_WEB_IDENTITY_TOKEN_FILE without AWS_ROLE_ARN");
    f->role = (struct aws_role){.arn = sv_from(role)};
    f->token_file = sv_from(file);
    return aws_fetch_role(f);
}
