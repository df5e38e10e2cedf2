// SPDX-License-Identifier: Apache-2.0
// How it works: a body keeps ready responses of libmicrohttpd, identity and gzip, which all
// connections share. Two counts: `owners` are those who may still send it (callers, connections, a
// compression under way); `users` are those who may still read its memory (the owners together as
// one, and each response, which lives on in libmicrohttpd while it is being sent). The responses go
// with the last owner, the memory with the last user. The ready responses carry the headers of one
// web configuration (headers_id); another one makes them anew.
#include <errno.h>
#include <stdlib.h>

#include "codec/gzip.h"
#include "io/http_server_internal.h"

enum gzip_state {
    GZIP_NONE,
    GZIP_RUNNING, // on the pool
    GZIP_READY,
    GZIP_USELESS, // larger than the original, or no memory
};

struct http_body {
    unsigned owners;
    unsigned users;
    const char *content_type;
    char *data;
    size_t bytes;
    char *gzip;
    size_t gzip_bytes;
    enum gzip_state gzip_state;
    struct MHD_Response *ready[2]; // identity, gzip
    uint64_t headers_id;           // of the ready ones
    struct http_conn *conns;       // sending, or waiting for gzip
    unsigned conn_count;
};

// --- Life ---

static void drop_user(void *user)
{
    struct http_body *b = user;
    if (--b->users > 0)
        return;
    free(b->data);
    free(b->gzip);
    free(b);
}

static void drop_ready(struct http_body *b)
{
    for (size_t i = 0; i < ARRAY_SIZE(b->ready); i++) {
        if (b->ready[i])
            MHD_destroy_response(TAKE_PTR(b->ready[i]));
    }
}

int http_body_new(char *data, size_t bytes, const char *content_type, struct http_body **out)
{
    struct http_body *b = calloc(1, sizeof(*b));
    if (!b) {
        free(data);
        return -ENOMEM;
    }
    *b = (struct http_body){
        .owners = 1,
        .users = 1,
        .content_type = content_type,
        .data = data,
        .bytes = bytes,
    };
    *out = b;
    return 0;
}

struct http_body *http_body_ref(struct http_body *b)
{
    b->owners++;
    return b;
}

void http_body_unref(struct http_body *b)
{
    if (!b || --b->owners > 0)
        return;
    drop_ready(b);
    drop_user(b);
}

struct sv http_body_bytes(const struct http_body *b)
{
    return (struct sv){b->data, b->bytes};
}

// --- Its connections ---

static void attach(struct http_body *b, struct http_conn *c)
{
    c->body = http_body_ref(b);
    c->body_previous = NULL;
    c->body_next = b->conns;
    if (b->conns)
        b->conns->body_previous = c;
    b->conns = c;
    b->conn_count++;
}

void http_body_release(struct http_conn *c)
{
    struct http_body *b = TAKE_PTR(c->body);
    if (!b)
        return;
    if (c->body_next)
        c->body_next->body_previous = c->body_previous;
    if (c->body_previous)
        c->body_previous->body_next = c->body_next;
    else
        b->conns = c->body_next;
    c->body_previous = c->body_next = NULL;
    b->conn_count--;
    http_body_unref(b);
}

unsigned http_body_readers(const struct http_body *b)
{
    return b->conn_count;
}

unsigned http_body_shut_readers(struct http_body *b)
{
    unsigned count = 0;
    for (struct http_conn *c = b->conns; c; c = c->body_next) {
        count += !c->is_shut;
        http_conn_shut(c);
    }
    return count;
}

// --- Responses ---

static bool has_type(const struct http_header *headers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcasecmp(headers[i].name, MHD_HTTP_HEADER_CONTENT_TYPE) == 0)
            return true;
    return false;
}

int http_response_add_headers(struct MHD_Response *r, const struct web_config *web,
                              const char *content_type, const struct http_header *headers,
                              size_t header_count)
{
    bool ok = MHD_add_response_header(r, "X-Content-Type-Options", "nosniff") == MHD_YES;
    if (ok && !has_type(headers, header_count))
        ok = MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, content_type) == MHD_YES;
    for (size_t i = 0; ok && i < web->header_count; i++) {
        // Its one allowed value is always sent.
        if (strcmp(web->headers[i].name, "X-Content-Type-Options") != 0)
            ok = MHD_add_response_header(r, web->headers[i].name, web->headers[i].value) == MHD_YES;
    }
    for (size_t i = 0; ok && i < header_count; i++)
        ok = MHD_add_response_header(r, headers[i].name, headers[i].value) == MHD_YES;
    return ok ? 0 : -ENOMEM;
}

static bool may_be_compressed(const struct http_body *b)
{
    return b->bytes > LIMIT_HTTP_GZIP_LEAST_BYTES;
}

static struct MHD_Response *make_response(struct http_body *b, bool gzip,
                                          const struct web_config *web,
                                          const struct http_header *headers, size_t header_count)
{
    struct MHD_Response *r = MHD_create_response_from_buffer_with_free_callback_cls(
        gzip ? b->gzip_bytes : b->bytes, gzip ? b->gzip : b->data, drop_user, b);
    if (!r)
        return NULL;
    b->users++;
    bool ok = http_response_add_headers(r, web, b->content_type, headers, header_count) == 0;
    if (ok && may_be_compressed(b))
        ok = MHD_add_response_header(r, MHD_HTTP_HEADER_VARY, "Accept-Encoding") == MHD_YES;
    if (ok && gzip)
        ok = MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_ENCODING, "gzip") == MHD_YES;
    if (ok)
        return r;
    MHD_destroy_response(r);
    return NULL;
}

static struct MHD_Response *ready_response(struct http_body *b, bool gzip,
                                           const struct web_state *web)
{
    if (b->headers_id != web->headers_id) {
        drop_ready(b);
        b->headers_id = web->headers_id;
    }
    if (!b->ready[gzip])
        b->ready[gzip] = make_response(b, gzip, &web->config, NULL, 0);
    return b->ready[gzip];
}

// Each request gets one response of its own only when it brings headers of its own.
static int queue(struct http_body *b, struct http_conn *c, unsigned status, bool gzip,
                 const struct http_header *headers, size_t header_count)
{
    const struct web_state *web = c->server->web;
    struct MHD_Response *r = header_count
                                 ? make_response(b, gzip, &web->config, headers, header_count)
                                 : ready_response(b, gzip, web);
    if (!r)
        return -ENOMEM;
    bool ok = MHD_queue_response(c->mhd, status, r) == MHD_YES;
    if (header_count)
        MHD_destroy_response(r);
    return ok ? 0 : -ENOMEM;
}

// --- gzip ---

static void compress(struct http_body *b)
{
    char *out = NULL;
    size_t bytes = 0;
    bool ok = gzip_compress((struct sv){b->data, b->bytes}, &out, &bytes) == 0 && bytes < b->bytes;
    if (!ok)
        free(TAKE_PTR(out));
    b->gzip = out;
    b->gzip_bytes = out ? bytes : 0;
}

static void compress_on_pool(void *user)
{
    compress(user); // nobody else looks at gzip while the state is GZIP_RUNNING
}

static void compressed(void *user)
{
    struct http_body *b = user;
    b->gzip_state = b->gzip ? GZIP_READY : GZIP_USELESS;
    for (struct http_conn *c = b->conns; c; c = c->body_next) {
        if (c->phase != CONN_COMPRESSING)
            continue;
        MHD_resume_connection(c->mhd);
        http_server_run_later(c->server);
    }
    http_body_unref(b);
}

static void start_gzip(struct http_body *b, struct loop *l)
{
    if (b->gzip_state != GZIP_NONE)
        return;
    if (b->bytes <= LIMIT_HTTP_GZIP_LOOP_BYTES) {
        compress(b);
        b->gzip_state = b->gzip ? GZIP_READY : GZIP_USELESS;
        return;
    }
    http_body_ref(b);
    if (loop_job_start(l, compress_on_pool, compressed, b) == 0)
        b->gzip_state = GZIP_RUNNING;
    else
        http_body_unref(b); // the pool is full: this time without
}

int http_body_send(struct http_body *b, struct http_conn *c, unsigned status, bool wants_gzip,
                   const struct http_header *headers, size_t header_count)
{
    bool gzip = wants_gzip && may_be_compressed(b);
    if (gzip)
        start_gzip(b, c->server->loop);
    attach(b, c);
    // A reply with headers of its own doesn't wait: they would have to be kept.
    if (gzip && b->gzip_state == GZIP_RUNNING && header_count == 0) {
        c->status = status;
        http_conn_set_phase(c, CONN_COMPRESSING);
        MHD_suspend_connection(c->mhd);
        return 0;
    }
    http_conn_set_phase(c, CONN_SENDING);
    return queue(b, c, status, gzip && b->gzip_state == GZIP_READY, headers, header_count);
}

int http_body_resume(struct http_conn *c)
{
    http_conn_set_phase(c, CONN_SENDING);
    return queue(c->body, c, c->status, c->body->gzip_state == GZIP_READY, NULL, 0);
}
