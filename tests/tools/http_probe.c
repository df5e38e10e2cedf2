// SPDX-License-Identifier: Apache-2.0
// Serves a few bodies with io/http_server, for tests/integration/test_http_server.py and
// benchmarks. Prints "port N" when it listens; stops on SIGTERM, freeing everything, so that a leak
// checker sees what is left.
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/num.h"
#include "io/http_server.h"
#include "io/loop.h"

#define PAGE_BYTES (73u << 10)
#define BIG_BYTES (5u << 19) // 2.5 MiB
#define MADE_BYTES_MAX (32u << 20)

struct probe {
    struct loop *loop;
    struct http_server *server;
    struct http_body *page, *big, *empty;
};

// Text that compresses about as exposition text does.
static struct http_body *make_body(size_t bytes)
{
    struct buf text = BUF_INIT(MADE_BYTES_MAX);
    struct http_body *body = NULL;
    uint64_t value = 88172645463325252u;
    while (text.len < bytes && !text.error) {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        buf_add_fmt(&text,
                    "DCGM_FI_DEV_GPU_UTIL{gpu=\"%u\",UUID=\"GPU-00000000-0000-0000-0000-"
                    "000000000000\"} %u\n",
                    (unsigned)(value & 7), (unsigned)(value >> 32 & 1023));
    }
    size_t len = text.len;
    char *data = text.error ? NULL : buf_take(&text, NULL);
    buf_deinit(&text);
    if ((!data && bytes > 0) ||
        http_body_new(data, len, "text/plain; version=0.0.4; charset=utf-8", &body) < 0)
        abort();
    return body;
}

static void reply_number(struct http_request *r, uint64_t value)
{
    char text[32];
    int len = snprintf(text, sizeof(text), "%llu\n", (unsigned long long)value);
    http_reply_text(r, 200, (struct sv){text, (size_t)len}, NULL, 0);
}

static void reply_stats(struct probe *p, struct http_request *r)
{
    struct http_server_stats s;
    struct buf text = BUF_INIT(1024);
    http_server_get_stats(p->server, &s);
    buf_add_fmt(
        &text,
        "{\"requests\":%llu,\"denied\":%llu,\"limited\":%llu,\"bad_requests\":%llu,\"connections\":"
        "%llu,"
        "\"refused\":%llu,\"evicted\":%llu,\"timed_out\":%llu,\"open\":%u,\"web_config_ok\":%s}\n",
        (unsigned long long)s.requests, (unsigned long long)s.denied, (unsigned long long)s.limited,
        (unsigned long long)s.bad_requests, (unsigned long long)s.connections,
        (unsigned long long)s.refused, (unsigned long long)s.evicted,
        (unsigned long long)s.timed_out, s.open, s.web_config_ok ? "true" : "false");
    http_reply_text(r, 200, buf_sv(&text), NULL, 0);
    buf_deinit(&text);
}

static void reply_made(struct http_request *r, struct sv number)
{
    uint64_t bytes;
    if (num_parse_u64(number, 0, MADE_BYTES_MAX - 4096, &bytes) < 0) {
        http_reply_text(r, 400, SV("how many bytes?\n"), NULL, 0);
        return;
    }
    struct http_body *body = make_body(bytes);
    http_reply(r, 200, body, NULL, 0);
    http_body_unref(body);
}

static void reply_echo(struct http_request *r)
{
    struct sv value = http_request_header(r, "x-echo");
    struct sv method = http_request_method(r);
    char text[512];
    int len = snprintf(text, sizeof(text), "%.*s %.*s %s\n", SV_FMT(method), (int)value.len,
                       value.ptr ? value.ptr : "", http_request_is_local(r) ? "local" : "remote");
    const struct http_header extra[] = {{"X-Registry-Available", "true"}, {"X-Other", "1"}};
    http_reply_text(r, 200, (struct sv){text, (size_t)len}, extra, ARRAY_SIZE(extra));
}

static void reply_reload(struct probe *p, struct http_request *r)
{
    struct error err = ERROR_INIT;
    char text[1024];
    int result = http_server_reload(p->server, &err);
    http_reply_text(r, result < 0 ? 500 : 200,
                    sv_from(result < 0 ? error_text(&err, text, sizeof(text)) : "ok\n"), NULL, 0);
}

static void handle(void *user, struct http_request *r)
{
    struct probe *p = user;
    const struct http_header extra = {"X-Extra", "yes"};
    struct sv path = http_request_path(r);
    if (sv_equals(path, SV("/metrics")))
        http_reply(r, 200, p->page, NULL, 0);
    else if (sv_equals(path, SV("/big")))
        http_reply(r, 200, p->big, NULL, 0);
    else if (sv_equals(path, SV("/extra")))
        http_reply(r, 200, p->big, &extra, 1);
    else if (sv_equals(path, SV("/empty")))
        http_reply(r, 200, p->empty, NULL, 0);
    else if (sv_starts_with(path, SV("/bytes/")))
        reply_made(r, sv_sub(path, 7, path.len));
    else if (sv_equals(path, SV("/echo")))
        reply_echo(r);
    else if (sv_equals(path, SV("/stats")))
        reply_stats(p, r);
    else if (sv_equals(path, SV("/readers")))
        reply_number(r, http_body_readers(p->big));
    else if (sv_equals(path, SV("/shut")))
        reply_number(r, http_body_shut_readers(p->big));
    else if (sv_equals(path, SV("/reload")))
        reply_reload(p, r);
    else
        http_reply_text(r, 404, SV("404 page not found\n"), NULL, 0);
}

static void stop(void *user, int signo)
{
    struct probe *p = user;
    (void)signo;
    loop_stop(p->loop, 0);
}

static int usage(void)
{
    fprintf(stderr,
            "usage: http_probe [--address A] [--web-config FILE] [--idle-ms N] [--systemd]\n");
    return 2;
}

static int parse(int argc, char **argv, struct http_server_config *out)
{
    for (int i = 1; i < argc; i++) {
        uint64_t n;
        if (strcmp(argv[i], "--systemd") == 0)
            out->systemd_socket = true;
        else if (i + 1 == argc)
            return -EINVAL;
        else if (strcmp(argv[i], "--address") == 0)
            out->address = argv[++i];
        else if (strcmp(argv[i], "--web-config") == 0)
            out->web_config_file = argv[++i];
        else if (strcmp(argv[i], "--idle-ms") == 0 &&
                 num_parse_u64(sv_from(argv[++i]), 1, UINT32_MAX, &n) == 0)
            out->idle_ms = (uint32_t)n;
        else
            return -EINVAL;
    }
    return 0;
}

static int run(struct probe *p, const struct http_server_config *config)
{
    struct error err = ERROR_INIT;
    char text[1024];
    if (http_server_new(p->loop, config, &p->server, &err) < 0) {
        fprintf(stderr, "%s\n", error_text(&err, text, sizeof(text)));
        return 1;
    }
    printf("port %u\n", http_server_port(p->server));
    fflush(stdout);
    int status = loop_run(p->loop);
    http_server_free(p->server);
    return status;
}

int main(int argc, char **argv)
{
    struct probe p = {0};
    struct http_server_config config = {.address = "127.0.0.1:0", .handle = handle, .user = &p};
    struct loop_signal *on_term = NULL;
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    if (parse(argc, argv, &config) < 0)
        return usage();
    if (loop_new(&p.loop) < 0 || loop_signal_new(p.loop, SIGTERM, stop, &p, &on_term) < 0)
        return 1;
    p.page = make_body(PAGE_BYTES);
    p.big = make_body(BIG_BYTES);
    p.empty = make_body(0);
    int status = run(&p, &config);
    http_body_unref(p.page);
    http_body_unref(p.big);
    http_body_unref(p.empty);
    loop_signal_free(on_term);
    loop_free(p.loop);
    return status;
}
