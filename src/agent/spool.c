// SPDX-License-Identifier: Apache-2.0
// How it works: records are appended to the active segment; when it is full it is sealed and the
// next one made, and each process begins with a new one, so that what a crash left behind is never
// appended to. An acknowledgement is eight bytes written over eight zero bytes inside the record:
// it needs no room, so that a full disk can still be emptied, and no second file that could
// disagree with the first. A sealed segment without waiting records is unlinked at once.
// Invariant: after a failed append the active segment ends where it ended before, or is sealed.
#include "agent/spool.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/spool_internal.h"
#include "base/limits.h"
#include "base/num.h"

#define LOCK_NAME "lock"
#define UNCLEAN_NAME "unclean" // there while a process has the directory in use
#define LEAST_BYTES (2u * SPOOL_RECORD_BYTES_MAX)
#define SEGMENTS_IN_MAX 16 // dropping the oldest costs at most this part of the room

// --- Names and table ---

void spool_segment_name(uint32_t id, char out[SPOOL_SEGMENT_NAME_BYTES])
{
    (void)snprintf(out, SPOOL_SEGMENT_NAME_BYTES, "%08x.spool", id);
}

uint32_t spool_segment_id(const char *name)
{
    char again[SPOOL_SEGMENT_NAME_BYTES];
    uint32_t id = 0;
    if (strlen(name) != SPOOL_SEGMENT_NAME_BYTES - 1)
        return 0;
    for (size_t i = 0; i < 8; i++) {
        int digit = num_hex_digit(name[i]);
        if (digit < 0)
            return 0;
        id = id << 4 | (uint32_t)digit;
    }
    spool_segment_name(id, again);
    return strcmp(name, again) == 0 ? id : 0;
}

int spool_segment_add(struct spool *s, const struct spool_segment *segment)
{
    if (s->count == LIMIT_SPOOL_SEGMENTS)
        return -E2BIG;
    if (s->count == s->room) {
        size_t room = s->room ? s->room * 2 : 32;
        struct spool_segment *grown = reallocarray(s->segments, room, sizeof(*grown));
        if (!grown)
            return -ENOMEM;
        s->segments = grown;
        s->room = room;
    }
    s->segments[s->count++] = *segment;
    s->total_bytes += segment->bytes;
    return 0;
}

void spool_segment_remove(struct spool *s, size_t index)
{
    char name[SPOOL_SEGMENT_NAME_BYTES];
    spool_segment_name(s->segments[index].id, name);
    // A file that cannot be removed is looked at again by the next process.
    (void)unlinkat(s->directory, name, 0);
    s->total_bytes -= s->segments[index].bytes;
    s->count--;
    memmove(s->segments + index, s->segments + index + 1,
            (s->count - index) * sizeof(*s->segments));
}

static struct spool_segment *segment_find(struct spool *s, uint32_t id)
{
    size_t low = 0, high = s->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (s->segments[middle].id == id)
            return &s->segments[middle];
        if (s->segments[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static struct spool_segment *active_segment(struct spool *s)
{
    return s->active >= 0 ? &s->segments[s->count - 1] : NULL;
}

// --- Opening ---

// Each missing part of the path is made.
static int make_directory(const char *path)
{
    char part[4096];
    if (strlen(path) >= sizeof(part))
        return -ENAMETOOLONG;
    for (size_t i = 1;; i++) {
        bool is_end = path[i] == '\0';
        if (!is_end && path[i] != '/')
            continue;
        sv_copy(part, sizeof(part), (struct sv){path, i});
        if (mkdir(part, 0700) < 0 && errno != EEXIST && (is_end || errno != EROFS))
            return -errno;
        if (is_end)
            return 0;
    }
}

static int lock_directory(struct spool *s)
{
    s->lock = openat(s->directory, LOCK_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->lock < 0)
        return -errno;
    if (flock(s->lock, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    return 0;
}

static int mark_unclean(struct spool *s)
{
    int fd = openat(s->directory, UNCLEAN_NAME,
                    O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    s->was_unclean = fd < 0 && errno == EEXIST;
    // A full disk at start is no reason to leave what waits on it: sending empties it.
    if (fd < 0 && !s->was_unclean)
        return errno == ENOSPC || errno == EDQUOT ? 0 : -errno;
    fd_closep(&fd);
    return fsync(s->directory) < 0 ? -errno : 0;
}

static int open_parts(struct spool *s, const char *directory)
{
    int r = make_directory(directory);
    if (r < 0)
        return r;
    s->directory = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->directory < 0)
        return -errno;
    r = lock_directory(s);
    return r < 0 ? r : mark_unclean(s);
}

static void spool_discard(struct spool *s)
{
    fd_closep(&s->active);
    fd_closep(&s->other);
    fd_closep(&s->directory);
    fd_closep(&s->lock); // which unlocks
    free(s->segments);
    free(s);
}

int spool_open(const char *directory, uint64_t max_bytes, struct spool **out, struct error *err)
{
    struct spool *s = calloc(1, sizeof(*s));
    if (!s)
        return error_set(err, -ENOMEM, "out of memory");
    *s = (struct spool){.directory = -1, .lock = -1, .active = -1, .other = -1, .next_id = 1};
    s->max_bytes = max_bytes < LEAST_BYTES ? LEAST_BYTES : max_bytes;
    s->segment_bytes = s->max_bytes / SEGMENTS_IN_MAX;
    if (s->segment_bytes > LIMIT_SPOOL_SEGMENT_BYTES - SPOOL_RECORD_BYTES_MAX)
        s->segment_bytes = LIMIT_SPOOL_SEGMENT_BYTES - SPOOL_RECORD_BYTES_MAX;
    int r = open_parts(s, directory);
    if (r < 0) {
        spool_discard(s);
        if (r == -EBUSY)
            return error_set(err, r, "spool directory %s: another process has it", directory);
        return error_set(err, r, "spool directory %s: %s", directory, strerror(-r));
    }
    *out = s;
    return 0;
}

bool spool_was_unclean(const struct spool *s)
{
    return s->was_unclean;
}

uint64_t spool_file_bytes(const struct spool *s)
{
    return s->total_bytes;
}

// --- Appending ---

static void seal(struct spool *s)
{
    struct spool_segment *g = active_segment(s);
    if (!g)
        return;
    bool is_done_with = g->waiting == 0;
    fd_closep(&s->active);
    s->active = -1;
    if (is_done_with)
        spool_segment_remove(s, s->count - 1);
}

uint32_t spool_dropped(const struct spool *s)
{
    return s->dropped;
}

bool spool_drop_oldest(struct spool *s)
{
    if (s->count == 0)
        return false;
    if (s->count == 1 && s->active >= 0) {
        fd_closep(&s->active);
        s->active = -1;
    }
    s->dropped = s->segments[0].id;
    spool_segment_remove(s, 0);
    return true;
}

static int make_segment(struct spool *s)
{
    char name[SPOOL_SEGMENT_NAME_BYTES];
    if (s->next_id == UINT32_MAX)
        return -EOVERFLOW;
    spool_segment_name(s->next_id, name);
    int fd = openat(s->directory, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        int r = -errno;
        s->next_id += errno == EEXIST; // somebody else's: the next try takes another
        return r;
    }
    int r = fsync(s->directory) < 0
                ? -errno
                : spool_segment_add(s, &(struct spool_segment){.id = s->next_id});
    if (r < 0) {
        (void)unlinkat(s->directory, name, 0);
        fd_closep(&fd);
        return r;
    }
    s->next_id++;
    s->active = fd;
    return 0;
}

static int write_at(int fd, const char *bytes, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pwrite(fd, bytes, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        bytes += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

static void make_room(struct spool *s, size_t bytes)
{
    while (s->total_bytes + bytes > s->max_bytes || s->count == LIMIT_SPOOL_SEGMENTS)
        if (!spool_drop_oldest(s))
            return;
}

static int append(struct spool *s, char *record, size_t bytes, struct spool_ref *out)
{
    int r = s->active >= 0 ? 0 : make_segment(s);
    if (r < 0)
        return r;
    struct spool_segment *g = active_segment(s);
    assert(g);
    spool_record_seal(record, bytes, s->next_sequence);
    r = write_at(s->active, record, bytes, g->bytes);
    if (r < 0) {
        if (ftruncate(s->active, (off_t)g->bytes) < 0)
            seal(s);
        return r;
    }
    s->next_sequence++;
    *out = (struct spool_ref){g->id, (uint32_t)g->bytes, (uint32_t)bytes};
    g->bytes += bytes;
    g->waiting++;
    s->total_bytes += bytes;
    return 0;
}

int spool_append(struct spool *s, char *record, size_t bytes, struct spool_ref *out)
{
    assert(bytes > SPOOL_HEADER_BYTES && bytes <= SPOOL_RECORD_BYTES_MAX);
    struct spool_segment *g = active_segment(s);
    if (g && g->bytes + bytes > s->segment_bytes && g->bytes > 0)
        seal(s);
    make_room(s, bytes);
    int r = append(s, record, bytes, out);
    g = active_segment(s);
    if (r == 0 || !g || g->bytes == 0 || g->waiting > 0)
        return r;
    // On a full disk, records that are done with have the room for this one.
    seal(s);
    return append(s, record, bytes, out);
}

int spool_sync(struct spool *s)
{
    if (s->active < 0 || fdatasync(s->active) == 0)
        return 0;
    int r = -errno;
    // Which of its pages are on disk is not known any more.
    seal(s);
    return r;
}

// --- Reading and acknowledging ---

static int segment_fd(struct spool *s, uint32_t id)
{
    struct spool_segment *active = active_segment(s);
    if (active && active->id == id)
        return s->active;
    if (s->other >= 0 && s->other_id == id)
        return s->other;
    char name[SPOOL_SEGMENT_NAME_BYTES];
    spool_segment_name(id, name);
    fd_closep(&s->other);
    s->other = openat(s->directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    s->other_id = id;
    return s->other >= 0 ? s->other : -errno;
}

// 0, -EBADMSG at the end of the file, other negative errno.
static int read_at(int fd, char *out, size_t len, uint64_t offset)
{
    while (len > 0) {
        ssize_t n = pread(fd, out, len, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EBADMSG;
        out += n;
        len -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

static int write_acknowledgement(struct spool *s, const struct spool_ref *ref)
{
    char check[8], word[8];
    int fd = segment_fd(s, ref->segment);
    if (fd < 0)
        return fd;
    int r = read_at(fd, check, sizeof(check), (uint64_t)ref->offset + SPOOL_CHECK_OFFSET);
    if (r < 0)
        return r;
    spool_record_acknowledgement(check, word);
    return write_at(fd, word, sizeof(word), (uint64_t)ref->offset + SPOOL_ACK_OFFSET);
}

int spool_acknowledge(struct spool *s, const struct spool_ref *ref)
{
    struct spool_segment *g = segment_find(s, ref->segment);
    if (!g)
        return 0;
    assert(g->waiting > 0);
    g->waiting--;
    if (g->waiting == 0 && g != active_segment(s)) {
        spool_segment_remove(s, (size_t)(g - s->segments));
        return 0;
    }
    return write_acknowledgement(s, ref);
}

int spool_read(struct spool *s, const struct spool_ref *ref, char **out)
{
    struct spool_info info;
    if (!segment_find(s, ref->segment))
        return -ENOENT;
    int fd = segment_fd(s, ref->segment);
    if (fd < 0)
        return fd == -ENOENT ? -EBADMSG : fd; // somebody else removed it
    cleanup(mem_freep) char *record = malloc(ref->bytes);
    if (!record)
        return -ENOMEM;
    int r = read_at(fd, record, ref->bytes, ref->offset);
    if (r < 0)
        return r;
    if (!spool_record_is_whole((struct sv){record, ref->bytes}, &info))
        return -EBADMSG;
    *out = TAKE_PTR(record);
    return 0;
}

void spool_close(struct spool *s, bool in_order)
{
    if (!s)
        return;
    // The acknowledgements too.
    if (s->active >= 0 && fdatasync(s->active) < 0)
        in_order = false;
    seal(s);
    if (in_order && unlinkat(s->directory, UNCLEAN_NAME, 0) == 0)
        (void)fsync(s->directory);
    spool_discard(s);
}
