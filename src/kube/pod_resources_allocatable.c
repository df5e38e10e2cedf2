// SPDX-License-Identifier: Apache-2.0
// How it works. A call of its own every ASK_NS, begun when a List was answered, so that a kubelet
// that is away is not asked twice. Only the plugins' healthy devices are in the answer. A plugin
// that restarts has none for some seconds, nor has any plugin after the kubelet has: so a resource
// that goes as a whole stays for the grace period of a restart. What changes inside a resource (a
// device is unhealthy, another count of replicas) is shown at once.
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "io/grpc.h"
#include "kube/pod_devices.h"
#include "kube/pod_resources_internal.h"

#define ASK_NS (10 * NS_PER_S)

struct pod_allocatable {
    struct loop *loop;
    const struct pod_resources_config *config;
    struct grpc_call *call;                // NULL: none under way
    struct pod_resources_decoder *decoder; // of that call
    int decoder_error;
    uint64_t due_ns;
    bool unknown_call; // this kubelet has none
    bool restarted;    // while the call was under way: its answer may be the old one's
    struct pod_devices *current;
    uint64_t version;
    uint64_t vanished_ns; // since when a whole resource is missing; 0: none is
};

static void take_over(struct pod_allocatable *a, struct pod_devices *list)
{
    pod_devices_unref(a->current);
    a->current = list;
    a->version++;
}

// Appends to fresh the rows whose whole resource it lacks. 0, -ENOMEM.
static int keep_vanished(struct pod_devices *fresh, const struct pod_devices *previous,
                         size_t *out_kept)
{
    struct row_index resources = {.columns = ROW_RESOURCE};
    const size_t own = fresh->count;
    int r = 0;
    for (size_t i = 0; i < own && r == 0; i++)
        r = row_index_add(&resources, fresh->rows, i);
    for (size_t i = 0; i < previous->count && r == 0; i++) {
        struct pod_device copy;
        if (row_index_find(&resources, fresh->rows, &previous->rows[i]))
            continue;
        r = pod_devices_copy(pod_devices_owned(fresh), &previous->rows[i], &copy);
        if (r == 0)
            r = pod_devices_append(pod_devices_owned(fresh), &copy);
    }
    row_index_deinit(&resources);
    *out_kept = fresh->count - own;
    return r == -EFBIG ? 0 : r;
}

// Takes the reference.
static void accept_list(struct pod_allocatable *a, struct pod_devices *fresh, uint64_t now_ns)
{
    bool patient = a->vanished_ns == 0 || now_ns - a->vanished_ns < a->config->restart_grace_ns;
    size_t kept = 0;
    if (a->current && patient && keep_vanished(fresh, a->current, &kept) < 0) {
        pod_devices_unref(fresh);
        return; // as before
    }
    if (kept == 0)
        a->vanished_ns = 0;
    else if (a->vanished_ns == 0)
        a->vanished_ns = now_ns;
    if (a->current && pod_devices_same_set(fresh, a->current))
        pod_devices_unref(fresh);
    else
        take_over(a, fresh);
}

static int on_data(void *user, struct sv piece)
{
    struct pod_allocatable *a = user;
    a->decoder_error = pod_resources_decoder_feed(a->decoder, piece);
    return a->decoder_error;
}

static void log_failure(const struct pod_allocatable *a, int result, const char *text)
{
    const char *const path = a->config->socket_path;
    if (result == -EBADMSG || result == -EFBIG || result == -EPROTO)
        log_warn("kubelet does not say what can be allocated", LOG_STR("path", path),
                 LOG_STR("reason", text), LOG_LIMIT(path));
}

static void on_done(void *user, int result, unsigned grpc_status, const char *message)
{
    struct pod_allocatable *a = user;
    struct pod_devices *list = NULL;
    if (a->decoder_error)
        result = a->decoder_error;
    if (result == 0 && grpc_status == GRPC_OK)
        result = pod_resources_decoder_finish(a->decoder, &list);
    log_failure(a, result, a->decoder_error ? "the answer is malformed or too large" : message);
    if (result == 0 && grpc_status == GRPC_UNIMPLEMENTED)
        a->unknown_call = true;
    pod_resources_decoder_free(TAKE_PTR(a->decoder));
    grpc_call_free(TAKE_PTR(a->call));
    if (list)
        accept_list(a, list, clock_mono_ns());
    if (a->restarted)
        pod_allocatable_kubelet_restarted(a);
}

static int begin_call(struct pod_allocatable *a)
{
    const struct grpc_call_config call = {
        .socket_path = a->config->socket_path,
        .method = "/v1.PodResourcesLister/GetAllocatableResources",
        .deadline_ns = a->config->deadline_ns,
        .max_message_bytes = LIMIT_POD_RESOURCES_BYTES,
        .data = on_data,
        .done = on_done,
        .user = a,
    };
    a->decoder_error = 0;
    a->restarted = false;
    int r = pod_resources_decoder_new_allocatable(a->config->wanted, a->config->user, &a->decoder);
    if (r == 0)
        r = grpc_call_new(a->loop, &call, &a->call);
    if (r < 0)
        pod_resources_decoder_free(TAKE_PTR(a->decoder));
    return r;
}

void pod_allocatable_kubelet_answers(struct pod_allocatable *a, uint64_t now_ns)
{
    if (a->call || a->unknown_call || now_ns < a->due_ns)
        return;
    // Out of memory: the next answer of the kubelet is another chance.
    if (begin_call(a) == 0)
        a->due_ns = now_ns + ASK_NS;
}

void pod_allocatable_kubelet_restarted(struct pod_allocatable *a)
{
    a->unknown_call = false;
    a->restarted = a->call != NULL;
    a->due_ns = 0;
}

void pod_allocatable_forget(struct pod_allocatable *a)
{
    a->vanished_ns = 0;
    if (a->current)
        take_over(a, NULL);
}

const struct pod_devices *pod_allocatable_list(const struct pod_allocatable *a)
{
    return a->current;
}

uint64_t pod_allocatable_version(const struct pod_allocatable *a)
{
    return a->version;
}

int pod_allocatable_new(struct loop *l, const struct pod_resources_config *config,
                        struct pod_allocatable **out)
{
    struct pod_allocatable *a = calloc(1, sizeof(*a));
    if (!a)
        return -ENOMEM;
    a->loop = l;
    a->config = config;
    *out = a;
    return 0;
}

void pod_allocatable_free(struct pod_allocatable *a)
{
    if (!a)
        return;
    grpc_call_free(a->call);
    pod_resources_decoder_free(a->decoder);
    pod_devices_unref(a->current);
    free(a);
}
