// SPDX-License-Identifier: Apache-2.0
// The judge is the gzip program.
#include "codec/gzip.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"

static void assert_gunzips_to(const char *data, size_t bytes, struct sv expected)
{
    char path[] = "/tmp/podgpu-test-gzip-XXXXXX";
    char command[64];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), bytes);
    assert_int_equal(close(fd), 0);
    (void)snprintf(command, sizeof(command), "gzip -dc < %s", path);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char *back = malloc(expected.len + 1);
    assert_non_null(back);
    assert_int_equal(fread(back, 1, expected.len + 1, pipe), expected.len);
    assert_int_equal(pclose(pipe), 0);
    assert_memory_equal(back, expected.ptr, expected.len);
    free(back);
    (void)unlink(path);
}

static void assert_round_trip(struct sv in)
{
    char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(gzip_compress(in, &data, &bytes), 0);
    assert_gunzips_to(data, bytes, in);
    free(data);
}

static void gzip_reads_what_was_written(void **state)
{
    assert_round_trip(SV("x"));
    assert_round_trip(SV("DCGM_FI_DEV_GPU_TEMP{gpu=\"0\"} 41\n"));
    assert_round_trip((struct sv){NULL, 0});
}

static void incompressible_bytes_survive(void **state)
{
    char random[100000];
    uint64_t seed = 7;
    for (size_t i = 0; i < sizeof(random); i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        random[i] = (char)(seed >> 56);
    }
    assert_round_trip((struct sv){random, sizeof(random)});
}

static void a_page_shrinks_at_least_fivefold(void **state)
{
    struct buf page = BUF_INIT(1 << 20);
    for (int i = 0; i < 2000; i++)
        buf_add_fmt(&page, "DCGM_FI_DEV_GPU_TEMP{gpu=\"%d\",UUID=\"GPU-%.8d\"} %d\n", i % 8,
                    i % 8 * 7919, 30 + i % 40);
    assert_int_equal(page.error, 0);
    char *data = NULL;
    size_t bytes = 0;
    assert_int_equal(gzip_compress(buf_sv(&page), &data, &bytes), 0);
    assert_true(bytes < page.len / 5);
    assert_gunzips_to(data, bytes, buf_sv(&page));
    free(data);
    buf_deinit(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip_reads_what_was_written),
        cmocka_unit_test(incompressible_bytes_survive),
        cmocka_unit_test(a_page_shrinks_at_least_fivefold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
