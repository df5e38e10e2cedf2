// SPDX-License-Identifier: Apache-2.0
// The text of events: pieces that are ready, copied between the numbers. Every piece begins with
// the comma before it; the first of a list has it replaced by the bracket. Members stand sorted by
// name, extracted metrics behind the others (as the agent writes them).
#include <errno.h>
#include <stdlib.h>

#include "agent/sinks/emf_internal.h"
#include "base/limits.h"
#include "base/num_text.h"
#include "codec/json.h"

#define FEW_RULES 8
#define HISTOGRAM_BYTES 64 // names and brackets of a histogram's value
#define FIXED_BYTES 160    // brackets, version, timestamps: what an event has beside its pieces

// One event: a piece of a batch.
struct chunk {
    struct emf_group *group;
    struct emf_member **members; // by name
    size_t count, extracted;
    int64_t time_ms;
    bool values;
    bool compat;
    uint32_t piece;
};

// What a histogram gives to an event: some of its bars.
struct piece {
    const struct emf_bar *bars;
    uint32_t count;
    bool is_first;
};

int emf_list_reserve(struct emf *e, size_t count)
{
    if (count <= e->list_capacity)
        return 0;
    size_t capacity = e->list_capacity ? e->list_capacity : 64;
    while (capacity < count)
        capacity *= 2;
    // The second half is for the order by rules.
    struct emf_member **more = reallocarray(e->list, capacity, 2 * sizeof(*more));
    if (!more)
        return -ENOMEM;
    e->list = more;
    e->list_capacity = capacity;
    return 0;
}

// --- Pieces; room was reserved ---

static inline void add_text(struct buf *b, struct emf_text t)
{
    memcpy(b->data + b->len, t.ptr, t.len);
    b->len += t.len;
}

static inline void add_literal(struct buf *b, struct sv s)
{
    memcpy(b->data + b->len, s.ptr, s.len);
    b->len += s.len;
}

static struct piece piece_of(const struct emf_histogram *h, uint32_t number)
{
    uint32_t at = number * LIMIT_EMF_VALUES, left = h->bar_count - at;
    return (struct piece){h->bars + at, left < LIMIT_EMF_VALUES ? left : LIMIT_EMF_VALUES,
                          number == 0};
}

// The sum stands in the first piece: what was observed is not told apart further. CloudWatch adds
// up what has one timestamp.
static void add_histogram(struct buf *b, const struct emf_histogram *h, struct piece p)
{
    double count = 0;
    add_literal(b, SV("{\"Values\":"));
    for (uint32_t i = 0; i < p.count; i++) {
        buf_add_char(b, i ? ',' : '[');
        json_add_number(b, p.bars[i].value);
    }
    add_literal(b, SV("],\"Counts\":"));
    for (uint32_t i = 0; i < p.count; i++) {
        buf_add_char(b, i ? ',' : '[');
        json_add_number(b, p.bars[i].count);
        count += p.bars[i].count;
    }
    add_literal(b, SV("],\"Max\":"));
    json_add_number(b, p.bars[p.count - 1].value);
    add_literal(b, SV(",\"Min\":"));
    json_add_number(b, p.bars[0].value);
    add_literal(b, SV(",\"Count\":"));
    json_add_number(b, count);
    add_literal(b, SV(",\"Sum\":"));
    json_add_number(b, p.is_first ? h->total_sum : 0);
    add_literal(b, SV("}"));
}

static void add_value(struct buf *b, const struct chunk *c, const struct emf_member *m)
{
    if (m->histogram) {
        add_histogram(b, m->histogram, piece_of(m->histogram, c->piece));
        return;
    }
    if (!c->values) {
        json_add_number(b, m->value);
        return;
    }
    for (uint32_t i = 0; i < m->values->count; i++) {
        buf_add_char(b, i ? ',' : '[');
        json_add_number(b, m->values->items[i]);
    }
    buf_add_char(b, ']');
}

static void add_field(struct buf *b, const struct chunk *c, const struct emf_member *m)
{
    add_text(b, m->metric->field);
    add_value(b, c, m);
}

// --- Directives ---

static int by_rule(const void *x, const void *y)
{
    const struct emf_member *a = *(struct emf_member *const *)x;
    const struct emf_member *b = *(struct emf_member *const *)y;
    int order = emf_rule_order(a->rule, b->rule, a->group->plan->words);
    return order ? order : sv_compare(a->metric->name, b->metric->name);
}

// Extracted members, those of one rule together. A group rarely has more than a few rules, which
// are in order: then looking through the members for each is faster than sorting.
static struct emf_member **in_rule_order(struct emf *e, const struct chunk *c)
{
    const struct emf_group *g = c->group;
    if (c->extracted == c->count && g->rule_count == 1)
        return c->members;
    struct emf_member **sorted = e->list + e->list_capacity;
    bool few = g->rule_count <= FEW_RULES;
    size_t count = 0;
    for (uint32_t r = 0; r < (few ? g->rule_count : 1); r++) {
        for (size_t i = 0; i < c->count; i++) {
            struct emf_member *m = c->members[i];
            if (m->rule->set_count && (!few || m->rule == g->rules[r]))
                sorted[count++] = m;
        }
    }
    if (!few)
        qsort(sorted, count, sizeof(struct emf_member *), by_rule);
    return sorted;
}

static void add_directives(struct emf *e, const struct chunk *c)
{
    struct buf *b = &e->text;
    struct emf_member **members = in_rule_order(e, c);
    size_t start = b->len;
    for (size_t i = 0; i < c->extracted;) {
        const struct emf_rule *rule = members[i]->rule;
        add_text(b, rule->directive);
        size_t first = b->len;
        for (; i < c->extracted && members[i]->rule == rule; i++)
            add_text(b, members[i]->metric->definition);
        b->data[first] = '[';
        add_literal(b, SV("]}"));
    }
    b->data[start] = '[';
    add_literal(b, SV("]"));
}

static void add_timestamp(struct buf *b, const struct chunk *c)
{
    add_literal(b, c->compat ? SV(",\"Timestamp\":\"") : SV(",\"Timestamp\":"));
    buf_add_i64(b, c->time_ms);
    if (c->compat)
        buf_add_char(b, '"');
}

// --- Members of the root that have a meaning, in their order ---

static void add_cloudwatch_metrics(struct emf *e, const struct chunk *c)
{
    add_literal(&e->text, SV(",\"CloudWatchMetrics\":"));
    add_directives(e, c);
}

static void add_aws(struct emf *e, const struct chunk *c)
{
    add_literal(&e->text, SV(",\"_aws\":"));
    size_t start = e->text.len;
    add_cloudwatch_metrics(e, c);
    e->text.data[start] = '{';
    add_timestamp(&e->text, c);
    buf_add_char(&e->text, '}');
}

static void add_timestamp_member(struct emf *e, const struct chunk *c)
{
    add_timestamp(&e->text, c);
}

static void add_version(struct emf *e, const struct chunk *c)
{
    add_literal(&e->text, c->compat ? SV(",\"Version\":\"0\"") : SV(",\"Version\":\"1\""));
}

struct special {
    struct sv name;
    void (*add)(struct emf *e, const struct chunk *c);
    bool in_version_0, in_version_1, only_extracting;
};

static const struct special specials[] = {
    {{"CloudWatchMetrics", 17}, add_cloudwatch_metrics, true, false, true},
    {{"Timestamp", 9}, add_timestamp_member, true, false, false},
    {{"Version", 7}, add_version, true, false, false},
    {{"Version", 7}, add_version, false, true, true},
    {{"_aws", 4}, add_aws, false, true, true},
};

static const struct special *next_special(const struct special *s, const struct chunk *c)
{
    const struct special *end = specials + ARRAY_SIZE(specials);
    while (s < end && (!(c->compat ? s->in_version_0 : s->in_version_1) ||
                       (s->only_extracting && !c->extracted)))
        s++;
    return s < end ? s : NULL;
}

// --- The event ---

static bool has_metric(const struct chunk *c, struct sv name)
{
    for (size_t i = 0; i < c->count; i++) {
        if (sv_equals(c->members[i]->metric->name, name))
            return true;
    }
    return false;
}

static size_t next_plain(const struct chunk *c, size_t i)
{
    while (i < c->count && c->members[i]->rule->set_count)
        i++;
    return i;
}

// Labels and specials up to a name; NULL: all that are left.
struct root {
    uint32_t pair;
    const struct special *special;
};

static void add_root_until(struct emf *e, const struct chunk *c, struct root *at,
                           const struct sv *name)
{
    const struct emf_group *g = c->group;
    for (;;) {
        const struct emf_pair *pair = at->pair < g->pair_count ? g->pairs[at->pair] : NULL;
        bool special = at->special && (!pair || sv_compare(at->special->name, pair->written) < 0);
        if (!special && !pair)
            return;
        if (name && sv_compare(special ? at->special->name : pair->written, *name) > 0)
            return;
        if (special) {
            at->special->add(e, c);
            at->special = next_special(at->special + 1, c);
            continue;
        }
        at->pair++;
        if (!g->shadows || !has_metric(c, pair->written))
            add_text(&e->text, pair->json);
    }
}

static void add_event(struct emf *e, const struct chunk *c)
{
    struct root at = {0, next_special(specials, c)};
    for (size_t i = next_plain(c, 0); i < c->count; i = next_plain(c, i + 1)) {
        add_root_until(e, c, &at, &c->members[i]->metric->name);
        add_field(&e->text, c, c->members[i]);
    }
    add_root_until(e, c, &at, NULL);
    for (size_t i = 0; c->extracted && i < c->count; i++) {
        if (c->members[i]->rule->set_count)
            add_field(&e->text, c, c->members[i]);
    }
    e->text.data[0] = '{';
    add_literal(&e->text, SV("}"));
}

// --- Cutting a batch into events ---

static size_t value_bytes(const struct chunk *c, const struct emf_member *m)
{
    if (m->histogram)
        return HISTOGRAM_BYTES +
               (2 * (size_t)piece_of(m->histogram, c->piece).count + 4) * (NUM_DOUBLE_BYTES + 1);
    return c->values ? 2 + m->values->count * (size_t)(NUM_DOUBLE_BYTES + 1) : NUM_DOUBLE_BYTES;
}

static size_t member_bytes(struct emf *e, const struct chunk *c, const struct emf_member *m)
{
    size_t bytes = m->metric->field.len + value_bytes(c, m);
    if (!m->rule->set_count)
        return bytes;
    bytes += m->metric->definition.len;
    if (m->rule->mark != e->mark) {
        m->rule->mark = e->mark;
        bytes += m->rule->directive.len + 2;
    }
    return bytes;
}

static size_t base_bytes(const struct emf_group *g)
{
    size_t bytes = FIXED_BYTES;
    for (uint32_t i = 0; i < g->pair_count; i++)
        bytes += g->pairs[i]->json.len;
    return bytes;
}

// As many members as surely fit, one at least. How many bytes they take at most.
static size_t cut(struct emf *e, struct chunk *c, size_t left, size_t base)
{
    size_t bytes = base;
    e->mark++;
    for (; c->count < left; c->count++) {
        const struct emf_member *m = c->members[c->count];
        bool extracted = m->rule->set_count;
        size_t more = member_bytes(e, c, m);
        if (c->count && bytes + more > LIMIT_EMF_EVENT_BYTES)
            break;
        if (extracted && !c->compat && c->extracted == LIMIT_EMF_EVENT_METRICS)
            break;
        bytes += more;
        c->extracted += extracted;
    }
    return bytes;
}

// A histogram's are spread over its pieces, so that each event counts for something.
static unsigned piece_samples(const struct emf_histogram *h, uint32_t piece)
{
    uint32_t pieces = (h->bar_count + LIMIT_EMF_VALUES - 1) / LIMIT_EMF_VALUES;
    return h->waiting / pieces + (piece < h->waiting % pieces);
}

static unsigned samples_of(const struct chunk *c)
{
    unsigned samples = 0;
    for (size_t i = 0; i < c->count; i++) {
        const struct emf_member *m = c->members[i];
        samples += m->histogram ? piece_samples(m->histogram, c->piece)
                   : c->values  ? m->values->count
                                : 1;
    }
    return samples;
}

static int send_chunk(struct emf *e, const struct chunk *c, size_t bytes)
{
    unsigned samples = samples_of(c);
    buf_reset(&e->text);
    int r = buf_reserve(&e->text, bytes);
    if (r < 0) {
        *(r == -ENOMEM ? &e->stats.dropped_memory : &e->stats.dropped_large) += samples;
        return r;
    }
    add_event(e, c);
    if (e->text.len > LIMIT_EMF_EVENT_BYTES) {
        e->stats.dropped_large += samples;
        return -EFBIG;
    }
    struct emf_event event = {.log_group = c->group->log_group,
                              .log_stream = c->group->log_stream,
                              .text = buf_sv(&e->text),
                              .timestamp_ms = c->time_ms,
                              .interval_ns = c->group->target->interval_ns,
                              .samples = samples};
    e->stats.events++;
    e->stats.event_samples += samples;
    e->event(e->user, &event);
    return 0;
}

int emf_batch_send(struct emf_group *g, const struct emf_batch *batch)
{
    struct emf *e = g->target->emf;
    size_t base = base_bytes(g);
    int result = 0;
    for (size_t at = 0; at < batch->count;) {
        struct chunk c = {.group = g,
                          .members = batch->members + at,
                          .time_ms = batch->time_ms,
                          .values = batch->values,
                          .piece = batch->piece,
                          .compat = g->plan->config->compat};
        size_t bytes = cut(e, &c, batch->count - at, base);
        e->stats.metrics_split += at > 0 || batch->piece > 0;
        at += c.count;
        int r = send_chunk(e, &c, bytes);
        if (result == 0)
            result = r;
    }
    return result;
}

// --- What a scrape gave to a group ---

static int by_time(const void *x, const void *y)
{
    const struct emf_member *a = *(struct emf_member *const *)x;
    const struct emf_member *b = *(struct emf_member *const *)y;
    if (a->time_ms != b->time_ms)
        return a->time_ms < b->time_ms ? -1 : 1;
    return sv_compare(a->metric->name, b->metric->name);
}

int emf_group_send(struct emf_group *g)
{
    struct emf *e = g->target->emf;
    struct emf_batch b = {.members = e->list, .time_ms = g->time_ms};
    for (uint32_t i = 0; i < g->member_count; i++) {
        if (g->members[i]->scrape == g->target->scrape)
            e->list[b.count++] = g->members[i];
    }
    if (!g->mixed)
        return emf_batch_send(g, &b);
    int result = 0;
    size_t count = b.count;
    qsort(e->list, count, sizeof(struct emf_member *), by_time);
    for (size_t at = 0; at < count; at += b.count) {
        b = (struct emf_batch){.members = e->list + at, .time_ms = e->list[at]->time_ms};
        while (at + b.count < count && b.members[b.count]->time_ms == b.time_ms)
            b.count++;
        int r = emf_batch_send(g, &b);
        if (result == 0)
            result = r;
    }
    return result;
}
