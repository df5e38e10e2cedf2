// SPDX-License-Identifier: Apache-2.0
// Names of families, labels and JSON members are frozen here.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "burn/record.h"

static const struct burn_moment now = {UINT64_C(1764540000123456789), UINT64_C(12345678901)};

static struct burn_record record(void)
{
    return (struct burn_record){
        .gpu = 3,
        .uuid = "GPU-a",
        .model = "NVIDIA \"X\"\\\n",
        .process = 1,
        .pid = 42,
        .kind = BURN_FP32,
        .state = BURN_RUNNING,
        .on = true,
        .duty_ppm = 400000,
        .scheduled_ns = 5000000001,
        .busy_ns = 4999999999,
        .operations = UINT64_C(123456789012345),
        .operations_per_s = UINT64_C(19567000000000),
        .rounds = 99,
        .mismatches = 2,
        .memory_bytes = UINT64_C(3) << 30,
        .error = "",
    };
}

static void check(struct buf *found, const char *expected)
{
    assert_string_equal(buf_cstr(found), expected);
    buf_deinit(found);
}

static void a_line_for_people(void **state)
{
    (void)state;
    struct buf out = BUF_INIT(4096);
    struct burn_record r = record();
    burn_report_text(&out, &now, &r);
    r.process = 0;
    r.on = false;
    r.kind = BURN_DRAM;
    r.operations_per_s = UINT64_C(600129999999);
    burn_report_text(&out, &now, &r);
    check(&out, "12.3 s  GPU 3.1  on     duty 40.0 %  19.56 Tflop/s  memory 3072 MiB  errors 2\n"
                "12.3 s  GPU 3  off    duty 40.0 %  600.12 GB/s  memory 3072 MiB  errors 2\n");
}

static void a_line_of_json(void **state)
{
    (void)state;
    struct buf out = BUF_INIT(4096);
    struct burn_record r = record();
    burn_report_json(&out, &now, &r);
    check(&out, "{\"time\":\"2025-11-30T22:00:00.123Z\",\"elapsed_seconds\":12.345678901,\"gpu\":3,"
                "\"UUID\":\"GPU-a\",\"model\":\"NVIDIA \\\"X\\\"\\\\?\",\"process\":1,\"pid\":42,"
                "\"kind\":\"fp32\",\"phase\":\"on\",\"duty_ratio\":0.400000,"
                "\"scheduled_seconds\":5.000000001,\"busy_seconds\":4.999999999,"
                "\"operations\":123456789012345,\"operations_per_second\":19567000000000,"
                "\"memory_bytes\":3221225472,\"rounds\":99,\"mismatches\":2}\n");
    r.state = BURN_ENDED;
    r.result = BURN_DRIVER_ERROR;
    r.error = "lost";
    out = BUF_INIT(4096);
    burn_report_json(&out, &now, &r);
    assert_non_null(strstr(buf_cstr(&out), "\"phase\":\"end\""));
    assert_non_null(strstr(buf_cstr(&out), "\"mismatches\":2,\"result\":3,\"error\":\"lost\"}\n"));
    buf_deinit(&out);
}

static void the_end_names_each_gpu_once_as_gpu_burn_does(void **state)
{
    (void)state;
    struct buf out = BUF_INIT(4096);
    struct burn_record r[] = {record(), record(), record(), record()};
    r[0].gpu = r[1].gpu = 0;
    r[0].mismatches = r[1].mismatches = r[2].mismatches = 0;
    r[1].result = BURN_DRIVER_ERROR;
    r[2].gpu = 1;
    burn_report_end(&out, r, 4);
    check(&out, "Tested 3 GPUs:\n\tGPU 0: FAULTY\n\tGPU 1: OK\n\tGPU 3: FAULTY\n");
    out = BUF_INIT(4096);
    burn_report_end(&out, &r[2], 1);
    check(&out, "Tested 1 GPUs:\n\tGPU 1: OK\n");
}

static void the_page_has_these_names(void **state)
{
    (void)state;
    struct buf out = BUF_INIT(1u << 16);
    struct burn_record r = record();
    burn_page(&out, &r, 1);
#define HEAD(name, type, help) "# HELP " name " " help "\n# TYPE " name " " type "\n" name
#define DEVICE "{gpu=\"3\",UUID=\"GPU-a\",process=\"1\""
    check(
        &out,
        HEAD("podgpu_burn_info", "gauge", "What the load on a GPU is made of; always 1.") DEVICE
        ",kind=\"fp32\",model=\"NVIDIA \\\"X\\\"\\\\\\n\",version=\"" PODGPU_VERSION
        "\"} 1\n" HEAD("podgpu_burn_running", "gauge",
                       "1 while the process makes load, 0 while it starts or once it ended.") DEVICE
        "} 1\n" HEAD("podgpu_burn_phase", "gauge", "1 while the shape is above its low, else 0.")
            DEVICE "} 1\n" HEAD("podgpu_burn_duty_ratio", "gauge",
                                "Share of the time in which work is wanted on the GPU, now.") DEVICE
        "} 0.400000\n" HEAD("podgpu_burn_scheduled_seconds_total", "counter",
                            "Integral of the duty that was wanted since the start.") DEVICE
        "} 5.000000001\n" HEAD("podgpu_burn_busy_seconds_total", "counter",
                               "Time in which work of the process was on the GPU.") DEVICE
        "} 4.999999999\n" HEAD("podgpu_burn_operations_total", "counter",
                               "Arithmetic done, or for kinds that move data, bytes moved.") DEVICE
        "} 123456789012345\n" HEAD("podgpu_burn_rounds_total", "counter",
                                   "Rounds of results that were compared.") DEVICE
        "} 99\n" HEAD("podgpu_burn_mismatches_total", "counter",
                      "Results that were not what they must be.") DEVICE
        "} 2\n" HEAD("podgpu_burn_memory_bytes", "gauge",
                     "GPU memory that the process holds for its work.") DEVICE "} 3221225472\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_for_people),
        cmocka_unit_test(a_line_of_json),
        cmocka_unit_test(the_end_names_each_gpu_once_as_gpu_burn_does),
        cmocka_unit_test(the_page_has_these_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
