// SPDX-License-Identifier: Apache-2.0
// What podgpu uses of NVIDIA's NVML interface, declared by ourselves with NVIDIA's public names, so
// that no vendor header is needed to build. Layouts are those of the public header nvml.h of CUDA
// 11.0 to 13.3 on LP64 and are asserted below; where a struct changed over the years, the largest
// is declared and the older size is named.
#pragma once

#include <stddef.h>

typedef int nvmlReturn_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_CORRUPTED_INFOROM = 14,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_RESET_REQUIRED = 16,
    NVML_ERROR_OPERATING_SYSTEM = 17,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_MEMORY = 20,
    NVML_ERROR_NO_DATA = 21,
    NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_DEPRECATED = 26,
    NVML_ERROR_NOT_READY = 27,
    NVML_ERROR_GPU_NOT_FOUND = 28,
    NVML_ERROR_INVALID_STATE = 29,
    NVML_ERROR_UNKNOWN = 999,
};

// Opaque handles.
typedef struct nvmlDevice_st *nvmlDevice_t;
typedef struct nvmlEventSet_st *nvmlEventSet_t;
typedef struct nvmlGpmSample_st *nvmlGpmSample_t;
typedef struct nvmlGpuInstance_st *nvmlGpuInstance_t;

// A versioned struct starts with sizeof | version << 24.
#define NVML_STRUCT_VERSION(type, version)                                                         \
    ((unsigned int)(sizeof(type) | ((unsigned int)(version) << 24)))

#define NVML_ABI_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), #type ": size")
#define NVML_ABI_AT(type, member, at)                                                              \
    _Static_assert(offsetof(type, member) == (at), #type "." #member ": offset")

enum {
    NVML_INIT_FLAG_NO_GPUS = 1,

    NVML_CLOCK_GRAPHICS = 0,
    NVML_CLOCK_SM = 1,
    NVML_CLOCK_MEM = 2,
    NVML_CLOCK_VIDEO = 3,

    NVML_TEMPERATURE_GPU = 0,

    NVML_P2P_CAPS_INDEX_NVLINK = 2,
    NVML_P2P_STATUS_NOT_SUPPORTED = 5,
    NVML_P2P_STATUS_UNKNOWN = 6,
    NVML_TEMPERATURE_THRESHOLD_SHUTDOWN = 0,
    NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = 1,
    NVML_TEMPERATURE_THRESHOLD_MEM_MAX = 2,
    NVML_TEMPERATURE_THRESHOLD_GPU_MAX = 3,

    NVML_INFOROM_OEM = 0,
    NVML_INFOROM_ECC = 1,
    NVML_INFOROM_POWER = 2,

    NVML_MEMORY_ERROR_TYPE_CORRECTED = 0,
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1,
    NVML_VOLATILE_ECC = 0,
    NVML_AGGREGATE_ECC = 1,
    NVML_MEMORY_LOCATION_L1_CACHE = 0,
    NVML_MEMORY_LOCATION_L2_CACHE = 1,
    NVML_MEMORY_LOCATION_DRAM = 2,
    NVML_MEMORY_LOCATION_REGISTER_FILE = 3,
    NVML_MEMORY_LOCATION_TEXTURE_MEMORY = 4,
    NVML_MEMORY_LOCATION_TEXTURE_SHM = 5,
    NVML_MEMORY_LOCATION_CBU = 6,
    NVML_MEMORY_LOCATION_SRAM = 7,

    NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS = 0,

    NVML_NVLINK_ERROR_DL_REPLAY = 0,
    NVML_NVLINK_ERROR_DL_RECOVERY = 1,
    NVML_NVLINK_ERROR_DL_CRC_FLIT = 2,
    NVML_NVLINK_ERROR_DL_CRC_DATA = 3,

    NVML_COMPUTEMODE_PROHIBITED = 2,
    NVML_COMPUTEMODE_EXCLUSIVE_PROCESS = 3,

    NVML_GPU_UTILIZATION_SAMPLES = 1,
    NVML_GPM_METRIC_GRAPHICS_UTIL = 1,

    NVML_AFFINITY_SCOPE_NODE = 0,
    NVML_DEVICE_MIG_ENABLE = 1,
    NVML_GRID_LICENSE_FEATURE_CODE_VGPU = 1,

    NVML_GPU_FABRIC_STATE_NOT_SUPPORTED = 0,
    NVML_GPU_FABRIC_STATE_NOT_STARTED = 1,
    NVML_GPU_FABRIC_STATE_IN_PROGRESS = 2,
    NVML_GPU_FABRIC_STATE_COMPLETED = 3,
};

#define nvmlEventTypeXidCriticalError 0x8ULL
#define nvmlEventMigConfigChange 0x100ULL

#define NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE 80
#define NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE 80
#define NVML_DEVICE_UUID_V2_BUFFER_SIZE 96
#define NVML_DEVICE_NAME_V2_BUFFER_SIZE 96
#define NVML_DEVICE_SERIAL_BUFFER_SIZE 30
#define NVML_DEVICE_INFOROM_VERSION_BUFFER_SIZE 16
#define NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE 32

// _v3 and _v2; the first generation lacks busId and carries 16 reserved bytes at 36 (52 bytes in
// all).
typedef struct {
    char busIdLegacy[16];
    unsigned int domain;
    unsigned int bus;
    unsigned int device;
    unsigned int pciDeviceId;
    unsigned int pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
NVML_ABI_SIZE(nvmlPciInfo_t, 68);
NVML_ABI_AT(nvmlPciInfo_t, domain, 16);
NVML_ABI_AT(nvmlPciInfo_t, pciDeviceId, 28);
NVML_ABI_AT(nvmlPciInfo_t, busId, 36);

typedef struct {
    unsigned int gpu;
    unsigned int memory;
} nvmlUtilization_t;
NVML_ABI_SIZE(nvmlUtilization_t, 8);

typedef struct {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_t;
NVML_ABI_SIZE(nvmlMemory_t, 24);

typedef struct {
    unsigned int version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_v2_t;
NVML_ABI_SIZE(nvmlMemory_v2_t, 40);
NVML_ABI_AT(nvmlMemory_v2_t, total, 8);
NVML_ABI_AT(nvmlMemory_v2_t, reserved, 16);
NVML_ABI_AT(nvmlMemory_v2_t, free, 24);
NVML_ABI_AT(nvmlMemory_v2_t, used, 32);

typedef struct {
    unsigned long long bar1Total;
    unsigned long long bar1Free;
    unsigned long long bar1Used;
} nvmlBAR1Memory_t;
NVML_ABI_SIZE(nvmlBAR1Memory_t, 24);
NVML_ABI_AT(nvmlBAR1Memory_t, bar1Used, 16);

// _v2; the first generation ends after sharedOfaCount (24 bytes).
typedef struct {
    unsigned int multiprocessorCount;
    unsigned int sharedCopyEngineCount;
    unsigned int sharedDecoderCount;
    unsigned int sharedEncoderCount;
    unsigned int sharedJpegCount;
    unsigned int sharedOfaCount;
    unsigned int gpuInstanceSliceCount;
    unsigned int computeInstanceSliceCount;
    unsigned long long memorySizeMB;
} nvmlDeviceAttributes_t;
NVML_ABI_SIZE(nvmlDeviceAttributes_t, 40);
NVML_ABI_AT(nvmlDeviceAttributes_t, gpuInstanceSliceCount, 24);
NVML_ABI_AT(nvmlDeviceAttributes_t, computeInstanceSliceCount, 28);
NVML_ABI_AT(nvmlDeviceAttributes_t, memorySizeMB, 32);

typedef struct {
    unsigned int max;
    unsigned int high;
    unsigned int partial;
    unsigned int low;
    unsigned int none;
} nvmlRowRemapperHistogramValues_t;
NVML_ABI_SIZE(nvmlRowRemapperHistogramValues_t, 20);

typedef union {
    double dVal;
    int siVal;
    unsigned int uiVal;
    unsigned long ulVal;
    unsigned long long ullVal;
    signed long long sllVal;
    unsigned short usVal;
} nvmlValue_t;
NVML_ABI_SIZE(nvmlValue_t, 8);

enum {
    NVML_VALUE_TYPE_DOUBLE = 0,
    NVML_VALUE_TYPE_UNSIGNED_INT = 1,
    NVML_VALUE_TYPE_UNSIGNED_LONG = 2,
    NVML_VALUE_TYPE_UNSIGNED_LONG_LONG = 3,
    NVML_VALUE_TYPE_SIGNED_LONG_LONG = 4,
    NVML_VALUE_TYPE_SIGNED_INT = 5,
    NVML_VALUE_TYPE_UNSIGNED_SHORT = 6,
};

typedef struct {
    unsigned int fieldId;
    unsigned int scopeId;
    long long timestamp; // microseconds since 1970
    long long latencyUsec;
    int valueType;
    nvmlReturn_t nvmlReturn;
    nvmlValue_t value;
} nvmlFieldValue_t;
NVML_ABI_SIZE(nvmlFieldValue_t, 40);
NVML_ABI_AT(nvmlFieldValue_t, scopeId, 4);
NVML_ABI_AT(nvmlFieldValue_t, timestamp, 8);
NVML_ABI_AT(nvmlFieldValue_t, valueType, 24);
NVML_ABI_AT(nvmlFieldValue_t, nvmlReturn, 28);
NVML_ABI_AT(nvmlFieldValue_t, value, 32);

typedef struct {
    unsigned long long timeStamp; // microseconds since 1970, the end of the window
    nvmlValue_t sampleValue;
} nvmlSample_t;
NVML_ABI_SIZE(nvmlSample_t, 16);
NVML_ABI_AT(nvmlSample_t, sampleValue, 8);

typedef struct {
    unsigned int pid;
    unsigned long long timeStamp; // as above
    unsigned int smUtil;          // percent of the whole GPU
    unsigned int memUtil;
    unsigned int encUtil;
    unsigned int decUtil;
} nvmlProcessUtilizationSample_t;
NVML_ABI_SIZE(nvmlProcessUtilizationSample_t, 32);
NVML_ABI_AT(nvmlProcessUtilizationSample_t, timeStamp, 8);
NVML_ABI_AT(nvmlProcessUtilizationSample_t, smUtil, 16);

// _v3 and _v2 of the lists; rows of the first generation end after usedGpuMemory.
typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory; // all ones: not known
    unsigned int gpuInstanceId;       // all ones: none
    unsigned int computeInstanceId;
} nvmlProcessInfo_t;
NVML_ABI_SIZE(nvmlProcessInfo_t, 24);
NVML_ABI_AT(nvmlProcessInfo_t, usedGpuMemory, 8);
NVML_ABI_AT(nvmlProcessInfo_t, gpuInstanceId, 16);
#define NVML_PROCESS_INFO_V1_BYTES 16

typedef struct {
    unsigned int start; // of the memory slices
    unsigned int size;
} nvmlGpuInstancePlacement_t;
NVML_ABI_SIZE(nvmlGpuInstancePlacement_t, 8);

typedef struct {
    nvmlDevice_t device;
    unsigned int id;
    unsigned int profileId;
    nvmlGpuInstancePlacement_t placement;
} nvmlGpuInstanceInfo_t;
NVML_ABI_SIZE(nvmlGpuInstanceInfo_t, 24);
NVML_ABI_AT(nvmlGpuInstanceInfo_t, profileId, 12);
NVML_ABI_AT(nvmlGpuInstanceInfo_t, placement, 16);

enum {
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX = 138, // KiB, cumulative
    NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX = 139,
};

// _v2 of the wait; the first generation ends after eventData.
typedef struct {
    nvmlDevice_t device;
    unsigned long long eventType;
    unsigned long long eventData;
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlEventData_t;
NVML_ABI_SIZE(nvmlEventData_t, 32);
NVML_ABI_AT(nvmlEventData_t, eventType, 8);
NVML_ABI_AT(nvmlEventData_t, eventData, 16);
NVML_ABI_AT(nvmlEventData_t, gpuInstanceId, 24);

typedef struct {
    unsigned int version;
    unsigned long long aggregateUncParity;
    unsigned long long aggregateUncSecDed;
    unsigned long long aggregateCor;
    unsigned long long volatileUncParity;
    unsigned long long volatileUncSecDed;
    unsigned long long volatileCor;
    unsigned long long aggregateUncBucketL2;
    unsigned long long aggregateUncBucketSm;
    unsigned long long aggregateUncBucketPcie;
    unsigned long long aggregateUncBucketMcu;
    unsigned long long aggregateUncBucketOther;
    unsigned int bThresholdExceeded;
} nvmlEccSramErrorStatus_v1_t;
NVML_ABI_SIZE(nvmlEccSramErrorStatus_v1_t, 104);
NVML_ABI_AT(nvmlEccSramErrorStatus_v1_t, aggregateUncParity, 8);
NVML_ABI_AT(nvmlEccSramErrorStatus_v1_t, bThresholdExceeded, 96);

typedef struct {
    unsigned int version;
    int sensorType;
    int temperature;
} nvmlTemperature_v1_t;
NVML_ABI_SIZE(nvmlTemperature_v1_t, 12);

typedef struct {
    unsigned int version;
    int marginTemperature;
} nvmlMarginTemperature_v1_t;
NVML_ABI_SIZE(nvmlMarginTemperature_v1_t, 8);

typedef struct {
    unsigned int version; // 2 or 3: version 2 ends after healthMask (36 bytes)
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned int cliqueId;
    unsigned char state;
    unsigned int healthMask;
    unsigned char healthSummary;
} nvmlGpuFabricInfo_v3_t;
NVML_ABI_SIZE(nvmlGpuFabricInfo_v3_t, 40);
NVML_ABI_AT(nvmlGpuFabricInfo_v3_t, status, 20);
NVML_ABI_AT(nvmlGpuFabricInfo_v3_t, state, 28);
NVML_ABI_AT(nvmlGpuFabricInfo_v3_t, healthMask, 32);
NVML_ABI_AT(nvmlGpuFabricInfo_v3_t, healthSummary, 36);
#define NVML_GPU_FABRIC_INFO_V2 (36u | 2u << 24)

typedef struct {
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned int cliqueId;
    unsigned char state;
} nvmlGpuFabricInfo_t;
NVML_ABI_SIZE(nvmlGpuFabricInfo_t, 28);
NVML_ABI_AT(nvmlGpuFabricInfo_t, state, 24);

typedef struct {
    unsigned int version;
    unsigned char ibGuid[16];
    unsigned char chassisSerialNumber[16];
    unsigned char slotNumber;
    unsigned char trayIndex;
    unsigned char hostId;
    unsigned char peerType;
    unsigned char moduleId;
} nvmlPlatformInfo_v2_t;
NVML_ABI_SIZE(nvmlPlatformInfo_v2_t, 44);
NVML_ABI_AT(nvmlPlatformInfo_v2_t, chassisSerialNumber, 20);
NVML_ABI_AT(nvmlPlatformInfo_v2_t, slotNumber, 36);
NVML_ABI_AT(nvmlPlatformInfo_v2_t, moduleId, 40);

typedef struct {
    unsigned int version;
    unsigned int environment;
    unsigned int ccFeature;
    unsigned int devToolsMode;
    unsigned int multiGpuMode;
} nvmlSystemConfComputeSettings_v1_t;
NVML_ABI_SIZE(nvmlSystemConfComputeSettings_v1_t, 20);
NVML_ABI_AT(nvmlSystemConfComputeSettings_v1_t, ccFeature, 8);

typedef struct {
    unsigned int bUnrepairableMemory;
} nvmlUnrepairableMemoryStatus_v1_t;
NVML_ABI_SIZE(nvmlUnrepairableMemoryStatus_v1_t, 4);

typedef struct {
    unsigned int featureCode;
    unsigned int featureState;
    char licenseInfo[128];
    char productName[128];
    unsigned int featureEnabled;
    unsigned char licenseExpiry[16]; // _v4 only: features of _v3 are 268 bytes apart
} nvmlGridLicensableFeature_t;
NVML_ABI_SIZE(nvmlGridLicensableFeature_t, 284);
NVML_ABI_AT(nvmlGridLicensableFeature_t, featureEnabled, 264);
#define NVML_GRID_FEATURE_V3_BYTES 268
#define NVML_GRID_LICENSE_FEATURE_MAX_COUNT 3

typedef struct {
    int isGridLicenseSupported;
    unsigned int licensableFeaturesCount;
    nvmlGridLicensableFeature_t gridLicensableFeatures[NVML_GRID_LICENSE_FEATURE_MAX_COUNT];
} nvmlGridLicensableFeatures_t;
NVML_ABI_SIZE(nvmlGridLicensableFeatures_t, 860);
NVML_ABI_AT(nvmlGridLicensableFeatures_t, gridLicensableFeatures, 8);

typedef struct {
    unsigned int version; // plain 1
    unsigned int isSupportedDevice;
} nvmlGpmSupport_t;
NVML_ABI_SIZE(nvmlGpmSupport_t, 8);

typedef struct {
    unsigned int metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    struct {
        const char *shortName; // static text of the library
        const char *longName;
        const char *unit;
    } metricInfo;
} nvmlGpmMetric_t;
NVML_ABI_SIZE(nvmlGpmMetric_t, 40);
NVML_ABI_AT(nvmlGpmMetric_t, value, 8);

// The array's capacity grew (98, 210, 333) under the same version 1: the largest, zeroed, is safe
// with each library.
#define NVML_GPM_METRIC_MAX 333
typedef struct {
    unsigned int version; // plain 1
    unsigned int numMetrics;
    nvmlGpmSample_t sample1; // the older
    nvmlGpmSample_t sample2;
    nvmlGpmMetric_t metrics[NVML_GPM_METRIC_MAX];
} nvmlGpmMetricsGet_t;
NVML_ABI_SIZE(nvmlGpmMetricsGet_t, 13344);
NVML_ABI_AT(nvmlGpmMetricsGet_t, sample1, 8);
NVML_ABI_AT(nvmlGpmMetricsGet_t, metrics, 24);
