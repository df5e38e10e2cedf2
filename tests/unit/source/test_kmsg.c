// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/macros.h"
#include "source/kmsg.h"

struct line {
    const char *line;
    uint64_t key;
    uint32_t xid, gi;
    const char *text;
};

static const struct line good[] = {
    {"6,1234,98765432,-;NVRM: Xid (PCI:0000:1b:00): 79, pid=1234, name=foo, GPU has fallen off the "
     "bus.",
     0x1b00, 79, UINT32_MAX,
     "Xid (PCI:0000:1b:00): 79, pid=1234, name=foo, GPU has fallen off the bus."},
    {"4,1,2,c;NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). "
     "RST: No, D-RST: No",
     0x0100, 94, 5,
     "Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, "
     "D-RST: No"},
    {"6,1,2,-;NVRM: Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a, Graphics "
     "Exception\n SUBSYSTEM=pci\n",
     0x3b00, 13, 1,
     "Xid (PCI:0000:3b:00 GPU-I:01 GPU-CI:02): 13, pid=9, name=a, Graphics Exception"},
    {"NVRM: Xid (PCI:000A:FF:1f): 119, pid='<unknown>', Timeout", 0xaff1f, 119, UINT32_MAX,
     "Xid (PCI:000A:FF:1f): 119, pid='<unknown>', Timeout"},
    {"NVRM: Xid (PCI:0000:1b:00.0): 43, x", 0x1b00, 43, UINT32_MAX,
     "Xid (PCI:0000:1b:00.0): 43, x"},
    {"[   12.345678] NVRM: Xid (PCI:0000:1b:00): 8,", 0x1b00, 8, UINT32_MAX,
     "Xid (PCI:0000:1b:00): 8,"},
    {"NVRM: Xid (PCI:0000:1b:00): 65535, x", 0x1b00, 65535, UINT32_MAX,
     "Xid (PCI:0000:1b:00): 65535, x"},
};

static const char *const bad[] = {
    "",
    "NVRM: Xid",
    "NVRM: Xid (PCI:0000:1b:00)",
    "NVRM: Xid (PCI:0000:1b:00):",
    "NVRM: Xid (PCI:0000:1b:00): ",
    "NVRM: Xid (PCI:0000:1b:00): 79",
    "NVRM: Xid (PCI:0000:1b:00): x, y",
    "NVRM: Xid (PCI:0000:1b:00): 0, y",
    "NVRM: Xid (PCI:0000:1b:00): 65536, y",
    "NVRM: Xid (PCI:0000:1b:00): 99999999999999999999, y",
    "NVRM: Xid (PCI:0000:1b:00 GPU-I:): 94, y",
    "NVRM: Xid (PCI:0000:1b:00 GPU-I:300): 94, y",
    "NVRM: Xid (PCI:0000:1b): 79, y",
    "NVRM: Xid (PCI:0000;1b;00): 79, y",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 46",
    "14,1,2,-;NVRM: Xid (PCI:0000:1b:00): 79, written by a program", // facility 1: user
    "6,1,2,-;sshd: said NVRM: Xid (PCI:0000:1b:00): 79, quoted in another line",
    "6,1,2,-;nvidia: loading out-of-tree module taints kernel.",
    "6,1,2,-;\nNVRM: Xid (PCI:0000:1b:00): 79, on the second line",
};

static void lines_of_the_driver_are_read(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        struct kmsg_xid xid;
        if (!kmsg_parse(sv_from(good[i].line), &xid))
            fail_msg("line %zu is not read", i);
        assert_int_equal(xid.bus_key, good[i].key);
        assert_int_equal(xid.xid, good[i].xid);
        assert_int_equal(xid.gpu_instance_id, good[i].gi);
        assert_string_equal(xid.text, good[i].text);
    }
}

static void other_lines_are_not(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct kmsg_xid xid;
        if (kmsg_parse(sv_from(bad[i]), &xid))
            fail_msg("line %zu is read: %s", i, bad[i]);
    }
}

static void a_line_cut_anywhere_is_read_in_bounds_and_never_as_another_code(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        for (size_t cut = 0; cut < strlen(good[i].line); cut++) {
            char *copy = malloc(cut ? cut : 1);
            struct kmsg_xid xid;
            assert_non_null(copy);
            memcpy(copy, good[i].line, cut);
            if (kmsg_parse((struct sv){copy, cut}, &xid))
                assert_int_equal(xid.xid, good[i].xid);
            free(copy);
        }
    }
}

static void text_is_cut_and_printable(void **state)
{
    char line[512] = "NVRM: Xid (PCI:0000:1b:00): 31, \t\x01\xff";
    size_t len = strlen(line);
    memset(line + len, 'x', sizeof(line) - len - 1);
    struct kmsg_xid xid;
    assert_true(kmsg_parse(sv_from(line), &xid));
    assert_int_equal(strlen(xid.text), sizeof(xid.text) - 1);
    assert_memory_equal(xid.text, "Xid (PCI:0000:1b:00): 31, ???xxx", 32);
}

static void bus_ids_of_nvml_and_the_kernel_have_one_key(void **state)
{
    uint64_t key;
    assert_true(kmsg_bus_key_parse(SV("0000000A:FF:1F.0"), &key));
    assert_int_equal(key, 0xaff1f);
    assert_true(kmsg_bus_key_parse(SV("0000:1b:00.0"), &key));
    assert_int_equal(key, 0x1b00);
    assert_false(kmsg_bus_key_parse(SV(""), &key));
    assert_true(kmsg_bus_key_parse(SV("00010000:1B:00.0"), &key)); // a domain of Intel VMD
    assert_int_equal(key, 0x100001b00);
    assert_false(kmsg_bus_key_parse(SV("000010000:1B:00.0"), &key));
    assert_false(kmsg_bus_key_parse(SV("0000:1b:00.0x"), &key));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_the_driver_are_read),
        cmocka_unit_test(other_lines_are_not),
        cmocka_unit_test(a_line_cut_anywhere_is_read_in_bounds_and_never_as_another_code),
        cmocka_unit_test(text_is_cut_and_printable),
        cmocka_unit_test(bus_ids_of_nvml_and_the_kernel_have_one_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
