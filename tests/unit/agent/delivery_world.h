// SPDX-License-Identifier: Apache-2.0
// A world for the delivery without time and network of its own: a loop in virtual time, disk jobs
// that take as long as the test says, and a log service that answers as the test says and remembers
// what it took. Link with -Wl,--wrap of clock_wall_ns, clock_jitter_ns, pwrite64, fdatasync
// and fsync.
#pragma once

#include "agent/delivery_internal.h"

#define WORLD_EVENTS_MAX 200000u
#define WORLD_START_WALL_NS (UINT64_C(1767323045) * 1000000000)

struct request { // as the service saw it
    uint64_t at_ns;
    char group[64], stream[64];
    uint32_t *ids; // of its events, as make_event wrote them
    uint64_t samples;
    size_t count;
    int64_t first_ms, last_ms;
    bool was_backlog, live_waited;
    struct logs_result result;
    bool is_taken; // the events counted as seen, whatever the answer said
    uint64_t answer_after_ns;
};

struct world {
    struct loop *loop;
    struct aws_logs *logs;
    struct delivery *delivery;
    char directory[64];
    // What the next request gets: *r comes as delivered, taken, after 20 ms.
    void (*answer)(struct request *r);
    uint64_t job_ns;       // a disk job takes
    int disk_error;        // errno of every write to the disk; 0: it works
    int sync_error;        // of fdatasync
    unsigned job_refusals; // so many jobs cannot be started
    bool keeps_requests;
    struct request *requests; // those kept
    size_t request_count;
    size_t puts; // all
    unsigned in_flight, most_in_flight;
    uint8_t *seen; // by id: how often taken
    uint32_t next_id;
    unsigned drained;
    uint64_t wall_offset_ns;
    uint64_t random;
    unsigned jobs;
};
extern struct world world;

void world_start(void); // with a new directory; before the first delivery
void world_stop(void);
// A delivery on the world's directory ("" none) with a flush a second. NULL options: those.
void world_open(const char *directory);
struct delivery_options world_options(const char *directory);
void world_close(void);
void world_kill(const char *snapshot); // copies the directory, then lets go of everything
uint64_t world_random(uint64_t below);
// One event of one or more samples; its text begins with its id.
uint32_t world_add(const char *stream, int64_t age_ms, unsigned samples, size_t bytes);
void world_run(uint64_t ns); // by so much virtual time
bool world_step(void);       // the next thing that happens; false: nothing
bool world_run_until(bool (*is_so)(void), uint64_t ns); // at most ns
bool world_is_quiet(void);                              // nothing waits
void world_check(void); // the accounts, against a count of everything that is there
struct delivery_stats world_stats(void);
uint64_t world_lost(void); // events, for all reasons
