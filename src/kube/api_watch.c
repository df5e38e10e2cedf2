// SPDX-License-Identifier: Apache-2.0
// How it works. One request at a time: list (page after page), then watch from the list's version,
// again and again; `step` says which comes next and the timer when. Both are read by the same
// stream, which finds single objects; each is parsed, told and forgotten. What stays is the key of
// each object with the number of the list it was last seen in: after a complete list, what was not
// seen in it is told as deleted. Objects told before stay as they are while the server cannot be
// asked.
//
// The first list is taken from the server's cache (resourceVersion 0), as is one after a loss of
// versions (410) not: the cache may have just those versions. Versions are opaque.
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/map.h"
#include "kube/api_internal.h"
#include "kube/api_stream.h"

#define WATCH_NS (300 * NS_PER_S)
#define WATCH_GRACE_NS (30 * NS_PER_S)  // a watch over its time is ended here
#define WATCH_SETTLED_NS (2 * NS_PER_S) // a watch that has lived so long works
#define SILENCE_NS (180 * NS_PER_S)     // servers send a bookmark about once a minute
#define LIST_SILENCE_NS (30 * NS_PER_S)
#define LIST_NS (600 * NS_PER_S) // 1 GB at 2 MB/s
#define BACKOFF_LEAST_NS (800 * NS_PER_MS)
#define BACKOFF_MOST_NS (30 * NS_PER_S)
#define FORBIDDEN_FACTOR 4 // rules of access change seldom
#define RETRY_AFTER_MOST_NS (60 * NS_PER_S)
#define PAGE 500
#define KEY_BYTES 512    // a namespace has 63 bytes at most, a name 253
#define SILENT_WATCHES 2 // perhaps nothing happens, perhaps nothing comes through
#define MANY_FAILURES 2  // a lost watch is begun anew without a word

enum step {
    STEP_LIST,
    STEP_WATCH,
};

// What the server said of an error: a Status object.
struct status {
    int64_t code;
    char reason[64];
    char message[400];
};

struct kube_watch {
    struct kube_api *api;
    struct kube_watch_config config;
    char *namespace_name, *label_selector, *field_selector;
    struct loop_timer *timer; // next request
    struct loop_timer *alive; // looks whether the one under way still lives
    struct http_handle *handle;
    struct http_call *call;
    struct kube_stream stream;
    enum step step;
    struct buf continue_token; // of the list under way
    struct buf version;        // where the watch goes on
    struct buf url;
    struct map known;  // key → number of the list it was in last
    uintptr_t list;    // number of the list under way or done
    bool exact;        // the next list not from the cache
    bool relist;       // versions were lost
    bool renewed;      // credentials, since the last success
    unsigned attempts; // failures in a row
    unsigned lost;     // versions were, since a watch last worked
    uint64_t started_ns, heard_ns, silence_ns;
    uint64_t events_before; // the request under way
    bool heard;             // a byte of its answer
    unsigned silent;        // watches in a row that brought none
    struct status status;   // of the request under way, code 0: none
    int told_error;         // of a callback
    char problem[640];      // told, "" none
    struct kube_watch_stats stats;
};

// --- Telling ---

static void tell_problem(struct kube_watch *w, const char *text)
{
    struct sv said = sv_from(w->problem), now = sv_from(text);
    if (sv_equals(said, now))
        return;
    sv_copy(w->problem, sizeof(w->problem), now);
    w->config.problem(w->config.user, *text ? w->problem : NULL);
}

static void succeed(struct kube_watch *w)
{
    w->attempts = 0;
    w->renewed = false;
    if (w->step == STEP_WATCH)
        w->lost = 0;
    tell_problem(w, "");
}

static const char *what(const struct kube_watch *w)
{
    return w->config.resource.plural;
}

// "pods in namespace a"
static void add_subject(const struct kube_watch *w, struct buf *out)
{
    buf_add_str(out, what(w));
    if (w->namespace_name)
        buf_add_fmt(out, " in namespace %s", w->namespace_name);
}

// --- Objects ---

// What is no object, too large, or one too many.
static void leave_out(struct kube_watch *w, size_t count)
{
    if (count == 0)
        return;
    w->stats.skipped += count;
    log_warn("an answer of the API server has objects that are left out",
             LOG_STR("resource", what(w)), LOG_U64("left_out", w->stats.skipped),
             LOG_LIMIT(what(w)));
}

static struct sv object_key(const struct json_node *object, struct buf *out)
{
    struct sv name = kube_text(object, "metadata", "name");
    struct sv namespace_name = kube_text(object, "metadata", "namespace");
    buf_reset(out);
    if (namespace_name.len) {
        buf_add_sv(out, namespace_name);
        buf_add_char(out, '/');
    }
    buf_add_sv(out, name);
    return name.len && !out->error ? buf_sv(out) : (struct sv){0};
}

// 0; -ENOMEM, -E2BIG.
static int remember(struct kube_watch *w, struct sv key)
{
    return map_put(&w->known, key, (void *)w->list, NULL);
}

static int tell_object(struct kube_watch *w, const struct json_node *object, bool deleted)
{
    char name[KEY_BYTES];
    struct buf b = {.data = name, .cap = sizeof(name), .max = sizeof(name)}; // never grows
    struct sv key = object_key(object, &b);
    if (!key.len) {
        leave_out(w, 1);
        return 0;
    }
    if (deleted) {
        if (map_find(&w->known, key)) {
            (void)map_remove(&w->known, key);
            w->config.deleted(w->config.user, key);
        }
        return 0;
    }
    int r = remember(w, key);
    if (r == -E2BIG) {
        leave_out(w, 1);
        return 0;
    }
    return r < 0 ? r : w->config.object(w->config.user, key, object);
}

static void keep_version(struct kube_watch *w, const struct json_node *object)
{
    struct sv version = kube_text(object, "metadata", "resourceVersion");
    if (!version.len)
        return;
    buf_reset(&w->version);
    buf_add_sv(&w->version, version);
    if (w->version.error)
        w->relist = true; // there is no going on from here
}

static void read_status(struct kube_watch *w, const struct json_node *status)
{
    const struct json_node *code = json_find(status, "code");
    w->status.code = code && code->kind == JSON_INTEGER ? code->integer : 500;
    sv_copy(w->status.reason, sizeof(w->status.reason), kube_text(status, "reason", NULL));
    sv_copy(w->status.message, sizeof(w->status.message), kube_text(status, "message", NULL));
    for (char *c = w->status.message; *c; c++)
        if ((unsigned char)*c < ' ')
            *c = ' ';
}

// {"type": ..., "object": ...}; in the place of a stream a Status may come.
static int take_event(struct kube_watch *w, const struct json_node *event)
{
    struct sv type = kube_text(event, "type", NULL);
    const struct json_node *object = json_find(event, "object");
    if (!type.len && sv_equals(kube_text(event, "kind", NULL), SV("Status"))) {
        read_status(w, event);
        return 0;
    }
    w->stats.events++;
    if (sv_equals(type, SV("ERROR"))) {
        read_status(w, object);
        return -ECANCELED;
    }
    int r = 0;
    if (sv_equals(type, SV("ADDED")) || sv_equals(type, SV("MODIFIED")))
        r = tell_object(w, object, false);
    else if (sv_equals(type, SV("DELETED")))
        r = tell_object(w, object, true);
    else if (!sv_equals(type, SV("BOOKMARK")))
        leave_out(w, 1);
    if (r == 0)
        keep_version(w, object);
    return r;
}

static int on_found(void *user, struct sv text)
{
    struct kube_watch *w = user;
    struct json_document *d = NULL;
    int r = json_parse(text, what(w), &d, NULL);
    if (r == -ENOMEM)
        return r;
    if (r < 0) {
        leave_out(w, 1);
        return 0;
    }
    if (w->step == STEP_LIST)
        r = tell_object(w, json_root(d), false);
    else
        r = take_event(w, json_root(d));
    json_document_free(d);
    return r;
}

static int on_data(void *user, struct sv piece)
{
    struct kube_watch *w = user;
    w->heard_ns = loop_now_ns(kube_api_loop(w->api));
    w->heard = true;
    w->silent = 0;
    int r = kube_stream_feed(&w->stream, piece);
    // Not JSON: perhaps the page of a proxy, whose status tells more.
    if (r < 0 && r != -EBADMSG)
        w->told_error = r;
    return r == -EBADMSG ? 0 : r;
}

// --- Failures ---

static uint64_t setting(uint64_t given, uint64_t standard)
{
    return given ? given : standard;
}

static void retry(struct kube_watch *w, uint64_t least_ns)
{
    uint64_t first = setting(w->config.backoff_least_ns, BACKOFF_LEAST_NS);
    uint64_t most = setting(w->config.backoff_most_ns, BACKOFF_MOST_NS);
    uint64_t wait_ns = clock_backoff_ns(w->attempts++, first, most);
    wait_ns += clock_jitter_ns(wait_ns / 2);
    w->stats.failures++;
    loop_timer_set(w->timer, wait_ns > least_ns ? wait_ns : least_ns, 0);
}

// What a cluster's administrator has to grant.
static void add_missing_rule(const struct kube_watch *w, struct buf *out)
{
    const struct kube_resource *r = &w->config.resource;
    buf_add_fmt(out,
                "; it needs a %s with apiGroups [\"%s\"], resources [\"%s\"], verbs [\"get\", "
                "\"list\", \"watch\"]",
                w->namespace_name ? "Role" : "ClusterRole", r->group, r->plural);
}

static void describe(const struct kube_watch *w, const struct http_client_response *response,
                     struct buf *out)
{
    buf_add_str(out, w->step == STEP_LIST ? "cannot list " : "cannot watch ");
    add_subject(w, out);
    buf_add_fmt(out, " at %s: ", kube_api_server(w->api));
    if (w->told_error == -ENOMEM)
        buf_add_str(out, "out of memory");
    else if (w->status.code)
        buf_add_fmt(out, "%" PRId64 " %s%s%s", w->status.code, w->status.reason,
                    *w->status.message ? ": " : "", w->status.message);
    else if (response->result < 0)
        buf_add_str(out, *response->error ? response->error : strerror(-response->result));
    else if (response->status != 200)
        buf_add_fmt(out, "status %u", response->status);
    else
        buf_add_str(out, "the answer is not a list of objects in JSON");
    if (w->status.code == 403 || (w->status.code == 0 && response->status == 403))
        add_missing_rule(w, out);
    if (w->status.code == 401 || (w->status.code == 0 && response->status == 401))
        buf_add_str(out, "; the credentials were read anew and refused again");
}

static void tell_failure(struct kube_watch *w, const struct http_client_response *response)
{
    char text[640];
    struct buf b = BUF_INIT(4096);
    describe(w, response, &b);
    sv_copy(text, sizeof(text), sv_cut(sv_from(buf_cstr(&b)), sizeof(text) - 1));
    buf_deinit(&b);
    tell_problem(w, *text ? text : "out of memory");
}

static void start_list(struct kube_watch *w, bool exact)
{
    w->step = STEP_LIST;
    w->exact = exact;
    w->relist = false;
    buf_reset(&w->continue_token);
}

// The least wait that the server asks for; it does not put us to sleep for a day.
static uint64_t wait_asked_ns(const struct kube_watch *w,
                              const struct http_client_response *response)
{
    uint64_t most_ns = 2 * setting(w->config.backoff_most_ns, BACKOFF_MOST_NS);
    if (most_ns < RETRY_AFTER_MOST_NS)
        most_ns = RETRY_AFTER_MOST_NS;
    if (response->retry_after_s > most_ns / NS_PER_S)
        return most_ns;
    return response->retry_after_s * NS_PER_S;
}

// The versions known are no longer: a new list, at once when that is the first time.
static void lose_place(struct kube_watch *w)
{
    start_list(w, true);
    if (w->lost++ == 0) {
        loop_timer_set(w->timer, 0, 0);
        return;
    }
    if (w->attempts < w->lost)
        w->attempts = w->lost;
    retry(w, 0);
}

// The request has failed: what is next, and when.
static void fail(struct kube_watch *w, const struct http_client_response *response)
{
    int64_t code = w->status.code ? w->status.code : response->status;
    uint64_t least_ns = wait_asked_ns(w, response);
    if (code == 410 && (w->step == STEP_WATCH || w->continue_token.len > 0)) {
        lose_place(w);
        return;
    }
    if (code == 401 && !w->renewed) {
        w->renewed = true;
        kube_api_renew_credentials(w->api);
        loop_timer_set(w->timer, 0, 0);
        return;
    }
    if (code == 403)
        least_ns = setting(w->config.backoff_most_ns, BACKOFF_MOST_NS) * FORBIDDEN_FACTOR;
    if (w->told_error == -ENOMEM)
        start_list(w, w->exact); // what was not taken has to come again
    bool refused = response->result == 0 && code >= 400 && code != 429;
    if (w->step == STEP_LIST || refused || w->attempts >= MANY_FAILURES)
        tell_failure(w, response);
    retry(w, least_ns);
}

// --- A list ---

static void sweep(struct kube_watch *w)
{
    // The map is not to be changed while it is walked, so what goes is gathered first.
    struct buf gone = BUF_INIT((size_t)LIMIT_KUBE_OBJECTS * KEY_BYTES);
    size_t at = 0;
    struct sv key, line;
    void *seen;
    while (map_next(&w->known, &at, &key, &seen)) {
        if ((uintptr_t)seen != w->list) {
            buf_add_sv(&gone, key);
            buf_add_char(&gone, '\n');
        }
    }
    if (gone.error)
        w->stats.failures++; // they go with the next list
    struct sv rest = gone.error ? (struct sv){0} : buf_sv(&gone);
    while (sv_next(&rest, '\n', &line)) {
        (void)map_remove(&w->known, line);
        w->config.deleted(w->config.user, line);
    }
    buf_deinit(&gone);
}

static void end_list(struct kube_watch *w)
{
    sweep(w);
    w->stats.lists++;
    w->stats.objects = w->known.count;
    succeed(w);
    w->step = STEP_WATCH;
    w->exact = false;
    w->config.synced(w->config.user);
    loop_timer_set(w->timer, 0, 0);
}

// What a list says of itself. 0 or -EBADMSG, -ENOMEM.
static int read_rest(struct kube_watch *w, struct sv *out_kind)
{
    struct json_document *d = NULL;
    int r = json_parse(buf_sv(&w->stream.rest), what(w), &d, NULL);
    if (r < 0)
        return r == -ENOMEM ? r : -EBADMSG;
    const struct json_node *root = json_root(d);
    struct sv kind = kube_text(root, "kind", NULL);
    if (sv_equals(kind, SV("Status"))) {
        read_status(w, root);
    } else {
        struct sv token = kube_text(root, "metadata", "continue");
        buf_reset(&w->continue_token);
        buf_add_sv(&w->continue_token, token);
        keep_version(w, root);
        r = w->continue_token.error;
    }
    *out_kind = sv_ends_with(kind, SV("List")) ? SV("List") : SV("");
    json_document_free(d);
    return r;
}

static void list_done(struct kube_watch *w, const struct http_client_response *response)
{
    struct sv kind = {0};
    bool whole = response->result == 0 && kube_stream_is_complete(&w->stream);
    int r = whole ? read_rest(w, &kind) : -EBADMSG;
    if (r == -ENOMEM)
        w->told_error = r;
    if (response->status != 200 || r < 0 || !kind.len || w->told_error) {
        fail(w, response);
        return;
    }
    w->stats.pages++;
    if (w->continue_token.len > 0)
        loop_timer_set(w->timer, 0, 0);
    else
        end_list(w);
}

// --- A watch ---

static void watch_done(struct kube_watch *w, const struct http_client_response *response)
{
    uint64_t age_ns = loop_now_ns(kube_api_loop(w->api)) - w->started_ns;
    bool lived =
        w->stats.events > w->events_before || (age_ns > NS_PER_S && response->status == 200);
    bool ended =
        response->result == 0 && response->status == 200 && !w->status.code && !w->stream.broken;
    w->stats.objects = w->known.count;
    if (w->relist && !w->status.code && !w->told_error) {
        start_list(w, true);
        retry(w, 0);
    } else if (ended && lived) {
        succeed(w);
        loop_timer_set(w->timer, 0, 0);
    } else if (ended) {
        retry(w, 0); // over before it began: no wait would be a flood
    } else {
        if (lived && !w->status.code)
            w->attempts = 0; // it worked, and broke
        fail(w, response);
    }
}

static void on_done(void *user, const struct http_client_response *response)
{
    struct kube_watch *w = user;
    loop_timer_stop(w->alive);
    w->stats.last_status = response->status;
    leave_out(w, w->stream.skipped);
    w->stream.skipped = 0;
    if (w->step == STEP_LIST)
        list_done(w, response);
    else
        watch_done(w, response);
    http_call_free(w->call);
    w->call = NULL;
}

// A connection that is dead without a word: as if it had broken.
static void on_alive(void *user)
{
    struct kube_watch *w = user;
    uint64_t now_ns = loop_now_ns(kube_api_loop(w->api));
    uint64_t quiet_ns = now_ns - w->heard_ns;
    if (quiet_ns < w->silence_ns) {
        if (w->step == STEP_WATCH && w->heard)
            succeed(w);
        loop_timer_set(w->alive, w->silence_ns - quiet_ns, 0);
        return;
    }
    http_call_free(w->call);
    w->call = NULL;
    w->stats.failures++;
    if (w->step == STEP_WATCH) {
        w->silent++;
        if (w->silent % SILENT_WATCHES == 0)
            start_list(w, false); // which has to be answered
        loop_timer_set(w->timer, 0, 0);
        return;
    }
    struct http_client_response silent = {.result = -ETIMEDOUT, .error = "no answer"};
    w->status = (struct status){0};
    fail(w, &silent);
}

// --- Requests ---

static void add_escaped(struct buf *out, struct sv text)
{
    static const char digits[] = "0123456789ABCDEF";
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '-' || c == '_' || c == '.';
        if (!plain) {
            buf_add_char(out, '%');
            buf_add_char(out, digits[c >> 4]);
            c = (unsigned char)digits[c & 15];
        }
        buf_add_char(out, (char)c);
    }
}

static void add_parameter(struct buf *out, const char *name, struct sv value)
{
    if (!value.len)
        return;
    buf_add_fmt(out, "&%s=", name);
    add_escaped(out, value);
}

static void add_path(const struct kube_watch *w, struct buf *out)
{
    const struct kube_resource *r = &w->config.resource;
    if (*r->group)
        buf_add_fmt(out, "/apis/%s/%s/", r->group, r->version);
    else
        buf_add_fmt(out, "/api/%s/", r->version);
    if (w->namespace_name) {
        buf_add_str(out, "namespaces/");
        add_escaped(out, sv_from(w->namespace_name));
        buf_add_char(out, '/');
    }
    buf_add_str(out, r->plural);
}

static void make_url(struct kube_watch *w, uint64_t watch_ns)
{
    struct buf *out = &w->url;
    buf_reset(out);
    add_path(w, out);
    if (w->step == STEP_LIST) {
        buf_add_fmt(out, "?limit=%u", w->config.page ? w->config.page : PAGE);
        if (w->continue_token.len)
            add_parameter(out, "continue", buf_sv(&w->continue_token));
        else if (!w->exact)
            buf_add_str(out, "&resourceVersion=0");
    } else {
        buf_add_fmt(out, "?watch=1&allowWatchBookmarks=true&timeoutSeconds=%" PRIu64,
                    watch_ns / NS_PER_S + 1);
        add_parameter(out, "resourceVersion", buf_sv(&w->version));
    }
    add_parameter(out, "labelSelector", sv_from(w->label_selector));
    add_parameter(out, "fieldSelector", sv_from(w->field_selector));
}

static int start_request(struct kube_watch *w, struct error *err)
{
    uint64_t least = setting(w->config.watch_ns, WATCH_NS);
    uint64_t watch_ns = least + clock_jitter_ns(least);
    bool lists = w->step == STEP_LIST;
    make_url(w, watch_ns);
    if (w->url.error)
        return error_set(err, w->url.error,
                         w->url.error == -EFBIG ? "selectors too long" : "out of memory");
    kube_stream_start(&w->stream, lists ? KUBE_STREAM_LIST : KUBE_STREAM_WATCH);
    if (lists && !w->continue_token.len)
        w->list++;
    if (!lists)
        w->stats.watches++;
    struct kube_api_call call = {
        .path = buf_cstr(&w->url),
        .deadline_ns = lists ? LIST_NS : watch_ns + WATCH_GRACE_NS,
        .data = on_data,
        .done = on_done,
        .user = w,
    };
    return kube_api_start(w->api, w->handle, &call, &w->call, err);
}

static void next_request(void *user)
{
    struct kube_watch *w = user;
    struct error err = ERROR_INIT;
    w->status = (struct status){0};
    w->told_error = 0;
    w->events_before = w->stats.events;
    w->heard = false;
    w->started_ns = w->heard_ns = loop_now_ns(kube_api_loop(w->api));
    int r = start_request(w, &err);
    if (r < 0) {
        struct http_client_response none = {.result = r, .error = err.text};
        fail(w, &none);
        return;
    }
    uint64_t silence = setting(w->config.silence_ns, SILENCE_NS);
    bool lists = w->step == STEP_LIST;
    w->silence_ns = lists && silence > LIST_SILENCE_NS ? LIST_SILENCE_NS : silence;
    uint64_t look_ns = lists || silence < WATCH_SETTLED_NS ? w->silence_ns : WATCH_SETTLED_NS;
    loop_timer_set(w->alive, look_ns, 0);
}

// --- The whole ---

static int keep_text(const char *given, char **out)
{
    *out = given && *given ? sv_dup(sv_from(given)) : NULL;
    return given && *given && !*out ? -ENOMEM : 0;
}

static int init(struct kube_watch *w)
{
    const struct kube_watch_config *c = &w->config;
    struct loop *l = kube_api_loop(w->api);
    if (keep_text(c->namespace_name, &w->namespace_name) < 0 ||
        keep_text(c->label_selector, &w->label_selector) < 0 ||
        keep_text(c->field_selector, &w->field_selector) < 0)
        return -ENOMEM;
    w->handle = http_handle_new(kube_api_client(w->api));
    if (!w->handle)
        return -ENOMEM;
    int r = loop_timer_new(l, next_request, w, &w->timer);
    if (r == 0)
        r = loop_timer_new(l, on_alive, w, &w->alive);
    if (r == 0)
        loop_timer_set(w->timer, 0, 0);
    return r;
}

int kube_watch_new(struct kube_api *api, const struct kube_watch_config *config,
                   struct kube_watch **out)
{
    struct kube_watch *w = calloc(1, sizeof(*w));
    if (!w)
        return -ENOMEM;
    w->api = api;
    w->config = *config;
    w->known = MAP_INIT(LIMIT_KUBE_OBJECTS);
    w->continue_token = BUF_INIT(LIMIT_KUBE_URL_BYTES / 4);
    w->version = BUF_INIT(256);
    w->url = BUF_INIT(LIMIT_KUBE_URL_BYTES);
    kube_stream_init(&w->stream, on_found, w);
    int r = init(w);
    if (r < 0) {
        kube_watch_free(w);
        return r;
    }
    *out = w;
    return 0;
}

void kube_watch_free(struct kube_watch *w)
{
    if (!w)
        return;
    http_call_free(w->call);
    http_handle_free(w->handle);
    loop_timer_free(w->timer);
    loop_timer_free(w->alive);
    kube_stream_deinit(&w->stream);
    map_deinit(&w->known);
    buf_deinit(&w->continue_token);
    buf_deinit(&w->version);
    buf_deinit(&w->url);
    free(w->namespace_name);
    free(w->label_selector);
    free(w->field_selector);
    free(w);
}

void kube_watch_get_stats(const struct kube_watch *w, struct kube_watch_stats *out)
{
    *out = w->stats;
    out->objects = w->known.count;
    out->skipped += w->stream.skipped;
}
