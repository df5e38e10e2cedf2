// SPDX-License-Identifier: Apache-2.0
// Wiring. A page is published when a sample arrives; the tick publishes when none came for a
// while, so that ages move, jobs change and values that are too old go. The first page with devices
// waits up to HOLD_NS for the kubelet's first answer and, where they are asked for, for the pods'
// labels: a series that starts without its pod and then gains it would be two series.
#include "exporter/app.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "exporter/app_internal.h"
#include "exporter/source_path.h"

#define HOLD_NS (2 * NS_PER_S)
// Between two pages, whatever a source says and how often: half of the shortest sampling period.
#define PUBLISH_LEAST_NS (50 * NS_PER_MS)
// However rarely the GPUs are sampled: a device's next holder must not wait for its name. The
// kubelet takes 100 calls a second.
#define KUBELET_INTERVAL_NS (1 * NS_PER_S)
#define KUBELET_DEADLINE_NS (5 * NS_PER_S)
#define KUBELET_MAX_AGE_NS (60 * NS_PER_S)
#define KUBELET_GRACE_NS (30 * NS_PER_S)

static bool kubelet_answered(const struct app *a)
{
    struct pod_resources_stats s = {0};
    if (a->pods)
        pod_resources_get_stats(a->pods, &s);
    return !a->pods || s.last_ok_ns > 0 || (s.polls > 0 && s.last_result != 0);
}

// True while the first device page is kept back for owners and their labels.
static bool holding(struct app *a)
{
    if (!a->held)
        return false;
    bool answered = kubelet_answered(a) && app_pods_settled(a);
    if (!answered && clock_mono_ns() - a->started_ns < HOLD_NS)
        return true;
    a->held = false;
    return false;
}

// Devices that were asked for and are not there.
static void log_missing_devices(const struct app *a)
{
    static const char *const phrases[RENDER_GROUP_COUNT] = {
        [RENDER_GROUP_GPU] = "not collecting GPU metrics",
        [RENDER_GROUP_SWITCH] = "not collecting NvSwitch metrics",
        [RENDER_GROUP_LINK] = "not collecting metrics of all NvLinks",
        [RENDER_GROUP_CPU] = "not collecting CPU metrics",
        [RENDER_GROUP_CORE] = "not collecting CPU core metrics",
    };
    for (int group = 0; group < RENDER_GROUP_COUNT; group++) {
        const char *missing = publisher_selection_error(a->publisher, (enum render_group)group);
        if (missing[0] != '\0')
            log_warn(phrases[group], LOG_STR("reason", missing), LOG_LIMIT(missing));
    }
}

static void note_published(struct app *a, bool sampled, const struct render_self *self)
{
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        a->sources[i].published = a->sources[i].published || a->sources[i].inventory.samples > 0;
    if (self->page_without_owners)
        log_warn("page is too large with its owners, they are left out", LOG_LIMIT("page"));
    if (sampled)
        log_missing_devices(a);
}

void app_publish(struct app *a)
{
    bool sampled = app_has_samples(a);
    if (sampled && holding(a))
        return;
    if (a->next_config)
        return; // the inventories already hold the next configuration's fields
    struct render_self self;
    uint64_t now_ns = clock_mono_ns();
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        inventory_expire(&a->sources[i].inventory, a->config->period_ns, now_ns);
    int r = app_view_refresh(a);
    if (r == 0) {
        app_ledger_book(a);
        app_self(a, &self);
        r = publisher_publish(a->publisher, a->config, &a->view, &self, now_ns);
    }
    a->published_ns = now_ns;
    if (r < 0) {
        log_error("page could not be made, the one before stays", LOG_ERRNO(r), LOG_LIMIT("page"));
        return;
    }
    note_published(a, sampled, &self);
}

static void on_soon(void *user)
{
    struct app *a = user;
    a->publish_waits = false;
    app_publish(a);
}

void app_publish_soon(struct app *a)
{
    if (a->publish_waits)
        return;
    uint64_t since_ns = clock_mono_ns() - a->published_ns;
    if (since_ns >= PUBLISH_LEAST_NS || !a->soon) {
        app_publish(a);
        return;
    }
    a->publish_waits = true;
    loop_timer_set(a->soon, PUBLISH_LEAST_NS - since_ns, 0);
}

static void on_tick(void *user)
{
    struct app *a = user;
    bool jobs_changed = a->hpc && hpc_refresh(a->hpc, clock_wall_ns());
    if (jobs_changed)
        publisher_set_jobs(a->publisher, hpc_current(a->hpc));
    app_plan_progress(a, false);
    if (app_reload_progress(a))
        return;
    if (jobs_changed || clock_mono_ns() - a->published_ns >= a->tick_ns + a->tick_ns / 2)
        app_publish(a);
}

static void on_signal(void *user, int signo)
{
    struct app *a = user;
    if (signo == SIGHUP) {
        struct error err = ERROR_INIT;
        (void)app_reload(a, "SIGHUP", &err);
        return;
    }
    log_info("received signal", LOG_STR("signal", strsignal(signo)));
    loop_stop(a->loop, 0);
}

static void on_files_changed(void *user)
{
    struct error err = ERROR_INIT;
    (void)app_reload(user, "file changed", &err);
}

// --- kubelet ---

static bool on_wanted(void *user, struct sv resource, struct sv device_id)
{
    const struct app *a = user;
    return publisher_wants(a->publisher, resource, device_id);
}

static void on_pods(void *user, struct pod_devices *devices)
{
    struct app *a = user;
    publisher_set_pods(a->publisher, devices);
    app_publish(a);
}

static int start_kubelet(struct app *a, struct error *err)
{
    if (!a->options->flags.kubernetes)
        return 0;
    const struct pod_resources_config config = {
        .socket_path = a->options->flags.kubelet_socket,
        .interval_ns = KUBELET_INTERVAL_NS,
        .deadline_ns = KUBELET_DEADLINE_NS,
        .max_age_ns = KUBELET_MAX_AGE_NS,
        .restart_grace_ns = KUBELET_GRACE_NS,
        .wanted = on_wanted,
        .changed = on_pods,
        .user = a,
    };
    int r = pod_resources_new(a->loop, &config, &a->pods);
    return r < 0 ? error_set(err, r, "out of memory") : 0;
}

// --- devices of claims ---

static void on_slices_changed(void *user)
{
    app_publish_soon(user);
}

static int start_slice_watch(struct app *a, struct error *err)
{
    if (!a->options->flags.kubernetes || !a->options->flags.enable_dra)
        return 0;
    const struct slice_watch_config config = {
        .options = a->options,
        .dra = publisher_dra(a->publisher),
        .changed = on_slices_changed,
        .user = a,
    };
    return slice_watch_new(a->loop, &config, &a->slices, err);
}

// Where names, UIDs and owners of pods come together; from whom is told later.
static int start_metadata(struct app *a)
{
    if (!a->options->flags.kubernetes)
        return 0;
    int r = pod_metadata_new(a->options, &a->metadata);
    if (r == 0)
        publisher_set_metadata(a->publisher, a->metadata);
    return r;
}

// --- construction ---

static int start_signals(struct app *a, struct error *err)
{
    static const int signos[APP_SIGNALS] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
    for (size_t i = 0; i < APP_SIGNALS; i++) {
        int r = loop_signal_new(a->loop, signos[i], on_signal, a, &a->signals[i]);
        if (r < 0)
            return error_set(err, r, "signal %d cannot be watched: %s", signos[i], strerror(-r));
    }
    return 0;
}

static int start_servers(struct app *a, struct error *err)
{
    a->routes = (struct routes){
        .publisher = a->publisher,
        .openmetrics = a->options->flags.openmetrics,
        .conditions = app_conditions,
        .user = a,
    };
    const struct http_server_config http = {
        .address = a->options->flags.address,
        .web_config_file = a->options->flags.web_config_file,
        .systemd_socket = a->options->flags.systemd_socket,
        .handle = routes_handle,
        .user = &a->routes,
    };
    int r = http_server_new(a->loop, &http, &a->server, err);
    if (r < 0)
        return r;
    log_info("listening", LOG_STR("address", http.address),
             LOG_U64("port", http_server_port(a->server)),
             LOG_BOOL("web_config", http.web_config_file && http.web_config_file[0]));
    if (a->options->flags.admin_address[0] == '\0')
        return 0;
    const struct admin_config admin = {a->options->flags.admin_address, app_on_admin, a};
    r = admin_new(a->loop, &admin, &a->admin, err);
    if (r == 0)
        log_info("listening for control requests", LOG_STR("address", admin.address),
                 LOG_U64("port", admin_port(a->admin)));
    return r;
}

// dcgm-exporter takes such a range without a word, and so it is no error.
static void log_reversed_range(const char *flag, const struct selection *s)
{
    if (!s->has_reversed)
        return;
    char found[32], meant[32];
    (void)snprintf(found, sizeof(found), "%u-%u", s->reversed_from, s->reversed_to);
    (void)snprintf(meant, sizeof(meant), "%u-%u", s->reversed_to, s->reversed_from);
    log_warn("range ends before it begins and selects nothing", LOG_STR("flag", flag),
             LOG_STR("found", found), LOG_STR("meant", meant));
}

static void log_inert_flags(const struct exporter_options *o)
{
    for (size_t i = 0; i < o->unavailable_count; i++)
        log_warn("flag is accepted but has no effect", LOG_STR("flag", o->unavailable[i]));
    log_reversed_range("devices", &o->gpus);
    log_reversed_range("switch-devices", &o->switches);
    log_reversed_range("cpu-devices", &o->cpus);
    if (o->ignored_word)
        log_warn("words that are no flags end the command line, what follows is ignored",
                 LOG_STR("first", o->ignored_word));
    if (o->flags.remote_hostengine_given && o->flags.remote_hostengine[0] == '\0' &&
        o->source != SOURCE_CHOICE_NVML)
        log_info("no host engine is named, localhost:5555 is used",
                 LOG_STR("flag", "remote-hostengine-info"));
    if (o->collect_interval_raised)
        log_warn("collect interval is too short, 100 ms is used");
}

static int start_watching(struct app *a, struct error *err)
{
    int r = file_watch_new(a->loop, on_files_changed, a, &a->watch);
    if (r < 0)
        return error_set(err, r, "files cannot be watched: %s", strerror(-r));
    const char *const files[] = {a->config->counters_file, a->config->config_file};
    r = file_watch_set(a->watch, files, ARRAY_SIZE(files));
    if (r == 0)
        r = loop_timer_new(a->loop, on_tick, a, &a->tick);
    if (r == 0)
        r = loop_timer_new(a->loop, on_soon, a, &a->soon);
    if (r < 0)
        return error_set(err, r, "out of memory");
    uint64_t period_ns = a->config->period_ns[FIELD_CLASS_FAST];
    a->tick_ns = period_ns < NS_PER_S ? period_ns : NS_PER_S;
    loop_timer_every(a->tick, a->tick_ns);
    return 0;
}

// A helper that cannot even be started once is a mistake of whoever installed it.
static int start_sources(struct app *a, struct error *err)
{
    int r = app_control_init(a);
    if (r == 0)
        r = app_watch(a, a->config);
    if (r < 0)
        return error_set(err, r, "out of memory");
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++) {
        struct app_source *s = &a->sources[i];
        if (!app_source_is_wanted(s) || s->process)
            continue;
        r = app_source_start(s, err); // for its message
        if (r == 0 && app_watch(a, a->config) < 0)
            r = error_set(err, -ENOMEM, "out of memory");
        if (r < 0)
            return r;
    }
    return 0;
}

static int start_counting(struct app *a)
{
    const struct exporter_flags *f = &a->options->flags;
    int r = exp_counts_new(&a->exp);
    if (r < 0)
        return r;
    exp_counts_set_windows(a->exp, (uint64_t)f->xid_window_ms * NS_PER_MS,
                           (uint64_t)f->clock_window_ms * NS_PER_MS);
    publisher_set_exp(a->publisher, a->exp);
    return 0;
}

static int start(struct app *a, struct error *err)
{
    int r = source_path_find(a->options, a->source_path, sizeof(a->source_path), err);
    if (r < 0)
        return r;
    r = loop_new(&a->loop);
    if (r == 0)
        r = publisher_new(a->options, &a->publisher);
    if (r == 0)
        r = start_counting(a);
    if (r == 0)
        r = start_metadata(a);
    if (r == 0)
        r = app_ledger_init(a);
    if (r < 0)
        return error_set(err, r, "start failed: %s", strerror(-r));
    r = start_signals(a, err);
    if (r == 0)
        r = start_servers(a, err);
    if (r == 0)
        r = start_sources(a, err);
    if (r == 0)
        r = start_kubelet(a, err);
    if (r == 0)
        r = app_pods_start(a, err);
    if (r == 0)
        r = start_slice_watch(a, err);
    if (r == 0)
        r = start_watching(a, err);
    return r;
}

int app_new(const struct exporter_options *options, struct exporter_config *config,
            struct app **out, struct error *err)
{
    struct app *a = calloc(1, sizeof(*a));
    if (!a)
        return error_set(err, -ENOMEM, "out of memory");
    a->options = options;
    a->config = exporter_config_ref(config);
    a->started_ns = clock_mono_ns();
    a->started_wall_ns = clock_wall_ns();
    a->config_ok = true;
    a->config_ok_wall_ns = a->started_wall_ns;
    a->held = options->flags.kubernetes;
    app_source_init(a);
    log_inert_flags(options);
    if (options->flags.hpc_job_mapping_dir[0] != '\0') {
        int r = hpc_new(options->flags.hpc_job_mapping_dir, &a->hpc);
        if (r < 0) {
            app_free(a);
            return error_set(err, r, "out of memory");
        }
        (void)hpc_refresh(a->hpc, clock_wall_ns()); // the first page takes it below
    }
    int r = start(a, err);
    if (r < 0) {
        app_free(a);
        return r;
    }
    if (a->hpc)
        publisher_set_jobs(a->publisher, hpc_current(a->hpc));
    app_publish(a);
    *out = a;
    return 0;
}

int app_run(struct app *a)
{
    int status = loop_run(a->loop);
    process_hold_signals();
    log_info("shutdown complete");
    return status;
}

void app_free(struct app *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        source_process_free(a->sources[i].process);
    pod_resources_free(a->pods);
    app_pods_stop(a);
    slice_watch_free(a->slices);
    admin_free(a->admin);
    http_server_free(a->server);
    file_watch_free(a->watch);
    loop_timer_free(a->tick);
    loop_timer_free(a->soon);
    loop_timer_free(a->control_late);
    for (size_t i = 0; i < APP_SIGNALS; i++)
        loop_signal_free(a->signals[i]);
    app_ledger_deinit(a);
    publisher_free(a->publisher);
    exp_counts_free(a->exp);
    pod_metadata_free(a->metadata);
    hpc_free(a->hpc);
    loop_free(a->loop);
    app_source_deinit(a);
    free(a->reasons_logged);
    exporter_config_unref(a->next_config);
    exporter_config_unref(a->config);
    free(a);
}
