// SPDX-License-Identifier: Apache-2.0
// The next entity list in the making: each GPU is asked who it is, in what state, and how it is cut
// into instances.
#pragma once

#include "source/nvml_devices.h"

struct nvml_survey {
    struct nvml *n;
    const struct nvml_devices *old; // the list that is alive
    struct nvml_entity *list;       // owned
    uint32_t count, capacity;
    bool no_memory; // the list is not whole
};

// A GPU from nothing: handle, identity, instances. What cannot be asked is taken from the old list.
void nvml_survey_gpu(struct nvml_survey *b, uint32_t index);
// A GPU of the old list: only what may change.
void nvml_survey_again(struct nvml_survey *b, const struct nvml_entity *old);

// Engines, for tests too.
// "0000000A:1B:00.0" from the numbers, as NVML writes it.
void nvml_format_bus_id(char out[32], unsigned int domain, unsigned int bus, unsigned int device);
// The GPU instance's profile from the name of its MIG device ("NVIDIA A100-SXM4-40GB MIG
// 1c.3g.20gb" gives "3g.20gb"), else by the rule "<slices>g.<ceil(MiB/1024)>gb"; "" when neither is
// known.
void nvml_mig_profile(char out[32], const char *device_name, unsigned int slices,
                      unsigned long long memory_mib);
