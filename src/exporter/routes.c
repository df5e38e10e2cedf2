// SPDX-License-Identifier: Apache-2.0
#include "exporter/routes.h"

#include "base/clock.h"
#include "io/http_syntax.h"

// Longer paths are none of ours however they are written.
#define LOCATION_PATH_BYTES 256

// The front page as dcgm-exporter lays it out, tabs included.
static const char front_page[] =
    "<html>\n\t\t\t<head><title>GPU Exporter</title></head>\n\t\t\t<body>\n"
    "\t\t\t<h1>GPU Exporter</h1>\n"
    "\t\t\t<p><a href=\"./metrics\">Metrics</a></p>\n"
    "\t\t\t<p><a href=\"./health\">Health</a></p>\n\t\t\t</body>\n\t\t\t</html>";

static const struct http_header text_html = {"Content-Type", "text/html; charset=utf-8"};

static void serve_metrics(const struct routes *r, struct http_request *request)
{
    enum text_format format = TEXT_FORMAT_PROMETHEUS;
    struct sv accept = http_request_header(request, "Accept");
    if (r->openmetrics && accept.ptr &&
        sv_find(accept, SV("application/openmetrics-text")) != (size_t)-1)
        format = TEXT_FORMAT_OPENMETRICS;
    struct http_body *body = publisher_body(r->publisher, format);
    if (!body) {
        http_reply_text(request, 503, SV("no page yet\n"), NULL, 0);
        return;
    }
    if (publisher_page_is_old(r->publisher, clock_mono_ns())) {
        http_reply_text(request, 503, SV("no page could be made for a while: see the log\n"), NULL,
                        0);
        return;
    }
    http_reply(request, 200, body, NULL, 0);
}

static void serve_health(const struct routes *r, struct http_request *request)
{
    bool have_page = publisher_body(r->publisher, TEXT_FORMAT_PROMETHEUS) != NULL;
    struct http_header headers[2] = {{"X-Registry-Available", have_page ? "true" : "false"}};
    size_t count = 1;
    if (r->reloading || !have_page)
        headers[count++] = (struct http_header){"X-Reload-In-Progress", "true"};
    http_reply_text(request, 200, have_page ? SV("OK") : SV("OK - reload in progress"), headers,
                    count);
}

static void serve_ready(const struct routes *r, struct http_request *request)
{
    struct ready_condition conditions[READY_CONDITIONS_MAX];
    size_t count = r->conditions(r->user, conditions);
    struct buf text = BUF_INIT(READY_CONDITIONS_MAX * 512);
    bool ready = true;
    for (size_t i = 0; i < count; i++) {
        const struct ready_condition *c = &conditions[i];
        ready = ready && c->ok;
        buf_add_fmt(&text, "[%c] %s%s%s\n", c->ok ? '+' : '-', c->name, c->text[0] ? ": " : "",
                    c->text);
    }
    buf_add_str(&text, ready ? "ready\n" : "not ready\n");
    http_reply_text(request, ready ? 200 : 503, buf_sv(&text), NULL, 0);
    buf_deinit(&text);
}

// "//metrics" and "/./metrics" are sent to the clean path, as Go's routers do. False: nothing to
// clean.
static bool redirect_unclean(struct http_request *request, struct sv path)
{
    char clean[3 * LOCATION_PATH_BYTES];
    if (http_path_is_clean(path) || http_path_clean(path, clean, sizeof(clean)) < 0)
        return false;
    struct http_header location = {"Location", clean};
    http_reply_text(request, 301, SV("Moved Permanently\n"), &location, 1);
    return true;
}

void routes_handle(void *user, struct http_request *request)
{
    const struct routes *r = user;
    struct sv path = http_request_path(request);
    if (sv_equals(path, SV("/metrics")))
        serve_metrics(r, request);
    else if (sv_equals(path, SV("/health")))
        serve_health(r, request);
    else if (sv_equals(path, SV("/livez")))
        http_reply_text(request, 200, SV("ok\n"), NULL, 0);
    else if (sv_equals(path, SV("/readyz")))
        serve_ready(r, request);
    else if (sv_equals(path, SV("/")))
        http_reply_text(request, 200, (struct sv){front_page, sizeof(front_page) - 1}, &text_html,
                        1);
    else if (!redirect_unclean(request, path))
        http_reply_text(request, 404, SV("404 page not found\n"), NULL, 0);
}
