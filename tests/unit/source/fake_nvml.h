// SPDX-License-Identifier: Apache-2.0
// A handful of NVML functions behind the table of the source room, with every answer settable.
#pragma once

#include "source/nvml_library.h"

#define FAKE_GPUS 4
#define FAKE_SLOTS 8
#define FAKE_EVENTS 16

struct nvmlDevice_st {
    unsigned gpu;
    int slot; // -1: the GPU
};

struct nvmlGpmSample_st {
    struct nvmlDevice_st of;
    unsigned gi;
    unsigned number; // of the sample, 0: empty
};

struct nvmlGpuInstance_st {
    unsigned gpu, slot;
};

#define FAKE_ROWS 96
enum fake_kind { FAKE_COMPUTE, FAKE_GRAPHICS, FAKE_MPS, FAKE_KINDS };

struct fake_list { // of processes
    nvmlProcessInfo_t rows[FAKE_ROWS];
    unsigned count, calls;
    nvmlReturn_t result;
};

struct fake_slot {
    bool exists;
    unsigned profile_id, placement;
    nvmlMemory_v2_t memory; // total 0: as the GPU's
    struct fake_list lists[FAKE_KINDS];
    unsigned gi, ci;
    unsigned slices;
    unsigned long long memory_mb;
    const char *uuid;
    const char *name;
};

struct fake_gpu {
    nvmlReturn_t result; // of every call to it; 0: the rest says
    unsigned delay_ms;   // each call takes
    const char *uuid;
    const char *name;
    unsigned bus;
    bool gpm;
    bool mig_capable, mig_on;
    struct fake_slot slots[FAKE_SLOTS];
    unsigned temperature;
    unsigned utilization, memory_utilization;
    nvmlMemory_v2_t memory;
    // Usage
    nvmlSample_t samples[FAKE_ROWS]; // the buffer, oldest first
    unsigned sample_count;
    nvmlReturn_t samples_result;
    nvmlProcessUtilizationSample_t utils[FAKE_ROWS];
    unsigned util_count;
    nvmlReturn_t utils_result;
    unsigned long long energy_mj;
    nvmlReturn_t energy_result;
    struct fake_list lists[FAKE_KINDS];
};

struct fake_nvml {
    struct nvml n;
    struct frame_call_page page;
    unsigned gpus;
    struct fake_gpu gpu[FAKE_GPUS];
    // Field values: by id, for all GPUs.
    nvmlFieldValue_t values[512];
    unsigned long long unknown_from; // ids from here on are unknown ...
    bool unknown_fails_all;          // ... and fail the whole call
    unsigned value_calls;
    unsigned last_value_count;
    // GPM
    double metric[400];
    nvmlReturn_t metric_result[400];
    nvmlReturn_t gpm_result, metrics_result;
    unsigned metrics_end; // metrics from here on fail a whole request, as an older library might
    unsigned samples_alive, samples_taken;
    unsigned pair[2]; // numbers of the samples of the last pair
    nvmlGpmMetricsGet_t last_request;
    // Instances
    nvmlReturn_t instance_result;
    unsigned instance_calls;
    void (*on_call)(unsigned gpu); // before each call to it
    // Peers
    int p2p_status[FAKE_GPUS][FAKE_GPUS];
    nvmlReturn_t p2p_result;
    unsigned p2p_calls;
    // Events
    nvmlEventData_t events[FAKE_EVENTS];
    unsigned event_count;
    nvmlEventData_t endless_event; // comes first, that many times
    unsigned endless_count;
    unsigned long long supported_events, registered_events[FAKE_GPUS];
    nvmlReturn_t register_result, wait_result;
    bool set_alive;
};

extern struct fake_nvml fake;

// All functions there, one GPU "GPU-0" that is well; the call page is fake.page.
void fake_reset(void);
nvmlDevice_t fake_device(unsigned gpu);
nvmlDevice_t fake_slot(unsigned gpu, unsigned slot);
void fake_add_slot(unsigned gpu, unsigned slot, unsigned gi, unsigned slices,
                   unsigned long long memory_mb, const char *uuid, const char *name);
void fake_add_process(struct fake_list *list, unsigned pid, unsigned long long memory,
                      unsigned instance);
void fake_set_value(unsigned id, int type, nvmlValue_t value);
