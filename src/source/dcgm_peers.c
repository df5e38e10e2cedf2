// SPDX-License-Identifier: Apache-2.0
// The matrix has a row and a column for each GPU, in one order, which need not be that of their
// ids: the rows name them.
#include "source/dcgm_call.h"
#include "source/dcgm_health_internal.h"

// A GPU that has a row twice would be two series of one name.
static bool is_repeated(const dcgmNvLinkP2PStatus_v1 *status, uint32_t row)
{
    for (uint32_t i = 0; i < row; i++)
        if (status->gpus[i].entityId == status->gpus[row].entityId)
            return true;
    return false;
}

// Returns how many pairs.
static uint32_t add_row(const struct dcgm_devices *v, const dcgmNvLinkP2PStatus_v1 *status,
                        uint32_t count, uint32_t row, struct buf *out)
{
    uint32_t entity = dcgm_devices_find(v, DCGM_FE_GPU, status->gpus[row].entityId), pairs = 0;
    if (entity == UINT32_MAX || is_repeated(status, row))
        return 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t peer = dcgm_devices_find(v, DCGM_FE_GPU, status->gpus[i].entityId);
        int state = status->gpus[row].linkStatus[i];
        bool is_known = state >= DcgmNvLinkP2pStatusOK && state <= DcgmNvLinkP2pStatusUnknown;
        struct frame_peer pair = {
            .entity = entity,
            .peer = peer,
            .status = (uint32_t)(is_known ? state : DcgmNvLinkP2pStatusUnknown),
        };
        if (peer == UINT32_MAX || peer == entity || is_repeated(status, i))
            continue;
        buf_add(out, &pair, sizeof(pair));
        pairs++;
    }
    return pairs;
}

dcgmReturn_t dcgm_peers_read(struct dcgm_health *h, struct buf *out)
{
    dcgmNvLinkP2PStatus_v1 status = {.version = dcgmNvLinkP2PStatus_version1}; // no rows: all
    dcgmReturn_t result = dcgm_call(h->d, dcgmGetNvLinkP2PStatus, h->d->engine, &status);
    if (result != DCGM_ST_OK)
        return result;
    uint32_t count = status.numGpus < DCGM_MAX_NUM_DEVICES ? status.numGpus : DCGM_MAX_NUM_DEVICES;
    struct frame_peers head = {.generation = h->v->generation, .taken_ns = clock_mono_ns()};
    size_t start = frame_begin(out, FRAME_PEERS);
    size_t at = out->len;
    buf_add(out, &head, sizeof(head));
    for (uint32_t i = 0; i < count; i++)
        head.count += add_row(h->v, &status, count, i, out);
    if (!out->error)
        memcpy(out->data + at, &head, sizeof(head));
    frame_end(out, start);
    return DCGM_ST_OK;
}
