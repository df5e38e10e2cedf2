// SPDX-License-Identifier: Apache-2.0
// One unsupported bit makes the driver refuse the whole mask, so each kind is registered by itself,
// XID first.
#include "source/nvml_events.h"

#include "base/log.h"
#include "source/nvml_call.h"

#define TAKEN_MAX 256 // events in one poll: samples come between
#define FAILURES_MAX 60

static bool arm_gpu(struct nvml *n, struct nvml_events *ev, struct nvml_entity *e)
{
    unsigned long long supported = 0;
    uint32_t index = e->record.index;
    nvmlReturn_t result =
        nvml_call(n, index, nvmlDeviceGetSupportedEventTypes, e->device, &supported);
    if (result == NVML_SUCCESS && !(supported & nvmlEventTypeXidCriticalError))
        return true;
    result = nvml_call(n, index, nvmlDeviceRegisterEvents, e->device, nvmlEventTypeXidCriticalError,
                       ev->set);
    if (result == NVML_ERROR_UNKNOWN)
        return false;
    e->xid_armed = result == NVML_SUCCESS;
    if (e->xid_armed && (supported & nvmlEventMigConfigChange))
        (void)nvml_call(n, index, nvmlDeviceRegisterEvents, e->device, nvmlEventMigConfigChange,
                        ev->set);
    return true;
}

void nvml_events_arm(struct nvml *n, struct nvml_events *ev, struct nvml_devices *d)
{
    ev->armed = false;
    for (uint32_t i = 0; i < d->count; i++) {
        struct nvml_entity *e = &d->list[i];
        if (!nvml_entity_is_gpu(e) || !e->device || e->record.state != FRAME_ENTITY_UP)
            continue;
        if (!ev->set && nvml_call(n, NVML_NO_GPU, nvmlEventSetCreate, &ev->set) != NVML_SUCCESS) {
            ev->set = NULL;
            return;
        }
        if (!e->xid_armed && !arm_gpu(n, ev, e)) {
            log_warn("driver refuses events", LOG_U64("gpu", e->record.index), LOG_LIMIT("events"));
            nvml_events_disarm(n, ev, d);
            return;
        }
        ev->armed |= e->xid_armed;
    }
}

void nvml_events_disarm(struct nvml *n, struct nvml_events *ev, struct nvml_devices *d)
{
    if (ev->set)
        (void)nvml_call(n, NVML_NO_GPU, nvmlEventSetFree, ev->set);
    *ev = (struct nvml_events){.first_generation = ev->first_generation,
                               .second_generation = ev->second_generation};
    for (uint32_t i = 0; i < d->count; i++)
        d->list[i].xid_armed = false;
}

bool nvml_events_is_spoilt(const struct nvml_devices *d)
{
    for (uint32_t i = 0; i < d->count; i++)
        if (d->list[i].xid_armed && d->list[i].record.state == FRAME_ENTITY_LOST)
            return true;
    return false;
}

static nvmlReturn_t take_event(struct nvml *n, struct nvml_events *ev, nvmlEventData_t *data)
{
    // The first generation does not write the instance ids.
    *data = (nvmlEventData_t){.gpuInstanceId = UINT32_MAX, .computeInstanceId = UINT32_MAX};
    if (!ev->first_generation) {
        nvmlReturn_t result = nvml_call(n, NVML_NO_GPU, nvmlEventSetWait_v2, ev->set, data, 0);
        ev->second_generation |= result == NVML_SUCCESS || result == NVML_ERROR_TIMEOUT;
        bool too_old = nvml_is_missing(result) || result == NVML_ERROR_NOT_SUPPORTED;
        if (!too_old || ev->second_generation)
            return result;
        ev->first_generation = true;
    }
    return nvml_call(n, NVML_NO_GPU, nvmlEventSetWait, ev->set, data, 0);
}

// The driver hands out the handle it gave before; should it not, it can still tell the index.
static uint32_t find_gpu(struct nvml *n, const struct nvml_devices *d, nvmlDevice_t device)
{
    uint32_t gpu = nvml_devices_find(d, device);
    unsigned int index = 0;
    if (gpu != UINT32_MAX ||
        nvml_call(n, NVML_NO_GPU, nvmlDeviceGetIndex, device, &index) != NVML_SUCCESS)
        return gpu;
    return nvml_devices_find_index(d, index);
}

static unsigned handle_event(struct nvml *n, struct nvml_devices *d, struct xid_board *board,
                             const nvmlEventData_t *data)
{
    if (data->eventType & nvmlEventMigConfigChange)
        return NVML_EVENTS_MIG_CHANGED;
    uint32_t gpu = find_gpu(n, d, data->device);
    if ((data->eventType & nvmlEventTypeXidCriticalError) && gpu != UINT32_MAX)
        (void)xid_board_event(board, gpu, (uint32_t)data->eventData, data->gpuInstanceId);
    return 0;
}

static unsigned handle_failure(struct nvml *n, struct nvml_events *ev, struct nvml_devices *d,
                               nvmlReturn_t result)
{
    if (nvml_result_is_of_library(result))
        return NVML_EVENTS_UNINITIALIZED;
    if (++ev->failures >= FAILURES_MAX || result == NVML_ERROR_AVOIDED) {
        log_warn("events fail, going on without", LOG_I64("code", result));
        nvml_events_disarm(n, ev, d);
    }
    return nvml_state_of(result) == FRAME_ENTITY_UP ? 0 : NVML_EVENTS_GPU_LOST;
}

unsigned nvml_events_poll(struct nvml *n, struct nvml_events *ev, struct nvml_devices *d,
                          struct xid_board *board)
{
    unsigned found = 0;
    uint64_t started_ns = clock_mono_ns();
    nvmlReturn_t result = NVML_SUCCESS;
    for (unsigned i = 0; ev->set && result == NVML_SUCCESS && i < TAKEN_MAX; i++) {
        nvmlEventData_t data;
        result = take_event(n, ev, &data);
        if (result == NVML_SUCCESS)
            found |= handle_event(n, d, board, &data);
    }
    (void)xid_board_fetched(board, started_ns, result == NVML_ERROR_TIMEOUT);
    if (result != NVML_SUCCESS && result != NVML_ERROR_TIMEOUT)
        return found | handle_failure(n, ev, d, result);
    ev->failures = 0;
    return ev->set && result == NVML_SUCCESS ? found | NVML_EVENTS_MORE : found;
}
