// SPDX-License-Identifier: Apache-2.0
// What the node's GPUs do at a time t, from the mapped file alone: no clock, no state.
//
// A load is a list of patterns, each from its beginning to the next one's; its integral has a
// closed form, so a question costs the same after a second and after a year. A signal is linear in
// the load, so its integral is one multiplication away; 128-bit integers keep it exact. Where a
// driver reports means over windows, the mean is the integral over the window.
#include "node.h"

#include <math.h>

#define NS_PER_S INT64_C(1000000000)

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static uint32_t read_index(const _Atomic uint32_t *at)
{
    return atomic_load_explicit(at, memory_order_acquire);
}

// Quotient and remainder rounding down, for times before the start.
static int64_t floor_div(int64_t a, int64_t b, int64_t *remainder)
{
    int64_t q = a / b, r = a % b;
    if (r < 0) {
        r += b;
        q--;
    }
    *remainder = r;
    return q;
}

// --- Loads ---

// High time of the pattern within the first `into` ns of a period.
static int64_t high_within(const struct sim_load *l, int64_t into)
{
    if (l->shape == SIM_SQUARE)
        return min64(into, l->on_ns);
    int64_t rest;
    int64_t pulse = floor_div(into, 2 * l->width_ns, &rest);
    if (pulse >= l->pulses)
        return l->pulses * l->width_ns;
    return pulse * l->width_ns + min64(rest, l->width_ns);
}

// High time of the pattern in [0, t) (negative before 0); the phase moves the pattern, not the
// zero.
static sim_wide high_time(const struct sim_load *l, int64_t t)
{
    int64_t period = l->on_ns + l->off_ns;
    int64_t into, into_zero;
    int64_t whole = floor_div(t + l->phase_ns, period, &into);
    int64_t whole_zero = floor_div(l->phase_ns, period, &into_zero);
    sim_wide per_period = high_within(l, period);
    return per_period * (whole - whole_zero) + high_within(l, into) - high_within(l, into_zero);
}

static sim_wide pattern_integral(const struct sim_load *l, int64_t from, int64_t to)
{
    sim_wide span = (sim_wide)to - from;
    if (l->shape == SIM_CONSTANT)
        return span * l->high_ppm;
    sim_wide high = high_time(l, to) - high_time(l, from);
    return high * l->high_ppm + (span - high) * l->low_ppm;
}

static int64_t pattern_ppm(const struct sim_load *l, int64_t t)
{
    if (l->shape == SIM_CONSTANT)
        return l->high_ppm;
    int64_t into;
    floor_div(t + l->phase_ns, l->on_ns + l->off_ns, &into);
    return high_within(l, into + 1) > high_within(l, into) ? l->high_ppm : l->low_ppm;
}

static int64_t list_ppm(const struct sim_node *n, uint32_t at, int64_t t)
{
    while (at != SIM_NONE) {
        const struct sim_load *l = &n->loads[at];
        uint32_t older = read_index(&l->older);
        if (l->from_ns <= t || older == SIM_NONE)
            return pattern_ppm(l, t);
        at = older;
    }
    return 0;
}

static sim_wide list_integral(const struct sim_node *n, uint32_t at, int64_t from, int64_t to)
{
    sim_wide sum = 0;
    while (at != SIM_NONE && from < to) {
        const struct sim_load *l = &n->loads[at];
        uint32_t older = read_index(&l->older);
        int64_t begin = older == SIM_NONE ? from : max64(l->from_ns, from);
        if (begin < to) {
            sum += pattern_integral(l, begin, to);
            to = begin;
        }
        at = older;
    }
    return sum;
}

bool sim_process_alive(const struct sim_node *n, uint32_t process, int64_t t)
{
    const struct sim_process *p = &n->processes[process];
    return p->start_ns <= t && t < atomic_load(&p->end_ns);
}

bool sim_instance_alive(const struct sim_node *n, uint32_t instance, int64_t t)
{
    const struct sim_instance *i = &n->instances[instance];
    return i->from_ns <= t && t < atomic_load(&i->until_ns);
}

// --- Work of real processes ---

// Where `part` of `whole` has passed evenly.
static int64_t even_share(int64_t total, int64_t part, int64_t whole)
{
    if (part <= 0)
        return 0;
    return part >= whole ? total : (int64_t)((sim_wide)total * part / whole);
}

// The last interval of a ring that begins at or before t; first - 1 when none does.
static uint32_t busy_at(const struct sim_work *w, uint32_t first, uint32_t count, int64_t t)
{
    uint32_t low = first, high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (atomic_load(&w->ring[middle % SIM_MAX_BUSY].from_ns) <= t)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

static uint32_t first_kept(uint32_t count)
{
    return count < SIM_MAX_BUSY ? 0
                                : count - SIM_MAX_BUSY + 1; // the one before is being overwritten
}

int64_t sim_work_busy_ns(const struct sim_node *n, uint32_t process, int64_t t)
{
    const struct sim_process *p = &n->processes[process];
    uint32_t work = read_index(&p->work);
    int64_t end = atomic_load(&p->end_ns), busy = atomic_load(&p->busy_ns);
    if (work == 0 && busy == 0) // a process of the scenario, which may be there for ever
        return 0;
    if (work == 0)
        return even_share(busy, t - p->start_ns, end - p->start_ns);
    const struct sim_work *w = &n->works[work - 1];
    uint32_t count = read_index(&w->count), first = first_kept(count);
    if (count == 0)
        return 0;
    t = min64(t, end);
    const struct sim_busy *oldest = &w->ring[first % SIM_MAX_BUSY];
    int64_t from = atomic_load(&oldest->from_ns);
    if (t < from)
        return even_share(atomic_load(&oldest->before_ns), t - p->start_ns, from - p->start_ns);
    const struct sim_busy *b = &w->ring[busy_at(w, first, count, t) % SIM_MAX_BUSY];
    int64_t begin = atomic_load(&b->from_ns);
    return atomic_load(&b->before_ns) + min64(t, atomic_load(&b->to_ns)) - begin;
}

static int64_t work_ppm(const struct sim_node *n, uint32_t process, int64_t t)
{
    return (sim_work_busy_ns(n, process, t + 1) - sim_work_busy_ns(n, process, t)) * SIM_PPM;
}

int64_t sim_process_load_ppm(const struct sim_node *n, uint32_t process, int64_t t)
{
    if (!sim_process_alive(n, process, t))
        return 0;
    return min64(list_ppm(n, read_index(&n->processes[process].load), t) + work_ppm(n, process, t),
                 SIM_PPM);
}

sim_wide sim_process_load_integral(const struct sim_node *n, uint32_t process, int64_t from,
                                   int64_t to)
{
    const struct sim_process *p = &n->processes[process];
    from = max64(from, p->start_ns);
    to = min64(to, atomic_load(&p->end_ns));
    if (from >= to)
        return 0;
    sim_wide worked = sim_work_busy_ns(n, process, to) - sim_work_busy_ns(n, process, from);
    return list_integral(n, read_index(&p->load), from, to) + worked * SIM_PPM;
}

// Share of the board that a process's load stands for: its GPU instance's slices, in parts of
// total.
static int64_t process_slices(const struct sim_node *n, const struct sim_process *p, int64_t *total)
{
    const struct sim_gpu *g = &n->gpus[p->gpu];
    *total = 1;
    if (p->instance == SIM_NONE || g->total_slices == 0)
        return 1;
    *total = g->total_slices;
    return n->instances[p->instance].gi_slices;
}

static bool process_counts(const struct sim_node *n, const struct sim_process *p, uint32_t gi)
{
    return gi == SIM_NONE || (p->instance != SIM_NONE && n->instances[p->instance].gi == gi);
}

int64_t sim_load_ppm(const struct sim_node *n, uint32_t gpu, uint32_t gi, int64_t t)
{
    const struct sim_gpu *g = &n->gpus[gpu];
    uint32_t own = read_index(&g->load);
    if (gi == SIM_NONE && own != SIM_NONE)
        return list_ppm(n, own, t);
    int64_t sum = 0;
    for (uint32_t i = read_index(&g->processes); i != SIM_NONE; i = n->processes[i].next_on_gpu) {
        const struct sim_process *p = &n->processes[i];
        if (!process_counts(n, p, gi))
            continue;
        int64_t total, slices = gi == SIM_NONE ? process_slices(n, p, &total) : (total = 1);
        sum += sim_process_load_ppm(n, i, t) * slices / total;
    }
    return min64(sum, SIM_PPM);
}

sim_wide sim_load_integral(const struct sim_node *n, uint32_t gpu, uint32_t gi, int64_t from,
                           int64_t to)
{
    const struct sim_gpu *g = &n->gpus[gpu];
    uint32_t own = read_index(&g->load);
    if (gi == SIM_NONE && own != SIM_NONE)
        return list_integral(n, own, from, to);
    sim_wide sum = 0;
    for (uint32_t i = read_index(&g->processes); i != SIM_NONE; i = n->processes[i].next_on_gpu) {
        const struct sim_process *p = &n->processes[i];
        if (!process_counts(n, p, gi))
            continue;
        int64_t total, slices = gi == SIM_NONE ? process_slices(n, p, &total) : (total = 1);
        sum += sim_process_load_integral(n, i, from, to) * slices / total;
    }
    return sum;
}

int64_t sim_busy_us(const struct sim_node *n, uint32_t gpu, uint32_t gi, int64_t from, int64_t to)
{
    return (int64_t)(sim_load_integral(n, gpu, gi, from, to) / SIM_PPM / 1000);
}

int64_t sim_process_busy_us(const struct sim_node *n, uint32_t process, int64_t from, int64_t to)
{
    return (int64_t)(sim_process_load_integral(n, process, from, to) / SIM_PPM / 1000);
}

// --- Signals ---

static uint32_t segment_at(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t t)
{
    uint32_t at = read_index(&n->gpus[gpu].fields[field]);
    while (at != SIM_NONE) {
        uint32_t older = read_index(&n->segments[at].older);
        if (n->segments[at].from_ns <= t || older == SIM_NONE)
            break;
        at = older;
    }
    return at;
}

// Integral over [from, to) of base + slope * load, in micro-units * ns.
static sim_wide linear_integral(const struct sim_node *n, uint32_t gpu, int64_t base, int64_t slope,
                                int64_t from, int64_t to)
{
    sim_wide sum = (sim_wide)base * (to - from);
    if (slope != 0)
        sum += (sim_wide)slope * sim_load_integral(n, gpu, SIM_NONE, from, to) / SIM_PPM;
    return sum;
}

// Integral of a gauge over [from, to), across its segments.
static sim_wide gauge_integral(const struct sim_node *n, uint32_t gpu, enum sim_field field,
                               int64_t from, int64_t to)
{
    sim_wide sum = 0;
    uint32_t at = read_index(&n->gpus[gpu].fields[field]);
    while (at != SIM_NONE && from < to) {
        const struct sim_segment *s = &n->segments[at];
        uint32_t older = read_index(&s->older);
        int64_t begin = older == SIM_NONE ? from : max64(s->from_ns, from);
        if (begin < to) {
            if (s->status == 0)
                sum += linear_integral(n, gpu, s->base, s->slope, begin, to);
            to = begin;
        }
        at = older;
    }
    return sum;
}

static sim_wide counter_micro(const struct sim_node *n, uint32_t gpu, const struct sim_segment *s,
                              int64_t t)
{
    sim_wide sum = s->base;
    if (s->rate != 0 || s->slope != 0)
        sum += linear_integral(n, gpu, s->rate, s->slope, s->from_ns, t) / NS_PER_S;
    if (s->flags & SIM_SEGMENT_FOLLOWS_POWER)
        sum += gauge_integral(n, gpu, SIM_POWER, s->from_ns, t) / NS_PER_S;
    return sum;
}

static sim_wide mean_micro(const struct sim_node *n, uint32_t gpu, enum sim_field field,
                           int64_t from, int64_t to)
{
    return gauge_integral(n, gpu, field, from, to) / (to - from);
}

int64_t sim_window_at(int64_t t, int64_t window_ns)
{
    int64_t rest;
    return floor_div(t, window_ns, &rest);
}

static sim_wide window_micro(const struct sim_node *n, uint32_t gpu, enum sim_field field,
                             int64_t t)
{
    int64_t window = n->gpus[gpu].window_ns, into;
    floor_div(t, window, &into);
    return mean_micro(n, gpu, field, t - into - window, t - into);
}

int sim_micro(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t t,
              sim_wide *out)
{
    uint32_t at = segment_at(n, gpu, field, t);
    if (at == SIM_NONE)
        return 3;
    const struct sim_segment *s = &n->segments[at];
    if (s->status != 0)
        return (int)s->status;
    enum sim_kind kind = sim_field_table[field].kind;
    if (kind == SIM_TRAILING && n->gpus[gpu].power_window_ns == 0)
        kind = SIM_GAUGE;
    switch (kind) {
    case SIM_GAUGE:
        *out = s->base;
        if (s->slope != 0)
            *out += (sim_wide)s->slope * sim_load_ppm(n, gpu, SIM_NONE, t) / SIM_PPM;
        break;
    case SIM_WINDOW:
        *out = window_micro(n, gpu, field, t);
        break;
    case SIM_TRAILING:
        *out = mean_micro(n, gpu, field, t - n->gpus[gpu].power_window_ns, t);
        break;
    case SIM_COUNTER:
        *out = counter_micro(n, gpu, s, t);
        break;
    }
    return 0;
}

int sim_truth(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t t, int64_t *out)
{
    sim_wide micro;
    int code = sim_micro(n, gpu, field, t, &micro);
    if (code == 0)
        *out = (int64_t)(micro / 1000000);
    return code;
}

int sim_truth_double(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t t,
                     double *out)
{
    sim_wide micro;
    int code = sim_micro(n, gpu, field, t, &micro);
    if (code == 0)
        *out = (double)micro / 1e6;
    return code;
}

int64_t sim_truth_or_zero(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t t)
{
    int64_t value;
    return sim_truth(n, gpu, field, t, &value) == 0 ? value : 0;
}

int sim_integral(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t from,
                 int64_t to, sim_wide *out)
{
    if (sim_field_table[field].kind != SIM_COUNTER) {
        if (segment_at(n, gpu, field, to) == SIM_NONE)
            return 3;
        *out = gauge_integral(n, gpu, field, from, to);
        return 0;
    }
    sim_wide first, last;
    int code = sim_micro(n, gpu, field, from, &first);
    if (code == 0)
        code = sim_micro(n, gpu, field, to, &last);
    if (code == 0)
        *out = last - first;
    return code;
}

double sim_mean(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t from,
                int64_t to)
{
    sim_wide sum;
    if (to <= from || sim_integral(n, gpu, field, from, to, &sum) != 0)
        return (double)NAN;
    double span = (double)(to - from);
    if (sim_field_table[field].kind == SIM_COUNTER)
        return (double)sum / 1e6 / (span / 1e9);
    return (double)sum / 1e6 / span;
}

double sim_instance_mean(const struct sim_node *n, uint32_t gpu, uint32_t gi, enum sim_field field,
                         int64_t from, int64_t to)
{
    if (gi == SIM_NONE)
        return sim_mean(n, gpu, field, from, to);
    uint32_t at = segment_at(n, gpu, field, to);
    if (to <= from || at == SIM_NONE || n->segments[at].status != 0)
        return (double)NAN;
    const struct sim_segment *s = &n->segments[at];
    sim_wide load = sim_load_integral(n, gpu, gi, from, to);
    sim_wide sum = (sim_wide)s->base * (to - from) + (sim_wide)s->slope * load / SIM_PPM;
    return (double)sum / 1e6 / (double)(to - from);
}

int64_t sim_load_percent(const struct sim_node *n, uint32_t gpu, enum sim_field field,
                         sim_wide load, int64_t from, int64_t to)
{
    uint32_t at = segment_at(n, gpu, field, to);
    int64_t full = at == SIM_NONE || n->segments[at].status != 0 ? 0 : n->segments[at].slope;
    if (field == SIM_GPU_UTIL)
        full = 100 * SIM_PPM;
    sim_wide whole = (sim_wide)SIM_PPM * (to - from);
    return (int64_t)((load < whole ? load : whole) * full / SIM_PPM / (to - from) / 1000000);
}

int64_t sim_process_percent(const struct sim_node *n, uint32_t process, enum sim_field field,
                            int64_t from, int64_t to)
{
    return sim_load_percent(n, n->processes[process].gpu, field,
                            sim_process_load_integral(n, process, from, to), from, to);
}

// --- Memory and states ---

int sim_gpu_memory(const struct sim_node *n, uint32_t gpu, int64_t t, struct sim_memory *out)
{
    struct sim_memory m = {0};
    int code = sim_truth(n, gpu, SIM_FB_TOTAL, t, &m.total);
    if (code != 0)
        return code;
    m.reserved = sim_truth_or_zero(n, gpu, SIM_FB_RESERVED, t);
    m.used = sim_truth_or_zero(n, gpu, SIM_FB_BASE, t);
    for (uint32_t i = read_index(&n->gpus[gpu].processes); i != SIM_NONE;
         i = n->processes[i].next_on_gpu) {
        if (sim_process_alive(n, i, t))
            m.used += max64(n->processes[i].memory_bytes, 0);
    }
    m.used = min64(m.used, m.total - m.reserved);
    m.free = m.total - m.reserved - m.used;
    *out = m;
    return 0;
}

int sim_instance_memory(const struct sim_node *n, uint32_t instance, int64_t t,
                        struct sim_memory *out)
{
    const struct sim_instance *me = &n->instances[instance];
    struct sim_memory m = {.total = me->memory_bytes};
    for (uint32_t i = read_index(&n->gpus[me->gpu].processes); i != SIM_NONE;
         i = n->processes[i].next_on_gpu) {
        const struct sim_process *p = &n->processes[i];
        if (p->instance == SIM_NONE || !sim_process_alive(n, i, t))
            continue;
        if (n->instances[p->instance].gi == me->gi)
            m.used += max64(p->memory_bytes, 0);
    }
    m.used = min64(m.used, m.total);
    m.free = m.total - m.used;
    *out = m;
    return 0;
}

// Whether a 0/1 signal was 1 at some time in (since, t].
static bool was_set(const struct sim_node *n, uint32_t gpu, enum sim_field field, int64_t since,
                    int64_t t)
{
    int64_t until = SIM_FOREVER; // where the segment under the hand ends
    uint32_t at = read_index(&n->gpus[gpu].fields[field]);
    while (at != SIM_NONE) {
        const struct sim_segment *s = &n->segments[at];
        uint32_t older = read_index(&s->older);
        int64_t from = older == SIM_NONE ? INT64_MIN : s->from_ns;
        if (s->base != 0 && from <= t && until > since)
            return true;
        until = s->from_ns;
        at = older;
    }
    return false;
}

int sim_gpu_return(const struct sim_node *n, uint32_t gpu, int64_t since, int64_t t)
{
    if (!n->reinit_after_loss || since > t)
        since = t;
    if (was_set(n, gpu, SIM_LOST, since, t) || sim_truth_or_zero(n, gpu, SIM_LOST, t) != 0)
        return 15;
    if (sim_truth_or_zero(n, gpu, SIM_RESET_REQUIRED, t) != 0)
        return 16;
    if (sim_truth_or_zero(n, gpu, SIM_NO_PERMISSION, t) != 0)
        return 4;
    return 0;
}
