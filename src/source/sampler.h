// SPDX-License-Identifier: Apache-2.0
// What is watched, when it is due and the pass that reads it: one SAMPLE frame for all classes due
// at the same time. OK values are sent each time; any other status with the first sample after
// ENTITIES or WATCH and when it changes. A GPU that is slow has a slice of each pass, so that the
// others keep their period. What is final (not supported, no symbol, no permission) is asked again
// after a minute when it was there before, after ten in any case: drivers say such things in
// passing, too.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/clock.h"
#include "source/nvml_devices.h"
#include "source/nvml_field_values.h"
#include "source/nvml_fields.h"
#include "source/xid_board.h"

#define SAMPLER_NO_VALUE UINT16_MAX
#define SAMPLER_SLICE_NS (250 * NS_PER_MS) // of a pass, for one GPU
#define SAMPLER_ASKED_LEAST 3            // calls that must fail before a GPU is held not to answer
#define SAMPLER_AGAIN_NS (60 * NS_PER_S) // for what is final but was there before
#define SAMPLER_AGAIN_ALL_NS (600 * NS_PER_S) // for all that is final

struct sampler_row {                  // a watched field
    const struct nvml_recipe *recipe; // NULL: NVML has no such number
    uint16_t field;
    uint16_t value[2]; // places in the class's value list, or SAMPLER_NO_VALUE
};

struct sampler_state { // of a watched field of an entity
    uint8_t now;       // enum frame_status + 1; 0: never read
    uint8_t sent;      // the same, as the exporter knows it
    bool was_ok;       // since the list was made
    int32_t code;      // of FRAME_VENDOR_ERROR
};

struct sampler_value { // a field value to ask for
    uint16_t id;
    uint8_t expect;
    uint32_t scope;
};

struct sampler_place { // in a class
    uint32_t entity, row;
    uint8_t stage;
};

struct sampler_progress {     // of a GPU with its instances, in the GPU's place
    uint8_t pending;          // bit per class that is under way
    uint8_t turn;             // of calls
    uint16_t asked, answered; // calls since the fast class began
    struct sampler_place at[FIELD_CLASS_COUNT];
};

// The rows of a class are rows[first..first+count), calls of the same function side by side.
struct sampler_class {
    uint32_t first, count;
    struct sampler_value *values; // owned
    uint32_t value_count;
    uint64_t due_ns; // UINT64_MAX: nothing watched in it
};

struct sampler {
    // What a pass reads through.
    struct nvml *n;
    const struct nvml_system *system;
    struct nvml_devices *devices;
    struct nvml_field_values *field_values;
    struct xid_board *board;
    bool kmsg_armed;
    uint64_t slice_ns; // SAMPLER_SLICE_NS

    struct frame_watch watch;
    struct sampler_row *rows; // owned; by class, then getter, then argument
    uint32_t row_count;
    struct sampler_class classes[FIELD_CLASS_COUNT];
    struct sampler_state *states;      // owned; entity by entity, row by row
    struct sampler_progress *progress; // owned; by entity
    uint32_t state_entities;
    bool unfinished; // a GPU is in the middle of a class
    uint64_t again_ns, again_all_ns;
    uint64_t ripe_ns; // when GPM samples just begun can be used; UINT64_MAX: none wait

    struct buf records; // of the pass
    struct buf strings;
    struct buf frame;
    uint32_t record_count;
    bool walk_wanted;   // a MIG handle went bad
    bool state_changed; // a GPU was lost, needs a reset, fails or answers again
    bool suspect;       // a call failed as if the library or the driver were gone
};

static inline struct sampler_state *sampler_state_at(const struct sampler *s, uint32_t entity,
                                                     uint32_t row)
{
    return &s->states[(size_t)entity * s->row_count + row];
}

// --- sampler_plan.c ---
void sampler_init(struct sampler *s);
void sampler_deinit(struct sampler *s);
// A new watch: everything is due at once. 0 or -ENOMEM.
int must_use sampler_watch(struct sampler *s, const struct frame_watch *watch,
                           const uint16_t *field_ids, uint64_t now_ns);
// The entity list has changed: nothing is known of any value, everything is due at once. 0 or
// -ENOMEM.
int must_use sampler_reset(struct sampler *s, uint64_t now_ns);
// The entity list was sent again with the same entities: statuses are to be sent again, values are
// as they were.
void sampler_resend(struct sampler *s);
// When the next pass is due, 0 while a slow GPU is in the middle of a class. UINT64_MAX: nothing is
// watched.
uint64_t sampler_due_ns(const struct sampler *s);
uint64_t sampler_class_due_ns(const struct sampler *s); // the same, of a class
// Bits of the classes due, perhaps 0. Classes come back at multiples of their period on
// CLOCK_MONOTONIC.
unsigned sampler_take_due(struct sampler *s, uint64_t now_ns);
// --- sampler.c ---
// Reads the classes, and goes on with what is unfinished. Afterwards sampler_frame makes the SAMPLE
// frame of it.
void sampler_pass(struct sampler *s, unsigned classes);
// The frame of the last pass, borrowed until the next; without entities it is an empty one.
const struct buf *sampler_frame(struct sampler *s, unsigned classes, uint64_t started_ns,
                                uint32_t calls_before);
