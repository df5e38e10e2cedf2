// SPDX-License-Identifier: Apache-2.0
// One call at a time, a connection each. Pods are told as the answer arrives, so that no more than
// one of them is in memory. Where there is no socket the file is looked for every second; that
// is an ordinary node before Kubernetes 1.37, and nothing is logged.
#include "kube/pods_api.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "io/grpc.h"
#include "kube/message_list.h"

#define KICK_DISTANCE_NS (200 * NS_PER_MS)
#define ABSENT_INTERVAL_NS (1 * NS_PER_S) // a look at a file, no call
#define METHOD "/v1alpha1.Pods/ListPods"

struct pods_api {
    struct loop *loop;
    struct pods_api_config config;
    char *socket_path;
    struct loop_timer *timer;
    struct grpc_call *call; // NULL between polls
    struct message_list list;
    struct arena scratch; // arrays of the pod that is being read
    uint64_t begun_ns, last_ok_ns;
    bool told; // a list that is not lost yet
    int list_error;
    struct pods_api_stats stats;
};

static void wait_for_next(struct pods_api *p)
{
    loop_timer_set(p->timer, p->config.interval_ns, 0);
}

static void lose_if_old(struct pods_api *p)
{
    if (!p->told || clock_mono_ns() - p->last_ok_ns < p->config.max_age_ns)
        return;
    p->told = false;
    p->config.lost(p->config.user);
}

static void fail(struct pods_api *p, const char *text)
{
    bool was_up = p->stats.up;
    p->stats.failures++;
    p->stats.up = false;
    sv_copy(p->stats.last_error, sizeof(p->stats.last_error), sv_from(text));
    if (was_up || p->stats.failures == 1)
        log_info("the kubelet's Pods API does not answer, other sources name pods",
                 LOG_STR("path", p->socket_path), LOG_STR("reason", text),
                 LOG_LIMIT(p->socket_path));
    lose_if_old(p);
    wait_for_next(p);
}

static int on_item(void *user, struct sv bytes)
{
    struct pods_api *p = user;
    struct pod_record pod;
    int r = pod_record_from_protobuf(bytes, &p->scratch, &pod);
    if (r == 0)
        r = p->config.pod(p->config.user, &pod);
    arena_reset(&p->scratch);
    if (r != -EBADMSG && r != -EFBIG)
        return r;
    p->stats.skipped++;
    return 0;
}

static int on_data(void *user, struct sv piece)
{
    struct pods_api *p = user;
    p->list_error = message_list_feed(&p->list, piece);
    return p->list_error;
}

static void accept_list(struct pods_api *p)
{
    if (!p->stats.up)
        log_info("the kubelet's Pods API names pods", LOG_STR("path", p->socket_path));
    p->stats.up = true;
    p->stats.last_error[0] = '\0';
    p->last_ok_ns = clock_mono_ns();
    p->told = true;
    p->config.end(p->config.user);
    wait_for_next(p);
}

static const char *list_error_text(int error)
{
    if (error == -EBADMSG)
        return "the answer is malformed";
    return error == -EFBIG ? "a pod of the answer is too large" : "out of memory";
}

static void on_done(void *user, int result, unsigned grpc_status, const char *message)
{
    struct pods_api *p = user;
    char text[sizeof(p->stats.last_error)];
    bool answered = result == 0 && grpc_status == GRPC_OK;
    if (answered)
        p->list_error = message_list_finish(&p->list);
    sv_copy(text, sizeof(text), sv_from(p->list_error ? list_error_text(p->list_error) : message));
    grpc_call_free(TAKE_PTR(p->call));
    message_list_deinit(&p->list);
    if (answered && p->list_error == 0)
        accept_list(p);
    else
        fail(p, text);
}

static void begin_call(struct pods_api *p)
{
    const struct grpc_call_config config = {
        .socket_path = p->socket_path,
        .method = METHOD,
        .deadline_ns = p->config.deadline_ns,
        .max_message_bytes = LIMIT_PODS_API_BYTES,
        .data = on_data,
        .done = on_done,
        .user = p,
    };
    p->begun_ns = clock_mono_ns();
    p->stats.polls++;
    p->list_error = 0;
    message_list_init(&p->list, LIMIT_PODS_API_POD_BYTES, on_item, p);
    if (grpc_call_new(p->loop, &config, &p->call) < 0) {
        fail(p, "out of memory");
        return;
    }
    p->config.begin(p->config.user);
}

static void poll_now(void *user)
{
    struct pods_api *p = user;
    struct stat st;
    assert(!p->call);
    p->stats.socket_seen = stat(p->socket_path, &st) == 0 && S_ISSOCK(st.st_mode);
    if (p->stats.socket_seen) {
        begin_call(p);
        return;
    }
    p->stats.up = false;
    lose_if_old(p); // a kubelet that restarts has none for a moment
    loop_timer_set(p->timer, ABSENT_INTERVAL_NS, 0);
}

int pods_api_new(struct loop *l, const struct pods_api_config *config, struct pods_api **out)
{
    struct pods_api *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->loop = l;
    p->config = *config;
    p->scratch = ARENA_INIT(LIMIT_POD_RECORD_BYTES);
    p->socket_path = sv_dup(sv_from(config->socket_path));
    int r = p->socket_path ? loop_timer_new(l, poll_now, p, &p->timer) : -ENOMEM;
    if (r < 0) {
        pods_api_free(p);
        return r;
    }
    loop_timer_set(p->timer, 0, 0);
    *out = p;
    return 0;
}

void pods_api_get_stats(const struct pods_api *p, struct pods_api_stats *out)
{
    *out = p->stats;
}

void pods_api_kick(struct pods_api *p)
{
    if (!p->call && p->stats.socket_seen && clock_mono_ns() - p->begun_ns >= KICK_DISTANCE_NS)
        loop_timer_set(p->timer, 0, 0);
}

void pods_api_free(struct pods_api *p)
{
    if (!p)
        return;
    grpc_call_free(p->call);
    message_list_deinit(&p->list);
    loop_timer_free(p->timer);
    arena_deinit(&p->scratch);
    free(p->socket_path);
    free(p);
}
