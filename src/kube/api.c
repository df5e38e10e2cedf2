// SPDX-License-Identifier: Apache-2.0
// Requests as the access says. Files with credentials are looked at for each request and read once
// they have changed: a pod's token is replaced about once an hour. Header lines live for the time
// of starting a request and are erased.
#include "kube/api.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/limits.h"
#include "kube/api_internal.h"

#define HEADER_LINES_BYTES (4 * LIMIT_KUBE_SECRET_BYTES)

struct secret {
    const char *path;
    struct file_stamp stamp;
    struct buf text;
};

struct kube_api {
    struct loop *loop;
    struct http_client *client;
    struct kube_access access;
    struct secret user, password, credentials;
    struct secret *headers; // of header_files, each second text
    size_t header_count;
};

// --- Secrets ---

static void secret_erase(struct secret *s)
{
    if (s->text.data)
        explicit_bzero(s->text.data, s->text.cap);
    buf_reset(&s->text);
}

static struct sv secret_text(const struct secret *s)
{
    return sv_trim(buf_sv(&s->text), " \t\r\n");
}

static int secret_refresh(struct secret *s, struct error *err)
{
    struct file_stamp now = file_stamp(s->path);
    if (now.there && s->stamp.there && file_stamp_equals(&now, &s->stamp))
        return 0;
    secret_erase(s);
    s->stamp = (struct file_stamp){0};
    s->text.max = LIMIT_KUBE_SECRET_BYTES;
    // In one step, so that a buffer that grows leaves no copy behind.
    int r = buf_reserve(&s->text, LIMIT_KUBE_SECRET_BYTES);
    if (r == 0)
        r = file_read(s->path, &s->text, err);
    if (r == -ENOMEM)
        return error_set(err, r, "out of memory");
    if (r < 0)
        return -EACCES;
    s->stamp = now;
    return 0;
}

static int refresh(struct kube_api *api, struct error *err)
{
    struct secret *own[] = {&api->user, &api->password, &api->credentials};
    int r = 0;
    for (size_t i = 0; i < ARRAY_SIZE(own) && r == 0; i++)
        r = own[i]->path ? secret_refresh(own[i], err) : 0;
    for (size_t i = 0; i < api->header_count && r == 0; i++)
        r = secret_refresh(&api->headers[i], err);
    return r;
}

void kube_api_renew_credentials(struct kube_api *api)
{
    struct secret *own[] = {&api->user, &api->password, &api->credentials};
    for (size_t i = 0; i < ARRAY_SIZE(own); i++)
        own[i]->stamp = (struct file_stamp){0};
    for (size_t i = 0; i < api->header_count; i++)
        api->headers[i].stamp = (struct file_stamp){0};
}

// --- Requests ---

static const char *header_line(struct arena *a, const char *name, const char *between,
                               struct sv value)
{
    size_t name_len = strlen(name), between_len = strlen(between);
    char *line = arena_alloc(a, name_len + between_len + value.len + 1);
    if (!line)
        return NULL;
    memcpy(line, name, name_len);
    memcpy(line + name_len, between, between_len);
    if (value.len)
        memcpy(line + name_len + between_len, value.ptr, value.len);
    line[name_len + between_len + value.len] = '\0';
    return line;
}

static const char *authorization(const struct kube_api *api, struct arena *a)
{
    const struct kube_access *access = &api->access;
    struct sv value =
        access->credentials_file ? secret_text(&api->credentials) : sv_from(access->credentials);
    const char *type = access->auth_type ? access->auth_type : "Bearer";
    const char *start = header_line(a, "Authorization: ", type, SV(""));
    return start ? header_line(a, start, " ", value) : NULL;
}

static const char **make_headers(const struct kube_api *api, struct arena *a)
{
    const struct kube_access *access = &api->access;
    size_t given = 0, n = 0;
    while (access->headers && access->headers[given])
        given++;
    const char **lines = arena_alloc(a, (given + api->header_count + 3) * sizeof(*lines));
    if (!lines)
        return NULL;
    lines[n++] = "Accept: application/json";
    if (access->credentials || access->credentials_file)
        lines[n++] = authorization(api, a);
    for (size_t i = 0; i < given; i++)
        lines[n++] = access->headers[i];
    for (size_t i = 0; i < api->header_count; i++)
        lines[n++] =
            header_line(a, access->header_files[2 * i], ": ", secret_text(&api->headers[i]));
    for (size_t i = 0; i < n; i++)
        if (!lines[i])
            return NULL;
    lines[n] = NULL;
    return lines;
}

static const char *login_text(struct arena *a, const char *given, const struct secret *s)
{
    return s->path ? arena_dup(a, secret_text(s)) : given;
}

static int start(struct kube_api *api, struct http_handle *handle, const struct kube_api_call *call,
                 struct arena *a, struct http_call **out, struct error *err)
{
    const struct kube_access *access = &api->access;
    struct http_client_request r = {
        .method = "GET",
        .url = header_line(a, access->server, call->path, SV("")),
        .headers = make_headers(api, a),
        .tls = access->tls,
        .proxy = access->proxy_url                ? access->proxy_url
                 : access->proxy_from_environment ? NULL
                                                  : "",
        .no_proxy = access->no_proxy,
        .user = login_text(a, access->user, &api->user),
        .password = login_text(a, access->password, &api->password),
        .follow_redirects = access->follow_redirects,
        .deadline_ns = call->deadline_ns,
        .max_body_bytes = SIZE_MAX, // read as it comes, nothing of it is gathered
        .data = call->data,
    };
    if (!r.url || !r.headers || a->error)
        return error_set(err, -ENOMEM, "out of memory");
    return http_client_start(api->client, handle, &r, call->done, call->user, out, err);
}

int kube_api_start(struct kube_api *api, struct http_handle *handle,
                   const struct kube_api_call *call, struct http_call **out, struct error *err)
{
    struct arena lines = ARENA_INIT(HEADER_LINES_BYTES + LIMIT_KUBE_URL_BYTES);
    int r = refresh(api, err);
    if (r == 0)
        r = start(api, handle, call, &lines, out, err);
    arena_erase(&lines);
    arena_deinit(&lines);
    return r;
}

// --- The whole ---

static void set_secret(struct secret *s, const char *path)
{
    *s = (struct secret){.path = path};
}

static int set_secrets(struct kube_api *api)
{
    const struct kube_access *a = &api->access;
    set_secret(&api->user, a->user_file);
    set_secret(&api->password, a->password_file);
    set_secret(&api->credentials, a->credentials_file);
    size_t count = 0;
    while (a->header_files && a->header_files[2 * count])
        count++;
    if (count == 0)
        return 0;
    api->headers = calloc(count, sizeof(*api->headers));
    if (!api->headers)
        return -ENOMEM;
    api->header_count = count;
    for (size_t i = 0; i < count; i++)
        set_secret(&api->headers[i], a->header_files[2 * i + 1]);
    return 0;
}

int kube_api_new(struct loop *l, struct http_client *client, const struct kube_api_config *config,
                 struct kube_api **out, struct error *err)
{
    struct kube_api *api = calloc(1, sizeof(*api));
    if (!api)
        return error_set(err, -ENOMEM, "out of memory");
    api->loop = l;
    api->client = client;
    int r = kube_access_init(&api->access, config, err);
    if (r == 0 && set_secrets(api) < 0)
        r = error_set(err, -ENOMEM, "out of memory");
    if (r < 0) {
        kube_api_free(api);
        return r;
    }
    *out = api;
    return 0;
}

static void secret_deinit(struct secret *s)
{
    secret_erase(s);
    buf_deinit(&s->text);
}

void kube_api_free(struct kube_api *api)
{
    if (!api)
        return;
    secret_deinit(&api->user);
    secret_deinit(&api->password);
    secret_deinit(&api->credentials);
    for (size_t i = 0; i < api->header_count; i++)
        secret_deinit(&api->headers[i]);
    free(api->headers);
    kube_access_deinit(&api->access);
    free(api);
}

const char *kube_api_namespace(const struct kube_api *api)
{
    return api->access.namespace_name;
}

const char *kube_api_server(const struct kube_api *api)
{
    return api->access.server;
}

struct loop *kube_api_loop(const struct kube_api *api)
{
    return api->loop;
}

struct http_client *kube_api_client(const struct kube_api *api)
{
    return api->client;
}

struct sv kube_text(const struct json_node *object, const char *key, const char *key2)
{
    const struct json_node *n = object ? json_find(object, key) : NULL;
    if (n && key2)
        n = n->kind == JSON_OBJECT ? json_find(n, key2) : NULL;
    return n && n->kind == JSON_STRING ? n->string : (struct sv){"", 0};
}
