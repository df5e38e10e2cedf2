// SPDX-License-Identifier: Apache-2.0
#include "exporter/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/clock.h"

static char directory[] = "/tmp/podgpu-test-config-XXXXXX";
static char csv_path[64], yaml_path[64];

static const char csv_text[] = "# counters\n"
                               "DCGM_FI_DEV_GPU_TEMP, gauge, Temperature.\n"
                               "DCGM_FI_DEV_SM_CLOCK, gauge, Clock.\n"
                               "DCGM_FI_DRIVER_VERSION, label, Driver.\n";

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

static int make_files(void **state)
{
    if (!mkdtemp(directory))
        return -1;
    (void)snprintf(csv_path, sizeof(csv_path), "%s/counters.csv", directory);
    (void)snprintf(yaml_path, sizeof(yaml_path), "%s/config.yaml", directory);
    write_file(csv_path, csv_text);
    return 0;
}

static int remove_files(void **state)
{
    (void)unlink(csv_path);
    (void)unlink(yaml_path);
    return rmdir(directory);
}

// Options with up to three words beside NODE_NAME; yaml is written to the file first unless NULL.
static void options_of(struct exporter_options *o, const char *yaml, const char *first,
                       const char *second)
{
    char words[3][128] = {"podgpu-exporter", "", ""};
    char node[] = "NODE_NAME=n";
    char *argv[3] = {words[0]}, *environ_words[] = {node, NULL};
    int argc = 1;
    struct error err = ERROR_INIT;
    if (yaml)
        write_file(yaml_path, yaml);
    for (int i = 0; i < 2; i++) {
        const char *word = i ? second : first;
        if (!word)
            continue;
        sv_copy(words[argc], sizeof(words[argc]), sv_from(word));
        argv[argc] = words[argc];
        argc++;
    }
    assert_int_equal(exporter_options_parse(argc, argv, environ_words, o, &err), 0);
}

static const char *word(const char *flag, const char *value)
{
    static char texts[4][128];
    static unsigned next;
    char *text = texts[next++ % 4];
    (void)snprintf(text, sizeof(texts[0]), "%s=%s", flag, value);
    return text;
}

static void a_counters_file_alone_is_a_configuration(void **state)
{
    struct exporter_options o;
    struct exporter_config *c = NULL;
    struct error err = ERROR_INIT;
    options_of(&o, NULL, word("-f", csv_path), NULL);
    assert_int_equal(exporter_config_load(&o, &c, &err), 0);
    assert_int_equal(c->counters.count, 3);
    assert_string_equal(c->counters_file, csv_path);
    assert_string_equal(c->config_file, "");
    assert_ptr_equal(c->options, &o);
    assert_int_equal(c->period_ns[FIELD_CLASS_FAST], NS_PER_S);
    assert_int_equal(c->period_ns[FIELD_CLASS_MEDIUM], 10 * NS_PER_S);
    assert_int_equal(c->period_ns[FIELD_CLASS_SLOW], 30 * NS_PER_S);
    assert_int_equal(c->period_ns[FIELD_CLASS_STATIC], 600 * NS_PER_S);
    assert_false(c->exporter_metrics);
    assert_ptr_equal(exporter_config_ref(c), c);
    exporter_config_unref(c);
    exporter_config_unref(c);
    exporter_config_unref(NULL);
    exporter_options_deinit(&o);
}

static void the_interval_moves_the_classes_above_it(void **state)
{
    static const struct {
        const char *interval;
        uint64_t fast_ms, medium_ms, slow_ms, static_ms;
    } cases[] = {
        {"1", 100, 10000, 30000, 600000}, // raised to the least
        {"100", 100, 10000, 30000, 600000},     {"15000", 15000, 15000, 30000, 600000},
        {"30000", 30000, 30000, 30000, 600000}, {"900000", 900000, 900000, 900000, 900000},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o;
        struct exporter_config *c = NULL;
        struct error err = ERROR_INIT;
        options_of(&o, NULL, word("-f", csv_path), word("-c", cases[i].interval));
        assert_int_equal(exporter_config_load(&o, &c, &err), 0);
        assert_int_equal(c->period_ns[FIELD_CLASS_FAST], cases[i].fast_ms * NS_PER_MS);
        assert_int_equal(c->period_ns[FIELD_CLASS_MEDIUM], cases[i].medium_ms * NS_PER_MS);
        assert_int_equal(c->period_ns[FIELD_CLASS_SLOW], cases[i].slow_ms * NS_PER_MS);
        assert_int_equal(c->period_ns[FIELD_CLASS_STATIC], cases[i].static_ms * NS_PER_MS);
        exporter_config_unref(c);
        exporter_options_deinit(&o);
    }
}

#define INLINE_YAML                                                                                \
    "version: 2\n"                                                                                 \
    "metrics:\n"                                                                                   \
    "  enableExporterMetrics: true\n"                                                              \
    "  fields:\n"                                                                                  \
    "  - {name: DCGM_FI_DEV_SM_CLOCK, prometheusType: gauge, help: Clock.}\n"                      \
    "  - {name: ' DCGM_FI_DRIVER_VERSION ', prometheusType: label, help: Driver.}\n"               \
    "collections:\n"                                                                               \
    "- {name: scrape, every: 45s, metrics: {include: ['*']}}\n"

static void inline_counters_come_from_the_yaml_file(void **state)
{
    struct exporter_options o;
    struct exporter_config *c = NULL;
    struct error err = ERROR_INIT;
    options_of(&o, INLINE_YAML, word("--config-file", yaml_path), NULL);
    assert_int_equal(exporter_config_load(&o, &c, &err), 0);
    assert_int_equal(c->counters.count, 2);
    assert_string_equal(c->counters.rows[0].name, "DCGM_FI_DRIVER_VERSION");
    assert_int_equal(c->counters.rows[0].type, COUNTER_LABEL);
    assert_string_equal(c->counters.rows[1].name, "DCGM_FI_DEV_SM_CLOCK");
    assert_string_equal(c->counters.rows[1].help, "Clock.");
    assert_string_equal(c->counters_file, yaml_path);
    assert_string_equal(c->config_file, yaml_path);
    assert_int_equal(c->period_ns[FIELD_CLASS_FAST], 45 * NS_PER_S);
    assert_true(c->exporter_metrics);
    exporter_config_unref(c);
    exporter_options_deinit(&o);
}

static void flags_that_are_given_override_the_yaml_file(void **state)
{
    struct exporter_options o;
    struct exporter_config *c = NULL;
    struct error err = ERROR_INIT;
    options_of(&o, INLINE_YAML, word("--config-file", yaml_path), word("-f", csv_path));
    assert_int_equal(exporter_config_load(&o, &c, &err), 0);
    assert_int_equal(c->counters.count, 3);
    assert_string_equal(c->counters_file, csv_path);
    exporter_config_unref(c);
    exporter_options_deinit(&o);

    options_of(&o, INLINE_YAML, word("--config-file", yaml_path), "-c=2000");
    assert_int_equal(exporter_config_load(&o, &c, &err), 0);
    assert_int_equal(c->period_ns[FIELD_CLASS_FAST], 2 * NS_PER_S);
    exporter_config_unref(c);
    exporter_options_deinit(&o);

    options_of(&o, INLINE_YAML, word("--config-file", yaml_path),
               "--enable-exporter-metrics=false");
    assert_int_equal(exporter_config_load(&o, &c, &err), 0);
    assert_false(c->exporter_metrics);
    exporter_config_unref(c);
    exporter_options_deinit(&o);
}

static void the_yaml_file_may_name_the_counters_file(void **state)
{
    struct exporter_options o;
    struct exporter_config *c = NULL;
    struct error err = ERROR_INIT;
    char yaml[256];
    (void)snprintf(yaml, sizeof(yaml), "version: 1\nmetrics: {file: %s}\n", csv_path);
    options_of(&o, yaml, word("--config-file", yaml_path), NULL);
    assert_int_equal(exporter_config_load(&o, &c, &err), 0);
    assert_int_equal(c->counters.count, 3);
    assert_string_equal(c->counters_file, csv_path);
    exporter_config_unref(c);
    exporter_options_deinit(&o);
}

// GPU_TEMP and SM_CLOCK share the class of the fast fields, DRIVER_VERSION is static.
static void a_class_is_as_fast_as_its_most_demanding_field(void **state)
{
    static const struct {
        const char *groups;
        uint64_t fast_ms, static_ms;
    } cases[] = {
        {"[{name: a, interval: 200ms, fields: [DCGM_FI_DEV_GPU_TEMP]}]", 200, 600000},
        {"[{name: a, interval: 60s, fields: [DCGM_FI_DEV_GPU_TEMP]}]", 5000,
         600000}, // the clock wants 5 s
        {"[{name: a, interval: 60s, fields: [DCGM_FI_DEV_*]}]", 60000, 600000},
        {"[{name: a, interval: 60s, fields: [DCGM_FI_DEV_GPU_TEMP]}, {name: b, interval: 20s, "
         "fields: ['*_CLOCK']}]",
         20000, 600000},
        {"[{name: a, interval: 1ms, fields: [DCGM_FI_DEV_GPU_TEMP]}]", 100, 600000},
        {"[{name: a, interval: 30s, fields: [DCGM_FI_DRIVER_VERSION]}]", 5000, 30000},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o;
        struct exporter_config *c = NULL;
        struct error err = ERROR_INIT;
        char yaml[512];
        (void)snprintf(yaml, sizeof(yaml),
                       "version: 1\ncollection: {interval: 5s, watchGroups: %s}\n",
                       cases[i].groups);
        options_of(&o, yaml, word("--config-file", yaml_path), word("-f", csv_path));
        assert_int_equal(exporter_config_load(&o, &c, &err), 0);
        assert_int_equal(c->period_ns[FIELD_CLASS_FAST], cases[i].fast_ms * NS_PER_MS);
        assert_int_equal(c->period_ns[FIELD_CLASS_STATIC], cases[i].static_ms * NS_PER_MS);
        exporter_config_unref(c);
        exporter_options_deinit(&o);
    }
}

static void mistakes_are_placed(void **state)
{
    static const struct {
        const char *yaml;
        unsigned line, column;
        const char *text;
    } cases[] = {
        {"version: 1\ncollection:\n  watchGroups:\n  - {name: a, interval: 1s, fields: "
         "['*_TEMP']}\n"
         "  - {name: b, interval: 1s, fields: [DCGM_FI_DEV_GPU_*]}\n",
         5, 5, "field 'DCGM_FI_DEV_GPU_TEMP' is in 'a' and in 'b'"},
        {"version: 1\ncollection:\n  watchGroups:\n  - {name: a, interval: 1s, fields: "
         "[DCGM_FI_PROF_*]}\n",
         4, 5, "'a' matches no configured field"},
        {"version: 2\nmetrixs: {}\n", 2, 1, "unknown key 'metrixs' (did you mean 'metrics'?)"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o;
        struct exporter_config *c = NULL;
        struct error err = ERROR_INIT;
        options_of(&o, cases[i].yaml, word("--config-file", yaml_path), word("-f", csv_path));
        assert_int_equal(exporter_config_load(&o, &c, &err), -EINVAL);
        assert_null(c);
        assert_string_equal(err.file, yaml_path);
        assert_int_equal(err.line, cases[i].line);
        assert_int_equal(err.column, cases[i].column);
        assert_string_equal(err.text, cases[i].text);
        exporter_options_deinit(&o);
    }
}

static void inline_fields_are_checked_as_the_csv_is(void **state)
{
    static const struct {
        const char *fields;
        unsigned line;
    } cases[] = {
        {"  - {name: DCGM_FI_DEV_GPU_TEMPP, prometheusType: gauge, help: h}\n", 4},
        {"  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gage, help: h}\n", 4},
        {"  - {name: DCGM_FI_DEV_GPU_TEMP, prometheusType: gauge, help: h}\n"
         "  - {name: 'DCGM_FI_DEV_GPU_TEMP ', prometheusType: counter, help: h}\n",
         5},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o;
        struct exporter_config *c = NULL;
        struct error err = ERROR_INIT;
        char yaml[512];
        (void)snprintf(yaml, sizeof(yaml), "version: 2\nmetrics:\n  fields:\n%s", cases[i].fields);
        options_of(&o, yaml, word("--config-file", yaml_path), NULL);
        assert_int_equal(exporter_config_load(&o, &c, &err), -EINVAL);
        assert_int_equal(err.line, cases[i].line);
        assert_string_equal(err.file, yaml_path);
        exporter_options_deinit(&o);
    }
}

static void absent_files_are_named(void **state)
{
    struct exporter_options o;
    struct exporter_config *c = NULL;
    struct error err = ERROR_INIT;
    options_of(&o, NULL, "-f=/nonexistent.csv", NULL);
    assert_int_equal(exporter_config_load(&o, &c, &err), -ENOENT);
    assert_string_equal(err.text, "cannot read '/nonexistent.csv': No such file or directory");
    exporter_options_deinit(&o);
    options_of(&o, NULL, "--config-file=/nonexistent.yaml", NULL);
    assert_int_equal(exporter_config_load(&o, &c, &err), -ENOENT);
    assert_string_equal(err.text, "cannot read '/nonexistent.yaml': No such file or directory");
    exporter_options_deinit(&o);
    options_of(&o, NULL, "-f=", NULL);
    assert_int_equal(exporter_config_load(&o, &c, &err), -EINVAL);
    assert_string_equal(err.text, "--collectors (DCGM_EXPORTER_COLLECTORS): expected the path of a "
                                  "counters file, found ''");
    exporter_options_deinit(&o);
}

static uint64_t hash_with(const char *yaml, const char *csv)
{
    struct exporter_options o;
    struct exporter_config *c = NULL;
    struct error err = ERROR_INIT;
    write_file(csv_path, csv);
    options_of(&o, yaml, word("--config-file", yaml_path), word("-f", csv_path));
    assert_int_equal(exporter_config_load(&o, &c, &err), 0);
    uint64_t hash = c->hash;
    exporter_config_unref(c);
    exporter_options_deinit(&o);
    write_file(csv_path, csv_text);
    return hash;
}

static void the_hash_tells_any_change_of_a_file(void **state)
{
    uint64_t hash = hash_with("version: 1\n", csv_text);
    assert_true(hash == hash_with("version: 1\n", csv_text));
    assert_true(hash != hash_with("version: 1 \n", csv_text));
    assert_true(hash != hash_with("version: 1\n", "# counters\n"));
}

static struct exporter_options swept_options;

static void load_swept(void)
{
    struct exporter_config *c = NULL;
    struct error err = ERROR_INIT;
    int r = exporter_config_load(&swept_options, &c, &err);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    exporter_config_unref(c);
}

static void loading_survives_each_failed_allocation(void **state)
{
    options_of(&swept_options, INLINE_YAML, word("--config-file", yaml_path), NULL);
    assert_true(allocation_sweep(load_swept) > 30);
    exporter_options_deinit(&swept_options);
    options_of(&swept_options, NULL, word("-f", csv_path), NULL);
    assert_true(allocation_sweep(load_swept) > 10);
    exporter_options_deinit(&swept_options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_counters_file_alone_is_a_configuration),
        cmocka_unit_test(the_interval_moves_the_classes_above_it),
        cmocka_unit_test(inline_counters_come_from_the_yaml_file),
        cmocka_unit_test(flags_that_are_given_override_the_yaml_file),
        cmocka_unit_test(the_yaml_file_may_name_the_counters_file),
        cmocka_unit_test(a_class_is_as_fast_as_its_most_demanding_field),
        cmocka_unit_test(mistakes_are_placed),
        cmocka_unit_test(inline_fields_are_checked_as_the_csv_is),
        cmocka_unit_test(absent_files_are_named),
        cmocka_unit_test(the_hash_tells_any_change_of_a_file),
        cmocka_unit_test(loading_survives_each_failed_allocation),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
