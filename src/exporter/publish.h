// SPDX-License-Identifier: Apache-2.0
// From the latest inventory and kubelet map to the bodies that scrapers get: owners are worked out
// when either changed, the page is rendered, and the new bodies replace the old ones. At most
// LIMIT_PAGES_LIVE pages are alive: when a slow reader would hold a fourth, the readers of the
// oldest are shut down and counted.
#pragma once

#include "exporter/render.h"
#include "io/http_server.h"

struct publisher;

int must_use publisher_new(const struct exporter_options *options, struct publisher **out);
void publisher_free(struct publisher *p);

// Whether a row of the kubelet's list can matter here: the poller's filter.
bool publisher_wants(const struct publisher *p, struct sv resource, struct sv device_id);
// The kubelet's map (referenced here) or NULL. Takes effect with the next publish.
void publisher_set_pods(struct publisher *p, struct pod_devices *rows);
// UIDs and labels of pods, borrowed for good; what changes in it is on the next page. Pods of it
// that are deleted go with their last row of the map.
void publisher_set_metadata(struct publisher *p, struct pod_metadata *metadata);
// What resolves the devices of resource claims: ResourceSlices are put into it. Borrowed; what
// changes in it is on the next page.
struct dra *publisher_dra(struct publisher *p);
// dcgm-exporter's windowed counters, borrowed for good; NULL: none.
void publisher_set_exp(struct publisher *p, struct exp_counts *exp);
// What containers used, borrowed for good; NULL: none.
void publisher_set_ledger(struct publisher *p, const struct ledger *ledger);
// What pods' processes use, for --kubernetes-virtual-gpus; borrowed for good; NULL: not known.
struct usage;
void publisher_set_usage(struct publisher *p, const struct usage *usage);
// What the plugins offer (NULL: not known), borrowed until it is told again.
void publisher_set_allocatable(struct publisher *p, const struct pod_devices *rows,
                               uint64_t version);
// Who holds which device of the view (index: view->primary->entities), as the next page says it,
// worked out anew where it changed, and in how many replicas each is offered (0: not known).
// Borrowed until the next call of a publisher's function that is given something.
struct publisher_owners {
    uint64_t version; // another number when anything may differ
    const struct pod_devices *rows;
    const struct attribute_result *holders; // NULL with rows NULL
    const uint32_t *offered;
};
// 0, -ENOMEM.
int must_use publisher_get_owners(struct publisher *p, const struct device_view *view,
                                  struct publisher_owners *out);
// HPC jobs by (GPU, instance); borrowed until the next call.
struct hpc_jobs;
void publisher_set_jobs(struct publisher *p, const struct hpc_jobs *jobs);

// Renders and swaps. A page over its ceiling is made without what pods are labelled with, and if
// that is not enough without owners, which it says itself (self->page_without_pod_labels,
// self->page_without_owners). 0; -ENOMEM or -EFBIG: the page before stays.
int must_use publisher_publish(struct publisher *p, const struct exporter_config *config,
                               const struct device_view *view, struct render_self *self,
                               uint64_t now_ns);
// The current body, or NULL before the first publish. Borrowed until the next publish.
struct http_body *publisher_body(const struct publisher *p, enum text_format format);

// No new one could be made for so long that its values are no more to be shown.
bool publisher_page_is_old(const struct publisher *p, uint64_t now_ns);

// render_selection_error of the page published last. Borrowed until the next publish.
const char *publisher_selection_error(const struct publisher *p, enum render_group group);

// Series on the page published last.
void publisher_counts(const struct publisher *p, size_t *out_device_series, size_t *out_all_series);
