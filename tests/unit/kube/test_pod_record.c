// SPDX-License-Identifier: Apache-2.0
// What is read of a pod object, and what names of logs are names.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_owner_is_the_controller_and_of_a_replica_set_its_deployment),
        cmocka_unit_test(times_are_read_as_kubernetes_writes_them),
        cmocka_unit_test(what_is_no_pod_is_refused),
        cmocka_unit_test(names_of_directories_have_three_parts),
        cmocka_unit_test(names_of_links_end_in_an_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
