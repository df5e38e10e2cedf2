// SPDX-License-Identifier: Apache-2.0
// How it works: who makes a group or a stream stands in a map under its name while it does, and
// whoever needs the same waits with it. A stream is tried first; when its group is missing, the
// stream's maker waits with the group's. A group's retention is set by its maker, before anybody
// writes; where that fails, the group is used nonetheless and the maker tries again by itself.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/aws/logs_internal.h"
#include "base/clock.h"
#include "base/log.h"

#define BODY_BYTES 8192 // two names, escaped
// A group that is there for one and not yet for the other is made again, but not for ever.
#define GROUP_TRIES 2
#define RETENTION_TRIES 10
#define RETENTION_LEAST_NS NS_PER_S
#define RETENTION_MOST_NS (60 * NS_PER_S)

struct logs_maker {
    struct aws_logs *logs;
    struct logs_link link; // in lingering
    char *key;             // group, NUL, stream
    struct sv group, stream;
    struct buf body;
    struct logs_op op;
    struct logs_link waiters;
    struct logs_waiter for_group;
    struct loop_timer *again; // lingering
    unsigned tries;           // of the group, or of its retention
};

static void make_stream(struct logs_maker *m);

void logs_waiter_cancel(struct logs_waiter *w)
{
    if (w->link.next)
        logs_link_remove(&w->link);
}

static void maker_free(struct logs_maker *m)
{
    logs_waiter_cancel(&m->for_group);
    logs_link_remove(&m->link);
    m->logs->lingering_count -= m->again != NULL;
    loop_timer_free(m->again);
    logs_op_deinit(&m->op);
    buf_deinit(&m->body);
    free(m->key);
    free(m);
}

static struct sv key_of(const struct logs_maker *m)
{
    return (struct sv){m->key, m->group.len + 1 + m->stream.len};
}

static struct logs_maker *maker_new(struct aws_logs *l, struct sv key, size_t group_len)
{
    struct logs_maker *m = calloc(1, sizeof(*m));
    if (!m)
        return NULL;
    m->logs = l;
    m->body = BUF_INIT(BODY_BYTES);
    logs_link_init(&m->link);
    logs_link_init(&m->waiters);
    m->key = sv_dup(key);
    if (!m->key || logs_op_init(&m->op, l) < 0) {
        maker_free(m);
        return NULL;
    }
    m->group = (struct sv){m->key, group_len};
    m->stream = sv_sub((struct sv){m->key, key.len}, group_len + 1, key.len);
    return m;
}

// Leaves the map and tells who waits. m is gone afterwards unless it lingers.
static void maker_end(struct logs_maker *m, const struct logs_answer *answer, bool lingers)
{
    struct logs_answer copy = *answer; // the answer is the maker's own
    struct logs_link waiters;
    logs_link_init(&waiters);
    logs_link_splice(&waiters, &m->waiters);
    (void)map_remove(&m->logs->makers, key_of(m));
    if (!lingers)
        maker_free(m);
    while (!logs_link_is_alone(&waiters)) {
        struct logs_waiter *w = container_of(waiters.next, struct logs_waiter, link);
        logs_link_remove(&w->link);
        w->ready(w->user, &copy);
    }
}

static void maker_start(struct logs_maker *m, enum logs_action action,
                        void (*done)(void *user, const struct logs_answer *answer))
{
    struct logs_request r = {.action = action,
                             .body = buf_sv(&m->body),
                             .is_insights = logs_is_insights_group(m->group)};
    if (m->body.error)
        logs_op_fail(&m->op, LOGS_FAULT_SERVICE, strerror(-m->body.error), done, m);
    else
        logs_op_start(&m->op, &r, done, m);
}

// --- A group ---

static bool is_worth_a_retry(enum logs_fault fault)
{
    return fault == LOGS_FAULT_SERVICE || fault == LOGS_FAULT_THROTTLED ||
           fault == LOGS_FAULT_NOT_FOUND;
}

static void on_retention_again(void *user, const struct logs_answer *answer)
{
    struct logs_maker *m = user;
    if (is_worth_a_retry(answer->fault) && ++m->tries < RETENTION_TRIES) {
        loop_timer_set(m->again, clock_backoff_ns(m->tries, RETENTION_LEAST_NS, RETENTION_MOST_NS),
                       0);
        return;
    }
    if (answer->fault != LOGS_FAULT_NONE)
        log_warn("log group keeps its events for ever", LOG_SV("group", m->group),
                 LOG_STR("error", answer->text));
    maker_free(m);
}

static void try_retention_again(void *user)
{
    struct logs_maker *m = user;
    maker_start(m, LOGS_PUT_RETENTION, on_retention_again);
}

// The first try, that those who wait for the group wait for, too.
static void on_retention(void *user, const struct logs_answer *answer)
{
    static const struct logs_answer made = {0};
    struct logs_maker *m = user;
    bool lingers = is_worth_a_retry(answer->fault) &&
                   m->logs->lingering_count < LIMIT_LOGS_MAKERS &&
                   loop_timer_new(m->logs->env->loop, try_retention_again, m, &m->again) == 0;
    if (lingers) {
        m->logs->lingering_count++;
        logs_link_add(&m->logs->lingering, &m->link);
        loop_timer_set(m->again, RETENTION_LEAST_NS, 0);
    } else if (answer->fault != LOGS_FAULT_NONE) {
        log_warn("log group keeps its events for ever", LOG_SV("group", m->group),
                 LOG_STR("error", answer->text));
    }
    maker_end(m, &made, lingers);
}

static void set_retention(struct logs_maker *m)
{
    buf_reset(&m->body);
    logs_write_retention(&m->body, m->group, m->logs->retention_days);
    maker_start(m, LOGS_PUT_RETENTION, on_retention);
}

static void on_group(void *user, const struct logs_answer *answer)
{
    struct logs_maker *m = user;
    if (answer->fault == LOGS_FAULT_NONE) {
        m->logs->stats.groups_created++;
        log_info("log group created", LOG_SV("group", m->group));
        if (m->logs->retention_days) {
            set_retention(m);
            return;
        }
    }
    maker_end(m, answer, false);
}

// --- A stream ---

static void on_group_ready(void *user, const struct logs_answer *answer)
{
    struct logs_maker *m = user;
    if (logs_outcome_of(answer->fault, 0) == LOGS_DELIVERED)
        make_stream(m);
    else
        maker_end(m, answer, false);
}

static int join(struct aws_logs *l, struct sv key, size_t group_len, struct logs_waiter *w);

static void make_group(struct logs_maker *m, const struct logs_answer *answer)
{
    char *key = sv_dup((struct sv){m->key, m->group.len + 1});
    m->tries++;
    m->for_group.ready = on_group_ready;
    m->for_group.user = m;
    int r = key ? join(m->logs, (struct sv){key, m->group.len + 1}, m->group.len, &m->for_group)
                : -ENOMEM;
    free(key);
    if (r < 0)
        maker_end(m, answer, false);
}

static void on_stream(void *user, const struct logs_answer *answer)
{
    struct logs_maker *m = user;
    if (answer->fault == LOGS_FAULT_NOT_FOUND && m->tries < GROUP_TRIES) {
        make_group(m, answer);
        return;
    }
    if (answer->fault == LOGS_FAULT_NONE) {
        m->logs->stats.streams_created++;
        log_debug("log stream created", LOG_SV("group", m->group), LOG_SV("stream", m->stream));
    }
    maker_end(m, answer, false);
}

static void make_stream(struct logs_maker *m)
{
    buf_reset(&m->body);
    logs_write_stream(&m->body, m->group, m->stream);
    maker_start(m, LOGS_CREATE_STREAM, on_stream);
}

// --- Who needs one ---

static int join(struct aws_logs *l, struct sv key, size_t group_len, struct logs_waiter *w)
{
    struct logs_maker *m = map_find(&l->makers, key);
    logs_link_init(&w->link);
    if (m) {
        logs_link_add(&m->waiters, &w->link);
        return 0;
    }
    m = maker_new(l, key, group_len);
    if (!m)
        return -ENOMEM;
    int r = map_put(&l->makers, key, m, NULL);
    if (r < 0) {
        maker_free(m);
        return r;
    }
    logs_link_add(&m->waiters, &w->link);
    if (m->stream.len) {
        make_stream(m);
    } else {
        logs_write_group(&m->body, m->group);
        maker_start(m, LOGS_CREATE_GROUP, on_group);
    }
    return 0;
}

int logs_make_stream(struct aws_logs *l, struct sv group, struct sv stream, struct logs_waiter *w)
{
    struct buf key = BUF_INIT(BODY_BYTES);
    buf_add_sv(&key, group);
    buf_add_char(&key, '\0');
    buf_add_sv(&key, stream);
    int r = key.error ? key.error : join(l, buf_sv(&key), group.len, w);
    buf_deinit(&key);
    return r;
}

void logs_makers_free(struct aws_logs *l)
{
    struct logs_maker *m;
    void *value;
    size_t at = 0;
    while (map_next(&l->makers, &at, NULL, &value)) {
        m = value;
        logs_waiter_cancel(&m->for_group); // before the group's maker is gone
    }
    at = 0;
    while (map_next(&l->makers, &at, NULL, &value))
        maker_free(value);
    map_deinit(&l->makers);
    while (!logs_link_is_alone(&l->lingering))
        maker_free(container_of(l->lingering.next, struct logs_maker, link));
}
