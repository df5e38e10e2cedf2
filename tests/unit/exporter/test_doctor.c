// SPDX-License-Identifier: Apache-2.0
// The doctor where little is there; each allocation fails once. Its lines go to a file.
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>
#include <uv.h>

#include "../allocation_sweep.h"
#include "exporter/doctor.h"

static struct exporter_options options;
static FILE *lines;
static int last_status;

static void run_doctor(void)
{
    int out = dup(STDOUT_FILENO), log = dup(STDERR_FILENO);
    assert_true(out >= 0 && log >= 0 && fflush(stdout) == 0);
    assert_true(dup2(fileno(lines), STDOUT_FILENO) >= 0);
    last_status = doctor_run(&options);
    assert_true(dup2(out, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0);
    (void)close(out);
    (void)close(log);
}

static void parse(const char *const *words)
{
    static char *environment[] = {NULL};
    struct error err = ERROR_INIT;
    char *argv[32];
    int argc = 0;
    for (; words[argc]; argc++)
        argv[argc] = (char *)(uintptr_t)words[argc];
    argv[argc] = NULL;
    if (exporter_options_parse(argc, argv, environment, &options, &err) < 0)
        fail_msg("%s", err.text);
}

static void each_allocation_may_fail(void **state)
{
    static const char *const words[] = {"podgpu-exporter",
                                        "--doctor",
                                        "-k",
                                        "--kubernetes-enable-dra",
                                        "--kubernetes-enable-pod-uid",
                                        "--kubeconfig=/nonexistent/kubeconfig",
                                        "--source-path=/nonexistent/podgpu-source",
                                        "--pod-resources-kubelet-socket=/nonexistent/kubelet.sock",
                                        "--pods-api-socket=/nonexistent/pods-api.sock",
                                        "--pod-log-path=/nonexistent",
                                        "--kmsg-path=/nonexistent/kmsg",
                                        "--collectors=" SOURCE_ROOT "/etc/default-counters.csv",
                                        "--address=127.0.0.1:0",
                                        NULL};
    (void)state;
    parse(words);
    run_doctor();
    assert_int_equal(last_status, 1); // there is no source
    assert_true(allocation_sweep(run_doctor) > 100);
    assert_int_equal(last_status, 1);
    exporter_options_deinit(&options);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_allocation_may_fail)};
    // libuv gives up when its own allocations fail; ours do not.
    if (uv_replace_allocator(__real_malloc, __real_realloc, __real_calloc, free) < 0)
        return 1;
    lines = tmpfile();
    if (!lines)
        return 1;
    int status = cmocka_run_group_tests(tests, NULL, NULL);
    (void)fclose(lines);
    return status;
}
