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
#include "agent/relabel.h"
#include "codec/regex.h"

int __real_regex_new_within(struct regex_budget *budget, struct sv pattern,
                            enum regex_anchor anchor, struct regex **out, struct error *err);
int __wrap_regex_new_within(struct regex_budget *budget, struct sv pattern,
                            enum regex_anchor anchor, struct regex **out, struct error *err);
bool __real_regex_match(const struct regex *r, struct sv text, struct sv *spans, size_t span_count);
bool __wrap_regex_match(const struct regex *r, struct sv text, struct sv *spans, size_t span_count);
bool __real_regex_matches(const struct regex *r, struct sv text);
bool __wrap_regex_matches(const struct regex *r, struct sv text);

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

bool __wrap_regex_match(const struct regex *r, struct sv text, struct sv *spans, size_t span_count)
{
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    bool matched = __real_regex_match(r, text, spans, span_count);
    allocation_until_failure = left;
    return matched;
}

bool __wrap_regex_matches(const struct regex *r, struct sv text)
{
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    bool matched = __real_regex_matches(r, text);
    allocation_until_failure = left;
    return matched;
}

// An arena takes its memory in blocks of 4 KiB, so texts are long enough that each step takes a new
// one.
static char yaml[40000];

static void make_rules(void)
{
    size_t at = 0;
    static const char *const rules[] = {
        "- {source_labels: [a, a], regex: '(v+);(v+)', target_label: b, replacement: '$1$2'}\n",
        "- {action: lowercase, source_labels: [b], target_label: c}\n",
        "- {action: labelmap, regex: (a), replacement: x_$1}\n",
        "- {action: hashmod, modulus: 3, source_labels: [b, c], target_label: d}\n",
        "- {action: labeldrop, regex: d}\n",
    };
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        for (size_t k = 0; k < 3000; k++)
            yaml[at++] = k == 0 ? '#' : k == 2999 ? '\n' : 'c';
        memcpy(yaml + at, rules[i], strlen(rules[i]));
        at += strlen(rules[i]);
    }
    static const char last[] = "- {target_label: e, replacement: ";
    memcpy(yaml + at, last, sizeof(last) - 1);
    memset(yaml + at + sizeof(last) - 1, 'r', 9000);
    memcpy(yaml + at + sizeof(last) - 1 + 9000, "}\n", 3);
}

static void read_and_apply(void)
{
    struct yaml_document *d = NULL;
    struct relabel_rules *rules = NULL;
    struct error err = ERROR_INIT;
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0; // YAML has a sweep of its own
    assert_int_equal(yaml_parse(sv_from(yaml), "f", &d, &err), 0);
    allocation_until_failure = left;
    int r = relabel_parse(yaml_root(d), "f", &rules, &err);
    yaml_document_free(d);
    if (r < 0) {
        assert_true(r == -ENOMEM && allocation_failed && !rules);
        assert_string_equal(err.text, "out of memory");
        return;
    }
    char value[3000];
    memset(value, 'v', sizeof(value));
    struct arena arena = ARENA_INIT(1u << 20);
    struct labels l;
    labels_init(&l, &arena);
    r = labels_set(&l, SV("a"), (struct sv){value, sizeof(value)});
    if (r == 0)
        r = relabel_apply(rules, &l);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r == 0)
        assert_int_equal(l.count, 5);
    arena_deinit(&arena);
    relabel_free(rules);
}

static void relabelling_survives_each_failed_allocation(void **state)
{
    make_rules();
    assert_true(allocation_sweep(read_and_apply) >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relabelling_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
