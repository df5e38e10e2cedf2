// SPDX-License-Identifier: Apache-2.0
// Input: 'c' for compat or another character, a cwagentconfig.json, an empty line, pages with a NUL
// behind each. Whatever they hold, each event is a JSON object within the limits, no member twice,
// each distribution adds up, and each sample is in an event or was counted.
#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "agent/series.h"
#include "agent/sinks/emf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "codec/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// A histogram: its values rise, each has a count, and the counts are the Count.
static void check_distribution(const struct json_node *n)
{
    const struct json_node *values = json_find(n, "Values"), *counts = json_find(n, "Counts");
    if (!values)
        return; // _aws
    assert(n->count == 6 && counts && values->count == counts->count);
    assert(values->count && values->count <= LIMIT_EMF_VALUES);
    const struct json_node *v = values->first, *c = counts->first;
    double sum = 0, before = -INFINITY;
    for (; v; v = v->next, c = c->next) {
        assert(v->real > before && c->real > 0 && v->real <= 0x1p360 && c->real <= 0x1p360);
        before = v->real;
        sum += c->real;
    }
    assert(json_find(n, "Count")->real == sum && json_find(n, "Max")->real == before);
    assert(json_find(n, "Min")->real == values->first->real);
    assert(fabs(json_find(n, "Sum")->real) <= 0x1p360);
}

static void check_event(void *user, const struct emf_event *event)
{
    struct json_document *d = NULL;
    struct error err = ERROR_INIT;
    assert(event->samples && event->text.len <= LIMIT_EMF_EVENT_BYTES);
    int r = json_parse(event->text, "event", &d, &err);
    assert(r == 0 || r == -ENOMEM);
    if (r == 0) {
        assert(json_root(d)->kind == JSON_OBJECT);
        for (const struct json_node *n = json_root(d)->first; n; n = n->next) {
            if (n->kind == JSON_OBJECT)
                check_distribution(n);
        }
    }
    json_document_free(d);
}

static struct cw_config *read_config(struct sv text, bool compat)
{
    char *environment[] = {"RUN_IN_CONTAINER=True", NULL};
    struct cw_sources from = {.environment = environment, .compat = compat};
    struct cw_text one = {text, "f"};
    struct buf errors = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct buf warnings = BUF_INIT(LIMIT_CONFIG_MESSAGES_BYTES);
    struct cw_config *c = NULL;
    if (cw_config_parse(&one, 1, &from, &c, &errors, &warnings) < 0)
        c = NULL;
    buf_deinit(&errors);
    buf_deinit(&warnings);
    return c;
}

static void check_stats(const struct emf *e)
{
    struct emf_stats s;
    emf_get_stats(e, &s);
    uint64_t sum = s.event_samples + s.waiting + s.dropped_not_finite + s.dropped_first +
                   s.dropped_repeated + s.dropped_duplicate + s.dropped_unmatched + s.dropped_old +
                   s.dropped_large + s.dropped_value + s.dropped_empty + s.dropped_memory;
    for (size_t i = 0; i < ARRAY_SIZE(s.dropped_type); i++)
        sum += s.dropped_type[i];
    assert(sum == s.samples);
}

static void take_pages(struct emf *e, const struct prom_job *job, struct sv pages)
{
    struct arena arena = ARENA_INIT(1u << 16);
    struct labels labels;
    struct sink sink = emf_sink(e);
    struct series_table *table = NULL;
    struct sv page;
    labels_init(&labels, &arena);
    int r = labels_set(&labels, SV("job"), SV("j"));
    assert(r == 0);
    struct series_options o = {job, &labels, 15 * NS_PER_S, &sink, 1};
    r = series_table_new(&o, &table);
    assert(r == 0);
    for (int64_t now = 1767323040000; sv_next(&pages, '\0', &page); now += 15000) {
        struct series_result result;
        if (series_table_take(table, page, PARSE_PROMETHEUS, now, 0, &result, NULL) < 0)
            series_table_fail(table, now, 0);
        emf_flush(e, now, false);
        check_stats(e);
    }
    series_table_free(table);
    struct emf_stats s;
    emf_get_stats(e, &s);
    check_stats(e);
    assert(s.waiting == 0 && s.custom_metrics == 0);
    arena_deinit(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct prom_config *prom;
    struct sv input = {(const char *)data, size};
    size_t end = sv_find(input, SV("\n\n"));
    if (!prom) {
        struct buf errors = BUF_INIT(1u << 12);
        int r = prom_config_parse(SV("scrape_configs: [{job_name: j, honor_labels: true}]"), "p",
                                  &prom, &errors);
        assert(r == 0);
        buf_deinit(&errors);
    }
    if (size == 0 || end == (size_t)-1)
        return 0;
    struct cw_config *c = read_config(sv_sub(input, 1, end - 1), data[0] == 'c');
    if (!c)
        return 0;
    struct emf_options options = {.cluster = "c", .hostname = "h", .event = check_event};
    struct emf *e = NULL;
    if (emf_new(c, &options, &e) == 0)
        take_pages(e, &prom->jobs[0], sv_sub(input, end + 2, size));
    emf_free(e);
    cw_config_unref(c);
    return 0;
}
