// SPDX-License-Identifier: Apache-2.0
// What podgpu uses of NVIDIA's DCGM interface, declared by ourselves with NVIDIA's public names, so
// that no vendor header is needed to build. Layouts are those of the public headers dcgm_structs.h
// and dcgm_fields.h of DCGM 3.3.9 and 4.6.1 on LP64 (data/dcgm-abi.tsv, which script/make-abi-check
// holds this header against). What differs between the two has both forms; enums of the interface
// are int or unsigned here, since a library may know more of their values than we do.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef int dcgmReturn_t;
typedef uintptr_t dcgmHandle_t;
typedef uintptr_t dcgmGpuGrp_t;
typedef uintptr_t dcgmFieldGrp_t;

enum {
    DCGM_ST_OK = 0,
    DCGM_ST_BADPARAM = -1,
    DCGM_ST_GENERIC_ERROR = -3,
    DCGM_ST_MEMORY = -4,
    DCGM_ST_NOT_CONFIGURED = -5,
    DCGM_ST_NOT_SUPPORTED = -6,
    DCGM_ST_INIT_ERROR = -7,
    DCGM_ST_NVML_ERROR = -8,
    DCGM_ST_PENDING = -9,
    DCGM_ST_UNINITIALIZED = -10,
    DCGM_ST_TIMEOUT = -11,
    DCGM_ST_VER_MISMATCH = -12,
    DCGM_ST_UNKNOWN_FIELD = -13,
    DCGM_ST_NO_DATA = -14,
    DCGM_ST_STALE_DATA = -15,
    DCGM_ST_NOT_WATCHED = -16,
    DCGM_ST_NO_PERMISSION = -17,
    DCGM_ST_GPU_IS_LOST = -18,
    DCGM_ST_RESET_REQUIRED = -19,
    DCGM_ST_FUNCTION_NOT_FOUND = -20,
    DCGM_ST_CONNECTION_NOT_VALID = -21,
    DCGM_ST_GPU_NOT_SUPPORTED = -22,
    DCGM_ST_GROUP_INCOMPATIBLE = -23,
    DCGM_ST_MAX_LIMIT = -24,
    DCGM_ST_LIBRARY_NOT_FOUND = -25,
    DCGM_ST_DUPLICATE_KEY = -26,
    DCGM_ST_REQUIRES_ROOT = -29,
    DCGM_ST_INSUFFICIENT_SIZE = -31,
    DCGM_ST_FIELD_UNSUPPORTED_BY_API = -32,
    DCGM_ST_MODULE_NOT_LOADED = -33,
    DCGM_ST_IN_USE = -34,
    DCGM_ST_GROUP_IS_EMPTY = -35,
    DCGM_ST_PROFILING_NOT_SUPPORTED = -36,
    DCGM_ST_PROFILING_LIBRARY_ERROR = -37,
    DCGM_ST_PROFILING_MULTI_PASS = -38,
    DCGM_ST_INSUFFICIENT_DRIVER_VERSION = -44,
    DCGM_ST_INSTANCE_NOT_FOUND = -45,
    DCGM_ST_COMPUTE_INSTANCE_NOT_FOUND = -46,
    DCGM_ST_3RD_PARTY_LIBRARY_ERROR = -48,
    DCGM_ST_INSUFFICIENT_RESOURCES = -49,
    DCGM_ST_PAUSED = -54,
    DCGM_ST_ALREADY_INITIALIZED = -55,
    DCGM_ST_NVML_NOT_LOADED = -56,
    DCGM_ST_NVML_DRIVER_TIMEOUT = -57,
    DCGM_ST_GPUS_DETACHED = -67,
};

// Kinds of entities, and the level at which a field has values of its own.
enum {
    DCGM_FE_NONE = 0,
    DCGM_FE_GPU = 1,
    DCGM_FE_VGPU = 2,
    DCGM_FE_SWITCH = 3,
    DCGM_FE_GPU_I = 4,
    DCGM_FE_GPU_CI = 5,
    DCGM_FE_LINK = 6,
    DCGM_FE_CPU = 7,
    DCGM_FE_CPU_CORE = 8,
    DCGM_FE_CONNECTX = 9, // 4.1 and later
};

enum {
    DCGM_OPERATION_MODE_AUTO = 1,
    DCGM_OPERATION_MODE_MANUAL = 2,

    DcgmLoggingSeverityUnspecified = -1,

    DCGM_GROUP_EMPTY = 1, // what a new group holds

    DcgmEntityStatusUnknown = 0,
    DcgmEntityStatusOk = 1,
    DcgmEntityStatusUnsupported = 2,
    DcgmEntityStatusInaccessible = 3,
    DcgmEntityStatusLost = 4,
    DcgmEntityStatusFake = 5,
    DcgmEntityStatusDisabled = 6,
    DcgmEntityStatusDetached = 7,

    DcgmNvLinkLinkStateNotSupported = 0,
    DcgmNvLinkLinkStateDisabled = 1,
    DcgmNvLinkLinkStateDown = 2,
    DcgmNvLinkLinkStateUp = 3,

    DcgmNvLinkP2pStatusOK = 0,
    DcgmNvLinkP2pStatusChipsetNotSupported = 1,
    DcgmNvLinkP2pStatusGpuNotSupported = 2,
    DcgmNvLinkP2pStatusTopologyNotSupported = 3,
    DcgmNvLinkP2pStatusDisabledByRegKey = 4,
    DcgmNvLinkP2pStatusNotSupported = 5,
    DcgmNvLinkP2pStatusUnknown = 6,

    DCGM_HEALTH_RESULT_PASS = 0,
    DCGM_HEALTH_RESULT_WARN = 10,
    DCGM_HEALTH_RESULT_FAIL = 20,

    DCGM_HEALTH_WATCH_PCIE = 0x1,
    DCGM_HEALTH_WATCH_NVLINK = 0x2,
    DCGM_HEALTH_WATCH_PMU = 0x4,
    DCGM_HEALTH_WATCH_MCU = 0x8,
    DCGM_HEALTH_WATCH_MEM = 0x10,
    DCGM_HEALTH_WATCH_SM = 0x20,
    DCGM_HEALTH_WATCH_INFOROM = 0x40,
    DCGM_HEALTH_WATCH_THERMAL = 0x80,
    DCGM_HEALTH_WATCH_POWER = 0x100,
    DCGM_HEALTH_WATCH_DRIVER = 0x200,
    DCGM_HEALTH_WATCH_NVSWITCH_NONFATAL = 0x400,
    DCGM_HEALTH_WATCH_NVSWITCH_FATAL = 0x800,
};

#define DCGM_HEALTH_WATCH_ALL 0xffffffffu

#define DCGM_MAX_NUM_DEVICES 32
#define DCGM_MAX_NUM_SWITCHES 12
#define DCGM_MAX_NUM_CPUS 8
#define DCGM_MAX_NUM_CPU_CORES 1024
#define DCGM_MAX_HIERARCHY_INFO 448
#define DCGM_MAX_STR_LENGTH 256
#define DCGM_MAX_BLOB_LENGTH 4096
#define DCGM_MAX_CLOCKS 256
#define DCGM_MAX_FIELD_IDS_PER_FIELD_GROUP 128
#define DCGM_PROF_MAX_NUM_GROUPS_V2 10
#define DCGM_PROF_MAX_FIELD_IDS_PER_GROUP_V2 64

// Blanks: a value at or above these is none. +1 not found, +2 not supported, +3 no permission.
#define DCGM_INT32_BLANK 0x7ffffff0
#define DCGM_INT64_BLANK 0x7ffffffffffffff0
#define DCGM_FP64_BLANK 140737488355328.0
#define DCGM_STR_BLANK "<<<NULL>>>"
#define DCGM_STR_NOT_FOUND "<<<NOT_FOUND>>>"
#define DCGM_STR_NOT_SUPPORTED "<<<NOT_SUPPORTED>>>"
#define DCGM_STR_NOT_PERMISSIONED "<<<NOT_PERM>>>"

// Types of values.
#define DCGM_FT_BINARY 'b'
#define DCGM_FT_DOUBLE 'd'
#define DCGM_FT_INT64 'i'
#define DCGM_FT_STRING 's'
#define DCGM_FT_TIMESTAMP 't'

// A versioned struct starts with sizeof | version << 24.
#define DCGM_STRUCT_VERSION(type, version)                                                         \
    ((unsigned int)(sizeof(type) | ((unsigned int)(version) << 24)))

typedef struct {
    unsigned int version;
    unsigned int persistAfterDisconnect;
    unsigned int timeoutMs;
    unsigned int addressIsUnixSocket;
} dcgmConnectV2Params_v2;
#define dcgmConnectV2Params_version2 DCGM_STRUCT_VERSION(dcgmConnectV2Params_v2, 2)

// 4.5 and later: the address tells the kind of socket (tcp://, unix://, vsock://).
typedef struct {
    unsigned int version;
    unsigned int persistAfterDisconnect;
    unsigned int timeoutMs;
} dcgmConnectV3Params_v1;
#define dcgmConnectV3Params_version1 DCGM_STRUCT_VERSION(dcgmConnectV3Params_v1, 1)

typedef struct {
    unsigned int version;
    int opMode; // DCGM_OPERATION_MODE_*
    dcgmHandle_t dcgmHandle;
    const char *logFile;
    int severity;
    unsigned int denyListCount;
    unsigned int denyList[10];
} dcgmStartEmbeddedV2Params_v1;
#define dcgmStartEmbeddedV2Params_version1 DCGM_STRUCT_VERSION(dcgmStartEmbeddedV2Params_v1, 1)

typedef struct {
    unsigned int version;
    char rawBuildInfoString[2 * DCGM_MAX_STR_LENGTH]; // "key:value;key:value"
} dcgmVersionInfo_v2;
#define dcgmVersionInfo_version2 DCGM_STRUCT_VERSION(dcgmVersionInfo_v2, 2)

typedef struct {
    int entityGroupId; // DCGM_FE_*
    unsigned int entityId;
} dcgmGroupEntityPair_t;

typedef struct {
    int version;
    unsigned int memClock;
    unsigned int smClock;
} dcgmClockSet_v1;

typedef struct {
    unsigned int version;
    unsigned int count;
    dcgmClockSet_v1 clockSet[DCGM_MAX_CLOCKS];
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
    char brandName[DCGM_MAX_STR_LENGTH];
    char deviceName[DCGM_MAX_STR_LENGTH];
    char pciBusId[DCGM_MAX_STR_LENGTH];
    char serial[DCGM_MAX_STR_LENGTH];
    char uuid[DCGM_MAX_STR_LENGTH];
    char vbios[DCGM_MAX_STR_LENGTH];
    char inforomImageVersion[DCGM_MAX_STR_LENGTH];
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char driverVersion[DCGM_MAX_STR_LENGTH];
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
#define dcgmDeviceAttributes_version3 DCGM_STRUCT_VERSION(dcgmDeviceAttributes_v3, 3)

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
    dcgmMigHierarchyInfo_v2 entityList[DCGM_MAX_HIERARCHY_INFO];
} dcgmMigHierarchy_v2;
#define dcgmMigHierarchy_version2 DCGM_STRUCT_VERSION(dcgmMigHierarchy_v2, 2)

// Links: DCGM 3 has v3, 4.0 to 4.5 v4, 4.6 v5 (more links of a GPU).
typedef struct {
    unsigned int entityId;
    int linkState[18]; // DcgmNvLinkLinkState*
} dcgmNvLinkGpuLinkStatus_v3;

typedef struct {
    unsigned int entityId;
    int linkState[36];
} dcgmNvLinkGpuLinkStatus_v4;

// Both are named dcgmNvLinkNvSwitchLinkStatus_t, the first in DCGM 3, the second in 4.
typedef struct {
    unsigned int entityId;
    int linkState[64];
} dcgm3_switch_links;

typedef struct {
    unsigned int entityId;
    int linkState[256];
} dcgm4_switch_links;

typedef struct {
    unsigned int version;
    unsigned int numGpus;
    dcgmNvLinkGpuLinkStatus_v3 gpus[DCGM_MAX_NUM_DEVICES];
    unsigned int numNvSwitches;
    dcgm3_switch_links nvSwitches[DCGM_MAX_NUM_SWITCHES];
} dcgmNvLinkStatus_v3;
#define dcgmNvLinkStatus_version3 DCGM_STRUCT_VERSION(dcgmNvLinkStatus_v3, 3)

typedef struct {
    unsigned int version;
    unsigned int numGpus;
    dcgmNvLinkGpuLinkStatus_v3 gpus[DCGM_MAX_NUM_DEVICES];
    unsigned int numNvSwitches;
    dcgm4_switch_links nvSwitches[DCGM_MAX_NUM_SWITCHES];
} dcgmNvLinkStatus_v4;
#define dcgmNvLinkStatus_version4 DCGM_STRUCT_VERSION(dcgmNvLinkStatus_v4, 4)

typedef struct {
    unsigned int version;
    unsigned int numGpus;
    dcgmNvLinkGpuLinkStatus_v4 gpus[DCGM_MAX_NUM_DEVICES];
    unsigned int numNvSwitches;
    dcgm4_switch_links nvSwitches[DCGM_MAX_NUM_SWITCHES];
} dcgmNvLinkStatus_v5;
#define dcgmNvLinkStatus_version5 DCGM_STRUCT_VERSION(dcgmNvLinkStatus_v5, 5)

// Peer-to-peer over NVLink, DCGM 4.
typedef struct {
    unsigned int entityId;
    int linkStatus[DCGM_MAX_NUM_DEVICES]; // DcgmNvLinkP2pStatus*, by GPU id
} dcgmNvLinkGpuLinkP2PStatus_v1;

typedef struct {
    unsigned int version;
    unsigned int numGpus;
    dcgmNvLinkGpuLinkP2PStatus_v1 gpus[DCGM_MAX_NUM_DEVICES];
} dcgmNvLinkP2PStatus_v1;
#define dcgmNvLinkP2PStatus_version1 DCGM_STRUCT_VERSION(dcgmNvLinkP2PStatus_v1, 1)

typedef struct {
    unsigned int version;
    uint64_t bitmask[DCGM_MAX_NUM_CPU_CORES / 64];
} dcgmCpuHierarchyOwnedCores_v1;
#define dcgmCpuHierarchyOwnedCores_version1 DCGM_STRUCT_VERSION(dcgmCpuHierarchyOwnedCores_v1, 1)

typedef struct {
    unsigned int cpuId;
    dcgmCpuHierarchyOwnedCores_v1 ownedCores;
} dcgmCpuHierarchyCpu_v1;

typedef struct {
    unsigned int version;
    unsigned int numCpus;
    dcgmCpuHierarchyCpu_v1 cpus[DCGM_MAX_NUM_CPUS];
} dcgmCpuHierarchy_v1;
#define dcgmCpuHierarchy_version1 DCGM_STRUCT_VERSION(dcgmCpuHierarchy_v1, 1)

typedef struct {
    unsigned int cpuId;
    dcgmCpuHierarchyOwnedCores_v1 ownedCores;
    char serial[DCGM_MAX_STR_LENGTH];
} dcgmCpuHierarchyCpu_v2;

typedef struct {
    unsigned int version;
    unsigned int numCpus;
    dcgmCpuHierarchyCpu_v2 cpus[DCGM_MAX_NUM_CPUS];
} dcgmCpuHierarchy_v2;
#define dcgmCpuHierarchy_version2 DCGM_STRUCT_VERSION(dcgmCpuHierarchy_v2, 2)

typedef struct {
    unsigned int version;
    unsigned short fieldId;
    unsigned short fieldType; // DCGM_FT_*
    int status;               // dcgmReturn_t
    int64_t ts;               // microseconds since 1970, 0: never sampled
    union {
        int64_t i64;
        double dbl;
        char str[DCGM_MAX_STR_LENGTH];
        char blob[DCGM_MAX_BLOB_LENGTH];
    } value;
} dcgmFieldValue_v1;
#define dcgmFieldValue_version1 DCGM_STRUCT_VERSION(dcgmFieldValue_v1, 1)

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
        char str[DCGM_MAX_STR_LENGTH];
        char blob[DCGM_MAX_BLOB_LENGTH];
    } value;
} dcgmFieldValue_v2;
#define dcgmFieldValue_version2 DCGM_STRUCT_VERSION(dcgmFieldValue_v2, 2)

// Called for each entity of a read, with its values; they are the library's and gone after the
// return. 0: go on.
typedef int (*dcgmFieldValueEntityEnumeration_f)(int entityGroupId, unsigned int entityId,
                                                 dcgmFieldValue_v1 *values, int numValues,
                                                 void *userData);

typedef struct {
    unsigned short fieldId;
    char fieldType; // DCGM_FT_*
    unsigned char size;
    char tag[48];
    int scope;
    int nvmlFieldId;
    int entityLevel;   // DCGM_FE_*, the lowest kind with values of its own
    void *valueFormat; // how dcgmi prints it
} dcgm_field_meta_t;

typedef struct {
    unsigned int version;
    dcgmGpuGrp_t groupId;
    unsigned int systems;     // DCGM_HEALTH_WATCH_*
    long long updateInterval; // microseconds
    double maxKeepAge;        // seconds
} dcgmHealthSetParams_v2;
#define dcgmHealthSetParams_version2 DCGM_STRUCT_VERSION(dcgmHealthSetParams_v2, 2)

typedef struct {
    char msg[1024];
    unsigned int code; // DCGM_FR_*
} dcgmDiagErrorDetail_t;

typedef struct {
    unsigned int system; // DCGM_HEALTH_WATCH_*
    int health;          // DCGM_HEALTH_RESULT_*
    dcgmDiagErrorDetail_t error;
    dcgmGroupEntityPair_t entityInfo;
} dcgmIncidentInfo_t;

typedef struct { // DCGM 3
    unsigned int version;
    int overallHealth;
    unsigned int incidentCount;
    dcgmIncidentInfo_t incidents[64];
} dcgmHealthResponse_v4;
#define dcgmHealthResponse_version4 DCGM_STRUCT_VERSION(dcgmHealthResponse_v4, 4)

typedef struct { // DCGM 4; a megabyte
    unsigned int version;
    int overallHealth;
    unsigned int incidentCount;
    dcgmIncidentInfo_t incidents[1024];
} dcgmHealthResponse_v5;
#define dcgmHealthResponse_version5 DCGM_STRUCT_VERSION(dcgmHealthResponse_v5, 5)

// Fields whose groups share majorId but not minorId cannot be measured at the same time.
typedef struct {
    unsigned short majorId;
    unsigned short minorId;
    unsigned int numFieldIds;
    unsigned short fieldIds[DCGM_PROF_MAX_FIELD_IDS_PER_GROUP_V2];
} dcgmProfMetricGroupInfo_v2;

typedef struct {
    unsigned int version;
    unsigned int unused;
    unsigned int gpuId;
    unsigned int numMetricGroups;
    dcgmProfMetricGroupInfo_v2 metricGroups[DCGM_PROF_MAX_NUM_GROUPS_V2];
} dcgmProfGetMetricGroups_v3;
#define dcgmProfGetMetricGroups_version3 DCGM_STRUCT_VERSION(dcgmProfGetMetricGroups_v3, 3)

// An entity id of DCGM_FE_LINK (dcgm_link_t.raw): its owner's kind, its number there and its owner.
// The fields lie from the lowest bit up; DCGM 3 has 8, 8 and 16 bits, DCGM 4 has 8, 16 and 8.
static inline uint32_t dcgm_link_pack(unsigned major, uint32_t owner_group, uint32_t number,
                                      uint32_t owner)
{
    return major < 4 ? (owner_group & 0xff) | (number & 0xff) << 8 | (owner & 0xffff) << 16
                     : (owner_group & 0xff) | (number & 0xffff) << 8 | (owner & 0xff) << 24;
}
