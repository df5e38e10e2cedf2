// SPDX-License-Identifier: Apache-2.0
// Which ids there are is worked out when the kubelet's lists or the ledger's change; a page counts
// which of them are idle.
#include "exporter/render_node.h"

#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "exporter/render_internal.h"

#define NONE UINT32_MAX

// Something that is said of an id: it is offered, or somebody holds it.
struct item {
    const char *resource, *pool, *id;
    bool held;
    uint32_t account; // of the holder
};

struct work {
    const struct render_input *in;
    struct item *items;
    size_t count;
    uint32_t *firsts; // by place of a device in the ledger: its first account
};

void render_node_deinit(struct render_node *n)
{
    buf_deinit(&n->text);
    free(n->resources);
    free(n->ids);
    free(n->accounts);
    *n = (struct render_node){0};
}

static int compare_items(const void *va, const void *vb)
{
    const struct item *a = va, *b = vb;
    int order = strcmp(a->resource, b->resource);
    if (order == 0)
        order = strcmp(a->pool, b->pool);
    return order ? order : strcmp(a->id, b->id);
}

static void add_item(struct work *w, const struct pod_device *row, bool held, uint32_t account)
{
    w->items[w->count++] = (struct item){
        .resource = row->claim ? row->claim->driver : row->resource,
        .pool = row->claim ? row->claim->pool : "",
        .id = row->device_id,
        .held = held,
        .account = account,
    };
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

// --- All ids ---

static void collect(struct work *w)
{
    const struct render_owners *o = w->in->owners;
    const struct inventory *inv = w->in->view->primary;
    size_t devices = o && o->holders ? o->holders->device_count : 0;
    for (size_t i = 0; i < devices && i < inv->entity_count; i++) {
        const struct attribute_device_holders *d = &o->holders->devices[i];
        uint32_t place = d->count ? find_device(w->in->ledger, inv->entities[i].info.uuid) : NONE;
        for (size_t k = 0; k < d->count; k++) {
            const struct pod_device *row = &o->rows->rows[o->holders->holders[d->first + k].row];
            add_item(w, row, true, find_account(w, place, row));
        }
    }
    const struct pod_devices *offers = w->in->allocatable;
    for (size_t i = 0; offers && i < offers->count; i++)
        add_item(w, &offers->rows[i], false, NONE);
    if (w->count > 1)
        qsort(w->items, w->count, sizeof(*w->items), compare_items);
}

static void begin_resource(struct render_node *n, const struct work *w, const char *name,
                           size_t first_id)
{
    struct render_node_resource *r = &n->resources[n->resource_count++];
    *r = (struct render_node_resource){.at = (uint32_t)n->text.len, .first = (uint32_t)first_id};
    buf_add_char(&n->text, '{');
    render_labels_add_hostname(w->in, &n->text);
    text_add_label(&n->text, "resource", sv_from(name));
    buf_add_str(&n->text, "} ");
    r->bytes = (uint32_t)n->text.len - r->at;
}

static void group(struct render_node *n, const struct work *w)
{
    size_t ids = 0, accounts = 0;
    for (size_t i = 0, end; i < w->count; i = end) {
        const struct item *item = &w->items[i];
        if (i == 0 || strcmp(item->resource, w->items[i - 1].resource) != 0)
            begin_resource(n, w, item->resource, ids);
        struct render_node_resource *r = &n->resources[n->resource_count - 1];
        struct render_node_id *id = &n->ids[ids];
        bool offered = false;
        *id = (struct render_node_id){.first = (uint32_t)accounts};
        for (end = i; end < w->count && compare_items(item, &w->items[end]) == 0; end++) {
            offered = offered || !w->items[end].held;
            if (w->items[end].held)
                n->accounts[accounts++] = w->items[end].account;
        }
        id->count = (uint32_t)accounts - id->first;
        r->offered += offered;
        r->held += id->count > 0;
        ids += id->count > 0;
    }
}

static int build(struct render_node *n, const struct render_input *in)
{
    const struct render_owners *o = in->owners;
    size_t most = (o && o->holders ? o->holders->holder_count : 0) +
                  (in->allocatable ? in->allocatable->count : 0);
    n->text.max = LIMIT_PAGE_BYTES;
    buf_reset(&n->text);
    n->resource_count = 0;
    cleanup(mem_freep) struct item *items = calloc(most + 1, sizeof(*items));
    cleanup(mem_freep) uint32_t *firsts =
        calloc(ledger_device_count(in->ledger) + 1, sizeof(*firsts));
    if (!items || !firsts)
        return -ENOMEM;
    int r = render_make_room(&n->resources, &n->resource_capacity, most, sizeof(*n->resources));
    if (r == 0)
        r = render_make_room(&n->ids, &n->id_capacity, most, sizeof(*n->ids));
    if (r == 0)
        r = render_make_room(&n->accounts, &n->account_capacity, most, sizeof(*n->accounts));
    if (r < 0)
        return r;
    struct work w = {.in = in, .items = items, .firsts = firsts};
    find_firsts(&w);
    collect(&w);
    group(n, &w);
    return n->text.error;
}

int render_node_refresh(struct render_layout *l, const struct render_input *in)
{
    struct render_node *n = &l->node;
    uint64_t layout = in->ledger ? ledger_layout(in->ledger) : 0;
    if (n->valid && n->ledger == in->ledger && n->ledger_layout == layout &&
        n->allocatable_version == in->allocatable_version &&
        n->offers_known == (in->allocatable != NULL))
        return 0;
    n->valid = false;
    n->resource_count = 0;
    int r = in->ledger ? build(n, in) : 0;
    if (r < 0)
        return r;
    n->ledger = in->ledger;
    n->ledger_layout = layout;
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
    return a->live && a->has_busy && in->now_ns >= a->idle_since_ns &&
           in->now_ns - a->idle_since_ns >= after_ns;
}

static uint64_t count_idle(const struct render_node *n, const struct render_node_resource *r,
                           const struct render_input *in)
{
    uint64_t idle = 0;
    for (uint32_t i = 0; i < r->held; i++) {
        const struct render_node_id *id = &n->ids[r->first + i];
        bool all = true;
        for (uint32_t k = 0; k < id->count && all; k++)
            all = is_idle(in, n->accounts[id->first + k]);
        idle += all;
    }
    return idle;
}

size_t render_node_add(const struct render_layout *l, const struct render_input *in,
                       struct buf *out)
{
    const struct render_node *n = &l->node;
    size_t lines = 0;
    for (int id = RENDER_NODE_ALLOCATABLE; id <= RENDER_NODE_IDLE; id++) {
        if (n->resource_count == 0 || (id == RENDER_NODE_ALLOCATABLE && !n->offers_known))
            continue;
        render_add_header(out, l->format, (enum render_family_id)id);
        for (size_t i = 0; i < n->resource_count; i++) {
            const struct render_node_resource *r = &n->resources[i];
            buf_add_str(out, render_families[id].name);
            buf_add(out, n->text.data + r->at, r->bytes);
            buf_add_u64(out, id == RENDER_NODE_ALLOCATABLE ? r->offered
                             : id == RENDER_NODE_ALLOCATED ? r->held
                                                           : count_idle(n, r, in));
            buf_add_char(out, '\n');
            lines++;
        }
    }
    return lines;
}
