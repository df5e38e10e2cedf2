// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/spool.h"
#include "base/limits.h"

#define PLENTY (256u << 20)

static char directory[64];

static int set_up(void **state)
{
    (void)snprintf(directory, sizeof(directory), "/tmp/podgpu-spool-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static const char *path_of(const char *name)
{
    static char path[400];
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static int tear_down(void **state)
{
    DIR *d = opendir(directory);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            (void)remove(path_of(e->d_name));
    closedir(d);
    return rmdir(directory);
}

static struct spool *open_spool(uint64_t max_bytes)
{
    struct spool *s = NULL;
    struct error err = ERROR_INIT;
    int r = spool_open(directory, max_bytes, &s, &err);
    if (r < 0)
        fail_msg("%s", err.text);
    return s;
}

// One event of that many bytes, one sample.
static struct spool_ref append(struct spool *s, size_t bytes)
{
    struct buf b = BUF_INIT(SPOOL_RECORD_BYTES_MAX);
    struct spool_ref ref = {0};
    char *message = malloc(bytes);
    assert_non_null(message);
    memset(message, 'm', bytes);
    spool_record_begin(&b, SV("g"), SV("s"));
    for (size_t left = bytes; left > 0;) {
        size_t piece = left < 200000 ? left : 200000;
        spool_record_add(&b, 1000, 0, (struct sv){message, piece});
        left -= piece;
    }
    uint32_t events = (uint32_t)((bytes + 199999) / 200000);
    const struct spool_info info = {.events = events, .first_ms = 1000, .last_ms = 1000};
    spool_record_finish(b.data, b.len, &info);
    assert_int_equal(spool_append(s, b.data, b.len, &ref), 0);
    buf_deinit(&b);
    free(message);
    return ref;
}

struct found {
    struct spool_ref refs[400];
    uint64_t sequences[400];
    size_t count;
    int result;
};

static int on_found(void *user, const struct spool_ref *ref, const struct spool_info *info)
{
    struct found *f = user;
    if (f->result < 0 && f->count == 1)
        return f->result;
    assert_true(f->count < 400);
    assert_true(sv_equals(info->group, SV("g")) && sv_equals(info->stream, SV("s")));
    f->sequences[f->count] = info->sequence;
    f->refs[f->count++] = *ref;
    return 0;
}

static struct spool_recovery recover(struct spool *s, struct found *f)
{
    struct spool_recovery r;
    *f = (struct found){0};
    assert_int_equal(spool_recover(s, on_found, f, &r), 0);
    assert_int_equal(r.records, f->count);
    return r;
}

static unsigned segments(void)
{
    unsigned count = 0;
    DIR *d = opendir(directory);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        count += strstr(e->d_name, ".spool") != NULL;
    closedir(d);
    return count;
}

static void what_is_appended_is_found_in_order_and_read(void **state)
{
    struct found f;
    struct spool *s = open_spool(PLENTY);
    assert_false(spool_was_unclean(s));
    recover(s, &f);
    for (size_t i = 0; i < 10; i++)
        append(s, 1 + i * 1000);
    assert_int_equal(spool_sync(s), 0);
    spool_close(s, true);
    s = open_spool(PLENTY);
    assert_false(spool_was_unclean(s));
    struct spool_recovery r = recover(s, &f);
    assert_int_equal(r.records, 10);
    assert_int_equal(r.events, 10);
    assert_int_equal(r.corrupt_records + r.damaged + r.torn_bytes + r.foreign, 0);
    for (size_t i = 0; i < 10; i++) {
        char *record = NULL;
        assert_int_equal(f.sequences[i], i);
        assert_int_equal(spool_read(s, &f.refs[i], &record), 0);
        struct spool_info info;
        assert_true(spool_record_is_whole((struct sv){record, f.refs[i].bytes}, &info));
        assert_int_equal(info.bytes, 88 + 2 + 16 + 1 + i * 1000);
        free(record);
    }
    // The next process goes on behind the last number, in a segment of its own.
    append(s, 1);
    assert_int_equal(segments(), 2);
    spool_close(s, true);
    s = open_spool(PLENTY);
    recover(s, &f);
    assert_int_equal(f.sequences[10], 10);
    spool_close(s, true);
}

static void modes_are_private(void **state)
{
    struct stat st;
    char inner[400];
    struct spool *s;
    struct error err = ERROR_INIT;
    (void)snprintf(inner, sizeof(inner), "%s/a/b", directory);
    assert_int_equal(spool_open(inner, PLENTY, &s, &err), 0);
    append(s, 10);
    assert_int_equal(stat(inner, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    static const char *const names[] = {"lock", "unclean", "00000001.spool"};
    for (size_t i = 0; i < 3; i++) {
        char path[500];
        (void)snprintf(path, sizeof(path), "%s/%s", inner, names[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        if (i > 0)
            (void)unlink(path);
    }
    spool_close(s, true);
    (void)unlink(path_of("a/b/lock"));
    (void)rmdir(inner);
    (void)rmdir(path_of("a"));
}

static void acknowledged_records_are_not_found_and_empty_segments_go(void **state)
{
    struct found f;
    struct spool *s = open_spool(PLENTY);
    struct spool_ref refs[6];
    for (size_t i = 0; i < 6; i++)
        refs[i] = append(s, 1000000); // four in a segment
    assert_int_equal(segments(), 2);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(spool_acknowledge(s, &refs[i]), 0);
    assert_int_equal(segments(), 1);
    assert_int_equal(spool_acknowledge(s, &refs[4]), 0);
    // As after a kill: nothing is closed.
    struct spool *other = NULL;
    struct error err = ERROR_INIT;
    assert_int_equal(spool_open(directory, PLENTY, &other, &err), -EBUSY);
    assert_non_null(strstr(err.text, "another process has it"));
    spool_close(s, false);
    s = open_spool(PLENTY);
    assert_true(spool_was_unclean(s));
    recover(s, &f);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.refs[0].offset, refs[5].offset);
    assert_int_equal(spool_acknowledge(s, &f.refs[0]), 0);
    assert_int_equal(segments(), 0);
    spool_close(s, true);
    s = open_spool(PLENTY);
    assert_false(spool_was_unclean(s));
    recover(s, &f);
    assert_int_equal(f.count, 0);
    spool_close(s, true);
}

static void the_oldest_segments_go_when_there_is_no_room(void **state)
{
    struct found f;
    uint64_t max = 8u << 20; // segments of 512 KiB
    struct spool *s = open_spool(max);
    struct spool_ref first = append(s, 100000), last = {0};
    assert_int_equal(spool_dropped(s), 0);
    for (size_t i = 0; i < 300; i++) {
        last = append(s, 100000);
        assert_true(spool_file_bytes(s) <= max);
    }
    char *record = NULL;
    assert_true(spool_dropped(s) >= first.segment);
    assert_int_equal(spool_read(s, &first, &record), -ENOENT);
    assert_int_equal(spool_acknowledge(s, &first), 0);
    assert_int_equal(spool_read(s, &last, &record), 0);
    free(record);
    spool_close(s, true);
    s = open_spool(max);
    recover(s, &f);
    assert_int_equal(f.refs[0].segment, 1 + (300 - f.count + 1) / 5);
    // At most one segment less than there would be room for.
    assert_true(f.count >= 75 && f.count <= 83);
    // Even the least room takes the largest batch.
    spool_close(s, true);
    s = open_spool(0);
    recover(s, &f);
    append(s, 1000000);
    assert_true(spool_file_bytes(s) <= 2 * SPOOL_RECORD_BYTES_MAX);
    spool_close(s, true);
}

static void write_file(const char *name, const void *bytes, size_t len)
{
    cleanup(fd_closep) int fd = open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, len), len);
}

static void files_of_others_are_left_alone(void **state)
{
    static const char *const names[] = {"notes.txt",      "1.spool",        "00000000.spool",
                                        "0000000G.spool", "0000000A.spool", "00000001.spool.bak"};
    struct found f;
    struct stat st;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        write_file(names[i], "hello", 5);
    assert_int_equal(symlink("notes.txt", path_of("00000005.spool")), 0);
    assert_int_equal(mkdir(path_of("00000006.spool"), 0700), 0);
    assert_int_equal(mkfifo(path_of("00000007.spool"), 0600), 0);
    write_file("00000008.spool", "", 0);
    assert_int_equal(truncate(path_of("00000008.spool"), LIMIT_SPOOL_SEGMENT_BYTES + 1), 0);
    struct spool *s = open_spool(PLENTY);
    struct spool_recovery r = recover(s, &f);
    assert_int_equal(r.foreign, ARRAY_SIZE(names) + 4);
    assert_int_equal(f.count, 0);
    assert_int_equal(append(s, 10).segment, 9);
    spool_close(s, true);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(lstat(path_of(names[i]), &st), 0);
        assert_int_equal(st.st_size, 5);
    }
    assert_int_equal(lstat(path_of("00000008.spool"), &st), 0);
}

static void a_segment_of_another_version_is_left_alone(void **state)
{
    struct buf b = BUF_INIT(SPOOL_RECORD_BYTES_MAX);
    struct found f;
    struct stat st;
    spool_record_begin(&b, SV("g"), SV("s"));
    spool_record_add(&b, 1000, 1, SV("x"));
    spool_record_finish(b.data, b.len,
                        &(struct spool_info){.events = 1, .first_ms = 1000, .last_ms = 1000});
    b.data[4] = 9;
    spool_record_seal(b.data, b.len, 3);
    write_file("00000002.spool", b.data, b.len);
    struct spool *s = open_spool(PLENTY);
    assert_int_equal(recover(s, &f).foreign, 1);
    spool_close(s, true);
    assert_int_equal(stat(path_of("00000002.spool"), &st), 0);
    assert_int_equal(st.st_size, b.len);
    buf_deinit(&b);
}

static void a_torn_end_is_cut_off_and_counted(void **state)
{
    struct found f;
    struct stat st;
    struct spool *s = open_spool(PLENTY);
    append(s, 100);
    struct spool_ref torn = append(s, 100);
    spool_close(s, false);
    assert_int_equal(truncate(path_of("00000001.spool"), torn.offset + 90), 0);
    s = open_spool(PLENTY);
    struct spool_recovery r = recover(s, &f);
    assert_int_equal(r.records, 1);
    assert_int_equal(r.torn_bytes, 90);
    assert_int_equal(r.corrupt_events, 1);
    assert_int_equal(stat(path_of("00000001.spool"), &st), 0);
    assert_int_equal(st.st_size, torn.offset);
    spool_close(s, false);
    s = open_spool(PLENTY);
    r = recover(s, &f);
    assert_int_equal(r.torn_bytes + r.corrupt_events, 0);
    spool_close(s, true);
}

static void what_changes_on_disk_is_not_read(void **state)
{
    struct spool *s = open_spool(PLENTY);
    struct spool_ref ref = append(s, 100);
    char *record = NULL;
    int fd = open(path_of("00000001.spool"), O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "!", 1, 120), 1);
    assert_int_equal(spool_read(s, &ref, &record), -EBADMSG);
    assert_int_equal(ftruncate(fd, 50), 0);
    assert_int_equal(spool_read(s, &ref, &record), -EBADMSG);
    assert_int_equal(close(fd), 0);
    spool_close(s, true);
}

static void a_search_that_ends_early_loses_nothing(void **state)
{
    struct found f;
    struct spool_recovery r;
    struct spool *s = open_spool(PLENTY);
    for (size_t i = 0; i < 6; i++)
        append(s, 1000000);
    spool_close(s, true);
    s = open_spool(PLENTY);
    f = (struct found){.result = -ENOMEM};
    assert_int_equal(spool_recover(s, on_found, &f, &r), -ENOMEM);
    assert_int_equal(f.count, 1);
    assert_int_equal(spool_acknowledge(s, &f.refs[0]), 0);
    spool_close(s, true);
    s = open_spool(PLENTY);
    recover(s, &f);
    assert_int_equal(f.count, 5);
    spool_close(s, true);
}

// As whatever user: the limit on a file's size stands for a full disk.
static int append_over_the_limit(void)
{
    struct spool *s;
    struct error err = ERROR_INIT;
    struct spool_ref ref;
    char record[10200];
    const struct rlimit limit = {20000, 20000};
    (void)signal(SIGXFSZ, SIG_IGN);
    if (spool_open(directory, PLENTY, &s, &err) < 0 || setrlimit(RLIMIT_FSIZE, &limit) < 0)
        return 1;
    memset(record, 0, sizeof(record));
    int first = spool_append(s, record, sizeof(record), &ref);
    int second = spool_append(s, record, sizeof(record), &ref);
    struct stat st;
    if (first != 0 || second != -EFBIG || stat(path_of("00000001.spool"), &st) < 0)
        return 2;
    if (st.st_size != sizeof(record) || spool_file_bytes(s) != sizeof(record))
        return 3;
    if (spool_acknowledge(s, &(struct spool_ref){1, 0, sizeof(record)}) < 0)
        return 4;
    // What is done with gives its room back, though its segment is not full.
    if (spool_append(s, record, sizeof(record), &ref) < 0 || ref.segment != 2)
        return 5;
    return stat(path_of("00000001.spool"), &st) < 0 && errno == ENOENT ? 0 : 6;
}

static void what_does_not_fit_leaves_nothing_behind(void **state)
{
    int status;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
        _exit(append_over_the_limit());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void places_that_cannot_be_used_are_told(void **state)
{
    static const struct {
        const char *path;
        int result;
        const char *text;
    } cases[] = {
        {"/proc/podgpu-none/spool", -ENOENT, "spool directory /proc/podgpu-none/spool: "},
        {"/dev/null", -ENOTDIR, "spool directory /dev/null: Not a directory"},
        {"/dev/null/spool", -ENOTDIR, "spool directory /dev/null/spool: Not a directory"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct spool *s = NULL;
        struct error err = ERROR_INIT;
        assert_int_equal(spool_open(cases[i].path, PLENTY, &s, &err), cases[i].result);
        assert_true(strncmp(err.text, cases[i].text, strlen(cases[i].text)) == 0);
    }
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        T(what_is_appended_is_found_in_order_and_read),
        T(modes_are_private),
        T(acknowledged_records_are_not_found_and_empty_segments_go),
        T(the_oldest_segments_go_when_there_is_no_room),
        T(files_of_others_are_left_alone),
        T(a_segment_of_another_version_is_left_alone),
        T(a_torn_end_is_cut_off_and_counted),
        T(what_changes_on_disk_is_not_read),
        T(a_search_that_ends_early_loses_nothing),
        T(what_does_not_fit_leaves_nothing_behind),
        T(places_that_cannot_be_used_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
