// SPDX-License-Identifier: Apache-2.0
// How it works: base and spare change places at each reading, so two objects an entity are enough.
// The request struct is the largest the header ever had, one for the process, zeroed before each
// use: the library fills as many rows as numMetrics says and knows no other version.
#include "source/nvml_gpm.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "source/nvml_call.h"

// Read and written by the one thread that calls NVML.
static nvmlGpmMetricsGet_t request;

bool nvml_gpm_supported(struct nvml *n, nvmlDevice_t device, uint32_t gpu_index)
{
    nvmlGpmSupport_t support = {.version = 1};
    nvmlReturn_t result = nvml_call(n, gpu_index, nvmlGpmQueryDeviceSupport, device, &support);
    return result == NVML_SUCCESS && support.isSupportedDevice == 1;
}

void nvml_gpm_reset(struct nvml *n, struct nvml_gpm *gpm, uint32_t gpu_index)
{
    if (gpm->base)
        (void)nvml_call(n, gpu_index, nvmlGpmSampleFree, gpm->base);
    if (gpm->spare)
        (void)nvml_call(n, gpu_index, nvmlGpmSampleFree, gpm->spare);
    *gpm = (struct nvml_gpm){0};
}

static nvmlReturn_t take_sample(struct nvml *n, struct nvml_gpm *gpm,
                                const struct nvml_gpm_target *target)
{
    if (!gpm->spare) {
        nvmlReturn_t result = nvml_call(n, target->gpu_index, nvmlGpmSampleAlloc, &gpm->spare);
        if (result != NVML_SUCCESS) {
            gpm->spare = NULL;
            return result;
        }
    }
    if (target->mig_gi == UINT32_MAX)
        return nvml_call(n, target->gpu_index, nvmlGpmSampleGet, target->device, gpm->spare);
    return nvml_call(n, target->gpu_index, nvmlGpmMigSampleGet, target->device, target->mig_gi,
                     gpm->spare);
}

static void make_base(struct nvml_gpm *gpm, uint64_t now_ns)
{
    nvmlGpmSample_t older = gpm->base;
    gpm->base = gpm->spare;
    gpm->spare = older;
    gpm->base_ns = now_ns;
}

static bool is_refused(const struct nvml *n, unsigned int metric)
{
    return metric >= NVML_GPM_METRIC_MAX || (n->gpm_refused[metric / 64] >> metric % 64 & 1);
}

// Asks for the metrics that are not refused, of the pair (base, spare).
static nvmlReturn_t request_metrics(struct nvml *n, const struct nvml_gpm *gpm, uint32_t gpu_index,
                                    const struct nvml_gpm_value *values, uint32_t count)
{
    memset(&request, 0,
           offsetof(nvmlGpmMetricsGet_t, metrics) + count * sizeof(request.metrics[0]));
    request.version = 1;
    request.sample1 = gpm->base;
    request.sample2 = gpm->spare;
    for (uint32_t i = 0; i < count; i++)
        if (!is_refused(n, values[i].metric))
            request.metrics[request.numMetrics++].metricId = values[i].metric;
    if (!request.numMetrics)
        return NVML_SUCCESS;
    return nvml_call(n, gpu_index, nvmlGpmMetricsGet, &request);
}

static void take_metric(const nvmlGpmMetric_t *metric, struct nvml_gpm_value *value)
{
    value->result = metric->nvmlReturn;
    value->value = metric->value;
    if (value->result == NVML_SUCCESS && !isfinite(value->value))
        value->result = NVML_ERROR_NO_DATA;
}

// After a request failed for its arguments: each metric alone (no trip to the driver: the library
// computes from the samples), and those that fail are not asked again. When all fail it is not
// they.
static nvmlReturn_t get_one_by_one(struct nvml *n, const struct nvml_gpm *gpm, uint32_t gpu_index,
                                   struct nvml_gpm_value *values, uint32_t count)
{
    uint32_t answered = 0;
    for (uint32_t i = 0; i < count; i++) {
        values[i].result = NVML_ERROR_NOT_SUPPORTED;
        if (is_refused(n, values[i].metric))
            continue;
        values[i].result = request_metrics(n, gpm, gpu_index, &values[i], 1);
        if (values[i].result != NVML_SUCCESS)
            continue;
        take_metric(&request.metrics[0], &values[i]);
        answered++;
    }
    for (uint32_t i = 0; answered && i < count; i++)
        if (values[i].result == NVML_ERROR_INVALID_ARGUMENT)
            n->gpm_refused[values[i].metric / 64] |= UINT64_C(1) << values[i].metric % 64;
    return answered ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t get_metrics(struct nvml *n, const struct nvml_gpm *gpm, uint32_t gpu_index,
                                struct nvml_gpm_value *values, uint32_t count)
{
    nvmlReturn_t result = request_metrics(n, gpm, gpu_index, values, count);
    if (result == NVML_ERROR_INVALID_ARGUMENT && request.numMetrics > 1)
        return get_one_by_one(n, gpm, gpu_index, values, count);
    if (result != NVML_SUCCESS)
        return result;
    for (uint32_t i = 0, at = 0; i < count; i++) {
        if (is_refused(n, values[i].metric))
            values[i].result = NVML_ERROR_NOT_SUPPORTED;
        else
            take_metric(&request.metrics[at++], &values[i]);
    }
    return NVML_SUCCESS;
}

bool nvml_gpm_is_ripe(const struct nvml_gpm *gpm, uint64_t now_ns)
{
    return gpm->base_ns && now_ns - gpm->base_ns >= NVML_GPM_LEAST_NS;
}

nvmlReturn_t nvml_gpm_read(struct nvml *n, struct nvml_gpm *gpm,
                           const struct nvml_gpm_target *target, uint64_t now_ns,
                           struct nvml_gpm_value *values, uint32_t count)
{
    assert(count <= NVML_GPM_METRIC_MAX);
    bool had_base = gpm->base_ns != 0;
    if (had_base && !nvml_gpm_is_ripe(gpm, now_ns))
        return NVML_ERROR_NOT_READY;
    nvmlReturn_t result = take_sample(n, gpm, target);
    if (result == NVML_SUCCESS && had_base)
        result = get_metrics(n, gpm, target->gpu_index, values, count);
    if (result != NVML_SUCCESS) {
        gpm->base_ns = 0;
        return result;
    }
    make_base(gpm, now_ns);
    return had_base ? NVML_SUCCESS : NVML_ERROR_NO_DATA;
}
