// SPDX-License-Identifier: Apache-2.0
#include "agent/http_options.h"

#include <errno.h>

#include "base/file.h"
#include "base/limits.h"

#define OPTIONS_BYTES (4u << 20)

void http_options_deinit(struct http_options *o)
{
    arena_erase(&o->arena);
    arena_deinit(&o->arena);
    *o = (struct http_options){0};
}

// The file without white space around it. It has to be one line, for it goes into a header.
static int read_secret(struct arena *arena, const char *path, const char **out, struct error *err)
{
    cleanup(buf_deinit) struct buf text = BUF_INIT(LIMIT_HTTP_SECRET_BYTES);
    int r = file_read(path, &text, err);
    if (r == 0) {
        struct sv value = sv_trim(buf_sv(&text), " \t\r\n\v\f");
        for (size_t i = 0; r == 0 && i < value.len; i++) {
            if ((unsigned char)value.ptr[i] < ' ' && value.ptr[i] != '\t')
                r = error_set(err, -EINVAL, "%s: expected one line of text", path);
        }
        if (r == 0 && !(*out = arena_dup(arena, value)))
            r = error_set(err, -ENOMEM, "out of memory");
    }
    if (text.data)
        explicit_bzero(text.data, text.len);
    return r;
}

// value, or what stands in the file, or NULL.
static int value_or_file(struct arena *arena, const char *value, const char *file, const char **out,
                         struct error *err)
{
    *out = value;
    return !value && file ? read_secret(arena, file, out, err) : 0;
}

static int add_header(struct http_options *o, size_t *count, struct sv name, struct sv value,
                      struct error *err)
{
    char *line = arena_alloc(&o->arena, name.len + value.len + 3);
    if (!line)
        return error_set(err, -ENOMEM, "out of memory");
    memcpy(line, name.ptr, name.len);
    memcpy(line + name.len, ": ", 2);
    if (value.len)
        memcpy(line + name.len + 2, value.ptr, value.len);
    line[name.len + 2 + value.len] = '\0';
    o->headers[(*count)++] = line;
    return 0;
}

static int add_authorization(struct http_options *o, size_t *count, const struct prom_http *http,
                             struct error *err)
{
    const char *credentials;
    if (!http->auth_type)
        return 0;
    int r = value_or_file(&o->arena, http->credentials, http->credentials_file, &credentials, err);
    if (r < 0 || !credentials)
        return r;
    size_t type = strlen(http->auth_type), length = strlen(credentials);
    char *value = arena_alloc(&o->arena, type + length + 2);
    if (!value)
        return error_set(err, -ENOMEM, "out of memory");
    memcpy(value, http->auth_type, type);
    value[type] = ' ';
    memcpy(value + type + 1, credentials, length + 1);
    return add_header(o, count, SV("Authorization"), sv_from(value), err);
}

static int add_headers(struct http_options *o, const struct prom_http *http, const char *const *own,
                       struct error *err)
{
    size_t most = http->header_count + http->header_file_count + 2, count = 0;
    for (size_t i = 0; own && own[i]; i++)
        most++;
    o->headers = arena_alloc(&o->arena, most * sizeof(*o->headers));
    if (!o->headers)
        return error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; own && own[i]; i++)
        o->headers[count++] = own[i];
    int r = add_authorization(o, &count, http, err);
    for (size_t i = 0; r == 0 && i < http->header_count; i++)
        r = add_header(o, &count, sv_from(http->headers[i].name), sv_from(http->headers[i].value),
                       err);
    for (size_t i = 0; r == 0 && i < http->header_file_count; i++) {
        const char *value;
        r = read_secret(&o->arena, http->header_files[i].value, &value, err);
        if (r == 0)
            r = add_header(o, &count, sv_from(http->header_files[i].name), sv_from(value), err);
    }
    o->headers[count] = NULL;
    return r;
}

static void set_tls(struct http_client_request *request, const struct prom_http *http)
{
    request->tls = http->tls;
    request->tls.ca_pem = http->ca;
    request->tls.cert_pem = http->cert;
    request->tls.key_pem = http->key;
}

static void set_proxy(struct http_client_request *request, const struct prom_http *http)
{
    bool given = http->proxy_url && *http->proxy_url;
    request->proxy = given ? http->proxy_url : http->proxy_from_environment ? NULL : "";
    request->no_proxy = given ? http->no_proxy : NULL;
}

int http_options_init(struct http_options *out, const struct prom_http *http,
                      const char *const *own_headers, struct http_client_request *request,
                      struct error *err)
{
    *out = (struct http_options){.arena = ARENA_INIT(OPTIONS_BYTES)};
    int r = add_headers(out, http, own_headers, err);
    if (r == 0)
        r = value_or_file(&out->arena, http->user, http->user_file, &request->user, err);
    if (r == 0)
        r = value_or_file(&out->arena, http->password, http->password_file, &request->password,
                          err);
    if (r < 0) {
        http_options_deinit(out);
        return r;
    }
    request->method = "GET";
    request->headers = out->headers;
    request->follow_redirects = http->follow_redirects;
    set_tls(request, http);
    set_proxy(request, http);
    return 0;
}
