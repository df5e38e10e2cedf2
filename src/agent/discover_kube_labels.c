// SPDX-License-Identifier: Apache-2.0
#include "agent/discover_kube_labels.h"

#include <errno.h>

static const struct sv yes = {"true", 4};

static void fail(struct kube_labels *l, int r)
{
    if (l->error == 0 && r < 0)
        l->error = r;
}

static void set(struct kube_labels *l, struct sv name, struct sv value)
{
    if (l->error == 0)
        fail(l, labels_set_borrowed(l->labels, name, value));
}

static int arena_failure(const struct kube_labels *l)
{
    return l->labels->arena->error == -EFBIG ? -E2BIG : -ENOMEM;
}

static struct sv copy(struct kube_labels *l, struct sv text)
{
    const char *at = text.len && l->error == 0 ? arena_dup(l->labels->arena, text) : "";
    if (!at)
        fail(l, arena_failure(l));
    return (struct sv){at, at ? text.len : 0};
}

void kube_label(struct kube_labels *l, const char *name, struct sv value)
{
    set(l, sv_from(name), copy(l, value));
}

void kube_label_borrowed(struct kube_labels *l, const char *name, struct sv value)
{
    set(l, sv_from(name), value);
}

void kube_labels_merge(struct kube_labels *l, const struct labels *from)
{
    for (size_t i = 0; i < from->count; i++)
        set(l, from->items[i].name, from->items[i].value);
}

void kube_label_address(struct kube_labels *l, struct sv host, struct sv port)
{
    bool brackets = sv_find_char(host, ':') != (size_t)-1;
    size_t length = host.len + port.len + 1 + 2 * brackets;
    char *text = l->error ? NULL : arena_alloc(l->labels->arena, length);
    if (!text) {
        fail(l, arena_failure(l));
        return;
    }
    char *at = text;
    if (brackets)
        *at++ = '[';
    memcpy(at, host.ptr, host.len);
    at += host.len;
    if (brackets)
        *at++ = ']';
    *at++ = ':';
    memcpy(at, port.ptr, port.len);
    set(l, SV("__address__"), (struct sv){text, length});
}

// --- Names that come from outside ---

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// prefix and the name with '_' for what a label's name cannot have: each character, not each byte.
static struct sv sanitized(struct kube_labels *l, const char *prefix, struct sv name)
{
    size_t prefix_len = strlen(prefix);
    char *text = l->error ? NULL : arena_alloc(l->labels->arena, prefix_len + name.len);
    if (!text) {
        fail(l, arena_failure(l));
        return (struct sv){0};
    }
    memcpy(text, prefix, prefix_len);
    size_t length = prefix_len;
    for (size_t i = 0; i < name.len; i++)
        if (((unsigned char)name.ptr[i] & 0xc0) != 0x80)
            text[length++] = is_plain(name.ptr[i]) ? name.ptr[i] : '_';
    return (struct sv){text, length};
}

void kube_label_pairs(struct kube_labels *l, struct record *r, const char *prefix,
                      const char *present)
{
    uint32_t count = record_count(r);
    for (uint32_t i = 0; i < count; i++) {
        struct sv name = record_text(r), value = record_text(r);
        struct sv label = sanitized(l, prefix, name);
        if (l->error || labels_has(l->labels, label))
            continue;
        set(l, label, copy(l, value));
        if (present)
            set(l, sanitized(l, present, name), yes);
    }
}

#define META_NAMES(role)                                                                           \
    {                                                                                              \
        META role "_label_", META role "_labelpresent_", META role "_annotation_",                 \
            META role "_annotationpresent_"                                                        \
    }

void kube_label_meta(struct kube_labels *l, struct record *r, enum kube_kind kind)
{
    static const char *const names[KUBE_KINDS][4] = {
        [KUBE_KIND_POD] = META_NAMES("pod"),
        [KUBE_KIND_SERVICE] = META_NAMES("service"),
        [KUBE_KIND_NODE] = META_NAMES("node"),
        [KUBE_KIND_ENDPOINTS] = META_NAMES("endpoints"),
        [KUBE_KIND_ENDPOINTSLICE] = META_NAMES("endpointslice"),
        [KUBE_KIND_INGRESS] = META_NAMES("ingress"),
    };
    kube_label_pairs(l, r, names[kind][0], names[kind][1]);
    kube_label_pairs(l, r, names[kind][2], names[kind][3]);
}

struct kube_name kube_name_of(struct sv key)
{
    size_t slash = sv_find_char(key, '/');
    if (slash == (size_t)-1)
        return (struct kube_name){{"", 0}, key};
    return (struct kube_name){sv_sub(key, 0, slash), sv_sub(key, slash + 1, key.len)};
}

// --- Whole objects ---

void kube_label_pod(struct kube_labels *l, struct sv key, struct record *r, struct kube_pod *out)
{
    kube_label(l, META "pod_name", kube_name_of(key).name);
    kube_label(l, META "pod_uid", record_text(r));
    out->ip = copy(l, record_text(r));
    kube_label_borrowed(l, META "pod_ip", out->ip);
    kube_label(l, META "pod_host_ip", record_text(r));
    kube_label(l, META "pod_phase", record_text(r));
    out->node = record_text(r);
    kube_label(l, META "pod_node_name", out->node);
    kube_label(l, META "pod_ready", record_text(r));
    kube_label(l, META "pod_controller_kind", record_text(r));
    kube_label(l, META "pod_controller_name", record_text(r));
    kube_label_meta(l, r, KUBE_KIND_POD);
}

void kube_label_node(struct kube_labels *l, struct sv key, struct sv record)
{
    struct record r = {record.ptr, record.ptr + record.len};
    record_skip(&r, 1, 2);
    kube_label(l, META "node_name", key);
    kube_label_meta(l, &r, KUBE_KIND_NODE);
}

void kube_label_service(struct kube_labels *l, struct sv key, struct sv record)
{
    struct record r = {record.ptr, record.ptr + record.len};
    struct kube_name name = kube_name_of(key);
    record_skip(&r, 1, 4);
    kube_label(l, META "namespace", name.namespace_name);
    kube_label(l, META "service_name", name.name);
    kube_label_meta(l, &r, KUBE_KIND_SERVICE);
}

void kube_read_container(struct record *r, struct kube_container *out)
{
    out->name = record_text(r);
    out->id = record_text(r);
    out->image = record_text(r);
    out->init = record_text(r);
    out->ports = record_count(r);
}

void kube_read_port(struct record *r, struct kube_port *out)
{
    out->name = record_text(r);
    out->number = record_text(r);
    out->protocol = record_text(r);
}

void kube_label_container_port(struct kube_labels *l, const struct kube_container *c,
                               const struct kube_port *port)
{
    kube_label(l, META "pod_container_name", c->name);
    kube_label(l, META "pod_container_image", c->image);
    kube_label(l, META "pod_container_init", c->init);
    kube_label(l, META "pod_container_port_name", port->name);
    kube_label(l, META "pod_container_port_number", port->number);
    kube_label(l, META "pod_container_port_protocol", port->protocol);
}
