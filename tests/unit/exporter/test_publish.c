// SPDX-License-Identifier: Apache-2.0
#include "exporter/publish.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "exporter/hpc.h"
#include "render_fixture.h"

static int publish(struct publisher *p, struct fixture *f, uint64_t now_ns)
{
    return publisher_publish(p, &f->config, fixture_input(f).view, &f->self, now_ns);
}

static bool page_says(const struct publisher *p, const char *text)
{
    struct sv page = http_body_bytes(publisher_body(p, TEXT_FORMAT_PROMETHEUS));
    return sv_find(page, sv_from(text)) != (size_t)-1;
}

// Jobs whose names make any page with them too large.
static struct hpc_jobs *huge_jobs(void)
{
    struct hpc_jobs *jobs = NULL;
    struct buf text = BUF_INIT(LIMIT_HPC_FILE_BYTES);
    assert_int_equal(hpc_jobs_new(&jobs), 0);
    for (int job = 0; job < 17; job++) {
        buf_add_fmt(&text, "%d", job);
        for (int i = 0; i < 60000; i++)
            buf_add_char(&text, 'x');
        buf_add_char(&text, '\n');
    }
    assert_int_equal(text.error, 0);
    for (uint32_t gpu = 0; gpu < 2; gpu++)
        assert_int_equal(hpc_jobs_add(jobs, gpu, HPC_NO_INSTANCE, buf_sv(&text)), 0);
    buf_deinit(&text);
    return jobs;
}

static void a_page_is_old_once_no_new_one_came_for_fifteen_seconds(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new_rich();
    struct publisher *p = NULL;
    assert_int_equal(publisher_new(&f->options, &p), 0);
    assert_false(publisher_page_is_old(p, 100 * NS_PER_S)); // there is none
    assert_int_equal(publish(p, f, 5 * NS_PER_S), 0);
    assert_false(publisher_page_is_old(p, 20 * NS_PER_S));
    assert_true(publisher_page_is_old(p, 20 * NS_PER_S + 1));
    assert_int_equal(publish(p, f, 30 * NS_PER_S), 0);
    assert_false(publisher_page_is_old(p, 31 * NS_PER_S));
    publisher_free(p);
}

static void a_page_too_large_with_its_owners_is_made_without_them(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new(fixture_stock_csv, "f");
    for (int i = 0; i < 2; i++)
        fixture_add_gpu(f, "NVIDIA A10G");
    fixture_list(f);
    fixture_ready(f, true);
    fixture_fill(f);
    struct publisher *p = NULL;
    assert_int_equal(publisher_new(&f->options, &p), 0);
    assert_int_equal(publish(p, f, FIXTURE_NOW_NS), 0);
    assert_false(f->self.page_without_owners);
    assert_true(page_says(p, "\npodgpu_exporter_page_without_owners 0\n"));
    struct hpc_jobs *jobs = huge_jobs();
    publisher_set_jobs(p, jobs);
    for (int i = 0; i < 3; i++) {
        f->self.page_without_owners = false;
        assert_int_equal(publish(p, f, FIXTURE_NOW_NS), 0);
        assert_true(f->self.page_without_owners);
        assert_true(page_says(p, "\npodgpu_exporter_page_without_owners 1\n"));
        assert_true(page_says(p, "\nDCGM_FI_DEV_GPU_TEMP{"));
        assert_false(page_says(p, "hpc_job"));
    }
    publisher_set_jobs(p, NULL);
    f->self.page_without_owners = false;
    assert_int_equal(publish(p, f, FIXTURE_NOW_NS), 0);
    assert_true(page_says(p, "\npodgpu_exporter_page_without_owners 0\n"));
    hpc_jobs_free(jobs);
    publisher_free(p);
}

// Rows as the kubelet lists them: GPUs, each with that many replicas in pods of their own.
static struct pod_devices shared_rows(struct pod_device *rows, size_t gpus, size_t replicas)
{
    static char texts[1024][2][64];
    struct pod_devices list = {.refs = 1, .rows = rows};
    for (size_t gpu = 0; gpu < gpus; gpu++) {
        for (size_t i = 0; i < replicas; i++) {
            size_t at = list.count++;
            snprintf(texts[at][0], sizeof(texts[at][0]), "p%zu", at);
            snprintf(texts[at][1], sizeof(texts[at][1]),
                     "GPU-00000000-0000-0000-0000-00000000000%zu::%zu", gpu, i);
            rows[at] =
                (struct pod_device){"ns", texts[at][0], "c", "nvidia.com/gpu", texts[at][1], 1};
        }
    }
    return list;
}

static void label_all(struct fixture *f, size_t pods, size_t bytes)
{
    struct buf labels = BUF_INIT(1u << 20);
    buf_add_str(&labels, "\"large\":\"");
    for (size_t i = 0; i < bytes; i++)
        buf_add_char(&labels, 'x');
    buf_add_char(&labels, '"');
    for (size_t i = 0; i < pods; i++) {
        char key[64];
        snprintf(key, sizeof(key), "ns/p%zu", i);
        fixture_label(f, key, "u", buf_cstr(&labels));
    }
    buf_deinit(&labels);
}

static void a_page_too_large_with_pod_labels_keeps_its_owners(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new(fixture_stock_csv, "f");
    for (int i = 0; i < 4; i++)
        fixture_add_gpu(f, "NVIDIA A10G");
    fixture_list(f);
    fixture_ready(f, true);
    fixture_fill(f);
    f->options.flags.virtual_gpus = true;
    f->self.metadata.on = true;
    struct pod_device rows[4 * 64];
    struct pod_devices list = shared_rows(rows, 4, 64);
    label_all(f, list.count, LIMIT_POD_LABELS_BYTES - 100); // 256 x 8 KiB x 26
    struct publisher *p = NULL;
    assert_int_equal(publisher_new(&f->options, &p), 0);
    publisher_set_metadata(p, f->metadata);
    publisher_set_pods(p, &list);
    for (int i = 0; i < 3; i++) {
        f->self.page_without_pod_labels = f->self.page_without_owners = false;
        assert_int_equal(publish(p, f, FIXTURE_NOW_NS), 0);
        assert_true(page_says(p, "\npodgpu_exporter_page_without_pod_labels 1\n"));
        assert_true(page_says(p, "\npodgpu_exporter_page_without_owners 0\n"));
        assert_true(page_says(p, ",pod=\"p255\",vgpu=\"63\"} "));
        assert_false(page_says(p, ",large="));
    }
    label_all(f, list.count, 10);
    f->self.page_without_pod_labels = false;
    assert_int_equal(publish(p, f, FIXTURE_NOW_NS), 0);
    assert_true(page_says(p, "\npodgpu_exporter_page_without_pod_labels 0\n"));
    assert_true(page_says(p, ",large=\"xxxxxxxxxx\",container=\"c\""));
    publisher_free(p);
}

static void labels_change_with_the_next_page_and_go_with_the_kubelets_row(void **state)
{
    cleanup(fixture_freep) struct fixture *f = fixture_new("DCGM_FI_DEV_GPU_TEMP, gauge, t\n", "f");
    fixture_add_gpu(f, "T4");
    fixture_list(f);
    fixture_fill(f);
    struct pod_device rows[1];
    struct pod_devices list = shared_rows(rows, 1, 1);
    fixture_label(f, "ns/p0", "u", "\"stage\":\"one\"");
    struct publisher *p = NULL;
    assert_int_equal(publisher_new(&f->options, &p), 0);
    publisher_set_metadata(p, f->metadata);
    publisher_set_pods(p, &list);
    assert_int_equal(publish(p, f, FIXTURE_NOW_NS), 0);
    assert_true(page_says(p, ",stage=\"one\",container="));
    fixture_label(f, "ns/p0", "u", "\"stage\":\"two\"");
    assert_int_equal(publish(p, f, FIXTURE_NOW_NS), 0);
    assert_true(page_says(p, ",stage=\"two\",container="));
    pod_metadata_delete(f->metadata, POD_METADATA_API_SERVER, SV("ns/p0"));
    assert_int_equal(publish(p, f, FIXTURE_NOW_NS), 0);
    assert_true(page_says(p, ",stage=\"two\",container="));
    publisher_set_pods(p, NULL);
    assert_int_equal(publish(p, f, FIXTURE_NOW_NS), 0);
    assert_false(page_says(p, "stage"));
    assert_null(pod_metadata_find(f->metadata, "ns", "p0"));
    publisher_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_old_once_no_new_one_came_for_fifteen_seconds),
        cmocka_unit_test(a_page_too_large_with_its_owners_is_made_without_them),
        cmocka_unit_test(a_page_too_large_with_pod_labels_keeps_its_owners),
        cmocka_unit_test(labels_change_with_the_next_page_and_go_with_the_kubelets_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
