// SPDX-License-Identifier: Apache-2.0
// Which ids there are is worked out when the kubelet's lists or the ledger's change; a page counts
// which of them are idle.
#include "exporter/render_node.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "exporter/attribute_counts.h"
#include "exporter/render_internal.h"

#define NONE UINT32_MAX

struct work {
    const struct render_input *in;
    struct attribute_resources resources;
    uint32_t *firsts;   // by place of a device in the ledger: its first account
    uint32_t *accounts; // by row of the kubelet's list: its holder's, NONE
    bool *known; // by row: it is of a device of ours, and not left over from a pod that ended
};

static void work_deinit(struct work *w)
{
    attribute_resources_deinit(&w->resources);
    free(w->firsts);
    free(w->accounts);
    free(w->known);
}

void render_node_deinit(struct render_node *n)
{
    buf_deinit(&n->text);
    free(n->resources);
    free(n->ids);
    free(n->accounts);
    *n = (struct render_node){0};
}

// --- Whose account ---

static void find_firsts(struct work *w)
{
    size_t devices = ledger_device_count(w->in->ledger);
    for (size_t i = 0; i < devices; i++)
        w->firsts[i] = NONE;
    for (size_t i = ledger_account_count(w->in->ledger); i > 0; i--) {
        const struct ledger_account *a = ledger_account_at(w->in->ledger, i - 1);
        if (a->device < devices)
            w->firsts[a->device] = (uint32_t)i - 1;
    }
}

static uint32_t find_device(const struct ledger *l, const char *uuid)
{
    for (size_t i = 0; i < ledger_device_count(l); i++)
        if (strcmp(ledger_device_at(l, i)->uuid, uuid) == 0)
            return (uint32_t)i;
    return NONE;
}

static bool is_of(const struct ledger_container *c, const struct pod_device *row)
{
    return c && strcmp(c->pod, row->pod) == 0 && strcmp(c->container, row->container) == 0 &&
           strcmp(c->namespace_name, row->namespace_name) == 0;
}

static uint32_t find_account(const struct work *w, uint32_t device, const struct pod_device *row)
{
    const struct ledger *l = w->in->ledger;
    if (device == NONE)
        return NONE;
    for (size_t i = w->firsts[device]; i < ledger_account_count(l); i++) {
        const struct ledger_account *a = ledger_account_at(l, i);
        if (a->device != device)
            return NONE;
        if (a->live && is_of(ledger_container_at(l, a->container), row))
            return (uint32_t)i;
    }
    return NONE;
}

// Of each row that a device of ours is held by.
static void find_accounts(struct work *w)
{
    const struct render_owners *o = w->in->owners;
    const struct inventory *inv = w->in->view->primary;
    size_t devices = o && o->holders ? o->holders->device_count : 0;
    find_firsts(w);
    for (size_t i = 0; i < devices && i < inv->entity_count; i++) {
        const struct attribute_device_holders *d = &o->holders->devices[i];
        uint32_t place = d->count ? find_device(w->in->ledger, inv->entities[i].info.uuid) : NONE;
        for (size_t k = 0; k < d->count; k++) {
            size_t row = o->holders->holders[d->first + k].row;
            w->known[row] = true;
            w->accounts[row] = find_account(w, place, &o->rows->rows[row]);
        }
    }
}

// --- All ids ---

static void add_resource(struct render_node *n, const struct work *w,
                         const struct attribute_resource *from, size_t first_id)
{
    struct render_node_resource *r = &n->resources[n->resource_count++];
    *r = (struct render_node_resource){
        .at = (uint32_t)n->text.len,
        .offer_known = from->offer_known,
        .offered = (uint32_t)from->allocatable,
        .first = (uint32_t)first_id,
        .held = (uint32_t)from->allocated,
    };
    buf_add_char(&n->text, '{');
    render_labels_add_hostname(w->in, &n->text);
    text_add_label(&n->text, "resource", sv_from(from->name));
    buf_add_str(&n->text, "} ");
    r->bytes = (uint32_t)n->text.len - r->at;
}

static void add_resources(struct render_node *n, const struct work *w)
{
    size_t ids = 0, accounts = 0;
    for (size_t i = 0; i < w->resources.count; i++) {
        const struct attribute_resource *from = &w->resources.list[i];
        bool more = false;
        add_resource(n, w, from, ids);
        for (size_t k = from->first; k < from->first + from->count; k++) {
            const struct attribute_resource_holder *h = &w->resources.holders[k];
            if (!more)
                n->ids[ids++] = (struct render_node_id){.first = (uint32_t)accounts};
            if (w->known[h->row]) {
                n->accounts[accounts++] = w->accounts[h->row];
                n->ids[ids - 1].count++;
            }
            more = h->more;
        }
    }
}

static int make_room(struct render_node *n, const struct attribute_resources *from)
{
    size_t most = from->holder_count;
    int r =
        render_make_room(&n->resources, &n->resource_capacity, from->count, sizeof(*n->resources));
    if (r == 0)
        r = render_make_room(&n->ids, &n->id_capacity, most, sizeof(*n->ids));
    if (r == 0)
        r = render_make_room(&n->accounts, &n->account_capacity, most, sizeof(*n->accounts));
    return r;
}

static int build(struct render_node *n, const struct render_input *in)
{
    const struct exporter_options *options = in->config->options;
    const struct attribute_options own = {.own_namespace = sv_from(options->own_namespace),
                                          .own_pod = sv_from(options->own_pod)};
    const struct pod_devices *rows = in->owners ? in->owners->rows : NULL;
    size_t row_count = rows ? rows->count : 0;
    cleanup(work_deinit) struct work w = {
        .in = in,
        .firsts = calloc(ledger_device_count(in->ledger) + 1, sizeof(*w.firsts)),
        .accounts = calloc(row_count + 1, sizeof(*w.accounts)),
        .known = calloc(row_count + 1, sizeof(*w.known)),
    };
    n->text.max = LIMIT_PAGE_BYTES;
    buf_reset(&n->text);
    n->resource_count = 0;
    if (!w.firsts || !w.accounts || !w.known)
        return -ENOMEM;
    int r = attribute_resources(&own, in->allocatable, rows, &w.resources);
    if (r == 0)
        r = make_room(n, &w.resources);
    if (r < 0)
        return r;
    find_accounts(&w);
    add_resources(n, &w);
    return n->text.error;
}

int render_node_refresh(struct render_layout *l, const struct render_input *in)
{
    struct render_node *n = &l->node;
    uint64_t layout = in->ledger ? ledger_layout(in->ledger) : 0;
    uint64_t owners = in->owners ? in->owners->version : 0;
    if (n->valid && n->ledger == in->ledger && n->ledger_layout == layout &&
        n->owners_version == owners && n->allocatable_version == in->allocatable_version &&
        n->offers_known == (in->allocatable != NULL))
        return 0;
    n->valid = false;
    n->resource_count = 0;
    int r = in->ledger ? build(n, in) : 0;
    if (r < 0)
        return r;
    n->ledger = in->ledger;
    n->ledger_layout = layout;
    n->owners_version = owners;
    n->allocatable_version = in->allocatable_version;
    n->offers_known = in->allocatable != NULL;
    n->valid = true;
    return 0;
}

// --- A page ---

static bool is_idle(const struct render_input *in, uint32_t account)
{
    if (account == NONE)
        return false;
    const struct ledger_account *a = ledger_account_at(in->ledger, account);
    uint64_t after_ns = in->config->options->flags.idle_after_ns;
    return a->has_idle && in->now_ns >= a->idle_since_ns &&
           in->now_ns - a->idle_since_ns >= after_ns;
}

static uint64_t count_idle(const struct render_node *n, const struct render_node_resource *r,
                           const struct render_input *in)
{
    uint64_t idle = 0;
    for (uint32_t i = 0; i < r->held; i++) {
        const struct render_node_id *id = &n->ids[r->first + i];
        bool all = id->count > 0;
        for (uint32_t k = 0; k < id->count && all; k++)
            all = is_idle(in, n->accounts[id->first + k]);
        idle += all;
    }
    return idle;
}

static uint64_t value_of(const struct render_node *n, const struct render_node_resource *r,
                         const struct render_input *in, int family)
{
    if (family == RENDER_NODE_ALLOCATABLE)
        return r->offered;
    return family == RENDER_NODE_ALLOCATED ? r->held : count_idle(n, r, in);
}

size_t render_node_add(const struct render_layout *l, const struct render_input *in,
                       struct buf *out)
{
    const struct render_node *n = &l->node;
    size_t lines = 0;
    for (int id = RENDER_NODE_ALLOCATABLE; id <= RENDER_NODE_IDLE; id++) {
        bool begun = false;
        for (size_t i = 0; i < n->resource_count; i++) {
            const struct render_node_resource *r = &n->resources[i];
            if (id == RENDER_NODE_ALLOCATABLE && !r->offer_known)
                continue;
            if (!begun)
                render_add_header(out, l->format, (enum render_family_id)id);
            begun = true;
            buf_add_str(out, render_families[id].name);
            buf_add(out, n->text.data + r->at, r->bytes);
            buf_add_u64(out, value_of(n, r, in, id));
            buf_add_char(out, '\n');
            lines++;
        }
    }
    return lines;
}
