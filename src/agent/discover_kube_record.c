// SPDX-License-Identifier: Apache-2.0
// The records, part by part (a list is its count and then its elements):
//   all but pods     meta
//   meta             labels, annotations: lists of name, value
//   pod              uid, ip, host ip, phase, node, ready, controller kind, controller name, meta;
//                    containers: name, id, image, is init, ports: name, number, protocol
//   service          type, cluster ip, external name, load balancer ip, meta; ports
//   node             provider id, kubelet port, meta; addresses: type, address
//   endpoints        meta; subsets: ports; addresses; addresses not ready
//   endpoint address ip, host name, node, target kind, target namespace, target name
//   endpointslice    address type, service, meta; ports: name, number, protocol, app protocol;
//                    endpoints: ready, serving, terminating, host name, node, zone, target kind,
//                    target namespace, target name; topology: name, value; addresses
//   ingress          class, meta; hosts of TLS; rules: host, paths
// A text that is absent is written as an empty one: a label with an empty value is no label.
#include "agent/discover_kube_record.h"

#include <assert.h>
#include <string.h>

#include "base/limits.h"
#include "base/num.h"

// --- Texts ---

static void add_count(struct buf *out, uint32_t count)
{
    buf_add(out, &count, sizeof(count));
}

static void add_text(struct buf *out, struct sv text)
{
    text = sv_cut(text, LIMIT_LABEL_VALUE_BYTES);
    add_count(out, (uint32_t)text.len);
    buf_add_sv(out, text);
}

// The place of a count that is known later.
static size_t add_open_count(struct buf *out)
{
    size_t at = out->len;
    add_count(out, 0);
    return at;
}

static void close_count(struct buf *out, size_t at, uint32_t count)
{
    if (!out->error)
        memcpy(out->data + at, &count, sizeof(count));
}

static void add_member(struct buf *out, const struct json_node *object, const char *key)
{
    const struct json_node *n = json_find(object, key);
    add_text(out, n && n->kind == JSON_STRING ? n->string : SV(""));
}

// absent: what stands for a number that is not there; Go's zero, where the API has no null.
static void add_number(struct buf *out, const struct json_node *object, const char *key,
                       struct sv absent)
{
    const struct json_node *n = json_find(object, key);
    char text[NUM_I64_BYTES];
    if (n && n->kind == JSON_INTEGER)
        add_text(out, (struct sv){text, num_print_i64(text, n->integer)});
    else
        add_text(out, absent);
}

static void add_bool(struct buf *out, const struct json_node *object, const char *key)
{
    const struct json_node *n = json_find(object, key);
    bool given = n && n->kind == JSON_BOOL;
    add_text(out, !given ? SV("") : n->boolean ? SV("true") : SV("false"));
}

static const struct json_node *elements(const struct json_node *object, const char *key)
{
    const struct json_node *list = json_find(object, key);
    return list && list->kind == JSON_ARRAY ? list->first : NULL;
}

static void add_texts(struct buf *out, const struct json_node *object, const char *key)
{
    size_t at = add_open_count(out);
    uint32_t count = 0;
    for (const struct json_node *n = elements(object, key); n; n = n->next) {
        if (n->kind != JSON_STRING)
            continue;
        add_text(out, n->string);
        count++;
    }
    close_count(out, at, count);
}

// A list of objects by a function for each.
static void add_list(struct buf *out, const struct json_node *object, const char *key,
                     void (*add)(struct buf *out, const struct json_node *element))
{
    size_t at = add_open_count(out);
    uint32_t count = 0;
    for (const struct json_node *n = elements(object, key); n; n = n->next, count++)
        add(out, n);
    close_count(out, at, count);
}

static void add_pairs(struct buf *out, const struct json_node *object, const char *key)
{
    const struct json_node *map = json_find(object, key);
    size_t at = add_open_count(out);
    uint32_t count = 0;
    if (map && map->kind == JSON_OBJECT) {
        for (const struct json_node *n = map->first; n; n = n->next) {
            if (n->kind != JSON_STRING)
                continue;
            add_text(out, n->key);
            add_text(out, n->string);
            count++;
        }
    }
    close_count(out, at, count);
}

static void add_meta(struct buf *out, const struct json_node *meta)
{
    add_pairs(out, meta, "labels");
    add_pairs(out, meta, "annotations");
}

// --- Pods ---

static const struct json_node *find_named(const struct json_node *object, const char *list,
                                          const char *key, struct sv name)
{
    for (const struct json_node *n = elements(object, list); n; n = n->next) {
        const struct json_node *at = json_find(n, key);
        if (at && at->kind == JSON_STRING && sv_equals(at->string, name))
            return n;
    }
    return NULL;
}

static void add_ready(struct buf *out, const struct json_node *status)
{
    static const struct {
        struct sv given, lower;
    } known[] = {
        {{"True", 4}, {"true", 4}}, {{"False", 5}, {"false", 5}}, {{"Unknown", 7}, {"unknown", 7}}};
    const struct json_node *ready =
        json_find(find_named(status, "conditions", "type", SV("Ready")), "status");
    struct sv text = SV("unknown");
    for (size_t i = 0; ready && ready->kind == JSON_STRING && i < ARRAY_SIZE(known); i++)
        if (sv_equals(ready->string, known[i].given))
            text = known[i].lower;
    add_text(out, text);
}

static void add_controller(struct buf *out, const struct json_node *meta)
{
    const struct json_node *owner = elements(meta, "ownerReferences");
    for (; owner; owner = owner->next) {
        const struct json_node *is = json_find(owner, "controller");
        if (is && is->kind == JSON_BOOL && is->boolean)
            break;
    }
    add_member(out, owner, "kind");
    add_member(out, owner, "name");
}

static void add_container_port(struct buf *out, const struct json_node *port)
{
    add_member(out, port, "name");
    add_number(out, port, "containerPort", SV("0"));
    add_member(out, port, "protocol");
}

static uint32_t add_containers(struct buf *out, const struct json_node *pod, bool init)
{
    const struct json_node *spec = json_find(pod, "spec"), *status = json_find(pod, "status");
    const char *statuses = init ? "initContainerStatuses" : "containerStatuses";
    uint32_t count = 0;
    const struct json_node *n = elements(spec, init ? "initContainers" : "containers");
    for (; n; n = n->next, count++) {
        const struct json_node *name = json_find(n, "name");
        bool named = name && name->kind == JSON_STRING;
        add_member(out, n, "name");
        add_member(out, named ? find_named(status, statuses, "name", name->string) : NULL,
                   "containerID");
        add_member(out, n, "image");
        add_text(out, init ? SV("true") : SV("false"));
        add_list(out, n, "ports", add_container_port);
    }
    return count;
}

static void add_pod(struct buf *out, const struct json_node *pod)
{
    const struct json_node *meta = json_find(pod, "metadata"), *status = json_find(pod, "status");
    add_member(out, meta, "uid");
    add_member(out, status, "podIP");
    add_member(out, status, "hostIP");
    add_member(out, status, "phase");
    add_member(out, json_find(pod, "spec"), "nodeName");
    add_ready(out, status);
    add_controller(out, meta);
    add_meta(out, meta);
    size_t at = add_open_count(out);
    uint32_t count = add_containers(out, pod, false);
    count += add_containers(out, pod, true);
    close_count(out, at, count);
}

// --- Services and nodes ---

static void add_port(struct buf *out, const struct json_node *port)
{
    add_member(out, port, "name");
    add_number(out, port, "port", SV("0"));
    add_member(out, port, "protocol");
}

static void add_service(struct buf *out, const struct json_node *service)
{
    const struct json_node *spec = json_find(service, "spec");
    add_member(out, spec, "type");
    add_member(out, spec, "clusterIP");
    add_member(out, spec, "externalName");
    add_member(out, spec, "loadBalancerIP");
    add_meta(out, json_find(service, "metadata"));
    add_list(out, spec, "ports", add_port);
}

static void add_node_address(struct buf *out, const struct json_node *address)
{
    add_member(out, address, "type");
    add_member(out, address, "address");
}

static void add_node(struct buf *out, const struct json_node *node)
{
    const struct json_node *status = json_find(node, "status");
    const struct json_node *kubelet =
        json_find(json_find(status, "daemonEndpoints"), "kubeletEndpoint");
    add_member(out, json_find(node, "spec"), "providerID");
    add_number(out, kubelet, "Port", SV("0"));
    add_meta(out, json_find(node, "metadata"));
    add_list(out, status, "addresses", add_node_address);
}

// --- Endpoints and their slices ---

static void add_target_ref(struct buf *out, const struct json_node *of)
{
    const struct json_node *ref = json_find(of, "targetRef");
    add_member(out, ref, "kind");
    add_member(out, ref, "namespace");
    add_member(out, ref, "name");
}

static void add_endpoint_address(struct buf *out, const struct json_node *address)
{
    add_member(out, address, "ip");
    add_member(out, address, "hostname");
    add_member(out, address, "nodeName");
    add_target_ref(out, address);
}

static void add_subset(struct buf *out, const struct json_node *subset)
{
    add_list(out, subset, "ports", add_port);
    add_list(out, subset, "addresses", add_endpoint_address);
    add_list(out, subset, "notReadyAddresses", add_endpoint_address);
}

static void add_endpoints(struct buf *out, const struct json_node *endpoints)
{
    add_meta(out, json_find(endpoints, "metadata"));
    add_list(out, endpoints, "subsets", add_subset);
}

static void add_slice_port(struct buf *out, const struct json_node *port)
{
    add_member(out, port, "name");
    add_number(out, port, "port", SV("")); // null: all ports
    add_member(out, port, "protocol");
    add_member(out, port, "appProtocol");
}

static void add_slice_endpoint(struct buf *out, const struct json_node *endpoint)
{
    const struct json_node *conditions = json_find(endpoint, "conditions");
    add_bool(out, conditions, "ready");
    add_bool(out, conditions, "serving");
    add_bool(out, conditions, "terminating");
    add_member(out, endpoint, "hostname");
    add_member(out, endpoint, "nodeName");
    add_member(out, endpoint, "zone");
    add_target_ref(out, endpoint);
    add_pairs(out, endpoint, "deprecatedTopology");
    add_texts(out, endpoint, "addresses");
}

static void add_slice(struct buf *out, const struct json_node *slice)
{
    const struct json_node *meta = json_find(slice, "metadata");
    add_member(out, slice, "addressType");
    add_member(out, json_find(meta, "labels"), "kubernetes.io/service-name");
    add_meta(out, meta);
    add_list(out, slice, "ports", add_slice_port);
    add_list(out, slice, "endpoints", add_slice_endpoint);
}

// --- Ingresses ---

static void add_rule(struct buf *out, const struct json_node *rule)
{
    const struct json_node *http = json_find(rule, "http");
    add_member(out, rule, "host");
    size_t at = add_open_count(out);
    uint32_t count = 0;
    if (!http || http->kind != JSON_OBJECT) {
        add_text(out, SV("/"));
        count++;
    }
    for (const struct json_node *n = elements(http, "paths"); n; n = n->next, count++) {
        const struct json_node *path = json_find(n, "path");
        bool given = path && path->kind == JSON_STRING && path->string.len;
        add_text(out, given ? path->string : SV("/"));
    }
    close_count(out, at, count);
}

static void add_ingress(struct buf *out, const struct json_node *ingress)
{
    const struct json_node *spec = json_find(ingress, "spec");
    add_member(out, spec, "ingressClassName");
    add_meta(out, json_find(ingress, "metadata"));
    size_t at = add_open_count(out);
    uint32_t count = 0;
    for (const struct json_node *tls = elements(spec, "tls"); tls; tls = tls->next) {
        for (const struct json_node *host = elements(tls, "hosts"); host; host = host->next) {
            add_text(out, host->kind == JSON_STRING ? host->string : SV(""));
            count++;
        }
    }
    close_count(out, at, count);
    add_list(out, spec, "rules", add_rule);
}

void kube_record_add(enum kube_kind kind, const struct json_node *object, struct buf *out)
{
    static void (*const add[])(struct buf * out, const struct json_node *object) = {
        [KUBE_KIND_POD] = add_pod,
        [KUBE_KIND_SERVICE] = add_service,
        [KUBE_KIND_NODE] = add_node,
        [KUBE_KIND_ENDPOINTS] = add_endpoints,
        [KUBE_KIND_ENDPOINTSLICE] = add_slice,
        [KUBE_KIND_INGRESS] = add_ingress,
    };
    add[kind](out, object);
}

// --- Reading ---

uint32_t record_count(struct record *r)
{
    uint32_t n;
    assert((size_t)(r->end - r->at) >= sizeof(n));
    memcpy(&n, r->at, sizeof(n));
    r->at += sizeof(n);
    return n;
}

struct sv record_text(struct record *r)
{
    uint32_t length = record_count(r);
    assert((size_t)(r->end - r->at) >= length);
    struct sv text = {r->at, length};
    r->at += length;
    return text;
}

void record_skip(struct record *r, uint32_t count, unsigned texts)
{
    for (uint64_t i = 0; i < (uint64_t)count * texts; i++)
        (void)record_text(r);
}
