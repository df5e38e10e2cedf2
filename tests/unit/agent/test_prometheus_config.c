// SPDX-License-Identifier: Apache-2.0
#include "agent/prometheus_config.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/limits.h"

#define JOB "scrape_configs: [{job_name: a, "
#define PATH "/etc/podgpu/prometheus.yaml"

static struct prom_config *parse_good(const char *text)
{
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(100000);
    if (prom_config_parse(sv_from(text), PATH, &c, &errors) != 0)
        fail_msg("%s\n%s", text, buf_cstr(&errors));
    assert_int_equal(errors.len, 0);
    buf_deinit(&errors);
    return c;
}

// Whether it is refused with those lines; says so if not.
static bool is_bad(const char *text, const char *expected)
{
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(100000);
    bool refused = prom_config_parse(sv_from(text), "f", &c, &errors) == -EINVAL && !c;
    bool good = refused && sv_equals(buf_sv(&errors), sv_from(expected));
    if (!good)
        print_error("%s\nsays\n%sexpected\n%s", text, buf_cstr(&errors), expected);
    prom_config_unref(c);
    buf_deinit(&errors);
    return good;
}

// --- Durations ---

static void durations_are_read_as_prometheus_does(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } good[] = {
        {"0", 0},
        {"0s", 0},
        {"1ms", 1},
        {"15s", 15000},
        {"1m", 60000},
        {"1m30s", 90000},
        {"1h", 3600000},
        {"1d", 86400000},
        {"1w", 604800000},
        {"1y", UINT64_C(31536000000)},
        {"1h30m15s500ms", 5415500},
        {"1y1w1d1h1m1s1ms", UINT64_C(32230861001)},
        {"0001s", 1000},
        {"90s", 90000},
        {"292y", UINT64_C(9208512000000)},
    };
    static const char *const bad[] = {
        "",          " ",
        "1",         "s",
        "60",        "1.5s",
        "-1s",       "+1s",
        " 1s",       "1s ",
        "1 s",       "1S",
        "1m1h",      "1s1s",
        "1ms1s",     "1us",
        "1ns",       "1h1",
        "1hm",       "00",
        "293y",      "99999999999999999999s",
        "1sx",       "1m 30s",
        "\xc2\xb5s",
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint64_t ns = 1;
        assert_int_equal(prom_parse_duration(sv_from(good[i].text), &ns), 0);
        assert_true(ns == good[i].ms * NS_PER_MS);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint64_t ns = 7;
        if (prom_parse_duration(sv_from(bad[i]), &ns) != -EINVAL)
            fail_msg("accepted: '%s'", bad[i]);
        assert_true(ns == 7);
    }
}

// --- Defaults and inheritance ---

static void an_empty_file_has_no_jobs(void **state)
{
    static const char *const cases[] = {"",
                                        "{}",
                                        "# nothing\n",
                                        "global:\n",
                                        "scrape_configs:\n",
                                        "scrape_configs: []",
                                        "null",
                                        "scrape_config_files: []",
                                        "global: {scrape_interval: 5s}"};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct prom_config *c = parse_good(cases[i]);
        assert_int_equal(c->job_count, 0);
        assert_string_equal(c->ignored, "");
        assert_string_equal(c->file, PATH);
        prom_config_unref(c);
    }
}

static void a_job_has_prometheus_defaults(void **state)
{
    struct prom_config *c = parse_good("scrape_configs:\n- job_name: a\n");
    const struct prom_job *j = &c->jobs[0];
    assert_int_equal(c->job_count, 1);
    assert_string_equal(j->name, "a");
    assert_int_equal(j->line, 2);
    assert_true(j->interval_ns == 60 * NS_PER_S && j->timeout_ns == 10 * NS_PER_S);
    assert_string_equal(j->metrics_path, "/metrics");
    assert_string_equal(j->scheme, "http");
    assert_string_equal(j->fallback_protocol, "PrometheusText0.0.4");
    assert_int_equal(j->protocol_count, 0);
    assert_true(!j->honor_labels && j->honor_timestamps && j->enable_compression &&
                !j->track_timestamps_staleness);
    assert_false(j->legacy_names);
    assert_true(!j->sample_limit && !j->label_limit && !j->label_name_length_limit &&
                !j->label_value_length_limit && !j->target_limit && !j->body_size_limit &&
                !j->keep_dropped_targets);
    assert_true(j->http.follow_redirects && !j->http.user && !j->http.auth_type &&
                !j->http.proxy_url);
    assert_int_equal(relabel_count(j->relabel), 0);
    assert_int_equal(relabel_count(j->metric_relabel), 0);
    assert_true(!j->static_count && !j->file_sd_count && !j->http_sd_count && !j->kube_sd_count);
    prom_config_unref(c);
}

static void times_come_from_the_job_then_global_then_default(void **state)
{
    static const struct {
        const char *text;
        uint64_t interval_s, timeout_s;
    } cases[] = {
        {"global: {scrape_interval: 30s, scrape_timeout: 20s}\n" JOB "}]", 30, 20},
        {"global: {scrape_interval: 5s}\n" JOB "}]", 5,
         5}, // the default timeout is cut to the interval
        {"global: {scrape_interval: 30s, scrape_timeout: 20s}\n" JOB "scrape_interval: 15s}]", 15,
         15},
        {"global: {scrape_interval: 30s, scrape_timeout: 20s}\n" JOB "scrape_interval: 1m}]", 60,
         20},
        {"global: {scrape_interval: 30s, scrape_timeout: 20s}\n" JOB "scrape_timeout: 25s}]", 30,
         25},
        {JOB "scrape_interval: 1s}]", 1, 1},
        {JOB "scrape_interval: 0s, scrape_timeout: 0s}]", 60, 10},
        {JOB "scrape_interval: , scrape_timeout: }]", 60, 10},
        {"scrape_configs: [{job_name: a}]\nglobal: {scrape_interval: 30s}", 30, 10}, // in any order
        {"global: {scrape_interval: 0, scrape_timeout: 0}\n" JOB "}]", 60, 10},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct prom_config *c = parse_good(cases[i].text);
        assert_true(c->jobs[0].interval_ns == cases[i].interval_s * NS_PER_S);
        assert_true(c->jobs[0].timeout_ns == cases[i].timeout_s * NS_PER_S);
        prom_config_unref(c);
    }
}

static void limits_and_names_are_inherited_unless_set(void **state)
{
    struct prom_config *c =
        parse_good("global: {sample_limit: 1, label_limit: 2, label_name_length_limit: 3, "
                   "label_value_length_limit: 4,\n"
                   "  target_limit: 5, body_size_limit: 6KB, keep_dropped_targets: 7, "
                   "metric_name_validation_scheme: legacy,\n"
                   "  scrape_protocols: [PrometheusText0.0.4]}\n"
                   "scrape_configs:\n"
                   "- job_name: a\n"
                   "- {job_name: b, sample_limit: 10, label_limit: 20, label_name_length_limit: "
                   "30, label_value_length_limit: 40,\n"
                   "   target_limit: 50, body_size_limit: 60KB, keep_dropped_targets: 70, "
                   "metric_name_validation_scheme: utf8,\n"
                   "   scrape_protocols: [OpenMetricsText1.0.0, PrometheusText1.0.0]}\n"
                   "- {job_name: c, sample_limit: 0, body_size_limit: 0}\n");
    const struct prom_job *a = &c->jobs[0], *b = &c->jobs[1], *last = &c->jobs[2];
    assert_int_equal(a->sample_limit, 1);
    assert_int_equal(a->label_limit, 2);
    assert_int_equal(a->label_name_length_limit, 3);
    assert_int_equal(a->label_value_length_limit, 4);
    assert_int_equal(a->target_limit, 5);
    assert_int_equal(a->body_size_limit, 6144);
    assert_int_equal(a->keep_dropped_targets, 7);
    assert_true(a->legacy_names);
    assert_int_equal(a->protocol_count, 1);
    assert_string_equal(a->protocols[0], "PrometheusText0.0.4");
    assert_int_equal(b->sample_limit, 10);
    assert_int_equal(b->label_limit, 20);
    assert_int_equal(b->label_name_length_limit, 30);
    assert_int_equal(b->label_value_length_limit, 40);
    assert_int_equal(b->target_limit, 50);
    assert_int_equal(b->body_size_limit, 61440);
    assert_int_equal(b->keep_dropped_targets, 70);
    assert_false(b->legacy_names);
    assert_int_equal(b->protocol_count, 2);
    assert_string_equal(b->protocols[1], "PrometheusText1.0.0");
    assert_int_equal(last->sample_limit, 1);
    assert_int_equal(last->body_size_limit, 6144);
    prom_config_unref(c);
}

static void sizes_have_binary_units(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"0", 0},
        {"10B", 10},
        {"1KB", 1024},
        {"1KiB", 1024},
        {"10MB", 10485760},
        {"10MiB", 10485760},
        {"1.5MB", 1572864},
        {"1MB512KB", 1572864},
        {"2GB", UINT64_C(2147483648)},
        {"1TB", UINT64_C(1) << 40},
        {"1PB", UINT64_C(1) << 50},
        {"1EB", UINT64_C(1) << 60},
        {".5KB", 512},
        {"", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[200];
        (void)snprintf(text, sizeof(text), JOB "body_size_limit: %s}]", cases[i].text);
        struct prom_config *c = parse_good(text);
        assert_true(c->jobs[0].body_size_limit == cases[i].bytes);
        prom_config_unref(c);
    }
    static const char *const bad[] = {"10", "10K",  "10Ki", "10kb",   "-10KB", "x",
                                      "KB", "1KB1", "9EB",  "1..5KB", "1 KB"};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        char text[200], message[200];
        (void)snprintf(text, sizeof(text), JOB "body_size_limit: %s}]", bad[i]);
        (void)snprintf(message, sizeof(message),
                       "f:1:49: body_size_limit: expected a size as in 512KB or 10MB, found '%s'\n",
                       bad[i]);
        assert_true(is_bad(text, message));
    }
}

static void values_are_read_as_gos_yaml_does(void **state)
{
    struct prom_config *c = parse_good(
        JOB "sample_limit: 0x10, label_limit: 1_000, target_limit: 1e3, honor_labels: yes,\n"
            "honor_timestamps: n, enable_compression: Off, metrics_path: 5}]");
    assert_int_equal(c->jobs[0].sample_limit, 16);
    assert_int_equal(c->jobs[0].label_limit, 1000);
    assert_int_equal(c->jobs[0].target_limit, 1000);
    assert_true(c->jobs[0].honor_labels && !c->jobs[0].honor_timestamps &&
                !c->jobs[0].enable_compression);
    assert_string_equal(c->jobs[0].metrics_path, "5");
    prom_config_unref(c);
}

// --- Every section ---

static void a_whole_job_is_read(void **state)
{
    struct prom_config *c =
        parse_good("scrape_configs:\n"
                   "- job_name: all\n"
                   "  scrape_interval: 15s\n"
                   "  scrape_timeout: 5s\n"
                   "  metrics_path: /probe\n"
                   "  scheme: https\n"
                   "  params:\n"
                   "    module: [http, icmp]\n"
                   "    'collect[]': ['a b']\n"
                   "    none:\n"
                   "  honor_labels: true\n"
                   "  honor_timestamps: false\n"
                   "  track_timestamps_staleness: true\n"
                   "  enable_compression: false\n"
                   "  scrape_fallback_protocol: OpenMetricsText1.0.0\n"
                   "  always_scrape_classic_histograms: true\n"
                   "  static_configs:\n"
                   "  - targets: [h1, 'h2:9400']\n"
                   "    labels: {a: b, c: 5, e: }\n"
                   "  - targets: ['[::1]:80']\n"
                   "  relabel_configs: [{target_label: x, replacement: y}]\n"
                   "  metric_relabel_configs:\n"
                   "  - {action: drop, regex: go_.*, source_labels: [__name__]}\n"
                   "  - {action: labeldrop, regex: uuid}\n");
    const struct prom_job *j = &c->jobs[0];
    assert_true(j->interval_ns == 15 * NS_PER_S && j->timeout_ns == 5 * NS_PER_S);
    assert_string_equal(j->metrics_path, "/probe");
    assert_string_equal(j->scheme, "https");
    assert_int_equal(j->param_count, 3);
    assert_string_equal(j->params[0].name, "module");
    assert_string_equal(j->params[0].value, "http");
    assert_string_equal(j->params[1].name, "module");
    assert_string_equal(j->params[1].value, "icmp");
    assert_string_equal(j->params[2].name, "collect[]");
    assert_string_equal(j->params[2].value, "a b");
    assert_true(j->honor_labels && !j->honor_timestamps && !j->enable_compression &&
                j->track_timestamps_staleness);
    assert_string_equal(j->fallback_protocol, "OpenMetricsText1.0.0");
    assert_int_equal(j->static_count, 2);
    assert_int_equal(j->static_groups[0].target_count, 2);
    assert_string_equal(j->static_groups[0].targets[1], "h2:9400");
    assert_int_equal(j->static_groups[0].label_count, 3);
    assert_string_equal(j->static_groups[0].labels[1].name, "c");
    assert_string_equal(j->static_groups[0].labels[1].value, "5");
    assert_string_equal(j->static_groups[0].labels[2].value, "");
    assert_int_equal(j->static_groups[0].line, 18);
    assert_string_equal(j->static_groups[1].targets[0], "[::1]:80");
    assert_int_equal(relabel_count(j->relabel), 1);
    assert_int_equal(relabel_count(j->metric_relabel), 2);
    prom_config_unref(c);
}

static void http_client_options_are_read(void **state)
{
    struct prom_config *c = parse_good(
        "scrape_configs:\n"
        "- {job_name: a, basic_auth: {username: u, password: p}, follow_redirects: false, "
        "enable_http2: false}\n"
        "- {job_name: b, basic_auth: {username_file: u.txt, password_file: /abs/p.txt}}\n"
        "- {job_name: c, authorization: {credentials: secret}}\n"
        "- {job_name: d, authorization: {type: ' Token ', credentials_file: t}}\n"
        "- {job_name: e, bearer_token: tok}\n"
        "- {job_name: f, bearer_token_file: tok/file}\n"
        "- job_name: g\n"
        "  tls_config: {ca_file: ca.pem, cert_file: c.pem, key_file: /k.pem, server_name: s,\n"
        "    insecure_skip_verify: true, min_version: TLS10, max_version: TLS13}\n"
        "- {job_name: h, tls_config: {ca: A, cert: B, key: C}}\n"
        "- {job_name: i, proxy_url: 'http://p:3128', no_proxy: '10.0.0.0/8,x'}\n"
        "- {job_name: j, proxy_from_environment: true}\n"
        "- job_name: k\n"
        "  http_headers:\n"
        "    X-One: {values: [a, b], secrets: [s]}\n"
        "    X-Two: {files: [f.txt]}\n"
        "- {job_name: l, basic_auth: , authorization: , tls_config: , http_headers: , proxy_url: "
        "''}\n");
    const struct prom_job *j = c->jobs;
    assert_string_equal(j[0].http.user, "u");
    assert_string_equal(j[0].http.password, "p");
    assert_false(j[0].http.follow_redirects);
    assert_null(j[0].http.auth_type);
    assert_string_equal(j[1].http.user_file, "/etc/podgpu/u.txt");
    assert_string_equal(j[1].http.password_file, "/abs/p.txt");
    assert_string_equal(j[2].http.auth_type, "Bearer");
    assert_string_equal(j[2].http.credentials, "secret");
    assert_string_equal(j[3].http.auth_type, "Token");
    assert_string_equal(j[3].http.credentials_file, "/etc/podgpu/t");
    assert_string_equal(j[4].http.auth_type, "Bearer");
    assert_string_equal(j[4].http.credentials, "tok");
    assert_string_equal(j[5].http.auth_type, "Bearer");
    assert_string_equal(j[5].http.credentials_file, "/etc/podgpu/tok/file");
    assert_string_equal(j[6].http.tls.ca_file, "/etc/podgpu/ca.pem");
    assert_string_equal(j[6].http.tls.cert_file, "/etc/podgpu/c.pem");
    assert_string_equal(j[6].http.tls.key_file, "/k.pem");
    assert_string_equal(j[6].http.tls.server_name, "s");
    assert_true(j[6].http.tls.insecure);
    assert_int_equal(j[6].http.tls.min_version, 10);
    assert_int_equal(j[6].http.tls.max_version, 13);
    assert_string_equal(j[7].http.ca, "A");
    assert_string_equal(j[7].http.key, "C");
    assert_string_equal(j[8].http.proxy_url, "http://p:3128");
    assert_string_equal(j[8].http.no_proxy, "10.0.0.0/8,x");
    assert_true(j[9].http.proxy_from_environment);
    assert_int_equal(j[10].http.header_count, 3);
    assert_string_equal(j[10].http.headers[1].name, "X-One");
    assert_string_equal(j[10].http.headers[1].value, "b");
    assert_string_equal(j[10].http.headers[2].value, "s");
    assert_int_equal(j[10].http.header_file_count, 1);
    assert_string_equal(j[10].http.header_files[0].name, "X-Two");
    assert_string_equal(j[10].http.header_files[0].value, "/etc/podgpu/f.txt");
    assert_true(!j[11].http.user && !j[11].http.auth_type && !j[11].http.proxy_url &&
                !j[11].http.header_count);
    prom_config_unref(c);
}

static void discovery_sections_are_read(void **state)
{
    struct prom_config *c = parse_good(
        "scrape_configs:\n"
        "- job_name: a\n"
        "  file_sd_configs:\n"
        "  - files: [sd/*-*.json, /abs/x.yml]\n"
        "  - {files: [y.YAML], refresh_interval: 30s}\n"
        "  http_sd_configs:\n"
        "  - url: http://sd.example/targets\n"
        "  - {url: 'https://[::1]:8080', refresh_interval: 10s, bearer_token: t, tls_config: "
        "{ca_file: ca}}\n"
        "  kubernetes_sd_configs:\n"
        "  - role: pod\n"
        "  - role: endpoints\n"
        "    namespaces: {own_namespace: true, names: [gpu-operator, default]}\n"
        "    selectors:\n"
        "    - {role: service, label: app=dcgm}\n"
        "    - {role: pod, field: 'spec.nodeName=n1,a!=b,,c==d'}\n"
        "    - {role: node, label: gpu}\n"
        "    attach_metadata: {node: true}\n"
        "  - {role: node, api_server: 'https://k:6443', authorization: {credentials_file: tok}}\n"
        "  - {role: ingress, kubeconfig_file: kube/config}\n"
        "  - {role: service, follow_redirects: true, enable_http2: true}\n"
        "  - {role: endpointslice}\n");
    const struct prom_job *j = &c->jobs[0];
    assert_int_equal(j->file_sd_count, 2);
    assert_int_equal(j->file_sds[0].file_count, 2);
    assert_string_equal(j->file_sds[0].files[0], "/etc/podgpu/sd/*-*.json");
    assert_string_equal(j->file_sds[0].files[1], "/abs/x.yml");
    assert_true(j->file_sds[0].refresh_ns == 300 * NS_PER_S &&
                j->file_sds[1].refresh_ns == 30 * NS_PER_S);
    assert_int_equal(j->http_sd_count, 2);
    assert_string_equal(j->http_sds[0].url, "http://sd.example/targets");
    assert_true(j->http_sds[0].refresh_ns == 60 * NS_PER_S &&
                j->http_sds[1].refresh_ns == 10 * NS_PER_S);
    assert_string_equal(j->http_sds[1].http.credentials, "t");
    assert_string_equal(j->http_sds[1].http.tls.ca_file, "/etc/podgpu/ca");
    assert_true(j->http_sds[1].http.follow_redirects);
    assert_int_equal(j->kube_sd_count, 6);
    const struct prom_kube_sd *k = j->kube_sds;
    assert_int_equal(k[0].role, PROM_KUBE_POD);
    assert_int_equal(k[0].line, 10);
    assert_true(!k[0].own_namespace && !k[0].namespace_count && !k[0].selector_count &&
                !k[0].attach_node);
    assert_int_equal(k[1].role, PROM_KUBE_ENDPOINTS);
    assert_true(k[1].own_namespace && k[1].attach_node);
    assert_int_equal(k[1].namespace_count, 2);
    assert_string_equal(k[1].namespaces[0], "gpu-operator");
    assert_int_equal(k[1].selector_count, 3);
    assert_int_equal(k[1].selectors[0].role, PROM_KUBE_SERVICE);
    assert_string_equal(k[1].selectors[0].label, "app=dcgm");
    assert_null(k[1].selectors[0].field);
    assert_string_equal(k[1].selectors[1].field, "spec.nodeName=n1,a!=b,,c==d");
    assert_string_equal(k[2].api_server, "https://k:6443");
    assert_string_equal(k[2].http.credentials_file, "/etc/podgpu/tok");
    assert_string_equal(k[3].kubeconfig_file, "/etc/podgpu/kube/config");
    assert_int_equal(k[4].role, PROM_KUBE_SERVICE);
    assert_int_equal(k[5].role, PROM_KUBE_ENDPOINTSLICE);
    prom_config_unref(c);
}

static void what_the_agent_has_no_use_for_is_named_once(void **state)
{
    struct prom_config *c = parse_good(
        "rule_files: [x]\n"
        "alerting: {anything: [goes]}\n"
        "remote_read:\n"
        "remote_write: [{url: x}]\n"
        "runtime: {gogc: 50}\n"
        "scrape_config_files: [x.yml]\n"
        "global: {evaluation_interval: 5s, external_labels: {a: b, c: }}\n"
        "scrape_configs:\n"
        "- {job_name: a, consul_sd_configs: [{x: y}], dns_sd_configs: []}\n"
        "- {job_name: b, consul_sd_configs: [{}], ec2_sd_configs: }\n"
        "- job_name: c\n"
        "  oauth2: {client_id: i, client_secret: s, token_url: 'http://t', scopes: [x]}\n"
        "  proxy_url: http://p\n"
        "  proxy_connect_header: {X: [y]}\n");
    assert_string_equal(
        c->ignored,
        "rule_files, alerting, remote_write, consul_sd_configs, dns_sd_configs, oauth2, "
        "proxy_connect_header, scrape_config_files");
    assert_int_equal(c->external_label_count, 2);
    assert_string_equal(c->external_labels[0].name, "a");
    assert_string_equal(c->external_labels[0].value, "b");
    assert_string_equal(c->external_labels[1].value, "");
    prom_config_unref(c);
}

static void jobs_may_share_keys_by_merging(void **state)
{
    struct prom_config *c =
        parse_good("scrape_configs:\n"
                   "- &base {job_name: a, honor_labels: true, scrape_interval: 5s}\n"
                   "- {<<: *base, job_name: b, scrape_interval: 7s}\n");
    assert_string_equal(c->jobs[1].name, "b");
    assert_true(c->jobs[1].honor_labels && c->jobs[1].interval_ns == 7 * NS_PER_S);
    prom_config_unref(c);
}

static void references_keep_a_configuration(void **state)
{
    struct prom_config *c = parse_good(JOB "}]");
    assert_ptr_equal(prom_config_ref(c), c);
    prom_config_unref(c);
    assert_string_equal(c->jobs[0].name, "a");
    prom_config_unref(c);
    prom_config_unref(NULL);
}

// --- Problems ---

static void problems_are_told_where_they_stand(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"a", "f:1:1: expected a mapping, found 'a'\n"},
        {"- a", "f:1:1: expected a mapping, found a list\n"},
        {"scrape_config: []",
         "f:1:1: unknown key 'scrape_config' (did you mean 'scrape_configs'?)\n"},
        {"zzz: 1", "f:1:1: unknown key 'zzz'\n"},
        {"a: b: c", "f:1:5: mapping values are not allowed in this context\n"},
        {"global: {}\nglobal: {}", "f:2:1: key 'global' stands here twice\n"},
        {"global: 5", "f:1:9: global: expected a mapping, found '5'\n"},
        {"global: {scrape_interval: 5}",
         "f:1:27: scrape_interval: expected a duration as in 15s, 1m30s or 500ms, found '5'\n"},
        {"global: {scrape_interval: 5s, scrape_timeout: 6s}",
         "f:1:47: scrape_timeout is longer than scrape_interval\n"},
        {"global: {external_labels: {'': x}}", "f:1:32: '' is not a label name\n"},
        {"global: {external_labels: [x]}",
         "f:1:27: external_labels: expected names and values, found a list\n"},
        {"global: {metric_name_validation_scheme: utf9}",
         "f:1:41: metric_name_validation_scheme: expected utf8 or legacy, found 'utf9'\n"},
        {"global: {scrape_protocols: [PrometheusText0.0.4, X]}",
         "f:1:50: expected a scrape protocol, as in PrometheusText0.0.4 or OpenMetricsText1.0.0, "
         "found 'X'\n"},
        {"global: {scrape_protocols: [PrometheusProto, PrometheusProto]}",
         "f:1:46: PrometheusProto stands here twice\n"},
        {"global: {scrape_protocols: []}", "f:1:28: scrape_protocols: an empty list\n"},
        {"scrape_configs: {a: b}",
         "f:1:17: scrape_configs: expected a list of jobs, found a mapping\n"},
        {"scrape_configs: [a]",
         "f:1:18: expected a mapping, found 'a'\nf:1:18: a job needs a job_name\n"},
        {"scrape_configs:\n-\n", "f:2:2: an empty section\n"},
        {"scrape_configs: [{}]", "f:1:18: a job needs a job_name\n"},
        {"scrape_configs: [{job_name: ''}]", "f:1:29: a job needs a job_name\n"},
        {"scrape_configs: [{job_name: a}, {job_name: a}]", "f:1:44: a second job 'a'\n"},
        {JOB "scrape_interval: 5s, scrape_timeout: 10s}]",
         "f:1:69: scrape_timeout is longer than scrape_interval for job 'a'\n"},
        {"global: {scrape_interval: 5s}\n" JOB "scrape_timeout: 10s}]",
         "f:2:48: scrape_timeout is longer than scrape_interval for job 'a'\n"},
        {JOB "sample_limit: -1}]",
         "f:1:46: sample_limit: expected a whole number, 0 or more, found '-1'\n"},
        {JOB "sample_limit: 1.5}]",
         "f:1:46: sample_limit: expected a whole number, 0 or more, found '1.5'\n"},
        {JOB "sample_limit: '5'}]",
         "f:1:46: sample_limit: expected a whole number, 0 or more, found the text '5'\n"},
        {JOB "honor_labels: maybe}]", "f:1:46: honor_labels: expected a boolean, found 'maybe'\n"},
        {JOB "honor_labels: 'true'}]",
         "f:1:46: honor_labels: expected a boolean, found the text 'true'\n"},
        {JOB "params: {a: b}}]", "f:1:44: a: expected a list, found 'b'\n"},
        {JOB "params: [a]}]", "f:1:40: params: expected names and lists of values, found a list\n"},
        {JOB "scrape_fallback_protocol: X}]", "f:1:58: scrape_fallback_protocol: expected a scrape "
                                              "protocol, as in PrometheusText0.0.4 or "
                                              "OpenMetricsText1.0.0, found 'X'\n"},
        {JOB "honour_labels: true}]",
         "f:1:32: unknown key 'honour_labels' (did you mean 'honor_labels'?)\n"},
        {JOB "basic_aut: {}}]", "f:1:32: unknown key 'basic_aut' (did you mean 'basic_auth'?)\n"},
        {JOB "static_configs: [{targets: a}]}]", "f:1:59: targets: expected a list, found 'a'\n"},
        {JOB "static_configs: [{target: [a]}]}]",
         "f:1:50: unknown key 'target' (did you mean 'targets'?)\n"},
        {JOB "static_configs: {targets: []}}]",
         "f:1:48: static_configs: expected a list, found a mapping\n"},
        {JOB "static_configs: [null]}]", "f:1:49: an empty section\n"},
        {JOB "static_configs: [{targets: [x], labels: {'': c}}]}]",
         "f:1:77: '' is not a label name\n"},
        {JOB "static_configs: [{targets: ['http://x']}]}]",
         "f:1:60: expected host or host:port (scheme and metrics_path are keys of the job), found "
         "the text "
         "'http://x'\n"},
        {JOB "file_sd_configs: [{files: []}]}]", "f:1:50: file_sd_configs needs files\n"},
        {JOB "file_sd_configs: [{files: [x.txt]}]}]",
         "f:1:59: 'x.txt': expected a path that ends in .json, .yml or .yaml, with a * in the "
         "last element only\n"},
        {JOB "file_sd_configs: [{files: ['*/x.json']}]}]",
         "f:1:59: '*/x.json': expected a path that ends in .json, .yml or .yaml, with a * in the "
         "last element only\n"},
        {JOB "file_sd_configs: [{files: [a.json], refresh_interval: 0s}]}]",
         "f:1:86: refresh_interval: expected more than 0\n"},
        {JOB "http_sd_configs: [{}]}]", "f:1:50: http_sd_configs needs a url\n"},
        {JOB "http_sd_configs: [{url: 'ftp://x'}]}]",
         "f:1:56: url: expected an http or https URL, found the text 'ftp://x'\n"},
        {JOB "http_sd_configs: [{url: x}]}]",
         "f:1:56: url: expected an http or https URL, found 'x'\n"},
        {JOB "http_sd_configs: [{url: 'http:///y'}]}]",
         "f:1:56: url: expected an http or https URL, found the text 'http:///y'\n"},
        {JOB "kubernetes_sd_configs: [{}]}]",
         "f:1:56: kubernetes_sd_configs needs a role: pod, service, endpoints, endpointslice, node "
         "or ingress\n"},
        {JOB "kubernetes_sd_configs: [{role: Pod}]}]",
         "f:1:63: role: expected pod, service, endpoints, endpointslice, node or ingress, found "
         "'Pod'\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, api_server: 'https://x', kubeconfig_file: y}]}]",
         "f:1:110: at most one of api_server and kubeconfig_file can be given\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, basic_auth: {username: x}}]}]",
         "f:1:56: HTTP client options need an api_server\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, follow_redirects: false}]}]",
         "f:1:56: HTTP client options need an api_server\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, kubeconfig_file: y, tls_config: {ca_file: x}}]}]",
         "f:1:56: kubeconfig_file says how to reach the server: no HTTP client option can be "
         "given\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, api_server: 'https://x', namespaces: "
             "{own_namespace: true}}]}]",
         "f:1:121: own_namespace is that of a pod: it goes with no api_server\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, namespaces: [a]}]}]",
         "f:1:80: namespaces: expected a mapping, found a list\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, selectors: [{role: node}]}]}]",
         "f:1:87: role pod watches no node to select from\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, selectors: [{role: pod}, {role: pod}]}]}]",
         "f:1:100: a second selector of role pod\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, selectors: [{role: pod, field: a}]}]}]",
         "f:1:99: field: expected terms as in spec.nodeName=n1, found 'a'\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, selectors: [{role: pod, field: 'a=b,!=c'}]}]}]",
         "f:1:99: field: expected terms as in spec.nodeName=n1, found the text 'a=b,!=c'\n"},
        {JOB "kubernetes_sd_configs: [{role: pod, selectors: [{label: x}]}]}]",
         "f:1:80: a selector needs a role\n"},
        {JOB "kubernetes_sd_configs: [{role: endpoints, selectors: [{role: endpointslice}]}]}]",
         "f:1:93: role endpoints watches no endpointslice to select from\n"},
        {JOB "basic_auth: {username: a, username_file: b}}]",
         "f:1:73: at most one of username and username_file can be given\n"},
        {JOB "basic_auth: {password: a, password_file: b}}]",
         "f:1:73: at most one of password and password_file can be given\n"},
        {JOB "basic_auth: {}, bearer_token: x}]",
         "f:1:62: at most one of basic_auth and bearer_token can be given\n"},
        {JOB "basic_auth: {user: a}}]", "f:1:45: unknown key 'user'\n"},
        {JOB "authorization: {}, basic_auth: {}}]",
         "f:1:47: at most one of basic_auth and authorization can be given\n"},
        {JOB "authorization: {type: Basic, credentials: x}}]",
         "f:1:54: type: 'basic' has a section of its own, basic_auth\n"},
        {JOB "authorization: {credentials: x, credentials_file: y}}]",
         "f:1:82: at most one of credentials and credentials_file can be given\n"},
        {JOB "bearer_token: x, bearer_token_file: y}]",
         "f:1:68: at most one of bearer_token and bearer_token_file can be given\n"},
        {JOB "oauth2: {}}]", "f:1:40: oauth2 needs a client_id\nf:1:40: oauth2 needs a token_url\n"
                             "f:1:40: oauth2 needs a client_secret or a client_secret_file\n"},
        {JOB "oauth2: {client_id: a, token_url: b, client_secret: c}, basic_auth: {}}]",
         "f:1:40: at most one of basic_auth and oauth2 can be given\n"},
        {JOB "tls_config: {cert_file: x}}]",
         "f:1:44: a client certificate needs a key or key_file\n"},
        {JOB "tls_config: {key: x}}]", "f:1:44: a client key needs a cert or cert_file\n"},
        {JOB "tls_config: {ca: x, ca_file: y}}]",
         "f:1:61: at most one of ca and ca_file can be given\n"},
        {JOB "tls_config: {min_version: TLS1.2}}]",
         "f:1:58: min_version: expected TLS10, TLS11, TLS12 or TLS13, found 'TLS1.2'\n"},
        {JOB "tls_config: {min_version: TLS13, max_version: TLS12}}]",
         "f:1:78: max_version is below min_version\n"},
        {JOB "no_proxy: x}]", "f:1:42: no_proxy needs a proxy_url\n"},
        {JOB "proxy_from_environment: true, proxy_url: x}]",
         "f:1:73: at most one of proxy_from_environment and proxy_url can be given\n"},
        {JOB "proxy_from_environment: true, no_proxy: x}]",
         "f:1:72: at most one of proxy_from_environment and no_proxy can be given\n"},
        {JOB "proxy_connect_header: {a: [b]}}]",
         "f:1:54: proxy_connect_header needs a proxy_url or proxy_from_environment\n"},
        {JOB "http_headers: {authorization: {values: [x]}}}]",
         "f:1:62: header Authorization cannot be set here\n"},
        {JOB "http_headers: {'a b': {values: [x]}}}]", "f:1:54: 'a b' is not a header name\n"},
        {JOB "http_headers: {X: {values: [\"a\\r\\nb\"]}}}]",
         "f:1:50: a header value is one line without control characters\n"},
        {JOB "http_headers: {X: [a]}}]", "f:1:50: X: expected a mapping, found a list\n"},
        {JOB "relabel_configs: [{action: kep}]}]",
         "f:1:59: unknown relabel action 'kep' (did you mean 'keep'?)\n"},
        {JOB "relabel_configs: {action: keep}}]",
         "f:1:49: relabel_configs: expected a list of rules, found a mapping\n"},
        {"global: {metric_name_validation_scheme: legacy}\n" JOB
         "relabel_configs: [{target_label: a.b}]}]",
         "f:2:65: target_label: 'a.b' is not a label name\n"},
        {"scrape_config_files: ['*/x']",
         "f:1:23: '*/x': expected a path with a * in the last element only\n"},
    };
    unsigned wrong = 0;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        wrong += !is_bad(cases[i].text, cases[i].message);
    assert_int_equal(wrong, 0);
}

static void every_problem_is_told_at_once(void **state)
{
    assert_true(is_bad(
        "globl: {}\n"
        "global:\n"
        "  scrape_interval: soon\n"
        "scrape_configs:\n"
        "- job_name: a\n"
        "  scrape_intervall: 5s\n"
        "  sample_limit: many\n"
        "  relabel_configs:\n"
        "  - {action: kep}\n"
        "  - {target_label: a, regex: (}\n"
        "  static_configs:\n"
        "  - {targets: x}\n"
        "- job_name: a\n"
        "  tls_config: {ca_fil: x}\n",
        "f:1:1: unknown key 'globl' (did you mean 'global'?)\n"
        "f:3:20: scrape_interval: expected a duration as in 15s, 1m30s or 500ms, found 'soon'\n"
        "f:6:3: unknown key 'scrape_intervall' (did you mean 'scrape_interval'?)\n"
        "f:7:17: sample_limit: expected a whole number, 0 or more, found 'many'\n"
        "f:12:15: targets: expected a list, found 'x'\n"
        "f:9:14: unknown relabel action 'kep' (did you mean 'keep'?)\n"
        "f:10:30: regular expression: missing ): (\n"
        "f:14:16: unknown key 'ca_fil' (did you mean 'ca_file'?)\n"
        "f:13:13: a second job 'a'\n"));
}

static void a_password_is_in_no_message(void **state)
{
    static const char *const cases[] = {
        JOB "basic_auth: {password: [hunter2]}}]",
        JOB "basic_auth: {password: {x: hunter2}}}]",
        JOB "bearer_token: [hunter2]}]",
        JOB "bearer_token: hunter2, basic_auth: {password: hunter2}}]",
        JOB "http_headers: {X: {secrets: hunter2}}}]",
        JOB "http_headers: {X: {secrets: [\"hunter2\\n\"]}}}]",
        JOB "basic_auth: hunter2}]",
        JOB "authorization: hunter2}]",
        JOB "oauth2: {client_secret: hunter2}}]",
        JOB "oauth2: hunter2}]",
        JOB "http_headers: hunter2}]",
        JOB "http_headers: {X: hunter2}}]",
        JOB "tls_config: {key: hunter2}}]",
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct prom_config *c = NULL;
        struct buf errors = BUF_INIT(100000);
        assert_int_equal(prom_config_parse(sv_from(cases[i]), "f", &c, &errors), -EINVAL);
        if (!errors.len || strstr(buf_cstr(&errors), "hunter2"))
            fail_msg("%s: %s", cases[i], buf_cstr(&errors));
        buf_deinit(&errors);
    }
}

static void errors_may_go_nowhere(void **state)
{
    struct prom_config *c = NULL;
    assert_int_equal(prom_config_parse(SV("a: b"), "f", &c, NULL), -EINVAL);
    assert_int_equal(prom_config_parse(SV("a: b: c"), "f", &c, NULL), -EINVAL);
    assert_int_equal(prom_config_load("/nonexistent/x.yaml", &c, NULL), -EINVAL);
}

static void every_truncation_is_read_or_refused(void **state)
{
    static const char text[] =
        "global: {scrape_interval: 5s}\n"
        "scrape_configs:\n"
        "- job_name: a\n"
        "  basic_auth: {username: u, password: p}\n"
        "  static_configs: [{targets: ['h:1'], labels: {a: b}}]\n"
        "  kubernetes_sd_configs: [{role: pod, selectors: [{role: pod, label: x}]}]\n"
        "  relabel_configs:\n"
        "  - {source_labels: [a], regex: (.+), target_label: b, replacement: x$1}\n";
    for (size_t len = 0; len < sizeof(text) - 1; len++) {
        char *part = malloc(len ? len : 1);
        assert_non_null(part);
        memcpy(part, text, len);
        struct prom_config *c = NULL;
        struct buf errors = BUF_INIT(100000);
        int r = prom_config_parse((struct sv){part, len}, "f", &c, &errors);
        assert_true((r == 0 && c && !errors.len) || (r == -EINVAL && !c && errors.len));
        prom_config_unref(c);
        buf_deinit(&errors);
        free(part);
    }
}

static void the_number_of_jobs_is_capped_exactly(void **state)
{
    for (unsigned count = LIMIT_PROM_JOBS; count <= LIMIT_PROM_JOBS + 1; count++) {
        struct buf b = BUF_INIT(LIMIT_CONFIG_FILE_BYTES), errors = BUF_INIT(10000);
        struct prom_config *c = NULL;
        buf_add_str(&b, "scrape_configs:\n");
        for (unsigned i = 0; i < count; i++)
            buf_add_fmt(&b, "- job_name: j%u\n", i);
        assert_int_equal(prom_config_parse(buf_sv(&b), "f", &c, &errors),
                         count > LIMIT_PROM_JOBS ? -EINVAL : 0);
        if (c)
            assert_int_equal(c->job_count, LIMIT_PROM_JOBS);
        else
            assert_string_equal(buf_cstr(&errors), "f:4098:3: more than 4096 jobs\n");
        prom_config_unref(c);
        buf_deinit(&b);
        buf_deinit(&errors);
    }
}

static void a_text_multiplied_by_aliases_is_refused(void **state)
{
    struct buf b = BUF_INIT(LIMIT_CONFIG_FILE_BYTES), errors = BUF_INIT(10000);
    struct prom_config *c = NULL;
    buf_add_str(&b, "scrape_configs:\n- job_name: a\n  static_configs: [{targets: [&x ");
    for (unsigned i = 0; i < 100000; i++)
        buf_add_char(&b, 'x');
    for (unsigned i = 0; i < 1000; i++)
        buf_add_str(&b, ", *x");
    buf_add_str(&b, "]}]\n");
    assert_int_equal(prom_config_parse(buf_sv(&b), "f", &c, &errors), -EINVAL);
    assert_string_equal(buf_cstr(&errors), "f: more than 67108864 bytes when read\n");
    buf_deinit(&b);
    buf_deinit(&errors);
}

// --- Files ---

static char folder[64];

static const char *write_file(const char *name, const char *text)
{
    static char path[200];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fputs(text, f) >= 0, 1);
    assert_int_equal(fclose(f), 0);
    return path;
}

static int make_folder(void **state)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/podgpu-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"prometheus.yml", "jobs/a.yml", "jobs/b.yml", "jobs"};
    char path[200];
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)remove(path);
    }
    return remove(folder);
}

static void jobs_come_from_scrape_config_files_too(void **state)
{
    char path[200];
    (void)snprintf(path, sizeof(path), "%s/jobs", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    write_file("jobs/b.yml", "scrape_configs: [{job_name: b, bearer_token_file: tok}]");
    write_file("jobs/a.yml", "scrape_configs: [{job_name: a}, {job_name: c, scrape_interval: 3s}]");
    const char *main_file =
        write_file("prometheus.yml", "global: {scrape_interval: 7s}\n"
                                     "scrape_config_files: ['jobs/*.yml', 'none/*.yml']\n"
                                     "scrape_configs: [{job_name: first}]\n");
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(10000);
    if (prom_config_load(main_file, &c, &errors) != 0)
        fail_msg("%s", buf_cstr(&errors));
    assert_int_equal(c->job_count, 4);
    assert_string_equal(c->jobs[0].name, "first");
    assert_string_equal(c->jobs[1].name, "a");
    assert_true(c->jobs[1].interval_ns == 7 * NS_PER_S);
    assert_string_equal(c->jobs[2].name, "c");
    assert_true(c->jobs[2].interval_ns == 3 * NS_PER_S);
    assert_string_equal(c->jobs[3].name, "b");
    (void)snprintf(path, sizeof(path), "%s/jobs/tok", folder);
    assert_string_equal(c->jobs[3].http.credentials_file, path); // beside the file that names it
    assert_string_equal(c->ignored, "");
    prom_config_unref(c);

    write_file("jobs/b.yml", "scrape_configs: [{job_name: a}]\nglobal: {}\n");
    write_file("jobs/a.yml", "scrape_configs: [\n");
    main_file = write_file(
        "prometheus.yml", "scrape_config_files: ['jobs/*.yml']\nscrape_configs: [{job_name: a}]\n");
    char expected[1000];
    (void)snprintf(
        expected, sizeof(expected),
        "%s/jobs/a.yml:2:1: did not find expected node content while parsing a flow node\n"
        "%s/jobs/b.yml:2:1: unknown key 'global'\n"
        "%s/jobs/b.yml:1:29: a second job 'a'\n",
        folder, folder, folder);
    c = NULL;
    assert_int_equal(prom_config_load(main_file, &c, &errors), -EINVAL);
    assert_string_equal(buf_cstr(&errors), expected);
    buf_deinit(&errors);
}

static void a_file_that_is_not_there_is_named(void **state)
{
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(10000);
    assert_int_equal(prom_config_load("/nonexistent/prometheus.yaml", &c, &errors), -EINVAL);
    assert_non_null(strstr(buf_cstr(&errors), "/nonexistent/prometheus.yaml"));
    buf_deinit(&errors);
}

// The files of the AWS post are taken as they are.
static void the_posts_files_load(void **state)
{
    struct prom_config *c = NULL;
    struct buf errors = BUF_INIT(10000);
    if (prom_config_load(BLOG "/prometheus-cwagent.yaml", &c, &errors) != 0)
        fail_msg("%s", buf_cstr(&errors));
    const struct prom_job *j = &c->jobs[0];
    assert_int_equal(c->job_count, 1);
    assert_string_equal(j->name, "kubernetes-pod-dcgm-exporter");
    assert_true(j->interval_ns == 60 * NS_PER_S && j->timeout_ns == 10 * NS_PER_S);
    assert_int_equal(j->sample_limit, 10000);
    assert_string_equal(j->metrics_path, "/api/v1/metrics/prometheus");
    assert_int_equal(j->kube_sd_count, 1);
    assert_int_equal(j->kube_sds[0].role, PROM_KUBE_POD);
    assert_int_equal(relabel_count(j->relabel), 10);
    prom_config_unref(c);
    c = NULL;
    if (prom_config_load(BLOG "/prometheus-grafana.yaml", &c, &errors) != 0)
        fail_msg("%s", buf_cstr(&errors));
    j = &c->jobs[0];
    assert_string_equal(j->name, "gpu-metrics");
    assert_true(j->interval_ns == NS_PER_S && j->timeout_ns == NS_PER_S);
    assert_int_equal(j->kube_sds[0].role, PROM_KUBE_ENDPOINTS);
    assert_string_equal(j->kube_sds[0].namespaces[0], "gpu-operator");
    assert_int_equal(relabel_count(j->relabel), 1);
    prom_config_unref(c);
    buf_deinit(&errors);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_read_as_prometheus_does),
        cmocka_unit_test(an_empty_file_has_no_jobs),
        cmocka_unit_test(a_job_has_prometheus_defaults),
        cmocka_unit_test(times_come_from_the_job_then_global_then_default),
        cmocka_unit_test(limits_and_names_are_inherited_unless_set),
        cmocka_unit_test(sizes_have_binary_units),
        cmocka_unit_test(values_are_read_as_gos_yaml_does),
        cmocka_unit_test(a_whole_job_is_read),
        cmocka_unit_test(http_client_options_are_read),
        cmocka_unit_test(discovery_sections_are_read),
        cmocka_unit_test(what_the_agent_has_no_use_for_is_named_once),
        cmocka_unit_test(jobs_may_share_keys_by_merging),
        cmocka_unit_test(references_keep_a_configuration),
        cmocka_unit_test(problems_are_told_where_they_stand),
        cmocka_unit_test(every_problem_is_told_at_once),
        cmocka_unit_test(a_password_is_in_no_message),
        cmocka_unit_test(errors_may_go_nowhere),
        cmocka_unit_test(every_truncation_is_read_or_refused),
        cmocka_unit_test(the_number_of_jobs_is_capped_exactly),
        cmocka_unit_test(a_text_multiplied_by_aliases_is_refused),
        cmocka_unit_test_setup_teardown(jobs_come_from_scrape_config_files_too, make_folder,
                                        remove_folder),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(the_posts_files_load),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
