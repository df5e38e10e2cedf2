// SPDX-License-Identifier: Apache-2.0
// A reload never leaves a gap: the new configuration is read and checked beside the old one, then watched; the page
// before keeps being served until the first sample that holds the new fields (or NEXT_DEADLINE_NS), then both swap.
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/app_internal.h"

#define NEXT_DEADLINE_NS (3 * NS_PER_S)

int app_reload(struct app *a, const char *why, struct error *err)
{
    struct exporter_config *config = NULL;
    int r = exporter_config_load(a->options, &config, err);
    if (r == 0) {
        r = app_watch(a, config);
        if (r < 0)
            (void)error_set(err, r, "out of memory");
    }
    a->reloads++;
    if (r < 0) {
        char text[1024];
        a->reload_failures++;
        a->config_ok = false;
        exporter_config_unref(config);
        log_error("configuration not taken, the old one stays in force",
                  LOG_STR("why", why), LOG_STR("error", error_text(err, text, sizeof(text))));
        app_publish(a);
        return r;
    }
    exporter_config_unref(a->next_config);
    a->next_config = config;
    a->next_deadline_ns = clock_mono_ns() + NEXT_DEADLINE_NS;
    a->routes.reloading = true;
    a->config_ok = true;
    a->config_ok_wall_ns = clock_wall_ns();
    log_info("configuration read", LOG_STR("why", why), LOG_STR("counters", config->counters_file),
             LOG_U64("rows", config->counters.count), LOG_U64("duplicates", config->counters.duplicates));
    if (a->watch)
        reload_watch_set(a->watch, config->counters_file, config->config_file);
    (void)app_reload_progress(a);
    return 0;
}

bool app_reload_progress(struct app *a)
{
    if (!a->next_config)
        return false;
    bool sampled = a->sampled_watch_id == a->watch_id;
    bool nothing_to_wait_for =
        a->inventory.state.code != FRAME_STATE_READY || a->watched_fields == 0;
    if (!sampled && !nothing_to_wait_for && clock_mono_ns() < a->next_deadline_ns)
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
