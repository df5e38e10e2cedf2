// SPDX-License-Identifier: Apache-2.0
// How NVIDIA's DRA driver names the devices of its pools:
//   gpu-<minor>   gpu-<minor>-mig-<profile without dots>-<profile id>-<placement start>
// Older releases and other kinds of devices (gpu-vfio-<index>) have names of their own, which are
// of neither form. Source: github.com/kubernetes-sigs/dra-driver-nvidia-gpu.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"
#include "base/sv.h"

struct dra_name {
    bool is_mig;
    uint32_t minor;
    uint32_t profile_id, placement; // MIG, else UINT32_MAX
    char profile[32];               // MIG: "1g.12gb", else ""
};
bool must_use dra_name_parse(struct sv device, struct dra_name *out);
