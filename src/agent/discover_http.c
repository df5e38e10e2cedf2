// SPDX-License-Identifier: Apache-2.0
// Asks every refresh_interval; after a failure sooner, with backoff, while the targets of the last
// good answer stay.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/discover_document.h"
#include "agent/discover_internal.h"
#include "agent/http_options.h"
#include "agent/target.h"
#include "base/clock.h"
#include "base/limits.h"

#define LEAST_BACKOFF_NS NS_PER_S
#define MOST_DEADLINE_NS (60 * NS_PER_S)
#define SOURCE "url"

struct discover_http {
    struct loop *loop;
    struct http_client *client;
    const struct prom_http_sd *config;
    struct discover_events events;
    struct loop_timer *timer;
    struct http_call *call;
    struct arena arena; // of shown_url
    const char *shown_url;
    unsigned failures; // in a row
};

static void end(struct discover_http *h, const char *problem)
{
    uint64_t wait_ns = h->config->refresh_ns;
    if (problem)
        wait_ns = clock_backoff_ns(h->failures++, LEAST_BACKOFF_NS, wait_ns);
    else
        h->failures = 0;
    loop_timer_set(h->timer, wait_ns, 0);
    h->events.problem(h->events.user, problem);
    h->events.ready(h->events.user);
}

static void end_failed(struct discover_http *h, const char *what)
{
    char text[1024];
    (void)snprintf(text, sizeof(text), "%.400s: %s", h->shown_url, what);
    end(h, text);
}

// application/json, of no other character set than UTF-8.
static bool is_json(struct sv type)
{
    struct sv media;
    if (!sv_next(&type, ';', &media) ||
        !sv_equals_nocase(sv_trim(media, " \t"), SV("application/json")))
        return false;
    struct sv rest = sv_trim(type, " \t");
    return rest.len == 0 || sv_equals_nocase(rest, SV("charset=utf-8")) ||
           sv_equals_nocase(rest, SV("charset=\"utf-8\""));
}

static int read_answer(struct discover_http *h, const struct http_client_response *response,
                       struct error *err)
{
    struct target_group *group;
    if (response->result < 0)
        return error_set(err, response->result, "%s", response->error);
    if (response->status != 200)
        return error_set(err, -EPROTO, "server returned HTTP status %u", response->status);
    if (!is_json(response->content_type))
        return error_set(err, -EPROTO, "Content-Type '%.*s' is not application/json",
                         SV_FMT(sv_cut(response->content_type, 100)));
    const struct label extra = {SV("__meta_url"), sv_from(h->shown_url)};
    int r = discover_document_read_json(response->body, NULL, &extra, &group, err);
    if (r == 0)
        h->events.group(h->events.user, SOURCE, group);
    return r;
}

static void on_done(void *user, const struct http_client_response *response)
{
    struct discover_http *h = user;
    struct error err = ERROR_INIT;
    char text[sizeof(err.text) + 64];
    int r = read_answer(h, response, &err);
    http_call_free(TAKE_PTR(h->call));
    if (r < 0)
        end_failed(h, error_text(&err, text, sizeof(text)));
    else
        end(h, NULL);
}

static void ask(void *user)
{
    struct discover_http *h = user;
    struct error err = ERROR_INIT;
    struct http_options texts;
    char refresh[96];
    uint64_t ms = h->config->refresh_ns / NS_PER_MS;
    (void)snprintf(refresh, sizeof(refresh),
                   "X-Prometheus-Refresh-Interval-Seconds: %" PRIu64 ".%03" PRIu64, ms / 1000,
                   ms % 1000);
    const char *const headers[] = {"Accept: application/json",
                                   "User-Agent: podgpu-agent/" PODGPU_VERSION, refresh, NULL};
    struct http_client_request request = {
        .url = h->config->url,
        .accept_gzip = true,
        .deadline_ns =
            h->config->refresh_ns < MOST_DEADLINE_NS ? h->config->refresh_ns : MOST_DEADLINE_NS,
        .max_body_bytes = LIMIT_JSON_BYTES,
    };
    int r = http_options_init(&texts, &h->config->http, headers, &request, &err);
    if (r == 0) {
        r = http_client_start(h->client, NULL, &request, on_done, h, &h->call, &err);
        http_options_deinit(&texts);
    }
    if (r < 0)
        end_failed(h, err.text);
}

int discover_http_new(struct loop *l, struct http_client *client, const struct prom_http_sd *config,
                      const struct discover_events *events, struct discover_http **out)
{
    struct discover_http *h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->loop = l;
    h->client = client;
    h->config = config;
    h->events = *events;
    h->arena = ARENA_INIT(LIMIT_CONFIG_FILE_BYTES * 2);
    h->shown_url = target_redact_url(config->url, &h->arena);
    int r = h->shown_url ? loop_timer_new(l, ask, h, &h->timer) : -ENOMEM;
    if (r < 0) {
        discover_http_free(h);
        return -ENOMEM;
    }
    loop_timer_set(h->timer, 0, 0);
    *out = h;
    return 0;
}

void discover_http_free(struct discover_http *h)
{
    if (!h)
        return;
    http_call_free(h->call);
    loop_timer_free(h->timer);
    arena_deinit(&h->arena);
    free(h);
}
