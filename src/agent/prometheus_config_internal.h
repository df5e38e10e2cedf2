// SPDX-License-Identifier: Apache-2.0
// The parts that prometheus.yaml is read in.
#pragma once

#include "agent/config_reader.h"
#include "agent/prometheus_config.h"

// --- prometheus_config_http.c: options of HTTP clients, inline in scrape jobs and discovery
// sections ---

struct http_section {
    struct prom_http http;
    char *bearer_token, *bearer_token_file;
    bool enable_http2;
    bool basic_auth, authorization, oauth2, proxy_headers; // the section is there
};

extern const struct config_key http_keys[];
struct http_section http_section_defaults(void);
// The rules that join several keys; n is the mapping they stand in. Then s->http is complete.
void http_section_check(struct config_reader *r, const struct yaml_node *n, struct http_section *s);
bool http_section_is_default(const struct http_section *s);

// --- prometheus_config_sd.c: discovery sections, one item of a list each ---

// Whether its stars stand in the last element only.
bool prom_is_pattern(struct sv path);
void prom_static_read(struct config_reader *r, const struct yaml_node *n,
                      void *item); // struct prom_static_group
void prom_file_sd_read(struct config_reader *r, const struct yaml_node *n,
                       void *item); // struct prom_file_sd
void prom_http_sd_read(struct config_reader *r, const struct yaml_node *n,
                       void *item); // struct prom_http_sd
void prom_kube_sd_read(struct config_reader *r, const struct yaml_node *n,
                       void *item); // struct prom_kube_sd

// --- prometheus_config_job.c ---

struct prom_global {
    uint64_t interval_ns, timeout_ns;
    uint64_t sample_limit, label_limit, label_name_length_limit, label_value_length_limit,
        target_limit, body_size_limit, keep_dropped_targets;
    struct config_list protocols;
    bool legacy_names;
    struct prom_pair *external_labels;
    size_t external_label_count;
};

void prom_global_read(struct config_reader *r, const struct yaml_node *n,
                      struct prom_global *out); // n NULL: defaults
// Rules in *out are owned whatever the reader says.
void prom_job_read(struct config_reader *r, const struct yaml_node *n,
                   const struct prom_global *global, struct prom_job *out);
void prom_job_deinit(struct prom_job *job);
// Pairs of a mapping of texts; a null value is the empty text. names_are_labels: they are held to
// be label names.
struct prom_pair *prom_pairs_read(struct config_reader *r, const struct yaml_node *n,
                                  bool names_are_labels, size_t *out_count);
