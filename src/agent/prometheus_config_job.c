// SPDX-License-Identifier: Apache-2.0
// global and the entries of scrape_configs. What a job leaves out it has from global.
#include <stddef.h>

#include "agent/prometheus_config_internal.h"
#include "base/clock.h"

#define DEFAULT_INTERVAL_NS (60 * NS_PER_S)
#define DEFAULT_TIMEOUT_NS (10 * NS_PER_S)
#define FALLBACK_PROTOCOL "PrometheusText0.0.4"

// --- Shared by both ---

static const char *const protocol_names[] = {
    "PrometheusProto",      "PrometheusText0.0.4",  "PrometheusText1.0.0",
    "OpenMetricsText0.0.1", "OpenMetricsText1.0.0",
};

static bool is_protocol(struct sv name)
{
    for (size_t i = 0; i < ARRAY_SIZE(protocol_names); i++) {
        if (sv_equals(name, sv_from(protocol_names[i])))
            return true;
    }
    return false;
}

static void read_protocols(struct config_reader *r, const struct yaml_node *n,
                           struct config_list *out)
{
    if (!config_read_list(r, n, out))
        return;
    if (n->count == 0)
        config_problem(r, n, "scrape_protocols: an empty list");
    for (const struct yaml_node *item = n->first; item; item = item->next) {
        const struct yaml_node *before = n->first;
        while (before != item && !sv_equals(before->scalar, item->scalar))
            before = before->next;
        if (!is_protocol(item->scalar))
            config_unexpected(
                r, item, "a scrape protocol, as in PrometheusText0.0.4 or OpenMetricsText1.0.0");
        else if (before != item)
            config_problem(r, item, "%.64s stands here twice", item->scalar.ptr);
    }
}

static void read_name_scheme(struct config_reader *r, const struct yaml_node *n, bool *out_legacy)
{
    if (yaml_is_null(n))
        return;
    *out_legacy = n->kind == YAML_SCALAR && sv_equals(n->scalar, SV("legacy"));
    if (!*out_legacy && (n->kind != YAML_SCALAR || !sv_equals(n->scalar, SV("utf8"))))
        config_unexpected(r, n, "utf8 or legacy");
}

struct prom_pair *prom_pairs_read(struct config_reader *r, const struct yaml_node *n,
                                  bool names_are_labels, size_t *out_count)
{
    size_t count;
    *out_count = 0;
    if (!config_expect(r, n, YAML_MAPPING, "names and values"))
        return NULL;
    const struct yaml_node **members = config_members(r, n, &count);
    struct prom_pair *pairs = config_alloc(r, count, sizeof(*pairs));
    for (size_t i = 0; pairs && i < count && !r->failure; i++) {
        const struct yaml_node *m = members[i];
        char *value = yaml_is_null(m) ? config_text(r, SV("")) : NULL;
        if (names_are_labels && !m->key.len)
            config_problem(r, m, "'' is not a label name");
        if (value || config_read_text(r, m, &value))
            pairs[(*out_count)++] = (struct prom_pair){config_text(r, m->key), value};
    }
    return pairs;
}

// --- global ---

static void read_global_protocols(struct config_reader *r, const struct yaml_node *n, void *section)
{
    read_protocols(r, n, &((struct prom_global *)section)->protocols);
}

static void read_global_names(struct config_reader *r, const struct yaml_node *n, void *section)
{
    read_name_scheme(r, n, &((struct prom_global *)section)->legacy_names);
}

static void read_external_labels(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct prom_global *g = section;
    g->external_labels = prom_pairs_read(r, n, true, &g->external_label_count);
}

static const struct config_key global_keys[] = {
    {"scrape_interval", CONFIG_DURATION, offsetof(struct prom_global, interval_ns)},
    {"scrape_timeout", CONFIG_DURATION, offsetof(struct prom_global, timeout_ns)},
    {"scrape_protocols", CONFIG_CUSTOM, 0, read_global_protocols},
    {"evaluation_interval", CONFIG_IGNORED},
    {"rule_query_offset", CONFIG_IGNORED},
    {"query_log_file", CONFIG_IGNORED},
    {"scrape_failure_log_file", CONFIG_UNUSED},
    {"external_labels", CONFIG_CUSTOM, 0, read_external_labels},
    {"body_size_limit", CONFIG_SIZE, offsetof(struct prom_global, body_size_limit)},
    {"sample_limit", CONFIG_COUNT, offsetof(struct prom_global, sample_limit)},
    {"target_limit", CONFIG_COUNT, offsetof(struct prom_global, target_limit)},
    {"label_limit", CONFIG_COUNT, offsetof(struct prom_global, label_limit)},
    {"label_name_length_limit", CONFIG_COUNT,
     offsetof(struct prom_global, label_name_length_limit)},
    {"label_value_length_limit", CONFIG_COUNT,
     offsetof(struct prom_global, label_value_length_limit)},
    {"keep_dropped_targets", CONFIG_COUNT, offsetof(struct prom_global, keep_dropped_targets)},
    {"metric_name_validation_scheme", CONFIG_CUSTOM, 0, read_global_names},
    {NULL},
};

static uint64_t or_default(uint64_t value, uint64_t otherwise)
{
    return value ? value : otherwise;
}

static uint64_t at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

void prom_global_read(struct config_reader *r, const struct yaml_node *n, struct prom_global *out)
{
    struct prom_global g = {0};
    if (n)
        config_read_section(r, n, global_keys, &g);
    g.interval_ns = or_default(g.interval_ns, DEFAULT_INTERVAL_NS);
    if (g.timeout_ns > g.interval_ns)
        config_problem(r, config_place(n, "scrape_timeout"),
                       "scrape_timeout is longer than scrape_interval");
    g.timeout_ns = or_default(g.timeout_ns, at_most(DEFAULT_TIMEOUT_NS, g.interval_ns));
    *out = g;
}

// --- scrape_configs ---

struct job_section {
    struct prom_job job;
    struct http_section http;
    struct config_list protocols;
    const struct yaml_node *relabel, *metric_relabel, *static_configs;
};

static void read_static_configs(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct job_section *s = section;
    s->static_configs = n;
    s->job.static_groups = config_read_items(r, n, sizeof(*s->job.static_groups), prom_static_read,
                                             &s->job.static_count);
}

static void read_file_sds(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct prom_job *job = &((struct job_section *)section)->job;
    job->file_sds =
        config_read_items(r, n, sizeof(*job->file_sds), prom_file_sd_read, &job->file_sd_count);
}

static void read_http_sds(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct prom_job *job = &((struct job_section *)section)->job;
    job->http_sds =
        config_read_items(r, n, sizeof(*job->http_sds), prom_http_sd_read, &job->http_sd_count);
}

static void read_kube_sds(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct prom_job *job = &((struct job_section *)section)->job;
    job->kube_sds =
        config_read_items(r, n, sizeof(*job->kube_sds), prom_kube_sd_read, &job->kube_sd_count);
}

static void read_relabel(struct config_reader *r, const struct yaml_node *n, void *section)
{
    ((struct job_section *)section)->relabel = n;
}

static void read_metric_relabel(struct config_reader *r, const struct yaml_node *n, void *section)
{
    ((struct job_section *)section)->metric_relabel = n;
}

static void read_job_protocols(struct config_reader *r, const struct yaml_node *n, void *section)
{
    read_protocols(r, n, &((struct job_section *)section)->protocols);
}

static void read_fallback(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct prom_job *job = &((struct job_section *)section)->job;
    if (config_read_text(r, n, &job->fallback_protocol) && !is_protocol(n->scalar))
        config_unexpected(r, n,
                          "a scrape protocol, as in PrometheusText0.0.4 or OpenMetricsText1.0.0");
}

static void read_job_names(struct config_reader *r, const struct yaml_node *n, void *section)
{
    read_name_scheme(r, n, &((struct job_section *)section)->job.legacy_names);
}

// name: [value, value]; a pair for each.
static void read_params(struct config_reader *r, const struct yaml_node *n, void *section)
{
    struct prom_job *job = &((struct job_section *)section)->job;
    size_t count, total = 0;
    if (!config_expect(r, n, YAML_MAPPING, "names and lists of values"))
        return;
    const struct yaml_node **members = config_members(r, n, &count);
    for (size_t i = 0; i < count; i++)
        total += members[i]->count;
    job->params = config_alloc(r, total, sizeof(*job->params));
    for (size_t i = 0; job->params && i < count; i++) {
        struct config_list values = {0};
        char *name = config_text(r, members[i]->key);
        if (!config_read_list(r, members[i], &values))
            continue;
        for (size_t k = 0; k < values.count; k++)
            job->params[job->param_count++] = (struct prom_pair){name, values.items[k]};
    }
}

static const struct config_key job_keys[] = {
    {"job_name", CONFIG_TEXT, offsetof(struct job_section, job.name)},
    {"scrape_interval", CONFIG_DURATION, offsetof(struct job_section, job.interval_ns)},
    {"scrape_timeout", CONFIG_DURATION, offsetof(struct job_section, job.timeout_ns)},
    {"scrape_protocols", CONFIG_CUSTOM, 0, read_job_protocols},
    {"scrape_fallback_protocol", CONFIG_CUSTOM, 0, read_fallback},
    {"scrape_classic_histograms", CONFIG_IGNORED}, // classic ones are all that the agent reads
    {"always_scrape_classic_histograms", CONFIG_IGNORED},
    {"convert_classic_histograms_to_nhcb", CONFIG_UNUSED},
    {"native_histogram_bucket_limit", CONFIG_UNUSED},
    {"native_histogram_min_bucket_factor", CONFIG_UNUSED},
    {"scrape_failure_log_file", CONFIG_UNUSED},
    {"metrics_path", CONFIG_TEXT, offsetof(struct job_section, job.metrics_path)},
    {"scheme", CONFIG_TEXT, offsetof(struct job_section, job.scheme)},
    {"params", CONFIG_CUSTOM, 0, read_params},
    {"honor_labels", CONFIG_BOOL, offsetof(struct job_section, job.honor_labels)},
    {"honor_timestamps", CONFIG_BOOL, offsetof(struct job_section, job.honor_timestamps)},
    {"track_timestamps_staleness", CONFIG_BOOL,
     offsetof(struct job_section, job.track_timestamps_staleness)},
    {"enable_compression", CONFIG_BOOL, offsetof(struct job_section, job.enable_compression)},
    {"body_size_limit", CONFIG_SIZE, offsetof(struct job_section, job.body_size_limit)},
    {"sample_limit", CONFIG_COUNT, offsetof(struct job_section, job.sample_limit)},
    {"target_limit", CONFIG_COUNT, offsetof(struct job_section, job.target_limit)},
    {"label_limit", CONFIG_COUNT, offsetof(struct job_section, job.label_limit)},
    {"label_name_length_limit", CONFIG_COUNT,
     offsetof(struct job_section, job.label_name_length_limit)},
    {"label_value_length_limit", CONFIG_COUNT,
     offsetof(struct job_section, job.label_value_length_limit)},
    {"keep_dropped_targets", CONFIG_COUNT, offsetof(struct job_section, job.keep_dropped_targets)},
    {"metric_name_validation_scheme", CONFIG_CUSTOM, 0, read_job_names},
    {"relabel_configs", CONFIG_CUSTOM, 0, read_relabel},
    {"metric_relabel_configs", CONFIG_CUSTOM, 0, read_metric_relabel},
    {"static_configs", CONFIG_CUSTOM, 0, read_static_configs},
    {"file_sd_configs", CONFIG_CUSTOM, 0, read_file_sds},
    {"http_sd_configs", CONFIG_CUSTOM, 0, read_http_sds},
    {"kubernetes_sd_configs", CONFIG_CUSTOM, 0, read_kube_sds},
    // Prometheus 3.0's other discoveries.
    {"azure_sd_configs", CONFIG_UNUSED},
    {"consul_sd_configs", CONFIG_UNUSED},
    {"digitalocean_sd_configs", CONFIG_UNUSED},
    {"dns_sd_configs", CONFIG_UNUSED},
    {"docker_sd_configs", CONFIG_UNUSED},
    {"dockerswarm_sd_configs", CONFIG_UNUSED},
    {"ec2_sd_configs", CONFIG_UNUSED},
    {"eureka_sd_configs", CONFIG_UNUSED},
    {"gce_sd_configs", CONFIG_UNUSED},
    {"hetzner_sd_configs", CONFIG_UNUSED},
    {"ionos_sd_configs", CONFIG_UNUSED},
    {"kuma_sd_configs", CONFIG_UNUSED},
    {"lightsail_sd_configs", CONFIG_UNUSED},
    {"linode_sd_configs", CONFIG_UNUSED},
    {"marathon_sd_configs", CONFIG_UNUSED},
    {"nerve_sd_configs", CONFIG_UNUSED},
    {"nomad_sd_configs", CONFIG_UNUSED},
    {"openstack_sd_configs", CONFIG_UNUSED},
    {"ovhcloud_sd_configs", CONFIG_UNUSED},
    {"puppetdb_sd_configs", CONFIG_UNUSED},
    {"scaleway_sd_configs", CONFIG_UNUSED},
    {"serverset_sd_configs", CONFIG_UNUSED},
    {"triton_sd_configs", CONFIG_UNUSED},
    {"uyuni_sd_configs", CONFIG_UNUSED},
    {"vultr_sd_configs", CONFIG_UNUSED},
    {"", CONFIG_INLINE, offsetof(struct job_section, http), .keys = http_keys},
    {NULL},
};

static struct job_section job_defaults(const struct yaml_node *n, const struct prom_global *g)
{
    static char metrics_path[] = "/metrics", scheme[] = "http", fallback[] = FALLBACK_PROTOCOL;
    return (struct job_section){
        .job = {.line = n->line,
                .metrics_path = metrics_path,
                .scheme = scheme,
                .fallback_protocol = fallback,
                .honor_timestamps = true,
                .enable_compression = true,
                .legacy_names = g->legacy_names},
        .http = http_section_defaults(),
    };
}

// A limit of 0 is the global one, as in Prometheus.
static void inherit(struct job_section *s, const struct prom_global *g)
{
    struct prom_job *job = &s->job;
    const struct config_list *protocols = s->protocols.node ? &s->protocols : &g->protocols;
    job->protocols = protocols->items;
    job->protocol_count = protocols->count;
    job->body_size_limit = or_default(job->body_size_limit, g->body_size_limit);
    job->sample_limit = or_default(job->sample_limit, g->sample_limit);
    job->target_limit = or_default(job->target_limit, g->target_limit);
    job->label_limit = or_default(job->label_limit, g->label_limit);
    job->label_name_length_limit =
        or_default(job->label_name_length_limit, g->label_name_length_limit);
    job->label_value_length_limit =
        or_default(job->label_value_length_limit, g->label_value_length_limit);
    job->keep_dropped_targets = or_default(job->keep_dropped_targets, g->keep_dropped_targets);
    job->interval_ns = or_default(job->interval_ns, g->interval_ns);
}

static void check_times(struct config_reader *r, const struct yaml_node *n, struct prom_job *job,
                        const struct prom_global *g)
{
    if (job->timeout_ns > job->interval_ns)
        config_problem(r, config_place(n, "scrape_timeout"),
                       "scrape_timeout is longer than scrape_interval for job '%.64s'",
                       job->name ? job->name : "");
    job->timeout_ns = or_default(job->timeout_ns, at_most(g->timeout_ns, job->interval_ns));
}

// Without rules to mend it, a URL in place of host:port can only fail.
static void check_targets(struct config_reader *r, const struct yaml_node *list)
{
    for (const struct yaml_node *group = list ? list->first : NULL; group; group = group->next) {
        const struct yaml_node *targets = yaml_find(group, "targets");
        for (const struct yaml_node *t = targets ? targets->first : NULL; t; t = t->next) {
            if (t->kind == YAML_SCALAR && sv_find_char(t->scalar, '/') != (size_t)-1)
                config_unexpected(
                    r, t, "host or host:port (scheme and metrics_path are keys of the job)");
        }
    }
}

void prom_job_read(struct config_reader *r, const struct yaml_node *n,
                   const struct prom_global *global, struct prom_job *out)
{
    struct job_section s = job_defaults(n, global);
    config_read_section(r, n, job_keys, &s);
    if (!s.job.name || !*s.job.name)
        config_problem(r, config_place(n, "job_name"), "a job needs a job_name");
    inherit(&s, global);
    check_times(r, n, &s.job, global);
    http_section_check(r, n, &s.http);
    s.job.http = s.http.http;
    s.job.relabel = r->failure ? NULL : relabel_read(r, s.relabel, s.job.legacy_names);
    s.job.metric_relabel =
        r->failure ? NULL : relabel_read(r, s.metric_relabel, s.job.legacy_names);
    if (relabel_count(s.job.relabel) == 0)
        check_targets(r, s.static_configs);
    *out = s.job;
}

void prom_job_deinit(struct prom_job *job)
{
    relabel_free(job->relabel);
    relabel_free(job->metric_relabel);
    job->relabel = job->metric_relabel = NULL;
}
