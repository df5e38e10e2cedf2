// SPDX-License-Identifier: Apache-2.0
// A podgpu-source that does what a script tells it, for tests of its supervision.
//
// `fake_source nvml --library DIR [--skip N[=BUS-ID]]... [--kmsg PATH]`: appends its arguments as a
// line to DIR/starts, then runs DIR/script.N (N counts the starts from 1) or else DIR/script, one
// command a line:
//   rest (as pause, but its loop turns)   told NUMBER (record of the kernel log)
//   abort-in INDEX NAME (crashes in a call)   unless-avoid TEXT COMMAND...
//   hello [PROTOCOL]   state CODE        entities N (those to skip are listed as skipped)
//   await-watch        sample            loop MS (a sample each MS, taking WATCH as it comes, for
//   ever) call INDEX NAME    leave             calls MS COUNT (as many short calls, MS apart) sleep
//   MS           pause             exit STATUS       crash garbage            flood bytes COUNT
//   (frames as large as allowed, in all at least COUNT) close              fds (lists the open
//   descriptors in DIR/fds.N) trace (a child holds the process's end back until it is killed; its
//   pid goes to DIR/tracer.N) unless-skip INDEX COMMAND...
// SIGTERM is ignored, so that only SIGKILL ends it.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/num.h"
#include "gpu/frame.h"

#define MOST_SECONDS 60 // nothing of it outlives a test run

static struct {
    const char *dir;
    uint32_t run;
    bool skip[LIMIT_GPUS];
    int argc;
    char **argv;
    struct frame_call_page *page;
    uint32_t generation, entities, watch_id;
    struct frame_reader reader;
} self;

static void die(const char *what)
{
    dprintf(STDERR_FILENO, "fake_source: %s: %s\n", what, strerror(errno));
    exit(99);
}

static void sleep_ms(uint64_t ms)
{
    const struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
}

static uint64_t number(struct sv *args)
{
    struct sv word;
    uint64_t n = 0;
    if (!sv_next(args, ' ', &word) || num_parse_u64(word, 0, UINT64_MAX, &n) < 0)
        die("number expected in the script");
    return n;
}

static int open_file(const char *name, uint32_t n, int flags)
{
    struct buf path = BUF_INIT(4096);
    buf_add_fmt(&path, "%s/%s", self.dir, name);
    if (n > 0)
        buf_add_fmt(&path, ".%u", n);
    int fd = open(buf_cstr(&path), flags | O_CLOEXEC, 0600);
    buf_deinit(&path);
    return fd;
}

// --- Frames out ---

static void send_all(const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = send(FRAME_SOCKET_FD, bytes, len, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            exit(98); // the other end is gone
        bytes += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

static void send_frame(enum frame_type type, const void *head, size_t head_bytes, const void *list,
                       size_t bytes)
{
    struct buf b = BUF_INIT(LIMIT_FRAME_BYTES + sizeof(struct frame_header));
    size_t start = frame_begin(&b, type);
    buf_add(&b, head, head_bytes);
    buf_add(&b, list, bytes);
    frame_end(&b, start);
    if (b.error)
        die("frame");
    send_all(b.data, b.len);
    buf_deinit(&b);
}

static void send_hello(struct sv args)
{
    uint32_t protocol = args.len > 0 ? (uint32_t)number(&args) : FRAME_PROTOCOL;
    const struct frame_hello hello = {
        .protocol = protocol, .source = FRAME_SOURCE_NVML, .pid = getpid()};
    send_frame(FRAME_HELLO, &hello, sizeof(hello), NULL, 0);
}

static void send_state(struct sv args)
{
    const struct frame_state state = {.code = (uint32_t)number(&args)};
    send_frame(FRAME_STATE, &state, sizeof(state), NULL, 0);
}

static void send_entities(struct sv args)
{
    self.entities = (uint32_t)number(&args);
    const struct frame_entities head = {++self.generation, self.entities};
    struct frame_entity *list = calloc(self.entities + 1, sizeof(*list));
    if (!list)
        die("memory");
    for (uint32_t i = 0; i < self.entities; i++) {
        list[i] = (struct frame_entity){
            .kind = FRAME_ENTITY_GPU,
            .state = i < LIMIT_GPUS && self.skip[i] ? FRAME_ENTITY_SKIPPED : FRAME_ENTITY_UP,
            .index = i,
            .parent = i,
            .minor = i,
            .gpu_instance_id = UINT32_MAX,
            .instance_entity_id = UINT32_MAX,
            .id = UINT32_MAX,
        };
        if (list[i].state == FRAME_ENTITY_UP) // 00000000:10:00.0, 00000000:11:00.0, ...
            (void)snprintf(list[i].bus_id, sizeof(list[i].bus_id), "00000000:%02X:00.0", 16 + i);
    }
    send_frame(FRAME_ENTITIES, &head, sizeof(head), list, self.entities * sizeof(*list));
    free(list);
}

static void send_sample(uint32_t count)
{
    uint64_t now_ns = clock_mono_ns();
    struct frame_sample head = {
        .generation = self.generation,
        .watch_id = self.watch_id,
        .classes = 1,
        .count = count,
        .started_ns = now_ns,
        .ended_ns = now_ns,
    };
    struct frame_record *list = calloc(count + 1, sizeof(*list));
    if (!list)
        die("memory");
    for (uint32_t i = 0; i < count; i++)
        list[i] = (struct frame_record){.entity = self.entities > 0 ? i % self.entities : 0,
                                        .field = 150,
                                        .status = FRAME_OK,
                                        .type = FRAME_VALUE_I64,
                                        .taken_ns = now_ns,
                                        .value.i64 = 40};
    send_frame(FRAME_SAMPLE, &head, sizeof(head), list, count * sizeof(*list));
    free(list);
}

// --- WATCH, CONTROL in ---

// What it was told is done; resuming fails.
static void answer_control(const struct frame_control *control)
{
    struct frame_control_done done = {.number = control->number};
    if (control->command == FRAME_COMMAND_RESUME) {
        done.code = -30;
        sv_copy(done.text, sizeof(done.text), SV("in use"));
    }
    send_frame(FRAME_CONTROL_DONE, &done, sizeof(done), NULL, 0);
}

// Takes what has come within wait_ms; true when it was a WATCH.
static bool take_watch(int wait_ms)
{
    struct pollfd p = {.fd = FRAME_SOCKET_FD, .events = POLLIN};
    if (poll(&p, 1, wait_ms) <= 0)
        return false;
    char *space;
    size_t room;
    if (frame_reader_space(&self.reader, &space, &room) < 0)
        die("memory");
    ssize_t n = recv(FRAME_SOCKET_FD, space, room, 0);
    if (n <= 0)
        exit(0);
    frame_reader_commit(&self.reader, (size_t)n);
    bool taken = false;
    struct frame f;
    const char *what = "";
    int r;
    while ((r = frame_reader_next(&self.reader, &f, &what)) == 1) {
        if (f.type == FRAME_CONTROL) {
            answer_control(f.as.control);
            continue;
        }
        self.watch_id = f.as.watch.head->watch_id;
        taken = true;
    }
    if (r < 0)
        die(what);
    return taken;
}

static void loop(struct sv args)
{
    int ms = (int)number(&args);
    for (;;) {
        send_sample(self.entities);
        (void)take_watch(ms);
    }
}

// --- Misbehaviour ---

static void wait_forever(void)
{
    for (;;)
        pause();
}

static void enter_call(struct sv args)
{
    self.page->index = (uint32_t)number(&args);
    sv_copy(self.page->call, sizeof(self.page->call), args);
    self.page->calls++;
    __atomic_store_n(&self.page->entered_ns, clock_mono_ns(), __ATOMIC_RELEASE);
}

static void abort_in(struct sv args)
{
    enter_call(args);
    abort();
}

static void rest(void)
{
    for (;; sleep_ms(5))
        __atomic_fetch_add(&self.page->turns, 1, __ATOMIC_RELAXED);
}

static void note_told(struct sv args)
{
    __atomic_store_n(&self.page->kmsg_seq, number(&args), __ATOMIC_RELAXED);
}

static void leave_call(void)
{
    __atomic_store_n(&self.page->entered_ns, 0, __ATOMIC_RELEASE);
}

static void short_calls(struct sv args)
{
    uint64_t ms = number(&args), count = number(&args);
    while (count-- > 0) {
        enter_call(SV("0 nvmlShort"));
        leave_call();
        sleep_ms(ms);
    }
}

static void send_garbage(void)
{
    char bytes[4096];
    memset(bytes, 0xa5, sizeof(bytes));
    send_all(bytes, sizeof(bytes));
}

static void send_bytes(struct sv args)
{
    uint64_t left = number(&args);
    uint32_t count = LIMIT_FRAME_BYTES / 2 / sizeof(struct frame_record);
    for (uint64_t sent = 0; sent < left; sent += count * sizeof(struct frame_record))
        send_sample(count);
}

static void list_descriptors(void)
{
    int out = open_file("fds", self.run, O_WRONLY | O_CREAT);
    DIR *d = opendir("/proc/self/fd");
    if (out < 0 || !d)
        die("fds");
    for (struct dirent *e; (e = readdir(d));) {
        uint64_t fd;
        if (num_parse_u64(sv_from(e->d_name), 0, INT32_MAX, &fd) < 0 || (int)fd == out ||
            (int)fd == dirfd(d))
            continue;
        dprintf(out, "%s ", e->d_name);
    }
    closedir(d);
    close(out);
}

// The end of a traced process is told to the tracer first: while that does not ask, nobody can reap
// it, as if it were in a call that can't be interrupted.
static void trace(void)
{
    int allowed[2], answer[2];
    if (pipe(allowed) < 0 || pipe(answer) < 0)
        die("pipe");
    pid_t traced = getpid(), child = fork();
    if (child < 0)
        die("fork");
    char ok = '?';
    if (child > 0) {
        (void)prctl(PR_SET_PTRACER, child);
        (void)!write(allowed[1], &ok, 1);
        if (read(answer[0], &ok, 1) != 1 || ok != '1')
            exit(97);
        return;
    }
    close(FRAME_SOCKET_FD);
    (void)alarm(MOST_SECONDS);
    if (read(allowed[0], &ok, 1) == 1 && ptrace(PTRACE_SEIZE, traced, NULL, NULL) == 0) {
        int fd = open_file("tracer", self.run, O_WRONLY | O_CREAT);
        dprintf(fd, "%d", (int)getpid());
        close(fd);
        ok = '1';
    }
    (void)!write(answer[1], &ok, 1);
    if (ok != '1')
        exit(0);
    wait_forever();
}

// --- The script ---

static void run(struct sv line);

static void run_unless_skipped(struct sv args)
{
    if (!self.skip[number(&args) % LIMIT_GPUS])
        run(args);
}

static void run_unless_avoided(struct sv args)
{
    struct sv text;
    (void)sv_next(&args, ' ', &text);
    for (int i = 2; i + 1 < self.argc; i += 2)
        if (strcmp(self.argv[i], "--avoid") == 0 && sv_equals(text, sv_from(self.argv[i + 1])))
            return;
    run(args);
}

static void run(struct sv line)
{
    struct sv word;
    if (!sv_next(&line, ' ', &word) || word.len == 0)
        return;
    struct command {
        const char *name;
        void (*with)(struct sv args);
        void (*plain)(void);
    };
    static const struct command commands[] = {
        {"hello", send_hello, NULL},
        {"state", send_state, NULL},
        {"entities", send_entities, NULL},
        {"loop", loop, NULL},
        {"call", enter_call, NULL},
        {"calls", short_calls, NULL},
        {"bytes", send_bytes, NULL},
        {"unless-skip", run_unless_skipped, NULL},
        {"leave", NULL, leave_call},
        {"garbage", NULL, send_garbage},
        {"fds", NULL, list_descriptors},
        {"trace", NULL, trace},
        {"pause", NULL, wait_forever},
        {"crash", NULL, abort},
        {"rest", NULL, rest},
        {"told", note_told, NULL},
        {"abort-in", abort_in, NULL},
        {"unless-avoid", run_unless_avoided, NULL},
    };
    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        if (!sv_equals(word, sv_from(commands[i].name)))
            continue;
        if (commands[i].with)
            commands[i].with(line);
        else
            commands[i].plain();
        return;
    }
    if (sv_equals(word, SV("sample"))) {
        send_sample(self.entities);
    } else if (sv_equals(word, SV("sleep"))) {
        sleep_ms(number(&line));
    } else if (sv_equals(word, SV("exit"))) {
        exit((int)number(&line));
    } else if (sv_equals(word, SV("close"))) {
        close(FRAME_SOCKET_FD);
    } else if (sv_equals(word, SV("await-watch"))) {
        while (!take_watch(-1))
            ;
    } else if (sv_equals(word, SV("flood"))) {
        for (;;)
            send_sample(self.entities);
    } else {
        die("unknown command");
    }
}

static void note_start(int argc, char **argv)
{
    int fd = open_file("starts", 0, O_RDWR | O_CREAT | O_APPEND);
    if (fd < 0)
        die("starts");
    char before[65536];
    ssize_t n = read(fd, before, sizeof(before));
    self.run = 1;
    self.argc = argc;
    self.argv = argv;
    for (ssize_t i = 0; i < n; i++)
        self.run += before[i] == '\n';
    struct buf line = BUF_INIT(4096);
    for (int i = 1; i < argc; i++)
        buf_add_fmt(&line, "%s%s", i > 1 ? " " : "",
                    strcmp(argv[i], self.dir) == 0 ? "DIR" : argv[i]);
    buf_add_char(&line, '\n');
    if (write(fd, line.data, line.len) != (ssize_t)line.len)
        die("starts");
    buf_deinit(&line);
    close(fd);
}

static void read_arguments(int argc, char **argv)
{
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--library") == 0)
            self.dir = argv[i + 1];
        struct sv word = sv_from(argv[i + 1]);
        size_t equals = sv_find_char(word, '=');
        if (equals != (size_t)-1)
            word = sv_sub(word, 0, equals);
        if (strcmp(argv[i], "--skip") == 0)
            self.skip[number(&word) % LIMIT_GPUS] = true;
    }
    if (!self.dir)
        die("--library");
}

int main(int argc, char **argv)
{
    (void)signal(SIGTERM, SIG_IGN);
    (void)alarm(MOST_SECONDS);
    read_arguments(argc, argv);
    note_start(argc, argv);
    frame_reader_init(&self.reader);
    self.page = mmap(NULL, FRAME_CALL_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
                     FRAME_CALL_PAGE_FD, 0);
    if (self.page == MAP_FAILED)
        die("call page");
    struct buf script = BUF_INIT(65536), path = BUF_INIT(4096);
    buf_add_fmt(&path, "%s/script.%u", self.dir, self.run);
    if (file_read(buf_cstr(&path), &script, NULL) < 0) {
        buf_reset(&script);
        buf_reset(&path);
        buf_add_fmt(&path, "%s/script", self.dir);
        if (file_read(buf_cstr(&path), &script, NULL) < 0)
            die("no script");
    }
    struct sv rest = buf_sv(&script), line;
    while (sv_next(&rest, '\n', &line))
        run(line);
    buf_deinit(&script);
    buf_deinit(&path);
    return 0;
}
