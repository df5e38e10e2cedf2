// SPDX-License-Identifier: Apache-2.0
// The app's own state, shared by its files: app.c (wiring), app_source.c (frames to inventory),
// app_plan.c (which helpers run and what they watch), app_control.c (requests), app_reload.c (a new
// configuration beside the old), app_missing.c (fields that are not to be had), app_ledger.c
// (what containers used), app_pods.c (who knows pods), app_self.c (numbers and readiness about
// ourselves).
#pragma once

#include "exporter/app.h"
#include "exporter/hpc.h"
#include "exporter/pod_watch.h"
#include "kube/pod_logs.h"
#include "kube/pods_api.h"
#include "exporter/inventory.h"
#include "exporter/publish.h"
#include "io/file_watch.h"
#include "exporter/admin.h"
#include "exporter/routes.h"
#include "exporter/source_plan.h"
#include "exporter/source_process.h"
#include "exporter/slice_watch.h"
#include "io/http_server.h"
#include "kube/pod_resources.h"

#define APP_SIGNALS 4

// One source: its helper and what that has told.
struct app_source {
    struct app *app;
    enum device_source which;
    struct source_process *process; // NULL: not wanted, or it could not be started
    struct inventory inventory;
    uint32_t watch_id;         // of the last WATCH
    uint32_t sampled_watch_id; // of the last sample
    size_t watched_fields;
    uint64_t started_ns; // the helper, the first time
    bool published;      // there has been a page with its samples
    struct frame_state logged_state;
};

struct app {
    const struct exporter_options *options;
    struct loop *loop;
    struct exporter_config *config;      // in force
    struct exporter_config *next_config; // checked, waiting for its first sample
    uint64_t next_deadline_ns;           // when next_config is taken without one

    struct app_source sources[DEVICE_SOURCE_COUNT];
    struct device_view view;
    struct exp_counts *exp;
    struct source_plan plan; // in force: what the helpers were told
    bool plan_untold;        // somebody could not be told of it
    uint64_t plan_due_ns;    // when to look again although nothing has happened
    bool released;           // by request: no helper runs
    // A command that DCGM's helper was given and an admin client waits for
    uint32_t control_number;
    bool control_waits;
    struct loop_timer *control_late;

    struct pod_resources *pods;    // NULL without -k
    struct pod_metadata *metadata; // NULL without -k, as are its sources
    struct pods_api *pods_api;
    struct pod_logs *pod_logs;
    struct loop_timer *pod_logs_timer;
    struct pod_watch *pod_watch; // NULL unless something is asked for that the API server knows
    struct slice_watch *slices;  // NULL without --kubernetes-enable-dra
    struct app_ledger *ledger;   // NULL with --podgpu-families=none
    struct hpc *hpc;             // NULL without a directory
    struct publisher *publisher;
    struct routes routes;
    struct http_server *server;
    struct admin *admin; // NULL without --admin-address
    struct file_watch *watch;
    struct loop_timer *tick;
    struct loop_timer *soon;
    bool publish_waits; // for soon
    uint64_t tick_ns;   // the sampling period, but a second at most
    struct loop_signal *signals[APP_SIGNALS];

    char source_path[4096];
    uint64_t started_ns, started_wall_ns;
    uint64_t published_ns;
    bool held; // first device page waits for the kubelet and the pods' labels
    uint64_t reloads, reload_failures, config_ok_wall_ns;
    bool config_ok;
    uint64_t reasons_layout; // of the view for which missing fields were logged last
    uint64_t reasons_due_ns; // when to look again although it is still the same
    // One a counter of the config in force: enum frame_status + 1 that was logged last.
    uint8_t *reasons_logged;
};

static inline const char *app_source_name(const struct app_source *s)
{
    return s->which == DEVICE_SOURCE_NVML ? "nvml" : "dcgm";
}

static inline bool app_source_is_wanted(const struct app_source *s)
{
    return s->which == DEVICE_SOURCE_NVML ? s->app->plan.nvml : s->app->plan.dcgm;
}

// app_source.c
void app_source_init(struct app *a);
void app_source_deinit(struct app *a);
// Starts the helper, with the plan's engine. 0; negative errno with *err.
int must_use app_source_start(struct app_source *s, struct error *err);
void app_source_stop(struct app_source *s);
bool app_has_samples(const struct app *a);

// app_plan.c
int must_use app_view_refresh(struct app *a);
// How often NVML's source is asked for USAGE.
uint64_t app_usage_period_ns(const struct exporter_config *config);
// Makes the plan for a configuration and tells all sources what to watch. 0, -ENOMEM.
int must_use app_watch(struct app *a, const struct exporter_config *config);
// After news of the devices: tells what has changed.
void app_plan_progress(struct app *a, bool at_once);

// app_control.c
int app_on_admin(void *user, enum admin_command command, struct error *err);
int must_use app_control_init(struct app *a);
void app_control_done(struct app *a, const struct frame_control_done *done);
// The helper that was told is gone.
void app_control_lost(struct app *a);

// app_ledger.c
int must_use app_ledger_init(struct app *a); // needs publisher and metadata
void app_ledger_deinit(struct app *a);
// A frame of a source: what of it the ledger wants is taken and booked.
void app_ledger_take(struct app_source *s, const struct frame *frame);
// Brings devices, holders and bookings up to date, as before a page.
void app_ledger_book(struct app *a);
// The source's helper is gone.
void app_ledger_lost(struct app_source *s);
void app_ledger_self(const struct app *a, struct render_self_ledger *out);
bool app_ledger_condition(const struct app *a, struct ready_condition *out);

// app_missing.c
void app_log_missing(struct app *a);

// app.c
void app_publish(struct app *a);
// The same, but a page has a moment of its own: what comes in a burst makes one together.
void app_publish_soon(struct app *a);

// app_reload.c
// Checks and stages a new configuration. 0; negative errno with *err and the old one in force.
int app_reload(struct app *a, const char *why, struct error *err);
// After a sample or tick: takes the staged one when it can. True: it did, and published a page.
bool app_reload_progress(struct app *a);

// app_pods.c: who knows the pods' UIDs, labels and owners
int must_use app_pods_start(struct app *a, struct error *err);
void app_pods_stop(struct app *a);
// A pod that nobody has named yet was seen.
void app_pods_kick(struct app *a);
// Whoever is asked has told what it knows, or it is known that it won't.
bool app_pods_settled(const struct app *a);
void app_pods_self(const struct app *a, struct render_self_metadata *out);

// app_self.c
void app_self(const struct app *a, struct render_self *out);
size_t app_conditions(void *user, struct ready_condition *out);
