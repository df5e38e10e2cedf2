// SPDX-License-Identifier: Apache-2.0
// prometheus.yaml as Prometheus 3.0 reads it: strict keys, defaults from global. What the agent has
// no use for (rule files, alerting, remote_read, storage, tracing) is accepted, and listed so that
// one warning can name it.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent/relabel.h"
#include "base/error.h"
#include "base/sv.h"
#include "io/http_client.h"

struct prom_pair { // "name: value" in order
    char *name, *value;
};

// How to talk HTTP to targets and discovery servers. Strings owned by the config, NULL when not
// given.
struct prom_http {
    char *user, *user_file, *password, *password_file; // basic_auth
    char *auth_type, *credentials,
        *credentials_file; // authorization; bearer_token(_file) land here as "Bearer"
    struct http_tls tls;   // its strings owned here too
    char *ca, *cert, *key; // PEM in the configuration itself; of each, this or the file of tls
    char *proxy_url;       // NULL: none, unless from the environment
    bool proxy_from_environment;
    char *no_proxy;            // hosts that proxy_url is not for, comma-separated
    bool follow_redirects;     // default true
    struct prom_pair *headers; // http_headers: values and secrets, a name repeated for each
    size_t header_count;
    struct prom_pair *header_files; // name, path of a file with the value
    size_t header_file_count;
};

struct prom_static_group {
    char **targets;
    size_t target_count;
    struct prom_pair *labels; // each name once
    size_t label_count;
    unsigned line;
};

struct prom_file_sd {
    char **files; // paths, the last element may hold *
    size_t file_count;
    uint64_t refresh_ns;
};

struct prom_http_sd {
    char *url;
    uint64_t refresh_ns;
    struct prom_http http;
};

enum prom_kube_role {
    PROM_KUBE_NODE,
    PROM_KUBE_SERVICE,
    PROM_KUBE_POD,
    PROM_KUBE_ENDPOINTS,
    PROM_KUBE_ENDPOINTSLICE,
    PROM_KUBE_INGRESS,
};

struct prom_kube_sd {
    enum prom_kube_role role;
    char *api_server, *kubeconfig_file;
    bool own_namespace;
    char **namespaces;
    size_t namespace_count;
    struct prom_kube_selector {
        enum prom_kube_role role;
        char *label, *field;
    } * selectors;
    size_t selector_count;
    bool attach_node;
    struct prom_http http;
    unsigned line;
};

struct prom_job {
    char *name;
    unsigned line;
    uint64_t interval_ns, timeout_ns;
    char *metrics_path, *scheme;
    struct prom_pair *params; // repeated names in order
    size_t param_count;
    bool honor_labels, honor_timestamps, track_timestamps_staleness, enable_compression;
    bool legacy_names; // metric_name_validation_scheme: legacy; else any UTF-8 is a name
    uint64_t sample_limit, label_limit, label_name_length_limit, label_value_length_limit,
        target_limit,
        body_size_limit;           // 0: off
    uint64_t keep_dropped_targets; // 0: all
    char **protocols; // scrape_protocols, as in "OpenMetricsText1.0.0", the liked ones first; none:
                      // Prometheus' default
    size_t protocol_count;
    char *fallback_protocol; // for answers without a known Content-Type; default
                             // "PrometheusText0.0.4"
    struct prom_http http;
    struct relabel_rules *relabel, *metric_relabel;
    struct prom_static_group *static_groups;
    size_t static_count;
    struct prom_file_sd *file_sds;
    size_t file_sd_count;
    struct prom_http_sd *http_sds;
    size_t http_sd_count;
    struct prom_kube_sd *kube_sds;
    size_t kube_sd_count;
};

struct prom_config {
    unsigned refs; // owned by the loop
    char *file;
    struct prom_job *jobs;
    size_t job_count;
    struct prom_pair *external_labels;
    size_t external_label_count;
    char *ignored; // "rule_files, alerting": keys accepted without effect; "" for none
};

// Collects every problem: errors is appended one line each ("file:line:column: text"); the return
// says whether any. Relative paths in it are taken from the directory of file. 0; -EINVAL; -ENOMEM.
// parse reads nothing but text, so scrape_config_files are among the ignored; load reads those
// files, too.
int must_use prom_config_parse(struct sv text, const char *file, struct prom_config **out,
                               struct buf *errors);
int must_use prom_config_load(const char *path, struct prom_config **out, struct buf *errors);
// The same; scrape_config_files and the directories of their patterns are appended to watched, one
// path a line, also on failure.
int must_use prom_config_load_watched(const char *path, struct prom_config **out,
                                      struct buf *errors, struct buf *watched);
struct prom_config *prom_config_ref(struct prom_config *c);
void prom_config_unref(struct prom_config *c);
// Prometheus durations: 1m30s, 5s, 100ms, 1d. 0, -EINVAL.
int must_use prom_parse_duration(struct sv s, uint64_t *out_ns);
