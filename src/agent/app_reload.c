// SPDX-License-Identifier: Apache-2.0
// A new configuration is read and checked whole before anything of it is taken; until then, and
// after any problem, the old one goes on. Series keep what they know.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/app_internal.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"

void agent_log_lines(bool is_error, const struct buf *lines)
{
    struct sv rest = buf_sv(lines), line;
    while (sv_next(&rest, '\n', &line)) {
        if (line.len == 0)
            continue;
        if (is_error)
            log_error("configuration is wrong", LOG_SV("problem", line));
        else
            log_warn("configuration", LOG_SV("warning", line));
    }
}

static void on_changed(void *user)
{
    (void)agent_reload(user, "file changed");
}

int agent_watch_files(struct agent *a, const struct buf *paths)
{
    const char *list[FILE_WATCH_MAX];
    size_t count = 0;
    int r = a->watch ? 0 : file_watch_new(a->loop, on_changed, a, &a->watch);
    if (r < 0)
        return r;
    char *text = sv_dup(buf_sv(paths)), *next = text;
    if (!text)
        return -ENOMEM;
    for (char *end; count < FILE_WATCH_MAX && (end = strchr(next, '\n')); next = end + 1) {
        *end = '\0';
        list[count++] = next;
    }
    r = file_watch_set(a->watch, list, count);
    free(text);
    return r;
}

bool agent_texts_differ(const char *a, const char *b)
{
    return strcmp(a ? a : "", b ? b : "") != 0;
}

static bool outputs_differ(const struct agent_config *a, const struct agent_config *b)
{
    bool differ = a->output_count != b->output_count;
    for (size_t i = 0; !differ && i < a->output_count; i++)
        differ = a->outputs[i].kind != b->outputs[i].kind ||
                 agent_texts_differ(a->outputs[i].where, b->outputs[i].where);
    return differ;
}

// What cannot change while we run.
static void warn_of_restart(const struct agent *a, const struct agent_config *next)
{
    const struct cw_config *was = a->config.cw, *is = next->cw;
    if (outputs_differ(&a->config, next))
        log_warn("another output needs a restart");
    if (agent_texts_differ(was->spool_directory, is->spool_directory) ||
        was->spool_max_bytes != is->spool_max_bytes ||
        was->spool_max_age_ns != is->spool_max_age_ns)
        log_warn("another spool needs a restart");
}

static int take_scraping(struct agent *a)
{
    int r = emf_set_config(a->emf, a->config.cw, agent_cluster(a));
    if (r == 0)
        r = scraper_set_config(a->scraper, prom_config_ref(a->config.prom));
    if (r == 0)
        r = agent_discover(a);
    if (r == 0)
        scraper_renew_series(a->scraper);
    return r;
}

static void take(struct agent *a, struct agent_config *next)
{
    warn_of_restart(a, next);
    struct agent_config before = {.cw = a->config.cw, .prom = a->config.prom};
    a->config.cw = TAKE_PTR(next->cw);
    a->config.prom = TAKE_PTR(next->prom);
    a->emptiness_told = false;
    struct error err = ERROR_INIT;
    int r = agent_set_place(a, before.cw, &err);
    if (r == 0 && a->emf)
        r = take_scraping(a);
    if (a->delivery)
        delivery_set_flush(a->delivery, a->config.cw->flush_ns);
    if (r < 0)
        log_error("configuration could not be taken in whole",
                  LOG_STR("error", err.text[0] ? err.text : strerror(-r)));
    agent_config_deinit(&before);
}

// Nothing is open yet: all of it is taken, and the place is looked for anew, where this one says.
static void take_at_start(struct agent *a, struct agent_config *next)
{
    aws_lookup_free(TAKE_PTR(a->lookup));
    aws_credentials_free(TAKE_PTR(a->credentials));
    a->region[0] = a->cluster[0] = '\0';
    agent_config_deinit(&a->config);
    a->config = *next;
    *next = (struct agent_config){0};
    agent_find_place(a);
}

int agent_reload(struct agent *a, const char *why)
{
    struct buf errors = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct buf warnings = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct buf watched = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct agent_config next = {0};
    if (a->is_ending)
        return -EBUSY;
    int r = agent_config_load(a->options, a->env.environment, &next, &errors, &warnings, &watched);
    agent_log_lines(true, &errors);
    agent_log_lines(false, &warnings);
    if (agent_watch_files(a, &watched) < 0)
        log_warn("no memory to watch the files that were named last", LOG_LIMIT("watch"));
    a->reloads++;
    a->config_ok = r == 0;
    if (r < 0) {
        a->reload_failures++;
        log_error("new configuration is refused, the one before goes on", LOG_STR("why", why));
    } else {
        if (a->emf)
            take(a, &next);
        else
            take_at_start(a, &next);
        a->config_ok_wall_ns = clock_wall_ns();
        log_info("configuration read", LOG_STR("why", why),
                 LOG_U64("jobs", a->config.prom->job_count),
                 LOG_U64("declarations", a->config.cw->declaration_count));
    }
    agent_config_deinit(&next);
    buf_deinit(&errors);
    buf_deinit(&warnings);
    buf_deinit(&watched);
    return r;
}
