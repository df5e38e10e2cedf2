// SPDX-License-Identifier: Apache-2.0
// The ABI of libdcgm 3 and 4 as this double speaks it, declared anew; make_abi_check.py holds it to
// data/dcgm-abi.tsv. Names are those of DCGM's public headers.
#pragma once

#include <stdint.h>

#ifndef DCGM_MAJOR
#error "DCGM_MAJOR: 3 or 4"
#endif

typedef int dcgmReturn_t;
typedef uintptr_t dcgmHandle_t;
typedef uintptr_t dcgmGpuGrp_t;
typedef uintptr_t dcgmFieldGrp_t;

#define WORD(type, n) ((uint32_t)sizeof(type) | (uint32_t)(n) << 24)

// --- Return codes ---
#define ST_OK 0
#define ST_BADPARAM (-1)
#define ST_GENERIC_ERROR (-3)
#define ST_MEMORY (-4)
#define ST_NOT_CONFIGURED (-5)
#define ST_NOT_SUPPORTED (-6)
#define ST_INIT_ERROR (-7)
#define ST_UNINITIALIZED (-10)
#define ST_VER_MISMATCH (-12)
#define ST_UNKNOWN_FIELD (-13)
#define ST_NO_DATA (-14)
#define ST_NOT_WATCHED (-16)
#define ST_CONNECTION_NOT_VALID (-21)
#define ST_MAX_LIMIT (-24)
#define ST_DUPLICATE_KEY (-26)
#define ST_INSUFFICIENT_SIZE (-31)
#define ST_GROUP_IS_EMPTY (-35)
#define ST_PROFILING_NOT_SUPPORTED (-36)

// --- Kinds of entities (as enum sim_entity), and what is no entity of the double ---
#define FE_NONE 0

#define GROUP_DEFAULT 0
#define GROUP_EMPTY 1
#define MODE_AUTO 1
#define MODE_MANUAL 2
#define EMBEDDED_HANDLE ((dcgmHandle_t)0x7fffffff)
#define GROUP_ALL_GPUS ((dcgmGpuGrp_t)0x7fffffff)
#define MAX_GROUPS 64
#define MAX_FIELDS_OF_GROUP 128
#define FV_FLAG_LIVE_DATA 1u

#define BLANK_I32 0x7ffffff0
#define BLANK_I64 INT64_C(0x7ffffffffffffff0)
#define BLANK_F64 140737488355328.0

typedef struct {
    unsigned int version;
    unsigned int persistAfterDisconnect;
    unsigned int timeoutMs;
    unsigned int addressIsUnixSocket;
} dcgmConnectV2Params_v2;

#if DCGM_MAJOR == 4
typedef struct {
    unsigned int version;
    unsigned int persistAfterDisconnect;
    unsigned int timeoutMs;
} dcgmConnectV3Params_v1;
#endif

typedef struct {
    unsigned int version;
    int opMode;
    dcgmHandle_t dcgmHandle;
    const char *logFile;
    int severity;
    unsigned int denyListCount;
    unsigned int denyList[10];
} dcgmStartEmbeddedV2Params_v1;

typedef struct {
    unsigned int version;
    char rawBuildInfoString[512];
} dcgmVersionInfo_v2;

typedef struct {
    int entityGroupId;
    unsigned int entityId;
} dcgmGroupEntityPair_t;

typedef struct {
    char gpuUuid[128];
    unsigned int nvmlGpuIndex;
    unsigned int nvmlInstanceId;
    unsigned int nvmlComputeInstanceId;
    unsigned int nvmlMigProfileId;
    unsigned int nvmlProfileSlices;
} dcgmMigEntityInfo_t;

typedef struct {
    dcgmGroupEntityPair_t entity;
    dcgmGroupEntityPair_t parent;
    dcgmMigEntityInfo_t info;
} dcgmMigHierarchyInfo_v2;

typedef struct {
    unsigned int version;
    unsigned int count;
    dcgmMigHierarchyInfo_v2 entityList[448];
} dcgmMigHierarchy_v2;

typedef struct {
    unsigned int version;
    uint64_t bitmask[16];
} dcgmCpuHierarchyOwnedCores_v1;

struct dcgmCpuHierarchyCpu_v1 {
    unsigned int cpuId;
    dcgmCpuHierarchyOwnedCores_v1 ownedCores;
};

typedef struct {
    unsigned int version;
    unsigned int numCpus;
    struct dcgmCpuHierarchyCpu_v1 cpus[8];
} dcgmCpuHierarchy_v1;

#if DCGM_MAJOR == 4
struct dcgmCpuHierarchyCpu_v2 {
    unsigned int cpuId;
    dcgmCpuHierarchyOwnedCores_v1 ownedCores;
    char serial[256];
};

typedef struct {
    unsigned int version;
    unsigned int numCpus;
    struct dcgmCpuHierarchyCpu_v2 cpus[8];
} dcgmCpuHierarchy_v2;
#endif

typedef struct {
    int version;
    unsigned int memClock;
    unsigned int smClock;
} dcgmClockSet_v1;

typedef struct {
    int version;
    unsigned int count;
    dcgmClockSet_v1 clockSet[256];
} dcgmDeviceSupportedClockSets_v1;

typedef struct {
    unsigned int version;
    unsigned int slowdownTemp;
    unsigned int shutdownTemp;
} dcgmDeviceThermals_v1;

typedef struct {
    unsigned int version;
    unsigned int curPowerLimit;
    unsigned int defaultPowerLimit;
    unsigned int enforcedPowerLimit;
    unsigned int minPowerLimit;
    unsigned int maxPowerLimit;
} dcgmDevicePowerLimits_v1;

typedef struct {
    unsigned int version;
    char brandName[256];
    char deviceName[256];
    char pciBusId[256];
    char serial[256];
    char uuid[256];
    char vbios[256];
    char inforomImageVersion[256];
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char driverVersion[256];
    unsigned int virtualizationMode;
} dcgmDeviceIdentifiers_v1;

typedef struct {
    unsigned int version;
    unsigned int bar1Total;
    unsigned int fbTotal;
    unsigned int fbUsed;
    unsigned int fbFree;
} dcgmDeviceMemoryUsage_v1;

typedef struct {
    unsigned int version;
    unsigned int persistenceModeEnabled;
    unsigned int migModeEnabled;
    unsigned int confidentialComputeMode;
} dcgmDeviceSettings_v2;

typedef struct {
    unsigned int version;
    dcgmDeviceSupportedClockSets_v1 clockSets;
    dcgmDeviceThermals_v1 thermalSettings;
    dcgmDevicePowerLimits_v1 powerLimits;
    dcgmDeviceIdentifiers_v1 identifiers;
    dcgmDeviceMemoryUsage_v1 memoryUsage;
    dcgmDeviceSettings_v2 settings;
} dcgmDeviceAttributes_v3;

typedef struct {
    unsigned int version;
    unsigned short fieldId;
    unsigned short fieldType;
    int status;
    int64_t ts;
    union {
        int64_t i64;
        double dbl;
        char str[256];
        char blob[4096];
    } value;
} dcgmFieldValue_v1;

typedef struct {
    unsigned int version;
    int entityGroupId;
    unsigned int entityId;
    unsigned short fieldId;
    unsigned short fieldType;
    int status;
    unsigned int unused;
    int64_t ts;
    union {
        int64_t i64;
        double dbl;
        char str[256];
        char blob[4096];
    } value;
} dcgmFieldValue_v2;

typedef int (*dcgmFieldValueEntityEnumeration_f)(int entityGroupId, unsigned int entityId,
                                                 dcgmFieldValue_v1 *values, int numValues,
                                                 void *userData);

typedef struct {
    char msg[1024];
    unsigned int code;
} dcgmDiagErrorDetail_t;

typedef struct {
    int system;
    int health;
    dcgmDiagErrorDetail_t error;
    dcgmGroupEntityPair_t entityInfo;
} dcgmIncidentInfo_t;

#if DCGM_MAJOR == 4
#define MAX_INCIDENTS 1024
#define HEALTH_VERSION 5
typedef struct {
    unsigned int version;
    int overallHealth;
    unsigned int incidentCount;
    dcgmIncidentInfo_t incidents[MAX_INCIDENTS];
} dcgmHealthResponse_v5;
typedef dcgmHealthResponse_v5 dcgmHealthResponse;
#else
#define MAX_INCIDENTS 64
#define HEALTH_VERSION 4
typedef struct {
    unsigned int version;
    int overallHealth;
    unsigned int incidentCount;
    dcgmIncidentInfo_t incidents[MAX_INCIDENTS];
} dcgmHealthResponse_v4;
typedef dcgmHealthResponse_v4 dcgmHealthResponse;
#endif

typedef struct {
    unsigned int version;
    dcgmGpuGrp_t groupId;
    int systems;
    long long updateInterval;
    double maxKeepAge;
} dcgmHealthSetParams_v2;

typedef struct {
    unsigned int entityId;
    int linkState[18];
} dcgmNvLinkGpuLinkStatus_v3;

#if DCGM_MAJOR == 4
#define LINKS_OF_GPU 36
#define LINKS_OF_SWITCH 256
#define LINK_STATUS_VERSION 5
typedef struct {
    unsigned int entityId;
    int linkState[LINKS_OF_GPU];
} dcgmNvLinkGpuLinkStatus_v4;
typedef dcgmNvLinkGpuLinkStatus_v4 gpu_link_status;
#else
#define LINKS_OF_GPU 18
#define LINKS_OF_SWITCH 64
#define LINK_STATUS_VERSION 3
typedef dcgmNvLinkGpuLinkStatus_v3 gpu_link_status;
#endif

typedef struct {
    unsigned int entityId;
    int linkState[LINKS_OF_SWITCH];
} dcgmNvLinkNvSwitchLinkStatus_t;

#if DCGM_MAJOR == 4
typedef struct {
    unsigned int version;
    unsigned int numGpus;
    gpu_link_status gpus[32];
    unsigned int numNvSwitches;
    dcgmNvLinkNvSwitchLinkStatus_t nvSwitches[12];
} dcgmNvLinkStatus_v5;
typedef dcgmNvLinkStatus_v5 dcgmNvLinkStatus;

typedef struct {
    unsigned int entityId;
    int linkStatus[32];
} dcgmNvLinkGpuLinkP2PStatus_v1;

typedef struct {
    unsigned int version;
    unsigned int numGpus;
    dcgmNvLinkGpuLinkP2PStatus_v1 gpus[32];
} dcgmNvLinkP2PStatus_v1;
#else
typedef struct {
    unsigned int version;
    unsigned int numGpus;
    gpu_link_status gpus[32];
    unsigned int numNvSwitches;
    dcgmNvLinkNvSwitchLinkStatus_t nvSwitches[12];
} dcgmNvLinkStatus_v3;
typedef dcgmNvLinkStatus_v3 dcgmNvLinkStatus;
#endif

typedef struct {
    unsigned short majorId;
    unsigned short minorId;
    unsigned int numFieldIds;
    unsigned short fieldIds[64];
} dcgmProfMetricGroupInfo_v2;

typedef struct {
    unsigned int version;
    unsigned int unused;
    unsigned int gpuId;
    unsigned int numMetricGroups;
    dcgmProfMetricGroupInfo_v2 metricGroups[10];
} dcgmProfGetMetricGroups_v3;

typedef struct {
    unsigned short fieldId;
    char fieldType;
    unsigned char size;
    char tag[48];
    int scope;
    int nvmlFieldId;
    int entityLevel;
    void *valueFormat;
} dcgm_field_meta_t;
