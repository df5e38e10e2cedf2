// SPDX-License-Identifier: Apache-2.0
// The ledger's wiring: frames, holders and time go in as they come, and it is booked before each
// page. Facts are only taken once the ledger knows the devices and holders that they are about, so
// both are brought up to date first.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "exporter/app_internal.h"
#include "exporter/usage.h"
#include "kube/process_map.h"

#define LOOK_NS (5 * NS_PER_S) // a process that the driver goes on listing

struct app_ledger {
    struct ledger *ledger;
    struct usage *usage;
    struct process_map *processes; // NULL: pids mean nothing here
    bool devices_known, owners_known;
    uint64_t layout;         // of the view, devices were told for
    uint64_t owners_version; // told last
    const struct pod_devices *rows;
    uint64_t owners_ns; // they were told for
    uint64_t now_ns;    // of the frame being taken: a pid is looked at once in it
    bool view_logged;
};

static void log_failure(int r)
{
    if (r < 0)
        log_error("out of memory, use of gpus is not booked for now", LOG_LIMIT("ledger"));
}

// --- Construction ---

static bool find_process(void *user, uint32_t pid, struct process_identity *out)
{
    const struct app_ledger *g = user;
    return process_map_find(g->processes, pid, g->now_ns, out);
}

static int make(struct app_ledger *g, const struct app *a)
{
    const struct exporter_options *o = a->options;
    const struct ledger_options ledger = {.linger_ns = o->flags.ended_pod_linger_ns};
    int r = ledger_new(&ledger, &g->ledger);
    if (r == 0 && o->flags.kubernetes && o->flags.proc_path[0] != '\0')
        r = process_map_new(o->flags.proc_path, &g->processes);
    if (r < 0)
        return r;
    // In a PID namespace of our own a driver lists nobody, which is not to pass for an idle GPU.
    bool pids = g->processes && process_map_view(g->processes) != PROCESS_VIEW_PRIVATE;
    const struct usage_config usage = {
        .ledger = g->ledger,
        .metadata = a->metadata,
        .find = pids ? find_process : NULL,
        .user = g,
        .look_ns = LOOK_NS,
        .own_namespace = o->own_namespace,
        .own_pod = o->own_pod,
    };
    return usage_new(&usage, &g->usage);
}

int app_ledger_init(struct app *a)
{
    if (a->options->podgpu_families == PODGPU_FAMILIES_NONE)
        return 0;
    a->ledger = calloc(1, sizeof(*a->ledger));
    if (!a->ledger)
        return -ENOMEM;
    int r = make(a->ledger, a);
    if (r < 0)
        return r;
    publisher_set_ledger(a->publisher, a->ledger->ledger);
    publisher_set_usage(a->publisher, a->ledger->usage);
    return 0;
}

void app_ledger_deinit(struct app *a)
{
    struct app_ledger *g = TAKE_PTR(a->ledger);
    if (!g)
        return;
    usage_free(g->usage);
    ledger_free(g->ledger);
    process_map_free(g->processes);
    free(g);
}

// --- Devices ---

static bool is_up(const struct device_view *view, const char *uuid)
{
    const struct inventory *inv = view->primary;
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct inventory_entity *e = &inv->entities[i];
        if (inventory_is_of_gpu(e) && strcmp(e->info.uuid, uuid) == 0)
            return e->up;
    }
    return false;
}

// Nothing is booked from the last answer of a device that is lost to the first after it.
static void tell_gaps(const struct app_ledger *g, const struct device_view *view, uint64_t now_ns)
{
    for (size_t i = 0; i < ledger_device_count(g->ledger); i++) {
        const struct ledger_device *d = ledger_device_at(g->ledger, i);
        if (d->present && !is_up(view, d->uuid))
            ledger_gap(g->ledger, (uint32_t)i, now_ns);
    }
}

static int refresh_devices(struct app *a, uint64_t now_ns)
{
    struct app_ledger *g = a->ledger;
    if (g->devices_known && g->layout == a->view.layout)
        return 0;
    int r = usage_set_devices(g->usage, &a->view, now_ns);
    if (r < 0)
        return r;
    tell_gaps(g, &a->view, now_ns);
    g->devices_known = true;
    g->owners_known = false; // they are named by place
    g->layout = a->view.layout;
    return 0;
}

// --- Holders ---

// A list of holders is of the moment at which the kubelet gave it.
static uint64_t time_of_owners(const struct app *a, const struct pod_devices *rows, uint64_t now_ns)
{
    struct pod_resources_stats s = {0};
    if (a->pods)
        pod_resources_get_stats(a->pods, &s);
    bool answered = rows && rows != a->ledger->rows && s.last_ok_ns > 0 && s.last_ok_ns < now_ns;
    uint64_t at_ns = answered ? s.last_ok_ns : now_ns;
    return at_ns > a->ledger->owners_ns ? at_ns : a->ledger->owners_ns;
}

// What the plugins offer comes first: holders are told with it.
static void tell_allocatable(const struct app *a)
{
    struct pod_resources_stats s = {0};
    if (a->pods)
        pod_resources_get_stats(a->pods, &s);
    publisher_set_allocatable(a->publisher, s.allocatable, s.allocatable_version);
}

static int refresh_owners(struct app *a, uint64_t now_ns)
{
    struct app_ledger *g = a->ledger;
    struct publisher_owners o;
    int r = publisher_get_owners(a->publisher, &a->view, &o);
    if (r < 0 || (g->owners_known && o.version == g->owners_version))
        return r;
    uint64_t at_ns = time_of_owners(a, o.rows, now_ns);
    r = usage_set_owners(g->usage, &a->view, o.rows, o.holders, o.offered, at_ns);
    if (r < 0)
        return r;
    g->owners_known = true;
    g->owners_version = o.version;
    g->owners_ns = at_ns;
    g->rows = o.rows;
    return 0;
}

static int refresh(struct app *a, uint64_t now_ns)
{
    tell_allocatable(a);
    int r = app_view_refresh(a);
    if (r == 0)
        r = refresh_devices(a, now_ns);
    if (r == 0)
        r = refresh_owners(a, now_ns);
    return r;
}

// --- Facts ---

static void log_view(struct app_ledger *g)
{
    if (!g->processes || g->view_logged)
        return;
    enum process_view view = process_map_view(g->processes);
    g->view_logged = true;
    if (view == PROCESS_VIEW_PRIVATE)
        log_warn("processes of other pods cannot be seen: what pods that share a gpu do is not "
                 "known; set hostPID in the pod's spec, or --proc-path");
}

void app_ledger_take(struct app_source *s, const struct frame *frame)
{
    struct app *a = s->app;
    struct app_ledger *g = a->ledger;
    bool fits = frame->type == FRAME_USAGE ||
                (frame->type == FRAME_SAMPLE && s->which == DEVICE_SOURCE_DCGM);
    if (!g || !fits)
        return;
    uint64_t now_ns = g->now_ns = clock_mono_ns();
    // The clock is one for all processes: a frame of the future is nonsense, and what it says of
    // holders would outlive it.
    if (frame->type == FRAME_USAGE && frame->as.usage.head->ended_ns > now_ns)
        return;
    int r = refresh(a, now_ns);
    if (r == 0)
        r = usage_take(g->usage, &a->view, s->which, frame);
    if (r == 0)
        r = ledger_book(g->ledger, now_ns);
    if (g->processes)
        process_map_sweep(g->processes, now_ns);
    log_failure(r);
    log_view(g);
    struct usage_stats u;
    usage_get_stats(g->usage, &u);
    if (u.unnamed_pods > 0)
        app_pods_kick(a);
}

void app_ledger_book(struct app *a)
{
    struct app_ledger *g = a->ledger;
    if (!g)
        return;
    uint64_t now_ns = clock_mono_ns();
    int r = refresh(a, now_ns);
    if (r == 0)
        r = ledger_book(g->ledger, now_ns);
    log_failure(r);
}

void app_ledger_lost(struct app_source *s)
{
    struct app_ledger *g = s->app->ledger;
    if (!g || s->which != DEVICE_SOURCE_NVML)
        return;
    uint64_t now_ns = clock_mono_ns();
    for (size_t i = 0; i < ledger_device_count(g->ledger); i++)
        if (ledger_device_at(g->ledger, i)->present)
            ledger_gap(g->ledger, (uint32_t)i, now_ns);
}

// --- About itself ---

void app_ledger_self(const struct app *a, struct render_self_ledger *out)
{
    const struct app_ledger *g = a->ledger;
    if (!g)
        return;
    struct ledger_stats l;
    struct usage_stats u;
    ledger_get_stats(g->ledger, &l);
    usage_get_stats(g->usage, &u);
    *out = (struct render_self_ledger){
        .on = true,
        .processes = g->processes != NULL,
        .intervals = l.intervals,
        .scaled = l.scaled,
        .gaps = l.gaps,
        .holder_changes = l.holder_changes,
        .refused = l.refused,
        .early_ended = l.early_ended,
        .pod_processes = u.processes - u.host_processes,
        .host_processes = u.host_processes,
        .unnamed_pods = u.unnamed_pods,
        .disagreements = u.disagreements,
        .view = g->processes ? process_view_text(process_map_view(g->processes)) : NULL,
    };
}

bool app_ledger_condition(const struct app *a, struct ready_condition *out)
{
    const struct app_ledger *g = a->ledger;
    if (!g || !g->processes)
        return false;
    static const char *const texts[] = {
        [PROCESS_VIEW_HOST] = "those of all pods can be seen",
        [PROCESS_VIEW_PRIVATE] =
            ("those of other pods cannot be seen, so containers that share a gpu have no busy time "
             "and memory: hostPID is missing"),
        [PROCESS_VIEW_UNKNOWN] = "pids may be those of another node",
    };
    out->name = "processes";
    out->ok = true; // less is known, and all that is shown is true
    sv_copy(out->text, sizeof(out->text), sv_from(texts[process_map_view(g->processes)]));
    return true;
}
