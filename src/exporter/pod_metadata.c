// SPDX-License-Identifier: Apache-2.0
// A pod is found by "namespace/name" and, of each source, by its UIDs. It holds one block for each
// source that told of it; which of them counts is settled when somebody asks (best_of). What the
// index says of a UID is the pod that was told with it last.
#include "exporter/pod_metadata.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/map.h"
#include "exporter/pod_metadata_entry.h"

#define UID_TEXT_BYTES 129

struct pod {
    struct pod_metadata_entry *told[POD_METADATA_SOURCES];
    bool held;        // has rows of the kubelet's list
    const char *name; // in names, behind the namespace
    char names[];     // namespace, NUL, name, NUL
};

struct pod_metadata {
    const struct exporter_options *options;
    struct map pods;            // struct pod by "namespace/name"
    struct map by_uid, by_hash; // the same by a UID in lower case; by the hash of a static pod
    size_t bytes;               // of all entries
    size_t deleted;             // entries that wait for a prune
    uint32_t generation[POD_METADATA_SOURCES];
    uint64_t version, refused;
};

int pod_metadata_new(const struct exporter_options *options, struct pod_metadata **out)
{
    struct pod_metadata *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    size_t uids = (size_t)LIMIT_POD_METADATA_PODS * POD_METADATA_SOURCES;
    m->options = options;
    m->pods = MAP_INIT(LIMIT_POD_METADATA_PODS);
    m->by_uid = MAP_INIT(uids);
    m->by_hash = MAP_INIT(uids);
    *out = m;
    return 0;
}

static void pod_free(struct pod *pod)
{
    for (size_t i = 0; i < POD_METADATA_SOURCES; i++)
        free(pod->told[i]);
    free(pod);
}

void pod_metadata_free(struct pod_metadata *m)
{
    if (!m)
        return;
    size_t at = 0;
    void *pod;
    while (map_next(&m->pods, &at, NULL, &pod))
        pod_free(pod);
    map_deinit(&m->pods);
    map_deinit(&m->by_uid);
    map_deinit(&m->by_hash);
    free(m);
}

// --- Who counts ---

static bool is_live(const struct pod_metadata_entry *e)
{
    return e && !e->deleted;
}

static bool same_uid(const struct pod_metadata_entry *a, const struct pod_metadata_entry *b)
{
    const char *x = pod_metadata_entry_text(a, POD_METADATA_KUBELET_UID);
    return strcmp(x, pod_metadata_entry_text(b, POD_METADATA_KUBELET_UID)) == 0;
}

// The API server may know of a pod's successor before the kubelet is asked again.
static bool is_successor(const struct pod_metadata_entry *e, const struct pod_metadata_entry *of)
{
    return of->created_s > 0 && e->created_s > of->created_s && !same_uid(e, of);
}

static const struct pod_metadata_entry *best_of(const struct pod *pod)
{
    const struct pod_metadata_entry *kubelet = pod->told[POD_METADATA_KUBELET];
    const struct pod_metadata_entry *server = pod->told[POD_METADATA_API_SERVER];
    if (is_live(kubelet) && is_live(server))
        return is_successor(server, kubelet) ? server : kubelet;
    if (is_live(kubelet) || is_live(server))
        return is_live(kubelet) ? kubelet : server;
    if (kubelet || server)
        return kubelet ? kubelet : server;
    return pod->told[POD_METADATA_LOGS];
}

// What device series show: a static pod's UID there is its mirror pod's.
static const struct pod_metadata_entry *shown_of(const struct pod *pod)
{
    const struct pod_metadata_entry *best = best_of(pod);
    const struct pod_metadata_entry *server = pod->told[POD_METADATA_API_SERVER];
    if (!server || best == server || !same_uid(best, server))
        return best;
    const char *uid = pod_metadata_entry_text(server, POD_METADATA_UID);
    bool is_static = strcmp(uid, pod_metadata_entry_text(server, POD_METADATA_KUBELET_UID)) != 0;
    return is_static ? server : best;
}

// --- Index ---

static struct sv fold(struct sv uid, char out[UID_TEXT_BYTES])
{
    if (uid.len >= UID_TEXT_BYTES)
        return (struct sv){0};
    for (size_t i = 0; i < uid.len; i++)
        out[i] = (char)(uid.ptr[i] >= 'A' && uid.ptr[i] <= 'Z' ? uid.ptr[i] | 0x20 : uid.ptr[i]);
    return (struct sv){out, uid.len};
}

static int index_add(struct map *map, struct pod *pod, const struct pod_metadata_entry *e,
                     enum pod_metadata_text which)
{
    char text[UID_TEXT_BYTES];
    struct sv uid = fold(sv_from(pod_metadata_entry_text(e, which)), text);
    int r = uid.len ? map_put(map, uid, pod, NULL) : 0;
    return r == -E2BIG ? 0 : r; // it is found by its name alone
}

// Forgets a UID, unless another source says it of the pod, or another pod has it.
static void index_drop(struct map *map, const struct pod *pod, const struct pod_metadata_entry *e,
                       enum pod_metadata_text which)
{
    char text[UID_TEXT_BYTES];
    struct sv spoken = sv_from(pod_metadata_entry_text(e, which)), uid = fold(spoken, text);
    if (!uid.len || map_find(map, uid) != pod)
        return;
    for (size_t i = 0; i < POD_METADATA_SOURCES; i++) {
        const struct pod_metadata_entry *other = pod->told[i];
        if (other && sv_equals_nocase(sv_from(pod_metadata_entry_text(other, which)), spoken))
            return;
    }
    (void)map_remove(map, uid);
}

static void index_drop_entry(struct pod_metadata *m, const struct pod *pod,
                             const struct pod_metadata_entry *e)
{
    index_drop(&m->by_uid, pod, e, POD_METADATA_UID);
    index_drop(&m->by_hash, pod, e, POD_METADATA_KUBELET_UID);
}

static int index_add_entry(struct pod_metadata *m, struct pod *pod,
                           const struct pod_metadata_entry *e)
{
    int r = index_add(&m->by_uid, pod, e, POD_METADATA_UID);
    if (r == 0)
        r = index_add(&m->by_hash, pod, e, POD_METADATA_KUBELET_UID);
    if (r < 0)
        index_drop_entry(m, pod, e);
    return r;
}

// --- Telling ---

static struct sv key_of(struct buf *out, struct sv namespace_name, struct sv name)
{
    buf_add_sv(out, namespace_name);
    buf_add_char(out, '/');
    buf_add_sv(out, name);
    return out->error ? (struct sv){0} : buf_sv(out);
}

static struct pod *pod_new(struct sv namespace_name, struct sv name)
{
    struct pod *pod = calloc(1, sizeof(*pod) + namespace_name.len + name.len + 2);
    if (!pod)
        return NULL;
    memcpy(pod->names, namespace_name.ptr, namespace_name.len);
    memcpy(pod->names + namespace_name.len + 1, name.ptr, name.len);
    pod->name = pod->names + namespace_name.len + 1;
    return pod;
}

// The pod, made when there is none. 0, -ENOMEM, -E2BIG.
static int take_pod(struct pod_metadata *m, struct sv key, const struct pod_record *r,
                    struct pod **out)
{
    *out = map_find(&m->pods, key);
    if (*out)
        return 0;
    struct pod *pod = pod_new(r->namespace_name, r->name);
    if (!pod)
        return -ENOMEM;
    int result = map_put(&m->pods, key, pod, NULL);
    if (result < 0)
        pod_free(pod);
    else
        *out = pod;
    return result;
}

static void drop_if_empty(struct pod_metadata *m, struct sv key, struct pod *pod)
{
    for (size_t i = 0; i < POD_METADATA_SOURCES; i++)
        if (pod->told[i])
            return;
    (void)map_remove(&m->pods, key);
    pod_free(pod);
}

static size_t entry_bytes(const struct pod_metadata_entry *e)
{
    return sizeof(*e) + e->all_bytes;
}

// What a source said, no longer in the pod.
static void entry_free(struct pod_metadata *m, const struct pod *pod, struct pod_metadata_entry *e)
{
    index_drop_entry(m, pod, e);
    m->bytes -= entry_bytes(e);
    m->deleted -= e->deleted;
    free(e);
}

// The pod may be left with nothing.
static void drop_entry(struct pod_metadata *m, struct pod *pod, size_t source)
{
    struct pod_metadata_entry *e = TAKE_PTR(pod->told[source]);
    if (!e)
        return;
    entry_free(m, pod, e);
    m->version++;
}

static bool says_the_same(const struct pod_metadata_entry *a, const struct pod_metadata_entry *b,
                          bool to_a_page)
{
    size_t bytes = to_a_page ? a->news_bytes : a->all_bytes;
    return a->label_count == b->label_count && a->text_bytes == b->text_bytes &&
           bytes == (to_a_page ? b->news_bytes : b->all_bytes) && a->created_s == b->created_s &&
           memcmp(a->text, b->text, bytes) == 0;
}

// Puts e in the place of what the source said before.
static void replace(struct pod_metadata *m, struct pod *pod, size_t source,
                    struct pod_metadata_entry *e)
{
    struct pod_metadata_entry *old = pod->told[source];
    m->version += !old || !says_the_same(old, e, true);
    pod->told[source] = e;
    m->bytes += entry_bytes(e);
    if (old)
        entry_free(m, pod, old);
}

// 0; -E2BIG: there is no room; -ENOMEM.
static int put_entry(struct pod_metadata *m, struct sv key, const struct pod_record *record,
                     size_t source, struct pod_metadata_entry **e)
{
    struct pod *pod = map_find(&m->pods, key);
    const struct pod_metadata_entry *old = pod ? pod->told[source] : NULL;
    if (entry_bytes(*e) > LIMIT_POD_METADATA_BYTES - (m->bytes - (old ? entry_bytes(old) : 0)))
        return -E2BIG;
    int r = take_pod(m, key, record, &pod);
    if (r < 0)
        return r;
    r = index_add_entry(m, pod, *e);
    if (r == 0)
        replace(m, pod, source, TAKE_PTR(*e));
    drop_if_empty(m, key, pod);
    return r;
}

static void refuse(struct pod_metadata *m, struct sv key, size_t source)
{
    struct pod *pod = map_find(&m->pods, key);
    m->refused++;
    if (!pod)
        return;
    drop_entry(m, pod, source);
    drop_if_empty(m, key, pod);
}

static void revive(struct pod_metadata *m, struct pod_metadata_entry *e, uint32_t generation)
{
    m->version += e->deleted;
    m->deleted -= e->deleted;
    e->deleted = false;
    e->generation = generation;
}

int pod_metadata_put(struct pod_metadata *m, enum pod_metadata_source source,
                     const struct pod_record *record)
{
    char text[LIMIT_POD_KEY_BYTES];
    struct buf room = {.data = text, .cap = sizeof(text), .max = sizeof(text)}; // never grows
    struct sv key = key_of(&room, record->namespace_name, record->name);
    if (!key.len) {
        m->refused++;
        return 0;
    }
    cleanup(mem_freep) struct pod_metadata_entry *e = NULL;
    e = pod_metadata_entry_new(m->options, record);
    if (!e)
        return -ENOMEM;
    e->generation = m->generation[source];
    struct pod *pod = map_find(&m->pods, key);
    struct pod_metadata_entry *old = pod ? pod->told[source] : NULL;
    if (old && says_the_same(old, e, false)) { // most events tell of nothing that is kept
        old->same_name = e->same_name;
        old->over_budget = e->over_budget;
        revive(m, old, e->generation);
        return 0;
    }
    int r = put_entry(m, key, record, source, &e);
    if (r == -E2BIG) {
        refuse(m, key, source);
        return 0;
    }
    return r;
}

static void mark_deleted(struct pod_metadata *m, struct pod_metadata_entry *e)
{
    if (!is_live(e))
        return;
    e->deleted = true;
    m->deleted++;
    m->version++; // another source's may count now
}

void pod_metadata_begin(struct pod_metadata *m, enum pod_metadata_source source)
{
    m->generation[source]++;
}

static void delete_older(struct pod_metadata *m, enum pod_metadata_source source,
                         uint32_t generation)
{
    size_t at = 0;
    void *value;
    while (map_next(&m->pods, &at, NULL, &value)) {
        struct pod_metadata_entry *e = ((struct pod *)value)->told[source];
        if (e && e->generation != generation)
            mark_deleted(m, e);
    }
}

void pod_metadata_end(struct pod_metadata *m, enum pod_metadata_source source)
{
    delete_older(m, source, m->generation[source]);
}

void pod_metadata_forget(struct pod_metadata *m, enum pod_metadata_source source)
{
    delete_older(m, source, ++m->generation[source]);
}

void pod_metadata_delete(struct pod_metadata *m, enum pod_metadata_source source, struct sv key)
{
    struct pod *pod = map_find(&m->pods, key);
    if (pod)
        mark_deleted(m, pod->told[source]);
}

// --- Who is still listed ---

static struct pod *find(const struct pod_metadata *m, const char *namespace_name, const char *pod)
{
    char text[LIMIT_POD_KEY_BYTES];
    struct buf room = {.data = text, .cap = sizeof(text), .max = sizeof(text)};
    struct sv key = key_of(&room, sv_from(namespace_name), sv_from(pod));
    return key.len ? map_find(&m->pods, key) : NULL;
}

static void mark_held(struct pod_metadata *m, const struct pod_devices *rows)
{
    size_t at = 0;
    void *value;
    while (map_next(&m->pods, &at, NULL, &value))
        ((struct pod *)value)->held = false;
    for (size_t i = 0; rows && i < rows->count; i++) {
        const struct pod_device *row = &rows->rows[i], *before = i > 0 ? row - 1 : NULL;
        if (before && strcmp(before->pod, row->pod) == 0 &&
            strcmp(before->namespace_name, row->namespace_name) == 0)
            continue;
        struct pod *pod = find(m, row->namespace_name, row->pod);
        if (pod)
            pod->held = true;
    }
}

static bool drop_deleted(struct pod_metadata *m, struct pod *pod)
{
    bool any = false;
    for (size_t i = 0; i < POD_METADATA_SOURCES; i++) {
        if (!pod->told[i] || !pod->told[i]->deleted)
            continue;
        drop_entry(m, pod, i);
        any = true;
    }
    return any;
}

// One pod's; false: there is none.
static bool drop_one(struct pod_metadata *m)
{
    size_t at = 0;
    struct sv key;
    void *value;
    while (map_next(&m->pods, &at, &key, &value)) {
        struct pod *pod = value;
        if (pod->held || !drop_deleted(m, pod))
            continue;
        drop_if_empty(m, key, pod);
        return true;
    }
    return false;
}

void pod_metadata_prune(struct pod_metadata *m, const struct pod_devices *rows)
{
    if (m->deleted == 0)
        return;
    mark_held(m, rows);
    while (drop_one(m))
        ;
}

// --- Asking ---

const struct pod_metadata_entry *pod_metadata_find(const struct pod_metadata *m,
                                                   const char *namespace_name, const char *pod)
{
    const struct pod *found = find(m, namespace_name, pod);
    return found ? shown_of(found) : NULL;
}

// Which source told of the pod with this UID; the best first.
static const struct pod_metadata_entry *told_with(const struct pod *pod, struct sv uid)
{
    for (size_t i = POD_METADATA_SOURCES; i-- > 0;) {
        const struct pod_metadata_entry *e = pod->told[i];
        if (e &&
            (sv_equals_nocase(sv_from(pod_metadata_entry_text(e, POD_METADATA_UID)), uid) ||
             sv_equals_nocase(sv_from(pod_metadata_entry_text(e, POD_METADATA_KUBELET_UID)), uid)))
            return e;
    }
    return NULL;
}

static void find_container(const struct pod *pod, const char *id, struct pod_metadata_identity *out)
{
    out->container = "";
    out->init = false;
    for (size_t i = POD_METADATA_SOURCES; i-- > 0 && id[0] != '\0';)
        if (pod->told[i] &&
            pod_metadata_entry_find_container(pod->told[i], id, &out->container, &out->init))
            return;
}

bool pod_metadata_by_uid(const struct pod_metadata *m, const char *uid, const char *container_id,
                         struct pod_metadata_identity *out)
{
    char text[UID_TEXT_BYTES];
    struct sv key = fold(sv_from(uid), text);
    const struct pod *pod = key.len ? map_find(&m->by_uid, key) : NULL;
    if (!pod && key.len)
        pod = map_find(&m->by_hash, key); // later: anyone may claim a hash
    const struct pod_metadata_entry *e = pod ? told_with(pod, key) : NULL;
    if (!e)
        return false;
    out->namespace_name = pod->names;
    out->pod = pod->name;
    out->uid = pod_metadata_entry_text(e, POD_METADATA_KUBELET_UID);
    find_container(pod, container_id, out);
    return true;
}

static const char *best_text(const struct pod_metadata *m, const char *namespace_name,
                             const char *pod, enum pod_metadata_text which)
{
    const struct pod *found = find(m, namespace_name, pod);
    return found ? pod_metadata_entry_text(best_of(found), which) : "";
}

const char *pod_metadata_uid(const struct pod_metadata *m, const char *namespace_name,
                             const char *pod)
{
    return best_text(m, namespace_name, pod, POD_METADATA_KUBELET_UID);
}

const char *pod_metadata_phase(const struct pod_metadata *m, const char *namespace_name,
                               const char *pod)
{
    return best_text(m, namespace_name, pod, POD_METADATA_PHASE);
}

bool pod_metadata_owner(const struct pod_metadata *m, const char *namespace_name, const char *pod,
                        const char **kind, const char **name)
{
    *kind = best_text(m, namespace_name, pod, POD_METADATA_OWNER_KIND);
    *name = best_text(m, namespace_name, pod, POD_METADATA_OWNER_NAME);
    return (*name)[0] != '\0';
}

uint64_t pod_metadata_version(const struct pod_metadata *m)
{
    return m->version;
}

void pod_metadata_get_stats(const struct pod_metadata *m, struct pod_metadata_stats *out)
{
    *out = (struct pod_metadata_stats){.refused = m->refused};
    size_t at = 0;
    void *value;
    while (map_next(&m->pods, &at, NULL, &value)) {
        const struct pod *pod = value;
        const struct pod_metadata_entry *e = shown_of(pod);
        out->pods += e != pod->told[POD_METADATA_LOGS];
        out->same_name += e->same_name;
        out->over_budget += e->over_budget;
    }
}
