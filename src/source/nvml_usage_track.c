// SPDX-License-Identifier: Apache-2.0
// How it works: a track knows how far its buffer has been read (in the driver's time) and how far
// it has been told (in ours). The two clocks' distance moves a little from pass to pass, so a span
// that follows on the one before begins where that one ended, whatever the driver's time says.
#include "source/nvml_usage_internal.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW_LEAST_US 10000u  // less is no window but two stamps of one
#define WINDOW_USUAL_US 166667u // as long as none was seen
#define WINDOW_MOST_US 1000000u // the longest that NVIDIA documents
#define LATE_NS (5 * NS_PER_MS) // the clocks may drift so far between two passes
#define APART_MOST 10           // shares explain a device's time to a part of it
#define BATCH 64                // distances after which an older shortest one is forgotten

uint32_t usage_ppm(uint32_t percent)
{
    if (percent == 0 || percent >= 100)
        return percent ? 1000000 : 0;
    return percent * 10000 + 5000;
}

void usage_track_void(struct usage_track *t)
{
    *t = (struct usage_track){.to_ns = t->to_ns};
}

// --- what is new ---

static int compare_entries(const void *a, const void *b)
{
    const struct usage_entry *x = a, *y = b;
    if (x->us != y->us)
        return x->us < y->us ? -1 : 1;
    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    return x->ppm == y->ppm ? 0 : x->ppm > y->ppm ? -1 : 1;
}

// In the order of the buffer a time that goes back tells of a step: what stands before it is void.
static size_t begin_of_last_run(const struct usage_entry *list, size_t count)
{
    size_t begin = 0;
    for (size_t i = 1; i < count; i++)
        if (list[i].us < list[i - 1].us)
            begin = i;
    return begin;
}

size_t usage_entries_settle(const struct usage_track *t, const struct usage_times *times,
                            struct usage_entry *list, size_t count)
{
    size_t kept = 0;
    size_t begin = times->stepped_lately ? begin_of_last_run(list, count) : 0;
    for (size_t i = begin; i < count; i++)
        if (list[i].us > t->last_us && list[i].us <= times->wall_us)
            list[kept++] = list[i];
    if (kept > 1)
        qsort(list, kept, sizeof(list[0]), compare_entries);
    count = kept;
    kept = 0;
    for (size_t i = 0; i < count; i++)
        if (!kept || list[i].us != list[kept - 1].us || list[i].pid != list[kept - 1].pid)
            list[kept++] = list[i];
    return kept;
}

// Windows differ a little; one that is nearly twice as long is two.
static bool is_missing(uint64_t distance_us, uint64_t window_us)
{
    return distance_us > window_us + window_us / 4 * 3;
}

// Processes that are busy now and then have long distances: those prove nothing of the window.
static void learn_window(struct usage_track *t, const struct usage_entry *list, size_t count,
                         bool forget)
{
    uint64_t before = t->last_us;
    for (size_t i = 0; i < count; before = list[i++].us) {
        uint64_t distance = list[i].us - before;
        if (!before || distance < WINDOW_LEAST_US || is_missing(distance, WINDOW_MOST_US))
            continue;
        if (!t->batch_count || distance < t->batch_us)
            t->batch_us = distance;
        if (!t->window_us || distance < t->window_us)
            t->window_us = distance;
        if (!forget || ++t->batch_count < BATCH)
            continue;
        t->window_us = t->batch_us;
        t->batch_count = 0;
    }
}

// 0: before our clock began.
static uint64_t mono_of(const struct usage_times *times, uint64_t us)
{
    int64_t at;
    if (us > INT64_MAX / 1000 || __builtin_sub_overflow((int64_t)us * 1000, times->ahead_ns, &at) ||
        at < 0)
        return 0;
    return (uint64_t)at;
}

static void reach(struct usage_track *t, uint64_t at_ns)
{
    if (at_ns > t->to_ns)
        t->to_ns = at_ns;
}

// --- spans ---

static void add_span(struct buf *spans, uint64_t from_ns, uint64_t to_ns, uint32_t ppm, bool filled)
{
    const struct frame_usage_span span = {
        .from_ns = from_ns, .to_ns = to_ns, .ppm = ppm, .filled = filled};
    buf_add(spans, &span, sizeof(span));
}

// True: from to_ns to the entry's window nothing is known.
static bool add_entry(struct usage_track *t, const struct usage_entry *e, uint64_t at_ns,
                      struct buf *spans)
{
    uint64_t window_us = t->window_us ? t->window_us : WINDOW_MOST_US;
    uint64_t from_ns = t->to_ns, window_ns = window_us * NS_PER_US;
    bool gap = false;
    if (at_ns <= from_ns)
        return false;
    if (is_missing(e->us - t->last_us, window_us) && at_ns - window_ns > from_ns) {
        uint64_t begin_ns = at_ns - window_ns;
        gap = begin_ns - from_ns > USAGE_FILL_NS;
        if (!gap)
            add_span(spans, from_ns, begin_ns, (t->last_ppm + e->ppm) / 2, true);
        from_ns = begin_ns;
    }
    add_span(spans, from_ns, at_ns, e->ppm, false);
    return gap;
}

bool usage_add_spans(struct usage_track *t, const struct usage_times *times,
                     const struct usage_entry *list, size_t count, struct buf *spans)
{
    learn_window(t, list, count, true);
    bool gap = !t->based && count == 0;
    if (count > 0 && (!t->based || !t->last_us)) { // history, of which the last is the base
        gap = true;
        t->last_us = list[count - 1].us;
        t->last_ppm = list[count - 1].ppm;
        reach(t, mono_of(times, t->last_us));
        count = 0;
    }
    t->based = true;
    for (size_t i = 0; i < count; i++) {
        uint64_t at_ns = mono_of(times, list[i].us);
        gap |= add_entry(t, &list[i], at_ns, spans);
        t->last_us = list[i].us;
        t->last_ppm = list[i].ppm;
        reach(t, at_ns);
    }
    return gap;
}

// --- shares ---

static uint64_t share_window_us(const struct usage_track *t, const struct usage_track *busy)
{
    uint64_t window_us = busy->window_us;
    if (t->window_us && (!window_us || t->window_us < window_us))
        window_us = t->window_us;
    if (!window_us)
        return WINDOW_USUAL_US;
    return window_us < WINDOW_MOST_US ? window_us : WINDOW_MOST_US;
}

// All processes of one time.
static void add_group(const struct usage_entry *list, size_t count, uint64_t from_ns,
                      uint64_t to_ns, struct buf *shares)
{
    for (size_t i = 0; i < count && from_ns < to_ns; i++) {
        const struct frame_usage_share share = {
            .from_ns = from_ns, .to_ns = to_ns, .pid = list[i].pid, .ppm = list[i].ppm};
        if (share.ppm)
            buf_add(shares, &share, sizeof(share));
    }
}

// Where windows follow on each other there is no hole between them, whatever the clocks do.
static uint64_t begin_of_window(const struct usage_track *t, const struct usage_times *times,
                                uint64_t window_us, uint64_t us)
{
    if (!is_missing(us - t->last_us, window_us))
        return t->last_ns;
    return mono_of(times, us > window_us ? us - window_us : 0);
}

static void add_groups(struct usage_track *t, const struct usage_times *times, uint64_t window_us,
                       const struct usage_entry *list, size_t count, struct buf *shares)
{
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && list[end].us == list[i].us;)
            end++;
        uint64_t from_ns = begin_of_window(t, times, window_us, list[i].us);
        uint64_t to_ns = mono_of(times, list[i].us);
        if (from_ns < t->to_ns) {
            t->late |= from_ns + LATE_NS < t->to_ns;
            from_ns = t->to_ns;
        }
        add_group(&list[i], end - i, from_ns, to_ns, shares);
        t->last_us = list[i].us;
        t->last_ns = to_ns;
        reach(t, to_ns);
    }
}

void usage_add_shares(struct usage_track *t, const struct usage_times *times,
                      const struct usage_track *busy, uint64_t known_ns,
                      const struct usage_entry *list, size_t count, struct buf *shares)
{
    if (count > 0 && !t->based) {
        learn_window(t, list, count, false);
        t->last_us = list[count - 1].us;
        count = 0;
        t->last_ns = mono_of(times, t->last_us);
        reach(t, t->last_ns);
    }
    t->based = true;
    learn_window(t, list, count, false);
    add_groups(t, times, share_window_us(t, busy), list, count, shares);
    reach(t, t->late && t->reach_ns < known_ns ? t->reach_ns : known_ns);
    t->reach_ns = known_ns;
}

// --- holes ---

// How long these processes were busy in [from_ns, to_ns), in ns * ppm.
static uint64_t busy_in(const struct buf *list, size_t at, uint64_t from_ns, uint64_t to_ns)
{
    uint64_t sum = 0;
    for (; at + sizeof(struct frame_usage_share) <= list->len;
         at += sizeof(struct frame_usage_share)) {
        struct frame_usage_share s;
        memcpy(&s, list->data + at, sizeof(s));
        uint64_t from = s.from_ns > from_ns ? s.from_ns : from_ns;
        uint64_t to = s.to_ns < to_ns ? s.to_ns : to_ns;
        sum += from < to ? (to - from) * s.ppm : 0;
    }
    return sum;
}

// Shares of which the samples are still to come.
static void keep_ahead(struct nvml_usage_device *x, const struct buf *told, size_t at)
{
    buf_reset(&x->ahead);
    for (; at < told->len; at += sizeof(struct frame_usage_share)) {
        struct frame_usage_share s;
        memcpy(&s, told->data + at, sizeof(s));
        if (s.to_ns > x->busy.to_ns)
            buf_add(&x->ahead, &s, sizeof(s));
    }
}

static struct frame_usage_span span_at(const struct buf *spans, size_t at)
{
    struct frame_usage_span s;
    memcpy(&s, spans->data + at, sizeof(s));
    return s;
}

static bool has_hole(const struct buf *spans, size_t at)
{
    for (; at < spans->len; at += sizeof(struct frame_usage_span))
        if (span_at(spans, at).filled)
            return true;
    return false;
}

// Of a span, by what processes are known to have done.
static uint64_t known_busy(const struct nvml_usage_device *x, const struct frame_usage_span *s,
                           const struct buf *told, size_t told_at)
{
    return busy_in(told, told_at, s->from_ns, s->to_ns) +
           busy_in(&x->ahead, 0, s->from_ns, s->to_ns);
}

// Whether shares are all there is: in the spans that are known, too, they sum up to what the device
// did. Not so where a driver hides processes, or where those of MPS run side by side.
static bool explains_all(const struct nvml_usage_device *x, const struct buf *spans,
                         size_t spans_at, const struct buf *told, size_t told_at)
{
    uint64_t length = 0, apart = 0;
    if (!has_hole(spans, spans_at))
        return false; // nothing to be filled
    for (size_t at = spans_at; at < spans->len; at += sizeof(struct frame_usage_span)) {
        const struct frame_usage_span s = span_at(spans, at);
        uint64_t busy = (s.to_ns - s.from_ns) * s.ppm, known = known_busy(x, &s, told, told_at);
        if (s.filled)
            continue;
        length += s.to_ns - s.from_ns;
        apart += (busy > known ? busy - known : known - busy) / 1000000;
    }
    return apart <= length / APART_MOST;
}

// Where no process has ever had a share the driver does not tell of them.
void usage_refill_spans(struct nvml_usage_device *x, struct buf *spans, size_t spans_at,
                        const struct buf *told, size_t told_at)
{
    bool known = x->shares.last_us && !x->shares.late && !x->ahead.error && !told->error &&
                 !spans->error && explains_all(x, spans, spans_at, told, told_at);
    for (size_t at = spans_at; at < spans->len && known; at += sizeof(struct frame_usage_span)) {
        struct frame_usage_span s = span_at(spans, at);
        if (!s.filled || x->shares.to_ns < s.to_ns)
            continue;
        uint64_t ppm = known_busy(x, &s, told, told_at) / (s.to_ns - s.from_ns);
        s.ppm = ppm < 1000000 ? (uint32_t)ppm : 1000000;
        memcpy(spans->data + at, &s, sizeof(s));
    }
    keep_ahead(x, told, told_at);
}
