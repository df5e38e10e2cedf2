// SPDX-License-Identifier: Apache-2.0
// A page is, in this order: the families of the counters file, podgpu_gpu_*, the
// ledger's, what the exporter says of itself in text (build, flags, fields), what it says of itself
// in numbers. Text that stays the same is kept in a layout, one a format; a key of everything it
// was made from says when it must be made anew.
#include "exporter/render.h"

#include <errno.h>
#include <stdlib.h>

#include "exporter/render_internal.h"

int render_new(struct render **out)
{
    struct render *r = calloc(1, sizeof(*r));
    if (!r)
        return -ENOMEM;
    for (size_t i = 0; i < TEXT_FORMAT_COUNT; i++)
        r->layouts[i].format = (enum text_format)i;
    *out = r;
    return 0;
}

void render_free(struct render *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < TEXT_FORMAT_COUNT; i++)
        render_layout_deinit(&r->layouts[i]);
    render_ledger_names_deinit(&r->names);
    free(r);
}

_Static_assert(sizeof(struct render_key) == 19 * sizeof(uint64_t), "render_key has padding");

static struct render_key key_of(const struct render_input *in)
{
    const struct render_owners *owners = in->owners;
    return (struct render_key){
        .config = in->config,
        .options = in->config->options,
        .counters = in->config->counters.rows,
        .primary = in->view->primary,
        .nvml = in->view->sources[DEVICE_SOURCE_NVML],
        .dcgm = in->view->sources[DEVICE_SOURCE_DCGM],
        .entities = in->view->primary->entities,
        .fields = in->view->primary->fields,
        .pod_rows = owners ? owners->rows : NULL,
        .holders = owners ? owners->holders : NULL,
        .metadata = owners ? owners->metadata : NULL,
        .jobs = owners ? owners->jobs : NULL,
        .usage = in->pod_value ? in->usage : NULL,
        .config_hash = in->config->hash,
        .counter_count = in->config->counters.count,
        .entity_count = in->view->primary->entity_count,
        .field_count = in->view->primary->field_count,
        .layout = in->view->layout,
        .owners_version = owners ? owners->version : 0,
    };
}

// After a failure nothing of the layout is kept, the memory neither: what failed may be its size.
static int refresh_layout(struct render_layout *l, const struct render_input *in)
{
    struct render_key key = key_of(in);
    if (l->valid && memcmp(&key, &l->key, sizeof(key)) == 0)
        return 0;
    int r = render_layout_build(l, in, &key);
    if (r < 0) {
        enum text_format format = l->format;
        render_layout_deinit(l);
        *l = (struct render_layout){.format = format};
    }
    return r;
}

int render_page(struct render *r, const struct render_input *in, enum text_format format,
                struct buf *out)
{
    struct render_layout *l = &r->layouts[format];
    r->device_series = r->all_series = 0;
    r->last = l;
    int result = refresh_layout(l, in);
    if (result == 0)
        result = render_gpu_refresh(l, in);
    if (result == 0)
        result = render_health_refresh(l, in);
    if (result == 0)
        result = render_ledger_refresh(l, &r->names, in);
    if (result == 0)
        result = render_node_refresh(l, in);
    if (result == 0)
        result = render_pods_refresh(l, in);
    if (result < 0)
        return result;
    size_t devices = render_devices_add(l, in, out);
    result = render_fields_refresh(l, in); // of what the line above saw
    if (result < 0)
        return result;
    buf_add_sv(out, buf_sv(&l->gpu_text));
    buf_add_sv(out, buf_sv(&l->health_text));
    size_t ledger = render_ledger_add(l, in, out);
    ledger += render_node_add(l, in, out);
    buf_add_sv(out, buf_sv(&l->pods_text));
    buf_add_sv(out, buf_sv(&l->about_text));
    buf_add_sv(out, buf_sv(&l->field_text));
    size_t self = render_self_add(l, in, out);
    if (format == TEXT_FORMAT_OPENMETRICS)
        buf_add_str(out, "# EOF\n");
    if (out->error)
        return out->error;
    r->device_series = devices;
    r->all_series = devices + l->gpu_lines + l->health_lines + ledger + l->pods_lines +
                    l->about_lines + l->field_lines + self;
    return 0;
}

void render_counts(const struct render *r, size_t *out_device_series, size_t *out_all_series)
{
    *out_device_series = r->device_series;
    *out_all_series = r->all_series;
}

const char *render_selection_error(const struct render *r, enum render_group group)
{
    return r->last ? r->last->selection_errors[group] : "";
}
