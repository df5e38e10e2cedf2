// SPDX-License-Identifier: Apache-2.0
// The root of cwagentconfig.json. Each file becomes a tree; the trees are read as one document, and
// gone afterwards. What was read lies in one arena beside the configuration, but for compiled
// patterns; it is overwritten before it goes, since the text of a prometheus.yaml may hold
// passwords.
#include "agent/cwagent_config.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/cwagent_config_internal.h"
#include "base/clock.h"
#include "base/limits.h"

#define PROMETHEUS_PATH "/etc/cwagentconfig/prometheus.yaml"

struct holder {
    struct cw_values values;
    struct arena arena;
    char *watched; // paths, one a line; NULL
};

// --- The tables: github.com/aws/amazon-cloudwatch-agent, translator/config/schema.json ---

#define VALUE(member) offsetof(struct cw_values, member)
#define CONFIG(member) offsetof(struct cw_values, config.member)
#define ROLE_BOUNDS 20, 2048
#define INTERVAL_BOUNDS 1, 172800

static const struct cw_key agent_credentials_keys[] = {
    {"role_arn", CW_TEXT, VALUE(agent_role), ROLE_BOUNDS, .kind = "string, 20 to 2048 characters",
     .text = "The role that the agent takes on for what it sends."},
    {NULL},
};
static const struct cw_section agent_credentials = {"agent.credentials", agent_credentials_keys};

static const struct cw_key agent_keys[] = {
    {"region", CW_CUSTOM, .custom = cw_region_read, .kind = "string, 1 to 64 characters",
     .preset = "found", .text = "The AWS region."},
    {"debug", CW_BOOL, CONFIG(debug), .kind = "boolean", .preset = "false",
     .text = "Logs at level debug, from the start on."},
    {"credentials", CW_SECTION, .section = &agent_credentials, .kind = "object"},
    {"omit_hostname", CW_BOOL, VALUE(omit_hostname), .kind = "boolean",
     .preset = "true in a container, else false",
     .text = "Without it each metric has a label `host`."},
    {"hostname", CW_TEXT, CONFIG(hostname), 0, 1024, .kind = "string, up to 1024 characters",
     .preset = "the machine's", .text = "The value of `host`."},
    {"use_dualstack_endpoint", CW_BOOL, CONFIG(use_dualstack), .kind = "boolean", .preset = "false",
     .text = "Endpoints that have IPv6, too."},
    {"metrics_collection_interval", CW_WHOLE, CW_NOWHERE, INTERVAL_BOUNDS,
     .kind = "whole number, 1 to 172800"},
    {"logfile", CW_TEXT, CW_NOWHERE, 0, 4096, .kind = "string, up to 4096 characters"},
    {"aws_sdk_log_level", CW_TEXT, CW_NOWHERE, 0, INT64_MAX, .kind = "string"},
    {"service.name", CW_TEXT, CW_NOWHERE, 1, 255, .kind = "string, 1 to 255 characters"},
    {"deployment.environment", CW_TEXT, CW_NOWHERE, 1, 259, .kind = "string, 1 to 259 characters"},
    {"quiet", CW_ANY, CW_NOWHERE, .kind = "anything"},
    {"run_as_user", CW_ANY, CW_NOWHERE, .kind = "anything"},
    {"user_agent", CW_ANY, CW_NOWHERE, .kind = "anything"},
    {"usage_data", CW_ANY, CW_NOWHERE, .kind = "anything"},
    {"internal", CW_ANY, CW_NOWHERE, .kind = "anything"},
    {NULL},
};
static const struct cw_section agent_section = {"agent", agent_keys, .open = true};

static const struct cw_key prometheus_keys[] = {
    {"cluster_name", CW_TEXT, CONFIG(cluster_name), 0, 1024,
     .kind = "string, up to 1024 characters", .preset = "found",
     .text = "The label `ClusterName`, and part of the default log group."},
    {"log_group_name", CW_CUSTOM, .custom = cw_log_group_read,
     .kind = "string, up to 512 characters",
     .preset = "`/aws/containerinsights/CLUSTER/prometheus`",
     .text = "Where events go; may hold `{ClusterName}`, `{JobName}` and the like."},
    {"prometheus_config_path", CW_CUSTOM, .custom = cw_prometheus_path_read, .kind = "string",
     .preset = "`" PROMETHEUS_PATH "`",
     .text = "An absolute path, `file:PATH`, or `env:NAME` for an environment variable that holds "
             "the text itself."},
    {"emf_processor", CW_CUSTOM, .custom = cw_emf_read, .kind = "object",
     .text = "Without it nothing becomes a metric."},
    {"disable_metric_extraction", CW_BOOL, CONFIG(disable_metric_extraction), .kind = "boolean",
     .preset = "false", .text = "Sends plain log events, from which CloudWatch makes no metrics."},
    {"ecs_service_discovery", CW_IGNORED, .kind = "object"},
    {NULL},
};

static void check_prometheus(struct cw_reader *r, const struct json_node *n, void *values)
{
    (void)n;
    struct cw_config *c = &((struct cw_values *)values)->config;
    const char *root = ((struct cw_values *)values)->from->root;
    struct buf path = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    c->has_prometheus = true;
    if (c->prometheus_path || c->prometheus_text || r->problems)
        return;
    buf_add_str(&path, root ? root : "");
    buf_add_str(&path, PROMETHEUS_PATH);
    if (path.error)
        r->failure = path.error;
    else
        c->prometheus_path = cw_copy(r, buf_sv(&path));
    buf_deinit(&path);
}

static const struct cw_section prometheus_section = {"logs.metrics_collected.prometheus",
                                                     prometheus_keys, .check = check_prometheus};

static const struct cw_key kubernetes_keys[] = {
    {"cluster_name", CW_TEXT, CONFIG(kubernetes_cluster_name), 1, 512,
     .kind = "string, 1 to 512 characters",
     .text = "Names the cluster where the prometheus section does not; with `--compat=cwagent` it "
             "does so in the default log group alone, and goes before it there, as "
             "`K8S_CLUSTER_NAME` does then."},
    {NULL},
};
static const struct cw_section kubernetes_section = {
    "logs.metrics_collected.kubernetes", kubernetes_keys, .open = true, .ignored = true};

static const struct cw_key metrics_collected_keys[] = {
    {"prometheus", CW_SECTION, .section = &prometheus_section, .kind = "object"},
    {"kubernetes", CW_SECTION, .section = &kubernetes_section, .kind = "object"},
    {"ecs", CW_IGNORED, .kind = "object"},
    {"otlp", CW_IGNORED, .kind = "object or array"},
    {"app_signals", CW_IGNORED, .kind = "object"},
    {"application_signals", CW_IGNORED, .kind = "object"},
    {NULL},
};

static void note_collected(struct cw_reader *r, const struct json_node *n, void *values)
{
    (void)r;
    (void)n;
    ((struct cw_values *)values)->has_collected = true;
}

static const struct cw_section metrics_collected_section = {
    "logs.metrics_collected", metrics_collected_keys, .open = true, .check = note_collected};

static const struct cw_key logs_credentials_keys[] = {
    {"role_arn", CW_TEXT, VALUE(logs_role), ROLE_BOUNDS, .kind = "string, 20 to 2048 characters",
     .preset = "`agent.credentials.role_arn`",
     .text = "The role that the agent takes on for CloudWatch Logs."},
    {NULL},
};
static const struct cw_section logs_credentials = {"logs.credentials", logs_credentials_keys};

static const struct cw_key logs_keys[] = {
    {"metrics_collected", CW_SECTION, .section = &metrics_collected_section, .kind = "object"},
    {"logs_collected", CW_IGNORED, .custom = note_collected, .kind = "object"},
    {"force_flush_interval", CW_WHOLE, VALUE(flush_s), INTERVAL_BOUNDS,
     .kind = "whole number, 1 to 172800 seconds", .preset = "5",
     .text = "How long events wait for others before they are sent."},
    {"credentials", CW_SECTION, .section = &logs_credentials, .kind = "object"},
    {"endpoint_override", CW_CUSTOM, .custom = cw_endpoint_read,
     .kind = "string, 4 to 2048 characters", .preset = "the region's",
     .text = "URL of CloudWatch Logs, as of a VPC endpoint. No user or password in it."},
    {"log_stream_name", CW_TEXT, CW_NOWHERE, 1, 512, .kind = "string, 1 to 512 characters"},
    {"concurrency", CW_WHOLE, CW_NOWHERE, 1, INT64_MAX, .kind = "whole number, 1 or more"},
    {"service.name", CW_TEXT, CW_NOWHERE, 1, 255, .kind = "string, 1 to 255 characters"},
    {"deployment.environment", CW_TEXT, CW_NOWHERE, 1, 259, .kind = "string, 1 to 259 characters"},
    {NULL},
};

static void check_logs(struct cw_reader *r, const struct json_node *n, void *values)
{
    if (!((struct cw_values *)values)->has_collected)
        cw_problem(r, n, "expected metrics_collected or logs_collected in it");
}

static const struct cw_section logs_section = {"logs", logs_keys, .check = check_logs};

static const struct cw_key root_keys[] = {
    {"agent", CW_SECTION, .section = &agent_section, .kind = "object"},
    {"logs", CW_SECTION, .section = &logs_section, .kind = "object"},
    {"podgpu", CW_SECTION, .section = &cw_podgpu_section, .kind = "object"},
    {"metrics", CW_IGNORED, .kind = "object"},
    {"traces", CW_IGNORED, .kind = "object"},
    {"opentelemetry", CW_IGNORED, .kind = "object"},
    {NULL},
};
const struct cw_section cw_root_section = {"", root_keys, .open = true};

// --- The environment ---

const char *cw_environment_find(const struct cw_sources *from, const char *name)
{
    size_t length = strlen(name);
    for (char *const *e = from->environment; e && *e; e++) {
        if (strncmp(*e, name, length) == 0 && (*e)[length] == '=')
            return *e + length + 1;
    }
    return NULL;
}

static bool environment_is(const struct cw_sources *from, const char *name, const char *value)
{
    const char *found = cw_environment_find(from, name);
    return found && strcmp(found, value) == 0;
}

static void read_environment(struct cw_values *v)
{
    const struct cw_sources *from = v->from;
    struct cw_config *c = &v->config;
    const char *debug = cw_environment_find(from, "DEBUG");
    const char *dualstack = cw_environment_find(from, "AWS_USE_DUALSTACK_ENDPOINT");
    bool kubernetes = cw_environment_find(from, "KUBERNETES_SERVICE_HOST");
    c->in_ecs = !kubernetes && (cw_environment_find(from, "ECS_CONTAINER_METADATA_URI") ||
                                cw_environment_find(from, "ECS_CONTAINER_METADATA_URI_V4"));
    c->in_container = kubernetes || c->in_ecs || environment_is(from, "RUN_IN_CONTAINER", "True");
    c->debug = (debug && *debug) || environment_is(from, "CWAGENT_LOG_LEVEL", "DEBUG");
    c->use_dualstack = dualstack && sv_equals_nocase(sv_from(dualstack), SV("true"));
}

// --- One configuration ---

// Keys override what stands here.
static void set_defaults(struct cw_reader *r, struct cw_values *v)
{
    struct cw_config *c = &v->config;
    c->refs = 1;
    c->compat = v->from->compat;
    read_environment(v);
    v->omit_hostname = c->in_container;
    v->flush_s = 5;
    c->metric_namespace = cw_copy(r, sv_from(c->in_ecs         ? "ECS/ContainerInsights/Prometheus"
                                             : c->in_container ? "ContainerInsights/Prometheus"
                                                               : "CWAgent/Prometheus"));
    int failure = cw_podgpu_defaults(r, v);
    if (failure < 0)
        r->failure = failure;
}

static void finish(struct cw_reader *r, struct cw_values *v)
{
    struct cw_config *c = &v->config;
    if (v->from->prometheus_path && c->prometheus_path)
        buf_add_str(v->from->prometheus_path, c->prometheus_path);
    const char *cluster = cw_environment_find(v->from, "K8S_CLUSTER_NAME");
    if (c->compat && !c->kubernetes_cluster_name && cluster && *cluster)
        c->kubernetes_cluster_name = cw_copy(r, sv_from(cluster));
    c->flush_ns = v->flush_s * NS_PER_S;
    c->role_arn = v->logs_role ? v->logs_role : v->agent_role;
    c->add_host = !v->omit_hostname;
}

static void free_holder(struct holder *h)
{
    struct cw_config *c = &h->values.config;
    for (size_t i = 0; i < c->declaration_count; i++)
        cw_declaration_deinit(&c->declarations[i]);
    regex_free(c->counters_from_zero);
    for (size_t i = 0; i < c->output_count; i++)
        free(c->outputs[i].where);
    free(h->watched);
    arena_erase(&h->arena);
    arena_deinit(&h->arena);
    free(h);
}

static void parse_texts(struct cw_reader *r, const struct cw_text *texts, size_t count,
                        struct json_document **documents)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count && !r->failure; i++) {
        struct error err = ERROR_INIT;
        struct json_node at = {0};
        r->file = texts[i].file;
        bytes += texts[i].text.len;
        if (bytes > LIMIT_CW_TEXT_BYTES)
            return cw_problem(r, NULL, "more than %u bytes of configuration", LIMIT_CW_TEXT_BYTES);
        int result = json_parse(texts[i].text, texts[i].file, &documents[i], &err);
        at.line = err.line;
        at.column = err.column;
        if (result == -ENOMEM)
            r->failure = result;
        else if (result < 0)
            cw_problem(r, &at, "not JSON: %s", err.text);
    }
}

// Problems of syntax are told for all files, and then nothing else: what is missing would be told
// as if it were not there.
static void read_texts(struct cw_reader *r, const struct cw_text *texts, size_t count,
                       struct cw_values *v)
{
    struct json_document *documents[LIMIT_CW_FILES] = {NULL};
    struct cw_part parts[LIMIT_CW_FILES];
    if (count == 0 || count > LIMIT_CW_FILES) {
        r->file = count ? texts[LIMIT_CW_FILES].file : "configuration";
        return cw_problem(r, NULL, count ? "more than %u files" : "no file", LIMIT_CW_FILES);
    }
    parse_texts(r, texts, count, documents);
    for (size_t i = 0; i < count && !r->problems && !r->failure; i++)
        parts[i] = (struct cw_part){json_root(documents[i]), texts[i].file};
    if (!r->problems && !r->failure)
        cw_section_read(r, parts, count, &cw_root_section, v);
    for (size_t i = 0; i < count; i++)
        json_document_free(documents[i]);
}

static int outcome(struct cw_reader *r, const char *file)
{
    if (r->failure == -EFBIG) {
        r->file = file;
        cw_problem(r, NULL, "more than %u bytes when read", LIMIT_CW_CONFIG_BYTES);
        return -EINVAL;
    }
    return r->failure ? -ENOMEM : r->problems ? -EINVAL : 0;
}

int cw_config_parse(const struct cw_text *texts, size_t count, const struct cw_sources *from,
                    struct cw_config **out, struct buf *errors, struct buf *warnings)
{
    struct holder *h = calloc(1, sizeof(*h));
    struct buf ignored = BUF_INIT(LIMIT_CW_IGNORED_BYTES);
    if (!h)
        return -ENOMEM;
    h->arena = ARENA_INIT(LIMIT_CW_CONFIG_BYTES);
    h->values.from = from;
    struct cw_reader r = {
        .arena = &h->arena,
        .scratch = ARENA_INIT(LIMIT_CW_CONFIG_BYTES),
        .errors = errors,
        .warnings = warnings,
        .ignored = &ignored,
    };
    set_defaults(&r, &h->values);
    if (!r.failure)
        read_texts(&r, texts, count, &h->values);
    finish(&r, &h->values);
    h->values.config.ignored = cw_copy(&r, buf_sv(&ignored));
    int result = ignored.error ? -ENOMEM : outcome(&r, count ? texts[0].file : "configuration");
    buf_deinit(&ignored);
    arena_deinit(&r.scratch);
    if (result == 0)
        *out = &h->values.config;
    else
        free_holder(h);
    return result;
}

struct cw_config *cw_config_ref(struct cw_config *c)
{
    c->refs++;
    return c;
}

void cw_config_unref(struct cw_config *c)
{
    if (c && --c->refs == 0)
        free_holder(container_of(c, struct holder, values.config));
}

void cw_config_set_watched(struct cw_config *c, char *paths)
{
    container_of(c, struct holder, values.config)->watched = paths;
}

void cw_config_add_watched(const struct cw_config *c, struct buf *out)
{
    const struct holder *h =
        container_of((struct cw_config *)(uintptr_t)c, struct holder, values.config);
    buf_add_str(out, h->watched ? h->watched : "");
}
