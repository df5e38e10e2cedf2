// SPDX-License-Identifier: Apache-2.0
#include "exporter/options.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"

#define MOST 32

static int parse_words(const char *const *words, const char *const *variables,
                       struct exporter_options *o, struct error *err)
{
    static char storage[2][MOST][320];
    char *argv[MOST + 1] = {"podgpu-exporter"}, *environ_words[MOST + 1] = {NULL};
    int argc = 1, count = 0;
    for (; words[argc - 1]; argc++) {
        sv_copy(storage[0][argc], sizeof(storage[0][argc]), sv_from(words[argc - 1]));
        argv[argc] = storage[0][argc];
    }
    for (; variables && variables[count]; count++) {
        sv_copy(storage[1][count], sizeof(storage[1][count]), sv_from(variables[count]));
        environ_words[count] = storage[1][count];
    }
    environ_words[count] = NULL;
    *err = ERROR_INIT;
    return exporter_options_parse(argc, argv, environ_words, o, err);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__ __VA_OPT__(, ) NULL})

static void each_flag_keeps_its_names_and_default(void **state)
{
    static const struct {
        const char *name, *alias, *env, *initial;
    } frozen[] = {
        {"collectors", "f", "DCGM_EXPORTER_COLLECTORS", "/etc/dcgm-exporter/default-counters.csv"},
        {"config-file", NULL, "DCGM_EXPORTER_CONFIG_FILE", ""},
        {"address", "a", "DCGM_EXPORTER_LISTEN", ":9400"},
        {"collect-interval", "c", "DCGM_EXPORTER_INTERVAL", "1000"}, // 30000 in dcgm-exporter
        {"kubernetes", "k", "DCGM_EXPORTER_KUBERNETES", NULL},
        {"use-old-namespace", "o", "DCGM_EXPORTER_USE_OLD_NAMESPACE", NULL},
        {"cpu-devices", "p", "DCGM_EXPORTER_CPU_DEVICES_STR", "f"},
        {"configmap-data", "m", "DCGM_EXPORTER_CONFIGMAP_DATA", "none"},
        {"remote-hostengine-info", "r", "DCGM_REMOTE_HOSTENGINE_INFO", "localhost:5555"},
        {"kubernetes-enable-pod-labels", NULL, "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_LABELS", NULL},
        {"kubernetes-enable-pod-uid", NULL, "DCGM_EXPORTER_KUBERNETES_ENABLE_POD_UID", NULL},
        {"kubernetes-gpu-id-type", NULL, "DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE", "uid"},
        {"kubernetes-pod-label-allowlist-regex", NULL,
         "DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX", NULL},
        {"devices", "d", "DCGM_EXPORTER_DEVICES_STR", "f"},
        {"no-hostname", "n", "DCGM_EXPORTER_NO_HOSTNAME", NULL},
        {"switch-devices", "s", "DCGM_EXPORTER_OTHER_DEVICES_STR", "f"},
        {"fake-gpus", NULL, "DCGM_EXPORTER_USE_FAKE_GPUS", NULL},
        {"web-config-file", NULL, "DCGM_EXPORTER_WEB_CONFIG_FILE", ""},
        {"web-read-timeout", NULL, "DCGM_EXPORTER_WEB_READ_TIMEOUT", "10s"},
        {"web-write-timeout", NULL, "DCGM_EXPORTER_WEB_WRITE_TIMEOUT", "30s"},
        {"max-concurrent-scrapes", NULL, "DCGM_EXPORTER_MAX_CONCURRENT_SCRAPES", "16"},
        {"enable-exporter-metrics", NULL, "DCGM_EXPORTER_ENABLE_EXPORTER_METRICS", NULL},
        {"watch-max-keep-age", NULL, "DCGM_EXPORTER_WATCH_MAX_KEEP_AGE", "10m"},
        {"watch-max-keep-samples", NULL, "DCGM_EXPORTER_WATCH_MAX_KEEP_SAMPLES", "0"},
        {"xid-count-window-size", "x", "DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE", "300000"},
        {"replace-blanks-in-model-name", "rbmn", "DCGM_EXPORTER_REPLACE_BLANKS_IN_MODEL_NAME",
         NULL},
        {"debug", NULL, "DCGM_EXPORTER_DEBUG", NULL},
        {"clock-events-count-window-size", NULL, "DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE",
         "300000"},
        {"enable-dcgm-log", NULL, "DCGM_EXPORTER_ENABLE_DCGM_LOG", NULL},
        {"dcgm-log-level", NULL, "DCGM_EXPORTER_DCGM_LOG_LEVEL", "NONE"},
        {"log-format", NULL, "DCGM_EXPORTER_LOG_FORMAT", "text"},
        {"pod-resources-kubelet-socket", NULL, "DCGM_POD_RESOURCES_KUBELET_SOCKET",
         "/var/lib/kubelet/pod-resources/kubelet.sock"},
        {"hpc-job-mapping-dir", NULL, "DCGM_HPC_JOB_MAPPING_DIR", ""},
        {"nvidia-resource-names", NULL, "NVIDIA_RESOURCE_NAMES", NULL},
        {"kubernetes-virtual-gpus", NULL, "KUBERNETES_VIRTUAL_GPUS", NULL},
        {"dump-enabled", NULL, "DCGM_EXPORTER_DUMP_ENABLED", NULL},
        {"dump-directory", NULL, "DCGM_EXPORTER_DUMP_DIRECTORY", "/tmp/dcgm-exporter-debug"},
        {"dump-retention", NULL, "DCGM_EXPORTER_DUMP_RETENTION", "24"},
        {"dump-compression", NULL, "DCGM_EXPORTER_DUMP_COMPRESSION", "true"},
        {"kubernetes-enable-dra", NULL, "KUBERNETES_ENABLE_DRA", NULL},
        {"disable-startup-validate", NULL, "DISABLE_STARTUP_VALIDATE", NULL},
        {"enable-gpu-bind-unbind-watch", NULL, "DCGM_EXPORTER_ENABLE_GPU_BIND_UNBIND_WATCH", NULL},
        {"gpu-bind-unbind-poll-interval", NULL, "DCGM_EXPORTER_GPU_BIND_UNBIND_POLL_INTERVAL",
         "1s"},
        {"enable-pprof", NULL, "DCGM_EXPORTER_ENABLE_PPROF", NULL},
        {"web-systemd-socket", NULL, "DCGM_EXPORTER_SYSTEMD_SOCKET", NULL},
        {"container-labels", NULL, "DCGM_EXPORTER_CONTAINER_LABELS", NULL},
        {"container-runtime-socket", NULL, "DCGM_CONTAINER_RUNTIME_SOCKET", ""},
        {"health-require-gpus", NULL, "DCGM_EXPORTER_HEALTH_REQUIRE_GPUS", NULL},
        {"dcgm-library", NULL, "PODGPU_EXPORTER_DCGM_LIBRARY", ""},
        {"hostname-label", NULL, "PODGPU_EXPORTER_HOSTNAME_LABEL", "hostname"},
        {"shared-owner", NULL, "PODGPU_EXPORTER_SHARED_OWNER", "none"},
        {"kubeconfig", NULL, "PODGPU_EXPORTER_KUBECONFIG", ""},
        {"empty-owner-labels", NULL, "PODGPU_EXPORTER_EMPTY_OWNER_LABELS", NULL},
        {"podgpu-families", NULL, "PODGPU_EXPORTER_PODGPU_FAMILIES", "core"},
        {"mig-board-fields", NULL, "PODGPU_EXPORTER_MIG_BOARD_FIELDS", "repeat"},
        {"nvml-library", NULL, "PODGPU_EXPORTER_NVML_LIBRARY", ""},
        {"admin-address", NULL, "PODGPU_EXPORTER_ADMIN_ADDRESS", ""},
        {"openmetrics", NULL, "PODGPU_EXPORTER_OPENMETRICS", NULL},
        {"source", NULL, "PODGPU_EXPORTER_SOURCE", "auto"},
        {"source-path", NULL, "PODGPU_EXPORTER_SOURCE_PATH", ""},
        {"kmsg-path", NULL, "PODGPU_EXPORTER_KMSG_PATH", "/dev/kmsg"},
        {"call-deadline", NULL, "PODGPU_EXPORTER_CALL_DEADLINE", "10s"},
        {"ended-pod-linger", NULL, "PODGPU_EXPORTER_ENDED_POD_LINGER", "5m"},
        {"idle-after", NULL, "PODGPU_EXPORTER_IDLE_AFTER", "5m"},
        {"proc-path", NULL, "PODGPU_EXPORTER_PROC_PATH", "/proc"},
        {"pod-log-path", NULL, "PODGPU_EXPORTER_POD_LOG_PATH", "/var/log"},
        {"pods-api-socket", NULL, "PODGPU_EXPORTER_PODS_API_SOCKET",
         "/var/lib/kubelet/pods-api/pods-api.sock"},
        {"pod-owners", NULL, "PODGPU_EXPORTER_POD_OWNERS", NULL},
        {"doctor", NULL, "PODGPU_EXPORTER_DOCTOR", NULL},
        {"switch-id-quirk", NULL, "PODGPU_EXPORTER_SWITCH_ID_QUIRK", NULL},
    };
    assert_int_equal(exporter_option_table.count, ARRAY_SIZE(frozen));
    for (size_t i = 0; i < ARRAY_SIZE(frozen); i++) {
        const struct option_row *row = NULL;
        for (size_t k = 0; k < exporter_option_table.count; k++) {
            if (strcmp(exporter_option_table.rows[k].name, frozen[i].name) == 0)
                row = &exporter_option_table.rows[k];
        }
        assert_non_null(row);
        assert_true(sv_equals(sv_from(row->alias), sv_from(frozen[i].alias)));
        assert_string_equal(row->env, frozen[i].env);
        assert_true(sv_equals(sv_from(row->default_text), sv_from(frozen[i].initial)));
    }
}

static void rows_do_not_share_names_or_places(void **state)
{
    const struct option_table *t = &exporter_option_table;
    for (size_t i = 0; i < t->count; i++) {
        assert_true(t->rows[i].help[0] && t->rows[i].group[0]);
        assert_true(t->rows[i].help[strlen(t->rows[i].help) - 1] == '.');
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(t->rows[i].name, t->rows[k].name);
            assert_string_not_equal(t->rows[i].env, t->rows[k].env);
            assert_int_not_equal(t->rows[i].offset, t->rows[k].offset);
            if (t->rows[i].alias && t->rows[k].alias)
                assert_string_not_equal(t->rows[i].alias, t->rows[k].alias);
        }
    }
}

static void nothing_given_is_a_working_configuration(void **state)
{
    struct exporter_options o;
    struct error err;
    char own[256] = "";
    assert_int_equal(gethostname(own, sizeof(own) - 1), 0);
    assert_int_equal(parse_words(WORDS(), NULL, &o, &err), 0);
    assert_true(o.gpus.flexible && o.switches.flexible && o.cpus.flexible);
    assert_int_equal(o.flags.collect_interval_ms, 1000);
    assert_false(o.flags.collect_interval_given);
    assert_int_equal(o.hostname_label, HOSTNAME_LABEL_LOWER);
    assert_int_equal(o.shared_owner, SHARED_OWNER_NONE);
    assert_int_equal(o.podgpu_families, PODGPU_FAMILIES_CORE);
    assert_int_equal(o.log_format, LOG_FORMAT_TEXT);
    assert_int_equal(o.log_level, LOG_LEVEL_INFO);
    assert_string_equal(o.hostname, own);
    assert_int_equal(o.flags.call_deadline_ns, 10 * NS_PER_S);
    assert_int_equal(o.unavailable_count, 0);
    exporter_options_deinit(&o);
}

static void choices_become_types(void **state)
{
    struct exporter_options o;
    struct error err;
    assert_int_equal(
        parse_words(WORDS("--hostname-label=both", "--shared-owner=last", "--podgpu-families=all",
                          "--kubernetes-gpu-id-type=device-name", "--mig-board-fields=once",
                          "--log-format=json", "--debug", "-d", "g:0,2-3+i", "--source=nvml"),
                    NULL, &o, &err),
        0);
    assert_int_equal(o.hostname_label, HOSTNAME_LABEL_BOTH);
    assert_int_equal(o.shared_owner, SHARED_OWNER_LAST);
    assert_int_equal(o.podgpu_families, PODGPU_FAMILIES_ALL);
    assert_true(o.gpu_id_by_device_name);
    assert_true(o.mig_board_once);
    assert_int_equal(o.log_format, LOG_FORMAT_JSON);
    assert_int_equal(o.log_level, LOG_LEVEL_DEBUG);
    assert_int_equal(o.gpus.gpu_count, 3);
    assert_true(o.gpus.all_instances);
    exporter_options_deinit(&o);
}

#define REMOTE                                                                                     \
    "--remote-hostengine-info (DCGM_REMOTE_HOSTENGINE_INFO): expected HOST:PORT, [IPv6]:PORT, "    \
    "tcp://HOST:PORT, unix:///PATH or vsock://CID:PORT, found "

static void mistakes_name_flag_variable_found_and_expected(void **state)
{
    static const struct {
        const char *word, *message;
    } cases[] = {
        {"--hostname-label=host", "--hostname-label (PODGPU_EXPORTER_HOSTNAME_LABEL): expected "
                                  "hostname, Hostname or both, found 'host'"},
        {"--shared-owner=first",
         "--shared-owner (PODGPU_EXPORTER_SHARED_OWNER): expected none or last, found 'first'"},
        {"--podgpu-families=",
         "--podgpu-families (PODGPU_EXPORTER_PODGPU_FAMILIES): expected none, core or all, "
         "found ''"},
        {"--kubernetes-gpu-id-type=uuid",
         "--kubernetes-gpu-id-type (DCGM_EXPORTER_KUBERNETES_GPU_ID_TYPE): expected uid or "
         "device-name, found 'uuid'"},
        {"--mig-board-fields=never", "--mig-board-fields (PODGPU_EXPORTER_MIG_BOARD_FIELDS): "
                                     "expected repeat or once, found 'never'"},
        {"--log-format=xml",
         "--log-format (DCGM_EXPORTER_LOG_FORMAT): expected text or json, found 'xml'"},
        {"--dcgm-log-level=info",
         "--dcgm-log-level (DCGM_EXPORTER_DCGM_LOG_LEVEL): expected NONE, FATAL, ERROR, "
         "WARN, INFO, DEBUG or VERB, found 'info'"},
        {"--kubernetes-pod-label-allowlist-regex=^app$,a(b",
         "--kubernetes-pod-label-allowlist-regex "
         "(DCGM_EXPORTER_KUBERNETES_POD_LABEL_ALLOWLIST_REGEX): 'a(b': regular expression: missing "
         "): a(b"},
        {"--source=cuda",
         "--source (PODGPU_EXPORTER_SOURCE): expected auto, nvml or dcgm, found 'cuda'"},
        {"--call-deadline=99ms",
         "--call-deadline (PODGPU_EXPORTER_CALL_DEADLINE): expected 100ms to 10m, found 99 ms"},
        {"--call-deadline=601s",
         "--call-deadline (PODGPU_EXPORTER_CALL_DEADLINE): expected 100ms to 10m, found 601000 ms"},
        {"--ended-pod-linger=25h",
         "--ended-pod-linger (PODGPU_EXPORTER_ENDED_POD_LINGER): expected at most 24h, found "
         "90000 s"},
        {"--collect-interval=0",
         "--collect-interval: expected a whole number from 1 to 86400000, found '0'"},
        {"--max-concurrent-scrapes=0",
         "--max-concurrent-scrapes: expected a whole number from 1 to 2147483647, found '0'"},
        {"-r=http://dcgm.example:5555",
         "--remote-hostengine-info (DCGM_REMOTE_HOSTENGINE_INFO): expected HOST:PORT, [IPv6]:PORT, "
         "tcp://HOST:PORT, unix:///PATH or vsock://CID:PORT, found 'http://dcgm.example:5555': "
         "tcp://, unix:// and vsock:// are known"},
        {"-r=unix://he.sock",
         "--remote-hostengine-info (DCGM_REMOTE_HOSTENGINE_INFO): expected HOST:PORT, [IPv6]:PORT, "
         "tcp://HOST:PORT, unix:///PATH or vsock://CID:PORT, found 'unix://he.sock': not an "
         "absolute path"},
        {"-r=:5555", REMOTE "':5555': no host"},
        {"-r=he:0", REMOTE "'he:0': not a port"},
        {"-r=he:", REMOTE "'he:': not HOST or HOST:PORT"},
        {"-r=[::1", REMOTE "'[::1': not HOST or HOST:PORT"},
        {"-r=tcp://[::1]:99999", REMOTE "'tcp://[::1]:99999': not a port"},
        {"-r=a b", REMOTE "'a b': not the name of a host"},
        {"-r=vsock://", REMOTE "'vsock://': not CID or CID:PORT"},
        {"--pod-labels", "unknown flag '--pod-labels'; --help lists all"},
        {"--kubernets", "unknown flag '--kubernets' (did you mean '--kubernetes'?)"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o;
        struct error err;
        assert_int_equal(parse_words(WORDS(cases[i].word), NULL, &o, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].message);
    }
}

static void selections_are_checked_in_the_order_d_s_p(void **state)
{
    struct exporter_options o;
    struct error err;
    assert_int_equal(parse_words(WORDS("-p", "x", "-s", "y", "-d", "z"), NULL, &o, &err), -EINVAL);
    assert_memory_equal(err.text, "--devices (DCGM_EXPORTER_DEVICES_STR): 'z': ", 44);
    assert_int_equal(parse_words(WORDS("-p", "x", "-s", "y"), NULL, &o, &err), -EINVAL);
    assert_memory_equal(err.text, "--switch-devices (DCGM_EXPORTER_OTHER_DEVICES_STR): 'y': ", 57);
    assert_int_equal(parse_words(WORDS("-p", "x"), NULL, &o, &err), -EINVAL);
    assert_memory_equal(err.text, "--cpu-devices (DCGM_EXPORTER_CPU_DEVICES_STR): 'x': ", 52);
}

static void short_intervals_are_raised_and_told(void **state)
{
    static const struct {
        const char *word;
        int64_t ms;
        bool raised;
    } cases[] = {{"-c=1", 100, true},
                 {"-c=99", 100, true},
                 {"-c=100", 100, false},
                 {"-c=86400000", 86400000, false}};
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o;
        struct error err;
        assert_int_equal(parse_words(WORDS(cases[i].word), NULL, &o, &err), 0);
        assert_int_equal(o.flags.collect_interval_ms, cases[i].ms);
        assert_int_equal(o.collect_interval_raised, cases[i].raised);
        assert_true(o.flags.collect_interval_given);
        exporter_options_deinit(&o);
    }
}

static bool lists(const struct exporter_options *o, const char *flag)
{
    for (size_t i = 0; i < o->unavailable_count; i++) {
        if (strcmp(o->unavailable[i], flag) == 0)
            return true;
    }
    return false;
}

static void what_is_asked_for_and_not_there_is_listed(void **state)
{
    struct exporter_options o;
    struct error err;
    assert_int_equal(
        parse_words(WORDS("-k", "-r", "engine:5555", "--kubernetes-enable-pod-labels",
                          "--enable-pprof", "--dump-compression=false", "--web-read-timeout=5s",
                          "-m", "ns:name", "--kubernetes-pod-label-allowlist-regex=a,b",
                          "--kubernetes-virtual-gpus", "--disable-startup-validate",
                          "--dump-retention=24", "-x", "60000"),
                    WORDS("NODE_NAME=n", "KUBERNETES_ENABLE_DRA=true", "DCGM_EXPORTER_DEBUG=true"),
                    &o, &err),
        0);
    assert_int_equal(o.unavailable_count, 4);
    assert_false(lists(&o, "remote-hostengine-info"));
    assert_true(lists(&o, "enable-pprof"));
    assert_true(lists(&o, "dump-compression"));
    assert_true(lists(&o, "web-read-timeout"));
    assert_true(lists(&o, "configmap-data"));
    assert_false(lists(&o, "xid-count-window-size"));
    assert_false(lists(&o, "kubernetes-enable-dra"));
    exporter_options_deinit(&o);
}

static void what_is_about_dcgm_is_listed_where_only_nvml_is_asked(void **state)
{
    struct exporter_options o;
    struct error err;
    static const char *const nothing[] = {NULL};
    static const char *const flags[] = {"remote-hostengine-info", "dcgm-library",
                                        "enable-dcgm-log"};
    for (unsigned nvml = 0; nvml < 2; nvml++) {
        const char *source = nvml ? "--source=nvml" : "--source=auto";
        assert_int_equal(parse_words(WORDS(source, "-r", "", "--dcgm-library=/x/libdcgm.so.4",
                                           "--enable-dcgm-log"),
                                     nothing, &o, &err),
                         0);
        assert_int_equal(o.unavailable_count, nvml ? ARRAY_SIZE(flags) : 0);
        for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
            assert_int_equal(lists(&o, flags[i]), nvml);
        exporter_options_deinit(&o);
    }
}

static void another_machines_engine_is_the_only_source_outside_kubernetes(void **state)
{
    static const struct {
        const char *words[5];
        enum source_choice source;
    } cases[] = {
        {{NULL}, SOURCE_CHOICE_AUTO},
        {{"--source=nvml"}, SOURCE_CHOICE_NVML},
        {{"--source=dcgm"}, SOURCE_CHOICE_DCGM},
        {{"-r", ""}, SOURCE_CHOICE_AUTO},
        {{"-r", "localhost:5555"}, SOURCE_CHOICE_AUTO},
        {{"-r", "unix:///run/he.sock"}, SOURCE_CHOICE_AUTO},
        {{"-r", "vsock://1:5555"}, SOURCE_CHOICE_AUTO},
        {{"-r", "dcgm.example:5555"}, SOURCE_CHOICE_DCGM},
        {{"-r", "tcp://10.0.0.1:5555"}, SOURCE_CHOICE_DCGM},
        {{"-r", "vsock://3:5555"}, SOURCE_CHOICE_DCGM},
        {{"-k", "-r", "dcgm.example:5555"}, SOURCE_CHOICE_AUTO}, // a Service of this node's pod
        {{"-r", "dcgm.example:5555", "--source=nvml"}, SOURCE_CHOICE_NVML},
        {{"-k", "-r", "dcgm.example:5555", "--source=dcgm"}, SOURCE_CHOICE_DCGM},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o;
        struct error err;
        assert_int_equal(parse_words(cases[i].words, WORDS("NODE_NAME=n"), &o, &err), 0);
        assert_int_equal(o.source, cases[i].source);
        exporter_options_deinit(&o);
    }
}

static void loopback_remotes_are_told_from_others(void **state)
{
    static const char *const here[] = {
        "",
        "localhost",
        "localhost:5555",
        "LOCALHOST:1",
        "127.0.0.1",
        "127.0.0.1:5555",
        "127.9.9.9:1",
        "[::1]:5555",
        "[::1]",
        "::1",
        "tcp://127.0.0.1:5555",
        "tcp://[::1]:5555",
        "unix:///run/x",
        "unix:/run/x",
        "/run/x",
        " ",
        "vsock://1:5555",
        "vsock://1",
    };
    static const char *const there[] = {
        "example.com:5555",
        "example.com",
        "10.0.0.1:5555",
        "128.0.0.1:1",
        "[2001:db8::1]:5555",
        "[::]:5555",
        "::",
        "tcp://10.0.0.1:5555",
        "vsock://2:5555",
        "localhost.example:1",
        "nvidia-dcgm:5555",
    };
    for (size_t i = 0; i < ARRAY_SIZE(here); i++)
        assert_true(exporter_remote_is_loopback(sv_from(here[i])));
    for (size_t i = 0; i < ARRAY_SIZE(there); i++)
        assert_false(exporter_remote_is_loopback(sv_from(there[i])));
}

static void the_hostname_is_the_nodes_else_the_machines(void **state)
{
    struct exporter_options o;
    struct error err;
    char own[256];
    assert_int_equal(gethostname(own, sizeof(own)), 0);
    const struct {
        const char *variable, *expected;
    } cases[] = {
        {"NODE_NAME=node-1", "node-1"},
        {"NODE_NAME=", own},
        {"NODE_NAMES=x", own},
        {"DCGM_REMOTE_HOSTENGINE_INFO=localhost:5555", own},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(parse_words(WORDS(), WORDS(cases[i].variable), &o, &err), 0);
        assert_string_equal(o.hostname, cases[i].expected);
        exporter_options_deinit(&o);
    }
    char name[10 + 256 + 1] = "NODE_NAME=";
    for (size_t len = 254; len <= 256; len++) {
        memset(name + 10, 'n', len);
        int r = parse_words(WORDS(), WORDS(name), &o, &err);
        assert_int_equal(r, len < 256 ? 0 : -EINVAL);
        if (r == 0)
            assert_string_equal(o.hostname, name + 10);
        exporter_options_deinit(&o);
    }
}

static void the_downward_api_says_which_pod_this_is(void **state)
{
    struct exporter_options o;
    struct error err;
    assert_int_equal(parse_words(WORDS(),
                                 WORDS("POD_NAMESPACE=gpu", "POD_NAME=podgpu-x", "POD_NAMES=z"), &o,
                                 &err),
                     0);
    assert_string_equal(o.own_namespace, "gpu");
    assert_string_equal(o.own_pod, "podgpu-x");
    exporter_options_deinit(&o);
    assert_int_equal(parse_words(WORDS(), WORDS("POD_NAME="), &o, &err), 0);
    assert_string_equal(o.own_namespace, "");
    assert_string_equal(o.own_pod, "");
    exporter_options_deinit(&o);
}

// The rows of dcgm-exporter's own test with what its 4.8.3 makes of them: an engine on this machine
// leaves the host name alone.
static void the_hostname_is_that_of_a_remote_engine(void **state)
{
    static const struct {
        const char *remote, *expected;
    } cases[] = {
        {"example.com:5555", "example.com"},
        {"example.com", "example.com"},
        {"[2001:db8::1]:5555", "2001:db8::1"},
        {"[2001:db8::1]", "[2001:db8::1]"},
        {"2001:db8::1", "2001:db8::1"},
        {"[::]:5555", "::"},
        {"tcp://example.com:5555", "example.com"},
        {" example.com:5555 ", "example.com"},
        {"tcp://[2001:db8::1]:5555", "2001:db8::1"},
        {"vsock://3:5555", "3"},
        {"127.0.0.1", "node-1"},
        {"localhost:5555", "node-1"},
        {"[::1]:5555", "node-1"},
        {"[::1]", "node-1"},
        {"::1", "node-1"},
        {"", "node-1"},
        {"vsock://1:5555", "node-1"},
        {"unix:///run/he.sock", "node-1"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o;
        struct error err;
        assert_int_equal(
            parse_words(WORDS("-r", cases[i].remote), WORDS("NODE_NAME=node-1"), &o, &err), 0);
        assert_string_equal(o.hostname, cases[i].expected);
        exporter_options_deinit(&o);
        assert_int_equal(
            parse_words(WORDS("-k", "-r", cases[i].remote), WORDS("NODE_NAME=node-1"), &o, &err),
            0);
        assert_string_equal(o.hostname, "node-1");
        exporter_options_deinit(&o);
    }
}

static void no_hostname_leaves_the_label_away(void **state)
{
    struct exporter_options o;
    struct error err;
    assert_int_equal(
        parse_words(WORDS("-n", "--hostname-label=both"), WORDS("NODE_NAME=x"), &o, &err), 0);
    assert_int_equal(o.hostname_label, HOSTNAME_LABEL_NONE);
    assert_string_equal(o.hostname, "");
    exporter_options_deinit(&o);
    assert_int_equal(parse_words(WORDS("-k"), WORDS("NODE_NAME=x"), &o, &err), 0);
    assert_string_equal(o.hostname, "x");
    exporter_options_deinit(&o);
}

static void the_first_word_that_is_no_flag_is_told(void **state)
{
    static const struct {
        const char *words[5];
        const char *first;
    } cases[] = {
        {{"-k"}, NULL},
        {{"-k", "true", "-d", "g"}, "true"},
        {{"-k", "--", "-d"}, "-d"},
        {{"-k", "--"}, NULL},
        {{"-k", ""}, ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o;
        struct error err;
        assert_int_equal(parse_words(cases[i].words, WORDS("NODE_NAME=x"), &o, &err), 0);
        assert_true(o.flags.kubernetes && o.gpus.flexible);
        if (cases[i].first)
            assert_string_equal(o.ignored_word, cases[i].first);
        else
            assert_null(o.ignored_word);
        exporter_options_deinit(&o);
    }
}

static void help_and_version_are_outcomes(void **state)
{
    struct exporter_options o;
    struct error err;
    assert_int_equal(parse_words(WORDS("--help"), NULL, &o, &err), OPTION_OUTCOME_HELP);
    assert_int_equal(parse_words(WORDS("-v"), NULL, &o, &err), OPTION_OUTCOME_VERSION);
    exporter_options_deinit(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_flag_keeps_its_names_and_default),
        cmocka_unit_test(rows_do_not_share_names_or_places),
        cmocka_unit_test(nothing_given_is_a_working_configuration),
        cmocka_unit_test(choices_become_types),
        cmocka_unit_test(mistakes_name_flag_variable_found_and_expected),
        cmocka_unit_test(selections_are_checked_in_the_order_d_s_p),
        cmocka_unit_test(short_intervals_are_raised_and_told),
        cmocka_unit_test(what_is_asked_for_and_not_there_is_listed),
        cmocka_unit_test(what_is_about_dcgm_is_listed_where_only_nvml_is_asked),
        cmocka_unit_test(another_machines_engine_is_the_only_source_outside_kubernetes),
        cmocka_unit_test(the_downward_api_says_which_pod_this_is),
        cmocka_unit_test(the_hostname_is_that_of_a_remote_engine),
        cmocka_unit_test(loopback_remotes_are_told_from_others),
        cmocka_unit_test(the_hostname_is_the_nodes_else_the_machines),
        cmocka_unit_test(no_hostname_leaves_the_label_away),
        cmocka_unit_test(the_first_word_that_is_no_flag_is_told),
        cmocka_unit_test(help_and_version_are_outcomes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
