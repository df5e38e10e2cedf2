// SPDX-License-Identifier: Apache-2.0
// How it works: a batch becomes the body of its request at once, and that is all that is kept of
// it. When the service does not find the stream, it is made and the request sent again.
#include "agent/aws/logs.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/aws/logs_internal.h"
#include "base/clock.h"

#define DEADLINE_S 30u
// The service may have made a stream and not yet find it everywhere.
#define MAKING_TRIES 2
#define URL_BYTES 2048

struct logs_call {
    struct aws_logs *logs;
    struct logs_op op;
    struct logs_waiter waiter;
    struct buf body;
    char *group, *stream;
    struct logs_request request;
    unsigned makings;
    void (*done)(void *user, const struct logs_result *result);
    void *user;
};

// --- All of it ---

static bool is_given(const char *text)
{
    return text && *text;
}

int aws_logs_endpoint(const struct aws_env *env, const struct logs_options *o, struct buf *out,
                      struct error *err)
{
    struct buf found = BUF_INIT(URL_BYTES);
    if (is_given(o->endpoint_override))
        buf_add_str(&found, o->endpoint_override);
    else
        aws_endpoint(env, "logs", o->region, o->dualstack, &found);
    int r = found.error;
    if (r == -EFBIG)
        r = error_set(err, -EINVAL, "endpoint is longer than %d bytes", URL_BYTES);
    else if (r == 0)
        r = logs_read_endpoint(buf_sv(&found), out, err);
    buf_deinit(&found);
    if (r == 0 && out->error)
        r = -ENOMEM;
    return r == -ENOMEM ? error_set(err, r, "out of memory") : r;
}

static int logs_init(struct aws_logs *l, const struct logs_options *o)
{
    struct buf url = BUF_INIT(URL_BYTES + sizeof("https:///"));
    int r = aws_logs_endpoint(l->env, o, &url, NULL);
    if (r == 0) {
        buf_add_char(&url, '/');
        l->url = sv_dup(buf_sv(&url));
        l->region = sv_dup(sv_from(o->region));
        r = url.error || !l->url || !l->region ? -ENOMEM : 0;
    }
    buf_deinit(&url);
    if (r == 0 && loop_timer_new(l->env->loop, logs_wake, l, &l->wake) < 0)
        r = -ENOMEM;
    return r;
}

int aws_logs_new(const struct aws_env *env, struct aws_credentials *credentials,
                 const struct logs_options *o, struct aws_logs **out)
{
    struct aws_logs *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->env = env;
    l->ca_file = aws_env_get(env, "AWS_CA_BUNDLE");
    l->retention_days = o->retention_days;
    l->deadline_ns = (o->deadline_s ? o->deadline_s : DEADLINE_S) * NS_PER_S;
    l->makers = MAP_INIT(LIMIT_LOGS_MAKERS);
    logs_link_init(&l->queued);
    logs_link_init(&l->awaiting);
    logs_link_init(&l->lingering);
    int r = logs_init(l, o);
    if (r < 0) {
        aws_logs_free(l);
        return r;
    }
    l->credentials = credentials;
    aws_credentials_watch(credentials, logs_on_credentials, l);
    *out = l;
    return 0;
}

static void logs_destroy(struct aws_logs *l)
{
    logs_makers_free(l);
    for (size_t i = 0; i < l->idle_count; i++)
        http_handle_free(l->idle[i]);
    loop_timer_free(l->wake);
    free(l->url);
    free(l->region);
    free(l);
}

void aws_logs_free(struct aws_logs *l)
{
    if (!l)
        return;
    if (l->credentials)
        aws_credentials_watch(l->credentials, NULL, NULL);
    l->credentials = NULL;
    l->is_gone = true;
    if (l->call_count == 0)
        logs_destroy(l);
    else
        logs_on_credentials(l);
}

void aws_logs_get_stats(const struct aws_logs *l, struct logs_stats *out)
{
    *out = l->stats;
}

// --- A batch ---

static void call_send(struct logs_call *c);

static void call_finish(struct logs_call *c, const struct logs_answer *answer,
                        enum logs_outcome outcome)
{
    struct logs_answer copy = *answer; // c may be freed inside done
    struct logs_result result = {
        .outcome = outcome,
        .rejected_old = copy.rejected_old,
        .rejected_new = copy.rejected_new,
        .retry_after_s = copy.retry_after_s,
        .error = copy.text,
    };
    c->done(c->user, &result);
}

static void on_made(void *user, const struct logs_answer *answer)
{
    struct logs_call *c = user;
    enum logs_outcome outcome = logs_outcome_of(answer->fault, 0);
    if (outcome == LOGS_DELIVERED)
        call_send(c);
    else
        call_finish(c, answer, outcome);
}

static void on_put(void *user, const struct logs_answer *answer)
{
    struct logs_call *c = user;
    if (answer->fault == LOGS_FAULT_NOT_FOUND && c->makings < MAKING_TRIES) {
        c->makings++;
        c->waiter.ready = on_made;
        c->waiter.user = c;
        if (logs_make_stream(c->logs, sv_from(c->group), sv_from(c->stream), &c->waiter) == 0)
            return;
    }
    call_finish(c, answer, logs_outcome_of(answer->fault, c->request.events));
}

static void call_send(struct logs_call *c)
{
    logs_op_start(&c->op, &c->request, on_put, c);
}

// Our own rules for a batch: to break one is a bug of ours.
static void check_batch(const struct logs_batch *b)
{
    size_t bytes = 0;
    assert(b->count > 0 && b->count <= LOGS_BATCH_EVENTS_MAX);
    for (size_t i = 0; i < b->count; i++) {
        const struct logs_event *e = &b->events[i];
        assert(e->message.len > 0 && e->message.len + LOGS_EVENT_OVERHEAD <= LOGS_EVENT_BYTES_MAX);
        assert(i == 0 || e->timestamp_ms >= b->events[i - 1].timestamp_ms);
        bytes += e->message.len + LOGS_EVENT_OVERHEAD;
    }
    assert(bytes <= LOGS_BATCH_BYTES_MAX);
    assert(b->events[b->count - 1].timestamp_ms - b->events[0].timestamp_ms <= LOGS_BATCH_SPAN_MS);
}

static int call_fill(struct logs_call *c, const struct logs_batch *batch)
{
    if (logs_op_init(&c->op, c->logs) < 0)
        return -ENOMEM;
    c->group = sv_dup(batch->group);
    c->stream = sv_dup(batch->stream);
    logs_write_events(&c->body, batch);
    assert(c->body.error != -EFBIG); // LIMIT_LOGS_BODY_BYTES is for the largest batch
    c->request = (struct logs_request){.action = LOGS_PUT_EVENTS,
                                       .body = buf_sv(&c->body),
                                       .events = batch->count,
                                       .is_insights = logs_is_insights_group(batch->group)};
    return c->group && c->stream ? c->body.error : -ENOMEM;
}

int aws_logs_put(struct aws_logs *l, const struct logs_batch *batch,
                 void (*done)(void *user, const struct logs_result *result), void *user,
                 struct logs_call **out)
{
    struct error err = ERROR_INIT;
    check_batch(batch);
    struct logs_call *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->logs = l;
    c->done = done;
    c->user = user;
    c->body = BUF_INIT(LIMIT_LOGS_BODY_BYTES);
    l->call_count++;
    int r = call_fill(c, batch);
    if (r < 0) {
        logs_call_free(c);
        return r;
    }
    if (logs_check_names(batch->group, batch->stream, &err) < 0)
        logs_op_fail(&c->op, LOGS_FAULT_NAME, err.text, on_put, c);
    else
        call_send(c);
    *out = c;
    return 0;
}

void logs_call_free(struct logs_call *c)
{
    if (!c)
        return;
    logs_waiter_cancel(&c->waiter);
    logs_op_deinit(&c->op);
    buf_deinit(&c->body);
    free(c->group);
    free(c->stream);
    struct aws_logs *l = c->logs;
    free(c);
    if (--l->call_count == 0 && l->is_gone)
        logs_destroy(l);
}
