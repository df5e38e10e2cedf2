// SPDX-License-Identifier: Apache-2.0
#include "exporter/pod_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/log.h"
#include "kube/api.h"

struct pod_watch {
    struct pod_watch_config config;
    struct http_client *client;
    struct kube_api *api;
    struct kube_watch *watch; // NULL: there is no access
    struct arena scratch;     // arrays of the pod that is being read
    uint64_t unreadable;
    bool synced, settled;
    char problem[640];
};

static void settle(struct pod_watch *w)
{
    if (w->settled)
        return;
    w->settled = true;
    w->config.settled(w->config.user);
}

static int on_object(void *user, struct sv key, const struct json_node *object)
{
    struct pod_watch *w = user;
    struct pod_record pod;
    int r = pod_record_from_json(object, &w->scratch, &pod);
    if (r == 0)
        r = pod_metadata_put(w->config.metadata, POD_METADATA_API_SERVER, &pod);
    arena_reset(&w->scratch);
    if (r != -EBADMSG && r != -EFBIG)
        return r;
    w->unreadable++;
    return 0;
}

static void on_deleted(void *user, struct sv key)
{
    struct pod_watch *w = user;
    pod_metadata_delete(w->config.metadata, POD_METADATA_API_SERVER, key);
}

static void on_synced(void *user)
{
    struct pod_watch *w = user;
    struct pod_metadata_stats s;
    pod_metadata_get_stats(w->config.metadata, &s);
    if (!w->synced)
        log_info("pods are known", LOG_STR("server", kube_api_server(w->api)),
                 LOG_U64("pods", s.pods));
    w->synced = true;
    settle(w);
}

static void on_problem(void *user, const char *text)
{
    struct pod_watch *w = user;
    sv_copy(w->problem, sizeof(w->problem), sv_from(text ? text : ""));
    if (!text) {
        log_info("pods can be read again", LOG_STR("server", kube_api_server(w->api)));
        return;
    }
    log_warn(w->synced
                 ? "the API server's pods cannot be read, what is known of them stays as it was"
                 : "the API server's pods cannot be read, metrics go on without what it alone "
                   "knows of them",
             LOG_STR("reason", text));
    settle(w);
}

// One without which metrics go on: 0 with the reason kept.
static int go_without(struct pod_watch *w, const char *reason)
{
    sv_copy(w->problem, sizeof(w->problem), sv_from(reason));
    log_warn(
        "there is no access to the API server, metrics go on without what it alone knows of pods",
        LOG_STR("reason", reason));
    w->settled = true;
    return 0;
}

static int start_watch(struct pod_watch *w, struct error *err)
{
    const char *node = w->config.options->node_name;
    char selector[sizeof("spec.nodeName=") + sizeof(w->config.options->node_name)];
    (void)snprintf(selector, sizeof(selector), "spec.nodeName=%s", node);
    if (!*node)
        log_warn("NODE_NAME is not set, the pods of the whole cluster are read: set it to the "
                 "node's name, by a fieldRef on spec.nodeName");
    const struct kube_watch_config config = {
        .resource = KUBE_PODS,
        .field_selector = *node ? selector : NULL,
        .object = on_object,
        .deleted = on_deleted,
        .synced = on_synced,
        .problem = on_problem,
        .user = w,
    };
    int r = kube_watch_new(w->api, &config, &w->watch);
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static int start(struct pod_watch *w, struct loop *l, struct error *err)
{
    const char *kubeconfig = w->config.options->flags.kubeconfig;
    const struct kube_api_config access = {.kubeconfig_file = *kubeconfig ? kubeconfig : NULL};
    struct error reason = ERROR_INIT;
    char text[1024];
    int r = http_client_new(l, &w->client, &reason);
    if (r == -ENOENT)
        return go_without(w, error_text(&reason, text, sizeof(text)));
    if (r == 0)
        r = kube_api_new(l, w->client, &access, &w->api, &reason);
    if (r == 0)
        return start_watch(w, err);
    if (r == -EINVAL && !*kubeconfig)
        return go_without(w, error_text(&reason, text, sizeof(text)));
    if (r == -EINVAL)
        return error_set(err, r, "--kubeconfig (PODGPU_EXPORTER_KUBECONFIG): %s",
                         error_text(&reason, text, sizeof(text)));
    return error_set(err, r, "out of memory");
}

int pod_watch_new(struct loop *l, const struct pod_watch_config *config, struct pod_watch **out,
                  struct error *err)
{
    struct pod_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return error_set(err, -ENOMEM, "out of memory");
    w->config = *config;
    w->scratch = ARENA_INIT(LIMIT_POD_RECORD_BYTES);
    int r = start(w, l, err);
    if (r < 0) {
        pod_watch_free(w);
        return r;
    }
    *out = w;
    return 0;
}

void pod_watch_free(struct pod_watch *w)
{
    if (!w)
        return;
    kube_watch_free(w->watch);
    kube_api_free(w->api);
    http_client_free(w->client);
    arena_deinit(&w->scratch);
    free(w);
}

void pod_watch_get_stats(const struct pod_watch *w, struct pod_watch_stats *out)
{
    struct kube_watch_stats s = {0};
    if (w->watch)
        kube_watch_get_stats(w->watch, &s);
    *out = (struct pod_watch_stats){
        .settled = w->settled,
        .up = w->synced && !w->problem[0],
        .failures = s.failures,
        .skipped = s.skipped + w->unreadable,
        .problem = w->problem,
    };
}
