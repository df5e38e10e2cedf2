// SPDX-License-Identifier: Apache-2.0
// Options, the YAML file and the counters become one object, or an error that names the place.
#include "exporter/config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/map.h"
#include "exporter/config_file.h"

#define MEDIUM_LEAST_NS (10 * NS_PER_S)
#define SLOW_LEAST_NS (30 * NS_PER_S)
#define STATIC_LEAST_NS (600 * NS_PER_S)

struct load {
    const struct exporter_flags *flags;
    struct exporter_config *config;
    struct buf yaml_text, counters_text;
    struct config_file yaml; // all zero without a file
    struct error *err;
};

static int take_path(struct load *l, struct sv path, char *out, size_t out_bytes)
{
    if (path.len >= out_bytes)
        return error_set(l->err, -ENAMETOOLONG, "the path '%.64s...' is longer than %zu bytes",
                         path.ptr, out_bytes - 1);
    sv_copy(out, out_bytes, path);
    return 0;
}

static int load_yaml(struct load *l)
{
    struct exporter_config *c = l->config;
    if (!l->flags->config_file[0])
        return 0;
    int r = take_path(l, sv_from(l->flags->config_file), c->config_file, sizeof(c->config_file));
    if (r == 0)
        r = file_read(c->config_file, &l->yaml_text, l->err);
    return r < 0 ? r : config_file_parse(buf_sv(&l->yaml_text), c->config_file, &l->yaml, l->err);
}

static struct sv trimmed(const struct yaml_node *field, const char *key)
{
    return sv_trim(yaml_find(field, key)->scalar, " \t\r\n");
}

static int add_inline_counters(struct load *l)
{
    struct exporter_config *c = l->config;
    for (const struct yaml_node *n = l->yaml.fields->first; n; n = n->next) {
        size_t duplicates = c->counters.duplicates;
        const struct counter_row row = {
            .name = trimmed(n, "name"),
            .type = trimmed(n, "prometheusType"),
            .help = trimmed(n, "help"),
            .file = c->config_file,
            .line = n->line,
            .type_line = n->line,
            .help_line = n->line,
        };
        int r = counters_add(&c->counters, &row, l->err);
        if (r < 0)
            return r;
        if (c->counters.duplicates != duplicates)
            return error_set_at(l->err, -EINVAL, c->config_file, n->line, n->column,
                                "the field '%.*s' stands here twice", SV_FMT(row.name));
    }
    counters_sort(&c->counters);
    return take_path(l, sv_from(c->config_file), c->counters_file, sizeof(c->counters_file));
}

// --collectors given, then the YAML file, then --collectors' default. A --configmap-data that is
// given puts the collectors file in the place of inline fields, as dcgm-exporter does.
static int load_counters(struct load *l)
{
    struct exporter_config *c = l->config;
    bool file_wins = l->flags->collectors_given || l->flags->configmap_data_given;
    if (l->yaml.fields && !file_wins)
        return add_inline_counters(l);
    bool from_yaml = l->yaml.metrics_file.len && !l->flags->collectors_given;
    struct sv path = from_yaml ? l->yaml.metrics_file : sv_from(l->flags->collectors);
    if (path.len == 0)
        return error_set(l->err, -EINVAL,
                         "--collectors (DCGM_EXPORTER_COLLECTORS): expected the path of a counters "
                         "file, found ''");
    int r = take_path(l, path, c->counters_file, sizeof(c->counters_file));
    if (r == 0)
        r = file_read(c->counters_file, &l->counters_text, l->err);
    if (r == 0)
        r = counters_parse(buf_sv(&l->counters_text), c->counters_file, &c->counters, l->err);
    return r;
}

static uint64_t at_least(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t default_period(enum field_class cost, uint64_t interval_ns)
{
    switch (cost) {
    case FIELD_CLASS_FAST:
        return interval_ns;
    case FIELD_CLASS_MEDIUM:
        return at_least(interval_ns, MEDIUM_LEAST_NS);
    case FIELD_CLASS_SLOW:
        return at_least(interval_ns, SLOW_LEAST_NS);
    case FIELD_CLASS_STATIC:
        return at_least(interval_ns, STATIC_LEAST_NS);
    case FIELD_CLASS_COUNT:
        break;
    }
    return interval_ns;
}

static bool group_takes(const struct config_group *group, const char *name)
{
    for (const struct yaml_node *n = group->patterns->first; n; n = n->next) {
        if (config_pattern_matches(sv_trim(n->scalar, " \t\r\n"), sv_from(name)))
            return true;
    }
    return false;
}

// The one group that takes the counter, or NULL. used[i] is set for it.
static int find_group(struct load *l, const struct counter *counter, bool *used,
                      const struct config_group **out)
{
    *out = NULL;
    for (size_t i = 0; i < l->yaml.group_count; i++) {
        const struct config_group *group = &l->yaml.groups[i];
        if (!group_takes(group, counter->name))
            continue;
        used[i] = true;
        if (*out)
            return error_set_at(l->err, -EINVAL, l->config->config_file, group->line, group->column,
                                "field '%s' is in '%.*s' and in '%.*s'", counter->name,
                                SV_FMT((*out)->name), SV_FMT(group->name));
        *out = group;
    }
    return 0;
}

static int check_groups_used(struct load *l, const bool *used)
{
    for (size_t i = 0; i < l->yaml.group_count; i++) {
        const struct config_group *group = &l->yaml.groups[i];
        if (!used[i])
            return error_set_at(l->err, -EINVAL, l->config->config_file, group->line, group->column,
                                "'%.*s' matches no configured field", SV_FMT(group->name));
    }
    return 0;
}

// A class is sampled as often as its most demanding field asks for.
static int set_periods(struct load *l)
{
    struct exporter_config *c = l->config;
    bool used[LIMIT_CONFIG_GROUPS] = {false}, asked[FIELD_CLASS_COUNT] = {false};
    uint64_t least_ns = COLLECT_INTERVAL_LEAST_MS * NS_PER_MS;
    bool from_yaml = l->yaml.period_ns && !l->flags->collect_interval_given;
    uint64_t interval_ns =
        from_yaml ? l->yaml.period_ns : (uint64_t)l->flags->collect_interval_ms * NS_PER_MS;
    interval_ns = at_least(interval_ns, least_ns);
    for (int cost = 0; cost < FIELD_CLASS_COUNT; cost++)
        c->period_ns[cost] = default_period((enum field_class)cost, interval_ns);
    for (size_t i = 0; i < c->counters.count; i++) {
        const struct counter *counter = &c->counters.rows[i];
        enum field_class cost = (enum field_class)counter->field->cost;
        const struct config_group *group;
        int r = find_group(l, counter, used, &group);
        if (r < 0)
            return r;
        uint64_t ns =
            group ? at_least(group->period_ns, least_ns) : default_period(cost, interval_ns);
        if (!asked[cost] || ns < c->period_ns[cost])
            c->period_ns[cost] = ns;
        asked[cost] = true;
    }
    return check_groups_used(l, used);
}

static int load_all(struct load *l)
{
    struct exporter_config *c = l->config;
    int r = load_yaml(l);
    if (r == 0)
        r = load_counters(l);
    if (r == 0)
        r = set_periods(l);
    if (r < 0)
        return r;
    bool from_yaml = l->yaml.exporter_metrics_given && !l->flags->exporter_metrics_given;
    c->exporter_metrics = from_yaml ? l->yaml.exporter_metrics : l->flags->enable_exporter_metrics;
    c->counters_bytes = l->counters_text.len + (l->yaml.fields ? l->yaml_text.len : 0);
    c->hash =
        map_siphash13(map_siphash13(0, 0, buf_sv(&l->yaml_text)), 1, buf_sv(&l->counters_text));
    return 0;
}

int exporter_config_load(const struct exporter_options *options, struct exporter_config **out,
                         struct error *err)
{
    return exporter_config_try(options, NULL, out, err);
}

int exporter_config_try(const struct exporter_options *options, struct exporter_config_files *tried,
                        struct exporter_config **out, struct error *err)
{
    struct load l = {
        .flags = &options->flags,
        .yaml_text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES),
        .counters_text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES),
        .err = err,
    };
    l.config = calloc(1, sizeof(*l.config));
    if (!l.config)
        return error_set(err, -ENOMEM, "out of memory");
    l.config->refs = 1;
    l.config->options = options;
    int r = load_all(&l);
    if (tried) {
        sv_copy(tried->counters, sizeof(tried->counters), sv_from(l.config->counters_file));
        sv_copy(tried->config, sizeof(tried->config), sv_from(l.config->config_file));
    }
    config_file_deinit(&l.yaml);
    buf_deinit(&l.yaml_text);
    buf_deinit(&l.counters_text);
    if (r < 0)
        exporter_config_unref(l.config);
    else
        *out = l.config;
    return r;
}

struct exporter_config *exporter_config_ref(struct exporter_config *c)
{
    c->refs++;
    return c;
}

void exporter_config_unref(struct exporter_config *c)
{
    if (!c || --c->refs)
        return;
    counter_list_deinit(&c->counters);
    free(c);
}
