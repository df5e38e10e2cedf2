// SPDX-License-Identifier: Apache-2.0
#include "burn/serve.h"

#include <errno.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/log.h"
#include "io/http_server.h"
#include "metrics/text.h"

struct burn_server {
    struct http_server *http;
    void (*render)(void *user, struct buf *out);
    void *user;
};

static void reply_page(const struct burn_server *s, struct http_request *r)
{
    struct buf page = BUF_INIT(LIMIT_PAGE_BYTES);
    struct http_body *body = NULL;
    size_t bytes = 0;
    s->render(s->user, &page);
    int failed = page.error;
    char *data = failed ? NULL : buf_take(&page, &bytes);
    if (!failed)
        failed = http_body_new(data, bytes, text_content_type(TEXT_FORMAT_PROMETHEUS), &body);
    if (failed)
        http_reply_text(r, 503, SV("out of memory\n"), NULL, 0);
    else
        http_reply(r, 200, body, NULL, 0);
    http_body_unref(body);
    buf_deinit(&page);
}

static void handle(void *user, struct http_request *r)
{
    const struct burn_server *s = user;
    struct sv method = http_request_method(r), path = http_request_path(r);
    struct http_header allow = {"Allow", "GET, HEAD"};
    if (!sv_equals(method, SV("GET")) && !sv_equals(method, SV("HEAD")))
        http_reply_text(r, 405, SV("only GET and HEAD\n"), &allow, 1);
    else if (sv_equals(path, SV("/metrics")))
        reply_page(s, r);
    else if (sv_equals(path, SV("/livez")))
        http_reply_text(r, 200, SV("alive\n"), NULL, 0);
    else
        http_reply_text(r, 404, SV("not found; /metrics is there\n"), NULL, 0);
}

int burn_server_new(struct loop *l, const char *address,
                    void (*render)(void *user, struct buf *out), void *user,
                    struct burn_server **out, struct error *err)
{
    struct burn_server *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    struct http_server_config config = {.address = address, .handle = handle, .user = s};
    s->render = render;
    s->user = user;
    int r = http_server_new(l, &config, &s->http, err);
    if (r < 0) {
        free(s);
        return r;
    }
    log_info("listening", LOG_STR("address", address), LOG_U64("port", http_server_port(s->http)));
    *out = s;
    return 0;
}

void burn_server_free(struct burn_server *s)
{
    if (!s)
        return;
    http_server_free(s->http);
    free(s);
}
