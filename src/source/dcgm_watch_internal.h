// SPDX-License-Identifier: Apache-2.0
// Shared by dcgm_watch*.c.
#pragma once

#include "source/dcgm_call.h"
#include "source/dcgm_group.h"
#include "source/dcgm_value.h"
#include "source/dcgm_watch.h"
#include "source/dcgm_watch_plan.h"

struct watch_cell { // a field of an entity
    int64_t stamp;  // of the value last seen, as the engine says; 0: none yet
    uint64_t taken_ns;
    int32_t code; // of FRAME_VENDOR_ERROR
    uint8_t now;  // enum frame_status + 1; 0: never read
    uint8_t sent; // the same, as the exporter knows it
    bool settled; // it is not read: now says why
};

struct dcgm_watch {
    struct dcgm *d;
    struct dcgm_devices *v;

    // The last set.
    struct frame_watch wanted;
    uint16_t *wanted_ids; // owned
    uint32_t wanted_count;

    // What was applied.
    struct frame_watch watch;
    uint32_t generation; // of the devices
    bool applied;
    struct watch_field *fields; // owned
    uint32_t field_count;
    struct dcgm_profiling profiling;
    struct watch_plan plan;
    struct watch_cell *cells;           // owned; plan.cell_count
    uint64_t due_ns[FIELD_CLASS_COUNT]; // UINT64_MAX: nothing of the class is wanted

    // What was refused is asked for again; UINT64_MAX: nothing was.
    uint64_t retry_ns; // the next of these times, by enum watch_again
    uint64_t again_ns[3];
    uint64_t early_until_ns; // values may come with the next read, whatever the period
    uint64_t again_wait_ns;  // before that for what is not watched at all; it doubles
    bool paused;
    // Fields that the library knows and the engine does not: it is the older of the two.
    uint64_t unknown[(UINT16_MAX + 1) / 64];
    bool replan;                 // there are more of them
    bool unwatched;              // since all that is made was watched
    bool unsent;                 // a cell's status may have to be told
    dcgmReturn_t profiling_code; // why profiling is not to be had on some GPU
    dcgmReturn_t told_code;      // as logged
    bool cut;                    // of the frame at hand: something did not fit

    struct buf records, strings, frame;
    uint32_t record_count;
};

// --- dcgm_watch.c ---
// Asks again for what was refused, when that is due.
dcgmReturn_t dcgm_watch_retry(struct dcgm_watch *w, uint64_t now_ns);
// Whether a result speaks of the engine or the connection, not of what was asked.
bool dcgm_watch_is_of_engine(const struct dcgm_watch *w, dcgmReturn_t result);
struct watch_input dcgm_watch_input(const struct dcgm_watch *w);
// Place of a field among its kind's rows, WATCH_NONE: it is none of them.
uint32_t dcgm_watch_row_of(const struct dcgm_watch *w, unsigned kind, uint16_t field);

// --- dcgm_watch_make.c ---
// Unwatches and destroys what the plan has made, until the engine is gone.
void dcgm_watch_take_down(struct dcgm_watch *w, struct watch_plan *plan);
// Makes what the plan has not made yet and watches it.
dcgmReturn_t dcgm_watch_make(struct dcgm_watch *w);
// Asks again for what was refused: all of it, or what may pass by itself.
// Of what was refused: what is not watched at all; what belongs to somebody who may let go; all.
enum watch_again { WATCH_AGAIN_UNMADE, WATCH_AGAIN_HELD, WATCH_AGAIN_ALL };
dcgmReturn_t dcgm_watch_make_again(struct dcgm_watch *w, enum watch_again which);
// dcgmWatchFields with the pair's period.
dcgmReturn_t dcgm_watch_ask(struct dcgm_watch *w, const struct watch_pair *pair, dcgmGpuGrp_t group,
                            dcgmFieldGrp_t fields);

// --- dcgm_watch_refine.c ---
// Finds out which fields of a group that the engine refuses it does not know.
dcgmReturn_t dcgm_watch_find_unknown(struct dcgm_watch *w, const struct watch_field_group *f);
// Finds out what of a refused pair is to be had and watches that; what is not gets its status.
dcgmReturn_t dcgm_watch_refine(struct dcgm_watch *w, struct watch_pair *pair);
// Cells of the pair's entities and fields: they are not read, and the result says why; or, with
// DCGM_ST_OK, they are read.
void dcgm_watch_settle(struct dcgm_watch *w, const struct watch_pair *pair, dcgmReturn_t result);
void dcgm_watch_settle_cell(struct dcgm_watch *w, uint32_t entity, uint16_t field,
                            dcgmReturn_t result);
