// SPDX-License-Identifier: Apache-2.0
// Loading the web configuration and noticing that it changed. Files are compared by what stat says
// of the path, so a rename over it and a ConfigMap's symlink swap are seen as well. What stat says
// is taken before the file is read: a change in between shows at the next look.
//
// A file that is written in place is for a while a shorter one, and without its last lines it may
// ask clients for less. So a change waits until the files stand still, longer when it opens what
// was closed; and a file without a byte never opens anything.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "io/http_server_internal.h"

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
        error_set(err, r, "out of memory for the web configuration");
    return r;
}

int web_state_load(const char *path, struct web_state **out, struct web_file files[WEB_FILES_MAX],
                   struct error *err)
{
    struct web_state *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, -ENOMEM, "out of memory for the web configuration");
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

static bool asks_for_certificate(const struct web_state *s)
{
    enum web_client_auth a = s->config.client_auth;
    return s->tls && (a == WEB_CLIENT_REQUIRE_ANY || a == WEB_CLIENT_REQUIRE_AND_VERIFY);
}

static bool verifies_certificate(const struct web_state *s)
{
    return s->tls && s->config.client_auth == WEB_CLIENT_REQUIRE_AND_VERIFY;
}

bool web_state_is_looser(const struct web_state *to, const struct web_state *from)
{
    return from && ((from->tls && !to->tls) ||
                    (from->config.user_count > 0 && to->config.user_count == 0) ||
                    (asks_for_certificate(from) && !asks_for_certificate(to)) ||
                    (verifies_certificate(from) && !verifies_certificate(to)) ||
                    (from->config.allowed_san_count > 0 && to->config.allowed_san_count == 0));
}

// --- Looking at the files ---

// True when they are other ones than those loaded and the same as at the last look.
static bool stand_still(struct http_server *s, uint64_t now_ns)
{
    struct web_watch *w = &s->watch;
    bool changed = false, moved = w->since_ns == 0;
    for (size_t i = 0; i < WEB_FILES_MAX; i++) {
        if (!s->files[i].path)
            continue;
        struct file_stamp now = file_stamp(s->files[i].path);
        changed = changed || !file_stamp_equals(&now, &s->files[i].seen);
        moved = moved || !file_stamp_equals(&now, &w->stamps[i]);
        w->stamps[i] = now;
    }
    if (!changed || moved) {
        w->since_ns = changed ? now_ns : 0;
        w->is_told = false;
        return false;
    }
    return true;
}

// Nothing is known of a file without a byte but that it may be written to.
static bool is_emptied(const struct http_server *s)
{
    const struct file_stamp *file = &s->watch.stamps[0];
    return file->there && file->bytes == 0 && s->web && (s->web->tls || s->web->config.user_count);
}

static void put_off(struct http_server *s)
{
    struct web_watch *w = &s->watch;
    s->stats.web_config_ok = s->stats.web_config_ok && !is_emptied(s);
    if (w->is_told)
        return;
    w->is_told = true;
    log_warn(is_emptied(s) ? "web config file is empty, the old one stays"
                           : "web config asks clients for less, taken if it stays so for 5 s",
             LOG_STR("file", s->web_config_path));
}

void http_server_look_at_files(void *user)
{
    struct http_server *s = user;
    uint64_t now_ns = loop_now_ns(s->loop);
    if (!stand_still(s, now_ns))
        return;
    bool may_loosen = !is_emptied(s) && now_ns - s->watch.since_ns >= WEB_FILES_LOOSEN_NS;
    struct error err = ERROR_INIT;
    char text[1024];
    int r = http_server_load(s, may_loosen, &err);
    http_server_run_later(s);
    if (r == 1) {
        put_off(s);
        return;
    }
    s->watch = (struct web_watch){0};
    if (r < 0)
        log_warn("web config not reloaded, the old one stays",
                 LOG_STR("error", error_text(&err, text, sizeof(text))));
    else
        log_info("web config reloaded", LOG_STR("file", s->web_config_path),
                 LOG_BOOL("tls", s->web->tls != NULL));
}
