// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "exporter/app_internal.h"
#include "exporter/process_stats.h"
#include "exporter/revision.h"

static void fill_attribution(const struct app *a, struct render_self *out)
{
    out->attribution_age_s = -1;
    if (!a->pods)
        return;
    struct pod_resources_stats s;
    pod_resources_get_stats(a->pods, &s);
    out->attribution_on = true;
    out->attribution_up = s.polls > 0 && s.last_result == 0 && s.last_grpc_status == 0;
    uint64_t now_ns = loop_now_ns(a->loop); // of this turn: an answer may be newer
    if (s.last_ok_ns > 0)
        out->attribution_age_s =
            now_ns > s.last_ok_ns ? (double)(now_ns - s.last_ok_ns) / (double)NS_PER_S : 0;
    out->attribution_polls = s.polls;
    out->attribution_failures = s.failures;
    out->attribution_rate_limited = s.rate_limited;
}

static void fill_source(const struct app_source *s, struct render_self_source *out)
{
    const struct inventory *inv = &s->inventory;
    uint64_t sampled_ns = 0;
    for (size_t c = 0; c < FIELD_CLASS_COUNT; c++)
        if (inv->last_sample_ns[c] > sampled_ns)
            sampled_ns = inv->last_sample_ns[c];
    if (sampled_ns > 0)
        out->sample_last_wall_ns = clock_wall_ns() - (clock_mono_ns() - sampled_ns);
    out->sample_duration_s = (double)inv->last_duration_ns / (double)NS_PER_S;
    out->released = s->app->released;
    out->inventory = app_source_is_wanted(s) ? inv : NULL;
    if (!s->process)
        return;
    struct source_process_stats stats;
    source_process_get_stats(s->process, &stats);
    out->starts = stats.starts;
    out->crashes = stats.crashes;
    out->hangs = stats.hangs;
    out->protocol_errors = stats.protocol_errors;
    out->running = stats.running;
}

static void fill_http(const struct app *a, struct render_self *out)
{
    if (!a->server)
        return;
    struct http_server_stats s;
    http_server_get_stats(a->server, &s);
    out->http = (struct render_self_http){
        .requests = s.requests,
        .denied = s.denied,
        .limited = s.limited,
        .bad_requests = s.bad_requests,
        .connections = s.connections,
        .refused = s.refused,
        .evicted = s.evicted,
        .timed_out = s.timed_out,
        .open = s.open,
        .web_config_ok = s.web_config_ok,
    };
}

static bool counts_events(const struct counter_list *counters)
{
    for (size_t i = 0; i < counters->count; i++) {
        uint16_t id = counters->rows[i].field->id;
        if (id >= FIELD_EXP_FIRST && id != FIELD_EXP_HEALTH && id != FIELD_EXP_P2P)
            return true;
    }
    return false;
}

void app_self(const struct app *a, struct render_self *out)
{
    *out = (struct render_self){
        .started_wall_ns = a->started_wall_ns,
        .version = PODGPU_VERSION,
        .revision = PODGPU_REVISION,
        .config_ok = a->config_ok,
        .config_last_ok_wall_ns = a->config_ok_wall_ns,
        .config_reloads = a->reloads,
        .config_failures = a->reload_failures,
        .config_duplicates = a->config->counters.duplicates,
        .exp_counts_on = counts_events(&a->config->counters),
        .exp_counts_dropped = exp_counts_dropped(a->exp),
        .process_metrics = a->config->exporter_metrics,
    };
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        fill_source(&a->sources[i], &out->sources[i]);
    fill_attribution(a, out);
    app_pods_self(a, &out->metadata);
    app_ledger_self(a, &out->ledger);
    fill_http(a, out);
    if (out->process_metrics)
        process_stats_read(&out->process);
}

// Whether it has nothing to sample, and so will never send one.
static bool is_idle(const struct app_source *s)
{
    if (!inventory_is_connected(&s->inventory))
        return false;
    if (s->watched_fields == 0)
        return true;
    bool listed = s->inventory.generation > 0, any = s->which == DEVICE_SOURCE_NVML;
    for (size_t i = 0; i < s->inventory.entity_count; i++)
        any = any || s->inventory.entities[i].info.kind >= FRAME_ENTITY_SWITCH;
    return listed && !any && s->app->plan.gpus == 0;
}

static void source_condition(const struct app_source *s, struct ready_condition *c)
{
    static const char *const names[] = {"source nvml", "source dcgm"};
    const struct frame_state *state = &s->inventory.state;
    bool idle = is_idle(s), released = s->app->released;
    bool absent = s->logged_state.code != FRAME_STATE_READY && s->logged_state.text[0] != '\0';
    struct source_process_stats stats = {0};
    if (s->process)
        source_process_get_stats(s->process, &stats);
    c->name = names[s->which];
    c->ok = s->published || idle || absent || released;
    if (released)
        sv_copy(c->text, sizeof(c->text), SV("released on request, until POST /-/attach"));
    else if (absent)
        sv_copy(c->text, sizeof(c->text), sv_from(state->text));
    else if (!c->ok && stats.starts > 1)
        (void)snprintf(c->text, sizeof(c->text),
                       "no sample yet: its process ended or was ended %llu times",
                       (unsigned long long)(stats.starts - (stats.running ? 1 : 0)));
    else if (idle)
        sv_copy(c->text, sizeof(c->text),
                s->watched_fields == 0 ? SV("no fields to sample") : SV("no devices to sample"));
    else
        sv_copy(c->text, sizeof(c->text), s->published ? SV("sampling") : SV("no sample yet"));
}

static void kubelet_condition(const struct app *a, struct ready_condition *c)
{
    struct pod_resources_stats s;
    pod_resources_get_stats(a->pods, &s);
    bool absent = s.polls > 0 && !s.socket_seen;
    c->name = "kubelet pod-resources";
    c->ok = s.last_ok_ns > 0 || absent;
    if (absent)
        sv_copy(c->text, sizeof(c->text), SV("no socket; metrics are served without pod labels"));
    else
        sv_copy(c->text, sizeof(c->text),
                s.last_result == 0 ? SV("answering") : sv_from(s.last_error));
}

static void metadata_condition(const struct app *a, struct ready_condition *c)
{
    struct pod_watch_stats s;
    pod_watch_get_stats(a->pod_watch, &s);
    c->name = "pod labels";
    c->ok = s.settled;
    sv_copy(c->text, sizeof(c->text),
            s.problem[0] ? sv_from(s.problem)
            : s.up       ? SV("watching pods")
                         : SV("no answer of the API server yet"));
}

size_t app_conditions(void *user, struct ready_condition *out)
{
    const struct app *a = user;
    size_t n = 0;
    memset(out, 0, READY_CONDITIONS_MAX * sizeof(*out));
    for (size_t i = 0; i < DEVICE_SOURCE_COUNT; i++)
        if (app_source_is_wanted(&a->sources[i]))
            source_condition(&a->sources[i], &out[n++]);
    if (a->pods)
        kubelet_condition(a, &out[n++]);
    if (a->pod_watch)
        metadata_condition(a, &out[n++]);
    n += app_ledger_condition(a, &out[n]);
    out[n] = (struct ready_condition){.name = "configuration", .ok = true};
    sv_copy(out[n].text, sizeof(out[n].text),
            a->config_ok ? SV("in force")
                         : SV("the last reload failed, the one before is in force"));
    n++;
    return n;
}
