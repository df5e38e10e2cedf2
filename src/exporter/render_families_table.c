// SPDX-License-Identifier: Apache-2.0
// Every family of podgpu's own: names and labels are frozen once shipped (data/podgpu-families.tsv
// holds the same rows; a test compares them). hostname is spelled as --hostname-label says,
// GPU_I_ID is there for MIG instances only.
#include "exporter/render_internal.h"

#define DEVICE "gpu,UUID,hostname,GPU_I_ID"
#define CONTAINER DEVICE ",namespace,pod,container,pod_uid"

// clang-format off
const struct render_family render_families[RENDER_FAMILY_COUNT] = {
    [RENDER_GPU_UP] = {
        "podgpu_gpu_up", TEXT_TYPE_GAUGE, DEVICE,
        "Whether the GPU or MIG instance answers (1) or not (0); podgpu_gpu_state_info tells why not."},
    [RENDER_GPU_STATE_INFO] = {
        "podgpu_gpu_state_info", TEXT_TYPE_INFO, DEVICE ",reason",
        "Why a GPU or MIG instance is down."},
    [RENDER_GPU_INFO] = {
        "podgpu_gpu_info", TEXT_TYPE_INFO, "gpu,UUID,hostname,modelName,pci_bus_id,driver_version",
        "What a GPU is; join it on gpu and UUID."},
    [RENDER_GPU_XID_ERRORS] = {
        "podgpu_gpu_xid_errors_total", TEXT_TYPE_COUNTER, DEVICE ",xid",
        "XID errors of the driver seen since the exporter started, by code; those that need someone start at 0."},
    [RENDER_GPU_XID_LAST_TIMESTAMP] = {
        "podgpu_gpu_xid_last_timestamp_seconds", TEXT_TYPE_GAUGE, DEVICE ",xid",
        "When an XID error was last seen, in seconds since 1970."},
    [RENDER_GPU_XID_ADVICE_INFO] = {
        "podgpu_gpu_xid_advice_info", TEXT_TYPE_INFO, DEVICE ",xid,severity,advice",
        "What to do about the XID errors that were seen, after NVIDIA's published catalogue; severity is critical, warning, app (mostly the application's own fault), info or unknown."},
    [RENDER_GPU_RECOVERY_ACTION_INFO] = {
        "podgpu_gpu_recovery_action_info", TEXT_TYPE_INFO, "gpu,UUID,hostname,action",
        "What the driver asks for to recover the GPU: none, gpu_reset, node_reboot, drain_p2p, drain_and_reset or recover_imex; not there where the driver (before 560) or the GPU can't tell."},
    [RENDER_GPU_CLOCKS_EVENT_ACTIVE] = {
        "podgpu_gpu_clocks_event_active", TEXT_TYPE_GAUGE, "gpu,UUID,hostname,reason",
        "Whether the GPU's clocks are held down now (1) for this reason: gpu_idle, applications_clocks, sw_power_cap, hw_slowdown, sync_boost, sw_thermal, hw_thermal, hw_power_brake or display."},
    [RENDER_GPU_BUSY] = {
        "podgpu_gpu_busy_seconds_total", TEXT_TYPE_COUNTER, DEVICE,
        "Time in which some kernel was resident on the GPU or MIG instance, in seconds: containers' busy time, that of ended ones and the unattributed make it up."},
    [RENDER_GPU_ENERGY] = {
        "podgpu_gpu_energy_joules_total", TEXT_TYPE_COUNTER, DEVICE,
        "Energy that the board used, in joules: containers' energy, that of ended ones and the unattributed make it up."},
    [RENDER_GPU_MEMORY_USED] = {
        "podgpu_gpu_memory_used_bytes", TEXT_TYPE_GAUGE, DEVICE,
        "Memory in use on the GPU or MIG instance: what containers use and the unattributed make it up."},
    [RENDER_GPU_MEMORY_TOTAL] = {
        "podgpu_gpu_memory_total_bytes", TEXT_TYPE_GAUGE, DEVICE,
        "Memory that the GPU or MIG instance has."},
    [RENDER_GPU_UNATTRIBUTED_BUSY] = {
        "podgpu_gpu_unattributed_busy_seconds_total", TEXT_TYPE_COUNTER, DEVICE,
        "Busy time of the GPU or MIG instance that is no container's, in seconds."},
    [RENDER_GPU_UNATTRIBUTED_ENERGY] = {
        "podgpu_gpu_unattributed_energy_joules_total", TEXT_TYPE_COUNTER, DEVICE,
        "Energy of the board that is no container's, in joules."},
    [RENDER_GPU_UNATTRIBUTED_MEMORY] = {
        "podgpu_gpu_unattributed_memory_bytes", TEXT_TYPE_GAUGE, DEVICE,
        "Memory in use that is no container's."},
    [RENDER_GPU_ENDED_BUSY] = {
        "podgpu_gpu_ended_busy_seconds_total", TEXT_TYPE_COUNTER, DEVICE,
        "Busy time of containers whose own series are gone, in seconds."},
    [RENDER_GPU_ENDED_ENERGY] = {
        "podgpu_gpu_ended_energy_joules_total", TEXT_TYPE_COUNTER, DEVICE,
        "Energy of containers whose own series are gone, in joules."},
    [RENDER_GPU_UTILIZATION] = {
        "podgpu_gpu_utilization_ratio", TEXT_TYPE_HISTOGRAM, DEVICE,
        "Busy share of each of the driver's own utilisation samples, taken between the exporter's."},
    [RENDER_CONTAINER_SHARE] = {
        "podgpu_container_gpu_share_ratio", TEXT_TYPE_GAUGE, CONTAINER,
        "Share of the GPU that the container holds: replicas held by replicas offered, times its instance's slices."},
    [RENDER_CONTAINER_ALLOCATED] = {
        "podgpu_container_gpu_allocated_seconds_total", TEXT_TYPE_COUNTER, CONTAINER,
        "Time for which the container held the GPU, times its share, in seconds."},
    [RENDER_CONTAINER_BUSY] = {
        "podgpu_container_gpu_busy_seconds_total", TEXT_TYPE_COUNTER, CONTAINER,
        "Time in which the container's kernels were resident on the GPU, in seconds; shared GPUs by the driver's numbers per process."},
    [RENDER_CONTAINER_ENERGY] = {
        "podgpu_container_gpu_energy_joules_total", TEXT_TYPE_COUNTER, CONTAINER,
        "The container's part of the board's energy, in joules: an allocation by busy time and share, not a measurement."},
    [RENDER_CONTAINER_MEMORY] = {
        "podgpu_container_gpu_memory_used_bytes", TEXT_TYPE_GAUGE, CONTAINER,
        "GPU memory that the container's processes use."},
    [RENDER_CONTAINER_PROCESSES] = {
        "podgpu_container_gpu_processes", TEXT_TYPE_GAUGE, CONTAINER,
        "How many processes of the container run on the GPU."},
    [RENDER_CONTAINER_IDLE] = {
        "podgpu_container_gpu_idle_seconds", TEXT_TYPE_GAUGE, CONTAINER,
        "For how long the container has not used the GPU that it holds."},
    [RENDER_ATTRIBUTION_INFO] = {
        "podgpu_exporter_attribution_info", TEXT_TYPE_INFO, DEVICE ",method",
        "How use of the GPU is given to containers: exclusive (one holds it), process (by process), held (shared, and nobody knows who did what) or none."},
    [RENDER_POD_INFO] = {
        "podgpu_pod_info", TEXT_TYPE_INFO, "namespace,pod,pod_uid,owner_kind,owner_name",
        "Who owns a pod that holds or uses a GPU."},
    [RENDER_NODE_ALLOCATABLE] = {
        "podgpu_node_gpu_allocatable", TEXT_TYPE_GAUGE, "hostname,resource",
        "Devices of the resource that the node offers."},
    [RENDER_NODE_ALLOCATED] = {
        "podgpu_node_gpu_allocated", TEXT_TYPE_GAUGE, "hostname,resource",
        "Devices of the resource that containers hold."},
    [RENDER_NODE_IDLE] = {
        "podgpu_node_gpu_idle_allocated", TEXT_TYPE_GAUGE, "hostname,resource",
        "Devices of the resource that containers hold and none of them has used for --idle-after."},
    [RENDER_BUILD_INFO] = {
        "podgpu_exporter_build_info", TEXT_TYPE_INFO, "version,revision",
        "Which podgpu-exporter this is."},
    [RENDER_START_TIME] = {
        "podgpu_exporter_start_time_seconds", TEXT_TYPE_GAUGE, "",
        "When the exporter started, in seconds since 1970."},
    [RENDER_FEATURE_UNAVAILABLE_INFO] = {
        "podgpu_exporter_feature_unavailable_info", TEXT_TYPE_INFO, "flag",
        "Flags that were given and have no effect in this version."},
    [RENDER_FIELD_SOURCE_INFO] = {
        "podgpu_exporter_field_source_info", TEXT_TYPE_INFO, "field,source",
        "Where the values of a field on this page come from: nvml, nvml_gpm, nvml_events or dcgm, a line each."},
    [RENDER_FIELD_UNAVAILABLE_INFO] = {
        "podgpu_exporter_field_unavailable_info", TEXT_TYPE_INFO, "field,reason,gpu,UUID",
        "Fields of the counters file that a GPU or an instance of it has no value for now, or (without gpu and UUID) a switch, link, CPU or core, and why."},
    [RENDER_DEVICE_SELECTION_OK] = {
        "podgpu_exporter_device_selection_ok", TEXT_TYPE_GAUGE, "",
        "Whether every device that --devices, --switch-devices and --cpu-devices name is there (1); devices of the kind of a missing one (0) are not exported, except links."},
    [RENDER_SERIES_DROPPED] = {
        "podgpu_exporter_series_dropped", TEXT_TYPE_GAUGE, "reason",
        "Copies of devices left out of each family now: same labels as another one, or more holders than the ceiling."},
    [RENDER_SOURCE_UP] = {
        "podgpu_exporter_source_up", TEXT_TYPE_GAUGE, "source",
        "Whether the source's library and driver answer (1) or not (0)."},
    [RENDER_SOURCE_STATE_INFO] = {
        "podgpu_exporter_source_state_info", TEXT_TYPE_INFO, "source,state",
        "What state a source is in."},
    [RENDER_LAST_SAMPLE_TIMESTAMP] = {
        "podgpu_exporter_last_sample_timestamp_seconds", TEXT_TYPE_GAUGE, "source",
        "When the newest sample was taken, in seconds since 1970."},
    [RENDER_SAMPLE_DURATION] = {
        "podgpu_exporter_sample_duration_seconds", TEXT_TYPE_GAUGE, "source",
        "How long the newest sample took."},
    [RENDER_ERRORS] = {
        "podgpu_exporter_errors_total", TEXT_TYPE_COUNTER, "source,code",
        "How often a source's helper process failed: crashed, hung in a driver call, or said what it must not say."},
    [RENDER_HELPER_STARTS] = {
        "podgpu_exporter_helper_starts_total", TEXT_TYPE_COUNTER, "source",
        "How often a source's helper process was started."},
    [RENDER_HELPER_RUNNING] = {
        "podgpu_exporter_helper_running", TEXT_TYPE_GAUGE, "source",
        "Whether a source's helper process runs (1) or not (0)."},
    [RENDER_HELPER_RELEASED] = {
        "podgpu_exporter_helper_released", TEXT_TYPE_GAUGE, "source",
        "Whether the driver was let go on request (1)."},
    [RENDER_ATTRIBUTION_UP] = {
        "podgpu_exporter_attribution_up", TEXT_TYPE_GAUGE, "",
        "Whether the kubelet answered last time (1) or not (0)."},
    [RENDER_ATTRIBUTION_AGE] = {
        "podgpu_exporter_attribution_age_seconds", TEXT_TYPE_GAUGE, "",
        "Age of the kubelet's answer that owner labels come from."},
    [RENDER_ATTRIBUTION_POLLS] = {
        "podgpu_exporter_attribution_polls_total", TEXT_TYPE_COUNTER, "",
        "How often the kubelet was asked who holds which device."},
    [RENDER_ATTRIBUTION_FAILURES] = {
        "podgpu_exporter_attribution_failures_total", TEXT_TYPE_COUNTER, "",
        "How often the kubelet gave no usable answer."},
    [RENDER_ATTRIBUTION_RATE_LIMITED] = {
        "podgpu_exporter_attribution_rate_limited_total", TEXT_TYPE_COUNTER, "",
        "How often the kubelet refused to answer because it was asked too often."},
    [RENDER_ATTRIBUTION_UNKNOWN_IDS] = {
        "podgpu_exporter_attribution_unknown_ids", TEXT_TYPE_GAUGE, "",
        "Device ids held by containers that name no device of this node."},
    [RENDER_ATTRIBUTION_SUPERSEDED_IDS] = {
        "podgpu_exporter_attribution_superseded_ids", TEXT_TYPE_GAUGE, "",
        "Device ids listed for a pod that ended: a newer pod has been given them."},
    [RENDER_ATTRIBUTION_ROWS] = {
        "podgpu_exporter_attribution_rows", TEXT_TYPE_GAUGE, "",
        "Device ids held by containers, as the kubelet lists them."},
    [RENDER_LEDGER_INTERVALS] = {
        "podgpu_exporter_ledger_intervals_total", TEXT_TYPE_COUNTER, "",
        "Intervals of time that were booked to containers, over all GPUs."},
    [RENDER_LEDGER_SCALED] = {
        "podgpu_exporter_ledger_scaled_intervals_total", TEXT_TYPE_COUNTER, "",
        "Intervals in which processes' busy time was more than the GPU's and was scaled down to it."},
    [RENDER_LEDGER_GAPS] = {
        "podgpu_exporter_ledger_gaps_total", TEXT_TYPE_COUNTER, "",
        "Times at which counting began anew, because what came did not follow on what was known."},
    [RENDER_LEDGER_HOLDER_CHANGES] = {
        "podgpu_exporter_ledger_holder_changes_total", TEXT_TYPE_COUNTER, "",
        "Intervals in which a GPU changed hands, which are unattributed."},
    [RENDER_LEDGER_REFUSED] = {
        "podgpu_exporter_ledger_refused_total", TEXT_TYPE_COUNTER, "",
        "Containers over the ceiling and facts out of order that were not taken."},
    [RENDER_LEDGER_EARLY_ENDED] = {
        "podgpu_exporter_ledger_ended_early_total", TEXT_TYPE_COUNTER, "",
        "Ended containers whose counters went before --ended-pod-linger, for want of room."},
    [RENDER_PROCESSES] = {
        "podgpu_exporter_processes", TEXT_TYPE_GAUGE, "kind",
        "Processes on GPUs: of pods, of the host, of nobody who is known."},
    [RENDER_PROCESS_VIEW_INFO] = {
        "podgpu_exporter_process_view_info", TEXT_TYPE_INFO, "view",
        "Whether pids of other containers can be had: host (yes), private (no: hostPID is missing) or unknown."},
    [RENDER_UNNAMED_PODS] = {
        "podgpu_exporter_unnamed_pods", TEXT_TYPE_GAUGE, "",
        "Pods that run on GPUs and whose names are not known."},
    [RENDER_ATTRIBUTION_DISAGREEMENTS] = {
        "podgpu_exporter_attribution_disagreements", TEXT_TYPE_GAUGE, "",
        "GPUs that one container holds and another one uses."},
    [RENDER_POD_METADATA_UP] = {
        "podgpu_exporter_pod_metadata_up", TEXT_TYPE_GAUGE, "",
        "Whether pods are listed and watched at the API server (1) or not (0); while not, labels stay as they were."},
    [RENDER_POD_METADATA_PODS] = {
        "podgpu_exporter_pod_metadata_pods", TEXT_TYPE_GAUGE, "",
        "Pods whose labels or UIDs are known."},
    [RENDER_POD_METADATA_FAILURES] = {
        "podgpu_exporter_pod_metadata_failures_total", TEXT_TYPE_COUNTER, "",
        "How often the API server could not be asked for pods."},
    [RENDER_POD_METADATA_SKIPPED] = {
        "podgpu_exporter_pod_metadata_skipped_total", TEXT_TYPE_COUNTER, "",
        "Pods that could not be read, or for which there was no room."},
    [RENDER_POD_LABELS_DROPPED] = {
        "podgpu_exporter_pod_labels_dropped", TEXT_TYPE_GAUGE, "reason",
        "Labels left out of the pods known now: another label of the pod has the same name, or the pod has more than the ceiling."},
    [RENDER_POD_SOURCE_UP] = {
        "podgpu_exporter_pod_source_up", TEXT_TYPE_GAUGE, "source",
        "Whether a source of pods' UIDs and owners can be used: kubelet (its Pods API, from Kubernetes 1.37), logs (names under /var/log), api_server (when a flag asks for it). One of them is enough."},
    [RENDER_CONFIG_RELOAD_SUCCESS] = {
        "podgpu_exporter_config_last_reload_success", TEXT_TYPE_GAUGE, "",
        "Whether the configuration was last read without an error (1); after one (0) the configuration before stays."},
    [RENDER_CONFIG_RELOAD_TIMESTAMP] = {
        "podgpu_exporter_config_last_reload_success_timestamp_seconds", TEXT_TYPE_GAUGE, "",
        "When the configuration in force was read, in seconds since 1970."},
    [RENDER_CONFIG_RELOADS] = {
        "podgpu_exporter_config_reloads_total", TEXT_TYPE_COUNTER, "",
        "How often the configuration was read anew."},
    [RENDER_CONFIG_RELOAD_FAILURES] = {
        "podgpu_exporter_config_reload_failures_total", TEXT_TYPE_COUNTER, "",
        "How often a new configuration was refused."},
    [RENDER_CONFIG_DUPLICATES] = {
        "podgpu_exporter_config_duplicate_rows", TEXT_TYPE_GAUGE, "",
        "Rows of the counters file left out because an earlier row names the same field."},
    [RENDER_EXP_COUNTS_DROPPED] = {
        "podgpu_exporter_exp_counts_dropped_total", TEXT_TYPE_COUNTER, "",
        "Counts of DCGM_EXP_*_COUNT and DCGM_EXP_*_TOTAL that left their window early or were not taken, because a GPU has more than the ceiling."},
    [RENDER_HTTP_REQUESTS] = {
        "podgpu_exporter_http_requests_total", TEXT_TYPE_COUNTER, "",
        "HTTP requests answered."},
    [RENDER_HTTP_REJECTED] = {
        "podgpu_exporter_http_rejected_requests_total", TEXT_TYPE_COUNTER, "reason",
        "HTTP requests refused: without a valid password, over the rate limit, or malformed."},
    [RENDER_HTTP_CONNECTIONS] = {
        "podgpu_exporter_http_connections_total", TEXT_TYPE_COUNTER, "",
        "Connections accepted."},
    [RENDER_HTTP_CONNECTIONS_CLOSED] = {
        "podgpu_exporter_http_closed_connections_total", TEXT_TYPE_COUNTER, "reason",
        "Connections that the server ended: over the ceiling of a peer, to make room, or past a deadline."},
    [RENDER_HTTP_OPEN_CONNECTIONS] = {
        "podgpu_exporter_http_open_connections", TEXT_TYPE_GAUGE, "",
        "Connections open now."},
    [RENDER_WEB_CONFIG_RELOAD_SUCCESS] = {
        "podgpu_exporter_web_config_last_reload_success", TEXT_TYPE_GAUGE, "",
        "Whether the web configuration was last read without an error (1); after one (0) the one before stays."},
    [RENDER_PAGE_BYTES] = {
        "podgpu_exporter_page_bytes", TEXT_TYPE_GAUGE, "",
        "Size of the page before this one."},
    [RENDER_PAGE_READERS_CUT] = {
        "podgpu_exporter_page_readers_cut_total", TEXT_TYPE_COUNTER, "",
        "Connections ended because they read a page slower than three newer ones came."},
    [RENDER_PAGE_WITHOUT_OWNERS] = {
        "podgpu_exporter_page_without_owners", TEXT_TYPE_GAUGE, "",
        "Whether owner labels are left out (1) because the page would be larger than 32 MiB with them."},
    [RENDER_PAGE_WITHOUT_POD_LABELS] = {
        "podgpu_exporter_page_without_pod_labels", TEXT_TYPE_GAUGE, "",
        "Whether the page would be too large with the labels and UIDs of pods (1), which it is without then."},
    [RENDER_PROCESS_CPU] = {
        "process_cpu_seconds_total", TEXT_TYPE_COUNTER, "",
        "Processor time used by the exporter, in seconds."},
    [RENDER_PROCESS_START] = {
        "process_start_time_seconds", TEXT_TYPE_GAUGE, "",
        "When the process started, in seconds since 1970."},
    [RENDER_PROCESS_RESIDENT] = {
        "process_resident_memory_bytes", TEXT_TYPE_GAUGE, "",
        "Resident memory of the exporter."},
    [RENDER_PROCESS_VIRTUAL] = {
        "process_virtual_memory_bytes", TEXT_TYPE_GAUGE, "",
        "Virtual memory of the exporter."},
    [RENDER_PROCESS_OPEN_FDS] = {
        "process_open_fds", TEXT_TYPE_GAUGE, "",
        "File descriptors that the exporter has open."},
    [RENDER_PROCESS_MAX_FDS] = {
        "process_max_fds", TEXT_TYPE_GAUGE, "",
        "File descriptors that the exporter may have open."},
};
