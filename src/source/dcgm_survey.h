// SPDX-License-Identifier: Apache-2.0
// The next list of a DCGM engine's entities in the making, kind after kind.
#pragma once

#include "source/dcgm_devices.h"

struct dcgm_survey {
    struct dcgm *d;
    const struct dcgm_devices *old; // the list that is alive
    struct dcgm_entity *list;       // owned
    uint32_t count, capacity;
    uint32_t left_out; // over LIMIT_ENTITIES
    bool all;          // also what hardly ever changes is asked
    bool no_memory;    // the list is not whole
    bool no_mig;       // the engine does not tell of instances, for want of rights
    char driver_version[80];
};

// Each appends its kinds. 0, or what the engine as a whole said. What is refused for now stays as
// it was in the old list; what is refused for good is left out.
dcgmReturn_t dcgm_survey_gpus(struct dcgm_survey *b);     // instances too
dcgmReturn_t dcgm_survey_switches(struct dcgm_survey *b); // and links
dcgmReturn_t dcgm_survey_cpus(struct dcgm_survey *b);     // and cores

// --- between the survey's files ---

// A new entity of this kind, zeroed but for what says "none" and its own parent; NULL: no room.
struct dcgm_entity *dcgm_survey_add(struct dcgm_survey *b, int group, uint32_t id);
// Place in the list being made, UINT32_MAX: none.
uint32_t dcgm_survey_find(const struct dcgm_survey *b, int group, uint32_t id);
const struct dcgm_entity *dcgm_survey_known(const struct dcgm_survey *b, int group, uint32_t id);
// Takes over what the old list has of this group, as far as its parents are still there.
void dcgm_survey_keep(struct dcgm_survey *b, int group);
// The engine's MIG hierarchy, owned by the caller: without instances where the engine has or tells
// of none, NULL where they are to stay as they were.
dcgmReturn_t dcgm_survey_hierarchy(struct dcgm_survey *b, dcgmMigHierarchy_v2 **out);
// Appends the instances and compute instances of the GPU that was added last.
void dcgm_survey_instances(struct dcgm_survey *b, const dcgmMigHierarchy_v2 *hierarchy,
                           uint32_t gpu);
// Asks what is not in the hierarchy: minor numbers and slices of GPUs, profiles and UUIDs of
// instances.
dcgmReturn_t dcgm_survey_describe(struct dcgm_survey *b);

// True when the result speaks of the connection or the engine, not of what was asked.
bool dcgm_result_is_of_engine(dcgmReturn_t result);
// True when asking again later is as vain: what this engine, driver or node does not have.
bool dcgm_result_is_lack(dcgmReturn_t result);

// Ascending, for qsort.
int dcgm_compare_ids(const void *a, const void *b);
// A text of an answer; "" where it is one of DCGM's blanks ("<<<NULL>>>", "<<<NOT_SUPPORTED>>>").
struct sv dcgm_text(const char *text, size_t bytes);

// Engines, for tests too.
// "00000000:1B:00.0" from what an engine writes ("0000:1b:00.0"); other text as it is.
void dcgm_bus_id(char out[32], struct sv text);
// The instance's profile: the name where it is one ("1g.10gb", "1c.3g.20gb" in "3g.20gb"), else as
// nvml_mig_profile.
void dcgm_mig_profile(char out[32], const char *name, uint32_t slices, uint64_t memory_mib);
// Ids of cores whose bits are set, ascending, into out; returns how many.
uint32_t dcgm_cores(const uint64_t *bitmask, uint32_t words, uint32_t *out);
