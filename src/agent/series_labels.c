// SPDX-License-Identifier: Apache-2.0
// A line's own labels and the target's become one set, then metric_relabel_configs run. The rules
// are those of Prometheus 3.0 (scrape/scrape.go: mutateSampleLabels, verifyLabelLimits), but what
// relabelling leaves without a usable name is dropped there with the whole page, here alone.
#include <errno.h>

#include "agent/series_internal.h"
#include "base/buf.h"
#include "base/limits.h"

#define NAME SV("__name__")
#define EXPORTED SV("exported_")
#define NAME_SHOWN 50 // bytes of a name in an error, as Prometheus shows it

struct joining {
    const struct series_table *t;
    const struct parse_sample *sample;
    struct series_scratch *scratch;
    struct labels labels;
    bool has_empty; // the line has labels without a value
    struct error *err;
};

static bool is_within(struct sv s, struct sv whole)
{
    uintptr_t start = (uintptr_t)whole.ptr, at = (uintptr_t)s.ptr;
    return at >= start && at - start <= whole.len;
}

static int out_of_room(struct joining *j, int r)
{
    if (r == -ENOMEM)
        return error_set(j->err, r, "out of memory");
    return error_set_at(j->err, -E2BIG, NULL, j->sample->line, 0,
                        "labels of one series over %u in number or %u bytes", LIMIT_LABELS,
                        LIMIT_SERIES_LABELS_BYTES);
}

// What was unescaped stands in scratch, which the next label takes.
static int add(struct joining *j, struct sv name, struct sv value)
{
    if (labels_has(&j->labels, name))
        return error_set_at(j->err, -EINVAL, NULL, j->sample->line, 0, "label \"%.*s\" twice",
                            (int)(name.len < NAME_SHOWN ? name.len : NAME_SHOWN), name.ptr);
    bool stays = is_within(name, j->sample->series);
    int r =
        stays ? labels_set_borrowed(&j->labels, name, value) : labels_set(&j->labels, name, value);
    return r < 0 ? out_of_room(j, r) : 0;
}

static int add_name(struct joining *j)
{
    struct sv name;
    int r = parse_unescape(j->sample->name, &j->scratch->text, &name);
    if (r == 0)
        r = is_within(name, j->sample->series) ? labels_set_borrowed(&j->labels, NAME, name)
                                               : labels_set(&j->labels, NAME, name);
    return r < 0 ? out_of_room(j, r) : 0;
}

static bool is_number_label(enum parse_type type, struct sv name)
{
    return (type == PARSE_TYPE_SUMMARY && sv_equals(name, SV("quantile"))) ||
           (type == PARSE_TYPE_HISTOGRAM && sv_equals(name, SV("le")));
}

static int add_number(struct joining *j, struct sv name, struct sv value)
{
    char text[SERIES_NUMBER_BYTES];
    unsigned length = series_normalise_number(value, text);
    int r = add(j, name, value);
    if (r < 0 || length == 0)
        return r;
    r = labels_set(&j->labels, name, (struct sv){text, length}); // copies it
    return r < 0 ? out_of_room(j, r) : 0;
}

// Of the line alone.
static int read_labels(struct joining *j)
{
    struct sv rest = j->sample->labels, name, value;
    int r = add_name(j);
    if (r < 0)
        return r;
    while ((r = parse_next_label(&rest, &j->scratch->text, &name, &value)) == 1) {
        j->has_empty = j->has_empty || !value.len;
        r = !value.len                               ? 0
            : is_number_label(j->sample->type, name) ? add_number(j, name, value)
                                                     : add(j, name, value);
        if (r < 0)
            return r;
    }
    if (r == -EINVAL) // the parser has read it: cannot be
        return error_set_at(j->err, r, NULL, j->sample->line, 0, "malformed labels");
    return r < 0 ? out_of_room(j, r) : 0;
}

// honor_labels: what the line says counts, and an empty label takes the target's away.
static int honor(struct joining *j, const struct labels *target)
{
    struct sv rest = j->sample->labels, name, value;
    for (size_t i = 0; i < target->count; i++) {
        const struct label *l = &target->items[i];
        int r = labels_has(&j->labels, l->name)
                    ? 0
                    : labels_set_borrowed(&j->labels, l->name, l->value);
        if (r < 0)
            return out_of_room(j, r);
    }
    while (j->has_empty && parse_next_label(&rest, &j->scratch->text, &name, &value) == 1) {
        if (!value.len)
            labels_delete(&j->labels, name);
    }
    return 0;
}

static struct sv exported_name(struct joining *j, struct sv name)
{
    do {
        char *text = arena_alloc(&j->scratch->arena, EXPORTED.len + name.len);
        if (!text)
            return (struct sv){0};
        memcpy(mempcpy(text, EXPORTED.ptr, EXPORTED.len), name.ptr, name.len);
        name = (struct sv){text, EXPORTED.len + name.len};
    } while (labels_has(&j->labels, name));
    return name;
}

// The labels that had to give way, shorter names first: of two that want the same name, that one
// gets it.
static int rename_conflicts(struct joining *j, struct label *conflicts, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct label l = conflicts[i];
        size_t at = i;
        for (; at > 0 && conflicts[at - 1].name.len > l.name.len; at--)
            conflicts[at] = conflicts[at - 1];
        conflicts[at] = l;
    }
    for (size_t i = 0; i < count; i++) {
        struct sv name = exported_name(j, conflicts[i].name);
        int r = name.ptr ? labels_set_borrowed(&j->labels, name, conflicts[i].value)
                         : j->scratch->arena.error;
        if (r < 0)
            return out_of_room(j, r);
    }
    return 0;
}

// The target's labels count; the line's of the same name become exported_*.
static int override(struct joining *j, const struct labels *target)
{
    struct label *conflicts = NULL;
    size_t count = 0;
    for (size_t i = 0; i < target->count; i++) {
        const struct label *l = &target->items[i];
        struct sv scraped = labels_get(&j->labels, l->name);
        if (scraped.len && !conflicts)
            conflicts = arena_alloc(&j->scratch->arena, target->count * sizeof(*conflicts));
        if (scraped.len && !conflicts)
            return out_of_room(j, j->scratch->arena.error);
        if (scraped.len)
            conflicts[count++] = (struct label){l->name, scraped};
        int r = labels_set_borrowed(&j->labels, l->name, l->value);
        if (r < 0)
            return out_of_room(j, r);
    }
    return rename_conflicts(j, conflicts, count);
}

static bool is_legacy_name(struct sv s, bool colons)
{
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        bool start =
            (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (colons && c == ':');
        if (!start && (i == 0 || c < '0' || c > '9'))
            return false;
    }
    return s.len > 0;
}

static bool is_usable(const struct labels *l, bool legacy)
{
    for (size_t i = 0; i < l->count; i++) {
        struct sv name = l->items[i].name, value = l->items[i].value;
        if (!sv_is_utf8(value) || (legacy ? !is_legacy_name(name, false) : !sv_is_utf8(name)))
            return false;
    }
    struct sv metric = labels_get(l, NAME);
    return legacy ? is_legacy_name(metric, true) : metric.len > 0;
}

static int exceeded(const struct joining *j, const char *limit, size_t is, uint64_t most)
{
    struct sv name = sv_cut(labels_get(&j->labels, NAME), NAME_SHOWN);
    return error_set_at(j->err, -EINVAL, NULL, j->sample->line, 0,
                        "%s exceeded by metric %.*s: %zu, %llu at most", limit, SV_FMT(name), is,
                        (unsigned long long)most);
}

// __name__ counts among them.
static int check_limits(const struct joining *j)
{
    const struct prom_job *job = j->t->job;
    const struct labels *l = &j->labels;
    if (job->label_limit && l->count > job->label_limit)
        return exceeded(j, "label_limit", l->count, job->label_limit);
    for (size_t i = 0; i < l->count; i++) {
        uint64_t most_name = job->label_name_length_limit;
        uint64_t most_value = job->label_value_length_limit;
        if (most_name && l->items[i].name.len > most_name)
            return exceeded(j, "label_name_length_limit", l->items[i].name.len, most_name);
        if (most_value && l->items[i].value.len > most_value)
            return exceeded(j, "label_value_length_limit", l->items[i].value.len, most_value);
    }
    return 0;
}

int series_identify(const struct series_table *t, const struct parse_sample *s,
                    struct series_scratch *scratch, struct series_identity *out, struct error *err)
{
    struct joining j = {.t = t, .sample = s, .scratch = scratch, .err = err};
    const struct labels *target = &t->eras[t->era]->labels;
    arena_reset(&scratch->arena);
    labels_init(&j.labels, &scratch->arena);
    int r = read_labels(&j);
    if (r == 0)
        r = t->job->honor_labels ? honor(&j, target) : override(&j, target);
    if (r < 0)
        return r;
    r = relabel_apply(t->job->metric_relabel, &j.labels);
    if (r < 0)
        return out_of_room(&j, r);
    *out = (struct series_identity){.fate = SERIES_DROPPED};
    if (r == RELABEL_OUTCOME_DROP || j.labels.count == 0)
        return 0;
    out->fate = SERIES_UNUSABLE;
    if (!is_usable(&j.labels, t->job->legacy_names))
        return 0;
    r = check_limits(&j);
    if (r < 0)
        return r;
    out->fate = SERIES_GIVEN;
    out->name = labels_get(&j.labels, NAME);
    labels_delete(&j.labels, NAME);
    out->labels = j.labels;
    return 0;
}
