// SPDX-License-Identifier: Apache-2.0
// One target: its turns, its requests, what becomes of the answers.
//
// A turn is due at offset + n * interval of CLOCK_MONOTONIC, whatever the turns before it took, so
// nothing drifts. Answers are read where they arrive, on the loop: the sinks behind the series
// tables share their state, so no two pages could be read at once anyway.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/http_options.h"
#include "agent/scrape_internal.h"
#include "agent/scrape_protocol.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/num.h"

#define WAIT_FOR_ROOM_NS (20 * NS_PER_MS)

static void turn(void *user);

// --- Life ---

static struct sv id_key(const struct hash128 *id)
{
    return (struct sv){(const char *)id, sizeof(*id)};
}

struct scrape_target *scrape_target_find(const struct scrape_job *job, struct hash128 id)
{
    return map_find(&job->targets, id_key(&id));
}

static char *append(char **at, struct sv s)
{
    char *copy = *at;
    sv_copy(copy, s.len + 1, s);
    *at += s.len + 1;
    return copy;
}

static bool is_public(const struct label *l)
{
    return !sv_starts_with(l->name, SV("__"));
}

// URL and public labels, in one piece of memory.
static int copy_texts(struct scrape_target *t, const struct target_spec *spec)
{
    struct sv url = sv_from(spec->url), shown = sv_from(spec->shown_url);
    size_t count = 0, bytes = url.len + shown.len + 2;
    for (size_t i = 0; i < spec->labels.count; i++) {
        const struct label *l = &spec->labels.items[i];
        count += is_public(l);
        bytes += is_public(l) ? sizeof(*l) + l->name.len + l->value.len + 2 : 0;
    }
    t->text = malloc(bytes);
    if (!t->text)
        return -ENOMEM;
    t->labels = (struct labels){.items = (struct label *)(void *)t->text, .capacity = count};
    char *at = t->text + count * sizeof(struct label);
    for (size_t i = 0; i < spec->labels.count; i++) {
        const struct label *l = &spec->labels.items[i];
        if (!is_public(l))
            continue;
        char *name = append(&at, l->name), *value = append(&at, l->value);
        t->labels.items[t->labels.count++] =
            (struct label){{name, l->name.len}, {value, l->value.len}};
    }
    t->url = append(&at, url);
    t->shown_url = append(&at, shown);
    return 0;
}

static void first_turn(struct scrape_target *t, uint64_t offset_ns)
{
    uint64_t now = loop_now_ns(t->scraper->options.loop);
    uint64_t phase = (now + t->interval_ns - offset_ns) % t->interval_ns;
    t->due_ns = now + t->interval_ns - phase;
    loop_timer_set(t->timer, t->due_ns - now, 0);
}

static void link_target(struct scrape_job *job, struct scrape_target *t)
{
    t->next = job->first;
    if (t->next)
        t->next->previous = t;
    job->first = t;
}

int scrape_target_new(struct scrape_job *job, struct scraper *s, const struct target_spec *spec,
                      struct hash128 id)
{
    struct scrape_target *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->scraper = s;
    t->job = job;
    t->id = id;
    t->interval_ns = spec->interval_ns;
    t->timeout_ns = spec->timeout_ns;
    int r = copy_texts(t, spec);
    if (r == 0)
        r = loop_timer_new(s->options.loop, turn, t, &t->timer);
    if (r == 0)
        r = map_put(&job->targets, id_key(&id), t, NULL);
    if (r < 0) {
        loop_timer_free(t->timer);
        free(t->text);
        free(t);
        return r;
    }
    link_target(job, t);
    s->target_count++;
    s->unasked++;
    if (s->is_once)
        scrape_target_ask(t);
    else if (!s->is_stopped)
        first_turn(t, target_offset_ns(spec, s->offset_seed));
    return 0;
}

void scrape_target_set_times(struct scrape_target *t, const struct target_spec *spec)
{
    bool same = t->interval_ns == spec->interval_ns;
    t->timeout_ns = spec->timeout_ns;
    t->interval_ns = spec->interval_ns;
    if (same)
        return;
    if (!t->scraper->is_once && !t->scraper->is_stopped)
        first_turn(t, target_offset_ns(spec, t->scraper->offset_seed));
    scrape_target_renew(t); // the series know the interval, too
}

static struct series_options series_options(const struct scrape_target *t)
{
    return (struct series_options){
        .job = t->job->config,
        .labels = &t->labels,
        .interval_ns = t->interval_ns,
        .sinks = t->scraper->sinks,
        .sink_count = t->scraper->options.sink_count,
    };
}

void scrape_target_renew(struct scrape_target *t)
{
    struct series_options o = series_options(t);
    if (!t->series || series_table_renew(t->series, &o) == 0)
        return;
    log_error("no memory for the series of a target: they start anew",
              LOG_LIMIT(t->job->config->name), LOG_STR("job", t->job->config->name),
              LOG_STR("url", t->shown_url));
    series_table_free(TAKE_PTR(t->series)); // it would go on with what is gone
}

static void release_body(struct scrape_target *t)
{
    struct scraper *s = t->scraper;
    s->body_bytes -= t->body.len;
    buf_reset(&t->body);
    if (t->body.cap && t->body.cap <= SCRAPE_SPARE_BYTES && s->spare_count < SCRAPE_BODY_SPARES)
        s->spares[s->spare_count++] = t->body;
    else
        buf_deinit(&t->body);
    t->body = (struct buf){0};
}

static void end_call(struct scrape_target *t)
{
    if (!t->call)
        return;
    t->scraper->under_way--;
    http_call_free(TAKE_PTR(t->call));
    release_body(t);
}

void scrape_target_stop(struct scrape_target *t)
{
    loop_timer_stop(t->timer);
    end_call(t);
}

static void was_asked(struct scrape_target *t)
{
    if (t->is_asked)
        return;
    t->is_asked = true;
    t->scraper->unasked--;
    scrape_check_once(t->scraper);
}

void scrape_target_free(struct scrape_target *t)
{
    struct scrape_job *job = t->job;
    scrape_target_stop(t);
    (void)map_remove(&job->targets, id_key(&t->id));
    if (t->previous)
        t->previous->next = t->next;
    else
        job->first = t->next;
    if (t->next)
        t->next->previous = t->previous;
    t->scraper->target_count--;
    was_asked(t);
    loop_timer_free(t->timer);
    http_handle_free(t->handle);
    series_table_free(t->series);
    free(t->error);
    free(t->text);
    free(t);
}

// --- The end of a scrape ---

static void set_health(struct scrape_target *t, enum target_health health, const char *error)
{
    const char *job = t->job->config->name;
    enum target_health before = t->health;
    free(t->error);
    t->error = *error ? sv_dup(sv_from(error)) : NULL;
    t->health = health;
    if (health == TARGET_DOWN && before != TARGET_DOWN)
        log_warn("target is down", LOG_STR("job", job), LOG_STR("url", t->shown_url),
                 LOG_STR("error", error));
    else if (health == TARGET_UP && before == TARGET_DOWN)
        log_info("target is up", LOG_STR("job", job), LOG_STR("url", t->shown_url));
}

static bool has_series(struct scrape_target *t)
{
    struct series_options o = series_options(t);
    return t->series || series_table_new(&o, &t->series) == 0;
}

static void begin_result(struct scrape_target *t)
{
    t->last_duration_ns = clock_mono_ns() - t->start_ns;
    t->last_scrape_ms = t->start_ms;
    t->last = (struct series_result){0};
}

static void fail(struct scrape_target *t, const char *why)
{
    begin_result(t);
    t->scraper->failures++;
    if (has_series(t))
        series_table_fail(t->series, t->start_ms, t->last_duration_ns);
    set_health(t, TARGET_DOWN, why);
    was_asked(t);
}

// The page into the series. Its failure has been told to them.
static int take(struct scrape_target *t, enum parse_format format, struct error *err)
{
    struct scraper *s = t->scraper;
    begin_result(t);
    if (!has_series(t))
        return error_set(err, -ENOMEM, "out of memory");
    int r = series_table_take(t->series, buf_sv(&t->body), format, t->start_ms, t->last_duration_ns,
                              &t->last, err);
    if (r == -ENOMEM)
        return error_set(err, r, "out of memory");
    s->duplicates += t->last.duplicates;
    s->unusable += t->last.unusable;
    if (r == 0)
        s->samples += t->last.relabelled;
    return r;
}

static const char *answer_trouble(const struct scrape_target *t,
                                  const struct http_client_response *r, char *text, size_t bytes)
{
    uint64_t limit = t->job->config->body_size_limit;
    if (r->result == -ENOBUFS) {
        (void)snprintf(text, bytes, "more than %u bytes of answers under way together",
                       LIMIT_SCRAPE_BODIES_BYTES);
    } else if (r->result == -EFBIG && limit && limit <= LIMIT_SCRAPE_BODY_BYTES) {
        (void)snprintf(text, bytes, "body_size_limit of %" PRIu64 " bytes exceeded", limit);
    } else if (r->result == -EFBIG) {
        (void)snprintf(text, bytes, "%s (%u bytes)", r->error, LIMIT_SCRAPE_BODY_BYTES);
    } else if (r->result < 0) {
        return r->error;
    } else if (r->status != 200) {
        (void)snprintf(text, bytes, "server returned HTTP status %u", r->status);
    } else {
        return NULL;
    }
    return text;
}

static void on_done(void *user, const struct http_client_response *response)
{
    struct scrape_target *t = user;
    struct error err = ERROR_INIT;
    enum parse_format format;
    char text[sizeof(err.text) + 64];
    t->scraper->bytes += t->body.len;
    const char *trouble = answer_trouble(t, response, text, sizeof(text));
    if (!trouble && scrape_protocol_format(response->content_type,
                                           t->job->config->fallback_protocol, &format, &err) < 0)
        trouble = err.text;
    if (trouble) {
        fail(t, trouble);
    } else if (take(t, format, &err) < 0) {
        t->scraper->failures++;
        set_health(t, TARGET_DOWN, error_text(&err, text, sizeof(text)));
    } else {
        set_health(t, TARGET_UP, "");
    }
    end_call(t);
    was_asked(t);
}

// --- A request ---

static int on_data(void *user, struct sv piece)
{
    struct scrape_target *t = user;
    struct scraper *s = t->scraper;
    if (piece.len > LIMIT_SCRAPE_BODIES_BYTES - s->body_bytes)
        return -ENOBUFS;
    buf_add_sv(&t->body, piece);
    if (t->body.error)
        return t->body.error;
    s->body_bytes += piece.len;
    return 0;
}

static struct buf take_spare(struct scraper *s, size_t max)
{
    if (s->spare_count == 0)
        return BUF_INIT(max);
    struct buf body = s->spares[--s->spare_count];
    body.max = body.cap > max ? body.cap : max; // the client holds the answer to max, too
    return body;
}

// As Prometheus: an answer of exactly the limit is over it.
static size_t most_body_bytes(const struct prom_job *job)
{
    uint64_t limit = job->body_size_limit;
    return limit && limit <= LIMIT_SCRAPE_BODY_BYTES ? (size_t)limit - 1 : LIMIT_SCRAPE_BODY_BYTES;
}

// "X-Prometheus-Scrape-Timeout-Seconds: 0.5"
static void print_timeout(uint64_t timeout_ns, char *out, size_t bytes)
{
    uint64_t ms = timeout_ns / NS_PER_MS;
    int n = snprintf(out, bytes, "X-Prometheus-Scrape-Timeout-Seconds: %" PRIu64 ".%03" PRIu64,
                     ms / 1000, ms % 1000);
    while (n > 0 && out[n - 1] == '0')
        out[--n] = '\0';
    if (n > 0 && out[n - 1] == '.')
        out[--n] = '\0';
}

static int start_request(struct scrape_target *t, struct error *err)
{
    const struct prom_job *job = t->job->config;
    struct http_options texts;
    char timeout[96];
    print_timeout(t->timeout_ns, timeout, sizeof(timeout));
    const char *const headers[] = {
        t->job->accept, "User-Agent: podgpu-agent/" PODGPU_VERSION,
        timeout,        job->enable_compression ? NULL : "Accept-Encoding: identity",
        NULL,
    };
    struct http_client_request request = {
        .url = t->url,
        .accept_gzip = job->enable_compression,
        .deadline_ns = t->timeout_ns,
        .max_body_bytes = most_body_bytes(job),
        .data = on_data,
    };
    if (!t->handle && !(t->handle = http_handle_new(t->scraper->options.client)))
        return error_set(err, -ENOMEM, "out of memory");
    int r = http_options_init(&texts, &job->http, headers, &request, err);
    if (r < 0)
        return r;
    t->body = take_spare(t->scraper, request.max_body_bytes);
    r = http_client_start(t->scraper->options.client, t->handle, &request, on_done, t, &t->call,
                          err);
    http_options_deinit(&texts);
    if (r < 0)
        release_body(t);
    return r;
}

// Whether the text begins with the URL, or what fits of it, and that has something to hide.
static bool quotes_hidden(const struct scrape_target *t, const char *text)
{
    struct sv start = sv_sub(sv_from(t->url), 0, 64);
    return strcmp(t->url, t->shown_url) != 0 && text[0] == '\'' &&
           sv_starts_with(sv_from(text + 1), start);
}

static void scrape(struct scrape_target *t)
{
    struct error err = ERROR_INIT;
    t->scraper->scrapes++;
    t->start_ns = clock_mono_ns();
    t->start_ms = (int64_t)(clock_wall_ns() / NS_PER_MS);
    if (scrape_is_over_limit(t->job)) {
        (void)error_set(&err, -E2BIG,
                        "target_limit exceeded (number of targets: %zu, limit: %" PRIu64 ")",
                        t->job->targets.count, t->job->config->target_limit);
        return fail(t, err.text);
    }
    if (start_request(t, &err) < 0)
        fail(t, quotes_hidden(t, err.text) ? "not a URL that can be asked" : err.text);
    else
        t->scraper->under_way++;
}

// --- Turns ---

static void turn_once(struct scrape_target *t)
{
    if (t->is_asked || t->call)
        return;
    if (t->scraper->under_way >= LIMIT_SCRAPES_ONCE)
        loop_timer_set(t->timer, WAIT_FOR_ROOM_NS, 0);
    else
        scrape(t);
}

static void turn(void *user)
{
    struct scrape_target *t = user;
    if (t->scraper->is_once)
        return turn_once(t);
    uint64_t now = loop_now_ns(t->scraper->options.loop);
    t->due_ns += t->interval_ns;
    if (t->due_ns <= now) // the machine slept: those turns are gone
        t->due_ns += ((now - t->due_ns) / t->interval_ns + 1) * t->interval_ns;
    loop_timer_set(t->timer, t->due_ns - now, 0);
    if (t->call)
        t->scraper->skipped++;
    else
        scrape(t);
}

void scrape_target_ask(struct scrape_target *t)
{
    if (t->scraper->is_stopped)
        return;
    if (t->is_asked)
        t->scraper->unasked++;
    t->is_asked = false;
    loop_timer_set(t->timer, 0, 0);
}
