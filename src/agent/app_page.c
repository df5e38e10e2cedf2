// SPDX-License-Identifier: Apache-2.0
// What --listen answers: /metrics, /targets (JSON; a page for browsers), /livez, /readyz.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/app_internal.h"
#include "agent/target.h"
#include "base/clock.h"
#include "base/limits.h"
#include "codec/json.h"

#define LARGE_PAGE_BYTES (64u << 10) // smaller ones are made for each who asks
#define LARGE_PAGE_AGE_NS (1 * NS_PER_S)

static const struct http_header html = {"Content-Type", "text/html; charset=utf-8"};

static const char *health_text(enum target_health h)
{
    switch (h) {
    case TARGET_UNKNOWN:
        return "unknown";
    case TARGET_UP:
        return "up";
    case TARGET_DOWN:
        return "down";
    }
    return "";
}

// RFC 3339 in UTC with milliseconds.
static void add_time(struct buf *out, int64_t ms)
{
    time_t s = (time_t)(ms / 1000);
    struct tm t;
    char text[40] = "";
    if (gmtime_r(&s, &t))
        (void)strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &t);
    buf_add_fmt(out, "%s.%03dZ", text, (int)(ms % 1000));
}

// --- JSON ---

static void add_member(struct buf *out, const char *name, struct sv value)
{
    buf_add_fmt(out, "\"%s\":", name);
    json_add_string(out, value);
    buf_add_char(out, ',');
}

// Parameters of the request are among the labels before relabelling.
static struct sv shown_value(const struct label *l)
{
    bool is_secret =
        sv_starts_with(l->name, SV("__param_")) && target_looks_secret(l->name) && l->value.len > 0;
    return is_secret ? SV("xxxxx") : l->value;
}

static void add_labels(struct buf *out, const char *name, const struct labels *l)
{
    buf_add_fmt(out, "\"%s\":{", name);
    for (size_t i = 0; i < l->count; i++) {
        if (i > 0)
            buf_add_char(out, ',');
        json_add_string(out, l->items[i].name);
        buf_add_char(out, ':');
        json_add_string(out, shown_value(&l->items[i]));
    }
    buf_add_str(out, "},");
}

static void add_seconds(struct buf *out, const char *name, uint64_t ns)
{
    buf_add_fmt(out, "\"%s\":", name);
    json_add_number(out, (double)ns / (double)NS_PER_S);
    buf_add_char(out, ',');
}

static void add_counts(struct buf *out, const struct series_result *r)
{
    buf_add_fmt(out,
                "\"samples_scraped\":%llu,\"samples_after_relabel\":%llu,\"series_added\":%llu,"
                "\"duplicates\":%llu,",
                (unsigned long long)r->scraped, (unsigned long long)r->relabelled,
                (unsigned long long)r->added, (unsigned long long)r->duplicates);
}

static void add_target(void *user, const struct target_view *t)
{
    struct buf *out = user;
    size_t before = out->len;
    buf_add_char(out, '{');
    add_member(out, "job", sv_from(t->job));
    add_labels(out, "discovered_labels", t->discovered);
    if (!t->is_dropped) {
        add_member(out, "url", sv_from(t->url));
        add_labels(out, "labels", t->labels);
        add_member(out, "last_error", sv_from(t->error));
        add_seconds(out, "scrape_interval", t->interval_ns);
        add_seconds(out, "scrape_timeout", t->timeout_ns);
        add_seconds(out, "last_duration", t->last_duration_ns);
        add_counts(out, &t->last);
        buf_add_str(out, "\"last_scrape\":");
        if (t->last_scrape_ms > 0) {
            buf_add_char(out, '"');
            add_time(out, t->last_scrape_ms);
            buf_add_str(out, "\",");
        } else {
            buf_add_str(out, "null,");
        }
    }
    buf_add_fmt(out, "\"health\":\"%s\"},", t->is_dropped ? "dropped" : health_text(t->health));
    if (out->error && out->len != before)
        out->len = before; // the page ends with the target that still has room
}

static void end_list(struct buf *out)
{
    if (out->len > 0 && out->data[out->len - 1] == ',')
        out->len--;
}

static void add_problems(struct buf *out, const struct agent *a)
{
    size_t count = 0;
    const struct discovery_problem *problems =
        a->discovery ? discovery_problems(a->discovery, &count) : NULL;
    for (size_t i = 0; i < count; i++) {
        buf_add_char(out, '{');
        add_member(out, "job", sv_from(problems[i].job));
        add_member(out, "kind", sv_from(problems[i].kind));
        add_member(out, "error", sv_from(problems[i].text));
        end_list(out);
        buf_add_str(out, "},");
    }
    end_list(out);
}

// --- Large pages ---
// One of 10,000 targets has tens of megabytes, and a slow reader holds it as long as it reads. So
// readers share a page that is a second old at most, and a few of them are alive at most.

static void drop_page(struct agent *a, size_t index)
{
    http_body_unref(a->pages[index].body);
    a->page_count--;
    for (size_t i = index; i < a->page_count; i++)
        a->pages[i] = a->pages[i + 1];
}

void agent_drop_pages(struct agent *a)
{
    while (a->page_count > 0)
        drop_page(a, a->page_count - 1);
}

// Those too old for the next one who asks, and that nobody reads any more.
void agent_retire_pages(struct agent *a)
{
    uint64_t now_ns = loop_now_ns(a->loop);
    for (size_t i = a->page_count; i-- > 0;) {
        if (now_ns - a->pages[i].made_ns >= LARGE_PAGE_AGE_NS &&
            http_body_readers(a->pages[i].body) == 0)
            drop_page(a, i);
    }
}

static bool reply_kept(struct agent *a, struct http_request *request, bool is_html)
{
    agent_retire_pages(a);
    for (size_t i = a->page_count; i-- > 0;) {
        const struct app_page *p = &a->pages[i];
        if (p->is_html != is_html)
            continue;
        if (loop_now_ns(a->loop) - p->made_ns >= LARGE_PAGE_AGE_NS)
            return false; // as are those before
        http_reply(request, 200, p->body, NULL, 0);
        return true;
    }
    return false;
}

static void keep_page(struct agent *a, struct http_body *body, bool is_html)
{
    if (http_body_bytes(body).len < LARGE_PAGE_BYTES)
        return;
    if (a->page_count == LIMIT_AGENT_PAGES_LIVE) {
        a->shut_readers += http_body_shut_readers(a->pages[0].body);
        drop_page(a, 0);
    }
    a->pages[a->page_count++] =
        (struct app_page){http_body_ref(body), is_html, loop_now_ns(a->loop)};
}

static void reply_buf(struct agent *a, struct http_request *request, struct buf *text, bool is_html)
{
    const char *type = is_html ? html.value : "application/json";
    struct http_body *body = NULL;
    size_t bytes = 0;
    char *data = text->error ? NULL : buf_take(text, &bytes);
    if (!data || http_body_new(data, bytes, type, &body) < 0) {
        http_reply_text(request, 503, SV("no memory for this page\n"), NULL, 0);
        return;
    }
    keep_page(a, body, is_html);
    http_reply(request, 200, body, NULL, 0);
    http_body_unref(body);
}

static void serve_targets_json(struct agent *a, struct http_request *request)
{
    struct buf out = BUF_INIT(LIMIT_AGENT_TARGETS_BYTES);
    buf_add_str(&out, "{\"targets\":[");
    if (a->scraper)
        scraper_each_target(a->scraper, add_target, &out);
    bool is_cut = out.error == -EFBIG;
    if (is_cut)
        out.error = 0;
    end_list(&out);
    out.max += LIMIT_AGENT_PAGE_BYTES;
    buf_add_fmt(&out, "],\"truncated\":%s,\"discovery_problems\":[", is_cut ? "true" : "false");
    add_problems(&out, a);
    buf_add_str(&out, "]}\n");
    reply_buf(a, request, &out, false);
    buf_deinit(&out);
}

// --- A page for people ---

static void add_html(struct buf *out, struct sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '<')
            buf_add_str(out, "&lt;");
        else if (c == '>')
            buf_add_str(out, "&gt;");
        else if (c == '&')
            buf_add_str(out, "&amp;");
        else if (c == '"')
            buf_add_str(out, "&quot;");
        else // control characters are not for HTML
            buf_add_char(out, (unsigned char)c < 0x20 || c == 0x7f ? ' ' : c);
    }
}

static void add_row(void *user, const struct target_view *t)
{
    struct buf *out = user;
    size_t before = out->len;
    if (t->is_dropped)
        return;
    buf_add_fmt(out, "<tr class=\"%s\"><td>", health_text(t->health));
    add_html(out, sv_from(t->job));
    buf_add_str(out, "</td><td>");
    add_html(out, sv_from(t->url));
    buf_add_str(out, "</td><td>");
    for (size_t i = 0; i < t->labels->count; i++) {
        add_html(out, t->labels->items[i].name);
        buf_add_str(out, "=&quot;");
        add_html(out, t->labels->items[i].value);
        buf_add_str(out, "&quot; ");
    }
    buf_add_fmt(out, "</td><td>%s</td><td>", health_text(t->health));
    if (t->last_scrape_ms > 0)
        add_time(out, t->last_scrape_ms);
    buf_add_fmt(out, "</td><td>%.3f s</td><td>%llu</td><td>",
                (double)t->last_duration_ns / (double)NS_PER_S,
                (unsigned long long)t->last.scraped);
    add_html(out, sv_from(t->error));
    buf_add_str(out, "</td></tr>\n");
    if (out->error)
        out->len = before; // the page ends with the target that still has room
}

static void serve_targets_page(struct agent *a, struct http_request *request)
{
    static const char head[] =
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>podgpu-agent: "
        "targets</title>\n<style>body{font:14px sans-serif;margin:2em}table{border-collapse:"
        "collapse}td,th{border:1px solid #ccc;padding:4px 8px;text-align:left;vertical-align:top}"
        ".down td{background:#fdd}.unknown td{background:#eee}</style></head>\n<body><h1>Targets"
        "</h1>\n<table><thead><tr><th>job</th><th>URL</th><th>labels</th><th>state</th><th>last "
        "scrape</th><th>took</th><th>samples</th><th>error</th></tr></thead><tbody>\n";
    struct buf out = BUF_INIT(LIMIT_AGENT_TARGETS_BYTES);
    size_t count = 0;
    buf_add_str(&out, head);
    if (a->scraper)
        scraper_each_target(a->scraper, add_row, &out);
    bool is_cut = out.error == -EFBIG;
    if (is_cut)
        out.error = 0;
    out.max += LIMIT_AGENT_PAGE_BYTES;
    buf_add_str(&out, is_cut ? "</tbody></table>\n<p>There are more targets than this page "
                               "takes.</p>\n<h2>"
                             : "</tbody></table>\n<h2>");
    buf_add_str(&out, "Problems of discovery</h2>\n<ul>\n");
    const struct discovery_problem *problems =
        a->discovery ? discovery_problems(a->discovery, &count) : NULL;
    for (size_t i = 0; i < count; i++) {
        buf_add_str(&out, "<li>");
        add_html(&out, sv_from(problems[i].job));
        buf_add_str(&out, ": ");
        add_html(&out, sv_from(problems[i].kind));
        buf_add_str(&out, ": ");
        add_html(&out, sv_from(problems[i].text));
        buf_add_str(&out, "</li>\n");
    }
    buf_add_str(&out, "</ul></body></html>\n");
    reply_buf(a, request, &out, true);
    buf_deinit(&out);
}

static bool wants_html(const struct http_request *request)
{
    struct sv accept = http_request_header(request, "Accept");
    return accept.ptr && sv_find(accept, SV("text/html")) != (size_t)-1;
}

static void serve_targets(struct agent *a, struct http_request *request)
{
    bool is_html = wants_html(request);
    if (reply_kept(a, request, is_html))
        return;
    if (is_html)
        serve_targets_page(a, request);
    else
        serve_targets_json(a, request);
}

// --- Readiness ---

static void add_condition(struct buf *out, bool *all, bool ok, const char *name)
{
    *all = *all && ok;
    buf_add_fmt(out, "[%c] %s\n", ok ? '+' : '-', name);
}

static void serve_ready(const struct agent *a, struct http_request *request)
{
    struct buf out = BUF_INIT(4096);
    bool all = true;
    add_condition(&out, &all, a->emf != NULL, "region and cluster are known");
    add_condition(&out, &all, a->discovery != NULL && a->ready_jobs >= a->config.prom->job_count,
                  "discovery has looked at every job");
    add_condition(&out, &all, !a->is_ending, "running");
    buf_add_str(&out, all ? "ready\n" : "not ready\n");
    http_reply_text(request, all ? 200 : 503, buf_sv(&out), NULL, 0);
    buf_deinit(&out);
}

static void serve_front(struct http_request *request)
{
    static const char page[] =
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>podgpu-agent"
        "</title></head>\n<body><h1>podgpu-agent</h1><p><a href=\"/targets\">Targets</a></p><p><a "
        "href=\"/metrics\">Metrics</a></p></body></html>\n";
    http_reply_text(request, 200, (struct sv){page, sizeof(page) - 1}, &html, 1);
}

static void serve_metrics(const struct agent *a, struct http_request *request)
{
    struct http_body *body = agent_metrics_page(a);
    if (!body) {
        http_reply_text(request, 503, SV("no memory for this page\n"), NULL, 0);
        return;
    }
    http_reply(request, 200, body, NULL, 0);
    http_body_unref(body);
}

void agent_handle(void *user, struct http_request *request)
{
    struct agent *a = user;
    struct sv path = http_request_path(request);
    if (sv_equals(path, SV("/metrics")))
        serve_metrics(a, request);
    else if (sv_equals(path, SV("/targets")))
        serve_targets(a, request);
    else if (sv_equals(path, SV("/livez")))
        http_reply_text(request, 200, SV("ok\n"), NULL, 0);
    else if (sv_equals(path, SV("/readyz")))
        serve_ready(a, request);
    else if (sv_equals(path, SV("/")))
        serve_front(request);
    else
        http_reply_text(request, 404, SV("404 page not found\n"), NULL, 0);
}
