// SPDX-License-Identifier: Apache-2.0
// The HTTP client for the integration tests: requests as the command line says, one after the
// other; of each answer a line of tab-separated fields, then the body.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "io/http_client.h"

#define HEADERS_MAX 16

struct probe {
    struct loop *loop;
    struct http_client *client;
    struct http_handle *handle;
    struct http_call *call;
    struct loop_timer *cancel;
    struct http_client_request request;
    const char *headers[HEADERS_MAX + 1];
    size_t header_count;
    uint64_t repeat, cancel_ms, stop_after;
    size_t streamed;
    bool keep, free_inside, stream, cancel_in_data, env_proxy;
};

static void done(void *user, const struct http_client_response *response);

static int start(struct probe *p)
{
    struct error err = ERROR_INIT;
    int r = http_client_start(p->client, p->handle, &p->request, done, p, &p->call, &err);
    if (r < 0)
        printf("refused\t%d\t%s\n", r, err.text);
    return r;
}

static void finish(struct probe *p)
{
    if (p->free_inside) {
        http_client_free(p->client);
        p->client = NULL;
    }
    loop_stop(p->loop, 0);
}

static void done(void *user, const struct http_client_response *response)
{
    struct probe *p = user;
    struct sv test = http_call_header(p->call, "X-Test");
    size_t length;
    printf("answer\t%d\t%u\t%zu\t%" PRId64 "\t%" PRIu64 "\t%.*s\t%.*s\t%zu\t%s\n", response->result,
           response->status, response->body.len, response->server_time_s, response->retry_after_s,
           SV_FMT(response->content_type), SV_FMT(test), p->streamed, response->error);
    fwrite(response->body.ptr ? response->body.ptr : "", 1, response->body.len, stdout);
    free(http_client_take_body(p->call, &length));
    http_call_free(p->call);
    p->call = NULL;
    if (--p->repeat == 0 || start(p) < 0)
        finish(p);
}

static int on_data(void *user, struct sv piece)
{
    struct probe *p = user;
    p->streamed += piece.len;
    if (p->cancel_in_data) {
        http_call_free(p->call);
        p->call = NULL;
        printf("cancelled\n");
        loop_stop(p->loop, 0);
        return 0;
    }
    return p->stop_after && p->streamed >= p->stop_after ? -ECANCELED : 0;
}

static void on_cancel(void *user)
{
    struct probe *p = user;
    http_call_free(p->call);
    p->call = NULL;
    printf("cancelled\n");
    loop_stop(p->loop, 0);
}

static const char **text_option(struct probe *p, const char *name)
{
    struct http_client_request *r = &p->request;
    const struct {
        const char *name;
        const char **place;
    } options[] = {
        {"--url", &r->url},
        {"--method", &r->method},
        {"--body", &r->body.ptr},
        {"--ca", &r->tls.ca_file},
        {"--cert", &r->tls.cert_file},
        {"--key", &r->tls.key_file},
        {"--ca-pem", &r->tls.ca_pem},
        {"--cert-pem", &r->tls.cert_pem},
        {"--key-pem", &r->tls.key_pem},
        {"--server-name", &r->tls.server_name},
        {"--proxy", &r->proxy},
        {"--no-proxy", &r->no_proxy},
        {"--user", &r->user},
        {"--password", &r->password},
        {"--unix", &r->unix_socket},
        {"--service", &r->sign.service},
        {"--region", &r->sign.region},
        {"--access-key", &r->sign.access_key.ptr},
        {"--secret-key", &r->sign.secret_key.ptr},
        {"--token", &r->sign.session_token.ptr},
        {"--date", &r->sign.date},
    };
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        if (strcmp(options[i].name, name) == 0)
            return options[i].place;
    if (strcmp(name, "--header") == 0 && p->header_count < HEADERS_MAX)
        return &p->headers[p->header_count++];
    return NULL;
}

static bool *flag_option(struct probe *p, const char *name)
{
    const struct {
        const char *name;
        bool *place;
    } options[] = {
        {"--insecure", &p->request.tls.insecure}, {"--follow", &p->request.follow_redirects},
        {"--gzip", &p->request.accept_gzip},      {"--keep", &p->keep},
        {"--free-inside", &p->free_inside},       {"--stream", &p->stream},
        {"--cancel-in-data", &p->cancel_in_data}, {"--env-proxy", &p->env_proxy},
    };
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        if (strcmp(options[i].name, name) == 0)
            return options[i].place;
    return NULL;
}

static int number_option(struct probe *p, const char *name, const char *text)
{
    uint64_t n;
    if (num_parse_u64(sv_from(text), 0, UINT32_MAX, &n) < 0)
        return -EINVAL;
    if (strcmp(name, "--deadline-ms") == 0)
        p->request.deadline_ns = n * NS_PER_MS;
    else if (strcmp(name, "--max") == 0)
        p->request.max_body_bytes = n;
    else if (strcmp(name, "--repeat") == 0)
        p->repeat = n;
    else if (strcmp(name, "--cancel-ms") == 0)
        p->cancel_ms = n;
    else if (strcmp(name, "--stop-after") == 0)
        p->stop_after = n;
    else if (strcmp(name, "--min-tls") == 0)
        p->request.tls.min_version = (int)n;
    else if (strcmp(name, "--max-tls") == 0)
        p->request.tls.max_version = (int)n;
    else
        return -EINVAL;
    return 0;
}

static int parse(struct probe *p, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        bool *flag = flag_option(p, argv[i]);
        if (flag) {
            *flag = true;
            continue;
        }
        if (i + 1 == argc)
            return -EINVAL;
        const char **place = text_option(p, argv[i]);
        if (place)
            *place = argv[i + 1];
        else if (number_option(p, argv[i], argv[i + 1]) < 0)
            return -EINVAL;
        i++;
    }
    struct http_client_request *r = &p->request;
    r->body = sv_from(r->body.ptr);
    r->sign.access_key = sv_from(r->sign.access_key.ptr);
    r->sign.secret_key = sv_from(r->sign.secret_key.ptr);
    r->sign.session_token = sv_from(r->sign.session_token.ptr);
    r->headers = p->headers;
    if (p->env_proxy)
        r->proxy = NULL;
    r->data = p->stream ? on_data : NULL;
    return 0;
}

static int run(struct probe *p)
{
    struct error err = ERROR_INIT;
    if (http_client_new(p->loop, &p->client, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 3;
    }
    if (p->keep && !(p->handle = http_handle_new(p->client)))
        return 1;
    if (p->cancel_ms) {
        if (loop_timer_new(p->loop, on_cancel, p, &p->cancel) < 0)
            return 1;
        loop_timer_set(p->cancel, p->cancel_ms * NS_PER_MS, 0);
    }
    int status = start(p) < 0 ? 4 : loop_run(p->loop);
    loop_timer_free(p->cancel);
    http_handle_free(p->handle);
    http_client_free(p->client);
    return status;
}

int main(int argc, char **argv)
{
    struct probe p = {.repeat = 1};
    p.request.deadline_ns = 10 * NS_PER_S;
    p.request.max_body_bytes = 1 << 20;
    p.request.proxy = "";
    if (parse(&p, argc, argv) < 0 || loop_new(&p.loop) < 0) {
        fprintf(stderr, "bad arguments\n");
        return 2;
    }
    int status = run(&p);
    loop_free(p.loop);
    return status;
}
