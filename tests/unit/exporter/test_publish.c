// SPDX-License-Identifier: Apache-2.0
#include "exporter/publish.h"

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
    return publisher_publish(p, &f->config, &f->inventory, &f->self, now_ns);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_is_old_once_no_new_one_came_for_fifteen_seconds),
        cmocka_unit_test(a_page_too_large_with_its_owners_is_made_without_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
