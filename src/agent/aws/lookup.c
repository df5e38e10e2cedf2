// SPDX-License-Identifier: Apache-2.0
// The steps of a look-up, and those that region and cluster share. What is known without asking
// anybody never leads to a request: pods may have no way to the instance metadata.
#include "agent/aws/lookup.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/aws/env.h"
#include "base/clock.h"

#define LOOKED_BYTES_MAX 480
#define REASON_BYTES_MAX 140
#define NAME_BYTES_MAX 256
#define NEXT_TOKEN_BYTES_MAX 2048
#define TASK_TRIES 3

enum step_result aws_lookup_nothing(struct aws_lookup *l, const char *why)
{
    (void)error_set(&l->err, -ENOENT, "%s", why);
    return STEP_NOTHING;
}

enum step_result aws_lookup_found(struct aws_lookup *l, struct sv text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ')
            return aws_lookup_nothing(l, "a name with control characters");
    buf_reset(&l->text);
    buf_add_sv(&l->text, text);
    if (l->text.error)
        return aws_lookup_nothing(l, "a name too long, or no memory for it");
    return STEP_FOUND;
}

// --- From step to step ---

static void finish(struct aws_lookup *l, const char *text)
{
    struct error err = ERROR_INIT;
    if (!*text)
        (void)error_set(&err, -ENOENT, "%s not found: %s", l->is_cluster ? "cluster" : "region",
                        buf_cstr(&l->looked));
    l->done(l->user, text, *text ? NULL : &err);
}

// Reasons that are longer than fits are cut.
static void note(struct aws_lookup *l)
{
    size_t room = l->looked.max - l->looked.len;
    if (room <= 2)
        return;
    if (l->looked.len > 0)
        buf_add_str(&l->looked, "; ");
    struct sv reason = sv_cut(sv_from(l->err.text), REASON_BYTES_MAX);
    buf_add_sv(&l->looked, sv_cut(reason, room - 2));
}

void aws_lookup_go_on(struct aws_lookup *l, enum step_result r)
{
    while (r == STEP_NOTHING) {
        note(l);
        if (!l->steps[++l->step])
            return finish(l, "");
        r = l->steps[l->step](l);
    }
    if (r == STEP_FOUND)
        finish(l, buf_cstr(&l->text));
}

static void on_start(void *user)
{
    struct aws_lookup *l = user;
    aws_lookup_go_on(l, l->steps[0](l));
}

int aws_lookup_start(const struct aws_lookup *wanted, const char *configured,
                     struct aws_lookup **out)
{
    struct aws_lookup *l = malloc(sizeof(*l));
    if (!l)
        return -ENOMEM;
    *l = *wanted;
    l->text = BUF_INIT(NAME_BYTES_MAX);
    l->looked = BUF_INIT(LOOKED_BYTES_MAX);
    l->instance = BUF_INIT(NAME_BYTES_MAX);
    l->next_token = BUF_INIT(NEXT_TOKEN_BYTES_MAX);
    l->configured = sv_dup(sv_from(configured ? configured : ""));
    int r = l->configured ? loop_timer_new(l->env->loop, on_start, l, &l->timer) : -ENOMEM;
    if (r < 0) {
        l->region = NULL; // still the caller's
        aws_lookup_free(l);
        return r;
    }
    loop_timer_set(l->timer, 0, 0);
    *out = l;
    return 0;
}

void aws_lookup_free(struct aws_lookup *l)
{
    if (!l)
        return;
    aws_ask_deinit(&l->ask);
    aws_imds_deinit(&l->imds);
    aws_key_set_deinit(&l->keys);
    loop_timer_free(l->timer);
    loop_timer_free(l->again);
    buf_deinit(&l->text);
    buf_deinit(&l->looked);
    buf_deinit(&l->instance);
    buf_deinit(&l->next_token);
    free(l->configured);
    free(l->region);
    free(l);
}

// --- Steps of both ---

enum step_result aws_lookup_configured(struct aws_lookup *l)
{
    if (*l->configured)
        return aws_lookup_found(l, sv_from(l->configured));
    return aws_lookup_nothing(l, "not configured");
}

bool aws_lookup_ask(struct aws_lookup *l,
                    void (*done)(void *user, const struct http_client_response *response))
{
    if (!l->ask.env && aws_ask_init(&l->ask, l->env, done, l) < 0) {
        (void)aws_lookup_nothing(l, "out of memory");
        return false;
    }
    aws_ask_clear(&l->ask);
    l->ask.done = done;
    return true;
}

bool aws_lookup_imds(struct aws_lookup *l, const char *path,
                     void (*done)(void *user, enum aws_imds_outcome outcome, struct sv body,
                                  int64_t server_time_s))
{
    if (aws_imds_is_disabled(l->env)) {
        (void)aws_lookup_nothing(l, "instance metadata: AWS_EC2_METADATA_DISABLED is true");
        return false;
    }
    if (!l->imds.ask.env && aws_imds_init(&l->imds, l->env, done, l) < 0) {
        (void)aws_lookup_nothing(l, "out of memory");
        return false;
    }
    l->imds.done = done;
    aws_imds_get(&l->imds, sv_from(path));
    return true;
}

static void on_task(void *user, const struct http_client_response *response)
{
    struct aws_lookup *l = user;
    struct buf cluster = BUF_INIT(NAME_BYTES_MAX), region = BUF_INIT(NAME_BYTES_MAX);
    enum step_result r;
    if (response->result < 0 || response->status != 200)
        r = aws_lookup_nothing(l, "ECS metadata: no answer");
    else if (aws_answer_task(response->body, &cluster, &region, NULL) < 0)
        r = aws_lookup_nothing(l, "ECS metadata: the answer is not JSON");
    else if (l->is_cluster && cluster.len > 0)
        r = aws_lookup_found(l, buf_sv(&cluster));
    else if (!l->is_cluster && aws_region_is_valid(buf_sv(&region)))
        r = aws_lookup_found(l, buf_sv(&region));
    else
        r = aws_lookup_nothing(l, "ECS metadata: it is not in the answer");
    buf_deinit(&cluster);
    buf_deinit(&region);
    aws_lookup_go_on(l, r);
}

enum step_result aws_lookup_task(struct aws_lookup *l)
{
    const char *url = aws_env_get(l->env, "ECS_CONTAINER_METADATA_URI_V4");
    if (!url)
        url = aws_env_get(l->env, "ECS_CONTAINER_METADATA_URI");
    if (!url)
        return aws_lookup_nothing(l, "ECS_CONTAINER_METADATA_URI_V4 is not set");
    if (!aws_lookup_ask(l, on_task))
        return STEP_NOTHING;
    buf_add_str(&l->ask.url, url);
    buf_add_str(&l->ask.url, "/task");
    l->ask.is_direct = true; // the agent's own address on this host
    l->ask.tries = TASK_TRIES;
    l->ask.deadline_ns = 2 * NS_PER_S;
    aws_ask_send(&l->ask);
    return STEP_PENDING;
}
