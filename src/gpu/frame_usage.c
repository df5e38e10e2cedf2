// SPDX-License-Identifier: Apache-2.0
#include "gpu/frame_internal.h"

#define PPM_MOST 1000000u

void frame_usage_open(const struct frame_usage *head, struct frame *out)
{
    out->as.usage.head = head;
    out->as.usage.devices = (const struct frame_usage_device *)(head + 1);
    out->as.usage.spans = (const struct frame_usage_span *)(out->as.usage.devices + head->count);
    out->as.usage.shares = (const struct frame_usage_share *)(out->as.usage.spans + head->spans);
    out->as.usage.processes =
        (const struct frame_usage_process *)(out->as.usage.shares + head->shares);
}

static bool length_fits(const struct frame_usage *head, size_t bytes)
{
    if (bytes < sizeof(*head) || head->count > LIMIT_ENTITIES || head->spans > LIMIT_USAGE_SPANS ||
        head->shares > LIMIT_USAGE_SHARES || head->processes > LIMIT_USAGE_PROCESSES)
        return false;
    return bytes == sizeof(*head) + (size_t)head->count * sizeof(struct frame_usage_device) +
                        (size_t)head->spans * sizeof(struct frame_usage_span) +
                        (size_t)head->shares * sizeof(struct frame_usage_share) +
                        (size_t)head->processes * sizeof(struct frame_usage_process);
}

static const char *check_device(const struct frame_usage_device *d,
                                const struct frame_usage_span *spans,
                                const struct frame_usage_share *shares)
{
    if (d->flags & ~(uint32_t)FRAME_USAGE_FLAGS)
        return "usage: flags";
    uint64_t end_ns = 0;
    for (size_t i = 0; i < d->spans; i++) {
        if (spans[i].from_ns >= spans[i].to_ns || spans[i].from_ns < end_ns)
            return "usage: times of spans";
        if (spans[i].ppm > PPM_MOST || spans[i].filled > 1)
            return "usage: span";
        end_ns = spans[i].to_ns;
    }
    for (size_t i = 0; i < d->shares; i++)
        if (shares[i].from_ns >= shares[i].to_ns || shares[i].ppm > PPM_MOST)
            return "usage: share";
    return NULL;
}

const char *frame_usage_check(const struct frame_usage *head, size_t bytes, uint32_t entities)
{
    if (!length_fits(head, bytes))
        return "usage: length";
    if (head->started_ns > head->ended_ns)
        return "usage: ends before it starts";
    struct frame f;
    frame_usage_open(head, &f);
    size_t spans = 0, shares = 0, processes = 0;
    for (size_t i = 0; i < head->count; i++) {
        const struct frame_usage_device *d = &f.as.usage.devices[i];
        if (d->entity >= entities || (i > 0 && d->entity <= d[-1].entity))
            return "usage: entity";
        if (d->taken_ns > head->ended_ns)
            return "usage: taken after its end";
        if (d->spans > head->spans - spans || d->shares > head->shares - shares ||
            d->processes > head->processes - processes ||
            d->processes > LIMIT_USAGE_DEVICE_PROCESSES)
            return "usage: counts";
        const char *wrong = check_device(d, f.as.usage.spans + spans, f.as.usage.shares + shares);
        if (wrong)
            return wrong;
        spans += d->spans;
        shares += d->shares;
        processes += d->processes;
    }
    if (spans != head->spans || shares != head->shares || processes != head->processes)
        return "usage: counts";
    for (size_t i = 0; i < processes; i++)
        if (!f.as.usage.processes[i].kinds || f.as.usage.processes[i].kinds & ~FRAME_USAGE_KINDS)
            return "usage: process";
    return NULL;
}
