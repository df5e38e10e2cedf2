// SPDX-License-Identifier: Apache-2.0
// How it works. One timer starts polls; a poll is a look at the socket file, a call, and its end in
// on_done, which schedules the next one. What is kept between polls: the list in force, since when,
// and the identity of the socket file. A kubelet that starts makes a new socket, so another
// identity is a restart; for its first seconds it may know few pods, so rows that vanish then are
// kept for a grace period. The list in force only changes when its set of rows does, and goes when
// no good answer came for max_age.
#include "kube/pod_resources.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/log.h"
#include "io/grpc.h"
#include "kube/pod_devices.h"
#include "kube/pod_resources_internal.h"

#define BACKOFF_FIRST_NS (200 * NS_PER_MS)
#define BACKOFF_MOST_NS (5 * NS_PER_S)
#define NO_PERMISSION_WAIT_NS (30 * NS_PER_S)
// The kubelet takes 100 calls a second from all clients of the socket together, with bursts of 10.
#define RATE_LIMIT_TRIES 2
#define RATE_LIMIT_WAIT_NS (100 * NS_PER_MS)
#define RATE_LIMIT_JITTER_NS (400 * NS_PER_MS)
#define KICK_DISTANCE_NS (200 * NS_PER_MS)
#define GRACE_POLLS 2

struct pod_resources {
    struct loop *loop;
    struct pod_resources_config config;
    char *socket_path;
    struct loop_timer *poll_timer;
    struct loop_timer *age_timer;
    struct grpc_call *call;                // NULL: no poll under way
    struct pod_resources_decoder *decoder; // of that call
    int decoder_error;
    uint64_t begun_ns; // the last poll, 0: none yet

    struct pod_allocatable *allocatable;
    struct pod_devices *current; // in force, or NULL
    struct file_stamp socket;    // seen last; none: it was never there
    bool use_v1alpha1;           // this kubelet does not know v1
    uint64_t grace_until_ns;
    unsigned grace_polls; // good answers still to come in the grace period

    unsigned failures; // in a row, for the wait
    unsigned rate_limit_tries;
    int logged_result; // failure logged last, 0 after a good answer
    unsigned logged_status;
    struct pod_resources_stats stats;
};

static void poll_now(void *user);

// --- Scheduling ---

// At a multiple of the interval, as all timers without a moment of their own (they share a
// wake-up), 7/8 of it from the last poll at least.
static void schedule_interval(struct pod_resources *p)
{
    uint64_t interval_ns = p->config.interval_ns;
    uint64_t due_ns =
        ((p->begun_ns + interval_ns - interval_ns / 8) / interval_ns + 1) * interval_ns;
    uint64_t now_ns = clock_mono_ns();
    loop_timer_set(p->poll_timer, due_ns > now_ns ? due_ns - now_ns : 0, 0);
}

static void schedule_backoff(struct pod_resources *p)
{
    uint64_t wait_ns = clock_backoff_ns(p->failures++, BACKOFF_FIRST_NS, BACKOFF_MOST_NS);
    loop_timer_set(p->poll_timer, wait_ns + clock_jitter_ns(wait_ns / 4), 0);
}

static void schedule_after_rate_limit(struct pod_resources *p)
{
    p->stats.rate_limited++;
    if (p->rate_limit_tries == RATE_LIMIT_TRIES) {
        p->rate_limit_tries = 0;
        schedule_interval(p);
        return;
    }
    p->rate_limit_tries++;
    loop_timer_set(p->poll_timer, RATE_LIMIT_WAIT_NS + clock_jitter_ns(RATE_LIMIT_JITTER_NS), 0);
}

// --- Failure ---

// Not an answer of the kubelet itself: it is starting, stopping, stuck or not there.
static bool is_transport(int result, unsigned grpc_status)
{
    if (result == 0)
        return grpc_status == GRPC_UNAVAILABLE || grpc_status == GRPC_DEADLINE_EXCEEDED;
    return result != -EPROTO && result != -EBADMSG && result != -EFBIG;
}

static const char *advice(int result)
{
    if (result == -EACCES || result == -EPERM)
        return geteuid() == 0 ? "run by uid 0, so SELinux is the likely cause: the container needs "
                                "a type that may "
                                "reach kubelet sockets, such as spc_t"
                              : "only uid 0 may connect to the kubelet's socket";
    if (result == -ECONNREFUSED)
        return "a socket file mounted by itself goes stale when the kubelet restarts: mount its "
               "directory";
    return NULL;
}

// The same failure again and again is said once; a success in between makes it news.
static void log_failure(struct pod_resources *p, int result, unsigned grpc_status)
{
    const char *const path = p->socket_path;
    const char *const text = p->stats.last_error;
    if (p->logged_result == result && p->logged_status == grpc_status)
        return;
    p->logged_result = result;
    p->logged_status = grpc_status;
    if (result == -ENOENT)
        log_info("kubelet socket is not there, looking for it", LOG_STR("path", path),
                 LOG_LIMIT(path));
    else if (advice(result))
        log_warn("kubelet cannot be asked", LOG_STR("path", path), LOG_STR("reason", text),
                 LOG_STR("hint", advice(result)), LOG_LIMIT(text));
    else
        log_warn("kubelet cannot be asked", LOG_STR("path", path), LOG_STR("reason", text),
                 LOG_U64("grpc_status", grpc_status), LOG_LIMIT(text));
}

static void fail(struct pod_resources *p, int result, unsigned grpc_status, const char *text)
{
    p->stats.failures++;
    p->stats.last_result = result ? result : -EREMOTEIO;
    p->stats.last_grpc_status = grpc_status;
    sv_copy(p->stats.last_error, sizeof(p->stats.last_error), sv_from(text));
    if (result == 0 && grpc_status == GRPC_RESOURCE_EXHAUSTED) {
        schedule_after_rate_limit(
            p); // others share the kubelet's allowance: nothing to tell anyone
        return;
    }
    log_failure(p, result, grpc_status);
    if (result == -EACCES || result == -EPERM)
        loop_timer_set(p->poll_timer, NO_PERMISSION_WAIT_NS, 0);
    else if (is_transport(result, grpc_status))
        schedule_backoff(p);
    else
        schedule_interval(p);
}

// --- Success ---

static void publish(struct pod_resources *p, struct pod_devices *list)
{
    struct pod_devices *old = p->current;
    p->current = list;
    p->config.changed(p->config.user, list);
    pod_devices_unref(old);
}

// Takes fresh over. 0, -ENOMEM.
static int succeed_list(struct pod_resources *p, struct pod_devices *fresh, bool grace)
{
    size_t kept;
    if (p->current && pod_devices_same_set(fresh, p->current)) {
        pod_devices_unref(fresh);
        return 0;
    }
    int r = pod_devices_follow(fresh, p->current, grace, &kept);
    if (r < 0) {
        pod_devices_unref(fresh);
        return r;
    }
    if (kept > 0)
        p->stats.reconnect_shorts++;
    if (p->current && pod_devices_same_set(fresh, p->current))
        pod_devices_unref(fresh);
    else
        publish(p, fresh);
    return 0;
}

static void accept_list(struct pod_resources *p, struct pod_devices *fresh)
{
    uint64_t now_ns = clock_mono_ns();
    bool grace = p->grace_polls > 0 || now_ns < p->grace_until_ns;
    if (p->stats.last_ok_ns == 0 || p->logged_result != 0 || p->logged_status != 0)
        log_info("kubelet answers", LOG_STR("path", p->socket_path), LOG_U64("pods", fresh->pods),
                 LOG_U64("devices", fresh->count), LOG_LIMIT(p->socket_path));
    if (fresh->skipped > 0)
        log_warn("kubelet lists more devices than are kept", LOG_U64("left_out", fresh->skipped),
                 LOG_LIMIT("skipped"));
    p->logged_result = 0;
    p->logged_status = 0;
    p->grace_polls -= p->grace_polls > 0;
    p->failures = 0;
    p->rate_limit_tries = 0;
    p->stats.last_ok_ns = now_ns;
    p->stats.last_result = 0;
    p->stats.last_grpc_status = GRPC_OK;
    p->stats.last_error[0] = '\0';
    loop_timer_set(p->age_timer, p->config.max_age_ns, 0);
    schedule_interval(p);
    if (!p->use_v1alpha1)
        pod_allocatable_kubelet_answers(p->allocatable, now_ns);
    int r = succeed_list(p, fresh, grace);
    if (r < 0)
        fail(p, r, 0, "out of memory");
}

static void on_too_old(void *user)
{
    struct pod_resources *p = user;
    pod_allocatable_forget(p->allocatable);
    if (!p->current)
        return;
    log_warn("kubelet's last answer is too old, owners are dropped",
             LOG_STR("path", p->socket_path), LOG_STR("reason", p->stats.last_error),
             LOG_LIMIT(p->socket_path));
    publish(p, NULL);
}

// --- A poll ---

static int on_data(void *user, struct sv piece)
{
    struct pod_resources *p = user;
    p->decoder_error = pod_resources_decoder_feed(p->decoder, piece);
    return p->decoder_error;
}

static const char *decoder_error_text(int error)
{
    if (error == -EBADMSG)
        return "the answer is malformed";
    return error == -EFBIG ? "a pod of the answer is too large" : strerror(-error);
}

// Looks which socket is there, and whether that means a restart. 0, negative errno.
static int identify_socket(struct pod_resources *p)
{
    struct stat st;
    p->stats.socket_seen = false;
    if (stat(p->socket_path, &st) < 0)
        return -errno;
    p->stats.socket_seen = true;
    struct file_stamp now = file_stamp_of(&st); // an inode number alone is soon used again
    if (file_stamp_equals(&now, &p->socket))
        return 0;
    if (p->socket.there) {
        log_info("kubelet has restarted", LOG_STR("path", p->socket_path),
                 LOG_LIMIT(p->socket_path));
        p->grace_until_ns = clock_mono_ns() + p->config.restart_grace_ns;
        p->grace_polls = GRACE_POLLS;
        p->use_v1alpha1 = false;
        pod_allocatable_kubelet_restarted(p->allocatable);
    }
    p->socket = now;
    return 0;
}

// Ends a poll that was answered with OK.
static void finish_list(struct pod_resources *p)
{
    struct pod_devices *list;
    int r = pod_resources_decoder_finish(p->decoder, &list);
    pod_resources_decoder_free(TAKE_PTR(p->decoder));
    // The socket may have been replaced between the look before the call and connecting: then this
    // answer is already the new kubelet's.
    (void)identify_socket(p);
    if (r < 0)
        fail(p, r, 0, decoder_error_text(r));
    else
        accept_list(p, list);
}

static void on_done(void *user, int result, unsigned grpc_status, const char *message)
{
    struct pod_resources *p = user;
    char text[sizeof(p->stats.last_error)];
    sv_copy(text, sizeof(text),
            sv_from(p->decoder_error ? decoder_error_text(p->decoder_error) : message));
    grpc_call_free(TAKE_PTR(p->call));
    p->stats.last_duration_ns = clock_mono_ns() - p->begun_ns;
    if (result == 0 && grpc_status == GRPC_OK) {
        finish_list(p);
        return;
    }
    pod_resources_decoder_free(TAKE_PTR(p->decoder));
    if (result == 0 && grpc_status == GRPC_UNIMPLEMENTED && !p->use_v1alpha1) {
        p->use_v1alpha1 = true; // kubelets before 1.20; a new one is asked for v1 again
        loop_timer_set(p->poll_timer, 0, 0);
        return;
    }
    fail(p, result, grpc_status, text);
}

static int begin_call(struct pod_resources *p)
{
    const struct grpc_call_config config = {
        .socket_path = p->socket_path,
        .method =
            p->use_v1alpha1 ? "/v1alpha1.PodResourcesLister/List" : "/v1.PodResourcesLister/List",
        .deadline_ns = p->config.deadline_ns,
        .max_message_bytes = LIMIT_POD_RESOURCES_BYTES,
        .data = on_data,
        .done = on_done,
        .user = p,
    };
    p->decoder_error = 0;
    int r = pod_resources_decoder_new(p->config.wanted, p->config.user, &p->decoder);
    if (r == 0)
        r = grpc_call_new(p->loop, &config, &p->call);
    if (r < 0)
        pod_resources_decoder_free(TAKE_PTR(p->decoder));
    return r;
}

static void poll_now(void *user)
{
    struct pod_resources *p = user;
    assert(!p->call);
    p->begun_ns = clock_mono_ns();
    p->stats.polls++;
    int r = identify_socket(p);
    if (r == 0)
        r = begin_call(p);
    if (r < 0)
        fail(p, r, 0, strerror(-r));
}

// --- The poller ---

int pod_resources_new(struct loop *l, const struct pod_resources_config *config,
                      struct pod_resources **out)
{
    struct pod_resources *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->loop = l;
    p->config = *config;
    p->socket_path = sv_dup(sv_from(config->socket_path));
    p->config.socket_path = p->socket_path;
    int r = p->socket_path ? pod_allocatable_new(l, &p->config, &p->allocatable) : -ENOMEM;
    if (r == 0)
        r = loop_timer_new(l, poll_now, p, &p->poll_timer);
    if (r == 0)
        r = loop_timer_new(l, on_too_old, p, &p->age_timer);
    if (r < 0) {
        pod_resources_free(p);
        return r;
    }
    loop_timer_set(p->poll_timer, 0, 0);
    *out = p;
    return 0;
}

void pod_resources_get_stats(const struct pod_resources *p, struct pod_resources_stats *out)
{
    *out = p->stats;
    out->allocatable = pod_allocatable_list(p->allocatable);
    out->allocatable_version = pod_allocatable_version(p->allocatable);
}

void pod_resources_kick(struct pod_resources *p)
{
    if (!p->call && clock_mono_ns() - p->begun_ns >= KICK_DISTANCE_NS)
        loop_timer_set(p->poll_timer, 0, 0);
}

void pod_resources_free(struct pod_resources *p)
{
    if (!p)
        return;
    grpc_call_free(p->call);
    pod_resources_decoder_free(p->decoder);
    pod_allocatable_free(p->allocatable);
    loop_timer_free(p->poll_timer);
    loop_timer_free(p->age_timer);
    pod_devices_unref(p->current);
    free(p->socket_path);
    free(p);
}
