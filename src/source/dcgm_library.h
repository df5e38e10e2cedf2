// SPDX-License-Identifier: Apache-2.0
// NVIDIA's libdcgm, loaded symbol by symbol: libdcgm.so.4, else libdcgm.so.3. Which major it is
// decides the versions of the structs that differ (dcgm_abi.h); a symbol that is missing costs what
// it is for. Names, arguments and struct versions: DCGM's public headers dcgm_agent.h,
// dcgm_structs.h and dcgm_fields.h, 3.3.9 and 4.6.1.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "base/macros.h"
#include "source/dcgm_abi.h"
#include "source/driver_call.h"

// X(member, (argument types), "symbol")
#define DCGM_FUNCTIONS(X)                                                                          \
    X(dcgmInit, (void), "dcgmInit")                                                                \
    X(dcgmShutdown, (void), "dcgmShutdown")                                                        \
    X(dcgmStartEmbedded_v2, (dcgmStartEmbeddedV2Params_v1 *), "dcgmStartEmbedded_v2")              \
    X(dcgmStopEmbedded, (dcgmHandle_t), "dcgmStopEmbedded")                                        \
    X(dcgmConnect_v2, (const char *, dcgmConnectV2Params_v2 *, dcgmHandle_t *), "dcgmConnect_v2")  \
    X(dcgmConnect_v3, (const char *, dcgmConnectV3Params_v1 *, dcgmHandle_t *), "dcgmConnect_v3")  \
    X(dcgmDisconnect, (dcgmHandle_t), "dcgmDisconnect")                                            \
    X(dcgmVersionInfo, (dcgmVersionInfo_v2 *), "dcgmVersionInfo")                                  \
    X(dcgmHostengineVersionInfo, (dcgmHandle_t, dcgmVersionInfo_v2 *),                             \
      "dcgmHostengineVersionInfo")                                                                 \
    X(DcgmFieldsInit, (void), "DcgmFieldsInit")                                                    \
    X(dcgmGetAllDevices, (dcgmHandle_t, unsigned int *, int *), "dcgmGetAllDevices")               \
    X(dcgmGetDeviceAttributes, (dcgmHandle_t, unsigned int, dcgmDeviceAttributes_v3 *),            \
      "dcgmGetDeviceAttributes")                                                                   \
    X(dcgmGetGpuStatus, (dcgmHandle_t, unsigned int, int *), "dcgmGetGpuStatus")                   \
    X(dcgmGetEntityGroupEntities, (dcgmHandle_t, int, unsigned int *, int *, unsigned int),        \
      "dcgmGetEntityGroupEntities")                                                                \
    X(dcgmGetGpuInstanceHierarchy, (dcgmHandle_t, dcgmMigHierarchy_v2 *),                          \
      "dcgmGetGpuInstanceHierarchy")                                                               \
    X(dcgmGetNvLinkLinkStatus, (dcgmHandle_t, void *), "dcgmGetNvLinkLinkStatus")                  \
    X(dcgmGetNvLinkP2PStatus, (dcgmHandle_t, dcgmNvLinkP2PStatus_v1 *), "dcgmGetNvLinkP2PStatus")  \
    X(dcgmGetCpuHierarchy, (dcgmHandle_t, dcgmCpuHierarchy_v1 *), "dcgmGetCpuHierarchy")           \
    X(dcgmGetCpuHierarchy_v2, (dcgmHandle_t, dcgmCpuHierarchy_v2 *), "dcgmGetCpuHierarchy_v2")     \
    X(dcgmGroupCreate, (dcgmHandle_t, int, const char *, dcgmGpuGrp_t *), "dcgmGroupCreate")       \
    X(dcgmGroupDestroy, (dcgmHandle_t, dcgmGpuGrp_t), "dcgmGroupDestroy")                          \
    X(dcgmGroupAddEntity, (dcgmHandle_t, dcgmGpuGrp_t, int, unsigned int), "dcgmGroupAddEntity")   \
    X(dcgmFieldGroupCreate,                                                                        \
      (dcgmHandle_t, int, const unsigned short *, const char *, dcgmFieldGrp_t *),                 \
      "dcgmFieldGroupCreate")                                                                      \
    X(dcgmFieldGroupDestroy, (dcgmHandle_t, dcgmFieldGrp_t), "dcgmFieldGroupDestroy")              \
    X(dcgmWatchFields, (dcgmHandle_t, dcgmGpuGrp_t, dcgmFieldGrp_t, long long, double, int),       \
      "dcgmWatchFields")                                                                           \
    X(dcgmUnwatchFields, (dcgmHandle_t, dcgmGpuGrp_t, dcgmFieldGrp_t), "dcgmUnwatchFields")        \
    X(dcgmUpdateAllFields, (dcgmHandle_t, int), "dcgmUpdateAllFields")                             \
    X(dcgmGetLatestValues_v2,                                                                      \
      (dcgmHandle_t, dcgmGpuGrp_t, dcgmFieldGrp_t, dcgmFieldValueEntityEnumeration_f, void *),     \
      "dcgmGetLatestValues_v2")                                                                    \
    X(dcgmGetValuesSince_v2,                                                                       \
      (dcgmHandle_t, dcgmGpuGrp_t, dcgmFieldGrp_t, long long, long long *,                         \
       dcgmFieldValueEntityEnumeration_f, void *),                                                 \
      "dcgmGetValuesSince_v2")                                                                     \
    X(dcgmEntitiesGetLatestValues,                                                                 \
      (dcgmHandle_t, dcgmGroupEntityPair_t *, unsigned int, unsigned short *, unsigned int,        \
       unsigned int, dcgmFieldValue_v2 *),                                                         \
      "dcgmEntitiesGetLatestValues")                                                               \
    X(dcgmHealthSet_v2, (dcgmHandle_t, dcgmHealthSetParams_v2 *), "dcgmHealthSet_v2")              \
    X(dcgmHealthCheck, (dcgmHandle_t, dcgmGpuGrp_t, void *), "dcgmHealthCheck")                    \
    X(dcgmProfGetSupportedMetricGroups, (dcgmHandle_t, dcgmProfGetMetricGroups_v3 *),              \
      "dcgmProfGetSupportedMetricGroups")                                                          \
    X(dcgmProfPause, (dcgmHandle_t), "dcgmProfPause")                                              \
    X(dcgmProfResume, (dcgmHandle_t), "dcgmProfResume")

struct dcgm_functions {
#define DCGM_MEMBER(member, arguments, ...) dcgmReturn_t(*member) arguments;
    DCGM_FUNCTIONS(DCGM_MEMBER)
#undef DCGM_MEMBER
    const dcgm_field_meta_t *(*DcgmFieldGetById)(unsigned short);
};

// The library of this process and the engine it talks to. Zeroed it is closed; page must point at a
// call page.
struct dcgm {
    void *library;
    unsigned major; // 4 or 3
    struct dcgm_functions fn;
    dcgmHandle_t engine; // 0: none
    bool embedded;
    struct frame_call_page *page;
    const struct avoided_call *avoided; // borrowed; calls that are not made
    uint32_t avoided_count;
    uint32_t calls; // made so far
    uint32_t names; // given to groups so far
    bool lost;      // a call said that the connection or the engine is gone; dcgm_engine.h mends it
    char path[256]; // where the library was found, "" if unknown
    char library_version[80]; // "4.6.1", "" if unknown
    char version[80];         // of the engine, of the library without one
    char address[128];        // of the engine in use, "embedded", or ""
};

// Opens and resolves, dcgmInit, DcgmFieldsInit. library: a path, or NULL or "" to search. 0;
// -ENOENT: not found; -ELIBBAD: found, but it is not DCGM or cannot be loaded; -EIO: it does not
// start; with *err.
int must_use dcgm_open(struct dcgm *d, const char *library, struct error *err);
// dcgmShutdown; the library stays mapped (its threads may still run).
void dcgm_close(struct dcgm *d);
// For people: "connection not valid". Static text; "unknown" past the table.
const char *dcgm_result_text(dcgmReturn_t result);
// The value of a key of dcgmVersionInfo's text, "version:4.6.1;arch:x86_64;...", cut to fit; ""
// when it is not there. The major that a version starts with, 0: none.
void dcgm_version_find(const dcgmVersionInfo_v2 *info, const char *key, char *out,
                       size_t out_bytes);
unsigned dcgm_version_major(const char *version);

// dcgm_call(d, member, ...): counts, marks the call page, refuses what is avoided
// (DCGM_ST_NOT_SUPPORTED) or not in the library (DCGM_ST_FUNCTION_NOT_FOUND), and sets d->lost on
// DCGM_ST_CONNECTION_NOT_VALID. Stands in dcgm_call.h.
