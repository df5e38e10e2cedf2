// SPDX-License-Identifier: Apache-2.0
// Streams and events. When a piece of work ends is known when it is queued: after what its stream
// has queued, and for a kernel after what other processes have claimed of the GPU. So an event's
// time is exact, and a wait is a sleep. What a piece of work has done to memory shows when somebody
// waits for it or asks.
#include "double.h"

#include <stdlib.h>
#include <time.h>

#define EVENT_MAGIC 0x43554556u

struct cuda_event {
    uint32_t magic;
    uint32_t flags;
    bool recorded;
    int64_t at_ns;
    struct cuda_stream *stream; // NULL: it's gone, with all that it had queued done
    uint32_t life;              // of the context at the time
    const struct cuda_context *context;
};

static struct cuda_stream *new_stream(struct cuda_context *x)
{
    struct cuda_stream *s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->context = x;
    s->life = x->life;
    s->next = x->streams;
    x->streams = s;
    return s;
}

// The default stream is the oldest: made first, it ends the list.
static struct cuda_stream *default_stream(struct cuda_context *x)
{
    if (!x->streams)
        return new_stream(x);
    struct cuda_stream *s = x->streams;
    while (s->next)
        s = s->next;
    return s;
}

struct cuda_stream *cuda_find_stream(const struct call *c, CUstream stream)
{
    cuda_lock();
    struct cuda_stream *s = default_stream(c->context);
    if ((uintptr_t)stream > 2) { // 1 and 2 name the default stream, too
        s = c->context->streams;
        while (s && s != stream)
            s = s->next;
    }
    cuda_unlock();
    return s;
}

void cuda_free_streams(struct cuda_context *context)
{
    while (context->streams) {
        struct cuda_stream *s = context->streams;
        context->streams = s->next;
        free(s);
    }
}

// --- Work and its end ---

static void apply(struct cuda_stream *s, const struct cuda_operation *o)
{
    switch (o->effect) {
    case CUDA_NOTHING:
        break;
    case CUDA_WRITE:
        cuda_write(o->device, o->host, o->bytes);
        break;
    case CUDA_READ:
        cuda_read(o->device, o->host, o->bytes);
        break;
    case CUDA_MOVE:
        cuda_move(o->device, o->other, o->bytes);
        break;
    case CUDA_FILL:
        cuda_fill(o->device, o->value, o->bytes / 4);
        break;
    case CUDA_KERNEL:
        cuda_kernel_effect(o);
        break;
    case CUDA_ILLEGAL:
        atomic_store(&s->context->broken, CUDA_ERROR_ILLEGAL_ADDRESS);
        break;
    }
}

static void tell_of_xid(struct sim_node *n, const struct cuda_context *x)
{
    cuda_lock_node();
    uint32_t at = atomic_load(&n->event_count);
    if (at < SIM_MAX_EVENTS) {
        n->events[at] = (struct sim_event){.at_ns = sim_now(n),
                                           .type = 8,
                                           .data = 31,
                                           .gpu = x->gpu,
                                           .gi = UINT32_MAX,
                                           .ci = UINT32_MAX,
                                           .flags = SIM_EVENT_NVML | SIM_EVENT_KMSG};
        atomic_store(&n->event_count, at + 1);
    }
    cuda_unlock_node();
    sim_event_wake(n);
}

// Applies what is done at t.
static void advance(struct sim_node *n, struct cuda_stream *s, int64_t t)
{
    bool illegal = false;
    cuda_lock();
    while (s->count > 0 && s->queue[s->first].end_ns <= t) {
        if (atomic_load(&s->context->broken) == 0) {
            apply(s, &s->queue[s->first]);
            illegal = illegal || s->queue[s->first].effect == CUDA_ILLEGAL;
        }
        s->first = (s->first + 1) % CUDA_MAX_QUEUE;
        s->count--;
    }
    cuda_unlock();
    if (illegal)
        tell_of_xid(n, s->context);
}

// Sleeps towards scenario time `until`; a held clock is looked at again soon.
static void sleep_towards(const struct sim_node *n, int64_t until)
{
    int64_t left = (int64_t)((sim_wide)(until - sim_now(n)) * SIM_PPM / (int64_t)n->rate_ppm);
    bool held = atomic_load(&n->frozen_ns) != INT64_MIN;
    int64_t most = held ? 2000000 : 20000000;
    left = left < 20000 ? 20000 : left > most ? most : left;
    struct timespec ts = {.tv_nsec = left};
    (void)nanosleep(&ts, NULL);
}

CUresult cuda_wait(const struct call *c, struct cuda_stream *s, int64_t until_ns)
{
    while (sim_now(c->node) < until_ns && atomic_load(&s->context->broken) == 0) {
        if (sim_gpu_return(c->node, s->context->gpu, c->t, sim_now(c->node)) != 0)
            return CUDA_ERROR_UNKNOWN;
        sleep_towards(c->node, until_ns);
    }
    advance(c->node, s, sim_now(c->node));
    return atomic_load(&s->context->broken);
}

CUresult cuda_queue(const struct call *c, struct cuda_stream *s, struct cuda_operation *o,
                    int64_t takes_ns, int kernel)
{
    if (s->count == CUDA_MAX_QUEUE) {
        CUresult code = cuda_wait(c, s, s->queue[s->first].end_ns);
        if (code != CUDA_SUCCESS)
            return code;
    }
    cuda_lock();
    int64_t begin;
    if (kernel) {
        cuda_lock_node();
        begin = sim_work_claim(c->node, s->context->work, s->tail_ns, takes_ns);
        cuda_unlock_node();
    } else {
        int64_t now = sim_now(c->node);
        begin = s->tail_ns > now ? s->tail_ns : now;
    }
    o->end_ns = s->tail_ns = begin + takes_ns;
    s->queue[(s->first + s->count++) % CUDA_MAX_QUEUE] = *o;
    cuda_unlock();
    return CUDA_SUCCESS;
}

// --- Streams ---

API(cuStreamCreate, CUstream *stream, unsigned int flags)
{
    CALL_CONTEXT();
    if (!stream || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    cuda_lock();
    (void)default_stream(c.context);
    *stream = new_stream(c.context);
    cuda_unlock();
    return *stream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// Work that is queued goes on; here its end is waited for.
static CUresult destroy_stream(const struct call *c, CUstream stream)
{
    struct cuda_stream *s = cuda_find_stream(c, stream);
    if (!s || (uintptr_t)stream <= 2)
        return CUDA_ERROR_INVALID_HANDLE;
    CUresult code = cuda_wait(c, s, s->tail_ns);
    cuda_lock();
    struct cuda_stream **link = &c->context->streams;
    while (*link != s)
        link = &(*link)->next;
    *link = s->next;
    free(s);
    cuda_unlock();
    return code;
}

API(cuStreamDestroy, CUstream stream)
{
    CALL_CONTEXT();
    return destroy_stream(&c, stream);
}

API(cuStreamDestroy_v2, CUstream stream)
{
    CALL_CONTEXT();
    return destroy_stream(&c, stream);
}

API(cuStreamSynchronize, CUstream stream)
{
    CALL_CONTEXT();
    struct cuda_stream *s = cuda_find_stream(&c, stream);
    return s ? cuda_wait(&c, s, s->tail_ns) : CUDA_ERROR_INVALID_HANDLE;
}

API(cuStreamQuery, CUstream stream)
{
    CALL_CONTEXT();
    struct cuda_stream *s = cuda_find_stream(&c, stream);
    if (!s)
        return CUDA_ERROR_INVALID_HANDLE;
    advance(c.node, s, c.t);
    int32_t broken = atomic_load(&c.context->broken);
    return broken != 0 ? broken : s->tail_ns <= c.t ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API(cuCtxSynchronize, void)
{
    CALL_CONTEXT();
    CUresult code = CUDA_SUCCESS;
    for (struct cuda_stream *s = c.context->streams; s && code == CUDA_SUCCESS; s = s->next)
        code = cuda_wait(&c, s, s->tail_ns);
    return code;
}

// --- Events ---

API(cuEventCreate, CUevent *event, unsigned int flags)
{
    CALL_CONTEXT();
    if (!event || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    *event = calloc(1, sizeof(**event));
    if (!*event)
        return CUDA_ERROR_OUT_OF_MEMORY;
    **event =
        (struct cuda_event){EVENT_MAGIC, flags, .context = c.context, .life = c.context->life};
    return CUDA_SUCCESS;
}

static bool event_is_good(const struct call *c, CUevent event)
{
    return event && event->magic == EVENT_MAGIC && event->context == c->context &&
           event->life == c->context->life;
}

static CUresult destroy_event(CUevent event)
{
    if (!event || event->magic != EVENT_MAGIC)
        return CUDA_ERROR_INVALID_HANDLE;
    event->magic = 0;
    free(event);
    return CUDA_SUCCESS;
}

API(cuEventDestroy, CUevent event)
{
    CALL_CONTEXT();
    return destroy_event(event);
}

API(cuEventDestroy_v2, CUevent event)
{
    CALL_CONTEXT();
    return destroy_event(event);
}

API(cuEventRecord, CUevent event, CUstream stream)
{
    CALL_CONTEXT();
    struct cuda_stream *s = cuda_find_stream(&c, stream);
    if (!s || !event_is_good(&c, event))
        return CUDA_ERROR_INVALID_HANDLE;
    int64_t now = sim_now(c.node);
    event->recorded = true;
    event->stream = s;
    event->at_ns = s->tail_ns > now ? s->tail_ns : now;
    return CUDA_SUCCESS;
}

// The stream of an event, NULL when it is destroyed and so done.
static struct cuda_stream *event_stream(const struct call *c, CUevent event)
{
    return event->stream ? cuda_find_stream(c, event->stream) : NULL;
}

API(cuEventSynchronize, CUevent event)
{
    CALL_CONTEXT();
    if (!event_is_good(&c, event))
        return CUDA_ERROR_INVALID_HANDLE;
    struct cuda_stream *s = event->recorded ? event_stream(&c, event) : NULL;
    return s ? cuda_wait(&c, s, event->at_ns) : CUDA_SUCCESS;
}

API(cuEventQuery, CUevent event)
{
    CALL_CONTEXT();
    if (!event_is_good(&c, event))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!event->recorded)
        return CUDA_SUCCESS;
    struct cuda_stream *s = event_stream(&c, event);
    if (s)
        advance(c.node, s, c.t);
    int32_t broken = atomic_load(&c.context->broken);
    return broken != 0 ? broken : event->at_ns <= c.t ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

API(cuEventElapsedTime, float *ms, CUevent start, CUevent end)
{
    CALL_CONTEXT();
    NEED(ms);
    if (!event_is_good(&c, start) || !event_is_good(&c, end) || !start->recorded ||
        !end->recorded || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_INVALID_HANDLE;
    if (start->at_ns > c.t || end->at_ns > c.t)
        return CUDA_ERROR_NOT_READY;
    *ms = (float)((double)(end->at_ns - start->at_ns) / 1e6);
    return CUDA_SUCCESS;
}
