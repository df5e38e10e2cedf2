// SPDX-License-Identifier: Apache-2.0
// From the labels of a series to its group: labels are added as the agent adds them, names that
// would clash in the event are changed, and what is left is compared as a list of interned pairs.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/sinks/emf_internal.h"
#include "base/limits.h"
#include "codec/json.h"

struct field {
    struct sv name, written, value;
};

// Everything in e->arena but the pairs' references.
struct draft {
    struct labels labels; // as declarations and placeholders see them
    struct field *fields; // as the event has them, by written name
    size_t count;
    void **key; // the plan, then the pairs
    size_t pairs;
};

// --- Labels ---

static int add_missing(struct labels *l, struct sv name, const char *value)
{
    if (!value || labels_has(l, name))
        return 0;
    return labels_set_borrowed(l, name, sv_from(value));
}

static int final_labels(struct emf *e, const struct sink_series *s, struct labels *l)
{
    const struct emf_plan *p = e->plan;
    int r = 0;
    labels_init(l, &e->arena);
    for (size_t i = 0; r == 0 && i < s->labels->count; i++)
        r = labels_set_borrowed(l, s->labels->items[i].name, s->labels->items[i].value);
    if (r == 0)
        r = add_missing(l, SV("ClusterName"), p->cluster);
    if (r == 0 && !labels_has(l, SV("job")))
        r = add_missing(l, SV("JobName"), "default");
    if (r == 0 && p->config->add_host)
        r = add_missing(l, SV("host"), e->hostname);
    if (r == 0)
        r = labels_set_borrowed(l, SV("prom_metric_type"), sv_from(parse_type_text(s->type)));
    return r;
}

// --- Names that clash ---

static bool is_taken(const struct draft *d, struct sv name, struct sv metric)
{
    if (sv_equals(name, metric) || labels_has(&d->labels, name))
        return true;
    for (size_t i = 0; i < d->count; i++) {
        if (sv_equals(d->fields[i].written, name))
            return true;
    }
    return false;
}

// The name with as many "_" behind it as make it free. Each is taken by a label at most, so few do.
static int rename_field(struct arena *a, const struct draft *d, struct sv metric, struct field *f)
{
    size_t most = f->name.len + d->labels.count + 2;
    char *name = arena_alloc(a, most);
    if (!name)
        return -ENOMEM;
    memcpy(name, f->name.ptr, f->name.len);
    struct sv candidate = {name, f->name.len};
    do {
        name[candidate.len++] = '_';
    } while (candidate.len < most && is_taken(d, candidate, metric));
    f->written = candidate;
    return 0;
}

static int by_written(const void *a, const void *b)
{
    return sv_compare(((const struct field *)a)->written, ((const struct field *)b)->written);
}

// With compat such a label is left out of the event, as the agent overwrites it.
static int make_fields(struct emf *e, struct draft *d, struct sv metric)
{
    bool compat = e->plan->config->compat, renamed = false;
    d->fields = arena_alloc(&e->arena, (d->labels.count + 1) * sizeof(*d->fields));
    if (!d->fields)
        return -ENOMEM;
    for (size_t i = 0; i < d->labels.count; i++) {
        struct label *l = &d->labels.items[i];
        struct field f = {l->name, l->name, l->value};
        bool reserved = emf_is_reserved(l->name);
        if (!compat && (reserved || sv_equals(l->name, metric))) {
            if (rename_field(&e->arena, d, metric, &f) < 0)
                return -ENOMEM;
            e->stats.renamed++;
            renamed = true;
        }
        if (!compat || !reserved)
            d->fields[d->count++] = f;
    }
    if (renamed)
        qsort(d->fields, d->count, sizeof(*d->fields), by_written);
    return 0;
}

// --- Pairs ---

static struct sv append_key_part(struct buf *b, struct sv s)
{
    size_t at = b->len;
    buf_add_sv(b, s);
    return (struct sv){(const char *)at, s.len}; // an offset until the text is in its place
}

static struct sv placed(const char *text, struct sv offset)
{
    return (struct sv){text + (size_t)offset.ptr, offset.len};
}

static int pair_new(struct emf *e, const struct field *f, struct emf_pair **out)
{
    struct buf *b = &e->scratch;
    uint32_t lengths[2] = {(uint32_t)f->name.len, (uint32_t)f->written.len};
    buf_reset(b);
    buf_add(b, lengths, sizeof(lengths));
    struct sv name = append_key_part(b, f->name);
    // Its own copy only where it differs.
    struct sv written = sv_equals(f->written, f->name) ? name : append_key_part(b, f->written);
    struct sv value = append_key_part(b, f->value);
    if (b->error)
        return emf_buf_failure(b);
    struct intern_item *known = intern_ref(&e->pairs, buf_sv(b));
    if (known) {
        *out = container_of(known, struct emf_pair, item);
        return 0;
    }
    size_t key = b->len;
    buf_add_char(b, ',');
    json_add_string(b, f->written);
    buf_add_char(b, ':');
    json_add_string(b, f->value);
    if (b->error)
        return emf_buf_failure(b);
    struct emf_pair *p = malloc(sizeof(*p) + b->len);
    if (!p)
        return -ENOMEM;
    char *text = (char *)(p + 1);
    memcpy(text, b->data, b->len);
    *p = (struct emf_pair){.item.key = {text, key},
                           .name = placed(text, name),
                           .written = placed(text, written),
                           .value = placed(text, value),
                           .json = {text + key, (uint32_t)(b->len - key)}};
    int r = intern_add(&e->pairs, &p->item);
    if (r < 0) {
        free(p);
        return r;
    }
    *out = p;
    return 0;
}

static void pairs_unref(struct emf *e, void **pairs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct emf_pair *p = pairs[i];
        if (intern_unref(&e->pairs, &p->item))
            free(p);
    }
}

static int make_key(struct emf *e, struct draft *d)
{
    d->key = arena_alloc(&e->arena, (d->count + 1) * sizeof(*d->key));
    if (!d->key)
        return -ENOMEM;
    d->key[0] = e->plan;
    for (size_t i = 0; i < d->count; i++) {
        struct emf_pair *p = NULL;
        int r = pair_new(e, &d->fields[i], &p);
        if (r < 0)
            return r;
        d->key[1 + d->pairs++] = p;
    }
    return 0;
}

// --- Groups ---

const struct emf_pair *emf_group_find(const struct emf_group *g, struct sv label)
{
    for (uint32_t i = 0; i < g->pair_count; i++) {
        if (sv_equals(g->pairs[i]->name, label))
            return g->pairs[i];
    }
    return NULL;
}

static int match_declarations(struct emf *e, struct emf_group *g, const struct labels *l)
{
    const struct emf_plan *p = g->plan;
    for (size_t i = 0; p->extracts && i < p->config->declaration_count; i++) {
        if (cw_declaration_matches(&p->config->declarations[i], l, &e->scratch))
            g->matched[i / 64] |= UINT64_C(1) << (i % 64);
        else if (e->scratch.error)
            return emf_buf_failure(&e->scratch);
    }
    return 0;
}

// Into e->scratch: the group's name, then the stream's from *stream_at on.
static int make_names(struct emf *e, const struct labels *l, size_t *stream_at)
{
    buf_reset(&e->scratch);
    emf_expand_name(&e->scratch, sv_from(e->plan->log_group), l);
    if (!e->plan->config->compat)
        emf_mend_name(&e->scratch, 0, false);
    *stream_at = e->scratch.len;
    emf_expand_name(&e->scratch, SV("{JobName}"), l);
    if (!e->plan->config->compat)
        emf_mend_name(&e->scratch, *stream_at, true);
    return e->scratch.error ? emf_buf_failure(&e->scratch) : 0;
}

static void link_group(struct emf_target *t, struct emf_group *g)
{
    g->target = t;
    g->previous = t->last;
    *(t->last ? &t->last->next : &t->first) = g;
    t->last = g;
}

static void unlink_group(struct emf_target *t, struct emf_group *g)
{
    *(g->previous ? &g->previous->next : &t->first) = g->next;
    *(g->next ? &g->next->previous : &t->last) = g->previous;
}

static int group_alloc(struct emf *e, const struct draft *d, struct emf_group **out)
{
    struct emf_plan *p = e->plan;
    size_t stream_at, words = p->words * sizeof(uint64_t), key = (d->pairs + 1) * sizeof(void *);
    int r = make_names(e, &d->labels, &stream_at);
    if (r < 0)
        return r;
    // The usual log group is the configuration's own, without placeholders.
    struct sv log_group = sv_from(p->log_group);
    size_t names_at =
        sv_equals(log_group, sv_sub(buf_sv(&e->scratch), 0, stream_at)) ? stream_at : 0;
    size_t names = e->scratch.len - names_at;
    struct emf_group *g = calloc(1, sizeof(*g) + words + key + names);
    if (!g)
        return -ENOMEM;
    g->matched = (uint64_t *)(g + 1);
    void **own_key = (void **)(g->matched + p->words);
    memcpy(own_key, d->key, key);
    g->item.key = (struct sv){(const char *)own_key, key};
    g->pairs = (struct emf_pair **)(own_key + 1);
    g->pair_count = (uint32_t)d->pairs;
    char *text = (char *)own_key + key;
    memcpy(text, e->scratch.data + names_at, names);
    g->log_group = names_at ? log_group : (struct sv){text, stream_at};
    g->log_stream = (struct sv){text + stream_at - names_at, e->scratch.len - stream_at};
    g->plan = p;
    r = match_declarations(e, g, &d->labels);
    if (r < 0)
        free(g);
    else
        *out = g;
    return r;
}

// The draft's references to pairs go to a new group; for one that is known they are given back.
static int find_or_add(struct emf_target *t, struct draft *d, struct emf_group **out)
{
    struct sv key = {(const char *)d->key, (d->pairs + 1) * sizeof(void *)};
    struct intern_item *known = intern_ref(&t->groups, key);
    if (known) {
        *out = container_of(known, struct emf_group, item);
        return 0;
    }
    struct emf_group *g = NULL;
    int r = group_alloc(t->emf, d, &g);
    if (r == 0)
        r = intern_add(&t->groups, &g->item);
    if (r < 0) {
        free(g);
        return r;
    }
    g->plan->refs++;
    link_group(t, g);
    d->pairs = 0;
    *out = g;
    return 0;
}

int emf_group_get(struct emf_target *t, const struct sink_series *s,
                  const struct emf_metric *metric, struct emf_group **out)
{
    struct emf *e = t->emf;
    struct draft d = {0};
    int r = final_labels(e, s, &d.labels);
    if (r == 0)
        r = make_fields(e, &d, metric->name);
    if (r == 0)
        r = make_key(e, &d);
    if (r == 0)
        r = find_or_add(t, &d, out);
    if (d.pairs)
        pairs_unref(e, d.key + 1, d.pairs);
    return r;
}

void emf_group_release(struct emf_group *g)
{
    struct emf_target *t = g->target;
    if (!intern_unref(&t->groups, &g->item))
        return;
    assert(!t->touched || g->scrape != t->scrape); // a series does not go amid its scrape
    unlink_group(t, g);
    pairs_unref(t->emf, (void **)g->pairs, g->pair_count);
    for (uint32_t i = 0; i < g->rule_count; i++)
        emf_rule_unref(g->plan, g->rules[i]);
    emf_plan_unref(g->plan);
    free(g->members);
    free(g->rules);
    free(g);
}
