// SPDX-License-Identifier: Apache-2.0
// A pod is one block of memory in a map by "namespace/name". Labels are chosen in byte order of
// their keys, so that which of two wins and where the budget ends does not hang on the order in
// which a server writes them; then they are put in order of their names, as the page has them.
#include "exporter/pod_metadata.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/map.h"
#include "exporter/render.h"

#define RENAME_PREFIX "label_"
#define RESERVED_PREFIX "DCGM_" // labels that the counters file may ask for
#define UID_BYTES_MOST 128      // they have 36

struct pod_metadata {
    const struct exporter_options *options;
    struct map pods; // struct pod_metadata_entry
    size_t bytes;    // of all entries
    size_t deleted;  // entries that wait for a prune
    uint64_t version, refused;
};

int pod_metadata_new(const struct exporter_options *options, struct pod_metadata **out)
{
    struct pod_metadata *m = calloc(1, sizeof(*m));
    if (!m)
        return -ENOMEM;
    m->options = options;
    m->pods = MAP_INIT(LIMIT_POD_METADATA_PODS);
    *out = m;
    return 0;
}

void pod_metadata_free(struct pod_metadata *m)
{
    if (!m)
        return;
    size_t at = 0;
    void *entry;
    while (map_next(&m->pods, &at, NULL, &entry))
        free(entry);
    map_deinit(&m->pods);
    free(m);
}

// --- Choosing labels ---

struct chosen {
    uint32_t name_at, name_len; // in names
    struct sv value;
};

struct choice {
    const struct exporter_options *options;
    struct buf names;
    struct chosen labels[LIMIT_POD_LABELS];
    size_t count;
    size_t bytes; // names and values with their NULs
    uint32_t same_name, over_budget;
};

static struct sv name_of(const struct choice *c, const struct chosen *label)
{
    return (struct sv){c->names.data + label->name_at, label->name_len};
}

static bool is_allowed(const struct exporter_options *o, struct sv key)
{
    for (size_t i = 0; i < o->pod_label_pattern_count; i++)
        if (regex_matches(o->pod_label_patterns[i], key))
            return true;
    return o->pod_label_pattern_count == 0;
}

// Appends the name that a key is shown under.
static void add_name(struct choice *c, struct sv key)
{
    size_t start = c->names.len;
    text_add_sanitised_name(&c->names, key);
    if (c->names.error)
        return;
    struct sv name = {c->names.data + start, c->names.len - start};
    if (!render_label_is_built_in(c->options, name) && !sv_starts_with(name, SV(RESERVED_PREFIX)) &&
        !sv_starts_with(name, SV("__"))) // Prometheus' own
        return;
    c->names.len = start;
    buf_add_str(&c->names, RENAME_PREFIX);
    text_add_sanitised_name(&c->names, key);
}

static bool is_taken(const struct choice *c, struct sv name)
{
    for (size_t i = 0; i < c->count; i++)
        if (sv_equals(name_of(c, &c->labels[i]), name))
            return true;
    return false;
}

static void choose_label(struct choice *c, const struct json_node *label)
{
    if (label->kind != JSON_STRING || !label->key.len || !is_allowed(c->options, label->key))
        return;
    size_t most = label->key.len + sizeof("_" RENAME_PREFIX) + label->string.len + 1;
    if (c->count == LIMIT_POD_LABELS || most > LIMIT_POD_LABELS_BYTES - c->bytes) {
        c->over_budget++;
        return;
    }
    size_t start = c->names.len;
    add_name(c, label->key);
    struct chosen chosen = {(uint32_t)start, (uint32_t)(c->names.len - start), label->string};
    if (c->names.error)
        return;
    if (is_taken(c, name_of(c, &chosen))) {
        c->names.len = start;
        c->same_name++;
        return;
    }
    c->labels[c->count++] = chosen;
    c->bytes += chosen.name_len + chosen.value.len + 2;
}

static int compare_keys(const void *a, const void *b)
{
    return sv_compare((*(const struct json_node *const *)a)->key,
                      (*(const struct json_node *const *)b)->key);
}

static int choose_labels(struct choice *c, const struct json_node *labels)
{
    if (!labels || labels->kind != JSON_OBJECT || labels->count == 0)
        return 0;
    cleanup(mem_freep) const struct json_node **sorted = calloc(labels->count, sizeof(*sorted));
    if (!sorted)
        return -ENOMEM;
    size_t count = 0;
    for (const struct json_node *n = labels->first; n && count < labels->count; n = n->next)
        sorted[count++] = n;
    qsort(sorted, count, sizeof(*sorted), compare_keys);
    for (size_t i = 0; i < count; i++)
        choose_label(c, sorted[i]);
    return c->names.error;
}

// Few, and mostly in order already.
static void sort_by_name(struct choice *c)
{
    for (size_t i = 1; i < c->count; i++) {
        struct chosen moved = c->labels[i];
        size_t to = i;
        for (; to > 0 && sv_compare(name_of(c, &c->labels[to - 1]), name_of(c, &moved)) > 0; to--)
            c->labels[to] = c->labels[to - 1];
        c->labels[to] = moved;
    }
}

// --- Entries ---

static char *put_text(char *at, struct sv text)
{
    if (text.len)
        memcpy(at, text.ptr, text.len);
    at[text.len] = '\0';
    return at + text.len + 1;
}

static struct pod_metadata_entry *entry_new(const struct choice *c, struct sv uid)
{
    size_t bytes = uid.len + 1 + c->bytes;
    struct pod_metadata_entry *e = malloc(sizeof(*e) + bytes);
    if (!e)
        return NULL;
    *e = (struct pod_metadata_entry){
        .label_count = (uint32_t)c->count,
        .text_bytes = (uint32_t)bytes,
        .same_name = c->same_name,
        .over_budget = c->over_budget,
    };
    char *at = put_text(e->text, uid);
    for (size_t i = 0; i < c->count; i++) {
        at = put_text(at, name_of(c, &c->labels[i]));
        at = put_text(at, c->labels[i].value);
    }
    return e;
}

static int entry_read(const struct pod_metadata *m, const struct json_node *pod,
                      struct pod_metadata_entry **out)
{
    const struct json_node *metadata = json_find(pod, "metadata");
    const struct json_node *uid = json_find(metadata, "uid");
    const struct exporter_flags *flags = &m->options->flags;
    bool has_uid = flags->pod_uid && uid && uid->kind == JSON_STRING;
    struct choice *c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->options = m->options;
    c->names = BUF_INIT(2 * LIMIT_POD_LABELS_BYTES);
    int r = flags->pod_labels ? choose_labels(c, json_find(metadata, "labels")) : 0;
    sort_by_name(c);
    if (r == 0) {
        *out = entry_new(c, has_uid && uid->string.len <= UID_BYTES_MOST ? uid->string : SV(""));
        r = *out ? 0 : -ENOMEM;
    }
    buf_deinit(&c->names);
    free(c);
    return r;
}

static size_t entry_bytes(const struct pod_metadata_entry *e)
{
    return sizeof(*e) + e->text_bytes;
}

static void forget(struct pod_metadata *m, struct pod_metadata_entry *e)
{
    m->bytes -= entry_bytes(e);
    m->deleted -= e->deleted;
    m->version++;
    free(e);
}

static bool shows_the_same(const struct pod_metadata_entry *a, const struct pod_metadata_entry *b)
{
    return a->label_count == b->label_count && a->text_bytes == b->text_bytes &&
           memcmp(a->text, b->text, a->text_bytes) == 0;
}

static void revive(struct pod_metadata *m, struct pod_metadata_entry *e,
                   const struct pod_metadata_entry *now)
{
    m->deleted -= e->deleted;
    e->deleted = false;
    e->same_name = now->same_name;
    e->over_budget = now->over_budget;
}

int pod_metadata_put(struct pod_metadata *m, struct sv key, const struct json_node *pod)
{
    cleanup(mem_freep) struct pod_metadata_entry *e = NULL;
    int r = entry_read(m, pod, &e);
    if (r < 0)
        return r;
    struct pod_metadata_entry *old = map_find(&m->pods, key);
    if (old && shows_the_same(old, e)) { // most events tell of a pod's state alone
        revive(m, old, e);
        return 0;
    }
    size_t others = m->bytes - (old ? entry_bytes(old) : 0);
    r = entry_bytes(e) > LIMIT_POD_METADATA_BYTES - others ? -E2BIG
                                                           : map_put(&m->pods, key, e, NULL);
    if (r == -ENOMEM)
        return r;
    if (r == -E2BIG) {
        m->refused++;
        (void)map_remove(&m->pods, key);
    } else {
        m->bytes += entry_bytes(TAKE_PTR(e));
        m->version++;
    }
    if (old)
        forget(m, old);
    return 0;
}

void pod_metadata_delete(struct pod_metadata *m, struct sv key)
{
    struct pod_metadata_entry *e = map_find(&m->pods, key);
    if (!e || e->deleted)
        return;
    e->deleted = true;
    m->deleted++;
}

// --- Who is still listed ---

static struct pod_metadata_entry *find(const struct pod_metadata *m, const char *namespace_name,
                                       const char *pod)
{
    char text[LIMIT_POD_KEY_BYTES];
    struct buf key = {.data = text, .cap = sizeof(text), .max = sizeof(text)}; // never grows
    buf_add_str(&key, namespace_name);
    buf_add_char(&key, '/');
    buf_add_str(&key, pod);
    return key.error ? NULL : map_find(&m->pods, buf_sv(&key));
}

static void mark_held(struct pod_metadata *m, const struct pod_devices *rows)
{
    size_t at = 0;
    void *value;
    while (map_next(&m->pods, &at, NULL, &value))
        ((struct pod_metadata_entry *)value)->held = false;
    for (size_t i = 0; rows && i < rows->count; i++) {
        const struct pod_device *row = &rows->rows[i], *before = i > 0 ? row - 1 : NULL;
        if (before && strcmp(before->pod, row->pod) == 0 &&
            strcmp(before->namespace_name, row->namespace_name) == 0)
            continue;
        struct pod_metadata_entry *e = find(m, row->namespace_name, row->pod);
        if (e)
            e->held = true;
    }
}

// One that is deleted and holds nothing; false: there is none.
static bool drop_one(struct pod_metadata *m)
{
    size_t at = 0;
    struct sv key;
    void *value;
    while (map_next(&m->pods, &at, &key, &value)) {
        const struct pod_metadata_entry *e = value;
        if (!e->deleted || e->held)
            continue;
        forget(m, map_remove(&m->pods, key));
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

const struct pod_metadata_entry *pod_metadata_find(const struct pod_metadata *m,
                                                   const char *namespace_name, const char *pod)
{
    return find(m, namespace_name, pod);
}

uint64_t pod_metadata_version(const struct pod_metadata *m)
{
    return m->version;
}

void pod_metadata_get_stats(const struct pod_metadata *m, struct pod_metadata_stats *out)
{
    *out = (struct pod_metadata_stats){.pods = m->pods.count, .refused = m->refused};
    size_t at = 0;
    void *value;
    while (map_next(&m->pods, &at, NULL, &value)) {
        const struct pod_metadata_entry *e = value;
        out->same_name += e->same_name;
        out->over_budget += e->over_budget;
    }
}
