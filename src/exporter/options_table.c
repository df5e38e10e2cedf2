// SPDX-License-Identifier: Apache-2.0
// Names, short forms, variables and defaults are those of dcgm-exporter 4.8.4; what is ours stands
// in the last group of each theme under PODGPU_EXPORTER_* variables.
#include "exporter/options.h"

#define AT(member) offsetof(struct exporter_flags, member)
#define UNMARKED ((size_t)-1)

#define TEXT(flag, short_form, variable, member, initial, theme, words)                            \
    {                                                                                              \
        flag, short_form, variable, OPTION_STRING, AT(member), UNMARKED, initial, 0, 0, theme,     \
            words, false                                                                           \
    }
#define TEXT_MARKED(flag, short_form, variable, member, mark, initial, theme, words)               \
    {                                                                                              \
        flag, short_form, variable, OPTION_STRING, AT(member), AT(mark), initial, 0, 0, theme,     \
            words, false                                                                           \
    }
#define SWITCH(flag, short_form, variable, member, theme, words)                                   \
    {                                                                                              \
        flag, short_form, variable, OPTION_BOOL, AT(member), UNMARKED, NULL, 0, 0, theme, words,   \
            false                                                                                  \
    }
#define DURATION(flag, variable, member, initial, theme, words)                                    \
    {                                                                                              \
        flag, NULL, variable, OPTION_DURATION, AT(member), UNMARKED, initial, 0, 0, theme, words,  \
            false                                                                                  \
    }
#define LIST(flag, variable, member, theme, words)                                                 \
    {                                                                                              \
        flag, NULL, variable, OPTION_LIST, AT(member), UNMARKED, NULL, 0, 0, theme, words, false   \
    }

#define NUMBER(flag, short_form, variable, member, initial, least, most, theme, words)             \
    {                                                                                              \
        flag, short_form, variable, OPTION_INT, AT(member), UNMARKED, initial, least, most, theme, \
            words, false                                                                           \
    }

#define INERT_TEXT(flag, short_form, variable, member, initial, words)                             \
    {                                                                                              \
        flag, short_form, variable, OPTION_STRING, AT(member), UNMARKED, initial, 0, 0,            \
            COMPATIBILITY, words, true                                                             \
    }
#define INERT_SWITCH(flag, variable, member, initial, words)                                       \
    {                                                                                              \
        flag, NULL, variable, OPTION_BOOL, AT(member), UNMARKED, initial, 0, 0, COMPATIBILITY,     \
            words, true                                                                            \
    }
#define INERT_NUMBER(flag, short_form, variable, member, initial, least, most, words)              \
    {                                                                                              \
        flag, short_form, variable, OPTION_INT, AT(member), UNMARKED, initial, least, most,        \
            COMPATIBILITY, words, true                                                             \
    }
#define INERT_DURATION(flag, variable, member, initial, words)                                     \
    {                                                                                              \
        flag, NULL, variable, OPTION_DURATION, AT(member), UNMARKED, initial, 0, 0, COMPATIBILITY, \
            words, true                                                                            \
    }

#define WHAT "What to collect"
#define PAGE "The page"
#define KUBERNETES "Kubernetes"
#define HTTP "HTTP"
#define SOURCE "Where the numbers come from"
#define LOGGING "Log"
#define COMPATIBILITY "Compatibility"

static const struct option_row rows[] = {
    TEXT_MARKED("collectors", "f", "DCGM_EXPORTER_COLLECTORS", collectors, collectors_given,
                "/etc/dcgm-exporter/default-counters.csv", WHAT,
                "Counters file: one line a field, its Prometheus type and its help text."),
    TEXT("config-file", NULL, "DCGM_EXPORTER_CONFIG_FILE", config_file, "", WHAT,
         "YAML file with metrics and collection periods, version 1 or 2. Flags and variables that "
         "are given override it."),
    {"collect-interval", "c", "DCGM_EXPORTER_INTERVAL", OPTION_INT, AT(collect_interval_ms),
     AT(collect_interval_given), "1000", 1, 86400000, WHAT,
     "Milliseconds between two samples. Less than 100 counts as 100; slowly changing fields are "
     "sampled every 10 or 30 s.",
     false},
    NUMBER("xid-count-window-size", "x", "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", xid_window_ms,
           "300000", 0, INT32_MAX, WHAT, "Milliseconds that DCGM_EXP_XID_ERRORS_COUNT looks back."),
    NUMBER("clock-events-count-window-size", NULL, "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE",
           clock_window_ms, "300000", 0, INT32_MAX, WHAT,
           "Milliseconds that DCGM_EXP_CLOCK_EVENTS_COUNT looks back."),
    TEXT("devices", "d", "DCGM_EXPORTER_DEVICES_STR", devices, "f", WHAT,
         "GPUs to show: f (the instances of a GPU that has some, else the GPU), g[:LIST] (GPUs), "
         "i[:LIST] (GPU instances) or g[:LIST]+i[:LIST]; LIST is like 0,2-4."),
    TEXT("switch-devices", "s", "DCGM_EXPORTER_OTHER_DEVICES_STR", switch_devices, "f", WHAT,
         "NVSwitches and their links to show: f (all), g[:LIST] (switches), i[:LIST] (links of switches that g "
         "chooses: alone none), or both as g[:LIST]+i[:LIST]; links of GPUs go with --devices."),
    TEXT("cpu-devices", "p", "DCGM_EXPORTER_CPU_DEVICES_STR", cpu_devices, "f", WHAT,
         "CPUs and their cores to show: f (all), g[:LIST] (CPUs), i[:LIST] (cores of CPUs that g "
         "chooses: alone none), or both as g[:LIST]+i[:LIST]."),
    SWITCH("switch-id-quirk", NULL, "PODGPU_EXPORTER_SWITCH_ID_QUIRK", switch_id_quirk, WHAT,
           "Every NVSwitch is called nvswitch0, as dcgm-exporter up to 4.8.2 does; of several one is "
           "left then."),
    TEXT(
        "podgpu-families", NULL, "PODGPU_EXPORTER_PODGPU_FAMILIES", podgpu_families, "core", WHAT,
        "podgpu's own families beside the DCGM_* ones: none, core, or all (adds the histogram "
        "podgpu_gpu_utilization_ratio). None switches the ledger off."),

    DURATION("ended-pod-linger", "PODGPU_EXPORTER_ENDED_POD_LINGER", ended_pod_linger_ns, "5m", WHAT,
             "How long the counters podgpu_container_*_total of an ended container stay, so that the "
             "next scrape finds its whole use: up to 24h."),
    DURATION("idle-after", "PODGPU_EXPORTER_IDLE_AFTER", idle_after_ns, "5m", WHAT,
             "For how long a container that holds a GPU must not have used it to count as idle in "
             "podgpu_node_gpu_idle_allocated."),
    SWITCH("doctor", NULL, "PODGPU_EXPORTER_DOCTOR", doctor, WHAT,
           "Serve nothing: check what these flags need, say of each what is missing, what that costs "
           "and how to mend it, and exit with 0 if all is there."),

    SWITCH("use-old-namespace", "o", "DCGM_EXPORTER_USE_OLD_NAMESPACE", use_old_namespace, PAGE,
           "Label names of dcgm-exporter 1.x: uuid, pod_name, pod_namespace, container_name."),
    SWITCH("no-hostname", "n", "DCGM_EXPORTER_NO_HOSTNAME", no_hostname, PAGE,
           "No host name label."),
    TEXT("hostname-label", NULL, "PODGPU_EXPORTER_HOSTNAME_LABEL", hostname_label, "hostname", PAGE,
         "Name of the host name label: hostname, Hostname (dcgm-exporter up to 4.8.2) or both."),
    SWITCH("replace-blanks-in-model-name", "rbmn", "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME",
           replace_blanks, PAGE, "Model names with '-' in place of blanks."),
    TEXT("mig-board-fields", NULL, "PODGPU_EXPORTER_MIG_BOARD_FIELDS", mig_board_fields, "repeat",
         PAGE,
         "Fields of a whole board under MIG: repeat them on each GPU instance, or print them once, "
         "on the GPU."),
    {"enable-exporter-metrics", NULL, "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS", OPTION_BOOL,
     AT(enable_exporter_metrics), AT(exporter_metrics_given), NULL, 0, 0, PAGE,
     "process_* families about the exporter itself.", false},
    SWITCH(
        "openmetrics", NULL, "PODGPU_EXPORTER_OPENMETRICS", openmetrics, PAGE,
        "OpenMetrics 1.0 for scrapers that ask for it; DCGM's counters become type unknown there."),
    TEXT("hpc-job-mapping-dir", NULL, "DCGM_HPC_JOB_MAPPING_DIR", hpc_job_mapping_dir, "", PAGE,
         "Directory whose files name the jobs on each GPU, for the hpc_job label."),

    SWITCH("kubernetes", "k", "DCGM_EXPORTER_KUBERNETES", kubernetes, KUBERNETES,
           "Label samples with the pod, namespace and container that hold the device."),
    TEXT("pod-resources-kubelet-socket", NULL, "DCGM_POD_RESOURCES_KUBELET_SOCKET", kubelet_socket,
         "/var/lib/kubelet/pod-resources/kubelet.sock", KUBERNETES,
         "The kubelet's pod-resources socket."),
    TEXT("kubernetes-gpu-id-type", NULL, "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", gpu_id_type, "uid",
         KUBERNETES, "How device plugins name GPUs: uid or device-name (nvidia0)."),
    LIST("nvidia-resource-names", "NVIDIA_RESOURCE_NAMES", resource_names, KUBERNETES,
         "Further resource names that stand for GPUs, such as nvidia.com/a100, exact and separated "
         "by commas."),
    SWITCH("kubernetes-virtual-gpus", NULL, "KUBERNETES_VIRTUAL_GPUS", virtual_gpus, KUBERNETES,
           "A copy of each sample for every pod on a shared GPU, with a vgpu label."),
    SWITCH("kubernetes-enable-dra", NULL, "KUBERNETES_ENABLE_DRA", enable_dra, KUBERNETES,
           "A copy of each sample for every container that has the device by a resource claim, with "
           "dra_ labels. Needs -k; with leave to list and watch resourceslices at the API server, "
           "devices are known by UUID and not by their names alone."),
    SWITCH("kubernetes-enable-pod-labels", NULL, "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS",
           pod_labels, KUBERNETES,
           "The pods' own labels on samples, beside the pod. Needs -k, and leave to get, list and "
           "watch pods at the API server."),
    SWITCH("kubernetes-enable-pod-uid", NULL, "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", pod_uid,
           KUBERNETES, "A pod_uid label. Needs the same."),
    LIST("kubernetes-pod-label-allowlist-regex",
         "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", pod_label_allowlist, KUBERNETES,
         "Which pod labels to take: those whose key, as Kubernetes has it, one of these regular "
         "expressions (RE2) finds something in; all when empty. Separated by commas."),
    TEXT("kubeconfig", NULL, "PODGPU_EXPORTER_KUBECONFIG", kubeconfig, "", KUBERNETES,
         "A kubeconfig file that says how to reach the API server; the pod's service account when "
         "empty."),
    SWITCH("pod-owners", NULL, "PODGPU_EXPORTER_POD_OWNERS", pod_owners, KUBERNETES,
           "Owner kind and name of pods in podgpu_pod_info also from the API server, where the "
           "kubelet's Pods API is not there. Needs -k, and leave to get, list and watch pods."),
    TEXT("pods-api-socket", NULL, "PODGPU_EXPORTER_PODS_API_SOCKET", pods_api_socket,
         "/var/lib/kubelet/pods-api/pods-api.sock", KUBERNETES,
         "The kubelet's Pods API, asked for names and owners of pods where it is there; not asked "
         "when empty."),
    TEXT("pod-log-path", NULL, "PODGPU_EXPORTER_POD_LOG_PATH", pod_log_path, "/var/log", KUBERNETES,
         "Where the node's /var/log is: names under its pods and containers tell the names of pods; "
         "not read when empty."),
    TEXT("proc-path", NULL, "PODGPU_EXPORTER_PROC_PATH", proc_path, "/proc", KUBERNETES,
         "Where the node's /proc is: cgroups there tell whose process runs on a GPU; not read when "
         "empty."),
    TEXT("shared-owner", NULL, "PODGPU_EXPORTER_SHARED_OWNER", shared_owner, "none", KUBERNETES,
         "Owner labels on a GPU that several pods hold: none, or last (the last of them, as if it "
         "were alone)."),
    SWITCH("empty-owner-labels", NULL, "PODGPU_EXPORTER_EMPTY_OWNER_LABELS", empty_owner_labels,
           KUBERNETES,
           "Empty pod, namespace and container labels on devices without a single owner, so that "
           "honor_labels keeps a scraper's own ones away."),

    TEXT("address", "a", "DCGM_EXPORTER_LISTEN", address, ":9400", HTTP,
         "Where to listen: HOST:PORT, :PORT, [IPv6]:PORT or unix:/PATH."),
    SWITCH("web-systemd-socket", NULL, "DCGM_EXPORTER_SYSTEMD_SOCKET", systemd_socket, HTTP,
           "Listen on the sockets that systemd hands over."),
    TEXT("web-config-file", NULL, "DCGM_EXPORTER_WEB_CONFIG_FILE", web_config_file, "", HTTP,
         "TLS, basic authentication and headers, as Prometheus' exporters read them."),
    TEXT("admin-address", NULL, "PODGPU_EXPORTER_ADMIN_ADDRESS", admin_address, "", HTTP,
         "Loopback or unix address that takes POST /-/reload, /-/release, /-/attach, /-/pause and "
         "/-/resume; none when empty."),

    TEXT("source", NULL, "PODGPU_EXPORTER_SOURCE", source, "auto", SOURCE,
         "Which of NVIDIA's libraries is asked. auto: NVML, and DCGM for what NVML can't give "
         "(profiling before Hopper, NVSwitches, links, Grace CPUs, health), where DCGM is there; "
         "nvml or dcgm: that one alone."),
    TEXT_MARKED("remote-hostengine-info", "r", "DCGM_REMOTE_HOSTENGINE_INFO", remote_hostengine,
                remote_hostengine_given, "localhost:5555", SOURCE,
                "The DCGM host engine to use: HOST:PORT, [IPv6]:PORT, tcp://HOST:PORT, "
                "unix:///PATH or vsock://CID:PORT; given but empty it is localhost:5555. When not "
                "given, one that runs on this machine is used, else one is started within the "
                "helper. Outside Kubernetes another machine's means --source=dcgm."),
    TEXT("dcgm-library", NULL, "PODGPU_EXPORTER_DCGM_LIBRARY", dcgm_library, "", SOURCE,
         "Path of libdcgm.so.4 or libdcgm.so.3; searched for when empty."),
    TEXT("nvml-library", NULL, "PODGPU_EXPORTER_NVML_LIBRARY", nvml_library, "", SOURCE,
         "Path of libnvidia-ml.so.1; searched for when empty."),
    TEXT("source-path", NULL, "PODGPU_EXPORTER_SOURCE_PATH", source_path, "", SOURCE,
         "Path of the helper podgpu-source; beside this program when empty."),
    TEXT("kmsg-path", NULL, "PODGPU_EXPORTER_KMSG_PATH", kmsg_path, "/dev/kmsg", SOURCE,
         "The kernel log, read for XID errors; not read when empty."),
    DURATION("call-deadline", "PODGPU_EXPORTER_CALL_DEADLINE", call_deadline_ns, "10s", SOURCE,
             "A driver call that takes longer counts as hung: 100ms to 10m."),

    SWITCH("debug", NULL, "DCGM_EXPORTER_DEBUG", debug, LOGGING, "Log each operation too."),
    TEXT("log-format", NULL, "DCGM_EXPORTER_LOG_FORMAT", log_format, "text", LOGGING,
         "text or json."),
    SWITCH("enable-dcgm-log", NULL, "DCGM_EXPORTER_ENABLE_DCGM_LOG", enable_dcgm_log, LOGGING,
           "DCGM's own log, where its engine runs within the helper."),
    TEXT("dcgm-log-level", NULL, "DCGM_EXPORTER_DCGM_LOG_LEVEL", dcgm_log_level, "NONE", LOGGING,
         "How much of it: NONE, FATAL, ERROR, WARN, INFO, DEBUG or VERB."),

    {"configmap-data", "m", "DCGM_EXPORTER_CONFIGMAP_DATA", OPTION_STRING, AT(configmap_data),
     AT(configmap_data_given), "none", 0, 0, COMPATIBILITY,
     "NAMESPACE:NAME of a ConfigMap with the counters; mount it and use --collectors.", true},
    INERT_SWITCH("container-labels", "DCGM_EXPORTER_CONTAINER_LABELS", container_labels, NULL,
                 "Container labels from the container runtime."),
    INERT_TEXT("container-runtime-socket", NULL, "DCGM_CONTAINER_RUNTIME_SOCKET",
               container_runtime_socket, "", "The container runtime's socket."),
    INERT_SWITCH("health-require-gpus", "DCGM_EXPORTER_HEALTH_REQUIRE_GPUS", health_require_gpus,
                 NULL, "/health fails while no GPU is seen."),
    INERT_SWITCH("fake-gpus", "DCGM_EXPORTER_USE_FAKE_GPUS", fake_gpus, NULL,
                 "Tolerate GPUs that do not exist."),
    INERT_NUMBER("max-concurrent-scrapes", NULL, "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES",
                 max_concurrent_scrapes, "16", 1, INT32_MAX,
                 "A page that is ready needs no limit."),
    INERT_DURATION("web-read-timeout", "DCGM_EXPORTER_WEB_READ_TIMEOUT", web_read_timeout_ns, "10s",
                   "Headers have 5 s to arrive."),
    INERT_DURATION("web-write-timeout", "DCGM_EXPORTER_WEB_WRITE_TIMEOUT", web_write_timeout_ns,
                   "30s", "A connection may idle for 90 s."),
    INERT_DURATION("watch-max-keep-age", "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", watch_max_keep_age_ns,
                   "10m", "How long DCGM keeps samples."),
    INERT_NUMBER("watch-max-keep-samples", NULL, "DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES",
                 watch_max_keep_samples, "0", 0, INT32_MAX, "How many samples DCGM keeps."),
    SWITCH("disable-startup-validate", NULL, "DISABLE_STARTUP_VALIDATE", disable_startup_validate,
           COMPATIBILITY,
           "Always so: a missing driver or GPU never keeps the exporter from starting."),
    INERT_SWITCH("enable-gpu-bind-unbind-watch", "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH",
                 bind_watch, NULL, "Changes of the GPUs are always seen."),
    INERT_TEXT("gpu-bind-unbind-poll-interval", NULL, "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL",
               bind_poll_interval, "1s", "How often DCGM is asked for such changes."),
    INERT_SWITCH("enable-pprof", "DCGM_EXPORTER_ENABLE_PPROF", enable_pprof, NULL, "Go profiles."),
    INERT_SWITCH("dump-enabled", "DCGM_EXPORTER_DUMP_ENABLED", dump_enabled, NULL, "Debug dumps."),
    INERT_TEXT("dump-directory", NULL, "DCGM_EXPORTER_DUMP_DIRECTORY", dump_directory,
               "/tmp/dcgm-exporter-debug", "Where debug dumps go."),
    INERT_NUMBER("dump-retention", NULL, "DCGM_EXPORTER_DUMP_RETENTION", dump_retention_h, "24",
                 INT32_MIN, INT32_MAX, "Hours to keep debug dumps."),
    INERT_SWITCH("dump-compression", "DCGM_EXPORTER_DUMP_COMPRESSION", dump_compression, "true",
                 "Compress debug dumps."),
};

const struct option_table exporter_option_table = {
    .program = "podgpu-exporter",
    .summary = "Serves what GPUs do, and for which pods, as Prometheus metrics.",
    .rows = rows,
    .count = ARRAY_SIZE(rows),
};
