// SPDX-License-Identifier: Apache-2.0
// cwagentconfig.json: the configuration of the Amazon CloudWatch agent, as far as its Prometheus
// pipeline reads it, with our additions under the key "podgpu". Several files are merged section by
// section. Every problem is told at once. Sources: the agent's JSON schema
// (github.com/aws/amazon-cloudwatch-agent, translator/config/schema.json) and the CloudWatch
// user guide, "Set up and configure Prometheus metrics collection".
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/labels.h"
#include "base/buf.h"
#include "base/sv.h"
#include "codec/regex.h"

#define CW_UNIT_NAME_MAX 32

struct cw_dimension_set {
    struct sv *names; // sorted bytewise, each once; count 0: the metric without dimensions
    size_t count;
};

struct cw_declaration {
    struct sv *source_labels;
    size_t source_label_count;
    struct sv separator;      // default ";" (always ";" with compat)
    struct regex *matcher;    // REGEX_SEARCH on the joined values; never NULL
    struct regex **selectors; // REGEX_SEARCH on the metric name
    struct sv *selector_texts;
    size_t selector_count;
    struct cw_dimension_set *dimensions;
    size_t dimension_count; // 0: extracts nothing
    struct sv matcher_text;
    const char *file;
    unsigned line;
    unsigned matcher_line, selectors_line, dimensions_line, source_labels_line; // 0: not given
};

struct cw_unit {
    struct sv metric; // exact name
    const char *unit; // CloudWatch's, static
};

enum cw_unmatched {
    CW_UNMATCHED_DROP, // samples that no declaration extracts are not sent
    CW_UNMATCHED_LOG,  // they are, as plain fields of log events
};

enum cw_output_kind {
    CW_OUTPUT_CLOUDWATCH,
    CW_OUTPUT_STDOUT,
    CW_OUTPUT_FILE, // where: the path
    CW_OUTPUT_TCP,  // where: HOST:PORT
};

#define CW_OUTPUTS_MAX 4

struct cw_output {
    enum cw_output_kind kind;
    char *where;
};

struct cw_config {
    unsigned refs; // owned by the loop
    // agent
    char *region;       // NULL: to be found
    char *role_arn;     // logs.credentials.role_arn, else agent.credentials.role_arn; NULL
    bool debug;         // agent.debug, or CWAGENT_LOG_LEVEL=DEBUG, or DEBUG is not empty
    bool use_dualstack; // agent.use_dualstack_endpoint, or AWS_USE_DUALSTACK_ENDPOINT=true
    bool add_host;      // omit_hostname false
    char *hostname;     // agent.hostname; NULL: the machine's
    // logs
    uint64_t flush_ns;       // force_flush_interval; default 5 s
    char *endpoint_override; // http or https URL without user and password; NULL
    // logs.metrics_collected.prometheus
    bool has_prometheus; // the section is there
    char *cluster_name;  // NULL: to be found
    // logs.metrics_collected.kubernetes.cluster_name, with compat else K8S_CLUSTER_NAME, which
    // names the cluster in the agent's default log group (compat); NULL
    char *kubernetes_cluster_name;
    char *log_group; // may hold {Placeholders}; NULL: the default with the cluster's name
    // One of the two: a path (absolute), or the text that an env: reference gave and its name for
    // messages.
    char *prometheus_path;
    char *prometheus_text, *prometheus_text_name;
    bool has_emf_processor;
    bool disable_metric_extraction;
    char *metric_namespace; // default: ECS/ContainerInsights/Prometheus on ECS,
                            // ContainerInsights/Prometheus in another container, else
                            // CWAgent/Prometheus
    struct cw_declaration *declarations;
    size_t declaration_count;
    struct cw_unit *units; // sorted by metric
    size_t unit_count;
    // podgpu
    enum cw_unmatched unmatched;      // default: drop; log with compat
    struct regex *counters_from_zero; // full match on the name; default ^podgpu_.*_total$; NULL:
                                      // none (compat)
    unsigned storage_resolution;      // 1 or 60; 0: 1 where the scrape interval is under 60 s, else
                                      // 60 (compat: 60)
    uint64_t aggregate_ns;            // 0: off; else a whole number of minutes
    bool histograms;                  // sent, as values and counts; only with aggregate_ns
    bool scope_node;                  // only targets of this node
    char *spool_directory;            // default /var/lib/podgpu/spool; "" none
    uint64_t spool_max_bytes;         // default 256 MiB
    uint64_t spool_max_age_ns;        // default and most: 14 days
    unsigned retention_days;          // of a log group we make; default 30, 0: never expires
                                      // (compat: 0)
    struct cw_output outputs[CW_OUTPUTS_MAX]; // default: one, CW_OUTPUT_CLOUDWATCH
    size_t output_count;                      // one at least
    bool compat;                              // as asked of cw_config_load
    bool in_container; // RUN_IN_CONTAINER=True, or the variables of Kubernetes or ECS are there
    bool in_ecs;       // ECS_CONTAINER_METADATA_URI or _V4 is there, and not Kubernetes
    char *ignored; // "metrics, logs.metrics_collected.ecs": accepted without effect; "" for none
};

struct cw_sources {           // where configuration may come from; all borrowed
    const char *path;         // --config: a file or a directory; NULL: the agent's own places
    const char *root;         // prepended to the agent's own places, for tests; "" or NULL
    char *const *environment; // NULL-ended "NAME=value"
    bool compat;
    // Not NULL: the path of prometheus.yaml is appended, if the JSON says it, also when the JSON is
    // refused.
    struct buf *prometheus_path;
};

// Looks where the agent looks: --config, else the directory /etc/cwagentconfig, else
// /opt/aws/amazon-cloudwatch-agent/etc/amazon-cloudwatch-agent.json with amazon-cloudwatch-agent.d,
// else CW_CONFIG_CONTENT (with RUN_IN_CONTAINER=True in the agent; here always). Names that end in
// .yaml or .yml are not JSON and passed over, names that begin with a dot too (a ConfigMap's
// ..data), .tmp too; at most 64 files. Directories in a directory are looked into, links followed.
// 0; -ENOENT: nothing there (errors names every place looked); -EINVAL: problems, one a
// line in errors: "file:line:column: path: text". Warnings (a unit that CloudWatch does not know, a
// set of more than 30 dimensions, ...) are appended to warnings in the same form; then the part is
// left out as the agent would. -ENOMEM.
int must_use cw_config_load(const struct cw_sources *from, struct cw_config **out,
                            struct buf *errors, struct buf *warnings);

struct cw_text { // one file
    struct sv text;
    const char *file;
};
// The same from texts; reads no file. prometheus_config_path env: is looked up in
// from->environment.
int must_use cw_config_parse(const struct cw_text *texts, size_t count,
                             const struct cw_sources *from, struct cw_config **out,
                             struct buf *errors, struct buf *warnings);
struct cw_config *cw_config_ref(struct cw_config *c);
void cw_config_unref(struct cw_config *c);
// The files and directories that the configuration came from, to watch: appended to out, one path a
// line.
void cw_config_add_watched(const struct cw_config *c, struct buf *out);
// Whether the declaration's matcher finds something in the values of its source labels, joined by
// its separator; a label that is not there counts as empty. scratch holds the joined text
// afterwards. When scratch is at its ceiling or out of memory it does not match: look at its error.
bool cw_declaration_matches(const struct cw_declaration *d, const struct labels *l,
                            struct buf *scratch);
// Whether any of the declaration's selectors finds something in the metric's name.
bool cw_declaration_selects(const struct cw_declaration *d, struct sv metric);
// The same without a configuration, as after one that was refused: the places that are looked at,
// whether or not something is there yet, and the files in them.
void cw_sources_add_watched(const struct cw_sources *from, struct buf *out);
// A CloudWatch unit by its exact name; NULL: there is none.
const char *cw_unit_find(struct sv name);
// "--output": cloudwatch, stdout, file:PATH, tcp:HOST:PORT. 0; -EINVAL with *err; -ENOMEM. where is
// the caller's to free.
struct error;
int must_use cw_output_parse(struct sv text, struct cw_output *out, struct error *err);
