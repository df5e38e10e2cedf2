// SPDX-License-Identifier: Apache-2.0
// What a configuration makes of names: each metric name is matched against all selectors once and
// has its text ready; each way to extract metrics (which declarations, which of their dimension
// sets apply) is a rule with its text ready.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "agent/sinks/emf_internal.h"
#include "base/limits.h"
#include "codec/json.h"

bool emf_is_reserved(struct sv name)
{
    static const char *const reserved[] = {"CloudWatchMetrics", "Timestamp", "Version", "_aws"};
    for (size_t i = 0; i < ARRAY_SIZE(reserved); i++) {
        if (sv_equals(name, sv_from(reserved[i])))
            return true;
    }
    return false;
}

// The agent takes the cluster's name from the section that is not its Prometheus'.
static char *log_group_of(const struct cw_config *c, const char *cluster)
{
    if (c->log_group)
        return sv_dup(sv_from(c->log_group));
    const char *own = c->compat ? c->kubernetes_cluster_name : c->cluster_name;
    const char *name = own ? own : cluster;
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    buf_add_str(&text, c->in_ecs ? "/aws/ecs/containerinsights/" : "/aws/containerinsights/");
    buf_add_str(&text, name ? name : "undefined");
    buf_add_str(&text, "/prometheus");
    char *copy = text.error ? NULL : sv_dup(buf_sv(&text));
    buf_deinit(&text);
    return copy;
}

int emf_plan_new(struct cw_config *config, const char *cluster, struct emf_plan **out)
{
    struct emf_plan *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    *p = (struct emf_plan){
        .refs = 1,
        .config = cw_config_ref(config),
        .words = (config->declaration_count + 63) / 64,
        .extracts = !config->disable_metric_extraction,
        .drops_unmatched =
            config->unmatched == CW_UNMATCHED_DROP && !config->disable_metric_extraction,
    };
    p->log_group = log_group_of(config, cluster);
    p->cluster = cluster ? sv_dup(sv_from(cluster)) : NULL;
    if (!p->log_group || (cluster && !p->cluster)) {
        emf_plan_unref(p);
        return -ENOMEM;
    }
    *out = p;
    return 0;
}

void emf_plan_unref(struct emf_plan *p)
{
    if (!p || --p->refs)
        return;
    intern_deinit(&p->metrics);
    intern_deinit(&p->rules);
    cw_config_unref(p->config);
    free(p->cluster);
    free(p->log_group);
    free(p);
}

// --- Metrics ---

static const char *unit_of(const struct cw_config *c, struct sv metric)
{
    size_t low = 0, high = c->unit_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = sv_compare(c->units[middle].metric, metric);
        if (order == 0)
            return c->units[middle].unit;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void select_metric(const struct emf_plan *p, struct emf_metric *m, struct sv name)
{
    for (size_t i = 0; p->extracts && i < p->config->declaration_count; i++) {
        if (!cw_declaration_selects(&p->config->declarations[i], name))
            continue;
        m->selectors[i / 64] |= UINT64_C(1) << (i % 64);
        m->selected = true;
    }
}

static void add_definition(struct buf *out, const struct cw_config *c, struct sv shown,
                           const struct emf_metric_wanted *w)
{
    const char *unit = unit_of(c, w->name);
    buf_add_str(out, ",{\"Name\":");
    json_add_string(out, shown);
    if (unit || c->compat) {
        buf_add_str(out, ",\"Unit\":");
        json_add_string(out, sv_from(unit ? unit : ""));
    }
    buf_add_fmt(out, ",\"StorageResolution\":%u}", w->resolution);
}

// The text of b behind the structure's own bytes; where it is then.
static char *append_text(void *object, size_t bytes, const struct buf *b)
{
    char *text = (char *)object + bytes;
    memcpy(text, b->data, b->len);
    return text;
}

// e->scratch holds the key, its last part the name. The key, definition and field text are one
// piece.
static int metric_new(struct emf *e, const struct emf_metric_wanted *w, size_t name_at,
                      struct emf_metric **out)
{
    struct emf_plan *p = e->plan;
    struct buf *b = &e->scratch;
    size_t key_end = b->len, bytes = sizeof(struct emf_metric) + p->words * sizeof(uint64_t);
    // A copy: what is added behind it may move it.
    size_t name_len = key_end - name_at;
    const char *name = arena_dup(&e->arena, sv_sub(buf_sv(b), name_at, name_len));
    if (!name)
        return -ENOMEM;
    add_definition(b, p->config, (struct sv){name, name_len}, w);
    size_t definition_end = b->len;
    buf_add_char(b, ',');
    json_add_string(b, (struct sv){name, name_len});
    buf_add_char(b, ':');
    if (b->error)
        return emf_buf_failure(b);
    struct emf_metric *m = calloc(1, bytes + b->len);
    if (!m)
        return -ENOMEM;
    char *text = append_text(m, bytes, b);
    m->item.key = (struct sv){text, key_end};
    m->name = (struct sv){text + name_at, name_len};
    m->definition = (struct emf_text){text + key_end, (uint32_t)(definition_end - key_end)};
    m->field = (struct emf_text){text + definition_end, (uint32_t)(b->len - definition_end)};
    m->renamed = !sv_equals(m->name, w->name);
    select_metric(p, m, w->name);
    *out = m;
    return 0;
}

int emf_metric_get(struct emf *e, const struct emf_metric_wanted *wanted, struct emf_metric **out)
{
    struct emf_metric_wanted w = *wanted;
    // Telegraf's naming rule, which the agent inherited.
    if (e->plan->config->compat && sv_equals(w.name, SV("value")))
        w.name = SV("prometheus");
    buf_reset(&e->scratch);
    buf_add_char(&e->scratch, (char)w.resolution);
    buf_add_sv(&e->scratch, w.name);
    if (emf_is_reserved(w.name))
        buf_add_char(&e->scratch, '_');
    if (e->scratch.error)
        return emf_buf_failure(&e->scratch);
    struct intern_item *known = intern_ref(&e->plan->metrics, buf_sv(&e->scratch));
    if (known) {
        *out = container_of(known, struct emf_metric, item);
        return 0;
    }
    struct emf_metric *m = NULL;
    int r = metric_new(e, &w, 1, &m);
    if (r == 0)
        r = intern_add(&e->plan->metrics, &m->item);
    if (r < 0) {
        free(m);
        return r;
    }
    *out = m;
    return 0;
}

void emf_metric_unref(struct emf_plan *p, struct emf_metric *m)
{
    if (intern_unref(&p->metrics, &m->item))
        free(m);
}

// --- Rules ---

enum set_fit {
    SET_FITS,
    SET_LACKS_LABEL,
    SET_BAD_VALUE,
};

static size_t characters(struct sv s)
{
    size_t count = 0;
    for (size_t i = 0; i < s.len; i++)
        count += ((unsigned char)s.ptr[i] & 0xc0) != 0x80;
    return count;
}

static enum set_fit fit(const struct emf_group *g, const struct cw_dimension_set *set)
{
    enum set_fit result = SET_FITS;
    for (size_t i = 0; i < set->count; i++) {
        const struct emf_pair *pair = emf_group_find(g, set->names[i]);
        if (!pair)
            return SET_LACKS_LABEL;
        if (!g->plan->config->compat &&
            (pair->value.len == 0 || characters(pair->value) > LIMIT_EMF_DIMENSION_BYTES))
            result = SET_BAD_VALUE;
    }
    return result;
}

static bool same_set(const struct cw_dimension_set *a, const struct cw_dimension_set *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        if (!sv_equals(a->names[i], b->names[i]))
            return false;
    }
    return true;
}

struct rule_draft {
    const struct cw_dimension_set **sets;
    size_t count;
    uint32_t bad;
};

static void draft_add(struct rule_draft *d, const struct emf_group *g,
                      const struct cw_dimension_set *set)
{
    enum set_fit f = fit(g, set);
    if (f == SET_BAD_VALUE)
        d->bad++;
    if (f != SET_FITS)
        return;
    for (size_t i = 0; i < d->count; i++) {
        if (same_set(d->sets[i], set))
            return;
    }
    d->sets[d->count++] = set;
}

static int draft(struct emf *e, const struct emf_group *g, const uint64_t *declarations,
                 struct rule_draft *d)
{
    const struct cw_config *c = g->plan->config;
    size_t most = 0;
    for (size_t i = 0; i < c->declaration_count; i++) {
        if (declarations[i / 64] >> (i % 64) & 1)
            most += c->declarations[i].dimension_count;
    }
    d->sets = arena_alloc(&e->arena, (most + 1) * sizeof(struct cw_dimension_set *));
    if (!d->sets)
        return -ENOMEM;
    for (size_t i = 0; i < c->declaration_count; i++) {
        if (!(declarations[i / 64] >> (i % 64) & 1))
            continue;
        for (size_t k = 0; k < c->declarations[i].dimension_count; k++)
            draft_add(d, g, &c->declarations[i].dimensions[k]);
    }
    return 0;
}

static void add_directive(struct buf *out, const struct emf_group *g, const struct rule_draft *d)
{
    const char *ns = g->plan->config->metric_namespace;
    buf_add_str(out, ",{\"Namespace\":");
    json_add_string(out, sv_from(ns ? ns : ""));
    buf_add_str(out, ",\"Dimensions\":[");
    for (size_t i = 0; i < d->count; i++) {
        buf_add_str(out, i ? ",[" : "[");
        for (size_t k = 0; k < d->sets[i]->count; k++) {
            if (k)
                buf_add_char(out, ',');
            json_add_string(out, emf_group_find(g, d->sets[i]->names[k])->written);
        }
        buf_add_char(out, ']');
    }
    buf_add_str(out, "],\"Metrics\":");
}

// e->scratch holds the key: the declarations, the directive, how many sets are bad.
static int rule_new(struct emf *e, const struct rule_draft *d, struct sv directive,
                    struct emf_rule **out)
{
    size_t sets = d->count * sizeof(*d->sets);
    size_t bytes = sizeof(struct emf_rule) + sets;
    struct emf_rule *r = calloc(1, bytes + e->scratch.len);
    if (!r)
        return -ENOMEM;
    r->sets = (const struct cw_dimension_set **)(r + 1);
    memcpy(r->sets, d->sets, sets);
    char *text = append_text(r, bytes, &e->scratch);
    r->item.key = (struct sv){text, e->scratch.len};
    r->declarations = (const uint64_t *)(void *)text; // aligned: bytes is a multiple of 8
    r->set_count = d->count;
    r->directive =
        (struct emf_text){text + (directive.ptr - e->scratch.data), (uint32_t)directive.len};
    r->bad_sets = d->bad;
    *out = r;
    return 0;
}

static int rule_intern(struct emf *e, struct emf_group *g, const uint64_t *declarations,
                       struct emf_rule **out)
{
    struct emf_plan *p = g->plan;
    struct rule_draft d = {0};
    int r = draft(e, g, declarations, &d);
    if (r < 0)
        return r;
    buf_reset(&e->scratch);
    buf_add(&e->scratch, declarations, p->words * sizeof(uint64_t));
    size_t start = e->scratch.len;
    add_directive(&e->scratch, g, &d);
    size_t end = e->scratch.len;
    buf_add_u64(&e->scratch, d.bad);
    if (e->scratch.error)
        return emf_buf_failure(&e->scratch);
    struct intern_item *known = intern_ref(&p->rules, buf_sv(&e->scratch));
    if (known) {
        *out = container_of(known, struct emf_rule, item);
        return 0;
    }
    struct emf_rule *rule = NULL;
    r = rule_new(e, &d, sv_sub(buf_sv(&e->scratch), start, end - start), &rule);
    if (r == 0)
        r = intern_add(&p->rules, &rule->item);
    if (r < 0) {
        free(rule);
        return r;
    }
    *out = rule;
    return 0;
}

int emf_rule_order(const struct emf_rule *a, const struct emf_rule *b, size_t words)
{
    for (size_t i = 0; a != b && i < words; i++) {
        uint64_t differ = a->declarations[i] ^ b->declarations[i];
        if (differ)
            return a->declarations[i] & (differ & -differ) ? -1 : 1;
    }
    return 0;
}

static int keep_rule(struct emf_group *g, struct emf_rule *rule)
{
    if (g->rule_count == g->rule_capacity) {
        uint32_t capacity = g->rule_capacity ? g->rule_capacity * 2 : 1;
        struct emf_rule **more = reallocarray(g->rules, capacity, sizeof(*more));
        if (!more) {
            emf_rule_unref(g->plan, rule);
            return -ENOMEM;
        }
        g->rules = more;
        g->rule_capacity = capacity;
    }
    uint32_t at = g->rule_count++;
    for (; at && emf_rule_order(rule, g->rules[at - 1], g->plan->words) < 0; at--)
        g->rules[at] = g->rules[at - 1];
    g->rules[at] = rule;
    return 0;
}

int emf_rule_get(struct emf *e, struct emf_group *g, const struct emf_metric *m,
                 struct emf_rule **out)
{
    size_t bytes = g->plan->words * sizeof(uint64_t);
    uint64_t *declarations = arena_alloc(&e->arena, bytes + 1);
    if (!declarations)
        return -ENOMEM;
    for (size_t i = 0; i < g->plan->words; i++)
        declarations[i] = m->selectors[i] & g->matched[i];
    for (uint32_t i = 0; i < g->rule_count; i++) {
        if (memcmp(g->rules[i]->declarations, declarations, bytes) == 0) {
            *out = g->rules[i];
            return 0;
        }
    }
    struct emf_rule *rule = NULL;
    int r = rule_intern(e, g, declarations, &rule);
    if (r == 0)
        r = keep_rule(g, rule);
    if (r == 0)
        *out = rule;
    return r;
}

void emf_rule_unref(struct emf_plan *p, struct emf_rule *r)
{
    if (intern_unref(&p->rules, &r->item))
        free(r);
}
