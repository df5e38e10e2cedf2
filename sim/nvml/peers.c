// SPDX-License-Identifier: Apache-2.0
// Peer-to-peer between two GPUs. Over NVLink the states are those that a scenario's DCGM tells,
// too.
#include "double.h"

enum {
    CAPS_READ,
    CAPS_WRITE,
    CAPS_NVLINK,
    CAPS_ATOMICS,
    CAPS_PCI,
    CAPS_END,
    STATUS_NOT_SUPPORTED = 5,
};

API(nvmlDeviceGetP2PStatus, nvmlDevice_t device, nvmlDevice_t peer, int index, int *status)
{
    CALL_GPU(device);
    if (!peer || peer->magic != device->magic || peer->gpu == device->gpu || !status || index < 0 ||
        index >= CAPS_END)
        return INVALID_ARGUMENT;
    nvmlReturn_t code = sim_gpu_return(c.node, peer->gpu, double_opened_at(), c.t);
    if (code != OK)
        return code;
    bool linked = call_gpu(&c)->links > 0 && c.node->gpus[peer->gpu].links > 0;
    if (index == CAPS_NVLINK)
        *status = linked ? (int)atomic_load(&c.node->dcgm.peers[device->gpu][peer->gpu])
                         : STATUS_NOT_SUPPORTED;
    else
        *status = 0;
    return OK;
}
