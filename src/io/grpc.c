// SPDX-License-Identifier: Apache-2.0
// How it works. nghttp2 is a pure engine here: on_ready reads what the socket has and feeds it in,
// asks what is to be sent and writes that. Its callbacks only note what they learn in the call; the
// one place that ends a call is conclude(), which sets the outcome once, and settle(), which runs
// outside every nghttp2 callback, takes the connection down and tells the caller. After settle
// nothing of the call is watched, so the caller may free it inside done. Wire facts: RFC 9113
// (HTTP/2) and the gRPC project's "gRPC over HTTP2".
#include "io/grpc.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <nghttp2/nghttp2.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/num.h"
#include "io/grpc_wire.h"

#define READ_BYTES 16384
#define BATCH_BYTES 4096                  // a request with its preface has 170
#define READS_PER_TURN 16                 // then other watches get their turn
#define CONNECT_RETRY_NS (10 * NS_PER_MS) // the listener's backlog is full
#define TEXT_BYTES 256
#define RAW_MESSAGE_BYTES 1024

struct response {
    unsigned http_status;
    bool content_is_grpc;
    bool has_grpc_status;
    unsigned grpc_status;
    size_t header_bytes; // of all blocks together
    char raw_message[RAW_MESSAGE_BYTES];
    size_t raw_message_len;
    bool reset_by_peer; // the stream
    bool goaway;
    uint32_t goaway_error;
};

struct grpc_call {
    struct loop *loop;
    struct grpc_call_config config; // strings and request: below
    char *method;
    struct buf request; // with its prefix
    size_t request_sent;
    struct sockaddr_un address;
    int address_error;

    struct loop_timer *deadline;
    struct loop_timer *connect_timer;
    struct loop_fd *watch;
    int fd;
    nghttp2_session *session;
    int32_t stream;
    const uint8_t *piece; // of nghttp2, not yet in batch
    size_t piece_len;
    uint8_t batch[BATCH_BYTES]; // pieces on their way, so that one call writes several
    size_t batch_len, batch_sent;
    bool out_broken; // the peer reads no more; what it said before may still come

    struct response response;
    struct grpc_body body;

    bool concluded;
    int result;
    unsigned grpc_status;
    char text[TEXT_BYTES];
};

// --- Outcome ---

static void conclude(struct grpc_call *c, int result, unsigned grpc_status, const char *text)
{
    if (c->concluded)
        return;
    c->concluded = true;
    c->result = result;
    c->grpc_status = grpc_status;
    sv_copy(c->text, sizeof(c->text), sv_from(text));
}

static void conclude_errno(struct grpc_call *c, int result)
{
    conclude(c, result, 0, strerror(-result));
}

static bool flush(struct grpc_call *c);

static void disconnect(struct grpc_call *c)
{
    // A server that still works on the call is told to stop; one try, then the close says it too.
    if (c->session && c->stream > 0 && !c->out_broken &&
        nghttp2_submit_rst_stream(c->session, NGHTTP2_FLAG_NONE, c->stream, NGHTTP2_CANCEL) == 0)
        (void)flush(c);
    loop_fd_free(TAKE_PTR(c->watch));
    nghttp2_session_del(TAKE_PTR(c->session));
    fd_closep(&c->fd);
    c->fd = -1;
    c->piece_len = c->batch_len = c->batch_sent = 0;
}

// The call is over: nothing of it is left on the loop when the caller hears so. Last thing to do
// with c.
static void settle(struct grpc_call *c)
{
    char text[TEXT_BYTES];
    memcpy(text, c->text, sizeof(text));
    if (c->result == 0)
        c->stream = 0; // ended by both sides or by the peer: nothing to cancel
    disconnect(c);
    loop_timer_free(TAKE_PTR(c->deadline));
    loop_timer_free(TAKE_PTR(c->connect_timer));
    c->config.done(c->config.user, c->result, c->grpc_status, text);
}

// The stream ended in good order: what does that make of the call?
static void conclude_stream(struct grpc_call *c)
{
    const struct response *r = &c->response;
    char text[TEXT_BYTES];
    grpc_message_decode((struct sv){r->raw_message, r->raw_message_len}, text, sizeof(text));
    if (r->has_grpc_status && r->grpc_status != GRPC_OK) {
        conclude(c, 0, r->grpc_status, text);
    } else if (r->has_grpc_status && !grpc_body_is_whole(&c->body)) {
        conclude(c, -EPROTO, 0,
                 c->body.prefix_len ? "the message was cut short" : "status OK without a message");
    } else if (r->has_grpc_status && r->content_is_grpc) {
        conclude(c, 0, GRPC_OK, text);
    } else if (r->http_status != 200) {
        snprintf(text, sizeof(text), "HTTP status %u", r->http_status);
        conclude(c, 0, grpc_status_of_http(r->http_status), text);
    } else if (!r->content_is_grpc) {
        conclude(c, -EPROTO, 0, "the answer's content type is not gRPC");
    } else {
        conclude(c, -EPROTO, 0, "the answer ended without grpc-status");
    }
}

// --- What nghttp2 tells ---

static bool header_is(const uint8_t *name, size_t name_len, struct sv want)
{
    return sv_equals((struct sv){(const char *)name, name_len}, want);
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *user)
{
    struct grpc_call *c = user;
    struct response *r = &c->response;
    struct sv v = {(const char *)value, value_len};
    uint64_t status;
    (void)session, (void)flags;
    if (frame->hd.stream_id != c->stream)
        return 0;
    r->header_bytes += name_len + value_len;
    if (r->header_bytes > LIMIT_GRPC_HEADER_BYTES) {
        conclude(c, -EPROTO, 0, "too many header bytes");
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    }
    if (header_is(name, name_len, SV(":status"))) {
        r->http_status = num_parse_u64(v, 100, 999, &status) == 0 ? (unsigned)status : 0;
    } else if (header_is(name, name_len, SV("content-type"))) {
        r->content_is_grpc = sv_starts_with(v, SV("application/grpc"));
    } else if (header_is(name, name_len, SV("grpc-status")) && !r->has_grpc_status) {
        r->has_grpc_status = true;
        r->grpc_status = grpc_status_parse(v);
    } else if (header_is(name, name_len, SV("grpc-message")) && r->raw_message_len == 0) {
        r->raw_message_len = v.len < sizeof(r->raw_message) ? v.len : sizeof(r->raw_message);
        memcpy(r->raw_message, v.ptr, r->raw_message_len);
    }
    return 0;
}

// A header block that does not end the stream: informational, the answer's head, or trailers
// someone forgot to end.
static void examine_head(struct grpc_call *c)
{
    struct response *r = &c->response;
    if (r->http_status >= 100 && r->http_status < 200)
        r->http_status = 0;
    else if (r->http_status != 200 || !r->content_is_grpc)
        conclude_stream(c); // no gRPC will follow: its body is nobody's
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    struct grpc_call *c = user;
    (void)session;
    if (frame->hd.type == NGHTTP2_GOAWAY) {
        // Streams up to the last one it names are still answered; nghttp2 closes the others.
        c->response.goaway = true;
        c->response.goaway_error = frame->goaway.error_code;
    }
    if (frame->hd.stream_id != c->stream || c->stream == 0)
        return 0;
    // Frame types come from the wire, not from an enum of ours.
    if (frame->hd.type == NGHTTP2_RST_STREAM) {
        c->response.reset_by_peer = true;
    } else if (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) {
        if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
            conclude_stream(c);
        else if (frame->hd.type == NGHTTP2_HEADERS)
            examine_head(c);
    }
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *bytes,
                   size_t len, void *user)
{
    struct grpc_call *c = user;
    const char *what = "";
    (void)session, (void)flags;
    if (stream != c->stream || c->concluded)
        return 0;
    int r = grpc_body_feed(&c->body, (struct sv){(const char *)bytes, len}, c->config.data,
                           c->config.user, &what);
    if (r == 0)
        return 0;
    conclude(c, r, 0, what);
    return NGHTTP2_ERR_CALLBACK_FAILURE;
}

static int on_stream_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user)
{
    struct grpc_call *c = user;
    char text[TEXT_BYTES];
    (void)session;
    if (stream != c->stream || c->concluded)
        return 0;
    if (c->response.goaway && !c->response.reset_by_peer) {
        snprintf(text, sizeof(text), "the server goes away: %s",
                 nghttp2_http2_strerror(c->response.goaway_error));
        conclude(c, 0, GRPC_UNAVAILABLE, text);
    } else if (c->response.reset_by_peer) {
        snprintf(text, sizeof(text), "stream reset by the server: %s",
                 nghttp2_http2_strerror(error));
        conclude(c, 0, grpc_status_of_reset(error), text);
    } else {
        snprintf(text, sizeof(text), "the answer breaks HTTP/2: %s", nghttp2_http2_strerror(error));
        conclude(c, -EPROTO, 0, text);
    }
    return 0;
}

// nghttp2 says goodbye to a peer that breaks the protocol: its reason is ours.
static int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame, void *user)
{
    char text[TEXT_BYTES];
    (void)session;
    if (frame->hd.type != NGHTTP2_GOAWAY || frame->goaway.error_code == NGHTTP2_NO_ERROR)
        return 0;
    snprintf(text, sizeof(text), "the answer breaks HTTP/2: %s",
             nghttp2_http2_strerror(frame->goaway.error_code));
    conclude(user, -EPROTO, 0, text);
    return 0;
}

static ssize_t read_request(nghttp2_session *session, int32_t stream, uint8_t *out,
                            size_t out_bytes, uint32_t *flags, nghttp2_data_source *source,
                            void *user)
{
    struct grpc_call *c = user;
    (void)session, (void)stream, (void)source;
    struct sv rest = sv_sub(buf_sv(&c->request), c->request_sent, out_bytes);
    memcpy(out, rest.ptr, rest.len);
    c->request_sent += rest.len;
    if (c->request_sent == c->request.len)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)rest.len;
}

// --- Setting up ---

static nghttp2_nv header(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

static int submit_request(struct grpc_call *c)
{
    char timeout[GRPC_TIMEOUT_BYTES];
    grpc_timeout_print(c->config.deadline_ns, timeout);
    const nghttp2_nv headers[] = {
        header(":method", "POST"),
        header(":scheme", "http"),
        header(":path", c->method),
        header(":authority", "localhost"), // a path here is refused by some servers
        header("content-type", "application/grpc"),
        header("te", "trailers"),
        header("grpc-timeout", timeout),
        header("user-agent", "podgpu/" PODGPU_VERSION),
    };
    const nghttp2_data_provider body = {.read_callback = read_request};
    int32_t stream =
        nghttp2_submit_request(c->session, NULL, headers, ARRAY_SIZE(headers), &body, NULL);
    if (stream < 0)
        return stream;
    c->stream = stream;
    return 0;
}

static int submit_settings(struct grpc_call *c)
{
    size_t window = c->config.max_message_bytes + sizeof(c->body.prefix);
    if (window < NGHTTP2_INITIAL_WINDOW_SIZE)
        window = NGHTTP2_INITIAL_WINDOW_SIZE;
    if (window > INT32_MAX)
        window = INT32_MAX;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, (uint32_t)window},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, LIMIT_GRPC_HEADER_BYTES},
    };
    int r = nghttp2_submit_settings(c->session, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings));
    // SETTINGS raises the stream's window alone; the connection's own needs a WINDOW_UPDATE.
    return r ? r
             : nghttp2_session_set_local_window_size(c->session, NGHTTP2_FLAG_NONE, 0,
                                                     (int32_t)window);
}

static int new_session(struct grpc_call *c)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    int r = nghttp2_session_callbacks_new(&callbacks);
    if (r == 0)
        r = nghttp2_option_new(&option);
    if (r == 0) {
        nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
        nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
        nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
        nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
        nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent);
        nghttp2_option_set_max_deflate_dynamic_table_size(option, 0);
        r = nghttp2_session_client_new2(&c->session, callbacks, c, option);
    }
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    if (r == 0)
        r = submit_settings(c);
    if (r == 0)
        r = submit_request(c);
    return r == NGHTTP2_ERR_NOMEM ? -ENOMEM : r ? -EPROTO : 0;
}

// --- Bytes ---

// Fills the batch, which is empty, from what nghttp2 has to say. False: there is nothing.
static bool fill_batch(struct grpc_call *c)
{
    c->batch_len = c->batch_sent = 0;
    while (c->batch_len < sizeof(c->batch)) {
        if (c->piece_len == 0) {
            ssize_t n = nghttp2_session_mem_send(c->session, &c->piece);
            if (n < 0)
                conclude(c, n == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO, 0,
                         nghttp2_strerror((int)n));
            if (n <= 0)
                break;
            c->piece_len = (size_t)n;
        }
        size_t room = sizeof(c->batch) - c->batch_len;
        size_t len = c->piece_len < room ? c->piece_len : room;
        memcpy(c->batch + c->batch_len, c->piece, len);
        c->batch_len += len;
        c->piece += len;
        c->piece_len -= len;
    }
    return c->batch_len > 0;
}

static bool is_batch_sent(const struct grpc_call *c)
{
    return c->batch_sent == c->batch_len;
}

// Writes what is to be written. False: the call is concluded.
static bool flush(struct grpc_call *c)
{
    while (!c->out_broken && (!is_batch_sent(c) || fill_batch(c))) {
        ssize_t sent =
            send(c->fd, c->batch + c->batch_sent, c->batch_len - c->batch_sent, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (sent < 0) {
            c->out_broken = true;
            break;
        }
        c->batch_sent += (size_t)sent;
    }
    return !c->concluded;
}

// Something waits to be written that the peer does not take.
static bool is_blocked(const struct grpc_call *c)
{
    return !is_batch_sent(c) && !c->out_broken;
}

// One read's worth. True: more may be there.
static bool take_bytes(struct grpc_call *c)
{
    uint8_t bytes[READ_BYTES];
    ssize_t n = recv(c->fd, bytes, sizeof(bytes), 0);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    if (n < 0 && errno == EINTR)
        return true;
    if (n <= 0) {
        conclude(c, -ECONNRESET, 0, "the connection was closed before the answer was complete");
        return false;
    }
    ssize_t used = nghttp2_session_mem_recv(c->session, bytes, (size_t)n);
    if (used < 0) {
        conclude(c, used == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO, 0, nghttp2_strerror((int)used));
        c->out_broken = true; // the session is in no state to send
    }
    if (!c->concluded && flush(c) && !nghttp2_session_want_read(c->session))
        conclude(c, -EPROTO, 0, "the session ended without an answer");
    return !c->concluded && !is_blocked(c) && n == (ssize_t)sizeof(bytes);
}

// Answers to PING and SETTINGS go out before more comes in, so a peer that sends without reading
// holds up itself and no queue grows.
static void on_ready(void *user, unsigned events)
{
    struct grpc_call *c = user;
    bool more = flush(c) && !is_blocked(c) && (events & LOOP_READABLE);
    for (unsigned i = 0; more && i < READS_PER_TURN; i++)
        more = take_bytes(c);
    if (c->concluded)
        settle(c);
    else
        loop_fd_set(c->watch, is_blocked(c) ? LOOP_WRITABLE : LOOP_READABLE);
}

// --- Connecting ---

static int connect_once(struct grpc_call *c)
{
    if (c->address_error)
        return c->address_error;
    c->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (c->fd < 0)
        return -errno;
    if (connect(c->fd, (const struct sockaddr *)&c->address, sizeof(c->address)) < 0)
        return -errno;
    int r = new_session(c);
    if (r < 0)
        return r;
    (void)flush(c); // a local socket is connected at once
    return loop_fd_new(c->loop, c->fd, is_blocked(c) ? LOOP_WRITABLE : LOOP_READABLE, on_ready, c,
                       &c->watch);
}

static void start(struct grpc_call *c)
{
    int r = connect_once(c);
    if (r == -EAGAIN) {
        // A Unix socket whose backlog is full says so at once; there is nothing to wait on but
        // time.
        fd_closep(&c->fd);
        c->fd = -1;
        loop_timer_set(c->connect_timer, CONNECT_RETRY_NS, 0);
    } else if (r < 0) {
        conclude_errno(c, r);
    }
}

static void on_connect_due(void *user)
{
    struct grpc_call *c = user;
    if (!c->concluded)
        start(c);
    if (c->concluded)
        settle(c);
}

static void on_deadline(void *user)
{
    struct grpc_call *c = user;
    conclude(c, -ETIMEDOUT, 0,
             c->session ? "no answer before the deadline" : "the server accepts no connection");
    settle(c);
}

// --- The call ---

static void set_address(struct grpc_call *c, struct sv path)
{
    c->address.sun_family = AF_UNIX;
    if (path.len >= sizeof(c->address.sun_path))
        c->address_error = -ENAMETOOLONG;
    else
        sv_copy(c->address.sun_path, sizeof(c->address.sun_path), path);
}

static int init(struct grpc_call *c)
{
    const struct grpc_call_config *config = &c->config;
    size_t len = config->request.len;
    set_address(c, sv_from(config->socket_path));
    c->method = sv_dup(sv_from(config->method));
    c->request = BUF_INIT(LIMIT_GRPC_REQUEST_BYTES);
    const char prefix[] = {0, (char)(len >> 24), (char)(len >> 16), (char)(len >> 8), (char)len};
    buf_add(&c->request, prefix, sizeof(prefix));
    buf_add_sv(&c->request, config->request);
    c->body = (struct grpc_body){.max_message_bytes = config->max_message_bytes};
    if (!c->method || c->request.error)
        return -ENOMEM;
    int r = loop_timer_new(c->loop, on_deadline, c, &c->deadline);
    if (r == 0)
        r = loop_timer_new(c->loop, on_connect_due, c, &c->connect_timer);
    if (r < 0)
        return r;
    loop_timer_set(c->deadline, config->deadline_ns, 0);
    start(c);
    if (c->concluded)
        loop_timer_set(c->connect_timer, 0, 0); // done is not called from in here
    return 0;
}

int grpc_call_new(struct loop *l, const struct grpc_call_config *config, struct grpc_call **out)
{
    struct grpc_call *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->loop = l;
    c->config = *config;
    c->fd = -1;
    int r = init(c);
    if (r < 0) {
        grpc_call_free(c);
        return r;
    }
    *out = c;
    return 0;
}

void grpc_call_free(struct grpc_call *c)
{
    if (!c)
        return;
    disconnect(c);
    loop_timer_free(c->deadline);
    loop_timer_free(c->connect_timer);
    buf_deinit(&c->request);
    free(c->method);
    free(c);
}
