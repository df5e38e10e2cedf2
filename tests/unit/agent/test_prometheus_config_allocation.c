// SPDX-License-Identifier: Apache-2.0
// RE2 ends the program when it is out of memory, so its allocations are left alone.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "agent/prometheus_config.h"
#include "codec/regex.h"

int __real_regex_new_within(struct regex_budget *budget, struct sv pattern,
                            enum regex_anchor anchor, struct regex **out, struct error *err);
int __wrap_regex_new_within(struct regex_budget *budget, struct sv pattern,
                            enum regex_anchor anchor, struct regex **out, struct error *err);

int __wrap_regex_new_within(struct regex_budget *budget, struct sv pattern,
                            enum regex_anchor anchor, struct regex **out, struct error *err)
{
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    int r = __real_regex_new_within(budget, pattern, anchor, out, err);
    allocation_until_failure = left;
    return r;
}

int __real_regex_new(struct sv pattern, enum regex_anchor anchor, struct regex **out,
                     struct error *err);
int __wrap_regex_new(struct sv pattern, enum regex_anchor anchor, struct regex **out,
                     struct error *err);

int __wrap_regex_new(struct sv pattern, enum regex_anchor anchor, struct regex **out,
                     struct error *err)
{
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    int r = __real_regex_new(pattern, anchor, out, err);
    allocation_until_failure = left;
    return r;
}

static const char *text;
static bool good;

static void use_parse(void)
{
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(1u << 20);
    int r = prom_config_parse(sv_from(text), "/etc/podgpu/prometheus.yaml", &c, &errors);
    assert_int_equal(r, allocation_failed && !errors.error ? -ENOMEM : good ? 0 : -EINVAL);
    assert_true(!!c == (r == 0));
    prom_config_unref(c);
    buf_deinit(&errors);
}

static void reading_survives_each_failed_allocation(void **state)
{
    text = "global: {scrape_interval: 5s, external_labels: {a: b}}\n"
           "rule_files: [x]\n"
           "scrape_configs:\n"
           "- job_name: a\n"
           "  params: {m: [x]}\n"
           "  http_headers: {X: {values: [y]}}\n"
           "  static_configs: [{targets: ['h:1'], labels: {a: b}}]\n"
           "  file_sd_configs: [{files: [x.json]}]\n"
           "  kubernetes_sd_configs: [{role: pod, selectors: [{role: pod, label: x}]}]\n"
           "  relabel_configs:\n"
           "  - {source_labels: [a], regex: (.+), target_label: b, replacement: x$1}\n"
           "- {job_name: b, oauth2: {client_id: a, token_url: b, client_secret: c}}\n";
    good = true;
    assert_true(allocation_sweep(use_parse) > 30); // libyaml's own are among them
}

static void telling_problems_survives_each_failed_allocation(void **state)
{
    text = "globl: {}\nscrape_configs: [{job_name: a, relabel_configs: [{action: kep}]}, "
           "{job_name: a}]\n";
    good = false;
    assert_true(allocation_sweep(use_parse) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_survives_each_failed_allocation),
        cmocka_unit_test(telling_problems_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
