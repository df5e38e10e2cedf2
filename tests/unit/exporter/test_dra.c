// SPDX-License-Identifier: Apache-2.0
// ResourceSlices, names of NVIDIA's driver, and which device the row of a claim is.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/buf.h"
#include "base/limits.h"
#include "exporter/dra.h"
#include "exporter/dra_name.h"

#define U0 "GPU-11111111-2222-3333-4444-555555555555"
#define U1 "GPU-99999999-8888-7777-6666-555555555555"
#define M0 "MIG-aaaaaaaa-2222-3333-4444-555555555555"
#define M1 "MIG-bbbbbbbb-2222-3333-4444-555555555555"
#define POOL "node-1"

// --- Slices ---

#define GPU(name, uuid)                                                                            \
    "{\"name\":\"" name "\",\"attributes\":{\"type\":{\"string\":\"gpu\"},\"uuid\":{\"string\":"   \
    "\"" uuid "\"}}}"
#define MIG(name, uuid, parent, profile)                                                           \
    "{\"name\":\"" name "\",\"attributes\":{\"type\":{\"string\":\"mig\"},\"uuid\":{\"string\":"   \
    "\"" uuid "\"},\"parentUUID\":{\"string\":\"" parent "\"},\"profile\":{\"string\":\"" profile  \
    "\"}}}"
// As a cluster with dynamic MIG has it: no UUID.
#define DYNAMIC(name, parent, profile)                                                             \
    "{\"name\":\"" name "\",\"attributes\":{\"type\":{\"string\":\"mig\"},\"parentUUID\":{"        \
    "\"string\":\"" parent "\"},\"profile\":{\"string\":\"" profile "\"}}}"

static int put_text(struct dra *d, const char *key, const char *json)
{
    struct json_document *doc = NULL;
    if (json_parse(sv_from(json), "slice", &doc, NULL) < 0)
        return -EINVAL;
    int r = dra_put(d, sv_from(key), json_root(doc));
    json_document_free(doc);
    return r;
}

static int put(struct dra *d, const char *key, int generation, int slices, const char *devices)
{
    struct buf b = BUF_INIT(1u << 20);
    buf_add_fmt(&b,
                "{\"metadata\":{\"name\":\"%s\"},\"spec\":{\"driver\":\"gpu.nvidia.com\","
                "\"pool\":{\"name\":\"" POOL
                "\",\"generation\":%d,\"resourceSliceCount\":%d},\"devices\":[%s]}}",
                key, generation, slices, devices);
    int r = b.error ? b.error : put_text(d, key, buf_cstr(&b));
    buf_deinit(&b);
    return r;
}

static struct dra *dra(void)
{
    struct dra *d;
    assert_int_equal(dra_new(&d), 0);
    return d;
}

// The UUID of a device, "guess" where its name alone tells, "none".
static const char *found(struct dra *d, const char *device)
{
    struct dra_device out;
    if (!dra_find(d, SV(DRA_DRIVER), SV(POOL), sv_from(device), &out))
        return "none";
    return out.guessed ? "guess" : out.uuid;
}

static void devices_are_read_in_all_three_versions_of_the_api(void **state)
{
    static const char *const slices[] = {
        // v1 and v1beta2
        "{\"spec\":{\"driver\":\"gpu.nvidia.com\",\"pool\":{\"name\":\"" POOL
        "\",\"generation\":1,\"resourceSliceCount\":1},\"devices\":[" GPU("gpu-0", U0) "," MIG(
            "gpu-1-mig-1g12gb-19-0", M0, U1, "1g.12gb") "]}}",
        // v1beta1, and with the driver's name before its attributes'
        "{\"spec\":{\"driver\":\"gpu.nvidia.com\",\"pool\":{\"name\":\"" POOL
        "\",\"generation\":1,\"resourceSliceCount\":1},\"devices\":[{\"name\":\"gpu-0\",\"basic\":"
        "{\"attributes\":{\"gpu.nvidia.com/type\":{\"string\":\"gpu\"},\"uuid\":{\"string\":\"" U0
        "\"}}}},{\"name\":\"gpu-1-mig-1g12gb-19-0\",\"basic\":{\"attributes\":{\"type\":{"
        "\"string\":\"mig\"},\"uuid\":{\"string\":\"" M0 "\"},\"parentUUID\":{\"string\":\"" U1
        "\"},\"profile\":{\"string\":\"1g.12gb\"}}}}]}}",
    };
    for (size_t i = 0; i < ARRAY_SIZE(slices); i++) {
        struct dra *d = dra();
        struct dra_device out;
        assert_int_equal(put_text(d, "s", slices[i]), 0);
        assert_string_equal(found(d, "gpu-0"), U0);
        assert_true(dra_find(d, SV(DRA_DRIVER), SV(POOL), SV("gpu-1-mig-1g12gb-19-0"), &out));
        assert_int_equal(out.kind, DRA_MIG);
        assert_false(out.guessed);
        assert_string_equal(out.uuid, M0);
        assert_string_equal(out.parent_uuid, U1);
        assert_string_equal(out.profile, "1g.12gb");
        assert_int_equal(out.minor, 1);
        assert_int_equal(out.profile_id, 19);
        assert_int_equal(out.placement, 0);
        dra_free(d);
    }
}

static void names_of_the_driver_tell_what_slices_do_not(void **state)
{
    static const struct {
        const char *name;
        bool known, mig;
        uint32_t minor, profile_id, placement;
        const char *profile;
    } cases[] = {
        {"gpu-0", true, false, 0, UINT32_MAX, UINT32_MAX, ""},
        {"gpu-12", true, false, 12, UINT32_MAX, UINT32_MAX, ""},
        {"gpu-0-mig-1g12gb-19-0", true, true, 0, 19, 0, "1g.12gb"},
        {"gpu-3-mig-3g47gb-9-4", true, true, 3, 9, 4, "3g.47gb"},
        {"gpu-3-mig-1c2g10gb-14-2", true, true, 3, 14, 2, "1c.2g.10gb"},
        {"gpu-3-mig-1g10gbme-20-2", true, true, 3, 20, 2, "1g.10gbme"},
        {"gpu-vfio-0", false},
        {"gpu-", false},
        {"gpu-x", false},
        {"gpu-4294967295", false},
        {"gpu-0-mig", false},
        {"gpu-0-mig-19-0", false},
        {"gpu-0-mig--19-0", false},
        {"gpu-0-mig-1g12gb-19-", false},
        {"gpu-0-mig-1g12gb-x-0", false},
        {"gpu-0-1g12gb-19-0", false},
        {"gpu--mig-1g12gb-19-0", false},
        {"GPU-0", false},
        {"0", false},
        {"", false},
        {"gpu-0-mig-0123456789012345678901234567890123456789-19-0", false},
    };
    struct dra *d = dra();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dra_device out;
        bool known = dra_find(d, SV(DRA_DRIVER), SV(POOL), sv_from(cases[i].name), &out);
        if (known != cases[i].known)
            fail_msg("%s", cases[i].name);
        if (!known)
            continue;
        assert_true(out.guessed);
        assert_int_equal(out.kind, cases[i].mig ? DRA_MIG : DRA_GPU);
        assert_int_equal(out.minor, cases[i].minor);
        assert_int_equal(out.profile_id, cases[i].profile_id);
        assert_int_equal(out.placement, cases[i].placement);
        assert_string_equal(out.profile, cases[i].profile);
        assert_string_equal(out.uuid, "");
    }
    struct dra_device out;
    assert_false(dra_find(d, SV("compute-domain.nvidia.com"), SV(POOL), SV("gpu-0"), &out));
    dra_free(d);
}

// Trap: slices are published one after the other.
static void a_pool_keeps_its_mapping_until_the_next_generation_is_complete(void **state)
{
    struct dra *d = dra();
    assert_int_equal(put(d, "a", 1, 2, GPU("gpu-0", U0)), 0);
    assert_string_equal(found(d, "gpu-0"), "guess"); // half of it
    uint64_t version = dra_version(d);
    assert_int_equal(put(d, "b", 1, 2, GPU("gpu-1", U1)), 0);
    assert_string_equal(found(d, "gpu-0"), U0);
    assert_string_equal(found(d, "gpu-1"), U1);
    assert_true(dra_version(d) != version);

    // The minors change places.
    version = dra_version(d);
    assert_int_equal(put(d, "a", 2, 2, GPU("gpu-1", U0)), 0);
    dra_delete(d, SV("b"));
    assert_string_equal(found(d, "gpu-0"), U0);
    assert_string_equal(found(d, "gpu-1"), U1);
    assert_int_equal(dra_version(d), version);
    assert_int_equal(put(d, "c", 2, 2, GPU("gpu-0", U1)), 0);
    assert_string_equal(found(d, "gpu-0"), U1);
    assert_string_equal(found(d, "gpu-1"), U0);
    assert_true(dra_version(d) != version);

    // An older slice that comes late changes nothing.
    version = dra_version(d);
    assert_int_equal(put(d, "b", 1, 2, GPU("gpu-1", U1)), 0);
    assert_string_equal(found(d, "gpu-1"), U0);
    dra_delete(d, SV("b"));
    // Nor does the same once more.
    assert_int_equal(put(d, "c", 2, 2, GPU("gpu-0", U1)), 0);
    assert_int_equal(dra_version(d), version);

    dra_delete(d, SV("a"));
    assert_string_equal(found(d, "gpu-0"), U1); // one of two is gone: not complete
    dra_delete(d, SV("c"));
    assert_string_equal(found(d, "gpu-0"), "guess");
    assert_true(dra_version(d) != version);
    struct dra_stats s;
    dra_get_stats(d, &s);
    assert_int_equal(s.slices, 0);
    assert_int_equal(s.devices, 0);
    dra_free(d);
}

static void what_is_no_slice_of_the_driver_is_left_out(void **state)
{
    static const struct {
        const char *json;
        int result;
    } cases[] = {
        {"{}", -EBADMSG},
        {"[]", -EBADMSG},
        {"{\"spec\":[]}", -EBADMSG},
        {"{\"spec\":{\"driver\":7}}", -EBADMSG},
        {"{\"spec\":{\"driver\":\"gpu.nvidia.com\"}}", -EBADMSG},
        {"{\"spec\":{\"driver\":\"gpu.nvidia.com\",\"pool\":\"x\"}}", -EBADMSG},
        {"{\"spec\":{\"driver\":\"other.example.com\",\"pool\":{\"name\":\"" POOL "\"}}}", 0},
    };
    struct dra *d = dra();
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(put(d, "s", 1, 1, GPU("gpu-0", U0)), 0);
        assert_string_equal(found(d, "gpu-0"), U0);
        assert_int_equal(put_text(d, "s", cases[i].json), cases[i].result);
        assert_string_equal(found(d, "gpu-0"), "guess");
    }
    struct dra_stats s;
    dra_get_stats(d, &s);
    assert_int_equal(s.skipped, ARRAY_SIZE(cases) - 1);
    // Devices that are neither, and what has no name.
    assert_int_equal(put(d, "s", 1, 1,
                         "{},7,{\"name\":\"gpu-1\"},{\"name\":\"gpu-vfio-0\",\"attributes\":{"
                         "\"type\":{\"string\":\"vfio\"}}},{\"attributes\":{\"type\":{\"string\":"
                         "\"gpu\"}}}," GPU("gpu-0", U0)),
                     0);
    dra_get_stats(d, &s);
    assert_int_equal(s.devices, 1);
    assert_string_equal(found(d, "gpu-0"), U0);
    assert_string_equal(found(d, "gpu-vfio-0"), "none");
    dra_free(d);
}

static void devices_beyond_the_ceiling_are_counted(void **state)
{
    struct dra *d = dra();
    struct buf b = BUF_INIT(8u << 20);
    for (unsigned i = 0; i < LIMIT_DRA_DEVICES + 3; i++)
        buf_add_fmt(&b, "%s{\"name\":\"d%u\",\"attributes\":{\"type\":{\"string\":\"gpu\"}}}",
                    i ? "," : "", i);
    struct buf whole = BUF_INIT(8u << 20);
    buf_add_fmt(&whole, "{\"spec\":{\"driver\":\"gpu.nvidia.com\",\"pool\":{\"name\":\"p\"},"
                        "\"devices\":[");
    buf_add_sv(&whole, buf_sv(&b));
    buf_add_str(&whole, "]}}");
    assert_int_equal(put_text(d, "s", buf_cstr(&whole)), 0);
    struct dra_stats s;
    dra_get_stats(d, &s);
    assert_int_equal(s.devices, LIMIT_DRA_DEVICES);
    assert_int_equal(s.skipped, 3);
    assert_int_equal(put(d, "t", 1, 1, GPU("gpu-0", U0)), 0); // there is no room for another
    assert_string_equal(found(d, "gpu-0"), "guess");
    buf_deinit(&b);
    buf_deinit(&whole);
    dra_free(d);
}

// --- Claims and devices ---

#define UNKNOWN UINT32_MAX
// Two GPUs whose minors are not their indexes; the second one has two instances of one profile.
static const struct attribute_device devices[] = {
    {.index = 0, .uuid = SV(U0), .minor_known = true, .minor = 4},
    {.index = 1, .uuid = SV(U1), .minor_known = true, .minor = 5},
    {.is_instance = true,
     .index = 1,
     .gpu_instance_id = 7,
     .uuid = SV(M0),
     .parent_uuid = SV(U1),
     .minor_known = true,
     .minor = 5,
     .profile_id = 19,
     .placement = 0},
    {.is_instance = true,
     .index = 1,
     .gpu_instance_id = 8,
     .uuid = SV(M1),
     .parent_uuid = SV(U1),
     .minor_known = true,
     .minor = 5,
     .profile_id = 19,
     .placement = 1},
};

#define CLAIM(name_, uid_)                                                                         \
    {                                                                                              \
        .name = (name_), .namespace_name = "ns", .uid = (uid_), .driver = DRA_DRIVER,              \
        .pool = POOL, .share_id = ""                                                               \
    }
static const struct pod_device_claim claim = CLAIM("c-1", "u-1"), monitors = CLAIM("admin", "u-2");

#define CLAIMED(pod_, container_, device_, claim_)                                                 \
    {                                                                                              \
        .namespace_name = "ns", .pod = (pod_), .container = (container_), .resource = "",          \
        .device_id = (device_), .claim = (claim_)                                                  \
    }

static struct attribute_result attribute_rows(const struct attribute_options *o,
                                              const struct attribute_device *list,
                                              struct pod_device *rows, size_t count)
{
    struct attribute_result r;
    const struct pod_devices all = {.refs = 1, .count = count, .rows = rows};
    assert_int_equal(attribute(o, list, ARRAY_SIZE(devices), &all, &r), 0);
    return r;
}

static void a_claims_device_is_found_by_uuid_place_or_minor_and_never_by_guess(void **state)
{
    static const struct {
        const char *slices, *name;
        int device, part;
        bool guessed;
        const char *profile, *uuid;
    } cases[] = {
        // By ResourceSlice
        {GPU("gpu-5", U0), "gpu-5", 0, -1, false, NULL, NULL}, // the minor is an old one
        {GPU("old-name", U1), "old-name", 1, -1, false, NULL, NULL},
        {GPU("gpu-4", "GPU-00000000-0000-0000-0000-000000000000"), "gpu-4", -1, -1, false, NULL,
         NULL},
        {MIG("gpu-5-mig-1g12gb-19-1", M1, U1, "1g.12gb"), "gpu-5-mig-1g12gb-19-1", 3, -1, false,
         "1g.12gb", M1},
        {DYNAMIC("gpu-9-mig-1g12gb-19-1", U1, "1g.12gb"), "gpu-9-mig-1g12gb-19-1", 3, -1, false,
         "1g.12gb", M1},
        {DYNAMIC("gpu-5-mig-1g12gb-19-2", U1, "1g.12gb"), "gpu-5-mig-1g12gb-19-2", -1, 1, false,
         "1g.12gb", ""},
        {DYNAMIC("gpu-5-mig-2g24gb-14-0", U1, "2g.24gb"), "gpu-5-mig-2g24gb-14-0", -1, 1, false,
         "2g.24gb", ""},
        {DYNAMIC("an-old-name", U1, "1g.12gb"), "an-old-name", -1, 1, false, "1g.12gb", ""},
        // By name
        {"", "gpu-4", 0, -1, true, NULL, NULL},
        {"", "gpu-0", -1, -1, false, NULL, NULL}, // an index is no minor
        {"", "gpu-5-mig-1g12gb-19-0", 2, -1, true, "1g.12gb", M0},
        {"", "gpu-5-mig-1g12gb-19-6", -1, 1, true, "1g.12gb", ""},
        {"", "gpu-7-mig-1g12gb-19-0", -1, -1, false, NULL, NULL},
        {"", "gpu-vfio-0", -1, -1, false, NULL, NULL},
        {"", "old-name", -1, -1, false, NULL, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct dra *d = dra();
        if (cases[i].slices[0] != '\0')
            assert_int_equal(put(d, "s", 1, 1, cases[i].slices), 0);
        struct pod_device row = CLAIMED("p", "c", cases[i].name, &claim);
        const struct attribute_options o = {.dra = d};
        struct attribute_result r = attribute_rows(&o, devices, &row, 1);
        print_message("    %s\n", cases[i].name);
        assert_int_equal(r.holder_count, cases[i].device >= 0);
        assert_int_equal(r.part_count, cases[i].part >= 0);
        assert_int_equal(r.unknown_ids, cases[i].device < 0 && cases[i].part < 0);
        assert_int_equal(r.guessed, cases[i].guessed);
        if (cases[i].device >= 0) {
            const struct attribute_holder *h = &r.holders[0];
            assert_int_equal(r.devices[cases[i].device].count, 1);
            assert_int_equal(h->guessed, cases[i].guessed);
            if (cases[i].profile) {
                assert_string_equal(h->mig_profile, cases[i].profile);
                assert_string_equal(h->mig_uuid, cases[i].uuid);
            } else {
                assert_null(h->mig_profile);
            }
        }
        if (cases[i].part >= 0) {
            assert_int_equal(r.parts[0].device, cases[i].part);
            assert_string_equal(r.parts[0].mig_profile, cases[i].profile);
            assert_string_equal(r.parts[0].mig_uuid, cases[i].uuid);
        }
        attribute_result_deinit(&r);
        dra_free(d);
    }
}

static void without_places_of_instances_a_dynamic_one_is_part_of_its_gpu(void **state)
{
    struct attribute_device list[ARRAY_SIZE(devices)];
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        list[i] = devices[i];
        list[i].profile_id = list[i].placement = UNKNOWN;
    }
    struct dra *d = dra();
    struct pod_device row = CLAIMED("p", "c", "gpu-5-mig-1g12gb-19-0", &claim);
    const struct attribute_options o = {.dra = d};
    struct attribute_result r = attribute_rows(&o, list, &row, 1);
    assert_int_equal(r.holder_count, 0);
    assert_int_equal(r.part_count, 1);
    assert_int_equal(r.parts[0].device, 1);
    attribute_result_deinit(&r);
    dra_free(d);
}

static void all_that_are_listed_with_a_claims_device_hold_it(void **state)
{
    struct pod_device rows[] = {
        CLAIMED("p", "main", "gpu-4", &claim),
        CLAIMED("p", "sidecar", "gpu-4", &claim),
        CLAIMED("q", "main", "gpu-4", &claim),
        CLAIMED("exporter", "podgpu", "gpu-4", &monitors),
        CLAIMED("exporter", "podgpu", "gpu-5", &monitors),
        CLAIMED("r", "main", "gpu-5", &claim),
    };
    // Each came later than the one before, which for a plugin's whole id would end the older ones.
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        rows[i].since = (uint32_t)i + 1;
    struct dra *d = dra();
    struct attribute_options o = {.dra = d};
    struct attribute_result r = attribute_rows(&o, devices, rows, 2);
    assert_int_equal(r.devices[0].containers, 2); // of one pod: nothing is counted twice
    assert_int_equal(r.devices[0].pods, 1);
    attribute_result_deinit(&r);
    r = attribute_rows(&o, devices, rows, ARRAY_SIZE(rows));
    assert_int_equal(r.devices[0].containers, 4);
    assert_int_equal(r.devices[0].pods, 3);
    assert_int_equal(r.superseded, 0);
    assert_true(r.shared_seen);
    attribute_result_deinit(&r);

    // Our own claim with admin access takes nothing from anybody.
    o.own_namespace = SV("ns");
    o.own_pod = SV("exporter");
    r = attribute_rows(&o, devices, rows, ARRAY_SIZE(rows));
    assert_int_equal(r.devices[0].containers, 3);
    assert_int_equal(r.devices[1].containers, 1);
    assert_string_equal(rows[r.holders[r.devices[1].first].row].pod, "r");
    attribute_result_deinit(&r);

    o.dra = NULL;
    r = attribute_rows(&o, devices, rows, ARRAY_SIZE(rows));
    assert_int_equal(r.holder_count, 0);
    attribute_result_deinit(&r);
    dra_free(d);
}

// --- Memory ---

#define SLICE(devices_)                                                                            \
    "{\"spec\":{\"driver\":\"gpu.nvidia.com\",\"pool\":{\"name\":\"" POOL                          \
    "\",\"generation\":1,\"resourceSliceCount\":2},\"devices\":[" devices_ "]}}"
static struct json_document *slices[2]; // read before anything fails: jansson's memory is its own

static void use_all(void)
{
    struct dra *d = NULL;
    struct attribute_result result = {0};
    int r = dra_new(&d);
    if (r == 0)
        r = dra_put(d, SV("a"), json_root(slices[0]));
    if (r == 0)
        r = dra_put(d, SV("b"), json_root(slices[1]));
    struct pod_device rows[] = {
        CLAIMED("p", "c", "gpu-4", &claim),
        CLAIMED("q", "c", "gpu-5-mig-1g12gb-19-0", &claim),
        CLAIMED("q", "c", "gpu-5-mig-1g12gb-19-6", &claim),
    };
    const struct pod_devices list = {.refs = 1, .count = ARRAY_SIZE(rows), .rows = rows};
    const struct attribute_options o = {.dra = d};
    if (r == 0)
        r = attribute(&o, devices, ARRAY_SIZE(devices), &list, &result);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r == 0) {
        assert_int_equal(result.holder_count, 2);
        assert_int_equal(result.part_count, 1);
    }
    attribute_result_deinit(&result);
    dra_free(d);
}

static void an_allocation_that_fails_leaves_nothing_half_done(void **state)
{
    static const char *const texts[] = {SLICE(GPU("gpu-4", U0)),
                                        SLICE(MIG("gpu-5-mig-1g12gb-19-0", M0, U1, "1g.12gb"))};
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_int_equal(json_parse(sv_from(texts[i]), "slice", &slices[i], NULL), 0);
    assert_true(allocation_sweep(use_all) > 20);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        json_document_free(slices[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_are_read_in_all_three_versions_of_the_api),
        cmocka_unit_test(names_of_the_driver_tell_what_slices_do_not),
        cmocka_unit_test(a_pool_keeps_its_mapping_until_the_next_generation_is_complete),
        cmocka_unit_test(what_is_no_slice_of_the_driver_is_left_out),
        cmocka_unit_test(devices_beyond_the_ceiling_are_counted),
        cmocka_unit_test(a_claims_device_is_found_by_uuid_place_or_minor_and_never_by_guess),
        cmocka_unit_test(without_places_of_instances_a_dynamic_one_is_part_of_its_gpu),
        cmocka_unit_test(all_that_are_listed_with_a_claims_device_hold_it),
        cmocka_unit_test(an_allocation_that_fails_leaves_nothing_half_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
