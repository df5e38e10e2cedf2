// SPDX-License-Identifier: Apache-2.0
// Where the names of pods come from. The kubelet's Pods API and the log files' names are used
// wherever they are there, and nothing is said where they are not; the API server is asked when a
// flag asks for what it knows. All go on in the background; a page shows what is known.
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/app_internal.h"

#define PODS_API_INTERVAL_NS (10 * NS_PER_S)
#define PODS_API_DEADLINE_NS (5 * NS_PER_S)
#define PODS_API_MAX_AGE_NS (60 * NS_PER_S)
#define LOGS_INTERVAL_NS (1 * NS_PER_S)

// --- The kubelet's Pods API ---

static void on_begin(void *user)
{
    const struct app *a = user;
    pod_metadata_begin(a->metadata, POD_METADATA_KUBELET);
}

static int on_pod(void *user, const struct pod_record *pod)
{
    const struct app *a = user;
    return pod_metadata_put(a->metadata, POD_METADATA_KUBELET, pod);
}

static void on_end(void *user)
{
    struct app *a = user;
    pod_metadata_end(a->metadata, POD_METADATA_KUBELET);
    if (a->held)
        app_publish_soon(a);
}

static void on_lost(void *user)
{
    const struct app *a = user;
    pod_metadata_forget(a->metadata, POD_METADATA_KUBELET);
}

static int start_pods_api(struct app *a)
{
    const struct pods_api_config config = {
        .socket_path = a->options->flags.pods_api_socket,
        .interval_ns = PODS_API_INTERVAL_NS,
        .deadline_ns = PODS_API_DEADLINE_NS,
        .max_age_ns = PODS_API_MAX_AGE_NS,
        .begin = on_begin,
        .pod = on_pod,
        .end = on_end,
        .lost = on_lost,
        .user = a,
    };
    return pods_api_new(a->loop, &config, &a->pods_api);
}

// --- Names of log files ---

static void on_logs_begin(void *user)
{
    const struct app *a = user;
    pod_metadata_begin(a->metadata, POD_METADATA_LOGS);
}

static int on_logged_pod(void *user, const struct pod_record *pod)
{
    const struct app *a = user;
    return pod_metadata_put(a->metadata, POD_METADATA_LOGS, pod);
}

static void refresh_logs(void *user)
{
    struct app *a = user;
    const struct pod_logs_target target = {on_logs_begin, on_logged_pod, a};
    if (pod_logs_refresh(a->pod_logs, clock_mono_ns(), &target))
        pod_metadata_end(a->metadata, POD_METADATA_LOGS);
}

static int start_logs(struct app *a)
{
    int r = pod_logs_new(a->options->flags.pod_log_path, &a->pod_logs);
    if (r == 0)
        r = loop_timer_new(a->loop, refresh_logs, a, &a->pod_logs_timer);
    if (r < 0)
        return r;
    refresh_logs(a);
    loop_timer_every(a->pod_logs_timer, LOGS_INTERVAL_NS);
    return 0;
}

// --- The API server ---

static void on_settled(void *user)
{
    struct app *a = user;
    if (a->held)
        app_publish_soon(a);
}

static int start_watch(struct app *a, struct error *err)
{
    if (!exporter_wants_pod_metadata(a->options))
        return 0;
    const struct pod_watch_config config = {
        .options = a->options,
        .metadata = a->metadata,
        .settled = on_settled,
        .user = a,
    };
    return pod_watch_new(a->loop, &config, &a->pod_watch, err);
}

// --- Together ---

int app_pods_start(struct app *a, struct error *err)
{
    if (!a->options->flags.kubernetes)
        return 0;
    int r = start_logs(a);
    if (r == 0)
        r = start_pods_api(a);
    if (r < 0)
        return error_set(err, r, "out of memory");
    return start_watch(a, err);
}

void app_pods_stop(struct app *a)
{
    pod_watch_free(a->pod_watch);
    pods_api_free(a->pods_api);
    loop_timer_free(a->pod_logs_timer);
    pod_logs_free(a->pod_logs);
}

void app_pods_kick(struct app *a)
{
    if (a->pods_api)
        pods_api_kick(a->pods_api);
}

bool app_pods_settled(const struct app *a)
{
    struct pod_watch_stats watch = {.settled = true};
    struct pods_api_stats api = {0};
    if (a->pod_watch)
        pod_watch_get_stats(a->pod_watch, &watch);
    if (a->pods_api)
        pods_api_get_stats(a->pods_api, &api);
    return watch.settled && (!api.socket_seen || api.up || api.failures > 0);
}

static void fill_watch(const struct app *a, struct render_self_metadata *out)
{
    struct pod_watch_stats w;
    if (!a->pod_watch)
        return;
    pod_watch_get_stats(a->pod_watch, &w);
    out->on = true;
    out->up = w.up;
    out->failures = w.failures;
    out->skipped += w.skipped;
}

void app_pods_self(const struct app *a, struct render_self_metadata *out)
{
    struct pod_metadata_stats m;
    struct pods_api_stats api;
    *out = (struct render_self_metadata){0};
    if (!a->metadata)
        return;
    pod_metadata_get_stats(a->metadata, &m);
    pods_api_get_stats(a->pods_api, &api);
    *out = (struct render_self_metadata){
        .sources_on = true,
        .kubelet_up = api.up,
        .logs_up = pod_logs_is_there(a->pod_logs),
        .pods = m.pods,
        .skipped = m.refused + api.skipped,
        .same_name = m.same_name,
        .over_budget = m.over_budget,
    };
    fill_watch(a, out);
}
