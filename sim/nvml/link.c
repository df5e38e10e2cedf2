// SPDX-License-Identifier: Apache-2.0
// NVLink and the fabric behind it.
#include "double.h"

#include <string.h>

static nvmlReturn_t check_link(const struct call *c, unsigned int link)
{
    if (call_gpu(c)->links == 0)
        return NOT_SUPPORTED;
    return link < call_gpu(c)->links ? OK : INVALID_ARGUMENT;
}

API(nvmlDeviceGetNvLinkState, nvmlDevice_t device, unsigned int link, unsigned int *active)
{
    CALL_GPU(device);
    NEED(active);
    nvmlReturn_t code = check_link(&c, link);
    if (code == OK)
        *active = link >= (unsigned)sim_truth_or_zero(c.node, c.gpu, SIM_NVLINK_LINKS_DOWN, c.t);
    return code;
}

API(nvmlDeviceGetNvLinkVersion, nvmlDevice_t device, unsigned int link, unsigned int *version)
{
    CALL_GPU(device);
    nvmlReturn_t code = check_link(&c, link);
    return code == OK ? call_u32(&c, SIM_NVLINK_VERSION, version) : code;
}

API(nvmlDeviceGetNvLinkCapability, nvmlDevice_t device, unsigned int link, int capability,
    unsigned int *result)
{
    CALL_GPU(device);
    if (!result || capability < 0 || capability > 5)
        return INVALID_ARGUMENT;
    nvmlReturn_t code = check_link(&c, link);
    if (code == OK)
        *result = capability != 4;
    return code;
}

// 0 replay, 1 recovery, 2 CRC of flits, 3 CRC of data; all on link 0.
API(nvmlDeviceGetNvLinkErrorCounter, nvmlDevice_t device, unsigned int link, int counter,
    unsigned long long *value)
{
    static const enum sim_field fields[] = {SIM_NVLINK_REPLAY, SIM_NVLINK_RECOVERY,
                                            SIM_NVLINK_CRC_FLIT, SIM_NVLINK_CRC_DATA};
    CALL_GPU(device);
    if (!value || counter < 0 || counter > 4)
        return INVALID_ARGUMENT;
    nvmlReturn_t code = check_link(&c, link);
    if (code != OK || counter == 4)
        return code != OK ? code : NOT_SUPPORTED;
    code = call_u64(&c, fields[counter], value);
    if (code == OK && link > 0)
        *value = 0;
    return code;
}

// The far ends are NVSwitches.
API(nvmlDeviceGetNvLinkRemoteDeviceType, nvmlDevice_t device, unsigned int link, int *type)
{
    CALL_GPU(device);
    NEED(type);
    nvmlReturn_t code = check_link(&c, link);
    if (code == OK)
        *type = 2;
    return code;
}

API(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
    CALL_GPU(device);
    NEED(pci);
    nvmlReturn_t code = check_link(&c, link);
    if (code != OK)
        return code;
    *pci = (nvmlPciInfo_t){.bus = 5 + link % 4, .pciDeviceId = 0x22a310deu};
    memcpy(pci->busId, "00000000:05:00.0", 17);
    memcpy(pci->busIdLegacy, "0000:05:00.0", 13);
    pci->busId[10] = pci->busIdLegacy[6] = (char)('5' + link % 4);
    return OK;
}

// --- Fabric ---

API(nvmlDeviceGetGpuFabricInfo, nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
    CALL_GPU(device);
    NEED(info);
    unsigned int state;
    nvmlReturn_t code = call_u32(&c, SIM_FABRIC_STATE, &state);
    if (code == OK)
        *info = (nvmlGpuFabricInfo_t){.cliqueId = 1, .state = (unsigned char)state};
    return code;
}

API(nvmlDeviceGetGpuFabricInfoV, nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *info)
{
    CALL_GPU(device);
    NEED(info);
    bool newest =
        info->version == VERSION_OF(nvmlGpuFabricInfo_v3_t, 3) && c.node->driver_branch >= 570;
    if (!newest && info->version != VERSION_OF(nvmlGpuFabricInfo_v2_t, 2))
        return ARGUMENT_VERSION_MISMATCH;
    unsigned int state;
    nvmlReturn_t code = call_u32(&c, SIM_FABRIC_STATE, &state);
    if (code != OK)
        return code;
    nvmlGpuFabricInfo_v3_t full = {
        .version = info->version, .cliqueId = 1, .state = (unsigned char)state};
    memcpy(info, &full, newest ? sizeof(nvmlGpuFabricInfo_v3_t) : sizeof(nvmlGpuFabricInfo_v2_t));
    return OK;
}
