// SPDX-License-Identifier: Apache-2.0
// From a sample to the number that is sent: gauges as they are, cumulative ones as the increase
// since the sample before.
#include <math.h>

#include "agent/sinks/emf_internal.h"

#define OLDEST_MS (14 * 24 * 3600 * INT64_C(1000))
#define NEWEST_MS (2 * 3600 * INT64_C(1000))

static bool count(uint64_t *dropped)
{
    ++*dropped;
    return false;
}

static bool is_out_of_time(const struct emf_target *t, int64_t time_ms)
{
    int64_t ahead;
    if (__builtin_sub_overflow(time_ms, t->scrape_ms, &ahead))
        return true;
    return ahead < -OLDEST_MS || ahead > NEWEST_MS;
}

// The increase, in *value. The clock of the samples is the target's own, honoured timestamps too.
static bool take_delta(struct emf_target *t, struct emf_member *m, double *value, int64_t time_ms)
{
    struct emf *e = t->emf;
    bool compat = m->group->plan->config->compat;
    double now = *value, before = m->previous;
    bool known = m->has_previous;
    if (known && time_ms <= m->time_ms) {
        if (!compat)
            return count(&e->stats.dropped_repeated);
        before = 0; // the agent sends the whole value
    } else if (known && time_ms - m->time_ms > (compat ? t->ttl_compat_ms : t->ttl_ms)) {
        known = false;
    }
    bool is_first = !known && !m->from_zero;
    if (!known)
        before = 0;
    m->previous = now;
    m->time_ms = time_ms;
    m->has_previous = true;
    m->from_zero = false;
    if (is_first)
        return count(&e->stats.dropped_first);
    *value = now >= before ? now - before : now; // less than before: it started again
    return true;
}

bool emf_value_take(struct emf_target *t, struct emf_member *m, double *value, int64_t time_ms)
{
    struct emf *e = t->emf;
    if (!isfinite(*value)) {
        m->has_previous = m->from_zero = false;
        return count(&e->stats.dropped_not_finite);
    }
    if (is_out_of_time(t, time_ms))
        return count(&e->stats.dropped_old);
    if (m->fate == EMF_PART)
        return emf_part_take(t, m, *value, time_ms);
    if (!m->is_delta)
        m->time_ms = time_ms;
    else if (!take_delta(t, m, value, time_ms))
        return false;
    // A difference of two finite ones may be infinite.
    bool in_range = fabs(*value) <= 0x1p360;
    if (!in_range && (!m->group->plan->config->compat || !isfinite(*value)))
        return count(&e->stats.dropped_value);
    return true;
}
