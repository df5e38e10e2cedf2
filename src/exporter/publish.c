// SPDX-License-Identifier: Apache-2.0
// How it works: owners are a function of (layout of the devices, kubelet map); both carry a
// version, so a tick on which neither moved costs two comparisons. A page is one heap buffer handed
// over to an http_body, which the server frees with its last reader; `live` holds references to
// pages that may still have readers, oldest first.
#include "exporter/publish.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "exporter/attribute_counts.h"
#include "exporter/dra.h"
#include "exporter/hpc.h"

struct page {
    struct http_body *bodies[TEXT_FORMAT_COUNT]; // [TEXT_FORMAT_OPENMETRICS] only when asked for
};

#define PAGE_AGE_MOST_NS (15 * NS_PER_S) // a value is dropped after that, too

// What a page is made from, but for the values.
struct page_key {
    uint64_t config; // hash of its files
    uint64_t layout, owners;
};

enum page_content {
    PAGE_WHOLE,
    PAGE_WITHOUT_POD_LABELS,
    PAGE_WITHOUT_OWNERS,
};

struct publisher {
    const struct exporter_options *options;
    struct attribute_options attribution;
    struct dra *dra;           // what attribution asks about claims
    uint64_t dra_version;      // owners were made with
    struct sv *resource_names; // what attribution borrows
    struct render *render;
    struct pod_devices *rows;
    bool rows_changed;
    struct pod_metadata *metadata; // NULL: none
    uint64_t metadata_version;     // owners were made with
    const struct hpc_jobs *jobs;
    bool jobs_changed;
    struct exp_counts *exp;
    const struct ledger *ledger;
    const struct pod_devices *allocatable;
    uint64_t allocatable_version;
    uint32_t *offered; // replicas by entity; NULL: not worked out yet
    uint64_t offered_owners, offered_allocatable, offered_version;
    const struct usage *usage;
    struct attribute_result holders;
    struct render_jobs *entity_jobs; // one an entity, while jobs are set
    uint64_t owners_layout;          // layout of the view that the owners were made for
    uint64_t owners_version;
    struct page live[LIMIT_PAGES_LIVE]; // [live_count - 1] is the current page
    size_t live_count;
    struct page_key too_large;        // the last one that was, if any
    enum page_content too_large_most; // the most that fitted instead
    uint64_t published_ns;            // the current page was made then
    uint64_t shut_readers;
    size_t page_bytes; // of the last page: about what the next one needs
};

int publisher_new(const struct exporter_options *options, struct publisher **out)
{
    struct publisher *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->options = options;
    const struct option_list *extra = &options->flags.resource_names;
    p->resource_names = calloc(extra->count + 1, sizeof(*p->resource_names));
    int r = p->resource_names ? render_new(&p->render) : -ENOMEM;
    if (r == 0)
        r = dra_new(&p->dra);
    if (r < 0) {
        publisher_free(p);
        return r;
    }
    for (size_t i = 0; i < extra->count; i++)
        p->resource_names[i] = sv_from(extra->items[i]);
    p->attribution = (struct attribute_options){
        .by_device_name = options->gpu_id_by_device_name,
        .resource_names = p->resource_names,
        .resource_name_count = extra->count,
        .dra = p->dra,
        .own_namespace = sv_from(options->own_namespace),
        .own_pod = sv_from(options->own_pod),
    };
    *out = p;
    return 0;
}

bool publisher_wants(const struct publisher *p, struct sv resource, struct sv device_id)
{
    return attribute_row_is_wanted(&p->attribution, resource, device_id);
}

static void page_deinit(struct page *page)
{
    for (size_t i = 0; i < TEXT_FORMAT_COUNT; i++)
        http_body_unref(page->bodies[i]);
    *page = (struct page){0};
}

void publisher_free(struct publisher *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < p->live_count; i++)
        page_deinit(&p->live[i]);
    attribute_result_deinit(&p->holders);
    free(p->entity_jobs);
    free(p->offered);
    pod_devices_unref(p->rows);
    render_free(p->render);
    dra_free(p->dra);
    free(p->resource_names);
    free(p);
}

void publisher_set_pods(struct publisher *p, struct pod_devices *rows)
{
    struct pod_devices *old = p->rows;
    p->rows = rows ? pod_devices_ref(rows) : NULL;
    pod_devices_unref(old);
    p->rows_changed = true;
}

void publisher_set_exp(struct publisher *p, struct exp_counts *exp)
{
    p->exp = exp;
}

void publisher_set_ledger(struct publisher *p, const struct ledger *ledger)
{
    p->ledger = ledger;
}

void publisher_set_usage(struct publisher *p, const struct usage *usage)
{
    p->usage = usage;
}

void publisher_set_allocatable(struct publisher *p, const struct pod_devices *rows,
                               uint64_t version)
{
    p->allocatable = rows;
    p->allocatable_version = version;
}

void publisher_set_metadata(struct publisher *p, struct pod_metadata *metadata)
{
    p->metadata = metadata;
    p->metadata_version = pod_metadata_version(metadata);
    p->rows_changed = true;
}

struct dra *publisher_dra(struct publisher *p)
{
    return p->dra;
}

void publisher_set_jobs(struct publisher *p, const struct hpc_jobs *jobs)
{
    p->jobs = jobs;
    p->jobs_changed = true;
}

static struct attribute_device device_of(const struct inventory *inv, size_t i)
{
    const struct frame_entity *e = &inv->entities[i].info;
    // Nobody is given anything but these: a name that no id has.
    if (e->kind != FRAME_ENTITY_GPU && e->kind != FRAME_ENTITY_GPU_I)
        return (struct attribute_device){
            .index = UINT32_MAX, .gpu_instance_id = UINT32_MAX, .is_instance = true};
    struct attribute_device d = {
        .is_instance = e->kind == FRAME_ENTITY_GPU_I,
        .index = e->index,
        .gpu_instance_id = e->gpu_instance_id,
        .uuid = sv_from(e->uuid),
        .legacy_uuid = sv_from(e->legacy_uuid),
        .minor_known = e->minor != UINT32_MAX,
        .minor = e->minor,
        .profile_id = e->profile_id,
        .placement = e->placement,
    };
    if (d.is_instance && e->parent < inv->entity_count)
        d.parent_uuid = sv_from(inv->entities[e->parent].info.uuid);
    return d;
}

// Who holds what, anew. On failure the result is empty: no owner labels rather than wrong ones.
static int work_out_holders(struct publisher *p, const struct inventory *inv)
{
    attribute_result_deinit(&p->holders);
    p->holders = (struct attribute_result){0};
    if (!p->rows)
        return 0;
    struct attribute_device *devices = calloc(inv->entity_count + 1, sizeof(*devices));
    if (!devices)
        return -ENOMEM;
    for (size_t i = 0; i < inv->entity_count; i++)
        devices[i] = device_of(inv, i);
    int r = attribute(&p->attribution, devices, inv->entity_count, p->rows, &p->holders);
    free(devices);
    return r;
}

static int work_out_jobs(struct publisher *p, const struct inventory *inv)
{
    free(TAKE_PTR(p->entity_jobs));
    if (!p->jobs || inv->entity_count == 0)
        return 0;
    p->entity_jobs = calloc(inv->entity_count, sizeof(*p->entity_jobs));
    if (!p->entity_jobs)
        return -ENOMEM;
    for (size_t i = 0; i < inv->entity_count; i++) {
        const struct frame_entity *e = &inv->entities[i].info;
        struct render_jobs *j = &p->entity_jobs[i];
        if (e->kind != FRAME_ENTITY_GPU && e->kind != FRAME_ENTITY_GPU_I)
            continue;
        j->names = hpc_jobs_find(p->jobs, e->index, e->gpu_instance_id, &j->count);
    }
    return 0;
}

static bool metadata_changed(struct publisher *p)
{
    if (!p->metadata)
        return false;
    pod_metadata_prune(p->metadata, p->rows);
    return pod_metadata_version(p->metadata) != p->metadata_version;
}

static int refresh_owners(struct publisher *p, const struct device_view *view)
{
    const struct inventory *inv = view->primary;
    bool relabelled = metadata_changed(p);
    bool resolved = dra_version(p->dra) != p->dra_version;
    if (!p->rows_changed && !p->jobs_changed && !relabelled && !resolved &&
        p->owners_layout == view->layout)
        return 0;
    int r = work_out_holders(p, inv);
    if (r == 0)
        r = work_out_jobs(p, inv);
    p->owners_version++;
    if (r < 0)
        return r; // tried again at the next tick
    p->rows_changed = false;
    p->jobs_changed = false;
    if (p->metadata)
        p->metadata_version = pod_metadata_version(p->metadata);
    p->dra_version = dra_version(p->dra);
    p->owners_layout = view->layout;
    return 0;
}

static int refresh_offered(struct publisher *p, const struct inventory *inv)
{
    if (p->offered && p->offered_owners == p->owners_version &&
        p->offered_allocatable == p->allocatable_version)
        return 0;
    size_t count = inv->entity_count;
    cleanup(mem_freep) struct attribute_device *devices = calloc(count + 1, sizeof(*devices));
    cleanup(mem_freep) uint32_t *offered = calloc(count + 1, sizeof(*offered));
    if (!devices || !offered)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        devices[i] = device_of(inv, i);
    int r = attribute_offered(&p->attribution, devices, count, p->allocatable, offered);
    if (r < 0)
        return r;
    free(p->offered);
    p->offered = TAKE_PTR(offered);
    p->offered_owners = p->owners_version;
    p->offered_allocatable = p->allocatable_version;
    p->offered_version++;
    return 0;
}

int publisher_get_owners(struct publisher *p, const struct device_view *view,
                         struct publisher_owners *out)
{
    int r = refresh_owners(p, view);
    if (r == 0)
        r = refresh_offered(p, view->primary);
    if (r < 0)
        return r;
    *out = (struct publisher_owners){
        .version = p->offered_version,
        .rows = p->rows,
        .holders = p->rows ? &p->holders : NULL,
        .offered = p->offered,
    };
    return 0;
}

static int make_body(struct publisher *p, const struct render_input *in, enum text_format format,
                     struct http_body **out)
{
    struct buf text = BUF_INIT(LIMIT_PAGE_BYTES);
    int r = buf_reserve(&text, p->page_bytes + p->page_bytes / 16 + 4096);
    if (r == 0)
        r = render_page(p->render, in, format, &text);
    if (r < 0) {
        buf_deinit(&text);
        return r;
    }
    if (format == TEXT_FORMAT_PROMETHEUS)
        p->page_bytes = text.len;
    size_t bytes;
    char *data = buf_take(&text, &bytes);
    return http_body_new(data, bytes, text_content_type(format), out);
}

// Forgets pages that nobody reads any more, and makes room for one.
static void retire_pages(struct publisher *p)
{
    size_t kept = 0;
    for (size_t i = 0; i < p->live_count; i++) {
        struct page *page = &p->live[i];
        unsigned readers = 0;
        for (size_t f = 0; f < TEXT_FORMAT_COUNT; f++)
            readers += page->bodies[f] ? http_body_readers(page->bodies[f]) : 0;
        if (readers == 0)
            page_deinit(page);
        else
            p->live[kept++] = *page;
    }
    p->live_count = kept;
    if (kept < LIMIT_PAGES_LIVE)
        return;
    for (size_t f = 0; f < TEXT_FORMAT_COUNT; f++)
        if (p->live[0].bodies[f])
            p->shut_readers += http_body_shut_readers(p->live[0].bodies[f]);
    page_deinit(&p->live[0]);
    for (size_t i = 1; i < p->live_count; i++)
        p->live[i - 1] = p->live[i];
    p->live_count--;
}

// The page with these owners.
static int make_page(struct publisher *p, const struct render_input *in, struct page *out)
{
    *out = (struct page){0};
    int r = make_body(p, in, TEXT_FORMAT_PROMETHEUS, &out->bodies[TEXT_FORMAT_PROMETHEUS]);
    if (r == 0 && p->options->flags.openmetrics)
        r = make_body(p, in, TEXT_FORMAT_OPENMETRICS, &out->bodies[TEXT_FORMAT_OPENMETRICS]);
    if (r < 0)
        page_deinit(out);
    return r;
}

// Takes away what the page is to do without.
static void reduce(enum page_content content, struct render_input *in, struct render_owners *owners,
                   struct render_self *self)
{
    if (content >= PAGE_WITHOUT_POD_LABELS && owners->metadata) {
        owners->metadata = NULL;
        self->page_without_pod_labels = true;
    }
    if (content >= PAGE_WITHOUT_OWNERS) {
        in->owners = NULL;
        in->ledger = NULL;
        self->page_without_owners = true;
    }
}

// Names, labels and copies without number can make a page too large to be made at all. Then it is
// made with less, rather than never again; what did not fit is not tried anew until it changes.
static int make_page_that_fits(struct publisher *p, struct render_input *in,
                               struct render_owners *owners, struct render_self *self,
                               struct page *out)
{
    const struct page_key key = {in->config->hash, in->view->layout, p->owners_version};
    bool is_known = p->too_large_most != PAGE_WHOLE && p->too_large.config == key.config &&
                    p->too_large.layout == key.layout && p->too_large.owners == key.owners;
    enum page_content content = is_known ? p->too_large_most : PAGE_WHOLE;
    for (;; content++) {
        if (content == PAGE_WITHOUT_POD_LABELS && !owners->metadata)
            continue;
        reduce(content, in, owners, self);
        int r = make_page(p, in, out);
        if (r != -EFBIG || content == PAGE_WITHOUT_OWNERS) {
            p->too_large = key;
            p->too_large_most = content;
            return r;
        }
    }
}

int publisher_publish(struct publisher *p, const struct exporter_config *config,
                      const struct device_view *view, struct render_self *self, uint64_t now_ns)
{
    int r = refresh_owners(p, view);
    if (r < 0)
        return r;
    self->attribution_unknown_ids = p->holders.unknown_ids;
    self->attribution_superseded_ids = p->holders.superseded;
    self->attribution_rows = p->rows ? p->rows->count : 0;
    self->page_bytes = p->page_bytes;
    self->page_shut_readers = p->shut_readers;
    struct render_owners owners = {
        .version = p->owners_version,
        .rows = p->rows,
        .holders = p->rows ? &p->holders : NULL,
        .metadata = p->metadata,
        .jobs = p->entity_jobs,
    };
    struct render_input in = {
        .config = config,
        .view = view,
        .owners = &owners,
        .self = self,
        .now_ns = now_ns,
        .exp = p->exp,
        .usage = p->usage,
        .pod_value = p->usage ? usage_pod_value : NULL,
        .ledger = p->ledger,
        .allocatable = p->allocatable,
        .allocatable_version = p->allocatable_version,
    };
    struct page page;
    r = make_page_that_fits(p, &in, &owners, self, &page);
    if (r < 0)
        return r;
    retire_pages(p);
    p->live[p->live_count++] = page;
    p->published_ns = now_ns;
    return 0;
}

bool publisher_page_is_old(const struct publisher *p, uint64_t now_ns)
{
    return p->live_count > 0 && now_ns > p->published_ns + PAGE_AGE_MOST_NS;
}

struct http_body *publisher_body(const struct publisher *p, enum text_format format)
{
    if (p->live_count == 0)
        return NULL;
    const struct page *page = &p->live[p->live_count - 1];
    return page->bodies[format] ? page->bodies[format] : page->bodies[TEXT_FORMAT_PROMETHEUS];
}

const char *publisher_selection_error(const struct publisher *p, enum render_group group)
{
    return render_selection_error(p->render, group);
}

void publisher_counts(const struct publisher *p, size_t *out_device_series, size_t *out_all_series)
{
    render_counts(p->render, out_device_series, out_all_series);
}
