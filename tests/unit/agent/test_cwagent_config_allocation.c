// SPDX-License-Identifier: Apache-2.0
// RE2 ends the program when it is out of memory, and jansson may, so their allocations are left
// alone.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "codec/json.h"
#include "codec/regex.h"
#include "cwagent_config_help.h"

int __real_regex_new_within(struct regex_budget *budget, struct sv pattern,
                            enum regex_anchor anchor, struct regex **out, struct error *err);
int __wrap_regex_new_within(struct regex_budget *budget, struct sv pattern,
                            enum regex_anchor anchor, struct regex **out, struct error *err);

static unsigned regexes_left; // until one says that it has no memory; 0: none does

int __wrap_regex_new_within(struct regex_budget *budget, struct sv pattern,
                            enum regex_anchor anchor, struct regex **out, struct error *err)
{
    if (regexes_left && --regexes_left == 0)
        return -ENOMEM;
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
    if (regexes_left && --regexes_left == 0)
        return -ENOMEM;
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    int r = __real_regex_new(pattern, anchor, out, err);
    allocation_until_failure = left;
    return r;
}

int __real_json_parse(struct sv text, const char *file, struct json_document **out,
                      struct error *err);
int __wrap_json_parse(struct sv text, const char *file, struct json_document **out,
                      struct error *err);

static unsigned documents_left; // as regexes_left

int __wrap_json_parse(struct sv text, const char *file, struct json_document **out,
                      struct error *err)
{
    if (documents_left && --documents_left == 0)
        return -ENOMEM;
    unsigned left = allocation_until_failure;
    allocation_until_failure = 0;
    int r = __real_json_parse(text, file, out, err);
    allocation_until_failure = left;
    return r;
}

#define GOOD                                                                                       \
    "{\"agent\": {\"region\": \"us-east-1\", \"hostname\": \"h\", \"x\": 1}, \"metrics\": {}, "    \
    "\"logs\": {\"endpoint_override\": \"localhost:1\", \"metrics_collected\": {\"prometheus\": "  \
    "{\"cluster_name\": \"c\", \"log_group_name\": \"g\", \"prometheus_config_path\": "            \
    "\"env:P\", \"emf_processor\": {\"metric_namespace\": \"n\", \"metric_unit\": {\"m\": "        \
    "\"Count\"}, \"metric_declaration\": [{\"source_labels\": [\"a\", \"b\"], "                    \
    "\"label_separator\": \",\", \"label_matcher\": \"x\", \"metric_selectors\": [\"m\", \"n\"], " \
    "\"dimensions\": [[\"b\", \"a\"], []]}, {}]}}}}, \"podgpu\": {\"counters_from_zero\": \"x\", " \
    "\"output\": [\"tcp:h:1\", \"stdout\"], \"spool\": {\"directory\": \"/s\"}}}"

static const char *texts[2];
static int expected;
static unsigned warned;

static void use_parse(void)
{
    struct cw_text both[] = {{sv_from(texts[0]), "a.json"}, {sv_from(texts[1]), "b.json"}};
    char *environment[] = {"P=scrape_configs: []", "RUN_IN_CONTAINER=True", NULL};
    struct cw_sources from = {.environment = environment};
    struct parsed p = parse_texts(both, 2, &from);
    bool told = !p.errors.error && !p.warnings.error; // else all was read, and telling it failed
    assert_int_equal(p.result, allocation_failed && told ? -ENOMEM : expected);
    assert_true(!!p.config == (p.result == 0));
    warned += p.warnings.len > 0;
    parsed_deinit(&p);
}

static void reading_survives_each_failed_allocation(void **state)
{
    texts[0] = texts[1] = GOOD;
    expected = 0;
    assert_true(allocation_sweep(use_parse) > 5);
    assert_true(warned > 0);
}

static void telling_problems_survives_each_failed_allocation(void **state)
{
    texts[0] = "{\"agent\": {\"region\": 5}, \"logs\": {\"x\": 1}}";
    texts[1] =
        "{\"agent\": {\"region\": 6}, \"logs\": {\"metrics_collected\": {\"prometheus\": "
        "{\"emf_processor\": {\"metric_declaration\": [{\"metric_selectors\": [\"(\"]}]}}}}}";
    expected = -EINVAL;
    assert_true(allocation_sweep(use_parse) > 4);
    texts[0] = "{";
    texts[1] = "[";
    assert_true(allocation_sweep(use_parse) > 2);
}

static void each_pattern_and_file_may_be_the_one_without_memory(void **state)
{
    texts[0] = texts[1] = GOOD;
    allocation_failed = false;
    // The default of counters_from_zero, two matchers, two selectors, the file's own.
    for (unsigned n = 1; n <= 6; n++) {
        regexes_left = n;
        expected = -ENOMEM;
        use_parse();
        assert_int_equal(regexes_left, 0);
    }
    for (unsigned n = 1; n <= 2; n++) {
        documents_left = n;
        use_parse();
        assert_int_equal(documents_left, 0);
    }
    regexes_left = 7;
    expected = 0;
    use_parse();
    assert_int_equal(regexes_left, 1);
    regexes_left = 0;
}

static char root[] = "/tmp/podgpu-cwagent-XXXXXX";

static void use_load(void)
{
    struct cw_sources from = {.root = root};
    struct buf errors = BUF_INIT(1u << 20), warnings = BUF_INIT(1u << 20), paths = BUF_INIT(4096);
    struct cw_config *c = NULL;
    int r = cw_config_load(&from, &c, &errors, &warnings);
    assert_true(r == 0 || (allocation_failed && r == -ENOMEM));
    assert_true(!!c == (r == 0));
    cw_sources_add_watched(&from, &paths);
    if (c)
        cw_config_add_watched(c, &paths);
    cw_config_unref(c);
    buf_deinit(&errors);
    buf_deinit(&warnings);
    buf_deinit(&paths);
}

static void write_file(const char *name, const char *text)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s%s", root, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static void make_directory(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof(path), "%s%s", root, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void remove_all(void)
{
    static const char *const names[] = {"/etc/cwagentconfig/a.json", "/etc/cwagentconfig/b.json",
                                        "/etc/cwagentconfig", "/etc", ""};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        char path[256];
        (void)snprintf(path, sizeof(path), "%s%s", root, names[i]);
        assert_int_equal(remove(path), 0);
    }
}

static void looking_for_files_survives_each_failed_allocation(void **state)
{
    assert_non_null(mkdtemp(root));
    make_directory("/etc");
    make_directory("/etc/cwagentconfig");
    write_file("/etc/cwagentconfig/a.json", "{\"agent\": {\"region\": \"us-east-1\"}}");
    write_file("/etc/cwagentconfig/b.json", "{\"logs\": {\"logs_collected\": {}}}");
    unsigned needed = allocation_sweep(use_load);
    remove_all();
    assert_true(needed > 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_survives_each_failed_allocation),
        cmocka_unit_test(telling_problems_survives_each_failed_allocation),
        cmocka_unit_test(each_pattern_and_file_may_be_the_one_without_memory),
        cmocka_unit_test(looking_for_files_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
