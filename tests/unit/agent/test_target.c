// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/target.h"
#include "base/clock.h"

static struct prom_config *config_of(const char *job)
{
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(1u << 20), text = BUF_INIT(1u << 20);
    buf_add_fmt(&text, "scrape_configs: [{job_name: j%s%s}]", *job ? ", " : "", job);
    int r = prom_config_parse(buf_sv(&text), "f", &c, &errors);
    if (r < 0)
        fail_msg("%s", buf_cstr(&errors));
    buf_deinit(&text);
    buf_deinit(&errors);
    return c;
}

// "a=b c=d"
static void read_labels(struct labels *l, const char *text)
{
    struct sv rest = sv_from(text), pair;
    while (sv_next(&rest, ' ', &pair)) {
        size_t equals = sv_find_char(pair, '=');
        assert_int_equal(labels_set(l, sv_sub(pair, 0, equals), sv_sub(pair, equals + 1, pair.len)),
                         0);
    }
}

static const char *print_labels(const struct labels *l, char *out, size_t bytes)
{
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < l->count; i++)
        at += (size_t)snprintf(out + at, bytes - at, "%s%.*s=%.*s", i ? " " : "",
                               SV_FMT(l->items[i].name), SV_FMT(l->items[i].value));
    return out;
}

struct scene {
    struct prom_config *config;
    struct arena arena;
    struct labels found;
    struct target_spec spec;
    struct error err;
};

static int build(struct scene *s, const char *job, const char *found)
{
    *s = (struct scene){.config = config_of(job), .arena = ARENA_INIT(1u << 20)};
    labels_init(&s->found, &s->arena);
    read_labels(&s->found, found);
    return target_build(&s->config->jobs[0], &s->found, &s->arena, &s->spec, &s->err);
}

static void leave(struct scene *s)
{
    arena_deinit(&s->arena);
    prom_config_unref(s->config);
}

#define TIMES "__scrape_interval__=1m __scrape_timeout__=10s"

static void targets_are_made_in_prometheus_order(void **state)
{
    static const struct {
        const char *job, *found, *labels;
    } cases[] = {
        {"", "__address__=h:1",
         "__address__=h:1 __metrics_path__=/metrics __scheme__=http " TIMES " instance=h:1 job=j"},
        // What discovery says wins over the job's defaults, and no port is added.
        {"", "__address__=h job=k instance=i __scheme__=https __metrics_path__=/m",
         "__address__=h __metrics_path__=/m __scheme__=https " TIMES " instance=i job=k"},
        {"", "__address__=h __scrape_interval__=5s __scrape_timeout__=1s",
         "__address__=h __metrics_path__=/metrics __scheme__=http __scrape_interval__=5s "
         "__scrape_timeout__=1s instance=h job=j"},
        // Meta labels are there for relabelling, and gone after it; other "__" labels stay.
        {"relabel_configs: [{source_labels: [__meta_x], target_label: x}]",
         "__address__=h __meta_x=1 __tmp=2",
         "__address__=h __metrics_path__=/metrics __scheme__=http " TIMES
         " __tmp=2 instance=h job=j x=1"},
        // instance is taken from the address that relabelling left.
        {"relabel_configs: [{target_label: __address__, replacement: 'new:9'}]", "__address__=h",
         "__address__=new:9 __metrics_path__=/metrics __scheme__=http " TIMES
         " instance=new:9 job=j"},
        {"relabel_configs: [{action: labeldrop, regex: job}]", "__address__=h",
         "__address__=h __metrics_path__=/metrics __scheme__=http " TIMES " instance=h"},
        {"params: {p: [a, b], q: []}", "__address__=h",
         "__address__=h __metrics_path__=/metrics __param_p=a __scheme__=http " TIMES
         " instance=h job=j"},
        {"params: {p: [a]}", "__address__=h __param_p=z",
         "__address__=h __metrics_path__=/metrics __param_p=z __scheme__=http " TIMES
         " instance=h job=j"},
        {"scrape_interval: 90s, scrape_timeout: 1500ms", "__address__=h",
         "__address__=h __metrics_path__=/metrics __scheme__=http __scrape_interval__=1m30s "
         "__scrape_timeout__=1s500ms instance=h job=j"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        char text[2048];
        assert_int_equal(build(&s, cases[i].job, cases[i].found), 0);
        assert_string_equal(print_labels(&s.spec.labels, text, sizeof(text)), cases[i].labels);
        leave(&s);
    }
}

static void urls_are_those_of_prometheus(void **state)
{
    static const struct {
        const char *job, *found, *url;
    } cases[] = {
        {"", "__address__=h:1", "http://h:1/metrics"},
        {"scheme: https", "__address__=[::1]:9", "https://[::1]:9/metrics"},
        {"metrics_path: m", "__address__=h", "http://h/m"},
        {"metrics_path: '/a b?c%d/!x'", "__address__=h", "http://h/a%20b%3Fc%25d/%21x"},
        {"metrics_path: '/$&+,:;=@~_-.'", "__address__=h", "http://h/$&+,:;=@~_-."},
        {"", "__address__=u:p@h", "http://u:p%40h/metrics"},
        {"params: {b: ['x y', 'z/&='], a: ['']}", "__address__=h",
         "http://h/metrics?a=&b=x+y&b=z%2F%26%3D"},
        // A label is the first value of its parameter.
        {"params: {b: [x, y]}", "__address__=h __param_b=n __param_c=d",
         "http://h/metrics?b=n&b=y&c=d"},
        // Without its label the job's own value stands.
        {"params: {b: [x]}, relabel_configs: [{action: labeldrop, regex: __param_b}]",
         "__address__=h", "http://h/metrics?b=x"},
        {"relabel_configs: [{action: labeldrop, regex: __metrics_path__}]", "__address__=h",
         "http://h"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        assert_int_equal(build(&s, cases[i].job, cases[i].found), 0);
        assert_string_equal(s.spec.url, cases[i].url);
        leave(&s);
    }
}

static void unusable_targets_say_why(void **state)
{
    static const struct {
        const char *job, *found, *why;
    } cases[] = {
        {"", "a=b", "no address"},
        {"", "__address__=h/x", "'h/x' is not a host and port"},
        {"", "__address__=http://h", "'http://h' is not a host and port"},
        {"", "__address__=h __scrape_interval__=x",
         "__scrape_interval__: expected a duration as in 30s, found 'x'"},
        {"", "__address__=h __scrape_interval__=0s", "scrape interval cannot be 0"},
        {"", "__address__=h __scrape_timeout__=0", "scrape timeout cannot be 0"},
        {"", "__address__=h __scrape_timeout__=2m",
         "scrape timeout is longer than the scrape interval"},
        {"relabel_configs: [{action: labeldrop, regex: __scrape_timeout__}]", "__address__=h",
         "__scrape_timeout__: expected a duration as in 30s, found ''"},
        {"", "__address__=h x=\xff", "value of label x is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct scene s;
        assert_int_equal(build(&s, cases[i].job, cases[i].found), -EINVAL);
        assert_string_equal(s.err.text, cases[i].why);
        leave(&s);
    }
}

// Those of a meta label do not matter: it is gone by then.
static void only_what_is_left_must_be_utf8(void **state)
{
    struct scene s;
    assert_int_equal(build(&s, "", "__address__=h __meta_x=\xff"), 0);
    leave(&s);
}

static void relabelling_drops_targets(void **state)
{
    struct scene s;
    assert_int_equal(build(&s, "relabel_configs: [{action: keep, source_labels: [a], regex: b}]",
                           "__address__=h/bad a=c"),
                     TARGET_DROPPED);
    leave(&s);
}

static struct hash128 identity(const char *job, const char *found)
{
    struct scene s;
    assert_int_equal(build(&s, job, found), 0);
    struct hash128 h = target_identity(&s.spec, 7);
    leave(&s);
    return h;
}

static bool same(const char *job_a, const char *a, const char *job_b, const char *b)
{
    struct hash128 x = identity(job_a, a), y = identity(job_b, b);
    return x.low == y.low && x.high == y.high;
}

static void identity_is_labels_and_url_without_times(void **state)
{
    assert_true(same("", "__address__=h __meta_a=1", "", "__address__=h __meta_a=2"));
    assert_true(same("", "__address__=h", "scrape_interval: 30s", "__address__=h"));
    assert_false(same("", "__address__=h", "", "__address__=g"));
    assert_false(same("", "__address__=h", "", "__address__=h a=b"));
    assert_false(same("", "__address__=h a=bc", "", "__address__=h ab=c"));
    assert_false(same("", "__address__=h", "params: {a: [b]}", "__address__=h"));
    assert_false(
        same("params: {a: [b, c]}", "__address__=h", "params: {a: [b, d]}", "__address__=h"));
}

static void offsets_are_stable_and_spread_over_the_interval(void **state)
{
    unsigned quarters[4] = {0};
    for (unsigned i = 0; i < 400; i++) {
        char found[64];
        struct scene s;
        (void)snprintf(found, sizeof(found), "__address__=h:%u", i);
        assert_int_equal(build(&s, "", found), 0);
        uint64_t offset = target_offset_ns(&s.spec, 1);
        assert_true(offset < 60 * NS_PER_S);
        assert_true(offset == target_offset_ns(&s.spec, 1));
        quarters[offset / (15 * NS_PER_S)]++;
        leave(&s);
    }
    for (size_t i = 0; i < 4; i++)
        assert_in_range(quarters[i], 60, 140); // 100 +- 40: the hash is fixed, so is the outcome
    struct scene s;
    assert_int_equal(build(&s, "", "__address__=h:1"), 0);
    assert_true(target_offset_ns(&s.spec, 1) != target_offset_ns(&s.spec, 2));
    leave(&s);
}

static void durations_are_printed_as_prometheus_does(void **state)
{
    static const struct {
        uint64_t ms;
        const char *text;
    } cases[] = {
        {0, "0s"},
        {1, "1ms"},
        {1500, "1s500ms"},
        {60000, "1m"},
        {90000, "1m30s"},
        {3600000, "1h"},
        {UINT64_C(86400000) * 7, "1w"},
        {UINT64_C(86400000) * 8, "8d"},
        {UINT64_C(86400000) * 365, "1y"},
        {UINT64_C(86400000) * 365 + 1, "365d1ms"},
        {INT64_MAX / 1000000, "106751d23h47m16s854ms"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[TARGET_DURATION_BYTES];
        struct sv text = target_print_duration(cases[i].ms * NS_PER_MS, out);
        assert_int_equal(text.len, strlen(cases[i].text));
        assert_memory_equal(text.ptr, cases[i].text, text.len);
    }
}

static void secrets_in_urls_are_not_shown(void **state)
{
    static const struct {
        const char *url, *shown;
    } cases[] = {
        {"http://h/metrics", NULL},
        {"http://h/metrics?a=b&c=d", NULL},
        {"http://h/m?token=abc&x=y", "http://h/m?token=xxxxx&x=y"},
        {"http://h/m?a=1&Api_KEY=k", "http://h/m?a=1&Api_KEY=xxxxx"},
        {"http://h/m?password=p%26q", "http://h/m?password=xxxxx"},
        {"http://h/m?token", NULL},
        {"http://h/m?sig=abc&design=d&JWT=e", "http://h/m?sig=xxxxx&design=d&JWT=xxxxx"},
        {"http://u:p@h:1/m?x=y", "http://u:xxxxx@h:1/m?x=y"},
        {"http://u@h/m", NULL},
        {"http://h:1/m@x:y", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct arena arena = ARENA_INIT(1u << 20);
        const char *shown = target_redact_url(cases[i].url, &arena);
        assert_string_equal(shown, cases[i].shown ? cases[i].shown : cases[i].url);
        assert_true((shown == cases[i].url) == !cases[i].shown);
        arena_deinit(&arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(targets_are_made_in_prometheus_order),
        cmocka_unit_test(urls_are_those_of_prometheus),
        cmocka_unit_test(unusable_targets_say_why),
        cmocka_unit_test(only_what_is_left_must_be_utf8),
        cmocka_unit_test(relabelling_drops_targets),
        cmocka_unit_test(identity_is_labels_and_url_without_times),
        cmocka_unit_test(offsets_are_stable_and_spread_over_the_interval),
        cmocka_unit_test(durations_are_printed_as_prometheus_does),
        cmocka_unit_test(secrets_in_urls_are_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
