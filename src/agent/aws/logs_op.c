// SPDX-License-Identifier: Apache-2.0
// How it works: a request queues for one of a few connections, is signed with the keys and the
// clock of the moment it leaves, and is told of when it failed for good. In between it may go back
// to the head of the queue: once after the clock was set by the service's Date, once after refused
// keys were fetched anew, once without gzip.
//
// Invariants: an op is in a list exactly while it is QUEUED or AWAITING, holds a connection exactly
// while it is RUNNING, and its owner is told as the last thing that happens to it.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/aws/logs_internal.h"
#include "base/clock.h"
#include "codec/gzip.h"

// Fetched anew, keys may be the same: who holds them may have got other rights meanwhile, or not.
#define RENEWAL_NS (5 * NS_PER_S)
// A signature may be wrong for other reasons than the clock: less than this is not the clock. AWS
// allows 5 minutes.
#define CLOCK_DRIFT_S 240
#define USER_AGENT "podgpu-agent/" PODGPU_VERSION

// --- Rings ---

void logs_link_init(struct logs_link *l)
{
    l->previous = l->next = l;
}

bool logs_link_is_alone(const struct logs_link *l)
{
    return l->next == l;
}

void logs_link_add(struct logs_link *before, struct logs_link *l)
{
    l->next = before;
    l->previous = before->previous;
    before->previous->next = l;
    before->previous = l;
}

void logs_link_remove(struct logs_link *l)
{
    l->previous->next = l->next;
    l->next->previous = l->previous;
    logs_link_init(l);
}

void logs_link_splice(struct logs_link *to, struct logs_link *from)
{
    if (logs_link_is_alone(from))
        return;
    from->previous->next = to->next;
    to->next->previous = from->previous;
    to->next = from->next;
    from->next->previous = to;
    logs_link_init(from);
}

// --- Ends ---

static const char *action_text(enum logs_action action)
{
    switch (action) {
    case LOGS_PUT_EVENTS:
        return "PutLogEvents";
    case LOGS_CREATE_GROUP:
        return "CreateLogGroup";
    case LOGS_PUT_RETENTION:
        return "PutRetentionPolicy";
    case LOGS_CREATE_STREAM:
        return "CreateLogStream";
    }
    return "";
}

static void op_finish(struct logs_op *op)
{
    op->state = LOGS_OP_IDLE;
    op->done(op->user, &op->answer);
}

static void op_fail_later(struct logs_op *op, enum logs_fault fault, const char *text)
{
    logs_answer_set(&op->answer, fault, action_text(op->request.action), text);
    op->state = LOGS_OP_FAILING;
    loop_timer_set(op->timer, 0, 0);
}

static void op_await(struct logs_op *op, uint64_t most_ns)
{
    op->state = LOGS_OP_AWAITING;
    op->is_woken = false;
    logs_link_add(&op->logs->awaiting, &op->link);
    loop_timer_set(op->timer, most_ns, 0);
}

static void op_fired(void *user)
{
    struct logs_op *op = user;
    assert(op->state == LOGS_OP_AWAITING || op->state == LOGS_OP_FAILING);
    if (op->state == LOGS_OP_AWAITING) {
        logs_link_remove(&op->link);
        if (!op->has_renewed)
            logs_answer_set(&op->answer, LOGS_FAULT_CREDENTIALS, action_text(op->request.action),
                            "no credentials came in time");
    }
    op_finish(op);
}

// --- Connections ---

static struct http_handle *take_handle(struct aws_logs *l)
{
    l->running++;
    // Without one the request goes over a connection of its own.
    return l->idle_count ? l->idle[--l->idle_count] : http_handle_new(l->env->client);
}

static void give_handle(struct aws_logs *l, struct http_handle *handle)
{
    l->running--;
    if (handle)
        l->idle[l->idle_count++] = handle;
}

// --- A request leaves ---

static uint64_t keys_hash(const struct aws_keys *keys)
{
    return map_hash(keys->access_key) * 31 + map_hash(keys->session_token);
}

static int64_t wall_s(void)
{
    return (int64_t)(clock_wall_ns() / NS_PER_S);
}

static void print_date(int64_t offset_s, char *out, size_t out_bytes)
{
    time_t seconds = (time_t)(wall_s() + offset_s);
    struct tm parts;
    if (!gmtime_r(&seconds, &parts) || strftime(out, out_bytes, "%Y%m%dT%H%M%SZ", &parts) == 0)
        out[0] = '\0';
}

// The body compressed, or NULL where that does not pay.
static char *compress(const struct logs_op *op, size_t *out_bytes)
{
    struct sv body = op->request.body;
    char *data = NULL;
    if (op->logs->is_plain || op->request.action != LOGS_PUT_EVENTS ||
        body.len <= LIMIT_LOGS_GZIP_LEAST_BYTES || gzip_compress(body, &data, out_bytes) < 0)
        return NULL;
    if (*out_bytes < body.len)
        return data;
    free(data);
    return NULL;
}

static void op_answered(void *user, const struct http_client_response *response);

static int op_request(struct logs_op *op, const struct aws_keys *keys, struct error *err)
{
    struct aws_logs *l = op->logs;
    char target[64], date[32];
    (void)snprintf(target, sizeof(target), "X-Amz-Target: Logs_20140328.%s",
                   action_text(op->request.action));
    print_date(l->clock_offset_s, date, sizeof(date));
    const char *headers[5] = {"Content-Type: application/x-amz-json-1.1", target};
    size_t count = 2;
    if (op->request.action == LOGS_PUT_EVENTS)
        headers[count++] = "x-amzn-logs-format: json/emf";
    size_t bytes = 0;
    char *packed cleanup(mem_freep) = compress(op, &bytes);
    op->is_gzip = packed != NULL;
    if (packed)
        headers[count++] = "Content-Encoding: gzip";
    struct http_client_request r = {
        .method = "POST",
        .url = l->url,
        .headers = headers,
        .user_agent = op->request.is_insights ? USER_AGENT " (ContainerInsights)" : USER_AGENT,
        .body = packed ? (struct sv){packed, bytes} : op->request.body,
        .tls = {.ca_file = l->ca_file},
        .sign = {"logs", l->region, keys->access_key, keys->secret_key, keys->session_token, date},
        .deadline_ns = l->deadline_ns,
        .max_body_bytes = LIMIT_LOGS_ANSWER_BYTES,
    };
    op->signed_offset_s = l->clock_offset_s;
    op->signed_keys = keys_hash(keys);
    return http_client_start(l->env->client, op->handle, &r, op_answered, op, &op->call, err);
}

// The keys there are: 0; or the op waits for others, or fails.
static int op_keys(struct logs_op *op, struct aws_keys *keys)
{
    struct error err = ERROR_INIT;
    if (op->logs->is_gone) {
        op_fail_later(op, LOGS_FAULT_SERVICE, "given up for another configuration");
        return -ECANCELED;
    }
    int r = aws_credentials_get(op->logs->credentials, keys, &err);
    if (r == -EAGAIN) {
        op_await(op, op->logs->deadline_ns);
        return r;
    }
    if (r < 0) {
        op_fail_later(op, LOGS_FAULT_CREDENTIALS, err.text[0] ? err.text : strerror(-r));
        return r;
    }
    if (!op->has_renewed || keys_hash(keys) != op->signed_keys)
        return 0;
    // These were refused. What was answered then is what is told.
    if (op->is_woken) {
        op->state = LOGS_OP_FAILING;
        loop_timer_set(op->timer, 0, 0);
    } else {
        op_await(op, RENEWAL_NS);
    }
    return -EAGAIN;
}

static void op_send(struct logs_op *op)
{
    struct error err = ERROR_INIT;
    struct aws_keys keys;
    if (op_keys(op, &keys) < 0)
        return;
    op->handle = take_handle(op->logs);
    int r = op_request(op, &keys, &err);
    if (r < 0) {
        give_handle(op->logs, TAKE_PTR(op->handle));
        op_fail_later(op, LOGS_FAULT_SERVICE, err.text);
        return;
    }
    op->state = LOGS_OP_RUNNING;
    op->logs->stats.requests++;
}

static void pump(struct aws_logs *l)
{
    while (l->running < LIMIT_LOGS_CONNECTIONS && !logs_link_is_alone(&l->queued)) {
        struct logs_op *op = container_of(l->queued.next, struct logs_op, link);
        logs_link_remove(&op->link);
        op_send(op);
    }
}

static void queue_first(struct logs_op *op)
{
    op->state = LOGS_OP_QUEUED;
    logs_link_add(op->logs->queued.next, &op->link);
}

// --- An answer comes ---

// Whether the request was signed with a wrong clock, which is right now.
static bool set_clock(struct logs_op *op, int64_t offset_s)
{
    int64_t drift_s = offset_s - op->signed_offset_s;
    int64_t least_s = op->answer.fault == LOGS_FAULT_CLOCK ? 1 : CLOCK_DRIFT_S;
    if (drift_s < 0)
        drift_s = -drift_s;
    if ((op->answer.fault != LOGS_FAULT_CLOCK && op->answer.fault != LOGS_FAULT_SIGNATURE) ||
        op->has_set_clock || drift_s < least_s)
        return false;
    op->has_set_clock = true;
    op->logs->clock_offset_s = offset_s;
    return true;
}

// Whether the keys were refused and others may be had.
static bool renew_keys(struct logs_op *op)
{
    struct aws_keys keys;
    if ((op->answer.fault != LOGS_FAULT_CLOCK && op->answer.fault != LOGS_FAULT_SIGNATURE &&
         op->answer.fault != LOGS_FAULT_CREDENTIALS) ||
        op->has_renewed)
        return false;
    op->has_renewed = true;
    op->is_woken = false;
    // Unless another request has seen to it.
    if (!op->logs->is_gone && aws_credentials_get(op->logs->credentials, &keys, NULL) == 0 &&
        keys_hash(&keys) == op->signed_keys)
        aws_credentials_expire(op->logs->credentials);
    return true;
}

// Whether the body was compressed for one who does not read that.
static bool leave_gzip(struct logs_op *op)
{
    if (!op->is_gzip || op->answer.fault != LOGS_FAULT_UNREADABLE)
        return false;
    op->logs->is_plain = true;
    return true;
}

static void read_response(struct logs_op *op, const struct http_client_response *response)
{
    const char *operation = action_text(op->request.action);
    if (response->result < 0) {
        logs_answer_set(&op->answer, LOGS_FAULT_SERVICE, operation, response->error);
        return;
    }
    struct sv type = http_call_header(op->call, "x-amzn-ErrorType");
    struct logs_reply reply = {operation, response->status, type, response->body,
                               op->request.events};
    logs_answer_read(&reply, &op->answer);
    op->answer.retry_after_s = response->retry_after_s;
}

static void count_answer(struct aws_logs *l, enum logs_fault fault)
{
    l->stats.failures +=
        fault != LOGS_FAULT_NONE && fault != LOGS_FAULT_EXISTS && fault != LOGS_FAULT_NOT_FOUND;
    l->stats.throttled += fault == LOGS_FAULT_THROTTLED;
}

static void op_answered(void *user, const struct http_client_response *response)
{
    struct logs_op *op = user;
    struct aws_logs *l = op->logs;
    int64_t offset_s = l->clock_offset_s;
    if (response->server_time_s) {
        offset_s = response->server_time_s - wall_s();
        l->stats.clock_offset_s = offset_s;
    }
    read_response(op, response);
    http_call_free(TAKE_PTR(op->call));
    give_handle(l, TAKE_PTR(op->handle));
    op->state = LOGS_OP_IDLE;
    count_answer(l, op->answer.fault);
    bool again = set_clock(op, offset_s) || renew_keys(op) || leave_gzip(op);
    if (again)
        queue_first(op);
    pump(l);
    if (!again)
        op_finish(op);
}

// --- For its owner ---

int logs_op_init(struct logs_op *op, struct aws_logs *logs)
{
    *op = (struct logs_op){.logs = logs};
    logs_link_init(&op->link);
    return loop_timer_new(logs->env->loop, op_fired, op, &op->timer) < 0 ? -ENOMEM : 0;
}

void logs_op_deinit(struct logs_op *op)
{
    if (!op->logs)
        return;
    logs_link_remove(&op->link);
    loop_timer_free(TAKE_PTR(op->timer));
    if (op->state == LOGS_OP_RUNNING) {
        http_call_free(TAKE_PTR(op->call));
        give_handle(op->logs, TAKE_PTR(op->handle));
        loop_timer_set(op->logs->wake, 0, 0); // for the next in the queue
    }
    op->state = LOGS_OP_IDLE;
}

static void op_begin(struct logs_op *op, void (*done)(void *user, const struct logs_answer *answer),
                     void *user)
{
    assert(op->state == LOGS_OP_IDLE);
    op->done = done;
    op->user = user;
    op->has_renewed = op->has_set_clock = op->is_woken = false;
}

void logs_op_start(struct logs_op *op, const struct logs_request *request,
                   void (*done)(void *user, const struct logs_answer *answer), void *user)
{
    op_begin(op, done, user);
    op->request = *request;
    op->state = LOGS_OP_QUEUED;
    logs_link_add(&op->logs->queued, &op->link);
    pump(op->logs);
}

void logs_op_fail(struct logs_op *op, enum logs_fault fault, const char *text,
                  void (*done)(void *user, const struct logs_answer *answer), void *user)
{
    op_begin(op, done, user);
    op_fail_later(op, fault, text);
}

void logs_on_credentials(void *user)
{
    struct aws_logs *l = user;
    for (struct logs_link *i = l->awaiting.next; i != &l->awaiting; i = i->next)
        container_of(i, struct logs_op, link)->is_woken = true;
    loop_timer_set(l->wake, 0, 0);
}

void logs_wake(void *user)
{
    struct aws_logs *l = user;
    struct logs_link *next;
    for (struct logs_link *i = l->awaiting.next; i != &l->awaiting; i = next) {
        struct logs_op *op = container_of(i, struct logs_op, link);
        next = i->next;
        if (!op->is_woken)
            continue;
        logs_link_remove(&op->link);
        loop_timer_stop(op->timer);
        op->state = LOGS_OP_QUEUED;
        logs_link_add(&l->queued, &op->link);
    }
    pump(l);
}
