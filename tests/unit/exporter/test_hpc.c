// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "exporter/hpc.h"

// --- Names ---

static void file_names_are_gpu_or_gpu_dot_instance(void **state)
{
    static const struct {
        const char *name;
        uint32_t gpu, instance;
    } good[] = {
        {"0", 0, HPC_NO_INSTANCE},
        {"1", 1, HPC_NO_INSTANCE},
        {"42", 42, HPC_NO_INSTANCE},
        {"0.0", 0, 0},
        {"2.1", 2, 1},
        {"3.10", 3, 10},
        {"4294967294", UINT32_MAX - 1, HPC_NO_INSTANCE},
    };
    static const char *const bad[] = {
        "foo",
        "bar.txt",
        ".gitkeep",
        "1e5",
        "NaN",
        "Inf",
        "+3",
        "-2",
        ".5",
        "1.2.3",
        "",
        ".",
        "..",
        "1.",
        "1. ",
        " 1",
        "1 ",
        "0x1",
        "00",
        "01",
        "1.00",
        "4294967295",
        "1.4294967295",
        "99999999999999999999",
        "1_0",
        "1.-0",
        "\xd9\xa1",
    };
    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        uint32_t gpu = 7, instance = 7;
        assert_true(hpc_parse_name(sv_from(good[i].name), &gpu, &instance));
        assert_int_equal(gpu, good[i].gpu);
        assert_int_equal(instance, good[i].instance);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        uint32_t gpu = 7, instance = 7;
        if (hpc_parse_name(sv_from(bad[i]), &gpu, &instance))
            fail_msg("'%s' was taken", bad[i]);
        assert_int_equal(gpu, 7);
    }
}

// --- Content ---

static struct hpc_jobs *jobs_of(struct sv content)
{
    struct hpc_jobs *jobs;
    assert_int_equal(hpc_jobs_new(&jobs), 0);
    assert_int_equal(hpc_jobs_add(jobs, 0, HPC_NO_INSTANCE, content), 0);
    return jobs;
}

// Expects the names joined by '|', NULL for none.
static void assert_names(const struct hpc_jobs *jobs, uint32_t gpu, uint32_t instance,
                         const char *want)
{
    char got[512] = "";
    size_t count = 99, len = 0;
    const char *const *names = hpc_jobs_find(jobs, gpu, instance, &count);
    if (!want) {
        assert_null(names);
        assert_int_equal(count, 0);
        return;
    }
    assert_non_null(names);
    for (size_t i = 0; i < count; i++)
        len += (size_t)snprintf(got + len, sizeof(got) - len, "%s%s", i ? "|" : "", names[i]);
    assert_string_equal(got, want);
}

static void each_line_is_a_job(void **state)
{
    static const struct {
        struct sv content;
        const char *want;
    } cases[] = {
        {SV(""), NULL},
        {SV("job1"), "job1"},
        {SV("job1\n"), "job1"},
        {SV("job1\njob2"), "job1|job2"},
        {SV("b\na\n"), "b|a"},
        {SV("job1\r\njob2\r\n"), "job1|job2"},
        {SV("\n"), ""},
        {SV("job1\n\njob2\n"), "job1||job2"},
        {SV(" job 1 \n"), " job 1 "},
        {SV("a\rb\n"), "a\rb"},
        {SV("a\nb\na\n"), "a|b"},
        {SV("a\0b\n"), "a?b"},
        {SV("\xff\xfe\n"), "\xff\xfe"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct hpc_jobs *jobs = jobs_of(cases[i].content);
        assert_names(jobs, 0, HPC_NO_INSTANCE, cases[i].want);
        assert_int_equal(hpc_jobs_left_out(jobs), 0);
        hpc_jobs_free(jobs);
    }
}

static void jobs_are_found_by_gpu_and_instance(void **state)
{
    struct hpc_jobs *jobs;
    assert_names(NULL, 0, HPC_NO_INSTANCE, NULL);
    assert_int_equal(hpc_jobs_new(&jobs), 0);
    assert_names(jobs, 0, HPC_NO_INSTANCE, NULL);
    assert_int_equal(hpc_jobs_add(jobs, 3, 0, SV("job3.0-0")), 0);
    assert_int_equal(hpc_jobs_add(jobs, 1, HPC_NO_INSTANCE, SV("job1-1\njob2-1")), 0);
    assert_int_equal(hpc_jobs_add(jobs, 0, HPC_NO_INSTANCE, SV("job1-0")), 0);
    assert_int_equal(hpc_jobs_add(jobs, 3, 12, SV("")), 0);
    assert_int_equal(hpc_jobs_add(jobs, 1, HPC_NO_INSTANCE, SV("again")), -EEXIST);
    assert_names(jobs, 0, HPC_NO_INSTANCE, "job1-0");
    assert_names(jobs, 1, HPC_NO_INSTANCE, "job1-1|job2-1");
    assert_names(jobs, 2, HPC_NO_INSTANCE, NULL);
    assert_names(jobs, 3, 0, "job3.0-0");
    assert_names(jobs, 3, HPC_NO_INSTANCE, NULL);
    assert_names(jobs, 3, 12, NULL);
    assert_names(jobs, 0, 0, NULL);
    hpc_jobs_free(jobs);
    hpc_jobs_free(NULL);
}

static void jobs_beyond_the_cap_are_counted(void **state)
{
    for (size_t count = LIMIT_HPC_JOBS - 1; count <= LIMIT_HPC_JOBS + 1; count++) {
        struct buf content = BUF_INIT(LIMIT_HPC_FILE_BYTES);
        for (size_t i = 0; i < count; i++)
            buf_add_fmt(&content, "job%zu\n", i);
        buf_add_str(&content, "job0\n"); // no new job
        struct hpc_jobs *jobs = jobs_of(buf_sv(&content));
        size_t got;
        (void)hpc_jobs_find(jobs, 0, HPC_NO_INSTANCE, &got);
        assert_int_equal(got, count < LIMIT_HPC_JOBS ? count : LIMIT_HPC_JOBS);
        assert_int_equal(hpc_jobs_left_out(jobs), count > LIMIT_HPC_JOBS ? 1 : 0);
        hpc_jobs_free(jobs);
        buf_deinit(&content);
    }
}

static void a_line_beyond_the_cap_is_left_out(void **state)
{
    for (size_t len = LIMIT_HPC_LINE_BYTES - 1; len <= LIMIT_HPC_LINE_BYTES + 1; len++) {
        char *content = malloc(len + 3);
        assert_non_null(content);
        memset(content, 'x', len);
        memcpy(content + len, "\nb\n", 3);
        struct hpc_jobs *jobs = jobs_of((struct sv){content, len + 3});
        size_t got;
        const char *const *names = hpc_jobs_find(jobs, 0, HPC_NO_INSTANCE, &got);
        bool over = len > LIMIT_HPC_LINE_BYTES;
        assert_int_equal(got, over ? 1 : 2);
        assert_string_equal(names[got - 1], "b");
        assert_int_equal(hpc_jobs_left_out(jobs), over);
        hpc_jobs_free(jobs);
        free(content);
    }
}

static void sets_are_compared_by_content(void **state)
{
    struct hpc_jobs *a = jobs_of(SV("x\ny"));
    struct hpc_jobs *b = jobs_of(SV("x\ny\n"));
    struct hpc_jobs *c = jobs_of(SV("y\nx"));
    struct hpc_jobs *d = jobs_of(SV("x"));
    assert_true(hpc_jobs_equal(a, b));
    assert_false(hpc_jobs_equal(a, c));
    assert_false(hpc_jobs_equal(a, d));
    assert_int_equal(hpc_jobs_add(b, 1, 1, SV("")), 0);
    assert_false(hpc_jobs_equal(a, b));
    hpc_jobs_free(a);
    hpc_jobs_free(b);
    hpc_jobs_free(c);
    hpc_jobs_free(d);
}

// --- The directory ---

struct folder {
    char path[64];
    struct hpc *hpc;
};

static int make_folder(void **state)
{
    static struct folder f;
    f = (struct folder){.path = "/tmp/podgpu-hpc-XXXXXX"};
    if (!mkdtemp(f.path) || hpc_new(f.path, &f.hpc) < 0)
        return -1;
    *state = &f;
    return 0;
}

static const char *path_in(const struct folder *f, const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", f->path, name);
    return path;
}

static void write_file(const struct folder *f, const char *name, const char *content)
{
    int fd = open(path_in(f, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, strlen(content)), strlen(content));
    close(fd);
}

// Each reading of the files makes one new set of jobs.
static unsigned reads;

int __real_hpc_jobs_new(struct hpc_jobs **out);
int __wrap_hpc_jobs_new(struct hpc_jobs **out);

int __wrap_hpc_jobs_new(struct hpc_jobs **out)
{
    reads++;
    return __real_hpc_jobs_new(out);
}

static bool refresh(const struct folder *f)
{
    return hpc_refresh(f->hpc, clock_wall_ns());
}

static void remove_file(const struct folder *f, const char *name)
{
    (void)unlink(path_in(f, name));
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"0", "1", "2", "3.0", "5", "notes.txt", "big"};
    struct folder *f = *state;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        remove_file(f, names[i]);
    (void)rmdir(path_in(f, "4"));
    (void)rmdir(f->path);
    hpc_free(f->hpc);
    return 0;
}

static void a_directory_of_files_becomes_jobs(void **state)
{
    struct folder *f = *state;
    write_file(f, "0", "job1-0\n");
    write_file(f, "1", "job1-1\njob2-1\n");
    write_file(f, "3.0", "job3.0-0");
    write_file(f, "notes.txt", "nothing");
    assert_int_equal(mkdir(path_in(f, "4"), 0755), 0);
    assert_int_equal(mkfifo(path_in(f, "5"), 0644), 0);
    assert_true(refresh(f));
    const struct hpc_jobs *jobs = hpc_current(f->hpc);
    assert_names(jobs, 0, HPC_NO_INSTANCE, "job1-0");
    assert_names(jobs, 1, HPC_NO_INSTANCE, "job1-1|job2-1");
    assert_names(jobs, 2, HPC_NO_INSTANCE, NULL);
    assert_names(jobs, 3, 0, "job3.0-0");
    assert_names(jobs, 4, HPC_NO_INSTANCE, NULL);
    assert_names(jobs, 5, HPC_NO_INSTANCE, NULL);
}

static void the_object_is_kept_while_the_content_is_the_same(void **state)
{
    struct folder *f = *state;
    write_file(f, "0", "a\n");
    assert_true(refresh(f));
    const struct hpc_jobs *jobs = hpc_current(f->hpc);
    for (int i = 0; i < 3; i++)
        assert_false(refresh(f));
    assert_ptr_equal(hpc_current(f->hpc), jobs);
    write_file(f, "0", "a\n"); // written again, the same
    assert_false(refresh(f));
    write_file(f, "notes.txt", "no jobs");
    assert_false(refresh(f));
}

static void each_kind_of_change_is_seen(void **state)
{
    struct folder *f = *state;
    write_file(f, "0", "a\n");
    assert_true(refresh(f));
    write_file(f, "0", "b\n"); // same size, perhaps the same timestamps
    assert_true(refresh(f));
    assert_names(hpc_current(f->hpc), 0, HPC_NO_INSTANCE, "b");
    write_file(f, "1", "c\n");
    assert_true(refresh(f));
    assert_names(hpc_current(f->hpc), 1, HPC_NO_INSTANCE, "c");
    write_file(f, "1", "");
    assert_true(refresh(f));
    assert_names(hpc_current(f->hpc), 1, HPC_NO_INSTANCE, NULL);
    remove_file(f, "0");
    assert_true(refresh(f));
    assert_names(hpc_current(f->hpc), 0, HPC_NO_INSTANCE, NULL);
    assert_false(refresh(f));
}

// A file changed within the last 2 s could change again under the same timestamps.
static void a_settled_directory_is_not_read_again(void **state)
{
    struct folder *f = *state;
    write_file(f, "0", "a\n");
    uint64_t now = clock_wall_ns();
    reads = 0;
    assert_true(hpc_refresh(f->hpc, now));
    assert_false(hpc_refresh(f->hpc, now + NS_PER_S));
    assert_int_equal(reads, 2);
    assert_false(hpc_refresh(f->hpc, now + 3 * NS_PER_S)); // was not settled when it was last read
    assert_int_equal(reads, 3);
    for (int i = 0; i < 5; i++)
        assert_false(hpc_refresh(f->hpc, now + 4 * NS_PER_S));
    assert_int_equal(reads, 3);
    write_file(f, "notes.txt", "no jobs");
    assert_false(hpc_refresh(f->hpc, now + 4 * NS_PER_S));
    assert_int_equal(reads, 3);
    write_file(f, "0", "bb\n");
    assert_true(hpc_refresh(f->hpc, now + 9 * NS_PER_S));
    assert_names(hpc_current(f->hpc), 0, HPC_NO_INSTANCE, "bb");
    assert_int_equal(reads, 4);
    // A clock that was set back: the file is from the future and counts as settled.
    assert_false(hpc_refresh(f->hpc, now - 3600 * NS_PER_S));
    assert_int_equal(reads, 4);
}

static void a_missing_directory_has_no_jobs_until_it_comes(void **state)
{
    struct folder *f = *state;
    assert_int_equal(rmdir(f->path), 0);
    assert_false(refresh(f));
    assert_null(hpc_current(f->hpc));
    assert_int_equal(mkdir(f->path, 0755), 0);
    assert_true(refresh(f)); // an empty set is not "no directory"
    assert_non_null(hpc_current(f->hpc));
    write_file(f, "2", "job");
    assert_true(refresh(f));
    assert_names(hpc_current(f->hpc), 2, HPC_NO_INSTANCE, "job");
    remove_file(f, "2");
    assert_int_equal(rmdir(f->path), 0);
    assert_true(refresh(f));
    assert_null(hpc_current(f->hpc));
    assert_false(refresh(f));
}

static void an_unreadable_file_does_not_hide_the_others(void **state)
{
    struct folder *f = *state;
    assert_int_equal(symlink("/proc/self/mem", path_in(f, "0")), 0); // opens, but the read fails
    write_file(f, "1", "job");
    assert_true(refresh(f));
    assert_names(hpc_current(f->hpc), 0, HPC_NO_INSTANCE, NULL);
    assert_names(hpc_current(f->hpc), 1, HPC_NO_INSTANCE, "job");
}

static void a_link_to_a_file_is_followed(void **state)
{
    struct folder *f = *state;
    write_file(f, "big", "linked\n");
    assert_int_equal(symlink("big", path_in(f, "0")), 0);
    assert_int_equal(symlink("absent", path_in(f, "1")), 0);
    assert_true(refresh(f));
    assert_names(hpc_current(f->hpc), 0, HPC_NO_INSTANCE, "linked");
    assert_names(hpc_current(f->hpc), 1, HPC_NO_INSTANCE, NULL);
}

static void a_file_over_the_ceiling_is_left_out(void **state)
{
    struct folder *f = *state;
    write_file(f, "0", "job\n");
    assert_int_equal(truncate(path_in(f, "0"), LIMIT_HPC_FILE_BYTES + 1), 0);
    write_file(f, "1", "job\n");
    assert_int_equal(truncate(path_in(f, "1"), LIMIT_HPC_FILE_BYTES), 0);
    assert_true(refresh(f));
    assert_names(hpc_current(f->hpc), 0, HPC_NO_INSTANCE, NULL);
    assert_names(hpc_current(f->hpc), 1, HPC_NO_INSTANCE, "job"); // and one line of NULs, too long
}

#define DIRECTORY_TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(file_names_are_gpu_or_gpu_dot_instance),
        cmocka_unit_test(each_line_is_a_job),
        cmocka_unit_test(jobs_are_found_by_gpu_and_instance),
        cmocka_unit_test(jobs_beyond_the_cap_are_counted),
        cmocka_unit_test(a_line_beyond_the_cap_is_left_out),
        cmocka_unit_test(sets_are_compared_by_content),
        DIRECTORY_TEST(a_directory_of_files_becomes_jobs),
        DIRECTORY_TEST(the_object_is_kept_while_the_content_is_the_same),
        DIRECTORY_TEST(each_kind_of_change_is_seen),
        DIRECTORY_TEST(a_settled_directory_is_not_read_again),
        DIRECTORY_TEST(a_missing_directory_has_no_jobs_until_it_comes),
        DIRECTORY_TEST(an_unreadable_file_does_not_hide_the_others),
        DIRECTORY_TEST(a_link_to_a_file_is_followed),
        DIRECTORY_TEST(a_file_over_the_ceiling_is_left_out),
    };
    return cmocka_run_group_tests_name("hpc", tests, NULL, NULL);
}
