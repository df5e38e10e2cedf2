// SPDX-License-Identifier: Apache-2.0
// Applying a rule makes new text only where a label changes; it goes into the arena of the labels.
// A rule without a regular expression has the default one, "(.*)": it matches everything, and its
// group is everything.
#include "agent/relabel.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/letter_case.h"
#include "agent/relabel_internal.h"
#include "base/num.h"
#include "codec/hash.h"

bool relabel_is_label_name(struct sv s, bool legacy)
{
    for (size_t i = 0; legacy && i < s.len; i++) {
        char c = s.ptr[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
        if (!letter && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return s.len > 0;
}

void relabel_free(struct relabel_rules *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->count; i++)
        regex_free(r->rules[i].regex);
    arena_deinit(&r->arena);
    free(r);
}

size_t relabel_count(const struct relabel_rules *r)
{
    return r ? r->count : 0;
}

static int arena_failure(const struct arena *a)
{
    return a->error == -EFBIG ? -E2BIG : -ENOMEM;
}

// The values of the source labels; .ptr NULL when there is no memory.
static struct sv join(const struct relabel_rule *rule, const struct labels *l)
{
    if (rule->source_count == 0)
        return SV("");
    if (rule->source_count == 1)
        return labels_get(l, rule->sources[0]);
    size_t length = rule->separator.len * (rule->source_count - 1);
    for (size_t i = 0; i < rule->source_count; i++)
        length += labels_get(l, rule->sources[i]).len;
    char *text = arena_alloc(l->arena, length + 1);
    char *at = text;
    for (size_t i = 0; text && i < rule->source_count; i++) {
        struct sv value = labels_get(l, rule->sources[i]);
        if (i && rule->separator.len)
            at = mempcpy(at, rule->separator.ptr, rule->separator.len);
        at = mempcpy(at, value.ptr, value.len);
    }
    return (struct sv){text, text ? length : 0};
}

static bool match(const struct relabel_rule *rule, struct sv text, struct sv *spans)
{
    if (!rule->regex) {
        spans[0] = spans[1] = text;
        return true;
    }
    return rule->groups ? regex_match(rule->regex, text, spans, rule->groups)
                        : regex_matches(rule->regex, text);
}

static bool matches(const struct relabel_rule *rule, struct sv text)
{
    return !rule->regex || regex_matches(rule->regex, text);
}

static int replace(const struct relabel_rule *rule, struct labels *l, struct sv value)
{
    struct sv spans[REGEX_GROUPS_MAX];
    if (!match(rule, value, spans))
        return 0;
    struct sv target = relabel_template_fill(&rule->target, spans, l->arena);
    struct sv filled = relabel_template_fill(&rule->replacement, spans, l->arena);
    if (!target.ptr || !filled.ptr)
        return arena_failure(l->arena);
    return relabel_is_label_name(target, rule->legacy_names)
               ? labels_set_borrowed(l, target, filled)
               : 0;
}

static int hashmod(const struct relabel_rule *rule, struct labels *l, struct sv value)
{
    char text[NUM_U64_BYTES];
    unsigned length = num_print_u64(text, hash_md5_last64(value) % rule->modulus);
    return labels_set(l, rule->target_name, (struct sv){text, length});
}

static int fold(const struct relabel_rule *rule, struct labels *l, struct sv value)
{
    char *text = arena_alloc(l->arena, value.len * LETTER_CASE_GROWTH + 1);
    if (!text)
        return arena_failure(l->arena);
    enum letter_case wanted = rule->action == ACTION_UPPERCASE ? LETTER_UPPER : LETTER_LOWER;
    size_t length = letter_text_to_case(value, wanted, text);
    return labels_set(l, rule->target_name, (struct sv){text, length});
}

// The names are those before the rule, whatever it adds.
static int labelmap(const struct relabel_rule *rule, struct labels *l)
{
    struct sv spans[REGEX_GROUPS_MAX];
    size_t count = l->count;
    struct label *before = arena_alloc(l->arena, count * sizeof(*before) + 1);
    if (!before)
        return arena_failure(l->arena);
    if (count)
        memcpy(before, l->items, count * sizeof(*before));
    for (size_t i = 0; i < count; i++) {
        if (!match(rule, before[i].name, spans))
            continue;
        struct sv name = relabel_template_fill(&rule->replacement, spans, l->arena);
        if (!name.ptr)
            return arena_failure(l->arena);
        if (!relabel_is_label_name(name, rule->legacy_names))
            continue;
        int r = labels_set_borrowed(l, name, before[i].value);
        if (r < 0)
            return r;
    }
    return 0;
}

static void filter_names(const struct relabel_rule *rule, struct labels *l)
{
    bool keep = rule->action == ACTION_LABELKEEP;
    size_t kept = 0;
    for (size_t i = 0; i < l->count; i++) {
        if (matches(rule, l->items[i].name) == keep)
            l->items[kept++] = l->items[i];
    }
    l->count = kept;
}

static int drop_if(bool drop)
{
    return drop ? RELABEL_OUTCOME_DROP : 0;
}

static int apply_rule(const struct relabel_rule *rule, struct labels *l)
{
    struct sv value = join(rule, l);
    if (!value.ptr)
        return arena_failure(l->arena);
    switch (rule->action) {
    case ACTION_REPLACE:
        return replace(rule, l, value);
    case ACTION_KEEP:
        return drop_if(!matches(rule, value));
    case ACTION_DROP:
        return drop_if(matches(rule, value));
    case ACTION_KEEPEQUAL:
        return drop_if(!sv_equals(value, labels_get(l, rule->target_name)));
    case ACTION_DROPEQUAL:
        return drop_if(sv_equals(value, labels_get(l, rule->target_name)));
    case ACTION_HASHMOD:
        return hashmod(rule, l, value);
    case ACTION_LABELMAP:
        return labelmap(rule, l);
    case ACTION_LABELDROP:
    case ACTION_LABELKEEP:
        filter_names(rule, l);
        return 0;
    case ACTION_LOWERCASE:
    case ACTION_UPPERCASE:
        return fold(rule, l, value);
    case ACTION_COUNT:
        break;
    }
    return 0;
}

int relabel_apply(const struct relabel_rules *r, struct labels *l)
{
    int result = 0;
    for (size_t i = 0; result == 0 && i < relabel_count(r); i++)
        result = apply_rule(&r->rules[i], l);
    return result;
}
