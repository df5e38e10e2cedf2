// SPDX-License-Identifier: Apache-2.0
// A watch on the fake libdcgm, and its SAMPLE frames as the exporter would read them.
#pragma once

#include "base/clock.h"
#include "fake_dcgm.h"
#include "source/dcgm_watch.h"
#include "source/dcgm_watch_plan.h"

#define S NS_PER_S
#define WATCH_ID 7

extern struct dcgm_devices devices;
extern struct dcgm_watch *watch;
extern struct frame frame; // the last SAMPLE
extern bool has_frame;     // the last read gave one
extern uint32_t calls;     // reads that it took
extern uint64_t now_ns;    // of the next read

int watch_setup(void **state); // DCGM 4; what is not watched has no value
int watch_setup_3(void **state);
int watch_teardown(void **state);
void renew_watch(void);
void walk(void);
dcgmReturn_t apply_set(const uint16_t *ids, uint32_t count, uint64_t gpus);
#define APPLY(...)                                                                                 \
    assert_int_equal(apply_set((const uint16_t[]){__VA_ARGS__},                                    \
                               ARRAY_SIZE(((const uint16_t[]){__VA_ARGS__})), UINT64_MAX),         \
                     DCGM_ST_OK)
dcgmReturn_t try_read(void);
void read_now(void);                                              // what is due
void read_later(void);                                            // all classes, ten minutes on
void tick(void);                                                  // the engine samples anew
const struct frame_record *find(uint32_t entity, uint16_t field); // NULL: none
int64_t i64_of(uint32_t entity, uint16_t field);
enum frame_status status_of(uint32_t entity, uint16_t field);
uint32_t place_of(int group, uint32_t id);
