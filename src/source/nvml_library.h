// SPDX-License-Identifier: Apache-2.0
// libnvidia-ml.so.1, opened at run time: a typed table of the functions podgpu uses, each found on
// its own, so that an older driver only loses what it lacks. Calls go through nvml_call() of
// nvml_call.h, never through the table directly.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/sv.h"
#include "base/macros.h"
#include "source/nvml_abi.h"
#include "source/driver_call.h"

// X(member, arguments, names newest first...). The header nvml.h hides the suffixes behind macros;
// the library's unsuffixed symbols are the oldest generation, whose structs are smaller.
#define NVML_FUNCTIONS(X)                                                                          \
    X(nvmlInitWithFlags, (unsigned int), "nvmlInitWithFlags")                                      \
    X(nvmlInit, (void), "nvmlInit_v2", "nvmlInit")                                                 \
    X(nvmlShutdown, (void), "nvmlShutdown")                                                        \
    X(nvmlSystemGetDriverVersion, (char *, unsigned int), "nvmlSystemGetDriverVersion")            \
    X(nvmlSystemGetNVMLVersion, (char *, unsigned int), "nvmlSystemGetNVMLVersion")                \
    X(nvmlSystemGetCudaDriverVersion, (int *), "nvmlSystemGetCudaDriverVersion_v2",                \
      "nvmlSystemGetCudaDriverVersion")                                                            \
    X(nvmlSystemGetConfComputeSettings, (nvmlSystemConfComputeSettings_v1_t *),                    \
      "nvmlSystemGetConfComputeSettings")                                                          \
    X(nvmlDeviceGetCount, (unsigned int *), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount")         \
    X(nvmlDeviceGetHandleByIndex, (unsigned int, nvmlDevice_t *), "nvmlDeviceGetHandleByIndex_v2", \
      "nvmlDeviceGetHandleByIndex")                                                                \
    X(nvmlDeviceGetIndex, (nvmlDevice_t, unsigned int *), "nvmlDeviceGetIndex")                    \
    X(nvmlDeviceGetUUID, (nvmlDevice_t, char *, unsigned int), "nvmlDeviceGetUUID")                \
    X(nvmlDeviceGetName, (nvmlDevice_t, char *, unsigned int), "nvmlDeviceGetName")                \
    X(nvmlDeviceGetMinorNumber, (nvmlDevice_t, unsigned int *), "nvmlDeviceGetMinorNumber")        \
    X(nvmlDeviceGetPciInfo, (nvmlDevice_t, nvmlPciInfo_t *), "nvmlDeviceGetPciInfo_v3",            \
      "nvmlDeviceGetPciInfo_v2", "nvmlDeviceGetPciInfo")                                           \
    X(nvmlDeviceGetSerial, (nvmlDevice_t, char *, unsigned int), "nvmlDeviceGetSerial")            \
    X(nvmlDeviceGetBrand, (nvmlDevice_t, int *), "nvmlDeviceGetBrand")                             \
    X(nvmlDeviceGetInforomVersion, (nvmlDevice_t, int, char *, unsigned int),                      \
      "nvmlDeviceGetInforomVersion")                                                               \
    X(nvmlDeviceGetInforomImageVersion, (nvmlDevice_t, char *, unsigned int),                      \
      "nvmlDeviceGetInforomImageVersion")                                                          \
    X(nvmlDeviceGetInforomConfigurationChecksum, (nvmlDevice_t, unsigned int *),                   \
      "nvmlDeviceGetInforomConfigurationChecksum")                                                 \
    X(nvmlDeviceValidateInforom, (nvmlDevice_t), "nvmlDeviceValidateInforom")                      \
    X(nvmlDeviceGetVbiosVersion, (nvmlDevice_t, char *, unsigned int),                             \
      "nvmlDeviceGetVbiosVersion")                                                                 \
    X(nvmlDeviceGetCudaComputeCapability, (nvmlDevice_t, int *, int *),                            \
      "nvmlDeviceGetCudaComputeCapability")                                                        \
    X(nvmlDeviceGetComputeMode, (nvmlDevice_t, int *), "nvmlDeviceGetComputeMode")                 \
    X(nvmlDeviceGetPersistenceMode, (nvmlDevice_t, int *), "nvmlDeviceGetPersistenceMode")         \
    X(nvmlDeviceGetCpuAffinity, (nvmlDevice_t, unsigned int, unsigned long *),                     \
      "nvmlDeviceGetCpuAffinity")                                                                  \
    X(nvmlDeviceGetMemoryAffinity, (nvmlDevice_t, unsigned int, unsigned long *, unsigned int),    \
      "nvmlDeviceGetMemoryAffinity")                                                               \
    X(nvmlDeviceGetMigMode, (nvmlDevice_t, unsigned int *, unsigned int *),                        \
      "nvmlDeviceGetMigMode")                                                                      \
    X(nvmlDeviceGetMaxMigDeviceCount, (nvmlDevice_t, unsigned int *),                              \
      "nvmlDeviceGetMaxMigDeviceCount")                                                            \
    X(nvmlDeviceGetMigDeviceHandleByIndex, (nvmlDevice_t, unsigned int, nvmlDevice_t *),           \
      "nvmlDeviceGetMigDeviceHandleByIndex")                                                       \
    X(nvmlDeviceGetGpuInstanceId, (nvmlDevice_t, unsigned int *), "nvmlDeviceGetGpuInstanceId")    \
    X(nvmlDeviceGetComputeInstanceId, (nvmlDevice_t, unsigned int *),                              \
      "nvmlDeviceGetComputeInstanceId")                                                            \
    X(nvmlDeviceGetAttributes, (nvmlDevice_t, nvmlDeviceAttributes_t *),                           \
      "nvmlDeviceGetAttributes_v2", "nvmlDeviceGetAttributes")                                     \
    X(nvmlDeviceGetGpuInstanceById, (nvmlDevice_t, unsigned int, nvmlGpuInstance_t *),             \
      "nvmlDeviceGetGpuInstanceById")                                                              \
    X(nvmlGpuInstanceGetInfo, (nvmlGpuInstance_t, nvmlGpuInstanceInfo_t *),                        \
      "nvmlGpuInstanceGetInfo")                                                                    \
    X(nvmlDeviceGetUtilizationRates, (nvmlDevice_t, nvmlUtilization_t *),                          \
      "nvmlDeviceGetUtilizationRates")                                                             \
    X(nvmlDeviceGetEncoderUtilization, (nvmlDevice_t, unsigned int *, unsigned int *),             \
      "nvmlDeviceGetEncoderUtilization")                                                           \
    X(nvmlDeviceGetDecoderUtilization, (nvmlDevice_t, unsigned int *, unsigned int *),             \
      "nvmlDeviceGetDecoderUtilization")                                                           \
    X(nvmlDeviceGetSamples,                                                                        \
      (nvmlDevice_t, int, unsigned long long, int *, unsigned int *, nvmlSample_t *),              \
      "nvmlDeviceGetSamples")                                                                      \
    X(nvmlDeviceGetProcessUtilization,                                                             \
      (nvmlDevice_t, nvmlProcessUtilizationSample_t *, unsigned int *, unsigned long long),        \
      "nvmlDeviceGetProcessUtilization")                                                           \
    X(nvmlDeviceGetComputeRunningProcesses, (nvmlDevice_t, unsigned int *, void *),                \
      "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2",        \
      "nvmlDeviceGetComputeRunningProcesses")                                                      \
    X(nvmlDeviceGetGraphicsRunningProcesses, (nvmlDevice_t, unsigned int *, void *),               \
      "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",      \
      "nvmlDeviceGetGraphicsRunningProcesses")                                                     \
    X(nvmlDeviceGetMPSComputeRunningProcesses, (nvmlDevice_t, unsigned int *, void *),             \
      "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2",  \
      "nvmlDeviceGetMPSComputeRunningProcesses")                                                   \
    X(nvmlDeviceGetTotalEnergyConsumption, (nvmlDevice_t, unsigned long long *),                   \
      "nvmlDeviceGetTotalEnergyConsumption")                                                       \
    X(nvmlDeviceGetMemoryInfo_v2, (nvmlDevice_t, nvmlMemory_v2_t *), "nvmlDeviceGetMemoryInfo_v2") \
    X(nvmlDeviceGetMemoryInfo, (nvmlDevice_t, nvmlMemory_t *), "nvmlDeviceGetMemoryInfo")          \
    X(nvmlDeviceGetBAR1MemoryInfo, (nvmlDevice_t, nvmlBAR1Memory_t *),                             \
      "nvmlDeviceGetBAR1MemoryInfo")                                                               \
    X(nvmlDeviceGetClockInfo, (nvmlDevice_t, int, unsigned int *), "nvmlDeviceGetClockInfo")       \
    X(nvmlDeviceGetMaxClockInfo, (nvmlDevice_t, int, unsigned int *), "nvmlDeviceGetMaxClockInfo") \
    X(nvmlDeviceGetApplicationsClock, (nvmlDevice_t, int, unsigned int *),                         \
      "nvmlDeviceGetApplicationsClock")                                                            \
    X(nvmlDeviceGetAutoBoostedClocksEnabled, (nvmlDevice_t, int *, int *),                         \
      "nvmlDeviceGetAutoBoostedClocksEnabled")                                                     \
    X(nvmlDeviceGetCurrentClocksEventReasons, (nvmlDevice_t, unsigned long long *),                \
      "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")       \
    X(nvmlDeviceGetTemperature, (nvmlDevice_t, int, unsigned int *), "nvmlDeviceGetTemperature")   \
    X(nvmlDeviceGetTemperatureV, (nvmlDevice_t, nvmlTemperature_v1_t *),                           \
      "nvmlDeviceGetTemperatureV")                                                                 \
    X(nvmlDeviceGetTemperatureThreshold, (nvmlDevice_t, int, unsigned int *),                      \
      "nvmlDeviceGetTemperatureThreshold")                                                         \
    X(nvmlDeviceGetMarginTemperature, (nvmlDevice_t, nvmlMarginTemperature_v1_t *),                \
      "nvmlDeviceGetMarginTemperature")                                                            \
    X(nvmlDeviceGetPowerUsage, (nvmlDevice_t, unsigned int *), "nvmlDeviceGetPowerUsage")          \
    X(nvmlDeviceGetPowerManagementLimit, (nvmlDevice_t, unsigned int *),                           \
      "nvmlDeviceGetPowerManagementLimit")                                                         \
    X(nvmlDeviceGetPowerManagementDefaultLimit, (nvmlDevice_t, unsigned int *),                    \
      "nvmlDeviceGetPowerManagementDefaultLimit")                                                  \
    X(nvmlDeviceGetPowerManagementLimitConstraints,                                                \
      (nvmlDevice_t, unsigned int *, unsigned int *),                                              \
      "nvmlDeviceGetPowerManagementLimitConstraints")                                              \
    X(nvmlDeviceGetEnforcedPowerLimit, (nvmlDevice_t, unsigned int *),                             \
      "nvmlDeviceGetEnforcedPowerLimit")                                                           \
    X(nvmlDeviceGetPerformanceState, (nvmlDevice_t, int *), "nvmlDeviceGetPerformanceState")       \
    X(nvmlDeviceGetFanSpeed, (nvmlDevice_t, unsigned int *), "nvmlDeviceGetFanSpeed")              \
    X(nvmlDeviceGetPcieReplayCounter, (nvmlDevice_t, unsigned int *),                              \
      "nvmlDeviceGetPcieReplayCounter")                                                            \
    X(nvmlDeviceGetMaxPcieLinkGeneration, (nvmlDevice_t, unsigned int *),                          \
      "nvmlDeviceGetMaxPcieLinkGeneration")                                                        \
    X(nvmlDeviceGetMaxPcieLinkWidth, (nvmlDevice_t, unsigned int *),                               \
      "nvmlDeviceGetMaxPcieLinkWidth")                                                             \
    X(nvmlDeviceGetCurrPcieLinkGeneration, (nvmlDevice_t, unsigned int *),                         \
      "nvmlDeviceGetCurrPcieLinkGeneration")                                                       \
    X(nvmlDeviceGetCurrPcieLinkWidth, (nvmlDevice_t, unsigned int *),                              \
      "nvmlDeviceGetCurrPcieLinkWidth")                                                            \
    X(nvmlDeviceGetMemoryErrorCounter, (nvmlDevice_t, int, int, int, unsigned long long *),        \
      "nvmlDeviceGetMemoryErrorCounter")                                                           \
    X(nvmlDeviceGetSramEccErrorStatus, (nvmlDevice_t, nvmlEccSramErrorStatus_v1_t *),              \
      "nvmlDeviceGetSramEccErrorStatus")                                                           \
    X(nvmlDeviceGetRetiredPages, (nvmlDevice_t, int, unsigned int *, unsigned long long *),        \
      "nvmlDeviceGetRetiredPages")                                                                 \
    X(nvmlDeviceGetRowRemapperHistogram, (nvmlDevice_t, nvmlRowRemapperHistogramValues_t *),       \
      "nvmlDeviceGetRowRemapperHistogram")                                                         \
    X(nvmlDeviceGetUnrepairableMemoryFlag_v1, (nvmlDevice_t, nvmlUnrepairableMemoryStatus_v1_t *), \
      "nvmlDeviceGetUnrepairableMemoryFlag_v1")                                                    \
    X(nvmlDeviceGetP2PStatus, (nvmlDevice_t, nvmlDevice_t, int, int *), "nvmlDeviceGetP2PStatus")  \
    X(nvmlDeviceGetNvLinkErrorCounter, (nvmlDevice_t, unsigned int, int, unsigned long long *),    \
      "nvmlDeviceGetNvLinkErrorCounter")                                                           \
    X(nvmlDeviceGetGpuFabricInfoV, (nvmlDevice_t, nvmlGpuFabricInfo_v3_t *),                       \
      "nvmlDeviceGetGpuFabricInfoV")                                                               \
    X(nvmlDeviceGetGpuFabricInfo, (nvmlDevice_t, nvmlGpuFabricInfo_t *),                           \
      "nvmlDeviceGetGpuFabricInfo")                                                                \
    X(nvmlDeviceGetPlatformInfo, (nvmlDevice_t, nvmlPlatformInfo_v2_t *),                          \
      "nvmlDeviceGetPlatformInfo")                                                                 \
    X(nvmlDeviceGetVirtualizationMode, (nvmlDevice_t, int *), "nvmlDeviceGetVirtualizationMode")   \
    X(nvmlDeviceGetGridLicensableFeatures, (nvmlDevice_t, nvmlGridLicensableFeatures_t *),         \
      "nvmlDeviceGetGridLicensableFeatures_v4", "nvmlDeviceGetGridLicensableFeatures_v3")          \
    X(nvmlDeviceGetFieldValues, (nvmlDevice_t, int, nvmlFieldValue_t *),                           \
      "nvmlDeviceGetFieldValues")                                                                  \
    X(nvmlEventSetCreate, (nvmlEventSet_t *), "nvmlEventSetCreate")                                \
    X(nvmlDeviceGetSupportedEventTypes, (nvmlDevice_t, unsigned long long *),                      \
      "nvmlDeviceGetSupportedEventTypes")                                                          \
    X(nvmlDeviceRegisterEvents, (nvmlDevice_t, unsigned long long, nvmlEventSet_t),                \
      "nvmlDeviceRegisterEvents")                                                                  \
    X(nvmlEventSetWait_v2, (nvmlEventSet_t, nvmlEventData_t *, unsigned int),                      \
      "nvmlEventSetWait_v2")                                                                       \
    X(nvmlEventSetWait, (nvmlEventSet_t, nvmlEventData_t *, unsigned int), "nvmlEventSetWait")     \
    X(nvmlEventSetFree, (nvmlEventSet_t), "nvmlEventSetFree")                                      \
    X(nvmlGpmQueryDeviceSupport, (nvmlDevice_t, nvmlGpmSupport_t *), "nvmlGpmQueryDeviceSupport")  \
    X(nvmlGpmSampleAlloc, (nvmlGpmSample_t *), "nvmlGpmSampleAlloc")                               \
    X(nvmlGpmSampleFree, (nvmlGpmSample_t), "nvmlGpmSampleFree")                                   \
    X(nvmlGpmSampleGet, (nvmlDevice_t, nvmlGpmSample_t), "nvmlGpmSampleGet")                       \
    X(nvmlGpmMigSampleGet, (nvmlDevice_t, unsigned int, nvmlGpmSample_t), "nvmlGpmMigSampleGet")   \
    X(nvmlGpmMetricsGet, (nvmlGpmMetricsGet_t *), "nvmlGpmMetricsGet")

struct nvml_functions {
#define NVML_MEMBER(member, arguments, ...) nvmlReturn_t(*member) arguments;
    NVML_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
    // 1: the newest name was found, 2: the one before, ...; 0: none.
    struct {
#define NVML_GENERATION(member, arguments, ...) unsigned char member;
        NVML_FUNCTIONS(NVML_GENERATION)
#undef NVML_GENERATION
    } generation;
};

// The library of this process. Zeroed it is closed; page must point at a call page (an own one will
// do).
struct nvml {
    void *handle;
    bool initialised;
    struct nvml_functions fn;
    struct frame_call_page *page;
    const struct avoided_call *avoided; // borrowed; calls that are not made
    uint32_t avoided_count;
    uint32_t calls; // made so far
    // What the driver was found to lack, forgotten when the library is closed.
    bool memory_first_generation;  // no nvmlDeviceGetMemoryInfo_v2, though the library may have it
    bool memory_second_generation; // it has answered
    uint64_t gpm_refused[NVML_GPM_METRIC_MAX / 64 + 1]; // bit per metric: fails a whole request
    char path[256]; // where the library was found, "" if unknown
};

// Opens and resolves. library: a path, or NULL or "" to search. 0; -ENOENT, -ELIBBAD with *err.
int must_use nvml_open(struct nvml *n, const char *library, struct error *err);
// nvmlInit; the library counts references, so this is called once an nvml_close.
nvmlReturn_t nvml_init(struct nvml *n);
// nvmlShutdown; the library stays open.
void nvml_shutdown(struct nvml *n);
// Shutdown, and the library is unmapped: the next nvml_open loads the file that is there then (a
// driver upgrade).
void nvml_close(struct nvml *n);
