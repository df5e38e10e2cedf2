// SPDX-License-Identifier: Apache-2.0
// libdcgm behind the table of the source room, with every answer settable. It is strict where the
// library is: version words, and ids that it does not know.
#pragma once

#include "source/dcgm_library.h"

#define FAKE_DCGM_GPUS 8
#define FAKE_DCGM_VALUES 512
#define FAKE_DCGM_GROUPS 64

// A value of one entity, for live and cached reads alike.
struct fake_dcgm_value {
    int group;
    unsigned id;
    unsigned short field;
    int64_t ts; // microseconds since 1970
    int status;
    unsigned short type; // DCGM_FT_*
    int64_t i64;
    double dbl;
    const char *text;
};

struct fake_dcgm_gpu {
    unsigned id;
    int status;          // DcgmEntityStatus*
    dcgmReturn_t result; // of dcgmGetDeviceAttributes
    const char *uuid, *name, *bus_id;
    bool mig;
};

struct fake_dcgm_group {
    bool alive;
    unsigned count;
    dcgmGroupEntityPair_t pairs[2048];
};

struct fake_dcgm_fields {
    bool alive;
    unsigned count;
    unsigned short ids[DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP];
};

struct fake_dcgm_watch {
    bool alive;
    dcgmGpuGrp_t group;
    dcgmFieldGrp_t fields;
    long long period_us;
    double keep_age_s;
    int keep_samples;
};

struct fake_dcgm_call { // what one function answers, and how often it was called
    dcgmReturn_t result;
    unsigned calls;
};

struct fake_dcgm {
    struct dcgm d;
    struct frame_call_page page;
    // Results and counts by member, as fake_dcgm.call.dcgmHealthCheck.result.
    struct {
#define FAKE_DCGM_CALL(member, ...) struct fake_dcgm_call member;
        DCGM_FUNCTIONS(FAKE_DCGM_CALL)
#undef FAKE_DCGM_CALL
    } call;
    unsigned gpus;
    struct fake_dcgm_gpu gpu[FAKE_DCGM_GPUS];
    unsigned value_count;
    struct fake_dcgm_value values[FAKE_DCGM_VALUES];
    dcgmMigHierarchy_v2 hierarchy;
    unsigned switches;
    unsigned switch_ids[64];
    unsigned links_version; // of dcgmNvLinkStatus that is taken, 0: the newest of the major
    unsigned char gpu_link[FAKE_DCGM_GPUS][36]; // states, by place in gpu[]
    unsigned char switch_link[64][256];         // by place in switch_ids[]
    dcgmCpuHierarchy_v2 cpus;                   // the first version is made from it
    dcgmNvLinkP2PStatus_v1 peers;
    unsigned incidents;
    dcgmIncidentInfo_t incident[64];
    unsigned health_systems;
    long long health_period_us;
    dcgmGpuGrp_t health_group;
    struct fake_dcgm_group groups[FAKE_DCGM_GROUPS];
    struct fake_dcgm_fields fields[FAKE_DCGM_GROUPS];
    struct fake_dcgm_watch watches[FAKE_DCGM_GROUPS];
    long long now_us; // the engine's clock, for dcgmGetValuesSince_v2
};

extern struct fake_dcgm fake_dcgm;

// DCGM of this major with every function of it, an engine, and one GPU, id 0, that is well; the
// call page is fake_dcgm.page.
void fake_dcgm_reset(unsigned major);
void fake_dcgm_add_gpu(unsigned id, const char *uuid);
// An entry of the hierarchy; of a compute instance the parent is an instance.
void fake_dcgm_add_instance(unsigned gpu, unsigned id, unsigned gi, unsigned slices);
void fake_dcgm_add_compute(unsigned instance, unsigned id, unsigned gi, unsigned ci);
void fake_dcgm_set_i64(int group, unsigned id, unsigned short field, int64_t value);
void fake_dcgm_set_text(int group, unsigned id, unsigned short field, const char *text);
// A sample beside those there are, for dcgmGetValuesSince_v2.
void fake_dcgm_add_sample(int group, unsigned id, unsigned short field, int64_t ts, int64_t value);
unsigned fake_dcgm_calls(void); // of all functions, since reset
unsigned fake_dcgm_alive(void); // groups, field groups and watches
