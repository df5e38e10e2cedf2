// SPDX-License-Identifier: Apache-2.0
// The real loop and real files.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/clock.h"
#include "io/file_watch.h"

#define DEBOUNCE_NS (40 * NS_PER_MS)
#define POLL_NS (2 * NS_PER_S)
#define QUIET_NS (3 * DEBOUNCE_NS) // nothing more comes
#define MOST_NS (20 * NS_PER_S)

struct fixture {
    char dir[64];
    struct loop *loop;
    struct file_watch *watch;
    struct loop_timer *timer;
    unsigned changes, wanted;
    uint64_t changed_ns;
    bool late;
    void (*meanwhile)(struct fixture *f); // from inside the callback
    bool free_inside;
};

// --- Files ---

static const char *path(const struct fixture *f, const char *name)
{
    static char out[4][256];
    static unsigned next;
    char *p = out[next++ % 4];
    (void)snprintf(p, sizeof(out[0]), "%s/%s", f->dir, name);
    return p;
}

static void write_at(const struct fixture *f, const char *name, int flags, const char *text)
{
    int fd = open(path(f, name), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void put(const struct fixture *f, const char *name, const char *text)
{
    write_at(f, name, O_TRUNC, text);
}

static void move(const struct fixture *f, const char *from, const char *to)
{
    assert_int_equal(rename(path(f, from), path(f, to)), 0);
}

static void make_link(const struct fixture *f, const char *target, const char *name)
{
    assert_int_equal(symlink(target, path(f, name)), 0);
}

static void make_dir(const struct fixture *f, const char *name)
{
    assert_int_equal(mkdir(path(f, name), 0700), 0);
}

// --- The loop ---

static void on_changed(void *user)
{
    struct fixture *f = user;
    f->changes++;
    f->changed_ns = clock_mono_ns();
    if (f->meanwhile)
        f->meanwhile(f);
    if (f->free_inside) {
        file_watch_free(f->watch);
        f->watch = NULL;
    }
    if (f->changes == f->wanted)
        loop_stop(f->loop, 0);
}

static void on_timer(void *user)
{
    struct fixture *f = user;
    f->late = true;
    loop_stop(f->loop, 0);
}

static void run(struct fixture *f, uint64_t ns)
{
    f->late = false;
    loop_timer_set(f->timer, ns, 0);
    assert_int_equal(loop_run(f->loop), 0);
    loop_timer_stop(f->timer);
}

// Exactly one more change.
static void expect_change(struct fixture *f)
{
    f->wanted = f->changes + 1;
    run(f, MOST_NS);
    assert_false(f->late);
    f->wanted = 0;
    run(f, QUIET_NS);
    assert_true(f->late);
}

static void expect_nothing(struct fixture *f)
{
    unsigned before = f->changes;
    f->wanted = 0;
    run(f, QUIET_NS);
    assert_int_equal(f->changes, before);
}

static void watch_files(struct fixture *f, const char *first, const char *second)
{
    const char *const files[] = {first, second};
    assert_int_equal(file_watch_set(f->watch, files, 2), 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/podgpu-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(loop_new(&f->loop), 0);
    assert_int_equal(loop_timer_new(f->loop, on_timer, f, &f->timer), 0);
    assert_int_equal(file_watch_new(f->loop, on_changed, f, &f->watch), 0);
    file_watch_set_timing(f->watch, DEBOUNCE_NS, POLL_NS);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    file_watch_free(f->watch);
    loop_timer_free(f->timer);
    loop_free(f->loop);
    static const char *const names[] = {
        "a",   "a.new", "b",     "file",   "..data", "..data_tmp", "..1/file", "..2/file",
        "..1", "..2",   "sub/a", "sub2/a", "sub",    "sub2",       "l1",       "l2",
    };
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)remove(path(f, names[i]));
    int r = rmdir(f->dir);
    free(f);
    return r;
}

// --- Tests ---

static void a_file_written_again_is_a_change_after_the_debounce(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    file_watch_set_timing(f->watch, 200 * NS_PER_MS, POLL_NS); // as it comes
    watch_files(f, path(f, "a"), NULL);
    expect_nothing(f);
    uint64_t before_ns = clock_mono_ns();
    put(f, "a", "two");
    expect_change(f);
    assert_true(f->changed_ns - before_ns >= 200 * NS_PER_MS);
    assert_true(f->changed_ns - before_ns < POLL_NS); // not the poll
}

static void the_same_content_written_again_is_none(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    watch_files(f, path(f, "a"), NULL);
    put(f, "a", "one");
    expect_nothing(f);
    assert_int_equal(utimensat(AT_FDCWD, path(f, "a"), NULL, 0), 0);
    expect_nothing(f);
    put(f, "b", "another file");
    expect_nothing(f);
}

static void a_file_renamed_over_is_a_change_each_time(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    watch_files(f, path(f, "a"), "");
    put(f, "a.new", "two");
    move(f, "a.new", "a");
    expect_change(f);
    put(f, "a.new", "three");
    move(f, "a.new", "a");
    expect_change(f);
    put(f, "a.new", "three");
    move(f, "a.new", "a");
    expect_nothing(f);
}

static void the_same_inode_rewritten_with_the_same_length_is_a_change(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    make_dir(f, "sub");
    make_link(f, path(f, "a"), "l1");
    watch_files(f, path(f, "l1"), NULL);
    write_at(f, "a", 0, "two"); // as a subPath mount is changed: no rename, no truncation
    expect_change(f);
}

static void many_writes_are_one_change(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    watch_files(f, path(f, "a"), NULL);
    put(f, "a", "");
    for (int i = 0; i < 5; i++)
        write_at(f, "a", O_APPEND, "more\n");
    expect_change(f);
}

static void a_config_map_swap_is_a_change(void **state)
{
    struct fixture *f = *state;
    make_dir(f, "..1");
    make_dir(f, "..2");
    put(f, "..1/file", "one");
    put(f, "..2/file", "two");
    make_link(f, "..1", "..data");
    make_link(f, "..data/file", "file");
    watch_files(f, path(f, "file"), NULL);
    make_link(f, "..2", "..data_tmp");
    uint64_t before_ns = clock_mono_ns();
    move(f, "..data_tmp", "..data");
    expect_change(f);
    assert_true(f->changed_ns - before_ns < POLL_NS);
    assert_int_equal(remove(path(f, "..1/file")), 0);
    expect_nothing(f);
    // The directories of the new chain are watched now.
    put(f, "..2/file", "three");
    before_ns = clock_mono_ns();
    expect_change(f);
    assert_true(f->changed_ns - before_ns < POLL_NS);
}

static void a_config_map_swapped_for_equal_content_is_none(void **state)
{
    struct fixture *f = *state;
    make_dir(f, "..1");
    make_dir(f, "..2");
    put(f, "..1/file", "one");
    put(f, "..2/file", "one");
    make_link(f, "..1", "..data");
    make_link(f, "..data/file", "file");
    watch_files(f, path(f, "file"), NULL);
    make_link(f, "..2", "..data_tmp");
    move(f, "..data_tmp", "..data");
    expect_nothing(f);
}

static void a_file_that_is_gone_is_told_once_and_waited_for(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    watch_files(f, path(f, "a"), NULL);
    assert_int_equal(remove(path(f, "a")), 0);
    expect_change(f);
    expect_nothing(f);
    put(f, "a", "one");
    expect_change(f);
    expect_nothing(f);
}

static void a_file_that_becomes_something_else_is_told_once(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    watch_files(f, path(f, "a"), NULL);
    assert_int_equal(remove(path(f, "a")), 0);
    make_dir(f, "a");
    expect_change(f);
    expect_nothing(f);
    assert_int_equal(rmdir(path(f, "a")), 0);
    make_link(f, "a", "a"); // a circle
    expect_change(f);
    assert_int_equal(remove(path(f, "a")), 0);
    put(f, "a", "two");
    expect_change(f);
}

static void a_file_that_was_not_there_is_a_change_when_it_comes(void **state)
{
    struct fixture *f = *state;
    watch_files(f, path(f, "a"), NULL);
    expect_nothing(f);
    put(f, "a", "one");
    expect_change(f);
}

static void the_poll_sees_what_the_directory_does_not_tell(void **state)
{
    struct fixture *f = *state;
    make_dir(f, "sub");
    put(f, "sub/a", "one");
    watch_files(f, path(f, "sub/a"), NULL);
    expect_nothing(f);
    file_watch_set_timing(f->watch, DEBOUNCE_NS, 5 * DEBOUNCE_NS);
    move(f, "sub", "sub2"); // the watch went with it
    make_dir(f, "sub");
    put(f, "sub/a", "two");
    expect_change(f);
    file_watch_set_timing(f->watch, DEBOUNCE_NS, POLL_NS);
    uint64_t before_ns = clock_mono_ns();
    put(f, "sub/a", "three"); // and is on the new one now
    expect_change(f);
    assert_true(f->changed_ns - before_ns < POLL_NS);
}

static void both_files_count_and_together_once(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    put(f, "b", "one");
    watch_files(f, path(f, "a"), path(f, "b"));
    put(f, "b", "two");
    expect_change(f);
    put(f, "a", "two");
    put(f, "b", "three");
    expect_change(f);
}

static void only_the_files_set_last_count(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    put(f, "b", "one");
    watch_files(f, path(f, "a"), NULL);
    watch_files(f, path(f, "b"), NULL);
    put(f, "a", "two");
    expect_nothing(f);
    put(f, "b", "two");
    expect_change(f);
    watch_files(f, NULL, "");
    put(f, "b", "three");
    expect_nothing(f);
    watch_files(f, path(f, "b"), NULL); // its content now is known
    expect_nothing(f);
}

static void write_and_set_again(struct fixture *f)
{
    if (f->changes == 1)
        put(f, "a", "three"); // after the reload read "two"
    watch_files(f, path(f, "a"), NULL);
}

static void a_change_during_the_reload_is_not_lost(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    watch_files(f, path(f, "a"), NULL);
    f->meanwhile = write_and_set_again;
    put(f, "a", "two");
    f->wanted = 2;
    run(f, MOST_NS);
    assert_int_equal(f->changes, 2);
    expect_nothing(f);
}

static void a_circle_of_links_is_no_file(void **state)
{
    struct fixture *f = *state;
    make_link(f, "l2", "l1");
    make_link(f, "l1", "l2");
    watch_files(f, path(f, "l1"), NULL);
    expect_nothing(f);
    assert_int_equal(remove(path(f, "l2")), 0);
    put(f, "l2", "one");
    expect_change(f);
}

static void a_relative_path_is_fixed_when_set(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    char here[4096];
    assert_non_null(getcwd(here, sizeof(here)));
    assert_int_equal(chdir(f->dir), 0);
    watch_files(f, "./a", NULL);
    assert_int_equal(chdir(here), 0);
    put(f, "a", "two");
    expect_change(f);
}

static void a_name_that_comes_or_goes_changes_a_directory(void **state)
{
    struct fixture *f = *state;
    make_dir(f, "sub");
    put(f, "a", "one");
    watch_files(f, path(f, "sub"), path(f, "a"));
    put(f, "sub/a", "one");
    expect_change(f);
    put(f, "sub/a", "two"); // its content is another matter
    expect_nothing(f);
    put(f, "sub/..data", "hidden");
    expect_nothing(f);
    assert_int_equal(remove(path(f, "sub/..data")), 0);
    assert_int_equal(remove(path(f, "sub/a")), 0);
    expect_change(f);
}

static void paths_beyond_the_limit_are_not_watched(void **state)
{
    struct fixture *f = *state;
    const char *paths[FILE_WATCH_MAX + 1];
    put(f, "a", "one");
    put(f, "b", "one");
    const char *first = path(f, "a");
    for (size_t i = 0; i < FILE_WATCH_MAX; i++)
        paths[i] = first;
    paths[FILE_WATCH_MAX] = path(f, "b");
    assert_int_equal(file_watch_set(f->watch, paths, FILE_WATCH_MAX + 1), 0);
    put(f, "b", "two");
    expect_nothing(f);
    put(f, "a", "two");
    expect_change(f);
}

static void it_may_be_freed_from_inside(void **state)
{
    struct fixture *f = *state;
    put(f, "a", "one");
    watch_files(f, path(f, "a"), NULL);
    f->free_inside = true;
    put(f, "a", "two");
    expect_change(f);
    put(f, "a", "three");
    expect_nothing(f);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(a_file_written_again_is_a_change_after_the_debounce),
        T(the_same_content_written_again_is_none),
        T(a_file_renamed_over_is_a_change_each_time),
        T(the_same_inode_rewritten_with_the_same_length_is_a_change),
        T(many_writes_are_one_change),
        T(a_config_map_swap_is_a_change),
        T(a_config_map_swapped_for_equal_content_is_none),
        T(a_file_that_is_gone_is_told_once_and_waited_for),
        T(a_file_that_becomes_something_else_is_told_once),
        T(a_file_that_was_not_there_is_a_change_when_it_comes),
        T(the_poll_sees_what_the_directory_does_not_tell),
        T(both_files_count_and_together_once),
        T(only_the_files_set_last_count),
        T(a_change_during_the_reload_is_not_lost),
        T(a_circle_of_links_is_no_file),
        T(a_relative_path_is_fixed_when_set),
        T(a_name_that_comes_or_goes_changes_a_directory),
        T(paths_beyond_the_limit_are_not_watched),
        T(it_may_be_freed_from_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
