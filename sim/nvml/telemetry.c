// SPDX-License-Identifier: Apache-2.0
// Clocks, temperatures, power, utilisation, PCIe, fans: one signal each.
#include "double.h"

#include <string.h>

// --- Clocks ---

static nvmlReturn_t clock_of(const struct call *c, int type, const enum sim_field fields[4],
                             unsigned int *clock)
{
    if (!clock || type < 0 || type > 3)
        return INVALID_ARGUMENT;
    return call_u32(c, fields[type], clock);
}

static const enum sim_field current_clocks[] = {SIM_GRAPHICS_CLOCK, SIM_SM_CLOCK, SIM_MEM_CLOCK,
                                                SIM_VIDEO_CLOCK};
static const enum sim_field max_clocks[] = {SIM_MAX_GRAPHICS_CLOCK, SIM_MAX_SM_CLOCK,
                                            SIM_MAX_MEM_CLOCK, SIM_MAX_VIDEO_CLOCK};
static const enum sim_field app_clocks[] = {SIM_APP_SM_CLOCK, SIM_APP_SM_CLOCK, SIM_APP_MEM_CLOCK,
                                            SIM_VIDEO_CLOCK};

API(nvmlDeviceGetClockInfo, nvmlDevice_t device, int type, unsigned int *clock)
{
    CALL_GPU(device);
    return clock_of(&c, type, current_clocks, clock);
}

API(nvmlDeviceGetMaxClockInfo, nvmlDevice_t device, int type, unsigned int *clock)
{
    CALL_GPU(device);
    return clock_of(&c, type, max_clocks, clock);
}

API(nvmlDeviceGetApplicationsClock, nvmlDevice_t device, int type, unsigned int *clock)
{
    CALL_GPU(device);
    return type == 3 ? NOT_SUPPORTED : clock_of(&c, type, app_clocks, clock);
}

API(nvmlDeviceGetDefaultApplicationsClock, nvmlDevice_t device, int type, unsigned int *clock)
{
    CALL_GPU(device);
    return type == 3 ? NOT_SUPPORTED : clock_of(&c, type, app_clocks, clock);
}

API(nvmlDeviceGetClock, nvmlDevice_t device, int type, int id, unsigned int *clock)
{
    CALL_GPU(device);
    if (id < 0 || id > 3)
        return INVALID_ARGUMENT;
    if (type == 3 && (id == 1 || id == 2))
        return NOT_SUPPORTED;
    const enum sim_field *fields = id == 0 ? current_clocks : id == 3 ? max_clocks : app_clocks;
    return clock_of(&c, type, fields, clock);
}

static nvmlReturn_t event_reasons(const struct call *c, unsigned long long *reasons)
{
    return call_u64(c, SIM_EVENT_REASONS, reasons);
}

API(nvmlDeviceGetCurrentClocksEventReasons, nvmlDevice_t device, unsigned long long *reasons)
{
    CALL_GPU(device);
    return event_reasons(&c, reasons);
}

API(nvmlDeviceGetCurrentClocksThrottleReasons, nvmlDevice_t device, unsigned long long *reasons)
{
    CALL_GPU(device);
    return event_reasons(&c, reasons);
}

static nvmlReturn_t supported_reasons(unsigned long long *reasons)
{
    NEED(reasons);
    *reasons = 0x1ff;
    return OK;
}

API(nvmlDeviceGetSupportedClocksEventReasons, nvmlDevice_t device, unsigned long long *reasons)
{
    CALL_GPU(device);
    return supported_reasons(reasons);
}

API(nvmlDeviceGetSupportedClocksThrottleReasons, nvmlDevice_t device, unsigned long long *reasons)
{
    CALL_GPU(device);
    return supported_reasons(reasons);
}

static nvmlReturn_t performance_state(const struct call *c, int *state)
{
    unsigned int value;
    NEED(state);
    nvmlReturn_t code = call_u32(c, SIM_PSTATE, &value);
    if (code == OK)
        *state = (int)value;
    return code;
}

API(nvmlDeviceGetPerformanceState, nvmlDevice_t device, int *state)
{
    CALL_GPU(device);
    return performance_state(&c, state);
}

API(nvmlDeviceGetPowerState, nvmlDevice_t device, int *state)
{
    CALL_GPU(device);
    return performance_state(&c, state);
}

// --- Temperatures ---

API(nvmlDeviceGetTemperature, nvmlDevice_t device, int sensor, unsigned int *temperature)
{
    CALL_GPU(device);
    if (!temperature || sensor != 0)
        return INVALID_ARGUMENT;
    return call_u32(&c, SIM_TEMPERATURE, temperature);
}

API(nvmlDeviceGetTemperatureV, nvmlDevice_t device, nvmlTemperature_v1_t *temperature)
{
    CALL_GPU(device);
    NEED(temperature);
    if (temperature->version != VERSION_OF(nvmlTemperature_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    if (temperature->sensorType != 0)
        return INVALID_ARGUMENT;
    unsigned int value;
    nvmlReturn_t code = call_u32(&c, SIM_TEMPERATURE, &value);
    if (code == OK)
        temperature->temperature = (int)value;
    return code;
}

API(nvmlDeviceGetMarginTemperature, nvmlDevice_t device, nvmlMarginTemperature_v1_t *margin)
{
    CALL_GPU(device);
    NEED(margin);
    if (margin->version != VERSION_OF(nvmlMarginTemperature_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    unsigned int value;
    nvmlReturn_t code = call_u32(&c, SIM_MARGIN_TEMPERATURE, &value);
    if (code == OK)
        margin->marginTemperature = (int)value;
    return code;
}

API(nvmlDeviceGetTemperatureThreshold, nvmlDevice_t device, int type, unsigned int *temperature)
{
    static const enum sim_field fields[] = {SIM_TEMP_SHUTDOWN, SIM_TEMP_SLOWDOWN, SIM_TEMP_MEM_MAX,
                                            SIM_TEMP_GPU_MAX};
    CALL_GPU(device);
    if (!temperature || type < 0 || type > 7)
        return INVALID_ARGUMENT;
    return type > 3 ? NOT_SUPPORTED : call_u32(&c, fields[type], temperature);
}

// --- Power ---

API_GPU_U32(nvmlDeviceGetPowerUsage, SIM_POWER)

API(nvmlDeviceGetTotalEnergyConsumption, nvmlDevice_t device, unsigned long long *energy)
{
    CALL_GPU(device);
    return call_u64(&c, SIM_ENERGY, energy);
}

API_GPU_U32(nvmlDeviceGetPowerManagementLimit, SIM_POWER_LIMIT)
API_GPU_U32(nvmlDeviceGetPowerManagementDefaultLimit, SIM_POWER_LIMIT_DEFAULT)
API_GPU_U32(nvmlDeviceGetEnforcedPowerLimit, SIM_POWER_LIMIT_ENFORCED)

API(nvmlDeviceGetPowerManagementLimitConstraints, nvmlDevice_t device, unsigned int *min,
    unsigned int *max)
{
    CALL_GPU(device);
    NEED(min);
    NEED(max);
    nvmlReturn_t code = call_u32(&c, SIM_POWER_LIMIT_MIN, min);
    return code == OK ? call_u32(&c, SIM_POWER_LIMIT_MAX, max) : code;
}

API(nvmlDeviceGetPowerManagementMode, nvmlDevice_t device, unsigned int *mode)
{
    CALL_GPU(device);
    unsigned int power;
    NEED(mode);
    nvmlReturn_t code = call_u32(&c, SIM_POWER, &power);
    if (code == OK)
        *mode = 1;
    return code;
}

// --- Utilisation: not on a GPU in MIG mode ---

API(nvmlDeviceGetUtilizationRates, nvmlDevice_t device, nvmlUtilization_t *rates)
{
    CALL_GPU(device);
    NEED(rates);
    if (call_mig_enabled(&c))
        return NOT_SUPPORTED;
    nvmlReturn_t code = call_u32(&c, SIM_GPU_UTIL, &rates->gpu);
    return code == OK ? call_u32(&c, SIM_MEM_UTIL, &rates->memory) : code;
}

static nvmlReturn_t engine(const struct call *c, enum sim_field field, unsigned int *percent,
                           unsigned int *period_us)
{
    NEED(percent);
    NEED(period_us);
    if (call_mig_enabled(c))
        return NOT_SUPPORTED;
    nvmlReturn_t code = call_u32(c, field, percent);
    if (code == OK)
        *period_us = (unsigned int)(call_gpu(c)->window_ns / 1000);
    return code;
}

API(nvmlDeviceGetEncoderUtilization, nvmlDevice_t device, unsigned int *percent,
    unsigned int *period_us)
{
    CALL_GPU(device);
    return engine(&c, SIM_ENC_UTIL, percent, period_us);
}

API(nvmlDeviceGetDecoderUtilization, nvmlDevice_t device, unsigned int *percent,
    unsigned int *period_us)
{
    CALL_GPU(device);
    return engine(&c, SIM_DEC_UTIL, percent, period_us);
}

API(nvmlDeviceGetJpgUtilization, nvmlDevice_t device, unsigned int *percent,
    unsigned int *period_us)
{
    CALL_GPU(device);
    return engine(&c, SIM_JPG_UTIL, percent, period_us);
}

API(nvmlDeviceGetOfaUtilization, nvmlDevice_t device, unsigned int *percent,
    unsigned int *period_us)
{
    CALL_GPU(device);
    return engine(&c, SIM_OFA_UTIL, percent, period_us);
}

// --- The driver's sample rings ---

#define RING 120

struct ring {
    enum sim_field field;
    int value_type;
};

static nvmlReturn_t find_ring(int type, struct ring *out)
{
    static const struct ring rings[] = {
        {SIM_POWER, VALUE_UNSIGNED_INT},     {SIM_GPU_UTIL, VALUE_UNSIGNED_INT},
        {SIM_MEM_UTIL, VALUE_UNSIGNED_INT},  {SIM_ENC_UTIL, VALUE_UNSIGNED_INT},
        {SIM_DEC_UTIL, VALUE_UNSIGNED_INT},  {SIM_SM_CLOCK, VALUE_UNSIGNED_INT},
        {SIM_MEM_CLOCK, VALUE_UNSIGNED_INT},
    };
    if (type < 0 || type > 9)
        return INVALID_ARGUMENT;
    if ((size_t)type >= sizeof(rings) / sizeof(rings[0]))
        return NOT_SUPPORTED;
    *out = rings[type];
    return OK;
}

// Every k-th entry of the ring is missing, by its number since t = 0.
static bool entry_lost(const struct call *c, int64_t number)
{
    int64_t every = sim_truth_or_zero(c->node, c->gpu, SIM_SAMPLES_LOST, c->t);
    return every > 0 && number % every == 0;
}

// One sample a window, stamped at its end; the value is the window's mean. Oldest first, newer than
// last_seen only.
API(nvmlDeviceGetSamples, nvmlDevice_t device, int type, unsigned long long last_seen,
    int *value_type, unsigned int *count, nvmlSample_t *samples)
{
    CALL_GPU(device);
    struct ring ring;
    NEED(value_type);
    NEED(count);
    nvmlReturn_t code = find_ring(type, &ring);
    if (code != OK)
        return code;
    if (call_mig_enabled(&c) && type >= 1 && type <= 4)
        return NOT_SUPPORTED;
    int64_t now, window = call_gpu(&c)->window_ns;
    code = sim_truth(c.node, c.gpu, ring.field, c.t, &now);
    if (code != OK)
        return code;
    *value_type = ring.value_type;
    if (!samples) {
        *count = RING;
        return OK;
    }
    int64_t lag = sim_truth_or_zero(c.node, c.gpu, SIM_SAMPLES_LAG, c.t) * 1000000;
    int64_t newest = sim_window_at(c.t - lag, window);
    unsigned int filled = 0;
    for (int64_t k = newest - RING + 1; k <= newest && filled < *count; k++) {
        unsigned long long stamp = (unsigned long long)sim_wall_us(c.node, k * window);
        sim_wide sum;
        if (stamp <= last_seen || entry_lost(&c, k) ||
            sim_integral(c.node, c.gpu, ring.field, (k - 1) * window, k * window, &sum) != 0)
            continue;
        samples[filled] = (nvmlSample_t){.timeStamp = stamp};
        samples[filled++].sampleValue.uiVal = (unsigned int)(sum / window / 1000000);
    }
    *count = filled;
    return filled > 0 ? OK : NOT_FOUND;
}

// --- PCIe ---

API_GPU_U32(nvmlDeviceGetPcieReplayCounter, SIM_PCIE_REPLAY)
API_GPU_U32(nvmlDeviceGetCurrPcieLinkGeneration, SIM_PCIE_GEN)
API_GPU_U32(nvmlDeviceGetCurrPcieLinkWidth, SIM_PCIE_WIDTH)
API_GPU_U32(nvmlDeviceGetMaxPcieLinkGeneration, SIM_PCIE_GEN_MAX)
API_GPU_U32(nvmlDeviceGetGpuMaxPcieLinkGeneration, SIM_PCIE_GEN_MAX)
API_GPU_U32(nvmlDeviceGetMaxPcieLinkWidth, SIM_PCIE_WIDTH_MAX)

// KB per second over the last 20 ms. The driver measures while the caller waits; here the fault
// list adds that wait.
API(nvmlDeviceGetPcieThroughput, nvmlDevice_t device, int counter, unsigned int *rate)
{
    CALL_GPU(device);
    if (!rate || counter < 0 || counter > 1)
        return INVALID_ARGUMENT;
    sim_wide grown;
    int code = sim_integral(c.node, c.gpu, counter == 0 ? SIM_PCIE_TX : SIM_PCIE_RX, c.t - 20000000,
                            c.t, &grown);
    if (code == OK)
        *rate = (unsigned int)(grown * 50 / 1000 / 1000000);
    return code;
}

// --- Fans ---

API(nvmlDeviceGetNumFans, nvmlDevice_t device, unsigned int *fans)
{
    CALL_GPU(device);
    NEED(fans);
    *fans = call_gpu(&c)->fans;
    return OK;
}

API(nvmlDeviceGetFanSpeed, nvmlDevice_t device, unsigned int *speed)
{
    CALL_GPU(device);
    return call_gpu(&c)->fans == 0 ? NOT_SUPPORTED : call_u32(&c, SIM_FAN_SPEED, speed);
}

API(nvmlDeviceGetFanSpeed_v2, nvmlDevice_t device, unsigned int fan, unsigned int *speed)
{
    CALL_GPU(device);
    if (call_gpu(&c)->fans == 0)
        return NOT_SUPPORTED;
    return fan >= call_gpu(&c)->fans ? INVALID_ARGUMENT : call_u32(&c, SIM_FAN_SPEED, speed);
}

API(nvmlDeviceGetFanSpeedRPM, nvmlDevice_t device, nvmlFanSpeedInfo_v1_t *info)
{
    CALL_GPU(device);
    NEED(info);
    if (info->version != VERSION_OF(nvmlFanSpeedInfo_v1_t, 1))
        return ARGUMENT_VERSION_MISMATCH;
    if (call_gpu(&c)->fans == 0)
        return NOT_SUPPORTED;
    return info->fan >= call_gpu(&c)->fans ? INVALID_ARGUMENT
                                           : call_u32(&c, SIM_FAN_RPM, &info->speed);
}

// --- Time held back ---

API(nvmlDeviceGetViolationStatus, nvmlDevice_t device, int policy, nvmlViolationTime_t *out)
{
    static const enum sim_field fields[] = {SIM_VIOLATION_POWER,      SIM_VIOLATION_THERMAL,
                                            SIM_VIOLATION_SYNC_BOOST, SIM_VIOLATION_BOARD,
                                            SIM_VIOLATION_LOW_UTIL,   SIM_VIOLATION_RELIABILITY,
                                            SIM_VIOLATION_APP_CLOCKS, SIM_VIOLATION_BASE_CLOCKS};
    CALL_GPU(device);
    bool known = (policy >= 0 && policy <= 5) || policy == 10 || policy == 11;
    if (!out || !known)
        return INVALID_ARGUMENT;
    nvmlReturn_t code = call_u64(&c, fields[policy > 5 ? policy - 4 : policy], &out->violationTime);
    if (code == OK)
        out->referenceTime = (unsigned long long)sim_wall_us(c.node, c.t);
    return code;
}
