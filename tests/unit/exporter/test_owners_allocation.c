// SPDX-License-Identifier: Apache-2.0
// Each allocation of attribution and of the HPC job mapping fails once: nothing leaked (the
// sanitizers look), nothing half done.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "../allocation_sweep.h"
#include "base/clock.h"
#include "exporter/attribute.h"
#include "exporter/hpc.h"

static void attribute_rows(void)
{
    const struct attribute_options options = {0};
    const struct attribute_device devices[] = {
        {.index = 0, .uuid = SV("GPU-a")},
        {.is_instance = true,
         .gpu_instance_id = 3,
         .uuid = SV("MIG-b"),
         .parent_uuid = SV("GPU-a")},
    };
    struct pod_device rows[] = {
        {"ns", "p", "c", "nvidia.com/gpu", "GPU-a"},
        {"ns", "q", "c", "nvidia.com/gpu", "MIG-b::1"},
        {"ns", "q", "d", "nvidia.com/gpu", "GPU-x"},
    };
    const struct pod_devices list = {.refs = 1, .count = ARRAY_SIZE(rows), .rows = rows};
    struct attribute_result result = {0};
    int r = attribute(&options, devices, ARRAY_SIZE(devices), &list, &result);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    assert_int_equal(result.holder_count, r == 0 ? 2 : 0);
    attribute_result_deinit(&result);
}

static void add_jobs(void)
{
    struct hpc_jobs *jobs = NULL;
    size_t count = 0;
    int r = hpc_jobs_new(&jobs);
    if (r == 0)
        r = hpc_jobs_add(jobs, 0, HPC_NO_INSTANCE, SV("a\nb\nc\n"));
    if (r == 0)
        r = hpc_jobs_add(jobs, 0, 1, SV("d"));
    // Giving back unused room may fail without harm.
    assert_true(r == 0 || (r == -ENOMEM && allocation_failed));
    (void)hpc_jobs_find(jobs, 0, HPC_NO_INSTANCE, &count);
    assert_true(count == 3 || (count == 0 && r == -ENOMEM));
    hpc_jobs_free(jobs);
}

static char folder[] = "/tmp/podgpu-hpc-XXXXXX";

static void refresh(void)
{
    struct hpc *h = NULL;
    int r = hpc_new(folder, &h);
    assert_int_equal(r, allocation_failed ? -ENOMEM : 0);
    if (r < 0)
        return;
    bool changed = hpc_refresh(h, clock_wall_ns());
    assert_int_equal(changed, hpc_current(h) != NULL);
    if (!changed) {
        assert_true(allocation_failed);
        assert_true(hpc_refresh(h, clock_wall_ns())); // the next one makes up for it
    }
    size_t count;
    (void)hpc_jobs_find(hpc_current(h), 0, HPC_NO_INSTANCE, &count);
    assert_int_equal(count, 1);
    hpc_free(h);
}

static void every_allocation_may_fail(void **state)
{
    char path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/0", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("job\n", f);
    fclose(f);
    assert_true(allocation_sweep(attribute_rows) >= 10);
    assert_true(allocation_sweep(add_jobs) >= 10);
    assert_true(allocation_sweep(refresh) >= 5);
    remove(path);
    remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_allocation_may_fail)};
    return cmocka_run_group_tests_name("owners_allocation", tests, NULL, NULL);
}
