// SPDX-License-Identifier: Apache-2.0
// The order of steps is that of Prometheus, for each of them can see what those before it left:
// defaults, relabelling, address, interval and timeout, meta labels away, instance, UTF-8.
#include "agent/target.h"

#include <errno.h>

#include "agent/target_url.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/num.h"

#define DURATION_UNITS 7

struct sv target_print_duration(uint64_t ns, char *out)
{
    static const struct {
        const char *name;
        uint64_t ms;
        bool exact; // "90d" reads better than "12w6d"
    } units[DURATION_UNITS] = {
        {"y", UINT64_C(365) * 24 * 3600 * 1000, true},
        {"w", UINT64_C(7) * 24 * 3600 * 1000, true},
        {"d", UINT64_C(24) * 3600 * 1000, false},
        {"h", UINT64_C(3600) * 1000, false},
        {"m", 60000, false},
        {"s", 1000, false},
        {"ms", 1, false},
    };
    uint64_t ms = ns / NS_PER_MS;
    size_t length = 0;
    if (ms == 0)
        return SV("0s");
    for (size_t i = 0; i < DURATION_UNITS; i++) {
        uint64_t number = ms / units[i].ms;
        if (number == 0 || (units[i].exact && ms % units[i].ms != 0))
            continue;
        length += num_print_u64(out + length, number);
        struct sv name = sv_from(units[i].name);
        memcpy(out + length, name.ptr, name.len);
        length += name.len;
        ms %= units[i].ms;
    }
    return (struct sv){out, length};
}

static int set_default(struct labels *l, const char *name, struct sv value)
{
    return labels_has(l, sv_from(name)) ? 0 : labels_set(l, sv_from(name), value);
}

// The first value of each parameter, as a label.
static int set_params(struct labels *l, const struct prom_job *job)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < job->param_count; i++) {
        if (i > 0 && strcmp(job->params[i].name, job->params[i - 1].name) == 0)
            continue;
        struct sv name = sv_from(job->params[i].name);
        char *text = arena_alloc(l->arena, sizeof(TARGET_PARAM_PREFIX) + name.len);
        if (!text)
            return l->arena->error == -EFBIG ? -E2BIG : -ENOMEM;
        memcpy(text, TARGET_PARAM_PREFIX, sizeof(TARGET_PARAM_PREFIX));
        memcpy(text + sizeof(TARGET_PARAM_PREFIX) - 1, name.ptr, name.len + 1);
        r = set_default(l, text, sv_from(job->params[i].value));
    }
    return r;
}

int target_discovered(const struct prom_job *job, const struct labels *found, struct labels *out)
{
    char interval[TARGET_DURATION_BYTES], timeout[TARGET_DURATION_BYTES];
    const struct {
        const char *name;
        struct sv value;
    } defaults[] = {
        {"job", sv_from(job->name)},
        {"__scrape_interval__", target_print_duration(job->interval_ns, interval)},
        {"__scrape_timeout__", target_print_duration(job->timeout_ns, timeout)},
        {"__metrics_path__", sv_from(job->metrics_path)},
        {"__scheme__", sv_from(job->scheme)},
    };
    int r = labels_copy(out, found);
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(defaults); i++)
        r = set_default(out, defaults[i].name, defaults[i].value);
    return r == 0 ? set_params(out, job) : r;
}

static int read_time(const struct labels *l, struct sv name, const char *what, uint64_t *out,
                     struct error *err)
{
    struct sv text = labels_get(l, name);
    if (prom_parse_duration(text, out) < 0)
        return error_set(err, -EINVAL, "%.*s: expected a duration as in 30s, found '%.*s'",
                         SV_FMT(name), SV_FMT(sv_cut(text, 64)));
    if (*out == 0)
        return error_set(err, -EINVAL, "scrape %s cannot be 0", what);
    return 0;
}

static int check_times(struct target_spec *s, struct error *err)
{
    int r = read_time(&s->labels, SV("__scrape_interval__"), "interval", &s->interval_ns, err);
    if (r == 0)
        r = read_time(&s->labels, SV("__scrape_timeout__"), "timeout", &s->timeout_ns, err);
    if (r == 0 && s->timeout_ns > s->interval_ns)
        r = error_set(err, -EINVAL, "scrape timeout is longer than the scrape interval");
    return r;
}

static int check_address(struct sv address, struct error *err)
{
    if (address.len == 0)
        return error_set(err, -EINVAL, "no address");
    if (sv_find_char(address, '/') != (size_t)-1)
        return error_set(err, -EINVAL, "'%.*s' is not a host and port",
                         SV_FMT(sv_cut(address, 200)));
    return 0;
}

static int check_text(const struct labels *l, struct error *err)
{
    for (size_t i = 0; i < l->count; i++) {
        const struct label *label = &l->items[i];
        if (!sv_is_utf8(label->value))
            return error_set(err, -EINVAL, "value of label %.*s is not UTF-8",
                             SV_FMT(sv_cut(label->name, 200)));
        // No text of ours and no URL can hold one.
        if (sv_find_char(label->value, '\0') != (size_t)-1)
            return error_set(err, -EINVAL, "value of label %.*s holds a NUL",
                             SV_FMT(sv_cut(label->name, 200)));
    }
    return 0;
}

static int finish(const struct prom_job *job, struct target_spec *s, struct error *err)
{
    struct labels *l = &s->labels;
    struct sv address = labels_get(l, SV("__address__"));
    int r = check_address(address, err);
    if (r == 0)
        r = check_times(s, err);
    if (r < 0)
        return r;
    labels_delete_prefix(l, SV("__meta_"));
    r = set_default(l, "instance", address);
    if (r == 0)
        r = check_text(l, err);
    if (r == 0)
        r = target_print_url(job, l, &s->url);
    if (r < 0)
        return r;
    s->shown_url = target_redact_url(s->url, l->arena);
    return s->shown_url ? 0 : -ENOMEM;
}

int target_build(const struct prom_job *job, const struct labels *found, struct arena *arena,
                 struct target_spec *out, struct error *err)
{
    struct target_spec s = {0};
    labels_init(&s.labels, arena);
    int r = target_discovered(job, found, &s.labels);
    if (r == 0)
        r = relabel_apply(job->relabel, &s.labels);
    if (r == RELABEL_OUTCOME_DROP)
        return TARGET_DROPPED;
    if (r == 0)
        r = finish(job, &s, err);
    if (r == 0)
        *out = s;
    return r;
}

static struct hash128 mix(struct hash128 h, struct sv s, uint64_t seed)
{
    struct hash128 part = hash_128(s, seed ^ h.low);
    return (struct hash128){part.low, part.high ^ (h.high << 1 | h.high >> 63)};
}

static bool is_time_label(struct sv name)
{
    return sv_equals(name, SV("__scrape_interval__")) || sv_equals(name, SV("__scrape_timeout__"));
}

struct hash128 target_identity(const struct target_spec *s, uint64_t seed)
{
    struct hash128 h = {0};
    for (size_t i = 0; i < s->labels.count; i++) {
        if (is_time_label(s->labels.items[i].name))
            continue;
        h = mix(h, s->labels.items[i].name, seed);
        h = mix(h, s->labels.items[i].value, seed);
    }
    return mix(h, sv_from(s->url), seed);
}

uint64_t target_offset_ns(const struct target_spec *s, uint64_t seed)
{
    return target_identity(s, seed).low % s->interval_ns;
}
