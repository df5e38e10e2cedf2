// SPDX-License-Identifier: Apache-2.0
// Numbers about ourselves, from one table: a row is a line of the page, with the member of struct
// render_self it prints. Lines of one family stand together; a family's header comes with its first
// line that is shown.
#include "base/clock.h"
#include "base/num.h"
#include "exporter/render_internal.h"

static const char *const source_labels[DEVICE_SOURCE_COUNT] = {
    [DEVICE_SOURCE_NVML] = "source=\"nvml\"",
    [DEVICE_SOURCE_DCGM] = "source=\"dcgm\"",
};

enum self_kind {
    SELF_U64,
    SELF_U32,
    SELF_SIZE,
    SELF_BOOL,
    SELF_DOUBLE,
    SELF_WALL, // nanoseconds since 1970, printed in seconds
};

enum self_when {
    SELF_ALWAYS,
    SELF_NVML,              // the view has that source
    SELF_DCGM,              //
    SELF_NVML_SAMPLED,      // and some sample has come
    SELF_DCGM_SAMPLED,      //
    SELF_ATTRIBUTION,       // -k
    SELF_ATTRIBUTION_KNOWN, // and a kubelet map is in use
    SELF_METADATA,          // the API server is asked for pods
    SELF_POD_SOURCES,
    SELF_LEDGER,    // there is one
    SELF_PROCESSES, // and it knows of processes
    SELF_EXP,       // the counters file has a row that counts
    SELF_PROCESS,   // --enable-exporter-metrics
};

static const struct self_row {
    enum render_family_id family;
    const char *labels; // between the braces; NULL: none
    uint16_t offset;    // in struct render_self
    uint8_t kind, when;
} rows[] = {
#define AT(member) offsetof(struct render_self, member)
    {RENDER_START_TIME, NULL, AT(started_wall_ns), SELF_WALL, SELF_ALWAYS},
#define OF(source) "source=\"" source "\""
#define BOTH(family, more, member, kind, when)                                                     \
    {family, OF("nvml") more, AT(sources[DEVICE_SOURCE_NVML].member), kind, SELF_NVML##when},      \
    {                                                                                              \
        family, OF("dcgm") more, AT(sources[DEVICE_SOURCE_DCGM].member), kind, SELF_DCGM##when     \
    }
    BOTH(RENDER_LAST_SAMPLE_TIMESTAMP, "", sample_last_wall_ns, SELF_WALL, _SAMPLED),
    BOTH(RENDER_SAMPLE_DURATION, "", sample_duration_s, SELF_DOUBLE, _SAMPLED),
    BOTH(RENDER_ERRORS, ",code=\"crashed\"", crashes, SELF_U64, ),
    BOTH(RENDER_ERRORS, ",code=\"hung\"", hangs, SELF_U64, ),
    BOTH(RENDER_ERRORS, ",code=\"protocol\"", protocol_errors, SELF_U64, ),
    BOTH(RENDER_HELPER_STARTS, "", starts, SELF_U64, ),
    BOTH(RENDER_HELPER_RUNNING, "", running, SELF_BOOL, ),
    BOTH(RENDER_HELPER_RELEASED, "", released, SELF_BOOL, ),
#undef BOTH
#undef OF
    {RENDER_ATTRIBUTION_UP, NULL, AT(attribution_up), SELF_BOOL, SELF_ATTRIBUTION},
    {RENDER_ATTRIBUTION_AGE, NULL, AT(attribution_age_s), SELF_DOUBLE, SELF_ATTRIBUTION_KNOWN},
    {RENDER_ATTRIBUTION_POLLS, NULL, AT(attribution_polls), SELF_U64, SELF_ATTRIBUTION},
    {RENDER_ATTRIBUTION_FAILURES, NULL, AT(attribution_failures), SELF_U64, SELF_ATTRIBUTION},
    {RENDER_ATTRIBUTION_RATE_LIMITED, NULL, AT(attribution_rate_limited), SELF_U64,
     SELF_ATTRIBUTION},
    {RENDER_ATTRIBUTION_UNKNOWN_IDS, NULL, AT(attribution_unknown_ids), SELF_SIZE,
     SELF_ATTRIBUTION},
    {RENDER_ATTRIBUTION_SUPERSEDED_IDS, NULL, AT(attribution_superseded_ids), SELF_SIZE,
     SELF_ATTRIBUTION},
    {RENDER_ATTRIBUTION_ROWS, NULL, AT(attribution_rows), SELF_SIZE, SELF_ATTRIBUTION},
    {RENDER_LEDGER_INTERVALS, NULL, AT(ledger.intervals), SELF_U64, SELF_LEDGER},
    {RENDER_LEDGER_SCALED, NULL, AT(ledger.scaled), SELF_U64, SELF_LEDGER},
    {RENDER_LEDGER_GAPS, NULL, AT(ledger.gaps), SELF_U64, SELF_LEDGER},
    {RENDER_LEDGER_HOLDER_CHANGES, NULL, AT(ledger.holder_changes), SELF_U64, SELF_LEDGER},
    {RENDER_LEDGER_REFUSED, NULL, AT(ledger.refused), SELF_U64, SELF_LEDGER},
    {RENDER_LEDGER_EARLY_ENDED, NULL, AT(ledger.early_ended), SELF_U64, SELF_LEDGER},
    {RENDER_PROCESSES, "kind=\"pod\"", AT(ledger.pod_processes), SELF_SIZE, SELF_PROCESSES},
    {RENDER_PROCESSES, "kind=\"host\"", AT(ledger.host_processes), SELF_SIZE, SELF_PROCESSES},
    {RENDER_UNNAMED_PODS, NULL, AT(ledger.unnamed_pods), SELF_SIZE, SELF_PROCESSES},
    {RENDER_ATTRIBUTION_DISAGREEMENTS, NULL, AT(ledger.disagreements), SELF_SIZE, SELF_PROCESSES},
    {RENDER_POD_METADATA_UP, NULL, AT(metadata.up), SELF_BOOL, SELF_METADATA},
    {RENDER_POD_METADATA_PODS, NULL, AT(metadata.pods), SELF_SIZE, SELF_METADATA},
    {RENDER_POD_METADATA_FAILURES, NULL, AT(metadata.failures), SELF_U64, SELF_METADATA},
    {RENDER_POD_METADATA_SKIPPED, NULL, AT(metadata.skipped), SELF_U64, SELF_METADATA},
    {RENDER_POD_LABELS_DROPPED, "reason=\"same_name\"", AT(metadata.same_name), SELF_U64,
     SELF_METADATA},
    {RENDER_POD_LABELS_DROPPED, "reason=\"budget\"", AT(metadata.over_budget), SELF_U64,
     SELF_METADATA},
    {RENDER_POD_SOURCE_UP, "source=\"kubelet\"", AT(metadata.kubelet_up), SELF_BOOL,
     SELF_POD_SOURCES},
    {RENDER_POD_SOURCE_UP, "source=\"logs\"", AT(metadata.logs_up), SELF_BOOL, SELF_POD_SOURCES},
    {RENDER_POD_SOURCE_UP, "source=\"api_server\"", AT(metadata.up), SELF_BOOL, SELF_METADATA},
    {RENDER_CONFIG_RELOAD_SUCCESS, NULL, AT(config_ok), SELF_BOOL, SELF_ALWAYS},
    {RENDER_CONFIG_RELOAD_TIMESTAMP, NULL, AT(config_last_ok_wall_ns), SELF_WALL, SELF_ALWAYS},
    {RENDER_CONFIG_RELOADS, NULL, AT(config_reloads), SELF_U64, SELF_ALWAYS},
    {RENDER_CONFIG_RELOAD_FAILURES, NULL, AT(config_failures), SELF_U64, SELF_ALWAYS},
    {RENDER_CONFIG_DUPLICATES, NULL, AT(config_duplicates), SELF_SIZE, SELF_ALWAYS},
    {RENDER_EXP_COUNTS_DROPPED, NULL, AT(exp_counts_dropped), SELF_U64, SELF_EXP},
    {RENDER_HTTP_REQUESTS, NULL, AT(http.requests), SELF_U64, SELF_ALWAYS},
    {RENDER_HTTP_REJECTED, "reason=\"unauthorized\"", AT(http.denied), SELF_U64, SELF_ALWAYS},
    {RENDER_HTTP_REJECTED, "reason=\"rate_limit\"", AT(http.limited), SELF_U64, SELF_ALWAYS},
    {RENDER_HTTP_REJECTED, "reason=\"malformed\"", AT(http.bad_requests), SELF_U64, SELF_ALWAYS},
    {RENDER_HTTP_CONNECTIONS, NULL, AT(http.connections), SELF_U64, SELF_ALWAYS},
    {RENDER_HTTP_CONNECTIONS_CLOSED, "reason=\"peer_limit\"", AT(http.refused), SELF_U64,
     SELF_ALWAYS},
    {RENDER_HTTP_CONNECTIONS_CLOSED, "reason=\"made_room\"", AT(http.evicted), SELF_U64,
     SELF_ALWAYS},
    {RENDER_HTTP_CONNECTIONS_CLOSED, "reason=\"deadline\"", AT(http.timed_out), SELF_U64,
     SELF_ALWAYS},
    {RENDER_HTTP_OPEN_CONNECTIONS, NULL, AT(http.open), SELF_U32, SELF_ALWAYS},
    {RENDER_WEB_CONFIG_RELOAD_SUCCESS, NULL, AT(http.web_config_ok), SELF_BOOL, SELF_ALWAYS},
    {RENDER_PAGE_BYTES, NULL, AT(page_bytes), SELF_U64, SELF_ALWAYS},
    {RENDER_PAGE_READERS_CUT, NULL, AT(page_shut_readers), SELF_U64, SELF_ALWAYS},
    {RENDER_PAGE_WITHOUT_OWNERS, NULL, AT(page_without_owners), SELF_BOOL, SELF_ALWAYS},
    {RENDER_PAGE_WITHOUT_POD_LABELS, NULL, AT(page_without_pod_labels), SELF_BOOL, SELF_METADATA},
    {RENDER_PROCESS_CPU, NULL, AT(process.cpu_seconds), SELF_DOUBLE, SELF_PROCESS},
    {RENDER_PROCESS_START, NULL, AT(process.start_wall_ns), SELF_WALL, SELF_PROCESS},
    {RENDER_PROCESS_RESIDENT, NULL, AT(process.resident_bytes), SELF_U64, SELF_PROCESS},
    {RENDER_PROCESS_VIRTUAL, NULL, AT(process.virtual_bytes), SELF_U64, SELF_PROCESS},
    {RENDER_PROCESS_OPEN_FDS, NULL, AT(process.open_fds), SELF_U64, SELF_PROCESS},
    {RENDER_PROCESS_MAX_FDS, NULL, AT(process.max_fds), SELF_U64, SELF_PROCESS},
#undef AT
};
_Static_assert(ARRAY_SIZE(rows) <= RENDER_SELF_LINES_MAX, "room for every line");

static struct render_span add_text(struct render_layout *l, const char *name, const char *labels)
{
    struct render_span s = {.at = (uint32_t)l->text.len};
    buf_add_str(&l->text, name);
    if (labels) {
        buf_add_char(&l->text, '{');
        buf_add_str(&l->text, labels);
        buf_add_char(&l->text, '}');
    }
    buf_add_char(&l->text, ' ');
    s.bytes = (uint32_t)l->text.len - s.at;
    return s;
}

static void build_header(struct render_layout *l, enum render_family_id family)
{
    struct render_span *s = &l->self_headers[family];
    s->at = (uint32_t)l->text.len;
    render_add_header(&l->text, l->format, family);
    s->bytes = (uint32_t)l->text.len - s->at;
}

void render_self_build(struct render_layout *l)
{
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (i == 0 || rows[i].family != rows[i - 1].family)
            build_header(l, rows[i].family);
        l->self_lines[i] = add_text(l, render_families[rows[i].family].name, rows[i].labels);
    }
    static const enum render_family_id others[] = {
        RENDER_DEVICE_SELECTION_OK, RENDER_SERIES_DROPPED,    RENDER_SOURCE_UP,
        RENDER_SOURCE_STATE_INFO,   RENDER_PROCESS_VIEW_INFO,
    };
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        build_header(l, others[i]);
}

static const struct inventory *source_of(const struct render_input *in, size_t source)
{
    const struct inventory *own = in->self->sources[source].inventory;
    return own ? own : in->view->sources[source];
}

static bool has_source(const struct render_input *in, enum device_source source, bool sampled)
{
    return source_of(in, source) && (!sampled || in->self->sources[source].sample_last_wall_ns > 0);
}

static bool is_shown(const struct render_input *in, enum self_when when)
{
    const struct render_self *self = in->self;
    switch (when) {
    case SELF_ALWAYS:
        return true;
    case SELF_NVML:
    case SELF_NVML_SAMPLED:
        return has_source(in, DEVICE_SOURCE_NVML, when == SELF_NVML_SAMPLED);
    case SELF_DCGM:
    case SELF_DCGM_SAMPLED:
        return has_source(in, DEVICE_SOURCE_DCGM, when == SELF_DCGM_SAMPLED);
    case SELF_ATTRIBUTION:
        return self->attribution_on;
    case SELF_ATTRIBUTION_KNOWN:
        return self->attribution_on && self->attribution_age_s >= 0;
    case SELF_METADATA:
        return self->metadata.on;
    case SELF_POD_SOURCES:
        return self->metadata.sources_on;
    case SELF_LEDGER:
        return self->ledger.on;
    case SELF_PROCESSES:
        return self->ledger.on && self->ledger.processes;
    case SELF_EXP:
        return self->exp_counts_on;
    case SELF_PROCESS:
        return self->process_metrics;
    }
    return false;
}

static void add_value(const struct render_self *self, const struct self_row *row, struct buf *out)
{
    const void *at = (const char *)self + row->offset;
    switch ((enum self_kind)row->kind) {
    case SELF_U64:
        buf_add_u64(out, *(const uint64_t *)at);
        break;
    case SELF_U32:
        buf_add_u64(out, *(const uint32_t *)at);
        break;
    case SELF_SIZE:
        buf_add_u64(out, *(const size_t *)at);
        break;
    case SELF_BOOL:
        buf_add_char(out, *(const bool *)at ? '1' : '0');
        break;
    case SELF_DOUBLE:
        text_add_double(out, *(const double *)at);
        break;
    case SELF_WALL:
        text_add_fixed(out, *(const uint64_t *)at / NS_PER_MS, 3);
        break;
    }
}

static size_t add_rows(const struct render_layout *l, const struct render_input *in,
                       struct buf *out)
{
    size_t added = 0;
    bool any = false;
    enum render_family_id begun = RENDER_FAMILY_COUNT;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        if (!is_shown(in, (enum self_when)rows[i].when))
            continue;
        if (!any || rows[i].family != begun)
            render_add_span(l, l->self_headers[rows[i].family], out);
        any = true;
        begun = rows[i].family;
        render_add_span(l, l->self_lines[i], out);
        add_value(in->self, &rows[i], out);
        buf_add_char(out, '\n');
        added++;
    }
    return added;
}

static void add_line(const struct render_layout *l, enum render_family_id family, bool first,
                     const char *labels, uint64_t value, struct buf *out)
{
    if (first)
        render_add_span(l, l->self_headers[family], out);
    buf_add_str(out, render_families[family].name);
    buf_add_str(out, labels);
    buf_add_u64(out, value);
    buf_add_char(out, '\n');
}

static bool is_up(const struct inventory *inv, bool released)
{
    return inventory_is_connected(inv) && !released;
}

static const char *state_of(const struct inventory *inv, bool released)
{
    if (released)
        return "released";
    return inv->state_known ? frame_state_text((enum frame_state_code)inv->state.code) : "unknown";
}

// Two families, a line a source in each.
static size_t add_sources(const struct render_layout *l, const struct render_input *in,
                          struct buf *out)
{
    size_t added = 0;
    for (unsigned state = 0; state < 2; state++) {
        enum render_family_id family = state ? RENDER_SOURCE_STATE_INFO : RENDER_SOURCE_UP;
        render_add_span(l, l->self_headers[family], out);
        for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++) {
            const struct inventory *inv = source_of(in, i);
            bool released = in->self->sources[i].released;
            if (!inv)
                continue;
            buf_add_str(out, render_families[family].name);
            buf_add_char(out, '{');
            buf_add_str(out, source_labels[i]);
            if (state)
                text_add_label(out, "state", sv_from(state_of(inv, released)));
            buf_add_str(out, state || is_up(inv, released) ? "} 1\n" : "} 0\n");
            added++;
        }
    }
    return added;
}

static bool has_all_devices(const struct render_layout *l)
{
    for (size_t i = 0; i < RENDER_GROUP_COUNT; i++)
        if (l->selection_errors[i][0] != '\0')
            return false;
    return true;
}

// What the layout and the sources tell of themselves.
static size_t add_others(const struct render_layout *l, const struct render_input *in,
                         struct buf *out)
{
    add_line(l, RENDER_DEVICE_SELECTION_OK, true, " ", has_all_devices(l), out);
    add_line(l, RENDER_SERIES_DROPPED, true, "{reason=\"duplicate\"} ", l->duplicates, out);
    add_line(l, RENDER_SERIES_DROPPED, false, "{reason=\"holders\"} ", l->copies_dropped, out);
    size_t added = 3 + add_sources(l, in, out);
    if (!in->self->ledger.view)
        return added;
    render_add_span(l, l->self_headers[RENDER_PROCESS_VIEW_INFO], out);
    buf_add_str(out, render_families[RENDER_PROCESS_VIEW_INFO].name);
    buf_add_char(out, '{');
    text_add_label(out, "view", sv_from(in->self->ledger.view));
    buf_add_str(out, "} 1\n");
    return added + 1;
}

size_t render_self_add(const struct render_layout *l, const struct render_input *in,
                       struct buf *out)
{
    size_t added = add_others(l, in, out);
    return added + add_rows(l, in, out);
}
