// SPDX-License-Identifier: Apache-2.0
// The plan says which sources run and what each is asked. It is made anew when something was learnt
// that it is made from: states, lists, the first sample of a watch; and every PLAN_PERIOD_NS, since
// what NVML says of a field may change. Only who is asked something else than before is told.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/app_internal.h"

#define PLAN_PERIOD_NS (10 * NS_PER_S)

// A node that has no libdcgm, as far as is known, has no DCGM: what NVML says of a field is the
// reason it is missing.
static bool is_absent(const struct app *a, const struct app_source *s)
{
    const struct inventory *inv = &s->inventory;
    return s->which == DEVICE_SOURCE_DCGM && a->plan.nvml &&
           (!inv->state_known || inv->state.code == FRAME_STATE_NO_LIBRARY);
}

int app_view_refresh(struct app *a)
{
    const struct inventory *used[DEVICE_SOURCE_COUNT] = {NULL};
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        if (app_source_is_wanted(&a->sources[i]) && !is_absent(a, &a->sources[i]))
            used[i] = &a->sources[i].inventory;
    return device_view_refresh(&a->view, used[DEVICE_SOURCE_NVML], used[DEVICE_SOURCE_DCGM]);
}

// Rows of type label become constant text of the page.
static int mark_labels(struct app_source *s, const struct exporter_config *config)
{
    const struct counter_list *counters = &config->counters;
    cleanup(mem_freep) uint16_t *labels = calloc(counters->count + 1, sizeof(*labels));
    if (!labels)
        return -ENOMEM;
    size_t count = 0;
    for (size_t i = 0; i < counters->count; i++)
        if (counters->rows[i].type == COUNTER_LABEL)
            labels[count++] = counters->rows[i].field->id;
    inventory_set_labels(&s->inventory, labels, count);
    return 0;
}

// As often as the GPUs are sampled, but not faster than once a second, and before the driver's own
// buffers overflow: they hold about 17 s.
#define USAGE_LEAST_NS (1 * NS_PER_S)
#define USAGE_MOST_NS (10 * NS_PER_S)

uint64_t app_usage_period_ns(const struct exporter_config *config)
{
    uint64_t period_ns = config->period_ns[FIELD_CLASS_FAST];
    if (period_ns < USAGE_LEAST_NS)
        return USAGE_LEAST_NS;
    return period_ns > USAGE_MOST_NS ? USAGE_MOST_NS : period_ns;
}

static struct frame_watch watch_of(const struct app_source *s, const struct source_plan *plan,
                                   const struct exporter_config *config)
{
    struct frame_watch watch = {
        .watch_id = s->watch_id,
        .count = (uint32_t)plan->field_count[s->which],
        .gpus = s->which == DEVICE_SOURCE_DCGM ? plan->gpus : UINT64_MAX,
    };
    for (size_t c = 0; c < FIELD_CLASS_COUNT; c++)
        watch.period_ns[c] = config->period_ns[c];
    if (s->which == DEVICE_SOURCE_NVML && s->app->ledger)
        watch.usage_ns = app_usage_period_ns(config);
    return watch;
}

// Tells a source and its inventory which fields to keep.
static int tell(struct app_source *s, const struct source_plan *plan,
                const struct exporter_config *config)
{
    s->watch_id++;
    s->watched_fields = plan->field_count[s->which];
    int r =
        inventory_set_fields(&s->inventory, plan->fields[s->which], s->watched_fields, s->watch_id);
    if (r == 0)
        r = mark_labels(s, config);
    if (r < 0 || !s->process)
        return r;
    const struct frame_watch watch = watch_of(s, plan, config);
    return source_process_watch(s->process, &watch, plan->fields[s->which]);
}

// A helper that cannot be started now is tried again with the next plan.
static void start_wanted(struct app *a)
{
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++) {
        struct app_source *s = &a->sources[i];
        struct error err = ERROR_INIT;
        if (s->process || a->released || !app_source_is_wanted(s))
            continue;
        if (app_source_start(s, &err) < 0)
            log_error("source process cannot be started", LOG_STR("source", app_source_name(s)),
                      LOG_STR("error", err.text), LOG_LIMIT(app_source_name(s)));
    }
}

static void stop_unwanted(struct app *a)
{
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++) {
        struct app_source *s = &a->sources[i];
        if (!s->process || app_source_is_wanted(s))
            continue;
        log_info("source is not needed any more", LOG_STR("source", app_source_name(s)));
        app_source_stop(s);
    }
}

// Takes over *plan. all: whoever is asked the same is told too (periods, labels, a watch to wait
// for).
static int follow(struct app *a, struct source_plan *plan, const struct exporter_config *config,
                  bool all)
{
    struct source_plan before = a->plan;
    bool had[DEVICE_SOURCE_COUNT];
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        had[i] = a->sources[i].process != NULL;
    a->plan = *plan;
    stop_unwanted(a);
    start_wanted(a);
    int r = app_view_refresh(a);
    for (size_t i = 0; r == 0 && i < DEVICE_SOURCE_COUNT; i++) {
        struct app_source *s = &a->sources[i];
        bool fresh = s->process && !had[i];
        if (app_source_is_wanted(s) &&
            (all || fresh || !source_plan_asks_same(&before, plan, s->which)))
            r = tell(s, plan, config);
    }
    source_plan_deinit(&before);
    a->plan_untold = r < 0;
    return r;
}

static int make_plan(struct app *a, const struct exporter_config *config, struct source_plan *out)
{
    int r = app_view_refresh(a);
    return r < 0 ? r : source_plan_make(config, &a->view, &a->plan, out);
}

static bool counts_clocks(const struct counter_list *counters)
{
    for (size_t i = 0; i < counters->count; i++)
        if (counters->rows[i].field->id == FIELD_EXP_CLOCK_COUNT ||
            counters->rows[i].field->id == FIELD_EXP_CLOCK_TOTAL)
            return true;
    return false;
}

int app_watch(struct app *a, const struct exporter_config *config)
{
    struct source_plan plan;
    exp_counts_set_clocks(a->exp, counts_clocks(&config->counters));
    int r = make_plan(a, config, &plan);
    return r < 0 ? r : follow(a, &plan, config, true);
}

static bool lacks_a_helper(const struct app *a)
{
    bool lacks = false;
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        lacks = lacks || (app_source_is_wanted(&a->sources[i]) && !a->sources[i].process);
    return lacks && !a->released;
}

void app_plan_progress(struct app *a, bool at_once)
{
    uint64_t now_ns = clock_mono_ns();
    if (!at_once && now_ns < a->plan_due_ns)
        return;
    const struct exporter_config *config = a->next_config ? a->next_config : a->config;
    struct source_plan plan;
    a->plan_due_ns = now_ns + PLAN_PERIOD_NS;
    int r = make_plan(a, config, &plan);
    bool told = !a->plan_untold && !lacks_a_helper(a);
    if (r == 0 && told && source_plan_equals(&plan, &a->plan)) {
        source_plan_deinit(&plan);
        return;
    }
    if (r == 0)
        r = follow(a, &plan, config, a->plan_untold);
    if (r < 0) {
        log_error("out of memory while planning what to watch", LOG_LIMIT("plan"));
        a->plan_due_ns = now_ns;
    }
}
