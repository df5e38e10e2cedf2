// SPDX-License-Identifier: Apache-2.0
#include "source/dcgm_group.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "source/dcgm_call.h"

#define NAMES_TRIED 4
#define NAME_BYTES 64

// Unique in the engine, which clients of other containers and machines name things in, too.
static void next_name(struct dcgm *d, char *out)
{
    (void)snprintf(out, NAME_BYTES, "podgpu-%d-%" PRIx64 "-%u", (int)getpid(), clock_wall_ns(),
                   d->names++);
}

dcgmReturn_t dcgm_group_create(struct dcgm *d, dcgmGpuGrp_t *out)
{
    dcgmReturn_t result = DCGM_ST_DUPLICATE_KEY;
    for (unsigned i = 0; i < NAMES_TRIED && result == DCGM_ST_DUPLICATE_KEY; i++) {
        char name[NAME_BYTES];
        next_name(d, name);
        result = dcgm_call(d, dcgmGroupCreate, d->engine, DCGM_GROUP_EMPTY, name, out);
    }
    return result;
}

dcgmReturn_t dcgm_field_group_create(struct dcgm *d, const uint16_t *ids, uint32_t count,
                                     dcgmFieldGrp_t *out)
{
    dcgmReturn_t result = DCGM_ST_DUPLICATE_KEY;
    for (unsigned i = 0; i < NAMES_TRIED && result == DCGM_ST_DUPLICATE_KEY; i++) {
        char name[NAME_BYTES];
        next_name(d, name);
        result = dcgm_call(d, dcgmFieldGroupCreate, d->engine, (int)count, ids, name, out);
    }
    return result;
}

void dcgm_group_destroy(struct dcgm *d, dcgmGpuGrp_t group)
{
    if (!d->lost)
        (void)dcgm_call(d, dcgmGroupDestroy, d->engine, group);
}

void dcgm_field_group_destroy(struct dcgm *d, dcgmFieldGrp_t fields)
{
    if (!d->lost)
        (void)dcgm_call(d, dcgmFieldGroupDestroy, d->engine, fields);
}
