// SPDX-License-Identifier: Apache-2.0
// GPU performance monitoring. A sample remembers what it looked at and when; the metrics of two
// samples are the exact means of the truth between them.
#include "double.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLE_MAGIC 0x47504d53u

struct nvmlGpmSample_st {
    uint32_t magic;
    uint32_t gpu;
    uint32_t gi;       // SIM_NONE: the whole GPU
    uint32_t instance; // the one that stood for the GPU instance
    int64_t t;         // INT64_MIN: empty
};

enum gpm_shape {
    GPM_LOAD,   // percent of the time some kernel was resident
    GPM_RATIO,  // a percent signal
    GPM_WINDOW, // a utilisation signal of the whole GPU
    GPM_MIB,    // bytes counter, MiB per second, of the whole GPU
    GPM_KIB,    // KiB counter, MiB per second, of the whole GPU
};

struct metric {
    unsigned int id;
    enum gpm_shape shape;
    enum sim_field field;
    const char *short_name, *long_name, *unit;
};

static const struct metric metrics[] = {
    {1, GPM_LOAD, SIM_GPU_UTIL, "Graphics Util",
     "Percentage of time any compute/graphics app was active", "%"},
    {2, GPM_RATIO, SIM_GPM_SM, "SM Util", "Percentage of SMs that were busy", "%"},
    {3, GPM_RATIO, SIM_GPM_OCCUPANCY, "SM Occupancy", "Percentage of warps that were active", "%"},
    {4, GPM_RATIO, SIM_GPM_INTEGER, "Integer Util", "Percentage of time integer operations ran",
     "%"},
    {5, GPM_RATIO, SIM_GPM_TENSOR, "Tensor Util", "Percentage of time any tensor operations ran",
     "%"},
    {6, GPM_RATIO, SIM_GPM_DFMA, "DFMA Util", "Percentage of time DFMA tensor operations ran", "%"},
    {7, GPM_RATIO, SIM_GPM_HMMA, "HMMA Util", "Percentage of time HMMA tensor operations ran", "%"},
    {8, GPM_RATIO, SIM_GPM_DMMA, "DMMA Util", "Percentage of time DMMA tensor operations ran", "%"},
    {9, GPM_RATIO, SIM_GPM_IMMA, "IMMA Util", "Percentage of time IMMA tensor operations ran", "%"},
    {10, GPM_RATIO, SIM_GPM_DRAM, "DRAM BW Util", "Percentage of DRAM bandwidth used", "%"},
    {11, GPM_RATIO, SIM_GPM_FP64, "FP64 Util", "Percentage of time non-tensor FP64 math ran", "%"},
    {12, GPM_RATIO, SIM_GPM_FP32, "FP32 Util", "Percentage of time non-tensor FP32 math ran", "%"},
    {13, GPM_RATIO, SIM_GPM_FP16, "FP16 Util", "Percentage of time non-tensor FP16 math ran", "%"},
    {20, GPM_MIB, SIM_PCIE_TX, "PCIe TX", "PCIe traffic from this GPU", "MiB/s"},
    {21, GPM_MIB, SIM_PCIE_RX, "PCIe RX", "PCIe traffic to this GPU", "MiB/s"},
    {30, GPM_WINDOW, SIM_DEC_UTIL, "NVDEC 0 Util", "Percent utilization of NVDEC 0", "%"},
    {40, GPM_WINDOW, SIM_JPG_UTIL, "NVJPG 0 Util", "Percent utilization of NVJPG 0", "%"},
    {50, GPM_WINDOW, SIM_OFA_UTIL, "NVOFA 0 Util", "Percent utilization of NVOFA 0", "%"},
    {60, GPM_KIB, SIM_NVLINK_RX, "NVLink RX", "NVLink read bandwidth of all links", "MiB/s"},
    {61, GPM_KIB, SIM_NVLINK_TX, "NVLink TX", "NVLink write bandwidth of all links", "MiB/s"},
};

static const struct metric *find_metric(unsigned int id)
{
    for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
        if (metrics[i].id == id)
            return &metrics[i];
    }
    return NULL;
}

API(nvmlGpmQueryDeviceSupport, nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    CALL_GPU(device);
    NEED(support);
    if (support->version != 1)
        return ARGUMENT_VERSION_MISMATCH;
    support->isSupportedDevice = call_gpu(&c)->gpm;
    return OK;
}

API(nvmlGpmSampleAlloc, nvmlGpmSample_t *sample)
{
    CALL();
    NEED(sample);
    nvmlGpmSample_t s = calloc(1, sizeof(*s));
    if (!s)
        return MEMORY;
    *s = (struct nvmlGpmSample_st){.magic = SAMPLE_MAGIC, .t = INT64_MIN};
    *sample = s;
    return OK;
}

API(nvmlGpmSampleFree, nvmlGpmSample_t sample)
{
    CALL();
    if (!sample || sample->magic != SAMPLE_MAGIC)
        return INVALID_ARGUMENT;
    sample->magic = 0;
    free(sample);
    return OK;
}

API(nvmlGpmSampleGet, nvmlDevice_t device, nvmlGpmSample_t sample)
{
    CALL_DEVICE(device);
    if (!sample || sample->magic != SAMPLE_MAGIC)
        return INVALID_ARGUMENT;
    if (!call_gpu(&c)->gpm)
        return NOT_SUPPORTED;
    sample->gpu = c.gpu;
    sample->instance = c.instance;
    sample->gi = call_is_mig(&c) ? c.node->instances[c.instance].gi : SIM_NONE;
    sample->t = c.t;
    return OK;
}

API(nvmlGpmMigSampleGet, nvmlDevice_t device, unsigned int gi, nvmlGpmSample_t sample)
{
    CALL_GPU(device);
    if (!sample || sample->magic != SAMPLE_MAGIC)
        return INVALID_ARGUMENT;
    if (!call_gpu(&c)->gpm || !call_mig_enabled(&c))
        return NOT_SUPPORTED;
    for (uint32_t i = 0; i < c.node->instance_count; i++) {
        const struct sim_instance *x = &c.node->instances[i];
        if (x->gpu != c.gpu || x->gi != gi || !sim_instance_alive(c.node, i, c.t))
            continue;
        *sample = (struct nvmlGpmSample_st){SAMPLE_MAGIC, c.gpu, gi, i, c.t};
        return OK;
    }
    return INVALID_ARGUMENT;
}

static nvmlReturn_t measure(const struct sim_node *n, const struct nvmlGpmSample_st *from,
                            const struct nvmlGpmSample_st *to, const struct metric *m, double *out)
{
    bool whole = to->gi == SIM_NONE;
    double value = (double)NAN;
    switch (m->shape) {
    case GPM_LOAD:
        value = (double)sim_load_integral(n, to->gpu, to->gi, from->t, to->t) /
                (double)(to->t - from->t) / 1e4;
        break;
    case GPM_RATIO:
        value = sim_instance_mean(n, to->gpu, to->gi, m->field, from->t, to->t);
        break;
    case GPM_WINDOW:
        value = whole ? sim_mean(n, to->gpu, m->field, from->t, to->t) : value;
        break;
    case GPM_MIB:
        value = whole ? sim_mean(n, to->gpu, m->field, from->t, to->t) / 1048576 : value;
        break;
    case GPM_KIB:
        value = whole ? sim_mean(n, to->gpu, m->field, from->t, to->t) / 1024 : value;
        break;
    }
    if (isnan(value))
        return NOT_SUPPORTED;
    *out = value;
    return OK;
}

static bool same_window(const struct nvmlGpmSample_st *a, const struct nvmlGpmSample_st *b)
{
    return a && b && a->magic == SAMPLE_MAGIC && b->magic == SAMPLE_MAGIC && a->gpu == b->gpu &&
           a->gi == b->gi && a->instance == b->instance;
}

API(nvmlGpmMetricsGet, nvmlGpmMetricsGet_t *get)
{
    CALL();
    NEED(get);
    if (get->version != 1)
        return ARGUMENT_VERSION_MISMATCH;
    if (get->numMetrics == 0 || get->numMetrics > GPM_METRIC_MAX ||
        !same_window(get->sample1, get->sample2))
        return INVALID_ARGUMENT;
    if (get->sample1->t == INT64_MIN || get->sample2->t <= get->sample1->t)
        return NO_DATA;
    for (unsigned int i = 0; i < get->numMetrics; i++) {
        nvmlGpmMetric_t *out = &get->metrics[i];
        const struct metric *m = find_metric(out->metricId);
        out->value = (double)NAN;
        if (!m) {
            out->nvmlReturn = out->metricId == 0 || out->metricId >= GPM_METRIC_MAX
                                  ? INVALID_ARGUMENT
                                  : NOT_SUPPORTED;
            continue;
        }
        out->nvmlReturn = measure(c.node, get->sample1, get->sample2, m, &out->value);
        out->metricInfo.shortName = (char *)(uintptr_t)m->short_name;
        out->metricInfo.longName = (char *)(uintptr_t)m->long_name;
        out->metricInfo.unit = (char *)(uintptr_t)m->unit;
    }
    return OK;
}

API(nvmlGpmQueryIfStreamingEnabled, nvmlDevice_t device, unsigned int *state)
{
    CALL_GPU(device);
    NEED(state);
    *state = 0;
    return call_gpu(&c)->gpm ? OK : NOT_SUPPORTED;
}
