// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "exporter/process_stats.h"

static uint64_t started_wall_ns;

static double own_cpu_seconds(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void cpu_time_is_the_kernels(void **state)
{
    (void)state;
    while (own_cpu_seconds() < 0.1)
        ;
    struct render_self_process p;
    double before = own_cpu_seconds();
    process_stats_read(&p);
    assert_true(p.cpu_seconds >= before - 0.03 &&
                p.cpu_seconds <= own_cpu_seconds() + 0.03); // ticks of 10 ms
}

static void memory_follows_what_is_mapped_and_touched(void **state)
{
    (void)state;
    const size_t bytes = 32u << 20;
    struct render_self_process before, mapped, touched;
    process_stats_read(&before);
    char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(block != MAP_FAILED);
    process_stats_read(&mapped);
    memset(block, 1, bytes);
    process_stats_read(&touched);
    munmap(block, bytes);
    assert_int_equal(mapped.virtual_bytes - before.virtual_bytes, bytes);
    assert_true(before.resident_bytes > 0);
    assert_true(touched.resident_bytes >= mapped.resident_bytes + bytes - (1u << 20));
}

static void descriptors_are_counted_without_the_one_that_counts(void **state)
{
    (void)state;
    struct render_self_process before, after;
    process_stats_read(&before);
    assert_true(before.open_fds >= 1);
    int fds[300]; // more than one buffer of entries
    for (size_t i = 0; i < 300; i++)
        fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    process_stats_read(&after);
    for (size_t i = 0; i < 300; i++)
        close(fds[i]);
    assert_int_equal(after.open_fds - before.open_fds, 300);
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(after.max_fds, limit.rlim_cur);
}

static void the_start_is_when_this_program_started_and_stands_still(void **state)
{
    (void)state;
    struct render_self_process p, q;
    process_stats_read(&p);
    assert_true(p.start_wall_ns <= started_wall_ns + 50 * NS_PER_MS);
    assert_true(p.start_wall_ns + 60 * NS_PER_S > started_wall_ns);
    process_stats_read(&q);
    assert_int_equal(p.start_wall_ns, q.start_wall_ns);
}

static void a_name_with_spaces_and_parentheses_does_not_mislead(void **state)
{
    (void)state;
    char name[16];
    struct render_self_process before, after;
    process_stats_read(&before);
    assert_int_equal(prctl(PR_GET_NAME, name), 0);
    assert_int_equal(prctl(PR_SET_NAME, "a) 9 (b) 1 2"), 0);
    process_stats_read(&after);
    assert_int_equal(prctl(PR_SET_NAME, name), 0);
    assert_int_equal(after.virtual_bytes, before.virtual_bytes);
    assert_int_equal(after.start_wall_ns, before.start_wall_ns);
}

int main(void)
{
    started_wall_ns = clock_wall_ns();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cpu_time_is_the_kernels),
        cmocka_unit_test(memory_follows_what_is_mapped_and_touched),
        cmocka_unit_test(descriptors_are_counted_without_the_one_that_counts),
        cmocka_unit_test(the_start_is_when_this_program_started_and_stands_still),
        cmocka_unit_test(a_name_with_spaces_and_parentheses_does_not_mislead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
