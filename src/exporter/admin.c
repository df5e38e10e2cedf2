// SPDX-License-Identifier: Apache-2.0
// The address is checked by its own text before anything listens; localhost is 127.0.0.1, whatever
// it resolves to.
#include "exporter/admin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/limits.h"
#include "base/log.h"
#include "io/http_server.h"
#include "io/http_syntax.h"

struct admin {
    struct http_server *server;
    int (*command)(void *user, enum admin_command command, struct error *err);
    void *user;
    struct http_deferred *waiting; // a client, or NULL
};

struct admin_route {
    const char *path;
    enum admin_command command;
    bool may_wait;
};

static const struct admin_route routes[] = {
    {"/-/reload", ADMIN_RELOAD, false}, {"/-/release", ADMIN_RELEASE, false},
    {"/-/attach", ADMIN_ATTACH, false}, {"/-/pause", ADMIN_PAUSE, true},
    {"/-/resume", ADMIN_RESUME, true},
};

// --- Requests ---

static void reply(struct http_request *r, unsigned status, const char *text)
{
    char line[640];
    size_t len = strnlen(text, sizeof(line) - 1);
    memcpy(line, text, len);
    line[len] = '\n';
    http_reply_text(r, status, (struct sv){line, len + 1}, NULL, 0);
}

// A page in a browser on this machine may send a POST anywhere; no control tool sends these
// headers.
static bool is_from_web_page(const struct http_request *r)
{
    return http_request_header(r, "Origin").ptr || http_request_header(r, "Sec-Fetch-Site").ptr;
}

static const struct admin_route *route_find(struct sv path)
{
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (sv_equals(path, sv_from(routes[i].path)))
            return &routes[i];
    }
    return NULL;
}

static void run_command(struct admin *a, struct http_request *r, const struct admin_route *route)
{
    struct error err = ERROR_INIT;
    if (route->may_wait && a->waiting) {
        reply(r, 409, "another request like it is under way");
        return;
    }
    int result = a->command(a->user, route->command, &err);
    if (result == ADMIN_LATER) {
        a->waiting = http_defer(r);
        if (!a->waiting)
            reply(r, 409, "out of memory");
        return;
    }
    log_info("admin request", LOG_STR("path", route->path), LOG_BOOL("done", result == 0));
    if (result == 0) {
        reply(r, 200, "ok");
        return;
    }
    char text[sizeof(err.file) + sizeof(err.text) + 32];
    reply(r, 409, err.text[0] ? error_text(&err, text, sizeof(text)) : "failed");
}

static void handle(void *user, struct http_request *r)
{
    static const struct http_header allow = {"Allow", "POST"};
    const struct admin_route *route = route_find(http_request_path(r));
    if (!route)
        reply(r, 404, "not found");
    else if (!sv_equals(http_request_method(r), SV("POST")))
        http_reply_text(r, 405, SV("use POST\n"), &allow, 1);
    else if (is_from_web_page(r))
        reply(r, 403, "not for web pages");
    else
        run_command(user, r, route);
}

// --- Address ---

// The address to listen on, into out.
static int check_address(const char *address, char *out, size_t out_bytes, struct error *err)
{
    struct http_address parsed;
    int r = http_address_parse(address, &parsed, err);
    if (r < 0)
        return r;
    if (!parsed.is_unix && !http_host_is_loopback(parsed.host))
        return error_set(
            err, -EINVAL,
            "admin address '%s' must be loopback (127.0.0.1:PORT, [::1]:PORT) or unix:/PATH",
            address);
    if (!parsed.is_unix && sv_equals_nocase(sv_from(parsed.host), SV("localhost")))
        (void)snprintf(out, out_bytes, "127.0.0.1:%u", parsed.port);
    else
        sv_copy(out, out_bytes, sv_from(address));
    return 0;
}

// --- Life ---

int admin_new(struct loop *l, const struct admin_config *config, struct admin **out,
              struct error *err)
{
    char address[512];
    int r = check_address(config->address, address, sizeof(address), err);
    if (r < 0)
        return r;
    struct admin *a = calloc(1, sizeof(*a));
    if (!a)
        return error_set(err, -ENOMEM, "out of memory");
    a->command = config->command;
    a->user = config->user;
    const struct http_server_config server = {
        .address = address,
        .most_connections = LIMIT_ADMIN_CONNECTIONS,
        .handle = handle,
        .user = a,
    };
    mode_t before = umask(0177); // a unix socket is made by this
    r = http_server_new(l, &server, &a->server, err);
    (void)umask(before);
    if (r < 0) {
        free(a);
        return r;
    }
    *out = a;
    return 0;
}

unsigned admin_port(const struct admin *a)
{
    return http_server_port(a->server);
}

void admin_finish(struct admin *a, int result, const char *reason)
{
    if (!a || !a->waiting)
        return;
    char line[640];
    (void)snprintf(line, sizeof(line), "%s\n", result == 0 ? "ok" : reason);
    log_info("admin request", LOG_STR("answer", result == 0 ? "ok" : reason),
             LOG_BOOL("done", result == 0));
    http_deferred_reply(TAKE_PTR(a->waiting), result == 0 ? 200 : 409, sv_from(line));
}

void admin_free(struct admin *a)
{
    if (!a)
        return;
    admin_finish(a, -ESHUTDOWN, "the exporter ends");
    http_server_free(a->server);
    free(a);
}
