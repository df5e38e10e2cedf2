// SPDX-License-Identifier: Apache-2.0
// Which labels of a pod are shown, under which names, and how long they are known.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/buf.h"
#include "base/limits.h"
#include "exporter/pod_metadata.h"

#define WORDS(...) ((const char *const[]){"podgpu-exporter", __VA_ARGS__, NULL})

static struct exporter_options parse(const char *const *words)
{
    static char *environment[] = {"NODE_NAME=n", NULL};
    struct exporter_options o;
    struct error err = ERROR_INIT;
    char *argv[16] = {NULL};
    int argc = 0;
    for (; words[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc];
    if (exporter_options_parse(argc, argv, environment, &o, &err) < 0)
        fail_msg("%s", err.text);
    return o;
}

// Labels and UID on, and these patterns.
static struct exporter_options labelled(const char *patterns)
{
    char text[512];
    snprintf(text, sizeof(text), "--kubernetes-pod-label-allowlist-regex=%s", patterns);
    return parse(
        WORDS("-k", "--kubernetes-enable-pod-labels", "--kubernetes-enable-pod-uid", text));
}

// What a key "namespace/name" does not say: members of an object's metadata, and its status.
static int put_object(struct pod_metadata *m, enum pod_metadata_source source, const char *key,
                      const char *metadata, const char *status)
{
    struct buf text = BUF_INIT(1u << 20);
    struct sv name = sv_from(key), namespace_name;
    sv_next(&name, '/', &namespace_name);
    buf_add_fmt(&text,
                "{\"metadata\":{\"namespace\":\"%.*s\",\"name\":\"%.*s\"%s%s},"
                "\"status\":{%s}}",
                SV_FMT(namespace_name), SV_FMT(name), *metadata ? "," : "", metadata, status);
    struct json_document *d = NULL;
    struct arena arena = ARENA_INIT(LIMIT_POD_RECORD_BYTES);
    struct pod_record pod;
    int r = text.error ? text.error : json_parse(buf_sv(&text), "pod", &d, NULL);
    if (r == 0)
        r = pod_record_from_json(json_root(d), &arena, &pod);
    if (r == 0)
        r = pod_metadata_put(m, source, &pod);
    json_document_free(d);
    arena_deinit(&arena);
    buf_deinit(&text);
    return r;
}

static int put(struct pod_metadata *m, const char *key, const char *metadata)
{
    return put_object(m, POD_METADATA_API_SERVER, key, metadata, "");
}

static int put_labels(struct pod_metadata *m, const char *key, const char *labels)
{
    struct buf text = BUF_INIT(1u << 20);
    buf_add_fmt(&text, "\"uid\":\"u-1\",\"labels\":{%s}", labels);
    int r = text.error ? text.error : put(m, key, buf_cstr(&text));
    buf_deinit(&text);
    return r;
}

// "name=value " of each label, after the UID.
static const char *shown(const struct pod_metadata *m, const char *pod)
{
    static char text[64u << 10];
    const struct pod_metadata_entry *e = pod_metadata_find(m, "ns", pod);
    if (!e)
        return "none";
    struct buf b = {.data = text, .cap = sizeof(text), .max = sizeof(text)};
    const char *at = e->text;
    buf_add_fmt(&b, "%s:", at);
    for (uint32_t i = 0; i < e->label_count; i++) {
        const char *name = at + strlen(at) + 1;
        at = name + strlen(name) + 1;
        buf_add_fmt(&b, " %s=%s", name, at);
    }
    assert_int_equal(b.error, 0);
    text[b.len] = '\0';
    return text;
}

static struct pod_metadata *store(const struct exporter_options *o)
{
    struct pod_metadata *m = NULL;
    assert_int_equal(pod_metadata_new(o, &m), 0);
    return m;
}

static struct pod_metadata_stats stats_of(const struct pod_metadata *m)
{
    struct pod_metadata_stats s;
    pod_metadata_get_stats(m, &s);
    return s;
}

// --- Names ---

static void names_are_dcgm_exporters_with_its_mistakes_mended(void **state)
{
    static const struct {
        const char *labels, *shown;
        unsigned same_name;
    } cases[] = {
        {"", "u-1:", 0},
        {"\"valid_label_key\":\"label-value\"", "u-1: valid_label_key=label-value", 0},
        {"\"invalid.label/key\":\"another-value\"", "u-1: invalid_label_key=another-value", 0},
        {"\"b\":\"2\",\"a\":\"1\",\"C\":\"3\"", "u-1: C=3 a=1 b=2", 0},
        {"\"empty\":\"\"", "u-1: empty=", 0},
        {"\"7days\":\"x\"", "u-1: _7days=x", 0},
        {"\"caf\xc3\xa9\":\"x\"", "u-1: caf__=x", 0},
        {"\"n\":5,\"t\":null,\"s\":\"x\"", "u-1: s=x", 0}, // Kubernetes has texts only
        // Two keys, one name: the first in byte order, whatever the order they came in.
        {"\"a_b\":\"low line\",\"a.b\":\"dot\",\"a-b\":\"minus\"", "u-1: a_b=minus", 2},
        // What the series has already.
        {"\"pod\":\"p\",\"gpu\":\"g\",\"modelName\":\"m\",\"hostname\":\"h\"",
         "u-1: label_gpu=g label_hostname=h label_modelName=m label_pod=p", 0},
        {"\"container\":\"c\",\"namespace\":\"n\",\"UUID\":\"u\",\"pod_uid\":\"x\"",
         "u-1: label_UUID=u label_container=c label_namespace=n label_pod_uid=x", 0},
        {"\"DCGM_FI_DRIVER_VERSION\":\"1\"", "u-1: label_DCGM_FI_DRIVER_VERSION=1", 0},
        {"\"vgpu\":\"1\",\"hpc.job\":\"2\",\"err_code\":\"3\"",
         "u-1: label_err_code=3 label_hpc_job=2 label_vgpu=1", 0},
        {"\"_.reserved\":\"x\"", "u-1: label___reserved=x", 0},
        {"\"label_pod\":\"itself\",\"pod\":\"renamed\"", "u-1: label_pod=itself", 1},
        {"\"uuid\":\"1\",\"pod_name\":\"2\"", "u-1: pod_name=2 uuid=1", 0},
    };
    struct exporter_options o = labelled("");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pod_metadata *m = store(&o);
        assert_int_equal(put_labels(m, "ns/p", cases[i].labels), 0);
        assert_string_equal(shown(m, "p"), cases[i].shown);
        assert_int_equal(stats_of(m).same_name, cases[i].same_name);
        assert_int_equal(stats_of(m).over_budget, 0);
        pod_metadata_free(m);
    }
    exporter_options_deinit(&o);
}

static void the_old_namespace_has_names_of_its_own(void **state)
{
    struct exporter_options o = parse(WORDS("-k", "-o", "--kubernetes-enable-pod-labels"));
    struct pod_metadata *m = store(&o);
    assert_int_equal(
        put_labels(m, "ns/p", "\"uuid\":\"1\",\"pod_name\":\"2\",\"pod\":\"3\",\"UUID\":\"4\""), 0);
    assert_string_equal(shown(m, "p"), ": UUID=4 label_pod_name=2 label_uuid=1 pod=3");
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void the_allowlist_looks_for_its_patterns_in_raw_keys(void **state)
{
    static const struct {
        const char *patterns, *shown;
    } cases[] = {
        {"", "u-1: app=1 app_kubernetes_io_name=2 my_app=3 tier=4"},
        {"app", "u-1: app=1 app_kubernetes_io_name=2 my_app=3"},
        {"^app$", "u-1: app=1"},
        {"^app$,^tier$", "u-1: app=1 tier=4"},
        {"^app$, ,^tier$,", "u-1: app=1 tier=4"},
        {"^app\\.kubernetes\\.io/", "u-1: app_kubernetes_io_name=2"},
        {"app_kubernetes", "u-1:"}, // not what the name became
        {"(?i)TIER", "u-1: tier=4"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o = labelled(cases[i].patterns);
        struct pod_metadata *m = store(&o);
        assert_int_equal(put_labels(m, "ns/p",
                                    "\"app\":\"1\",\"app.kubernetes.io/name\":\"2\","
                                    "\"my-app\":\"3\",\"tier\":\"4\""),
                         0);
        assert_string_equal(shown(m, "p"), cases[i].shown);
        pod_metadata_free(m);
        exporter_options_deinit(&o);
    }
}

static void a_label_that_is_not_asked_for_neither_clashes_nor_counts(void **state)
{
    struct exporter_options o = labelled("^a_b$");
    struct pod_metadata *m = store(&o);
    assert_int_equal(put_labels(m, "ns/p", "\"a.b\":\"dot\",\"a_b\":\"low line\""), 0);
    assert_string_equal(shown(m, "p"), "u-1: a_b=low line");
    assert_int_equal(stats_of(m).same_name, 0);
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void only_what_is_asked_for_is_kept(void **state)
{
    static const char pod[] = "\"uid\":\"u-1\",\"labels\":{\"a\":\"1\"}";
    static const struct {
        const char *flag, *shown;
    } cases[] = {
        {"--kubernetes-enable-pod-labels", ": a=1"},
        {"--kubernetes-enable-pod-uid", "u-1:"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct exporter_options o = parse(WORDS("-k", cases[i].flag));
        struct pod_metadata *m = store(&o);
        assert_int_equal(put(m, "ns/p", pod), 0);
        assert_string_equal(shown(m, "p"), cases[i].shown);
        pod_metadata_free(m);
        exporter_options_deinit(&o);
    }
}

static void odd_objects_have_neither_labels_nor_uid(void **state)
{
    static const char *const pods[] = {"", "\"labels\":[\"a\"],\"uid\":5", "\"labels\":null",
                                       "\"ownerReferences\":{},\"annotations\":[1]"};
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    for (size_t i = 0; i < ARRAY_SIZE(pods); i++) {
        assert_int_equal(put(m, "ns/p", pods[i]), 0);
        assert_string_equal(shown(m, "p"), ":");
    }
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

// --- Budgets ---

static void add_numbered(struct buf *b, size_t count, size_t value_bytes)
{
    for (size_t i = 0; i < count; i++) {
        buf_add_fmt(b, "%s\"k%04zu\":\"", i > 0 ? "," : "", i);
        for (size_t v = 0; v < value_bytes; v++)
            buf_add_char(b, 'v');
        buf_add_char(b, '"');
    }
}

static void a_pod_has_so_many_labels_and_the_first_keys_stay(void **state)
{
    struct exporter_options o = labelled("");
    for (int over = -1; over <= 1; over++) {
        struct buf labels = BUF_INIT(1u << 20);
        struct pod_metadata *m = store(&o);
        size_t count = (size_t)(LIMIT_POD_LABELS + over);
        add_numbered(&labels, count, 1);
        assert_int_equal(put_labels(m, "ns/p", buf_cstr(&labels)), 0);
        assert_int_equal(pod_metadata_find(m, "ns", "p")->label_count,
                         over > 0 ? LIMIT_POD_LABELS : count);
        assert_int_equal(stats_of(m).over_budget, over > 0);
        assert_non_null(strstr(shown(m, "p"), "u-1: k0000=v k0001=v"));
        pod_metadata_free(m);
        buf_deinit(&labels);
    }
    exporter_options_deinit(&o);
}

static void a_pod_has_so_many_bytes_and_smaller_labels_still_fit(void **state)
{
    struct exporter_options o = labelled("");
    struct buf labels = BUF_INIT(1u << 20);
    struct pod_metadata *m = store(&o);
    add_numbered(&labels, 3, LIMIT_POD_LABELS_BYTES / 2 - 100);
    buf_add_str(&labels, ",\"small\":\"x\"");
    assert_int_equal(put_labels(m, "ns/p", buf_cstr(&labels)), 0);
    const struct pod_metadata_entry *e = pod_metadata_find(m, "ns", "p");
    assert_int_equal(e->label_count, 3); // two large ones and the small one
    assert_int_equal(e->over_budget, 1);
    assert_true(e->text_bytes <= LIMIT_POD_LABELS_BYTES + sizeof("u-1"));
    assert_non_null(strstr(shown(m, "p"), " small=x"));
    pod_metadata_free(m);
    buf_deinit(&labels);
    exporter_options_deinit(&o);
}

static void pods_past_the_ceiling_are_refused_and_counted(void **state)
{
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    char key[32];
    for (size_t i = 0; i < LIMIT_POD_METADATA_PODS + 2; i++) {
        snprintf(key, sizeof(key), "ns/p%zu", i);
        assert_int_equal(put_labels(m, key, "\"a\":\"b\""), 0);
    }
    assert_int_equal(stats_of(m).pods, LIMIT_POD_METADATA_PODS);
    assert_int_equal(stats_of(m).refused, 2);
    assert_int_equal(put_labels(m, "ns/p0", "\"a\":\"c\""), 0); // a known one still changes
    assert_string_equal(shown(m, "p0"), "u-1: a=c");
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void bytes_past_the_ceiling_are_refused_and_counted(void **state)
{
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    struct buf labels = BUF_INIT(1u << 20);
    add_numbered(&labels, 1, LIMIT_POD_LABELS_BYTES - 100);
    char key[32];
    size_t fit = LIMIT_POD_METADATA_BYTES / LIMIT_POD_LABELS_BYTES, i = 0;
    for (; stats_of(m).refused == 0 && i < 2 * fit; i++) {
        snprintf(key, sizeof(key), "ns/p%zu", i);
        assert_int_equal(put_labels(m, key, buf_cstr(&labels)), 0);
    }
    assert_in_range(i, fit, fit + fit / 10);
    assert_int_equal(put_labels(m, "ns/p0", ""), 0); // room is given back
    assert_int_equal(put_labels(m, key, buf_cstr(&labels)), 0);
    assert_int_equal(stats_of(m).refused, 1);
    buf_deinit(&labels);
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

// --- Life ---

static void the_version_moves_with_what_is_shown(void **state)
{
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    uint64_t version = pod_metadata_version(m);
    assert_int_equal(put_labels(m, "ns/p", "\"a\":\"1\""), 0);
    assert_int_not_equal(pod_metadata_version(m), version);
    version = pod_metadata_version(m);
    assert_int_equal(
        put(m, "ns/p", "\"resourceVersion\":\"8\",\"labels\":{\"a\":\"1\"},\"uid\":\"u-1\""), 0);
    assert_int_equal(pod_metadata_version(m), version);
    assert_int_equal(put_labels(m, "ns/p", "\"a\":\"2\""), 0);
    assert_int_not_equal(pod_metadata_version(m), version);
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void a_deleted_pod_is_known_while_the_kubelet_lists_it(void **state)
{
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    struct pod_device rows[] = {
        {"ns", "held", "a", "nvidia.com/gpu", "GPU-a", 1},
        {"ns", "held", "b", "nvidia.com/gpu", "GPU-b", 1},
        {"other", "free", "a", "nvidia.com/gpu", "GPU-c", 1},
    };
    const struct pod_devices list = {.refs = 1, .count = ARRAY_SIZE(rows), .rows = rows};
    assert_int_equal(put_labels(m, "ns/held", "\"a\":\"1\""), 0);
    assert_int_equal(put_labels(m, "ns/free", "\"a\":\"2\""), 0);
    assert_int_equal(put_labels(m, "ns/there", "\"a\":\"3\""), 0);
    pod_metadata_delete(m, POD_METADATA_API_SERVER, SV("ns/held"));
    pod_metadata_delete(m, POD_METADATA_API_SERVER, SV("ns/free"));
    pod_metadata_delete(m, POD_METADATA_API_SERVER, SV("ns/free"));
    pod_metadata_delete(m, POD_METADATA_API_SERVER, SV("ns/unknown"));
    pod_metadata_prune(m, &list);
    assert_string_equal(shown(m, "held"), "u-1: a=1");
    assert_string_equal(shown(m, "free"), "none");
    assert_string_equal(shown(m, "there"), "u-1: a=3");
    assert_int_equal(put_labels(m, "ns/held", "\"a\":\"1\""), 0); // made again
    pod_metadata_prune(m, NULL);
    assert_string_equal(shown(m, "held"), "u-1: a=1");
    pod_metadata_delete(m, POD_METADATA_API_SERVER, SV("ns/held"));
    uint64_t version = pod_metadata_version(m);
    pod_metadata_prune(m, NULL);
    assert_string_equal(shown(m, "held"), "none");
    assert_int_not_equal(pod_metadata_version(m), version);
    assert_int_equal(stats_of(m).pods, 1);
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void names_longer_than_kubernetes_has_find_nothing(void **state)
{
    char name[LIMIT_POD_KEY_BYTES + 10];
    memset(name, 'x', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    assert_null(pod_metadata_find(m, "ns", name));
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

// --- Sources ---

#define ID_A "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define ID_B "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define HASH "0123456789abcdef0123456789abcdef"
#define MIRROR "\"annotations\":{\"kubernetes.io/config.mirror\":\"" HASH "\"}"
#define STATIC                                                                                     \
    "\"annotations\":{\"kubernetes.io/config.hash\":\"" HASH                                       \
    "\",\"kubernetes.io/config.source\":\"file\"}"
#define CONTAINERS                                                                                 \
    "\"containerStatuses\":[{\"name\":\"main\",\"containerID\":\"containerd://" ID_A               \
    "\"}],\"initContainerStatuses\":[{\"name\":\"setup\",\"containerID\":\"cri-o://" ID_B "\"}],"  \
    "\"phase\":\"Running\""

// "namespace/pod uid container", "(init)" behind an init container; "none".
static const char *identity(const struct pod_metadata *m, const char *uid, const char *id)
{
    static char text[512];
    struct pod_metadata_identity found;
    if (!pod_metadata_by_uid(m, uid, id, &found))
        return "none";
    snprintf(text, sizeof(text), "%s/%s %s %s%s", found.namespace_name, found.pod, found.uid,
             found.container, found.init ? "(init)" : "");
    return text;
}

static void a_uid_and_a_container_id_name_a_process(void **state)
{
    struct exporter_options o = parse(WORDS("-k")); // neither labels nor UIDs are shown
    struct pod_metadata *m = store(&o);
    for (int source = 0; source < POD_METADATA_SOURCES; source++) {
        assert_int_equal(
            put_object(m, (enum pod_metadata_source)source, "ns/p", "\"uid\":\"ab-1\"", CONTAINERS),
            0);
        assert_string_equal(identity(m, "ab-1", ID_A), "ns/p ab-1 main");
        assert_string_equal(identity(m, "AB-1", ID_B), "ns/p ab-1 setup(init)");
        assert_string_equal(identity(m, "ab-1", ""), "ns/p ab-1 ");
        assert_string_equal(identity(m, "ab-1", HASH), "ns/p ab-1 ");
        assert_string_equal(identity(m, "ab", ID_A), "none");
        assert_string_equal(identity(m, "", ID_A), "none");
        assert_string_equal(pod_metadata_uid(m, "ns", "p"), "ab-1");
        assert_string_equal(pod_metadata_phase(m, "ns", "p"), "Running");
        assert_string_equal(pod_metadata_uid(m, "ns", "q"), "");
        pod_metadata_forget(m, (enum pod_metadata_source)source);
        pod_metadata_prune(m, NULL);
        assert_string_equal(identity(m, "ab-1", ID_A), "none");
        assert_string_equal(pod_metadata_uid(m, "ns", "p"), "");
        assert_string_equal(shown(m, "p"), "none");
    }
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void a_static_pod_is_found_by_its_hash_and_shown_with_its_mirrors_uid(void **state)
{
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    assert_int_equal(put(m, "ns/p", "\"uid\":\"mirror-uid\"," MIRROR), 0);
    assert_string_equal(identity(m, HASH, ""), "ns/p " HASH " ");
    assert_string_equal(identity(m, "mirror-uid", ""), "ns/p " HASH " ");
    assert_string_equal(pod_metadata_uid(m, "ns", "p"), HASH);
    assert_string_equal(shown(m, "p"), "mirror-uid:");
    // The kubelet knows it by its hash alone; that changes nothing.
    assert_int_equal(
        put_object(m, POD_METADATA_KUBELET, "ns/p", "\"uid\":\"" HASH "\"," STATIC, ""), 0);
    assert_string_equal(shown(m, "p"), "mirror-uid:");
    assert_string_equal(pod_metadata_uid(m, "ns", "p"), HASH);
    pod_metadata_forget(m, POD_METADATA_API_SERVER);
    pod_metadata_prune(m, NULL);
    assert_string_equal(shown(m, "p"), HASH ":");
    assert_string_equal(identity(m, "mirror-uid", ""), "none");
    assert_string_equal(identity(m, HASH, ""), "ns/p " HASH " ");
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

// Whoever makes pods may write annotations.
static void a_hash_that_is_claimed_takes_no_pods_place(void **state)
{
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    assert_int_equal(put(m, "ns/victim", "\"uid\":\"" HASH "\""), 0);
    assert_int_equal(put(m, "ns/thief", "\"uid\":\"t\"," MIRROR), 0);
    assert_string_equal(identity(m, HASH, ""), "ns/victim " HASH " ");
    assert_int_equal(
        put(m, "ns/other", "\"uid\":\"o\",\"annotations\":{\"kubernetes.io/config.hash\":\"x\"}"),
        0);
    assert_string_equal(identity(m, "x", ""), "none");
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void the_better_source_counts_and_what_it_forgets_is_the_others(void **state)
{
    static const char *const told[POD_METADATA_SOURCES] = {
        [POD_METADATA_LOGS] = "\"uid\":\"u\"",
        [POD_METADATA_API_SERVER] = "\"uid\":\"u\",\"labels\":{\"from\":\"server\"}",
        [POD_METADATA_KUBELET] = "\"uid\":\"u\",\"labels\":{\"from\":\"kubelet\"}",
    };
    static const char *const says[POD_METADATA_SOURCES] = {"u:", "u: from=server",
                                                           "u: from=kubelet"};
    static const int orders[][POD_METADATA_SOURCES] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}};
    struct exporter_options o = labelled("");
    for (size_t i = 0; i < ARRAY_SIZE(orders); i++) {
        struct pod_metadata *m = store(&o);
        int best = 0;
        for (size_t n = 0; n < POD_METADATA_SOURCES; n++) {
            int source = orders[i][n];
            assert_int_equal(
                put_object(m, (enum pod_metadata_source)source, "ns/p", told[source], ""), 0);
            best = source > best ? source : best;
            assert_string_equal(shown(m, "p"), says[best]);
        }
        for (int source = POD_METADATA_KUBELET; source > POD_METADATA_LOGS; source--) {
            pod_metadata_forget(m, (enum pod_metadata_source)source);
            pod_metadata_prune(m, NULL);
            assert_string_equal(shown(m, "p"), says[source - 1]);
            assert_int_equal(stats_of(m).pods, source > POD_METADATA_API_SERVER);
        }
        pod_metadata_free(m);
    }
    exporter_options_deinit(&o);
}

static void a_pod_deleted_by_all_who_know_it_keeps_its_labels_while_it_is_held(void **state)
{
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    struct pod_device row = {"ns", "p", "a", "nvidia.com/gpu", "GPU-a", 1};
    const struct pod_devices list = {.refs = 1, .count = 1, .rows = &row};
    assert_int_equal(put_object(m, POD_METADATA_LOGS, "ns/p", "\"uid\":\"u-1\"", ""), 0);
    assert_int_equal(put_labels(m, "ns/p", "\"a\":\"1\""), 0);
    pod_metadata_delete(m, POD_METADATA_API_SERVER, SV("ns/p"));
    pod_metadata_prune(m, &list);
    assert_string_equal(shown(m, "p"), "u-1: a=1"); // the log's name lives on, and knows no labels
    pod_metadata_prune(m, NULL);
    assert_string_equal(shown(m, "p"), "u-1:");
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void a_list_told_anew_deletes_what_it_leaves_out(void **state)
{
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    for (int round = 0; round < 3; round++) {
        pod_metadata_begin(m, POD_METADATA_KUBELET);
        assert_int_equal(put_object(m, POD_METADATA_KUBELET, "ns/stays", "\"uid\":\"s\"", ""), 0);
        if (round != 1)
            assert_int_equal(put_object(m, POD_METADATA_KUBELET, "ns/goes", "\"uid\":\"g\"", ""),
                             0);
        assert_string_equal(identity(m, "g", ""), "ns/goes g ");
        pod_metadata_end(m, POD_METADATA_KUBELET);
        pod_metadata_prune(m, NULL);
        assert_string_equal(identity(m, "g", ""), round == 1 ? "none" : "ns/goes g ");
        assert_string_equal(identity(m, "s", ""), "ns/stays s ");
    }
    assert_int_equal(put_labels(m, "ns/served", ""), 0); // another source's is not touched
    pod_metadata_begin(m, POD_METADATA_KUBELET);
    pod_metadata_end(m, POD_METADATA_KUBELET);
    pod_metadata_prune(m, NULL);
    assert_int_equal(stats_of(m).pods, 1);
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void a_name_made_again_is_the_later_created_pod_whoever_tells_first(void **state)
{
    static const char before[] = "\"uid\":\"one\",\"creationTimestamp\":\"2026-05-01T10:00:00Z\"";
    static const char after[] = "\"uid\":\"two\",\"creationTimestamp\":\"2026-05-01T10:00:07Z\"";
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    assert_int_equal(put_object(m, POD_METADATA_KUBELET, "ns/p", before, ""), 0);
    assert_int_equal(put(m, "ns/p", before), 0);
    assert_int_equal(put(m, "ns/p", after), 0); // the server is ahead
    assert_string_equal(pod_metadata_uid(m, "ns", "p"), "two");
    assert_string_equal(shown(m, "p"), "two:");
    assert_string_equal(identity(m, "one", ""), "ns/p one "); // its last processes
    assert_string_equal(identity(m, "two", ""), "ns/p two ");
    assert_int_equal(put_object(m, POD_METADATA_KUBELET, "ns/p", after, ""), 0);
    assert_string_equal(identity(m, "one", ""), "none");
    assert_int_equal(put(m, "ns/p", before), 0); // now behind, as another server's cache may be
    assert_string_equal(pod_metadata_uid(m, "ns", "p"), "two");
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void owners_are_told_and_the_logs_know_none(void **state)
{
    static const char owned[] = "\"uid\":\"u\",\"ownerReferences\":[{\"kind\":\"Job\","
                                "\"name\":\"train\",\"controller\":true}]";
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    const char *kind, *name;
    assert_int_equal(put_object(m, POD_METADATA_LOGS, "ns/p", "\"uid\":\"u\"", ""), 0);
    assert_false(pod_metadata_owner(m, "ns", "p", &kind, &name));
    assert_string_equal(kind, "");
    uint64_t version = pod_metadata_version(m);
    assert_int_equal(put(m, "ns/p", owned), 0);
    assert_true(pod_metadata_owner(m, "ns", "p", &kind, &name));
    assert_string_equal(kind, "Job");
    assert_string_equal(name, "train");
    assert_int_not_equal(pod_metadata_version(m), version);
    assert_false(pod_metadata_owner(m, "ns", "unknown", &kind, &name));
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

static void containers_and_phases_are_no_news_to_a_page(void **state)
{
    struct exporter_options o = labelled("");
    struct pod_metadata *m = store(&o);
    assert_int_equal(put(m, "ns/p", "\"uid\":\"u\""), 0);
    uint64_t version = pod_metadata_version(m);
    assert_int_equal(put_object(m, POD_METADATA_API_SERVER, "ns/p", "\"uid\":\"u\"", CONTAINERS),
                     0);
    assert_int_equal(pod_metadata_version(m), version);
    assert_string_equal(identity(m, "u", ID_A), "ns/p u main");
    assert_string_equal(pod_metadata_phase(m, "ns", "p"), "Running");
    pod_metadata_free(m);
    exporter_options_deinit(&o);
}

// --- Allocation failures ---

static struct exporter_options swept_options;

static void put_and_change(void)
{
    struct pod_metadata *m = NULL;
    int r = pod_metadata_new(&swept_options, &m);
    if (r == 0)
        r = put_labels(m, "ns/p", "\"b\":\"1\",\"a.b\":\"2\",\"a_b\":\"3\"");
    int before = r;
    if (r == 0)
        r = put_labels(m, "ns/p", "\"b\":\"2\"");
    if (r == 0)
        (void)!put_object(m, POD_METADATA_KUBELET, "ns/q", "\"uid\":\"" HASH "\"," STATIC,
                          CONTAINERS);
    assert_true(r == 0 || allocation_failed);
    if (before == 0)
        assert_string_equal(shown(m, "p"), r == 0 ? "u-1: b=2" : "u-1: a_b=2 b=1");
    pod_metadata_free(m);
}

static void every_allocation_may_fail(void **state)
{
    swept_options = labelled("");
    assert_in_range(allocation_sweep(put_and_change), 8, 400);
    exporter_options_deinit(&swept_options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_dcgm_exporters_with_its_mistakes_mended),
        cmocka_unit_test(the_old_namespace_has_names_of_its_own),
        cmocka_unit_test(the_allowlist_looks_for_its_patterns_in_raw_keys),
        cmocka_unit_test(a_label_that_is_not_asked_for_neither_clashes_nor_counts),
        cmocka_unit_test(only_what_is_asked_for_is_kept),
        cmocka_unit_test(odd_objects_have_neither_labels_nor_uid),
        cmocka_unit_test(a_pod_has_so_many_labels_and_the_first_keys_stay),
        cmocka_unit_test(a_pod_has_so_many_bytes_and_smaller_labels_still_fit),
        cmocka_unit_test(pods_past_the_ceiling_are_refused_and_counted),
        cmocka_unit_test(bytes_past_the_ceiling_are_refused_and_counted),
        cmocka_unit_test(the_version_moves_with_what_is_shown),
        cmocka_unit_test(a_deleted_pod_is_known_while_the_kubelet_lists_it),
        cmocka_unit_test(names_longer_than_kubernetes_has_find_nothing),
        cmocka_unit_test(a_uid_and_a_container_id_name_a_process),
        cmocka_unit_test(a_static_pod_is_found_by_its_hash_and_shown_with_its_mirrors_uid),
        cmocka_unit_test(a_hash_that_is_claimed_takes_no_pods_place),
        cmocka_unit_test(the_better_source_counts_and_what_it_forgets_is_the_others),
        cmocka_unit_test(a_pod_deleted_by_all_who_know_it_keeps_its_labels_while_it_is_held),
        cmocka_unit_test(a_list_told_anew_deletes_what_it_leaves_out),
        cmocka_unit_test(a_name_made_again_is_the_later_created_pod_whoever_tells_first),
        cmocka_unit_test(owners_are_told_and_the_logs_know_none),
        cmocka_unit_test(containers_and_phases_are_no_news_to_a_page),
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
