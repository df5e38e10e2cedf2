// SPDX-License-Identifier: Apache-2.0
#include "base/dl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct table {
    double (*cosine)(double);
    void (*missing)(void);
    double (*root)(double);
    unsigned char cosine_generation;
    unsigned char missing_generation;
    unsigned char root_generation;
};

static const struct dl_symbol symbols[] = {
    {offsetof(struct table, cosine), {"cos"}, offsetof(struct table, cosine_generation)},
    {offsetof(struct table, missing),
     {"podgpu_no_such_v2", "podgpu_no_such"},
     offsetof(struct table, missing_generation)},
    {offsetof(struct table, root), {"sqrt_v9", "sqrt"}, offsetof(struct table, root_generation)},
};

static void each_symbol_is_found_on_its_own(void **state)
{
    void *handle = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(dl_open("libm.so.6", NULL, &handle, &err), 0);
    struct table t;
    memset(&t, 0xff, sizeof(t));
    assert_int_equal(dl_resolve(handle, symbols, ARRAY_SIZE(symbols), &t), 2);
    assert_true(t.cosine(0) == 1.0);
    assert_true(t.root(9) == 3.0);
    assert_null(t.missing);
    assert_int_equal(t.cosine_generation, 1);
    assert_int_equal(t.missing_generation, 0);
    assert_int_equal(t.root_generation, 2);
    char path[256], small[4];
    dl_path(handle, path, sizeof(path));
    assert_true(path[0] == '/');
    assert_non_null(strstr(path, "/libm.so.6"));
    dl_path(handle, small, sizeof(small));
    assert_memory_equal(small, path, 3);
    dl_close(handle);
    dl_close(NULL);
}

static void an_absent_library_says_where_it_was_looked_for(void **state)
{
    void *handle = NULL;
    struct error err = ERROR_INIT;
    static const char *const dirs[] = {"/nonexistent-a", "/nonexistent-b", NULL};
    assert_int_equal(dl_open("libpodgpu-none.so.1", dirs, &handle, &err), -ENOENT);
    assert_string_equal(
        err.text, "'libpodgpu-none.so.1' not found (looked in the loader's path, /nonexistent-a, "
                  "/nonexistent-b)");
    assert_int_equal(dl_open("/nonexistent/libx.so", dirs, &handle, &err), -ENOENT);
    assert_string_equal(err.text, "'/nonexistent/libx.so' does not exist");
    assert_null(handle);
}

static void a_file_that_is_no_library_is_told_from_an_absent_one(void **state)
{
    char dir[] = "/tmp/podgpu-test-dl-XXXXXX";
    char path[64];
    assert_non_null(mkdtemp(dir));
    (void)snprintf(path, sizeof(path), "%s/libpodgpu-bad.so", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs("not an ELF file, though long enough to hold a header of one ....", f) >= 0);
    assert_int_equal(fclose(f), 0);
    void *handle = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(dl_open(path, NULL, &handle, &err), -ELIBBAD);
    assert_non_null(strstr(err.text, "cannot load"));
    const char *const dirs[] = {dir, NULL};
    assert_int_equal(dl_open("libpodgpu-bad.so", dirs, &handle, &err), -ELIBBAD);
    (void)unlink(path);
    (void)rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_symbol_is_found_on_its_own),
        cmocka_unit_test(an_absent_library_says_where_it_was_looked_for),
        cmocka_unit_test(a_file_that_is_no_library_is_told_from_an_absent_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
