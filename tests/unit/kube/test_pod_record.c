// SPDX-License-Identifier: Apache-2.0
// What is read of a pod object, and what names of logs are names.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/limits.h"
#include "kube/pod_logs.h"

#define HASH "0123456789abcdef0123456789abcdef"
#define ID HASH HASH
#define UID "2e7c9a10-6b4f-4f0e-8a3d-1c5b7d9e0f01"

struct read {
    struct json_document *document;
    struct arena arena;
    struct pod_record pod;
};

// metadata: members beside name and namespace.
static struct read read_pod(const char *metadata)
{
    struct read r = {.arena = ARENA_INIT(LIMIT_POD_RECORD_BYTES)};
    char text[4096];
    snprintf(text, sizeof(text), "{\"metadata\":{\"name\":\"p\",\"namespace\":\"n\",%s}}",
             metadata);
    assert_int_equal(json_parse(sv_from(text), "pod", &r.document, NULL), 0);
    assert_int_equal(pod_record_from_json(json_root(r.document), &r.arena, &r.pod), 0);
    return r;
}

static void read_deinit(struct read *r)
{
    json_document_free(r->document);
    arena_deinit(&r->arena);
}

static void check_text(struct sv found, const char *wanted)
{
    if (!sv_equals(found, sv_from(wanted)))
        fail_msg("'%.*s', not '%s'", SV_FMT(found), wanted);
}

#define OWNER(kind, name, controller)                                                              \
    "\"ownerReferences\":[{\"kind\":\"" kind "\",\"name\":\"" name "\",\"controller\":" controller \
    "}]"
#define TEMPLATE(hash) "\"labels\":{\"pod-template-hash\":\"" hash "\"}"

static void the_owner_is_the_controller_and_of_a_replica_set_its_deployment(void **state)
{
    static const struct {
        const char *metadata, *kind, *name;
    } cases[] = {
        {OWNER("ReplicaSet", "web-7d4b", "true") "," TEMPLATE("7d4b"), "Deployment", "web"},
        {OWNER("ReplicaSet", "a-b-7d4b", "true") "," TEMPLATE("7d4b"), "Deployment", "a-b"},
        {OWNER("ReplicaSet", "web7d4b", "true") "," TEMPLATE("7d4b"), "ReplicaSet", "web7d4b"},
        {OWNER("ReplicaSet", "-7d4b", "true") "," TEMPLATE("7d4b"), "ReplicaSet", "-7d4b"},
        {OWNER("ReplicaSet", "web-7d4b", "true"), "ReplicaSet", "web-7d4b"},
        {OWNER("ReplicaSet", "web-7d4b", "true") "," TEMPLATE("ffff"), "ReplicaSet", "web-7d4b"},
        {OWNER("Job", "train-28", "true") "," TEMPLATE("28"), "Job", "train-28"},
        {OWNER("StatefulSet", "db", "true"), "StatefulSet", "db"},
        {OWNER("Workflow", "w", "false"), "", ""},
        {OWNER("Node", "node-7", "true"), "", ""}, // of a mirror pod
        {"\"ownerReferences\":[]", "", ""},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct read r = read_pod(cases[i].metadata);
        check_text(r.pod.owner_kind, cases[i].kind);
        check_text(r.pod.owner_name, cases[i].name);
        read_deinit(&r);
    }
}

static void times_are_read_as_kubernetes_writes_them(void **state)
{
    static const struct {
        const char *text;
        int64_t seconds;
    } cases[] = {
        {"1970-01-01T00:00:01Z", 1},
        {"2000-02-29T12:00:00Z", 951825600},
        {"2026-12-01T00:05:42Z", 1796083542},
        {"2026-13-01T00:05:42Z", 0},
        {"2026-12-01 00:05:42Z", 0},
        {"2026-12-01T00:05:42+01:00", 0},
        {"", 0},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char metadata[128];
        snprintf(metadata, sizeof(metadata), "\"creationTimestamp\":\"%s\"", cases[i].text);
        struct read r = read_pod(metadata);
        assert_int_equal(r.pod.created_s, cases[i].seconds);
        read_deinit(&r);
    }
}

static void what_is_no_pod_is_refused(void **state)
{
    static const char *const texts[] = {"{}", "[]", "{\"metadata\":{\"name\":\"p\"}}",
                                        "{\"metadata\":{\"name\":\"\",\"namespace\":\"n\"}}"};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        struct arena arena = ARENA_INIT(LIMIT_POD_RECORD_BYTES);
        struct json_document *d;
        struct pod_record pod;
        assert_int_equal(json_parse(sv_from(texts[i]), "pod", &d, NULL), 0);
        assert_int_equal(pod_record_from_json(json_root(d), &arena, &pod), -EBADMSG);
        json_document_free(d);
        arena_deinit(&arena);
    }
}

static void names_of_directories_have_three_parts(void **state)
{
    static const struct {
        const char *name;
        bool is_one;
    } cases[] = {
        {"team_web-0_" UID, true},
        {"kube-system_etcd-node.7_" HASH, true},
        {"team_web-0_" UID "x", false},
        {"team_web_0_" UID, false},
        {"te.am_web_" UID, false},
        {"Team_web_" UID, false},
        {"team_-web_" UID, false},
        {"team__" UID, false},
        {"_web_" UID, false},
        {"team_web_", false},
        {"", false},
        {"../etc_web_" UID, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pod_record pod;
        if (pod_logs_parse_directory(sv_from(cases[i].name), &pod) != cases[i].is_one)
            fail_msg("%s", cases[i].name);
    }
}

static void names_of_links_end_in_an_id(void **state)
{
    struct pod_record pod;
    struct pod_record_container c;
    assert_true(pod_logs_parse_link(SV("web-0_team_main-app-" ID ".log"), &pod, &c));
    check_text(pod.name, "web-0");
    check_text(pod.namespace_name, "team");
    check_text(c.name, "main-app");
    check_text(c.id, ID);
    static const char *const others[] = {
        "web-0_team_main-" ID,  "web-0_team_main-" HASH ".log", "web-0_team_-" ID ".log",
        "team_main-" ID ".log", "web-0_team_main_" ID ".log",   ".log"};
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        assert_false(pod_logs_parse_link(sv_from(others[i]), &pod, &c));
}

// --- Both forms of one pod ---

// Fields of a message, one within another; the lengths are put in when it is closed.
struct proto {
    char room[2048];
    size_t len;
};

static void put_bytes(struct proto *p, unsigned number, struct sv bytes)
{
    assert_true(p->len + bytes.len + 4 <= sizeof(p->room) && bytes.len < 1u << 14 && number < 16);
    p->room[p->len++] = (char)(number << 3 | 2);
    p->room[p->len++] = (char)((bytes.len & 0x7f) | 0x80);
    p->room[p->len++] = (char)(bytes.len >> 7);
    memcpy(p->room + p->len, bytes.ptr, bytes.len);
    p->len += bytes.len;
}

static void put_number(struct proto *p, unsigned number, uint64_t value)
{
    p->room[p->len++] = (char)(number << 3);
    for (; value > 0x7f; value >>= 7)
        p->room[p->len++] = (char)((value & 0x7f) | 0x80);
    p->room[p->len++] = (char)value;
}

static void put_message(struct proto *p, unsigned number, const struct proto *m)
{
    put_bytes(p, number, (struct sv){m->room, m->len});
}

static void put_pair(struct proto *p, unsigned number, unsigned second, const char *const texts[2])
{
    struct proto m = {0};
    put_bytes(&m, 1, sv_from(texts[0]));
    put_bytes(&m, second, sv_from(texts[1]));
    put_message(p, number, &m);
}

#define PAIR(first, second) ((const char *const[2]){first, second})

static void put_owner(struct proto *p, const char *kind, const char *name, bool controller)
{
    struct proto m = {0};
    put_bytes(&m, 1, sv_from(kind));
    put_bytes(&m, 3, sv_from(name));
    put_number(&m, 6, controller);
    put_message(p, 13, &m);
}

static struct proto pod_as_protobuf(void)
{
    struct proto pod = {0}, metadata = {0}, status = {0}, created = {0};
    put_bytes(&metadata, 1, SV("web-7d4b-x"));
    put_bytes(&metadata, 3, SV("team"));
    put_bytes(&metadata, 5, SV(UID));
    put_number(&created, 1, 1796083542);
    put_message(&metadata, 8, &created);
    put_pair(&metadata, 11, 2, PAIR("pod-template-hash", "7d4b"));
    put_pair(&metadata, 11, 2, PAIR("app", "web"));
    put_pair(&metadata, 12, 2, PAIR("kubernetes.io/config.hash", HASH));
    put_pair(&metadata, 12, 2, PAIR("kubernetes.io/config.mirror", HASH));
    put_owner(&metadata, "Workflow", "w", false);
    put_owner(&metadata, "ReplicaSet", "web-7d4b", true);
    put_message(&pod, 1, &metadata);
    put_bytes(&pod, 2, SV("\x0a\x00")); // the spec is nobody's
    put_bytes(&status, 1, SV("Running"));
    put_pair(&status, 8, 8, PAIR("main", "containerd://" ID));
    put_pair(&status, 8, 8, PAIR("waits", ""));
    put_pair(&status, 10, 8, PAIR("side", "cri-o://" ID));
    put_pair(&status, 15, 2, PAIR("gpu", "web-gpu-abc"));
    put_message(&pod, 3, &status);
    return pod;
}

static const char POD_AS_JSON[] =
    "{\"metadata\":{\"name\":\"web-7d4b-x\",\"namespace\":\"team\",\"uid\":\"" UID "\","
    "\"creationTimestamp\":\"2026-12-01T00:05:42Z\","
    "\"labels\":{\"pod-template-hash\":\"7d4b\",\"app\":\"web\"},"
    "\"annotations\":{\"kubernetes.io/config.hash\":\"" HASH "\","
    "\"kubernetes.io/config.mirror\":\"" HASH "\"},"
    "\"ownerReferences\":[{\"kind\":\"Workflow\",\"name\":\"w\",\"controller\":false},"
    "{\"kind\":\"ReplicaSet\",\"name\":\"web-7d4b\",\"controller\":true}]},"
    "\"spec\":{},\"status\":{\"phase\":\"Running\",\"containerStatuses\":["
    "{\"name\":\"main\",\"containerID\":\"containerd://" ID "\"},"
    "{\"name\":\"waits\",\"containerID\":\"\"}],"
    "\"initContainerStatuses\":[{\"name\":\"side\",\"containerID\":\"cri-o://" ID "\"}],"
    "\"resourceClaimStatuses\":[{\"name\":\"gpu\",\"resourceClaimName\":\"web-gpu-abc\"}]}}";

static void check_same(struct sv a, struct sv b)
{
    if (!sv_equals(a, b))
        fail_msg("'%.*s' and '%.*s'", SV_FMT(a), SV_FMT(b));
}

static void check_same_record(const struct pod_record *a, const struct pod_record *b)
{
    const struct sv texts[][2] = {{a->namespace_name, b->namespace_name},
                                  {a->name, b->name},
                                  {a->uid, b->uid},
                                  {a->config_hash, b->config_hash},
                                  {a->phase, b->phase},
                                  {a->owner_kind, b->owner_kind},
                                  {a->owner_name, b->owner_name}};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        check_same(texts[i][0], texts[i][1]);
    assert_int_equal(a->created_s, b->created_s);
    assert_int_equal(a->label_count, b->label_count);
    for (size_t i = 0; i < a->label_count; i++) {
        check_same(a->labels[i].key, b->labels[i].key);
        check_same(a->labels[i].value, b->labels[i].value);
    }
    assert_int_equal(a->container_count, b->container_count);
    for (size_t i = 0; i < a->container_count; i++) {
        check_same(a->containers[i].name, b->containers[i].name);
        check_same(a->containers[i].id, b->containers[i].id);
        assert_int_equal(a->containers[i].init, b->containers[i].init);
    }
    assert_int_equal(a->claim_count, b->claim_count);
    for (size_t i = 0; i < a->claim_count; i++) {
        check_same(a->claims[i].name, b->claims[i].name);
        check_same(a->claims[i].claim, b->claims[i].claim);
    }
}

static void a_pod_is_the_same_as_json_and_as_protobuf(void **state)
{
    struct arena arena = ARENA_INIT(LIMIT_POD_RECORD_BYTES);
    struct json_document *d;
    struct pod_record json, protobuf;
    const struct proto bytes = pod_as_protobuf();
    assert_int_equal(json_parse(sv_from(POD_AS_JSON), "pod", &d, NULL), 0);
    assert_int_equal(pod_record_from_json(json_root(d), &arena, &json), 0);
    assert_int_equal(
        pod_record_from_protobuf((struct sv){bytes.room, bytes.len}, &arena, &protobuf), 0);
    check_same_record(&json, &protobuf);
    check_text(protobuf.owner_kind, "Deployment");
    check_text(protobuf.owner_name, "web");
    check_text(protobuf.config_hash, HASH);
    check_text(protobuf.containers[0].id, ID);
    assert_int_equal(protobuf.created_s, 1796083542);
    assert_int_equal(protobuf.label_count, 2);
    assert_int_equal(protobuf.container_count, 3);
    assert_int_equal(protobuf.claim_count, 1);
    json_document_free(d);
    arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_owner_is_the_controller_and_of_a_replica_set_its_deployment),
        cmocka_unit_test(times_are_read_as_kubernetes_writes_them),
        cmocka_unit_test(what_is_no_pod_is_refused),
        cmocka_unit_test(names_of_directories_have_three_parts),
        cmocka_unit_test(names_of_links_end_in_an_id),
        cmocka_unit_test(a_pod_is_the_same_as_json_and_as_protobuf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
