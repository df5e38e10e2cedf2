// SPDX-License-Identifier: Apache-2.0
// Events to where they go: CloudWatch Logs through the spool, or another place as lines.
#include "agent/app_internal.h"
#include "base/clock.h"
#include "base/log.h"

bool agent_sends_to_cloudwatch(const struct agent *a)
{
    return a->config.output.kind == CW_OUTPUT_CLOUDWATCH && !a->options->flags.estimate;
}

void agent_on_event(void *user, const struct emf_event *event)
{
    struct agent *a = user;
    uint64_t bytes = event->text.len + LOGS_EVENT_OVERHEAD;
    a->event_bytes += bytes;
    if (a->counts_month && event->interval_ns > 0)
        a->month_bytes +=
            (double)bytes * (30.0 * 86400) / ((double)event->interval_ns / (double)NS_PER_S);
    if (a->output)
        event_output_add(a->output, event->text, event->samples);
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

int agent_open_logs(struct agent *a)
{
    const struct cw_config *cw = a->config.cw;
    const struct logs_options o = {
        .region = a->region,
        .endpoint_override = cw->endpoint_override,
        .dualstack = cw->use_dualstack,
        .retention_days = cw->retention_days,
    };
    struct aws_logs *next = NULL;
    int r = aws_logs_new(&a->env, a->credentials, &o, &next);
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
    a->drained = NULL;
    if (done)
        done(a);
}

static int open_delivery(struct agent *a, struct error *err)
{
    const struct cw_config *cw = a->config.cw;
    int r = agent_open_logs(a);
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

int agent_open_output(struct agent *a, struct error *err)
{
    if (agent_sends_to_cloudwatch(a))
        return open_delivery(a, err);
    return event_output_new(a->loop, &a->config.output, &a->output, err);
}

void agent_drain(struct agent *a, void (*done)(void *user), uint64_t deadline_ns)
{
    a->drained = done;
    if (a->delivery)
        delivery_drain(a->delivery, deadline_ns);
    else if (a->output)
        event_output_drain(a->output, on_drained, a);
    else
        on_drained(a);
}

bool agent_all_shipped(const struct agent *a)
{
    struct delivery_stats d = {0};
    struct event_output_stats o = {0};
    if (a->delivery)
        delivery_get_stats(a->delivery, &d);
    if (a->output)
        event_output_get_stats(a->output, &o);
    uint64_t lost = o.lost_events;
    for (size_t i = 0; i < DELIVERY_LOSS_COUNT; i++)
        lost += d.lost_events[i];
    return lost == 0 && d.spool_batches == 0 && o.waiting_bytes == 0;
}
