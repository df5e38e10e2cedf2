// SPDX-License-Identifier: Apache-2.0
#include "fake_libdcgm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern struct fake_libdcgm fake_libdcgm;
struct fake_libdcgm fake_libdcgm = {
    .handle = 7,
    .version =
        FAKE_MAJOR == 4 ? "version:4.6.1;arch:x86_64;buildid:1" : "version:3.3.9;arch:x86_64",
    .engine_version = FAKE_MAJOR == 4 ? "arch:x86_64;version:4.5.2;" : "version:3.1.7;",
};

EXPORT dcgmReturn_t dcgmInit(void);
EXPORT dcgmReturn_t dcgmShutdown(void);
EXPORT dcgmReturn_t dcgmVersionInfo(dcgmVersionInfo_v2 *);
EXPORT dcgmReturn_t dcgmHostengineVersionInfo(dcgmHandle_t, dcgmVersionInfo_v2 *);
EXPORT dcgmReturn_t DcgmFieldsInit(void);
EXPORT const dcgm_field_meta_t *DcgmFieldGetById(unsigned short);
EXPORT dcgmReturn_t dcgmConnect_v2(const char *, dcgmConnectV2Params_v2 *, dcgmHandle_t *);
EXPORT dcgmReturn_t dcgmDisconnect(dcgmHandle_t);
EXPORT dcgmReturn_t dcgmStartEmbedded_v2(dcgmStartEmbeddedV2Params_v1 *);
EXPORT dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t);
EXPORT dcgmReturn_t dcgmGetAllDevices(dcgmHandle_t, unsigned int *, int *);

// As DCGM writes its log, and what else may stand there: more than a pipe holds, in one call.
static void write_log(void)
{
    const char *file = getenv("__DCGM_DBG_FILE"), *level = getenv("__DCGM_DBG_LVL");
    if (!file || !level || strcmp(file, "-") != 0)
        return;
    (void)printf("2024-02-07 18:01:05.641 INFO  [517155:517155] Linux 4.15.0-180-generic at %s\n"
                 "hello from dcgm\n"
                 "2024-02-07 18:01:05.641\n",
                 level);
    for (unsigned i = 0; i < 2000; i++)
        (void)printf("2024-02-07 18:01:05.641 DEBUG [1:2] detail %u of what nobody asked for, at "
                     "length, so that the pipe is full before the last of them is written\n",
                     i);
    for (unsigned i = 0; i < 10000; i++)
        (void)putchar('x');
    (void)printf("\nlast line without an end");
    (void)fflush(stdout);
}

dcgmReturn_t dcgmInit(void)
{
    write_log();
    fake_libdcgm.inits++;
    return fake_libdcgm.init;
}

dcgmReturn_t dcgmShutdown(void)
{
    fake_libdcgm.shutdowns++;
    return DCGM_ST_OK;
}

static dcgmReturn_t tell(const char *text, dcgmVersionInfo_v2 *info)
{
    if (info->version != 0x2000204)
        return DCGM_ST_VER_MISMATCH;
    (void)snprintf(info->rawBuildInfoString, sizeof(info->rawBuildInfoString), "%s", text);
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmVersionInfo(dcgmVersionInfo_v2 *info)
{
    return tell(fake_libdcgm.version, info);
}

dcgmReturn_t dcgmHostengineVersionInfo(dcgmHandle_t handle, dcgmVersionInfo_v2 *info)
{
    if (handle != fake_libdcgm.handle || fake_libdcgm.hostengine_version != DCGM_ST_OK)
        return handle != fake_libdcgm.handle ? DCGM_ST_BADPARAM : fake_libdcgm.hostengine_version;
    return tell(fake_libdcgm.engine_version, info);
}

dcgmReturn_t DcgmFieldsInit(void)
{
    return fake_libdcgm.fields_init;
}

const dcgm_field_meta_t *DcgmFieldGetById(unsigned short id)
{
    (void)id;
    return NULL;
}

dcgmReturn_t dcgmConnect_v2(const char *address, dcgmConnectV2Params_v2 *params,
                            dcgmHandle_t *handle)
{
    if (params->version != 0x2000010)
        return DCGM_ST_VER_MISMATCH;
    fake_libdcgm.connects++;
    fake_libdcgm.v2 = *params;
    (void)snprintf(fake_libdcgm.address, sizeof(fake_libdcgm.address), "%s", address);
    if (fake_libdcgm.connect == DCGM_ST_OK)
        *handle = fake_libdcgm.handle;
    return fake_libdcgm.connect;
}

#if FAKE_MAJOR == 4
EXPORT dcgmReturn_t dcgmConnect_v3(const char *, dcgmConnectV3Params_v1 *, dcgmHandle_t *);

dcgmReturn_t dcgmConnect_v3(const char *address, dcgmConnectV3Params_v1 *params,
                            dcgmHandle_t *handle)
{
    if (params->version != 0x100000c)
        return DCGM_ST_VER_MISMATCH;
    fake_libdcgm.connects_v3++;
    fake_libdcgm.v3 = *params;
    (void)snprintf(fake_libdcgm.address, sizeof(fake_libdcgm.address), "%s", address);
    if (fake_libdcgm.connect_v3 == DCGM_ST_OK)
        *handle = fake_libdcgm.handle;
    return fake_libdcgm.connect_v3;
}
#endif

dcgmReturn_t dcgmDisconnect(dcgmHandle_t handle)
{
    fake_libdcgm.disconnects++;
    fake_libdcgm.closed = handle;
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmStartEmbedded_v2(dcgmStartEmbeddedV2Params_v1 *params)
{
    if (params->version != 0x1000048)
        return DCGM_ST_VER_MISMATCH;
    fake_libdcgm.embeds++;
    fake_libdcgm.embedded = *params;
    if (fake_libdcgm.embed == DCGM_ST_OK)
        params->dcgmHandle = fake_libdcgm.handle;
    return fake_libdcgm.embed;
}

dcgmReturn_t dcgmStopEmbedded(dcgmHandle_t handle)
{
    fake_libdcgm.stops++;
    fake_libdcgm.closed = handle;
    return DCGM_ST_OK;
}

dcgmReturn_t dcgmGetAllDevices(dcgmHandle_t handle, unsigned int *ids, int *count)
{
    (void)handle;
    ids[0] = 0;
    *count = 1;
    return fake_libdcgm.devices;
}
