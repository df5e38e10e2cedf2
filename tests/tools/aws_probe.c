// SPDX-License-Identifier: Apache-2.0
// AWS credentials, look-ups and endpoints for the integration tests, by this program's environment:
// a line of JSON for each answer, secrets and all.
//
// aws_probe credentials [--role ARN] [--region R] [--watch-ms N [--lines N]] [--expire-every-ms N]
// aws_probe region [--configured R]
// aws_probe cluster [--configured C] [--region R]
//   both: --watch-ms N ends it after that time
// aws_probe endpoint SERVICE REGION [--dualstack]
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/aws/credentials.h"
#include "base/clock.h"
#include "base/num.h"
#include "codec/json.h"

extern char **environ;

struct probe {
    struct aws_env env;
    struct aws_credentials *credentials;
    struct aws_lookup *lookup;
    struct loop_timer *stop, *expire;
    const char *role, *region, *configured;
    const char *words[3];
    size_t word_count;
    uint64_t watch_ms, lines, expire_every_ms, started_ns;
    bool dualstack;
};

static void add_member(struct buf *b, const char *key, struct sv value)
{
    buf_add_str(b, b->len > 1 ? ", " : "");
    json_add_string(b, sv_from(key));
    buf_add_str(b, ": ");
    json_add_string(b, value.ptr ? value : SV(""));
}

static void print_line(struct buf *b)
{
    buf_add_str(b, "}\n");
    fputs(buf_cstr(b), stdout);
    fflush(stdout);
    buf_deinit(b);
}

// Whether there was an answer.
static bool print_credentials(struct probe *p)
{
    struct buf line = BUF_INIT(64u << 10);
    struct aws_keys keys;
    struct error err = ERROR_INIT;
    int r = aws_credentials_get(p->credentials, &keys, &err);
    if (r == -EAGAIN)
        return false;
    buf_add_char(&line, '{');
    add_member(&line, "result", r == 0 ? SV("ok") : r == -ENOENT ? SV("none") : SV("failed"));
    add_member(&line, "provider", sv_from(aws_credentials_provider(p->credentials)));
    if (r == 0) {
        add_member(&line, "access_key", keys.access_key);
        add_member(&line, "secret_key", keys.secret_key);
        add_member(&line, "session_token", keys.session_token);
    } else {
        char text[800];
        add_member(&line, "error", sv_from(error_text(&err, text, sizeof(text))));
    }
    buf_add_fmt(&line, ", \"at_ms\": %llu",
                (unsigned long long)((clock_mono_ns() - p->started_ns) / NS_PER_MS));
    print_line(&line);
    return true;
}

static void on_changed(void *user)
{
    struct probe *p = user;
    if (print_credentials(p) && (!p->watch_ms || (p->lines && --p->lines == 0)))
        loop_stop(p->env.loop, 0);
}

static void on_stop(void *user)
{
    struct probe *p = user;
    loop_stop(p->env.loop, 0);
}

static void on_expire(void *user)
{
    struct probe *p = user;
    aws_credentials_expire(p->credentials);
}

static int run_credentials(struct probe *p)
{
    if (aws_credentials_new(&p->env, p->role, p->region, &p->credentials) < 0 ||
        loop_timer_new(p->env.loop, on_stop, p, &p->stop) < 0 ||
        loop_timer_new(p->env.loop, on_expire, p, &p->expire) < 0)
        return 1;
    aws_credentials_watch(p->credentials, on_changed, p);
    bool answered = print_credentials(p);
    if (p->expire_every_ms)
        loop_timer_set(p->expire, p->expire_every_ms * NS_PER_MS, p->expire_every_ms * NS_PER_MS);
    if (p->watch_ms)
        loop_timer_set(p->stop, p->watch_ms * NS_PER_MS, 0);
    if (answered && (!p->watch_ms || (p->lines && --p->lines == 0)))
        return 0;
    return loop_run(p->env.loop);
}

static void on_found(void *user, const char *text, const struct error *err)
{
    struct probe *p = user;
    struct buf line = BUF_INIT(4096);
    buf_add_char(&line, '{');
    add_member(&line, "text", sv_from(text));
    add_member(&line, "error", sv_from(err ? err->text : ""));
    print_line(&line);
    aws_lookup_free(p->lookup); // inside done: allowed
    p->lookup = NULL;
    loop_stop(p->env.loop, 0);
}

static int run_lookup(struct probe *p, bool is_cluster)
{
    int r;
    if (is_cluster) {
        r = aws_credentials_new(&p->env, p->role, p->region, &p->credentials);
        if (r == 0)
            r = aws_cluster_find(&p->env, p->configured, p->region, p->credentials, on_found, p,
                                 &p->lookup);
    } else {
        r = aws_region_find(&p->env, p->configured, on_found, p, &p->lookup);
    }
    if (r == 0 && p->watch_ms)
        r = loop_timer_new(p->env.loop, on_stop, p, &p->stop);
    if (r == 0 && p->watch_ms)
        loop_timer_set(p->stop, p->watch_ms * NS_PER_MS, 0);
    return r < 0 ? 1 : loop_run(p->env.loop);
}

static int run_endpoint(struct probe *p)
{
    struct buf url = BUF_INIT(1024), line = BUF_INIT(2048);
    aws_endpoint(&p->env, p->words[1], p->words[2], p->dualstack, &url);
    buf_add_char(&line, '{');
    add_member(&line, "url", url.error ? SV("") : buf_sv(&url));
    print_line(&line);
    buf_deinit(&url);
    return 0;
}

static int run(struct probe *p)
{
    struct error err = ERROR_INIT;
    if (loop_new(&p->env.loop) < 0)
        return 1;
    p->started_ns = clock_mono_ns();
    if (http_client_new(p->env.loop, &p->env.client, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        return 3;
    }
    int status = 2;
    if (strcmp(p->words[0], "credentials") == 0)
        status = run_credentials(p);
    else if (strcmp(p->words[0], "region") == 0)
        status = run_lookup(p, false);
    else if (strcmp(p->words[0], "cluster") == 0)
        status = run_lookup(p, true);
    else if (strcmp(p->words[0], "endpoint") == 0 && p->word_count == 3)
        status = run_endpoint(p);
    aws_lookup_free(p->lookup);
    aws_credentials_free(p->credentials);
    loop_timer_free(p->stop);
    loop_timer_free(p->expire);
    http_client_free(p->env.client);
    return status;
}

static bool take_option(struct probe *p, const char *name, const char *value)
{
    if (strcmp(name, "--role") == 0)
        p->role = value;
    else if (strcmp(name, "--region") == 0)
        p->region = value;
    else if (strcmp(name, "--configured") == 0)
        p->configured = value;
    else if (strcmp(name, "--watch-ms") == 0)
        return num_parse_u64(sv_from(value), 0, 600000, &p->watch_ms) == 0;
    else if (strcmp(name, "--lines") == 0)
        return num_parse_u64(sv_from(value), 1, 1000, &p->lines) == 0;
    else if (strcmp(name, "--expire-every-ms") == 0)
        return num_parse_u64(sv_from(value), 1, 600000, &p->expire_every_ms) == 0;
    else
        return false;
    return true;
}

static bool parse(struct probe *p, int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--dualstack") == 0)
            p->dualstack = true;
        else if (strncmp(argv[i], "--", 2) != 0 && p->word_count < ARRAY_SIZE(p->words))
            p->words[p->word_count++] = argv[i];
        else if (i + 1 == argc || !take_option(p, argv[i], argv[i + 1]))
            return false;
        else
            i++;
    }
    return p->word_count > 0;
}

int main(int argc, char **argv)
{
    struct probe p = {.env = {.environment = environ}};
    if (!parse(&p, argc, argv)) {
        fprintf(stderr, "bad arguments\n");
        return 2;
    }
    int status = run(&p);
    loop_free(p.env.loop);
    return status;
}
