// SPDX-License-Identifier: Apache-2.0
// The pods of a time as JSON, for the kubelet and the tests.
#include "node_edit.h"

static void add_text(struct buf *out, const char *text)
{
    buf_add_char(out, '"');
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            buf_add_char(out, '\\');
        if (c < 0x20)
            buf_add_fmt(out, "\\u%04x", c);
        else
            buf_add_char(out, (char)c);
    }
    buf_add_char(out, '"');
}

static void add_member(struct buf *out, const char *name, const char *text, const char *tail)
{
    add_text(out, name);
    buf_add_char(out, ':');
    add_text(out, text);
    buf_add_str(out, tail);
}

static void add_device(const struct sim_node *n, const struct sim_device *d, struct buf *out)
{
    buf_add_char(out, '{');
    add_member(out, "resource", sim_string(n, d->resource), ",");
    add_member(out, "id", sim_string(n, d->id), ",\"numa\":[");
    const char *comma = "";
    for (unsigned node = 0; node < 32; node++) {
        if ((d->numa_mask >> node & 1) == 0)
            continue;
        buf_add_fmt(out, "%s%u", comma, node);
        comma = ",";
    }
    buf_add_str(out, "]}");
}

static void add_extra(const struct sim_node *n, uint32_t extra, struct buf *out)
{
    const char *text = sim_string(n, extra);
    buf_add_str(out, *text ? text : "{}");
}

static const char *phase_at(const struct sim_node *n, const struct sim_pod *p, int64_t t)
{
    if (t < atomic_load(&p->completed_ns))
        return sim_string(n, p->phase);
    return atomic_load(&p->failed) ? "Failed" : "Succeeded";
}

static void add_container(const struct sim_node *n, const struct sim_container *c, struct buf *out)
{
    buf_add_char(out, '{');
    add_member(out, "name", sim_string(n, c->name), ",");
    add_member(out, "id", sim_string(n, c->id), ",");
    buf_add_fmt(out, "\"init\":%u,\"extra\":", c->init);
    add_extra(n, c->extra, out);
    buf_add_str(out, ",\"devices\":[");
    for (uint32_t i = 0; i < c->devices; i++) {
        if (i > 0)
            buf_add_char(out, ',');
        add_device(n, &n->devices[c->first_device + i], out);
    }
    buf_add_str(out, "]}");
}

void sim_pods_json(const struct sim_node *n, int64_t t, bool all, struct buf *out)
{
    const char *comma = "";
    buf_add_str(out, "{\"pods\":[");
    for (uint32_t i = 0; i < n->pod_count; i++) {
        const struct sim_pod *p = &n->pods[i];
        if (!all && (t < p->start_ns || t >= atomic_load(&p->end_ns)))
            continue;
        buf_add_str(out, comma);
        buf_add_fmt(out, "{\"index\":%u,\"first_container\":%u,", i, p->first_container);
        add_member(out, "name", sim_string(n, p->name), ",");
        add_member(out, "namespace", sim_string(n, p->namespace_name), ",");
        add_member(out, "uid", sim_string(n, p->uid), ",");
        add_member(out, "config_hash", sim_string(n, p->config_hash), ",");
        add_member(out, "phase", phase_at(n, p, t), ",");
        buf_add_fmt(out, "\"start_ns\":%lld,\"completed_ns\":%lld,\"end_ns\":%lld,\"extra\":",
                    (long long)p->start_ns, (long long)atomic_load(&p->completed_ns),
                    (long long)atomic_load(&p->end_ns));
        add_extra(n, p->extra, out);
        buf_add_str(out, ",\"containers\":[");
        for (uint32_t k = 0; k < p->containers; k++) {
            if (k > 0)
                buf_add_char(out, ',');
            add_container(n, &n->containers[p->first_container + k], out);
        }
        buf_add_str(out, "]}");
        comma = ",";
    }
    buf_add_str(out, "]}\n");
}
