// SPDX-License-Identifier: Apache-2.0
// Events to where they go: CloudWatch Logs through the spool, or another place as lines.
#include "agent/app_internal.h"
#include "base/clock.h"
#include "base/log.h"

#define ESTIMATE_VALUE_BYTES 6 // a number of some digits and its comma

bool agent_sends_to_cloudwatch(const struct agent *a)
{
    for (size_t i = 0; i < a->config.output_count && !a->options->flags.estimate; i++) {
        if (a->config.outputs[i].kind == CW_OUTPUT_CLOUDWATCH)
            return true;
    }
    return false;
}

// What such events make in a month. One of a window has a value of each of the window's scrapes,
// where an estimate's has that of one scrape.
static double month_bytes(const struct agent *a, const struct emf_event *event, uint64_t bytes)
{
    uint64_t window_ns = a->config.cw->aggregate_ns;
    uint64_t period_ns = window_ns > event->interval_ns ? window_ns : event->interval_ns;
    if (event->interval_ns == 0)
        return 0;
    double further = (double)(period_ns / event->interval_ns - 1) * event->samples;
    double whole = (double)bytes + further * ESTIMATE_VALUE_BYTES;
    return whole * (30.0 * 86400) / ((double)period_ns / (double)NS_PER_S);
}

void agent_on_event(void *user, const struct emf_event *event)
{
    struct agent *a = user;
    uint64_t bytes = event->text.len + LOGS_EVENT_OVERHEAD;
    a->event_bytes += bytes;
    if (a->counts_month)
        a->month_bytes += month_bytes(a, event, bytes);
    for (size_t i = 0; i < a->output_count; i++)
        event_output_add(a->outputs[i], event->text, event->samples);
    if (!a->delivery)
        return;
    const struct delivery_event e = {
        .group = event->log_group,
        .stream = event->log_stream,
        .message = event->text,
        .timestamp_ms = event->timestamp_ms,
        .samples = event->samples,
    };
    delivery_add(a->delivery, &e);
}

int agent_open_logs(struct agent *a, struct error *err)
{
    const struct cw_config *cw = a->config.cw;
    const struct logs_options o = {
        .region = a->region,
        .endpoint_override = cw->endpoint_override,
        .dualstack = cw->use_dualstack,
        .retention_days = cw->retention_days,
    };
    struct aws_logs *next = NULL;
    struct buf endpoint = BUF_INIT(4096);
    int r = aws_logs_endpoint(&a->env, &o, &endpoint, err);
    buf_deinit(&endpoint);
    if (r == 0)
        r = aws_logs_new(&a->env, a->credentials, &o, &next);
    if (r < 0)
        return r;
    if (a->delivery)
        delivery_set_logs(a->delivery, next);
    aws_logs_free(a->logs);
    a->logs = next;
    return 0;
}

static void on_drained(void *user)
{
    struct agent *a = user;
    void (*done)(void *user) = a->drained;
    if (--a->draining > 0)
        return;
    a->drained = NULL;
    if (done)
        done(a);
}

static int open_delivery(struct agent *a, struct error *err)
{
    const struct cw_config *cw = a->config.cw;
    int r = agent_open_logs(a, err);
    if (r < 0)
        return r;
    const struct delivery_options o = {
        .loop = a->loop,
        .logs = a->logs,
        .flush_ns = cw->flush_ns,
        .spool_directory = cw->spool_directory,
        .spool_max_bytes = cw->spool_max_bytes,
        .spool_max_age_ns = cw->spool_max_age_ns,
        .drained = on_drained,
        .user = a,
    };
    return delivery_new(&o, &a->delivery, err);
}

int agent_open_outputs(struct agent *a, struct error *err)
{
    int r = agent_sends_to_cloudwatch(a) ? open_delivery(a, err) : 0;
    for (size_t i = 0; r == 0 && i < a->config.output_count; i++) {
        if (a->config.outputs[i].kind == CW_OUTPUT_CLOUDWATCH)
            continue;
        r = event_output_new(a->loop, &a->config.outputs[i], &a->outputs[a->output_count], err);
        a->output_count += r == 0;
    }
    return r;
}

// One more than there are is counted, so that the last one that is told is the end, whoever it is.
void agent_drain(struct agent *a, void (*done)(void *user), uint64_t deadline_ns)
{
    a->drained = done;
    a->draining = (unsigned)a->output_count + (a->delivery != NULL) + 1;
    if (a->delivery)
        delivery_drain(a->delivery, deadline_ns);
    for (size_t i = 0; i < a->output_count; i++)
        event_output_drain(a->outputs[i], on_drained, a);
    on_drained(a);
}

bool agent_all_shipped(const struct agent *a)
{
    struct delivery_stats d = {0};
    if (a->delivery)
        delivery_get_stats(a->delivery, &d);
    bool all = d.spool_batches == 0;
    for (size_t i = 0; i < DELIVERY_LOSS_COUNT; i++)
        all = all && d.lost_events[i] == 0;
    for (size_t i = 0; i < a->output_count; i++) {
        struct event_output_stats o;
        event_output_get_stats(a->outputs[i], &o);
        all = all && o.lost_events == 0 && o.waiting_bytes == 0;
    }
    return all;
}
