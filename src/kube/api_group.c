// SPDX-License-Identifier: Apache-2.0
// How it works. One GET, gathered (a group's document has 1 KB) and read; again after a failure,
// with a wait that grows, rarely where the server has no such group or refuses to tell.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "kube/api_internal.h"

#define DEADLINE_NS (30 * NS_PER_S)
#define BACKOFF_LEAST_NS (800 * NS_PER_MS)
#define BACKOFF_MOST_NS (30 * NS_PER_S)
#define REFUSED_WAIT_NS (120 * NS_PER_S)

struct kube_group {
    struct kube_api *api;
    struct kube_group_config config;
    char path[128];
    struct loop_timer *timer;
    struct http_handle *handle;
    struct http_call *call;
    struct buf body;
    unsigned failures;
    char problem[256]; // told, "" none
};

static void retry(struct kube_group *g, const char *text, bool refused)
{
    uint64_t wait_ns = clock_backoff_ns(g->failures++, BACKOFF_LEAST_NS, BACKOFF_MOST_NS);
    if (refused)
        wait_ns = REFUSED_WAIT_NS;
    loop_timer_set(g->timer, wait_ns + clock_jitter_ns(wait_ns / 4), 0);
    if (strcmp(text, g->problem) == 0)
        return;
    sv_copy(g->problem, sizeof(g->problem), sv_from(text));
    g->config.problem(g->config.user, g->problem);
}

// The first of the wanted versions that the document has; NULL: none.
static const char *choose(const struct kube_group *g, const struct json_node *document)
{
    const struct json_node *list =
        document && document->kind == JSON_OBJECT ? json_find(document, "versions") : NULL;
    if (!list || list->kind != JSON_ARRAY)
        return NULL;
    for (const char *const *want = g->config.versions; *want; want++)
        for (const struct json_node *v = list->first; v; v = v->next)
            if (v->kind == JSON_OBJECT && sv_equals(kube_text(v, "version", NULL), sv_from(*want)))
                return *want;
    return NULL;
}

static void answered(struct kube_group *g)
{
    struct json_document *document = NULL;
    int r = json_parse(buf_sv(&g->body), g->path, &document, NULL);
    const char *version = r == 0 ? choose(g, json_root(document)) : NULL;
    json_document_free(document);
    if (r < 0)
        retry(g, "the API server's list of versions cannot be read", false);
    else if (!version)
        retry(g, "the API server has no version of it that is known here", true);
    else
        g->config.chosen(g->config.user, version);
}

static int on_data(void *user, struct sv piece)
{
    struct kube_group *g = user;
    buf_add_sv(&g->body, piece);
    return g->body.error;
}

static void on_done(void *user, const struct http_client_response *response)
{
    struct kube_group *g = user;
    char text[160];
    if (response->status == 401)
        kube_api_renew_credentials(g->api);
    if (response->result == 0 && response->status == 200)
        answered(g);
    else if (response->result == 0) {
        (void)snprintf(text, sizeof(text), "the API server answered with status %u",
                       response->status);
        retry(g, text, response->status == 403 || response->status == 404);
    } else
        retry(g, *response->error ? response->error : strerror(-response->result), false);
    http_call_free(TAKE_PTR(g->call));
}

static void ask(void *user)
{
    struct kube_group *g = user;
    struct error err = ERROR_INIT;
    const struct kube_api_call call = {
        .path = g->path,
        .deadline_ns = DEADLINE_NS,
        .data = on_data,
        .done = on_done,
        .user = g,
    };
    buf_reset(&g->body);
    int r = kube_api_start(g->api, g->handle, &call, &g->call, &err);
    if (r < 0)
        retry(g, err.text, false);
}

int kube_group_new(struct kube_api *api, const struct kube_group_config *config,
                   struct kube_group **out)
{
    struct kube_group *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    g->api = api;
    g->config = *config;
    g->body = BUF_INIT(LIMIT_KUBE_LIST_REST_BYTES);
    (void)snprintf(g->path, sizeof(g->path), "/apis/%s", config->group);
    int r = loop_timer_new(kube_api_loop(api), ask, g, &g->timer);
    g->handle = http_handle_new(kube_api_client(api));
    if (r == 0 && !g->handle)
        r = -ENOMEM;
    if (r < 0) {
        kube_group_free(g);
        return r;
    }
    loop_timer_set(g->timer, 0, 0);
    *out = g;
    return 0;
}

void kube_group_free(struct kube_group *g)
{
    if (!g)
        return;
    http_call_free(g->call);
    http_handle_free(g->handle);
    loop_timer_free(g->timer);
    buf_deinit(&g->body);
    free(g);
}
