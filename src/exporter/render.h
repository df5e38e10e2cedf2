// SPDX-License-Identifier: Apache-2.0
// The page: from configuration, inventory, holders and self-metrics to exposition text. An engine:
// no I/O, no clock. Layout of the device families is dcgm-exporter's to the byte (docs/compat.md
// names every difference): families in ascending (field id, name) order, GPU group labels in its
// order, INT64 as %d, DOUBLE as %f. The constant text before each value (family headers, names,
// labels) is rendered once and kept until something it was made from changes; a page after that
// costs a copy and a number per sample.
//
// A family's samples stand in the order of dcgm-exporter's groups: GPUs and instances, switches,
// links, CPUs, cores. Compute instances have none.
#pragma once

#include "exporter/attribute.h"
#include "exporter/config.h"
#include "exporter/exp_counts.h"
#include "exporter/ledger.h"
#include "exporter/pod_metadata.h"
#include "exporter/usage.h"
#include "metrics/text.h"

// Who holds what, as one immutable set with a version. Index i is view.primary->entities[i].
struct render_owners {
    uint64_t version;                       // differs whenever anything below differs
    const struct pod_devices *rows;         // NULL: no kubelet map
    const struct attribute_result *holders; // NULL with rows NULL
    const struct pod_metadata *metadata;    // UIDs and labels of their pods; NULL: none
    // HPC job names per entity (NULL: none); hpc_jobs[i].names is an array of count strings.
    const struct render_jobs {
        const char *const *names;
        size_t count;
    } * jobs;
};

// Numbers about ourselves, filled by the app (publish.c: attribution and page) from every room's
// stats. Strings are borrowed.
struct render_self {
    uint64_t started_wall_ns;
    const char *version, *revision;
    struct render_self_source {
        uint64_t sample_last_wall_ns; // of the newest sample; 0: none
        double sample_duration_s;
        uint64_t starts, crashes, hangs, protocol_errors; // of its helper
        bool running, released;
        // In use, though it adds nothing to the view (DCGM without its library); NULL: as the view
        const struct inventory *inventory;
    } sources[DEVICE_SOURCE_COUNT]; // shown where the view has the source
    bool attribution_on;            // -k
    bool attribution_up;            // the kubelet answered last time
    double attribution_age_s;       // of the map in use; < 0: none
    uint64_t attribution_polls, attribution_failures, attribution_rate_limited;
    size_t attribution_unknown_ids, attribution_superseded_ids, attribution_rows;
    struct render_self_metadata {
        bool on;                  // the API server is asked
        bool up;                  // pods are listed and watched there
        bool sources_on;          // names of pods are wanted
        bool kubelet_up, logs_up; // its Pods API; names of log files
        size_t pods;
        uint64_t failures, skipped, same_name, over_budget;
    } metadata;
    struct render_self_ledger {
        bool on;        // --podgpu-families other than none
        bool processes; // pids are looked up
        uint64_t intervals, scaled, gaps, holder_changes, refused, early_ended;
        size_t pod_processes, host_processes, unnamed_pods, disagreements;
        const char *view; // process_view_text; static
    } ledger;
    bool config_ok; // last reload
    uint64_t config_last_ok_wall_ns;
    uint64_t config_reloads, config_failures;
    size_t config_duplicates;
    bool exp_counts_on; // the counters file has a row that counts XIDs or clock events
    uint64_t exp_counts_dropped;
    struct render_self_http {
        uint64_t requests, denied, limited, bad_requests, connections, refused, evicted, timed_out;
        uint32_t open;
        bool web_config_ok;
    } http;
    uint64_t page_bytes, page_shut_readers;
    bool page_without_owners; // with them it would be over its ceiling
    bool page_without_pod_labels;
    bool process_metrics; // --enable-exporter-metrics
    struct render_self_process {
        double cpu_seconds;
        uint64_t resident_bytes, virtual_bytes, open_fds, max_fds, start_wall_ns;
    } process;
};

enum render_group {
    RENDER_GROUP_GPU, // and instances
    RENDER_GROUP_SWITCH,
    RENDER_GROUP_LINK, // of GPUs and of switches
    RENDER_GROUP_CPU,
    RENDER_GROUP_CORE,
    RENDER_GROUP_COUNT,
};

struct render_input {
    const struct exporter_config *config;
    const struct device_view *view;
    const struct render_owners *owners; // NULL: nobody is known
    const struct render_self *self;
    uint64_t now_ns;
    struct exp_counts *exp; // dcgm-exporter's windowed counters; NULL: none
    // What each pod's processes use, for --kubernetes-virtual-gpus: usage_pod_value of usage. NULL:
    // not known, then a holder's copy of GPU_UTIL and FB_USED shows the device's value.
    const struct usage *usage;
    bool (*pod_value)(const struct usage *u, size_t entity, const char *pod_uid,
                      struct usage_pod_value *out);
    const struct ledger *ledger;           // what containers used; NULL: none
    const struct pod_devices *allocatable; // what the plugins offer; NULL: not known
    uint64_t allocatable_version;
};

// Whether samples of GPUs have a label of that name of their own.
bool render_label_is_built_in(const struct exporter_options *o, struct sv name);

struct render;
int must_use render_new(struct render **out);
void render_free(struct render *r);
// Appends the whole page. 0; -ENOMEM; -EFBIG at out's ceiling.
int must_use render_page(struct render *r, const struct render_input *in, enum text_format format,
                         struct buf *out);
// How many samples the last page had (device families, all).
void render_counts(const struct render *r, size_t *out_device_series, size_t *out_all_series);
// Why a group is not there: "" or what --devices, --switch-devices or --cpu-devices asked for and
// was not found (links are there nevertheless, those that were found). Valid until the next page.
const char *render_selection_error(const struct render *r, enum render_group group);
