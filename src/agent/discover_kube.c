// SPDX-License-Identifier: Apache-2.0
// How it works: one watch for each kind of object that the role needs and each namespace puts
// records into a store; what changed there is told after a short wait, so that a burst becomes one
// group, and in portions, so that a large cluster does not hold up the loop. Nothing is told before
// every watch has its first list: targets without their service or node would be others.
#include "agent/discover_kube.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/discover_kube_store.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "kube/api.h"

#define COALESCE_NS (100 * NS_PER_MS)
#define NO_MEMORY_NS NS_PER_S
#define PORTION 256 // groups told in one turn of the loop

struct discover_kube;
struct kind_watch {
    struct discover_kube *owner;
    enum kube_kind kind;
    bool synced;
    struct kube_watch *watch;
    char problem[640]; // "": none
};

struct discover_kube {
    struct loop *loop;
    const struct prom_kube_sd *config;
    struct discover_events events;
    struct kube_api *api;
    struct kube_store store;
    char *node_name;
    struct loop_timer *timer;
    bool is_waiting; // for the timer
    bool is_ready;   // told
    bool has_told_problem;
    size_t unsynced;
    struct kind_watch *watches;
    size_t watch_count;
};

static const char *account_root;

void discover_kube_set_root(const char *root)
{
    account_root = root;
}

// --- Telling ---

static void wait_to_tell(struct discover_kube *d, uint64_t delay_ns)
{
    if (d->is_waiting || d->unsynced > 0)
        return;
    d->is_waiting = true;
    loop_timer_set(d->timer, delay_ns, 0);
}

static void tell_ready(struct discover_kube *d)
{
    if (d->is_ready)
        return;
    d->is_ready = true;
    d->events.ready(d->events.user);
}

static void tell_problem(struct discover_kube *d)
{
    const char *text = NULL;
    for (size_t i = 0; i < d->watch_count && !text; i++)
        if (*d->watches[i].problem)
            text = d->watches[i].problem;
    if (!text && !d->has_told_problem)
        return;
    d->has_told_problem = text;
    d->events.problem(d->events.user, text);
    if (text)
        tell_ready(d); // it has failed once: nobody is to wait for it
}

static void tell_changes(void *user)
{
    struct discover_kube *d = user;
    d->is_waiting = false;
    for (unsigned i = 0; i < PORTION; i++) {
        const char *source = NULL;
        struct target_group *group = NULL;
        int r = kube_store_next(&d->store, &source, &group);
        if (r == -ENOMEM) {
            log_error("out of memory for targets", LOG_LIMIT("targets"));
            wait_to_tell(d, NO_MEMORY_NS);
            return;
        }
        if (r == 0) {
            tell_ready(d);
            return;
        }
        if (r == -E2BIG)
            log_warn("an object has too many labels or targets, it is left out",
                     LOG_STR("source", source), LOG_LIMIT(source));
        d->events.group(d->events.user, source, group);
    }
    wait_to_tell(d, 0);
}

// --- What the watches tell ---

static int on_object(void *user, struct sv key, const struct json_node *object)
{
    struct kind_watch *w = user;
    struct discover_kube *d = w->owner;
    int r = kube_store_put(&d->store, w->kind, key, object);
    if (r == -EFBIG) {
        log_warn("an object is too large, it is left out", LOG_SV("object", key),
                 LOG_LIMIT("large"));
        kube_store_remove(&d->store, w->kind, key);
        r = 0;
    }
    if (kube_store_has_news(&d->store))
        wait_to_tell(d, COALESCE_NS);
    return r;
}

static void on_deleted(void *user, struct sv key)
{
    struct kind_watch *w = user;
    kube_store_remove(&w->owner->store, w->kind, key);
    if (kube_store_has_news(&w->owner->store))
        wait_to_tell(w->owner, COALESCE_NS);
}

static void on_synced(void *user)
{
    struct kind_watch *w = user;
    if (w->synced)
        return;
    w->synced = true;
    w->owner->unsynced--;
    wait_to_tell(w->owner, 0);
}

static void on_problem(void *user, const char *text)
{
    struct kind_watch *w = user;
    sv_copy(w->problem, sizeof(w->problem), sv_from(text ? text : ""));
    tell_problem(w->owner);
}

// --- What is watched ---

static struct kube_resource resource_of(enum kube_kind kind)
{
    switch (kind) {
    case KUBE_KIND_POD:
        return KUBE_PODS;
    case KUBE_KIND_SERVICE:
        return KUBE_SERVICES;
    case KUBE_KIND_NODE:
        return KUBE_NODES;
    case KUBE_KIND_ENDPOINTS:
        return KUBE_ENDPOINTS;
    case KUBE_KIND_ENDPOINTSLICE:
        return KUBE_ENDPOINTSLICES;
    case KUBE_KIND_INGRESS:
        return KUBE_INGRESSES;
    }
    abort();
}

static enum kube_kind kind_of(enum prom_kube_role role)
{
    switch (role) {
    case PROM_KUBE_NODE:
        return KUBE_KIND_NODE;
    case PROM_KUBE_SERVICE:
        return KUBE_KIND_SERVICE;
    case PROM_KUBE_POD:
        return KUBE_KIND_POD;
    case PROM_KUBE_ENDPOINTS:
        return KUBE_KIND_ENDPOINTS;
    case PROM_KUBE_ENDPOINTSLICE:
        return KUBE_KIND_ENDPOINTSLICE;
    case PROM_KUBE_INGRESS:
        return KUBE_KIND_INGRESS;
    }
    abort();
}

// The section's selectors for a kind; of several, the last. And, of a node only, its own.
static int add_selectors(const struct discover_kube *d, enum kube_kind kind, const char **out_label,
                         struct buf *out_field)
{
    *out_label = NULL;
    buf_reset(out_field);
    const char *field = NULL;
    for (size_t i = 0; i < d->config->selector_count; i++) {
        const struct prom_kube_selector *s = &d->config->selectors[i];
        if (kind_of(s->role) == kind) {
            *out_label = s->label;
            field = s->field;
        }
    }
    if (d->node_name && kind == KUBE_KIND_POD)
        buf_add_fmt(out_field, "spec.nodeName=%s", d->node_name);
    if (d->node_name && kind == KUBE_KIND_NODE)
        buf_add_fmt(out_field, "metadata.name=%s", d->node_name);
    if (field && *field)
        buf_add_fmt(out_field, "%s%s", out_field->len ? "," : "", field);
    return out_field->error;
}

static int watch_kind(struct discover_kube *d, enum kube_kind kind, const char *namespace_name)
{
    struct kind_watch *w = &d->watches[d->watch_count];
    *w = (struct kind_watch){.owner = d, .kind = kind};
    struct buf field = BUF_INIT(LIMIT_KUBE_SELECTOR_BYTES);
    struct kube_watch_config c = {
        .resource = resource_of(kind),
        .namespace_name = namespace_name,
        .object = on_object,
        .deleted = on_deleted,
        .synced = on_synced,
        .problem = on_problem,
        .user = w,
    };
    int r = add_selectors(d, kind, &c.label_selector, &field);
    if (r == 0) {
        c.field_selector = buf_cstr(&field);
        r = field.error ? field.error : kube_watch_new(d->api, &c, &w->watch);
    }
    buf_deinit(&field);
    if (r < 0)
        return r;
    d->watch_count++;
    d->unsynced++;
    return 0;
}

// The objects of one namespace (NULL: of all) that the role needs, but for nodes.
static int watch_namespace(struct discover_kube *d, const char *name)
{
    enum kube_kind primary = d->store.primary;
    int r = watch_kind(d, primary, name);
    if (primary != KUBE_KIND_ENDPOINTS && primary != KUBE_KIND_ENDPOINTSLICE)
        return r;
    if (r == 0)
        r = watch_kind(d, KUBE_KIND_SERVICE, name);
    return r == 0 ? watch_kind(d, KUBE_KIND_POD, name) : r;
}

static bool is_before(const struct prom_kube_sd *c, size_t at)
{
    for (size_t i = 0; i < at; i++)
        if (strcmp(c->namespaces[i], c->namespaces[at]) == 0)
            return true;
    return false;
}

static int watch_namespaces(struct discover_kube *d, const char *own)
{
    const struct prom_kube_sd *c = d->config;
    bool own_is_named = false;
    int r = 0;
    if (c->namespace_count == 0 && !c->own_namespace)
        return watch_namespace(d, NULL);
    for (size_t i = 0; i < c->namespace_count && r == 0; i++) {
        own_is_named |= own && strcmp(own, c->namespaces[i]) == 0;
        r = is_before(c, i) ? 0 : watch_namespace(d, c->namespaces[i]);
    }
    return r == 0 && own && !own_is_named ? watch_namespace(d, own) : r;
}

static int start_watches(struct discover_kube *d, struct error *err)
{
    const struct prom_kube_sd *c = d->config;
    enum kube_kind primary = d->store.primary;
    const char *own = c->own_namespace ? kube_api_namespace(d->api) : NULL;
    bool of_nodes = primary == KUBE_KIND_NODE;
    if (c->own_namespace && !own && !of_nodes)
        return error_set(
            err, -EINVAL,
            "own_namespace: the namespace of the pod's service account cannot be read");
    d->watches = calloc(3 * (c->namespace_count + 1) + 1, sizeof(*d->watches));
    if (!d->watches)
        return -ENOMEM;
    int r = of_nodes ? 0 : watch_namespaces(d, own);
    if (r == 0 && (of_nodes || c->attach_node))
        r = watch_kind(d, KUBE_KIND_NODE, NULL);
    if (r == -EFBIG)
        return error_set(err, -EINVAL, "selectors: over %d bytes", LIMIT_KUBE_SELECTOR_BYTES);
    return r;
}

// --- The server ---

static const char *header_line(struct arena *a, const struct prom_pair *pair)
{
    size_t name = strlen(pair->name), value = strlen(pair->value);
    char *line = arena_alloc(a, name + 2 + value + 1);
    if (!line)
        return NULL;
    memcpy(line, pair->name, name);
    memcpy(line + name, ": ", 2);
    memcpy(line + name + 2, pair->value, value + 1);
    return line;
}

static int add_headers(const struct prom_http *h, struct arena *a, struct kube_api_config *out)
{
    const char **lines = arena_alloc(a, (h->header_count + 1) * sizeof(*lines));
    const char **files = arena_alloc(a, (2 * h->header_file_count + 1) * sizeof(*files));
    if (!lines || !files)
        return -ENOMEM;
    for (size_t i = 0; i < h->header_count; i++) {
        lines[i] = header_line(a, &h->headers[i]);
        if (!lines[i])
            return -ENOMEM;
    }
    for (size_t i = 0; i < h->header_file_count; i++) {
        files[2 * i] = h->header_files[i].name;
        files[2 * i + 1] = h->header_files[i].value;
    }
    lines[h->header_count] = files[2 * h->header_file_count] = NULL;
    out->headers = lines;
    out->header_files = files;
    return 0;
}

static int open_api(struct discover_kube *d, struct http_client *client, struct error *err)
{
    const struct prom_http *h = &d->config->http;
    struct arena lines = ARENA_INIT(LIMIT_KUBE_ACCESS_BYTES);
    struct kube_api_config c = {
        .server = d->config->api_server,
        .kubeconfig_file = d->config->kubeconfig_file,
        .root = account_root,
        .tls = h->tls,
        .user = h->user,
        .user_file = h->user_file,
        .password = h->password,
        .password_file = h->password_file,
        .auth_type = h->auth_type,
        .credentials = h->credentials,
        .credentials_file = h->credentials_file,
        .proxy_url = h->proxy_url,
        .no_proxy = h->no_proxy,
        .proxy_from_environment = h->proxy_from_environment,
        .follow_redirects = h->follow_redirects,
    };
    c.tls.ca_pem = h->ca ? h->ca : h->tls.ca_pem;
    c.tls.cert_pem = h->cert ? h->cert : h->tls.cert_pem;
    c.tls.key_pem = h->key ? h->key : h->tls.key_pem;
    int r = add_headers(h, &lines, &c);
    if (r == 0)
        r = kube_api_new(d->loop, client, &c, &d->api, err);
    arena_erase(&lines);
    arena_deinit(&lines);
    return r;
}

// --- The whole ---

static int init(struct discover_kube *d, struct http_client *client, const char *node_name,
                struct error *err)
{
    enum kube_kind primary = kind_of(d->config->role);
    bool of_no_node = primary == KUBE_KIND_SERVICE || primary == KUBE_KIND_INGRESS;
    if (node_name && of_no_node)
        return error_set(err, -EINVAL,
                         "role %s: such targets are on no node, so with scope node there are none",
                         resource_of(primary).plural);
    d->node_name = node_name ? sv_dup(sv_from(node_name)) : NULL;
    kube_store_init(&d->store, primary, d->config->attach_node, d->node_name);
    if (node_name && !d->node_name)
        return -ENOMEM;
    int r = loop_timer_new(d->loop, tell_changes, d, &d->timer);
    if (r == 0)
        r = open_api(d, client, err);
    return r == 0 ? start_watches(d, err) : r;
}

int discover_kube_new(struct loop *l, struct http_client *client, const struct prom_kube_sd *config,
                      const char *node_name, const struct discover_events *events,
                      struct discover_kube **out, struct error *err)
{
    struct discover_kube *d = calloc(1, sizeof(*d));
    if (!d)
        return error_set(err, -ENOMEM, "out of memory");
    d->loop = l;
    d->config = config;
    d->events = *events;
    int r = init(d, client, node_name, err);
    if (r < 0) {
        discover_kube_free(d);
        return r == -ENOMEM ? error_set(err, r, "out of memory") : r;
    }
    *out = d;
    return 0;
}

void discover_kube_free(struct discover_kube *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->watch_count; i++)
        kube_watch_free(d->watches[i].watch);
    free(d->watches);
    kube_api_free(d->api);
    kube_store_deinit(&d->store);
    loop_timer_free(d->timer);
    free(d->node_name);
    free(d);
}

void discover_kube_get_stats(const struct discover_kube *d, struct discover_kube_stats *out)
{
    *out = (struct discover_kube_stats){.record_bytes = d->store.record_bytes};
    for (size_t i = 0; i < d->watch_count; i++) {
        struct kube_watch_stats s;
        kube_watch_get_stats(d->watches[i].watch, &s);
        out->objects += s.objects;
        out->lists += s.lists;
        out->watches += s.watches;
        out->events += s.events;
        out->failures += s.failures;
        out->skipped += s.skipped;
    }
}
