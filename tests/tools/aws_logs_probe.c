// SPDX-License-Identifier: Apache-2.0
// CloudWatch Logs for the integration tests, with scripted or real credentials. Batches come as
// JSON lines on stdin, {"group": ..., "stream": ..., "events": [[timestamp, message], ...]};
// {"cancel": true} cancels what is under way, {"leave": true} frees all but the batches. Of each
// batch a JSON line in order of its end; last a line of counts.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/aws/logs.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/num.h"
#include "codec/json.h"
#include "scripted_credentials.h"

#define PUTS_MAX 4096
#define INPUT_BYTES (64u << 20)

extern char **environ;

struct put {
    struct probe *probe;
    struct logs_call *call;
    size_t number;
};

struct probe {
    struct aws_env env;
    struct aws_credentials *credentials;
    struct aws_logs *logs;
    struct loop_fd *input;
    struct buf text;
    struct put puts[PUTS_MAX];
    size_t put_count, open;
    bool one_by_one, free_all, is_at_end, real_keys;
    struct logs_options options;
    struct scripted_credentials script;
};

static const char *outcome_text(enum logs_outcome outcome)
{
    switch (outcome) {
    case LOGS_DELIVERED:
        return "delivered";
    case LOGS_RETRY:
        return "retry";
    case LOGS_THROTTLED:
        return "throttled";
    case LOGS_SPLIT:
        return "split";
    case LOGS_REFUSED:
        return "refused";
    case LOGS_CREDENTIALS:
        return "credentials";
    }
    return "";
}

static void print_stats(const struct probe *p)
{
    struct logs_stats s;
    aws_logs_get_stats(p->logs, &s);
    printf("{\"requests\":%" PRIu64 ",\"failures\":%" PRIu64 ",\"groups_created\":%" PRIu64
           ",\"streams_created\":%" PRIu64 ",\"throttled\":%" PRIu64 ",\"clock_offset_s\":%" PRId64
           ",\"expired\":%u}\n",
           s.requests, s.failures, s.groups_created, s.streams_created, s.throttled,
           s.clock_offset_s, scripted_credentials_expired(p->credentials));
    fflush(stdout);
}

static void leave(struct probe *p)
{
    aws_logs_free(TAKE_PTR(p->logs));
    aws_credentials_free(TAKE_PTR(p->credentials));
    loop_fd_free(TAKE_PTR(p->input));
    p->is_at_end = true;
    printf("{\"left\":true}\n");
    fflush(stdout);
}

static void end(struct probe *p)
{
    for (size_t i = 0; i < p->put_count; i++) {
        logs_call_free(p->puts[i].call);
        p->puts[i].call = NULL;
    }
    if (p->logs)
        print_stats(p);
    aws_logs_free(TAKE_PTR(p->logs));
    loop_stop(p->env.loop, 0);
}

static void read_lines(struct probe *p);

static void on_done(void *user, const struct logs_result *result)
{
    struct put *put = user;
    struct probe *p = put->probe;
    struct buf line = BUF_INIT(4096);
    buf_add_fmt(&line, "{\"batch\":%zu,\"outcome\":\"%s\",\"old\":%zu,\"new\":%zu,", put->number,
                outcome_text(result->outcome), result->rejected_old, result->rejected_new);
    buf_add_fmt(&line, "\"retry_after\":%" PRIu64 ",\"error\":", result->retry_after_s);
    json_add_string(&line, sv_from(result->error));
    printf("%s}\n", buf_cstr(&line));
    fflush(stdout);
    buf_deinit(&line);
    logs_call_free(put->call);
    put->call = NULL;
    p->open--;
    if (p->free_all)
        end(p);
    else
        read_lines(p);
}

static struct sv text_of(const struct json_node *object, const char *key)
{
    const struct json_node *n = json_find(object, key);
    return n && n->kind == JSON_STRING ? n->string : SV("");
}

static size_t read_events(const struct json_node *list, struct logs_event *events)
{
    size_t count = 0;
    for (const struct json_node *n = list ? list->first : NULL; n && count < LOGS_BATCH_EVENTS_MAX;
         n = n->next)
        events[count++] = (struct logs_event){n->first->integer, n->first->next->string};
    return count;
}

static void cancel(struct probe *p)
{
    for (size_t i = 0; i < p->put_count; i++) {
        if (!p->puts[i].call)
            continue;
        logs_call_free(p->puts[i].call);
        p->puts[i].call = NULL;
        p->open--;
    }
    printf("{\"cancelled\":true}\n");
    fflush(stdout);
}

static void start(struct probe *p, const struct json_node *batch)
{
    static struct logs_event events[LOGS_BATCH_EVENTS_MAX];
    if (json_find(batch, "cancel")) {
        cancel(p);
        return;
    }
    if (json_find(batch, "leave")) {
        leave(p);
        return;
    }
    struct logs_batch b = {text_of(batch, "group"), text_of(batch, "stream"), events,
                           read_events(json_find(batch, "events"), events)};
    if (p->put_count == PUTS_MAX)
        exit(4);
    struct put *put = &p->puts[p->put_count];
    *put = (struct put){p, NULL, p->put_count};
    p->put_count++;
    p->open++;
    if (aws_logs_put(p->logs, &b, on_done, put, &put->call) < 0)
        exit(5);
}

static void read_lines(struct probe *p)
{
    size_t end_of_line;
    while ((end_of_line = sv_find_char(buf_sv(&p->text), '\n')) != (size_t)-1 &&
           !(p->one_by_one && p->open)) {
        struct json_document *d = NULL;
        struct error err = ERROR_INIT;
        if (json_parse((struct sv){p->text.data, end_of_line}, "stdin", &d, &err) < 0) {
            fprintf(stderr, "%s\n", err.text);
            exit(3);
        }
        buf_consume(&p->text, end_of_line + 1);
        start(p, json_root(d));
        json_document_free(d);
    }
    if (p->is_at_end && p->open == 0)
        end(p);
}

static void on_input(void *user, unsigned events)
{
    struct probe *p = user;
    (void)events;
    static char piece[65536];
    ssize_t n = read(STDIN_FILENO, piece, sizeof(piece));
    if (n > 0) {
        buf_add(&p->text, piece, (size_t)n);
    } else if (n == 0) {
        loop_fd_free(TAKE_PTR(p->input));
        p->is_at_end = true;
    }
    read_lines(p);
}

// "access:secret" or "access:secret:token", cut in place.
static void read_keys(char *text, struct scripted_keys *out)
{
    char *secret = strchr(text, ':');
    char *token = secret ? strchr(secret + 1, ':') : NULL;
    if (secret)
        *secret++ = '\0';
    if (token)
        *token++ = '\0';
    *out = (struct scripted_keys){text, secret ? secret : "", token};
}

static uint64_t number(const char *text)
{
    uint64_t n;
    if (num_parse_u64(sv_from(text), 0, UINT32_MAX, &n) < 0)
        exit(2);
    return n;
}

static bool read_flag(struct probe *p, const char *name)
{
    const struct {
        const char *name;
        bool *place;
    } flags[] = {
        {"--no-keys", &p->script.has_none},     {"--quiet-renewal", &p->script.is_quiet},
        {"--one-by-one", &p->one_by_one},       {"--free-all", &p->free_all},
        {"--dualstack", &p->options.dualstack}, {"--real-keys", &p->real_keys},
    };
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
        if (strcmp(flags[i].name, name) == 0) {
            *flags[i].place = true;
            return true;
        }
    }
    return false;
}

static void read_option(struct probe *p, const char *name, char *value)
{
    if (strcmp(name, "--endpoint") == 0) {
        p->options.endpoint_override = value;
    } else if (strcmp(name, "--region") == 0) {
        p->options.region = value;
    } else if (strcmp(name, "--retention") == 0) {
        p->options.retention_days = (unsigned)number(value);
    } else if (strcmp(name, "--deadline") == 0) {
        p->options.deadline_s = (unsigned)number(value);
    } else if (strcmp(name, "--keys") == 0) {
        read_keys(value, &p->script.keys[0]);
    } else if (strcmp(name, "--next-keys") == 0) {
        read_keys(value, &p->script.keys[1]);
        p->script.has_two = true;
    } else if (strcmp(name, "--first-ms") == 0) {
        p->script.first_ms = number(value);
    } else if (strcmp(name, "--renew-ms") == 0) {
        p->script.renew_ms = number(value);
    } else {
        exit(2);
    }
}

static int run(struct probe *p)
{
    struct error err = ERROR_INIT;
    if (http_client_new(p->env.loop, &p->env.client, &err) < 0)
        return 1;
    if ((p->real_keys ? aws_credentials_new(&p->env, NULL, NULL, &p->credentials)
                      : scripted_credentials_new(p->env.loop, &p->script, &p->credentials)) < 0)
        return 1;
    int r = aws_logs_new(&p->env, p->credentials, &p->options, &p->logs);
    if (r < 0) {
        struct buf url = BUF_INIT(4096);
        (void)!aws_logs_endpoint(&p->env, &p->options, &url, &err);
        fprintf(stderr, "%s\n", err.text);
        buf_deinit(&url);
    } else if (loop_fd_new(p->env.loop, STDIN_FILENO, LOOP_READABLE, on_input, p, &p->input) == 0) {
        r = loop_run(p->env.loop);
    }
    loop_fd_free(p->input);
    aws_logs_free(p->logs);
    aws_credentials_free(p->credentials);
    http_client_free(p->env.client);
    return r < 0 ? 6 : r;
}

int main(int argc, char **argv)
{
    static struct probe p;
    p.text = BUF_INIT(INPUT_BYTES);
    p.env.environment = environ;
    p.options.region = "us-west-2";
    p.script.keys[0] = (struct scripted_keys){"AKIDEXAMPLE", "a/secret+key", NULL};
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_INFO);
    for (int i = 1; i < argc; i++)
        if (!read_flag(&p, argv[i])) {
            if (i + 1 == argc)
                return 2;
            read_option(&p, argv[i], argv[i + 1]);
            i++;
        }
    if (loop_new(&p.env.loop) < 0)
        return 1;
    int status = run(&p);
    buf_deinit(&p.text);
    loop_free(p.env.loop);
    return status;
}
