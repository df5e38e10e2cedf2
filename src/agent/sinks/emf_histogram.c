// SPDX-License-Identifier: Apache-2.0
// Classic histograms: the series X_bucket, X_sum and X_count with equal labels (less le) are parts
// of one member named X. At a scrape's end each part becomes its increase. A bucket's increase less
// that of the bucket before it is how many observations fell between their bounds; such counts and
// the increases of sum and count add up until the window is sent, as values and counts.
//
// A histogram starts again as a whole: where any bucket or the count is less than before, all parts
// count in full, also those that have already passed what they were. Sources: Prometheus,
// "Histograms and summaries" (bounds below and above as histogram_quantile takes them); the
// CloudWatch user guide, "Specification: Embedded metric format", and PutMetricData (Values and
// Counts, 150 of them there, of which an event's array has 100).
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "agent/sinks/emf_internal.h"
#include "base/limits.h"
#include "base/num.h"

#define MOST_VALUE 0x1p360
#define ROUNDING 1e-9 // of sums of counts that are no whole numbers

// --- Series ---

struct part_name {
    struct sv histogram;
    enum emf_part_kind kind;
    double bound;
};

static bool read_bound(struct sv text, double *out)
{
    double bound;
    if (sv_equals(text, SV("+Inf"))) {
        *out = INFINITY;
        return true;
    }
    if (num_parse_double(text, &bound) < 0 || fabs(bound) > MOST_VALUE)
        return false;
    *out = bound;
    return true;
}

// False: not a part of a classic histogram.
static bool read_name(const struct sink_series *s, struct part_name *out)
{
    static const struct {
        struct sv suffix;
        enum emf_part_kind kind;
    } kinds[] = {{{"_bucket", 7}, EMF_BUCKET}, {{"_sum", 4}, EMF_SUM}, {{"_count", 6}, EMF_COUNT}};
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (!sv_ends_with(s->name, kinds[i].suffix) || s->name.len == kinds[i].suffix.len)
            continue;
        out->histogram = sv_sub(s->name, 0, s->name.len - kinds[i].suffix.len);
        out->kind = kinds[i].kind;
        return out->kind != EMF_BUCKET ||
               (labels_has(s->labels, SV("le")) &&
                read_bound(labels_get(s->labels, SV("le")), &out->bound));
    }
    return false;
}

// Where the bucket of this bound is, or would be.
static uint32_t bucket_position(const struct emf_histogram *h, double bound)
{
    uint32_t low = 0, high = h->bucket_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (h->buckets[middle]->bound < bound)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct emf_part **find_place(struct emf_histogram *h, const struct part_name *n)
{
    if (n->kind == EMF_SUM)
        return &h->sum;
    if (n->kind == EMF_COUNT)
        return &h->count;
    uint32_t at = bucket_position(h, n->bound);
    return at < h->bucket_count && h->buckets[at]->bound <= n->bound ? &h->buckets[at] : NULL;
}

// Also for what is sent of them, which is one value more at most.
static int reserve_bucket(struct emf_histogram *h)
{
    if (h->bucket_count == LIMIT_EMF_BUCKETS)
        return -E2BIG;
    if (h->bucket_count < h->bucket_capacity)
        return 0;
    uint32_t capacity = h->bucket_capacity ? h->bucket_capacity * 2 : 16;
    struct emf_part **buckets = reallocarray(h->buckets, capacity, sizeof(*buckets));
    if (!buckets)
        return -ENOMEM;
    h->buckets = buckets;
    struct emf_bar *bars = reallocarray(h->bars, (size_t)capacity + 1, sizeof(*bars));
    if (!bars)
        return -ENOMEM;
    h->bars = bars;
    h->bucket_capacity = capacity;
    return 0;
}

static void insert_bucket(struct emf_histogram *h, struct emf_part *p)
{
    uint32_t at = bucket_position(h, p->bound);
    memmove(&h->buckets[at + 1], &h->buckets[at], (h->bucket_count - at) * sizeof(p));
    h->buckets[at] = p;
    h->bucket_count++;
}

static void start_state(struct emf *e, struct emf_part *p, const struct sink_series *s,
                        struct sv histogram)
{
    const struct emf_member *old = s->replaces;
    const struct regex *from_zero = e->plan->config->counters_from_zero;
    if (old && old->fate == EMF_PART) {
        p->as.previous = old->previous;
        p->as.has_previous = old->has_previous;
        p->as.from_zero = old->from_zero;
        p->as.time_ms = old->time_ms;
    } else if (s->is_new && from_zero) {
        p->as.from_zero = regex_matches(from_zero, histogram);
    }
}

// The histogram of a member that is new has no part yet. Takes over a reference to the member.
static int part_new(struct emf_member *m, const struct part_name *n, struct emf_part **out)
{
    if (!m->histogram)
        m->histogram = calloc(1, sizeof(*m->histogram));
    if (!m->histogram)
        return -ENOMEM;
    int r = reserve_bucket(m->histogram); // bars for what only the count knows of, too
    if (r < 0)
        return r;
    struct emf_part *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    *p = (struct emf_part){.as = {.group = m->group,
                                  .metric = m->metric,
                                  .scrape = m->group->target->scrape - 1,
                                  .fate = EMF_PART,
                                  .type = PARSE_TYPE_HISTOGRAM,
                                  .is_delta = true},
                           .of = m,
                           .kind = n->kind,
                           .bound = n->bound};
    if (n->kind == EMF_BUCKET)
        insert_bucket(m->histogram, p);
    else
        *(n->kind == EMF_SUM ? &m->histogram->sum : &m->histogram->count) = p;
    *out = p;
    return 0;
}

static int join(struct emf_member *m, const struct part_name *n, const struct sink_series *s,
                struct emf_member **out)
{
    struct emf_part **known = m->histogram ? find_place(m->histogram, n) : NULL;
    struct emf_part *p = known ? *known : NULL;
    if (!p) {
        int r = part_new(m, n, &p);
        if (r < 0)
            return r;
        start_state(m->group->target->emf, p, s, n->histogram);
    }
    p->as.refs++;
    *out = &p->as;
    return 0;
}

int emf_part_get(struct emf_target *t, const struct sink_series *s, struct emf_member **out)
{
    struct emf *e = t->emf;
    struct part_name name = {0};
    struct labels labels;
    struct emf_member *m = NULL;
    if (!read_name(s, &name)) {
        *out = &e->by_type[s->type];
        return 0;
    }
    labels_init(&labels, &e->arena);
    int r = 0;
    for (size_t i = 0; r == 0 && i < s->labels->count; i++) {
        const struct label *l = &s->labels->items[i];
        if (name.kind != EMF_BUCKET || !sv_equals(l->name, SV("le")))
            r = labels_set_borrowed(&labels, l->name, l->value);
    }
    struct sink_series whole = {.name = name.histogram, .type = s->type, .labels = &labels};
    if (r == 0)
        r = emf_member_get(t, &whole, &m);
    if (r < 0)
        return r;
    if (m->fate != EMF_SENT) {
        *out = m;
        return 0;
    }
    r = join(m, &name, s, out);
    if (r < 0)
        emf_member_unref(m);
    return r;
}

void emf_part_unref(struct emf_member *member)
{
    struct emf_part *p = container_of(member, struct emf_part, as);
    struct emf_member *m = p->of;
    struct emf_histogram *h = m->histogram;
    if (--p->as.refs == 0) {
        if (h->waiting)
            emf_window_send(m->group);
        if (p->kind == EMF_BUCKET) {
            uint32_t at = bucket_position(h, p->bound);
            assert(h->buckets[at] == p);
            h->bucket_count--;
            memmove(&h->buckets[at], &h->buckets[at + 1], (h->bucket_count - at) * sizeof(p));
        } else {
            *(p->kind == EMF_SUM ? &h->sum : &h->count) = NULL;
        }
        free(p);
    }
    emf_member_unref(m);
}

void emf_histogram_free(struct emf_histogram *h)
{
    if (!h)
        return;
    free(h->buckets);
    free(h->bars);
    free(h);
}

// --- Samples ---

bool emf_part_take(struct emf_target *t, struct emf_member *member, double value, int64_t time_ms)
{
    struct emf_part *p = container_of(member, struct emf_part, as);
    struct emf_stats *stats = &t->emf->stats;
    bool compat = p->as.group->plan->config->compat;
    if (p->as.has_previous && time_ms <= p->as.time_ms) {
        stats->dropped_repeated++;
        return false;
    }
    if (p->as.has_previous && time_ms - p->as.time_ms > (compat ? t->ttl_compat_ms : t->ttl_ms))
        p->as.has_previous = false;
    p->as.time_ms = time_ms;
    p->as.value = value;
    p->as.scrape = t->scrape;
    p->of->time_ms = time_ms;
    p->of->scrape = t->scrape;
    return true;
}

static bool has_sample(const struct emf_part *p)
{
    return p && p->as.scrape == p->as.group->target->scrape;
}

static bool is_less(const struct emf_part *p)
{
    return has_sample(p) && p->as.has_previous && p->as.value < p->as.previous;
}

static bool started_again(const struct emf_histogram *h)
{
    for (uint32_t i = 0; i < h->bucket_count; i++) {
        if (is_less(h->buckets[i]))
            return true;
    }
    return is_less(h->count);
}

// Whether the part has an increase, in *out; if not, and there was a sample, that is counted.
static bool take_increase(struct emf_part *p, bool again, double *out)
{
    if (!has_sample(p))
        return false;
    struct emf_stats *stats = &p->of->group->target->emf->stats;
    bool known = p->as.has_previous || p->as.from_zero;
    double before = p->as.has_previous && !again ? p->as.previous : 0;
    p->as.previous = p->as.value;
    p->as.has_previous = true;
    p->as.from_zero = false;
    double increase = p->as.value - before;
    if (!known) {
        stats->dropped_first++;
        return false;
    }
    if (!(fabs(increase) <= MOST_VALUE)) {
        stats->dropped_value++;
        return false;
    }
    *out = increase;
    return true;
}

uint32_t emf_histogram_add(struct emf_member *m)
{
    struct emf_histogram *h = m->histogram;
    bool again = started_again(h);
    double increase, below = 0;
    uint32_t samples = 0;
    for (uint32_t i = 0; i < h->bucket_count; i++) {
        struct emf_part *p = h->buckets[i];
        if (!take_increase(p, again, &increase))
            continue;
        samples++;
        if (increase > below) {
            p->observed += increase - below;
            below = increase;
        }
    }
    if (take_increase(h->sum, again, &increase)) {
        samples++;
        h->sum->observed += increase;
        h->has_sum = true;
    }
    if (take_increase(h->count, again, &increase)) {
        samples++;
        h->count->observed += increase;
    }
    h->waiting += samples;
    return samples;
}

// --- Windows ---

// What stands for the observations of a bucket: its middle. Below the first bound 0 is taken for
// the lower one, if that is lower; above the last bound there is nothing but the bound itself.
static double representative(const struct emf_histogram *h, uint32_t at)
{
    double upper = h->buckets[at]->bound;
    if (at == 0)
        return isinf(upper) ? NAN : upper > 0 ? upper / 2 : upper;
    double lower = h->buckets[at - 1]->bound;
    return isinf(upper) ? lower : lower / 2 + upper / 2;
}

static double within(double value)
{
    return value > MOST_VALUE ? MOST_VALUE : value < -MOST_VALUE ? -MOST_VALUE : value;
}

static void add_bar(struct emf_histogram *h, double value, double count)
{
    struct emf_bar *last = h->bar_count ? &h->bars[h->bar_count - 1] : NULL;
    if (last && last->value >= value) // above the last bound and at it
        last->count = within(last->count + count);
    else
        h->bars[h->bar_count++] = (struct emf_bar){value, within(count)};
}

// Of a histogram without a finite bound.
static double mean(const struct emf_histogram *h, double count)
{
    return h->has_sum && count > 0 ? within(h->sum->observed / count) : 0;
}

void emf_histogram_close(struct emf_member *m)
{
    struct emf_histogram *h = m->histogram;
    double observed = 0;
    h->bar_count = 0;
    for (uint32_t i = 0; i < h->bucket_count; i++)
        observed += h->buckets[i]->observed;
    double total = h->count && h->count->observed > observed ? h->count->observed : observed;
    double over = total - observed;
    for (uint32_t i = 0; i < h->bucket_count; i++) {
        double value = representative(h, i);
        if (h->buckets[i]->observed > 0)
            add_bar(h, isnan(value) ? mean(h, total) : value, h->buckets[i]->observed);
    }
    if (over > total * ROUNDING) { // the count knows of more than the buckets
        double most = h->bucket_count ? h->buckets[h->bucket_count - 1]->bound : INFINITY;
        if (isinf(most) && h->bucket_count > 1)
            most = h->buckets[h->bucket_count - 2]->bound;
        add_bar(h, isinf(most) ? mean(h, total) : most, over);
    }
    double sum = 0;
    for (uint32_t i = 0; i < h->bar_count; i++)
        sum += h->bars[i].value * h->bars[i].count;
    h->total_sum = within(h->has_sum ? h->sum->observed : sum);
}

void emf_histogram_open(struct emf_member *m)
{
    struct emf_histogram *h = m->histogram;
    for (uint32_t i = 0; i < h->bucket_count; i++)
        h->buckets[i]->observed = 0;
    if (h->sum)
        h->sum->observed = 0;
    if (h->count)
        h->count->observed = 0;
    h->has_sum = false;
    h->waiting = h->bar_count = 0;
}
