// SPDX-License-Identifier: Apache-2.0
#include "source/nvml_peers.h"

#include "source/nvml_call.h"

#define SLICE_NS (10 * NS_PER_MS)
#define NEVER UINT64_MAX

void nvml_peers_init(struct nvml_peers *p)
{
    *p = (struct nvml_peers){
        .due_ns = NEVER,
        .rows = BUF_INIT(LIMIT_GPUS * LIMIT_GPUS * sizeof(struct frame_peer)),
    };
}

void nvml_peers_deinit(struct nvml_peers *p)
{
    buf_deinit(&p->rows);
}

void nvml_peers_reset(struct nvml_peers *p, uint64_t now_ns)
{
    p->under_way = false;
    p->due_ns = p->period_ns ? now_ns : NEVER;
}

void nvml_peers_watch(struct nvml_peers *p, const struct frame_watch *watch,
                      const uint16_t *field_ids, uint64_t now_ns)
{
    p->period_ns = 0;
    for (uint32_t i = 0; i < watch->count; i++)
        if (field_ids[i] == FIELD_EXP_P2P)
            p->period_ns = watch->period_ns[FIELD_CLASS_SLOW];
    nvml_peers_reset(p, now_ns);
}

static void begin(struct nvml_peers *p, const struct nvml_devices *d)
{
    buf_reset(&p->rows);
    p->gpu_count = p->at = 0;
    for (uint32_t i = 0; i < d->count && p->gpu_count < LIMIT_GPUS; i++)
        if (nvml_entity_is_gpu(&d->list[i]))
            p->gpus[p->gpu_count++] = i;
    p->under_way = true;
}

static bool is_up(const struct nvml_entity *gpu)
{
    return gpu->device && gpu->record.state == FRAME_ENTITY_UP;
}

// False: there is no such function.
static bool ask_pair(struct nvml_peers *p, struct nvml *n, const struct nvml_devices *d,
                     struct frame_peer pair)
{
    const struct nvml_entity *gpu = &d->list[pair.entity], *peer = &d->list[pair.peer];
    int status;
    if (gpu == peer || !is_up(gpu) || !is_up(peer))
        return true;
    nvmlReturn_t result = nvml_call(n, gpu->record.index, nvmlDeviceGetP2PStatus, gpu->device,
                                    peer->device, NVML_P2P_CAPS_INDEX_NVLINK, &status);
    if (result == NVML_ERROR_FUNCTION_NOT_FOUND)
        return false;
    if (result == NVML_ERROR_NOT_SUPPORTED)
        status = NVML_P2P_STATUS_NOT_SUPPORTED;
    else if (result != NVML_SUCCESS)
        return true;
    else if (status < 0 || status > NVML_P2P_STATUS_UNKNOWN)
        status = NVML_P2P_STATUS_UNKNOWN;
    pair.status = (uint32_t)status;
    buf_add(&p->rows, &pair, sizeof(pair));
    return true;
}

// True: through with all pairs. A call takes longer than a slice where the driver is slow.
static bool ask_slice(struct nvml_peers *p, struct nvml *n, const struct nvml_devices *d,
                      uint64_t now_ns, bool *missing)
{
    uint32_t end = p->gpu_count * p->gpu_count;
    while (p->at < end && !*missing && clock_mono_ns() - now_ns < SLICE_NS) {
        const struct frame_peer pair = {.entity = p->gpus[p->at / p->gpu_count],
                                        .peer = p->gpus[p->at % p->gpu_count]};
        *missing = !ask_pair(p, n, d, pair);
        p->at++;
    }
    return p->at == end;
}

static void add_frame(const struct nvml_peers *p, const struct nvml_devices *d, uint64_t now_ns,
                      struct buf *frame)
{
    const struct frame_peers head = {
        .generation = d->generation,
        .count = (uint32_t)(p->rows.len / sizeof(struct frame_peer)),
        .taken_ns = now_ns,
    };
    buf_reset(frame);
    size_t start = frame_begin(frame, FRAME_PEERS);
    buf_add(frame, &head, sizeof(head));
    buf_add_sv(frame, buf_sv(&p->rows));
    frame_end(frame, start);
    if (p->rows.error)
        frame->error = p->rows.error;
}

bool nvml_peers_read(struct nvml_peers *p, struct nvml *n, const struct nvml_devices *d,
                     struct buf *frame)
{
    uint64_t started_ns = clock_mono_ns();
    bool missing = !n->fn.nvmlDeviceGetP2PStatus;
    if (!p->under_way)
        begin(p, d);
    bool done = ask_slice(p, n, d, started_ns, &missing);
    if (missing) {
        p->under_way = false;
        p->due_ns = NEVER;
        return false;
    }
    uint64_t now_ns = clock_mono_ns(), took_ns = now_ns - started_ns;
    if (!done) { // with a slow driver most of the time is for samples
        p->due_ns = took_ns > 2 * SLICE_NS ? now_ns + 3 * took_ns : now_ns;
        return false;
    }
    p->under_way = false;
    p->due_ns = (now_ns / p->period_ns + 1) * p->period_ns;
    add_frame(p, d, now_ns, frame);
    return true;
}
