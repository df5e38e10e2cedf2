// SPDX-License-Identifier: Apache-2.0
// Family by family: each has a row here that says of a device, or of a container on one, whether it
// has a number and which. Numbers are printed from the ledger's integers, so that the sums come out
// to the last digit.
#include "exporter/render_ledger.h"

#include "base/clock.h"
#include "exporter/render_internal.h"

#define NONE UINT32_MAX
#define MICRO 6 // decimals of a number in millionths
#define MILLI 3

struct writer {
    const struct render_ledger *r;
    const struct ledger *ledger;
    enum text_format format;
    uint64_t now_ns;
    struct buf *out;
    enum render_family_id family;
    bool begun; // its header is written
    size_t lines;
};

// `name{labels`, left open; the header before the first.
static void begin_line(struct writer *w, const struct render_ledger_line *line)
{
    const struct render_ledger_header *h = &w->r->headers[w->family];
    if (!w->begun)
        buf_add(w->out, w->r->text.data + h->at, h->bytes);
    w->begun = true;
    w->lines++;
    buf_add_str(w->out, render_families[w->family].name);
    buf_add(w->out, w->r->text.data + line->at, line->bytes);
}

static void end_line(struct writer *w, uint64_t value, unsigned decimals)
{
    buf_add_sv(w->out, SV("} "));
    text_add_fixed(w->out, value, decimals);
    buf_add_char(w->out, '\n');
}

// --- Devices ---

#define DEVICE_NUMBER(name, condition, member)                                                     \
    static bool name(const struct ledger_device *d, uint64_t *out)                                 \
    {                                                                                              \
        *out = d->member;                                                                          \
        return condition;                                                                          \
    }
DEVICE_NUMBER(get_busy, d->has_busy, busy_us)
DEVICE_NUMBER(get_energy, d->has_energy, energy_uj)
DEVICE_NUMBER(get_memory_used, d->present && d->has_memory, memory_used)
DEVICE_NUMBER(get_memory_total, d->present && d->has_memory, memory_total)
DEVICE_NUMBER(get_unattributed_busy, d->has_busy, unattributed_busy_us)
DEVICE_NUMBER(get_unattributed_energy, d->has_energy, unattributed_energy_uj)
DEVICE_NUMBER(get_unattributed_memory, d->present && d->has_memory, unattributed_memory)
DEVICE_NUMBER(get_ended_busy, d->has_busy, ended_busy_us)
DEVICE_NUMBER(get_ended_energy, d->has_energy, ended_energy_uj)

static const struct device_row {
    enum render_family_id family;
    uint8_t decimals;
    bool (*get)(const struct ledger_device *d, uint64_t *out); // false: it has none
} device_rows[] = {
    {RENDER_GPU_BUSY, MICRO, get_busy},
    {RENDER_GPU_ENERGY, MICRO, get_energy},
    {RENDER_GPU_MEMORY_USED, 0, get_memory_used},
    {RENDER_GPU_MEMORY_TOTAL, 0, get_memory_total},
    {RENDER_GPU_UNATTRIBUTED_BUSY, MICRO, get_unattributed_busy},
    {RENDER_GPU_UNATTRIBUTED_ENERGY, MICRO, get_unattributed_energy},
    {RENDER_GPU_UNATTRIBUTED_MEMORY, 0, get_unattributed_memory},
    {RENDER_GPU_ENDED_BUSY, MICRO, get_ended_busy},
    {RENDER_GPU_ENDED_ENERGY, MICRO, get_ended_energy},
};

static void add_device_family(struct writer *w, const struct device_row *row)
{
    for (size_t i = 0; i < w->r->device_count; i++) {
        const struct render_ledger_line *line = &w->r->devices[i];
        uint64_t sum = 0, value = 0;
        bool any = false;
        for (uint32_t at = line->first; at != NONE; at = w->r->next_devices[at]) {
            bool has = row->get(ledger_device_at(w->ledger, at), &value);
            sum += has ? value : 0;
            any = any || has;
        }
        if (!any)
            continue;
        begin_line(w, line);
        end_line(w, sum, row->decimals);
    }
}

static void add_histogram(struct writer *w)
{
    struct sv name = sv_from(render_families[RENDER_GPU_UTILIZATION].name);
    for (size_t i = 0; i < w->r->device_count; i++) {
        const struct render_ledger_line *line = &w->r->devices[i];
        uint64_t counts[LEDGER_BUCKETS] = {0};
        struct text_histogram h = {ledger_bucket_ppm, counts, LEDGER_BUCKETS - 1, 0};
        bool any = false;
        for (uint32_t at = line->first; at != NONE; at = w->r->next_devices[at]) {
            const struct ledger_device *d = ledger_device_at(w->ledger, at);
            any = any || d->has_busy;
            h.sum_millionths += d->samples_ppm;
            for (size_t b = 0; b < LEDGER_BUCKETS; b++)
                counts[b] += d->samples[b];
        }
        if (!any)
            continue;
        const struct render_ledger_header *header = &w->r->headers[w->family];
        if (!w->begun)
            buf_add(w->out, w->r->text.data + header->at, header->bytes);
        w->begun = true;
        w->lines += LEDGER_BUCKETS + 2;
        text_add_histogram(w->out, w->format, name,
                           (struct sv){w->r->text.data + line->at, line->bytes}, &h);
    }
}

static void add_methods(struct writer *w)
{
    for (size_t i = 0; i < w->r->device_count; i++) {
        const struct render_ledger_line *line = &w->r->devices[i];
        const struct ledger_device *shown = NULL;
        for (uint32_t at = line->first; at != NONE && !shown; at = w->r->next_devices[at]) {
            const struct ledger_device *d = ledger_device_at(w->ledger, at);
            shown = d->present ? d : NULL;
        }
        if (!shown || line->parted)
            continue;
        begin_line(w, line);
        text_add_label(w->out, "method", sv_from(ledger_method_text(shown->method)));
        end_line(w, 1, 0);
    }
}

// --- Containers ---

static const struct ledger_device *device_of(const struct writer *w, const struct ledger_account *a)
{
    return ledger_device_at(w->ledger, a->device);
}

#define ACCOUNT_NUMBER(name, condition, value)                                                     \
    static bool name(const struct writer *w, const struct ledger_account *a, uint64_t *out)        \
    {                                                                                              \
        (void)w;                                                                                   \
        *out = value;                                                                              \
        return condition;                                                                          \
    }
ACCOUNT_NUMBER(get_share, a->live, a->share_ppm)
ACCOUNT_NUMBER(get_allocated, true, a->allocated_us)
ACCOUNT_NUMBER(get_account_busy, a->has_busy &&device_of(w, a)->has_busy, a->busy_us)
ACCOUNT_NUMBER(get_account_memory, a->live && a->has_memory, a->memory_bytes)
ACCOUNT_NUMBER(get_processes, a->live && a->has_processes, a->processes)

static bool get_account_energy(const struct writer *w, const struct ledger_account *a,
                               uint64_t *out)
{
    uint32_t board = device_of(w, a)->board;
    *out = a->energy_uj;
    return board < ledger_device_count(w->ledger) && ledger_device_at(w->ledger, board)->has_energy;
}

static bool get_idle(const struct writer *w, const struct ledger_account *a, uint64_t *out)
{
    *out = w->now_ns > a->idle_since_ns ? (w->now_ns - a->idle_since_ns) / NS_PER_MS : 0;
    return a->has_idle;
}

static const struct account_row {
    enum render_family_id family;
    uint8_t decimals;
    bool (*get)(const struct writer *w, const struct ledger_account *a, uint64_t *out);
} account_rows[] = {
    {RENDER_CONTAINER_SHARE, MICRO, get_share},
    {RENDER_CONTAINER_ALLOCATED, MICRO, get_allocated},
    {RENDER_CONTAINER_BUSY, MICRO, get_account_busy},
    {RENDER_CONTAINER_ENERGY, MICRO, get_account_energy},
    {RENDER_CONTAINER_MEMORY, 0, get_account_memory},
    {RENDER_CONTAINER_PROCESSES, 0, get_processes},
    {RENDER_CONTAINER_IDLE, MILLI, get_idle},
};

static void add_account_family(struct writer *w, const struct account_row *row)
{
    for (size_t i = 0; i < w->r->account_count; i++) {
        const struct render_ledger_line *line = &w->r->accounts[i];
        uint64_t sum = 0, value = 0;
        bool any = false;
        for (uint32_t at = line->first; at != NONE; at = w->r->next_accounts[at]) {
            bool has = row->get(w, ledger_account_at(w->ledger, at), &value);
            sum += has ? value : 0;
            any = any || has;
        }
        if (!any)
            continue;
        begin_line(w, line);
        end_line(w, sum, row->decimals);
    }
}

// --- All ---

static void begin_family(struct writer *w, enum render_family_id family)
{
    w->family = family;
    w->begun = false;
}

size_t render_ledger_add(const struct render_layout *l, const struct render_input *in,
                         struct buf *out)
{
    struct writer w = {.r = &l->ledger,
                       .ledger = in->ledger,
                       .format = l->format,
                       .now_ns = in->now_ns,
                       .out = out};
    if (!in->ledger)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(device_rows); i++) {
        begin_family(&w, device_rows[i].family);
        add_device_family(&w, &device_rows[i]);
    }
    begin_family(&w, RENDER_GPU_UTILIZATION);
    if (in->config->options->podgpu_families == PODGPU_FAMILIES_ALL)
        add_histogram(&w);
    for (size_t i = 0; i < ARRAY_SIZE(account_rows); i++) {
        begin_family(&w, account_rows[i].family);
        add_account_family(&w, &account_rows[i]);
    }
    begin_family(&w, RENDER_ATTRIBUTION_INFO);
    add_methods(&w);
    return w.lines;
}
