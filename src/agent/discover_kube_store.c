// SPDX-License-Identifier: Apache-2.0
// Entries and edges. An entry of the primary kind needs others (its service, pods, nodes) and
// stands among their users; an entry that is needed may not be there yet. A change of a record
// makes its entry dirty, or its users; dirty entries wait in a queue, each once, so a burst of
// changes becomes one group. Where nothing is joined a record is dropped when it was told, and its
// hash stays to see the next change.
#include "agent/discover_kube_store.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "codec/hash.h"

struct edges {
    struct kube_entry **items;
    uint32_t count, capacity;
};

struct kube_entry {
    struct kube_entry *next_dirty;
    char *record; // NULL: not there, or dropped
    size_t record_bytes;
    struct hash128 hash; // of the record told last
    struct edges needs, users;
    uint32_t mark;
    enum kube_kind kind;
    bool present, queued;
    bool told;       // a group of it
    bool incomplete; // memory ran out: the same record is news
    unsigned short key_len;
    char key[];
};

static struct sv entry_key(const struct kube_entry *e)
{
    return (struct sv){e->key, e->key_len};
}

// --- Edges ---

static int edges_add(struct edges *e, struct kube_entry *entry)
{
    if (e->count == e->capacity) {
        uint32_t capacity = e->capacity ? e->capacity * 2 : 2;
        struct kube_entry **items =
            reallocarray((void *)e->items, capacity, sizeof(*items)); // NOLINT
        if (!items)
            return -ENOMEM;
        e->items = items;
        e->capacity = capacity;
    }
    e->items[e->count++] = entry;
    return 0;
}

static void edges_remove(struct edges *e, const struct kube_entry *entry)
{
    for (uint32_t i = 0; i < e->count; i++) {
        if (e->items[i] == entry) {
            e->items[i] = e->items[--e->count];
            return;
        }
    }
}

// --- Entries ---

static struct kube_entry *entry_get(struct kube_store *s, enum kube_kind kind, struct sv key)
{
    struct kube_entry *e = map_find(&s->entries[kind], key);
    if (e)
        return e;
    e = calloc(1, sizeof(*e) + key.len);
    if (!e)
        return NULL;
    e->kind = kind;
    e->key_len = (unsigned short)key.len;
    memcpy(e->key, key.ptr, key.len);
    if (map_put(&s->entries[kind], key, e, NULL) < 0) {
        free(e);
        return NULL;
    }
    return e;
}

static void record_drop(struct kube_store *s, struct kube_entry *e)
{
    s->record_bytes -= e->record ? e->record_bytes : 0;
    free(e->record);
    e->record = NULL;
    e->record_bytes = 0;
}

static void entry_free(struct kube_entry *e)
{
    free(e->record);
    free(e->needs.items);
    free(e->users.items);
    free(e);
}

// Of an entry that nothing speaks for any more.
static void entry_release(struct kube_store *s, struct kube_entry *e)
{
    if (e->present || e->queued || e->told || e->users.count)
        return;
    (void)map_remove(&s->entries[e->kind], entry_key(e));
    record_drop(s, e);
    entry_free(e);
}

static void unlink_needs(struct kube_store *s, struct kube_entry *e)
{
    for (uint32_t i = 0; i < e->needs.count; i++) {
        edges_remove(&e->needs.items[i]->users, e);
        entry_release(s, e->needs.items[i]);
    }
    e->needs.count = 0;
}

struct linking {
    struct kube_store *store;
    struct kube_entry *user;
};

static int link_need(void *user, enum kube_kind kind, struct sv key)
{
    struct linking *l = user;
    if (key.len > UINT16_MAX)
        return 0;
    struct kube_entry *need = entry_get(l->store, kind, key);
    if (!need)
        return -ENOMEM;
    if (need->mark == l->store->mark)
        return 0;
    need->mark = l->store->mark;
    int r = edges_add(&need->users, l->user);
    if (r == 0) {
        r = edges_add(&l->user->needs, need);
        if (r < 0)
            edges_remove(&need->users, l->user);
    }
    if (r < 0)
        entry_release(l->store, need);
    return r;
}

static int link_needs(struct kube_store *s, struct kube_entry *e)
{
    struct linking l = {s, e};
    unlink_needs(s, e);
    s->mark++;
    struct sv record = {e->record, e->record_bytes};
    return kube_targets_needs(e->kind, entry_key(e), record, &s->join, link_need, &l);
}

static void enqueue(struct kube_store *s, struct kube_entry *e)
{
    if (e->queued)
        return;
    e->queued = true;
    e->next_dirty = NULL;
    *s->dirty_end = e;
    s->dirty_end = &e->next_dirty;
}

static struct kube_entry *dequeue(struct kube_store *s)
{
    struct kube_entry *e = s->dirty;
    s->dirty = e->next_dirty;
    if (!s->dirty)
        s->dirty_end = &s->dirty;
    e->queued = false;
    return e;
}

static void mark_changed(struct kube_store *s, struct kube_entry *e)
{
    if (e->kind == s->primary)
        enqueue(s, e);
    for (uint32_t i = 0; i < e->users.count; i++)
        enqueue(s, e->users.items[i]);
}

// --- The store ---

static struct sv find(void *user, enum kube_kind kind, struct sv key)
{
    struct kube_store *s = user;
    const struct kube_entry *e = map_find(&s->entries[kind], key);
    if (!e || !e->present)
        return (struct sv){0};
    return (struct sv){e->record, e->record_bytes};
}

void kube_store_init(struct kube_store *s, enum kube_kind primary, bool attach_node,
                     const char *node_name)
{
    *s = (struct kube_store){
        .primary = primary,
        .keep = attach_node || primary == KUBE_KIND_ENDPOINTS || primary == KUBE_KIND_ENDPOINTSLICE,
        .join = {.attach_node = attach_node, .node_name = node_name, .find = find, .user = s},
        .seed = hash_seed(),
        .record = BUF_INIT(2 * LIMIT_KUBE_OBJECT_BYTES),
        .source = BUF_INIT(LIMIT_KUBE_SELECTOR_BYTES),
    };
    for (size_t i = 0; i < KUBE_KINDS; i++)
        s->entries[i] = MAP_INIT(4 * (size_t)LIMIT_KUBE_OBJECTS); // of several namespaces
    s->dirty_end = &s->dirty;
}

void kube_store_deinit(struct kube_store *s)
{
    for (size_t i = 0; i < KUBE_KINDS; i++) {
        size_t at = 0;
        void *e;
        while (map_next(&s->entries[i], &at, NULL, &e))
            entry_free(e);
        map_deinit(&s->entries[i]);
    }
    buf_deinit(&s->record);
    buf_deinit(&s->source);
}

static bool is_same(const struct kube_entry *e, struct sv record, struct hash128 hash)
{
    if (!e->present || e->incomplete)
        return false;
    if (e->record)
        return sv_equals((struct sv){e->record, e->record_bytes}, record);
    return e->hash.low == hash.low && e->hash.high == hash.high;
}

static int replace(struct kube_store *s, struct kube_entry *e, struct sv record)
{
    char *copy = malloc(record.len);
    if (!copy)
        return -ENOMEM;
    memcpy(copy, record.ptr, record.len);
    record_drop(s, e);
    e->record = copy;
    e->record_bytes = record.len;
    s->record_bytes += record.len;
    e->present = true;
    e->incomplete = false;
    return 0;
}

int kube_store_put(struct kube_store *s, enum kube_kind kind, struct sv key,
                   const struct json_node *object)
{
    if (key.len > UINT16_MAX)
        return -EFBIG;
    buf_reset(&s->record);
    kube_record_add(kind, object, &s->record);
    if (s->record.error)
        return s->record.error;
    struct sv record = buf_sv(&s->record);
    struct hash128 hash = hash_128(record, s->seed);
    struct kube_entry *e = entry_get(s, kind, key);
    if (!e)
        return -ENOMEM;
    if (is_same(e, record, hash))
        return 0;
    int r = replace(s, e, record);
    if (r < 0) {
        e->incomplete = true;
        entry_release(s, e);
        return r;
    }
    e->hash = hash;
    mark_changed(s, e);
    if (kind == s->primary && s->keep)
        r = link_needs(s, e);
    e->incomplete = r < 0;
    return r;
}

void kube_store_remove(struct kube_store *s, enum kube_kind kind, struct sv key)
{
    struct kube_entry *e = map_find(&s->entries[kind], key);
    if (!e || !e->present)
        return;
    e->present = false;
    record_drop(s, e);
    unlink_needs(s, e);
    mark_changed(s, e);
    entry_release(s, e);
}

bool kube_store_has_news(const struct kube_store *s)
{
    return s->dirty;
}

static const char *make_source(struct kube_store *s, const struct kube_entry *e)
{
    static const char *const names[KUBE_KINDS] = {
        [KUBE_KIND_POD] = "pod/",
        [KUBE_KIND_SERVICE] = "svc/",
        [KUBE_KIND_NODE] = "node/",
        [KUBE_KIND_ENDPOINTS] = "endpoints/",
        [KUBE_KIND_ENDPOINTSLICE] = "endpointslice/",
        [KUBE_KIND_INGRESS] = "ingress/",
    };
    buf_reset(&s->source);
    buf_add_str(&s->source, names[e->kind]);
    buf_add_sv(&s->source, entry_key(e));
    const char *text = buf_cstr(&s->source);
    return s->source.error ? NULL : text;
}

// The targets of an entry. 0 and a group or NULL (none); 1: as they were; -ENOMEM; -E2BIG.
static int build(struct kube_store *s, struct kube_entry *e, struct target_group **out)
{
    *out = NULL;
    if (!e->present)
        return 0;
    struct sv record = {e->record, e->record_bytes};
    int r = kube_targets_build(e->kind, entry_key(e), record, &s->join, out);
    if (r == 0 && (*out)->count == 0) {
        target_group_unref(*out);
        *out = NULL;
    }
    return r;
}

int kube_store_next(struct kube_store *s, const char **out_source, struct target_group **out_group)
{
    while (s->dirty) {
        struct kube_entry *e = s->dirty;
        struct target_group *group = NULL;
        const char *source = make_source(s, e);
        int r = source ? build(s, e, &group) : -ENOMEM;
        if (r == -ENOMEM)
            return r;
        (void)dequeue(s);
        bool is_news = r <= 0 && (group || e->told);
        if (r <= 0)
            e->told = group;
        if (!s->keep)
            record_drop(s, e);
        entry_release(s, e);
        if (!is_news && r != -E2BIG)
            continue;
        *out_source = source;
        *out_group = group;
        return r == -E2BIG ? r : 1;
    }
    return 0;
}
