// SPDX-License-Identifier: Apache-2.0
#include "source/xid_pairs.h"

#include <string.h>

static void remove_line(struct xid_pairs *p, uint32_t at)
{
    p->line_count--;
    memmove(&p->lines[at], &p->lines[at + 1], (p->line_count - at) * sizeof(p->lines[0]));
}

static void remove_event(struct xid_pairs *p, uint32_t at)
{
    p->event_count--;
    memmove(&p->events[at], &p->events[at + 1], (p->event_count - at) * sizeof(p->events[0]));
}

static void forget_old_events(struct xid_pairs *p, uint64_t now_ns)
{
    while (p->event_count && now_ns - p->events[0].taken_ns >= XID_PAIR_NS)
        remove_event(p, 0);
}

void xid_pairs_event(struct xid_pairs *p, const struct xid_sighting *event,
                     struct xid_sighting *out)
{
    *out = *event;
    for (uint32_t i = 0; i < p->line_count; i++) {
        const struct xid_sighting *line = &p->lines[i];
        if (line->bus_key != event->bus_key || line->xid != event->xid)
            continue;
        out->taken_ns = line->taken_ns;
        out->wall_ns = line->wall_ns;
        memcpy(out->text, line->text, sizeof(out->text));
        if (out->gpu_instance_id == UINT32_MAX)
            out->gpu_instance_id = line->gpu_instance_id;
        remove_line(p, i);
        return;
    }
    forget_old_events(p, event->taken_ns);
    if (p->event_count == XID_PAIRS_MAX)
        remove_event(p, 0);
    p->events[p->event_count].bus_key = event->bus_key;
    p->events[p->event_count].xid = event->xid;
    p->events[p->event_count++].taken_ns = event->taken_ns;
}

bool xid_pairs_line(struct xid_pairs *p, const struct xid_sighting *line, bool events,
                    struct xid_sighting *out)
{
    forget_old_events(p, line->taken_ns);
    for (uint32_t i = 0; i < p->event_count; i++) {
        if (p->events[i].bus_key != line->bus_key || p->events[i].xid != line->xid)
            continue;
        remove_event(p, i);
        return false;
    }
    if (!events) {
        *out = *line;
        return true;
    }
    bool full = p->line_count == XID_PAIRS_MAX;
    if (full) {
        *out = p->lines[0];
        remove_line(p, 0);
    }
    p->lines[p->line_count++] = *line;
    return full;
}

bool xid_pairs_expire(struct xid_pairs *p, uint64_t now_ns, struct xid_sighting *out)
{
    if (!p->line_count || now_ns < xid_pairs_due_ns(p))
        return false;
    *out = p->lines[0];
    remove_line(p, 0);
    return true;
}

uint64_t xid_pairs_due_ns(const struct xid_pairs *p)
{
    return p->line_count ? p->lines[0].taken_ns + XID_PAIR_NS : UINT64_MAX;
}
