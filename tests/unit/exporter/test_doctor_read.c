// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "base/buf.h"
#include "exporter/doctor_read.h"

#define HEAD                                                                                       \
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "  \
    "inode\n"
#define LISTENS(port, inode)                                                                       \
    "   0: 0100007F:" port                                                                         \
    " 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        "                       \
    "0 " inode " 1 0000000000000000 100 0 0 10 0\n"
#define CONNECTED(port, inode)                                                                     \
    "   1: 0100007F:" port                                                                         \
    " 0100007F:24B8 01 00000000:00000000 00:00000000 00000000     0        "                       \
    "0 " inode " 1 0000000000000000 20 4 30 10 -1\n"

static void sockets_that_listen_on_the_port_are_found(void **state)
{
    static const struct {
        const char *table;
        unsigned port;
        size_t count;
        uint64_t inodes[2];
    } cases[] = {
        {"", 9400, 0, {0}},
        {HEAD, 9400, 0, {0}},
        {HEAD LISTENS("24B8", "48213"), 9400, 1, {48213}},
        {HEAD LISTENS("24B8", "48213"), 9401, 0, {0}},
        {HEAD CONNECTED("24B8", "48213"), 9400, 0, {0}},
        {LISTENS("24B8", "1") CONNECTED("24B8", "2") LISTENS("24B8", "3"), 9400, 2, {1, 3}},
        {LISTENS("0050", "7"), 80, 1, {7}},
        {LISTENS("24B8", "18446744073709551615"), 9400, 1, {UINT64_MAX}},
        {LISTENS("24B8", "18446744073709551616"), 9400, 0, {0}},
        {LISTENS("24B8", "0"), 9400, 0, {0}}, // one that ends
        {LISTENS("24B8", "-1"), 9400, 0, {0}},
        {"0: 00000000000000000000000000000000:24B8 0:0 0A 0:0 0:0 0 0 0 9 1\n", 9400, 1, {9}},
        {"0: A:24B8 B:0 0A q t r u o 5", 9400, 1, {5}}, // no end of line
        {"0: A:24B8 B:0 0A q t r u o", 9400, 0, {0}},
        {"0: 24B8 B:0 0A q t r u o 5\n", 9400, 0, {0}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct doctor_listeners l = {.count = 0};
        doctor_read_listeners(sv_from(cases[i].table), cases[i].port, &l);
        if (l.count != cases[i].count)
            fail_msg("case %zu: %zu sockets", i, l.count);
        for (size_t k = 0; k < l.count; k++)
            assert_int_equal(l.inodes[k], cases[i].inodes[k]);
    }
}

static void a_table_that_is_cut_gives_no_socket_that_is_not_whole(void **state)
{
    static const char table[] = HEAD LISTENS("24B8", "48213");
    (void)state;
    const size_t inode = (size_t)(strstr(table, "48213") - table);
    for (size_t len = 0; len < sizeof(table); len++) {
        struct doctor_listeners l = {.count = 0};
        doctor_read_listeners((struct sv){table, len}, 9400, &l);
        assert_int_equal(l.count, len > inode);
    }
}

static void no_more_sockets_are_kept_than_there_is_room(void **state)
{
    (void)state;
    for (size_t n = DOCTOR_LISTENERS_MOST - 1; n <= DOCTOR_LISTENERS_MOST + 1; n++) {
        struct buf b = BUF_INIT(1u << 16);
        struct doctor_listeners l = {.count = 0};
        for (size_t i = 1; i <= n; i++)
            buf_add_fmt(&b, "0: A:24B8 B:0 0A q t r u o %zu\n", i);
        doctor_read_listeners(buf_sv(&b), 9400, &l);
        assert_int_equal(l.count, n < DOCTOR_LISTENERS_MOST ? n : DOCTOR_LISTENERS_MOST);
        assert_int_equal(l.inodes[l.count - 1], l.count);
        buf_deinit(&b);
    }
}

static void the_drivers_switch_is_on_off_or_not_told(void **state)
{
    static const struct {
        const char *params;
        int value;
    } cases[] = {
        {"", -1},
        {"ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\nDmaRemapPeerMmio: 1\n", 1},
        {"RmProfilingAdminOnly: 0\n", 0},
        {"RmProfilingAdminOnly: 1", 1},
        {"RmProfilingAdminOnly: 10\n", -1},
        {"RmProfilingAdminOnly: \n", -1},
        {"RmProfilingAdminOnly", -1},
        {"NotRmProfilingAdminOnly: 1\n", -1},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(doctor_read_admin_only(sv_from(cases[i].params)), cases[i].value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sockets_that_listen_on_the_port_are_found),
        cmocka_unit_test(a_table_that_is_cut_gives_no_socket_that_is_not_whole),
        cmocka_unit_test(no_more_sockets_are_kept_than_there_is_room),
        cmocka_unit_test(the_drivers_switch_is_on_off_or_not_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
