// SPDX-License-Identifier: Apache-2.0
// A scrape in two parts. Reading (read_page) finds each line's series, or makes it, and writes
// value and attempt number into it; what it adds is taken back when the page fails. Giving (give)
// then goes over the series in their order: who carries this attempt's number has a sample, who
// does not has ended. So nothing reaches a sink before the whole page is known to be good, and
// nothing is kept beside the series.
#include <errno.h>
#include <stdlib.h>

#include "agent/series_internal.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"

#define KEPT_LEAST_MS (5 * 60 * 1000)
#define STALE_MARKER UINT64_C(0x7ff0000000000002) // a NaN; model/value of Prometheus

struct intake {
    struct series_table *t;
    int64_t scrape_ms;
    struct series_result *result;
    struct error *err;
    struct series_scratch scratch;
    struct parser parser;
    size_t first_added; // series from here on are of this page
    size_t likely;      // where the next line's series may be
    uint64_t counted;   // for sample_limit
    struct sv matched;  // text that the parser asked for and that the likely series has
};

static void intake_deinit(struct intake *in)
{
    arena_deinit(&in->scratch.arena);
    buf_deinit(&in->scratch.text);
    parser_deinit(&in->parser);
}

static bool is_stale_marker(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits == STALE_MARKER;
}

// --- Reading ---

static bool is_over_sample_limit(const struct intake *in)
{
    uint64_t limit = in->t->job->sample_limit;
    return limit && in->counted > limit;
}

// The parser's question (parse_memory).
static bool knows_series(void *user, struct sv text)
{
    struct intake *in = user;
    struct hash128 key = hash_128(text, in->t->seed);
    if (!series_store_is_at(&in->t->store, key, in->likely))
        return false;
    in->matched = text;
    return true;
}

static size_t likely_bytes(const struct intake *in)
{
    const struct series_store *store = &in->t->store;
    return in->likely < store->count ? store->series[in->likely].text_bytes : 0;
}

// What the parser may take as read when it sees it again.
static uint16_t text_bytes(const struct parse_sample *s)
{
    bool is_plain = s->name.ptr == s->series.ptr && s->series.len <= UINT16_MAX &&
                    !memchr(s->series.ptr, '\n', s->series.len);
    return is_plain ? (uint16_t)s->series.len : 0;
}

static void count_fate(struct intake *in, enum series_fate fate)
{
    in->result->relabelled += fate == SERIES_GIVEN || fate == SERIES_UNWANTED;
    in->result->unusable += fate == SERIES_UNUSABLE;
}

// Adds the key; at the cap, series that are gone make room.
static int add_key(struct intake *in, struct hash128 key)
{
    struct series_table *t = in->t;
    int r = series_store_add(&t->store, key);
    if (r != -E2BIG)
        return r;
    for (size_t i = 0; i < t->store.count; i++) {
        struct series *s = &t->store.series[i];
        if (s->attempt == t->attempt || !(s->flags & SERIES_GONE))
            continue;
        series_forget(t, i);
        s->flags |= SERIES_DEAD;
    }
    in->first_added -= series_store_compact(&t->store);
    return series_store_add(&t->store, key);
}

static int out_of_series(const struct intake *in, int r)
{
    return r == -ENOMEM
               ? error_set(in->err, r, "out of memory")
               : error_set(in->err, r, "more than %zu series of one target", in->t->store.max);
}

static int add_series(struct intake *in, const struct parse_sample *s, struct hash128 key,
                      size_t *out_place)
{
    struct series_table *t = in->t;
    struct series_identity identity;
    int r = series_identify(t, s, &in->scratch, &identity, in->err);
    if (r < 0)
        return r;
    if (is_over_sample_limit(in)) { // the page is lost: it is only counted on
        count_fate(in, identity.fate);
        in->counted += identity.fate == SERIES_GIVEN;
        *out_place = SERIES_NONE;
        return 0;
    }
    r = add_key(in, key);
    if (r < 0)
        return out_of_series(in, r);
    size_t place = t->store.count - 1;
    t->store.series[place].text_bytes = text_bytes(s);
    t->store.series[place].type = s->type & 15u;
    t->store.series[place].fate = SERIES_UNWANTED;
    r = series_tell(t, place, &identity, t->last_good);
    if (r < 0) {
        series_store_truncate(&t->store, place);
        return error_set(in->err, r, "out of memory");
    }
    *out_place = place;
    return 0;
}

static int retell(struct intake *in, const struct parse_sample *s, size_t place)
{
    struct series_table *t = in->t;
    struct series_identity identity;
    int r = series_identify(t, s, &in->scratch, &identity, in->err);
    if (r < 0)
        return r;
    unsigned type_before = t->store.series[place].type;
    t->store.series[place].type = s->type & 15u;
    r = series_tell(t, place, &identity, false);
    if (r < 0) {
        t->store.series[place].type = type_before & 15u;
        return error_set(in->err, r, "out of memory");
    }
    return 0;
}

static bool is_told_otherwise(const struct series *known, const struct parse_sample *s)
{
    return (known->flags & SERIES_RETELL) ||
           (known->type != s->type && known->fate <= SERIES_UNWANTED);
}

static void put_value(struct intake *in, const struct parse_sample *s, struct series *known)
{
    const struct prom_job *job = in->t->job;
    bool stamped = s->has_timestamp && job->honor_timestamps;
    known->value = s->value;
    known->timestamp_ms = stamped ? s->timestamp_ms : in->scrape_ms;
    known->flags &= (uint8_t)~SERIES_TRACKED;
    if (!stamped || job->track_timestamps_staleness)
        known->flags |= SERIES_TRACKED;
}

// *out_place is SERIES_NONE when it is not kept.
static int find_or_add(struct intake *in, const struct parse_sample *s, size_t *out_place,
                       bool *out_added)
{
    struct hash128 key = hash_128(s->series, in->t->seed);
    *out_place = series_store_find(&in->t->store, key, in->likely);
    *out_added = *out_place == SERIES_NONE;
    return *out_added ? add_series(in, s, key, out_place) : 0;
}

static int take_sample(struct intake *in, const struct parse_sample *s)
{
    struct series_table *t = in->t;
    size_t place = in->likely;
    bool is_added = false;
    int r = in->matched.ptr == s->series.ptr ? 0 : find_or_add(in, s, &place, &is_added);
    if (r < 0 || place == SERIES_NONE)
        return r;
    struct series *known = &t->store.series[place];
    in->likely = place + 1;
    if (known->attempt == t->attempt) {
        in->result->duplicates++;
        count_fate(in, known->fate);
        return 0;
    }
    if (!is_added && is_told_otherwise(known, s))
        r = retell(in, s, place);
    if (r < 0)
        return r;
    count_fate(in, known->fate);
    if (known->fate <= SERIES_UNWANTED) {
        in->result->added += is_added || (known->flags & SERIES_GONE);
        in->counted += !is_stale_marker(s->value);
    }
    known->attempt = t->attempt;
    put_value(in, s, known);
    return 0;
}

static int read_page(struct intake *in)
{
    struct parse_sample s;
    int r;
    in->parser.memory = (struct parse_memory){.knows = knows_series, .user = in};
    for (;;) {
        in->parser.memory.likely_bytes = likely_bytes(in);
        r = parser_next(&in->parser, &s, in->err);
        if (r != 1)
            break;
        in->result->scraped++;
        r = take_sample(in, &s);
        if (r < 0)
            return r;
    }
    if (r == -ENOMEM)
        return error_set(in->err, r, "out of memory");
    if (r == 0 && is_over_sample_limit(in))
        return error_set(
            in->err, -EINVAL, "sample_limit exceeded: %llu samples after relabelling, %llu at most",
            (unsigned long long)in->counted, (unsigned long long)in->t->job->sample_limit);
    return r;
}

static void take_back(struct intake *in)
{
    for (size_t i = in->first_added; i < in->t->store.count; i++)
        series_forget(in->t, i);
    series_store_truncate(&in->t->store, in->first_added);
}

// --- Giving ---

struct scrape {
    bool is_good;
    int64_t scrape_ms;
    uint64_t duration_ns;
    const struct series_result *result;
};

static void give_sample(struct series_table *t, const struct series_era *era, size_t place)
{
    struct series *s = &t->store.series[place];
    void **states = series_states(&t->store, place);
    bool stale = is_stale_marker(s->value);
    for (size_t k = 0; k < t->store.sink_count; k++) {
        if (!states[k])
            continue;
        if (!stale)
            t->sinks[k].ops->sample(era->targets[k], states[k], s->value, s->timestamp_ms);
        else if (s->flags & SERIES_OPEN)
            t->sinks[k].ops->stale(era->targets[k], states[k]);
    }
    s->flags &= (uint8_t)~SERIES_OPEN;
    if (!stale)
        s->flags |= SERIES_OPEN;
}

static void give_end(struct series_table *t, const struct series_era *era, size_t place)
{
    struct series *s = &t->store.series[place];
    void **states = series_states(&t->store, place);
    if ((s->flags & (SERIES_OPEN | SERIES_TRACKED)) != (SERIES_OPEN | SERIES_TRACKED))
        return;
    s->flags &= (uint8_t)~SERIES_OPEN;
    for (size_t k = 0; k < t->store.sink_count; k++) {
        if (states[k])
            t->sinks[k].ops->stale(era->targets[k], states[k]);
    }
}

static void give_reports(struct series_table *t, const struct scrape *now)
{
    const struct series_era *era = t->eras[t->era];
    const double values[REPORT_COUNT] = {
        [REPORT_UP] = now->is_good,
        [REPORT_DURATION] = (double)now->duration_ns / (double)NS_PER_S,
        [REPORT_SCRAPED] = (double)now->result->scraped,
        [REPORT_RELABELLED] = (double)now->result->relabelled,
        [REPORT_ADDED] = (double)now->result->added,
    };
    for (size_t i = 0; i < REPORT_COUNT; i++) {
        for (size_t k = 0; k < t->store.sink_count; k++) {
            if (t->reports[i][k])
                t->sinks[k].ops->sample(era->targets[k], t->reports[i][k], values[i],
                                        now->scrape_ms);
        }
    }
}

static void give_era(struct series_table *t, uint8_t index, const struct scrape *now)
{
    const struct series_era *era = t->eras[index];
    for (size_t k = 0; k < t->store.sink_count; k++)
        t->sinks[k].ops->begin(era->targets[k], now->scrape_ms);
    for (size_t i = 0; i < t->store.count; i++) {
        const struct series *s = &t->store.series[i];
        if (s->era != index || s->fate != SERIES_GIVEN)
            continue;
        if (now->is_good && s->attempt == t->attempt)
            give_sample(t, era, i);
        else
            give_end(t, era, i);
    }
    if (index == t->era)
        give_reports(t, now);
    for (size_t k = 0; k < t->store.sink_count; k++)
        (void)t->sinks[k].ops->end(era->targets[k]); // what did not fit, the sink has counted
}

// Only one scrape is open in a sink, so eras follow each other: series of old ones can only end.
static void give(struct series_table *t, const struct scrape *now)
{
    for (uint8_t i = 0; i < SERIES_ERAS; i++) {
        if (t->eras[i] && i != t->era)
            give_era(t, i, now);
    }
    give_era(t, t->era, now);
}

// --- After a scrape ---

static int64_t kept_ms(const struct series_table *t)
{
    uint64_t three = t->eras[t->era]->interval_ns / NS_PER_MS * 3;
    return three > KEPT_LEAST_MS ? (int64_t)three : KEPT_LEAST_MS;
}

static void settle(struct series_table *t, const struct scrape *now)
{
    int64_t kept = kept_ms(t);
    bool any_dead = false;
    for (size_t i = 0; i < t->store.count; i++) {
        struct series *s = &t->store.series[i];
        if (now->is_good && s->attempt == t->attempt) {
            s->seen_ms = now->scrape_ms;
            s->flags &= (uint8_t)~SERIES_GONE;
            continue;
        }
        if (now->is_good)
            s->flags |= SERIES_GONE;
        if (s->seen_ms > now->scrape_ms) // the clock was set back
            s->seen_ms = now->scrape_ms;
        if (now->scrape_ms - s->seen_ms < kept)
            continue;
        series_forget(t, i);
        s->flags |= SERIES_DEAD;
        any_dead = true;
    }
    if (any_dead)
        (void)series_store_compact(&t->store);
    series_store_trim(&t->store);
    t->last_good = now->is_good;
}

static void finish(struct series_table *t, const struct scrape *now)
{
    give(t, now);
    settle(t, now);
}

// --- The table ---

int series_table_new(const struct series_options *o, struct series_table **out)
{
    struct series_table *t = calloc(1, sizeof(*t));
    if (!t)
        return -ENOMEM;
    t->store.sink_count = o->sink_count;
    t->store.max = LIMIT_TARGET_SERIES;
    t->seed = hash_seed();
    t->job = o->job;
    for (size_t k = 0; k < o->sink_count; k++)
        t->sinks[k] = o->sinks[k];
    int r = series_set_era(t, o);
    if (r < 0) {
        series_table_free(t);
        return r;
    }
    *out = t;
    return 0;
}

int series_table_renew(struct series_table *t, const struct series_options *o)
{
    int r = series_set_era(t, o);
    if (r < 0)
        return r;
    t->job = o->job;
    for (size_t i = 0; i < t->store.count; i++)
        t->store.series[i].flags |= SERIES_RETELL;
    return 0;
}

void series_table_free(struct series_table *t)
{
    if (!t)
        return;
    series_forget_all(t);
    series_store_deinit(&t->store);
    free(t);
}

int series_table_take(struct series_table *t, struct sv page, enum parse_format format,
                      int64_t scrape_ms, uint64_t duration_ns, struct series_result *out,
                      struct error *err)
{
    struct intake in cleanup(intake_deinit) = {
        .t = t,
        .scrape_ms = scrape_ms,
        .result = out,
        .err = err,
        .scratch = {ARENA_INIT(LIMIT_SERIES_LABELS_BYTES), BUF_INIT(LIMIT_SERIES_LABELS_BYTES)},
        .first_added = t->store.count,
    };
    *out = (struct series_result){0};
    t->attempt++;
    parser_init(&in.parser, page, format);
    int r = read_page(&in);
    if (r < 0)
        take_back(&in);
    const struct scrape now = {r == 0, scrape_ms, duration_ns, out};
    finish(t, &now);
    return r;
}

void series_table_fail(struct series_table *t, int64_t scrape_ms, uint64_t duration_ns)
{
    const struct series_result none = {0};
    const struct scrape now = {false, scrape_ms, duration_ns, &none};
    t->attempt++;
    finish(t, &now);
}

size_t series_table_count(const struct series_table *t)
{
    return t->store.count;
}
