// SPDX-License-Identifier: Apache-2.0
// The real loop and real processes: tests/tools/fake_source runs a script in place of
// podgpu-source.
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "exporter/source_process.h"

#define MOST_NS (20 * NS_PER_S) // for anything that must happen
#define LOG_MAX 64

static const char *fake_source;

struct down {
    char reason[32];
    uint32_t index;
    char call[64];
    bool driver_hung;
    uint64_t at_ns;
    uint64_t starts; // before the next one
};

struct fixture {
    char dir[64];
    struct loop *loop;
    struct source_process *process;
    struct loop_timer *poll;
    uint64_t deadline_ns;
    bool (*until)(struct fixture *f);
    uint64_t n; // argument of until
    struct source_process_stats stats;
    // What came
    struct down downs[LOG_MAX];
    size_t down_count;
    enum frame_type types[LOG_MAX];
    size_t frame_count;
    uint32_t watch_id; // of the last sample
    uint64_t samples;
    struct frame_entity entities[8];
    uint32_t entity_count;
    struct frame_control_done done[8];
    size_t done_count;
    // What to do when it comes
    bool free_at_frame, free_at_down, release_at_frame;
};

// --- Files ---

static void write_file(const struct fixture *f, const char *name, const char *text)
{
    struct buf path = BUF_INIT(4096);
    buf_add_fmt(&path, "%s/%s", f->dir, name);
    int fd = open(buf_cstr(&path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    buf_deinit(&path);
}

// Its text; "" when it is not there. Valid until the next call.
static const char *read_file(const struct fixture *f, const char *name)
{
    static struct buf text = BUF_INIT(65536);
    struct buf path = BUF_INIT(4096);
    buf_add_fmt(&path, "%s/%s", f->dir, name);
    buf_reset(&text);
    (void)!file_read(buf_cstr(&path), &text, NULL);
    buf_deinit(&path);
    return buf_cstr(&text);
}

// --- What the process tells ---

static void end(struct fixture *f)
{
    source_process_free(TAKE_PTR(f->process));
}

static void on_frame(void *user, const struct frame *frame)
{
    struct fixture *f = user;
    assert_non_null(f->process);
    if (f->frame_count < LOG_MAX)
        f->types[f->frame_count] = frame->type;
    f->frame_count++;
    if (frame->type == FRAME_SAMPLE) {
        f->watch_id = frame->as.sample.head->watch_id;
        f->samples++;
    }
    if (frame->type == FRAME_ENTITIES) {
        f->entity_count = frame->as.entities.head->count;
        for (uint32_t i = 0; i < f->entity_count && i < ARRAY_SIZE(f->entities); i++)
            f->entities[i] = frame->as.entities.list[i];
    }
    if (frame->type == FRAME_CONTROL_DONE && f->done_count < ARRAY_SIZE(f->done))
        f->done[f->done_count++] = *frame->as.control_done;
    if (f->free_at_frame)
        end(f);
    if (f->release_at_frame) {
        f->release_at_frame = false;
        assert_int_equal(source_process_release(f->process), 0);
    }
}

static void on_down(void *user, const char *reason, uint32_t index, const char *call,
                    bool driver_hung)
{
    struct fixture *f = user;
    assert_non_null(f->process);
    assert_true(f->down_count < LOG_MAX);
    struct down *d = &f->downs[f->down_count++];
    sv_copy(d->reason, sizeof(d->reason), sv_from(reason));
    sv_copy(d->call, sizeof(d->call), sv_from(call));
    d->index = index;
    d->driver_hung = driver_hung;
    d->at_ns = clock_mono_ns();
    source_process_get_stats(f->process, &f->stats);
    d->starts = f->stats.starts;
    if (f->free_at_down)
        end(f);
}

static void assert_down(const struct fixture *f, size_t i, const char *reason, uint32_t index,
                        const char *call, bool driver_hung)
{
    assert_true(i < f->down_count);
    assert_string_equal(f->downs[i].reason, reason);
    assert_int_equal(f->downs[i].index, index);
    assert_string_equal(f->downs[i].call, call);
    assert_int_equal(f->downs[i].driver_hung, driver_hung);
}

// --- Running the loop ---

static void on_poll(void *user)
{
    struct fixture *f = user;
    if (f->process)
        source_process_get_stats(f->process, &f->stats);
    if (f->until && f->until(f))
        loop_stop(f->loop, 1);
    else if (clock_mono_ns() > f->deadline_ns)
        loop_stop(f->loop, 0);
}

static void run_until(struct fixture *f, bool (*until)(struct fixture *f), uint64_t n)
{
    f->until = until;
    f->n = n;
    f->deadline_ns = clock_mono_ns() + MOST_NS;
    loop_timer_set(f->poll, 0, 2 * NS_PER_MS);
    assert_int_equal(loop_run(f->loop), 1);
    loop_timer_stop(f->poll);
}

static void run_for(struct fixture *f, uint64_t ns)
{
    f->until = NULL;
    f->deadline_ns = clock_mono_ns() + ns;
    loop_timer_set(f->poll, 0, 2 * NS_PER_MS);
    assert_int_equal(loop_run(f->loop), 0);
    loop_timer_stop(f->poll);
}

static bool has_downs(struct fixture *f)
{
    return f->down_count >= f->n;
}

static bool has_samples(struct fixture *f)
{
    return f->samples >= f->n;
}

static bool has_starts(struct fixture *f)
{
    return f->stats.starts >= f->n;
}

static bool has_watch(struct fixture *f)
{
    return f->watch_id == f->n;
}

static bool has_no_zombies(struct fixture *f)
{
    return f->stats.zombies == 0;
}

static bool has_hangs(struct fixture *f)
{
    return f->stats.hangs >= f->n;
}

static bool has_skipped(struct fixture *f)
{
    return f->stats.skipped == f->n;
}

static bool is_freed(struct fixture *f)
{
    return f->process == NULL;
}

// --- Fixture ---

static const struct source_process_timing quick = {
    .watchdog_ns = 10 * NS_PER_MS,
    .backoff_least_ns = 600 * NS_PER_S, // a second restart does not come by itself
    .backoff_most_ns = 600 * NS_PER_S,
    .healthy_ns = 600 * NS_PER_S,
    .probe_ns = 600 * NS_PER_S,
    .patience_ns = 100 * NS_PER_MS,
};

static void start_logging(struct fixture *f, const char *script, uint64_t deadline_ns,
                          const struct source_process_timing *timing, bool json_debug)
{
    write_file(f, "script", script);
    const struct source_process_config config = {
        .log_json = json_debug,
        .log_debug = json_debug,
        .path = fake_source,
        .source = "nvml",
        .library = f->dir,
        .kmsg_path = "/dev/kmsg",
        .call_deadline_ns = deadline_ns,
        .frame = on_frame,
        .down = on_down,
        .user = f,
        .timing = *timing,
    };
    struct error err = ERROR_INIT;
    assert_int_equal(source_process_new(f->loop, &config, &f->process, &err), 0);
    source_process_get_stats(f->process, &f->stats);
}

static void start(struct fixture *f, const char *script, uint64_t deadline_ns,
                  const struct source_process_timing *timing)
{
    start_logging(f, script, deadline_ns, timing, false);
}

static void watch(struct fixture *f, uint32_t id, uint64_t period_ns)
{
    const uint16_t field = 150;
    const struct frame_watch w = {id, 1, {period_ns, period_ns, period_ns, period_ns}};
    assert_int_equal(source_process_watch(f->process, &w, &field), 0);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    sv_copy(f->dir, sizeof(f->dir), SV("/tmp/podgpu-test-XXXXXX"));
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(loop_new(&f->loop), 0);
    assert_int_equal(loop_timer_new(f->loop, on_poll, f, &f->poll), 0);
    *state = f;
    return 0;
}

static void end_tracers(struct fixture *f)
{
    for (char n = '1'; n <= '9'; n++) {
        char name[] = "tracer.?";
        name[sizeof(name) - 2] = n;
        uint64_t pid;
        if (num_parse_u64(sv_from(read_file(f, name)), 2, INT32_MAX, &pid) == 0)
            (void)kill((pid_t)pid, SIGKILL);
        write_file(f, name, "");
    }
}

static int remove_entry(const struct fixture *f, const char *name)
{
    struct buf path = BUF_INIT(4096);
    buf_add_fmt(&path, "%s/%s", f->dir, name);
    int r = unlink(buf_cstr(&path));
    buf_deinit(&path);
    return r;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    end_tracers(f);
    end(f);
    loop_timer_free(f->poll);
    loop_free(f->loop);
    static const char *const names[] = {"script", "starts"};
    static const char *const series[] = {"script.?", "tracer.?", "fds.?"};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)remove_entry(f, names[i]);
    for (size_t i = 0; i < ARRAY_SIZE(series); i++) {
        for (char n = '1'; n <= '9'; n++) {
            char name[16];
            sv_copy(name, sizeof(name), sv_from(series[i]));
            name[strlen(name) - 1] = n;
            (void)remove_entry(f, name);
        }
    }
    int r = rmdir(f->dir);
    free(f);
    return r;
}

#define OPENING "hello\nstate 0\nentities 2\nawait-watch\n"

static void the_helper_logs_as_we_do(void **state)
{
    struct fixture *f = *state;
    start_logging(f, OPENING "sample\npause\n", 10 * NS_PER_S, &quick, true);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 1); // by then it has noted its start
    assert_string_equal(
        read_file(f, "starts"),
        "nvml --library DIR --kmsg /dev/kmsg --log-format json --log-level debug\n");
}

// --- Frames ---

static void frames_come_in_order_without_hello(void **state)
{
    struct fixture *f = *state;
    start(f, OPENING "sample\nsample\npause\n", 10 * NS_PER_S, &quick);
    watch(f, 7, NS_PER_S);
    run_until(f, has_samples, 2);
    static const enum frame_type expected[] = {FRAME_STATE, FRAME_ENTITIES, FRAME_SAMPLE,
                                               FRAME_SAMPLE};
    assert_int_equal(f->frame_count, ARRAY_SIZE(expected));
    assert_memory_equal(f->types, expected, sizeof(expected));
    assert_int_equal(f->watch_id, 7);
    assert_int_equal(f->entity_count, 2);
    assert_string_equal(read_file(f, "starts"), "nvml --library DIR --kmsg /dev/kmsg\n");
    assert_true(f->stats.running);
    assert_int_equal(f->stats.starts, 1);
    assert_int_equal(f->stats.frames, 4);
    assert_true(f->stats.pid > 0);
    assert_int_equal(kill(f->stats.pid, 0), 0);
}

static void the_largest_list_comes_through(void **state)
{
    struct fixture *f = *state;
    start(f, "hello\nstate 0\nentities 64\nawait-watch\nbytes 8000000\npause\n", 10 * NS_PER_S,
          &quick);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 4);
    assert_int_equal(f->entity_count, 64);
    assert_int_equal(f->down_count, 0);
}

static void the_helper_gets_its_five_descriptors_only(void **state)
{
    struct fixture *f = *state;
    int leak = open("/dev/null", O_RDONLY); // without O_CLOEXEC
    int high = fcntl(leak, F_DUPFD, 77);
    start(f, "fds\n" OPENING "sample\npause\n", 10 * NS_PER_S, &quick);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 1);
    close(leak);
    close(high);
    assert_string_equal(read_file(f, "fds.1"), "0 1 2 3 4 ");
}

static void a_new_watch_reaches_the_running_helper_and_each_new_one(void **state)
{
    struct fixture *f = *state;
    write_file(f, "script.1", OPENING "sample\nawait-watch\nsample\ncrash\n");
    start(f, OPENING "loop 2\n", 10 * NS_PER_S, &quick);
    watch(f, 7, NS_PER_S);
    run_until(f, has_watch, 7);
    watch(f, 8, NS_PER_S);
    run_until(f, has_watch, 8);
    f->watch_id = 0;
    run_until(f, has_starts, 2);
    run_until(f, has_watch, 8);
    watch(f, 9, NS_PER_S);
    run_until(f, has_watch, 9);
}

static void a_helper_that_does_not_read_holds_one_watch_and_hangs(void **state)
{
    struct fixture *f = *state;
    write_file(f, "script.1", "hello\nstate 0\npause\n");
    start(f, OPENING "loop 2\n", 300 * NS_PER_MS, &quick);
    static uint16_t ids[1024];
    for (uint16_t i = 0; i < ARRAY_SIZE(ids); i++)
        ids[i] = i;
    for (uint32_t id = 1; id <= 2000; id++) {
        const struct frame_watch w = {
            id, ARRAY_SIZE(ids), {NS_PER_S, NS_PER_S, NS_PER_S, NS_PER_S}};
        assert_int_equal(source_process_watch(f->process, &w, ids), 0);
    }
    run_until(f, has_watch, 2000);
    assert_int_equal(f->down_count, 1);
    assert_down(f, 0, "hung", UINT32_MAX, "", false);
}

static bool has_done(struct fixture *f)
{
    return f->done_count >= f->n;
}

static void what_the_helper_is_told_to_do_is_answered_by_number(void **state)
{
    struct fixture *f = *state;
    start(f, OPENING "loop 2\n", 10 * NS_PER_S, &quick);
    assert_int_equal(source_process_control(f->process, FRAME_COMMAND_PAUSE, 41), 0);
    watch(f, 7, NS_PER_S); // behind it, and neither takes the other's place
    assert_int_equal(source_process_control(f->process, FRAME_COMMAND_RESUME, 42), 0);
    watch(f, 8, NS_PER_S);
    run_until(f, has_done, 2);
    run_until(f, has_watch, 8);
    assert_int_equal(f->done[0].number, 41);
    assert_int_equal(f->done[0].code, 0);
    assert_int_equal(f->done[1].number, 42);
    assert_int_equal(f->done[1].code, -30);
    assert_string_equal(f->done[1].text, "in use");
}

static void what_a_helper_does_not_take_is_refused(void **state)
{
    struct fixture *f = *state;
    start(f, "hello\nstate 0\npause\n", 10 * NS_PER_S, &quick);
    int r = 0;
    for (uint32_t i = 0; r == 0 && i < 100000; i++) // until the socket is full
        r = source_process_control(f->process, FRAME_COMMAND_PAUSE, i);
    assert_int_equal(r, -EBUSY);
    assert_int_equal(source_process_release(f->process), 0);
    assert_int_equal(source_process_control(f->process, FRAME_COMMAND_PAUSE, 1), -ENOTCONN);
}

static void further_words_stand_on_its_command_line(void **state)
{
    struct fixture *f = *state;
    write_file(f, "script", OPENING "loop 2\n");
    const char *const extra[] = {"--connect", "localhost:5555", "--embed", "yes", NULL};
    const struct source_process_config config = {
        .path = fake_source,
        .source = "dcgm",
        .library = f->dir,
        .extra = extra,
        .call_deadline_ns = 10 * NS_PER_S,
        .frame = on_frame,
        .down = on_down,
        .user = f,
        .timing = quick,
    };
    struct error err = ERROR_INIT;
    assert_int_equal(source_process_new(f->loop, &config, &f->process, &err), 0);
    watch(f, 7, NS_PER_S);
    run_until(f, has_samples, 1);
    const char *starts = read_file(f, "starts");
    assert_non_null(strstr(starts, "dcgm --library"));
    assert_non_null(strstr(starts, " --connect localhost:5555 --embed yes\n"));
}

// --- Ends ---

static void the_first_restart_comes_at_once_the_second_with_backoff(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.backoff_least_ns = timing.backoff_most_ns = 400 * NS_PER_MS;
    start(f, "hello\ncrash\n", 10 * NS_PER_S, &timing);
    run_until(f, has_downs, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_down(f, i, "crashed", UINT32_MAX, "", false);
        assert_int_equal(f->downs[i].starts, i + 1);
    }
    assert_true(f->downs[2].at_ns - f->downs[1].at_ns >= 200 * NS_PER_MS); // half of it is random
    assert_true(f->downs[3].at_ns - f->downs[2].at_ns >= 200 * NS_PER_MS);
    assert_int_equal(f->stats.crashes, 4);
}

static void backoff_doubles_up_to_its_ceiling(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.backoff_least_ns = 20 * NS_PER_MS;
    timing.backoff_most_ns = 80 * NS_PER_MS;
    start(f, "exit 3\n", 10 * NS_PER_S, &timing);
    run_until(f, has_downs, 7);
    static const uint64_t least_ms[] = {0, 10, 20, 40, 40, 40};
    for (size_t i = 0; i < ARRAY_SIZE(least_ms); i++)
        assert_true(f->downs[i + 1].at_ns - f->downs[i].at_ns >= least_ms[i] * NS_PER_MS);
}

static void a_helper_that_lived_long_enough_is_replaced_at_once_again(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick; // backoff of ten minutes
    timing.healthy_ns = 50 * NS_PER_MS;
    start(f, "hello\nsleep 80\ncrash\n", 10 * NS_PER_S, &timing);
    run_until(f, has_downs, 4);
}

static void an_orderly_end_is_told_apart(void **state)
{
    struct fixture *f = *state;
    write_file(f, "script.1", OPENING "sample\nexit 0\n");
    start(f, "exit 1\n", 10 * NS_PER_S, &quick);
    watch(f, 1, NS_PER_S);
    run_until(f, has_downs, 2);
    assert_int_equal(f->samples, 1); // said before the end
    assert_down(f, 0, "exited", UINT32_MAX, "", false);
    assert_down(f, 1, "crashed", UINT32_MAX, "", false);
    run_for(f, 50 * NS_PER_MS);
    assert_int_equal(f->stats.starts, 2); // backoff of ten minutes
    assert_false(f->stats.running);
    assert_int_equal(f->stats.pid, 0);
}

static void a_program_that_is_not_there_is_an_error_at_start(void **state)
{
    struct fixture *f = *state;
    const struct source_process_config config = {.path = "/no/such/podgpu-source",
                                                 .source = "nvml",
                                                 .frame = on_frame,
                                                 .down = on_down,
                                                 .user = f};
    struct error err = ERROR_INIT;
    assert_int_equal(source_process_new(f->loop, &config, &f->process, &err), -ENOENT);
    assert_null(f->process);
    assert_string_equal(err.text,
                        "/no/such/podgpu-source cannot be started: No such file or directory");
}

// --- Protocol ---

static void assert_protocol_error(struct fixture *f, const char *script)
{
    write_file(f, "script.1", script);
    start(f, OPENING "sample\npause\n", 10 * NS_PER_S, &quick);
    watch(f, 1, NS_PER_S);
    uint64_t before = f->samples;
    run_until(f, has_downs, f->down_count + 1);
    assert_down(f, f->down_count - 1, "protocol", UINT32_MAX, "", false);
    assert_int_equal(f->stats.protocol_errors, 1);
    run_until(f, has_samples, before + 1); // and another one works
    run_until(f, has_no_zombies, 0);
    assert_int_equal(f->stats.starts, 2);
    end(f);
    (void)remove_entry(f, "starts");
}

static void whatever_breaks_the_protocol_is_killed_and_replaced(void **state)
{
    struct fixture *f = *state;
    assert_protocol_error(f, "garbage\npause\n");
    assert_protocol_error(f, "hello\ngarbage\npause\n");
    assert_protocol_error(f, "hello 1\npause\n"); // another version
    assert_protocol_error(f, "state 0\npause\n"); // no hello
    assert_protocol_error(f, "hello\nhello\npause\n");
    assert_protocol_error(f, "hello\nclose\npause\n");
}

static void a_flood_is_ended(void **state)
{
    struct fixture *f = *state;
    f->samples = UINT32_MAX; // not of interest
    write_file(f, "script.1", "hello\nstate 0\nentities 2\nflood\n");
    start(f, "hello\npause\n", 10 * NS_PER_S, &quick);
    run_until(f, has_downs, 1);
    assert_down(f, 0, "protocol", UINT32_MAX, "", false);
    assert_true(f->stats.frames <=
                20 * LIMIT_FRAMES_PER_S); // a second that was full has come by then
}

static void too_many_bytes_are_ended(void **state)
{
    struct fixture *f = *state;
    write_file(f, "script.1", "hello\nstate 0\nentities 2\nbytes 4000000000\n");
    start(f, "hello\npause\n", 10 * NS_PER_S, &quick);
    run_until(f, has_downs, 1);
    assert_down(f, 0, "protocol", UINT32_MAX, "", false);
}

// --- Hangs ---

#define DEADLINE_NS (150 * NS_PER_MS)
#define HANG_ON_1 "unless-skip 1 call 1 nvmlDeviceGet\x01Temperature\nunless-skip 1 pause\n"

static void a_hung_call_costs_the_helper_its_life_and_the_next_skips_the_gpu(void **state)
{
    struct fixture *f = *state;
    start(f, OPENING HANG_ON_1 "loop 2\n", DEADLINE_NS, &quick);
    watch(f, 1, NS_PER_S);
    int pid = f->stats.pid;
    uint64_t before_ns = clock_mono_ns();
    run_until(f, has_samples, 3);
    assert_true(clock_mono_ns() - before_ns >= DEADLINE_NS);
    assert_int_equal(f->down_count, 1);
    assert_down(f, 0, "hung", 1, "nvmlDeviceGet?Temperature", false);
    assert_string_equal(read_file(f, "starts"),
                        "nvml --library DIR --kmsg /dev/kmsg\n"
                        "nvml --library DIR --skip 1=00000000:11:00.0 --kmsg /dev/kmsg\n");
    assert_int_equal(f->entities[0].state, FRAME_ENTITY_UP);
    assert_int_equal(f->entities[1].state, FRAME_ENTITY_SKIPPED);
    assert_int_equal(f->stats.hangs, 1);
    assert_int_equal(f->stats.skipped, 1);
    run_until(f, has_no_zombies, 0);
    assert_int_equal(kill(pid, 0), -1);
}

static void a_call_that_ends_in_time_is_no_hang(void **state)
{
    struct fixture *f = *state;
    start(f, "hello\nstate 0\nentities 1\ncalls 2 150\nawait-watch\nsample\npause\n",
          200 * NS_PER_MS, &quick);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 1);
    assert_int_equal(f->down_count, 0);
}

static void a_fresh_helper_that_hangs_too_means_the_driver_hangs(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.backoff_least_ns = timing.backoff_most_ns = 300 * NS_PER_MS;
    write_file(f, "script.1", OPENING "sample\ncall 0 nvmlA\npause\n");
    write_file(f, "script.2", "hello\ncall 1 nvmlB\npause\n");
    write_file(f, "script.3", "call 4294967295 nvmlInit_v2\npause\n");
    start(f, OPENING "loop 2\n", DEADLINE_NS, &timing);
    watch(f, 1, NS_PER_S);
    run_until(f, has_downs, 3);
    assert_down(f, 0, "hung", 0, "nvmlA", false);
    assert_down(f, 1, "hung", 1, "nvmlB", true);
    assert_down(f, 2, "hung", UINT32_MAX, "nvmlInit_v2", true);
    assert_true(f->downs[2].at_ns - f->downs[1].at_ns >=
                DEADLINE_NS + 150 * NS_PER_MS); // after a backoff
    run_until(f, has_samples, 3);
    assert_int_equal(f->down_count, 3);
    // The GPU blamed while all was stuck is asked again at once; the other one waits.
    run_until(f, has_skipped, 1);
    assert_true(
        sv_ends_with(sv_from(read_file(f, "starts")),
                     SV("nvml --library DIR --skip 0=00000000:10:00.0 --kmsg /dev/kmsg\n")));
    assert_int_equal(f->down_count, 3);
}

static void a_helper_that_never_says_hello_hangs(void **state)
{
    struct fixture *f = *state;
    write_file(f, "script.1", "pause\n");
    struct source_process_timing timing = quick;
    timing.hello_ns = 100 * NS_PER_MS;
    start(f, "hello\npause\n", 10 * NS_PER_S, &timing);
    run_until(f, has_starts, 2);
    assert_down(f, 0, "hung", UINT32_MAX, "", false);
}

static void a_helper_with_gpus_that_does_nothing_hangs(void **state)
{
    struct fixture *f = *state;
    write_file(f, "script.1", OPENING "sample\npause\n");
    start(f, OPENING "calls 5 1000\n", DEADLINE_NS, &quick);
    watch(f, 1, 10 * NS_PER_MS);
    run_until(f, has_downs, 1);
    assert_down(f, 0, "hung", UINT32_MAX, "", false);
    run_until(f, has_starts, 2);
    run_for(f, 2 * (3 * DEADLINE_NS +
                    40 * NS_PER_MS)); // the second one calls but says nothing: it is at work
    assert_int_equal(f->down_count, 1);
}

static void a_helper_whose_loop_stands_still_hangs(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.pulse_ns = 100 * NS_PER_MS;
    write_file(f, "script.1", "hello\npause\n");
    start(f, "hello\nrest\n", 10 * NS_PER_S, &timing);
    run_until(f, has_starts, 2);
    assert_down(f, 0, "hung", UINT32_MAX, "", false);
    run_for(f, 500 * NS_PER_MS);
    assert_int_equal(f->down_count, 1);
}

static void a_helper_that_somebody_stopped_costs_no_gpu(void **state)
{
    struct fixture *f = *state;
    start(f, OPENING "sample\ncall 1 nvmlA\nunless-skip 1 pause\n", DEADLINE_NS, &quick);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 1);
    assert_int_equal(kill(f->stats.pid, SIGSTOP), 0);
    run_until(f, has_downs, 1);
    assert_down(f, 0, "hung", UINT32_MAX, "", false);
    assert_int_equal(f->stats.skipped, 0);
}

// The loop does not run meanwhile, as when the machine is suspended.
static void time_in_which_nobody_watched_counts_for_nobody(void **state)
{
    struct fixture *f = *state;
    start(f, OPENING "sample\ncall 1 nvmlA\nsleep 600\nleave\nloop 2\n", 500 * NS_PER_MS, &quick);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 1);
    const struct timespec nap = {0, 400 * 1000000};
    (void)nanosleep(&nap, NULL);
    run_until(f, has_samples, 3);
    assert_int_equal(f->down_count, 0);
}

static bool has_avoided(struct fixture *f)
{
    return f->stats.avoided == f->n;
}

static void a_call_that_crashes_again_is_avoided_on_that_gpu(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.backoff_least_ns = timing.backoff_most_ns = 10 * NS_PER_MS;
    start(f, OPENING "unless-avoid nvmlA@1 abort-in 1 nvmlA\nloop 2\n", 10 * NS_PER_S, &timing);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 3);
    assert_int_equal(f->down_count, 2);
    assert_down(f, 1, "crashed", 1, "nvmlA", false);
    assert_int_equal(f->stats.avoided, 1);
    assert_int_equal(f->stats.skipped, 0);
    assert_true(sv_ends_with(sv_from(read_file(f, "starts")),
                             SV("nvml --library DIR --avoid nvmlA@1 --kmsg /dev/kmsg\n")));
    // A new driver may do better.
    assert_int_equal(source_process_release(f->process), 0);
    assert_int_equal(source_process_attach(f->process), 0);
    run_until(f, has_avoided, 0);
}

static void a_call_of_no_gpu_that_hangs_again_is_avoided(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.backoff_least_ns = timing.backoff_most_ns = 10 * NS_PER_MS;
    start(f,
          OPENING
          "unless-avoid nvmlWait call 4294967295 nvmlWait\nunless-avoid nvmlWait pause\nloop 2\n",
          DEADLINE_NS, &timing);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 3);
    assert_int_equal(f->down_count, 2);
    assert_down(f, 0, "hung", UINT32_MAX, "nvmlWait", false);
    assert_down(f, 1, "hung", UINT32_MAX, "nvmlWait", true);
    assert_int_equal(f->stats.avoided, 1);
}

static void the_next_helper_reads_the_kernel_log_on_from_where_the_last_one_was(void **state)
{
    struct fixture *f = *state;
    write_file(f, "script.1", "hello\ntold 41\ncrash\n");
    write_file(f, "script.2", "hello\ntold 7\nsleep 20\nexit 0\n"); // one that has told less
    struct source_process_timing timing = quick;
    timing.backoff_least_ns = timing.backoff_most_ns = 10 * NS_PER_MS;
    start(f, OPENING "loop 2\n", 10 * NS_PER_S, &timing);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 1);
    assert_string_equal(read_file(f, "starts"),
                        "nvml --library DIR --kmsg /dev/kmsg\n"
                        "nvml --library DIR --kmsg /dev/kmsg --kmsg-after 41\n"
                        "nvml --library DIR --kmsg /dev/kmsg --kmsg-after 41\n");
}

static void a_helper_without_gpus_may_be_silent(void **state)
{
    struct fixture *f = *state;
    start(f, "hello\nstate 2\nrest\n", 50 * NS_PER_MS, &quick);
    watch(f, 1, 10 * NS_PER_MS);
    run_for(f, 500 * NS_PER_MS);
    assert_int_equal(f->down_count, 0);
}

// --- Helpers that do not die ---

static bool tracer_is_there(struct fixture *f)
{
    char name[] = "tracer.?";
    name[sizeof(name) - 2] = (char)('0' + f->n);
    return read_file(f, name)[0] != '\0' || f->down_count > 0;
}

static void at_most_two_helpers_exist_however_stuck(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.backoff_least_ns = timing.backoff_most_ns = 10 * NS_PER_MS;
    write_file(f, "script.1", "trace\n" OPENING "sample\ncall 0 nvmlA\npause\n");
    write_file(f, "script.2", "trace\n" OPENING "sample\ncall 1 nvmlB\npause\n");
    start(f, OPENING "loop 2\n", DEADLINE_NS, &timing);
    watch(f, 1, NS_PER_S);
    run_until(f, tracer_is_there, 1);
    if (f->down_count > 0) {
        print_message("no ptrace here: a process that does not die cannot be made\n");
        skip();
    }
    run_until(f, has_downs, 3);
    assert_down(f, 0, "hung", 0, "nvmlA", false);
    assert_down(f, 1, "hung", 1, "nvmlB", false);
    assert_down(f, 2, "hung", UINT32_MAX, "", true); // no room for a third
    assert_true(f->downs[2].at_ns - f->downs[1].at_ns >= 100 * NS_PER_MS);
    run_for(f, 200 * NS_PER_MS);
    assert_int_equal(f->down_count, 3);
    assert_int_equal(f->stats.starts, 2);
    assert_int_equal(f->stats.zombies, 2);
    assert_false(f->stats.running);
    end_tracers(f);
    run_until(f, has_samples, 4);
    assert_int_equal(f->down_count, 3);
    assert_int_equal(f->stats.starts, 3);
    run_until(f, has_no_zombies, 0);
}

static void free_does_not_wait_for_one_that_does_not_die(void **state)
{
    struct fixture *f = *state;
    start(f, "trace\nhello\npause\n", 10 * NS_PER_S, &quick);
    run_until(f, tracer_is_there, 1);
    if (f->down_count > 0)
        skip();
    uint64_t before_ns = clock_mono_ns();
    end(f);
    assert_true(clock_mono_ns() - before_ns < 500 * NS_PER_MS);
}

// --- Probes ---

static void a_skipped_gpu_that_answers_again_comes_back_without_a_gap(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.probe_ns = 200 * NS_PER_MS;
    write_file(f, "script.1", OPENING "call 1 nvmlA\npause\n");
    start(f, OPENING "loop 2\n", DEADLINE_NS, &timing);
    watch(f, 5, NS_PER_S);
    run_until(f, has_samples, 1);
    assert_int_equal(f->entities[1].state, FRAME_ENTITY_SKIPPED);
    int pid = f->stats.pid;
    run_until(f, has_skipped, 0);
    assert_int_equal(f->entities[1].state, FRAME_ENTITY_UP);
    assert_int_equal(f->down_count, 1);
    assert_int_equal(f->stats.starts, 3);
    assert_int_equal(f->stats.probes, 1);
    assert_int_not_equal(f->stats.pid, pid);
    uint64_t samples = f->samples;
    run_until(f, has_samples, samples + 3);
    assert_int_equal(f->watch_id, 5);
    run_until(f, has_no_zombies, 0);
    assert_int_equal(kill(pid, 0), -1);
    assert_string_equal(read_file(f, "starts"),
                        "nvml --library DIR --kmsg /dev/kmsg\n"
                        "nvml --library DIR --skip 1=00000000:11:00.0 --kmsg /dev/kmsg\n"
                        "nvml --library DIR --kmsg /dev/kmsg\n");
    // What came: the old helper's frames, then state, list and samples of the new one.
    watch(f, 6, NS_PER_S);
    run_until(f, has_watch, 6);
}

static void a_probe_that_hangs_disturbs_nobody(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.probe_ns = 50 * NS_PER_MS;
    start(f, OPENING HANG_ON_1 "loop 2\n", DEADLINE_NS, &timing);
    watch(f, 1, NS_PER_S);
    run_until(f, has_hangs, 3); // the helper and two probes
    assert_int_equal(f->down_count, 1);
    assert_int_equal(f->stats.skipped, 1);
    assert_int_equal(f->entities[1].state, FRAME_ENTITY_SKIPPED);
    assert_int_equal(f->stats.probes, 2);
    uint64_t samples = f->samples;
    run_until(f, has_samples, samples + 3);
}

static void a_probe_without_a_sample_is_given_up(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.probe_ns = 50 * NS_PER_MS;
    write_file(f, "script.1", OPENING "call 1 nvmlA\npause\n");
    write_file(f, "script.3", "hello\nstate 2\npause\n");
    write_file(f, "script.4", "hello\ncrash\n");
    start(f, OPENING "loop 2\n", 50 * NS_PER_MS, &timing);
    watch(f, 1, NS_PER_S);
    run_until(f, has_skipped, 1);
    run_until(f, has_skipped, 0);
    assert_int_equal(f->stats.starts, 5);
    assert_int_equal(f->down_count, 1);
}

// --- Release and attach ---

static void release_ends_the_helper_and_attach_starts_one(void **state)
{
    struct fixture *f = *state;
    start(f, OPENING HANG_ON_1 "loop 2\n", DEADLINE_NS, &quick);
    watch(f, 1, NS_PER_S);
    assert_int_equal(source_process_attach(f->process), -EALREADY);
    run_until(f, has_samples, 1);
    int pid = f->stats.pid;
    assert_int_equal(source_process_release(f->process), 0);
    assert_int_equal(f->down_count, 2);
    assert_down(f, 1, "released", UINT32_MAX, "", false);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
    assert_int_equal(info.si_pid, pid); // it was gone when release returned
    assert_int_equal(source_process_release(f->process), -EALREADY);
    run_until(f, has_no_zombies, 0);
    run_for(f, 50 * NS_PER_MS);
    assert_false(f->stats.running);
    assert_true(f->stats.released);
    assert_int_equal(f->stats.starts, 2);
    write_file(f, "script", OPENING "loop 2\n");
    assert_int_equal(source_process_attach(f->process), 0);
    uint64_t samples = f->samples;
    run_until(f, has_samples, samples + 1);
    assert_false(f->stats.released);
    assert_int_equal(f->stats.skipped, 0);
    assert_int_equal(f->down_count, 2);
    assert_int_equal(f->entities[1].state, FRAME_ENTITY_UP);
}

static void release_also_stops_a_restart_that_waits(void **state)
{
    struct fixture *f = *state;
    struct source_process_timing timing = quick;
    timing.backoff_least_ns = timing.backoff_most_ns = 50 * NS_PER_MS;
    start(f, "exit 1\n", 10 * NS_PER_S, &timing);
    run_until(f, has_downs, 2);
    assert_int_equal(source_process_release(f->process), 0);
    run_for(f, 150 * NS_PER_MS);
    assert_int_equal(f->stats.starts, 2);
    assert_int_equal(source_process_attach(f->process), 0);
    run_until(f, has_starts, 4); // at once, and at once again
}

static void everything_may_be_called_from_inside_a_frame(void **state)
{
    struct fixture *f = *state;
    f->release_at_frame = true;
    start(f, "hello\nstate 0\nentities 2\npause\n", 10 * NS_PER_S, &quick);
    run_until(f, has_downs, 1);
    assert_int_equal(f->frame_count, 1);
    assert_down(f, 0, "released", UINT32_MAX, "", false);
    assert_int_equal(source_process_attach(f->process), 0);
    f->free_at_frame = true;
    run_until(f, is_freed, 0);
    assert_int_equal(f->frame_count, 2);
}

static void it_may_be_freed_from_inside_down(void **state)
{
    struct fixture *f = *state;
    f->free_at_down = true;
    start(f, "hello\ncall 1 nvmlA\npause\n", 100 * NS_PER_MS, &quick);
    run_until(f, is_freed, 0);
    start(f, "hello\ncrash\n", 10 * NS_PER_S, &quick);
    run_until(f, is_freed, 0);
    start(f, "garbage\npause\n", 10 * NS_PER_S, &quick);
    run_until(f, is_freed, 0);
    start(f, "hello\npause\n", 10 * NS_PER_S, &quick);
    run_for(f, 20 * NS_PER_MS);
    assert_int_equal(source_process_release(f->process), 0);
    assert_null(f->process);
}

static void free_kills(void **state)
{
    struct fixture *f = *state;
    start(f, OPENING "loop 2\n", 10 * NS_PER_S, &quick);
    watch(f, 1, NS_PER_S);
    run_until(f, has_samples, 1);
    int pid = f->stats.pid;
    end(f);
    siginfo_t info = {0};
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(info.si_status, SIGKILL);
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 99;
    fake_source = argv[1];
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(the_helper_logs_as_we_do),
        T(frames_come_in_order_without_hello),
        T(the_largest_list_comes_through),
        T(the_helper_gets_its_five_descriptors_only),
        T(a_new_watch_reaches_the_running_helper_and_each_new_one),
        T(a_helper_that_does_not_read_holds_one_watch_and_hangs),
        T(what_the_helper_is_told_to_do_is_answered_by_number),
        T(what_a_helper_does_not_take_is_refused),
        T(further_words_stand_on_its_command_line),
        T(the_first_restart_comes_at_once_the_second_with_backoff),
        T(backoff_doubles_up_to_its_ceiling),
        T(a_helper_that_lived_long_enough_is_replaced_at_once_again),
        T(an_orderly_end_is_told_apart),
        T(a_program_that_is_not_there_is_an_error_at_start),
        T(whatever_breaks_the_protocol_is_killed_and_replaced),
        T(a_flood_is_ended),
        T(too_many_bytes_are_ended),
        T(a_hung_call_costs_the_helper_its_life_and_the_next_skips_the_gpu),
        T(a_call_that_ends_in_time_is_no_hang),
        T(a_fresh_helper_that_hangs_too_means_the_driver_hangs),
        T(a_helper_that_never_says_hello_hangs),
        T(a_helper_with_gpus_that_does_nothing_hangs),
        T(a_helper_without_gpus_may_be_silent),
        T(a_helper_whose_loop_stands_still_hangs),
        T(a_helper_that_somebody_stopped_costs_no_gpu),
        T(time_in_which_nobody_watched_counts_for_nobody),
        T(a_call_that_crashes_again_is_avoided_on_that_gpu),
        T(a_call_of_no_gpu_that_hangs_again_is_avoided),
        T(the_next_helper_reads_the_kernel_log_on_from_where_the_last_one_was),
        T(at_most_two_helpers_exist_however_stuck),
        T(free_does_not_wait_for_one_that_does_not_die),
        T(a_skipped_gpu_that_answers_again_comes_back_without_a_gap),
        T(a_probe_that_hangs_disturbs_nobody),
        T(a_probe_without_a_sample_is_given_up),
        T(release_ends_the_helper_and_attach_starts_one),
        T(release_also_stops_a_restart_that_waits),
        T(everything_may_be_called_from_inside_a_frame),
        T(it_may_be_freed_from_inside_down),
        T(free_kills),
    };
    if (argc > 2)
        cmocka_set_test_filter(argv[2]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
