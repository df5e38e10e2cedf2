// SPDX-License-Identifier: Apache-2.0
// Arrays grow by doubling in the arena; what a smaller one held is lost until the arena is reset,
// at most as much again. Labels are gathered with twice the room of the limit and cut after they
// are sorted, so that those that stay are the same in whatever order they come.
#include "kube/pod_record_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "base/num.h"

#define CONTAINER_ID_DIGITS 64
#define LABELS_GATHERED (64 * LIMIT_POD_RECORD_LABELS) // before they are sorted and cut

struct sv pod_record_text(struct sv s)
{
    return s.len && memchr(s.ptr, '\0', s.len) ? (struct sv){0} : s;
}

// Room for one more in an array of the arena; false: over the limit, or the arena failed.
static bool make_room(struct arena *a, void **array, size_t count, size_t *room, size_t item_bytes)
{
    if (count < *room)
        return true;
    size_t more = *room ? *room * 2 : 8;
    void *grown = arena_alloc(a, more * item_bytes);
    if (!grown)
        return false;
    if (count)
        memcpy(grown, *array, count * item_bytes);
    *array = grown;
    *room = more;
    return true;
}

void pod_record_add_label(struct pod_record_reader *r, struct sv key, struct sv value)
{
    struct pod_record *p = &r->record;
    if (!key.len || !pod_record_text(key).len || (value.len && !pod_record_text(value).len) ||
        p->label_count >= LABELS_GATHERED)
        return;
    void *array = p->labels;
    bool has_room = make_room(r->arena, &array, p->label_count, &r->label_room, sizeof(*p->labels));
    p->labels = array;
    if (has_room)
        p->labels[p->label_count++] = (struct pod_record_label){key, value};
}

void pod_record_add_annotation(struct pod_record_reader *r, struct sv key, struct sv value)
{
    struct sv text = pod_record_text(value);
    if (sv_equals(key, SV("kubernetes.io/config.mirror")))
        r->mirror = text;
    else if (sv_equals(key, SV("kubernetes.io/config.source")))
        r->source = text;
    else if (sv_equals(key, SV("kubernetes.io/config.hash")))
        r->hash = text;
}

// "containerd://ID" without the scheme; empty when that is no id.
static struct sv bare_id(struct sv id)
{
    size_t scheme = sv_find(id, SV("://"));
    if (scheme != (size_t)-1)
        id = sv_sub(id, scheme + 3, id.len);
    if (id.len != CONTAINER_ID_DIGITS)
        return (struct sv){0};
    for (size_t i = 0; i < id.len; i++)
        if (num_hex_digit(id.ptr[i]) < 0)
            return (struct sv){0};
    return id;
}

void pod_record_add_container(struct pod_record_reader *r, struct sv name, struct sv id, bool init)
{
    struct pod_record *p = &r->record;
    if (!pod_record_text(name).len || p->container_count >= LIMIT_POD_RECORD_CONTAINERS)
        return;
    void *array = p->containers;
    bool has_room =
        make_room(r->arena, &array, p->container_count, &r->container_room, sizeof(*p->containers));
    p->containers = array;
    if (has_room)
        p->containers[p->container_count++] =
            (struct pod_record_container){name, bare_id(id), init};
}

void pod_record_add_claim(struct pod_record_reader *r, struct sv name, struct sv claim)
{
    struct pod_record *p = &r->record;
    if (!pod_record_text(claim).len || p->claim_count >= LIMIT_POD_RECORD_CLAIMS)
        return;
    void *array = p->claims;
    bool has_room = make_room(r->arena, &array, p->claim_count, &r->claim_room, sizeof(*p->claims));
    p->claims = array;
    if (has_room)
        p->claims[p->claim_count++] = (struct pod_record_claim){pod_record_text(name), claim};
}

void pod_record_add_controller(struct pod_record_reader *r, struct sv kind, struct sv name)
{
    if (!pod_record_text(kind).len || !pod_record_text(name).len || sv_equals(kind, SV("Node")))
        return;
    r->record.owner_kind = kind;
    r->record.owner_name = name;
}

static int compare_labels(const void *a, const void *b)
{
    const struct pod_record_label *x = a, *y = b;
    int order = sv_compare(x->key, y->key);
    return order ? order : sv_compare(x->value, y->value);
}

// A key that comes twice has its first value in byte order.
static void sort_labels(struct pod_record *p)
{
    if (p->label_count == 0)
        return;
    qsort(p->labels, p->label_count, sizeof(*p->labels), compare_labels);
    size_t kept = 1;
    for (size_t i = 1; i < p->label_count && kept < LIMIT_POD_RECORD_LABELS; i++)
        if (!sv_equals(p->labels[kept - 1].key, p->labels[i].key))
            p->labels[kept++] = p->labels[i];
    p->label_count = kept;
}

static void name_deployment(struct pod_record *p)
{
    if (!sv_equals(p->owner_kind, SV("ReplicaSet")))
        return;
    struct sv hash = {0};
    for (size_t i = 0; i < p->label_count; i++)
        if (sv_equals(p->labels[i].key, SV("pod-template-hash")))
            hash = p->labels[i].value;
    if (!hash.len || p->owner_name.len <= hash.len + 1 || !sv_ends_with(p->owner_name, hash))
        return;
    size_t rest = p->owner_name.len - hash.len - 1;
    if (p->owner_name.ptr[rest] != '-')
        return;
    p->owner_kind = SV("Deployment");
    p->owner_name.len = rest;
}

// The annotation config.hash alone proves nothing: anyone may write it. A mirror pod's is guarded
// by the API server; with a source that is not the API server it is the kubelet's own.
static struct sv hash_of(const struct pod_record_reader *r)
{
    if (r->mirror.len)
        return r->mirror;
    bool is_static = r->source.len && !sv_equals(r->source, SV("api"));
    return is_static ? r->hash : (struct sv){0};
}

int pod_record_finish(struct pod_record_reader *r, struct pod_record *out)
{
    struct pod_record *p = &r->record;
    if (r->arena->error)
        return r->arena->error;
    if (!p->name.len || !p->namespace_name.len)
        return -EBADMSG;
    sort_labels(p);
    name_deployment(p);
    p->config_hash = hash_of(r);
    *out = *p;
    return 0;
}
