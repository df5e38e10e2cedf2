// SPDX-License-Identifier: Apache-2.0
// What the sinks hold of a target. An era is the target under one set of labels, job and interval;
// a series belongs to the era in which it was told last, so its states are freed against the right
// target. An era ends with its last series, the present one with the next or the table.
#include <errno.h>
#include <stdlib.h>

#include "agent/series_internal.h"

static size_t text_bytes(const struct series_options *o)
{
    size_t bytes = strlen(o->job->name);
    for (size_t i = 0; i < o->labels->count; i++)
        bytes += o->labels->items[i].name.len + o->labels->items[i].value.len;
    return bytes;
}

static struct sv copy_text(char **at, struct sv s)
{
    struct sv copy = {*at, s.len};
    if (s.len)
        *at = mempcpy(*at, s.ptr, s.len);
    return copy;
}

static struct series_era *new_era(const struct series_options *o)
{
    size_t count = o->labels->count;
    struct series_era *era = calloc(1, sizeof(*era) + count * sizeof(struct label) + text_bytes(o));
    if (!era)
        return NULL;
    struct label *items = (struct label *)(void *)(era + 1);
    char *text = (char *)(items + count);
    for (size_t i = 0; i < count; i++)
        items[i] = (struct label){copy_text(&text, o->labels->items[i].name),
                                  copy_text(&text, o->labels->items[i].value)};
    era->labels = (struct labels){.items = items, .count = count, .capacity = count};
    era->job = copy_text(&text, sv_from(o->job->name));
    era->interval_ns = o->interval_ns;
    return era;
}

static void free_era(const struct series_table *t, struct series_era *era)
{
    for (size_t k = 0; k < t->store.sink_count; k++) {
        if (era->targets[k])
            t->sinks[k].ops->target_free(era->targets[k]);
    }
    free(era);
}

static void end_if_unused(struct series_table *t, uint8_t index)
{
    struct series_era *era = t->eras[index];
    if (!era || index == t->era || era->given > 0)
        return;
    free_era(t, era);
    t->eras[index] = NULL;
}

static int new_targets(const struct series_table *t, struct series_era *era)
{
    const struct sink_target target = {
        .job = era->job, .interval_ns = era->interval_ns, .labels = &era->labels};
    for (size_t k = 0; k < t->store.sink_count; k++) {
        int r = t->sinks[k].ops->target_new(t->sinks[k].user, &target, &era->targets[k]);
        if (r < 0)
            return r;
    }
    return 0;
}

static void free_states(const struct series_table *t, const struct series_era *era, void **states)
{
    for (size_t k = 0; k < t->store.sink_count; k++) {
        if (states[k])
            t->sinks[k].ops->series_free(era->targets[k], states[k]);
        states[k] = NULL;
    }
}

// Tells all sinks; out_states are zero after a failure.
static int tell_sinks(const struct series_table *t, const struct series_era *era,
                      struct sink_series *s, void *const *before, void **out_states)
{
    for (size_t k = 0; k < t->store.sink_count; k++)
        out_states[k] = NULL;
    for (size_t k = 0; k < t->store.sink_count; k++) {
        s->replaces = before[k];
        int r = t->sinks[k].ops->series_new(era->targets[k], s, &out_states[k]);
        if (r < 0) {
            out_states[k] = NULL;
            free_states(t, era, out_states);
            return r;
        }
    }
    return 0;
}

static int tell_reports(const struct series_table *t, const struct series_era *era,
                        void *states[REPORT_COUNT][SERIES_SINKS_MAX])
{
    static const struct sv names[REPORT_COUNT] = {
        [REPORT_UP] = {"up", 2},
        [REPORT_DURATION] = {"scrape_duration_seconds", 23},
        [REPORT_SCRAPED] = {"scrape_samples_scraped", 22},
        [REPORT_RELABELLED] = {"scrape_samples_post_metric_relabeling", 37},
        [REPORT_ADDED] = {"scrape_series_added", 19},
    };
    for (size_t i = 0; i < REPORT_COUNT; i++) {
        struct sink_series s = {.name = names[i],
                                .type = PARSE_TYPE_GAUGE,
                                .labels = &era->labels,
                                .is_internal = true};
        int r = tell_sinks(t, era, &s, t->reports[i], states[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

static void free_reports(const struct series_table *t, const struct series_era *era,
                         void *reports[REPORT_COUNT][SERIES_SINKS_MAX])
{
    for (size_t i = 0; i < REPORT_COUNT; i++)
        free_states(t, era, reports[i]);
}

static bool is_same_target(const struct series_era *era, const struct series_options *o)
{
    return era->interval_ns == o->interval_ns && sv_equals(era->job, sv_from(o->job->name)) &&
           labels_equal(&era->labels, o->labels);
}

static void forget_era(struct series_table *t, uint8_t index)
{
    for (size_t i = 0; i < t->store.count; i++) {
        struct series *s = &t->store.series[i];
        if (s->era == index && s->fate == SERIES_GIVEN) {
            series_forget(t, i);
            s->flags |= SERIES_DEAD;
        }
    }
    (void)series_store_compact(&t->store);
}

// A free place for an era, if need be that of the one with the fewest series.
static uint8_t free_place(struct series_table *t)
{
    uint8_t least = t->era == 0 ? 1 : 0;
    for (uint8_t i = 0; i < SERIES_ERAS; i++) {
        if (!t->eras[i])
            return i;
        if (i != t->era && t->eras[i]->given < t->eras[least]->given)
            least = i;
    }
    forget_era(t, least);
    return least;
}

static void move_to_era(struct series_table *t, struct series_era *era)
{
    uint8_t place = free_place(t), before = t->era;
    t->eras[place] = era;
    t->era = place;
    end_if_unused(t, before);
}

int series_set_era(struct series_table *t, const struct series_options *o)
{
    struct series_era *before = t->eras[t->era], *era = before;
    void *reports[REPORT_COUNT][SERIES_SINKS_MAX] = {{NULL}};
    int r = 0;
    if (!before || !is_same_target(before, o)) {
        era = new_era(o);
        r = era ? new_targets(t, era) : -ENOMEM;
    }
    if (r == 0)
        r = tell_reports(t, era, reports);
    if (r < 0) {
        if (era)
            free_reports(t, era, reports);
        if (era && era != before)
            free_era(t, era);
        return r;
    }
    if (before)
        free_reports(t, before, t->reports);
    memcpy(t->reports, reports, sizeof(reports));
    if (era != before)
        move_to_era(t, era);
    return 0;
}

static bool any_state(const struct series_table *t, void *const *states)
{
    for (size_t k = 0; k < t->store.sink_count; k++) {
        if (states[k])
            return true;
    }
    return false;
}

void series_forget(struct series_table *t, size_t place)
{
    struct series *s = &t->store.series[place];
    if (s->fate != SERIES_GIVEN)
        return;
    free_states(t, t->eras[s->era], series_states(&t->store, place));
    s->fate = SERIES_UNWANTED;
    t->eras[s->era]->given--;
    end_if_unused(t, s->era);
}

int series_tell(struct series_table *t, size_t place, const struct series_identity *what,
                bool is_new)
{
    struct series *s = &t->store.series[place];
    struct series_era *era = t->eras[t->era];
    void **states = series_states(&t->store, place), *told[SERIES_SINKS_MAX] = {NULL};
    if (what->fate == SERIES_GIVEN) {
        struct sink_series new_series = {
            .name = what->name, .type = s->type, .labels = &what->labels, .is_new = is_new};
        int r = tell_sinks(t, era, &new_series, states, told);
        if (r < 0)
            return r;
    }
    series_forget(t, place);
    s->fate = what->fate & 3u;
    s->flags &= (uint8_t)~SERIES_RETELL;
    s->era = t->era & 3u;
    if (what->fate != SERIES_GIVEN)
        return 0;
    for (size_t k = 0; k < t->store.sink_count; k++)
        states[k] = told[k];
    if (any_state(t, told))
        era->given++;
    else
        s->fate = SERIES_UNWANTED;
    return 0;
}

void series_forget_all(struct series_table *t)
{
    for (size_t i = 0; i < t->store.count; i++)
        series_forget(t, i);
    if (!t->eras[t->era])
        return;
    free_reports(t, t->eras[t->era], t->reports);
    free_era(t, t->eras[t->era]);
    t->eras[t->era] = NULL;
}
