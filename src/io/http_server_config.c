// SPDX-License-Identifier: Apache-2.0
// Loading the web configuration and noticing that it changed. Files are compared by what stat says
// of the path, so a rename over it and a ConfigMap's symlink swap are seen as well. What stat says
// is taken before the file is read: a change in between shows at the next look.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/http_server_internal.h"

bool web_files_changed(const struct web_file files[WEB_FILES_MAX])
{
    for (size_t i = 0; i < WEB_FILES_MAX; i++) {
        if (!files[i].path)
            continue;
        struct file_stamp now = file_stamp(files[i].path);
        if (!file_stamp_equals(&now, &files[i].seen))
            return true;
    }
    return false;
}

void web_files_deinit(struct web_file files[WEB_FILES_MAX])
{
    for (size_t i = 0; i < WEB_FILES_MAX; i++) {
        free(files[i].path);
        files[i] = (struct web_file){0};
    }
}

static int watch(struct web_file *f, const char *path)
{
    if (!path || !*path)
        return 0;
    f->path = sv_dup(sv_from(path));
    if (!f->path)
        return -ENOMEM;
    f->seen = file_stamp(path);
    return 0;
}

static int read_config(const char *path, struct web_config *out, struct error *err)
{
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    // In one piece, so that erasing it erases all of it.
    int r = buf_reserve(&text, 64u << 10);
    if (r == 0)
        r = file_read(path, &text, err);
    if (r == 0)
        r = web_config_parse(buf_sv(&text), path, out, err);
    if (text.data)
        explicit_bzero(text.data, text.cap);
    buf_deinit(&text);
    return r;
}

static int fill(struct web_state *s, const char *path, struct web_file files[WEB_FILES_MAX],
                struct error *err)
{
    static uint64_t loads;
    int r = watch(&files[0], path);
    if (r == 0)
        r = read_config(path, &s->config, err);
    if (r == 0)
        r = watch(&files[1], s->config.cert_file);
    if (r == 0)
        r = watch(&files[2], s->config.key_file);
    if (r == 0)
        r = watch(&files[3], s->config.client_ca_file);
    if (r == 0 && s->config.tls)
        r = http_tls_new(&s->config, &s->tls, err);
    if (r == 0 && s->config.header_count > 0)
        s->headers_id = ++loads;
    if (r == -ENOMEM)
        error_set(err, r, "no memory for the web configuration");
    return r;
}

int web_state_load(const char *path, struct web_state **out, struct web_file files[WEB_FILES_MAX],
                   struct error *err)
{
    struct web_state *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, -ENOMEM, "no memory for the web configuration");
    s->refs = 1;
    int r = path && *path ? fill(s, path, files, err) : 0;
    if (r < 0) {
        web_state_unref(s);
        return r;
    }
    *out = s;
    return 0;
}

struct web_state *web_state_ref(struct web_state *s)
{
    s->refs++;
    return s;
}

void web_state_unref(struct web_state *s)
{
    if (!s || --s->refs > 0)
        return;
    http_tls_free(s->tls);
    web_config_deinit(&s->config);
    free(s);
}
