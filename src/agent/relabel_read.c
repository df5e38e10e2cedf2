// SPDX-License-Identifier: Apache-2.0
// A rule is read by its table of keys and held to the rules of its action; then its templates are
// taken apart. The default regular expression "(.*)" is never compiled. Which key goes with which
// action is Prometheus' own.
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#include "agent/config_reader.h"
#include "agent/relabel_internal.h"
#include "base/limits.h"

static const struct action {
    const char *name;
    bool needs_target;
    bool only_sources_and_target;
    bool only_regex;
} actions[ACTION_COUNT] = {
    [ACTION_REPLACE] = {"replace", .needs_target = true},
    [ACTION_KEEP] = {"keep"},
    [ACTION_DROP] = {"drop"},
    [ACTION_KEEPEQUAL] = {"keepequal", .needs_target = true, .only_sources_and_target = true},
    [ACTION_DROPEQUAL] = {"dropequal", .needs_target = true, .only_sources_and_target = true},
    [ACTION_HASHMOD] = {"hashmod", .needs_target = true},
    [ACTION_LABELMAP] = {"labelmap"},
    [ACTION_LABELDROP] = {"labeldrop", .only_regex = true},
    [ACTION_LABELKEEP] = {"labelkeep", .only_regex = true},
    [ACTION_LOWERCASE] = {"lowercase", .needs_target = true},
    [ACTION_UPPERCASE] = {"uppercase", .needs_target = true},
};

// As it stands in the file.
struct rule_text {
    enum relabel_action action;
    struct config_list source_labels;
    const char *separator, *replacement, *target_label; // never NULL
    const struct yaml_node *separator_node, *replacement_node, *target_node, *modulus_node,
        *regex_node; // NULL: not given
    uint64_t modulus;
    struct regex *regex; // owned; NULL: the default
};

static void read_action(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct rule_text *t = section;
    if (n->kind != YAML_SCALAR || yaml_is_null(n))
        return config_unexpected(r, n, "an action");
    struct sv_guess guess = sv_guess_start(n->scalar);
    for (size_t i = 0; i < ACTION_COUNT; i++) {
        if (sv_equals_nocase(n->scalar, sv_from(actions[i].name))) {
            t->action = (enum relabel_action)i;
            return;
        }
        sv_guess_offer(&guess, sv_from(actions[i].name));
    }
    config_problem(r, n, "unknown relabel action '%.64s'%s%.*s%s", n->scalar.ptr,
                   guess.best.len ? " (did you mean '" : "", SV_FMT(guess.best),
                   guess.best.len ? "'?)" : "");
}

// A text key; a null one is the empty text, as Prometheus reads it.
static void read_text(struct config_reader *r, const struct yaml_node *n, const char **out,
                      const struct yaml_node **out_node)
{
    char *text = NULL;
    *out_node = n;
    if (yaml_is_null(n))
        *out = "";
    else if (config_read_text(r, n, &text))
        *out = text;
}

static void read_separator(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct rule_text *t = section;
    read_text(r, n, &t->separator, &t->separator_node);
}

static void read_replacement(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct rule_text *t = section;
    read_text(r, n, &t->replacement, &t->replacement_node);
}

static void read_target(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct rule_text *t = section;
    read_text(r, n, &t->target_label, &t->target_node);
}

static void read_modulus(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct rule_text *t = section;
    t->modulus_node = n;
    (void)config_read_count(r, n, &t->modulus);
}

static void read_regex(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct rule_text *t = section;
    struct error err = ERROR_INIT;
    if (n->kind != YAML_SCALAR)
        return config_unexpected(r, n, "a regular expression");
    t->regex_node = n;
    struct sv pattern = yaml_is_null(n) ? SV("") : n->scalar;
    if (sv_equals(pattern, SV("(.*)")))
        return;
    int result = regex_new_within(&r->regexes, pattern, REGEX_FULL, &t->regex, &err);
    if (result == -ENOMEM)
        r->failure = result;
    else if (result < 0)
        config_problem(r, n, "%s", err.text);
}

static const struct config_key rule_keys[] = {
    {"source_labels", CONFIG_LIST, offsetof(struct rule_text, source_labels)},
    {"separator", CONFIG_CUSTOM, 0, read_separator},
    {"regex", CONFIG_CUSTOM, 0, read_regex},
    {"modulus", CONFIG_CUSTOM, 0, read_modulus},
    {"target_label", CONFIG_CUSTOM, 0, read_target},
    {"replacement", CONFIG_CUSTOM, 0, read_replacement},
    {"action", CONFIG_CUSTOM, 0, read_action},
    {NULL},
};

// Whether references filled in can make a label name of it. The pattern is Prometheus' for legacy
// names.
static bool makes_label_name(struct sv s, bool legacy)
{
    if (!legacy || relabel_is_label_name(s, legacy))
        return s.len > 0;
    static const char pattern[] = "^(?:(?:[a-zA-Z_]|\\$(?:\\{\\w+\\}|\\w+))+\\w*)+$";
    struct regex *regex = NULL;
    bool good = regex_new(SV(pattern), REGEX_SEARCH, &regex, NULL) == 0 && regex_matches(regex, s);
    regex_free(regex);
    return good;
}

static void check_names(struct config_reader *r, const struct yaml_node *n,
                        const struct rule_text *t, bool legacy)
{
    const struct action *a = &actions[t->action];
    struct sv target = sv_from(t->target_label), replacement = sv_from(t->replacement);
    const struct yaml_node *item = t->source_labels.node ? t->source_labels.node->first : NULL;
    for (; item; item = item->next) {
        if (item->kind == YAML_SCALAR &&
            !relabel_is_label_name(yaml_is_null(item) ? SV("") : item->scalar, legacy))
            config_problem(r, item, "'%.64s' is not a label name", item->scalar.ptr);
    }
    if (a->needs_target && !target.len)
        config_problem(r, t->target_node ? t->target_node : n, "%s needs a target_label", a->name);
    else if (a->needs_target &&
             !(t->action == ACTION_REPLACE ? makes_label_name : relabel_is_label_name)(target,
                                                                                       legacy))
        config_problem(r, t->target_node, "target_label: '%.64s' is not a label name",
                       t->target_label);
    if (t->action == ACTION_LABELMAP && !makes_label_name(replacement, legacy))
        config_problem(r, t->replacement_node ? t->replacement_node : n,
                       "replacement: '%.64s' can make no label name", t->replacement);
}

static void refuse_key(struct config_reader *r, const struct yaml_node *n,
                       const struct rule_text *t)
{
    const struct action *a = &actions[t->action];
    config_problem(r, n, "%s: %s takes %s and no other key", n->key.ptr, a->name,
                   a->only_regex ? "a regex" : "source_labels, a target_label");
}

// Keys that say no more than the default are let pass, as Prometheus does; but a regex is one more.
static void check_keys(struct config_reader *r, const struct yaml_node *n,
                       const struct rule_text *t)
{
    const struct action *a = &actions[t->action];
    bool folding = t->action == ACTION_LOWERCASE || t->action == ACTION_UPPERCASE;
    bool other_replacement = !sv_equals(sv_from(t->replacement), SV("$1"));
    if (t->action == ACTION_HASHMOD && t->modulus == 0)
        config_problem(r, t->modulus_node ? t->modulus_node : n, "hashmod needs a modulus above 0");
    if (folding && other_replacement)
        config_problem(r, t->replacement_node, "replacement: %s takes none", a->name);
    if (!a->only_regex && !a->only_sources_and_target)
        return;
    if (t->modulus)
        refuse_key(r, t->modulus_node, t);
    if (other_replacement)
        refuse_key(r, t->replacement_node, t);
    if (!sv_equals(sv_from(t->separator), SV(";")))
        refuse_key(r, t->separator_node, t);
    if (a->only_sources_and_target && t->regex_node)
        refuse_key(r, t->regex_node, t);
    if (a->only_regex && t->source_labels.node)
        refuse_key(r, t->source_labels.node, t);
    if (a->only_regex && *t->target_label)
        refuse_key(r, t->target_node, t);
}

static void read_template(struct config_reader *r, const struct yaml_node *n, const char *text,
                          const struct regex *regex, struct relabel_template *out)
{
    int result = relabel_template_read(sv_from(text), regex, r->arena, out);
    if (result == -E2BIG)
        config_problem(r, n, "refers to a group beyond %d", REGEX_GROUPS_MAX - 1);
    else if (result < 0)
        r->failure = result;
}

static void build_rule(struct config_reader *r, const struct yaml_node *n, struct rule_text *t,
                       struct relabel_rule *out)
{
    const struct config_list *sources = &t->source_labels;
    *out = (struct relabel_rule){
        .action = t->action,
        .sources = config_alloc(r, sources->count, sizeof(struct sv)),
        .source_count = sources->count,
        .separator = sv_from(t->separator),
        .target_name = sv_from(t->target_label),
        .modulus = t->modulus,
        .regex = TAKE_PTR(t->regex),
    };
    for (size_t i = 0; out->sources && i < sources->count; i++)
        out->sources[i] = sv_from(sources->items[i]);
    const struct yaml_node *target = t->target_node ? t->target_node : n;
    const struct yaml_node *replacement = t->replacement_node ? t->replacement_node : n;
    read_template(r, target, t->target_label, out->regex, &out->target);
    read_template(r, replacement, t->replacement, out->regex, &out->replacement);
    out->groups =
        out->target.groups > out->replacement.groups ? out->target.groups : out->replacement.groups;
}

static void read_rule(struct config_reader *r, const struct yaml_node *n, bool legacy_names,
                      struct relabel_rule *out)
{
    if (yaml_is_null(n))
        return config_problem(r, n, "an empty rule");
    struct rule_text t = {.separator = ";", .replacement = "$1", .target_label = ""};
    unsigned before = r->problems;
    config_read_section(r, n, rule_keys, &t);
    if (r->problems == before && !r->failure) {
        check_names(r, n, &t, legacy_names);
        check_keys(r, n, &t);
    }
    if (r->problems == before && !r->failure)
        build_rule(r, n, &t, out);
    out->legacy_names = legacy_names;
    regex_free(t.regex);
}

// Into rules of their own arena, whatever the reader's is.
static void read_rules(struct config_reader *r, const struct yaml_node *node, bool legacy_names,
                       struct relabel_rules *rules)
{
    struct arena *outer = r->arena;
    r->arena = &rules->arena;
    rules->rules = config_alloc(r, node->count, sizeof(*rules->rules));
    for (const struct yaml_node *n = node->first; n && !r->failure; n = n->next)
        read_rule(r, n, legacy_names, &rules->rules[rules->count++]);
    r->arena = outer;
}

struct relabel_rules *relabel_read(struct config_reader *r, const struct yaml_node *node,
                                   bool legacy_names)
{
    static const struct yaml_node none = {.kind = YAML_SEQUENCE};
    if (!node || yaml_is_null(node))
        node = &none;
    if (!config_expect(r, node, YAML_SEQUENCE, "a list of rules"))
        return NULL;
    if (node->count > LIMIT_RELABEL_RULES) {
        config_problem(r, node, "more than %u rules", LIMIT_RELABEL_RULES);
        return NULL;
    }
    struct relabel_rules *rules = calloc(1, sizeof(*rules));
    if (!rules) {
        r->failure = -ENOMEM;
        return NULL;
    }
    rules->arena = ARENA_INIT(LIMIT_RELABEL_BYTES);
    unsigned before = r->problems;
    read_rules(r, node, legacy_names, rules);
    if (r->failure == -EFBIG) { // that of the rules' arena; the reader's is as it was
        r->failure = 0;
        config_problem(r, node, "rules of more than %u bytes", LIMIT_RELABEL_BYTES);
    }
    if (r->problems == before && !r->failure)
        return rules;
    relabel_free(rules);
    return NULL;
}

int relabel_parse(const struct yaml_node *node, const char *file, struct relabel_rules **out,
                  struct error *err)
{
    struct config_reader r = {.file = file, .first = err};
    struct relabel_rules *rules = relabel_read(&r, node, false);
    if (rules)
        *out = rules;
    else if (r.failure)
        return error_set_at(err, -ENOMEM, file, 0, 0, "out of memory");
    return rules ? 0 : -EINVAL;
}
