// SPDX-License-Identifier: Apache-2.0
// Both formats are first made into one small list, which the targets are then made of. Keys other
// than targets and labels are refused, as by Prometheus.
#include "agent/discover_document.h"

#include <errno.h>
#include <stdlib.h>

#include "base/arena.h"
#include "base/limits.h"
#include "codec/json.h"
#include "codec/yaml.h"

// A list of a document's groups; texts borrow the document.
struct item {
    struct sv *addresses;
    size_t address_count;
    struct label *labels;
    size_t label_count;
};

struct reader {
    const char *name;
    struct arena arena; // of items
    struct item *items;
    size_t count;
    size_t targets; // of all
    struct error *err;
};

static int no_memory(struct reader *r)
{
    return error_set_at(r->err, -ENOMEM, r->name, 0, 0, "out of memory");
}

static void *room(struct reader *r, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count ? count : 1, bytes, &total))
        return NULL;
    return arena_alloc(&r->arena, total);
}

// Any text but the empty one names a label, as in Prometheus 3.
static int check_label(struct reader *r, struct sv name, struct sv value, unsigned line,
                       unsigned column)
{
    if (name.len == 0 || !sv_is_utf8(name))
        return error_set_at(r->err, -EINVAL, r->name, line, column, "'%.*s' is not a label name",
                            SV_FMT(sv_cut(name, 64)));
    if (!sv_is_utf8(value))
        return error_set_at(r->err, -EINVAL, r->name, line, column,
                            "the value of label %.*s is not UTF-8", SV_FMT(sv_cut(name, 64)));
    return 0;
}

static int count_targets(struct reader *r, size_t more)
{
    if (more > LIMIT_SD_TARGETS - r->targets)
        return error_set_at(r->err, -EFBIG, r->name, 0, 0, "more than %u targets",
                            LIMIT_SD_TARGETS);
    r->targets += more;
    return 0;
}

static int start_items(struct reader *r, size_t count)
{
    r->items = room(r, count, sizeof(*r->items));
    return r->items ? 0 : no_memory(r);
}

// --- JSON ---

static int json_unexpected(struct reader *r, const struct json_node *n, const char *expected)
{
    return error_set_at(r->err, -EINVAL, r->name, n->line, n->column, "expected %s, found %s",
                        expected, json_kind_text(n->kind));
}

static int read_json_targets(struct reader *r, const struct json_node *n, struct item *item)
{
    if (n->kind == JSON_NULL)
        return 0;
    if (n->kind != JSON_ARRAY)
        return json_unexpected(r, n, "a list of addresses");
    int result = count_targets(r, n->count);
    if (result < 0)
        return result;
    item->addresses = room(r, n->count, sizeof(*item->addresses));
    if (!item->addresses)
        return no_memory(r);
    for (const struct json_node *t = n->first; t; t = t->next) {
        if (t->kind != JSON_STRING)
            return json_unexpected(r, t, "an address as a text");
        item->addresses[item->address_count++] = t->string;
    }
    return 0;
}

static int read_json_labels(struct reader *r, const struct json_node *n, struct item *item)
{
    if (n->kind == JSON_NULL)
        return 0;
    if (n->kind != JSON_OBJECT)
        return json_unexpected(r, n, "an object of labels");
    item->labels = room(r, n->count, sizeof(*item->labels));
    if (!item->labels)
        return no_memory(r);
    for (const struct json_node *l = n->first; l; l = l->next) {
        if (l->kind != JSON_STRING)
            return json_unexpected(r, l, "a text as the label's value");
        int result = check_label(r, l->key, l->string, l->line, l->column);
        if (result < 0)
            return result;
        item->labels[item->label_count++] = (struct label){l->key, l->string};
    }
    return 0;
}

static int read_json_item(struct reader *r, const struct json_node *n)
{
    struct item *item = &r->items[r->count++];
    int result = 0;
    *item = (struct item){0};
    if (n->kind != JSON_OBJECT)
        return json_unexpected(r, n, "an object with targets and labels");
    for (const struct json_node *m = n->first; m && result == 0; m = m->next) {
        if (sv_equals(m->key, SV("targets")))
            result = read_json_targets(r, m, item);
        else if (sv_equals(m->key, SV("labels")))
            result = read_json_labels(r, m, item);
        else
            result = error_set_at(r->err, -EINVAL, r->name, m->line, m->column,
                                  "unknown key '%.*s': expected targets or labels",
                                  SV_FMT(sv_cut(m->key, 64)));
    }
    return result;
}

static int read_json(struct reader *r, const struct json_node *root)
{
    if (root->kind != JSON_ARRAY)
        return json_unexpected(r, root, "a list of target groups");
    int result = start_items(r, root->count);
    for (const struct json_node *n = root->first; n && result == 0; n = n->next)
        result = read_json_item(r, n);
    return result;
}

// --- YAML ---

static int read_yaml_targets(struct reader *r, const struct yaml_node *n, struct item *item)
{
    int result = yaml_expect(n, YAML_SEQUENCE, r->name, r->err);
    if (result == 0)
        result = count_targets(r, n->count);
    if (result < 0)
        return result;
    item->addresses = room(r, n->count, sizeof(*item->addresses));
    if (!item->addresses)
        return no_memory(r);
    for (const struct yaml_node *t = n->first; t && result == 0; t = t->next)
        result = yaml_read_text(t, r->name, &item->addresses[item->address_count++], r->err);
    return result;
}

static int read_yaml_labels(struct reader *r, const struct yaml_node *n, struct item *item)
{
    int result = yaml_expect(n, YAML_MAPPING, r->name, r->err);
    if (result < 0)
        return result;
    item->labels = room(r, n->count, sizeof(*item->labels));
    if (!item->labels)
        return no_memory(r);
    for (const struct yaml_node *l = n->first; l && result == 0; l = l->next) {
        struct sv value = SV("");
        if (!yaml_is_null(l))
            result = yaml_read_text(l, r->name, &value, r->err);
        if (result == 0)
            result = check_label(r, l->key, value, l->key_line, l->key_column);
        item->labels[item->label_count++] = (struct label){l->key, value};
    }
    return result;
}

static int read_yaml_item(struct reader *r, const struct yaml_node *n)
{
    static const char *const keys[] = {"targets", "labels", NULL};
    struct item *item = &r->items[r->count++];
    *item = (struct item){0};
    if (yaml_is_null(n))
        return error_set_at(r->err, -EINVAL, r->name, n->line, n->column,
                            "expected targets and labels, found nothing");
    int result = yaml_check_keys(n, r->name, keys, r->err);
    const struct yaml_node *targets = yaml_find(n, "targets"), *labels = yaml_find(n, "labels");
    if (result == 0 && targets)
        result = read_yaml_targets(r, targets, item);
    if (result == 0 && labels)
        result = read_yaml_labels(r, labels, item);
    return result;
}

static int read_yaml(struct reader *r, const struct yaml_node *root)
{
    // An empty document reads as an empty mapping.
    if (yaml_is_null(root) || (root->kind == YAML_MAPPING && root->count == 0))
        return 0;
    int result = yaml_expect(root, YAML_SEQUENCE, r->name, r->err);
    if (result == 0)
        result = start_items(r, root->count);
    for (const struct yaml_node *n = root->first; n && result == 0; n = n->next)
        result = read_yaml_item(r, n);
    return result;
}

// --- Targets ---

// Label texts stand once for all targets of an item. A target's address is stronger than a label of
// that name; extra is stronger than all.
static int make_targets(struct target_group *g, const struct item *item, const struct label *extra)
{
    struct labels shared;
    labels_init(&shared, &g->arena);
    int r = 0;
    for (size_t i = 0; r == 0 && i < item->label_count; i++)
        r = labels_set(&shared, item->labels[i].name, item->labels[i].value);
    if (r == 0)
        r = labels_set(&shared, extra->name, extra->value);
    for (size_t i = 0; r == 0 && i < item->address_count; i++) {
        struct labels *l = target_group_add(g, shared.count + 1);
        r = l ? 0 : -ENOMEM;
        for (size_t k = 0; r == 0 && k < shared.count; k++)
            r = labels_set_borrowed(l, shared.items[k].name, shared.items[k].value);
        if (r == 0)
            r = labels_set(l, SV("__address__"), item->addresses[i]);
    }
    return r;
}

static int make_group(struct reader *r, const struct label *extra, struct target_group **out)
{
    struct target_group *g = target_group_new(r->targets, LIMIT_TARGET_GROUP_BYTES);
    int result = g ? 0 : -ENOMEM;
    for (size_t i = 0; result == 0 && i < r->count; i++)
        result = make_targets(g, &r->items[i], extra);
    if (result == 0) {
        *out = g;
        return 0;
    }
    bool large = g && (result == -E2BIG || g->arena.error == -EFBIG);
    target_group_unref(g);
    return large ? error_set_at(r->err, -EFBIG, r->name, 0, 0,
                                "labels of more than %u bytes, or more than %d of a target",
                                LIMIT_TARGET_GROUP_BYTES, LIMIT_LABELS)
                 : no_memory(r);
}

int discover_document_read_json(struct sv text, const char *name, const struct label *extra,
                                struct target_group **out, struct error *err)
{
    struct reader reader = {.name = name, .arena = ARENA_INIT(LIMIT_JSON_TREE_BYTES), .err = err};
    struct json_document *d;
    int r = json_parse(text, name, &d, err);
    if (r < 0)
        return r;
    r = read_json(&reader, json_root(d));
    if (r == 0)
        r = make_group(&reader, extra, out);
    arena_deinit(&reader.arena);
    json_document_free(d);
    return r;
}

int discover_document_read_yaml(struct sv text, const char *name, const struct label *extra,
                                struct target_group **out, struct error *err)
{
    struct reader reader = {.name = name, .arena = ARENA_INIT(LIMIT_JSON_TREE_BYTES), .err = err};
    struct yaml_document *d;
    int r = yaml_parse(text, name, &d, err);
    if (r < 0)
        return r;
    r = read_yaml(&reader, yaml_root(d));
    if (r == 0)
        r = make_group(&reader, extra, out);
    arena_deinit(&reader.arena);
    yaml_document_free(d);
    return r;
}
