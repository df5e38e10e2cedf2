// SPDX-License-Identifier: Apache-2.0
// One function a vendor call. Each fills the numbers and texts its recipes pick from and sets
// result; a number the call did not give gets a status of its own.
#include <stdio.h>
#include <string.h>

#include "source/nvml_call.h"
#include "source/nvml_fields.h"

typedef void (*getter_fn)(const struct nvml_getter_context *c, uint16_t arg,
                          struct nvml_reading *out);

#define GET(c, function, ...)                                                                      \
    nvml_call((c)->n, (c)->entity->record.index, function,                                         \
              (c)->entity->device __VA_OPT__(, ) __VA_ARGS__)

void nvml_system_read(struct nvml *n, struct nvml_system *s)
{
    *s = (struct nvml_system){0};
    (void)nvml_call(n, NVML_NO_GPU, nvmlSystemGetDriverVersion, s->driver_version,
                    (unsigned int)sizeof(s->driver_version));
    (void)nvml_call(n, NVML_NO_GPU, nvmlSystemGetNVMLVersion, s->library_version,
                    (unsigned int)sizeof(s->library_version));
    s->driver_version[sizeof(s->driver_version) - 1] = '\0';
    s->library_version[sizeof(s->library_version) - 1] = '\0';
    s->cuda_result = nvml_call(n, NVML_NO_GPU, nvmlSystemGetCudaDriverVersion, &s->cuda_version);
}

static void set_text(struct nvml_reading *out, unsigned slot, const char *text)
{
    sv_copy(out->text[slot], sizeof(out->text[slot]), sv_from(text));
}

// --- without a call ---

static void get_system(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    set_text(out, 0, c->system->driver_version);
    set_text(out, 1, c->system->library_version);
    out->number[0] = c->gpus;
    out->number[1] = (uint64_t)c->system->cuda_version;
    out->status[1] = (uint8_t)nvml_status_of(c->system->cuda_result);
}

// CUDA_VISIBLE_DEVICES as DCGM writes it: "GPU-<uuid>", "MIG-GPU-<uuid>" with MIG on,
// "MIG-GPU-<uuid>/<instance>".
static void visible_device(const struct frame_entity *e, char out[NVML_READING_TEXT_BYTES])
{
    const char *uuid = e->kind == FRAME_ENTITY_GPU ? e->uuid : e->legacy_uuid;
    if (e->kind == FRAME_ENTITY_GPU) {
        (void)snprintf(out, NVML_READING_TEXT_BYTES, "%s%s", e->mig_enabled ? "MIG-" : "", uuid);
        return;
    }
    struct sv whole = sv_from(uuid);
    size_t compute = whole.len;
    while (compute > 0 && uuid[compute - 1] != '/')
        compute--;
    sv_copy(out, NVML_READING_TEXT_BYTES, sv_sub(whole, 0, compute ? compute - 1 : whole.len));
}

static void get_identity(const struct nvml_getter_context *c, uint16_t arg,
                         struct nvml_reading *out)
{
    const struct frame_entity *e = &c->entity->record;
    if (arg == 1) {
        visible_device(e, out->text[0]);
        return;
    }
    if (arg == 2)
        set_text(out, 0, e->bus_id);
    else
        set_text(out, 0, e->kind == FRAME_ENTITY_GPU ? e->name : e->profile);
    set_text(out, 1, e->uuid);
    out->number[0] = e->index;
    out->number[1] = e->minor;
    out->status[1] = e->minor == UINT32_MAX ? FRAME_NOT_SUPPORTED : FRAME_OK;
    out->number[2] = e->mig_enabled;
    out->number[3] = e->mig_enabled ? e->total_slices : 0;
    out->number[4] = e->gpm;
}

// --- identity and state of the board ---

// Texts of nvmlBrandType_t as nvidia-smi and DCGM print them.
static const char *brand_text(int brand)
{
    static const char *const texts[] = {
        [1] = "Quadro",
        [2] = "Tesla",
        [3] = "NVS",
        [4] = "Grid",
        [5] = "GeForce",
        [6] = "Titan",
        [7] = "NVIDIA Virtual Applications",
        [8] = "NVIDIA Virtual PC",
        [9] = "NVIDIA Virtual Compute Server",
        [10] = "NVIDIA RTX Virtual Workstation",
        [11] = "NVIDIA vGaming",
        [12] = "Quadro RTX",
        [13] = "NVIDIA RTX",
        [14] = "NVIDIA",
        [15] = "GeForce RTX",
        [16] = "Titan RTX",
    };
    return brand > 0 && (size_t)brand < ARRAY_SIZE(texts) ? texts[brand] : "Unknown";
}

static void get_brand(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    int brand = 0;
    out->result = GET(c, nvmlDeviceGetBrand, &brand);
    set_text(out, 0, brand_text(brand));
}

static void get_serial(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    out->result = GET(c, nvmlDeviceGetSerial, out->text[0], NVML_DEVICE_SERIAL_BUFFER_SIZE);
}

static void get_pci(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    nvmlPciInfo_t pci = {0};
    out->result = GET(c, nvmlDeviceGetPciInfo, &pci);
    out->number[0] = pci.pciDeviceId;
    out->number[1] = pci.pciSubSystemId;
}

static void get_compute_capability(const struct nvml_getter_context *c, uint16_t arg,
                                   struct nvml_reading *out)
{
    int major = 0, minor = 0;
    out->result = GET(c, nvmlDeviceGetCudaComputeCapability, &major, &minor);
    out->number[0] = (uint64_t)major << 16 | (uint64_t)minor;
}

// DCGM's numbers: 0 default, 1 prohibited, 2 exclusive process.
static void get_compute_mode(const struct nvml_getter_context *c, uint16_t arg,
                             struct nvml_reading *out)
{
    int mode = 0;
    out->result = GET(c, nvmlDeviceGetComputeMode, &mode);
    if (mode == NVML_COMPUTEMODE_PROHIBITED)
        mode = 1;
    else if (mode == NVML_COMPUTEMODE_EXCLUSIVE_PROCESS)
        mode = 2;
    out->number[0] = (uint64_t)mode;
}

static void get_persistence_mode(const struct nvml_getter_context *c, uint16_t arg,
                                 struct nvml_reading *out)
{
    int mode = 0;
    out->result = GET(c, nvmlDeviceGetPersistenceMode, &mode);
    out->number[0] = (uint64_t)mode;
}

static void get_cpu_affinity(const struct nvml_getter_context *c, uint16_t arg,
                             struct nvml_reading *out)
{
    unsigned long words[4] = {0};
    out->result = GET(c, nvmlDeviceGetCpuAffinity, (unsigned int)ARRAY_SIZE(words), words);
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
        out->number[i] = words[i];
}

static void get_memory_affinity(const struct nvml_getter_context *c, uint16_t arg,
                                struct nvml_reading *out)
{
    unsigned long words[4] = {0};
    out->result = GET(c, nvmlDeviceGetMemoryAffinity, (unsigned int)ARRAY_SIZE(words), words,
                      NVML_AFFINITY_SCOPE_NODE);
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
        out->number[i] = words[i];
}

static void get_confidential_compute(const struct nvml_getter_context *c, uint16_t arg,
                                     struct nvml_reading *out)
{
    nvmlSystemConfComputeSettings_v1_t settings = {
        .version = NVML_STRUCT_VERSION(nvmlSystemConfComputeSettings_v1_t, 1)};
    out->result = nvml_call(c->n, NVML_NO_GPU, nvmlSystemGetConfComputeSettings, &settings);
    out->number[0] = settings.ccFeature;
}

static void get_inforom_version(const struct nvml_getter_context *c, uint16_t arg,
                                struct nvml_reading *out)
{
    out->result = GET(c, nvmlDeviceGetInforomVersion, arg, out->text[0],
                      NVML_DEVICE_INFOROM_VERSION_BUFFER_SIZE);
}

static void get_inforom_image(const struct nvml_getter_context *c, uint16_t arg,
                              struct nvml_reading *out)
{
    out->result = GET(c, nvmlDeviceGetInforomImageVersion, out->text[0],
                      NVML_DEVICE_INFOROM_VERSION_BUFFER_SIZE);
}

static void get_inforom_checksum(const struct nvml_getter_context *c, uint16_t arg,
                                 struct nvml_reading *out)
{
    unsigned int checksum = 0;
    out->result = GET(c, nvmlDeviceGetInforomConfigurationChecksum, &checksum);
    out->number[0] = checksum;
}

static void get_inforom_valid(const struct nvml_getter_context *c, uint16_t arg,
                              struct nvml_reading *out)
{
    out->result = GET(c, nvmlDeviceValidateInforom);
    out->number[0] = out->result == NVML_SUCCESS;
    if (out->result == NVML_ERROR_CORRUPTED_INFOROM)
        out->result = NVML_SUCCESS;
}

static void get_vbios(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    out->result =
        GET(c, nvmlDeviceGetVbiosVersion, out->text[0], NVML_DEVICE_VBIOS_VERSION_BUFFER_SIZE);
}

static void get_virtualization_mode(const struct nvml_getter_context *c, uint16_t arg,
                                    struct nvml_reading *out)
{
    int mode = 0;
    out->result = GET(c, nvmlDeviceGetVirtualizationMode, &mode);
    out->number[0] = (uint64_t)mode;
}

// RFC 9562's text form.
static void format_guid(const unsigned char *bytes, char out[NVML_READING_TEXT_BYTES])
{
    size_t used = 0;
    for (unsigned i = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        used +=
            (size_t)snprintf(out + used, NVML_READING_TEXT_BYTES - used, "%s%02x", dash, bytes[i]);
    }
}

// As DCGM: a chassis serial of zeros and a slot or tray of 255 mean that the platform does not say.
static void get_platform(const struct nvml_getter_context *c, uint16_t arg,
                         struct nvml_reading *out)
{
    static const unsigned char none[16];
    nvmlPlatformInfo_v2_t info = {.version = NVML_STRUCT_VERSION(nvmlPlatformInfo_v2_t, 2)};
    out->result = GET(c, nvmlDeviceGetPlatformInfo, &info);
    format_guid(info.ibGuid, out->text[0]);
    if (memcmp(info.chassisSerialNumber, none, sizeof(none)) != 0)
        format_guid(info.chassisSerialNumber, out->text[1]);
    out->number[0] = info.slotNumber;
    out->status[0] = info.slotNumber == 255 ? FRAME_NO_DATA : FRAME_OK;
    out->number[1] = info.trayIndex;
    out->status[1] = info.trayIndex == 255 ? FRAME_NO_DATA : FRAME_OK;
    out->number[2] = info.hostId;
    out->number[3] = info.peerType;
    out->number[4] = info.moduleId;
}

// --- memory ---

static void get_bar1(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    nvmlBAR1Memory_t bar1 = {0};
    out->result = GET(c, nvmlDeviceGetBAR1MemoryInfo, &bar1);
    out->number[0] = bar1.bar1Total;
    out->number[1] = bar1.bar1Used;
    out->number[2] = bar1.bar1Free;
}

// Total, free, used, reserved, and used / (total - reserved). The first generation counts reserved
// inside used.
static void get_memory(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    nvmlMemory_v2_t memory = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
    out->result = NVML_ERROR_FUNCTION_NOT_FOUND;
    if (!c->n->memory_first_generation)
        out->result = GET(c, nvmlDeviceGetMemoryInfo_v2, &memory);
    c->n->memory_second_generation |= out->result == NVML_SUCCESS;
    bool too_old =
        nvml_is_missing(out->result) || out->result == NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    // `used` is another number there: a driver that has told one is not asked for the other.
    if (too_old && !c->n->memory_second_generation) {
        nvmlMemory_t first = {0};
        c->n->memory_first_generation = true;
        out->result = GET(c, nvmlDeviceGetMemoryInfo, &first);
        memory = (nvmlMemory_v2_t){.total = first.total, .free = first.free, .used = first.used};
        out->status[3] = FRAME_NOT_SUPPORTED;
    }
    out->number[0] = memory.total;
    out->number[1] = memory.free;
    out->number[2] = memory.used;
    out->number[3] = memory.reserved;
    if (memory.total > memory.reserved)
        out->real = (double)memory.used / (double)(memory.total - memory.reserved);
    else
        out->status[4] = FRAME_NO_DATA;
}

static void get_ecc_counter(const struct nvml_getter_context *c, uint16_t arg,
                            struct nvml_reading *out)
{
    unsigned long long count = 0;
    out->result = GET(c, nvmlDeviceGetMemoryErrorCounter, arg & 1, arg >> 1 & 1, arg >> 2, &count);
    out->number[0] = count;
}

static void get_sram_ecc(const struct nvml_getter_context *c, uint16_t arg,
                         struct nvml_reading *out)
{
    nvmlEccSramErrorStatus_v1_t status = {.version =
                                              NVML_STRUCT_VERSION(nvmlEccSramErrorStatus_v1_t, 1)};
    out->result = GET(c, nvmlDeviceGetSramEccErrorStatus, &status);
    out->number[0] = status.bThresholdExceeded;
}

static void get_row_remap_histogram(const struct nvml_getter_context *c, uint16_t arg,
                                    struct nvml_reading *out)
{
    nvmlRowRemapperHistogramValues_t values = {0};
    out->result = GET(c, nvmlDeviceGetRowRemapperHistogram, &values);
    out->number[0] = values.max;
    out->number[1] = values.high;
    out->number[2] = values.partial;
    out->number[3] = values.low;
    out->number[4] = values.none;
}

// Asked with room for none: the count comes back either way.
static void get_retired_pages(const struct nvml_getter_context *c, uint16_t arg,
                              struct nvml_reading *out)
{
    unsigned int count = 0;
    out->result = GET(c, nvmlDeviceGetRetiredPages,
                      NVML_PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS, &count, NULL);
    if (out->result == NVML_ERROR_INSUFFICIENT_SIZE)
        out->result = NVML_SUCCESS;
    out->number[0] = count;
}

static void get_unrepairable_memory(const struct nvml_getter_context *c, uint16_t arg,
                                    struct nvml_reading *out)
{
    nvmlUnrepairableMemoryStatus_v1_t status = {0};
    out->result = GET(c, nvmlDeviceGetUnrepairableMemoryFlag_v1, &status);
    out->number[0] = status.bUnrepairableMemory;
}

// --- clocks, power, heat ---

#define ONE_UNSIGNED(name, function, ...)                                                          \
    static void name(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)  \
    {                                                                                              \
        unsigned int value = 0;                                                                    \
        out->result = GET(c, function, __VA_ARGS__ __VA_OPT__(, ) & value);                        \
        out->number[0] = value;                                                                    \
    }

ONE_UNSIGNED(get_clock, nvmlDeviceGetClockInfo, arg)
ONE_UNSIGNED(get_max_clock, nvmlDeviceGetMaxClockInfo, arg)
ONE_UNSIGNED(get_application_clock, nvmlDeviceGetApplicationsClock, arg)
ONE_UNSIGNED(get_temperature_threshold, nvmlDeviceGetTemperatureThreshold, arg)
ONE_UNSIGNED(get_power, nvmlDeviceGetPowerUsage)
ONE_UNSIGNED(get_power_limit, nvmlDeviceGetPowerManagementLimit)
ONE_UNSIGNED(get_power_limit_default, nvmlDeviceGetPowerManagementDefaultLimit)
ONE_UNSIGNED(get_power_limit_enforced, nvmlDeviceGetEnforcedPowerLimit)
ONE_UNSIGNED(get_fan, nvmlDeviceGetFanSpeed)
ONE_UNSIGNED(get_pcie_replay, nvmlDeviceGetPcieReplayCounter)

static void get_auto_boost(const struct nvml_getter_context *c, uint16_t arg,
                           struct nvml_reading *out)
{
    int enabled = 0, by_default = 0;
    out->result = GET(c, nvmlDeviceGetAutoBoostedClocksEnabled, &enabled, &by_default);
    out->number[0] = (uint64_t)enabled;
}

static void get_clock_reasons(const struct nvml_getter_context *c, uint16_t arg,
                              struct nvml_reading *out)
{
    unsigned long long reasons = 0;
    out->result = GET(c, nvmlDeviceGetCurrentClocksEventReasons, &reasons);
    out->number[0] = reasons;
}

// The old function as long as there is one, as DCGM does; CUDA 13 calls it deprecated.
static void get_temperature(const struct nvml_getter_context *c, uint16_t arg,
                            struct nvml_reading *out)
{
    unsigned int celsius = 0;
    out->result = GET(c, nvmlDeviceGetTemperature, NVML_TEMPERATURE_GPU, &celsius);
    out->number[0] = celsius;
    if (!nvml_is_missing(out->result) && out->result != NVML_ERROR_DEPRECATED)
        return;
    nvmlTemperature_v1_t temperature = {.version = NVML_STRUCT_VERSION(nvmlTemperature_v1_t, 1)};
    nvmlReturn_t result = GET(c, nvmlDeviceGetTemperatureV, &temperature);
    if (nvml_is_missing(result))
        return;
    out->result = result;
    out->number[0] = (uint64_t)(int64_t)temperature.temperature;
}

static void get_temperature_margin(const struct nvml_getter_context *c, uint16_t arg,
                                   struct nvml_reading *out)
{
    nvmlMarginTemperature_v1_t margin = {.version =
                                             NVML_STRUCT_VERSION(nvmlMarginTemperature_v1_t, 1)};
    out->result = GET(c, nvmlDeviceGetMarginTemperature, &margin);
    out->number[0] = (uint64_t)(int64_t)margin.marginTemperature;
}

static void get_power_limit_range(const struct nvml_getter_context *c, uint16_t arg,
                                  struct nvml_reading *out)
{
    unsigned int least = 0, most = 0;
    out->result = GET(c, nvmlDeviceGetPowerManagementLimitConstraints, &least, &most);
    out->number[0] = least;
    out->number[1] = most;
}

static void get_performance_state(const struct nvml_getter_context *c, uint16_t arg,
                                  struct nvml_reading *out)
{
    int state = 0;
    out->result = GET(c, nvmlDeviceGetPerformanceState, &state);
    out->number[0] = (uint64_t)state;
}

// --- utilisation and links ---

static void get_utilization(const struct nvml_getter_context *c, uint16_t arg,
                            struct nvml_reading *out)
{
    nvmlUtilization_t utilization = {0};
    out->result = GET(c, nvmlDeviceGetUtilizationRates, &utilization);
    out->number[0] = utilization.gpu;
    out->number[1] = utilization.memory;
}

static void get_encoder(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    unsigned int percent = 0, period_us = 0;
    out->result = GET(c, nvmlDeviceGetEncoderUtilization, &percent, &period_us);
    out->number[0] = percent;
}

static void get_decoder(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    unsigned int percent = 0, period_us = 0;
    out->result = GET(c, nvmlDeviceGetDecoderUtilization, &percent, &period_us);
    out->number[0] = percent;
}

static void get_pcie_link(const struct nvml_getter_context *c, uint16_t arg,
                          struct nvml_reading *out)
{
    unsigned int value = 0;
    switch (arg) {
    case 0:
        out->result = GET(c, nvmlDeviceGetMaxPcieLinkGeneration, &value);
        break;
    case 1:
        out->result = GET(c, nvmlDeviceGetMaxPcieLinkWidth, &value);
        break;
    case 2:
        out->result = GET(c, nvmlDeviceGetCurrPcieLinkGeneration, &value);
        break;
    default:
        out->result = GET(c, nvmlDeviceGetCurrPcieLinkWidth, &value);
        break;
    }
    out->number[0] = value;
}

static void get_nvlink_errors(const struct nvml_getter_context *c, uint16_t arg,
                              struct nvml_reading *out)
{
    unsigned long long count = 0;
    out->result = GET(c, nvmlDeviceGetNvLinkErrorCounter, arg & 0xff, arg >> 8, &count);
    out->number[0] = count;
}

// --- fabric ---

static nvmlReturn_t read_fabric(const struct nvml_getter_context *c, nvmlGpuFabricInfo_v3_t *info)
{
    info->version = NVML_STRUCT_VERSION(nvmlGpuFabricInfo_v3_t, 3);
    nvmlReturn_t result = GET(c, nvmlDeviceGetGpuFabricInfoV, info);
    if (result == NVML_ERROR_ARGUMENT_VERSION_MISMATCH || result == NVML_ERROR_INVALID_ARGUMENT) {
        *info = (nvmlGpuFabricInfo_v3_t){.version = NVML_GPU_FABRIC_INFO_V2};
        result = GET(c, nvmlDeviceGetGpuFabricInfoV, info);
    }
    if (!nvml_is_missing(result))
        return result;
    nvmlGpuFabricInfo_t first = {0};
    result = GET(c, nvmlDeviceGetGpuFabricInfo, &first);
    info->version = 0;
    memcpy(info->clusterUuid, first.clusterUuid, sizeof(info->clusterUuid));
    info->status = first.status;
    info->cliqueId = first.cliqueId;
    info->state = first.state;
    return result;
}

// DCGM's codes: status 0 not supported, 1 not started, 2 in progress, 3 success, 4 failure, 5
// unrecognised; the error code has a value only once the registration is over.
static void get_fabric(const struct nvml_getter_context *c, uint16_t arg, struct nvml_reading *out)
{
    nvmlGpuFabricInfo_v3_t info = {0};
    out->result = read_fabric(c, &info);
    bool over = info.state == NVML_GPU_FABRIC_STATE_COMPLETED;
    out->number[0] = info.state > NVML_GPU_FABRIC_STATE_COMPLETED ? 5 : info.state;
    if (over && info.status != NVML_SUCCESS)
        out->number[0] = 4;
    out->number[1] = (uint64_t)(int64_t)info.status;
    out->status[1] = over ? FRAME_OK : FRAME_NO_DATA;
    out->number[2] = info.cliqueId;
    out->number[3] = info.healthMask;
    out->number[4] = info.healthSummary;
    if (info.version == 0)
        out->status[3] = FRAME_NO_SYMBOL;
    if (info.version == 0 || info.version == NVML_GPU_FABRIC_INFO_V2)
        out->status[4] = FRAME_NO_SYMBOL;
    format_guid(info.clusterUuid, out->text[0]);
}

// --- vGPU licence ---

// Licensed: 0 where no licence is needed, else whether the vGPU feature has a state; without that
// feature, no value.
static void get_vgpu_license(const struct nvml_getter_context *c, uint16_t arg,
                             struct nvml_reading *out)
{
    nvmlGridLicensableFeatures_t all = {0};
    out->result = GET(c, nvmlDeviceGetGridLicensableFeatures, &all);
    size_t each = c->n->fn.generation.nvmlDeviceGetGridLicensableFeatures == 1
                      ? sizeof(all.gridLicensableFeatures[0])
                      : NVML_GRID_FEATURE_V3_BYTES;
    if (!all.isGridLicenseSupported)
        return;
    out->status[0] = FRAME_NO_DATA;
    for (unsigned i = 0; i < all.licensableFeaturesCount && i < NVML_GRID_LICENSE_FEATURE_MAX_COUNT;
         i++) {
        unsigned int feature[2]; // featureCode, featureState
        memcpy(feature, (const char *)all.gridLicensableFeatures + i * each, sizeof(feature));
        if (feature[0] != NVML_GRID_LICENSE_FEATURE_CODE_VGPU)
            continue;
        out->number[0] = feature[1] > 0;
        out->status[0] = FRAME_OK;
        return;
    }
}

static const getter_fn getters[GETTER_CALL_COUNT] = {
    [GETTER_SYSTEM] = get_system,
    [GETTER_IDENTITY] = get_identity,
    [GETTER_BRAND] = get_brand,
    [GETTER_SERIAL] = get_serial,
    [GETTER_PCI] = get_pci,
    [GETTER_COMPUTE_CAPABILITY] = get_compute_capability,
    [GETTER_COMPUTE_MODE] = get_compute_mode,
    [GETTER_PERSISTENCE_MODE] = get_persistence_mode,
    [GETTER_CPU_AFFINITY] = get_cpu_affinity,
    [GETTER_MEMORY_AFFINITY] = get_memory_affinity,
    [GETTER_CONFIDENTIAL_COMPUTE] = get_confidential_compute,
    [GETTER_INFOROM_VERSION] = get_inforom_version,
    [GETTER_INFOROM_IMAGE] = get_inforom_image,
    [GETTER_INFOROM_CHECKSUM] = get_inforom_checksum,
    [GETTER_INFOROM_VALID] = get_inforom_valid,
    [GETTER_VBIOS] = get_vbios,
    [GETTER_BAR1] = get_bar1,
    [GETTER_MEMORY] = get_memory,
    [GETTER_CLOCK] = get_clock,
    [GETTER_MAX_CLOCK] = get_max_clock,
    [GETTER_APPLICATION_CLOCK] = get_application_clock,
    [GETTER_AUTO_BOOST] = get_auto_boost,
    [GETTER_CLOCK_REASONS] = get_clock_reasons,
    [GETTER_TEMPERATURE] = get_temperature,
    [GETTER_TEMPERATURE_THRESHOLD] = get_temperature_threshold,
    [GETTER_TEMPERATURE_MARGIN] = get_temperature_margin,
    [GETTER_POWER] = get_power,
    [GETTER_POWER_LIMIT] = get_power_limit,
    [GETTER_POWER_LIMIT_RANGE] = get_power_limit_range,
    [GETTER_POWER_LIMIT_DEFAULT] = get_power_limit_default,
    [GETTER_POWER_LIMIT_ENFORCED] = get_power_limit_enforced,
    [GETTER_FABRIC] = get_fabric,
    [GETTER_PERFORMANCE_STATE] = get_performance_state,
    [GETTER_FAN] = get_fan,
    [GETTER_PCIE_REPLAY] = get_pcie_replay,
    [GETTER_PCIE_LINK] = get_pcie_link,
    [GETTER_UTILIZATION] = get_utilization,
    [GETTER_ENCODER] = get_encoder,
    [GETTER_DECODER] = get_decoder,
    [GETTER_ECC_COUNTER] = get_ecc_counter,
    [GETTER_SRAM_ECC] = get_sram_ecc,
    [GETTER_ROW_REMAP_HISTOGRAM] = get_row_remap_histogram,
    [GETTER_RETIRED_PAGES] = get_retired_pages,
    [GETTER_UNREPAIRABLE_MEMORY] = get_unrepairable_memory,
    [GETTER_NVLINK_ERRORS] = get_nvlink_errors,
    [GETTER_VIRTUALIZATION_MODE] = get_virtualization_mode,
    [GETTER_VGPU_LICENSE] = get_vgpu_license,
    [GETTER_PLATFORM] = get_platform,
};

void nvml_get(const struct nvml_getter_context *c, enum nvml_getter getter, uint16_t arg,
              struct nvml_reading *out)
{
    memset(out, 0, sizeof(*out));
    getters[getter](c, arg, out);
    for (unsigned i = 0; i < ARRAY_SIZE(out->text); i++)
        out->text[i][sizeof(out->text[i]) - 1] = '\0';
}
