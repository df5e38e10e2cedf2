// SPDX-License-Identifier: Apache-2.0
// The cluster, by the order of credentials.h. Its name is in the key of a tag that every node of a
// cluster has: kubernetes.io/cluster/NAME = owned. Source: the Amazon EC2 API reference,
// DescribeTags.
#include <errno.h>
#include <stdlib.h>

#include "agent/aws/env.h"
#include "agent/aws/lookup.h"
#include "base/clock.h"

#define INSTANCE_PATH "/latest/meta-data/instance-id"
#define TAG_PREFIX "kubernetes.io/cluster/"
#define TAGS_A_PAGE "MaxResults=50" // a page then fits LIMIT_AWS_ANSWER_BYTES
#define TRIES 5
#define WAIT_LEAST_NS NS_PER_S
#define WAIT_MOST_NS (16 * NS_PER_S)
#define KEYS_LOOK_NS (100 * NS_PER_MS)
#define KEYS_WAIT_NS (30 * NS_PER_S)

static void ask_tags(struct aws_lookup *l);

static enum step_result by_environment(struct aws_lookup *l)
{
    const char *name = aws_env_get(l->env, "K8S_CLUSTER_NAME");
    return name ? aws_lookup_found(l, sv_from(name))
                : aws_lookup_nothing(l, "K8S_CLUSTER_NAME is not set");
}

// --- The request ---

static void on_tag(void *user, struct sv key, struct sv value)
{
    struct aws_lookup *l = user;
    struct sv prefix = SV(TAG_PREFIX);
    if (sv_starts_with(key, prefix) && key.len > prefix.len && sv_equals(value, SV("owned")) &&
        l->text.len == 0)
        (void)aws_lookup_found(l, sv_sub(key, prefix.len, key.len));
}

static void try_again(struct aws_lookup *l)
{
    uint64_t wait_ns = clock_backoff_ns(l->tag_failures - 1, WAIT_LEAST_NS, WAIT_MOST_NS);
    loop_timer_set(l->again, wait_ns + clock_jitter_ns(wait_ns / 2), 0);
}

static void on_failure(struct aws_lookup *l, const struct http_client_response *r)
{
    struct aws_fault fault;
    bool is_refused = r->result == 0 && r->status < 500 && r->status != 429;
    aws_answer_fault(r->result == 0 ? r->body : SV(""), &fault);
    if (strcmp(fault.code, "RequestLimitExceeded") == 0)
        is_refused = false;
    (void)error_set(&l->err, -ENOENT, "DescribeTags: %s%s%s", r->result < 0 ? r->error : fault.code,
                    *fault.message ? ": " : "", fault.message);
    if (is_refused || ++l->tag_failures == TRIES)
        aws_lookup_go_on(l, STEP_NOTHING);
    else
        try_again(l);
}

static void on_tags(void *user, const struct http_client_response *response)
{
    struct aws_lookup *l = user;
    aws_key_set_deinit(&l->keys);
    if (response->result < 0 || response->status != 200)
        return on_failure(l, response);
    buf_reset(&l->next_token);
    int r = aws_answer_tags(response->body, on_tag, l, &l->next_token, &l->err);
    if (r == 0 && l->text.len == 0 && l->next_token.len > 0 && ++l->tag_pages < LIMIT_AWS_TAG_PAGES)
        return ask_tags(l);
    if (r == 0 && l->text.len == 0)
        (void)aws_lookup_nothing(l, "DescribeTags: the instance has no tag " TAG_PREFIX
                                    "NAME = owned");
    aws_lookup_go_on(l, l->text.len > 0 ? STEP_FOUND : STEP_NOTHING);
}

static void write_body(struct aws_lookup *l)
{
    struct buf *body = &l->ask.body;
    buf_add_str(body, "Action=DescribeTags&Version=2016-11-15&" TAGS_A_PAGE
                      "&Filter.1.Name=resource-id&Filter.1.Value.1=");
    buf_add_sv(body, buf_sv(&l->instance));
    if (l->next_token.len > 0) {
        buf_add_str(body, "&NextToken=");
        aws_add_escaped(body, buf_sv(&l->next_token));
    }
}

static void send_tags(struct aws_lookup *l, const struct aws_keys *keys)
{
    struct aws_ask *a = &l->ask;
    aws_key_set_deinit(&l->keys);
    if (!aws_lookup_ask(l, on_tags) ||
        aws_key_set_init(&l->keys, keys->access_key, keys->secret_key, keys->session_token,
                         &l->err) < 0)
        return aws_lookup_go_on(l, STEP_NOTHING);
    aws_endpoint(l->env, "ec2", l->region, false, &a->url);
    if (a->url.error == -EINVAL)
        return aws_lookup_go_on(l, aws_lookup_nothing(l, "DescribeTags: no region to ask in"));
    buf_add_char(&a->url, '/');
    write_body(l);
    a->method = "POST";
    a->deadline_ns = 10 * NS_PER_S;
    a->service = "ec2";
    a->region = l->region;
    a->keys = &l->keys;
    aws_ask_header(a, "Content-Type", SV("application/x-www-form-urlencoded"));
    aws_ask_send(a);
}

// With the keys there are; while they are being fetched, a look at them now and then.
static void ask_tags(struct aws_lookup *l)
{
    struct aws_keys keys;
    struct error err = ERROR_INIT;
    int r = aws_credentials_get(l->credentials, &keys, &err);
    if (r == 0)
        return send_tags(l, &keys);
    if (r == -EAGAIN && loop_now_ns(l->env->loop) - l->waiting_since_ns < KEYS_WAIT_NS)
        return loop_timer_set(l->again, KEYS_LOOK_NS, 0);
    if (r != -EAGAIN && r != -ENOENT && ++l->tag_failures < TRIES)
        return try_again(l); // a provider that failed may come to itself
    (void)error_set(&l->err, -ENOENT, "DescribeTags: %s",
                    r == -EAGAIN ? "no credentials in time" : err.text);
    aws_lookup_go_on(l, STEP_NOTHING);
}

static void on_again(void *user)
{
    ask_tags(user);
}

// --- The instance ---

static bool is_instance(struct sv id)
{
    for (size_t i = 0; i < id.len; i++)
        if (!((id.ptr[i] >= 'a' && id.ptr[i] <= 'z') || (id.ptr[i] >= '0' && id.ptr[i] <= '9') ||
              id.ptr[i] == '-'))
            return false;
    return id.len > 0;
}

static void on_instance(void *user, enum aws_imds_outcome outcome, struct sv body,
                        int64_t server_time_s)
{
    struct aws_lookup *l = user;
    struct sv id = sv_trim(body, " \r\n");
    (void)server_time_s;
    if (outcome != AWS_IMDS_FOUND) {
        l->err = l->imds.err;
        return aws_lookup_go_on(l, STEP_NOTHING);
    }
    buf_add_sv(&l->instance, id);
    if (!is_instance(id) || l->instance.error)
        return aws_lookup_go_on(l, aws_lookup_nothing(l, "instance metadata: no instance's id"));
    l->waiting_since_ns = loop_now_ns(l->env->loop);
    ask_tags(l);
}

static enum step_result by_tags(struct aws_lookup *l)
{
    if (!l->credentials || !*l->region)
        return aws_lookup_nothing(l, "DescribeTags: needs a region and credentials");
    if (loop_timer_new(l->env->loop, on_again, l, &l->again) < 0)
        return aws_lookup_nothing(l, "out of memory");
    return aws_lookup_imds(l, INSTANCE_PATH, on_instance) ? STEP_PENDING : STEP_NOTHING;
}

int aws_cluster_find(const struct aws_env *env, const char *configured, const char *region,
                     struct aws_credentials *credentials,
                     void (*done)(void *user, const char *text, const struct error *err),
                     void *user, struct aws_lookup **out)
{
    static enum step_result (*const steps[])(struct aws_lookup * l) = {
        aws_lookup_configured, by_environment, by_tags, aws_lookup_task, NULL,
    };
    struct aws_lookup wanted = {
        .env = env,
        .done = done,
        .user = user,
        .steps = steps,
        .is_cluster = true,
        .credentials = credentials,
        .region = sv_dup(sv_from(region ? region : "")),
    };
    if (!wanted.region)
        return -ENOMEM;
    int r = aws_lookup_start(&wanted, configured, out);
    if (r < 0)
        free(wanted.region);
    return r;
}
