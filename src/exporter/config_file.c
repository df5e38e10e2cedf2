// SPDX-License-Identifier: Apache-2.0
#include "exporter/config_file.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/num.h"

#define BLANKS " \t\r\n"

struct reader {
    const char *file;
    struct error *err;
    struct config_file *out;
};

static int fail_at(const struct reader *r, const struct yaml_node *n, const char *text)
{
    return error_set_at(r->err, -EINVAL, r->file, n->line, n->column, "%s", text);
}

static int check_keys(const struct reader *r, const struct yaml_node *mapping,
                      const char *const *known)
{
    return yaml_check_keys(mapping, r->file, known, r->err);
}

// A text without blanks around it that must be there and not empty; parent is where to point at
// when it is not.
static int read_text(const struct reader *r, const struct yaml_node *parent, const char *key,
                     struct sv *out)
{
    const struct yaml_node *n = yaml_find(parent, key);
    if (!n)
        return error_set_at(r->err, -EINVAL, r->file, parent->line, parent->column,
                            "'%s' is missing here", key);
    int rc = yaml_read_text(n, r->file, out, r->err);
    if (rc < 0)
        return rc;
    *out = sv_trim(*out, BLANKS);
    return out->len
               ? 0
               : error_set_at(r->err, -EINVAL, r->file, n->line, n->column, "'%s' is empty", key);
}

static int read_duration(const struct reader *r, const struct yaml_node *n, uint64_t *out_ns)
{
    struct sv text;
    int rc = yaml_read_text(n, r->file, &text, r->err);
    if (rc < 0)
        return rc;
    if (num_parse_duration_go(sv_trim(text, BLANKS), out_ns) == 0)
        return 0;
    return error_set_at(r->err, -EINVAL, r->file, n->line, n->column,
                        "expected a duration such as 30s or 1m30s, found '%.*s'",
                        SV_FMT(sv_sub(text, 0, 64)));
}

static int read_period(const struct reader *r, const struct yaml_node *n, uint64_t *out_ns)
{
    uint64_t ns;
    int rc = read_duration(r, n, &ns);
    if (rc < 0)
        return rc;
    if (!ns || ns % NS_PER_MS)
        return fail_at(r, n, "expected whole milliseconds, more than 0");
    *out_ns = ns;
    return 0;
}

// How long DCGM would keep samples. Both zero would keep none, which dcgm-exporter refuses in a
// group.
static int check_retention(const struct reader *r, const struct yaml_node *n, const char *age_key,
                           const char *samples_key, bool in_group)
{
    const char *const known[] = {age_key, samples_key, NULL};
    const struct yaml_node *age = yaml_find(n, age_key), *samples = yaml_find(n, samples_key);
    uint64_t age_ns = 1;
    int64_t count = 1;
    int rc = check_keys(r, n, known);
    if (rc == 0 && age)
        rc = read_duration(r, age, &age_ns);
    if (rc == 0 && samples)
        rc = yaml_read_i64(samples, r->file, 0, INT32_MAX, &count, r->err);
    if (rc == 0 && in_group && age && samples && !age_ns && !count)
        return error_set_at(r->err, -EINVAL, r->file, n->line, n->column,
                            "'%s' and '%s' cannot both be 0", age_key, samples_key);
    return rc;
}

static int check_bind_unbind(const struct reader *r, const struct yaml_node *n)
{
    static const char *const known[] = {"enabled", "pollInterval", NULL};
    const struct yaml_node *enabled = yaml_find(n, "enabled"), *poll = yaml_find(n, "pollInterval");
    uint64_t ns;
    bool truth;
    int rc = check_keys(r, n, known);
    if (rc == 0 && enabled)
        rc = yaml_read_bool(enabled, r->file, &truth, r->err);
    if (rc == 0 && poll && !yaml_is_null(poll))
        rc = read_duration(r, poll, &ns);
    if (rc == 0 && poll && !yaml_is_null(poll) && !ns)
        return fail_at(r, poll, "expected a duration of more than 0");
    return rc;
}

// sources: {dcgm: {...}} at the top (whole) or in a collection.
static int check_sources(const struct reader *r, const struct yaml_node *sources,
                         const char *const *known_dcgm, bool in_group)
{
    static const char *const known[] = {"dcgm", NULL};
    const struct yaml_node *dcgm = yaml_find(sources, "dcgm");
    int rc = check_keys(r, sources, known);
    if (rc == 0)
        rc = check_keys(r, dcgm, known_dcgm);
    if (rc == 0)
        rc = check_retention(r, yaml_find(dcgm, "watch"), "maxKeepAge", "maxKeepSamples", in_group);
    if (rc == 0)
        rc = check_bind_unbind(r, yaml_find(dcgm, "detectBindUnbind"));
    return rc;
}

static int check_server(const struct reader *r, const struct yaml_node *server)
{
    static const char *const known[] = {"maxConcurrentScrapes", NULL};
    const struct yaml_node *most = yaml_find(server, "maxConcurrentScrapes");
    int64_t count;
    int rc = check_keys(r, server, known);
    return rc < 0 || !most ? rc : yaml_read_i64(most, r->file, 1, INT32_MAX, &count, r->err);
}

static int check_field(const struct reader *r, const struct yaml_node *field)
{
    static const char *const known[] = {"name", "prometheusType", "help", NULL};
    struct sv text;
    int rc = yaml_expect(field, YAML_MAPPING, r->file, r->err);
    if (rc == 0)
        rc = check_keys(r, field, known);
    for (size_t i = 0; rc == 0 && known[i]; i++)
        rc = read_text(r, field, known[i], &text);
    return rc;
}

static int read_fields(const struct reader *r, const struct yaml_node *fields)
{
    int rc = yaml_expect(fields, YAML_SEQUENCE, r->file, r->err);
    for (const struct yaml_node *n = fields->first; rc == 0 && n; n = n->next)
        rc = check_field(r, n);
    if (rc == 0 && fields->count)
        r->out->fields = fields;
    return rc;
}

static int read_metrics(const struct reader *r, const struct yaml_node *metrics)
{
    static const char *const known[] = {"file", "fields", "enableExporterMetrics", NULL};
    const struct yaml_node *file = yaml_find(metrics, "file"),
                           *fields = yaml_find(metrics, "fields");
    const struct yaml_node *own = yaml_find(metrics, "enableExporterMetrics");
    if (!metrics || yaml_is_null(metrics))
        return 0;
    int rc = check_keys(r, metrics, known);
    if (rc == 0 && file && !yaml_is_null(file))
        rc = yaml_read_text(file, r->file, &r->out->metrics_file, r->err);
    r->out->metrics_file = sv_trim(r->out->metrics_file, BLANKS);
    if (rc == 0 && fields)
        rc = read_fields(r, fields);
    if (rc == 0 && own) {
        rc = yaml_read_bool(own, r->file, &r->out->exporter_metrics, r->err);
        r->out->exporter_metrics_given = rc == 0;
    }
    if (rc < 0)
        return rc;
    if (r->out->metrics_file.len && r->out->fields)
        return fail_at(r, metrics, "expected either 'file' or 'fields', found both");
    if (!r->out->metrics_file.len && !r->out->fields && !own)
        return fail_at(r, metrics, "expected 'file', 'fields' or 'enableExporterMetrics'");
    return 0;
}

static int check_patterns(const struct reader *r, const struct yaml_node *patterns,
                          const struct yaml_node *parent, const char *key)
{
    if (!patterns || (patterns->kind == YAML_SEQUENCE && !patterns->count) ||
        yaml_is_null(patterns))
        return error_set_at(r->err, -EINVAL, r->file, parent->line, parent->column,
                            "expected fields under '%s'", key);
    int rc = yaml_expect(patterns, YAML_SEQUENCE, r->file, r->err);
    for (const struct yaml_node *n = patterns->first; rc == 0 && n; n = n->next) {
        struct sv text;
        rc = yaml_read_text(n, r->file, &text, r->err);
        if (rc == 0 && !sv_trim(text, BLANKS).len)
            return fail_at(r, n, "expected the name or pattern of a field, found nothing");
    }
    return rc;
}

static int add_group(const struct reader *r, const struct config_group *group)
{
    struct config_file *c = r->out;
    for (size_t i = 0; i < c->group_count; i++) {
        if (sv_equals(c->groups[i].name, group->name))
            return error_set_at(r->err, -EINVAL, r->file, group->line, group->column,
                                "name '%.*s' stands here twice",
                                SV_FMT(sv_sub(group->name, 0, 64)));
    }
    c->groups[c->group_count++] = *group;
    return 0;
}

// What both versions have in a group: a mapping of known keys with a name.
static int read_name(const struct reader *r, const struct yaml_node *n, const char *const *known,
                     struct config_group *group)
{
    int rc = yaml_expect(n, YAML_MAPPING, r->file, r->err);
    if (rc == 0)
        rc = check_keys(r, n, known);
    return rc == 0 ? read_text(r, n, "name", &group->name) : rc;
}

static int read_watch_group(const struct reader *r, const struct yaml_node *n)
{
    static const char *const known[] = {"name", "interval", "fields", "retention", NULL};
    struct config_group group = {
        .line = n->line, .column = n->column, .patterns = yaml_find(n, "fields")};
    const struct yaml_node *interval = yaml_find(n, "interval");
    int rc = read_name(r, n, known, &group);
    if (rc == 0)
        rc = interval ? read_period(r, interval, &group.period_ns)
                      : fail_at(r, n, "'interval' is missing here");
    if (rc == 0)
        rc = check_patterns(r, group.patterns, n, "fields");
    if (rc == 0)
        rc = check_retention(r, yaml_find(n, "retention"), "maxAge", "maxSamples", true);
    return rc < 0 ? rc : add_group(r, &group);
}

// A collection of all fields sets the default period; the others are groups.
static bool takes_all(const struct yaml_node *patterns)
{
    return patterns->count == 1 && sv_equals(sv_trim(patterns->first->scalar, BLANKS), SV("*"));
}

static int read_collection(const struct reader *r, const struct yaml_node *n)
{
    static const char *const known[] = {"name", "every", "metrics", "sources", NULL};
    static const char *const known_metrics[] = {"include", NULL};
    static const char *const known_dcgm[] = {"watch", NULL};
    const struct yaml_node *metrics = yaml_find(n, "metrics"), *every = yaml_find(n, "every");
    struct config_group group = {
        .line = n->line, .column = n->column, .patterns = yaml_find(metrics, "include")};
    int rc = read_name(r, n, known, &group);
    if (rc == 0)
        rc = every ? read_period(r, every, &group.period_ns)
                   : fail_at(r, n, "'every' is missing here");
    if (rc == 0)
        rc = check_keys(r, metrics, known_metrics);
    if (rc == 0)
        rc = check_patterns(r, group.patterns, metrics ? metrics : n, "include");
    if (rc == 0)
        rc = check_sources(r, yaml_find(n, "sources"), known_dcgm, true);
    if (rc < 0 || !takes_all(group.patterns))
        return rc < 0 ? rc : add_group(r, &group);
    if (r->out->period_ns)
        return fail_at(r, n, "a second collection of all fields (include: ['*'])");
    r->out->period_ns = group.period_ns;
    return 0;
}

static int read_groups(const struct reader *r, const struct yaml_node *list,
                       int (*read_one)(const struct reader *r, const struct yaml_node *n))
{
    if (!list || yaml_is_null(list))
        return 0;
    int rc = yaml_expect(list, YAML_SEQUENCE, r->file, r->err);
    if (rc < 0)
        return rc;
    if (list->count > LIMIT_CONFIG_GROUPS)
        return error_set_at(r->err, -EFBIG, r->file, list->line, list->column,
                            "more than %d groups", LIMIT_CONFIG_GROUPS);
    r->out->groups = calloc(list->count + 1, sizeof(*r->out->groups));
    if (!r->out->groups)
        return error_set(r->err, -ENOMEM, "out of memory");
    for (const struct yaml_node *n = list->first; rc == 0 && n; n = n->next)
        rc = read_one(r, n);
    return rc;
}

static int read_version_1(const struct reader *r, const struct yaml_node *root)
{
    static const char *const known[] = {"version",    "sources", "metrics",
                                        "collection", "server",  NULL};
    static const char *const known_collection[] = {"interval", "retention", "watchGroups", NULL};
    static const char *const known_dcgm[] = {"detectBindUnbind", NULL};
    const struct yaml_node *collection = yaml_find(root, "collection");
    const struct yaml_node *interval = yaml_find(collection, "interval");
    int rc = check_keys(r, root, known);
    if (rc == 0)
        rc = check_sources(r, yaml_find(root, "sources"), known_dcgm, false);
    if (rc == 0)
        rc = check_keys(r, collection, known_collection);
    if (rc == 0 && interval && !yaml_is_null(interval))
        rc = read_period(r, interval, &r->out->period_ns);
    if (rc == 0)
        rc = check_retention(r, yaml_find(collection, "retention"), "maxAge", "maxSamples", false);
    return rc < 0 ? rc : read_groups(r, yaml_find(collection, "watchGroups"), read_watch_group);
}

static int read_version_2(const struct reader *r, const struct yaml_node *root)
{
    static const char *const known[] = {"version",     "sources", "metrics",
                                        "collections", "server",  NULL};
    static const char *const known_dcgm[] = {"watch", "detectBindUnbind", NULL};
    const struct yaml_node *collections = yaml_find(root, "collections");
    int rc = check_keys(r, root, known);
    if (rc == 0)
        rc = check_sources(r, yaml_find(root, "sources"), known_dcgm, false);
    if (rc == 0 && collections && collections->kind == YAML_SEQUENCE && !collections->count)
        return fail_at(r, collections, "expected at least one collection");
    return rc < 0 ? rc : read_groups(r, collections, read_collection);
}

static int read_root(const struct reader *r, const struct yaml_node *root)
{
    const struct yaml_node *version = yaml_find(root, "version");
    int64_t number = 0;
    int rc = yaml_expect(root, YAML_MAPPING, r->file, r->err);
    if (rc == 0 && !version)
        return error_set_at(r->err, -EINVAL, r->file, 1, 1,
                            "expected 'version: 1' or 'version: 2', found none");
    if (rc == 0)
        rc = yaml_read_i64(version, r->file, 1, 2, &number, r->err);
    if (rc == 0)
        rc = number == 1 ? read_version_1(r, root) : read_version_2(r, root);
    if (rc == 0)
        rc = check_server(r, yaml_find(root, "server"));
    return rc < 0 ? rc : read_metrics(r, yaml_find(root, "metrics"));
}

int config_file_parse(struct sv text, const char *file, struct config_file *out, struct error *err)
{
    struct config_file c = {0};
    struct reader r = {.file = file, .err = err, .out = &c};
    int rc = yaml_parse(text, file, &c.document, err);
    if (rc == 0)
        rc = read_root(&r, yaml_root(c.document));
    if (rc < 0) {
        config_file_deinit(&c);
        return rc;
    }
    *out = c;
    return 0;
}

void config_file_deinit(struct config_file *c)
{
    free(c->groups);
    yaml_document_free(c->document);
    *c = (struct config_file){0};
}

// Matches one character against a set at the front of *pattern, "[...]", and takes the set off. An
// unclosed set is the character '[' itself.
static bool set_matches(struct sv *pattern, char c)
{
    size_t close = sv_find_char(sv_sub(*pattern, 2, pattern->len), ']');
    if (close == (size_t)-1) {
        *pattern = sv_sub(*pattern, 1, pattern->len);
        return c == '[';
    }
    struct sv set = sv_sub(*pattern, 1, close + 1);
    *pattern = sv_sub(*pattern, close + 3, pattern->len);
    bool inverted = set.len > 1 && set.ptr[0] == '^';
    bool found = false;
    for (size_t i = inverted; i < set.len; i++) {
        if (i + 2 < set.len && set.ptr[i + 1] == '-') {
            found |= c >= set.ptr[i] && c <= set.ptr[i + 2];
            i += 2;
        } else {
            found |= c == set.ptr[i];
        }
    }
    return found != inverted;
}

// One pattern element that is not '*' against one character.
static bool element_matches(struct sv *pattern, char c)
{
    if (!pattern->len)
        return false;
    char p = pattern->ptr[0];
    if (p == '[')
        return set_matches(pattern, c);
    *pattern = sv_sub(*pattern, 1, pattern->len);
    return p == '?' || p == c;
}

// On a mismatch the last '*' takes one character more: at most pattern x name steps.
bool config_pattern_matches(struct sv pattern, struct sv name)
{
    struct sv after_star = {0}, star_name = {0};
    while (name.len) {
        if (pattern.len && pattern.ptr[0] == '*') {
            pattern = sv_sub(pattern, 1, pattern.len);
            after_star = pattern;
            star_name = name;
            continue;
        }
        if (element_matches(&pattern, name.ptr[0])) {
            name = sv_sub(name, 1, name.len);
            continue;
        }
        if (!after_star.ptr)
            return false;
        star_name = sv_sub(star_name, 1, star_name.len);
        name = star_name;
        pattern = after_star;
    }
    return !sv_trim(pattern, "*").len;
}
