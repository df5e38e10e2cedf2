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

static void row_i_is_code_i_and_says_all(void **state)
{
    (void)state;
    assert_int_equal(xid_table_count, 173);
    for (size_t i = 0; i < xid_table_count; i++) {
        assert_int_equal(xid_table[i].code, i);
        assert_ptr_equal(xid_find(i), &xid_table[i]);
        assert_true(xid_table[i].severity <= XID_CRITICAL);
        assert_true(strlen(xid_table[i].message) && strlen(xid_table[i].gloss) &&
                    strlen(xid_table[i].action));
    }
    assert_null(xid_find(173));
}

static void critical_codes_are_these(void **state)
{
    (void)state;
    static const uint16_t expected[] = {46,  48,  54,  62,  64,  74,  79,  95,  109, 110, 119,
                                        120, 136, 140, 143, 151, 155, 158, 167, 169, 171, 172};
    assert_int_equal(xid_critical_count, ARRAY_SIZE(expected));
    assert_memory_equal(xid_critical_codes, expected, sizeof(expected));
    size_t critical = 0;
    for (uint64_t code = 0; code < 300; code++)
        critical += xid_is_critical(code);
    assert_int_equal(critical, ARRAY_SIZE(expected));
    for (size_t i = 0; i < ARRAY_SIZE(expected); i++)
        assert_true(xid_is_critical(expected[i]));
}

static void severity_and_advice_are_known(void **state)
{
    (void)state;
    assert_string_equal(xid_find(79)->action, "reboot-node");
    assert_string_equal(xid_find(119)->action, "drain+reset-gpu");
    assert_string_equal(xid_find(13)->action, "restart-app");
    assert_int_equal(xid_find(13)->severity, XID_APPLICATION);
    assert_int_equal(xid_find(63)->severity, XID_WARNING);
    assert_int_equal(xid_find(43)->severity, XID_APPLICATION);
    assert_int_equal(xid_find(1)->severity, XID_UNKNOWN);
    assert_string_equal(xid_severity_text(XID_CRITICAL), "critical");
    assert_string_equal(xid_severity_text(XID_APPLICATION), "application");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_those_of_dcgm_exporter),
        cmocka_unit_test(row_i_is_code_i_and_says_all),
        cmocka_unit_test(critical_codes_are_these),
        cmocka_unit_test(severity_and_advice_are_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
