// SPDX-License-Identifier: Apache-2.0
// What the files of source_process share: source_process.c (start, restart, failures),
// source_watch.c (the watchdog), source_probe.c (asking a skipped GPU again), source_config.c
// (times and copies).
#pragma once

#include "base/buf.h"
#include "exporter/source_blame.h"
#include "exporter/source_helper.h"
#include "exporter/source_process.h"
#include "exporter/source_skips.h"

struct slot {
    struct source_process *owner;
    struct source_helper *helper; // NULL: not in use
    uint64_t started_ns;
    uint64_t progress_ns; // last frame, or last time the count of calls was seen to move
    uint32_t calls;
    uint64_t beat_ns; // last sign that its loop turns
    uint32_t turns;
    bool killed;
    bool after_hang; // successor of a hung helper
    bool ready;      // its driver answers
    bool sampled;
    uint32_t entities;
    // A probe keeps what it said until it takes over
    uint32_t probed; // NVML index
    struct frame_state state;
    struct frame_entities list_head;
    struct frame_entity *list;
};

struct source_process {
    struct loop *loop;
    struct source_process_config config; // strings owned
    struct loop_timer *watchdog;
    struct loop_timer *restart;
    struct slot slots[LIMIT_HELPERS];
    struct slot *active; // or NULL
    struct slot *probe;  // or NULL
    struct source_skips skips;
    char bus_ids[LIMIT_GPUS][SOURCE_BUS_ID_BYTES]; // by NVML index, as last told
    struct source_blame blame;
    uint64_t kmsg_seq;   // of the last record of the kernel log that a helper has told
    uint64_t looked_ns;  // when the watchdog ran last
    uint64_t watched_ns; // since when it has run without a gap
    struct buf watch;    // encoded
    uint64_t silence_ns; // of a helper with GPUs to sample; 0: it may be silent
    unsigned failures;   // in a row
    bool last_hung;      // the next helper follows one that hung
    uint64_t no_room_ns; // since when a start waits for a dying helper, 0 not
    bool no_room_told;
    struct source_process_stats stats;
    unsigned depth; // calls out on the stack
    bool freed;
};

// source_process.c
int must_use source_spawn(struct source_process *s, uint32_t probed, struct slot **out,
                          struct error *err);
size_t source_slots_used(const struct source_process *s);
void source_slot_kill(struct source_process *s, struct slot *slot);
// Its process hung, or broke the protocol: what follows from that.
void source_hang(struct source_process *s, struct slot *slot, const struct source_call *found);
void source_broken(struct source_process *s, struct slot *slot, const char *what);
// Calls out. False when the object is gone.
bool source_leave(struct source_process *s);
bool source_tell_down(struct source_process *s, const char *reason, const struct source_call *call,
                      bool driver_hung);
bool source_tell_frame(struct source_process *s, const struct frame *frame);

// source_watch.c
void source_on_watchdog(void *user);
uint64_t source_watched_since(const struct source_process *s, uint64_t then_ns, uint64_t now_ns);
void source_check(struct source_process *s, struct slot *slot, uint64_t now_ns);

// source_probe.c
// What a probe says is kept back until it has sampled. True: the frame is to be passed on.
bool source_probe_frame(struct source_process *s, struct slot *slot, const struct frame *frame);
void source_probe_failed(struct source_process *s, uint32_t index, const char *reason);
void source_probe_check(struct source_process *s, uint64_t now_ns);
void source_probe_start(struct source_process *s, uint64_t now_ns);

// source_config.c
int must_use source_copy_config(struct source_process *s,
                                const struct source_process_config *config);
void source_free_config(struct source_process *s);
// How long a helper with GPUs may say nothing; 0: for ever.
uint64_t source_silence_of(const struct source_process *s, const struct frame_watch *watch,
                           const uint16_t *field_ids);
