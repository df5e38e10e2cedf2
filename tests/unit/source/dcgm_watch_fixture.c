// SPDX-License-Identifier: Apache-2.0
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dcgm_watch_fixture.h"
#include "sample_frame.h"

struct dcgm_devices devices;
struct dcgm_watch *watch;
static struct frame_reader reader; // holds frame
struct frame frame;                // the last SAMPLE, as the exporter would read it
bool has_frame;
uint32_t calls; // reads that the last SAMPLE took
uint64_t now_ns;

void renew_watch(void)
{
    dcgm_watch_free(watch);
    assert_int_equal(dcgm_watch_new(&fake_dcgm.d, &devices, &watch), 0);
}

static int setup_major(unsigned major)
{
    fake_dcgm_reset(major);
    fake_dcgm.needs_watch = true;
    fake_dcgm.now_us = (int64_t)(clock_wall_ns() / NS_PER_US);
    devices = (struct dcgm_devices){0};
    watch = NULL;
    has_frame = false;
    renew_watch();
    now_ns = clock_mono_ns();
    return 0;
}

int watch_setup(void **state)
{
    return setup_major(4);
}

int watch_teardown(void **state)
{
    dcgm_watch_free(watch);
    dcgm_devices_deinit(&devices);
    frame_reader_deinit(&reader);
    frame_reader_init(&reader);
    return 0;
}

void walk(void)
{
    bool changed;
    assert_int_equal(dcgm_devices_walk(&fake_dcgm.d, &devices, &changed), DCGM_ST_OK);
}

dcgmReturn_t apply_set(const uint16_t *ids, uint32_t count, uint64_t gpus)
{
    struct frame_watch w = {.watch_id = WATCH_ID,
                            .count = count,
                            .period_ns = {S, 10 * S, 30 * S, 600 * S},
                            .gpus = gpus};
    if (dcgm_watch_set(watch, &w, ids) < 0)
        return DCGM_ST_MEMORY;
    return dcgm_watch_apply(watch);
}

dcgmReturn_t try_read(void)
{
    const struct buf *b = NULL;
    unsigned before = fake_dcgm.call.dcgmGetLatestValues_v2.calls;
    dcgmReturn_t result = dcgm_watch_read(watch, now_ns, &b);
    calls = fake_dcgm.call.dcgmGetLatestValues_v2.calls - before;
    has_frame = b != NULL;
    if (b)
        read_sample_frame(b, devices.generation, devices.count, &reader, &frame);
    return result;
}

// What is due now.
void read_now(void)
{
    now_ns = clock_mono_ns();
    assert_int_equal(try_read(), DCGM_ST_OK);
}

// All classes, some time later.
void read_later(void)
{
    now_ns += 600 * S;
    assert_int_equal(try_read(), DCGM_ST_OK);
    assert_true(has_frame);
}

// As after a while on the engine's clock, too.
void tick(void)
{
    fake_dcgm.now_us += 1000;
    for (unsigned i = 0; i < fake_dcgm.value_count; i++)
        if (fake_dcgm.values[i].ts)
            fake_dcgm.values[i].ts = fake_dcgm.now_us;
}

const struct frame_record *find(uint32_t entity, uint16_t field)
{
    const struct frame_record *found = NULL;
    for (uint32_t i = 0; i < frame.as.sample.head->count; i++)
        if (frame.as.sample.list[i].entity == entity && frame.as.sample.list[i].field == field) {
            assert_null(found); // one record a field
            found = &frame.as.sample.list[i];
        }
    return found;
}

int64_t i64_of(uint32_t entity, uint16_t field)
{
    const struct frame_record *r = find(entity, field);
    assert_non_null(r);
    assert_int_equal(r->status, FRAME_OK);
    assert_int_equal(r->type, FRAME_VALUE_I64);
    return r->value.i64;
}

enum frame_status status_of(uint32_t entity, uint16_t field)
{
    const struct frame_record *r = find(entity, field);
    assert_non_null(r);
    return (enum frame_status)r->status;
}

uint32_t place_of(int group, uint32_t id)
{
    uint32_t place = dcgm_devices_find(&devices, group, id);
    assert_int_not_equal(place, UINT32_MAX);
    return place;
}

int watch_setup_3(void **state)
{
    return setup_major(3);
}
