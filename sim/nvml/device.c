// SPDX-License-Identifier: Apache-2.0
// The system, handles, and what a device is: names, ids, versions, modes.
#include "double.h"

#include <stdio.h>
#include <string.h>

// --- System ---

API(nvmlSystemGetDriverVersion, char *version, unsigned int length)
{
    CALL();
    return copy_text(version, length, c.node->driver_version);
}

API(nvmlSystemGetNVMLVersion, char *version, unsigned int length)
{
    CALL();
    return copy_text(version, length, c.node->nvml_version);
}

static nvmlReturn_t cuda_version(const struct call *c, int *version)
{
    NEED(version);
    *version = (int)c->node->cuda_version;
    return OK;
}

API(nvmlSystemGetCudaDriverVersion, int *version)
{
    CALL();
    return cuda_version(&c, version);
}

API(nvmlSystemGetCudaDriverVersion_v2, int *version)
{
    CALL();
    return cuda_version(&c, version);
}

API(nvmlSystemGetDriverBranch, nvmlSystemDriverBranchInfo_v1_t *info, unsigned int length)
{
    CALL();
    NEED(info);
    if (info->version != VERSION_OF(nvmlSystemDriverBranchInfo_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    char branch[32];
    (void)snprintf(branch, sizeof(branch), "r%u_00", c.node->driver_branch);
    return copy_text(info->branch,
                     length < sizeof(info->branch) ? length : (unsigned)sizeof(info->branch),
                     branch);
}

API(nvmlSystemGetProcessName, unsigned int pid, char *name, unsigned int length)
{
    CALL();
    if (!name || length == 0)
        return INVALID_ARGUMENT;
    for (uint32_t i = 0; i < c.node->process_count; i++) {
        const struct sim_process *p = &c.node->processes[i];
        if (p->pid != pid || !sim_process_alive(c.node, i, c.t))
            continue;
        (void)snprintf(name, length, "%s",
                       sim_string(c.node, p->name)); // cut to fit, as the driver does
        return OK;
    }
    return NOT_FOUND;
}

// --- Handles ---

static nvmlReturn_t count_devices(const struct call *c, unsigned int *count)
{
    NEED(count);
    *count = c->node->gpu_count;
    return OK;
}

API(nvmlDeviceGetCount, unsigned int *count)
{
    CALL();
    return count_devices(&c, count);
}

API(nvmlDeviceGetCount_v2, unsigned int *count)
{
    CALL();
    return count_devices(&c, count);
}

// Taking a handle attaches the GPU; one that is gone or forbidden gives none.
static nvmlReturn_t take_handle(const struct call *c, uint32_t gpu, nvmlDevice_t *device)
{
    int code = sim_gpu_return(c->node, gpu, double_opened_at(), c->t);
    if (code != OK)
        return code;
    sim_client_attach(c->node, gpu);
    *device = double_gpu_handle(gpu);
    return OK;
}

static nvmlReturn_t by_index(const struct call *c, unsigned int index, nvmlDevice_t *device)
{
    if (!device || index >= c->node->gpu_count)
        return INVALID_ARGUMENT;
    return take_handle(c, index, device);
}

API(nvmlDeviceGetHandleByIndex, unsigned int index, nvmlDevice_t *device)
{
    CALL();
    return by_index(&c, index, device);
}

API(nvmlDeviceGetHandleByIndex_v2, unsigned int index, nvmlDevice_t *device)
{
    CALL();
    return by_index(&c, index, device);
}

static nvmlReturn_t by_uuid(const struct call *c, const char *uuid, nvmlDevice_t *device)
{
    for (uint32_t i = 0; i < c->node->gpu_count; i++) {
        if (strcmp(uuid, sim_string(c->node, c->node->gpus[i].uuid)) == 0)
            return take_handle(c, i, device);
    }
    for (uint32_t i = 0; i < c->node->instance_count; i++) {
        const struct sim_instance *x = &c->node->instances[i];
        if (!sim_instance_alive(c->node, i, c->t) ||
            strcmp(uuid, sim_string(c->node, x->uuid)) != 0)
            continue;
        *device = double_mig_handle(i);
        return OK;
    }
    return NOT_FOUND;
}

API(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice_t *device)
{
    CALL();
    NEED(uuid);
    NEED(device);
    return by_uuid(&c, uuid, device);
}

API(nvmlDeviceGetHandleByUUIDV, const nvmlUUID_v1_t *uuid, nvmlDevice_t *device)
{
    CALL();
    NEED(uuid);
    NEED(device);
    if (uuid->version != VERSION_OF(nvmlUUID_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    if (uuid->type != 1) // the text form; the binary one isn't simulated
        return NOT_SUPPORTED;
    char text[sizeof(uuid->value.str) + 1] = "";
    memcpy(text, uuid->value.str, sizeof(uuid->value.str));
    return by_uuid(&c, text, device);
}

API(nvmlDeviceGetHandleBySerial, const char *serial, nvmlDevice_t *device)
{
    CALL();
    NEED(serial);
    NEED(device);
    for (uint32_t i = 0; i < c.node->gpu_count; i++) {
        if (strcmp(serial, sim_string(c.node, c.node->gpus[i].serial)) == 0)
            return take_handle(&c, i, device);
    }
    return NOT_FOUND;
}

static nvmlReturn_t by_bus_id(const struct call *c, const char *id, nvmlDevice_t *device)
{
    NEED(id);
    NEED(device);
    for (uint32_t i = 0; i < c->node->gpu_count; i++) {
        const char *full = sim_string(c->node, c->node->gpus[i].bus_id);
        // "0000:1B:00.0" is good as well
        if (strcasecmp(id, full) == 0 || (strlen(full) > 4 && strcasecmp(id, full + 4) == 0))
            return take_handle(c, i, device);
    }
    return NOT_FOUND;
}

API(nvmlDeviceGetHandleByPciBusId, const char *id, nvmlDevice_t *device)
{
    CALL();
    return by_bus_id(&c, id, device);
}

API(nvmlDeviceGetHandleByPciBusId_v2, const char *id, nvmlDevice_t *device)
{
    CALL();
    return by_bus_id(&c, id, device);
}

// --- Names and ids ---

API(nvmlDeviceGetName, nvmlDevice_t device, char *name, unsigned int length)
{
    CALL_DEVICE(device);
    char text[192];
    const char *board = sim_string(c.node, call_gpu(&c)->name);
    if (!call_is_mig(&c))
        return copy_text(name, length, board);
    const struct sim_instance *x = &c.node->instances[c.instance];
    const char *profile = sim_string(c.node, x->profile);
    if (x->ci_slices < x->gi_slices)
        (void)snprintf(text, sizeof(text), "%s MIG %uc.%s", board, x->ci_slices, profile);
    else
        (void)snprintf(text, sizeof(text), "%s MIG %s", board, profile);
    return copy_text(name, length, text);
}

API(nvmlDeviceGetUUID, nvmlDevice_t device, char *uuid, unsigned int length)
{
    CALL_DEVICE(device);
    uint32_t text = call_is_mig(&c) ? c.node->instances[c.instance].uuid : call_gpu(&c)->uuid;
    if (!call_is_mig(&c) || c.node->driver_branch >= 470)
        return copy_text(uuid, length, sim_string(c.node, text));
    // Drivers before 470 name an instance after its GPU.
    const struct sim_instance *x = &c.node->instances[c.instance];
    char legacy[160];
    (void)snprintf(legacy, sizeof(legacy), "MIG-%s/%u/%u", sim_string(c.node, call_gpu(&c)->uuid),
                   x->gi, x->ci);
    return copy_text(uuid, length, legacy);
}

API(nvmlDeviceGetSerial, nvmlDevice_t device, char *serial, unsigned int length)
{
    CALL_GPU(device);
    return copy_text(serial, length, sim_string(c.node, call_gpu(&c)->serial));
}

API(nvmlDeviceGetBoardPartNumber, nvmlDevice_t device, char *number, unsigned int length)
{
    CALL_GPU(device);
    return copy_text(number, length, sim_string(c.node, call_gpu(&c)->part_number));
}

API(nvmlDeviceGetVbiosVersion, nvmlDevice_t device, char *version, unsigned int length)
{
    CALL_GPU(device);
    return copy_text(version, length, sim_string(c.node, call_gpu(&c)->vbios));
}

API(nvmlDeviceGetInforomImageVersion, nvmlDevice_t device, char *version, unsigned int length)
{
    CALL_GPU(device);
    return copy_text(version, length, sim_string(c.node, call_gpu(&c)->inforom_image));
}

API(nvmlDeviceGetInforomVersion, nvmlDevice_t device, int object, char *version,
    unsigned int length)
{
    CALL_GPU(device);
    const struct sim_gpu *g = call_gpu(&c);
    const uint32_t texts[] = {g->inforom_oem, g->inforom_ecc, g->inforom_power};
    if (object < 0 || object > 3)
        return INVALID_ARGUMENT;
    return object == 3 ? NOT_SUPPORTED
                       : copy_text(version, length, sim_string(c.node, texts[object]));
}

API(nvmlDeviceValidateInforom, nvmlDevice_t device)
{
    CALL_GPU(device);
    return call_gpu(&c)->inforom_image ? OK : NOT_SUPPORTED;
}

API(nvmlDeviceGetIndex, nvmlDevice_t device, unsigned int *index)
{
    CALL_DEVICE(device);
    NEED(index);
    *index = call_is_mig(&c) ? c.node->instances[c.instance].slot : c.gpu;
    return OK;
}

API(nvmlDeviceGetMinorNumber, nvmlDevice_t device, unsigned int *minor)
{
    CALL_GPU(device);
    NEED(minor);
    *minor = call_gpu(&c)->minor;
    return OK;
}

API(nvmlDeviceGetModuleId, nvmlDevice_t device, unsigned int *id)
{
    CALL_GPU(device);
    NEED(id);
    *id = c.gpu + 1;
    return OK;
}

API(nvmlDeviceGetBoardId, nvmlDevice_t device, unsigned int *id)
{
    CALL_GPU(device);
    NEED(id);
    *id = call_gpu(&c)->bus << 8;
    return OK;
}

API(nvmlDeviceGetMultiGpuBoard, nvmlDevice_t device, unsigned int *multi)
{
    CALL_GPU(device);
    NEED(multi);
    *multi = 0;
    return OK;
}

API(nvmlDeviceGetBrand, nvmlDevice_t device, int *brand)
{
    CALL_GPU(device);
    NEED(brand);
    *brand = (int)call_gpu(&c)->brand;
    return OK;
}

API(nvmlDeviceGetArchitecture, nvmlDevice_t device, unsigned int *architecture)
{
    CALL_DEVICE(device);
    NEED(architecture);
    *architecture = call_gpu(&c)->architecture;
    return OK;
}

API(nvmlDeviceGetCudaComputeCapability, nvmlDevice_t device, int *major, int *minor)
{
    CALL_DEVICE(device);
    NEED(major);
    NEED(minor);
    *major = (int)call_gpu(&c)->cc_major;
    *minor = (int)call_gpu(&c)->cc_minor;
    return OK;
}

API(nvmlDeviceGetNumGpuCores, nvmlDevice_t device, unsigned int *cores)
{
    CALL_GPU(device);
    NEED(cores);
    *cores = call_gpu(&c)->multiprocessors * 128;
    return OK;
}

API(nvmlDeviceGetNumaNodeId, nvmlDevice_t device, unsigned int *node)
{
    CALL_GPU(device);
    NEED(node);
    if (call_gpu(&c)->numa_node == UINT32_MAX)
        return NOT_SUPPORTED;
    *node = call_gpu(&c)->numa_node;
    return OK;
}

API(nvmlDeviceGetCpuAffinity, nvmlDevice_t device, unsigned int size, unsigned long *set)
{
    CALL_GPU(device);
    if (!set || size == 0)
        return INVALID_ARGUMENT;
    memset(set, 0, size * sizeof(*set));
    set[0] = call_gpu(&c)->numa_node == 1 ? 0xffff0000ul : 0xfffful;
    return OK;
}

// --- PCI ---

static void fill_pci(const struct call *c, nvmlPciInfo_t *pci)
{
    const struct sim_gpu *g = call_gpu(c);
    *pci = (nvmlPciInfo_t){.domain = g->domain,
                           .bus = g->bus,
                           .device = g->device,
                           .pciDeviceId = g->pci_device_id,
                           .pciSubSystemId = g->pci_subsystem_id};
    const char *id = sim_string(c->node, g->bus_id);
    (void)snprintf(pci->busId, sizeof(pci->busId), "%.31s", id);
    (void)snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "%.15s",
                   strlen(id) > 4 ? id + 4 : id);
}

API(nvmlDeviceGetPciInfo_v3, nvmlDevice_t device, nvmlPciInfo_t *pci)
{
    CALL_DEVICE(device);
    NEED(pci);
    fill_pci(&c, pci);
    return OK;
}

static nvmlReturn_t pci_v2(const struct call *c, nvmlPciInfo_v2_t *pci)
{
    NEED(pci);
    nvmlPciInfo_t full;
    fill_pci(c, &full);
    *pci = (nvmlPciInfo_v2_t){.domain = full.domain,
                              .bus = full.bus,
                              .device = full.device,
                              .pciDeviceId = full.pciDeviceId,
                              .pciSubSystemId = full.pciSubSystemId};
    memcpy(pci->busId, full.busIdLegacy, sizeof(pci->busId));
    return OK;
}

API(nvmlDeviceGetPciInfo_v2, nvmlDevice_t device, nvmlPciInfo_v2_t *pci)
{
    CALL_DEVICE(device);
    return pci_v2(&c, pci);
}

// The oldest form ends before the reserved words, and so does what the double writes.
API(nvmlDeviceGetPciInfo, nvmlDevice_t device, void *pci)
{
    CALL_DEVICE(device);
    NEED(pci);
    nvmlPciInfo_v2_t full;
    nvmlReturn_t code = pci_v2(&c, &full);
    if (code == OK)
        memcpy(pci, &full, offsetof(nvmlPciInfo_v2_t, pciSubSystemId));
    return code;
}

API(nvmlDeviceGetPciInfoExt, nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci)
{
    CALL_DEVICE(device);
    NEED(pci);
    if (pci->version != VERSION_OF(nvmlPciInfoExt_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    nvmlPciInfo_t full;
    fill_pci(&c, &full);
    *pci = (nvmlPciInfoExt_v1_t){.version = pci->version,
                                 .domain = full.domain,
                                 .bus = full.bus,
                                 .device = full.device,
                                 .pciDeviceId = full.pciDeviceId,
                                 .pciSubSystemId = full.pciSubSystemId,
                                 .baseClass = 3,
                                 .subClass = 2};
    memcpy(pci->busId, full.busId, sizeof(pci->busId));
    return OK;
}

// --- Modes ---

API_GPU_U32(nvmlDeviceGetPersistenceMode, SIM_PERSISTENCE)
API_GPU_U32(nvmlDeviceGetComputeMode, SIM_COMPUTE_MODE)
API_GPU_U32(nvmlDeviceGetVirtualizationMode, SIM_VIRTUALIZATION)

API(nvmlDeviceGetDisplayMode, nvmlDevice_t device, unsigned int *mode)
{
    CALL_GPU(device);
    NEED(mode);
    *mode = 0;
    return OK;
}

API(nvmlDeviceGetDisplayActive, nvmlDevice_t device, unsigned int *active)
{
    CALL_GPU(device);
    NEED(active);
    *active = 0;
    return OK;
}

API(nvmlDeviceGetRepairStatus, nvmlDevice_t device, nvmlRepairStatus_v1_t *status)
{
    CALL_GPU(device);
    NEED(status);
    if (status->version != VERSION_OF(nvmlRepairStatus_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    status->bTpcRepairPending = 0;
    return call_u32(&c, SIM_REPAIR_PENDING, &status->bChannelRepairPending);
}

// --- vGPU licence ---

static bool feature_listed(const struct call *c)
{
    return sim_truth_or_zero(c->node, c->gpu, SIM_LICENSE_SUPPORTED, c->t) != 0;
}

API(nvmlDeviceGetGridLicensableFeatures_v4, nvmlDevice_t device, nvmlGridLicensableFeatures_t *out)
{
    CALL_GPU(device);
    NEED(out);
    unsigned int supported;
    nvmlReturn_t code = call_u32(&c, SIM_LICENSE_SUPPORTED, &supported);
    if (code != OK)
        return code;
    memset(out, 0, sizeof(*out));
    out->isGridLicenseSupported = (int)supported;
    if (!feature_listed(&c))
        return OK;
    nvmlGridLicensableFeature_t *f = &out->gridLicensableFeatures[0];
    out->licensableFeaturesCount = 1;
    f->featureCode = 1;
    f->featureEnabled = 1;
    f->featureState = (unsigned int)sim_truth_or_zero(c.node, c.gpu, SIM_LICENSE_STATE, c.t);
    (void)snprintf(f->productName, sizeof(f->productName), "NVIDIA Virtual Compute Server");
    return OK;
}

static nvmlReturn_t features_v3(const struct call *c, nvmlGridLicensableFeatures_v3_t *out)
{
    NEED(out);
    unsigned int supported;
    nvmlReturn_t code = call_u32(c, SIM_LICENSE_SUPPORTED, &supported);
    if (code != OK)
        return code;
    memset(out, 0, sizeof(*out));
    out->isGridLicenseSupported = (int)supported;
    if (!feature_listed(c))
        return OK;
    out->licensableFeaturesCount = 1;
    out->gridLicensableFeatures[0].featureCode = 1;
    out->gridLicensableFeatures[0].featureEnabled = 1;
    out->gridLicensableFeatures[0].featureState =
        (unsigned int)sim_truth_or_zero(c->node, c->gpu, SIM_LICENSE_STATE, c->t);
    return OK;
}

API(nvmlDeviceGetGridLicensableFeatures_v3, nvmlDevice_t device,
    nvmlGridLicensableFeatures_v3_t *out)
{
    CALL_GPU(device);
    return features_v3(&c, out);
}
