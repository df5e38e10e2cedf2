// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gpu/xid.h"

static void messages_are_those_of_dcgm_exporter(void **state)
{
    (void)state;
    static const struct {
        uint64_t code;
        const char *message;
    } cases[] = {
        {0, "No Error"},
        {1, "Invalid or corrupted push buffer stream"},
        {13, "Graphics Engine Exception"},
        {31, "GPU memory page fault"},
        {42, "Video processor exception"},
        {43, "GPU stopped processing"},
        {45, "Preemptive cleanup, due to previous errors -- Most likely to see when running "
             "multiple cuda"},
        {48, "Double Bit ECC Error"},
        {62, "Internal micro-controller halt"},
        {63, "ECC page retirement or row remapping recording event"},
        {64, "ECC page retirement or row remapper recording failure"},
        {65, "Video processor exception"},
        {74, "NVLINK Error"},
        {79, "GPU has fallen off the bus"},
        {92, "High single-bit ECC error rate"},
        {94, "Contained ECC error"},
        {95, "Uncontained ECC error"},
        {108, "Reserved"},
        {119, "GSP RPC Timeout"},
        {142, "Robust Channel NVENVC3 Error"},
        {154, "GPU Recovery Action Changed"},
        {168, "Reduced GPU Memory Capacity (Errors found in write protection region)"},
        {169, "Internal micro-controller halt"},
        {172, "Uncorrectable SRAM Error"},
        {173, "Unknown Error"},
        {255, "Unknown Error"},
        {999, "Unknown Error"},
        {UINT64_MAX, "Unknown Error"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_string_equal(xid_error_message(cases[i].code), cases[i].message);
}

static void every_code_up_to_the_last_has_a_message(void **state)
{
    (void)state;
    assert_int_equal(xid_message_count, 173);
    for (size_t i = 0; i < xid_message_count; i++)
        assert_true(strlen(xid_messages[i]) > 0);
}

static void critical_codes_are_these(void **state)
{
    (void)state;
    static const uint16_t expected[] = {46,  48,  54,  62,  64,  74,  79,  95,  109, 110, 119,
                                        120, 136, 140, 143, 151, 155, 158, 167, 169, 171, 172};
    assert_int_equal(xid_critical_count, ARRAY_SIZE(expected));
    assert_memory_equal(xid_critical_codes, expected, sizeof(expected));
}

static void each_code_has_a_severity_and_advice(void **state)
{
    (void)state;
    static const struct {
        uint64_t code;
        const char *severity, *text;
    } cases[] = {
        {0, "info", "nothing to do"},
        {13, "app",
         "restart the application; when different ones fail on this GPU, suspect the GPU"},
        {48, "critical",
         "look for XID 63, 64, 94 or 95, which tell what to do about the memory error"},
        {79, "critical", "drain the node and reboot it"},
        {94, "warning",
         "restart the application; when different ones fail on this GPU, suspect the GPU"},
        {119, "critical", "drain the GPU's pods and reset the GPU"},
        {154, "warning", "do what podgpu_gpu_recovery_action_info tells"},
        {172, "critical", "no advice is published: read the kernel log and watch the GPU"},
        {173, "unknown", "keep the kernel log; the code is newer than this podgpu"},
        {UINT64_MAX, "unknown", "keep the kernel log; the code is newer than this podgpu"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct xid_advice a = xid_advice_get(cases[i].code);
        assert_string_equal(a.severity, cases[i].severity);
        assert_string_equal(a.text, cases[i].text);
    }
    assert_int_equal(xid_row_count, xid_message_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_those_of_dcgm_exporter),
        cmocka_unit_test(every_code_up_to_the_last_has_a_message),
        cmocka_unit_test(critical_codes_are_these),
        cmocka_unit_test(each_code_has_a_severity_and_advice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
