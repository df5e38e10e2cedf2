// SPDX-License-Identifier: Apache-2.0
// podgpu_node_gpu_*: how many devices of each resource the plugins offer, how many of them
// containers hold, and how many of those are idle: whoever holds it, or a part of the GPU that it
// is, is known not to have used it for --idle-after. Where nobody can know who did what (shared,
// without process evidence) a device is not idle.
#pragma once

#include "exporter/render.h"

struct render_layout;

struct render_node_id {
    uint32_t first, count; // accounts of those who hold it, as far as it is a device of ours
};
struct render_node_resource {
    uint32_t at, bytes; // its labels
    bool offer_known;
    uint32_t offered;
    uint32_t first, held; // ids that are held
};
struct render_node {
    bool valid;
    const struct ledger *ledger;
    uint64_t ledger_layout, owners_version, allocatable_version;
    bool offers_known;
    struct buf text;
    struct render_node_resource *resources;
    struct render_node_id *ids;
    uint32_t *accounts; // places in the ledger; UINT32_MAX: none
    size_t resource_count, resource_capacity, id_capacity, account_capacity;
};
void render_node_deinit(struct render_node *n);
// 0, -ENOMEM, -EFBIG.
int must_use render_node_refresh(struct render_layout *l, const struct render_input *in);
size_t render_node_add(const struct render_layout *l, const struct render_input *in,
                       struct buf *out);
