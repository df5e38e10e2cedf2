// SPDX-License-Identifier: Apache-2.0
// libdcgm behind the table of the source room, with every answer settable. It is strict where the
// library is: version words, and ids that it does not know.
#pragma once

#include "source/dcgm_library.h"

#define FAKE_DCGM_GPUS 8
#define FAKE_DCGM_VALUES 512
#define FAKE_DCGM_GROUPS 64
#define FAKE_DCGM_WATCHES 512
#define FAKE_DCGM_CELLS (1u << 17) // entities x fields that are watched, at most half as many

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
    dcgmReturn_t profiling;             // of dcgmProfGetSupportedMetricGroups
    dcgmProfGetMetricGroups_v3 metrics; // what it answers
};

struct fake_dcgm_refusal { // of dcgmWatchFields or dcgmGroupAddEntity, while `result` is set
    int group;
    unsigned id;          // UINT_MAX: any
    unsigned short field; // 0: any
    dcgmReturn_t result;
};

struct fake_dcgm_group {
    bool alive;
    char name[64];
    unsigned count;
    dcgmGroupEntityPair_t pairs[2048];
};

struct fake_dcgm_fields {
    bool alive;
    char name[64];
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
    struct fake_dcgm_watch watches[FAKE_DCGM_WATCHES];
    // What is watched of which entity, as DCGM keeps it: once, whatever the groups.
    uint64_t cells[FAKE_DCGM_CELLS];
    bool needs_watch; // what is not watched is NOT_WATCHED
    struct fake_dcgm_refusal refuse_watch[16], refuse_add[4];
    unsigned taken_names;      // so many creations are refused as DUPLICATE_KEY
    bool unknown_field[65536]; // to DcgmFieldGetById
    bool strange_field[65536]; // to dcgmFieldGroupCreate
    dcgm_field_meta_t meta[4]; // what DcgmFieldGetById says instead of the catalogue
    bool one_by_one;           // a callback for each value, not each entity
    bool noise;                // and for what nobody asked for
    unsigned fail_after;       // callbacks, a read fails then with:
    dcgmReturn_t fail_result;
    // Values of what has none in values[]; false: no data.
    bool (*generate)(int group, unsigned id, unsigned short field, struct fake_dcgm_value *out);
    long long now_us;   // the engine's clock, for dcgmGetValuesSince_v2
    long long since_us; // that it was last asked for
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
void fake_dcgm_set_double(int group, unsigned id, unsigned short field, double value);
void fake_dcgm_set_status(int group, unsigned id, unsigned short field, int status);
// A metric group of the GPU at this place.
void fake_dcgm_add_metrics(unsigned place, unsigned short major_id, unsigned short minor_id,
                           const unsigned short *ids, unsigned count);
bool fake_dcgm_is_watched(int group, unsigned id, unsigned short field);
unsigned fake_dcgm_calls(void); // of all functions, since reset
unsigned fake_dcgm_alive(void); // groups, field groups and watches
