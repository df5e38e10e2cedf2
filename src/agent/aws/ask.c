// SPDX-License-Identifier: Apache-2.0
#include "agent/aws/ask.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/limits.h"

#define HEADERS_MAX 8
#define URL_BYTES_MAX 4096
// A token of LIMIT_AWS_TOKEN_BYTES, each byte written as %XX.
#define BODY_BYTES_MAX (40u << 10)
#define HEADER_BYTES_MAX (16u << 10)
#define WAIT_LEAST_NS (200 * NS_PER_MS)
#define WAIT_MOST_NS (5 * NS_PER_S)
#define RETRY_AFTER_S_MAX 20
#define CLOCK_S_MAX 240
#define DATE_BYTES sizeof("20260102T030405Z")

static void on_timer(void *user);

int aws_ask_init(struct aws_ask *a, const struct aws_env *env,
                 void (*done)(void *user, const struct http_client_response *response), void *user)
{
    *a = (struct aws_ask){
        .env = env,
        .done = done,
        .user = user,
        .url = BUF_INIT(URL_BYTES_MAX),
        .body = BUF_INIT(BODY_BYTES_MAX),
        .headers = BUF_INIT(HEADER_BYTES_MAX),
    };
    aws_ask_clear(a);
    return loop_timer_new(env->loop, on_timer, a, &a->timer);
}

void aws_ask_deinit(struct aws_ask *a)
{
    http_call_free(a->call);
    loop_timer_free(a->timer);
    aws_erase_buf(&a->url);
    aws_erase_buf(&a->body);
    aws_erase_buf(&a->headers);
    *a = (struct aws_ask){0};
}

static void erase(struct buf *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    buf_reset(b);
}

void aws_ask_clear(struct aws_ask *a)
{
    erase(&a->url);
    erase(&a->body);
    erase(&a->headers);
    a->method = "GET";
    a->service = a->region = NULL;
    a->keys = NULL;
    a->deadline_ns = 5 * NS_PER_S;
    a->tries = 1;
    a->is_direct = false;
    a->again = NULL;
}

void aws_ask_header(struct aws_ask *a, const char *name, struct sv value)
{
    // Grows once, so that no copy of a secret stays behind in memory that was given back.
    if (buf_reserve(&a->headers, a->headers.data ? 0 : HEADER_BYTES_MAX) < 0)
        return;
    if (sv_find_char(value, '\0') != (size_t)-1)
        a->failure = -EINVAL;
    buf_add_str(&a->headers, name);
    buf_add_str(&a->headers, ": ");
    buf_add_sv(&a->headers, value);
    buf_add_char(&a->headers, '\0');
}

static int start(struct aws_ask *a);

static void tell_failure(struct aws_ask *a)
{
    a->attempt = a->tries; // no other try comes
    loop_timer_set(a->timer, 0, 0);
}

static bool is_worth_another(const struct aws_ask *a, const struct http_client_response *r)
{
    if (r->result < 0)
        return r->result != -EINVAL && r->result != -EKEYREJECTED && r->result != -EFBIG &&
               r->result != -ENOMEM;
    return r->status == 429 || r->status >= 500 || (a->again && a->again(r));
}

// A signature is dated, and refused when the clocks differ by five minutes.
static bool is_clock_wrong(struct aws_ask *a, const struct http_client_response *r)
{
    if (!a->service || a->has_offset || r->result < 0 || r->status < 400 || r->status >= 500 ||
        r->server_time_s == 0)
        return false;
    a->clock_offset_s = r->server_time_s - (int64_t)(clock_wall_ns() / NS_PER_S);
    a->has_offset = a->clock_offset_s > CLOCK_S_MAX || a->clock_offset_s < -CLOCK_S_MAX;
    return a->has_offset;
}

static void on_answer(void *user, const struct http_client_response *response)
{
    struct aws_ask *a = user;
    if (is_clock_wrong(a, response)) {
        loop_timer_set(a->timer, 0, 0);
        return;
    }
    if (++a->attempt >= a->tries || !is_worth_another(a, response)) {
        a->done(a->user, response);
        return;
    }
    uint64_t wait_ns = clock_backoff_ns(a->attempt - 1, WAIT_LEAST_NS, WAIT_MOST_NS);
    uint64_t asked_s = response->retry_after_s;
    if (asked_s > RETRY_AFTER_S_MAX)
        asked_s = RETRY_AFTER_S_MAX;
    if (wait_ns < asked_s * NS_PER_S)
        wait_ns = asked_s * NS_PER_S;
    loop_timer_set(a->timer, wait_ns + clock_jitter_ns(wait_ns / 2), 0);
}

static void on_timer(void *user)
{
    struct aws_ask *a = user;
    if (!a->failure && start(a) == 0)
        return;
    struct http_client_response response = {
        .result = a->failure,
        .error = a->error.text,
    };
    a->failure = 0;
    a->done(a->user, &response);
}

static int check(struct aws_ask *a)
{
    const struct buf *parts[] = {&a->url, &a->body, &a->headers};
    for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
        if (parts[i]->error)
            return error_set(&a->error, parts[i]->error, "%s",
                             parts[i]->error == -ENOMEM ? "out of memory" : "request too large");
    return a->failure ? error_set(&a->error, a->failure, "a header holds a NUL character") : 0;
}

static void header_lines(struct aws_ask *a, const char **lines)
{
    struct sv text = buf_sv(&a->headers), line;
    size_t count = 0;
    while (count < HEADERS_MAX && sv_next(&text, '\0', &line))
        lines[count++] = line.ptr; // each ends in its NUL
}

// The service's date for X-Amz-Date; NULL: ours.
static const char *date_of(const struct aws_ask *a, char out[DATE_BYTES])
{
    time_t seconds = (time_t)((int64_t)(clock_wall_ns() / NS_PER_S) + a->clock_offset_s);
    struct tm parts;
    if (!a->has_offset || !gmtime_r(&seconds, &parts) ||
        strftime(out, DATE_BYTES, "%Y%m%dT%H%M%SZ", &parts) == 0)
        return NULL;
    return out;
}

static struct http_sign sign_of(const struct aws_ask *a, const char *date)
{
    if (!a->service)
        return (struct http_sign){0};
    return (struct http_sign){
        .service = a->service,
        .region = a->region,
        .access_key = sv_from(a->keys->access_key),
        .secret_key = sv_from(a->keys->secret_key),
        .session_token = sv_from(a->keys->session_token),
        .date = date,
    };
}

// Starts a try. 0; else a->failure and a->error are set.
static int start(struct aws_ask *a)
{
    const char *lines[HEADERS_MAX + 1] = {0};
    char date[DATE_BYTES];
    a->failure = check(a);
    if (a->failure)
        return a->failure;
    header_lines(a, lines);
    http_call_free(a->call);
    a->call = NULL;
    struct http_client_request request = {
        .method = a->method,
        .url = buf_cstr(&a->url),
        .headers = lines,
        .body = buf_sv(&a->body),
        .tls = {.ca_file = aws_env_get(a->env, "AWS_CA_BUNDLE")},
        .sign = sign_of(a, date_of(a, date)),
        .proxy = a->is_direct ? "" : NULL,
        .deadline_ns = a->deadline_ns,
        .max_body_bytes = LIMIT_AWS_ANSWER_BYTES,
    };
    a->error = ERROR_INIT;
    a->failure =
        http_client_start(a->env->client, NULL, &request, on_answer, a, &a->call, &a->error);
    return a->failure;
}

void aws_ask_send(struct aws_ask *a)
{
    a->attempt = 0;
    if (start(a) < 0)
        tell_failure(a);
}

void aws_add_escaped(struct buf *out, struct sv text)
{
    static const char hex[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
            (c && strchr("-._~", c))) {
            buf_add_char(out, (char)c);
        } else {
            const char code[3] = {'%', hex[c >> 4], hex[c & 15]};
            buf_add(out, code, sizeof(code));
        }
    }
}
