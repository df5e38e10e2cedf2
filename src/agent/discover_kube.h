// SPDX-License-Identifier: Apache-2.0
// kubernetes_sd_configs: pods, services, endpoints, endpointslices, nodes (and ingresses) of a
// cluster as targets, with Prometheus' meta labels, by paged list and watch; no more of an object
// is kept than its targets need. Source:
// prometheus.io/docs/prometheus/latest/configuration/configuration/#kubernetes_sd_config.
#pragma once

#include "agent/prometheus_config.h"
#include "agent/target_group.h"
#include "io/http_client.h"
#include "io/loop.h"

struct discover_kube;
// config is borrowed. node_name: NULL, or only targets on that node, asked for by a field selector
// where the role has one. 0; -EINVAL with *err (no api_server, no kubeconfig, and not in a cluster;
// a kubeconfig that cannot be read; services or ingresses, which are on no node, with a node_name);
// -ENOMEM.
int must_use discover_kube_new(struct loop *l, struct http_client *client,
                               const struct prom_kube_sd *config, const char *node_name,
                               const struct discover_events *events, struct discover_kube **out,
                               struct error *err);
void discover_kube_free(struct discover_kube *d);

struct discover_kube_stats { // of all watches together
    size_t objects;          // there are now
    size_t record_bytes;     // kept of them
    uint64_t lists, watches, events, failures, skipped;
};
void discover_kube_get_stats(const struct discover_kube *d, struct discover_kube_stats *out);
// Before the paths of the service account, for tests; NULL: none. Borrowed.
void discover_kube_set_root(const char *root);
