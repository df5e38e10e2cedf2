// SPDX-License-Identifier: Apache-2.0
// What the files of the delivery share: delivery.c (the contract, flushing, what comes back from
// the disk, the end), delivery_batch.c (streams, gathering, queues), delivery_disk.c (the one disk
// job at a time), delivery_send.c (whose turn it is, requests and their outcomes).
//
// A batch has one owner at any time: the queue of batches to be spooled, a disk job, its stream's
// live queue, its stream's backlog queue, a flight, or the queue of batches to be acknowledged.
#pragma once

#include <pthread.h>

#include "agent/delivery.h"
#include "agent/spool.h"
#include "base/map.h"

struct batch {
    struct batch *next; // in its queue
    struct stream *stream;
    char *record;         // as spool_record.h has it; NULL: on disk alone
    struct spool_ref ref; // segment 0: in memory alone; bytes always hold
    uint32_t events;
    uint32_t done_events; // from the front: delivered or lost
    uint32_t maybe_to;    // up to this one they may have been taken, though no good answer came
    uint64_t samples;     // of those that are left
    uint64_t order;       // of age
    int64_t first_ms, last_ms;
    bool is_backlog; // of an earlier process, its first try failed, or it waited through an outage
    bool was_tried;  // by this process
    bool is_loading; // a disk job reads it
    bool is_dropped; // its segment is gone while it was in flight
};

struct queue { // of batches, by order
    struct batch *first, *last;
};

struct stream {
    struct stream *next;
    struct delivery *delivery;
    char *key; // "group\0stream"
    size_t group_bytes, stream_bytes;
    struct buf gather; // a record in the making; empty: none
    struct spool_info gathered;
    uint32_t gathered_bytes; // as PutLogEvents counts them
    bool is_unsorted;
    struct queue live, backlog;
    struct flight *flight;
    size_t acknowledging; // its batches that are done with, until the disk knows
    size_t batches;       // wherever they are
    uint64_t not_before_ns;
    unsigned attempts; // that failed since the last that did not
};

#define DELIVERY_FLIGHTS 8         // requests at a time
#define DELIVERY_BACKLOG_FLIGHTS 4 // of them with backlog
#define DELIVERY_LOADS 4           // batches of backlog read ahead
#define DELIVERY_SPLITS 16         // 10,000 events are halved 14 times

struct flight { // a batch whose turn it is; free: batch NULL
    struct stream *stream;
    struct batch *batch;
    struct logs_call *call; // NULL: waits for its turn to send its next part
    // The next part ends before event ends[depth - 1], the one behind it before ends[depth - 2] ...
    uint32_t ends[DELIVERY_SPLITS];
    unsigned depth;
};

struct disk_load {
    struct batch *batch;
    char *record;
    int result;
};

enum disk_state { DISK_IDLE, DISK_QUEUED, DISK_RUNNING, DISK_WORKED };

// The worker's side. While a job is queued or runs, everything here but what the mutex guards is
// the job's; the batches in it too.
struct disk {
    pthread_mutex_t mutex;
    pthread_cond_t worked;
    enum disk_state state; // guarded by mutex
    bool is_abandoned;     // its delivery is gone: the loop's callback frees it; loop's own
    struct delivery *delivery;
    struct spool *spool;
    bool is_recovering; // the first job: nothing else in it
    struct queue append, failed, done;
    struct disk_load loads[DELIVERY_LOADS];
    size_t load_count;
    int error;             // of the first append that failed
    int acknowledge_error; // of the last
    struct spool_recovery recovery;
    int recovery_result;
    struct stream *recovered;
    struct map recovered_map;
    size_t recovered_batches;
};

struct delivery {
    struct loop *loop;
    struct aws_logs *logs;
    uint64_t flush_ns, max_age_ms;
    void (*drained)(void *user);
    void *user;
    struct loop_timer *flush, *wake, *drain;
    struct map stream_map;
    struct stream *streams, *last_added;
    uint64_t gathered_bytes; // of all records in the making
    uint64_t memory_bytes;   // of batches in memory alone
    uint64_t loaded_bytes;   // of batches in live queues that are on disk too
    uint64_t next_order;

    struct disk *disk; // NULL: memory alone
    bool is_job_running;
    struct queue unspooled, done;
    bool is_disk_failing;
    unsigned disk_attempts;
    uint64_t disk_retry_ns;
    uint32_t dropped; // segments up to this one

    struct flight flights[DELIVERY_FLIGHTS];
    unsigned flight_count, backlog_flights;
    unsigned window; // how many flights now: fewer after throttling
    bool last_was_backlog;
    uint64_t gate_ns; // nothing is sent before
    unsigned throttles, holds;
    bool is_held; // credentials: one request at a time asks whether they are good again

    bool is_draining, is_closing;
    struct delivery_stats stats;
    char last_error[512];
};

// --- delivery_batch.c ---

void queue_push(struct queue *q, struct batch *b);
struct batch *queue_pop(struct queue *q);
void queue_insert(struct queue *q, struct batch *b);    // by order
void queue_remove(struct queue *q, struct batch *b);    // which is in it
void queue_append(struct queue *q, struct queue *more); // which is empty afterwards

// A stream that no delivery knows yet; NULL: no memory.
struct stream *stream_new(struct sv group, struct sv stream);
void stream_free(struct stream *s); // with the batches in its queues
// Makes it when it is missing. NULL: no memory, or LIMIT_DELIVERY_STREAMS.
struct stream *stream_get(struct delivery *d, struct sv group, struct sv stream);
int must_use stream_key(struct sv group, struct sv stream, char *out, struct sv *key);
void streams_sweep(struct delivery *d); // those without anything go
// Adds to the record in the making. False: counted as lost.
bool stream_gather(struct stream *s, const struct delivery_event *e);
// The record in the making, if any, becomes a batch to be spooled.
void stream_close(struct stream *s);

// The rest of a batch is lost.
void batch_lose(struct batch *b, enum delivery_loss why);
// Its next events are delivered or lost.
void batch_settle(struct batch *b, uint32_t events, uint64_t samples,
                  const enum delivery_loss *why);
// It is done with: acknowledged on disk when it is there.
void batch_finish(struct batch *b);
void batch_free(struct batch *b);
// To where it waits for its turn: live, backlog, or to be spooled first.
void batch_enqueue(struct batch *b);
void batch_unload(struct batch *b); // keeps it on disk alone
bool batch_is_old(const struct batch *b);
void lose_event(struct delivery *d, unsigned samples, enum delivery_loss why);
// The oldest of all that nobody works on; memory_only: of those in memory alone. False: none.
bool delivery_drop_oldest(struct delivery *d, bool memory_only);
void delivery_keep_memory(struct delivery *d); // within its limit: the oldest go

// --- delivery_disk.c ---

int must_use disk_new(struct delivery *d, const char *directory, uint64_t max_bytes,
                      struct error *err);
void disk_start(struct delivery *d); // a job, when there is work and none runs
// What was kept in memory while the disk failed is to be spooled after all.
void disk_collect_memory(struct delivery *d);
// Waits for the job, writes what is left, closes. What could not be written is lost.
void disk_close(struct delivery *d);
bool disk_is_idle(const struct delivery *d);   // nothing to acknowledge, no job
void delivery_disk_worked(struct delivery *d); // delivery.c: takes over what the job has done

// --- delivery_send.c ---

void delivery_pump(struct delivery *d);           // sends as much as may be sent now
void delivery_cancel_flights(struct delivery *d); // their batches wait again
