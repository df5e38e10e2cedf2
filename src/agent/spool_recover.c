// SPDX-License-Identifier: Apache-2.0
// What an earlier process left: every segment is read once, oldest first, and each record's
// checksums are verified. Never follows a link, never touches what is not ours.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/spool_internal.h"
#include "base/limits.h"

struct search {
    struct spool *spool;
    int (*found)(void *user, const struct spool_ref *ref, const struct spool_info *info);
    void *user;
    struct spool_recovery *result;
    char *bytes; // of the segment being read
};

// Names that belong to the directory and are no segments.
static bool is_known(const char *name)
{
    return name[0] == '.' || strcmp(name, "lock") == 0 || strcmp(name, "unclean") == 0;
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

// The ids of all segments, rising, at most LIMIT_SPOOL_SEGMENTS. Their count, or negative errno.
static int list_segments(struct search *q, uint32_t *ids)
{
    int fd = openat(q->spool->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    DIR *d = fdopendir(fd);
    if (!d) {
        int r = -errno;
        fd_closep(&fd);
        return r;
    }
    int count = 0;
    for (struct dirent *e; (e = readdir(d));) {
        uint32_t id = spool_segment_id(e->d_name);
        if (id && id >= q->spool->next_id)
            q->spool->next_id = id < UINT32_MAX ? id + 1 : UINT32_MAX;
        if (id && count < LIMIT_SPOOL_SEGMENTS)
            ids[count++] = id;
        else if (!is_known(e->d_name))
            q->result->foreign++;
    }
    closedir(d);
    qsort(ids, (size_t)count, sizeof(*ids), compare_ids);
    return count;
}

// The bytes of a segment into q->bytes, and its descriptor. Their count; -EMEDIUMTYPE: not a
// segment of ours; other negative errno.
static int64_t read_segment(struct search *q, uint32_t id, int *out_fd)
{
    char name[SPOOL_SEGMENT_NAME_BYTES];
    struct stat st;
    spool_segment_name(id, name);
    cleanup(fd_closep) int fd =
        openat(q->spool->directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return errno == ELOOP || errno == EISDIR || errno == ENXIO ? -EMEDIUMTYPE : -errno;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_size > LIMIT_SPOOL_SEGMENT_BYTES)
        return -EMEDIUMTYPE;
    int64_t len = 0;
    while (len < st.st_size) {
        ssize_t n = pread(fd, q->bytes + len, (size_t)(st.st_size - len), len);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n == 0)
            break;
        len += n > 0 ? n : 0;
    }
    *out_fd = TAKE_FD(fd);
    return len;
}

static int count_record(struct search *q, const struct spool_ref *ref, const struct spool_info *i)
{
    int r = q->found(q->user, ref, i);
    if (r < 0)
        return r;
    q->result->records++;
    q->result->events += i->events;
    q->result->samples += i->samples;
    return 0;
}

static void count_corrupt(struct search *q, const struct spool_info *i)
{
    q->result->corrupt_records++;
    q->result->corrupt_events += i->events;
    q->result->corrupt_samples += i->samples;
}

// Counts what was found; *segment learns of it. 0, negative errno of found.
static int take(struct search *q, enum spool_found what, size_t at, const struct spool_info *i,
                struct spool_segment *segment)
{
    switch (what) {
    case SPOOL_FOUND_RECORD:
        if (i->sequence >= q->spool->next_sequence)
            q->spool->next_sequence = i->sequence + 1;
        if (i->is_acknowledged)
            return 0;
        segment->waiting++;
        return count_record(q, &(struct spool_ref){segment->id, (uint32_t)at, i->bytes}, i);
    case SPOOL_FOUND_CORRUPT:
        if (!i->is_acknowledged)
            count_corrupt(q, i);
        return 0;
    case SPOOL_FOUND_TORN:
        q->result->torn_bytes += segment->bytes - at;
        if (i->bytes)
            count_corrupt(q, i);
        segment->bytes = at;
        return 0;
    case SPOOL_FOUND_DAMAGED:
    case SPOOL_FOUND_NEWER:
        q->result->damaged++;
        return 0;
    case SPOOL_FOUND_END:
        return 0;
    }
    return 0;
}

// Looks through the bytes. 0; -EMEDIUMTYPE: of another version; negative errno.
static int look_through(struct search *q, struct spool_segment *segment)
{
    struct spool_scan scan = {.bytes = {q->bytes, segment->bytes}};
    struct spool_info info;
    enum spool_found what;
    size_t at;
    while ((what = spool_scan_next(&scan, &at, &info)) != SPOOL_FOUND_END) {
        if (what == SPOOL_FOUND_NEWER && at == 0)
            return -EMEDIUMTYPE;
        int r = take(q, what, at, &info, segment);
        if (r < 0)
            return r;
    }
    return 0;
}

static int recover_segment(struct search *q, uint32_t id)
{
    cleanup(fd_closep) int fd = -1;
    struct spool_segment segment = {.id = id};
    int64_t bytes = read_segment(q, id, &fd);
    if (bytes < 0)
        return (int)bytes;
    segment.bytes = (uint64_t)bytes;
    int r = look_through(q, &segment);
    if (r == -EMEDIUMTYPE)
        return r;
    if (r < 0)
        segment.waiting++; // what was not looked at waits for the next process
    if (segment.bytes < (uint64_t)bytes && ftruncate(fd, (off_t)segment.bytes) < 0)
        segment.bytes = (uint64_t)bytes;
    int added = spool_segment_add(q->spool, &segment);
    if (added == 0 && segment.waiting == 0)
        spool_segment_remove(q->spool, q->spool->count - 1);
    return r < 0 ? r : added;
}

static int recover_all(struct search *q, uint32_t *ids)
{
    int count = list_segments(q, ids);
    if (count < 0)
        return count;
    for (int i = 0; i < count; i++) {
        int r = recover_segment(q, ids[i]);
        if (r == -ENOMEM || r == -E2BIG)
            return r;
        if (r < 0)
            q->result->foreign++; // one that cannot be read does not hide the others
    }
    return 0;
}

int spool_recover(struct spool *s,
                  int (*found)(void *user, const struct spool_ref *ref,
                               const struct spool_info *info),
                  void *user, struct spool_recovery *out)
{
    *out = (struct spool_recovery){0};
    cleanup(mem_freep) char *bytes = malloc(LIMIT_SPOOL_SEGMENT_BYTES);
    cleanup(mem_freep) uint32_t *ids = calloc(LIMIT_SPOOL_SEGMENTS, sizeof(*ids));
    if (!bytes || !ids)
        return -ENOMEM;
    struct search q = {.spool = s, .found = found, .user = user, .result = out, .bytes = bytes};
    return recover_all(&q, ids);
}
