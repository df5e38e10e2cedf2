// SPDX-License-Identifier: Apache-2.0
// The ledger's families on a page. Devices of the ledger are those of the view with the same UUID.
// One that the view does not have any more (a MIG instance that is gone, while the counters of its
// containers stay) keeps the labels that it had; where a device that is there has the same ones
// now, the two are one series, their sum, so that counters never go down.
#pragma once

#include "exporter/ledger.h"
#include "exporter/render.h"

struct render_layout;

// Which labels a device of the ledger has, or had; index: its place in the ledger.
struct render_ledger_name {
    char uuid[96];
    char gpu_uuid[96];        // "" was never seen
    uint32_t gpu_instance_id; // UINT32_MAX: a whole GPU
};
struct render_ledger_names {
    struct render_ledger_name *items;
    size_t count;
};
void render_ledger_names_deinit(struct render_ledger_names *n);

// Lines of a page: each is one series of every family of its kind. Labels are left open.
struct render_ledger_line {
    uint32_t at, bytes; // of its labels in text
    uint32_t first;     // place in the ledger; the next of the same labels stands in a list
    bool parted;        // a board with instances
};
struct render_ledger {
    bool valid;
    uint64_t layout; // ledger_layout it was made for
    const struct ledger *ledger;
    struct buf text; // labels, headers
    struct render_ledger_line *devices, *accounts;
    size_t device_count, account_count;
    size_t device_capacity, account_capacity;
    uint32_t *next_devices, *next_accounts; // by place; UINT32_MAX: no other
    size_t next_device_capacity, next_account_capacity;
    struct render_ledger_header {
        uint32_t at, bytes;
    } * headers; // by enum render_family_id
    size_t header_capacity;
};
void render_ledger_deinit(struct render_ledger *r);

// Makes the kept text anew where the ledger's list or the page's layout changed; names are shared
// by all formats. 0, -ENOMEM, -EFBIG.
int must_use render_ledger_refresh(struct render_layout *l, struct render_ledger_names *names,
                                   const struct render_input *in);
// Appends the families. Returns the count of lines.
size_t render_ledger_add(const struct render_layout *l, const struct render_input *in,
                         struct buf *out);
