// SPDX-License-Identifier: Apache-2.0
// The section "podgpu", which the agent does not have and accepts without effect. It counts with
// compat, too: who wrote it wants it.
#include <errno.h>
#include <stdlib.h>

#include "agent/cwagent_config_internal.h"
#include "base/clock.h"
#include "base/num.h"

#define DAY_NS (24 * 3600 * NS_PER_S)
#define AGE_MOST_NS (14 * DAY_NS) // CloudWatch Logs takes no older event
#define AGGREGATE_MOST_NS (3600 * NS_PER_S)
#define SPOOL_LEAST_BYTES (UINT64_C(1) << 20)
#define SPOOL_MOST_BYTES (UINT64_C(1) << 40)
#define FROM_ZERO "^podgpu_.*_total$"
#define PATTERN_CHARACTERS 4096
#define CONFIG(member) offsetof(struct cw_values, config.member)

static void read_unmatched(struct cw_reader *r, const struct json_node *n, void *values)
{
    static const char *const words[] = {"drop", "log", NULL};
    struct cw_values *v = values;
    size_t word;
    if (cw_choice_read(r, n, words, &word))
        v->config.unmatched = word ? CW_UNMATCHED_LOG : CW_UNMATCHED_DROP;
}

static void read_histograms(struct cw_reader *r, const struct json_node *n, void *values)
{
    static const char *const words[] = {"drop", "values", NULL};
    struct cw_values *v = values;
    size_t word;
    if (cw_choice_read(r, n, words, &word))
        v->config.histograms = word;
}

static void read_scope(struct cw_reader *r, const struct json_node *n, void *values)
{
    static const char *const words[] = {"cluster", "node", NULL};
    struct cw_values *v = values;
    size_t word;
    if (cw_choice_read(r, n, words, &word))
        v->config.scope_node = word;
}

static void read_from_zero(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    struct error err = ERROR_INIT;
    struct regex *regex = NULL;
    char *unused;
    if (!cw_text_read(r, n, 0, PATTERN_CHARACTERS, &unused))
        return;
    int result = n->string.len ? regex_new(n->string, REGEX_FULL, &regex, &err) : 0;
    if (result == -ENOMEM)
        r->failure = result;
    else if (result < 0)
        return cw_problem(r, n, "%s", err.text);
    regex_free(v->config.counters_from_zero);
    v->config.counters_from_zero = regex;
}

static void read_resolution(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    bool automatic = n->kind == JSON_STRING && sv_equals(n->string, SV("auto"));
    bool whole = n->kind == JSON_INTEGER && (n->integer == 1 || n->integer == 60);
    if (!automatic && !whole)
        return cw_unexpected(r, n, "1, 60 or \"auto\"");
    v->config.storage_resolution = automatic ? 0 : (unsigned)n->integer;
}

static void read_aggregate(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    uint64_t ns;
    if (!cw_duration_read(r, n, 0, AGGREGATE_MOST_NS, &ns))
        return;
    if (ns % (60 * NS_PER_S))
        return cw_unexpected(r, n, "a whole number of minutes");
    v->config.aggregate_ns = ns;
}

// CloudWatch Logs API, PutRetentionPolicy.
static void read_retention(struct cw_reader *r, const struct json_node *n, void *values)
{
    static const uint16_t days[] = {0,    1,    3,    5,    7,    14,   30,  60,
                                    90,   120,  150,  180,  365,  400,  545, 731,
                                    1096, 1827, 2192, 2557, 2922, 3288, 3653};
    struct cw_values *v = values;
    uint64_t wanted;
    if (!cw_whole_read(r, n, 0, 3653, &wanted))
        return;
    for (size_t i = 0; i < ARRAY_SIZE(days); i++) {
        if (days[i] == wanted) {
            v->config.retention_days = days[i];
            return;
        }
    }
    cw_unexpected(r, n,
                  "0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, "
                  "1827, 2192, 2557, 2922, 3288 or 3653 days");
}

static void read_directory(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_values *v = values;
    char *path = NULL;
    if (!cw_text_read(r, n, 0, 4096, &path))
        return;
    if (*path && *path != '/')
        return cw_unexpected(r, n, "an absolute path, or \"\" for none");
    v->config.spool_directory = path;
}

static void add_output(struct cw_reader *r, const struct json_node *n, struct cw_config *c)
{
    struct error err = ERROR_INIT;
    if (!cw_expect(r, n, JSON_STRING))
        return;
    int result = cw_output_parse(n->string, &c->outputs[c->output_count], &err);
    if (result == -ENOMEM)
        r->failure = result;
    else if (result < 0)
        cw_problem(r, n, "%s", err.text);
    else
        c->output_count++;
}

static void read_output(struct cw_reader *r, const struct json_node *n, void *values)
{
    struct cw_config *c = &((struct cw_values *)values)->config;
    size_t index = 0;
    c->output_count = 0; // the default goes, which owns nothing
    if (n->kind == JSON_STRING)
        return add_output(r, n, c);
    if (n->kind != JSON_ARRAY)
        return cw_unexpected(r, n, "a string or an array of strings");
    if (!n->count || n->count > CW_OUTPUTS_MAX)
        return cw_problem(r, n, "expected 1 to %d outputs, found %zu", CW_OUTPUTS_MAX, n->count);
    for (const struct json_node *item = n->first; item && !r->failure; item = item->next, index++) {
        size_t before = cw_path_enter_index(r, index);
        add_output(r, item, c);
        cw_path_leave(r, before);
    }
}

static const struct cw_key spool_keys[] = {
    {"directory", CW_CUSTOM, .custom = read_directory, .kind = "string: an absolute path, or empty",
     .preset = "`/var/lib/podgpu/spool`",
     .text = "Where events wait that could not be sent; empty: in memory."},
    {"max_size", CW_SIZE, CONFIG(spool_max_bytes), SPOOL_LEAST_BYTES, SPOOL_MOST_BYTES,
     .kind = "string: a size, 1MiB to 1TiB", .preset = "`256MiB`",
     .text = "Of all that waits; the oldest goes first."},
    {"max_age", CW_DURATION, CONFIG(spool_max_age_ns), 60 * NS_PER_S, AGE_MOST_NS,
     .kind = "string: a duration, 1m to 14d", .preset = "`14d`",
     .text = "Of what waits: CloudWatch Logs takes nothing older than 14 days."},
    {NULL},
};
const struct cw_section cw_spool_section = {"podgpu.spool", spool_keys};

static const struct cw_key podgpu_keys[] = {
    {"unmatched", CW_CUSTOM, .custom = read_unmatched, .kind = "`drop` or `log`",
     .preset = "`drop`; compat: `log`",
     .text = "Samples that no declaration extracts: not sent, or sent as plain log events."},
    {"counters_from_zero", CW_CUSTOM, .custom = read_from_zero,
     .kind = "string: a pattern for the whole name, or empty for none",
     .preset = "`" FROM_ZERO "`; compat: empty",
     .text = "Counters whose first value counts in full when their series is new."},
    {"storage_resolution", CW_CUSTOM, .custom = read_resolution, .kind = "1, 60 or `auto`",
     .preset = "`auto`; compat: 60",
     .text = "In seconds. auto: 1 where the scrape interval is under 60 s, else 60."},
    {"aggregate", CW_CUSTOM, .custom = read_aggregate,
     .kind = "string: a duration, whole minutes up to 1h", .preset = "`0s`: off",
     .text = "Sends the samples of so long as one."},
    {"histograms", CW_CUSTOM, .custom = read_histograms, .kind = "`drop` or `values`",
     .preset = "`drop`",
     .text = "values: a classic histogram `X` (`X_bucket`, `X_sum`, `X_count`) is sent as one "
             "distribution named `X`, which is also what `metric_selectors` see. Only with "
             "`aggregate`."},
    {"scope", CW_CUSTOM, .custom = read_scope, .kind = "`cluster` or `node`", .preset = "`cluster`",
     .text = "node: only targets on the agent's own node are scraped."},
    {"spool", CW_SECTION, .section = &cw_spool_section, .kind = "object"},
    {"retention_days", CW_CUSTOM, .custom = read_retention,
     .kind = "whole number that CloudWatch Logs allows, or 0 for ever", .preset = "30; compat: 0",
     .text = "Of a log group that the agent makes."},
    {"output", CW_CUSTOM, .custom = read_output,
     .kind = "`cloudwatch`, `stdout`, `file:PATH` or `tcp:HOST:PORT`, or an array of up to 4",
     .preset = "`cloudwatch`", .text = "Where events go; `--output` goes before it."},
    {NULL},
};

static void check_podgpu(struct cw_reader *r, const struct json_node *n, void *values)
{
    const struct cw_values *v = values;
    if (v->config.histograms && !v->config.aggregate_ns)
        cw_problem(r, n, "histograms \"values\" need aggregate, a whole number of minutes");
}

const struct cw_section cw_podgpu_section = {"podgpu", podgpu_keys, .check = check_podgpu};

int cw_podgpu_defaults(struct cw_reader *r, struct cw_values *v)
{
    struct cw_config *c = &v->config;
    c->unmatched = c->compat ? CW_UNMATCHED_LOG : CW_UNMATCHED_DROP;
    c->storage_resolution = c->compat ? 60 : 0;
    c->retention_days = c->compat ? 0 : 30;
    c->spool_max_bytes = UINT64_C(256) << 20;
    c->spool_max_age_ns = AGE_MOST_NS;
    c->spool_directory = cw_copy(r, SV("/var/lib/podgpu/spool"));
    c->output_count = 1; // CW_OUTPUT_CLOUDWATCH, as zeroed
    if (c->compat || r->failure)
        return r->failure;
    return regex_new(SV(FROM_ZERO), REGEX_FULL, &c->counters_from_zero, NULL);
}

// --- Outputs ---

// "host:1" or "[::1]:1".
static bool is_address(struct sv s)
{
    size_t end = s.len;
    uint64_t port;
    while (end && s.ptr[end - 1] != ':')
        end--;
    if (!end)
        return false;
    struct sv host = sv_sub(s, 0, end - 1);
    bool bracketed = host.len > 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    if (!bracketed && (!host.len || sv_find_char(host, ':') != (size_t)-1 || host.ptr[0] == '['))
        return false;
    for (size_t i = 0; i < host.len; i++) {
        if ((unsigned char)host.ptr[i] <= ' ' || host.ptr[i] == '/' || host.ptr[i] == '@')
            return false;
    }
    return num_parse_u64(sv_sub(s, end, s.len), 1, 65535, &port) == 0;
}

int cw_output_parse(struct sv text, struct cw_output *out, struct error *err)
{
    static const struct sv file = SV("file:"), tcp = SV("tcp:");
    struct cw_output found = {CW_OUTPUT_CLOUDWATCH, NULL};
    struct sv where = SV("");
    bool good = true;
    if (sv_equals(text, SV("stdout"))) {
        found.kind = CW_OUTPUT_STDOUT;
    } else if (sv_starts_with(text, file)) {
        found.kind = CW_OUTPUT_FILE;
        where = sv_sub(text, file.len, text.len);
        good = where.len > 0;
    } else if (sv_starts_with(text, tcp)) {
        found.kind = CW_OUTPUT_TCP;
        where = sv_sub(text, tcp.len, text.len);
        good = is_address(where);
    } else {
        good = sv_equals(text, SV("cloudwatch"));
    }
    struct sv shown = sv_cut(text, 64);
    if (!good)
        return error_set(err, -EINVAL,
                         "expected cloudwatch, stdout, file:PATH or tcp:HOST:PORT, found '%.*s'",
                         SV_FMT(shown));
    if (where.len && !(found.where = sv_dup(where)))
        return error_set(err, -ENOMEM, "out of memory");
    *out = found;
    return 0;
}
