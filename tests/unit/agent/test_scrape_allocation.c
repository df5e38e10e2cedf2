// SPDX-License-Identifier: Apache-2.0
// Groups, targets and reloads with each allocation failing once: what could not be made is missing
// or as it was, nothing else. Nobody is asked: turns are an hour away.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "agent/scrape.h"
#include "base/log.h"
#include "codec/regex.h"

bool __real_regex_matches(const struct regex *r, struct sv text);
bool __wrap_regex_matches(const struct regex *r, struct sv text);
bool __real_regex_match(const struct regex *r, struct sv text, struct sv *spans, size_t count);
bool __wrap_regex_match(const struct regex *r, struct sv text, struct sv *spans, size_t count);

// RE2 ends the program when it is out of memory.
bool __wrap_regex_matches(const struct regex *r, struct sv text)
{
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    bool matched = __real_regex_matches(r, text);
    allocation_until_failure = left;
    return matched;
}

bool __wrap_regex_match(const struct regex *r, struct sv text, struct sv *spans, size_t count)
{
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    bool matched = __real_regex_match(r, text, spans, count);
    allocation_until_failure = left;
    return matched;
}

static struct loop *loop;
static struct prom_config *first, *second;

static struct prom_config *read_config(const char *text)
{
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(1u << 20);
    assert_int_equal(prom_config_parse(sv_from(text), "f", &c, &errors), 0);
    buf_deinit(&errors);
    return c;
}

static struct target_group *make_group(unsigned from, unsigned count)
{
    struct target_group *g = target_group_new(count, 1u << 20);
    for (unsigned i = 0; g && i < count; i++) {
        char address[32];
        (void)snprintf(address, sizeof(address), "h:%u", from + i);
        struct labels *l = target_group_add(g, 2);
        if (!l || labels_set(l, SV("__address__"), sv_from(address)) < 0) {
            target_group_unref(g);
            return NULL;
        }
    }
    return g;
}

static void set_group(struct scraper *s, const struct prom_config *c, const char *source,
                      struct target_group *g)
{
    if (g)
        scraper_set_group(s, &c->jobs[0], source, g);
}

static void count(void *user, const struct target_view *t)
{
    (void)t;
    ++*(unsigned *)user;
}

static void use(struct scraper *s)
{
    struct scraper_stats stats;
    unsigned seen = 0;
    if (scraper_set_config(s, prom_config_ref(first)) < 0)
        return;
    set_group(s, first, "a", make_group(1, 3));
    set_group(s, first, "b", make_group(3, 2)); // h:3 is in both
    set_group(s, first, "a", make_group(1, 3));
    scraper_set_ready(s, &first->jobs[0]);
    scraper_get_stats(s, &stats);
    if (!allocation_failed)
        assert_true(stats.targets == 3 && stats.dropped == 1);
    if (scraper_set_config(s, prom_config_ref(second)) == 0) {
        set_group(s, second, "b", make_group(3, 2));
        scraper_set_ready(s, &second->jobs[0]);
    }
    scraper_get_stats(s, &stats);
    scraper_each_target(s, count, &seen);
    if (!allocation_failed) {
        assert_true(stats.targets == 2 && stats.dropped == 0 && stats.limited == 0);
        assert_int_equal(seen, 2);
    }
    scraper_stop(s);
}

static void work(void)
{
    const struct scraper_options o = {.loop = loop};
    struct scraper *s = NULL;
    if (scraper_new(&o, &s) < 0) {
        assert_true(allocation_failed);
        return;
    }
    use(s);
    scraper_free(s);
    assert_int_equal(first->refs, 1);
    assert_int_equal(second->refs, 1);
}

static void scraping_survives_each_failed_allocation(void **state)
{
    log_setup(LOG_FORMAT_TEXT, LOG_LEVEL_ERROR + 1);
    assert_int_equal(loop_new(&loop), 0);
    first = read_config("scrape_configs: [{job_name: j, scrape_interval: 1h, relabel_configs: "
                        "[{action: drop, source_labels: [__address__], regex: 'h:1'}]}]");
    second = read_config("scrape_configs: [{job_name: j, scrape_interval: 2h}]");
    assert_true(allocation_sweep(work) >= 30);
    prom_config_unref(first);
    prom_config_unref(second);
    loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scraping_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
