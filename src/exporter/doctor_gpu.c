// SPDX-License-Identifier: Apache-2.0
// Driver, devices, profiling, DCGM, XIDs. What a driver's state means: nvml.h, nvmlReturn_t; the
// switch that keeps profiling to administrators: developer.nvidia.com/ERR_NVGPUCTRPERM.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/limits.h"
#include "exporter/doctor_internal.h"
#include "exporter/doctor_read.h"

#define PROF_FIRST 1001
#define PROF_END 1100

// --- The driver ---

static const struct doctor_fault no_library = {
    DOCTOR_FAIL, "all GPU metrics",
    "let the NVIDIA runtime mount the driver (runtimeClassName: nvidia, "
    "NVIDIA_VISIBLE_DEVICES=all, "
    "NVIDIA_DRIVER_CAPABILITIES=utility), or give --nvml-library"};
static const struct doctor_fault no_driver = {
    DOCTOR_FAIL, "all GPU metrics",
    "load the kernel driver (nvidia-smi on the node), and give the container its device files"};
static const struct doctor_fault no_permission = {
    DOCTOR_FAIL, "all GPU metrics",
    "give the container /dev/nvidiactl and /dev/nvidia* (NVIDIA_VISIBLE_DEVICES=all, "
    "runtimeClassName: "
    "nvidia, or the device plugin's privileged mode)"};
static const struct doctor_fault mismatch = {
    DOCTOR_FAIL, "all GPU metrics",
    "reboot the node or reload the driver after its upgrade, and restart this pod, which holds the "
    "old library"};
static const struct doctor_fault driver_fails = {DOCTOR_FAIL, "all GPU metrics",
                                                 "look at the kernel log (dmesg) for NVRM lines"};

static const struct doctor_fault *fault_of_state(enum frame_state_code code)
{
    switch (code) {
    case FRAME_STATE_NO_LIBRARY:
        return &no_library;
    case FRAME_STATE_NO_DRIVER:
        return &no_driver;
    case FRAME_STATE_NO_PERMISSION:
        return &no_permission;
    case FRAME_STATE_MISMATCH:
        return &mismatch;
    case FRAME_STATE_READY:
    case FRAME_STATE_FAILED:
    case FRAME_STATE_END:
        break;
    }
    return &driver_fails;
}

static void judge_driver(struct doctor *d)
{
    static const char what[] = "driver";
    const struct doctor_source *s = &d->sources[DEVICE_SOURCE_NVML];
    const struct frame_state *state = doctor_state(d, DEVICE_SOURCE_NVML);
    if (d->options->source == SOURCE_CHOICE_DCGM)
        doctor_ok(d, what, "not asked: --source=dcgm");
    else if (d->source_error[0] || s->start_error[0])
        doctor_fault(d, what,
                     &(struct doctor_fault){DOCTOR_FAIL, "all GPU metrics",
                                            "install podgpu-source beside podgpu-exporter, or give "
                                            "--source-path"},
                     "%s", d->source_error[0] ? d->source_error : s->start_error);
    else if (s->driver_hung || (!state && s->trouble[0]))
        doctor_fault(d, what, &driver_fails, "it does not answer: %s%s%s", s->trouble,
                     s->call[0] ? " in " : "", s->call);
    else if (!state)
        doctor_fault(d, what, &driver_fails, "%s",
                     d->config ? "no word of it in time" : "not asked without a configuration");
    else if (state->code == FRAME_STATE_READY)
        doctor_ok(d, what, "%s, driver %s, NVML %s", state->library_path, state->driver_version,
                  state->library_version);
    else
        doctor_fault(d, what, fault_of_state((enum frame_state_code)state->code),
                     "%s: %s (library: %s)", frame_state_text(state->code), state->text,
                     state->library_path[0] ? state->library_path : "none");
}

static void judge_device_files(struct doctor *d)
{
    static const char what[] = "device files";
    size_t there = 0, closed = 0;
    char name[64] = "";
    for (unsigned i = 0; i <= LIMIT_GPUS; i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), i == LIMIT_GPUS ? "/dev/nvidiactl" : "/dev/nvidia%u", i);
        if (access(path, F_OK) < 0)
            continue;
        there++;
        if (access(path, R_OK | W_OK) == 0)
            continue;
        closed++;
        sv_copy(name, sizeof(name), sv_from(path));
    }
    const struct frame_state *state = doctor_state(d, DEVICE_SOURCE_NVML);
    bool answers = state && state->code == FRAME_STATE_READY;
    if (closed > 0)
        doctor_fault(d, what, &no_permission, "%zu of %zu cannot be opened, %s among them", closed,
                     there, name);
    else if (there == 0 && !answers && d->options->source != SOURCE_CHOICE_DCGM)
        doctor_fault(d, what, &no_permission, "no /dev/nvidia* in this container");
    else
        doctor_ok(d, what, there ? "%zu, all can be opened" : "%zu, and the driver answers", there);
}

// --- Devices ---

static const struct doctor_fault gpu_is_down = {
    DOCTOR_FAIL, "this GPU's metrics",
    "look at the kernel log for its XID errors; reset the GPU or reboot the node"};

static bool is_to_blame(const struct doctor *d, const struct inventory_entity *e)
{
    const struct doctor_source *s = &d->sources[DEVICE_SOURCE_NVML];
    return s->trouble[0] && s->trouble_gpu == e->info.index;
}

static void judge_gpu(struct doctor *d, const struct inventory_entity *e, size_t instances)
{
    const struct doctor_source *s = &d->sources[DEVICE_SOURCE_NVML];
    char what[32];
    (void)snprintf(what, sizeof(what), "gpu %u", e->info.index);
    if (!e->up && is_to_blame(d, e))
        doctor_fault(d, what, &gpu_is_down, "%s: %s: its process %s%s%s", e->info.uuid,
                     e->down_reason, s->trouble, s->call[0] ? " in " : "", s->call);
    else if (!e->up)
        doctor_fault(d, what, &gpu_is_down, "%s: %s", e->info.uuid, e->down_reason);
    else if (e->info.mig_enabled && instances == 0)
        doctor_fault(
            d, what,
            &(struct doctor_fault){DOCTOR_WARN, "nothing can run on it",
                                   "make GPU instances (nvidia-smi mig), or let them be seen: "
                                   "NVIDIA_MIG_MONITOR_DEVICES=all"},
            "%s, %s answers; MIG mode is on and it has no instance", e->info.name, e->info.uuid);
    else
        doctor_ok(d, what, "%s, %s answers; %zu MIG instances, GPM %s", e->info.name, e->info.uuid,
                  instances, e->info.gpm ? "yes" : "no");
}

static void judge_devices(struct doctor *d)
{
    const struct inventory *inv = d->view.primary;
    size_t gpus = 0;
    for (size_t i = 0; i < inv->entity_count; i++) {
        size_t instances = 0;
        for (size_t k = i + 1; k < inv->entity_count; k++)
            instances += inv->entities[k].info.kind == FRAME_ENTITY_GPU_I &&
                         inv->entities[k].info.parent == i;
        if (inv->entities[i].info.kind != FRAME_ENTITY_GPU)
            continue;
        gpus++;
        judge_gpu(d, &inv->entities[i], instances);
    }
    const char *missing =
        d->publisher ? publisher_selection_error(d->publisher, RENDER_GROUP_GPU) : "";
    if (gpus == 0)
        doctor_fault(d, "gpus", &no_driver, "no GPU is listed");
    else if (missing[0])
        doctor_fault(d, "gpus",
                     &(struct doctor_fault){DOCTOR_FAIL, "all metrics of GPUs",
                                            "name devices in --devices that are there"},
                     "%zu listed; %s", gpus, missing);
    else
        doctor_ok(d, "gpus", "%zu listed, those of --devices are there", gpus);
}

// --- Profiling ---

// What keeps a profiling field from the first device that lacks it; FRAME_OK: nothing.
static enum frame_status profiling_status(const struct doctor *d, size_t *out_wanted,
                                          const char **out_name)
{
    const struct counter_list *counters = &d->config->counters;
    enum frame_status worst = FRAME_OK;
    for (size_t c = 0; c < counters->count; c++) {
        const struct field_info *f = counters->rows[c].field;
        if (f->id < PROF_FIRST || f->id >= PROF_END)
            continue;
        ++*out_wanted;
        for (size_t i = 0; i < d->view.primary->entity_count && worst == FRAME_OK; i++) {
            const struct inventory_entity *e = &d->view.primary->entities[i];
            if (!e->up || inventory_value_place(d->view.primary, i, f) != i)
                continue;
            worst = device_view_status(&d->view, i, f->id);
            *out_name = f->name;
        }
    }
    return worst;
}

// -1: not to be seen here.
static int admin_only(const struct doctor *d)
{
    struct buf path = BUF_INIT(4200), text = BUF_INIT(65536);
    int found = -1;
    const char *proc = d->options->flags.proc_path[0] ? d->options->flags.proc_path : "/proc";
    buf_add_fmt(&path, "%s/driver/nvidia/params", proc);
    if (!path.error && file_read(buf_cstr(&path), &text, NULL) == 0)
        found = doctor_read_admin_only(buf_sv(&text));
    buf_deinit(&path);
    buf_deinit(&text);
    return found;
}

static const char *admin_only_text(int value)
{
    static const char *const texts[] = {"not to be seen here", "off", "on"};
    return texts[value + 1];
}

static void judge_profiling(struct doctor *d)
{
    static const char what[] = "profiling";
    size_t wanted = 0;
    const char *name = "";
    enum frame_status status = d->config ? profiling_status(d, &wanted, &name) : FRAME_OK;
    const char *rule = admin_only_text(admin_only(d));
    if (wanted == 0)
        doctor_ok(d, what,
                  "no DCGM_FI_PROF_* field is asked for; the driver's admin-only switch: %s", rule);
    else if (status == FRAME_OK || d->view.primary->entity_count == 0)
        doctor_ok(d, what,
                  "%zu fields are asked for, none is refused; the driver's admin-only switch: %s",
                  wanted, rule);
    else if (status == FRAME_NOT_SUPPORTED)
        doctor_ok(d, what, "%s is not measured by these GPUs; the driver's admin-only switch: %s",
                  name, rule);
    else
        doctor_fault(d, what,
                     &(struct doctor_fault){
                         DOCTOR_FAIL, "DCGM_FI_PROF_* of the GPUs that lack it",
                         status == FRAME_NO_PERMISSION
                             ? "add the capability SYS_ADMIN, or load the driver with "
                               "NVreg_RestrictProfilingToAdminUsers=0"
                         : status == FRAME_IN_USE
                             ? "end the other program that profiles (Nsight, another DCGM)"
                         : status == FRAME_NEEDS_DCGM || status == FRAME_NEEDS_GPM ||
                                 status == FRAME_NOT_CONNECTED
                             ? "GPUs before Hopper need DCGM: see the line of dcgm; or take these "
                               "rows out of "
                               "the counters file"
                             : "see podgpu_exporter_field_unavailable_info; --debug shows the log"},
                     "%s has no value: %s; the driver's admin-only switch: %s", name,
                     frame_status_text(status), rule);
}

// --- DCGM, XIDs ---

static void judge_dcgm(struct doctor *d)
{
    static const char what[] = "dcgm";
    static const struct doctor_fault fault = {
        DOCTOR_FAIL,
        "what NVML can't give: profiling before Hopper, NVSwitches, links, Grace CPUs, health",
        "add libdcgm to the image or mount it (docs/dcgm.md), and let an engine be reached with "
        "--remote-hostengine-info; or take these rows out of the counters file"};
    const struct doctor_source *s = &d->sources[DEVICE_SOURCE_DCGM];
    const struct frame_state *state = doctor_state(d, DEVICE_SOURCE_DCGM);
    if (!d->plan.dcgm)
        doctor_ok(d, what, "not needed for these counters and GPUs");
    else if (s->start_error[0] || !state)
        doctor_fault(d, what, &fault, "%s",
                     s->start_error[0] ? s->start_error : "no word of it in time");
    else if (state->code != FRAME_STATE_READY)
        doctor_fault(d, what, &fault, "%s: %s", frame_state_text(state->code), state->text);
    else
        doctor_ok(d, what, "%s, DCGM %s, engine %s", state->library_path, state->library_version,
                  state->engine);
}

static void judge_xids(struct doctor *d)
{
    const struct exporter_flags *f = &d->options->flags;
    const struct frame_state *state = doctor_state(d, DEVICE_SOURCE_NVML);
    static const struct doctor_fault events = {
        DOCTOR_WARN, "XID errors that the driver tells of",
        "nothing, where the GPU has no events; else see the driver's line"};
    static const struct doctor_fault kmsg = {
        DOCTOR_WARN,
        "XID errors told while the driver hangs (119, 79), and what came before the start",
        "mount /dev/kmsg and add the capability SYSLOG (or run privileged); --kmsg-path= if that "
        "is "
        "not wanted"};
    if (state && state->code == FRAME_STATE_READY && !state->xid_events_armed)
        doctor_fault(d, "xid events", &events, "the driver does not listen for them");
    else
        doctor_ok(d, "xid events", state && state->xid_events_armed ? "armed" : "not asked");
    if (f->kmsg_path[0] == '\0')
        doctor_ok(d, "kernel log", "not asked for: --kmsg-path is empty");
    else if (access(f->kmsg_path, R_OK) < 0)
        doctor_fault(d, "kernel log", &kmsg, "%s: %s", f->kmsg_path, strerror(errno));
    else if (state && !state->kmsg_armed)
        doctor_fault(d, "kernel log", &kmsg, "%s cannot be read (kernel.dmesg_restrict?)",
                     f->kmsg_path);
    else
        doctor_ok(d, "kernel log", "%s is read", f->kmsg_path);
}

void doctor_judge_gpus(struct doctor *d)
{
    judge_driver(d);
    judge_device_files(d);
    judge_devices(d);
    judge_profiling(d);
    judge_dcgm(d);
    judge_xids(d);
}
