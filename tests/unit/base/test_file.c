// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static char path[] = "/tmp/podgpu-test-file-XXXXXX";

static int make_file(void **state)
{
    int fd = mkstemp(path);
    if (fd < 0)
        return -1;
    for (unsigned i = 0; i < 5000; i++)
        if (write(fd, "0123456789", 10) != 10)
            return -1;
    return close(fd);
}

static int remove_file(void **state)
{
    return unlink(path);
}

static void a_file_is_appended_whole(void **state)
{
    struct buf b = BUF_INIT(60000);
    struct error err = ERROR_INIT;
    buf_add_str(&b, "before|");
    assert_int_equal(file_read(path, &b, &err), 0);
    assert_int_equal(b.len, 50007);
    assert_memory_equal(b.data, "before|0123456789", 17);
    assert_memory_equal(b.data + b.len - 10, "0123456789", 10);
    buf_deinit(&b);
}

static void the_ceiling_is_exact(void **state)
{
    for (size_t max = 49999; max <= 50001; max++) {
        struct buf b = BUF_INIT(max);
        struct error err = ERROR_INIT;
        assert_int_equal(file_read(path, &b, &err), max < 50000 ? -EFBIG : 0);
        if (max < 50000)
            assert_non_null(strstr(err.text, "larger than 49999 bytes"));
        buf_deinit(&b);
    }
}

static void errors_name_the_path_and_the_reason(void **state)
{
    struct buf b = BUF_INIT(100);
    struct error err = ERROR_INIT;
    assert_int_equal(file_read("/nonexistent/x", &b, &err), -ENOENT);
    assert_string_equal(err.text, "cannot read '/nonexistent/x': No such file or directory");
    assert_int_equal(file_read("/", &b, &err), -EISDIR);
    assert_int_equal(file_read("/dev/null", &b, &err), 0);
    assert_int_equal(b.len, 0);
    buf_deinit(&b);
}

static void a_fifo_is_no_file_and_does_not_block(void **state)
{
    char fifo[sizeof(path) + 8];
    struct error err = ERROR_INIT;
    (void)snprintf(fifo, sizeof(fifo), "%s.fifo", path);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    struct buf b = BUF_INIT(100);
    assert_int_equal(file_read(fifo, &b, &err), -EMEDIUMTYPE);
    assert_non_null(strstr(err.text, ".fifo': not a file"));
    assert_int_equal(b.len, 0);
    (void)unlink(fifo);
    buf_deinit(&b);
}

static void a_stamp_changes_with_the_file(void **state)
{
    struct stat st;
    struct file_stamp before = file_stamp(path);
    assert_true(before.there);
    assert_int_equal(before.bytes, 50000);
    assert_int_equal(stat(path, &st), 0);
    struct file_stamp same = file_stamp_of(&st);
    assert_true(file_stamp_equals(&before, &same));
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 5}};
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    struct file_stamp after = file_stamp(path);
    assert_int_equal(after.modified.tv_sec, 5);
    assert_false(file_stamp_equals(&before, &after));
    struct file_stamp none = file_stamp("/nonexistent"), other = file_stamp("/nonexistent/x");
    assert_false(none.there);
    assert_int_equal(none.error, ENOENT);
    assert_true(file_stamp_equals(&none, &other));
    other.error = ELOOP;
    assert_false(file_stamp_equals(&none, &other));
    assert_false(file_stamp_equals(&none, &after));
}

static void a_name_is_read_in_its_directory(void **state)
{
    struct buf b = BUF_INIT(60000);
    cleanup(fd_closep) int directory = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(file_read_at(directory, path + strlen("/tmp/"), &b, NULL), 0);
    assert_int_equal(b.len, 50000);
    assert_int_equal(file_read_at(directory, "podgpu-no-such-file", &b, NULL), -ENOENT);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stamp_changes_with_the_file),
        cmocka_unit_test(a_name_is_read_in_its_directory),
        cmocka_unit_test(a_file_is_appended_whole),
        cmocka_unit_test(the_ceiling_is_exact),
        cmocka_unit_test(errors_name_the_path_and_the_reason),
        cmocka_unit_test(a_fifo_is_no_file_and_does_not_block),
    };
    return cmocka_run_group_tests(tests, make_file, remove_file);
}
