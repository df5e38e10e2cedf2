// SPDX-License-Identifier: Apache-2.0
// The constant text of the ledger's families: labels once a device and once a container on it,
// headers once a family.
#include <errno.h>
#include <stdlib.h>

#include "base/limits.h"
#include "exporter/render_internal.h"
#include "exporter/render_ledger.h"

#define NONE UINT32_MAX

void render_ledger_names_deinit(struct render_ledger_names *n)
{
    free(n->items);
    *n = (struct render_ledger_names){0};
}

void render_ledger_deinit(struct render_ledger *r)
{
    buf_deinit(&r->text);
    free(r->devices);
    free(r->accounts);
    free(r->next_devices);
    free(r->next_accounts);
    free(r->headers);
    *r = (struct render_ledger){0};
}

// --- Which device is which ---

static const struct inventory_entity *find_entity(const struct inventory *inv, const char *uuid)
{
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct inventory_entity *e = &inv->entities[i];
        if (e->info.kind > FRAME_ENTITY_GPU_CI)
            return NULL;
        if (e->info.kind != FRAME_ENTITY_GPU_CI && strcmp(e->info.uuid, uuid) == 0)
            return e;
    }
    return NULL;
}

static void name_device(struct render_ledger_name *out, const struct render_ledger_names *before,
                        const struct inventory *inv, const char *uuid)
{
    const struct inventory_entity *e = find_entity(inv, uuid);
    *out = (struct render_ledger_name){.gpu_instance_id = NONE};
    sv_copy(out->uuid, sizeof(out->uuid), sv_from(uuid));
    if (e) {
        sv_copy(out->gpu_uuid, sizeof(out->gpu_uuid), sv_from(render_gpu_of(inv, e)->info.uuid));
        if (e->info.kind == FRAME_ENTITY_GPU_I)
            out->gpu_instance_id = e->info.gpu_instance_id;
        return;
    }
    for (size_t i = 0; i < before->count; i++)
        if (strcmp(before->items[i].uuid, uuid) == 0)
            *out = before->items[i];
}

static int refresh_names(struct render_ledger_names *names, const struct render_input *in)
{
    size_t count = ledger_device_count(in->ledger);
    struct render_ledger_names fresh = {.items = calloc(count + 1, sizeof(*fresh.items))};
    if (!fresh.items)
        return -ENOMEM;
    for (; fresh.count < count; fresh.count++)
        name_device(&fresh.items[fresh.count], names, in->view->primary,
                    ledger_device_at(in->ledger, fresh.count)->uuid);
    render_ledger_names_deinit(names);
    *names = fresh;
    return 0;
}

// --- Lines ---

struct work {
    struct render_ledger *r;
    const struct render_layout *layout;
    const struct render_ledger_names *names;
    const struct render_input *in;
    uint32_t *line_of; // by place of a device: its line, NONE: not shown
};

static bool same_labels(const struct render_ledger *r, const struct render_ledger_line *a,
                        const struct render_ledger_line *b)
{
    return a->bytes == b->bytes &&
           memcmp(r->text.data + a->at, r->text.data + b->at, a->bytes) == 0;
}

// Puts a place at the end of a line's list.
static void chain(uint32_t *next, uint32_t first, uint32_t place)
{
    while (next[first] != NONE)
        first = next[first];
    next[first] = place;
}

// The GPU that a device is on, where the page shows it. Whether -d chose its instances does not
// matter: what they used is part of the board's account.
static const struct inventory_entity *shown_gpu(const struct work *w,
                                                const struct render_ledger_name *name)
{
    const struct inventory *inv = w->in->view->primary;
    if (name->gpu_uuid[0] == '\0')
        return NULL;
    const struct inventory_entity *gpu = find_entity(inv, name->gpu_uuid);
    return gpu && w->layout->shown[gpu - inv->entities] ? gpu : NULL;
}

static void add_device(struct work *w, uint32_t place)
{
    struct render_ledger *r = w->r;
    const struct render_ledger_name *name = &w->names->items[place];
    const struct inventory_entity *gpu = shown_gpu(w, name);
    r->next_devices[place] = w->line_of[place] = NONE;
    if (!gpu)
        return;
    struct inventory_entity device = {.info.kind = FRAME_ENTITY_GPU};
    if (name->gpu_instance_id != NONE) {
        device.info.kind = FRAME_ENTITY_GPU_I;
        device.info.gpu_instance_id = name->gpu_instance_id;
    }
    struct render_ledger_line *line = &r->devices[r->device_count];
    *line = (struct render_ledger_line){.at = (uint32_t)r->text.len, .first = place};
    render_labels_add_device(w->in, &device, gpu, &r->text);
    line->bytes = (uint32_t)r->text.len - line->at;
    for (uint32_t i = 0; i < r->device_count && !r->text.error; i++) {
        if (!same_labels(r, &r->devices[i], line))
            continue;
        chain(r->next_devices, r->devices[i].first, place);
        w->line_of[place] = i;
        r->text.len = line->at;
        return;
    }
    w->line_of[place] = (uint32_t)r->device_count++;
}

static void mark_parted(struct work *w, uint32_t place)
{
    uint32_t board = ledger_device_at(w->in->ledger, place)->board;
    if (board != place && board < w->names->count && w->line_of[board] != NONE)
        w->r->devices[w->line_of[board]].parted = true;
}

static void add_container_labels(const struct work *w, const struct ledger_container *c,
                                 struct buf *out)
{
    text_add_label(out, "namespace", sv_from(c->namespace_name));
    text_add_label(out, "pod", sv_from(c->pod));
    text_add_label(out, "container", sv_from(c->container));
    if (w->in->config->options->flags.pod_uid && c->pod_uid[0] != '\0')
        text_add_label(out, "pod_uid", sv_from(c->pod_uid));
}

// Only where several devices are one series can two accounts be one.
static bool merges(const struct work *w, const struct render_ledger_line *device,
                   struct render_ledger_line *line, uint32_t place)
{
    struct render_ledger *r = w->r;
    if (r->next_devices[device->first] == NONE)
        return false;
    for (size_t i = 0; i < r->account_count; i++) {
        if (!same_labels(r, &r->accounts[i], line))
            continue;
        chain(r->next_accounts, r->accounts[i].first, place);
        r->text.len = line->at;
        return true;
    }
    return false;
}

static void add_account(struct work *w, uint32_t place)
{
    struct render_ledger *r = w->r;
    const struct ledger_account *a = ledger_account_at(w->in->ledger, place);
    r->next_accounts[place] = NONE;
    uint32_t at = a->device < w->names->count ? w->line_of[a->device] : NONE;
    const struct ledger_container *c = ledger_container_at(w->in->ledger, a->container);
    if (at == NONE || !c)
        return;
    const struct render_ledger_line *device = &r->devices[at];
    struct render_ledger_line *line = &r->accounts[r->account_count];
    *line = (struct render_ledger_line){.at = (uint32_t)r->text.len, .first = place};
    int room = buf_reserve(&r->text, device->bytes); // what is copied lies in the same buffer
    if (room == 0)
        buf_add(&r->text, r->text.data + device->at, device->bytes);
    add_container_labels(w, c, &r->text);
    line->bytes = (uint32_t)r->text.len - line->at;
    if (!r->text.error && !merges(w, device, line, place))
        r->account_count++;
}

static int make_room(struct render_ledger *r, size_t devices, size_t accounts)
{
    int rc = render_make_room(&r->devices, &r->device_capacity, devices, sizeof(*r->devices));
    if (rc == 0)
        rc = render_make_room(&r->accounts, &r->account_capacity, accounts, sizeof(*r->accounts));
    if (rc == 0)
        rc = render_make_room(&r->next_devices, &r->next_device_capacity, devices,
                              sizeof(*r->next_devices));
    if (rc == 0)
        rc = render_make_room(&r->next_accounts, &r->next_account_capacity, accounts,
                              sizeof(*r->next_accounts));
    if (rc == 0)
        rc = render_make_room(&r->headers, &r->header_capacity, RENDER_FAMILY_COUNT,
                              sizeof(*r->headers));
    return rc;
}

static void add_headers(struct render_ledger *r, enum text_format format)
{
    for (int id = RENDER_GPU_BUSY; id <= RENDER_ATTRIBUTION_INFO; id++) {
        struct render_ledger_header *h = &r->headers[id];
        h->at = (uint32_t)r->text.len;
        render_add_header(&r->text, format, (enum render_family_id)id);
        h->bytes = (uint32_t)r->text.len - h->at;
    }
}

static int build(struct render_layout *l, const struct render_ledger_names *names,
                 const struct render_input *in)
{
    struct render_ledger *r = &l->ledger;
    size_t accounts = ledger_account_count(in->ledger);
    r->text.max = LIMIT_PAGE_BYTES;
    buf_reset(&r->text);
    r->device_count = r->account_count = 0;
    int rc = make_room(r, names->count, accounts);
    if (rc < 0)
        return rc;
    cleanup(mem_freep) uint32_t *line_of = calloc(names->count + 1, sizeof(*line_of));
    if (!line_of)
        return -ENOMEM;
    struct work w = {r, l, names, in, line_of};
    add_headers(r, l->format);
    for (size_t i = 0; i < names->count; i++)
        add_device(&w, (uint32_t)i);
    for (size_t i = 0; i < names->count; i++)
        mark_parted(&w, (uint32_t)i);
    for (size_t i = 0; i < accounts; i++)
        add_account(&w, (uint32_t)i);
    return r->text.error;
}

int render_ledger_refresh(struct render_layout *l, struct render_ledger_names *names,
                          const struct render_input *in)
{
    struct render_ledger *r = &l->ledger;
    uint64_t layout = in->ledger ? ledger_layout(in->ledger) : 0;
    if (r->valid && r->ledger == in->ledger && r->layout == layout)
        return 0;
    r->valid = false;
    r->device_count = r->account_count = 0;
    if (in->ledger) {
        int rc = refresh_names(names, in);
        if (rc == 0)
            rc = build(l, names, in);
        if (rc < 0)
            return rc;
    }
    r->ledger = in->ledger;
    r->layout = layout;
    r->valid = true;
    return 0;
}
