// SPDX-License-Identifier: Apache-2.0
// podgpu_pod_info: who owns the pods that hold a GPU or use one, and which UID they have. One of
// which nobody knows either has no row. Made anew when the holders, what is known of pods, or the
// ledger's accounts differ.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "exporter/render_internal.h"

struct pod_name {
    const char *namespace_name, *pod;
};

struct pod_names {
    struct pod_name *list;
    size_t count;
};

static int compare_names(const void *x, const void *y)
{
    const struct pod_name *a = x, *b = y;
    int order = strcmp(a->namespace_name, b->namespace_name);
    return order ? order : strcmp(a->pod, b->pod);
}

static void add_row(struct render_layout *l, const struct pod_metadata *m,
                    const struct pod_name *name)
{
    const char *kind, *owner, *uid = pod_metadata_uid(m, name->namespace_name, name->pod);
    bool owned = pod_metadata_owner(m, name->namespace_name, name->pod, &kind, &owner);
    if (!owned && uid[0] == '\0')
        return;
    struct buf *out = &l->pods_text;
    if (l->pods_lines++ == 0)
        render_add_header(out, l->format, RENDER_POD_INFO);
    buf_add_str(out, render_families[RENDER_POD_INFO].name);
    buf_add_str(out, "{namespace=\"");
    text_add_label_value(out, sv_from(name->namespace_name));
    buf_add_char(out, '"');
    text_add_label(out, "pod", sv_from(name->pod));
    text_add_label(out, "pod_uid", sv_from(uid));
    text_add_label(out, "owner_kind", sv_from(kind));
    text_add_label(out, "owner_name", sv_from(owner));
    buf_add_str(out, "} 1\n");
}

static void collect_rows(const struct render_owners *owners, struct pod_names *out)
{
    for (size_t i = 0; i < owners->rows->count; i++) {
        const struct pod_device *row = &owners->rows->rows[i];
        out->list[out->count++] = (struct pod_name){row->namespace_name, row->pod};
    }
}

static void collect_accounts(const struct ledger *ledger, size_t count, struct pod_names *out)
{
    for (size_t i = 0; i < count; i++) {
        const struct ledger_account *a = ledger_account_at(ledger, i);
        const struct ledger_container *c = ledger_container_at(ledger, a->container);
        if (a->live)
            out->list[out->count++] = (struct pod_name){c->namespace_name, c->pod};
    }
}

// Names are borrowed, and may come twice. False: out of memory.
static bool collect(const struct render_input *in, struct pod_names *out)
{
    const struct render_owners *owners = in->owners;
    size_t rows = owners->rows ? owners->rows->count : 0;
    size_t accounts = in->ledger ? ledger_account_count(in->ledger) : 0;
    out->list = calloc(rows + accounts + 1, sizeof(*out->list));
    if (!out->list)
        return false;
    if (rows)
        collect_rows(owners, out);
    collect_accounts(in->ledger, accounts, out);
    qsort(out->list, out->count, sizeof(*out->list), compare_names);
    return true;
}

int render_pods_refresh(struct render_layout *l, const struct render_input *in)
{
    const struct render_owners *owners = in->owners;
    bool known = owners && owners->metadata;
    if (in->config->options->podgpu_families == PODGPU_FAMILIES_NONE)
        return 0;
    uint64_t signature = known ? render_mix(1, owners->version) : 0;
    if (known && in->ledger)
        signature = render_mix(signature, ledger_layout(in->ledger));
    signature |= 1; // 0 says that there is no text
    if (signature == l->pods_signature)
        return 0;
    struct pod_names names = {0};
    l->pods_signature = 0;
    l->pods_lines = 0;
    buf_reset(&l->pods_text);
    if (known && !collect(in, &names))
        return -ENOMEM;
    for (size_t i = 0; i < names.count; i++)
        if (i == 0 || compare_names(&names.list[i - 1], &names.list[i]) != 0)
            add_row(l, owners->metadata, &names.list[i]);
    free(names.list);
    if (l->pods_text.error)
        return l->pods_text.error;
    l->pods_signature = signature;
    return 0;
}
