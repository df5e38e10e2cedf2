// SPDX-License-Identifier: Apache-2.0
// Polls a kubelet socket with the exporter's own poller and prints what comes of it, a line an
// event, for the tests that play the kubelet. Commands on stdin: `kick`, `quit` (or end of file).
//   list ROWS PODS SKIPPED, then for each row: row TAB namespace TAB pod TAB container TAB resource
//   TAB id (of a claim, then namespace, name, UID, driver, pool and share of it), then end;
//   offered, then TAB id for each that the plugins offer, when that changes; none the list became
//   too old poll RESULT GRPC-STATUS POLLS FAILURES RATE-LIMITED SHORTS SEEN MICROSECONDS ERROR-TEXT
//   after each poll
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "io/loop.h"
#include "kube/pod_resources.h"

struct probe {
    struct loop *loop;
    struct pod_resources *poller;
    struct pod_resources_stats last;
    const char *resource; // prefix of the wanted ones; "" all
};

static bool wanted(void *user, struct sv resource, struct sv device_id)
{
    const struct probe *p = user;
    return sv_starts_with(resource, sv_from(p->resource));
}

static void changed(void *user, struct pod_devices *devices)
{
    if (!devices) {
        puts("none");
        return;
    }
    printf("list %zu %zu %zu\n", devices->count, devices->pods, devices->skipped);
    for (size_t i = 0; i < devices->count; i++) {
        const struct pod_device *d = &devices->rows[i];
        const struct pod_device_claim *c = d->claim;
        printf("row\t%s\t%s\t%s\t%s\t%s", d->namespace_name, d->pod, d->container, d->resource,
               d->device_id);
        if (c)
            printf("\t%s\t%s\t%s\t%s\t%s\t%s", c->namespace_name, c->name, c->uid, c->driver,
                   c->pool, c->share_id);
        putchar('\n');
    }
    puts("end");
}

static void print_offers(const struct pod_devices *offers)
{
    printf("offered");
    for (size_t i = 0; offers && i < offers->count; i++)
        printf("\t%s", offers->rows[i].device_id);
    putchar('\n');
}

// A poll has ended when one of these moved.
static void look(void *user)
{
    struct probe *p = user;
    struct pod_resources_stats s;
    pod_resources_get_stats(p->poller, &s);
    if (s.allocatable_version != p->last.allocatable_version)
        print_offers(s.allocatable);
    p->last.allocatable_version = s.allocatable_version;
    if (s.failures == p->last.failures && s.last_ok_ns == p->last.last_ok_ns)
        return;
    p->last = s;
    printf("poll %d %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %d %" PRIu64 " %s\n",
           s.last_result, s.last_grpc_status, s.polls, s.failures, s.rate_limited,
           s.reconnect_shorts, s.socket_seen, s.last_duration_ns / NS_PER_US, s.last_error);
}

static void command(void *user, unsigned events)
{
    struct probe *p = user;
    char line[64];
    ssize_t n = read(STDIN_FILENO, line, sizeof(line));
    if (n > 0 && sv_starts_with((struct sv){line, (size_t)n}, SV("kick")))
        pod_resources_kick(p->poller);
    else
        loop_stop(p->loop, 0);
}

static uint64_t milliseconds(const char *text)
{
    uint64_t ms;
    if (num_parse_u64(sv_from(text), 1, 1000000, &ms) < 0) {
        fprintf(stderr, "not a number of milliseconds: %s\n", text);
        exit(2);
    }
    return ms * NS_PER_MS;
}

int main(int argc, char **argv)
{
    struct probe p = {0};
    struct loop_timer *timer;
    struct loop_fd *input;
    if (argc != 7) {
        fprintf(stderr, "usage: %s SOCKET INTERVAL DEADLINE MAX-AGE GRACE RESOURCE-PREFIX\n",
                argv[0]);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    p.resource = argv[6];
    const struct pod_resources_config config = {
        .socket_path = argv[1],
        .interval_ns = milliseconds(argv[2]),
        .deadline_ns = milliseconds(argv[3]),
        .max_age_ns = milliseconds(argv[4]),
        .restart_grace_ns = milliseconds(argv[5]),
        .wanted = wanted,
        .changed = changed,
        .user = &p,
    };
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_DEBUG);
    if (loop_new(&p.loop) < 0 || pod_resources_new(p.loop, &config, &p.poller) < 0 ||
        loop_timer_new(p.loop, look, &p, &timer) < 0 ||
        loop_fd_new(p.loop, STDIN_FILENO, LOOP_READABLE, command, &p, &input) < 0) {
        fprintf(stderr, "start failed\n");
        return 1;
    }
    loop_timer_set(timer, 2 * NS_PER_MS, 2 * NS_PER_MS);
    int status = loop_run(p.loop);
    loop_fd_free(input);
    loop_timer_free(timer);
    pod_resources_free(p.poller);
    loop_free(p.loop);
    return status;
}
