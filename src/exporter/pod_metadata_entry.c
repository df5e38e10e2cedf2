// SPDX-License-Identifier: Apache-2.0
// One block of memory: what a page shows first (UID and labels), then the texts that others ask
// for. Labels come in byte order of their keys, so that which of two wins and where the budget ends
// does not hang on the order in which a server writes them; they are put in order of their names,
// as the page has them.
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "exporter/pod_metadata_entry.h"
#include "exporter/render.h"

#define RENAME_PREFIX "label_"
#define RESERVED_PREFIX "DCGM_" // labels that the counters file may ask for
#define UID_BYTES_MOST 128      // they have 36
#define NAME_BYTES_MOST 253     // of a Kubernetes object
#define INIT_MARK 'i'           // before an init container's name; others have APP_MARK
#define APP_MARK 'a'

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

static void choose_label(struct choice *c, const struct pod_record_label *label)
{
    if (!is_allowed(c->options, label->key))
        return;
    size_t most = label->key.len + sizeof("_" RENAME_PREFIX) + label->value.len + 1;
    if (c->count == LIMIT_POD_LABELS || most > LIMIT_POD_LABELS_BYTES - c->bytes) {
        c->over_budget++;
        return;
    }
    size_t start = c->names.len;
    add_name(c, label->key);
    struct chosen chosen = {(uint32_t)start, (uint32_t)(c->names.len - start), label->value};
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

// --- The block ---

static size_t text_bytes(struct sv s)
{
    return s.len + 1;
}

static char *put_text(char *at, struct sv text)
{
    if (text.len)
        memcpy(at, text.ptr, text.len);
    at[text.len] = '\0';
    return at + text.len + 1;
}

// What is longer than Kubernetes would let it be is not taken over.
static struct sv at_most(struct sv s, size_t bytes)
{
    return s.len <= bytes ? s : SV("");
}

static struct sv uid_of(struct sv uid)
{
    return at_most(uid, UID_BYTES_MOST);
}

static bool is_kept(const struct pod_record_container *c)
{
    return c->id.len && c->name.len <= NAME_BYTES_MOST;
}

// In the order of enum pod_metadata_text.
static void texts_of(const struct pod_record *pod, struct sv out[POD_METADATA_TEXTS])
{
    out[POD_METADATA_UID] = uid_of(pod->uid);
    out[POD_METADATA_KUBELET_UID] = uid_of(pod_record_kubelet_uid(pod));
    out[POD_METADATA_OWNER_KIND] = at_most(pod->owner_kind, NAME_BYTES_MOST);
    out[POD_METADATA_OWNER_NAME] = at_most(pod->owner_name, NAME_BYTES_MOST);
    out[POD_METADATA_PHASE] = at_most(pod->phase, NAME_BYTES_MOST);
}

static size_t container_bytes(const struct pod_record *pod)
{
    size_t bytes = 0;
    for (size_t i = 0; i < pod->container_count; i++)
        if (is_kept(&pod->containers[i]))
            bytes += 1 + text_bytes(pod->containers[i].name) + text_bytes(pod->containers[i].id);
    return bytes;
}

static void put_containers(struct pod_metadata_entry *e, char *at, const struct pod_record *pod)
{
    for (size_t i = 0; i < pod->container_count; i++) {
        const struct pod_record_container *c = &pod->containers[i];
        if (!is_kept(c))
            continue;
        *at++ = c->init ? INIT_MARK : APP_MARK;
        at = put_text(at, c->name);
        at = put_text(at, c->id);
        e->container_count++;
    }
}

static struct pod_metadata_entry *make_block(const struct choice *c, const struct pod_record *pod)
{
    struct sv shown_uid = c->options->flags.pod_uid ? uid_of(pod->uid) : SV("");
    struct sv texts[POD_METADATA_TEXTS];
    texts_of(pod, texts);
    size_t shown = text_bytes(shown_uid) + c->bytes, news = shown;
    for (int i = 0; i < POD_METADATA_PHASE; i++)
        news += text_bytes(texts[i]);
    size_t all = news + text_bytes(texts[POD_METADATA_PHASE]) + container_bytes(pod);
    struct pod_metadata_entry *e = malloc(sizeof(*e) + all);
    if (!e)
        return NULL;
    *e = (struct pod_metadata_entry){
        .label_count = (uint32_t)c->count,
        .text_bytes = (uint32_t)shown,
        .same_name = c->same_name,
        .over_budget = c->over_budget,
        .news_bytes = (uint32_t)news,
        .all_bytes = (uint32_t)all,
        .created_s = pod->created_s,
    };
    char *at = put_text(e->text, shown_uid);
    for (size_t i = 0; i < c->count; i++) {
        at = put_text(at, name_of(c, &c->labels[i]));
        at = put_text(at, c->labels[i].value);
    }
    for (int i = 0; i < POD_METADATA_TEXTS; i++)
        at = put_text(at, texts[i]);
    put_containers(e, at, pod);
    return e;
}

struct pod_metadata_entry *pod_metadata_entry_new(const struct exporter_options *options,
                                                  const struct pod_record *pod)
{
    struct choice *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->options = options;
    c->names = BUF_INIT(2 * LIMIT_POD_LABELS_BYTES);
    for (size_t i = 0; options->flags.pod_labels && i < pod->label_count; i++)
        choose_label(c, &pod->labels[i]);
    sort_by_name(c);
    struct pod_metadata_entry *e = c->names.error ? NULL : make_block(c, pod);
    buf_deinit(&c->names);
    free(c);
    return e;
}

const char *pod_metadata_entry_text(const struct pod_metadata_entry *e,
                                    enum pod_metadata_text which)
{
    const char *at = e->text + e->text_bytes;
    for (int i = 0; i < (int)which; i++)
        at += strlen(at) + 1;
    return at;
}

bool pod_metadata_entry_find_container(const struct pod_metadata_entry *e, const char *id,
                                       const char **name, bool *init)
{
    const char *at = pod_metadata_entry_text(e, POD_METADATA_PHASE);
    at += strlen(at) + 1;
    for (uint32_t i = 0; i < e->container_count; i++) {
        const char *found = at + 1, *its_id = found + strlen(found) + 1;
        if (strcmp(its_id, id) == 0) {
            *name = found;
            *init = *at == INIT_MARK;
            return true;
        }
        at = its_id + strlen(its_id) + 1;
    }
    return false;
}
