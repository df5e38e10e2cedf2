// SPDX-License-Identifier: Apache-2.0
// Every flag and environment variable of podgpu-exporter: dcgm-exporter's (4.8.4) and our own, from
// one table.
#pragma once

#include "base/error.h"
#include "base/log.h"
#include "base/option.h"
#include "codec/regex.h"
#include "gpu/selection.h"

enum hostname_label {
    HOSTNAME_LABEL_LOWER, // hostname
    HOSTNAME_LABEL_UPPER, // Hostname
    HOSTNAME_LABEL_BOTH,
    HOSTNAME_LABEL_NONE, // --no-hostname
};

enum shared_owner {
    SHARED_OWNER_NONE,
    SHARED_OWNER_LAST,
};

enum podgpu_families {
    PODGPU_FAMILIES_NONE,
    PODGPU_FAMILIES_CORE,
    PODGPU_FAMILIES_ALL,
};

// --source, and what -r says about it
enum source_choice {
    SOURCE_CHOICE_AUTO,
    SOURCE_CHOICE_NVML,
    SOURCE_CHOICE_DCGM, // also auto with a -r that is another machine, outside Kubernetes
};

// As given: one member a flag of the table in options_table.c. Strings are never NULL.
struct exporter_flags {
    char *collectors, *address, *configmap_data, *remote_hostengine, *gpu_id_type, *devices,
        *switch_devices, *cpu_devices, *web_config_file, *dcgm_log_level, *log_format,
        *kubelet_socket, *hpc_job_mapping_dir, *dump_directory, *bind_poll_interval, *config_file,
        *container_runtime_socket;
    char *hostname_label, *shared_owner, *podgpu_families, *mig_board_fields, *nvml_library,
        *dcgm_library, *admin_address, *source_path, *kmsg_path, *source, *kubeconfig, *proc_path,
        *pod_log_path, *pods_api_socket;
    struct option_list pod_label_allowlist, resource_names;
    int64_t collect_interval_ms, xid_window_ms, clock_window_ms, dump_retention_h,
        max_concurrent_scrapes, watch_max_keep_samples;
    uint64_t web_read_timeout_ns, web_write_timeout_ns, watch_max_keep_age_ns, call_deadline_ns,
        ended_pod_linger_ns, idle_after_ns;
    bool kubernetes, use_old_namespace, pod_labels, pod_uid, no_hostname, fake_gpus, replace_blanks,
        debug, enable_dcgm_log, virtual_gpus, dump_enabled, dump_compression, enable_dra,
        disable_startup_validate, bind_watch, enable_pprof, systemd_socket, container_labels,
        enable_exporter_metrics, openmetrics, empty_owner_labels, switch_id_quirk,
        health_require_gpus, pod_owners, doctor;
    // "given at all" marks where that matters
    bool collect_interval_given, collectors_given, configmap_data_given, remote_hostengine_given,
        exporter_metrics_given;
};

// A shorter --collect-interval is raised to this: the drivers' own sampling is no faster.
#define COLLECT_INTERVAL_LEAST_MS 100

extern const struct option_table exporter_option_table;

// Checked and turned into types.
struct exporter_options {
    struct exporter_flags flags; // owned
    struct selection gpus, switches, cpus;
    enum hostname_label hostname_label;
    enum shared_owner shared_owner;
    enum podgpu_families podgpu_families;
    enum source_choice source;
    bool gpu_id_by_device_name; // --kubernetes-gpu-id-type=device-name
    bool mig_board_once;        // --mig-board-fields=once
    enum log_format log_format;
    enum log_level log_level;
    // Label value; empty: no label. Without -k the host part of a -r that is another machine; else
    // $NODE_NAME, else gethostname.
    char hostname[256];
    char node_name[256]; // $NODE_NAME; empty: not given
    // $POD_NAMESPACE and $POD_NAME of the exporter itself; empty: not given
    char own_namespace[256], own_pod[256];
    struct regex **pod_label_patterns; // --kubernetes-pod-label-allowlist-regex
    size_t pod_label_pattern_count;
    // Names of accepted flags that ask for something this build does not do, for the log and
    // feature_unavailable_info: rows marked inert whose value is not the default,
    // flags about DCGM with --source=nvml, and flags about pods without --kubernetes.
    const char *unavailable[64];
    size_t unavailable_count;
    bool collect_interval_raised; // to COLLECT_INTERVAL_LEAST_MS; worth a warning
    // The first word that is no flag, in argv: it and all behind it have no effect, as with
    // dcgm-exporter (`-k true -d g` is -k alone). NULL: there is none. Worth a warning.
    const char *ignored_word;
};

// 0; OPTION_OUTCOME_HELP; OPTION_OUTCOME_VERSION; -EINVAL with *err; -ENOMEM.
int must_use exporter_options_parse(int argc, char **argv, char **environment,
                                    struct exporter_options *out, struct error *err);
void exporter_options_deinit(struct exporter_options *o);

// Whether something of a pod is asked for that only the API server knows.
static inline bool exporter_wants_pod_metadata(const struct exporter_options *o)
{
    return o->flags.kubernetes && (o->flags.pod_labels || o->flags.pod_uid || o->flags.pod_owners);
}

// Whether a -r value (host:port, [v6]:port, tcp://..., unix://..., vsock://...) names this machine;
// empty does.
bool exporter_remote_is_loopback(struct sv remote);
