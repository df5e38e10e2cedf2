// SPDX-License-Identifier: Apache-2.0
// The delivery for the integration tests, on a real loop, disk and socket, with fixed keys.
// Arguments: ENDPOINT SPOOL-DIRECTORY PREFIX. Lines on stdin:
//   add STREAM COUNT BYTES   so many events of so many bytes, {"id":"PREFIX-N",...}, a sample each
//   load STREAMS             goes on adding to streams s0, s1 ... as fast as they are spooled
//   stats                    tells the counts
//   drain MS                 tells when it is drained
//   end                      frees the delivery in order and ends; so does the end of stdin
// After each adding that has been spooled, a line {"spooled":N}: all ids below N are on disk.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/delivery_internal.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/num.h"
#include "scripted_credentials.h"

extern char **environ;

struct probe {
    struct aws_env env;
    struct aws_credentials *credentials;
    struct aws_logs *logs;
    struct delivery *delivery;
    struct loop_fd *input;
    struct loop_timer *tick;
    struct buf text;
    const char *prefix;
    uint64_t next_id, told_id;
    uint64_t load_streams; // 0: none
};

static void say(const char *line)
{
    printf("%s\n", line);
    fflush(stdout);
}

static void add(struct probe *p, struct sv stream, size_t bytes)
{
    static char text[LOGS_EVENT_BYTES_MAX];
    int head = snprintf(text, sizeof(text), "{\"id\":\"%s-%" PRIu64 "\",\"x\":\"", p->prefix,
                        p->next_id++);
    size_t len = bytes > (size_t)head + 2 ? bytes : (size_t)head + 2;
    memset(text + head, 'x', len - (size_t)head);
    memcpy(text + len - 2, "\"}", 2);
    const struct delivery_event e = {
        .group = SV("/podgpu/test"),
        .stream = stream,
        .message = {text, len},
        .timestamp_ms = (int64_t)(clock_wall_ns() / NS_PER_MS),
        .samples = 1,
    };
    delivery_add(p->delivery, &e);
}

static void add_load(struct probe *p)
{
    char stream[16];
    uint64_t events = 1 + clock_jitter_ns(40);
    for (uint64_t i = 0; i < events; i++) {
        (void)snprintf(stream, sizeof(stream), "s%" PRIu64, clock_jitter_ns(p->load_streams - 1));
        add(p, sv_from(stream), 60 + clock_jitter_ns(i == 0 ? 20000 : 500));
    }
}

static bool is_spooled(const struct delivery *d)
{
    return d->gathered_bytes == 0 && !d->unspooled.first && !d->is_disk_failing &&
           !d->is_job_running;
}

static void on_tick(void *user)
{
    struct probe *p = user;
    char line[64];
    if (p->told_id < p->next_id && is_spooled(p->delivery)) {
        p->told_id = p->next_id;
        (void)snprintf(line, sizeof(line), "{\"spooled\":%" PRIu64 "}", p->told_id);
        say(line);
    }
    if (p->load_streams && p->told_id == p->next_id)
        add_load(p);
}

static void on_drained(void *user)
{
    (void)user;
    say("{\"drained\":true}");
}

static void print_stats(const struct probe *p)
{
    struct delivery_stats s;
    delivery_get_stats(p->delivery, &s);
    uint64_t lost = 0;
    for (size_t i = 0; i < DELIVERY_LOSS_COUNT; i++)
        lost += s.lost_events[i];
    printf("{\"events\":%" PRIu64 ",\"recovered\":%" PRIu64 ",\"delivered\":%" PRIu64
           ",\"lost\":%" PRIu64 ",\"waiting\":%" PRIu64 ",\"duplicates\":%" PRIu64
           ",\"retries\":%" PRIu64,
           s.events, s.recovered_events, s.delivered_events, lost, s.waiting_events,
           s.duplicate_events, s.retries);
    printf(",\"corrupt\":%" PRIu64 ",\"failures\":%" PRIu64
           ",\"memory\":%s,\"unclean\":%s,\"job\":%s}\n",
           s.lost_events[DELIVERY_LOST_CORRUPT], s.spool_failures,
           s.is_spooling_to_memory ? "true" : "false", s.was_unclean ? "true" : "false",
           p->delivery->is_job_running ? "true" : "false");
    fflush(stdout);
}

static void end(struct probe *p)
{
    loop_timer_free(p->tick);
    loop_fd_free(p->input);
    p->tick = NULL;
    p->input = NULL;
    delivery_free(TAKE_PTR(p->delivery));
    loop_stop(p->env.loop, 0);
}

static uint64_t number(struct sv *line)
{
    struct sv word;
    uint64_t n;
    if (!sv_next(line, ' ', &word) || num_parse_u64(word, 0, UINT32_MAX, &n) < 0)
        exit(3);
    return n;
}

static void obey(struct probe *p, struct sv line)
{
    struct sv word, stream;
    (void)sv_next(&line, ' ', &word);
    if (sv_equals(word, SV("add"))) {
        (void)sv_next(&line, ' ', &stream);
        uint64_t count = number(&line), bytes = number(&line);
        for (uint64_t i = 0; i < count; i++)
            add(p, stream, bytes);
    } else if (sv_equals(word, SV("load"))) {
        p->load_streams = number(&line);
    } else if (sv_equals(word, SV("stats"))) {
        print_stats(p);
    } else if (sv_equals(word, SV("drain"))) {
        delivery_drain(p->delivery, number(&line) * NS_PER_MS);
    } else if (sv_equals(word, SV("end"))) {
        end(p);
    } else {
        exit(3);
    }
}

static void on_input(void *user, unsigned events)
{
    struct probe *p = user;
    char piece[4096];
    (void)events;
    ssize_t n = read(STDIN_FILENO, piece, sizeof(piece));
    if (n <= 0) {
        end(p);
        return;
    }
    buf_add(&p->text, piece, (size_t)n);
    size_t newline;
    while (p->delivery && (newline = sv_find_char(buf_sv(&p->text), '\n')) != (size_t)-1) {
        obey(p, (struct sv){p->text.data, newline});
        buf_consume(&p->text, newline + 1);
    }
}

static int set_up(struct probe *p, const char *endpoint, const char *directory)
{
    struct error err = ERROR_INIT;
    const struct scripted_credentials script = {
        .keys = {{"AKIDEXAMPLE", "a/secret+key", NULL}},
    };
    const struct logs_options logs = {
        .region = "us-west-2", .endpoint_override = endpoint, .deadline_s = 60};
    if (loop_new(&p->env.loop) < 0 || http_client_new(p->env.loop, &p->env.client, &err) < 0 ||
        scripted_credentials_new(p->env.loop, &script, &p->credentials) < 0 ||
        aws_logs_new(&p->env, p->credentials, &logs, &p->logs) < 0)
        return -ENOMEM;
    const struct delivery_options o = {
        .loop = p->env.loop,
        .logs = p->logs,
        .flush_ns = 10 * NS_PER_MS,
        .spool_directory = directory,
        .spool_max_bytes = 256u << 20,
        .drained = on_drained,
    };
    int r = delivery_new(&o, &p->delivery, &err);
    if (r < 0)
        fprintf(stderr, "%s\n", err.text);
    return r;
}

int main(int argc, char **argv)
{
    struct probe p = {.env.environment = environ, .text = BUF_INIT(1u << 20)};
    if (argc != 4)
        return 2;
    p.prefix = argv[3];
    if (set_up(&p, argv[1], argv[2]) < 0 || loop_timer_new(p.env.loop, on_tick, &p, &p.tick) < 0 ||
        loop_fd_new(p.env.loop, STDIN_FILENO, LOOP_READABLE, on_input, &p, &p.input) < 0)
        return 1;
    loop_timer_set(p.tick, NS_PER_MS, NS_PER_MS);
    say("{\"ready\":true}");
    int status = loop_run(p.env.loop);
    aws_logs_free(p.logs);
    aws_credentials_free(p.credentials);
    http_client_free(p.env.client);
    loop_free(p.env.loop);
    buf_deinit(&p.text);
    return status;
}
