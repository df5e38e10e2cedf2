// SPDX-License-Identifier: Apache-2.0
// A group is built in one pass after one that counts; texts are copied once into its arena, and the
// labels that all its targets have are copied from target to target as views. Endpoints and their
// slices are in discover_kube_endpoints.c.
#include "agent/discover_kube_targets.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/discover_kube_build.h"
#include "base/limits.h"

#define MORE_LABELS 16 // of a target beside those of the group: a pod's container has 8

static struct record record_of(struct sv bytes)
{
    return (struct record){bytes.ptr, bytes.ptr + bytes.len};
}

// --- The builder ---

int kube_build_start(struct kube_build *b, size_t capacity)
{
    b->group = target_group_new(capacity, LIMIT_KUBE_GROUP_BYTES);
    if (!b->group)
        return -ENOMEM;
    labels_init(&b->base, &b->group->arena);
    b->base_labels = (struct kube_labels){.labels = &b->base};
    return 0;
}

struct kube_labels kube_build_target(struct kube_build *b)
{
    struct kube_labels l = {.labels = &b->base, .error = b->error};
    if (b->error)
        return l; // nothing is added any more
    struct labels *t = target_group_add(b->group, b->base.count + MORE_LABELS);
    if (!t) {
        l.error = b->group->arena.error == -ENOMEM ? -ENOMEM : -E2BIG;
        return l;
    }
    l.labels = t;
    if (b->base.count)
        memcpy(t->items, b->base.items, b->base.count * sizeof(*t->items));
    t->count = b->base.count;
    return l;
}

void kube_build_end_target(struct kube_build *b, const struct kube_labels *l)
{
    if (b->error == 0)
        b->error = l->error;
}

void kube_build_attach_node(const struct kube_build *b, struct kube_labels *l, struct sv name)
{
    const struct kube_join *join = b->join;
    if (!join->attach_node || !name.len)
        return;
    struct sv node = join->find(join->user, KUBE_KIND_NODE, name);
    if (node.ptr)
        kube_label_node(l, name, node);
}

// --- Pods ---

uint32_t kube_count_ports(struct record *r, bool least_one)
{
    uint32_t containers = record_count(r), n = 0;
    for (uint32_t i = 0; i < containers; i++) {
        struct kube_container c;
        kube_read_container(r, &c);
        record_skip(r, c.ports, 3);
        n += c.ports == 0 && least_one ? 1 : c.ports;
    }
    return n;
}

void kube_skip_to_containers(struct record *r)
{
    record_skip(r, 1, 8);
    record_skip(r, record_count(r), 2);
    record_skip(r, record_count(r), 2);
}

static void build_container(struct kube_build *b, struct record *r, struct sv ip)
{
    struct kube_container c;
    kube_read_container(r, &c);
    for (uint32_t i = 0; i < c.ports || (i == 0 && c.ports == 0); i++) {
        struct kube_port port = {0};
        struct kube_labels l = kube_build_target(b);
        if (c.ports) {
            kube_read_port(r, &port);
            kube_label_address(&l, ip, port.number);
        } else {
            kube_label_borrowed(&l, "__address__", ip);
        }
        kube_label_container_port(&l, &c, &port);
        kube_label(&l, META "pod_container_id", c.id);
        kube_build_end_target(b, &l);
    }
}

static int build_pod(struct kube_build *b)
{
    struct record r = record_of(b->record), count = r;
    struct kube_pod pod;
    kube_skip_to_containers(&count);
    int e = kube_build_start(b, kube_count_ports(&count, true));
    if (e < 0)
        return e;
    kube_label(&b->base_labels, META "namespace", kube_name_of(b->key).namespace_name);
    kube_label_pod(&b->base_labels, b->key, &r, &pod);
    if (!pod.ip.len)
        return b->base_labels.error; // it has no address yet, or no longer
    kube_build_attach_node(b, &b->base_labels, pod.node);
    b->error = b->base_labels.error;
    uint32_t containers = record_count(&r);
    for (uint32_t i = 0; i < containers; i++)
        build_container(b, &r, pod.ip);
    return b->error;
}

// --- Services ---

static int build_service(struct kube_build *b)
{
    struct record r = record_of(b->record);
    struct sv type = record_text(&r), cluster_ip = record_text(&r), external = record_text(&r),
              balancer = record_text(&r);
    record_skip(&r, record_count(&r), 2);
    record_skip(&r, record_count(&r), 2);
    uint32_t ports = record_count(&r);
    struct kube_name name = kube_name_of(b->key);
    struct buf host = BUF_INIT(LIMIT_KUBE_SELECTOR_BYTES);
    int e = kube_build_start(b, ports);
    if (e < 0)
        return e;
    kube_label_service(&b->base_labels, b->key, b->record);
    buf_add_fmt(&host, "%.*s.%.*s.svc", SV_FMT(name.name), SV_FMT(name.namespace_name));
    b->error = b->base_labels.error ? b->base_labels.error : host.error;
    bool is_external = sv_equals(type, SV("ExternalName"));
    for (uint32_t i = 0; i < ports; i++) {
        struct kube_port port;
        struct kube_labels l = kube_build_target(b);
        kube_read_port(&r, &port);
        kube_label_address(&l, buf_sv(&host), port.number);
        kube_label(&l, META "service_port_name", port.name);
        kube_label(&l, META "service_port_number", port.number);
        kube_label(&l, META "service_port_protocol", port.protocol);
        kube_label(&l, META "service_type", type);
        kube_label(&l, is_external ? META "service_external_name" : META "service_cluster_ip",
                   is_external ? external : cluster_ip);
        if (sv_equals(type, SV("LoadBalancer")))
            kube_label(&l, META "service_loadbalancer_ip", balancer);
        kube_build_end_target(b, &l);
    }
    buf_deinit(&host);
    return b->error;
}

// --- Nodes ---

// The first address of the type that is liked best.
static struct sv node_address(struct record r, uint32_t count)
{
    static const char *const types[] = {"InternalIP",  "InternalDNS",  "ExternalIP",
                                        "ExternalDNS", "LegacyHostIP", "Hostname"};
    size_t best = ARRAY_SIZE(types);
    struct sv found = {0};
    for (uint32_t i = 0; i < count; i++) {
        struct sv type = record_text(&r), address = record_text(&r);
        for (size_t k = 0; k < best; k++) {
            if (sv_equals(type, sv_from(types[k]))) {
                best = k;
                found = address;
            }
        }
    }
    return found;
}

static int build_node(struct kube_build *b)
{
    struct record r = record_of(b->record);
    struct sv provider = record_text(&r), port = record_text(&r);
    record_skip(&r, record_count(&r), 2);
    record_skip(&r, record_count(&r), 2);
    struct record list = r;
    uint32_t count = record_count(&list);
    struct sv address = node_address(list, count);
    if (!address.ptr)
        return 1;
    int e = kube_build_start(b, 1);
    if (e < 0)
        return e;
    kube_label_node(&b->base_labels, b->key, b->record);
    kube_label(&b->base_labels, META "node_provider_id", provider);
    b->error = b->base_labels.error;
    struct kube_labels l = kube_build_target(b);
    kube_label_address(&l, address, port);
    kube_label(&l, "instance", b->key);
    kube_label_pairs(&l, &r, META "node_address_", NULL);
    kube_build_end_target(b, &l);
    return b->error;
}

// --- Ingresses ---

// Equal, or the pattern is "*." and what follows the host's first part.
static bool is_host_of(struct sv pattern, struct sv host)
{
    if (sv_equals(pattern, host))
        return true;
    size_t dot = sv_find_char(host, '.');
    if (!sv_starts_with(pattern, SV("*")))
        return false;
    struct sv behind = sv_sub(pattern, 1, pattern.len);
    if (dot == (size_t)-1)
        return behind.len == 0;
    return sv_equals(behind, sv_sub(host, dot, host.len));
}

static const char *ingress_scheme(struct record hosts, struct sv host)
{
    uint32_t count = record_count(&hosts);
    for (uint32_t i = 0; i < count; i++)
        if (is_host_of(record_text(&hosts), host))
            return "https";
    return "http";
}

static size_t count_paths(struct record r)
{
    size_t n = 0;
    record_skip(&r, record_count(&r), 1);
    uint32_t rules = record_count(&r);
    for (uint32_t i = 0; i < rules; i++) {
        (void)record_text(&r);
        uint32_t paths = record_count(&r);
        record_skip(&r, paths, 1);
        n += paths;
    }
    return n;
}

static int build_ingress(struct kube_build *b)
{
    struct record r = record_of(b->record), count = r;
    struct kube_name name = kube_name_of(b->key);
    record_skip(&count, 1, 1);
    record_skip(&count, record_count(&count), 2);
    record_skip(&count, record_count(&count), 2);
    int e = kube_build_start(b, count_paths(count));
    if (e < 0)
        return e;
    kube_label(&b->base_labels, META "namespace", name.namespace_name);
    kube_label(&b->base_labels, META "ingress_name", name.name);
    kube_label(&b->base_labels, META "ingress_class_name", record_text(&r));
    kube_label_meta(&b->base_labels, &r, KUBE_KIND_INGRESS);
    b->error = b->base_labels.error;
    struct record hosts = r;
    record_skip(&r, record_count(&r), 1);
    uint32_t rules = record_count(&r);
    for (uint32_t i = 0; i < rules; i++) {
        struct sv host = record_text(&r);
        const char *scheme = ingress_scheme(hosts, host);
        uint32_t paths = record_count(&r);
        for (uint32_t k = 0; k < paths; k++) {
            struct kube_labels l = kube_build_target(b);
            kube_label(&l, "__address__", host);
            kube_label_borrowed(&l, META "ingress_scheme", sv_from(scheme));
            kube_label(&l, META "ingress_host", host);
            kube_label(&l, META "ingress_path", record_text(&r));
            kube_build_end_target(b, &l);
        }
    }
    return b->error;
}

// --- The whole ---

int kube_targets_build(enum kube_kind kind, struct sv key, struct sv record,
                       const struct kube_join *join, struct target_group **out)
{
    static int (*const build[])(struct kube_build * b) = {
        [KUBE_KIND_POD] = build_pod,
        [KUBE_KIND_SERVICE] = build_service,
        [KUBE_KIND_NODE] = build_node,
        [KUBE_KIND_ENDPOINTS] = kube_build_endpoints,
        [KUBE_KIND_ENDPOINTSLICE] = kube_build_slice,
        [KUBE_KIND_INGRESS] = build_ingress,
    };
    struct kube_build b = {.key = key, .record = record, .join = join};
    int r = build[kind](&b);
    if (r != 0) {
        target_group_unref(b.group);
        return r;
    }
    *out = b.group;
    return 0;
}

static int pod_needs(struct sv record, const struct kube_needs *needs)
{
    struct record r = record_of(record);
    record_skip(&r, 1, 4);
    struct sv node = record_text(&r);
    return node.len ? needs->need(needs->user, KUBE_KIND_NODE, node) : 0;
}

int kube_targets_needs(enum kube_kind kind, struct sv key, struct sv record,
                       const struct kube_join *join,
                       int (*need)(void *user, enum kube_kind kind, struct sv key), void *user)
{
    struct kube_needs needs = {join, need, user};
    if (kind == KUBE_KIND_POD)
        return join->attach_node ? pod_needs(record, &needs) : 0;
    if (kind == KUBE_KIND_ENDPOINTS)
        return kube_endpoints_needs(key, record, &needs);
    if (kind == KUBE_KIND_ENDPOINTSLICE)
        return kube_slice_needs(key, record, &needs);
    return 0;
}
