// SPDX-License-Identifier: Apache-2.0
#include "source/xid_pairs.h"

#include <string.h>

static void remove_lines(struct xid_pairs *p, uint32_t at)
{
    p->line_count--;
    memmove(&p->lines[at], &p->lines[at + 1], (p->line_count - at) * sizeof(p->lines[0]));
}

static void remove_events(struct xid_pairs *p, uint32_t at)
{
    p->event_count--;
    memmove(&p->events[at], &p->events[at + 1], (p->event_count - at) * sizeof(p->events[0]));
}

// --- events ---

static void forget_old_events(struct xid_pairs *p, uint64_t now_ns)
{
    while (p->event_count && now_ns >= p->events[0].taken_ns + XID_PAIR_NS)
        remove_events(p, 0);
}

static void remember_event(struct xid_pairs *p, const struct xid_sighting *event)
{
    forget_old_events(p, event->taken_ns);
    for (uint32_t i = p->event_count; i-- > 0;) {
        struct xid_events *e = &p->events[i];
        if (e->bus_key != event->bus_key || e->xid != event->xid)
            continue;
        if (p->event_count < XID_PAIRS_MAX && event->taken_ns >= e->taken_ns + XID_GROUP_NS)
            break;
        e->count++;
        return;
    }
    if (p->event_count == XID_PAIRS_MAX)
        remove_events(p, 0);
    p->events[p->event_count++] = (struct xid_events){
        .bus_key = event->bus_key, .xid = event->xid, .count = 1, .taken_ns = event->taken_ns};
}

bool xid_pairs_event(struct xid_pairs *p, const struct xid_sighting *event,
                     struct xid_sighting *out)
{
    *out = *event;
    for (uint32_t i = 0; i < p->line_count; i++) {
        struct xid_lines *l = &p->lines[i];
        if (l->first.bus_key != event->bus_key || l->first.xid != event->xid)
            continue;
        bool told = l->first.count == 0;
        out->taken_ns = l->first.taken_ns;
        out->wall_ns = l->first.wall_ns;
        memcpy(out->text, l->first.text, sizeof(out->text));
        if (out->gpu_instance_id == UINT32_MAX)
            out->gpu_instance_id = l->first.gpu_instance_id;
        if (told)
            l->told--;
        else
            l->first.count--;
        if (l->first.count == 0 && l->told == 0)
            remove_lines(p, i);
        return !told;
    }
    remember_event(p, event);
    return true;
}

// --- lines ---

static bool take_event(struct xid_pairs *p, const struct xid_sighting *line)
{
    for (uint32_t i = 0; i < p->event_count; i++) {
        struct xid_events *e = &p->events[i];
        if (e->bus_key != line->bus_key || e->xid != line->xid)
            continue;
        if (--e->count == 0)
            remove_events(p, i);
        return true;
    }
    return false;
}

static bool same_kind(const struct xid_sighting *a, const struct xid_sighting *b)
{
    return a->bus_key == b->bus_key && a->xid == b->xid && a->gpu_instance_id == b->gpu_instance_id;
}

// The newest group of the line's kind that takes it in; at full house any of its kind does.
static struct xid_lines *find_group(struct xid_pairs *p, const struct xid_sighting *line)
{
    for (uint32_t i = p->line_count; i-- > 0;) {
        struct xid_lines *l = &p->lines[i];
        if (!same_kind(&l->first, line))
            continue;
        bool close = l->told == 0 && line->taken_ns < l->first.taken_ns + XID_GROUP_NS;
        return close || (p->line_count == XID_PAIRS_MAX && l->told == 0) ? l : NULL;
    }
    return NULL;
}

bool xid_pairs_line(struct xid_pairs *p, const struct xid_sighting *line, bool events,
                    struct xid_sighting *out)
{
    forget_old_events(p, line->taken_ns);
    if (take_event(p, line))
        return false;
    if (!events) {
        *out = *line;
        return true;
    }
    struct xid_lines *group = find_group(p, line);
    if (group) {
        group->first.count += line->count;
        group->last_ns = line->taken_ns;
        return false;
    }
    bool tell = false;
    if (p->line_count == XID_PAIRS_MAX) {
        *out = p->lines[0].first;
        tell = out->count > 0;
        remove_lines(p, 0);
    }
    p->lines[p->line_count++] = (struct xid_lines){.first = *line, .last_ns = line->taken_ns};
    return tell;
}

// What was told alone stands in one group of its kind, the oldest.
static void merge_told(struct xid_pairs *p, uint32_t at)
{
    struct xid_lines *l = &p->lines[at];
    for (uint32_t i = 0; i < at; i++) {
        struct xid_lines *older = &p->lines[i];
        if (older->first.count > 0 || !same_kind(&older->first, &l->first))
            continue;
        older->told += l->told;
        older->last_ns = l->last_ns;
        remove_lines(p, at);
        return;
    }
}

bool xid_pairs_expire(struct xid_pairs *p, uint64_t now_ns, uint64_t drained_ns,
                      struct xid_sighting *out)
{
    for (uint32_t i = 0; i < p->line_count;) {
        struct xid_lines *l = &p->lines[i];
        bool late = l->first.count > 0 && now_ns >= l->first.taken_ns + XID_PAIR_NS;
        if (late) {
            *out = l->first;
            l->told += l->first.count;
            l->first.count = 0;
            merge_told(p, i);
            return true;
        }
        if (l->first.count == 0 && drained_ns >= l->last_ns + XID_PAIR_NS)
            remove_lines(p, i);
        else
            i++;
    }
    return false;
}

uint64_t xid_pairs_due_ns(const struct xid_pairs *p)
{
    for (uint32_t i = 0; i < p->line_count; i++)
        if (p->lines[i].first.count > 0)
            return p->lines[i].first.taken_ns + XID_PAIR_NS;
    return UINT64_MAX;
}

uint64_t xid_pairs_first_seq(const struct xid_pairs *p)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t i = 0; i < p->line_count; i++)
        if (p->lines[i].first.count > 0 && p->lines[i].first.seq < first)
            first = p->lines[i].first.seq;
    return first;
}
