// SPDX-License-Identifier: Apache-2.0
// emf_processor: which samples become metrics, with which dimensions and units. Declarations are
// normalised as the agent's exporter does (opentelemetry-collector-contrib, awsemfexporter,
// metric_declaration.go): what it drops is dropped here, with a warning that names the line; what
// stops it is a problem.
#include <errno.h>
#include <stdlib.h>

#include "agent/cwagent_config_internal.h"
#include "base/limits.h"

#define SET_NAMES 30        // CloudWatch's ceiling
#define SET_NAMES_COMPAT 10 // the agent's, from when it was CloudWatch's
#define NAME_CHARACTERS 250
#define NAMESPACE_CHARACTERS 255
#define CONFIG(member) offsetof(struct cw_values, config.member)

struct declaration_nodes {
    const struct json_node *source_labels, *matcher, *separator, *selectors, *dimensions;
};

static const struct cw_key declaration_keys[] = {
    {"source_labels", CW_NODE, offsetof(struct declaration_nodes, source_labels),
     .kind = "array of strings",
     .text = "Labels whose values are joined; a declaration without them is left out."},
    {"label_separator", CW_NODE, offsetof(struct declaration_nodes, separator), .kind = "string",
     .preset = "`;`", .text = "Stands between the values; always `;` with `--compat=cwagent`."},
    {"label_matcher", CW_NODE, offsetof(struct declaration_nodes, matcher),
     .kind = "string: a pattern", .preset = "`.*`",
     .text = "Looked for anywhere in the joined values."},
    {"metric_selectors", CW_NODE, offsetof(struct declaration_nodes, selectors),
     .kind = "array of strings: patterns",
     .text = "Looked for anywhere in the metric's name; one that is found is enough. A declaration "
             "without them is left out."},
    {"dimensions", CW_NODE, offsetof(struct declaration_nodes, dimensions),
     .kind = "array of arrays of strings",
     .text = "Sets of labels; each whose labels are all there becomes a metric. `[[]]` is the "
             "metric without dimensions. Sets of more than 30 labels (`--compat=cwagent`: 10) are "
             "left out."},
    {NULL},
};
const struct cw_section cw_declaration_section = {
    "logs.metrics_collected.prometheus.emf_processor.metric_declaration[]", declaration_keys};

// --- Texts ---

// What names a dimension or a label, and an array of them, in the arena.
static struct sv *read_texts(struct cw_reader *r, const struct json_node *n, size_t *out_count)
{
    *out_count = 0;
    if (!n || !cw_expect(r, n, JSON_ARRAY))
        return NULL;
    struct sv *items = cw_alloc(r, n->count, sizeof(*items));
    size_t index = 0;
    for (const struct json_node *item = n->first; item && items && !r->failure;
         item = item->next, index++) {
        size_t before = cw_path_enter_index(r, index);
        if (cw_expect(r, item, JSON_STRING))
            items[(*out_count)++] = sv_from(cw_copy(r, item->string));
        cw_path_leave(r, before);
    }
    return items;
}

static struct regex *compile(struct cw_reader *r, const struct json_node *n)
{
    struct error err = ERROR_INIT;
    struct regex *regex = NULL;
    int result = regex_new_within(&r->regexes, n->string, REGEX_SEARCH, &regex, &err);
    if (result == -ENOMEM)
        r->failure = result;
    else if (result < 0)
        cw_problem(r, n, "%s", err.text);
    return regex;
}

// --- Dimensions ---

static int compare_names(const void *a, const void *b)
{
    return sv_compare(*(const struct sv *)a, *(const struct sv *)b);
}

static void sort_names(struct cw_dimension_set *set)
{
    size_t kept = 0;
    if (set->count)
        qsort(set->names, set->count, sizeof(*set->names), compare_names);
    for (size_t i = 0; i < set->count; i++) {
        if (!kept || !sv_equals(set->names[kept - 1], set->names[i]))
            set->names[kept++] = set->names[i];
    }
    set->count = kept;
}

static bool sets_equal(const struct cw_dimension_set *a, const struct cw_dimension_set *b)
{
    bool equal = a->count == b->count;
    for (size_t i = 0; equal && i < a->count; i++)
        equal = sv_equals(a->names[i], b->names[i]);
    return equal;
}

// CloudWatch API, Dimension.
static void check_names(struct cw_reader *r, const struct json_node *n)
{
    size_t index = 0;
    for (const struct json_node *item = n->first; item; item = item->next, index++) {
        size_t before = cw_path_enter_index(r, index);
        size_t characters = cw_characters(item->string);
        if (item->kind == JSON_STRING && (!characters || characters > NAME_CHARACTERS))
            cw_problem(r, item, "expected a name of 1 to %d characters, found %zu", NAME_CHARACTERS,
                       characters);
        else if (item->kind == JSON_STRING && item->string.ptr[0] == ':')
            cw_unexpected(r, item, "a name that does not begin with a colon");
        cw_path_leave(r, before);
    }
}

static void read_set(struct cw_reader *r, const struct json_node *n, bool compat,
                     struct cw_declaration *d)
{
    struct cw_dimension_set set = {0};
    size_t most = compat ? SET_NAMES_COMPAT : SET_NAMES;
    set.names = read_texts(r, n, &set.count);
    if (!set.names)
        return;
    check_names(r, n);
    size_t given = set.count;
    sort_names(&set);
    // The agent counts duplicates, too.
    if ((compat ? given : set.count) > most)
        return cw_warning(r, n, "a set of %zu dimensions is left out: %zu at most",
                          compat ? given : set.count, most);
    for (size_t i = 0; i < d->dimension_count; i++) {
        if (sets_equal(&d->dimensions[i], &set))
            return;
    }
    d->dimensions[d->dimension_count++] = set;
}

static void read_dimensions(struct cw_reader *r, const struct json_node *n, bool compat,
                            struct cw_declaration *d)
{
    if (!n || !cw_expect(r, n, JSON_ARRAY))
        return;
    if (n->count > LIMIT_CW_DIMENSION_SETS)
        return cw_problem(r, n, "more than %d sets of dimensions", LIMIT_CW_DIMENSION_SETS);
    d->dimensions = cw_alloc(r, n->count, sizeof(*d->dimensions));
    size_t index = 0;
    for (const struct json_node *set = n->first; set && d->dimensions && !r->failure;
         set = set->next, index++) {
        size_t before = cw_path_enter_index(r, index);
        read_set(r, set, compat, d);
        cw_path_leave(r, before);
    }
}

// --- Declarations ---

void cw_declaration_deinit(struct cw_declaration *d)
{
    regex_free(d->matcher);
    for (size_t i = 0; i < d->selector_count; i++)
        regex_free(d->selectors[i]);
    *d = (struct cw_declaration){0};
}

static void read_selectors(struct cw_reader *r, const struct json_node *n, struct cw_values *v,
                           struct cw_declaration *d)
{
    if (!n || !cw_expect(r, n, JSON_ARRAY))
        return;
    v->selector_count += n->count;
    if (v->selector_count > LIMIT_CW_SELECTORS)
        return cw_problem(r, n, "more than %d selectors in all", LIMIT_CW_SELECTORS);
    d->selectors = cw_alloc(r, n->count, sizeof(struct regex *));
    d->selector_texts = cw_alloc(r, n->count, sizeof(*d->selector_texts));
    size_t index = 0;
    for (const struct json_node *item = n->first; item && !r->failure; item = item->next, index++) {
        size_t before = cw_path_enter_index(r, index);
        struct regex *regex = cw_expect(r, item, JSON_STRING) ? compile(r, item) : NULL;
        if (regex) {
            d->selector_texts[d->selector_count] = sv_from(cw_copy(r, item->string));
            d->selectors[d->selector_count++] = regex;
        }
        cw_path_leave(r, before);
    }
}

static void read_matcher(struct cw_reader *r, const struct json_node *n, struct cw_declaration *d)
{
    struct json_node any = {.kind = JSON_STRING, .string = SV(".*")};
    if (n && !cw_expect(r, n, JSON_STRING))
        return;
    const struct json_node *pattern = n ? n : &any;
    d->matcher_text = sv_from(cw_copy(r, pattern->string));
    if (pattern->string.len)
        d->matcher = compile(r, pattern);
}

static void read_separator(struct cw_reader *r, const struct json_node *n, bool compat,
                           struct cw_declaration *d)
{
    d->separator = SV(";");
    if (!n || !cw_expect(r, n, JSON_STRING) || !n->string.len || sv_equals(n->string, SV(";")))
        return;
    if (compat)
        return cw_warning(r, n,
                          "without effect with --compat=cwagent: the agent always joins with ;");
    d->separator = sv_from(cw_copy(r, n->string));
}

static void read_parts(struct cw_reader *r, const struct declaration_nodes *nodes,
                       struct cw_values *v, struct cw_declaration *d)
{
    bool compat = v->config.compat;
    size_t before = cw_path_enter(r, SV("source_labels"));
    d->source_labels = read_texts(r, nodes->source_labels, &d->source_label_count);
    cw_path_leave(r, before);
    before = cw_path_enter(r, SV("label_matcher"));
    read_matcher(r, nodes->matcher, d);
    cw_path_leave(r, before);
    before = cw_path_enter(r, SV("label_separator"));
    read_separator(r, nodes->separator, compat, d);
    cw_path_leave(r, before);
    before = cw_path_enter(r, SV("metric_selectors"));
    read_selectors(r, nodes->selectors, v, d);
    cw_path_leave(r, before);
    before = cw_path_enter(r, SV("dimensions"));
    read_dimensions(r, nodes->dimensions, compat, d);
    cw_path_leave(r, before);
}

// The agent passes over a declaration without one of these, without a word.
static bool is_whole(struct cw_reader *r, const struct json_node *n,
                     const struct declaration_nodes *nodes)
{
    const char *missing = NULL;
    if (!nodes->source_labels || !nodes->source_labels->count)
        missing = "source_labels";
    else if (!nodes->selectors || !nodes->selectors->count)
        missing = "metric_selectors";
    else if (nodes->matcher && !nodes->matcher->string.len)
        missing = "a label_matcher";
    if (missing)
        cw_warning(r, n, "a declaration without %s is left out", missing);
    else if (!nodes->dimensions || !nodes->dimensions->count)
        cw_warning(r, n, "a declaration without dimensions makes no metric");
    return !missing;
}

static unsigned line_of(const struct json_node *n)
{
    return n ? n->line : 0;
}

static void read_declaration(struct cw_reader *r, const struct json_node *n, struct cw_values *v)
{
    struct declaration_nodes nodes = {0};
    struct cw_declaration *d = &v->config.declarations[v->config.declaration_count];
    unsigned before = r->problems;
    if (!cw_expect(r, n, JSON_OBJECT))
        return;
    cw_object_read(r, n, &cw_declaration_section, &nodes);
    read_parts(r, &nodes, v, d);
    if (r->problems != before || r->failure || !is_whole(r, n, &nodes)) {
        cw_declaration_deinit(d);
        return;
    }
    d->file = cw_copy(r, sv_from(r->file));
    d->line = n->line;
    d->matcher_line = line_of(nodes.matcher);
    d->selectors_line = line_of(nodes.selectors);
    d->dimensions_line = line_of(nodes.dimensions);
    d->source_labels_line = line_of(nodes.source_labels);
    v->config.declaration_count++;
}

static void read_declarations(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    if (!cw_expect(r, n, JSON_ARRAY))
        return;
    if (n->count > LIMIT_CW_DECLARATIONS)
        return cw_problem(r, n, "more than %d declarations", LIMIT_CW_DECLARATIONS);
    v->config.declarations = cw_alloc(r, n->count, sizeof(*v->config.declarations));
    size_t index = 0;
    for (const struct json_node *item = n->first; item && !r->failure; item = item->next, index++) {
        size_t before = cw_path_enter_index(r, index);
        read_declaration(r, item, v);
        cw_path_leave(r, before);
    }
}

// --- Namespace and units ---

// CloudWatch API, PutMetricData: Namespace.
static void read_namespace(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    char *text = NULL;
    if (!cw_text_read(r, n, 1, NAMESPACE_CHARACTERS, &text))
        return;
    if (sv_starts_with(n->string, SV("AWS/")) || text[0] == ':')
        return cw_unexpected(r, n, "a namespace that begins with neither AWS/ nor a colon");
    v->config.metric_namespace = text;
}

const char *cw_unit_find(struct sv name)
{
    static const char *const units[] = {
        "Seconds",
        "Microseconds",
        "Milliseconds",
        "Bytes",
        "Kilobytes",
        "Megabytes",
        "Gigabytes",
        "Terabytes",
        "Bits",
        "Kilobits",
        "Megabits",
        "Gigabits",
        "Terabits",
        "Percent",
        "Count",
        "Bytes/Second",
        "Kilobytes/Second",
        "Megabytes/Second",
        "Gigabytes/Second",
        "Terabytes/Second",
        "Bits/Second",
        "Kilobits/Second",
        "Megabits/Second",
        "Gigabits/Second",
        "Terabits/Second",
        "Count/Second",
        "None",
    };
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        if (sv_equals(name, sv_from(units[i])))
            return units[i];
    }
    return NULL;
}

static int compare_units(const void *a, const void *b)
{
    return sv_compare(((const struct cw_unit *)a)->metric, ((const struct cw_unit *)b)->metric);
}

static void read_unit(struct cw_reader *r, const struct json_node *n, struct cw_config *c)
{
    char *text = NULL;
    if (!cw_text_read(r, n, 1, 256, &text))
        return;
    const char *unit = cw_unit_find(n->string);
    if (!unit)
        return cw_warning(r, n, "CloudWatch has no unit '%.64s': the metric has none", text);
    c->units[c->unit_count++] = (struct cw_unit){sv_from(cw_copy(r, n->key)), unit};
}

static void read_units(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_config *c = &((struct cw_values *)values)->config;
    if (!cw_expect(r, n, JSON_OBJECT))
        return;
    if (n->count > LIMIT_CW_UNITS)
        return cw_problem(r, n, "more than %u units", LIMIT_CW_UNITS);
    c->units = cw_alloc(r, n->count, sizeof(*c->units));
    for (const struct json_node *unit = n->first; unit && !r->failure; unit = unit->next) {
        size_t before = cw_path_enter(r, unit->key);
        read_unit(r, unit, c);
        cw_path_leave(r, before);
    }
    if (c->unit_count && !r->failure)
        qsort(c->units, c->unit_count, sizeof(*c->units), compare_units);
}

// --- The section ---

static const struct cw_key emf_keys[] = {
    {"metric_namespace", CW_CUSTOM, .custom = read_namespace,
     .kind = "string, 1 to 255 characters, not beginning with AWS/",
     .preset = "`ContainerInsights/Prometheus` in a container, with `ECS/` before it on ECS, else "
               "`CWAgent/Prometheus`",
     .text = "The namespace of the metrics."},
    {"metric_unit", CW_CUSTOM, .custom = read_units, .kind = "object of strings",
     .text = "Units by the exact names of metrics. One that CloudWatch does not know is left out."},
    {"metric_declaration", CW_CUSTOM, .custom = read_declarations, .kind = "array of objects",
     .text = "What becomes a metric: each declaration that matches adds its dimensions."},
    {"metric_declaration_dedup", CW_BOOL, CW_NOWHERE, .kind = "boolean"},
    {NULL},
};
const struct cw_section cw_emf_section = {"logs.metrics_collected.prometheus.emf_processor",
                                          emf_keys};

void cw_emf_read(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    v->config.has_emf_processor = true;
    cw_object_read(r, n, &cw_emf_section, values);
}

// --- Matching ---

bool cw_declaration_matches(const struct cw_declaration *d, const struct labels *l,
                            struct buf *scratch)
{
    buf_reset(scratch);
    for (size_t i = 0; i < d->source_label_count; i++) {
        if (i)
            buf_add_sv(scratch, d->separator);
        buf_add_sv(scratch, labels_get(l, d->source_labels[i]));
    }
    return !scratch->error && regex_matches(d->matcher, buf_sv(scratch));
}

bool cw_declaration_selects(const struct cw_declaration *d, struct sv metric)
{
    for (size_t i = 0; i < d->selector_count; i++) {
        if (regex_matches(d->selectors[i], metric))
            return true;
    }
    return false;
}
