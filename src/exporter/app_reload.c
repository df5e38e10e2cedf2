// SPDX-License-Identifier: Apache-2.0
// A reload never leaves a gap: the new configuration is read and checked beside the old one, then
// watched; the page before keeps being served until the first sample that holds the new fields (or
// NEXT_DEADLINE_NS), then both swap.
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/app_internal.h"

#define NEXT_DEADLINE_NS (3 * NS_PER_S)

// A file without a byte is one that somebody is writing; whoever wants no counters says so in a
// comment.
static int check_not_emptied(const struct exporter_config *newest,
                             const struct exporter_config *config, struct error *err)
{
    if (config->counters_bytes > 0 || newest->counters.count == 0)
        return 0;
    return error_set_at(err, -ENODATA, config->counters_file, 0, 0,
                        "the file is empty: taken for one that is being written");
}

static void refuse(struct app *a, const char *why, const struct error *err)
{
    char text[1024];
    a->reload_failures++;
    a->config_ok = false;
    log_error("configuration not taken, the old one stays in force", LOG_STR("why", why),
              LOG_STR("error", error_text(err, text, sizeof(text))));
    app_publish(a);
}

static void take_note(struct app *a)
{
    a->config_ok = true;
    a->config_ok_wall_ns = clock_wall_ns();
}

static void stage(struct app *a, const char *why, struct exporter_config *config)
{
    exporter_config_unref(a->next_config);
    a->next_config = config;
    a->next_deadline_ns = clock_mono_ns() + NEXT_DEADLINE_NS;
    a->routes.reloading = true;
    take_note(a);
    log_info("configuration read", LOG_STR("why", why), LOG_STR("counters", config->counters_file),
             LOG_U64("rows", config->counters.count),
             LOG_U64("duplicates", config->counters.duplicates));
    (void)app_reload_progress(a);
}

// The files as they were read last are watched, also when they were refused: their repair is waited
// for.
static void watch_files(struct app *a, const struct exporter_config_files *files)
{
    const char *counters = files->counters[0] ? files->counters : a->config->counters_file;
    const char *const paths[] = {counters, files->config};
    if (a->watch && file_watch_set(a->watch, paths, ARRAY_SIZE(paths)) < 0)
        log_warn("no memory to watch the files that were named last", LOG_LIMIT("watch"));
}

int app_reload(struct app *a, const char *why, struct error *err)
{
    struct exporter_config *config = NULL;
    const struct exporter_config *newest = a->next_config ? a->next_config : a->config;
    struct exporter_config_files files = {0};
    int r = exporter_config_try(a->options, &files, &config, err);
    watch_files(a, &files);
    a->reloads++;
    if (r == 0 && config->hash == newest->hash) {
        // Nothing to do: signals in a row cost the driver nothing.
        exporter_config_unref(config);
        take_note(a);
        log_info("configuration is unchanged", LOG_STR("why", why));
        app_publish(a);
        return 0;
    }
    if (r == 0)
        r = check_not_emptied(newest, config, err);
    if (r == 0) {
        r = app_watch(a, config);
        if (r < 0) {
            (void)error_set(err, r, "out of memory");
            if (app_watch(a, newest) < 0) // what is taken of the new one would starve the old one
                log_error("out of memory while watching the old configuration again");
        }
    }
    if (r < 0) {
        exporter_config_unref(config);
        refuse(a, why, err);
        return r;
    }
    stage(a, why, config);
    return 0;
}

// A source that does not answer holds nothing up.
static bool is_waited_for(const struct app_source *s)
{
    return app_source_is_wanted(s) && s->process && !s->app->released && s->watched_fields > 0 &&
           s->sampled_watch_id != s->watch_id && s->inventory.state.code == FRAME_STATE_READY &&
           inventory_is_connected(&s->inventory);
}

bool app_reload_progress(struct app *a)
{
    if (!a->next_config)
        return false;
    bool waits = false;
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        waits = waits || is_waited_for(&a->sources[i]);
    if (waits && clock_mono_ns() < a->next_deadline_ns)
        return false;
    exporter_config_unref(a->config);
    a->config = TAKE_PTR(a->next_config);
    free(TAKE_PTR(a->reasons_logged));
    a->reasons_due_ns = 0;
    a->routes.reloading = false;
    log_info("configuration in force", LOG_STR("counters", a->config->counters_file));
    app_log_missing(a);
    app_publish(a);
    return true;
}
