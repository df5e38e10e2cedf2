// SPDX-License-Identifier: Apache-2.0
#include "agent/cwagent_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "cwagent_config_help.h"

#define DAY_NS (24 * 3600 * NS_PER_S)

// --- The post's own file ---

static struct cw_config *parse_post(bool compat)
{
    struct buf text = BUF_INIT(LIMIT_CONFIG_FILE_BYTES);
    assert_int_equal(file_read(BLOG "/cwagentconfig.json", &text, NULL), 0);
    struct cw_text one = {buf_sv(&text), "cwagentconfig.json"};
    char *environment[] = {"KUBERNETES_SERVICE_HOST=10.0.0.1", NULL};
    struct cw_sources from = {.environment = environment, .compat = compat};
    struct parsed p = parse_texts(&one, 1, &from);
    assert_int_equal(p.result, 0);
    assert_int_equal(p.errors.len, 0);
    assert_int_equal(p.warnings.len, 0);
    struct cw_config *c = TAKE_PTR(p.config);
    parsed_deinit(&p);
    buf_deinit(&text);
    return c;
}

static void the_post_s_file_is_read_to_its_last_selector(void **state)
{
    static const char *const dimensions[] = {"ClusterName", "Namespace", "Service", "job", "pod"};
    struct cw_config *c = parse_post(false);
    assert_true(c->has_prometheus && c->has_emf_processor && !c->disable_metric_extraction);
    assert_string_equal(c->prometheus_path, "/etc/prometheusconfig/prometheus.yaml");
    assert_null(c->prometheus_text);
    assert_null(c->cluster_name);
    assert_null(c->log_group);
    assert_int_equal(c->flush_ns, 5 * NS_PER_S);
    assert_string_equal(c->metric_namespace, "ContainerInsights/Prometheus");
    assert_string_equal(c->ignored, "");
    assert_int_equal(c->unit_count, 0);
    assert_int_equal(c->declaration_count, 1);
    const struct cw_declaration *d = &c->declarations[0];
    assert_int_equal(d->source_label_count, 1);
    assert_sv_equals(d->source_labels[0], "Service");
    assert_sv_equals(d->matcher_text, ".*dcgm.*");
    assert_sv_equals(d->separator, ";");
    assert_int_equal(d->dimension_count, 1);
    assert_int_equal(d->dimensions[0].count, 5);
    for (size_t i = 0; i < 5; i++)
        assert_sv_equals(d->dimensions[0].names[i], dimensions[i]);
    assert_int_equal(d->selector_count, 14);
    assert_sv_equals(d->selector_texts[0], "^DCGM_FI_DEV_GPU_UTIL$");
    assert_sv_equals(d->selector_texts[13], "^DCGM_FI_PROF_PIPE_TENSOR_ACTIVE$");
    assert_true(cw_declaration_selects(d, SV("DCGM_FI_DEV_XID_ERRORS")));
    assert_false(cw_declaration_selects(d, SV("DCGM_FI_DEV_FB_USED")));
    assert_string_equal(d->file, "cwagentconfig.json");
    assert_int_equal(d->line, 8);
    assert_int_equal(d->source_labels_line, 9);
    assert_int_equal(d->matcher_line, 12);
    assert_int_equal(d->dimensions_line, 13);
    assert_int_equal(d->selectors_line, 22);
    cw_config_unref(c);
}

static void without_keys_defaults_count_and_compat_has_the_agent_s(void **state)
{
    for (int compat = 0; compat < 2; compat++) {
        struct cw_config *c = parse_post(compat);
        assert_int_equal(c->refs, 1);
        assert_true(c->in_container && !c->in_ecs);
        assert_false(c->add_host || c->debug || c->use_dualstack || c->scope_node);
        assert_null(c->region);
        assert_null(c->role_arn);
        assert_null(c->hostname);
        assert_null(c->endpoint_override);
        assert_null(c->kubernetes_cluster_name);
        assert_int_equal(c->compat, compat);
        assert_int_equal(c->unmatched, compat ? CW_UNMATCHED_LOG : CW_UNMATCHED_DROP);
        assert_int_equal(!c->counters_from_zero, compat);
        assert_int_equal(c->storage_resolution, compat ? 60 : 0);
        assert_int_equal(c->retention_days, compat ? 0 : 30);
        assert_int_equal(c->aggregate_ns, 0);
        assert_string_equal(c->spool_directory, "/var/lib/podgpu/spool");
        assert_int_equal(c->spool_max_bytes, 256u << 20);
        assert_int_equal(c->spool_max_age_ns, 14 * DAY_NS);
        assert_int_equal(c->output_count, 1);
        assert_int_equal(c->outputs[0].kind, CW_OUTPUT_CLOUDWATCH);
        if (!compat) {
            assert_true(regex_matches(c->counters_from_zero, SV("podgpu_gpu_busy_seconds_total")));
            assert_false(regex_matches(c->counters_from_zero, SV("xpodgpu_gpu_x_total")));
            assert_false(regex_matches(c->counters_from_zero, SV("podgpu_gpu_x_totals")));
        }
        cw_config_unref(c);
    }
}

static void a_configuration_lives_until_its_last_reference_is_gone(void **state)
{
    struct cw_config *c = parse_post(false);
    assert_ptr_equal(cw_config_ref(c), c);
    cw_config_unref(c);
    assert_string_equal(c->prometheus_path, "/etc/prometheusconfig/prometheus.yaml");
    cw_config_unref(c);
    cw_config_unref(NULL);
}

// --- Keys and their bounds ---

// A text of so many letters, in a static place.
static const char *letters(unsigned count)
{
    static char text[8192];
    assert_true(count < sizeof(text));
    memset(text, 'a', count);
    text[count] = '\0';
    return text;
}

static void lengths_are_held_to_the_schema_s_bounds(void **state)
{
    static const struct {
        const char *before, *after, *path;
        unsigned min, max;
    } texts[] = {
        {"{\"agent\": {\"region\": \"", "\"}}", "/agent/region", 1, 64},
        {"{\"agent\": {\"logfile\": \"", "\"}}", "/agent/logfile", 0, 4096},
        {"{\"agent\": {\"hostname\": \"", "\"}}", "/agent/hostname", 0, 1024},
        {"{\"agent\": {\"service.name\": \"", "\"}}", "/agent/service.name", 1, 255},
        {"{\"agent\": {\"deployment.environment\": \"", "\"}}", "/agent/deployment.environment", 1,
         259},
        {"{\"agent\": {\"credentials\": {\"role_arn\": \"", "\"}}}", "/agent/credentials/role_arn",
         20, 2048},
        {"{\"logs\": {\"logs_collected\": {}, \"log_stream_name\": \"", "\"}}",
         "/logs/log_stream_name", 1, 512},
        {"{\"logs\": {\"logs_collected\": {}, \"service.name\": \"", "\"}}", "/logs/service.name",
         1, 255},
        {"{\"logs\": {\"logs_collected\": {}, \"deployment.environment\": \"", "\"}}",
         "/logs/deployment.environment", 1, 259},
        {"{\"logs\": {\"logs_collected\": {}, \"endpoint_override\": \"", "\"}}",
         "/logs/endpoint_override", 4, 2048},
        {"{\"logs\": {\"logs_collected\": {}, \"credentials\": {\"role_arn\": \"", "\"}}}",
         "/logs/credentials/role_arn", 20, 2048},
        {"{\"logs\": {\"metrics_collected\": {\"kubernetes\": {\"cluster_name\": \"", "\"}}}}",
         "/logs/metrics_collected/kubernetes/cluster_name", 1, 512},
        {"{\"logs\": {\"metrics_collected\": {\"prometheus\": {\"cluster_name\": \"", "\"}}}}",
         "/logs/metrics_collected/prometheus/cluster_name", 0, 1024},
        {"{\"logs\": {\"metrics_collected\": {\"prometheus\": {\"log_group_name\": \"", "\"}}}}",
         "/logs/metrics_collected/prometheus/log_group_name", 0, 512},
        {"{\"logs\": {\"metrics_collected\": {\"prometheus\": {\"emf_processor\": "
         "{\"metric_namespace\": \"",
         "\"}}}}}", "/logs/metrics_collected/prometheus/emf_processor/metric_namespace", 1, 255},
        {"{\"logs\": {\"metrics_collected\": {\"prometheus\": {\"emf_processor\": "
         "{\"metric_declaration\": [{\"source_labels\": [\"a\"], \"metric_selectors\": [\"a\"], "
         "\"dimensions\": [[\"",
         "\"]]}]}}}}}",
         "/logs/metrics_collected/prometheus/emf_processor/metric_declaration/0/dimensions/0/0", 1,
         250},
        {"{\"podgpu\": {\"counters_from_zero\": \"", "\"}}", "/podgpu/counters_from_zero", 0, 4096},
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        unsigned lengths[] = {texts[i].min - 1, texts[i].min, texts[i].max, texts[i].max + 1};
        for (size_t k = 0; k < ARRAY_SIZE(lengths); k++) {
            char text[8400], error[256] = "";
            bool good = k == 1 || k == 2;
            unsigned column = (unsigned)strlen(texts[i].before);
            if (k == 0 && !texts[i].min)
                continue;
            (void)snprintf(text, sizeof(text), "%s%s%s", texts[i].before, letters(lengths[k]),
                           texts[i].after);
            if (!good && strstr(text, "\"dimensions\""))
                (void)snprintf(error, sizeof(error),
                               "f:1:%u: %s: expected a name of 1 to 250 characters, found %u\n",
                               column, texts[i].path, lengths[k]);
            else if (!good)
                (void)snprintf(error, sizeof(error),
                               "f:1:%u: %s: expected %u to %u characters, found %u\n", column,
                               texts[i].path, texts[i].min, texts[i].max, lengths[k]);
            assert_true(parses(text, false, good ? 0 : -EINVAL, error, ""));
        }
    }
}

static void lengths_are_counted_in_characters(void **state)
{
    char region[3 * 65 + 1] = "";
    char text[512];
    for (size_t i = 0; i < 255 / 4; i++)
        memcpy(region + 3 * i, "\xe2\x82\xac", 4);
    (void)snprintf(text, sizeof(text), "{\"agent\": {\"service.name\": \"%s%s%s%s\"}}", region, "",
                   "", "");
    assert_true(parses(text, false, 0, "", ""));
}

static void numbers_are_held_to_the_schema_s_bounds(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"agent\": {\"metrics_collection_interval\": 1}}", NULL},
        {"{\"agent\": {\"metrics_collection_interval\": 172800}}", NULL},
        {"{\"agent\": {\"metrics_collection_interval\": 60.0}}", NULL},
        {"{\"agent\": {\"metrics_collection_interval\": 6e1}}", NULL},
        {"{\"agent\": {\"metrics_collection_interval\": 0}}",
         "f:1:43: /agent/metrics_collection_interval: expected a whole number from 1 to 172800, "
         "found 0\n"},
        {"{\"agent\": {\"metrics_collection_interval\": 172801}}",
         "f:1:43: /agent/metrics_collection_interval: expected a whole number from 1 to 172800, "
         "found 172801\n"},
        {"{\"agent\": {\"metrics_collection_interval\": 1.5}}",
         "f:1:43: /agent/metrics_collection_interval: expected a whole number from 1 to 172800, "
         "found 1.5\n"},
        {"{\"agent\": {\"metrics_collection_interval\": 1e300}}",
         "f:1:43: /agent/metrics_collection_interval: expected a whole number from 1 to 172800, "
         "found 1e+300\n"},
        {"{\"agent\": {\"metrics_collection_interval\": \"60\"}}",
         "f:1:43: /agent/metrics_collection_interval: expected a whole number from 1 to 172800, "
         "found the string '60'\n"},
        {"{\"agent\": {\"metrics_collection_interval\": null}}",
         "f:1:43: /agent/metrics_collection_interval: expected a whole number from 1 to 172800, "
         "found null\n"},
        {"{\"logs\": {\"logs_collected\": {}, \"force_flush_interval\": 172801}}",
         "f:1:57: /logs/force_flush_interval: expected a whole number from 1 to 172800, found "
         "172801\n"},
        {"{\"logs\": {\"logs_collected\": {}, \"force_flush_interval\": 0}}",
         "f:1:57: /logs/force_flush_interval: expected a whole number from 1 to 172800, found 0\n"},
        {"{\"logs\": {\"logs_collected\": {}, \"concurrency\": 9223372036854775807}}", NULL},
        {"{\"logs\": {\"logs_collected\": {}, \"concurrency\": 0}}",
         "f:1:48: /logs/concurrency: expected a whole number of at least 1, found 0\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_true(parses(cases[i].text, false, cases[i].error ? -EINVAL : 0,
                           cases[i].error ? cases[i].error : "", ""));
}

static void each_key_wants_its_type(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"[]", "f:1:1: /: expected an object, found an array\n"},
        {"{\"agent\": 5}", "f:1:11: /agent: expected an object, found 5\n"},
        {"{\"agent\": {\"region\": null}}",
         "f:1:22: /agent/region: expected a string, found null\n"},
        {"{\"agent\": {\"debug\": \"true\"}}",
         "f:1:21: /agent/debug: expected a boolean, found the string 'true'\n"},
        {"{\"agent\": {\"omit_hostname\": 1}}",
         "f:1:29: /agent/omit_hostname: expected a boolean, found 1\n"},
        {"{\"agent\": {\"use_dualstack_endpoint\": []}}",
         "f:1:38: /agent/use_dualstack_endpoint: expected a boolean, found an array\n"},
        {"{\"agent\": {\"credentials\": \"x\"}}",
         "f:1:27: /agent/credentials: expected an object, found the string 'x'\n"},
        {"{\"logs\": []}", "f:1:10: /logs: expected an object, found an array\n"
                           "f:1:10: /logs: expected metrics_collected or logs_collected in it\n"},
        {"{\"logs\": {\"metrics_collected\": 1.5}}",
         "f:1:32: /logs/metrics_collected: expected an object, found 1.5\n"},
        {PROMETHEUS("\"cluster_name\": true"),
         "f:1:64: /logs/metrics_collected/prometheus/cluster_name: expected a string, found "
         "true\n"},
        {PROMETHEUS("\"disable_metric_extraction\": \"yes\""),
         "f:1:77: /logs/metrics_collected/prometheus/disable_metric_extraction: expected a "
         "boolean, found the string 'yes'\n"},
        {PROMETHEUS("\"emf_processor\": null"),
         "f:1:65: /logs/metrics_collected/prometheus/emf_processor: expected an object, found "
         "null\n"},
        {"{\"podgpu\": {\"spool\": 5}}", "f:1:22: /podgpu/spool: expected an object, found 5\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_true(parses(cases[i].text, false, -EINVAL, cases[i].error, ""));
}

static void unknown_keys_are_refused_where_the_agent_s_schema_refuses_them(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"{\"logs\": {\"metrics_collected\": {}, \"force_flush_intervall\": 5}}",
         "f:1:61: /logs/force_flush_intervall: unknown key (did you mean "
         "'force_flush_interval'?)\n"},
        {"{\"logs\": {\"metrics_collected\": {}, \"zzz\": 5}}", "f:1:43: /logs/zzz: unknown key\n"},
        {PROMETHEUS("\"log_stream_name\": \"x\""),
         "f:1:67: /logs/metrics_collected/prometheus/log_stream_name: unknown key (did you mean "
         "'log_group_name'?)\n"},
        {EMF("\"metric_namspace\": \"x\""),
         "f:1:85: /logs/metrics_collected/prometheus/emf_processor/metric_namspace: unknown key "
         "(did you mean 'metric_namespace'?)\n"},
        {DECLARATION("\"source_labels\": [\"a\"], \"metric_selectors\": [\"a\"], \"dimensions\": "
                     "[[\"a\"]], \"dimension\": [[\"a\"]]"),
         "f:1:177: "
         "/logs/metrics_collected/prometheus/emf_processor/metric_declaration/0/dimension: "
         "unknown key (did you mean 'dimensions'?)\n"},
        {"{\"agent\": {\"credentials\": {\"role\": \"x\"}}}",
         "f:1:36: /agent/credentials/role: unknown key\n"},
        {"{\"logs\": {\"metrics_collected\": {}, \"credentials\": {\"role_arm\": \"x\"}}}",
         "f:1:64: /logs/credentials/role_arm: unknown key (did you mean 'role_arn'?)\n"},
        {PODGPU("\"spol\": {}"), "f:1:21: /podgpu/spol: unknown key (did you mean 'spool'?)\n"},
        {PODGPU("\"spool\": {\"size\": \"1MiB\"}"), "f:1:31: /podgpu/spool/size: unknown key\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_true(parses(cases[i].text, false, -EINVAL, cases[i].error, "") &&
                    parses(cases[i].text, true, -EINVAL, cases[i].error, ""));
}

static void unknown_keys_are_named_as_ignored_where_the_schema_accepts_them(void **state)
{
    struct cw_config *c = parse_good(
        "{\"csm\": {}, \"agent\": {\"zone\": 5, \"quiet\": 7, \"user_agent\": []}, \"metrics\": "
        "{}, "
        "\"traces\": 1, \"opentelemetry\": null, \"logs\": {\"logs_collected\": {\"files\": {}}, "
        "\"metrics_collected\": {\"ecs\": {}, \"otlp\": [], \"kubernetes\": {\"cluster_name\": "
        "\"c\", \"x\": 1}, \"app_signals\": {}, \"application_signals\": {}, \"other\": {}, "
        "\"prometheus\": {\"ecs_service_discovery\": {\"sd_frequency\": \"1m\"}}}}}",
        false);
    assert_string_equal(
        c->ignored,
        "csm, agent.zone, metrics, traces, opentelemetry, logs.logs_collected, "
        "logs.metrics_collected.ecs, logs.metrics_collected.otlp, "
        "logs.metrics_collected.kubernetes, logs.metrics_collected.kubernetes.x, "
        "logs.metrics_collected.app_signals, logs.metrics_collected.application_signals, "
        "logs.metrics_collected.other, "
        "logs.metrics_collected.prometheus.ecs_service_discovery");
    assert_string_equal(c->kubernetes_cluster_name, "c");
    assert_null(c->cluster_name);
    cw_config_unref(c);
}

static void names_of_ignored_keys_end_at_their_ceiling(void **state)
{
    struct buf text = BUF_INIT(1u << 20);
    buf_add_str(&text, "{\"csm\": 1");
    for (unsigned i = 0; i < 1000; i++)
        buf_add_fmt(&text, ", \"unknown-%u\": 1", i);
    buf_add_str(&text, "}");
    struct cw_config *c = parse_good(buf_cstr(&text), false);
    size_t length = strlen(c->ignored);
    assert_true(length <= LIMIT_CW_IGNORED_BYTES && length > LIMIT_CW_IGNORED_BYTES - 32);
    assert_true(sv_starts_with(sv_from(c->ignored), SV("csm, unknown-0, unknown-1, ")));
    cw_config_unref(c);
    buf_deinit(&text);
}

static void long_and_foreign_names_are_shown_cut_and_on_one_line(void **state)
{
    char text[8400], error[8400];
    (void)snprintf(text, sizeof(text), "{\"podgpu\": {\"%s\": 1}}", letters(300));
    (void)snprintf(error, sizeof(error), "f:1:317: /podgpu/%s: unknown key\n", letters(64));
    assert_true(parses(text, false, -EINVAL, error, ""));
    assert_true(parses("{\"podgpu\": {\"a\\nb\": 1}}", false, -EINVAL,
                       "f:1:21: /podgpu/a b: unknown key\n", ""));
    (void)snprintf(text, sizeof(text), "{\"podgpu\": {\"scope\": \"%s\"}}", letters(300));
    (void)snprintf(error, sizeof(error),
                   "f:1:22: /podgpu/scope: expected \"cluster\" or \"node\", found the string "
                   "'%s'\n",
                   letters(64));
    assert_true(parses(text, false, -EINVAL, error, ""));
}

static void a_variable_s_text_has_a_ceiling(void **state)
{
    struct cw_text one = {SV(PROMETHEUS("\"prometheus_config_path\": \"env:P\"")), "f"};
    for (size_t more = 0; more < 2; more++) {
        struct buf variable = BUF_INIT(2 * LIMIT_CONFIG_FILE_BYTES);
        buf_add_str(&variable, "P=");
        while (variable.len < LIMIT_CONFIG_FILE_BYTES + 2 + more)
            buf_add_char(&variable, '#');
        char *environment[] = {(char *)(uintptr_t)buf_cstr(&variable), NULL};
        struct cw_sources from = {.environment = environment};
        struct parsed p = parse_texts(&one, 1, &from);
        assert_int_equal(p.result, more ? -EINVAL : 0);
        assert_sv_equals(buf_sv(&p.errors),
                         more
                             ? "f:1:74: /logs/metrics_collected/prometheus/prometheus_config_path: "
                               "the environment variable 'P' has more than 1048576 bytes\n"
                             : "");
        parsed_deinit(&p);
        buf_deinit(&variable);
    }
}

static void a_slip_where_unknown_keys_are_accepted_is_a_warning(void **state)
{
    assert_true(parses("{\"agent\": {\"regio\": \"x\"}, \"log\": {}}", false, 0, "",
                       "f:1:21: /agent/regio: unknown key, without effect (did you mean "
                       "'region'?)\n"
                       "f:1:34: /log: unknown key, without effect (did you mean 'logs'?)\n"));
}

static void logs_needs_something_to_collect(void **state)
{
    const char *error = "f:1:10: /logs: expected metrics_collected or logs_collected in it\n";
    assert_true(parses("{\"logs\": {}}", false, -EINVAL, error, ""));
    assert_true(parses("{\"logs\": {\"metrics_collected\": {}}}", false, 0, "", ""));
    assert_true(parses("{\"logs\": {\"logs_collected\": {}}}", false, 0, "", ""));
    struct cw_config *c = parse_good("{}", false);
    assert_false(c->has_prometheus);
    assert_null(c->prometheus_path);
    cw_config_unref(c);
}

static void every_problem_is_told_at_once(void **state)
{
    assert_true(parses("{\n"
                       " \"agent\": {\"region\": \"\", \"debug\": 0},\n"
                       " \"logs\": {\n"
                       "  \"force_flush_interval\": -1,\n"
                       "  \"metrics_collected\": {\"prometheus\": {\"emf_processor\": {\n"
                       "   \"metric_namespace\": \"AWS/x\",\n"
                       "   \"metric_declaration\": [\n"
                       "    {\"source_labels\": [\"a\"], \"metric_selectors\": [\"(\"]}]}}}},\n"
                       " \"podgpu\": {\"scope\": \"pod\"}}\n",
                       false, -EINVAL,
                       "f:2:22: /agent/region: expected 1 to 64 characters, found 0\n"
                       "f:2:35: /agent/debug: expected a boolean, found 0\n"
                       "f:4:27: /logs/force_flush_interval: expected a whole number from 1 to "
                       "172800, found -1\n"
                       "f:6:24: /logs/metrics_collected/prometheus/emf_processor/metric_namespace: "
                       "expected a namespace that begins with neither AWS/ nor a colon, found the "
                       "string 'AWS/x'\n"
                       "f:8:51: "
                       "/logs/metrics_collected/prometheus/emf_processor/metric_declaration/0/"
                       "metric_selectors/0: regular expression: missing ): (\n"
                       "f:9:22: /podgpu/scope: expected \"cluster\" or \"node\", found the string "
                       "'pod'\n",
                       ""));
}

static void what_is_not_json_is_refused_with_its_place(void **state)
{
    static const struct {
        const char *text, *error;
    } cases[] = {
        {"", "f:1:1: /: not JSON: '[' or '{' expected near end of file\n"},
        {"{\"agent\": }", "f:1:11: /: not JSON: unexpected token near '}'\n"},
        {"{\"a\": 1,\n \"a\": 2}", "f:2:2: /: not JSON: duplicate object key near '\"a\"'\n"},
        {"{} x", "f:1:4: /: not JSON: end of file expected near 'x'\n"},
        {"\xef\xbb\xbf{}", "f:1:1: /: not JSON: a byte order mark cannot stand here\n"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_true(parses(cases[i].text, false, -EINVAL, cases[i].error, ""));
}

static void texts_are_capped_together(void **state)
{
    struct buf text = BUF_INIT(LIMIT_CW_TEXT_BYTES + 16);
    while (text.len < LIMIT_CW_TEXT_BYTES - 2)
        buf_add_char(&text, ' ');
    buf_add_str(&text, "{}");
    struct cw_text texts[] = {{buf_sv(&text), "f"}, {SV(" "), "g"}};
    struct cw_sources from = {0};
    struct parsed p = parse_texts(texts, 1, &from);
    assert_int_equal(p.result, 0);
    parsed_deinit(&p);
    p = parse_texts(texts, 2, &from);
    assert_int_equal(p.result, -EINVAL);
    assert_sv_equals(buf_sv(&p.errors), "g: /: more than 4194304 bytes of configuration\n");
    parsed_deinit(&p);
    buf_deinit(&text);
}

static void as_many_files_are_read_as_are_allowed_and_no_more(void **state)
{
    struct cw_text texts[LIMIT_CW_FILES + 1];
    struct cw_sources from = {0};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        texts[i] = (struct cw_text){SV("{\"agent\": {\"region\": \"us-east-1\"}}"), "f"};
    struct parsed p = parse_texts(texts, LIMIT_CW_FILES, &from);
    assert_int_equal(p.result, 0);
    parsed_deinit(&p);
    p = parse_texts(texts, LIMIT_CW_FILES + 1, &from);
    assert_int_equal(p.result, -EINVAL);
    assert_sv_equals(buf_sv(&p.errors), "f: /: more than 64 files\n");
    parsed_deinit(&p);
    p = parse_texts(texts, 0, &from);
    assert_int_equal(p.result, -EINVAL);
    assert_sv_equals(buf_sv(&p.errors), "configuration: /: no file\n");
    parsed_deinit(&p);
}

// --- Values ---

static void a_region_is_part_of_a_host_name(void **state)
{
    struct cw_config *c = parse_good("{\"agent\": {\"region\": \"cn-northwest-1\"}}", false);
    assert_string_equal(c->region, "cn-northwest-1");
    cw_config_unref(c);
    static const char *const bad[] = {"us east", "evil.example/", "us-east-1.", "\\u20ac"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char text[128];
        (void)snprintf(text, sizeof(text), "{\"agent\": {\"region\": \"%s\"}}", bad[i]);
        struct parsed p = parse_one(text, false);
        assert_int_equal(p.result, -EINVAL);
        assert_true(sv_starts_with(
            buf_sv(&p.errors),
            SV("f:1:22: /agent/region: expected the name of a region as in \"us-east-1\"")));
        parsed_deinit(&p);
    }
}

static void the_role_of_logs_goes_before_the_agent_s(void **state)
{
    static const struct {
        const char *text, *role;
    } cases[] = {
        {"{\"agent\": {\"credentials\": {\"role_arn\": \"arn:aws:iam::1:role/agent\"}}}",
         "arn:aws:iam::1:role/agent"},
        {"{\"agent\": {\"credentials\": {\"role_arn\": \"arn:aws:iam::1:role/agent\"}}, \"logs\": "
         "{\"logs_collected\": {}, \"credentials\": {\"role_arn\": "
         "\"arn:aws:iam::1:role/logs\"}}}",
         "arn:aws:iam::1:role/logs"},
        {"{\"logs\": {\"logs_collected\": {}, \"credentials\": {}}}", NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cw_config *c = parse_good(cases[i].text, false);
        if (cases[i].role)
            assert_string_equal(c->role_arn, cases[i].role);
        else
            assert_null(c->role_arn);
        cw_config_unref(c);
    }
}

static void an_endpoint_is_a_url_and_never_shown(void **state)
{
    static const struct {
        const char *given, *read, *error;
    } cases[] = {
        {"https://fake_endpoint", "https://fake_endpoint", NULL},
        {"http://127.0.0.1:4566", "http://127.0.0.1:4566", NULL},
        {"HTTPS://[::1]:8443/path", "HTTPS://[::1]:8443/path", NULL},
        {"vpce-1.logs.us-east-1.vpce.amazonaws.com",
         "https://vpce-1.logs.us-east-1.vpce.amazonaws.com", NULL},
        {"localhost:4566", "https://localhost:4566", NULL},
        {"https://user:secret@host", NULL, "expected a URL without user and password"},
        {"secret@host", NULL, "expected a URL without user and password"},
        {"http://a@b", NULL, "expected a URL without user and password"},
        {"ftp://secret", NULL, "expected an http or https URL"},
        {"https://", NULL, "expected a URL with a host"},
        {"https://:443", NULL, "expected a URL with a host"},
        {"https:///x", NULL, "expected a URL with a host"},
        {"https://h?x=secret", NULL, "expected a URL without query and fragment"},
        {"https://h/a#secret", NULL, "expected a URL without query and fragment"},
        {"https://h secret", NULL,
         "expected a URL without blanks, control characters and non-ASCII letters"},
        {"https://\xc3\xa9", NULL,
         "expected a URL without blanks, control characters and non-ASCII letters"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[256], error[256] = "";
        (void)snprintf(text, sizeof(text),
                       "{\"logs\": {\"logs_collected\": {}, \"endpoint_override\": \"%s\"}}",
                       cases[i].given);
        if (cases[i].error)
            (void)snprintf(error, sizeof(error), "f:1:54: /logs/endpoint_override: %s\n",
                           cases[i].error);
        assert_true(parses(text, false, cases[i].error ? -EINVAL : 0, error, ""));
        struct cw_config *c = cases[i].error ? NULL : parse_good(text, false);
        if (c)
            assert_string_equal(c->endpoint_override, cases[i].read);
        cw_config_unref(c);
    }
}

static void a_log_group_holds_what_cloudwatch_allows_and_placeholders(void **state)
{
    static const struct {
        const char *name;
        bool good;
    } cases[] = {
        {"/test/log/group", true},
        {"a-b_c.d#e/F9", true},
        {"x-{ClusterName}-{JobName}", true},
        {"{Foo}", true},
        {"{}", true},
        {"a b", false},
        {"a{b", false},
        {"a}b", false},
        {"{a{b}}", false},
        {"{a b}", false},
        {"a:b", false},
        {"a*", false},
        {"\xc3\xa9", false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[256];
        (void)snprintf(text, sizeof(text), PROMETHEUS("\"log_group_name\": \"%s\""), cases[i].name);
        struct parsed p = parse_one(text, false);
        assert_int_equal(p.result, cases[i].good ? 0 : -EINVAL);
        if (cases[i].good)
            assert_string_equal(p.config->log_group, cases[i].name);
        parsed_deinit(&p);
    }
}

static void empty_names_count_as_not_given(void **state)
{
    struct cw_config *c = parse_good(
        "{\"agent\": {\"hostname\": \"\"}, \"logs\": {\"metrics_collected\": {\"prometheus\": "
        "{\"cluster_name\": \"\", \"log_group_name\": \"\"}}}}",
        false);
    assert_null(c->hostname);
    assert_null(c->cluster_name);
    assert_null(c->log_group);
    cw_config_unref(c);
}

static void prometheus_yaml_is_named_by_path_file_or_variable(void **state)
{
    static const struct {
        const char *given, *path, *text;
    } good[] = {
        {"/a/b.yaml", "/a/b.yaml", NULL},
        {"/a:b", "/a:b", NULL},
        {"file:/a/b.yaml", "/a/b.yaml", NULL},
        {"file:///a/b.yaml", "/a/b.yaml", NULL},
        {"env:PROMETHEUS_CONFIG_CONTENT", NULL, "scrape_configs: []\n"},
    };
    static const struct {
        const char *given, *error;
    } bad[] = {
        {"", "expected an absolute path, file:PATH or env:NAME, found the string ''"},
        {"a.yaml", "expected an absolute path, file:PATH or env:NAME, found the string 'a.yaml'"},
        {"file:a", "expected an absolute path, file:PATH or env:NAME, found the string 'file:a'"},
        {"http://h/x",
         "expected an absolute path, file:PATH or env:NAME, found the string 'http://h/x'"},
        {"ssm:x", "expected an absolute path, file:PATH or env:NAME, found the string 'ssm:x'"},
        {"env:", "the environment variable '' is not set"},
        {"env:NOPE", "the environment variable 'NOPE' is not set"},
        {"env:PROMETHEUS", "the environment variable 'PROMETHEUS' is not set"},
        {"env:EMPTY", "the environment variable 'EMPTY' is empty"},
    };
    char *environment[] = {"EMPTY=", "PROMETHEUS_CONFIG_CONTENT=scrape_configs: []\n", NULL};
    struct cw_sources from = {.environment = environment};
    char text[256], error[256];
    struct cw_text one = {.file = "f"};
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        (void)snprintf(text, sizeof(text), PROMETHEUS("\"prometheus_config_path\": \"%s\""),
                       good[i].given);
        one.text = sv_from(text);
        struct parsed p = parse_texts(&one, 1, &from);
        assert_int_equal(p.result, 0);
        if (good[i].path) {
            assert_string_equal(p.config->prometheus_path, good[i].path);
            assert_null(p.config->prometheus_text);
        } else {
            assert_null(p.config->prometheus_path);
            assert_string_equal(p.config->prometheus_text, good[i].text);
            assert_string_equal(p.config->prometheus_text_name, good[i].given);
        }
        parsed_deinit(&p);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        (void)snprintf(text, sizeof(text), PROMETHEUS("\"prometheus_config_path\": \"%s\""),
                       bad[i].given);
        (void)snprintf(error, sizeof(error),
                       "f:1:74: /logs/metrics_collected/prometheus/prometheus_config_path: %s\n",
                       bad[i].error);
        one.text = sv_from(text);
        struct parsed p = parse_texts(&one, 1, &from);
        assert_int_equal(p.result, -EINVAL);
        assert_sv_equals(buf_sv(&p.errors), error);
        parsed_deinit(&p);
    }
}

static void without_a_path_it_is_the_agent_s_under_the_root(void **state)
{
    struct cw_text one = {SV(PROMETHEUS("")), "f"};
    struct cw_sources from = {.root = "/test"};
    struct parsed p = parse_texts(&one, 1, &from);
    assert_string_equal(p.config->prometheus_path, "/test/etc/cwagentconfig/prometheus.yaml");
    parsed_deinit(&p);
    struct cw_config *c = parse_good(PROMETHEUS(""), false);
    assert_string_equal(c->prometheus_path, "/etc/cwagentconfig/prometheus.yaml");
    cw_config_unref(c);
}

static void the_environment_tells_a_container_and_what_follows_from_it(void **state)
{
    static const struct {
        char *environment[3];
        bool container, ecs, debug, dualstack;
        const char *metric_namespace;
    } cases[] = {
        {{NULL}, false, false, false, false, "CWAgent/Prometheus"},
        {{"RUN_IN_CONTAINER=True"}, true, false, false, false, "ContainerInsights/Prometheus"},
        {{"RUN_IN_CONTAINER=true"}, false, false, false, false, "CWAgent/Prometheus"},
        {{"KUBERNETES_SERVICE_HOST=10.0.0.1"},
         true,
         false,
         false,
         false,
         "ContainerInsights/Prometheus"},
        {{"ECS_CONTAINER_METADATA_URI=x"},
         true,
         true,
         false,
         false,
         "ECS/ContainerInsights/Prometheus"},
        {{"ECS_CONTAINER_METADATA_URI_V4=x"},
         true,
         true,
         false,
         false,
         "ECS/ContainerInsights/Prometheus"},
        {{"ECS_CONTAINER_METADATA_URI_V4=x", "KUBERNETES_SERVICE_HOST=x"},
         true,
         false,
         false,
         false,
         "ContainerInsights/Prometheus"},
        {{"DEBUG=", "CWAGENT_LOG_LEVEL=INFO"}, false, false, false, false, "CWAgent/Prometheus"},
        {{"DEBUG=1"}, false, false, true, false, "CWAgent/Prometheus"},
        {{"CWAGENT_LOG_LEVEL=DEBUG"}, false, false, true, false, "CWAgent/Prometheus"},
        {{"AWS_USE_DUALSTACK_ENDPOINT=true"}, false, false, false, true, "CWAgent/Prometheus"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct cw_text one = {SV("{}"), "f"};
        struct cw_sources from = {.environment = cases[i].environment};
        struct parsed p = parse_texts(&one, 1, &from);
        assert_int_equal(p.result, 0);
        assert_int_equal(p.config->in_container, cases[i].container);
        assert_int_equal(p.config->in_ecs, cases[i].ecs);
        assert_int_equal(p.config->add_host, !cases[i].container);
        assert_int_equal(p.config->debug, cases[i].debug);
        assert_int_equal(p.config->use_dualstack, cases[i].dualstack);
        assert_string_equal(p.config->metric_namespace, cases[i].metric_namespace);
        parsed_deinit(&p);
    }
}

static void keys_go_before_the_environment(void **state)
{
    struct cw_text one = {
        SV("{\"agent\": {\"omit_hostname\": false, \"debug\": false, \"hostname\": "
           "\"h\", \"use_dualstack_endpoint\": false}, \"logs\": "
           "{\"force_flush_interval\": 30, \"metrics_collected\": {}}}"),
        "f"};
    char *environment[] = {"RUN_IN_CONTAINER=True", "DEBUG=1", "AWS_USE_DUALSTACK_ENDPOINT=true",
                           NULL};
    struct cw_sources from = {.environment = environment};
    struct parsed p = parse_texts(&one, 1, &from);
    assert_int_equal(p.result, 0);
    assert_true(p.config->add_host && p.config->in_container);
    assert_false(p.config->debug || p.config->use_dualstack);
    assert_string_equal(p.config->hostname, "h");
    assert_int_equal(p.config->flush_ns, 30 * NS_PER_S);
    parsed_deinit(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_post_s_file_is_read_to_its_last_selector),
        cmocka_unit_test(without_keys_defaults_count_and_compat_has_the_agent_s),
        cmocka_unit_test(a_configuration_lives_until_its_last_reference_is_gone),
        cmocka_unit_test(lengths_are_held_to_the_schema_s_bounds),
        cmocka_unit_test(lengths_are_counted_in_characters),
        cmocka_unit_test(numbers_are_held_to_the_schema_s_bounds),
        cmocka_unit_test(each_key_wants_its_type),
        cmocka_unit_test(unknown_keys_are_refused_where_the_agent_s_schema_refuses_them),
        cmocka_unit_test(unknown_keys_are_named_as_ignored_where_the_schema_accepts_them),
        cmocka_unit_test(names_of_ignored_keys_end_at_their_ceiling),
        cmocka_unit_test(long_and_foreign_names_are_shown_cut_and_on_one_line),
        cmocka_unit_test(a_variable_s_text_has_a_ceiling),
        cmocka_unit_test(a_slip_where_unknown_keys_are_accepted_is_a_warning),
        cmocka_unit_test(logs_needs_something_to_collect),
        cmocka_unit_test(every_problem_is_told_at_once),
        cmocka_unit_test(what_is_not_json_is_refused_with_its_place),
        cmocka_unit_test(texts_are_capped_together),
        cmocka_unit_test(as_many_files_are_read_as_are_allowed_and_no_more),
        cmocka_unit_test(a_region_is_part_of_a_host_name),
        cmocka_unit_test(the_role_of_logs_goes_before_the_agent_s),
        cmocka_unit_test(an_endpoint_is_a_url_and_never_shown),
        cmocka_unit_test(a_log_group_holds_what_cloudwatch_allows_and_placeholders),
        cmocka_unit_test(empty_names_count_as_not_given),
        cmocka_unit_test(prometheus_yaml_is_named_by_path_file_or_variable),
        cmocka_unit_test(without_a_path_it_is_the_agent_s_under_the_root),
        cmocka_unit_test(the_environment_tells_a_container_and_what_follows_from_it),
        cmocka_unit_test(keys_go_before_the_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
