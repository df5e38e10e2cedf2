// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/clock.h"
#include "base/limits.h"
#include "base/num.h"
#include "kube/pod_resources.h"
#include "wire.h"

// --- Building answers ---

struct answer {
    struct buf message, pod, container, devices;
};

static struct answer answer_new(void)
{
    return (struct answer){BUF_INIT(64u << 20), BUF_INIT(64u << 20), BUF_INIT(64u << 20),
                           BUF_INIT(64u << 20)};
}

static void answer_free(struct answer *a)
{
    assert_int_equal(a->message.error, 0);
    buf_deinit(&a->message);
    buf_deinit(&a->pod);
    buf_deinit(&a->container);
    buf_deinit(&a->devices);
}

static void begin_pod(struct answer *a, const char *name, const char *namespace_name)
{
    wire_str(&a->pod, 1, name);
    wire_str(&a->pod, 2, namespace_name);
}

static void begin_container(struct answer *a, const char *name)
{
    wire_str(&a->container, 1, name);
}

// One ContainerDevices with one id, on NUMA node 1.
static void add_device(struct answer *a, const char *resource, const char *id)
{
    wire_str(&a->devices, 1, resource);
    wire_str(&a->devices, 2, id);
    wire_bytes(&a->devices, 3, SV("\x0a\x02\x08\x01"));
    wire_message(&a->container, 2, &a->devices);
}

static void end_container(struct answer *a)
{
    wire_message(&a->pod, 3, &a->container);
}

static void end_pod(struct answer *a)
{
    wire_message(&a->message, 1, &a->pod);
}

static void add_simple_pod(struct answer *a, const char *name, const char *id)
{
    begin_pod(a, name, "default");
    begin_container(a, "main");
    add_device(a, "nvidia.com/gpu", id);
    end_container(a);
    end_pod(a);
}

// --- Decoding ---

typedef bool wanted_fn(void *user, struct sv resource, struct sv device_id);

static int decode_in_pieces(struct sv message, size_t piece, wanted_fn *wanted, void *user,
                            struct pod_devices **out)
{
    struct pod_resources_decoder *d;
    assert_int_equal(pod_resources_decoder_new(wanted, user, &d), 0);
    int r = 0;
    for (size_t at = 0; at < message.len && r == 0; at += piece)
        r = pod_resources_decoder_feed(d, sv_sub(message, at, piece));
    int finish = pod_resources_decoder_finish(d, out);
    if (r < 0)
        assert_int_equal(finish, r);
    pod_resources_decoder_free(d);
    return finish;
}

static struct pod_devices *decode(struct sv message)
{
    struct pod_devices *list;
    assert_int_equal(decode_in_pieces(message, message.len ? message.len : 1, NULL, NULL, &list),
                     0);
    return list;
}

static void assert_row(const struct pod_devices *list, size_t i, const char *const want[5])
{
    assert_true(i < list->count);
    assert_string_equal(list->rows[i].namespace_name, want[0]);
    assert_string_equal(list->rows[i].pod, want[1]);
    assert_string_equal(list->rows[i].container, want[2]);
    assert_string_equal(list->rows[i].resource, want[3]);
    assert_string_equal(list->rows[i].device_id, want[4]);
}
#define ROW(...) ((const char *const[5]){__VA_ARGS__})

// A node: a plain pod, a pod with two containers on two devices, one of them on two NUMA nodes.
static struct answer sample_answer(void)
{
    struct answer a = answer_new();
    begin_pod(&a, "plain", "kube-system");
    begin_container(&a, "c");
    wire_bytes(&a.container, 3, SV("\x00\x01\x02")); // cpu_ids, packed
    end_container(&a);
    end_pod(&a);
    begin_pod(&a, "trainer-0", "ml");
    begin_container(&a, "sidecar");
    add_device(&a, "nvidia.com/gpu", "GPU-a");
    end_container(&a);
    begin_container(&a, "main");
    add_device(&a, "nvidia.com/gpu", "GPU-b");
    add_device(&a, "nvidia.com/gpu", "GPU-b");
    add_device(&a, "example.com/nic", "0000:1b:00.0");
    end_container(&a);
    end_pod(&a);
    return a;
}

static void assert_sample_rows(const struct pod_devices *list)
{
    assert_int_equal(list->pods, 2);
    assert_int_equal(list->count, 3);
    assert_int_equal(list->skipped, 0);
    assert_row(list, 0, ROW("ml", "trainer-0", "sidecar", "nvidia.com/gpu", "GPU-a"));
    assert_row(list, 1, ROW("ml", "trainer-0", "main", "nvidia.com/gpu", "GPU-b"));
    assert_row(list, 2, ROW("ml", "trainer-0", "main", "example.com/nic", "0000:1b:00.0"));
}

static void an_answer_becomes_rows_without_numa_duplicates(void **state)
{
    struct answer a = sample_answer();
    struct pod_devices *list = decode(buf_sv(&a.message));
    assert_sample_rows(list);
    pod_devices_unref(list);
    answer_free(&a);
}

static void any_split_gives_the_same_rows(void **state)
{
    struct answer a = sample_answer();
    for (size_t piece = 1; piece <= a.message.len; piece++) {
        struct pod_devices *list;
        assert_int_equal(decode_in_pieces(buf_sv(&a.message), piece, NULL, NULL, &list), 0);
        assert_sample_rows(list);
        pod_devices_unref(list);
    }
    answer_free(&a);
}

static void an_empty_answer_has_no_pods(void **state)
{
    struct pod_devices *list = decode(SV(""));
    assert_int_equal(list->pods, 0);
    assert_int_equal(list->count, 0);
    pod_devices_unref(list);
    list = decode(SV("\x0a\x00")); // a pod whose every field is a default
    assert_int_equal(list->pods, 1);
    assert_int_equal(list->count, 0);
    pod_devices_unref(list);
}

static void absent_names_are_empty(void **state)
{
    struct pod_devices *list = decode(SV("\x0a\x07\x1a\x05\x12\x03\x12\x01x"));
    assert_int_equal(list->count, 1);
    assert_row(list, 0, ROW("", "", "", "", "x"));
    pod_devices_unref(list);
}

static void many_ids_in_one_entry_are_rows_of_their_own(void **state)
{
    struct answer a = answer_new();
    begin_pod(&a, "p", "default");
    begin_container(&a, "c");
    wire_str(&a.devices, 2, "GPU-b"); // ids before the resource's name
    wire_str(&a.devices, 2, "GPU-a");
    wire_str(&a.devices, 2, "GPU-b");
    wire_str(&a.devices, 1, "nvidia.com/gpu");
    wire_message(&a.container, 2, &a.devices);
    end_container(&a);
    end_pod(&a);
    struct pod_devices *list = decode(buf_sv(&a.message));
    assert_int_equal(list->count, 2);
    assert_row(list, 0, ROW("default", "p", "c", "nvidia.com/gpu", "GPU-b"));
    assert_row(list, 1, ROW("default", "p", "c", "nvidia.com/gpu", "GPU-a"));
    pod_devices_unref(list);
    answer_free(&a);
}

static void only_equal_rows_are_duplicates(void **state)
{
    struct answer a = answer_new();
    add_simple_pod(&a, "p", "GPU-a");
    add_simple_pod(&a, "q", "GPU-a");
    add_simple_pod(&a, "p", "GPU-b");
    add_simple_pod(&a, "p", "GPU-a"); // the pod again
    begin_pod(&a, "p", "other");
    begin_container(&a, "main");
    add_device(&a, "nvidia.com/gpu", "GPU-a");
    add_device(&a, "nvidia.com/gpu.shared", "GPU-a");
    end_container(&a);
    begin_container(&a, "second");
    add_device(&a, "nvidia.com/gpu", "GPU-a");
    end_container(&a);
    end_pod(&a);
    struct pod_devices *list = decode(buf_sv(&a.message));
    assert_int_equal(list->pods, 5);
    assert_int_equal(list->count, 6);
    assert_row(list, 2, ROW("default", "p", "main", "nvidia.com/gpu", "GPU-b"));
    assert_row(list, 3, ROW("other", "p", "main", "nvidia.com/gpu", "GPU-a"));
    assert_row(list, 4, ROW("other", "p", "main", "nvidia.com/gpu.shared", "GPU-a"));
    assert_row(list, 5, ROW("other", "p", "second", "nvidia.com/gpu", "GPU-a"));
    pod_devices_unref(list);
    answer_free(&a);
}

// Every wire type in unknown fields, and the fields of newer kubelets, packed and not.
static void what_is_not_needed_is_skipped(void **state)
{
    struct answer a = answer_new();
    wire_tag(&a.message, 2, 0);
    wire_varint(&a.message, UINT64_MAX); // ten bytes
    wire_tag(&a.message, 3, 1);
    buf_add_sv(&a.message, SV("12345678"));
    wire_str(&a.message, 4, "text");
    wire_str(&a.message, 4, "");
    wire_tag(&a.message, 536870911, 5); // the greatest field number
    buf_add_sv(&a.message, SV("1234"));
    begin_pod(&a, "p", "default");
    wire_bytes(&a.pod, 4,
               SV("\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")); // cpu_ids packed: 0 1 -1
    wire_tag(&a.pod, 4, 0);
    wire_varint(&a.pod, 7);
    wire_str(&a.pod, 5, "memory");
    begin_container(&a, "c");
    wire_tag(&a.container, 3, 0);
    wire_varint(&a.container, (uint64_t)-1);
    wire_bytes(&a.container, 3, SV("\x05\x06"));
    wire_str(&a.container, 4, "\x0a\x06memory");
    wire_str(&a.container, 5,
             "\x0a\x05"
             "claim");
    wire_tag(&a.container, 99, 1);
    buf_add_sv(&a.container, SV("87654321"));
    wire_str(&a.devices, 1, "nvidia.com/gpu");
    wire_bytes(&a.devices, 3, SV("\x0a\x00")); // NUMA node 0
    wire_tag(&a.devices, 4, 5);
    buf_add_sv(&a.devices, SV("4321"));
    wire_str(&a.devices, 2, "GPU-a");
    wire_message(&a.container, 2, &a.devices);
    end_container(&a);
    end_pod(&a);
    for (size_t piece = 1; piece < 40; piece++) {
        struct pod_devices *list;
        assert_int_equal(decode_in_pieces(buf_sv(&a.message), piece, NULL, NULL, &list), 0);
        assert_int_equal(list->count, 1);
        assert_row(list, 0, ROW("default", "p", "c", "nvidia.com/gpu", "GPU-a"));
        pod_devices_unref(list);
    }
    answer_free(&a);
}

static void a_repeated_name_takes_the_last(void **state)
{
    struct answer a = answer_new();
    begin_pod(&a, "first", "default");
    wire_str(&a.pod, 1, "second");
    begin_container(&a, "c");
    add_device(&a, "nvidia.com/gpu", "GPU-a");
    end_container(&a);
    end_pod(&a);
    struct pod_devices *list = decode(buf_sv(&a.message));
    assert_int_equal(list->count, 1);
    assert_row(list, 0, ROW("default", "second", "c", "nvidia.com/gpu", "GPU-a"));
    pod_devices_unref(list);
    answer_free(&a);
}

static void malformed_answers_are_refused(void **state)
{
    static const struct {
        struct sv message;
        int error;
    } cases[] = {
        {SV("\x0b"), -EBADMSG},     // group in place of a pod
        {SV("\x13\x14"), -EBADMSG}, // unknown group
        {SV("\x14"), -EBADMSG},     // end of a group
        {SV("\x16"), -EBADMSG},     // wire type 6
        {SV("\x17"), -EBADMSG},
        {SV("\x00\x00"), -EBADMSG}, // field 0
        {SV("\x02\x01x"), -EBADMSG},
        {SV("\x08\x01"), -EBADMSG},                     // a pod that is a number
        {SV("\x80\x80\x80\x80\x80\x01\x00"), -EBADMSG}, // field number beyond 2^29
        {SV("\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), -EBADMSG}, // eleven bytes
        {SV("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), -EBADMSG},     // beyond 64 bits
        {SV("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), -EBADMSG},     // length -1
        {SV("\x12\x80\x80\x80\x80\x08"), -EBADMSG},                         // length 2^31
        {SV("\x0a\x80\x80\x80\x80\x08"), -EBADMSG},
        {SV("\x0a\x81\x80\x80\x02"), -EFBIG},       // a pod of 4 MiB + 1
        {SV("\x0a\x02\x0a\x05"), -EBADMSG},         // name longer than its pod
        {SV("\x0a\x01\x0a"), -EBADMSG},             // a pod that ends in a tag
        {SV("\x0a\x02\x1b\x1c"), -EBADMSG},         // group in a pod
        {SV("\x0a\x02\x08\x01"), -EBADMSG},         // a name that is a number
        {SV("\x0a\x04\x1a\x02\x12\x05"), -EBADMSG}, // devices longer than their container
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct pod_devices *list = NULL;
        struct sv m = cases[i].message;
        if (decode_in_pieces(m, m.len, NULL, NULL, &list) != cases[i].error)
            fail_msg("case %zu", i);
        assert_int_equal(decode_in_pieces(m, 1, NULL, NULL, &list), cases[i].error);
        assert_null(list);
    }
}

static void the_longest_varint_is_ten_bytes(void **state)
{
    struct pod_devices *list = decode(SV("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
    assert_int_equal(list->pods, 0);
    pod_devices_unref(list);
    list = decode(SV("\x10\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00")); // zero, the long way
    assert_int_equal(list->pods, 0);
    pod_devices_unref(list);
}

// Cut anywhere but between two fields of the outer message, an answer is malformed.
static void a_cut_answer_is_refused(void **state)
{
    struct answer a = answer_new();
    size_t ends[4] = {0};
    add_simple_pod(&a, "p", "GPU-a");
    ends[1] = a.message.len;
    wire_tag(&a.message, 2, 0);
    wire_varint(&a.message, 300);
    ends[2] = a.message.len;
    add_simple_pod(&a, "q", "GPU-b");
    ends[3] = a.message.len;
    for (size_t cut = 0; cut <= a.message.len; cut++) {
        bool whole = cut == ends[0] || cut == ends[1] || cut == ends[2] || cut == ends[3];
        struct pod_devices *list = NULL;
        int r = decode_in_pieces(sv_sub(buf_sv(&a.message), 0, cut), 7, NULL, NULL, &list);
        assert_int_equal(r, whole ? 0 : -EBADMSG);
        pod_devices_unref(list);
    }
    answer_free(&a);
}

static void errors_stick(void **state)
{
    struct answer a = sample_answer();
    struct pod_resources_decoder *d;
    struct pod_devices *list = NULL;
    assert_int_equal(pod_resources_decoder_new(NULL, NULL, &d), 0);
    assert_int_equal(pod_resources_decoder_feed(d, SV("\x0b")), -EBADMSG);
    assert_int_equal(pod_resources_decoder_feed(d, buf_sv(&a.message)), -EBADMSG);
    assert_int_equal(pod_resources_decoder_feed(d, SV("")), -EBADMSG);
    assert_int_equal(pod_resources_decoder_finish(d, &list), -EBADMSG);
    assert_null(list);
    pod_resources_decoder_free(d);
    pod_resources_decoder_free(NULL);
    answer_free(&a);
}

static void nothing_may_follow_the_end(void **state)
{
    struct pod_resources_decoder *d;
    struct pod_devices *list, *again = NULL;
    assert_int_equal(pod_resources_decoder_new(NULL, NULL, &d), 0);
    assert_int_equal(pod_resources_decoder_finish(d, &list), 0);
    assert_int_equal(pod_resources_decoder_feed(d, SV("\x0a\x00")), -EBADMSG);
    assert_int_equal(pod_resources_decoder_finish(d, &again), -EBADMSG);
    assert_null(again);
    pod_resources_decoder_free(d);
    assert_int_equal(list->count, 0);
    pod_devices_unref(list);
}

static bool wants_gpus(void *user, struct sv resource, struct sv device_id)
{
    size_t *asked = user;
    (*asked)++;
    return sv_equals(resource, SV("nvidia.com/gpu")) && !sv_equals(device_id, SV("GPU-a"));
}

static void only_wanted_rows_are_kept(void **state)
{
    struct answer a = sample_answer();
    size_t asked = 0;
    struct pod_devices *list;
    assert_int_equal(decode_in_pieces(buf_sv(&a.message), 5, wants_gpus, &asked, &list), 0);
    assert_int_equal(list->count, 1);
    assert_int_equal(list->pods, 2);
    assert_int_equal(list->skipped, 0);
    assert_int_equal(asked, 4);
    assert_row(list, 0, ROW("ml", "trainer-0", "main", "nvidia.com/gpu", "GPU-b"));
    pod_devices_unref(list);
    answer_free(&a);
}

static void a_list_lives_as_long_as_its_references(void **state)
{
    struct answer a = sample_answer();
    struct pod_devices *list = decode(buf_sv(&a.message));
    assert_ptr_equal(pod_devices_ref(list), list);
    pod_devices_unref(list);
    assert_sample_rows(list);
    pod_devices_unref(list);
    pod_devices_unref(NULL);
    answer_free(&a);
}

// --- Limits ---

static void a_pod_may_have_its_cap_and_no_more(void **state)
{
    const size_t cap = LIMIT_POD_RESOURCES_POD_BYTES;
    char *filler = calloc(1, cap);
    assert_non_null(filler);
    // The pod is one unknown field (5) whose length field has 4 bytes: filler + 5 bytes.
    for (size_t len = cap - 1; len <= cap + 1; len++) {
        struct answer a = answer_new();
        struct pod_devices *list = NULL;
        wire_bytes(&a.pod, 5, (struct sv){filler, len - 5});
        assert_int_equal(a.pod.len, len);
        end_pod(&a);
        add_simple_pod(&a, "p", "GPU-a");
        int r = decode_in_pieces(buf_sv(&a.message), 16384, NULL, NULL, &list);
        assert_int_equal(r, len <= cap ? 0 : -EFBIG);
        if (r == 0)
            assert_int_equal(list->count, 1);
        pod_devices_unref(list);
        answer_free(&a);
    }
    free(filler);
}

static void a_pod_that_grows_in_decoding_is_refused(void **state)
{
    struct answer a = answer_new();
    struct pod_devices *list = NULL;
    begin_pod(&a, "p", "default");
    for (size_t i = 0; i < 1000000; i++)
        buf_add_sv(&a.pod, SV("\x1a\x00")); // an empty container: 2 bytes that cost 64
    end_pod(&a);
    assert_int_equal(decode_in_pieces(buf_sv(&a.message), 65536, NULL, NULL, &list), -EFBIG);
    assert_null(list);
    answer_free(&a);
}

static void rows_beyond_the_cap_are_counted(void **state)
{
    for (size_t count = LIMIT_POD_DEVICES - 1; count <= LIMIT_POD_DEVICES + 1; count++) {
        struct answer a = answer_new();
        for (size_t i = 0; i < count; i++) {
            char id[24] = "id-";
            id[3 + num_print_u64(id + 3, i)] = '\0';
            if (i % 8192 == 0) {
                begin_pod(&a, "p", "default");
                begin_container(&a, "c");
            }
            add_device(&a, "nvidia.com/gpu", id);
            if (i % 8192 == 8191 || i == count - 1) {
                end_container(&a);
                end_pod(&a);
            }
        }
        struct pod_devices *list = decode(buf_sv(&a.message));
        bool over = count > LIMIT_POD_DEVICES;
        assert_int_equal(list->count, over ? LIMIT_POD_DEVICES : count);
        assert_int_equal(list->skipped, over ? 1 : 0);
        pod_devices_unref(list);
        answer_free(&a);
    }
}

static void an_overlong_id_is_counted_and_left_out(void **state)
{
    char id[LIMIT_POD_DEVICE_ID_BYTES + 2];
    for (size_t len = LIMIT_POD_DEVICE_ID_BYTES - 1; len <= LIMIT_POD_DEVICE_ID_BYTES + 1; len++) {
        struct answer a = answer_new();
        memset(id, 'x', len);
        id[len] = '\0';
        add_simple_pod(&a, "p", id);
        struct pod_devices *list = decode(buf_sv(&a.message));
        assert_int_equal(list->count, len <= LIMIT_POD_DEVICE_ID_BYTES);
        assert_int_equal(list->skipped, len > LIMIT_POD_DEVICE_ID_BYTES);
        pod_devices_unref(list);
        answer_free(&a);
    }
}

static void strings_beyond_their_cap_are_counted(void **state)
{
    char id[LIMIT_POD_DEVICE_ID_BYTES + 1];
    const size_t count = LIMIT_POD_DEVICES_STRING_BYTES / LIMIT_POD_DEVICE_ID_BYTES + 100;
    struct answer a = answer_new();
    for (size_t i = 0; i < count; i++) {
        memset(id, 'x', LIMIT_POD_DEVICE_ID_BYTES);
        id[LIMIT_POD_DEVICE_ID_BYTES] = '\0';
        id[num_print_u64(id, i)] = '-';
        add_simple_pod(&a, "p", id);
    }
    struct pod_devices *list = decode(buf_sv(&a.message));
    assert_true(list->skipped >= 100);
    assert_int_equal(list->count + list->skipped, count);
    pod_devices_unref(list);
    answer_free(&a);
}

// --- Size: 8 pods of 8,000 units of virtual memory, 5 MB ---

static struct answer big_answer(void)
{
    static const char *const names[] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};
    struct answer a = answer_new();
    for (size_t p = 0; p < ARRAY_SIZE(names); p++) {
        begin_pod(&a, names[p], "default");
        begin_container(&a, "main");
        for (size_t i = 0; i < 8000; i++) {
            char id[80] = "GPU-b8ea3855-276c-c9cb-b366-c6fa655957c5-";
            size_t len = strlen(id);
            len += num_print_u64(id + len, p * 8000 + i);
            id[len] = '\0';
            add_device(&a, "volcano.sh/vgpu-memory", id);
        }
        end_container(&a);
        end_pod(&a);
    }
    return a;
}

static size_t heap_in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

// Asked while a pod lies decoded: when most memory is in use.
struct high_water {
    size_t calls, most;
};

static bool wants_nothing(void *user, struct sv resource, struct sv device_id)
{
    struct high_water *w = user;
    if (w->calls++ % 1000 == 0) {
        size_t now = heap_in_use();
        w->most = now > w->most ? now : w->most;
    }
    return false;
}

static void a_5_mb_answer_costs_less_than_3_mib(void **state)
{
    struct answer a = big_answer();
    struct high_water water = {0};
    struct pod_devices *list;
    assert_true(a.message.len > 5000000);
    size_t before = heap_in_use();
    assert_int_equal(decode_in_pieces(buf_sv(&a.message), 16384, wants_nothing, &water, &list), 0);
    assert_int_equal(list->pods, 8);
    assert_int_equal(list->count, 0);
    assert_int_equal(water.calls, 64000);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)before; // the sanitizer's heap tells nothing of ours
#else
    print_message("    %zu bytes, %zu KiB at most\n", a.message.len, (water.most - before) >> 10);
    assert_in_range(water.most - before, 1, 3u << 20);
#endif
    pod_devices_unref(list);
    answer_free(&a);
}

static void the_time_grows_with_the_rows_only(void **state)
{
    struct answer a = big_answer();
    uint64_t start = clock_mono_ns();
    struct pod_devices *list = decode(buf_sv(&a.message));
    uint64_t took = clock_mono_ns() - start;
    print_message("    %zu bytes, %zu rows, %u us\n", a.message.len, list->count,
                  (unsigned)(took / NS_PER_US));
    assert_int_equal(list->count, 64000);
    assert_int_equal(list->skipped, 0);
    assert_true(took < 2 * NS_PER_S);
    pod_devices_unref(list);
    answer_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_becomes_rows_without_numa_duplicates),
        cmocka_unit_test(any_split_gives_the_same_rows),
        cmocka_unit_test(an_empty_answer_has_no_pods),
        cmocka_unit_test(absent_names_are_empty),
        cmocka_unit_test(many_ids_in_one_entry_are_rows_of_their_own),
        cmocka_unit_test(only_equal_rows_are_duplicates),
        cmocka_unit_test(what_is_not_needed_is_skipped),
        cmocka_unit_test(a_repeated_name_takes_the_last),
        cmocka_unit_test(malformed_answers_are_refused),
        cmocka_unit_test(the_longest_varint_is_ten_bytes),
        cmocka_unit_test(a_cut_answer_is_refused),
        cmocka_unit_test(errors_stick),
        cmocka_unit_test(nothing_may_follow_the_end),
        cmocka_unit_test(only_wanted_rows_are_kept),
        cmocka_unit_test(a_list_lives_as_long_as_its_references),
        cmocka_unit_test(a_pod_may_have_its_cap_and_no_more),
        cmocka_unit_test(a_pod_that_grows_in_decoding_is_refused),
        cmocka_unit_test(rows_beyond_the_cap_are_counted),
        cmocka_unit_test(an_overlong_id_is_counted_and_left_out),
        cmocka_unit_test(strings_beyond_their_cap_are_counted),
        cmocka_unit_test(a_5_mb_answer_costs_less_than_3_mib),
        cmocka_unit_test(the_time_grows_with_the_rows_only),
    };
    return cmocka_run_group_tests_name("pod_resources_decoder", tests, NULL, NULL);
}
