// SPDX-License-Identifier: Apache-2.0
// Between the files of the doctor: doctor.c (gathers what answers within the time, then has it
// judged), doctor_sources.c (helpers, as the app runs them), doctor_gpu.c, doctor_kube.c,
// doctor_node.c (judgements, in the order of the report), doctor_report.c (lines).
#pragma once

#include "exporter/doctor.h"
#include "exporter/pod_watch.h"
#include "exporter/publish.h"
#include "exporter/slice_watch.h"
#include "exporter/source_plan.h"
#include "exporter/source_process.h"
#include "kube/pods_api.h"
#include "kube/process_map.h"

struct doctor_source {
    struct doctor *doctor;
    enum device_source which;
    struct source_process *process; // NULL: not wanted, or it could not be started
    struct inventory inventory;
    size_t samples; // of the fields that are wanted
    uint64_t started_ns, sampled_ns;
    char start_error[512];
    // The call that hung or crashed, "" none yet
    char trouble[32], call[64];
    uint32_t trouble_gpu;
    bool driver_hung;
};

struct doctor {
    const struct exporter_options *options;
    uint64_t started_ns;
    struct loop *loop;
    struct loop_timer *timer;
    struct exporter_config *config; // NULL: config_error tells
    char config_error[1024];
    char source_path[4096];
    char source_error[512];
    struct doctor_source sources[DEVICE_SOURCE_COUNT];
    struct device_view view;
    struct source_plan plan;
    struct publisher *publisher;
    struct render_self self; // of the page that was made
    struct pod_resources *pods;
    struct pod_resources_stats kubelet;
    struct pod_devices *rows;      // NULL: none yet
    struct pod_metadata *metadata; // NULL: without --kubernetes
    struct pods_api *pods_api;     // NULL: not asked, as the two below
    struct pods_api_stats pods_api_stats;
    size_t pods_told; // by it
    struct pod_watch *api_pods;
    struct pod_watch_stats pods_stats;
    struct slice_watch *api_slices;
    struct slice_watch_stats slices_stats;
    char api_error[1024]; // with which the exporter does not start
    bool failed;
};

// --- doctor_report.c ---
enum doctor_level {
    DOCTOR_OK,
    DOCTOR_WARN,
    DOCTOR_FAIL,
};
// All static text.
struct doctor_fault {
    enum doctor_level level; // WARN or FAIL
    const char *costs, *mend;
};
void doctor_ok(struct doctor *d, const char *what, const char *fmt, ...) format_printf(3, 4);
void doctor_fault(struct doctor *d, const char *what, const struct doctor_fault *fault,
                  const char *fmt, ...) format_printf(4, 5);

// --- doctor_sources.c ---
void doctor_sources_init(struct doctor *d); // nothing is known
void doctor_sources_start(struct doctor *d);
// Starts what is wanted once something was learnt; true: all have said what is to be known.
bool doctor_sources_settle(struct doctor *d, uint64_t now_ns);
void doctor_sources_end(struct doctor *d);
static inline const struct frame_state *doctor_state(const struct doctor *d,
                                                     enum device_source which)
{
    const struct inventory *inv = &d->sources[which].inventory;
    return inv->state_known ? &inv->state : NULL;
}

// --- doctor_gpu.c, doctor_kube.c, doctor_node.c: their part of the report ---
void doctor_judge_gpus(struct doctor *d);
// 0, -ENOMEM.
int must_use doctor_kube_start(struct doctor *d);
bool doctor_kube_settle(struct doctor *d);
void doctor_kube_end(struct doctor *d);
void doctor_judge_kube(struct doctor *d);
void doctor_judge_configuration(struct doctor *d);
void doctor_judge_processes(struct doctor *d);
void doctor_judge_http(struct doctor *d);
