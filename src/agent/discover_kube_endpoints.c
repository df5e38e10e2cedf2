// SPDX-License-Identifier: Apache-2.0
// Endpoints and their slices: each port of each address is a target, with the labels of the
// service; an address of a pod that is known has the pod's labels, too, and the other ports of that
// pod's containers become targets of their own. A pod's labels are made once a group.
#include <errno.h>
#include <stdlib.h>

#include "agent/discover_kube_build.h"
#include "base/limits.h"
#include "base/map.h"

// A pod that an address of the group belongs to.
struct seen_pod {
    struct seen_pod *next;
    struct labels labels;
    struct sv ip;
    struct record containers;
    struct sv *ports; // numbers that have been targets with it
    uint32_t port_count, port_capacity;
};

struct endpoints {
    struct kube_build *build;
    struct arena scratch;
    struct map pods; // key → struct seen_pod
    struct seen_pod *first, **last;
};

// An address as both kinds have it.
struct address {
    struct sv host_name, node, kind, namespace_name, name;
};

static bool is_pod(const struct address *a)
{
    return sv_equals(a->kind, SV("Pod"));
}

// "namespace/name" of the target in out, which must have the room; .ptr NULL: too long to be one.
static struct sv target_key(const struct address *a, char *out, size_t out_bytes)
{
    size_t length = a->namespace_name.len + 1 + a->name.len;
    if (length > out_bytes)
        return (struct sv){0};
    memcpy(out, a->namespace_name.ptr, a->namespace_name.len);
    out[a->namespace_name.len] = '/';
    memcpy(out + a->namespace_name.len + 1, a->name.ptr, a->name.len);
    return (struct sv){out, length};
}

#define KEY_BYTES 512 // a namespace has 63 bytes at most, a name 253

static struct sv find_pod(const struct kube_join *join, const struct address *a, struct sv *out_key,
                          char *room)
{
    if (!is_pod(a))
        return (struct sv){0};
    *out_key = target_key(a, room, KEY_BYTES);
    return out_key->ptr ? join->find(join->user, KUBE_KIND_POD, *out_key) : (struct sv){0};
}

// Whether the address is to be a target here: on the node that is asked for, as far as is known.
static bool is_here(const struct kube_join *join, const struct address *a, struct sv pod)
{
    if (!join->node_name)
        return true;
    return a->node.len ? sv_equals(a->node, sv_from(join->node_name)) : pod.ptr != NULL;
}

// --- Pods of addresses ---

static int see_pod(struct endpoints *e, struct sv key, struct sv record, struct seen_pod **out)
{
    struct seen_pod *p = map_find(&e->pods, key);
    if (p) {
        *out = p;
        return 0;
    }
    struct record r = {record.ptr, record.ptr + record.len};
    struct kube_pod pod;
    p = arena_alloc(&e->scratch, sizeof(*p));
    if (!p)
        return -ENOMEM;
    *p = (struct seen_pod){0};
    labels_init(&p->labels, &e->build->group->arena);
    struct kube_labels l = {.labels = &p->labels};
    kube_label_pod(&l, key, &r, &pod);
    if (l.error)
        return l.error;
    p->ip = pod.ip;
    p->containers = r;
    int s = map_put(&e->pods, key, p, NULL);
    if (s < 0)
        return s;
    *e->last = p;
    e->last = &p->next;
    *out = p;
    return 0;
}

static bool has_port(const struct seen_pod *p, struct sv number)
{
    for (uint32_t i = 0; i < p->port_count; i++)
        if (sv_equals(p->ports[i], number))
            return true;
    return false;
}

static int see_port(struct endpoints *e, struct seen_pod *p, struct sv number)
{
    if (has_port(p, number))
        return 0;
    if (p->port_count == p->port_capacity) {
        uint32_t capacity = p->port_capacity ? p->port_capacity * 2 : 4;
        struct sv *ports = arena_alloc(&e->scratch, capacity * sizeof(*ports));
        if (!ports)
            return -ENOMEM;
        if (p->port_count)
            memcpy(ports, p->ports, p->port_count * sizeof(*ports));
        p->ports = ports;
        p->port_capacity = capacity;
    }
    p->ports[p->port_count++] = number;
    return 0;
}

// The labels of the container whose port this is; of several, the last. own_protocol: the
// protocol label is that of the container's port, else that of the endpoint's.
static void label_container(struct kube_labels *l, const struct seen_pod *p,
                            const struct kube_port *port, bool own_protocol)
{
    struct record r = p->containers;
    uint32_t containers = record_count(&r);
    for (uint32_t i = 0; i < containers; i++) {
        struct kube_container c;
        bool found = false;
        kube_read_container(&r, &c);
        for (uint32_t k = 0; k < c.ports; k++) {
            struct kube_port own;
            kube_read_port(&r, &own);
            if (found || !sv_equals(own.number, port->number))
                continue;
            found = true;
            if (!own_protocol)
                own.protocol = port->protocol;
            kube_label_container_port(l, &c, &own);
        }
    }
}

// What a target gets from its pod, if it has one that is known.
static void join_pod(struct endpoints *e, struct kube_labels *l, struct sv key, struct sv record,
                     const struct kube_port *port, bool own_protocol)
{
    struct seen_pod *p = NULL;
    if (!record.ptr || l->error)
        return;
    l->error = see_pod(e, key, record, &p);
    if (l->error)
        return;
    kube_labels_merge(l, &p->labels);
    if (!port->number.len)
        return;
    label_container(l, p, port, own_protocol);
    if (l->error == 0)
        l->error = see_port(e, p, port->number);
}

static void add_other_port(struct endpoints *e, const struct seen_pod *p,
                           const struct kube_container *c, const struct kube_port *port)
{
    struct kube_labels l = kube_build_target(e->build);
    kube_label_address(&l, p->ip, port->number);
    kube_label_container_port(&l, c, port);
    kube_labels_merge(&l, &p->labels);
    kube_build_end_target(e->build, &l);
}

// The ports of the pods' containers that no address has.
static void add_other_ports(struct endpoints *e)
{
    for (const struct seen_pod *p = e->first; p; p = p->next) {
        struct record r = p->containers;
        uint32_t containers = p->ip.len ? record_count(&r) : 0;
        for (uint32_t i = 0; i < containers; i++) {
            struct kube_container c;
            kube_read_container(&r, &c);
            for (uint32_t k = 0; k < c.ports; k++) {
                struct kube_port port;
                kube_read_port(&r, &port);
                if (!has_port(p, port.number))
                    add_other_port(e, p, &c, &port);
            }
        }
    }
}

// Its own targets at most, and those of other ports of its pod.
static size_t count_address(const struct kube_join *join, const struct address *a, size_t own)
{
    char room[KEY_BYTES];
    struct sv key, pod = find_pod(join, a, &key, room);
    if (!is_here(join, a, pod))
        return 0;
    if (!pod.ptr)
        return own;
    struct record r = {pod.ptr, pod.ptr + pod.len};
    kube_skip_to_containers(&r);
    return own + kube_count_ports(&r, false);
}

static void add_service(struct kube_build *b, struct sv name)
{
    char room[KEY_BYTES];
    struct address a = {.namespace_name = kube_name_of(b->key).namespace_name, .name = name};
    struct sv key = target_key(&a, room, sizeof(room));
    struct sv service =
        name.len && key.ptr ? b->join->find(b->join->user, KUBE_KIND_SERVICE, key) : (struct sv){0};
    if (service.ptr)
        kube_label_service(&b->base_labels, key, service);
}

static int need_target(const struct kube_needs *needs, const struct address *a)
{
    char room[KEY_BYTES];
    const struct kube_join *join = needs->join;
    struct sv key = is_pod(a) ? target_key(a, room, sizeof(room)) : (struct sv){0};
    bool elsewhere =
        join->node_name && a->node.len && !sv_equals(a->node, sv_from(join->node_name));
    if (elsewhere)
        return 0;
    int r = key.ptr ? needs->need(needs->user, KUBE_KIND_POD, key) : 0;
    if (r == 0 && join->attach_node && a->node.len)
        r = needs->need(needs->user, KUBE_KIND_NODE, a->node);
    if (r == 0 && join->attach_node && sv_equals(a->kind, SV("Node")) && a->name.len)
        r = needs->need(needs->user, KUBE_KIND_NODE, a->name);
    return r;
}

static int need_service(const struct kube_needs *needs, struct sv namespace_name, struct sv name)
{
    char room[KEY_BYTES];
    struct address a = {.namespace_name = namespace_name, .name = name};
    struct sv key = name.len ? target_key(&a, room, sizeof(room)) : (struct sv){0};
    return key.ptr ? needs->need(needs->user, KUBE_KIND_SERVICE, key) : 0;
}

static int end(struct endpoints *e)
{
    add_other_ports(e);
    map_deinit(&e->pods);
    arena_deinit(&e->scratch);
    return e->build->error;
}

static struct endpoints begin(struct kube_build *b)
{
    return (struct endpoints){
        .build = b,
        .scratch = ARENA_INIT(LIMIT_KUBE_GROUP_BYTES),
        .pods = MAP_INIT(LIMIT_KUBE_OBJECTS),
    };
}

// --- Endpoints ---

static struct sv read_address(struct record *r, struct address *out)
{
    struct sv ip = record_text(r);
    out->host_name = record_text(r);
    out->node = record_text(r);
    out->kind = record_text(r);
    out->namespace_name = record_text(r);
    out->name = record_text(r);
    return ip;
}

static void label_endpoint(struct endpoints *e, struct kube_labels *l, const struct address *a,
                           const struct kube_port *port, bool ready)
{
    kube_label(l, META "endpoint_port_name", port->name);
    kube_label(l, META "endpoint_port_protocol", port->protocol);
    kube_label_borrowed(l, META "endpoint_ready", ready ? SV("true") : SV("false"));
    kube_label(l, META "endpoint_address_target_kind", a->kind);
    kube_label(l, META "endpoint_address_target_name", a->name);
    kube_label(l, META "endpoint_node_name", a->node);
    kube_label(l, META "endpoint_hostname", a->host_name);
    bool is_node = !a->node.len && sv_equals(a->kind, SV("Node"));
    kube_build_attach_node(e->build, l, is_node ? a->name : a->node);
}

static void add_address(struct endpoints *e, struct record ports, struct record *r, bool ready)
{
    char room[KEY_BYTES];
    struct address a;
    struct sv ip = read_address(r, &a), key;
    struct sv pod = find_pod(e->build->join, &a, &key, room);
    uint32_t count = record_count(&ports);
    if (!is_here(e->build->join, &a, pod))
        return;
    for (uint32_t i = 0; i < count; i++) {
        struct kube_port port;
        struct kube_labels l = kube_build_target(e->build);
        kube_read_port(&ports, &port);
        kube_label_address(&l, ip, port.number);
        label_endpoint(e, &l, &a, &port, ready);
        join_pod(e, &l, key, pod, &port, false);
        kube_build_end_target(e->build, &l);
    }
}

static void add_subset(struct endpoints *e, struct record *r)
{
    struct record ports = *r;
    record_skip(r, record_count(r), 3);
    for (unsigned ready = 2; ready-- > 0;) {
        uint32_t addresses = record_count(r);
        for (uint32_t i = 0; i < addresses; i++)
            add_address(e, ports, r, ready);
    }
}

// With each address, how many ports its subset has. Non-zero of each ends it.
static int for_addresses(struct record r,
                         int (*each)(void *user, const struct address *a, uint32_t ports),
                         void *user)
{
    record_skip(&r, record_count(&r), 2);
    record_skip(&r, record_count(&r), 2);
    uint32_t subsets = record_count(&r);
    for (uint32_t i = 0; i < subsets; i++) {
        uint32_t ports = record_count(&r);
        record_skip(&r, ports, 3);
        for (unsigned k = 0; k < 2; k++) {
            uint32_t addresses = record_count(&r);
            for (uint32_t n = 0; n < addresses; n++) {
                struct address a;
                (void)read_address(&r, &a);
                int s = each(user, &a, ports);
                if (s != 0)
                    return s;
            }
        }
    }
    return 0;
}

struct counting {
    const struct kube_join *join;
    size_t count;
};

static int count_one(void *user, const struct address *a, uint32_t ports)
{
    struct counting *c = user;
    c->count += count_address(c->join, a, ports);
    return 0;
}

static int need_one(void *user, const struct address *a, uint32_t ports)
{
    (void)ports;
    return need_target(user, a);
}

int kube_build_endpoints(struct kube_build *b)
{
    struct record r = {b->record.ptr, b->record.ptr + b->record.len};
    struct counting c = {b->join, 0};
    struct kube_name name = kube_name_of(b->key);
    struct endpoints e = begin(b);
    e.last = &e.first;
    (void)for_addresses(r, count_one, &c);
    int s = kube_build_start(b, c.count);
    if (s < 0)
        return s;
    kube_label(&b->base_labels, META "namespace", name.namespace_name);
    add_service(b, name.name);
    kube_label(&b->base_labels, META "endpoints_name", name.name);
    kube_label_meta(&b->base_labels, &r, KUBE_KIND_ENDPOINTS);
    b->error = b->base_labels.error;
    uint32_t subsets = record_count(&r);
    for (uint32_t i = 0; i < subsets; i++)
        add_subset(&e, &r);
    return end(&e);
}

int kube_endpoints_needs(struct sv key, struct sv record, const struct kube_needs *needs)
{
    struct kube_name name = kube_name_of(key);
    struct record r = {record.ptr, record.ptr + record.len};
    int s = need_service(needs, name.namespace_name, name.name);
    return s ? s : for_addresses(r, need_one, (void *)needs);
}

// --- Slices ---

struct slice_endpoint {
    struct address address;
    struct sv ready, serving, terminating, zone;
    struct record topology, addresses; // at their counts
    uint32_t address_count;
};

static void read_slice_endpoint(struct record *r, struct slice_endpoint *out)
{
    struct address *a = &out->address;
    out->ready = record_text(r);
    out->serving = record_text(r);
    out->terminating = record_text(r);
    a->host_name = record_text(r);
    a->node = record_text(r);
    out->zone = record_text(r);
    a->kind = record_text(r);
    a->namespace_name = record_text(r);
    a->name = record_text(r);
    out->topology = *r;
    record_skip(r, record_count(r), 2);
    out->addresses = *r;
    out->address_count = record_count(r);
    record_skip(r, out->address_count, 1);
}

static void label_slice_endpoint(struct endpoints *e, struct kube_labels *l,
                                 const struct slice_endpoint *p)
{
    const struct address *a = &p->address;
    struct record topology = p->topology;
    kube_label(l, META "endpointslice_endpoint_conditions_ready", p->ready);
    kube_label(l, META "endpointslice_endpoint_conditions_serving", p->serving);
    kube_label(l, META "endpointslice_endpoint_conditions_terminating", p->terminating);
    kube_label(l, META "endpointslice_endpoint_hostname", a->host_name);
    kube_label(l, META "endpointslice_endpoint_node_name", a->node);
    kube_label(l, META "endpointslice_endpoint_zone", p->zone);
    kube_label(l, META "endpointslice_address_target_kind", a->kind);
    kube_label(l, META "endpointslice_address_target_name", a->name);
    kube_label_pairs(l, &topology, META "endpointslice_endpoint_topology_",
                     META "endpointslice_endpoint_topology_present_");
    bool is_node = sv_equals(a->kind, SV("Node"));
    kube_build_attach_node(e->build, l, is_node ? a->name : a->node);
}

// One port of the slice, with each address of an endpoint. Returns r behind the port.
static struct record add_slice_port(struct endpoints *e, const struct slice_endpoint *p,
                                    struct record r, struct sv key, struct sv pod)
{
    struct record addresses = p->addresses;
    struct kube_port port;
    kube_read_port(&r, &port);
    struct sv app_protocol = record_text(&r);
    (void)record_count(&addresses);
    for (uint32_t i = 0; i < p->address_count; i++) {
        struct sv ip = record_text(&addresses);
        struct kube_labels l = kube_build_target(e->build);
        if (port.number.len)
            kube_label_address(&l, ip, port.number);
        else
            kube_label(&l, "__address__", ip);
        kube_label(&l, META "endpointslice_port_name", port.name);
        kube_label(&l, META "endpointslice_port_protocol", port.protocol);
        kube_label(&l, META "endpointslice_port", port.number);
        kube_label(&l, META "endpointslice_port_app_protocol", app_protocol);
        label_slice_endpoint(e, &l, p);
        join_pod(e, &l, key, pod, &port, true);
        kube_build_end_target(e->build, &l);
    }
    return r;
}

static void add_slice_endpoint(struct endpoints *e, struct record ports, struct record *r)
{
    char room[KEY_BYTES];
    struct slice_endpoint p;
    struct sv key;
    read_slice_endpoint(r, &p);
    struct sv pod = find_pod(e->build->join, &p.address, &key, room);
    if (!is_here(e->build->join, &p.address, pod))
        return;
    uint32_t count = record_count(&ports);
    for (uint32_t i = 0; i < count; i++)
        ports = add_slice_port(e, &p, ports, key, pod);
}

// To the ports of a slice, behind its texts and labels.
static struct record slice_ports(struct record r)
{
    record_skip(&r, 1, 2);
    record_skip(&r, record_count(&r), 2);
    record_skip(&r, record_count(&r), 2);
    return r;
}

static size_t count_slice(const struct kube_join *join, struct record r)
{
    size_t n = 0;
    uint32_t ports = record_count(&r);
    record_skip(&r, ports, 4);
    uint32_t endpoints = record_count(&r);
    for (uint32_t i = 0; i < endpoints; i++) {
        struct slice_endpoint p;
        read_slice_endpoint(&r, &p);
        n += count_address(join, &p.address, (size_t)ports * p.address_count);
    }
    return n;
}

int kube_build_slice(struct kube_build *b)
{
    struct record r = {b->record.ptr, b->record.ptr + b->record.len};
    struct kube_name name = kube_name_of(b->key);
    struct endpoints e = begin(b);
    e.last = &e.first;
    struct record ports = slice_ports(r);
    int s = kube_build_start(b, count_slice(b->join, ports));
    if (s < 0)
        return s;
    kube_label(&b->base_labels, META "namespace", name.namespace_name);
    kube_label(&b->base_labels, META "endpointslice_address_type", record_text(&r));
    kube_label(&b->base_labels, META "endpointslice_name", name.name);
    add_service(b, record_text(&r));
    kube_label_meta(&b->base_labels, &r, KUBE_KIND_ENDPOINTSLICE);
    b->error = b->base_labels.error;
    record_skip(&r, record_count(&r), 4);
    uint32_t endpoints = record_count(&r);
    for (uint32_t i = 0; i < endpoints; i++)
        add_slice_endpoint(&e, ports, &r);
    return end(&e);
}

int kube_slice_needs(struct sv key, struct sv record, const struct kube_needs *needs)
{
    struct record r = {record.ptr, record.ptr + record.len}, ports = slice_ports(r);
    (void)record_text(&r);
    int s = need_service(needs, kube_name_of(key).namespace_name, record_text(&r));
    record_skip(&ports, record_count(&ports), 4);
    uint32_t endpoints = record_count(&ports);
    for (uint32_t i = 0; i < endpoints && s == 0; i++) {
        struct slice_endpoint p;
        read_slice_endpoint(&ports, &p);
        s = need_target(needs, &p.address);
    }
    return s;
}
