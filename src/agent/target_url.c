// SPDX-License-Identifier: Apache-2.0
// Which characters stand as they are, by part of the URL, is the table of Go's net/url
// (shouldEscape) for a host, a path and a query component.
#include "agent/target_url.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/target.h"
#include "base/buf.h"

#define URL_BYTES (64u << 10) // a request line longer than this no server reads

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("-_.~", c));
}

static void add_escaped(struct buf *out, struct sv text, const char *also_plain)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (is_plain((char)c) || (c && strchr(also_plain, c))) {
            buf_add_char(out, (char)c);
            continue;
        }
        buf_add_char(out, '%');
        buf_add_char(out, digits[c >> 4]);
        buf_add_char(out, digits[c & 15]);
    }
}

static void add_query_part(struct buf *out, struct sv text)
{
    for (struct sv piece; text.len > 0;) {
        size_t space = sv_find_char(text, ' ');
        piece = sv_sub(text, 0, space);
        add_escaped(out, piece, "");
        text = sv_sub(text, piece.len, text.len);
        if (text.len > 0) {
            buf_add_char(out, '+');
            text = sv_sub(text, 1, text.len);
        }
    }
}

// --- Parameters ---

struct param {
    struct sv name, value;
    size_t order; // among those of a name
};

static int compare(const void *a, const void *b)
{
    const struct param *x = a, *y = b;
    int order = sv_compare(x->name, y->name);
    return order ? order : (x->order > y->order) - (x->order < y->order);
}

static bool is_param(const struct label *l)
{
    return sv_starts_with(l->name, SV(TARGET_PARAM_PREFIX));
}

static struct sv param_name(const struct label *l)
{
    return sv_sub(l->name, sizeof(TARGET_PARAM_PREFIX) - 1, l->name.len);
}

static bool has_param(const struct prom_job *job, struct sv name)
{
    for (size_t i = 0; i < job->param_count; i++) {
        if (sv_equals(sv_from(job->params[i].name), name))
            return true;
    }
    return false;
}

// Those of the job, their first values as relabelling left them, and those that are labels alone. A
// label that relabelling took away leaves the job's own value.
static size_t gather(const struct prom_job *job, const struct labels *l, struct param *out)
{
    size_t count = 0;
    for (size_t i = 0; i < job->param_count; i++) {
        struct sv name = sv_from(job->params[i].name), value = sv_from(job->params[i].value);
        bool first = i == 0 || strcmp(job->params[i].name, job->params[i - 1].name) != 0;
        for (size_t k = 0; first && k < l->count; k++) {
            if (is_param(&l->items[k]) && sv_equals(param_name(&l->items[k]), name))
                value = l->items[k].value;
        }
        out[count] = (struct param){name, value, count};
        count++;
    }
    for (size_t k = 0; k < l->count; k++) {
        if (is_param(&l->items[k]) && !has_param(job, param_name(&l->items[k]))) {
            out[count] = (struct param){param_name(&l->items[k]), l->items[k].value, count};
            count++;
        }
    }
    return count;
}

static int add_query(struct buf *out, const struct prom_job *job, const struct labels *l)
{
    size_t most = job->param_count;
    for (size_t i = 0; i < l->count; i++)
        most += is_param(&l->items[i]);
    if (most == 0)
        return 0;
    struct param *params = calloc(most, sizeof(*params));
    if (!params)
        return -ENOMEM;
    size_t count = gather(job, l, params);
    qsort(params, count, sizeof(*params), compare);
    for (size_t i = 0; i < count; i++) {
        buf_add_char(out, i == 0 ? '?' : '&');
        add_query_part(out, params[i].name);
        buf_add_char(out, '=');
        add_query_part(out, params[i].value);
    }
    free(params);
    return 0;
}

static const char *keep(struct buf *text, struct arena *arena)
{
    return text->error ? NULL : arena_dup(arena, buf_sv(text));
}

int target_print_url(const struct prom_job *job, const struct labels *l, const char **out_url)
{
    cleanup(buf_deinit) struct buf out = BUF_INIT(URL_BYTES);
    struct sv path = labels_get(l, SV("__metrics_path__"));
    struct sv scheme = labels_get(l, SV("__scheme__"));
    if (scheme.len) {
        buf_add_sv(&out, scheme);
        buf_add_char(&out, ':');
    }
    buf_add_str(&out, "//");
    add_escaped(&out, labels_get(l, SV("__address__")), "!$&'()*+,;=:[]<>\"");
    if (path.len && path.ptr[0] != '/')
        buf_add_char(&out, '/');
    add_escaped(&out, path, "$&+,/:;=@");
    int r = add_query(&out, job, l);
    const char *url = r == 0 ? keep(&out, l->arena) : NULL;
    if (!url)
        return out.error == -EFBIG || l->arena->error == -EFBIG ? -E2BIG : -ENOMEM;
    *out_url = url;
    return 0;
}

// --- What is shown of it ---

// As a whole name only: "sig" is in "design", and signs the URLs of Azure's storage.
static bool is_secret_word(struct sv name)
{
    static const char *const words[] = {"sig", "pass", "jwt", "bearer"};
    bool is = false;
    if (sv_starts_with(name, SV("__param_")))
        name = sv_sub(name, SV("__param_").len, name.len);
    if (sv_ends_with(name, SV("=")))
        name = sv_sub(name, 0, name.len - 1);
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        is = is || sv_equals_nocase(name, sv_from(words[i]));
    return is;
}

bool target_looks_secret(struct sv name)
{
    static const char *const words[] = {"token", "passw", "secret",    "key",    "auth",
                                        "cred",  "pwd",   "signature", "session"};
    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        struct sv word = sv_from(words[i]);
        for (size_t at = 0; at + word.len <= name.len; at++) {
            if (sv_equals_nocase(sv_sub(name, at, word.len), word))
                return true;
        }
    }
    return is_secret_word(name);
}

static void add_redacted_query(struct buf *out, struct sv query)
{
    struct sv part;
    for (bool first = true; sv_next(&query, '&', &part); first = false) {
        size_t equals = sv_find_char(part, '=');
        struct sv name = sv_sub(part, 0, equals == (size_t)-1 ? part.len : equals + 1);
        if (!first)
            buf_add_char(out, '&');
        buf_add_sv(out, target_looks_secret(name) && equals != (size_t)-1 ? name : part);
        if (target_looks_secret(name) && equals != (size_t)-1)
            buf_add_str(out, TARGET_HIDDEN);
    }
}

// The part before the query, the password of user:password@ hidden.
static void add_redacted_place(struct buf *out, struct sv place)
{
    size_t slashes = sv_find(place, SV("//"));
    size_t start = slashes == (size_t)-1 ? 0 : slashes + 2;
    struct sv rest = sv_sub(place, start, place.len);
    size_t end = sv_find_char(rest, '/');
    struct sv authority = sv_sub(rest, 0, end == (size_t)-1 ? rest.len : end);
    size_t at = sv_find_char(authority, '@'), colon = sv_find_char(authority, ':');
    if (at == (size_t)-1 || colon > at)
        return buf_add_sv(out, place);
    buf_add_sv(out, sv_sub(place, 0, start + colon + 1));
    buf_add_str(out, TARGET_HIDDEN);
    buf_add_sv(out, sv_sub(place, start + at, place.len));
}

const char *target_redact_url(const char *text, struct arena *arena)
{
    cleanup(buf_deinit) struct buf out = BUF_INIT(2 * URL_BYTES);
    struct sv url = sv_from(text);
    size_t question = sv_find_char(url, '?');
    bool has_query = question != (size_t)-1;
    add_redacted_place(&out, sv_sub(url, 0, has_query ? question : url.len));
    if (has_query) {
        buf_add_char(&out, '?');
        add_redacted_query(&out, sv_sub(url, question + 1, url.len));
    }
    if (!out.error && sv_equals(buf_sv(&out), url))
        return text;
    return keep(&out, arena);
}
