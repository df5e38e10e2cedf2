// SPDX-License-Identifier: Apache-2.0
// The kubelet and the API server. Both are asked by the rooms that the exporter itself uses, once.
// Paths and rights:
// kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "exporter/doctor_internal.h"

#define KUBELET_DEADLINE_NS (4 * NS_PER_S)
#define GRPC_UNIMPLEMENTED 12
#define GRPC_RESOURCE_EXHAUSTED 8

// --- Asking ---

static bool on_wanted(void *user, struct sv resource, struct sv device_id)
{
    const struct doctor *d = user;
    return publisher_wants(d->publisher, resource, device_id);
}

static void on_pods(void *user, struct pod_devices *rows)
{
    struct doctor *d = user;
    pod_devices_unref(d->rows);
    d->rows = rows ? pod_devices_ref(rows) : NULL;
}

static void on_list(void *user)
{
    struct doctor *d = user;
    d->pods_told = 0;
}

static int on_pod(void *user, const struct pod_record *pod)
{
    struct doctor *d = user;
    d->pods_told++;
    return pod_metadata_put(d->metadata, POD_METADATA_KUBELET, pod);
}

static void on_nothing(void *user)
{
    (void)user; // doctor_kube_settle looks
}

static int start_pods_api(struct doctor *d)
{
    const struct pods_api_config config = {
        .socket_path = d->options->flags.pods_api_socket,
        .interval_ns = 2 * DOCTOR_MOST_NS, // once
        .deadline_ns = KUBELET_DEADLINE_NS,
        .max_age_ns = 2 * DOCTOR_MOST_NS,
        .begin = on_list,
        .pod = on_pod,
        .end = on_nothing,
        .lost = on_nothing,
        .user = d,
    };
    return config.socket_path[0] ? pods_api_new(d->loop, &config, &d->pods_api) : 0;
}

static bool wants_slices(const struct doctor *d)
{
    return d->options->flags.kubernetes && d->options->flags.enable_dra;
}

// What keeps the exporter from its start stands in api_error.
static int start_api(struct doctor *d)
{
    const struct pod_watch_config pods = {d->options, d->metadata, on_nothing, d};
    const struct slice_watch_config slices = {d->options, publisher_dra(d->publisher), NULL, NULL};
    struct error err = ERROR_INIT;
    int r = 0;
    if (exporter_wants_pod_metadata(d->options))
        r = pod_watch_new(d->loop, &pods, &d->api_pods, &err);
    if (r == 0 && wants_slices(d))
        r = slice_watch_new(d->loop, &slices, &d->api_slices, &err);
    if (r < 0)
        (void)error_text(&err, d->api_error, sizeof(d->api_error));
    return r == -ENOMEM ? r : 0;
}

static int start_names(struct doctor *d)
{
    int r = pod_metadata_new(d->options, &d->metadata);
    if (r < 0)
        return r;
    publisher_set_metadata(d->publisher, d->metadata);
    r = start_pods_api(d);
    return r == 0 ? start_api(d) : r;
}

int doctor_kube_start(struct doctor *d)
{
    const struct exporter_flags *f = &d->options->flags;
    if (!f->kubernetes)
        return 0;
    const struct pod_resources_config config = {
        .socket_path = f->kubelet_socket,
        .interval_ns = 2 * DOCTOR_MOST_NS, // once
        .deadline_ns = KUBELET_DEADLINE_NS,
        .max_age_ns = 60 * NS_PER_S,
        .restart_grace_ns = 0,
        .wanted = on_wanted,
        .changed = on_pods,
        .user = d,
    };
    int r = pod_resources_new(d->loop, &config, &d->pods);
    return r == 0 ? start_names(d) : r;
}

// Each also where there is nothing to wait for.
static bool pods_api_settled(struct doctor *d)
{
    struct stat st;
    if (!d->pods_api)
        return true;
    pods_api_get_stats(d->pods_api, &d->pods_api_stats);
    bool there = stat(d->options->flags.pods_api_socket, &st) == 0 && S_ISSOCK(st.st_mode);
    return !there || d->pods_api_stats.up || d->pods_api_stats.failures > 0;
}

static bool api_settled(struct doctor *d)
{
    if (d->api_pods)
        pod_watch_get_stats(d->api_pods, &d->pods_stats);
    if (d->api_slices)
        slice_watch_get_stats(d->api_slices, &d->slices_stats);
    return (!d->api_pods || d->pods_stats.settled) &&
           (!d->api_slices || d->slices_stats.up || d->slices_stats.problem[0]);
}

bool doctor_kube_settle(struct doctor *d)
{
    bool settled = true;
    if (d->pods) {
        pod_resources_get_stats(d->pods, &d->kubelet);
        settled = d->kubelet.last_ok_ns > 0 || d->kubelet.last_result != 0;
    }
    settled = pods_api_settled(d) && settled;
    return api_settled(d) && settled;
}

void doctor_kube_end(struct doctor *d)
{
    pod_resources_free(d->pods);
    pods_api_free(d->pods_api);
    pod_watch_free(d->api_pods);
    slice_watch_free(d->api_slices);
}

// --- Kubelet ---

static const char owners[] = "pod, namespace and container labels, and all podgpu_container_*";

static const char *kubelet_mend(const struct pod_resources_stats *s)
{
    switch (-s->last_result) {
    case ENOENT:
    case ENOTDIR:
        return "mount the node's /var/lib/kubelet/pod-resources (the directory, not the socket); "
               "on a "
               "kubelet with another root directory give --pod-resources-kubelet-socket";
    case EACCES:
    case EPERM:
        return geteuid() == 0 ? "run by uid 0, so look at SELinux: a type that may reach kubelet "
                                "sockets, such as "
                                "seLinuxOptions: {type: spc_t}"
                              : "runAsUser: 0, only it may connect";
    case ECONNREFUSED:
        return "mount the socket's directory, not the socket: the kubelet makes a new one at each "
               "start";
    case ETIMEDOUT:
        return "see why the kubelet does not answer: its log on the node";
    default:
        break;
    }
    if (s->last_grpc_status == GRPC_RESOURCE_EXHAUSTED)
        return "let other clients ask less often: the kubelet takes 100 calls a second from all";
    return s->last_grpc_status == GRPC_UNIMPLEMENTED
               ? "a kubelet of Kubernetes 1.13 or later, with its pod-resources endpoint"
               : "see the kubelet's log on the node";
}

static void judge_kubelet(struct doctor *d)
{
    static const char what[] = "kubelet";
    const struct pod_resources_stats *s = &d->kubelet;
    const char *path = d->options->flags.kubelet_socket;
    if (!d->options->flags.kubernetes)
        doctor_ok(d, what, "not asked for: without --kubernetes");
    else if (s->last_ok_ns > 0)
        doctor_ok(d, what, "%s answers in %llu ms: %zu pods, %zu device ids of GPUs", path,
                  (unsigned long long)(s->last_duration_ns / NS_PER_MS),
                  d->rows ? d->rows->pods : 0, d->rows ? d->rows->count : 0);
    else
        doctor_fault(d, what, &(struct doctor_fault){DOCTOR_FAIL, owners, kubelet_mend(s)},
                     "%s: %s", path, s->last_error[0] ? s->last_error : "no answer in time");
}

static void judge_ids(struct doctor *d)
{
    static const char what[] = "device ids";
    size_t unknown = d->self.attribution_unknown_ids;
    if (!d->options->flags.kubernetes || d->kubelet.last_ok_ns == 0)
        doctor_ok(d, what, "not to be seen");
    else if (d->view.primary->entity_count == 0)
        doctor_ok(d, what, "not to be seen without GPUs");
    else if (unknown > 0)
        doctor_fault(
            d, what,
            &(struct doctor_fault){DOCTOR_FAIL, "owner labels of what these ids hold",
                                   "--kubernetes-gpu-id-type and --nvidia-resource-names as "
                                   "the device plugin names devices; all GPUs in this "
                                   "container (NVIDIA_VISIBLE_DEVICES=all)"},
            "%zu of %zu name no device that is seen here", unknown, d->rows ? d->rows->count : 0);
    else
        doctor_ok(d, what, "all name a device");
}

// The exporter takes no GPU; a pod that asks for one takes it from the others.
static void judge_own_pod(struct doctor *d)
{
    static const char what[] = "own pod";
    const char *pod = getenv("POD_NAME"), *space = getenv("POD_NAMESPACE");
    size_t held = 0;
    for (size_t i = 0; pod && pod[0] && d->rows && i < d->rows->count; i++)
        held += strcmp(d->rows->rows[i].pod, pod) == 0 &&
                (!space || strcmp(d->rows->rows[i].namespace_name, space) == 0);
    if (!d->options->flags.kubernetes)
        doctor_ok(d, what, "not asked for: without --kubernetes");
    else if (!pod || !pod[0])
        doctor_ok(d, what, "not known: POD_NAME is not set (a fieldRef on metadata.name)");
    else if (held > 0)
        doctor_fault(d, what,
                     &(struct doctor_fault){DOCTOR_WARN, "GPUs that no other pod can have",
                                            "take nvidia.com/gpu out of the exporter's resources: "
                                            "NVIDIA_VISIBLE_DEVICES=all shows it every GPU"},
                     "%s holds %zu devices itself", pod, held);
    else
        doctor_ok(d, what, "%s holds no device", pod);
}

// --- Names of pods ---

static void judge_pods_api(struct doctor *d)
{
    static const char what[] = "pods api";
    static const struct doctor_fault fault = {
        DOCTOR_WARN, "UIDs and owners of pods without the API server",
        "mount the directory of --pods-api-socket and let uid 0 connect (SELinux: as for the "
        "kubelet's other socket)"};
    const char *path = d->options->flags.pods_api_socket;
    const struct pods_api_stats *s = &d->pods_api_stats;
    if (!d->pods_api)
        doctor_ok(d, what, "not asked for");
    else if (s->up)
        doctor_ok(d, what, "%s answers: %zu pods", path, d->pods_told);
    else if (!s->socket_seen)
        doctor_ok(d, what,
                  "%s is not there (before Kubernetes 1.37): names come from --pod-log-path, "
                  "owners with --pod-owners",
                  path);
    else
        doctor_fault(d, what, &fault, "%s: %s", path,
                     s->last_error[0] ? s->last_error : "no answer in time");
}

static void judge_pod_logs(struct doctor *d)
{
    static const char what[] = "pod logs";
    static const struct doctor_fault fault = {
        DOCTOR_WARN, "names of containers on shared GPUs, where nothing else tells pods' UIDs",
        "mount the node's /var/log read-only and give --pod-log-path"};
    char path[4200];
    (void)snprintf(path, sizeof(path), "%s/pods", d->options->flags.pod_log_path);
    bool other = d->pods_api_stats.up || d->pods_stats.up;
    if (!d->options->flags.kubernetes || d->options->flags.pod_log_path[0] == '\0')
        doctor_ok(d, what, "not asked for");
    else if (access(path, R_OK | X_OK) == 0)
        doctor_ok(d, what, "%s can be read", path);
    else if (other)
        doctor_ok(d, what, "%s cannot be read and is not needed: UIDs come from elsewhere", path);
    else
        doctor_fault(d, what, &fault, "%s: %s", path, strerror(errno));
}

// --- API server ---

static const char *reason(const struct doctor *d, const char *problem)
{
    if (d->api_error[0])
        return d->api_error;
    return problem && problem[0] ? problem : "no answer in time";
}

static void judge_api_pods(struct doctor *d)
{
    static const char what[] = "api pods";
    static const struct doctor_fault fault = {
        DOCTOR_FAIL, "labels, UIDs and owners of pods that flags ask for",
        "the rights of deploy/pod-labels.yaml, a service account with its token mounted; or "
        "--kubeconfig"};
    struct pod_metadata_stats known = {0};
    if (d->metadata)
        pod_metadata_get_stats(d->metadata, &known);
    if (!exporter_wants_pod_metadata(d->options))
        doctor_ok(d, what, "not asked for");
    else if (d->pods_stats.up)
        doctor_ok(d, what, "can be listed and watched: %zu pods", known.pods);
    else
        doctor_fault(d, what, &fault, "%s", reason(d, d->pods_stats.problem));
}

static void judge_api_slices(struct doctor *d)
{
    static const char what[] = "api slices";
    static const char costs[] = "GPUs of resource claims whose names do not tell which they are";
    static const char mend[] = "the rights of deploy/dra.yaml, a service account with its token "
                               "mounted and NODE_NAME set; or --kubeconfig";
    static const struct doctor_fault fault = {DOCTOR_WARN, costs, mend};
    static const struct doctor_fault refused = {DOCTOR_FAIL, costs, mend};
    if (!wants_slices(d))
        doctor_ok(d, what, "not asked for: without --kubernetes-enable-dra");
    else if (d->slices_stats.up)
        doctor_ok(d, what, "resource.k8s.io/%s can be listed and watched", d->slices_stats.version);
    else
        doctor_fault(d, what, d->api_error[0] ? &refused : &fault, "%s",
                     reason(d, d->slices_stats.problem));
}

static void judge_api(struct doctor *d)
{
    static const struct doctor_fault no_name = {
        DOCTOR_FAIL, "the pods of the whole cluster are read instead of the node's",
        "env NODE_NAME by a fieldRef on spec.nodeName"};
    bool pods = exporter_wants_pod_metadata(d->options);
    judge_api_pods(d);
    judge_api_slices(d);
    if (d->options->node_name[0] == '\0' && pods)
        doctor_fault(d, "node name", &no_name, "NODE_NAME is not set");
    else
        doctor_ok(d, "node name", "%s",
                  d->options->node_name[0] ? d->options->node_name : "not needed");
}

void doctor_judge_kube(struct doctor *d)
{
    judge_kubelet(d);
    judge_ids(d);
    judge_own_pod(d);
    judge_pods_api(d);
    judge_pod_logs(d);
    judge_api(d);
}
