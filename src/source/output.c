// SPDX-License-Identifier: Apache-2.0
// How it works: the queue is empty in the steady state, so a frame costs one send and no
// allocation. The first frame of the queue may be half sent and is then never dropped.
#include "source/output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void output_init(struct output *o, int fd)
{
    *o = (struct output){.fd = fd};
    (void)pthread_mutex_init(&o->lock, NULL);
}

void output_deinit(struct output *o)
{
    for (unsigned i = 0; i < o->count; i++)
        free(o->queue[i].bytes);
    o->count = 0;
    (void)pthread_mutex_destroy(&o->lock);
}

// Bytes taken by the socket, perhaps 0, or negative errno.
static ssize_t send_some(const struct output *o, const char *bytes, size_t len)
{
    ssize_t n;
    do
        n = send(o->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS ? 0 : -errno;
}

static void remove_at(struct output *o, unsigned at)
{
    o->bytes -= o->queue[at].len;
    free(o->queue[at].bytes);
    o->count--;
    memmove(&o->queue[at], &o->queue[at + 1], (o->count - at) * sizeof(o->queue[0]));
}

static bool is_superseded(const struct output *o, unsigned at)
{
    for (unsigned i = at + 1; i < o->count; i++)
        if (o->queue[i].type == o->queue[at].type)
            return true;
    return false;
}

// Frames that tell the whole: the last of its type makes those before it worthless.
static bool is_whole(enum frame_type type)
{
    return type == FRAME_STATE || type == FRAME_ENTITIES || type == FRAME_HEALTH ||
           type == FRAME_PEERS;
}

// The frame to give up for one of a type: the oldest sample; else the newest usage; else one that a
// later one replaces; else the oldest event. UINT_MAX: none. Usage takes the place of samples
// alone.
static unsigned find_victim(const struct output *o, enum frame_type for_type)
{
    unsigned first = o->sent ? 1 : 0, whole = ~0u, event = ~0u, usage = ~0u;
    for (unsigned i = first; i < o->count; i++) {
        enum frame_type type = o->queue[i].type;
        if (type == FRAME_SAMPLE)
            return i;
        if (type == FRAME_USAGE)
            usage = i;
        if (whole == ~0u && is_whole(type) && is_superseded(o, i))
            whole = i;
        if (event == ~0u && type == FRAME_EVENTS)
            event = i;
    }
    if (for_type == FRAME_USAGE)
        return ~0u;
    if (usage != ~0u)
        return usage;
    return whole != ~0u ? whole : event;
}

static void note_dropped(struct output *o, enum frame_type type)
{
    o->dropped++;
    o->usage_lost |= type == FRAME_USAGE;
}

// False: the frame is to be dropped itself.
static bool make_room(struct output *o, enum frame_type type, size_t len)
{
    while (o->count == OUTPUT_FRAMES_MAX || (o->count && o->bytes + len > OUTPUT_BYTES_MAX)) {
        unsigned victim = find_victim(o, type);
        if (victim == ~0u)
            return type != FRAME_USAGE && o->count < OUTPUT_FRAMES_MAX;
        note_dropped(o, o->queue[victim].type);
        remove_at(o, victim);
    }
    return true;
}

static void enqueue(struct output *o, enum frame_type type, const char *bytes, size_t len,
                    size_t sent)
{
    char *copy = make_room(o, type, len) ? malloc(len) : NULL;
    if (!copy && sent) {
        o->failed = -ENOMEM; // half a frame is out and the rest has no place: the stream is broken
        return;
    }
    if (!copy) {
        note_dropped(o, type);
        return;
    }
    memcpy(copy, bytes, len);
    o->queue[o->count++] = (struct output_frame){.bytes = copy, .len = len, .type = type};
    o->bytes += len;
    if (sent)
        o->sent = sent;
}

static int flush_locked(struct output *o)
{
    while (o->count && !o->failed) {
        ssize_t n = send_some(o, o->queue[0].bytes + o->sent, o->queue[0].len - o->sent);
        if (n < 0)
            o->failed = (int)n;
        if (n <= 0)
            break;
        o->sent += (size_t)n;
        if (o->sent == o->queue[0].len) {
            remove_at(o, 0);
            o->sent = 0;
        }
    }
    return o->failed;
}

static int send_locked(struct output *o, enum frame_type type, const struct buf *frame)
{
    if (flush_locked(o) < 0)
        return o->failed;
    if (frame->error) {
        o->dropped++;
        return 0;
    }
    ssize_t n = o->count ? 0 : send_some(o, frame->data, frame->len);
    if (n < 0)
        return o->failed = (int)n;
    if ((size_t)n < frame->len)
        enqueue(o, type, frame->data, frame->len, (size_t)n);
    return o->failed;
}

int output_send(struct output *o, enum frame_type type, const struct buf *frame)
{
    (void)pthread_mutex_lock(&o->lock);
    int rc = send_locked(o, type, frame);
    (void)pthread_mutex_unlock(&o->lock);
    return rc;
}

int output_flush(struct output *o)
{
    (void)pthread_mutex_lock(&o->lock);
    int rc = flush_locked(o);
    (void)pthread_mutex_unlock(&o->lock);
    return rc;
}

bool output_is_pending(struct output *o)
{
    (void)pthread_mutex_lock(&o->lock);
    bool pending = o->count > 0;
    (void)pthread_mutex_unlock(&o->lock);
    return pending;
}

uint64_t output_get_dropped(struct output *o)
{
    (void)pthread_mutex_lock(&o->lock);
    uint64_t dropped = o->dropped;
    (void)pthread_mutex_unlock(&o->lock);
    return dropped;
}

bool output_take_usage_lost(struct output *o)
{
    (void)pthread_mutex_lock(&o->lock);
    bool lost = o->usage_lost;
    o->usage_lost = false;
    (void)pthread_mutex_unlock(&o->lock);
    return lost;
}
