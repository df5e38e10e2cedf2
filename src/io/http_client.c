// SPDX-License-Identifier: Apache-2.0
// How it works: libcurl's multi socket interface says which descriptors and which time it waits
// for; the loop's watches and one timer do the waiting and hand events back. What has ended is
// collected after each such step and told to its owner only when libcurl is off the stack, so that
// an owner may free, start and cancel as it likes.
//
// Invariants: a call is in exactly one list of its client; only running calls are known to the
// multi handle. An easy handle lives as long as its call: it holds some 20 KiB, and connections
// belong to the multi handle.
#include "io/http_client.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "io/http_client_internal.h"

struct http_watch {
    struct http_client *client;
    struct loop_fd *fd;
    curl_socket_t socket;
    struct http_watch *previous, *next;
};

static void call_link(struct http_call **list, struct http_call *call)
{
    call->list = list;
    call->previous = NULL;
    call->next = *list;
    if (call->next)
        call->next->previous = call;
    *list = call;
}

static void call_unlink(struct http_call *call)
{
    if (call->previous)
        call->previous->next = call->next;
    else
        *call->list = call->next;
    if (call->next)
        call->next->previous = call->previous;
    call->list = NULL;
}

// The connection stays, where there is a struct http_handle to keep it for.
static void call_release_easy(struct http_call *call)
{
    struct http_client *c = call->client;
    if (!call->easy)
        return;
    if (call->list == &c->running)
        (void)c->curl->multi_remove_handle(c->multi, call->easy);
    if (call->handle)
        TAKE_PTR(call->handle)->call = NULL;
    c->curl->easy_cleanup(TAKE_PTR(call->easy));
    http_client_setup_deinit(call, c->curl);
}

static void call_destroy(struct http_call *call)
{
    if (call->client) {
        call_release_easy(call);
        call_unlink(call);
        call->client->call_count--;
    }
    if (call->body.data)
        explicit_bzero(call->body.data, call->body.len);
    buf_deinit(&call->body);
    free(call);
}

static void call_deliver(struct http_call *call)
{
    struct http_client_response response;
    http_client_answer(call, &response);
    call->delivering = true;
    call->done(call->user, &response);
    call->delivering = false;
    if (call->abandoned)
        call_destroy(call);
    else if (call->client)
        call_release_easy(call);
}

static void collect(struct http_client *c)
{
    CURLMsg *message;
    int left;
    while ((message = c->curl->multi_info_read(c->multi, &left))) {
        struct http_call *call = NULL;
        CURL *easy = message->easy_handle;
        CURLcode code = message->data.result; // the message goes with the next call
        (void)c->curl->easy_getinfo(easy, CURLINFO_PRIVATE, (char **)(void *)&call);
        (void)c->curl->multi_remove_handle(c->multi, easy);
        call->code = code;
        call_unlink(call);
        call_link(&c->finished, call);
    }
}

// Ends the requests whose descriptors could not be watched.
static void end_starved(struct http_client *c)
{
    struct http_call *next;
    if (!c->has_starved)
        return;
    c->has_starved = false;
    for (struct http_call *call = c->running; call; call = next) {
        next = call->next;
        if (!call->is_starved)
            continue;
        (void)c->curl->multi_remove_handle(c->multi, call->easy);
        call->code = CURLE_OUT_OF_MEMORY;
        call_unlink(call);
        call_link(&c->finished, call);
    }
}

static void drop_abandoned(struct http_client *c)
{
    struct http_call **const lists[] = {&c->running, &c->finished, &c->delivered};
    if (!c->has_abandoned)
        return;
    c->has_abandoned = false;
    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        struct http_call *next;
        for (struct http_call *call = *lists[i]; call; call = next) {
            next = call->next;
            if (call->abandoned)
                call_destroy(call);
        }
    }
}

// One step of libcurl, and what follows from it. The client may be gone afterwards.
static void step(struct http_client *c, curl_socket_t socket, int events)
{
    int running;
    c->inside = true;
    (void)c->curl->multi_socket_action(c->multi, socket, events, &running);
    c->inside = false;
    collect(c);
    end_starved(c);
    drop_abandoned(c);
    c->delivering = true;
    while (!c->gone && c->finished) {
        struct http_call *call = c->finished;
        call_unlink(call);
        call_link(&c->delivered, call);
        call_deliver(call);
    }
    c->delivering = false;
    if (c->gone)
        free(c);
}

static void on_descriptor(void *user, unsigned events)
{
    struct http_watch *w = user;
    int bits = 0;
    if (events & LOOP_READABLE)
        bits |= CURL_CSELECT_IN;
    if (events & LOOP_WRITABLE)
        bits |= CURL_CSELECT_OUT;
    step(w->client, w->socket, bits);
}

static void on_timer(void *user)
{
    step(user, CURL_SOCKET_TIMEOUT, 0);
}

static void watch_free(struct http_watch *w)
{
    loop_fd_free(w->fd);
    if (w->previous)
        w->previous->next = w->next;
    else
        w->client->watches = w->next;
    if (w->next)
        w->next->previous = w->previous;
    free(w);
}

static struct http_watch *watch_new(struct http_client *c, curl_socket_t socket, unsigned events)
{
    struct http_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return NULL;
    w->client = c;
    w->socket = socket;
    if (loop_fd_new(c->loop, socket, events, on_descriptor, w, &w->fd) < 0) {
        free(w);
        return NULL;
    }
    w->next = c->watches;
    if (w->next)
        w->next->previous = w;
    c->watches = w;
    return w;
}

// Failing the callback would be the end of all requests for ever.
static void starve(struct http_client *c, CURL *easy)
{
    struct http_call *call = NULL;
    (void)c->curl->easy_getinfo(easy, CURLINFO_PRIVATE, (char **)(void *)&call);
    if (call)
        call->is_starved = true;
    c->has_starved = true;
}

static int on_socket(CURL *easy, curl_socket_t socket, int what, void *user, void *socket_user)
{
    struct http_client *c = user;
    struct http_watch *w = socket_user;
    unsigned events = 0;
    if (what == CURL_POLL_REMOVE) {
        if (w)
            watch_free(w);
        (void)c->curl->multi_assign(c->multi, socket, NULL);
        return 0;
    }
    if (what & CURL_POLL_IN)
        events |= LOOP_READABLE;
    if (what & CURL_POLL_OUT)
        events |= LOOP_WRITABLE;
    if (w) {
        loop_fd_set(w->fd, events);
        return 0;
    }
    w = watch_new(c, socket, events);
    if (w)
        (void)c->curl->multi_assign(c->multi, socket, w);
    else
        starve(c, easy);
    return 0;
}

static int on_wait(CURLM *multi, long timeout_ms, void *user)
{
    struct http_client *c = user;
    (void)multi;
    if (timeout_ms < 0)
        loop_timer_stop(c->timer);
    else
        loop_timer_set(c->timer, (uint64_t)timeout_ms * NS_PER_MS, 0);
    return 0;
}

// libcurl closes the oldest idle connection above this number; by itself it would keep four for
// each request under way, which are none between two scrapes.
static void set_connections(struct http_client *c)
{
    long most = (long)c->handle_count + LIMIT_HTTP_CLIENT_CONNECTIONS;
    (void)c->curl->multi_setopt(c->multi, CURLMOPT_MAXCONNECTS, most);
}

static int client_init(struct http_client *c)
{
    const struct curl_api *curl = c->curl;
    c->multi = curl->multi_init();
    c->share = curl->share_init();
    if (!c->multi || !c->share)
        return -ENOMEM;
    if (curl->share_setopt(c->share, CURLSHOPT_SHARE, CURL_LOCK_DATA_SSL_SESSION) != CURLSHE_OK)
        return -ENOMEM;
    int r = loop_timer_new(c->loop, on_timer, c, &c->timer);
    if (r < 0)
        return r;
    (void)curl->multi_setopt(c->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    (void)curl->multi_setopt(c->multi, CURLMOPT_SOCKETDATA, c);
    (void)curl->multi_setopt(c->multi, CURLMOPT_TIMERFUNCTION, on_wait);
    (void)curl->multi_setopt(c->multi, CURLMOPT_TIMERDATA, c);
    set_connections(c);
    return 0;
}

int http_client_new(struct loop *l, struct http_client **out, struct error *err)
{
    const struct curl_api *curl;
    int r = http_client_curl_load(&curl, err);
    if (r < 0)
        return r;
    struct http_client *c = calloc(1, sizeof(*c));
    if (!c)
        return error_set(err, -ENOMEM, "out of memory");
    c->loop = l;
    c->curl = curl;
    r = client_init(c);
    if (r < 0) {
        http_client_free(c);
        return error_set(err, r, "no HTTP client: %s", strerror(-r));
    }
    *out = c;
    return 0;
}

static void detach_calls(struct http_call **list)
{
    while (*list) {
        struct http_call *call = *list;
        call_release_easy(call);
        call_unlink(call);
        call->client = NULL;
    }
}

static void detach_handles(struct http_client *c)
{
    struct http_handle *next;
    for (struct http_handle *h = c->handles; h; h = next) {
        next = h->next;
        *h = (struct http_handle){0};
    }
}

void http_client_free(struct http_client *c)
{
    if (!c)
        return;
    assert(!c->inside);
    detach_calls(&c->running);
    detach_calls(&c->finished);
    detach_calls(&c->delivered);
    detach_handles(c);
    if (c->multi)
        (void)c->curl->multi_cleanup(c->multi);
    if (c->share)
        (void)c->curl->share_cleanup(c->share);
    while (c->watches)
        watch_free(c->watches);
    loop_timer_free(c->timer);
    c->gone = true;
    if (!c->delivering)
        free(c);
}

struct http_handle *http_handle_new(struct http_client *c)
{
    struct http_handle *h = calloc(1, sizeof(*h));
    if (!h)
        return NULL;
    h->client = c;
    h->next = c->handles;
    if (h->next)
        h->next->previous = h;
    c->handles = h;
    c->handle_count++;
    set_connections(c);
    return h;
}

void http_handle_free(struct http_handle *h)
{
    if (!h)
        return;
    struct http_client *c = h->client;
    if (c) {
        if (h->call)
            h->call->handle = NULL;
        if (h->previous)
            h->previous->next = h->next;
        else
            c->handles = h->next;
        if (h->next)
            h->next->previous = h->previous;
        c->handle_count--;
        if (!c->inside)
            set_connections(c);
    }
    free(h);
}

static int take_easy(struct http_client *c, struct http_handle *handle, struct http_call *call)
{
    if (handle && handle->call)
        call_release_easy(handle->call); // told already
    call->easy = c->curl->easy_init();
    if (!call->easy)
        return -ENOMEM;
    call->handle = handle;
    if (handle)
        handle->call = call;
    return 0;
}

static int call_start(struct http_call *call, struct http_handle *handle,
                      const struct http_client_request *request, struct error *err)
{
    struct http_client *c = call->client;
    int r = take_easy(c, handle, call);
    if (r == 0)
        r = http_client_setup(call, request, err);
    if (r == -ENOMEM)
        return error_set(err, r, "out of memory");
    if (r < 0)
        return r;
    CURLMcode code = c->curl->multi_add_handle(c->multi, call->easy);
    if (code != CURLM_OK)
        return error_set(err, -ENOMEM, "request not started (libcurl's code %d)", (int)code);
    call_unlink(call);
    call_link(&c->running, call);
    return 0;
}

int http_client_start(struct http_client *c, struct http_handle *handle,
                      const struct http_client_request *request,
                      void (*done)(void *user, const struct http_client_response *response),
                      void *user, struct http_call **out, struct error *err)
{
    if (c->inside)
        return error_set(err, -EBUSY, "a request can't be started from inside another's data");
    if (handle && handle->call && handle->call->list != &c->delivered)
        return error_set(err, -EBUSY, "the request before is still under way");
    if (c->call_count >= LIMIT_HTTP_CLIENT_CALLS)
        return error_set(err, -EBUSY, "%d requests under way", LIMIT_HTTP_CLIENT_CALLS);
    struct http_call *call = calloc(1, sizeof(*call));
    if (!call)
        return error_set(err, -ENOMEM, "out of memory");
    call->client = c;
    call->done = done;
    call->user = user;
    c->call_count++;
    call_link(&c->delivered, call);
    int r = call_start(call, handle, request, err);
    if (r < 0) {
        call_destroy(call);
        return r;
    }
    *out = call;
    return 0;
}

struct sv http_call_header(const struct http_call *call, const char *name)
{
    struct curl_header *header;
    if (!call->easy || call->client->curl->easy_header(call->easy, name, 0, CURLH_HEADER, -1,
                                                       &header) != CURLHE_OK)
        return (struct sv){0};
    return sv_from(header->value);
}

char *http_client_take_body(struct http_call *call, size_t *out_len)
{
    return buf_take(&call->body, out_len);
}

void http_call_free(struct http_call *call)
{
    if (!call)
        return;
    bool inside = call->client && call->client->inside;
    if (inside)
        call->client->has_abandoned = true;
    call->abandoned = true;
    if (!inside && !call->delivering)
        call_destroy(call);
}
