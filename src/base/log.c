// SPDX-License-Identifier: Apache-2.0
// A line is built in a fixed buffer and written at once. Fields that do not fit are left out whole,
// so a line is always well-formed. The text form is that of Go's log/slog TextHandler, which
// dcgm-exporter logs with.
//
// Nobody is made to wait by a reader of the log that does not read: a line that the pipe or socket
// behind stderr does not take at once is left out. A pipe is opened anew through /proc to be
// non-blocking, since the description behind descriptor 2 is shared with others.
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/num.h"

#define LINE_BYTES 4096
#define TAIL_BYTES 96    // kept free for repeats=N, unwritten=N and the end of the line
#define VALUE_BYTES 1024 // of foreign text before escaping
#define REPEAT_SLOTS 64
#define REPEAT_NS (60 * NS_PER_S)
#define PHRASE_SLOTS 128 // more than there are phrases
#define PHRASE_BURST                                                                               \
    200 // lines of one phrase at once: a counters file of many fields that are not there
#define PHRASE_NS (6 * NS_PER_S) // then one in this time

static enum log_format format_now = LOG_FORMAT_TEXT;
static enum log_level least_now = LOG_LEVEL_INFO;

// What was said lately under LOG_LIMIT. A full table forgets the oldest.
static struct repeat {
    uint64_t id;
    uint64_t written_ns; // 0: free
    uint64_t left_out;
} repeats[REPEAT_SLOTS];
// What each phrase has left: full_ns is when it may have a burst again, a line moves it by
// PHRASE_NS.
static struct phrase {
    uint64_t id;
    uint64_t full_ns; // 0: free
    uint64_t left_out;
} phrases[PHRASE_SLOTS];
static pthread_mutex_t repeats_lock = PTHREAD_MUTEX_INITIALIZER;

static int pipe_fd = -1; // our own, non-blocking, of the pipe that stderr is
static bool stderr_is_socket;
static atomic_uint_fast64_t unwritten; // lines that were not taken

struct line {
    char bytes[LINE_BYTES];
    size_t len;
    size_t most; // writing stops here
    bool cut;    // something did not fit
};

void log_setup(enum log_format format, enum log_level least)
{
    struct stat st;
    format_now = format;
    least_now = least;
    if (pipe_fd >= 0)
        (void)close(pipe_fd);
    pipe_fd = -1;
    stderr_is_socket = false;
    if (fstat(STDERR_FILENO, &st) < 0)
        return;
    stderr_is_socket = S_ISSOCK(st.st_mode);
    if (S_ISFIFO(st.st_mode))
        pipe_fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
}

bool log_wants(enum log_level level)
{
    return level >= least_now;
}

static void put(struct line *l, struct sv s)
{
    if (s.len > l->most - l->len) {
        l->cut = true;
        return;
    }
    if (s.len)
        memcpy(l->bytes + l->len, s.ptr, s.len);
    l->len += s.len;
}

static void put_str(struct line *l, const char *text)
{
    put(l, sv_from(text));
}

static void put_u64(struct line *l, uint64_t v)
{
    char text[NUM_U64_BYTES];
    put(l, (struct sv){text, num_print_u64(text, v)});
}

static void put_i64(struct line *l, int64_t v)
{
    char text[NUM_I64_BYTES];
    put(l, (struct sv){text, num_print_i64(text, v)});
}

// The inside of a double-quoted string, legal in JSON and in Go syntax alike but for control
// characters in JSON.
static void put_escaped(struct line *l, struct sv s, enum log_format format)
{
    while (s.len && !l->cut) {
        size_t length = sv_utf8_length(s);
        unsigned char c = (unsigned char)s.ptr[0];
        if (!length) {
            put_str(l, "\xef\xbf\xbd");
            length = 1;
        } else if (c == '"' || c == '\\') {
            put(l, (struct sv){(const char[]){'\\', (char)c}, 2});
        } else if (c == '\n' || c == '\t' || c == '\r') {
            put_str(l, c == '\n' ? "\\n" : c == '\t' ? "\\t" : "\\r");
        } else if (c < 0x20 || c == 0x7f) {
            char escape[8];
            (void)snprintf(escape, sizeof(escape),
                           format == LOG_FORMAT_JSON ? "\\u%04x" : "\\x%02x", c);
            put_str(l, escape);
        } else {
            put(l, sv_sub(s, 0, length));
        }
        s = sv_sub(s, length, s.len);
    }
}

static bool needs_quotes(struct sv s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7f)
            return true;
    }
    return !s.len;
}

static void put_text(struct line *l, struct sv s)
{
    bool cut = s.len > VALUE_BYTES;
    s = sv_cut(s, VALUE_BYTES);
    if (format_now == LOG_FORMAT_TEXT && !cut && !needs_quotes(s)) {
        put(l, s);
        return;
    }
    put_str(l, "\"");
    put_escaped(l, s, format_now);
    put_str(l, cut ? "...\"" : "\"");
}

static void put_errno(struct line *l, int64_t code)
{
    char text[128];
    int number = (int)(code < 0 ? -code : code);
    put_text(l, sv_from(strerror_r(number, text, sizeof(text)))); // the GNU form
}

static void put_value(struct line *l, const struct log_field *f)
{
    switch (f->kind) {
    case LOG_KIND_STR:
        put_text(l, sv_from(f->value.str ? f->value.str : "(null)"));
        break;
    case LOG_KIND_SV:
        put_text(l, f->value.sv);
        break;
    case LOG_KIND_I64:
        put_i64(l, f->value.i64);
        break;
    case LOG_KIND_U64:
        put_u64(l, f->value.u64);
        break;
    case LOG_KIND_BOOL:
        put_str(l, f->value.boolean ? "true" : "false");
        break;
    case LOG_KIND_ERRNO:
        put_errno(l, f->value.i64);
        break;
    case LOG_KIND_END:
    case LOG_KIND_LIMIT:
        break;
    }
}

static void put_key(struct line *l, const char *key)
{
    if (format_now == LOG_FORMAT_TEXT) {
        put_str(l, l->len ? " " : "");
        put_str(l, key);
        put_str(l, "=");
        return;
    }
    put_str(l, l->len > 1 ? ",\"" : "\"");
    put_escaped(l, sv_from(key), LOG_FORMAT_JSON);
    put_str(l, "\":");
}

static void put_time(struct line *l)
{
    uint64_t now = clock_wall_ns();
    time_t seconds = (time_t)(now / NS_PER_S);
    struct tm tm;
    char date[32] = "", zone[8] = "", text[64];
    if (localtime_r(&seconds, &tm)) {
        (void)strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm);
        (void)strftime(zone, sizeof(zone), "%z", &tm); // +hhmm
    }
    bool utc = strcmp(zone, "+0000") == 0;
    (void)snprintf(text, sizeof(text), "%s.%03u%.3s%s%.2s", date,
                   (unsigned)(now % NS_PER_S / NS_PER_MS), utc ? "Z" : zone, utc ? "" : ":",
                   utc ? "" : zone + (zone[0] ? 3 : 0));
    put_key(l, "time");
    put_str(l, format_now == LOG_FORMAT_JSON ? "\"" : "");
    put_str(l, text);
    put_str(l, format_now == LOG_FORMAT_JSON ? "\"" : "");
}

static const char *level_name(enum log_level level)
{
    switch (level) {
    case LOG_LEVEL_DEBUG:
        return "DEBUG";
    case LOG_LEVEL_INFO:
        return "INFO";
    case LOG_LEVEL_WARN:
        return "WARN";
    case LOG_LEVEL_ERROR:
        return "ERROR";
    }
    return "ERROR";
}

// The slot of id, else a free or the oldest one taken over for it.
static struct repeat *repeat_slot(uint64_t id)
{
    struct repeat *oldest = &repeats[0];
    for (size_t i = 0; i < REPEAT_SLOTS; i++) {
        if (repeats[i].id == id && repeats[i].written_ns)
            return &repeats[i];
        if (repeats[i].written_ns < oldest->written_ns)
            oldest = &repeats[i];
    }
    *oldest = (struct repeat){.id = id};
    return oldest;
}

static struct phrase *phrase_slot(uint64_t id)
{
    struct phrase *oldest = &phrases[0];
    for (size_t i = 0; i < PHRASE_SLOTS; i++) {
        if (phrases[i].id == id && phrases[i].full_ns)
            return &phrases[i];
        if (phrases[i].full_ns < oldest->full_ns)
            oldest = &phrases[i];
    }
    *oldest = (struct phrase){.id = id};
    return oldest;
}

// Once a minute for the same phrase and key.
static bool repeat_is_due(uint64_t phrase_id, const char *key, uint64_t now, uint64_t *out_left_out)
{
    struct repeat *slot = repeat_slot(phrase_id * 31 + map_hash(sv_from(key ? key : "")));
    if (slot->written_ns && now - slot->written_ns < REPEAT_NS) {
        slot->left_out++;
        return false;
    }
    *out_left_out += slot->left_out;
    slot->left_out = 0;
    slot->written_ns = now ? now : 1;
    return true;
}

// However many keys it comes with, and whoever makes it be said.
static bool phrase_is_due(uint64_t phrase_id, uint64_t now, uint64_t *out_left_out)
{
    struct phrase *slot = phrase_slot(phrase_id);
    uint64_t full_ns = slot->full_ns > now ? slot->full_ns : now;
    if (full_ns - now > (PHRASE_BURST - 1) * PHRASE_NS) {
        slot->left_out++;
        return false;
    }
    *out_left_out += slot->left_out;
    slot->left_out = 0;
    slot->full_ns = full_ns + PHRASE_NS;
    return true;
}

// Whether a line is due; *out_left_out: how many were not since the last.
static bool due(enum log_level level, const char *phrase, const struct log_field *fields,
                uint64_t *out_left_out)
{
    uint64_t id = map_hash(sv_from(phrase));
    uint64_t now = clock_mono_ns();
    bool write_it = true;
    (void)pthread_mutex_lock(&repeats_lock);
    for (const struct log_field *f = fields; f->kind != LOG_KIND_END && write_it; f++) {
        if (f->kind == LOG_KIND_LIMIT)
            write_it = repeat_is_due(id, f->value.str, now, out_left_out);
    }
    if (write_it && level > LOG_LEVEL_DEBUG)
        write_it = phrase_is_due(id, now, out_left_out);
    (void)pthread_mutex_unlock(&repeats_lock);
    return write_it;
}

static ssize_t write_now(const struct line *l)
{
    if (pipe_fd >= 0)
        return write(pipe_fd, l->bytes, l->len); // at most PIPE_BUF: all or nothing
    if (stderr_is_socket)
        return send(STDERR_FILENO, l->bytes, l->len, MSG_DONTWAIT | MSG_NOSIGNAL);
    struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) > 0 && (p.revents & POLLOUT) ? write(STDERR_FILENO, l->bytes, l->len)
                                                       : -1;
}

static void write_line(const struct line *l, uint64_t told)
{
    ssize_t n;
    do
        n = write_now(l);
    while (n < 0 && errno == EINTR);
    if (n <= 0) // nobody reads: a log line is no reason to stop
        (void)atomic_fetch_add(&unwritten, 1);
    else
        (void)atomic_fetch_sub(&unwritten, told);
}

static void put_fields(struct line *l, const struct log_field *fields)
{
    for (const struct log_field *f = fields; f->kind != LOG_KIND_END; f++) {
        if (f->kind == LOG_KIND_LIMIT)
            continue;
        size_t before = l->len;
        put_key(l, f->key);
        put_value(l, f);
        if (l->cut)
            l->len = before;
        l->cut = false;
    }
}

void log_write(enum log_level level, const char *phrase, const struct log_field *fields)
{
    uint64_t left_out = 0;
    int saved = errno;
    if (!due(level, phrase, fields, &left_out))
        return;
    uint64_t lost = atomic_load(&unwritten);
    struct line l = {.most = LINE_BYTES - TAIL_BYTES};
    put_str(&l, format_now == LOG_FORMAT_JSON ? "{" : "");
    put_time(&l);
    put_key(&l, "level");
    put_text(&l, sv_from(level_name(level)));
    put_key(&l, "msg");
    put_text(&l, sv_from(phrase));
    put_fields(&l, fields);
    l.most = LINE_BYTES;
    if (left_out) {
        put_key(&l, "repeats");
        put_u64(&l, left_out);
    }
    if (lost) {
        put_key(&l, "unwritten");
        put_u64(&l, lost);
    }
    put_str(&l, format_now == LOG_FORMAT_JSON ? "}\n" : "\n");
    write_line(&l, lost);
    errno = saved;
}
