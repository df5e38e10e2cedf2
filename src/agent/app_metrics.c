// SPDX-License-Identifier: Apache-2.0
// /metrics: the agent's numbers about itself, made when they are asked for.
#include <stdio.h>
#include <string.h>

#include "agent/app_internal.h"
#include "base/clock.h"
#include "base/limits.h"
#include "metrics/text.h"

struct page {
    struct buf text;
};

static void family(struct page *p, const char *name, enum text_type type, const char *help)
{
    text_add_family(&p->text, TEXT_FORMAT_PROMETHEUS, sv_from(name), type, sv_from(help));
}

static void line(struct page *p, const char *name, const char *labels, double value)
{
    buf_add_str(&p->text, name);
    if (labels) {
        buf_add_char(&p->text, '{');
        buf_add_str(&p->text, labels);
        buf_add_char(&p->text, '}');
    }
    buf_add_char(&p->text, ' ');
    text_add_double(&p->text, value);
    buf_add_char(&p->text, '\n');
}

static void one(struct page *p, const char *name, enum text_type type, uint64_t value,
                const char *help)
{
    family(p, name, type, help);
    line(p, name, NULL, (double)value);
}

static void counter(struct page *p, const char *name, uint64_t value, const char *help)
{
    one(p, name, TEXT_TYPE_COUNTER, value, help);
}

static void gauge(struct page *p, const char *name, uint64_t value, const char *help)
{
    one(p, name, TEXT_TYPE_GAUGE, value, help);
}

static void seconds(struct page *p, const char *name, uint64_t ns, const char *help)
{
    family(p, name, TEXT_TYPE_GAUGE, help);
    line(p, name, NULL, (double)ns / (double)NS_PER_S);
}

static void labelled(struct page *p, const char *name, const char *label, const char *value,
                     uint64_t n)
{
    char labels[96];
    (void)snprintf(labels, sizeof(labels), "%s=\"%s\"", label, value);
    line(p, name, labels, (double)n);
}

static void add_self(struct page *p, const struct agent *a)
{
    family(p, "podgpu_agent_build_info", TEXT_TYPE_INFO, "Version of this program.");
    line(p, "podgpu_agent_build_info", "version=\"" PODGPU_VERSION "\"", 1);
    seconds(p, "podgpu_agent_start_time_seconds", a->started_wall_ns,
            "When this process started, in seconds since 1970.");
    gauge(p, "podgpu_agent_config_last_reload_successful", a->config_ok,
          "Whether the configuration was last read without a problem (1); after one (0) the one "
          "before "
          "stays.");
    seconds(p, "podgpu_agent_config_last_reload_success_timestamp_seconds", a->config_ok_wall_ns,
            "When a configuration was last taken, in seconds since 1970.");
    counter(p, "podgpu_agent_config_reloads_total", a->reloads, "Configurations read since start.");
    counter(p, "podgpu_agent_config_reload_failures_total", a->reload_failures,
            "How often a new configuration was refused.");
}

static void add_scraper(struct page *p, const struct agent *a)
{
    struct scraper_stats s = {0};
    size_t problems = 0;
    if (a->scraper)
        scraper_get_stats(a->scraper, &s);
    if (a->discovery)
        (void)discovery_problems(a->discovery, &problems);
    gauge(p, "podgpu_agent_discovery_problems", problems,
          "Discovery sections that fail now; what they found before stays.");
    family(p, "podgpu_agent_targets", TEXT_TYPE_GAUGE, "Targets now.");
    labelled(p, "podgpu_agent_targets", "state", "up", s.up);
    labelled(p, "podgpu_agent_targets", "state", "down", s.down);
    labelled(p, "podgpu_agent_targets", "state", "unknown", s.targets - s.up - s.down);
    labelled(p, "podgpu_agent_targets", "state", "dropped", s.dropped);
    labelled(p, "podgpu_agent_targets", "state", "invalid", s.invalid);
    labelled(p, "podgpu_agent_targets", "state", "over_limit", s.limited);
    counter(p, "podgpu_agent_scrapes_total", s.scrapes, "Scrapes.");
    counter(p, "podgpu_agent_scrape_failures_total", s.failures, "Scrapes that failed.");
    counter(p, "podgpu_agent_scrapes_skipped_total", s.skipped,
            "Turns that came while the scrape before was still under way.");
    counter(p, "podgpu_agent_scraped_samples_total", s.samples, "Samples read.");
    counter(p, "podgpu_agent_scraped_duplicate_samples_total", s.duplicates,
            "Samples of a series that the same page had already given.");
    counter(p, "podgpu_agent_scraped_unusable_samples_total", s.unusable,
            "Samples that metric relabelling left without a usable name.");
    counter(p, "podgpu_agent_scraped_bytes_total", s.bytes, "Bytes of pages read, decompressed.");
    gauge(p, "podgpu_agent_series", s.series, "Series known now.");
}

static void add_emf(struct page *p, const struct agent *a)
{
    static const char dropped[] = "podgpu_agent_emf_dropped_samples_total";
    struct emf_stats s = {0};
    if (a->emf)
        emf_get_stats(a->emf, &s);
    uint64_t types = 0;
    for (size_t i = 0; i < ARRAY_SIZE(s.dropped_type); i++)
        types += s.dropped_type[i];
    counter(p, "podgpu_agent_emf_samples_total", s.samples, "Samples given to the EMF sink.");
    counter(p, "podgpu_agent_emf_event_samples_total", s.event_samples, "Samples in events.");
    counter(p, "podgpu_agent_emf_events_total", s.events, "Events made.");
    family(p, dropped, TEXT_TYPE_COUNTER, "Samples that are in no event, by reason.");
    labelled(p, dropped, "reason", "type", types);
    labelled(p, dropped, "reason", "not_finite", s.dropped_not_finite);
    labelled(p, dropped, "reason", "first_of_counter", s.dropped_first);
    labelled(p, dropped, "reason", "repeated_timestamp", s.dropped_repeated);
    labelled(p, dropped, "reason", "duplicate", s.dropped_duplicate);
    labelled(p, dropped, "reason", "no_declaration", s.dropped_unmatched);
    labelled(p, dropped, "reason", "timestamp", s.dropped_old);
    labelled(p, dropped, "reason", "too_large", s.dropped_large);
    labelled(p, dropped, "reason", "value_range", s.dropped_value);
    labelled(p, dropped, "reason", "empty_histogram", s.dropped_empty);
    labelled(p, dropped, "reason", "no_memory", s.dropped_memory);
    gauge(p, "podgpu_agent_emf_waiting_samples", s.waiting,
          "Samples that wait for their minute to be over.");
    counter(p, "podgpu_agent_emf_splits_total", s.metrics_split,
            "Events made because one has room for 100 metrics, 100 values and 256 KiB.");
    counter(p, "podgpu_agent_emf_renamed_total", s.renamed,
            "Labels and metrics whose name means something else in an event, once a series.");
    counter(p, "podgpu_agent_emf_bad_dimension_sets_total", s.bad_dimensions,
            "Dimension sets left out for a value over 1024 characters, once a series.");
    gauge(p, "podgpu_agent_custom_metrics", s.custom_metrics,
          "CloudWatch metrics that the known series make.");
}

static void add_losses(struct page *p, const struct delivery_stats *s)
{
    family(p, "podgpu_agent_lost_events_total", TEXT_TYPE_COUNTER,
           "Events that will not be delivered, by reason.");
    for (unsigned i = 0; i < DELIVERY_LOSS_COUNT; i++)
        labelled(p, "podgpu_agent_lost_events_total", "reason",
                 delivery_loss_text((enum delivery_loss)i), s->lost_events[i]);
    family(p, "podgpu_agent_lost_samples_total", TEXT_TYPE_COUNTER,
           "Samples in those events, by reason.");
    for (unsigned i = 0; i < DELIVERY_LOSS_COUNT; i++)
        labelled(p, "podgpu_agent_lost_samples_total", "reason",
                 delivery_loss_text((enum delivery_loss)i), s->lost_samples[i]);
}

static void add_spool(struct page *p, const struct delivery_stats *s)
{
    gauge(p, "podgpu_agent_spool_bytes", s->spool_bytes, "Bytes of batches that wait.");
    gauge(p, "podgpu_agent_spool_batches", s->spool_batches, "Batches that wait.");
    if (s->oldest_wall_ns > 0)
        seconds(p, "podgpu_agent_spool_oldest_timestamp_seconds", s->oldest_wall_ns,
                "When the oldest batch that waits was made, in seconds since 1970.");
    counter(p, "podgpu_agent_spool_failures_total", s->spool_failures,
            "Times that batches could not be written and were kept in memory.");
    gauge(p, "podgpu_agent_spool_in_memory", s->is_spooling_to_memory,
          "Whether batches wait in memory, for want of a disk to write to.");
    gauge(p, "podgpu_agent_previous_end_unclean", s->was_unclean,
          "Whether the process before ended without order: events it held in memory are lost.");
}

static void add_delivery(struct page *p, const struct agent *a)
{
    struct delivery_stats s = {0};
    struct logs_stats l = {0};
    if (!a->delivery)
        return;
    delivery_get_stats(a->delivery, &s);
    aws_logs_get_stats(a->logs, &l);
    counter(p, "podgpu_agent_events_total", s.events, "Events given to delivery.");
    counter(p, "podgpu_agent_samples_total", s.samples, "Samples in them.");
    counter(p, "podgpu_agent_recovered_events_total", s.recovered_events,
            "Events that an earlier process left in the spool.");
    counter(p, "podgpu_agent_recovered_samples_total", s.recovered_samples, "Samples in them.");
    gauge(p, "podgpu_agent_waiting_events", s.waiting_events,
          "Events not yet delivered or lost: given and recovered ones less those.");
    gauge(p, "podgpu_agent_waiting_samples", s.waiting_samples, "Samples in them.");
    counter(p, "podgpu_agent_delivered_events_total", s.delivered_events,
            "Events that CloudWatch Logs has taken.");
    counter(p, "podgpu_agent_delivered_samples_total", s.delivered_samples, "Samples in them.");
    add_losses(p, &s);
    counter(p, "podgpu_agent_duplicate_events_total", s.duplicate_events,
            "Events sent again although CloudWatch may have them.");
    counter(p, "podgpu_agent_batches_total", s.batches, "Batches made.");
    counter(p, "podgpu_agent_delivery_retries_total", s.retries, "Batches sent again.");
    add_spool(p, &s);
    if (s.last_delivery_wall_ns > 0)
        seconds(p, "podgpu_agent_last_delivery_timestamp_seconds", s.last_delivery_wall_ns,
                "When a batch was last delivered, in seconds since 1970.");
    counter(p, "podgpu_agent_logs_requests_total", l.requests, "Requests to CloudWatch Logs.");
    counter(p, "podgpu_agent_logs_request_failures_total", l.failures, "Those that failed.");
    counter(p, "podgpu_agent_logs_throttled_total", l.throttled, "Those that were throttled.");
    family(p, "podgpu_agent_clock_offset_seconds", TEXT_TYPE_GAUGE,
           "How far the clock of AWS is ahead of ours, as its answers tell.");
    line(p, "podgpu_agent_clock_offset_seconds", NULL, (double)l.clock_offset_s);
}

static void output_family(struct page *p, const struct agent *a, const char *name,
                          enum text_type type, const char *help, size_t offset)
{
    if (a->output_count == 0)
        return;
    family(p, name, type, help);
    for (size_t i = 0; i < a->output_count; i++) {
        struct event_output_stats s;
        event_output_get_stats(a->outputs[i], &s);
        uint64_t value;
        memcpy(&value, (const char *)&s + offset, sizeof(value));
        buf_add_str(&p->text, name);
        buf_add_char(&p->text, '{');
        text_add_label(&p->text, "output", sv_from(event_output_kind(a->outputs[i])));
        text_add_label(&p->text, "to", sv_from(event_output_place(a->outputs[i])));
        buf_add_str(&p->text, "} ");
        buf_add_u64(&p->text, value);
        buf_add_char(&p->text, '\n');
    }
}

static void add_outputs(struct page *p, const struct agent *a)
{
#define AT(member) offsetof(struct event_output_stats, member)
    output_family(p, a, "podgpu_agent_output_events_total", TEXT_TYPE_COUNTER,
                  "Events given to the output.", AT(events));
    output_family(p, a, "podgpu_agent_output_written_events_total", TEXT_TYPE_COUNTER,
                  "Events written.", AT(written_events));
    output_family(p, a, "podgpu_agent_output_lost_events_total", TEXT_TYPE_COUNTER,
                  "Events lost, because too many waited.", AT(lost_events));
    output_family(p, a, "podgpu_agent_output_waiting_bytes", TEXT_TYPE_GAUGE,
                  "Bytes that wait to be written.", AT(waiting_bytes));
    output_family(p, a, "podgpu_agent_output_failures_total", TEXT_TYPE_COUNTER,
                  "Failures to open, connect or write.", AT(failures));
#undef AT
}

static void add_http(struct page *p, const struct agent *a)
{
    struct http_server_stats s = {0};
    http_server_get_stats(a->server, &s);
    counter(p, "podgpu_agent_http_requests_total", s.requests, "HTTP requests answered.");
    counter(p, "podgpu_agent_http_shut_readers_total", a->shut_readers,
            "Connections shut because they read a large page too slowly.");
    gauge(p, "podgpu_agent_http_open_connections", s.open, "Connections open now.");
}

struct http_body *agent_metrics_page(const struct agent *a)
{
    struct page p = {BUF_INIT(LIMIT_AGENT_PAGE_BYTES)};
    struct http_body *body = NULL;
    add_self(&p, a);
    add_scraper(&p, a);
    add_emf(&p, a);
    add_delivery(&p, a);
    add_outputs(&p, a);
    add_http(&p, a);
    size_t bytes = 0;
    char *text = p.text.error ? NULL : buf_take(&p.text, &bytes);
    if (text && http_body_new(text, bytes, text_content_type(TEXT_FORMAT_PROMETHEUS), &body) < 0)
        body = NULL;
    buf_deinit(&p.text);
    return body;
}
