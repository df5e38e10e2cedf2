// SPDX-License-Identifier: Apache-2.0
// The kubelet and the API server. Both are asked by the rooms that the exporter itself uses, once.
// Paths and rights:
// kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
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

static int on_object(void *user, struct sv key, const struct json_node *object)
{
    (void)user;
    (void)key;
    (void)object;
    return 0;
}

static void on_deleted(void *user, struct sv key)
{
    (void)user;
    (void)key;
}

static void on_synced(void *user)
{
    struct doctor_access *a = user;
    a->settled = true;
}

static void on_problem(void *user, const char *text)
{
    struct doctor_access *a = user;
    a->settled = true;
    sv_copy(a->problem, sizeof(a->problem), sv_from(text ? text : ""));
}

static bool wants_pods(const struct doctor *d)
{
    const struct exporter_flags *f = &d->options->flags;
    return exporter_wants_pod_metadata(d->options) || (f->kubernetes && f->pod_owners);
}

static int ask_api(struct doctor *d, struct kube_resource resource, const char *selector,
                   struct doctor_access *a)
{
    const struct kube_watch_config config = {
        .resource = resource,
        .field_selector = selector,
        .object = on_object,
        .deleted = on_deleted,
        .synced = on_synced,
        .problem = on_problem,
        .user = a,
    };
    return kube_watch_new(d->api, &config, &a->watch);
}

static int start_api(struct doctor *d)
{
    const struct exporter_flags *f = &d->options->flags;
    const struct kube_api_config access = {.kubeconfig_file =
                                               f->kubeconfig[0] ? f->kubeconfig : NULL};
    struct error err = ERROR_INIT;
    int r = http_client_new(d->loop, &d->client, &err);
    if (r == 0)
        r = kube_api_new(d->loop, d->client, &access, &d->api, &err);
    if (r < 0) {
        (void)error_text(&err, d->api_error, sizeof(d->api_error));
        return r == -ENOMEM ? r : 0;
    }
    char selector[sizeof("spec.nodeName=") + sizeof(d->options->node_name)];
    (void)snprintf(selector, sizeof(selector), "spec.nodeName=%s", d->options->node_name);
    if (wants_pods(d))
        r = ask_api(d, KUBE_PODS, d->options->node_name[0] ? selector : NULL, &d->api_pods);
    static const struct kube_resource slices = {"resource.k8s.io", "v1", "resourceslices"};
    if (r == 0 && f->enable_dra)
        r = ask_api(d, slices, NULL, &d->api_slices);
    return r;
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
    if (r == 0 && (wants_pods(d) || f->enable_dra))
        r = start_api(d);
    return r;
}

bool doctor_kube_settle(struct doctor *d)
{
    bool settled = true;
    if (d->pods) {
        pod_resources_get_stats(d->pods, &d->kubelet);
        settled = d->kubelet.last_ok_ns > 0 || d->kubelet.last_result != 0;
    }
    return settled && (!d->api_pods.watch || d->api_pods.settled) &&
           (!d->api_slices.watch || d->api_slices.settled);
}

void doctor_kube_end(struct doctor *d)
{
    pod_resources_free(d->pods);
    kube_watch_free(d->api_pods.watch);
    kube_watch_free(d->api_slices.watch);
    kube_api_free(d->api);
    http_client_free(d->client);
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

// 0, negative errno.
static int reach(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(a.sun_path))
        return -ENAMETOOLONG;
    sv_copy(a.sun_path, sizeof(a.sun_path), sv_from(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    int r = connect(fd, (const struct sockaddr *)&a, sizeof(a)) < 0 && errno != EAGAIN ? -errno : 0;
    (void)close(fd);
    return r;
}

static void judge_pods_api(struct doctor *d)
{
    static const char what[] = "pods api";
    static const struct doctor_fault fault = {
        DOCTOR_WARN, "UIDs and owners of pods without the API server",
        "mount the directory of --pods-api-socket and let uid 0 connect (SELinux: as for the "
        "kubelet's other socket)"};
    const char *path = d->options->flags.pods_api_socket;
    int r = path[0] ? reach(path) : -ENOENT;
    if (!d->options->flags.kubernetes || !path[0])
        doctor_ok(d, what, "not asked for");
    else if (r == 0)
        doctor_ok(d, what, "%s takes connections", path);
    else if (r == -ENOENT || r == -ENOTDIR)
        doctor_ok(d, what,
                  "%s is not there (before Kubernetes 1.37): names come from --pod-log-path, "
                  "owners with --pod-owners",
                  path);
    else
        doctor_fault(d, what, &fault, "%s: %s", path, strerror(-r));
}

static void judge_pod_logs(struct doctor *d)
{
    static const char what[] = "pod logs";
    static const struct doctor_fault fault = {
        DOCTOR_WARN, "names of containers on shared GPUs, where nothing else tells pods' UIDs",
        "mount the node's /var/log read-only and give --pod-log-path"};
    char path[4200];
    (void)snprintf(path, sizeof(path), "%s/pods", d->options->flags.pod_log_path);
    bool other = reach(d->options->flags.pods_api_socket) == 0 ||
                 (d->api_pods.settled && !d->api_pods.problem[0]);
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

static void judge_access(struct doctor *d, const char *what, const struct doctor_access *a,
                         const char *costs)
{
    const struct doctor_fault fault = {
        DOCTOR_FAIL, costs,
        "the rights of deploy/pod-labels.yaml, a service account with "
        "its token mounted; or --kubeconfig"};
    if (d->api_error[0])
        doctor_fault(d, what, &fault, "%s", d->api_error);
    else if (!a->settled || a->problem[0])
        doctor_fault(d, what, &fault, "%s: %s", kube_api_server(d->api),
                     a->problem[0] ? a->problem : "no answer in time");
    else
        doctor_ok(d, what, "%s: can be listed and watched", kube_api_server(d->api));
}

static void judge_api(struct doctor *d)
{
    static const struct doctor_fault no_name = {
        DOCTOR_FAIL, "the pods of the whole cluster are read instead of the node's",
        "env NODE_NAME by a fieldRef on spec.nodeName"};
    bool pods = wants_pods(d),
         slices = d->options->flags.kubernetes && d->options->flags.enable_dra;
    if (pods)
        judge_access(d, "api pods", &d->api_pods,
                     "labels, UIDs and owners of pods that flags ask for");
    else
        doctor_ok(d, "api pods", "not asked for");
    if (slices)
        judge_access(d, "api slices", &d->api_slices,
                     "GPUs of resource claims whose names do not tell which they are");
    else
        doctor_ok(d, "api slices", "not asked for: without --kubernetes-enable-dra");
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
