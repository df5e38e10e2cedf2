// SPDX-License-Identifier: Apache-2.0
// How it works. The group's versions are asked for once and the best one is watched from then on;
// the selectors spec.nodeName and spec.driver leave a few slices of one node. Trouble is told at
// level info: names of devices do nearly as well.
#include "exporter/slice_watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "kube/api.h"

#define GROUP "resource.k8s.io"

struct slice_watch {
    struct slice_watch_config config;
    struct http_client *client;
    struct kube_api *api;
    struct kube_group *group;
    struct kube_watch *watch; // NULL until the version is known
    const char *version;
    bool synced;
    uint64_t told_version; // of the dra
    char problem[640];
};

static void tell_change(struct slice_watch *w)
{
    uint64_t version = dra_version(w->config.dra);
    if (version == w->told_version)
        return;
    w->told_version = version;
    if (w->config.changed)
        w->config.changed(w->config.user);
}

static int on_object(void *user, struct sv key, const struct json_node *object)
{
    struct slice_watch *w = user;
    int r = dra_put(w->config.dra, key, object);
    tell_change(w);
    return r == -ENOMEM ? r : 0; // what is no slice is counted there
}

static void on_deleted(void *user, struct sv key)
{
    struct slice_watch *w = user;
    dra_delete(w->config.dra, key);
    tell_change(w);
}

static void on_synced(void *user)
{
    struct slice_watch *w = user;
    struct dra_stats s;
    dra_get_stats(w->config.dra, &s);
    if (!w->synced)
        log_info("ResourceSlices are known", LOG_STR("server", kube_api_server(w->api)),
                 LOG_STR("version", w->version), LOG_U64("slices", s.slices),
                 LOG_U64("devices", s.devices));
    w->synced = true;
}

static void on_problem(void *user, const char *text)
{
    struct slice_watch *w = user;
    sv_copy(w->problem, sizeof(w->problem), sv_from(text ? text : ""));
    if (text)
        log_info(w->synced ? "ResourceSlices cannot be read, what they said stays"
                           : "ResourceSlices cannot be read, devices of claims are told by names",
                 LOG_STR("reason", text));
    else
        log_info("ResourceSlices can be read again", LOG_STR("server", kube_api_server(w->api)));
}

static void on_chosen(void *user, const char *version)
{
    struct slice_watch *w = user;
    char selector[sizeof("spec.nodeName=,spec.driver=" DRA_DRIVER) +
                  sizeof(w->config.options->node_name)];
    (void)snprintf(selector, sizeof(selector), "spec.nodeName=%s,spec.driver=%s",
                   w->config.options->node_name, DRA_DRIVER);
    const struct kube_watch_config config = {
        .resource = {GROUP, version, "resourceslices"},
        .field_selector = selector,
        .object = on_object,
        .deleted = on_deleted,
        .synced = on_synced,
        .problem = on_problem,
        .user = w,
    };
    w->version = version;
    w->problem[0] = '\0';
    if (kube_watch_new(w->api, &config, &w->watch) < 0)
        on_problem(w, "out of memory");
}

static int start_group(struct slice_watch *w, struct error *err)
{
    static const char *const versions[] = {"v1", "v1beta2", "v1beta1", NULL};
    const struct kube_group_config config = {
        .group = GROUP,
        .versions = versions,
        .chosen = on_chosen,
        .problem = on_problem,
        .user = w,
    };
    int r = kube_group_new(w->api, &config, &w->group);
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

static int start(struct slice_watch *w, struct loop *l, struct error *err)
{
    const char *kubeconfig = w->config.options->flags.kubeconfig;
    const struct kube_api_config access = {.kubeconfig_file = *kubeconfig ? kubeconfig : NULL};
    struct error reason = ERROR_INIT;
    char text[1024];
    if (w->config.options->node_name[0] == '\0') {
        on_problem(w, "NODE_NAME is not set: set it to the node's name, by a fieldRef on "
                      "spec.nodeName");
        return 0;
    }
    int r = http_client_new(l, &w->client, &reason);
    bool without = r == -ENOENT;
    if (r == 0) {
        r = kube_api_new(l, w->client, &access, &w->api, &reason);
        without = r == -EINVAL && !*kubeconfig;
    }
    if (r == 0)
        return start_group(w, err);
    if (without) {
        on_problem(w, error_text(&reason, text, sizeof(text)));
        return 0;
    }
    if (r == -EINVAL)
        return error_set(err, r, "--kubeconfig (PODGPU_EXPORTER_KUBECONFIG): %s",
                         error_text(&reason, text, sizeof(text)));
    return error_set(err, r, "out of memory");
}

int slice_watch_new(struct loop *l, const struct slice_watch_config *config,
                    struct slice_watch **out, struct error *err)
{
    struct slice_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return error_set(err, -ENOMEM, "out of memory");
    w->config = *config;
    w->version = "";
    w->told_version = dra_version(config->dra);
    int r = start(w, l, err);
    if (r < 0) {
        slice_watch_free(w);
        return r;
    }
    *out = w;
    return 0;
}

void slice_watch_free(struct slice_watch *w)
{
    if (!w)
        return;
    kube_watch_free(w->watch);
    kube_group_free(w->group);
    kube_api_free(w->api);
    http_client_free(w->client);
    free(w);
}

void slice_watch_get_stats(const struct slice_watch *w, struct slice_watch_stats *out)
{
    struct kube_watch_stats s = {0};
    if (w->watch)
        kube_watch_get_stats(w->watch, &s);
    *out = (struct slice_watch_stats){
        .up = w->synced && !w->problem[0],
        .failures = s.failures,
        .version = w->version,
        .problem = w->problem,
    };
}
