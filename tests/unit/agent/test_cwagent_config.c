// SPDX-License-Identifier: Apache-2.0
#include "agent/cwagent_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

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
        assert_int_equal(c->output.kind, CW_OUTPUT_CLOUDWATCH);
        assert_false(c->has_output);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_post_s_file_is_read_to_its_last_selector),
        cmocka_unit_test(without_keys_defaults_count_and_compat_has_the_agent_s),
        cmocka_unit_test(a_configuration_lives_until_its_last_reference_is_gone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
