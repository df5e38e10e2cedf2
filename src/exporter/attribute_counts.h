// SPDX-License-Identifier: Apache-2.0
// How many device ids there are: in how many replicas each device is offered, and what a node's
// resources have to give and have given. Engines, as attribute.h.
#pragma once

#include "exporter/attribute.h"

// In how many replicas each device is offered by the plugins: out[device], 0 not known. allocatable
// as the kubelet told (pod_resources_stats); NULL: nothing is known. 0, -ENOMEM.
int must_use attribute_offered(const struct attribute_options *o,
                               const struct attribute_device *devices, size_t device_count,
                               const struct pod_devices *allocatable, uint32_t *out);

struct attribute_resource {
    const char *name;    // "nvidia.com/gpu"; of claims the driver: "gpu.nvidia.com"
    bool offer_known;    // never of claims
    size_t allocatable;  // ids offered
    size_t allocated;    // ids held
    size_t first, count; // its range in holders
};

struct attribute_resources {
    size_t count;
    struct attribute_resource *list; // ascending by name
    // The rows that hold an id; those of one id stand together, and `more` is set on all but the
    // last of them. An id is idle when all who hold it are.
    struct attribute_resource_holder {
        size_t row; // in rows
        bool more;
    } * holders;
    size_t holder_count;
};
// Of the resources in either list; rows of our own pod are left out. Names are borrowed from the
// lists. Either list may be NULL. 0, -ENOMEM.
int must_use attribute_resources(const struct attribute_options *o,
                                 const struct pod_devices *allocatable,
                                 const struct pod_devices *rows, struct attribute_resources *out);
void attribute_resources_deinit(struct attribute_resources *r);
